/*
 * Reads pages, sizes and names through the registry of mapped files (files.h).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/message.h"
#include "guest_ram.h"
#include "memory/arena.h"
#include "memory/files_entry.h"
#include "memory/files_read.h"
#include "vm/vcpu.h"

#define READ_MAX 1024   /* pages at a time: more than kern asks for, and not above IOV_MAX */
_Static_assert(READ_MAX <= IOV_MAX, "one preadv takes them all");

/* One iovec for each run of neighbouring frames. */
static int frames_iov(const uint32_t *frame, uint32_t n, struct iovec *iov)
{
        int k = 0;
        for (uint32_t i = 0; i < n; i++) {
                if (frame[i] >= CONTROL->nframes) {
                        warnx_("kern asked for a file page in frame %u of %llu: refused", frame[i],
                               (unsigned long long)CONTROL->nframes);
                        return -EINVAL;
                }
                if (i && frame[i] == frame[i - 1] + 1)
                        iov[k - 1].iov_len += PAGE_SIZE;
                else
                        iov[k++] = (struct iovec){ frame_host(frame[i]), PAGE_SIZE };
        }
        return k;
}

/* Reads until all is full or the file ends; returns bytes, or -errno if nothing came.  iov is used
 * up. */
static int64_t read_all(int fd, struct iovec *iov, int k, uint64_t off)
{
        uint64_t got = 0;
        while (k > 0) {
                ssize_t r = preadv(fd, iov, k, (off_t)(off + got));
                if (r < 0 && errno == EINTR)
                        continue;
                if (r < 0)
                        return got ? (int64_t)got : -errno;
                if (r == 0)
                        break;
                got += (uint64_t)r;
                while (k > 0 && (size_t)r >= iov->iov_len) {
                        r -= (ssize_t)iov->iov_len;
                        iov++, k--;
                }
                if (k > 0) {
                        iov->iov_base = (char *)iov->iov_base + r;
                        iov->iov_len -= (size_t)r;
                }
        }
        return (int64_t)got;
}

int64_t files_read(uint32_t id, uint64_t off, const uint32_t *frame, uint32_t n)
{
        struct file f;
        struct iovec iov[READ_MAX];

        if (n == 0 || n > READ_MAX || off % PAGE_SIZE || off > INT64_MAX - (uint64_t)n * PAGE_SIZE)
                return -EINVAL;
        int k = frames_iov(frame, n, iov);
        if (k < 0)
                return k;
        int err = files_pin(id, &f);
        if (err)
                return err;
        int64_t got = f.kind == FILE_PRIVATE ? read_all(f.fd, iov, k, off) : -EBADF;
        files_unpin(id);
        if (got < 0)
                return got;
        uint64_t tail = (uint64_t)got % PAGE_SIZE;
        if (tail)
                memset(frame_host(frame[got / PAGE_SIZE]) + tail, 0, PAGE_SIZE - tail);
        return (got + PAGE_SIZE - 1) / PAGE_SIZE;
}

int64_t files_pages_left(uint32_t id, uint64_t off)
{
        struct file f;
        struct stat st;
        int err = files_pin(id, &f);
        if (err)
                return err;
        uint64_t size = f.size;
        if (f.endless)
                size = INT64_MAX;
        else if (f.fd >= 0)
                size = fstat(f.fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
        files_unpin(id);
        return size > off ? (int64_t)((size - off - 1) / PAGE_SIZE + 1) : 0;
}

int file_describe(uint32_t id, char *path, size_t n, dev_t *dev, ino_t *ino)
{
        struct file f;
        char name[40];
        int err = files_pin(id, &f);
        if (err)
                return err;
        *dev = f.dev;
        *ino = f.ino;
        ssize_t len = -1;
        if (f.fd >= 0) {
                snprintf(name, sizeof(name), "/proc/thread-self/fd/%d", f.fd);
                len = readlink(name, path, n - 1);
        }
        if (len >= 0)
                path[len] = 0;
        else if (f.kind == FILE_SEGMENT)
                snprintf(path, n, "/SYSV%08x (deleted)", f.key);
        else    /* Linux's name for shared anonymous memory; or /proc is not mounted */
                snprintf(path, n, "%s", f.kind == FILE_ANONYMOUS ? "/dev/zero (deleted)" : "");
        files_unpin(id);
        return 0;
}

int64_t files_exit_read(struct thread *t, struct exit_req *rq)
{
        const uint32_t *frames =
                rq->a[2] <= READ_MAX ? kern_pointer(t, rq->a[3], rq->a[2] * sizeof(*frames)) : NULL;
        if (rq->a[0] > UINT32_MAX || !frames)
                return -EINVAL;
        return files_read((uint32_t)rq->a[0], rq->a[1], frames, (uint32_t)rq->a[2]);
}

int64_t files_exit_shared_check(struct thread *t, struct exit_req *rq)
{
        (void)t;
        if (rq->a[0] > UINT32_MAX)
                return -EBADF;
        return arena_there(rq->a[2] & ~1ull, rq->a[2] & 1,
                           files_pages_left((uint32_t)rq->a[0], rq->a[1]));
}

/* Asks the host kernel about a mapping like the program's.  No page of it is touched, so this makes
 * nothing resident. */
static int64_t mincore_private(uint32_t id, uint64_t off, uint64_t len, unsigned char *vec)
{
        struct file f;
        int64_t err = files_pin(id, &f);

        if (err)
                return err;
        void *p = f.kind == FILE_PRIVATE ? mmap(NULL, len, PROT_NONE, MAP_PRIVATE, f.fd, (off_t)off)
                                         : MAP_FAILED;
        err = p == MAP_FAILED ? -EBADF : mincore(p, len, vec) == 0 ? 0 : -errno;
        if (p != MAP_FAILED)
                munmap(p, len);
        files_unpin(id);
        return err;
}

int64_t files_exit_mincore(struct thread *t, struct exit_req *rq)
{
        uint64_t len = rq->a[2] * PAGE_SIZE;
        unsigned char *vec = vcpu_xfer(t->v);

        if (rq->a[0] > UINT32_MAX || rq->a[2] == 0 || rq->a[2] > PAGE_SIZE)
                return -EINVAL;
        if (rq->a[0] != FILE_NONE)
                return mincore_private((uint32_t)rq->a[0], rq->a[1], len, vec);
        void *p = arena_host(rq->a[1]);
        return p && mincore(p, len, vec) == 0 ? 0 : -ENOMEM;
}
