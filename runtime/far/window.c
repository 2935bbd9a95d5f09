/*
 * FAR_WINDOW: maps a slab of a file, in the host and in the guest.  See window.h.
 */
#include <errno.h>
#include <sys/mman.h>
#include "far/window.h"
#include "vm/kvm.h"

#define SLAB_ALIGN (2ull << 20)         /* nested page tables can then use 2 MiB entries */

/* Bytes of FAR_WINDOW in use, by all nodes.  Guarded by the lease lock. */
static uint64_t window_used;

static uint64_t round_up(uint64_t v, uint64_t unit) { return (v + unit - 1) & ~(unit - 1); }

int window_map(struct vm *vm, int fd, uint64_t first, uint32_t pages, uint64_t granule,
               struct slab *s)
{
        uint64_t bytes = (uint64_t)pages * PAGE_SIZE, room = round_up(bytes, SLAB_ALIGN);
        uint64_t start = round_up(window_used, granule > SLAB_ALIGN ? granule : SLAB_ALIGN);

        /* FAR_WINDOW itself has a larger alignment than any granule. */
        if (start + room > FAR_WINDOW_END - FAR_WINDOW)
                return -ENOSPC;
        void *want = (char *)FAR_WINDOW + start;
        void *p = mmap(want, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd,
                       (off_t)(first * PAGE_SIZE));
        if (p == MAP_FAILED)
                return -errno;
        /* a kernel that does not know MAP_FIXED_NOREPLACE takes the address as a hint */
        if (p != want) {
                munmap(p, bytes);
                return -EEXIST;
        }
        madvise(p, bytes, MADV_DONTDUMP);
        /* a child reads far pages through slots, not through a copy of this mapping */
        madvise(p, bytes, MADV_DONTFORK);
        /* where shmem_enabled says "advise"; no matter if it fails */
        madvise(p, bytes, MADV_HUGEPAGE);

        uint64_t gpa = vm_take_gpa(vm, room);
        int err = gpa ? vm_add_memory(vm, gpa, p, bytes) : -ENOSPC;
        if (err) {
                munmap(p, bytes);
                return err;
        }
        window_used = start + room;
        s->va = (uint64_t)p;
        s->gpa = gpa;
        return 0;
}

void window_forked(void) { window_used = 0; }
