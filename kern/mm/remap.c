/*
 * mremap.
 *
 * The arena range of a shared mapping cannot grow.  To make the mapping longer, the host maps its
 * object again, and the old range is given back.
 *
 * Difference from Linux: MREMAP_DONTUNMAP of a shared mapping is EINVAL, as it was before Linux
 * 5.13.  Calls that Linux refuses for huge pages of hugetlbfs are refused for huge pages of DAX
 * devices too.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/exit.h"
#include "base/state.h"
#include "mm/calls.h"
#include "paging/populate.h"
#include "space/account.h"
#include "space/guides.h"
#include "space/pt.h"
#include "space/range.h"

struct remap { uint64_t addr, old_len, new_len, new_addr; uint64_t flags; };

/* Linux's vma_to_resize(): may the old range become new_len long?  NULL and *err if not. */
static struct vma_node *check_resize(const struct remap *r, int *err)
{
        struct vma_node *n = vma_find(r->addr);
        *err = 0;
        if (!n || n->v.start > r->addr)
                *err = -EFAULT;
        else if ((r->flags & MREMAP_DONTUNMAP) && (n->v.flags & MAP_SHARED))
                *err = -EINVAL;
        else if (r->old_len > n->v.end - r->addr)
                *err = -EFAULT;
        if (*err || r->new_len == r->old_len)
                return *err ? NULL : n;

        uint64_t more = r->new_len - r->old_len;
        if (n->v.file != FILE_NONE && n->v.off + (r->addr - n->v.start) + r->new_len > INT64_MAX)
                *err = -EINVAL;
        else if (n->v.flags & VMA_LOCKED)
                *err = mm_may_lock_more(&n->v, page_count(more), -EAGAIN);
        if (!*err && !mm_may_expand(&n->v, page_count(more), 0))
                *err = -ENOMEM;
        return *err ? NULL : n;
}

/* Gives a shared VMA that is not in the tree an arena range of its length.  0 or -errno. */
static int map_again(struct vma *v)
{
        int64_t err = vmexit(EXIT_SHARED_AGAIN, v->file, v->gpa, v->end - v->start);
        if (!err)
                v->gpa = vcpu_self.exit.out[1];
        return (int)err;
}

static bool room_behind(struct vma_node *n, const struct remap *r)
{
        uint64_t end = r->addr + r->new_len;
        if (n->v.end != r->addr + r->old_len || end > TASK_SIZE || end < r->addr ||
            mm_reserved(n->v.end, end))
                return false;
        struct vma_node *next = vma_next(n);    /* Linux ignores its guard gap here */
        return !next || next->v.start >= end;
}

/* The pages come back by faults. */
static int grow_shared(struct vma_node *n, struct vma *v)
{
        struct pt_gone gone = PT_GONE_NONE;
        struct vma old = n->v;
        int err = map_again(v);
        if (err)
                return err;
        mm_hide(old.start, old.end);
        vma_begin();
        vma_change(n, v);
        vma_end();
        mm_zap(old.start, old.end, &gone);
        mm_show();
        pt_gone_end(&gone);
        mm_release(&old);
        return 0;
}

/* n: the VMA whose end is the old range. */
static int grow_in_place(struct vma_node *n, const struct remap *r)
{
        struct vma v = vma_part(n->v, n->v.start, r->addr + r->new_len);
        int err = 0;
        if (v.flags & MAP_SHARED) {
                err = grow_shared(n, &v);
        } else if (!(v.flags & VMA_CHARGED) || mm_pay(page_count(r->new_len - r->old_len))) {
                vma_begin();
                vma_change(n, &v);
                vma_end();
        } else {
                err = -ENOMEM;
        }
        if (!err)
                mm_merge(v.start, v.end);
        return err;
}

/* n is exactly the old range; `to` is free.  Moves the VMA and its pages there.  The node is out of
 * the tree while pages move. */
static int move_all(struct vma_node *n, uint64_t to, const struct remap *r)
{
        struct pt_gone gone = PT_GONE_NONE;
        struct vma old = n->v, moved = vma_part(old, old.start, old.start + r->new_len);
        bool longer = (old.flags & MAP_SHARED) && r->new_len > r->old_len;
        int err = longer ? map_again(&moved) : 0;
        if (err)
                return err;
        moved.start = to;
        moved.end = to + r->new_len;
        moved.flags &= ~(VMA_HEAP | VMA_STACK);

        vma_begin();
        vma_remove(n);
        vma_end();
        vma_free(n);                    /* and taken again below */
        pt_wait_faults(old.start, old.end);
        if (old.flags & MAP_SHARED)
                mm_zap(old.start, old.end, &gone);      /* the next fault finds them by vma.gpa */
        else
                err = pt_move(old.start, to, r->old_len);
        pt_gone_end(&gone);
        if (!err)
                guides_forget(old.start, old.end);
        vma_begin();
        vma_insert(err ? &old : &moved);
        vma_end();
        if (longer)
                mm_release(&old);
        return err;
}

/* An old length of 0: the shared mapping stays and is also mapped at `to`. */
static int duplicate(uint64_t to, const struct remap *r)
{
        struct vma v = vma_part(vma_find(r->addr)->v, r->addr, r->addr + r->new_len);
        int err = vma_reserve(1);
        if (!err)
                err = map_again(&v);
        if (err)
                return err;
        v.start = to;
        v.end = to + r->new_len;
        vma_begin();
        vma_insert(&v);
        vma_end();
        mm_merge(v.start, v.end);
        return 0;
}

/* MREMAP_DONTUNMAP: the pages move; the old VMA stays, empty. */
static int move_pages(struct vma_node *n, uint64_t to, const struct remap *r)
{
        struct vma left = n->v, moved = n->v;
        int err = vma_reserve(1);
        if (err)
                return err;
        moved.start = to;
        moved.end = to + r->new_len;
        moved.flags &= ~(VMA_HEAP | VMA_STACK);
        left.flags &= ~VMA_LOCK;

        mm_hide(left.start, left.end);
        err = pt_move(left.start, to, r->old_len);
        if (!err) {
                if (moved.file != FILE_NONE)
                        vmexit(EXIT_FILE_REF, moved.file, 1, 0);
                guides_forget(left.start, left.end);
                vma_begin();
                vma_change(n, &left);
                vma_insert(&moved);
                vma_end();
        }
        mm_show();
        return err;
}

static int move_to(uint64_t to, const struct remap *r)
{
        struct vma_node *n = vma_find(r->addr);
        uint64_t end = r->addr + r->old_len;
        uint64_t charge =
                page_count(r->flags & MREMAP_DONTUNMAP ? r->new_len : r->new_len - r->old_len);

        if (mm_reserved(r->addr, end) || vma_counts.nodes >= VMA_MAX - 3)
                return -ENOMEM;
        if (!r->old_len)
                return duplicate(to, r);
        if (!(n->v.flags & VMA_CHARGED))
                charge = 0;
        if (!mm_pay(charge))
                return -ENOMEM;
        int err = mm_isolate(r->addr, end, VMA_MAX);
        if (!err) {
                n = vma_find(r->addr);
                err = r->flags & MREMAP_DONTUNMAP ? move_pages(n, to, r) : move_all(n, to, r);
                mm_merge(r->addr, end);
                mm_merge(to, to + r->new_len);
        }
        if (err)
                mm_uncharge(charge);
        return err;
}

/* MREMAP_FIXED or MREMAP_DONTUNMAP: Linux's mremap_to(), in its order. */
static long remap_to(struct remap *r)
{
        uint64_t to = r->new_addr;
        int err;
        if (page_off(to) || r->new_len > TASK_SIZE || to > TASK_SIZE - r->new_len)
                return -EINVAL;
        if (r->addr + r->old_len > to && to + r->new_len > r->addr)
                return -EINVAL;
        if (vma_counts.nodes + 2 >= VMA_MAX - 3)
                return -ENOMEM;
        if (r->flags & MREMAP_FIXED) {
                if (mm_reserved(to, to + r->new_len))
                        return -ENOMEM;
                if (to < control.mmap_min)
                        return -EPERM;
                err = mm_unmap(to, to + r->new_len);
                if (err)
                        return err;
        }
        if (r->old_len > r->new_len) {
                err = mm_munmap(r->addr + r->new_len, r->old_len - r->new_len);
                if (err)
                        return err;
                r->old_len = r->new_len;
        }
        struct vma_node *n = check_resize(r, &err);
        if (!n)
                return err;
        if ((r->flags & MREMAP_DONTUNMAP) && !mm_may_expand(&n->v, page_count(r->old_len), 0))
                return -ENOMEM;
        if (!(r->flags & MREMAP_FIXED)) {
                long at = mm_find_area(to, r->new_len, PAGE_SIZE, 0);
                if (at < 0)
                        return at;
                to = (uint64_t)at;
        }
        err = move_to(to, r);
        return err ? err : (long)to;
}

/* Linux's align_hugetlb(): huge pages are moved or unmapped as a whole, and their mappings cannot
 * grow. */
static int align_huge(const struct vma *v, struct remap *r)
{
        uint64_t rest = vma_page(v) - 1;

        r->old_len = (r->old_len + rest) & ~rest;
        r->new_len = (r->new_len + rest) & ~rest;
        return (r->addr | r->new_addr) & rest || r->new_len > r->old_len ||
                               (r->flags & MREMAP_DONTUNMAP) ? -EINVAL : 0;
}

static long remap(struct remap *r)
{
        struct vma_node *n = vma_find(r->addr);
        int err;
        if (!n || n->v.start > r->addr)
                return -EFAULT;
        if (!r->old_len && !(n->v.flags & MAP_SHARED))
                return -EINVAL;
        if (n->v.order && (err = align_huge(&n->v, r)) != 0)
                return err;
        if (r->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
                return remap_to(r);
        if (r->old_len > r->new_len) {
                err = mm_munmap(r->addr + r->new_len, r->old_len - r->new_len);
                return err ? err : (long)r->addr;
        }
        if (r->old_len == r->new_len)
                return (long)r->addr;

        n = check_resize(r, &err);
        if (!n)
                return err;
        if (room_behind(n, r)) {
                err = grow_in_place(n, r);
                return err ? err : (long)r->addr;
        }
        if (!(r->flags & MREMAP_MAYMOVE))
                return -ENOMEM;
        long to = mm_find_area(0, r->new_len, PAGE_SIZE, 0);
        if (to < 0)
                return to;
        err = move_to((uint64_t)to, r);
        return err ? err : to;
}

long sys_mremap(const uint64_t a[6])
{
        struct remap r = {
                .addr = a[0], .old_len = page_align(a[1]), .new_len = page_align(a[2]),
                .flags = a[3], .new_addr = a[4],
        };
        if (r.flags & ~(uint64_t)(MREMAP_FIXED | MREMAP_MAYMOVE | MREMAP_DONTUNMAP))
                return -EINVAL;
        if ((r.flags & MREMAP_FIXED) && !(r.flags & MREMAP_MAYMOVE))
                return -EINVAL;
        if ((r.flags & MREMAP_DONTUNMAP) && (!(r.flags & MREMAP_MAYMOVE) || r.old_len != r.new_len))
                return -EINVAL;
        if (page_off(r.addr) || !r.new_len)
                return -EINVAL;

        lock_take(&mm_lock);
        long at = remap(&r);
        struct vma_node *n = at < 0 ? NULL : vma_find((uint64_t)at);
        bool populate = n && (n->v.flags & VMA_LOCKED) && r.new_len > r.old_len;
        lock_drop(&mm_lock);

        mm_report_refusals();
        if (populate)
                mm_populate_locked((uint64_t)at + r.old_len, (uint64_t)at + r.new_len);
        return at;
}
