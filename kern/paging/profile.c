/*
 * The fault profile: the program's stack, by its frame pointers, and the table of stacks
 * (include/fault_profile.h).
 *
 * A program may keep anything in RBP, and write anything where frames would be.  So each word is
 * read through the window, and only if its page is here; a frame lies above the one before, and not
 * far; and a return address is code.  A word that breaks one of these rules ends the stack.
 */
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "include/fault_profile.h"
#include "pager/env.h"
#include "paging/profile.h"
#include "space/vma.h"

#define FRAME_MOST   (1 << 20)          /* bytes from one frame to the next */
#define PROBES       64                 /* places of the table that are looked at */
#define SYSCALL_SIZE 2                  /* bytes of the instruction */

static struct profile *table(void) { return (struct profile *)control.profile; }

/* ---- the program's stack ---- */

/* The n words at addr, one or two, aligned as a whole, if their page is here.  The page counts as
 * used: else pages of the outer frames, which the program does not touch for long, would be
 * evicted. */
static bool peek(uint64_t addr, uint64_t *word, unsigned n)
{
        const uint64_t off = addr % PAGE_SIZE;

        if (addr >= TASK_SIZE || (addr >= RESERVED_START && addr < RESERVED_END))
                return false;
        pt_publish(addr);
        pte_slot_t *pte = pt_find(addr);
        frame_t f = pte ? frame_pin(pager.frames, pager.pfn0, pte, false) : FRAME_NONE;
        pt_unpublish();
        if (f == FRAME_NONE)
                return false;
        memcpy(word, (const char *)env_frame_va(f) + off, n * sizeof(*word));
        frame_unpin(&pager.frames[f], false);
        return true;
}

/* *seen: the VMA of the last address that was asked for; the next one is often in it, too. */
static bool is_code(uint64_t addr, struct vma *seen)
{
        if (addr - seen->start >= seen->end - seen->start && mm_lookup(addr, seen) != 0)
                seen->start = seen->end = seen->prot = 0;
        return seen->prot & PROT_EXEC;
}

struct sample { uint64_t top, at[PROFILE_DEPTH]; uint32_t depth, part; };

static void walk(struct sample *s, bool in_call)
{
        const struct regs *r = &vcpu_self.regs;
        struct vma seen;
        uint64_t low = r->rsp, frame = r->rbp, word[2];

        seen.start = seen.end = seen.prot = 0;
        s->at[0] = in_call ? r->rip - SYSCALL_SIZE : r->rip;
        s->depth = 1;
        s->part = 0;
        s->top = r->rsp % sizeof(uint64_t) == 0 && peek(r->rsp, word, 1) &&
                 is_code(word[0], &seen) ? word[0] : 0;
        /* Unsigned: a frame below is too far.  The ABI aligns RSP to 16 bytes before a call, and so
         * all frames. */
        while (s->depth < PROFILE_DEPTH && frame - low < FRAME_MOST && frame % 16 == 0) {
                if (!peek(frame, word, 2)) {
                        s->part = 1;
                        return;
                }
                if (!is_code(word[1], &seen))
                        return;
                s->at[s->depth++] = word[1];
                low = frame + sizeof(word);
                frame = word[0];
        }
}

/* ---- the table ---- */

static uint64_t key_of(const struct sample *s)
{
        uint64_t h = s->top ^ s->part;

        for (uint32_t i = 0; i < s->depth; i++) {
                h = (h ^ s->at[i]) * 0x9e3779b97f4a7c15;
                h ^= h >> 29;
        }
        return h ? h : 1;
}

static void add_to(_Atomic uint64_t *n, uint64_t by)
{
        atomic_fetch_add_explicit(n, by, memory_order_relaxed);
}

static void fill_in(struct profile_stack *e, const struct sample *s)
{
        e->top = s->top;
        e->part = s->part;
        for (uint32_t i = 0; i < s->depth; i++)
                e->at[i] = s->at[i];
        atomic_store_explicit(&e->depth, s->depth, memory_order_release);
}

/* The place of a stack, which is new only if fewer than `most` are in use; NULL: none. */
static struct profile_stack *find(const struct sample *s, uint64_t most)
{
        const uint64_t key = key_of(s), step = key >> 32 | 1;  /* odd: it leads to all places */

        for (unsigned i = 0; i < PROBES; i++) {
                struct profile_stack *e = &table()->stack[(key + i * step) % PROFILE_STACKS];
                uint64_t there = atomic_load_explicit(&e->key, memory_order_relaxed);
                if (there == 0) {
                        if (atomic_load_explicit(&table()->used, memory_order_relaxed) >= most)
                                return NULL;
                        if (atomic_compare_exchange_strong_explicit(&e->key, &there, key,
                                                                    memory_order_relaxed,
                                                                    memory_order_relaxed)) {
                                add_to(&table()->used, 1);
                                fill_in(e, s);
                                return e;
                        }
                }
                /* The key stands for the addresses: another vCPU may still fill them in. */
                if (there == key)
                        return e;
        }
        return NULL;
}

void profile_add(const struct profile_wait *w)
{
        struct sample s;

        walk(&s, w->in_call);
        struct profile_stack *e = find(&s, PROFILE_WHOLE);
        if (!e) {
                if (!w->again)
                        add_to(&table()->cut, 1);
                s.depth = 1;
                s.top = s.part = 0;
                e = find(&s, PROFILE_STACKS);
        }
        if (!e) {
                add_to(&table()->lost, !w->again);
                add_to(&table()->lost_ticks, w->ticks);
                return;
        }
        add_to(&e->faults, !w->again);
        add_to(&e->late, !w->again && w->late);
        add_to(&e->ticks, w->ticks);
        atomic_store_explicit(&e->touched, w->addr, memory_order_relaxed);
}
