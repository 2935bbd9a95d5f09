/*
 * mincore and msync, which change no mapping.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/state.h"
#include "base/string.h"
#include "mm/calls.h"
#include "paging/access.h"
#include "space/pt.h"
#include "space/range.h"

/* Pages for each look at the page tables.  Bounded because the answer lies on the stack. */
#define CHUNK 512

static void resident(uint64_t start, uint64_t end, uint8_t *vec)
{
        for (uint64_t at = start, e; mm_part(&at, end, &e); at = e)
                pt_resident(at, e, vec + page_count(at - start));
}

/*
 * For a file, and for shared memory, the host's page cache decides.  A private page that was
 * changed is not in it.  A locked page of shared memory is there once it has been used: the host
 * does not allocate it before, whereas Linux does at mlock.  A private mapping of huge pages knows
 * only its own pages, as on Linux (but of 4 KiB).
 */
static void ask_host(const struct vma *v, uint64_t pages, uint8_t *vec)
{
        const uint8_t *cached = (const uint8_t *)vcpu_self_xfer;
        bool shared = v->flags & MAP_SHARED, locked = v->flags & VMA_LOCKED;

        if (v->order && !shared)
                return;
        if (vmexit(EXIT_MINCORE, shared ? FILE_NONE : v->file, shared ? v->gpa : v->off, pages))
                return;                 /* unmapped since */
        for (uint64_t i = 0; i < pages; i++)
                if (shared ? !locked || vec[i] != PT_RESIDENT : !vec[i])
                        vec[i] = cached[i] & 1;
}

/* Up to CHUNK pages of one VMA.  Returns how many, or -ENOMEM. */
static long mincore_chunk(uint64_t start, uint64_t end, uint8_t vec[CHUNK])
{
        struct vma v = { .file = FILE_NONE };
        long pages = -ENOMEM;
        lock_take(&mm_lock);
        struct vma_node *n = vma_find(start);
        if (n && n->v.start <= start) {
                end = lower(lower(end, n->v.end), start + CHUNK * PAGE_SIZE);
                pages = (long)page_count(end - start);
                memset(vec, 0, (size_t)pages);
                resident(start, end, vec);
                v = vma_part(n->v, start, end);
        }
        lock_drop(&mm_lock);
        if (v.file != FILE_NONE)
                ask_host(&v, (uint64_t)pages, vec);
        for (long i = 0; i < pages; i++)
                vec[i] = vec[i] == PT_RESIDENT;
        return pages;
}

long sys_mincore(const uint64_t a[6])
{
        uint64_t start = a[0], len = a[1], vec = a[2];
        uint64_t pages = page_count(len) + (page_off(len) != 0);
        uint8_t chunk[CHUNK];

        if (page_off(start))
                return -EINVAL;
        if (len > TASK_SIZE || start > TASK_SIZE - len)
                return -ENOMEM;
        if (pages > TASK_SIZE || vec > TASK_SIZE - pages)
                return -EFAULT;
        for (uint64_t end = start + pages * PAGE_SIZE; start < end; ) {
                long n = mincore_chunk(start, end, chunk);
                if (n < 0)
                        return n;
                if (kern_copy_out(vec, chunk, (size_t)n))
                        return -EFAULT;
                start += (uint64_t)n * PAGE_SIZE;
                vec += (uint64_t)n;
        }
        return 0;
}

/* One VMA at a time; mm_lock is not held while the host writes to a disk. */
long sys_msync(const uint64_t a[6])
{
        uint64_t start = a[0], len = page_align(a[1]), end = start + len;
        uint32_t flags = (uint32_t)a[2];
        struct vma v;
        struct vma_hidden hidden;
        int hole = 0;

        if ((flags & ~(uint32_t)(MS_ASYNC | MS_INVALIDATE | MS_SYNC)) || page_off(start) ||
            (flags & MS_ASYNC && flags & MS_SYNC))
                return -EINVAL;
        if (end < start)
                return -ENOMEM;
        for (; start < end; start = v.end) {
                bool found = vma_read(start, &v, &hidden);
                if (!found || v.start > start)
                        hole = -ENOMEM;
                if (!found || v.start >= end)
                        break;
                if ((flags & MS_INVALIDATE) && (v.flags & VMA_LOCKED))
                        return -EBUSY;
                if (!(flags & MS_SYNC) || !(v.flags & MAP_SHARED))
                        continue;
                struct vma part = vma_part(v, higher(start, v.start), lower(end, v.end));
                int64_t err = vmexit(EXIT_MSYNC, part.gpa, part.end - part.start, flags);
                if (err)
                        return err;
        }
        return hole;
}
