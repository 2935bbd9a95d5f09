/*
 * A guide for redis-server 5 to 7 as it is: lists (LRANGE and the like), and large strings (GET).
 *
 *      vmrun --guide redis ... redis-server ...
 *
 * A list is a chain of nodes (quicklist.h of redis), each with a block of elements of 8 KiB:
 *
 *      struct { prev, next, entry; size_t sz; unsigned count:16, encoding:2, container:2 ... }
 *
 * A server without debug information does not say where its nodes are, and a fault is in a block,
 * not in a node.  But a thread that walks a list has the node, or the iterator whose second word it
 * is, in a register or on the stack.  So the guide looks there for an address of something that has
 * the form of a node, and whose block was touched.  From then on it follows `next`, and keeps the
 * blocks of some nodes ahead of the walk on their way.
 *
 * It never touches memory that may be far: vmg_peek() says whether a node is here.  A node that is
 * far is asked for, and the guide follows it when the walk comes there.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include "vmguest.h"

#define AHEAD 12                        /* nodes */
#define STACK_WORDS 96                  /* that are looked at */
#define STRING_MOST (256u << 10)        /* bytes of a string that are asked for at once */

struct node { uint64_t prev, next, entry, sz; uint32_t bits, pad; };

static bool is_node(const struct node *n)
{
        unsigned count = n->bits & 0xffff, encoding = n->bits >> 16 & 3,
                 container = n->bits >> 18 & 3;

        return n->entry && n->sz && n->sz < 1ul << 30 && count && encoding == 1 &&
               (container == 1 || container == 2) && n->prev % 8 == 0 && n->next % 8 == 0;
}

/* Nodes whose blocks the walk has not passed yet, in order, and the node behind them, if its own
 * page was far.  One walk at a time: redis carries out commands in one thread. */
static struct {
        unsigned n;
        struct { uint64_t at, start, end, next; } node[AHEAD];
        uint64_t pending;
} walk;

/* The thread whose guide has the walk; 0: none.  A guide may be ended anywhere, by a signal, and
 * then does not give it back: so its thread takes it again, and others do after some time. */
static _Atomic uint64_t owner;
static _Atomic unsigned refused;
#define PATIENCE 64

static bool enter(const struct vmg_fault *f)
{
        uint64_t me = f->reg[VMG_RSP] >> 16 | 1, was = 0;       /* stacks are far apart */

        /* Acquire, with the release in leave(): the walk is what the last owner made it. */
        if (atomic_compare_exchange_strong_explicit(&owner, &was, me, memory_order_acquire,
                                                    memory_order_relaxed))
                return true;
        if (was != me && atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed) < PATIENCE)
                return false;
        atomic_store_explicit(&refused, 0, memory_order_relaxed);
        if (!atomic_compare_exchange_strong_explicit(&owner, &was, me, memory_order_acquire,
                                                     memory_order_relaxed))
                return false;
        walk.n = 0;                     /* it may be half of something */
        walk.pending = 0;
        return true;
}

static void leave(void) { atomic_store_explicit(&owner, 0, memory_order_release); }

/* Where an instruction that faults had the node: 0 to 15 a register, then words of the stack.  An
 * instruction that has none, as most, is looked at ever more rarely: a search costs 50,000
 * instructions. */
static struct place { uint64_t rip; uint16_t misses, where; bool known; } places[256];
#define MISSES 4                        /* in a row; then one fault in RARELY is looked at */
#define RARELY 64

static bool push(uint64_t at, const struct node *n)
{
        if (walk.n >= AHEAD)
                return false;
        walk.node[walk.n].at = at;
        walk.node[walk.n].start = n->entry & ~(VMG_PAGE - 1ul);
        walk.node[walk.n].end = n->entry + n->sz;
        walk.node[walk.n++].next = n->next;
        walk.pending = 0;
        return true;
}

/* Asks for the blocks of nodes up to AHEAD.  A walk that has just been found is at addr, in a block
 * of several pages, and the rest of that block is needed first; 0: the block was asked for. */
static void extend(uint64_t addr)
{
        struct iovec ask[AHEAD + 2];
        struct node n;
        int asks = 0;

        addr = (addr | (VMG_PAGE - 1)) + 1;
        if (walk.n == 1 && addr > walk.node[0].start && addr < walk.node[0].end)
                ask[asks++] = (struct iovec){ (void *)addr, walk.node[0].end - addr };
        while (walk.n && walk.n < AHEAD && walk.node[walk.n - 1].next) {
                uint64_t at = walk.node[walk.n - 1].next;
                if (vmg_peek(&n, (const void *)at, sizeof(n)) != 0) {
                        if (walk.pending != at)
                                ask[asks++] = (struct iovec){ (void *)at, sizeof(n) };
                        walk.pending = at;
                        break;
                }
                if (!is_node(&n) || n.prev != walk.node[walk.n - 1].at || !push(at, &n))
                        break;
                ask[asks++] = (struct iovec){ (void *)n.entry, n.sz };
        }
        if (asks)
                vmg_prefetchv(ask, asks);
}

/* Is the walk, as it is known, at this address?  What lies behind it is dropped then. */
static bool continues(uint64_t addr)
{
        struct node n;

        for (unsigned i = 0; i < walk.n && i < AHEAD; i++)
                if (addr >= walk.node[i].start && addr < walk.node[i].end) {
                        walk.n -= i;
                        memmove(walk.node, walk.node + i, walk.n * sizeof(walk.node[0]));
                        return true;
                }
        if (!walk.pending || walk.pending / VMG_PAGE != addr / VMG_PAGE)
                return false;
        /* The node that was far: its page is here if this is its first use. */
        uint64_t at = walk.pending;
        walk.pending = 0;
        if (vmg_peek(&n, (const void *)at, sizeof(n)) != 0 || !is_node(&n))
                return false;
        walk.n = 0;
        return push(at, &n);
}

/* Does v lead to the node whose block has the address? */
static bool leads(uint64_t v, uint64_t addr)
{
        struct { uint64_t list, current; } iterator;
        struct node n;

        for (int step = 0; step < 2; step++) {
                if (v % 8 != 0 || v < VMG_PAGE || v >= 1ul << 47 ||
                    vmg_peek(&n, (const void *)v, sizeof(n)) != 0)
                        return false;
                if (is_node(&n) && addr >= n.entry && addr < n.entry + n.sz) {
                        walk.n = 0;
                        return push(v, &n);
                }
                memcpy(&iterator, &n, sizeof(iterator));
                v = iterator.current;
        }
        return false;
}

/* A register, or a word of the stack; 0: it is not here. */
static uint64_t word_at(const struct vmg_fault *f, unsigned where)
{
        uint64_t word = 0;

        if (where < 16)
                return f->reg[where];
        vmg_peek(&word, (const uint64_t *)(f->reg[VMG_RSP] & ~7ul) + where - 16, sizeof(word));
        return word;
}

static bool found(struct place *p, unsigned where)
{
        p->where = (uint16_t)where;
        p->known = true;
        p->misses = 0;
        return true;
}

static bool find(const struct vmg_fault *f)
{
        struct place *p = &places[f->reg[VMG_RIP] * 0x9e3779b97f4a7c15ul >> 56];
        uint64_t stack[STACK_WORDS];

        if (p->rip != f->reg[VMG_RIP])
                *p = (struct place){ .rip = f->reg[VMG_RIP] };
        if (p->known && leads(word_at(f, p->where), f->addr))
                return found(p, p->where);
        unsigned misses = p->misses++;
        if ((misses >= MISSES && misses % RARELY != 0) ||
            vmg_peek(stack, (const void *)(f->reg[VMG_RSP] & ~7ul), sizeof(stack)) != 0)
                return false;
        for (unsigned i = 0; i < 16 + STACK_WORDS; i++)
                if (leads(i < 16 ? f->reg[i] : stack[i - 16], f->addr))
                        return found(p, i);
        return false;
}

/*
 * A thread that reads a string looks first at the last byte of its header, which lies before the
 * text (sds.h of redis): uint32_t len, alloc; a byte whose lower bits are 3.  malloc() aligns the
 * header to 16 bytes.
 */
#define HEADER 9
static bool may_be_string(const struct vmg_fault *f) { return f->addr % 16 == HEADER - 1; }

static void ask_for_string(const struct vmg_fault *f)
{
        struct __attribute__((packed)) { uint32_t len, alloc; uint8_t flags; } h;

        _Static_assert(sizeof(h) == HEADER, "as redis packs it");
        if (vmg_peek(&h, (const void *)(f->addr - HEADER + 1), sizeof(h)) == 0 && h.flags == 3 &&
            h.len > VMG_PAGE && h.len <= h.alloc && h.alloc < 2ul * h.len + (1u << 20))
                vmg_prefetch((const void *)(f->addr + 1),
                             h.len < STRING_MOST ? h.len : STRING_MOST);
}

static long guide(const struct vmg_fault *f, void *arg)
{
        long again = 0;

        (void)arg;
        if (f->event == VMG_CAME) {
                ask_for_string(f);
                return 0;
        }
        if (!enter(f))
                return 0;
        if (continues(f->addr))
                extend(0);
        else if (find(f))
                extend(f->addr);
        else if (f->event == VMG_MISSED && may_be_string(f))
                again = VMG_AGAIN;
        leave();
        return again;
}

/* All of the program's memory.  What is executed next inherits LD_PRELOAD: only in a server is
 * there something to do. */
static __attribute__((constructor)) void begin(void)
{
        extern char *program_invocation_short_name;

        if (strncmp(program_invocation_short_name, "redis-server", 12) == 0)
                vmg_guide(NULL, (1ul << 47) - VMG_PAGE, guide, NULL);
}
