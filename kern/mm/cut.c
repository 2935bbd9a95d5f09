/*
 * Truncated files: drops the pages behind the new end, the program's private copies included, so
 * that the next touch faults.
 */
#include "base/state.h"
#include "mm/cut.h"
#include "paging/file.h"
#include "space/pt.h"
#include "space/range.h"

/* Drops the pages of v that lie behind the first `pages` pages of its object.  Returns how many
 * entries led to the arena. */
static uint64_t cut(const struct vma *v, uint64_t pages, struct pt_gone *gone)
{
        uint64_t first = page_count(v->off);
        uint64_t start = v->start + (pages > first ? (pages - first) * PAGE_SIZE : 0);

        if (start >= v->end)
                return 0;
        mm_hide(start, v->end);
        uint64_t shared = pt_count_arena(start, v->end);
        mm_zap(start, v->end, gone);
        mm_show();
        return shared;
}

int64_t object_cut(uint64_t file, uint64_t pages)
{
        struct pt_gone gone = PT_GONE_NONE;
        uint64_t shared = 0;

        lock_take(&mm_lock);
        atomic_fetch_add(&object_cuts, 1);
        for (struct vma_node *n = vma_find(0); n; n = vma_next(n))
                if (n->v.file == file)
                        shared += cut(&n->v, pages, &gone);
        pt_gone_flush(&gone);
        lock_drop(&mm_lock);
        pt_gone_end(&gone);
        return (int64_t)shared;
}
