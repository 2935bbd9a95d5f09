/*
 * Iovecs: the program's list of buffers and a host shadow of it, whose pieces have the number,
 * lengths and alignment of the program's.
 */
#include <errno.h>
#include <linux/major.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "marshal/call.h"
#include "marshal/iov.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"

int sys_iov_read(struct thread *t, struct sys_iov *v, uint64_t addr, uint64_t n, void **kernel)
{
        size_t bytes = n * sizeof(struct iovec);

        memset(v, 0, sizeof(*v));
        *kernel = sys_bad();
        if (n > SYS_IOV_MAX)
                return -EINVAL;         /* the kernel checks the count before the array */
        v->prog = sys_scratch(bytes + 1);
        v->host = sys_scratch(bytes + sizeof(struct iovec));
        if (!v->prog || !v->host || (n && gmem_read(t, v->prog, addr, bytes)))
                return -EFAULT;
        v->n = (int)n;
        for (int i = 0; i < v->n; i++) {
                uint64_t len = v->prog[i].iov_len;

                if ((int64_t)len < 0) {
                        for (int k = 0; k < v->n; k++)
                                v->prog[k].iov_base = sys_bad();
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
        memset(v, 0, sizeof(*v));
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
 * Of each piece only the first byte is checked, and the last if it is on another page: the data may
 * be shorter than the room, and making all of it resident would cost more than it is worth.  A hole
 * in the middle is found when the bytes are stored.
 */
int sys_iov_room(struct thread *t, struct sys_iov *v)
{
        for (int i = 0; i < v->n; i++) {
                size_t len = v->prog[i].iov_len;
                uint64_t addr = P(v->prog[i].iov_base), last = addr + len - 1;

                v->host[i] = (struct iovec){ sys_bad(), len };
                if (!len || gmem_check(t, addr, 1, true))
                        continue;
                if ((addr ^ last) & ~(uint64_t)(PAGE_SIZE - 1) && gmem_check(t, last, 1, true))
                        v->host[i].iov_base = sys_scratch_edge(sys_reach(t, addr, len, true), len);
                else
                        v->host[i].iov_base = sys_scratch_like(addr, len);
                if (!v->host[i].iov_base)
                        return -ENOMEM;
        }
        return 0;
}

int sys_iov_fill(struct thread *t, struct sys_iov *v)
{
        for (int i = 0; i < v->n; i++) {
                size_t len = v->prog[i].iov_len;
                uint64_t addr = P(v->prog[i].iov_base);

                v->host[i] = (struct iovec){ sys_bad(), len };
                if (!len)
                        continue;
                v->host[i].iov_base = sys_scratch_like(addr, len);
                if (!v->host[i].iov_base)
                        return -ENOMEM;
                if (gmem_read(t, v->host[i].iov_base, addr, len))
                        v->host[i].iov_base = sys_in_edge(t, addr, len);
        }
        return 0;
}

size_t sys_iov_store(struct thread *t, const struct sys_iov *v, size_t n)
{
        size_t done = 0;

        for (int i = 0; i < v->n && done < n; i++) {
                size_t len = v->prog[i].iov_len < n - done ? v->prog[i].iov_len : n - done, put = 0;
                uint64_t addr = P(v->prog[i].iov_base);
                const char *src = v->host[i].iov_base;

                /* Counted, but the kernel wrote nothing there: it discarded the data (MSG_TRUNC of
                 * a TCP socket). */
                if (src == sys_bad()) {
                        done += len;
                        continue;
                }
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

/* Memory (/dev/zero) and terminals are streams; other character devices may take messages
 * (FUSE). */
static bool is_stream(unsigned device)
{
        return device == MEM_MAJOR || device == TTY_MAJOR || device == TTYAUX_MAJOR ||
               (device >= UNIX98_PTY_MASTER_MAJOR &&
                device < UNIX98_PTY_SLAVE_MAJOR + UNIX98_PTY_MAJOR_COUNT);
}

enum sys_file sys_file_kind(int fd)
{
        struct stat st;
        int type;
        socklen_t n = sizeof(type);

        if (sys_own(__NR_fstat, (uint64_t)fd, P(&st), 0, 0, 0, 0))
                return FILE_OTHER;
        switch (st.st_mode & S_IFMT) {
        case S_IFREG: case S_IFBLK:
                return FILE_REGULAR;
        case S_IFIFO:
                return FILE_PIPE;
        case S_IFCHR:
                return is_stream(major(st.st_rdev)) ? FILE_CHAR : FILE_OTHER;
        case S_IFSOCK:
                if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n))
                        return FILE_OTHER;
                return type == SOCK_STREAM ? FILE_STREAM : FILE_MESSAGE;
        }
        return FILE_OTHER;
}
