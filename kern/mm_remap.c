/*
 * mremap.
 *
 * What differs from Linux: shared mappings cannot grow or be duplicated (old_len 0), since the host gave them their room in
 * the arena once and for all: ENOMEM; MREMAP_DONTUNMAP of a shared mapping is EINVAL, as it was before Linux 5.13.
 */
#include "mm_range.h"

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
        else if (n->v.flags & MAP_SHARED)
                *err = -ENOMEM;
        else if (n->v.flags & VMA_LOCKED)
                *err = mm_may_lock(page_count(more), -EAGAIN);
        if (!*err && !mm_may_expand(&n->v, page_count(more), 0))
                *err = -ENOMEM;
        return *err ? NULL : n;
}

static bool grow_in_place(struct vma_node *n, const struct remap *r)
{
        uint64_t end = r->addr + r->new_len, more = page_count(r->new_len - r->old_len);
        if (n->v.end != r->addr + r->old_len || end > TASK_SIZE || end < r->addr || mm_reserved(n->v.end, end))
                return false;
        struct vma_node *next = vma_next(n);    /* whose guard gap Linux ignores here */
        if (next && next->v.start < end)
                return false;
        if ((n->v.flags & VMA_CHARGED) && !mm_charge(more))
                return false;
        struct vma v = vma_part(n->v, n->v.start, end);
        vma_begin();
        vma_change(n, &v);
        vma_end();
        mm_merge(v.start, v.end);
        return true;
}

/* n is exactly the old range; to is free.  Its VMA and its pages go there.  The node leaves the tree for as long as pages move. */
static int move_all(struct vma_node *n, uint64_t to, const struct remap *r)
{
        struct vma old = n->v, moved = vma_part(old, old.start, old.start + r->new_len);
        int err = 0;
        moved.start = to;
        moved.end = to + r->new_len;
        moved.flags &= ~(VMA_HEAP | VMA_STACK);

        vma_begin();
        vma_remove(n);
        vma_end();
        vma_free(n);                    /* and taken again below */
        pt_wait_faults(old.start, old.end);
        if (old.flags & MAP_SHARED)
                mm_zap(old.start, old.end);     /* the next fault finds them by vma.gpa */
        else
                err = pt_move(old.start, to, r->old_len);
        vma_begin();
        vma_insert(err ? &old : &moved);
        vma_end();
        return err;
}

/* MREMAP_DONTUNMAP: the pages go, the VMA stays, empty. */
static int move_pages(struct vma_node *n, uint64_t to, const struct remap *r)
{
        struct vma left = n->v, moved = n->v;
        int err = vma_reserve(1);
        if (err)
                return err;
        moved.start = to;
        moved.end = to + r->new_len;
        moved.flags &= ~(VMA_HEAP | VMA_STACK);
        left.flags &= ~VMA_LOCKED;

        mm_hide(left.start, left.end);
        err = pt_move(left.start, to, r->old_len);
        if (!err) {
                if (moved.file != FILE_NONE)
                        vmexit(EXIT_FILE_REF, moved.file, 1, 0);
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
        uint64_t charge = page_count(r->flags & MREMAP_DONTUNMAP ? r->new_len : r->new_len - r->old_len);

        if (mm_reserved(r->addr, end) || vma_counts.nodes >= VMA_MAX - 3)
                return -ENOMEM;
        if (!(n->v.flags & VMA_CHARGED))
                charge = 0;
        if (!mm_charge(charge))
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
                long at = mm_find_area(to, r->new_len, 0);
                if (at < 0)
                        return at;
                to = (uint64_t)at;
        }
        err = move_to(to, r);
        return err ? err : (long)to;
}

static long remap(struct remap *r)
{
        struct vma_node *n = vma_find(r->addr);
        int err;
        if (!n || n->v.start > r->addr)
                return -EFAULT;
        if (!r->old_len)                /* Linux would duplicate a shared mapping */
                return n->v.flags & MAP_SHARED ? -ENOMEM : -EINVAL;
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
        if (grow_in_place(n, r))
                return (long)r->addr;
        if (!(r->flags & MREMAP_MAYMOVE))
                return -ENOMEM;
        long to = mm_find_area(0, r->new_len, 0);
        if (to < 0)
                return to;
        err = move_to((uint64_t)to, r);
        return err ? err : to;
}

long sys_mremap(const uint64_t a[6])
{
        struct remap r = { .addr = a[0], .old_len = page_align(a[1]), .new_len = page_align(a[2]), .flags = a[3], .new_addr = a[4] };
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

        if (populate)
                mm_populate_locked((uint64_t)at + r.old_len, (uint64_t)at + r.new_len);
        return at;
}
