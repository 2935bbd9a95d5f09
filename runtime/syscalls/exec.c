/*
 * execve and execveat: reads the program's arguments; process/exec.c does the rest.
 */
#include <errno.h>
#include <fcntl.h>
#include "marshal/row.h"
#include "memory/gmem.h"
#include "process/exec.h"
#include "syscalls/handlers.h"

/* Copies the string to the room's text. */
static long take_string(struct thread *t, struct exec_room *r, uint64_t addr)
{
        if (r->npointers == EXEC_POINTERS_MAX || r->used >= EXEC_TEXT_MAX)
                return -E2BIG;
        long n = gmem_string(t, r->text + r->used, addr, EXEC_STRING_MAX);
        if (n < 0)
                return n == -ENAMETOOLONG ? -E2BIG : n;
        r->pointer[r->npointers++] = r->text + r->used;
        r->used += (size_t)n + 1;
        return 0;
}

/* argv or envp: addresses up to NULL.  A NULL array counts as empty. */
static long take_array(struct thread *t, struct exec_room *r, uint64_t addr, char ***array)
{
        uint64_t string;

        *array = r->pointer + r->npointers;
        for (; addr; addr += sizeof(string)) {
                if (gmem_read(t, &string, addr, sizeof(string)))
                        return -EFAULT;
                if (!string)
                        break;
                long err = take_string(t, r, string);
                if (err)
                        return err;
        }
        r->pointer[r->npointers++] = NULL;
        return 0;
}

static long execute(struct thread *t, int dirfd, uint64_t path, uint64_t argv, uint64_t envp,
                    int flags)
{
        struct exec_room *r = exec_room(t);
        if (!r)
                return -ENOMEM;
        r->dirfd = dirfd;
        r->flags = flags;
        long err = gmem_string(t, r->path, path, PATH_MAX);
        if (err == 0 && !(flags & AT_EMPTY_PATH))
                err = -ENOENT;
        if (err >= 0)
                err = take_array(t, r, argv, &r->argv);
        if (!err)
                err = take_array(t, r, envp, &r->envp);
        if (!err)
                err = exec_run(t, r);
        exec_room_free(t);
        return err;
}

long sys_execve(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        (void)row;
        return execute(t, AT_FDCWD, a[0], a[1], a[2], 0);
}

long sys_execveat(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int flags = (int)a[4];

        (void)row;
        if (flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
                return -EINVAL;
        return execute(t, (int)a[0], a[1], a[2], a[3], flags);
}
