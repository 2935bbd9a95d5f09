/*
 * The cost of memory: the commit limit, and the resource limits.
 *
 * Every private VMA is paid for in one of three ways:
 *
 *   VMA_CHARGED  by its length, from mmap to munmap: it was writable once, as Linux counts with
 *                overcommit_memory=2; or it was locked as a whole once, so its pages took frames
 *   VMA_TOUCH    by the page: a charge of its own (PTE_CHARGED) for each page instantiated while
 *                the VMA is so
 *   neither      private file mappings that never were either: their pages can be read again
 *
 * The bit in the entry keeps the second kind exact in all that happens to the VMA: the code that
 * turns an entry with PTE_CHARGED into NONE gives one charge back (pt_zap's count, or the evictor).
 * mprotect to writable turns TOUCH into CHARGED, unless MAP_NORESERVE or --overcommit rule that
 * out; pages touched before then count twice, until they are dropped.  Shared mappings live in the
 * host's arena and cost nothing here.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/kern.h"
#include "base/print.h"
#include "base/state.h"
#include "space/account.h"

uint32_t mm_lock_future;
static _Atomic bool lock_refused;       /* orders nothing */
static _Atomic uint64_t unpaid;         /* nor does it */
static _Atomic bool unpaid_said, stack_said;    /* nor they */

uint32_t mm_payment(const struct vma *v)
{
        if (v->flags & MAP_SHARED)
                return 0;
        if (v->prot & PROT_WRITE)
                return (v->flags & MAP_NORESERVE) || control.overcommit ? VMA_TOUCH : VMA_CHARGED;
        if (v->file == FILE_NONE)
                return VMA_TOUCH;
        return vma_locked_whole(v) ? VMA_CHARGED : 0;
}

bool mm_may_expand(const struct vma *v, uint64_t pages, uint64_t fewer)
{
        if (vma_counts.total + pages - fewer > page_count(control.rlimit_as))
                return false;
        bool data =
                (v->flags & MAP_PRIVATE) && (v->prot & PROT_WRITE) && !(v->flags & MAP_GROWSDOWN);
        return !data || vma_counts.data + pages - fewer <= page_count(control.rlimit_data);
}

/* Pages that were locked one by one, at their touch, take frames too. */
int mm_may_lock(uint64_t pages, uint64_t whole, int over_limit)
{
        if (pages + vma_counts.locked > page_count(control.rlimit_memlock))
                return over_limit;
        uint64_t have = atomic_load_explicit(&pager.locked, memory_order_relaxed);
        if (!whole || whole + higher(have, vma_counts.whole) <= control.nframes / 2)
                return 0;
        atomic_store_explicit(&lock_refused, true, memory_order_relaxed);
        return -ENOMEM;
}

int mm_may_lock_more(const struct vma *v, uint64_t pages, int over_limit)
{
        return mm_may_lock(pages, vma_locked_whole(v) ? pages : 0, over_limit);
}

bool mm_pay(uint64_t pages)
{
        bool paid = mm_charge(pages);

        if (!paid)
                atomic_store_explicit(&unpaid, pages, memory_order_relaxed);
        return paid;
}

static void report_lock(void)
{
        if (atomic_exchange_explicit(&lock_refused, false, memory_order_relaxed))
                kern_log(1, "memory is not locked: at most half of the cache may be (%lu pages): "
                         "give it a larger --cache, or lock by MLOCK_ONFAULT", control.nframes / 2);
}

static void report_unpaid(void)
{
        uint64_t pages = atomic_exchange_explicit(&unpaid, 0, memory_order_relaxed);

        if (!pages || atomic_exchange_explicit(&unpaid_said, true, memory_order_relaxed))
                return;
        kern_log(0, "%lu KiB of memory, or of a new thread's stack, are refused (ENOMEM): the "
                 "program may have as much as cache and far memory hold, %lu MiB: give a larger "
                 "--node, smaller stacks (ulimit -s), or --overcommit",
                 pages * (PAGE_SIZE / 1024), mm_limit() / ((1 << 20) / PAGE_SIZE));
}

void mm_report_stack(void)
{
        if (!atomic_exchange_explicit(&stack_said, true, memory_order_relaxed))
                kern_log(0, "a stack cannot grow, which mostly ends in SIGSEGV: the program may "
                         "have as much as cache and far memory hold, %lu MiB: give a larger "
                         "--node, or --overcommit", mm_limit() / ((1 << 20) / PAGE_SIZE));
}

void mm_report_refusals(void)
{
        if (atomic_load_explicit(&lock_refused, memory_order_relaxed))
                report_lock();
        if (atomic_load_explicit(&unpaid, memory_order_relaxed))
                report_unpaid();
}

void mm_account_init(void)
{
        mm_charge_init();
        mm_lock_future = 0;
}
