/*
 * The heap.
 */
#include <asm-generic/errno.h>
#include "base/kern.h"
#include "base/state.h"
#include "mm/brk.h"
#include "mm/calls.h"
#include "paging/populate.h"
#include "space/account.h"
#include "space/range.h"

static uint64_t brk_start, brk_now;     /* guarded by mm_lock */

void mm_brk_init(void)
{
        brk_start = brk_now = 0;
}

void mm_set_brk(uint64_t start)
{
        brk_start = brk_now = start;
}

void mm_get_brk(uint64_t *start, uint64_t *now)
{
        *start = brk_start;
        *now = brk_now;
}

void mm_restore_brk(uint64_t start, uint64_t now)
{
        brk_start = start;
        brk_now = now;
}

static int brk_grow(uint64_t from, uint64_t to)
{
        struct vma v = {
                .start = from, .end = to, .prot = PROT_READ | PROT_WRITE,
                .flags = MAP_PRIVATE | VMA_HEAP | mm_lock_future,
        };
        uint64_t pages = page_count(to - from);
        if (to > TASK_SIZE || mm_reserved(from, to) || !mm_is_free(from, to + PAGE_SIZE))
                return -ENOMEM;
        if ((v.flags & VMA_LOCKED) && mm_may_lock_more(&v, pages, -EAGAIN))
                return -EAGAIN;
        if (!mm_may_expand(&v, pages, 0) || vma_counts.nodes > VMA_MAX || vma_reserve(1))
                return -ENOMEM;
        return mm_insert(v);
}

static int brk_move(uint64_t from, uint64_t to)
{
        if (to < from)
                return mm_unmap(to, from);
        return to > from ? brk_grow(from, to) : 0;
}

/* Linux's brk never fails: it returns where the break is. */
long sys_brk(const uint64_t a[6])
{
        uint64_t want = a[0], from, to, result;
        bool populate = false;

        lock_take(&mm_lock);
        from = page_align(brk_now);
        to = page_align(want);
        if (brk_start && want >= brk_start && want < TASK_SIZE &&
            want - brk_start <= control.rlimit_data && brk_move(from, to) == 0) {
                brk_now = want;
                populate = to > from && mm_lock_future;
        }
        result = brk_now;
        lock_drop(&mm_lock);

        mm_report_refusals();
        if (populate)
                mm_populate_locked(from, to);
        return (long)result;
}
