/*
 * Socket messages: buffers, names and control data in one header.  Descriptors in SCM_RIGHTS are
 * passed unchanged, since they are the host's.  vmrun's own descriptors are not sent, and received
 * descriptors beyond the program's limit are closed.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "marshal/iov.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "syscalls/handlers.h"

/* a longer stream transfer is short: its caller continues */
#define STREAM_MAX  (16ul << 20)
#define CONTROL_MAX (1ul << 20)
#define NAME_MAX_   128

/* The kernel's struct msghdr. */
struct kmsg {
        uint64_t name;
        int32_t namelen, pad0;
        uint64_t iov, iovlen;
        uint64_t control, controllen;
        uint32_t flags, pad1;
};
struct kmmsg { struct kmsg hdr; uint32_t len, pad; };

/* A message: the program's header, and the host's. */
struct message {
        struct kmsg prog, host;
        struct sys_iov v;
};

static size_t data_max(int fd, size_t total)
{
        if (total <= SYS_BOUNCE)
                return total;
        return sys_file_kind(fd) == FILE_STREAM ? STREAM_MAX : SYS_MESSAGE_MAX;
}

/* Replaces vmrun's descriptors in outgoing control data by invalid ones. */
static void guard_rights(char *p, size_t n)
{
        for (size_t at = 0; at + sizeof(struct cmsghdr) <= n;) {
                struct cmsghdr c;

                memcpy(&c, p + at, sizeof(c));
                if (c.cmsg_len < sizeof(c) || c.cmsg_len > n - at)
                        return;
                if (c.cmsg_level == SOL_SOCKET && c.cmsg_type == SCM_RIGHTS)
                        for (size_t i = sizeof(c); i + 4 <= c.cmsg_len; i += 4) {
                                int fd, bad = INT32_MAX;
                                memcpy(&fd, p + at + i, 4);
                                if (privfd_is(fd))
                                        memcpy(p + at + i, &bad, 4);
                        }
                at += CMSG_ALIGN(c.cmsg_len);
        }
}

/* Closes and cuts off received descriptors beyond the limit, as the kernel does at its own
 * limit. */
static void check_rights(struct kmsg *m)
{
        char *p = (char *)(uintptr_t)m->control;
        size_t n = m->controllen;

        for (size_t at = 0; at + sizeof(struct cmsghdr) <= n;) {
                struct cmsghdr c;
                size_t keep;

                memcpy(&c, p + at, sizeof(c));
                if (c.cmsg_len < sizeof(c) || c.cmsg_len > n - at)
                        return;
                keep = sizeof(c);
                if (c.cmsg_level == SOL_SOCKET && c.cmsg_type == SCM_RIGHTS) {
                        for (size_t i = sizeof(c); i + 4 <= c.cmsg_len; i += 4) {
                                int fd;
                                memcpy(&fd, p + at + i, 4);
                                if (sys_newfd(fd) < 0)
                                        m->flags |= MSG_CTRUNC;
                                else if (keep == i)
                                        keep += 4;
                        }
                        if (keep < c.cmsg_len) {
                                c.cmsg_len = keep;
                                memcpy(p + at, &c, sizeof(c));
                        }
                }
                at += CMSG_ALIGN(c.cmsg_len);
        }
}

/* Collects a header and all it points to.  0, or -errno. */
static long collect(struct thread *t, int fd, struct message *m, uint64_t addr, bool send)
{
        void *kernel;
        size_t max;
        int err;

        memset(m, 0, sizeof(*m));
        if (privfd_is(fd))
                return -EBADF;
        if (gmem_read(t, &m->prog, addr, sizeof(m->prog)))
                return -EFAULT;
        m->host = m->prog;
        if (m->prog.namelen < 0)
                return -EINVAL;
        if (m->prog.namelen > NAME_MAX_)
                m->host.namelen = NAME_MAX_;
        if (!m->prog.name)
                m->host.namelen = 0;
        if (m->host.namelen) {
                m->host.name = P(send ? sys_in(t, m->prog.name, (size_t)m->host.namelen, NAME_MAX_)
                                      : sys_scratch(NAME_MAX_));
        } else if (m->prog.name && !send) {
                m->host.name = P(sys_scratch(NAME_MAX_));
        } else {
                m->host.name = 0;
        }
        if (m->prog.iovlen > SYS_IOV_MAX)
                return -EMSGSIZE;
        err = sys_iov_read(t, &m->v, m->prog.iov, m->prog.iovlen, &kernel);
        if (err)
                return err;
        max = data_max(fd, m->v.total);
        if (m->v.total > max && send && max == SYS_MESSAGE_MAX)
                return -EMSGSIZE;
        sys_iov_clip(&m->v, max);
        err = send ? sys_iov_fill(t, &m->v) : sys_iov_room(t, &m->v);
        if (err)
                return err;
        m->host.iov = P(m->v.host);
        m->host.iovlen = (uint64_t)m->v.n;

        if (!m->prog.control && !send)
                m->host.controllen = 0;
        if (m->host.controllen > CONTROL_MAX) {
                if (send)
                        return -ENOBUFS;
                m->host.controllen = CONTROL_MAX;
        }
        m->host.control = 0;
        if (m->host.controllen) {
                m->host.control =
                        P(send ? sys_in(t, m->prog.control, m->host.controllen, CONTROL_MAX)
                               : sys_scratch(m->host.controllen));
                if (m->host.control == P(sys_bad()))
                        return -EFAULT;
                if (send)
                        guard_rights((char *)(uintptr_t)m->host.control, m->host.controllen);
        }
        if (!send)
                m->host.flags = 0;
        return 0;
}

/* Delivers the ret bytes of a receive; addr is the program's header. */
static long deliver(struct thread *t, struct message *m, uint64_t addr, long ret)
{
        /* with MSG_TRUNC ret may be more than came */
        size_t data = (size_t)ret < m->v.total ? (size_t)ret : m->v.total;
        int32_t name = m->host.namelen;

        check_rights(&m->host);
        if (sys_iov_store(t, &m->v, data) < data)
                return -EFAULT;
        if (m->prog.name) {
                int32_t room = m->prog.namelen < NAME_MAX_ ? m->prog.namelen : NAME_MAX_;
                if (name > 0 && room > 0 &&
                    gmem_write(t, m->prog.name, (void *)(uintptr_t)m->host.name,
                               (size_t)(name < room ? name : room)))
                        return -EFAULT;
                if (gmem_write(t, addr + offsetof(struct kmsg, namelen), &name, 4))
                        return -EFAULT;
        }
        if (m->host.controllen && m->host.control &&
            gmem_write(t, m->prog.control, (void *)(uintptr_t)m->host.control, m->host.controllen))
                return -EFAULT;
        if (gmem_write(t, addr + offsetof(struct kmsg, flags), &m->host.flags, 4) ||
            gmem_write(t, addr + offsetof(struct kmsg, controllen), &m->host.controllen, 8))
                return -EFAULT;
        return ret;
}

static long not_socket(uint64_t fd)
{
        int type;
        socklen_t n = sizeof(type);

        if (privfd_is((int)fd))
                return -EBADF;
        return sys_raw(__NR_getsockopt, fd, SOL_SOCKET, SO_TYPE, P(&type), P(&n), 0);
}

/* A message could not be collected; but Linux first checks whether the descriptor is a socket. */
static long which_error(uint64_t fd, long err)
{
        long ret = not_socket(fd);

        return ret ? ret : err;
}

long sys_sendmsg(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct message m;
        long ret = collect(t, (int)a[0], &m, a[1], true);

        return ret ? which_error(a[0], ret) : sys_raw(row->nr, a[0], P(&m.host), a[2], 0, 0, 0);
}

long sys_recvmsg(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct message m;
        long ret = collect(t, (int)a[0], &m, a[1], false);

        if (ret)
                return which_error(a[0], ret);
        ret = sys_raw(row->nr, a[0], P(&m.host), a[2], 0, 0, 0);
        return ret < 0 ? ret : deliver(t, &m, a[1], ret);
}

/* One message at a time, as the kernel's own loop; an error after the first only ends the loop. */
long sys_sendmmsg(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint32_t n = (uint32_t)a[2] < SYS_IOV_MAX ? (uint32_t)a[2] : SYS_IOV_MAX, i;
        long ret = not_socket(a[0]);

        (void)row;
        for (i = 0; i < n && !ret; i++) {
                uint64_t addr = a[1] + i * sizeof(struct kmmsg);
                struct message m;
                uint32_t len;

                ret = collect(t, (int)a[0], &m, addr, true);
                if (!ret)
                        ret = sys_raw(__NR_sendmsg, a[0], P(&m.host), a[3], 0, 0, 0);
                if (ret < 0)
                        break;
                len = (uint32_t)ret;
                ret = gmem_write(t, addr + offsetof(struct kmmsg, len), &len, 4);
                if (ret)
                        break;          /* it is sent, but does not count */
        }
        return i ? (long)i : ret;
}

#define RECV_BATCH 64   /* messages of one recvmmsg: a smaller number than asked for is no error */

long sys_recvmmsg(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint32_t n = (uint32_t)a[2] < RECV_BATCH ? (uint32_t)a[2] : RECV_BATCH;
        struct message *m = sys_scratch(n * sizeof(*m) + 1);
        struct kmmsg *host = sys_scratch(n * sizeof(*host) + 1);
        void *ts = sys_in_null(t, a[4], 16);
        long ret = not_socket(a[0]);

        if (ret || !m || !host)
                return ret ? ret : -ENOMEM;
        for (uint32_t i = 0; i < n; i++) {
                ret = collect(t, (int)a[0], &m[i], a[1] + i * sizeof(*host), false);
                if (ret) {
                        if (!i)
                                return ret;
                        n = i;
                        break;
                }
                memset(&host[i], 0, sizeof(host[i]));
                host[i].hdr = m[i].host;
        }
        ret = sys_raw(row->nr, a[0], P(host), n, a[3], P(ts), 0);
        for (long i = 0; i < ret; i++) {
                uint64_t addr = a[1] + (uint64_t)i * sizeof(*host);
                m[i].host = host[i].hdr;
                if (deliver(t, &m[i], addr, host[i].len) < 0 ||
                    gmem_write(t, addr + offsetof(struct kmmsg, len), &host[i].len, 4))
                        return i ? i : -EFAULT;
        }
        return ret >= 0 && ts && ts != sys_bad() ? sys_deliver(t, a[4], ts, 16, ret) : ret;
}

long sys_sendto(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct iovec store[2];
        struct sys_iov v;
        void *name = NULL;
        size_t max;
        int err;

        if (privfd_is((int)a[0]))
                return -EBADF;
        if (a[1] >= TASK_SIZE || a[2] > TASK_SIZE - a[1])
                return sys_raw(row->nr, a[0], SYS_NOWHERE, a[2] ? a[2] : 1, a[3], 0, 0);
        sys_iov_one(&v, store, a[1], a[2]);
        max = data_max((int)a[0], v.total);
        if (v.total > max && max == SYS_MESSAGE_MAX)
                return -EMSGSIZE;
        sys_iov_clip(&v, max);
        err = sys_iov_fill(t, &v);
        if (err)
                return which_error(a[0], err);
        if (a[4])
                name = sys_in(t, a[4], (int32_t)a[5] > 0 ? (uint32_t)a[5] : 0, NAME_MAX_);
        return sys_raw(row->nr, a[0], P(v.host[0].iov_base), v.host[0].iov_len, a[3], P(name),
                       a[5]);
}

long sys_recvfrom(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct iovec store[2];
        struct sys_iov v;
        char name[NAME_MAX_];
        int32_t room = 0, came;
        size_t data;
        int err, length_error = 0;
        long ret;

        if (privfd_is((int)a[0]))
                return -EBADF;
        if (a[1] >= TASK_SIZE || a[2] > TASK_SIZE - a[1])
                return sys_raw(row->nr, a[0], SYS_NOWHERE, a[2] ? a[2] : 1, a[3], 0, 0);
        /* An unreadable or negative length is only found once data came. */
        if (a[4] && gmem_read(t, &room, a[5], 4))
                length_error = -EFAULT;
        else if (room < 0)
                length_error = -EINVAL;
        if (length_error)
                room = 0;
        came = room < NAME_MAX_ ? room : NAME_MAX_;
        sys_iov_one(&v, store, a[1], a[2]);
        sys_iov_clip(&v, data_max((int)a[0], v.total));
        err = sys_iov_room(t, &v);
        if (err)
                return err;
        ret = sys_raw(row->nr, a[0], P(v.host[0].iov_base), v.host[0].iov_len, a[3],
                      a[4] ? P(name) : 0, a[4] ? P(&came) : 0);
        if (ret < 0)
                return ret;
        data = (size_t)ret < v.total ? (size_t)ret : v.total;
        if (sys_iov_store(t, &v, data) < data)
                return -EFAULT;
        if (length_error)
                return length_error;
        if (a[4]) {
                int32_t n = came < room ? came : room;
                if ((n > 0 && gmem_write(t, a[4], name, (size_t)(n < NAME_MAX_ ? n : NAME_MAX_))) ||
                    gmem_write(t, a[5], &came, 4))
                        return -EFAULT;
        }
        return ret;
}

/* Tables of iptables, arptables and ebtables, and of ip6tables: structs with pointers.  80, between
 * them, is SO_ORIGINAL_DST.  The numbers of ip6tables are between those of IPv6's own options. */
static bool is_table(int level, int opt)
{
        if (level == IPPROTO_IPV6)
                return opt == 64 || opt == 65;  /* IP6T_SO_SET_REPLACE, _ADD_COUNTERS */
        return level == SOL_IP && ((opt >= 64 && opt < 80) || (opt >= 96 && opt < 112) ||
                                   (opt >= 128 && opt < 144));
}

/* Options with a pointer in them, or that make the kernel keep or map the program's pages. */
long sys_setsockopt(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int level = (int)a[1], opt = (int)a[2];

        if (level == SOL_SOCKET &&
            (opt == SO_ATTACH_FILTER || opt == 51 /* SO_ATTACH_REUSEPORT_CBPF */)) {
                struct { uint16_t len, pad[3]; uint64_t filter; } *prog;

                if (privfd_is((int)a[0]))
                        return -EBADF;
                if ((uint32_t)a[4] != sizeof(*prog))
                        return -EINVAL;
                prog = sys_in(t, a[3], sizeof(*prog), sizeof(*prog));
                if ((void *)prog == sys_bad())
                        return -EFAULT;
                prog->filter = P(sys_in(t, prog->filter, (size_t)prog->len * 8, SYS_ARG_MAX));
                return sys_raw(row->nr, a[0], a[1], a[2], P(prog), sizeof(*prog), 0);
        }
        if ((level == SOL_SOCKET && opt == SO_ZEROCOPY) || level == 283 /* SOL_XDP */ ||
            level == 276 /* SOL_RDS */ || is_table(level, opt)) {
                info_once(0x70000000 + (unsigned)level * 256 + (unsigned)opt,
                          "socket option %d of level %d is refused: ENOPROTOOPT", opt, level);
                return -ENOPROTOOPT;
        }
        return sys_generic(t, row, a);
}

long sys_getsockopt(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int level = (int)a[1], opt = (int)a[2];

        if ((level == SOL_SOCKET && opt == SO_GET_FILTER) ||
            (level == IPPROTO_TCP && opt == 35 /* ZEROCOPY_RECEIVE */) ||
            (level == SOL_IP && is_table(level, opt))) {
                info_once(0x80000000 + (unsigned)level * 256 + (unsigned)opt,
                          "socket option %d of level %d is refused: ENOPROTOOPT", opt, level);
                return -ENOPROTOOPT;
        }
        return sys_generic(t, row, a);
}
