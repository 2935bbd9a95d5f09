/*
 * /proc/self/mem: an empty memfd that cannot be written; each open makes its own file description
 * of it.  So the host handles position, access mode, dup and the rest of what descriptors do.
 * Reads and writes of such a descriptor are done here, on the program's memory.
 *
 * Other calls see an empty file.  Processes that inherited the descriptor by fork or exec see an
 * empty file, too: the memory that it stands for is not theirs, and after exec it is gone on Linux,
 * too.  Access rights are the program's own, as with the kernel's proc_mem.force_override=never.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/privfd.h"
#include "marshal/call.h"
#include "marshal/iov.h"
#include "memory/gmem.h"
#include "procfs/mem.h"

_Atomic bool procfs_mem_exists;         /* it was opened; stored with release after the two below */
static struct stat file;                /* identifies it */
static int file_fd = -1;                /* private */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* guards the making of it */

static int make(void)
{
        int fd = PRIVFD_NEW(memfd_create("mem", MFD_CLOEXEC | MFD_ALLOW_SEALING));

        if (fd < 0)
                return fd;
        if (fchmod(fd, 0600) != 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL) != 0 ||
            fstat(fd, &file) != 0) {
                int err = -errno;
                privfd_close(fd);
                return err;
        }
        file_fd = fd;
        atomic_store(&procfs_mem_exists, true);
        return 0;
}

/* Not in the child of a vfork, whose descriptor would be in its own table only. */
int procfs_mem_make(void)
{
        if (atomic_load(&procfs_mem_exists))
                return 0;
        pthread_mutex_lock(&lock);
        int err = atomic_load(&procfs_mem_exists) ? 0 : make();
        pthread_mutex_unlock(&lock);
        return err;
}

long procfs_mem_open(struct thread *t, int flags)
{
        char link[64];

        int err = !t->vforked ? procfs_mem_make() : atomic_load(&procfs_mem_exists) ? 0 : -ENFILE;
        if (err)
                return err;
        if (!(flags & O_PATH)) {
                if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
                        return -EEXIST;
                if (flags & O_DIRECT)
                        return -EINVAL;
        }
        snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", file_fd);
        int fd = open(link, flags & (O_ACCMODE | O_CLOEXEC | O_NONBLOCK | O_PATH | O_DIRECTORY));
        if (fd < 0)
                return -errno;
        if (!procfs_mem_is_(fd)) {      /* not the expected file: the program must not have it */
                close(fd);
                return -EIO;
        }
        return fd;
}

bool procfs_mem_is_(int fd)
{
        struct stat st;

        return sys_own(__NR_fstat, (uint64_t)fd, P(&st), 0, 0, 0, 0) == 0 &&
               st.st_dev == file.st_dev && st.st_ino == file.st_ino;
}

/* In a forked child, which needs a file of its own. */
void procfs_mem_forked(void)
{
        if (file_fd >= 0)
                privfd_close(file_fd);
        file_fd = -1;
        atomic_store(&procfs_mem_exists, false);
        pthread_mutex_init(&lock, NULL);
}

/* As the kernel's mem_rw(): in pieces, up to the first that is not accessible; a bad buffer is
 * EFAULT whatever was copied before. */
static long copy(struct thread *t, uint64_t buf, size_t len, uint64_t at, bool write)
{
        char piece[PAGE_SIZE];
        size_t done = 0;

        while (done < len) {
                size_t n = PAGE_SIZE - ((at + done) & (PAGE_SIZE - 1));
                if (n > len - done)
                        n = len - done;
                if (write && gmem_read(t, piece, buf + done, n))
                        return -EFAULT;
                if (write ? gmem_write(t, at + done, piece, n) : gmem_read(t, piece, at + done, n))
                        return done ? (long)done : -EIO;
                if (!write && gmem_write(t, buf + done, piece, n))
                        return -EFAULT;
                done += n;
        }
        return (long)done;
}

int procfs_mem_map(int fd)
{
        int flags = fcntl(fd, F_GETFL);

        return flags & O_PATH ? -EBADF : (flags & O_ACCMODE) == O_WRONLY ? -EACCES : -ENODEV;
}

/* A position may be any 64 bits, but the host's file takes no negative one.  Positions in the
 * kernel's half are kept without their top bit; the program has no memory there. */
#define KERNEL_HALF (1ull << 62)

static uint64_t from_host(off_t at)
{
        return (uint64_t)at & KERNEL_HALF ? (uint64_t)at | 1ull << 63 : (uint64_t)at;
}

long procfs_mem_seek(int fd, int64_t off, unsigned whence)
{
        off_t now = lseek(fd, 0, SEEK_CUR);
        uint64_t at = (uint64_t)off;

        if (now < 0)
                return -errno;
        if (whence > SEEK_CUR)
                return -EINVAL;
        if (whence == SEEK_CUR)
                at += from_host(now);
        if (lseek(fd, (off_t)(at & INT64_MAX), SEEK_SET) < 0)
                return -errno;
        return (long)at;
}

long procfs_mem_rw(struct thread *t, int fd, const struct sys_iov *v, const int64_t *pos,
                   bool write)
{
        int flags = fcntl(fd, F_GETFL), mode = flags & O_ACCMODE;
        uint64_t at = pos ? (uint64_t)*pos : from_host(lseek(fd, 0, SEEK_CUR));
        long done = 0;

        if ((flags & O_PATH) || mode == (write ? O_RDONLY : O_WRONLY))
                return -EBADF;
        for (int i = 0; i < v->n; i++) {
                size_t len = v->prog[i].iov_len;
                long n = copy(t, P(v->prog[i].iov_base), len, at + (uint64_t)done, write);
                if (n < 0) {
                        done = done ? done : n;
                        break;
                }
                done += n;
                if ((size_t)n < len)
                        break;
        }
        if (done > 0 && !pos)
                lseek(fd, (off_t)at + done, SEEK_SET);
        return done;
}
