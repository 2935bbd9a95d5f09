/*
 * Iovecs: the program's list of buffers and a host shadow of the same shape, so that the kernel sees the same number of
 * pieces with the same lengths and alignment.
 */
#include <sys/socket.h>
#include <sys/stat.h>
#include "sys.h"

int sys_iov_read(struct thread *t, struct sys_iov *v, uint64_t addr, uint64_t n, void **kernel)
{
        size_t bytes = n * sizeof(struct iovec);

        memset(v, 0, sizeof *v);
        *kernel = sys_bad();
        if (n > SYS_IOV_MAX)
                return -EINVAL;         /* the kernel counts before it looks */
        v->prog = sys_scratch(bytes + 1);
        v->host = sys_scratch(bytes + sizeof(struct iovec));
        if (!v->prog || !v->host || (n && gmem_read(t, v->prog, addr, bytes)))
                return -EFAULT;
        v->n = (int)n;
        for (int i = 0; i < v->n; i++) {
                uint64_t len = v->prog[i].iov_len;

                if ((int64_t)len < 0) {
                        *kernel = v->prog;
                        return -EINVAL;
                }
                if (P(v->prog[i].iov_base) >= TASK_SIZE || len > TASK_SIZE - P(v->prog[i].iov_base))
                        return -EFAULT;
                v->total += len;
        }
        sys_iov_clip(v, SYS_RW_MAX);
        return 0;
}

void sys_iov_one(struct sys_iov *v, struct iovec store[2], uint64_t addr, size_t len)
{
        memset(v, 0, sizeof *v);
        v->prog = &store[0];
        v->host = &store[1];
        v->prog[0] = (struct iovec){ (void *)(uintptr_t)addr, len };
        v->n = 1;
        v->total = len;
        sys_iov_clip(v, SYS_RW_MAX);
}

/* Shortens the list to max bytes; returns the new total. */
size_t sys_iov_clip(struct sys_iov *v, size_t max)
{
        size_t left = max;

        if (v->total <= max)
                return v->total;
        for (int i = 0; i < v->n; i++) {
                if (v->prog[i].iov_len > left)
                        v->prog[i].iov_len = left;
                left -= v->prog[i].iov_len;
        }
        return v->total = max;
}

/*
 * Only the first byte of a piece is looked at: what comes may be shorter than the room.  The first bad piece gets the
 * bad address, so a call with nothing before it fails before it takes anything.
 */
int sys_iov_room(struct thread *t, struct sys_iov *v)
{
        for (int i = 0; i < v->n; i++) {
                size_t len = v->prog[i].iov_len;
                uint64_t addr = P(v->prog[i].iov_base);

                v->host[i].iov_len = len;
                v->host[i].iov_base = sys_bad();
                if (!len || gmem_check(t, addr, 1, true))
                        continue;
                v->host[i].iov_base = sys_scratch_like(addr, len);
                if (!v->host[i].iov_base)
                        return -ENOMEM;
        }
        return 0;
}

/* The number of bytes from addr on that can be read, at most len; they are in dst then. */
static size_t read_prefix(struct thread *t, char *dst, uint64_t addr, size_t len)
{
        size_t done = 0;

        if (!gmem_read(t, dst, addr, len))
                return len;
        while (done < len) {
                size_t n = PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1));
                if (n > len - done)
                        n = len - done;
                if (gmem_read(t, dst + done, addr + done, n))
                        break;
                done += n;
        }
        return done;
}

int sys_iov_fill(struct thread *t, struct sys_iov *v)
{
        size_t total = 0;

        for (int i = 0; i < v->n; i++) {
                size_t len = v->prog[i].iov_len, got;
                uint64_t addr = P(v->prog[i].iov_base);

                v->host[i] = (struct iovec){ sys_bad(), len };
                if (!len)
                        continue;
                v->host[i].iov_base = sys_scratch_like(addr, len);
                if (!v->host[i].iov_base)
                        return -ENOMEM;
                got = read_prefix(t, v->host[i].iov_base, addr, len);
                total += got;
                if (got == len)
                        continue;
                v->cut = true;
                if (!got) {
                        v->host[i].iov_base = sys_bad();
                        v->n = total ? i : i + 1;
                } else {
                        v->host[i].iov_len = got;
                        v->n = i + 1;
                }
                break;
        }
        v->total = total;
        return 0;
}

size_t sys_iov_store(struct thread *t, const struct sys_iov *v, size_t n)
{
        size_t done = 0;

        for (int i = 0; i < v->n && done < n; i++) {
                size_t len = v->prog[i].iov_len < n - done ? v->prog[i].iov_len : n - done, put = 0;
                uint64_t addr = P(v->prog[i].iov_base);
                const char *src = v->host[i].iov_base;

                if (!gmem_write(t, addr, src, len)) {
                        done += len;
                        continue;
                }
                while (put < len) {
                        size_t page = PAGE_SIZE - ((addr + put) & (PAGE_SIZE - 1));
                        if (page > len - put)
                                page = len - put;
                        if (gmem_write(t, addr + put, src + put, page))
                                break;
                        put += page;
                }
                done += put;
                break;
        }
        return done;
}

enum sys_file sys_file_kind(int fd)
{
        struct stat st;
        int type;
        socklen_t n = sizeof type;

        if (sys_own(__NR_fstat, (uint64_t)fd, P(&st), 0, 0, 0, 0))
                return FILE_OTHER;
        switch (st.st_mode & S_IFMT) {
        case S_IFREG: case S_IFBLK:
                return FILE_REGULAR;
        case S_IFIFO:
                return FILE_PIPE;
        case S_IFCHR:
                return FILE_CHAR;
        case S_IFSOCK:
                if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n))
                        return FILE_OTHER;
                return type == SOCK_STREAM ? FILE_STREAM : FILE_MESSAGE;
        }
        return FILE_OTHER;
}
