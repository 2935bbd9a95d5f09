/*
 * truncate, ftruncate, O_TRUNC.  If a file is mapped shared, the host removes the pages that were
 * cut off.  The pages of a private mapping are in the cache and in far memory, so kern must be
 * told: changed or not, they no longer exist.  (vmrun does not notice when another process
 * truncates a file.)
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/privfd.h"
#include "load/script.h"
#include "marshal/call.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/files.h"
#include "memory/files_read.h"
#include "syscalls/handlers.h"
#include "syscalls/truncate.h"

/*
 * Does any file with this inode number have the lock of a running program (load/script.h)?  Asking
 * the file itself means opening and closing it, which would drop the program's own locks (fcntl) on
 * it.
 */
static bool may_be_running(ino_t ino)
{
        char text[4096], wanted[64];
        size_t have = 0;
        ssize_t n = 0;
        bool found = false;

        int fd = PRIVFD_NEW(open("/proc/locks", O_RDONLY | O_CLOEXEC));
        if (fd < 0)
                return true;
        snprintf(wanted, sizeof(wanted), ":%lu %lld ", (unsigned long)ino,
                 (long long)program_lock(F_RDLCK).l_start);
        while (!found && (n = read(fd, text + have, sizeof(text) - 1 - have)) > 0) {
                have += (size_t)n;
                text[have] = 0;
                found = strstr(text, wanted) != NULL;
                /* a line may be cut in two */
                size_t keep = have < sizeof(wanted) ? have : sizeof(wanted);
                memmove(text, text + have - keep, keep);
                have = keep;
        }
        privfd_close(fd);
        return found || n < 0;
}

bool sys_text_busy(int dirfd, const char *path, int flags)
{
        bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC),
             new = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
        struct stat st;

        if (!writes || new || (flags & (O_PATH | O_DIRECTORY)))
                return false;
        if (fstatat(dirfd, path, &st, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) ||
            !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
                return false;
        if (faccessat(dirfd, path, W_OK, AT_EACCESS))
                return false;           /* as Linux does then */
        if (!may_be_running(st.st_ino))
                return false;
        int fd = PRIVFD_NEW(openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        bool busy = fd >= 0 && program_is_running(fd);
        if (fd >= 0)
                privfd_close(fd);
        return busy;
}

/* The file may have become shorter. */
static void cut(struct thread *t, const struct stat *st)
{
        for (uint32_t id = FILE_NONE;
             (id = files_next_private(id, st->st_dev, st->st_ino)) != FILE_NONE;) {
                int64_t left = files_pages_left(id, 0);
                if (left >= 0)          /* else the file is not mapped any more */
                        thread_upcall(t, UPCALL_OBJECT_CUT, id, (uint64_t)left, 0);
        }
}

void sys_cut(struct thread *t, int fd)
{
        struct stat st;

        if (sys_own(__NR_fstat, (uint64_t)fd, P(&st), 0, 0, 0, 0) == 0)
                cut(t, &st);
}

long sys_ftruncate(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        long ret = sys_generic(t, row, a);

        if (ret == 0)
                sys_cut(t, (int)a[0]);
        return ret;
}

long sys_truncate(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        char *path = sys_string(t, a[0]);
        struct stat st;

        if (path != sys_bad() && sys_text_busy(AT_FDCWD, path, O_WRONLY))
                return -ETXTBSY;
        long ret = sys_generic(t, row, a);

        if (ret == 0 && sys_own(__NR_stat, P(path), P(&st), 0, 0, 0, 0) == 0)
                cut(t, &st);
        return ret;
}
