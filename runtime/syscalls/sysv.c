/*
 * semctl, msgctl, shmctl, whose last argument depends on the command; shmget and msgrcv.
 */
#include <errno.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "syscalls/handlers.h"

/* Commands with a struct of n bytes out, or in for IPC_SET; other commands take no pointer. */
static long control(struct thread *t, const struct sys_row *row, const uint64_t a[6], int cmd,
                    int at, size_t n, bool out)
{
        uint64_t h[4] = { a[0], a[1], a[2], a[3] };
        void *p = NULL;
        long ret;

        if (n) {
                p = out ? sys_out(t, a[at], n) : sys_in(t, a[at], n, SYS_ARG_MAX);
                h[at] = P(p);
        }
        (void)cmd;
        ret = sys_raw(row->nr, h[0], h[1], h[2], h[3], 0, 0);
        return n && out && ret >= 0 ? sys_deliver(t, a[at], p, n, ret) : ret;
}

long sys_semctl(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int cmd = (int)a[2] & ~0x100;
        struct semid_ds ds;
        size_t n = 0;
        bool out = true;

        switch (cmd) {
        case IPC_STAT: case SEM_STAT: case SEM_STAT_ANY:
                n = sizeof(ds);
                break;
        case IPC_SET:
                n = sizeof(ds);
                out = false;
                break;
        case IPC_INFO: case SEM_INFO:
                n = sizeof(struct seminfo);
                break;
        case GETALL: case SETALL: {
                long ret = sys_raw(row->nr, a[0], 0, IPC_STAT, P(&ds), 0, 0);
                if (ret < 0)
                        return ret == -EACCES && cmd == SETALL ? -EACCES : ret;
                n = ds.sem_nsems * 2;
                out = cmd == GETALL;
                break;
        }
        }
        return control(t, row, a, cmd, 3, n, out);
}

long sys_msgctl(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int cmd = (int)a[1] & ~0x100;
        size_t n = 0;

        if (cmd == IPC_STAT || cmd == IPC_SET || cmd == MSG_STAT || cmd == 13 /* MSG_STAT_ANY */)
                n = sizeof(struct msqid_ds);
        else if (cmd == IPC_INFO || cmd == MSG_INFO)
                n = sizeof(struct msginfo);
        return control(t, row, a, cmd, 2, n, cmd != IPC_SET);
}

/* There are no huge pages, so a segment of huge pages can be found but not made. */
long sys_shmget(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t find[6] = { a[0], a[1], a[2] & ~(uint64_t)(IPC_CREAT | SHM_HUGETLB) };
        long id;

        if (!(a[2] & SHM_HUGETLB))
                return sys_generic(t, row, a);
        if ((key_t)a[0] == IPC_PRIVATE)
                return -ENOMEM;
        id = sys_generic(t, row, find);
        if (!(a[2] & IPC_CREAT))
                return id;
        return id == -ENOENT ? -ENOMEM : id >= 0 && (a[2] & IPC_EXCL) ? -EEXIST : id;
}

long sys_shmctl(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int cmd = (int)a[1] & ~0x100;
        size_t n = 0;

        if (cmd == IPC_STAT || cmd == IPC_SET || cmd == SHM_STAT || cmd == 15 /* SHM_STAT_ANY */)
                n = sizeof(struct shmid_ds);
        else if (cmd == IPC_INFO)
                n = sizeof(struct shminfo);
        else if (cmd == SHM_INFO)
                n = sizeof(struct shm_info);
        return control(t, row, a, cmd, 2, n, cmd != IPC_SET);
}

/* The marshaller shortens a length that is too big, but a negative one must be refused. */
long sys_msgrcv(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return (int64_t)a[2] < 0 ? -EINVAL : sys_generic(t, row, a);
}
