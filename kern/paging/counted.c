/*
 * Words of the program that count pages on their way.
 *
 * No vCPU sleeps on such a word: a vCPU that waits for it sleeps on the entry of one of its pages,
 * as a fault would.  So the pages move, whether the I/O thread, this vCPU's exits or a wire by the
 * clock moves them, and where no vCPU waits none is woken.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/kern.h"
#include "base/state.h"
#include "base/tables.h"
#include "far/timed.h"
#include "pager/env.h"
#include "paging/counted.h"
#include "paging/fault.h"
#include "paging/guide.h"

static bool is_program(uint64_t addr)
{
        return addr < TASK_SIZE && (addr < RESERVED_START || addr >= RESERVED_END);
}

int counted_open(uint64_t addr, struct counted *c)
{
        if (addr % sizeof(*c->word))
                return -EINVAL;
        if (!is_program(addr))
                return -EFAULT;
        for (;;) {
                pt_publish(addr);
                pte_slot_t *pte = pt_find(addr);
                c->frame = pte ? frame_pin(pager.frames, pager.pfn0, pte, true) : FRAME_NONE;
                pte_t p = pte ? atomic_load(pte) : 0;
                pt_unpublish();
                if (c->frame != FRAME_NONE)
                        break;
                if (pte_kind(p) == PTE_ARENA)
                        return -EINVAL;
                if (guide_runs())
                        return -EAGAIN;
                if (fault_in(addr, addr + 1, true) != 0)
                        return -EFAULT;
        }
        c->word = (_Atomic uint32_t *)((char *)env_frame_va(c->frame) + addr % PAGE_SIZE);
        return 0;
}

void counted_close(const struct counted *c, bool wrote)
{
        frame_unpin(&pager.frames[c->frame], wrote);
}

/* Delivers pages that have come.  With --io inline only an exit does that: this exit does not
 * sleep, since its word has another value. */
static void look_once(void)
{
        static const uint32_t zero;

        timed_poll();
        if (atomic_load_explicit(&control.wait_ticks, memory_order_relaxed) == 0)
                vmexit(EXIT_WAIT_PTE, (uint64_t)&zero, 1, 0);
}

/* Searching the notices costs more than the rest, so a caller that only reads the count does not
 * search. */
static long look_at(uint64_t addr)
{
        struct counted c;
        long ret = counted_open(addr, &c);

        if (ret)
                return ret;
        if (atomic_load(c.word) != 0)
                ret = -EAGAIN;
        counted_close(&c, false);
        return ret;
}

/* look_at(), and if the word is not 0: OUT *n: a notice that counts it down.  -EINVAL: there is no
 * such notice. */
static long find_notice(uint64_t addr, struct notice **n)
{
        struct notices *t = pager.notices.table;
        struct counted c;
        uint32_t i = 0;
        long ret = counted_open(addr, &c);

        if (ret)
                return ret;
        uint32_t added = atomic_load(&t->added);
        *n = notice_find(t, &i, c.word);
        if (atomic_load(c.word) != 0)
                /* A notice that was added after the search began has moved `added` before it raised
                 * the word. */
                ret = *n || atomic_load(&t->added) != added ? -EAGAIN : -EINVAL;
        counted_close(&c, false);
        return ret;
}

long counted_look(uint64_t addr)
{
        look_once();
        return look_at(addr);
}

/* No pin is held while this vCPU sleeps: it may be stopped then, or its thread end. */
long counted_wait(uint64_t addr)
{
        struct notice *n = NULL;
        long ret;

        while ((ret = find_notice(addr, &n)) == -EAGAIN) {
                if (atomic_load_explicit(&vcpu_self.event, memory_order_relaxed) & EVENT_HOST)
                        return -EINTR;
                if (n)
                        notice_wait(n);
        }
        return ret;
}
