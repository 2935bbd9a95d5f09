/*
 * read, write and their vector and positioned forms, getrandom, vmsplice.
 *
 * Up to SYS_BOUNCE bytes go through host buffers in one call: nothing of the program is pinned
 * while it may sleep, and a datagram, a pipe write up to PIPE_BUF or a terminal line stays one
 * piece. More than that:
 *   regular files and block devices: pinned pages, no copy, chunk after chunk until one is short,
 *   whatever signal comes;
 *   message sockets, and files that may carry messages: one call with the whole length;
 *   the rest: host buffers in chunks. A write continues until a chunk is short: Linux's write would
 *   not return earlier. A read ends after the first chunk: Linux's may, and a second chunk could
 *   sleep where the program's read would have returned. On character devices (/dev/zero) only a
 *   short chunk ends a read.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include "base/privfd.h"
#include "marshal/call.h"
#include "marshal/iov.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "procfs/mem.h"
#include "syscalls/handlers.h"

/* One transfer, for all these calls. */
struct io {
        long nr;                /* the program's own call, for the single-piece case */
        uint64_t a[6];
        int fd;
        bool write, vector, at;
        int64_t pos;            /* with at; -1 for preadv2 without a position */
        uint64_t flags;         /* RWF_* */
};

/* The program's own call with host buffers instead of its own. */
static long whole(const struct io *io, const struct sys_iov *v)
{
        if (io->vector)
                return sys_raw(io->nr, (uint64_t)io->fd, P(v->host), (uint64_t)v->n, io->a[3],
                               io->a[4], io->a[5]);
        return sys_raw(io->nr, (uint64_t)io->fd, P(v->host[0].iov_base), v->host[0].iov_len,
                       io->a[3], io->a[4], io->a[5]);
}

/* A chunk at done bytes into the transfer. */
static uint64_t position(const struct io *io, size_t done)
{
        return io->at && io->pos != -1 ? (uint64_t)io->pos + done : UINT64_MAX;
}

static long piece(const struct io *io, const struct iovec *iov, int n, size_t done)
{
        return sys_raw(io->write ? __NR_pwritev2 : __NR_preadv2, (uint64_t)io->fd, P(iov),
                       (uint64_t)n, position(io, done), 0, io->flags);
}

/* As piece(), for a file: Linux takes no signal between the parts of such a transfer. */
static long file_piece(const struct io *io, const struct iovec *iov, int n, size_t done)
{
        if (!done)
                return piece(io, iov, n, done);
        return sys_raw_further(io->write ? __NR_pwritev2 : __NR_preadv2, (uint64_t)io->fd, P(iov),
                               (uint64_t)n, position(io, done), 0, io->flags);
}

static long pinned(struct thread *t, const struct io *io, struct sys_iov *v)
{
        struct gmem_pins *p = sys_scratch(sizeof(*p));
        size_t done = 0;

        if (!p)
                return -ENOMEM;
        for (int i = 0; i < v->n; i++) {
                uint64_t addr = P(v->prog[i].iov_base);

                for (size_t off = 0; off < v->prog[i].iov_len;) {
                        long n = gmem_pin(t, p, addr + off, v->prog[i].iov_len - off, !io->write);
                        if (n <= 0)
                                return done ? (long)done : -EFAULT;
                        long ret = file_piece(io, p->iov, p->n, done);
                        gmem_unpin(t, p, ret > 0 ? (size_t)ret : 0);
                        if (ret < 0)
                                return done ? (long)done : ret;
                        done += (size_t)ret;
                        off += (size_t)ret;
                        if (ret < n)
                                return (long)done;
                }
        }
        return (long)done;
}

/* The part of v from byte at on, at most max bytes of it, as a list of its own in scratch. */
static int part(const struct sys_iov *v, size_t at, size_t max, struct sys_iov *out)
{
        memset(out, 0, sizeof(*out));
        out->prog = sys_scratch((size_t)v->n * sizeof(struct iovec) + 1);
        out->host = sys_scratch((size_t)v->n * sizeof(struct iovec) + 1);
        if (!out->prog || !out->host)
                return -ENOMEM;
        for (int i = 0; i < v->n && out->total < max; i++) {
                size_t len = v->prog[i].iov_len;

                if (at >= len) {
                        at -= len;
                        continue;
                }
                len -= at;
                if (len > max - out->total)
                        len = max - out->total;
                out->prog[out->n++] =
                        (struct iovec){ (void *)(uintptr_t)(P(v->prog[i].iov_base) + at), len };
                out->total += len;
                at = 0;
        }
        return 0;
}

/*
 * If some of the bytes that arrived cannot be stored, the program gets the bytes before them, since
 * Linux would have stopped there, and a file's position moves back.  From a pipe or socket the rest
 * is lost.
 */
static long store(struct thread *t, const struct io *io, const struct sys_iov *v, long ret)
{
        size_t put;

        if (ret <= 0)
                return ret;
        put = sys_iov_store(t, v, (size_t)ret);
        if (put < (size_t)ret && (!io->at || io->pos == -1))
                sys_own(__NR_lseek, (uint64_t)io->fd, put - (size_t)ret, 1, 0, 0, 0);
        return put ? (long)put : -EFAULT;
}

static long bounced(struct thread *t, const struct io *io, struct sys_iov *v)
{
        int err = io->write ? sys_iov_fill(t, v) : sys_iov_room(t, v);
        long ret;

        if (err)
                return err;
        ret = whole(io, v);
        return io->write ? ret : store(t, io, v, ret);
}

static long chunked(struct thread *t, const struct io *io, struct sys_iov *v, enum sys_file kind)
{
        size_t done = 0;

        while (done < v->total) {
                struct sys_iov p;
                long ret;

                sys_scratch_reset();
                if (part(v, done, SYS_CHUNK, &p))
                        return done ? (long)done : -ENOMEM;
                size_t want = p.total;
                int err = io->write ? sys_iov_fill(t, &p) : sys_iov_room(t, &p);
                if (err)
                        return done ? (long)done : err;
                ret = piece(io, p.host, p.n, done);
                if (!io->write)
                        ret = store(t, io, &p, ret);
                if (ret < 0)
                        return done ? (long)done : ret;
                done += (size_t)ret;
                if ((size_t)ret < want || (!io->write && kind != FILE_CHAR))
                        break;
        }
        return (long)done;
}

static long transfer(struct thread *t, const struct io *io, struct sys_iov *v)
{
        enum sys_file kind;

        if (v->total <= SYS_BOUNCE)
                return bounced(t, io, v);
        kind = sys_file_kind(io->fd);
        if (kind == FILE_REGULAR)
                return pinned(t, io, v);
        if (kind == FILE_MESSAGE || kind == FILE_OTHER) {
                if (v->total > SYS_MESSAGE_MAX) {
                        if (io->write && kind == FILE_MESSAGE)
                                return -EMSGSIZE;
                        /* no message is that long; a stream's transfer is short */
                        sys_iov_clip(v, SYS_MESSAGE_MAX);
                }
                return bounced(t, io, v);
        }
        /* Copied, because the list is in scratch, which every chunk reuses. */
        struct iovec list[SYS_IOV_MAX];
        struct sys_iov kept = *v;
        memcpy(list, v->prog, (size_t)kept.n * sizeof(list[0]));
        kept.prog = list;
        return chunked(t, io, &kept, kind);
}

static long single(struct thread *t, const struct sys_row *row, const uint64_t a[6], bool write)
{
        struct io io = { .nr = row->nr,
                         .fd = (int)a[0],
                         .write = write,
                         .at = row->nr == __NR_pread64 || row->nr == __NR_pwrite64,
                         .pos = (int64_t)a[3] };
        struct iovec store[2];
        struct sys_iov v;

        memcpy(io.a, a, sizeof(io.a));
        if (privfd_is(io.fd))
                return -EBADF;
        if (io.at && io.pos < 0)
                return -EINVAL;
        /* The kernel refuses impossible lengths and addresses before all else. */
        if ((int64_t)a[2] < 0 || a[1] >= TASK_SIZE || a[2] > TASK_SIZE - a[1])
                return sys_raw(row->nr, a[0], a[1] >= TASK_SIZE ? a[1] : SYS_NOWHERE, a[2], a[3],
                               a[4], a[5]);
        sys_iov_one(&v, store, a[1], a[2]);
        if (procfs_mem_is(io.fd))
                return procfs_mem_rw(t, io.fd, &v, io.at ? &io.pos : NULL, write);
        return transfer(t, &io, &v);
}

long sys_read(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return single(t, row, a, false);
}
long sys_write(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return single(t, row, a, true);
}

static long vector(struct thread *t, const struct sys_row *row, const uint64_t a[6], bool write)
{
        bool v2 = row->nr == __NR_preadv2 || row->nr == __NR_pwritev2;
        struct io io = { .nr = row->nr,
                         .fd = (int)a[0],
                         .write = write,
                         .vector = true,
                         .at = row->nr != __NR_readv && row->nr != __NR_writev,
                         .pos = (int64_t)a[3],
                         .flags = v2 ? a[5] : 0 };
        struct sys_iov v;
        void *kernel;
        int err;

        memcpy(io.a, a, sizeof(io.a));
        if (privfd_is(io.fd))
                return -EBADF;
        if (io.at && io.pos < 0 && !(v2 && io.pos == -1))
                return -EINVAL;
        err = sys_iov_read(t, &v, a[1], a[2], &kernel);
        if (err)
                return sys_raw(row->nr, a[0], P(kernel), a[2], a[3], a[4], a[5]);
        if (procfs_mem_is(io.fd))
                return procfs_mem_rw(t, io.fd, &v, io.at && io.pos != -1 ? &io.pos : NULL, write);
        return transfer(t, &io, &v);
}

long sys_readv(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return vector(t, row, a, false);
}
long sys_writev(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return vector(t, row, a, true);
}

long sys_lseek(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        if (!privfd_is((int)a[0]) && procfs_mem_is((int)a[0]))
                return procfs_mem_seek((int)a[0], (int64_t)a[1], (unsigned)a[2]);
        return sys_generic(t, row, a);
}

long sys_getrandom(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        size_t len = a[1] < INT32_MAX ? a[1] : INT32_MAX, done = 0;
        size_t chunk = len < SYS_BOUNCE ? len : SYS_BOUNCE;
        char *p = sys_scratch(chunk + 1);

        if (!p)
                return -ENOMEM;
        do {
                size_t n = len - done < chunk ? len - done : chunk;
                bool good = !n || !gmem_check(t, a[0] + done, 1, true);
                long ret = sys_raw(row->nr, P(good ? p : sys_bad()), n, a[2], 0, 0, 0);

                if (ret < 0)
                        return done ? (long)done : ret;
                struct iovec store[2];
                struct sys_iov v;
                sys_iov_one(&v, store, a[0] + done, (size_t)ret);
                v.host[0] = (struct iovec){ p, (size_t)ret };
                size_t put = sys_iov_store(t, &v, (size_t)ret);
                done += put;
                if (put < (size_t)ret)
                        return done ? (long)done : -EFAULT;
                if ((size_t)ret < n)
                        break;
        } while (done < len);
        return (long)done;
}

/* The bytes of pages for a copy, and one page behind it.  The copy begins at the offset in its page
 * at which the program's bytes begin in theirs. */
static size_t splice_pages(const struct iovec *v)
{
        return ((P(v->iov_base) & (PAGE_SIZE - 1)) + v->iov_len + 2 * PAGE_SIZE - 1) &
               ~(size_t)(PAGE_SIZE - 1);
}

/* Puts copies into the pipe.  They are private, and begin at the offsets in their pages that the
 * program's bytes have, so they take as many places of the pipe as the program's bytes would.  The
 * pipe keeps their pages when they are unmapped here. */
static long splice_copies(struct thread *t, uint64_t fd, uint64_t flags, struct sys_iov *v)
{
        size_t size = 0, at = 0;

        for (int i = 0; i < v->n; i++)
                size += splice_pages(&v->prog[i]);
        char *copies = mmap(NULL, size + PAGE_SIZE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copies == MAP_FAILED)
                return -ENOMEM;
        for (int i = 0; i < v->n; at += splice_pages(&v->prog[i++])) {
                uint64_t addr = P(v->prog[i].iov_base);
                size_t len = v->prog[i].iov_len, reach = sys_reach(t, addr, len, false);
                char *copy = copies + at + (addr & (PAGE_SIZE - 1));

                if (gmem_read(t, copy, addr, reach))
                        reach = 0;
                v->host[i] = (struct iovec){ reach || !len ? copy : sys_bad(), len };
                if (reach == len)
                        continue;
                if (reach)              /* it reaches up to the end of a page */
                        mprotect(copy + reach, PAGE_SIZE, PROT_NONE);
                v->n = i + 1;
        }
        long ret = sys_raw(__NR_vmsplice, fd, P(v->host), (uint64_t)v->n, flags, 0, 0);
        munmap(copies, size + PAGE_SIZE);
        return ret;
}

/*
 * The kernel would keep the program's pages in the pipe after the call; a frame may be evicted
 * before they are read. So the bytes are copied, which differs only for a program that changes them
 * in between.
 */
long sys_vmsplice(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t fd = privfd_is((int)a[0]) ? INT32_MAX : a[0];
        long flags = sys_own(__NR_fcntl, fd, F_GETFL, 0, 0, 0, 0),
             room = sys_own(__NR_fcntl, fd, F_GETPIPE_SZ, 0, 0, 0, 0), ret;
        struct sys_iov v;
        void *kernel;

        if (sys_iov_read(t, &v, a[1], a[2], &kernel))
                return sys_raw(row->nr, fd, P(kernel), a[2], a[3], 0, 0);
        /* not a pipe: the kernel refuses it before it reads any bytes */
        sys_iov_clip(&v, room > 0 ? (size_t)room : PAGE_SIZE);
        if ((flags & O_ACCMODE) != O_RDONLY)
                return splice_copies(t, fd, a[3], &v);
        if (sys_iov_room(t, &v))
                return -ENOMEM;
        ret = sys_raw(row->nr, fd, P(v.host), (uint64_t)v.n, a[3], 0, 0);
        size_t put = ret > 0 ? sys_iov_store(t, &v, (size_t)ret) : 0;
        return ret <= 0 ? ret : put ? (long)put : -EFAULT;
}
