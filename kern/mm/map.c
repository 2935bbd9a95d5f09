/*
 * mmap and munmap, and the upcalls of the loader.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/kern.h"
#include "base/state.h"
#include "mm/brk.h"
#include "mm/calls.h"
#include "mm/map.h"
#include "paging/populate.h"
#include "space/account.h"
#include "space/range.h"

#define MAP_HUGE_SIZES (0x1fu << 26)    /* bits of MAP_HUGE_2MB and MAP_HUGE_1GB */
/* The flags that MAP_SHARED_VALIDATE accepts: those older than it. */
#define MAP_OLD  (MAP_TYPE | MAP_FIXED | MAP_ANONYMOUS | MAP_DENYWRITE | MAP_EXECUTABLE | \
                  MAP_GROWSDOWN | MAP_LOCKED | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK | \
                  MAP_STACK | MAP_HUGETLB | MAP_HUGE_SIZES | MAP_32BIT)

int mm_check_fixed(const struct mm_request *r)
{
        if (r->len > TASK_SIZE || r->addr > TASK_SIZE - r->len)
                return -ENOMEM;
        if (page_off(r->addr))
                return -EINVAL;
        return r->addr < control.mmap_min ? -EPERM : 0;
}

static bool occupied(const struct mm_request *r)
{
        lock_take(&mm_lock);
        struct vma_node *n = vma_find(r->addr);
        bool is = n && n->v.start < r->addr + r->len;
        lock_drop(&mm_lock);
        return is;
}

/* The host's answer about a descriptor, without a mapping: 0; an error that precedes all others;
 * -ENODEV if its offsets may be beyond 2^63. */
static int about_descriptor(const struct mm_request *r)
{
        return (int)vmexit5(EXIT_FILE_MAP, (uint32_t)r->fd, 0,
                            MAP_SHARED | (r->flags & MAP_HUGETLB), 0, 0);
}

static bool ends_too_far(const struct mm_request *r)
{
        uint64_t end = page_count(r->off) + page_count(r->len);

        return end > page_count(UINT64_MAX) ||
               (end > page_count(INT64_MAX) && about_descriptor(r) != -ENODEV);
}

/* Checks that need no file, in Linux's order; map_locked() checks the place once more. */
static int check_args(struct mm_request *r)
{
        bool file = !(r->flags & MAP_ANONYMOUS);
        uint32_t type = r->flags & MAP_TYPE;

        if (page_off(r->off))
                return -EINVAL;
        if (file && r->fd < 0)
                return -EBADF;
        if ((r->flags & MAP_HUGETLB) && !file && r->len)
                return -ENOMEM;         /* a system without huge pages */
        if (!r->len)
                return -EINVAL;
        r->len = page_align(r->len);
        if (!r->len || r->len > TASK_SIZE)
                return -ENOMEM;
        if (r->flags & MAP_FIXED_NOREPLACE)
                r->flags |= MAP_FIXED;
        int err = r->flags & MAP_FIXED ? mm_check_fixed(r) : 0;
        if (err)
                return err;
        if ((r->flags & MAP_FIXED_NOREPLACE) && occupied(r))
                return -EEXIST;
        if ((r->flags & MAP_LOCKED) && !control.rlimit_memlock)
                return -EPERM;
        if (file && ends_too_far(r))
                return -EOVERFLOW;
        if (file && type == MAP_SHARED_VALIDATE && (r->flags & ~MAP_OLD))
                return -EOPNOTSUPP;
        if (type != MAP_SHARED && type != MAP_PRIVATE && !(file && type == MAP_SHARED_VALIDATE))
                return -EINVAL;
        if ((r->flags & MAP_GROWSDOWN) && !file && type != MAP_PRIVATE)
                /* For a file the host refuses it, after checks that come first. */
                return -EINVAL;
        return 0;
}

void mm_take_object(struct mm_request *r)
{
        uint64_t object = vcpu_self.exit.out[0];

        r->v.file = object_id(object);
        r->v.flags |= VMA_DENY(object_refused(object));
        r->v.order = object_order(object);
        r->len = (r->len + vma_page(&r->v) - 1) & ~(vma_page(&r->v) - 1);
        r->v.off = r->flags & MAP_ANONYMOUS ? 0 : r->off;
        if (r->v.flags & MAP_SHARED)
                r->v.gpa = vcpu_self.exit.out[1];
}

/* Has the host open the object; the VMA owns the object. */
static int open_object(struct mm_request *r)
{
        int64_t err = 0;
        bool file = !(r->flags & MAP_ANONYMOUS), shared = r->v.flags & MAP_SHARED;
        if (file)
                err = vmexit5(EXIT_FILE_MAP, (uint32_t)r->fd,
                              (r->flags & MAP_FIXED ? r->addr : 0) | r->v.prot, r->flags, r->off,
                              r->len);
        else if (shared)
                err = vmexit(EXIT_ANON_SHARED, r->len, 0, 0);
        if (err || !(file || shared))
                return (int)err;
        mm_take_object(r);
        return 0;
}

/* Finds or checks the place.  Address or -errno. */
static long place(const struct mm_request *r)
{
        if (!(r->flags & MAP_FIXED))
                return mm_find_area(r->addr, r->len, vma_page(&r->v), r->flags);
        struct vma_node *n = vma_find(r->addr);
        if ((r->flags & MAP_FIXED_NOREPLACE) && n && n->v.start < r->addr + r->len)
                return -EEXIST;
        /* A reservation may span vmrun's own range, since it gets no pages. */
        bool reservation =
                !vma_accessible(&r->v) && (r->flags & MAP_ANONYMOUS) && (r->v.flags & MAP_PRIVATE);
        if (mm_reserved(r->addr, r->addr + r->len) && !reservation)
                return -ENOMEM;
        return (long)r->addr;
}

/* Pages of VMAs in the range, which MAP_FIXED unmaps. */
static uint64_t mapped_pages(uint64_t start, uint64_t end)
{
        uint64_t pages = 0;
        for (struct vma_node *n = vma_find(start); n && n->v.start < end; n = vma_next(n))
                pages += page_count(lower(n->v.end, end) - higher(n->v.start, start));
        return pages;
}

static long map_locked(struct mm_request *r)
{
        if (vma_counts.nodes > VMA_MAX)
                return -ENOMEM;
        long at = place(r);
        if (at < 0)
                return at;
        r->v.start = (uint64_t)at;
        r->v.end = r->v.start + r->len;

        uint64_t pages = page_count(r->len);
        int err = 0;
        if (r->v.flags & VMA_LOCKED)
                err = mm_may_lock_more(&r->v, pages, -EAGAIN);
        if (r->v.order)
                r->v.flags &= ~VMA_LOCK;        /* mm/lock.c */
        if (!err && !mm_may_expand(&r->v, pages, 0) &&
            !mm_may_expand(&r->v, pages, mapped_pages(r->v.start, r->v.end)))
                err = -ENOMEM;
        if (!err)
                err = vma_reserve(3);   /* this VMA, and two splits below it */
        if (!err)
                err = mm_unmap(r->v.start, r->v.end);
        if (!err)
                err = mm_insert(r->v);
        return err ? err : at;
}

long mm_give_up(struct mm_request *r, long err)
{
        r->v.end = r->v.start + r->len;
        mm_release(&r->v);
        return err;
}

long mm_map_opened(struct mm_request *r)
{
        lock_take(&mm_lock);
        r->v.flags |= mm_lock_future;
        long at = map_locked(r);
        lock_drop(&mm_lock);

        mm_report_refusals();
        if (at < 0)
                return mm_give_up(r, at);
        if (control.replay && r->v.file != FILE_NONE && (r->v.flags & MAP_PRIVATE))
                vmexit5(EXIT_FILE_MAPPED, r->v.file, r->v.off, r->len, (uint64_t)at, 0);
        /* Errors of population are not reported.  Beyond half of the cache, population would only
         * evict pages that it brought. */
        if (vma_locked_whole(&r->v))
                mm_populate_locked((uint64_t)at, (uint64_t)at + r->len);
        else if ((r->flags & (MAP_POPULATE | MAP_NONBLOCK)) == MAP_POPULATE)
                mm_populate((uint64_t)at, (uint64_t)at + r->len, control.nframes / 2);
        return at;
}

/* Of two errors Linux reports the descriptor's first, except that an unaligned offset comes before
 * it; then that MAP_HUGETLB does not fit the descriptor. */
static int descriptor_first(const struct mm_request *r, int err)
{
        if (page_off(r->off) || (r->flags & MAP_ANONYMOUS))
                return err;
        int wrong = about_descriptor(r);
        return wrong == -EBADF || wrong == -EINVAL ? wrong : err;
}

static long map(struct mm_request *r)
{
        int err = check_args(r);
        if (err)
                return descriptor_first(r, err);
        err = open_object(r);
        if (err)
                return err;
        /* Once more: r->len may have grown to whole huge pages. */
        err = r->flags & MAP_FIXED ? mm_check_fixed(r) : 0;
        return err ? mm_give_up(r, err) : mm_map_opened(r);
}

long sys_mmap(const uint64_t a[6])
{
        struct mm_request r = {
                .addr = a[0], .len = a[1], .off = a[5],
                .flags = (uint32_t)a[3], .fd = (int32_t)a[4],
        };
        r.v.prot = (uint32_t)a[2] & PROT_ALL;
        r.v.flags = r.flags & (MAP_GROWSDOWN | MAP_NORESERVE);
        r.v.flags |= (r.flags & MAP_TYPE) == MAP_PRIVATE ? MAP_PRIVATE : MAP_SHARED;
        if (r.flags & MAP_LOCKED)
                r.v.flags |= VMA_LOCKED;
        return map(&r);
}

long sys_munmap(const uint64_t a[6])
{
        lock_take(&mm_lock);
        int err = mm_munmap(a[0], a[1]);
        lock_drop(&mm_lock);
        return err;
}

/* --- upcalls --- */

static long map_stack(const struct mm_op *op)
{
        struct vma v = { .start = op->addr, .end = op->addr + op->len, .prot = op->prot & PROT_ALL,
                         .flags = MAP_PRIVATE | MAP_GROWSDOWN | VMA_STACK };
        if (page_off(v.start) || page_off(v.end) || v.end <= v.start || v.end > TASK_SIZE ||
            mm_reserved(v.start, v.end))
                return -EINVAL;
        lock_take(&mm_lock);
        int err = vma_reserve(3);
        if (!err)
                err = mm_unmap(v.start, v.end);
        if (!err)
                err = mm_insert(v);
        lock_drop(&mm_lock);
        mm_report_refusals();
        return err;
}

static long set_brk(const struct mm_op *op)
{
        lock_take(&mm_lock);
        mm_set_brk(op->addr);
        lock_drop(&mm_lock);
        return 0;
}

static long perform(const struct mm_op *op)
{
        const uint64_t a[6] = {
                op->addr, op->len, op->prot, op->flags, (uint64_t)(int64_t)op->fd, op->off,
        };
        switch (op->op) {
        case MM_MAP:     return sys_mmap(a);
        case MM_UNMAP:   return sys_munmap(a);
        case MM_PROTECT: return sys_mprotect(a);
        case MM_STACK:   return map_stack(op);
        case MM_BRK:     return set_brk(op);
        default:         return -EINVAL;
        }
}

long mm_batch(struct mm_op *ops, uint64_t n)
{
        if (n > MM_OPS_MAX)
                return -EINVAL;
        for (uint64_t i = 0; i < n; i++) {
                struct mm_op op = ops[i];       /* the host's memory: read once */
                long ret = perform(&op);
                ops[i].ret = ret;
                if (ret < 0)
                        return ret;
        }
        return 0;
}

/* Lock-free, so the host may ask at any exit.  A range that is being changed shows its old or its
 * new state. */
uint32_t mm_maps(uint64_t above, struct map_entry *out, uint32_t max)
{
        const uint32_t shown = MAP_SHARED | MAP_PRIVATE | VMA_STACK | VMA_HEAP | VMA_LOCKED;
        uint32_t n = 0;
        struct vma v;
        struct vma_hidden hidden;
        for (; n < max && vma_read(above, &v, &hidden); above = v.end)
                out[n++] = (struct map_entry){
                        .start = v.start, .end = v.end, .off = v.off,
                        .prot = v.prot, .flags = v.flags & shown, .file = v.file,
                        .order = v.order,
                };
        return n;
}

_Static_assert(VMA_STACK == MAP_ENTRY_STACK && VMA_HEAP == MAP_ENTRY_HEAP &&
               VMA_LOCKED == MAP_ENTRY_LOCKED,
               "mm_maps passes them on");
