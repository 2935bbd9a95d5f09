/*
 * CPUs, clocks and cache lines in one thread (lines_sim.h).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "lines_sim.h"

#define STACK_SIZE (64 * 1024)
#define LINES_BITS 17
#define LINES      (1u << LINES_BITS)   /* room for as many */
#define NEVER      UINT64_MAX

/* --- CPUs: each has a stack; those that do not run are a heap, the earliest clock first --- */

static struct cpu {
        void *sp;
        void (*run)(unsigned cpu);
        uint64_t clock;                 /* NEVER: it sleeps without a limit */
        const void *sleeps_on;
        uint64_t slept_at;
        struct line *last;              /* that it used */
        uint64_t spent[SPENT_KINDS];
} cpus[SIM_CPUS];
static unsigned heap[SIM_CPUS], place[SIM_CPUS], nheap;
static unsigned running;
static bool runs;
static void *home;
static char *stacks;
static struct sim_cost price;
static void (*on_switch)(unsigned cpu);

/* Saves the registers that a function keeps, and continues where the other stack has saved its
 * own. */
void sim_switch(void **save, void *load);
__asm__(".text\n"
        "sim_switch:\n"
        "        push %rbp\n"
        "        push %rbx\n"
        "        push %r12\n"
        "        push %r13\n"
        "        push %r14\n"
        "        push %r15\n"
        "        mov %rsp, (%rdi)\n"
        "        mov %rsi, %rsp\n"
        "        pop %r15\n"
        "        pop %r14\n"
        "        pop %r13\n"
        "        pop %r12\n"
        "        pop %rbx\n"
        "        pop %rbp\n"
        "        ret\n");

static bool earlier(unsigned a, unsigned b)
{
        return cpus[a].clock < cpus[b].clock || (cpus[a].clock == cpus[b].clock && a < b);
}

static void put_at(unsigned i, unsigned cpu)
{
        heap[i] = cpu;
        place[cpu] = i;
}

static void sift_up(unsigned i, unsigned cpu)
{
        for (; i > 0 && earlier(cpu, heap[(i - 1) / 2]); i = (i - 1) / 2)
                put_at(i, heap[(i - 1) / 2]);
        put_at(i, cpu);
}

static void sift_down(unsigned i, unsigned cpu)
{
        for (unsigned c; (c = 2 * i + 1) < nheap; i = c) {
                if (c + 1 < nheap && earlier(heap[c + 1], heap[c]))
                        c++;
                if (!earlier(heap[c], cpu))
                        break;
                put_at(i, heap[c]);
        }
        put_at(i, cpu);
}

static void stop_running(void)
{
        runs = false;
        sim_switch(&cpus[running].sp, home);
}

/* Lets earlier CPUs run first. */
static void turn(void)
{
        unsigned me = running;
        bool first = !nheap || earlier(me, heap[0]);

        if (cpus[first ? me : heap[0]].clock == NEVER)
                stop_running();         /* all sleep */
        if (first)
                return;
        running = heap[0];
        sift_down(0, me);
        if (cpus[running].sleeps_on) {  /* its limit has passed */
                cpus[running].sleeps_on = NULL;
                cpus[running].spent[SPENT_ASLEEP] +=
                        cpus[running].clock - cpus[running].slept_at;
        }
        on_switch(running);
        sim_switch(&cpus[me].sp, cpus[running].sp);
}

static void cpu_main(void)
{
        cpus[running].run(running);
        abort();
}

void sim_spawn(unsigned cpu, void (*run)(unsigned cpu))
{
        /* On entry to a function the stack is 8 bytes off a multiple of 16. */
        void **top = (void **)(stacks + (size_t)(cpu + 1) * STACK_SIZE) - 2;

        *top = (void *)cpu_main;
        cpus[cpu] = (struct cpu){ .sp = top - 6, .run = run };
        sift_up(nheap++, cpu);
}

static bool stopped;

bool sim_run(void)
{
        stopped = false;
        runs = true;
        running = heap[0];
        unsigned last = heap[--nheap];
        if (nheap)
                sift_down(0, last);
        on_switch(running);
        sim_switch(&home, cpus[running].sp);
        return stopped;
}

void sim_stop(void)
{
        stopped = true;
        stop_running();
        abort();
}

unsigned sim_cpu(void) { return running; }
uint64_t sim_now(void) { return cpus[running].clock; }
uint64_t sim_spent(unsigned cpu, enum sim_spent what)
{
        const struct cpu *c = &cpus[cpu];
        bool sleeps = what == SPENT_ASLEEP && c->sleeps_on;

        return c->spent[what] + (sleeps ? cpus[running].clock - c->slept_at : 0);
}

static void spend(enum sim_spent what, uint64_t ns)
{
        cpus[running].clock += ns;
        cpus[running].spent[what] += ns;
}

void sim_spend(enum sim_spent what, uint64_t ns)
{
        if (!runs)
                return;
        spend(what, ns);
        turn();
}

void sim_sleep(const void *word, uint32_t seen, uint64_t ns)
{
        struct cpu *c = &cpus[running];

        turn();
        if (*(const volatile uint32_t *)word != seen)
                return;
        c->sleeps_on = word;
        c->slept_at = c->clock;
        c->clock = ns ? c->clock + ns : NEVER;
        turn();
        c->sleeps_on = NULL;
}

void sim_wake(const void *word, uint32_t most)
{
        uint64_t now = cpus[running].clock;

        turn();
        for (unsigned i = 0; i < SIM_CPUS && most > 0; i++) {
                struct cpu *c = &cpus[i];
                if (c->sleeps_on != word)
                        continue;
                c->sleeps_on = NULL;
                c->clock = now > c->slept_at ? now : c->slept_at;
                c->spent[SPENT_ASLEEP] += c->clock - c->slept_at;
                sift_up(place[i], i);
                most--;
        }
}

/* --- lines: a hash table, with open addresses --- */

struct line {
        struct sim_line count;
        uint64_t has[2];                /* CPUs that have it as it is now */
        uint64_t busy_until;
        bool written;                   /* at any time */
        bool owned;                     /* by the one CPU that has it, which wrote it last */
};
static struct line *lines;
static uint32_t nlines;

static struct { uintptr_t start, end; } exempt[8];
static unsigned nexempt;

void sim_exempt(const void *start, size_t size)
{
        if (nexempt == sizeof(exempt) / sizeof(exempt[0]))
                abort();
        exempt[nexempt].start = (uintptr_t)start;
        exempt[nexempt++].end = (uintptr_t)start + size;
}

static bool is_exempt(uintptr_t addr)
{
        for (unsigned i = 0; i < nexempt; i++)
                if (addr - exempt[i].start < exempt[i].end - exempt[i].start)
                        return true;
        return false;
}

static struct line *line_of(uintptr_t addr)
{
        uint64_t number = addr / SIM_LINE;
        uint32_t at = (uint32_t)(number * 0x9e3779b97f4a7c15ull >> (64 - LINES_BITS));

        for (; lines[at].count.addr != number * SIM_LINE; at = (at + 1) % LINES)
                if (!lines[at].count.addr) {
                        if (++nlines > LINES / 4 * 3)
                                abort();
                        lines[at].count.addr = number * SIM_LINE;
                        break;
                }
        return &lines[at];
}

enum access { LOAD, STORE, LOCKED };

/* Can the CPU that runs do that without a move? */
static bool has(const struct line *l, enum access how)
{
        uint64_t mine = 1ull << running % 64, here = l->has[running / 64];
        uint64_t there = l->has[!(running / 64)];

        if (how == LOAD)
                return (here & mine) || !l->written;
        return !(here & ~mine) && !there;
}

static void move(struct line *l, uintptr_t addr, enum access how)
{
        uint64_t now = cpus[running].clock;

        if (l->busy_until > now) {
                l->count.waited += l->busy_until - now;
                spend(SPENT_QUEUES, l->busy_until - now);
        }
        spend(SPENT_MOVES, price.move);
        l->count.moves++;
        l->count.word[addr % SIM_LINE / 4]++;
        if (how != LOAD || l->owned)    /* CPUs that only load a shared line do not queue */
                l->busy_until = cpus[running].clock;
}

static void use(const volatile void *p, enum access how)
{
        uintptr_t addr = (uintptr_t)p;

        if (!runs || is_exempt(addr))
                return;
        turn();
        struct line *l = line_of(addr);
        cpus[running].last = l;
        if (has(l, how))
                spend(SPENT_PLAIN, price.plain);
        else
                move(l, addr, how);
        if (how == LOAD) {
                l->owned &= (l->has[running / 64] >> running % 64) & 1;
        } else {
                l->has[0] = l->has[1] = 0;
                l->written = l->owned = true;
        }
        l->has[running / 64] |= 1ull << running % 64;
}

uint64_t sim_look(const void *word) { return *(const volatile uint64_t *)word; }

void sim_pause(uint64_t ns)
{
        if (runs && cpus[running].last)
                cpus[running].last->count.waited += ns;
        sim_spend(SPENT_SPINS, ns);
}

void sim_count_anew(void)
{
        for (uint32_t i = 0; i < LINES; i++) {
                if (!lines[i].count.moves)
                        continue;
                lines[i].count.moves = lines[i].count.waited = 0;
                memset(lines[i].count.word, 0, sizeof(lines[i].count.word));
        }
        for (unsigned i = 0; i < SIM_CPUS; i++) {
                memset(cpus[i].spent, 0, sizeof(cpus[i].spent));
                cpus[i].slept_at = cpus[running].clock;
        }
}

void sim_lines(void (*f)(const struct sim_line *line, void *arg), void *arg)
{
        for (uint32_t i = 0; i < LINES; i++)
                if (lines[i].count.moves)
                        f(&lines[i].count, arg);
}

static void *room(size_t size)
{
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
                abort();
        return p;
}

void sim_begin(struct sim_cost cost, void (*switched)(unsigned cpu))
{
        price = cost;
        on_switch = switched;
        nheap = nexempt = 0;
        nlines = 0;
        lines = room(LINES * sizeof(*lines));
        stacks = room((size_t)SIM_CPUS * STACK_SIZE);
        sim_exempt(stacks, (size_t)SIM_CPUS * STACK_SIZE);
}

/* --- what compilers call, under other names in C: some of them know these as their own --- */

#define CALLED(type, name, ...) \
        type on_##name(__VA_ARGS__) __asm__("__tsan_" #name); type on_##name(__VA_ARGS__)

CALLED(void, init, void) {}
CALLED(void, func_entry, void *pc) { (void)pc; }
CALLED(void, func_exit, void) {}
CALLED(void, atomic_thread_fence, int order) { (void)order; }
CALLED(void, atomic_signal_fence, int order) { (void)order; }

#define PLAIN(size) \
        CALLED(void, read##size, void *p) { use(p, LOAD); } \
        CALLED(void, write##size, void *p) { use(p, STORE); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
PLAIN(_range)                           /* with a size behind the address */
#define UNALIGNED(size) \
        CALLED(void, unaligned_read##size, void *p) { use(p, LOAD); } \
        CALLED(void, unaligned_write##size, void *p) { use(p, STORE); }
UNALIGNED(2)
UNALIGNED(4)
UNALIGNED(8)
UNALIGNED(16)

CALLED(void *, memcpy, void *d, const void *s, size_t n)
{
        use(s, LOAD);
        use(d, STORE);
        return memcpy(d, s, n);
}

CALLED(void *, memmove, void *d, const void *s, size_t n)
{
        use(s, LOAD);
        use(d, STORE);
        return memmove(d, s, n);
}

CALLED(void *, memset, void *d, int c, size_t n)
{
        use(d, STORE);
        return memset(d, c, n);
}

/* A compare-and-swap takes its line even if it fails. */
#define OPERATION(bits, type, name, operator)                                                   \
        CALLED(type, atomic##bits##_##name, volatile type *p, type v, int order)                \
        {                                                                                       \
                (void)order;                                                                    \
                use(p, LOCKED);                                                                 \
                type old = *p;                                                                  \
                *p = (type)(operator);                                                          \
                return old;                                                                     \
        }
#define SWAP(bits, type)                                                                        \
        static bool swap##bits(volatile type *p, type *seen, type v)                            \
        {                                                                                       \
                use(p, LOCKED);                                                                 \
                type old = *p;                                                                  \
                bool same = old == *seen;                                                       \
                if (same)                                                                       \
                        *p = v;                                                                 \
                *seen = old;                                                                    \
                return same;                                                                    \
        }
#define COMPARE(bits, type, name)                                                               \
        CALLED(int, atomic##bits##_##name, volatile type *p, type *seen, type v, int order,     \
               int otherwise)                                                                   \
        {                                                                                       \
                (void)order;                                                                    \
                (void)otherwise;                                                                \
                return swap##bits(p, seen, v);                                                  \
        }
/* clang's: returns what was there. */
#define COMPARE_VAL(bits, type)                                                                 \
        CALLED(type, atomic##bits##_compare_exchange_val, volatile type *p, type seen, type v,  \
               int order, int otherwise)                                                        \
        {                                                                                       \
                (void)order;                                                                    \
                (void)otherwise;                                                                \
                swap##bits(p, &seen, v);                                                        \
                return seen;                                                                    \
        }
#define ATOMICS(bits, type)                                                                     \
        CALLED(type, atomic##bits##_load, const volatile type *p, int order)                    \
        {                                                                                       \
                (void)order;                                                                    \
                use(p, LOAD);                                                                   \
                return *p;                                                                      \
        }                                                                                       \
        CALLED(void, atomic##bits##_store, volatile type *p, type v, int order)                 \
        {                                                                                       \
                (void)order;                                                                    \
                use(p, STORE);                                                                  \
                *p = v;                                                                         \
        }                                                                                       \
        OPERATION(bits, type, exchange, v)                                                      \
        OPERATION(bits, type, fetch_add, old + v)                                               \
        OPERATION(bits, type, fetch_sub, old - v)                                               \
        OPERATION(bits, type, fetch_and, old &v)                                                \
        OPERATION(bits, type, fetch_or, old | v)                                                \
        OPERATION(bits, type, fetch_xor, old ^ v)                                               \
        SWAP(bits, type)                                                                        \
        COMPARE(bits, type, compare_exchange_strong)                                            \
        COMPARE(bits, type, compare_exchange_weak)                                              \
        COMPARE_VAL(bits, type)
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
