/*
 * shmat and shmdt.  The host attaches the segment in the arena, so the host kernel counts
 * attachments as usual; here it is mapped like any shared object.  Each attachment has a file id of
 * its own, by which shmdt finds the VMAs that belong together.
 *
 * Difference from Linux: a mapping that mprotect splits still counts as one attachment
 * (shm_nattch).
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/state.h"
#include "mm/calls.h"
#include "mm/map.h"
#include "space/range.h"

/* <linux/shm.h> is not available without the C library. */
#define SHM_RDONLY 010000
#define SHM_RND    020000
#define SHM_REMAP  040000
#define SHM_EXEC   0100000

/* The address is not a hint: the mapping goes exactly there or, with SHM_RND, to its rounded
 * address.  0 or -EINVAL. */
static int where(struct mm_request *r, uint64_t addr, uint64_t flags)
{
        if (page_off(addr) && !(flags & SHM_RND))
                return -EINVAL;
        r->addr = addr & PAGE_MASK;
        if (!r->addr && (flags & SHM_REMAP))
                return -EINVAL;
        if (addr)                       /* also if it was rounded to 0 */
                r->flags = flags & SHM_REMAP ? MAP_FIXED : MAP_FIXED | MAP_FIXED_NOREPLACE;
        return 0;
}

static int check_place(const struct mm_request *r)
{
        if (r->addr + r->len < r->addr && (r->flags & MAP_FIXED_NOREPLACE))
                return -EINVAL;
        return r->flags & MAP_FIXED ? mm_check_fixed(r) : 0;
}

long sys_shmat(const uint64_t a[6])
{
        uint64_t flags = (uint32_t)a[2];
        struct mm_request r = { .v = { .flags = MAP_SHARED | VMA_SYSV, .prot = PROT_READ } };
        int err = where(&r, a[1], flags);
        if (err)
                return err;
        if (!(flags & SHM_RDONLY))
                r.v.prot |= PROT_WRITE;
        if (flags & SHM_EXEC)
                r.v.prot |= PROT_EXEC;

        int64_t len = vmexit(EXIT_SHM_ATTACH, (uint32_t)a[0], flags & (SHM_RDONLY | SHM_EXEC), 0);
        if (len < 0)
                return len;
        r.len = (uint64_t)len;
        mm_take_object(&r);
        err = check_place(&r);
        long at = err ? mm_give_up(&r, err) : mm_map_opened(&r);
        return at == -EEXIST ? -EINVAL : at;
}

/* The first VMA above addr that belongs to an attachment which began at addr; of that file, if the
 * file is already known. */
static struct vma_node *attached(struct vma_node *n, uint64_t addr, uint32_t file)
{
        for (; n; n = vma_next(n))
                if ((n->v.flags & VMA_SYSV) && n->v.start - addr == n->v.off &&
                    (file == FILE_NONE || n->v.file == file))
                        return n;
        return NULL;
}

/* As on Linux, unmaps all of the attachment that is still in place; parts that mremap moved
 * stay. */
long sys_shmdt(const uint64_t a[6])
{
        uint64_t addr = a[0];
        int err = 0;

        if (page_off(addr))
                return -EINVAL;
        lock_take(&mm_lock);
        struct vma_node *n = attached(vma_find(addr), addr, FILE_NONE);
        if (!n)
                err = -EINVAL;
        for (uint32_t file = n ? n->v.file : FILE_NONE; n && !err; ) {
                uint64_t end = n->v.end;
                err = mm_unmap(n->v.start, end);
                n = attached(vma_find(end), addr, file);
        }
        lock_drop(&mm_lock);
        return err;
}
