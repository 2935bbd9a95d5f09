/*
 * See shm.h.  The segment is attached in the arena, so the host counts attachments, detaches them
 * at exec and exit, and passes them on at fork.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include "memory/arena.h"
#include "memory/files.h"
#include "memory/shm.h"

int64_t shm_exit_attach(struct thread *t, struct exit_req *rq)
{
        int shmid = (int)rq->a[0], flags = (int)rq->a[1] & (SHM_RDONLY | SHM_EXEC);
        struct shmid_ds ds;
        uint64_t gpa;

        if (shmctl(shmid, IPC_STAT, &ds) != 0)
                return -errno;
        if (ds.shm_segsz > INT64_MAX - PAGE_SIZE)
                return -ENOMEM;
        uint64_t pages = (ds.shm_segsz + PAGE_SIZE - 1) / PAGE_SIZE;
        uint32_t id = files_segment(shmid, (uint32_t)ds.shm_perm.__key, ds.shm_segsz, pages + 1);
        if (!id)
                return -ENOMEM;
        int err = arena_attach(t->vm, id, shmid, flags, ds.shm_segsz, &gpa);
        files_unmapped(id, err ? pages + 1 : 1);
        if (err)
                return err;
        /* mprotect may do what the attachment allows: all but writing if it is attached for
         * reading. */
        rq->out[0] = object_word(id, flags & SHM_RDONLY ? PROT_WRITE : 0, 0);
        rq->out[1] = gpa;
        return (int64_t)(pages * PAGE_SIZE);
}
