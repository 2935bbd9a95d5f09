/*
 * truncate, ftruncate, O_TRUNC.  Where a file is mapped shared, the host takes away what was cut off.  The pages of a private mapping are in
 * the cache and in far memory, and kern must be told: changed or not, they are no more.  (Of a file that another process cuts short we know
 * nothing.)
 */
#include <fcntl.h>
#include <sys/stat.h>
#include "sys.h"
#include "../files.h"

/* The file may have become shorter. */
static void cut(struct thread *t, const struct stat *st)
{
        for (uint32_t id = FILE_NONE; (id = files_next_private(id, st->st_dev, st->st_ino)) != FILE_NONE; ) {
                int64_t left = files_pages_left(id, 0);
                if (left >= 0)          /* else it is not mapped any more */
                        thread_upcall(t, UPCALL_OBJECT_CUT, id, (uint64_t)left, 0);
        }
}

void sys_cut(struct thread *t, int fd)
{
        struct stat st;

        if (sys_own(__NR_fstat, (uint64_t)fd, P(&st), 0, 0, 0, 0) == 0)
                cut(t, &st);
}

long sys_ftruncate(struct thread *t, long nr, const uint64_t a[6])
{
        long ret = sys_generic(t, nr, a);

        if (ret == 0)
                sys_cut(t, (int)a[0]);
        return ret;
}

long sys_truncate(struct thread *t, long nr, const uint64_t a[6])
{
        char *path = sys_string(t, a[0]);
        struct stat st;

        if (path != sys_bad() && sys_text_busy(AT_FDCWD, path, O_WRONLY))
                return -ETXTBSY;
        long ret = sys_generic(t, nr, a);

        if (ret == 0 && sys_own(__NR_stat, P(path), P(&st), 0, 0, 0, 0) == 0)
                cut(t, &st);
        return ret;
}
