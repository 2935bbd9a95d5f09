/*
 * Operations on ranges, which the memory system calls share; range.h has their rules.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/exit.h"
#include "space/account.h"
#include "space/guides.h"
#include "space/pt.h"
#include "space/range.h"

#define LOW_32BIT  0x40000000           /* where Linux puts MAP_32BIT */
#define HIGH_32BIT 0x80000000

void mm_hide(uint64_t start, uint64_t end)
{
        vma_begin();
        vma_hide(start, end);
        vma_end();
        pt_wait_faults(start, end);
}

void mm_show(void)
{
        vma_begin();
        vma_hide(0, 0);
        vma_end();
}

/* --- split and merge --- */

static int split(uint64_t addr, uint32_t max)
{
        struct vma_node *n = vma_find(addr);
        if (!n || n->v.start >= addr)
                return 0;
        if (addr & (vma_page(&n->v) - 1))
                return -EINVAL;
        if (vma_counts.nodes >= max || vma_reserve(1))
                return -ENOMEM;
        if (n->v.file != FILE_NONE && (n->v.flags & MAP_PRIVATE))
                vmexit(EXIT_FILE_REF, n->v.file, 1, 0);
        struct vma below = vma_part(n->v, n->v.start, addr), above = vma_part(n->v, addr, n->v.end);
        vma_begin();
        vma_change(n, &below);
        vma_insert(&above);
        vma_end();
        return 0;
}

int mm_isolate(uint64_t start, uint64_t end, uint32_t max)
{
        int err = split(start, max);
        if (!err)
                err = split(end, max);
        if (err)
                mm_merge(start, end);
        return err;
}

/* Linux never merges mappings of huge pages: a call over two of them that fails in the second has
 * changed the first. */
static bool alike(const struct vma *a, const struct vma *b)
{
        if (a->order || a->end != b->start || a->prot != b->prot || a->flags != b->flags ||
            a->file != b->file)
                return false;
        struct vma next = vma_part(*a, a->end, b->end);
        return next.off == b->off && next.gpa == b->gpa;
}

void mm_merge(uint64_t start, uint64_t end)
{
        struct vma_node *n = vma_before(start), *next;
        if (!n)
                n = vma_find(start);
        for (; n && n->v.end <= end && (next = vma_next(n)); ) {
                if (!alike(&n->v, &next->v)) {
                        n = next;
                        continue;
                }
                struct vma both = vma_part(n->v, n->v.start, next->v.end);
                vma_begin();
                vma_remove(next);
                vma_change(n, &both);
                vma_end();
                if (both.flags & MAP_PRIVATE)
                        mm_release(&next->v);
                vma_free(next);
        }
}

int mm_insert(struct vma v)
{
        v.flags |= mm_payment(&v);
        if ((v.flags & VMA_CHARGED) && !mm_pay(page_count(v.end - v.start)))
                return -ENOMEM;
        vma_begin();
        vma_insert(&v);
        vma_end();
        mm_merge(v.start, v.end);
        return 0;
}

/* --- unmap --- */

void mm_release(const struct vma *v)
{
        if (v->flags & MAP_SHARED)
                vmexit(EXIT_SHARED_UNMAP, v->gpa, v->end - v->start, 0);
        else if (v->file != FILE_NONE)
                vmexit(EXIT_FILE_REF, v->file, (uint64_t)-1, 0);
}

void mm_zap(uint64_t start, uint64_t end, struct pt_gone *gone)
{
        for (uint64_t e; mm_part(&start, end, &e); start = e)
                mm_uncharge(pt_zap(start, e, gone));
}

/* Takes the VMAs of [start, end) out of the tree; returns them chained, in order. */
static struct vma_node *cut(uint64_t start, uint64_t end)
{
        struct vma_node *first = NULL, **last = &first, *n;
        vma_begin();
        while ((n = vma_find(start)) && n->v.start < end) {
                vma_remove(n);
                n->next = NULL;
                *last = n;
                last = &n->next;
        }
        vma_end();
        return first;
}

int mm_unmap(uint64_t start, uint64_t end)
{
        struct vma_node *n = vma_find(start);
        if (!n || n->v.start >= end)
                return 0;
        /* As on Linux, the limit matters only if the number of VMAs grows: a hole in the middle of
         * one. */
        if (n->v.start < start && n->v.end > end && vma_counts.nodes >= VMA_MAX)
                return -ENOMEM;
        int err = mm_isolate(start, end, VMA_MAX + 2);
        if (err)
                return err;

        struct pt_gone pages = PT_GONE_NONE;
        struct vma_node *gone = cut(start, end);
        guides_forget(start, end);
        pt_wait_faults(start, end);
        mm_zap(start, end, &pages);
        pt_gone_end(&pages);
        while ((n = gone)) {
                gone = n->next;
                if (n->v.flags & VMA_CHARGED)
                        mm_uncharge(page_count(n->v.end - n->v.start));
                mm_release(&n->v);
                vma_free(n);
        }
        return 0;
}

int mm_munmap(uint64_t start, uint64_t len)
{
        if (page_off(start) || start > TASK_SIZE || len > TASK_SIZE - start || !len)
                return -EINVAL;
        return mm_unmap(start, start + page_align(len));
}

/* --- mlock --- */

void mm_lock_frames(uint64_t start, uint64_t end, bool lock)
{
        for (struct vma_node *n = vma_find(start); n && n->v.start < end; n = vma_next(n)) {
                uint64_t from = higher(start, n->v.start), to = lower(n->v.end, end);
                if (!!(n->v.flags & VMA_LOCKED) != lock || (n->v.flags & MAP_SHARED))
                        continue;
                for (uint64_t e; mm_part(&from, to, &e); from = e)
                        pt_set_locked(from, e, lock);
        }
}

/* --- free space --- */

bool mm_is_free(uint64_t start, uint64_t end)
{
        struct vma_node *n = vma_find(start);
        return !n || (n->v.start >= end && vma_floor(&n->v) >= end);
}

/* vma_gap() for an address that is a multiple of `page`. */
static uint64_t gap(uint64_t low, uint64_t high, uint64_t len, uint64_t page)
{
        uint64_t spare = page - PAGE_SIZE, at = vma_gap(low, high, len + spare);
        return at ? (at + spare) & ~(page - 1) : 0;
}

long mm_find_area(uint64_t hint, uint64_t len, uint64_t page, uint32_t flags)
{
        uint64_t low = higher(control.mmap_min, PAGE_SIZE), top = control.mmap_top, at;
        uint64_t hint_end = flags & MAP_32BIT ? HIGH_32BIT : TASK_SIZE;
        if (len > TASK_SIZE)
                return -ENOMEM;
        hint &= PAGE_MASK;
        hint += -hint & (page - 1);
        if (hint) {
                hint = higher(hint, (low + page - 1) & ~(page - 1));
                if (len <= hint_end && hint <= hint_end - len && !mm_reserved(hint, hint + len) &&
                    mm_is_free(hint, hint + len))
                        return (long)hint;
        }
        if (flags & MAP_32BIT)
                at = gap(LOW_32BIT, HIGH_32BIT, len, page);
        else {
                at = gap(RESERVED_END, top, len, page);
                if (!at)
                        at = gap(low, lower(top, RESERVED_START), len, page);
                if (!at)
                        at = gap(higher(top, RESERVED_END), TASK_SIZE, len, page);
        }
        return at ? (long)at : -ENOMEM;
}
