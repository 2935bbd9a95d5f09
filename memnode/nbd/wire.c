/*
 * A plain socket is used with its own scatter and gather.  TLS has records of 16 KiB at most: parts
 * that are smaller are put together first, so that a reply's head and its page are one record.
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "common/clock.h"
#include "nbd/wire.h"

#define RECORD (16u << 10)              /* what TLS carries at once */

int nbd_wire_await(const struct nbd_wire *w, short events, int64_t until)
{
        struct pollfd p = { w->fd, events, 0 };

        for (;;) {
                int64_t ms = until == NBD_FOREVER ? -1 : until - now_ms();
                int n = ms >= 0 || until == NBD_FOREVER ? poll(&p, 1, (int)ms) : 0;
                if (n > 0)
                        return 0;
                if (n == 0)
                        return -ETIMEDOUT;
                if (errno != EINTR)
                        return -errno;
        }
}

bool nbd_wire_is_gone(const struct nbd_wire *w)
{
        struct pollfd p = { w->fd, 0, 0 };

        return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR);
}

/* ---- Receiving ---- */

static ssize_t receive_tls(struct nbd_wire *w, const struct iovec *iov, bool wait)
{
        ssize_t n;

        w->waits = wait;
        do
                n = gnutls_record_recv(w->tls, iov->iov_base, iov->iov_len);
        while (n == GNUTLS_E_INTERRUPTED);
        if (n >= 0)
                return n;
        switch (n) {
        case GNUTLS_E_AGAIN: return -EAGAIN;
        case GNUTLS_E_PREMATURE_TERMINATION: return 0;
        case GNUTLS_E_PULL_ERROR: return -ECONNRESET;
        default: return -EPROTO;
        }
}

ssize_t nbd_wire_receive(struct nbd_wire *w, struct iovec *iov, size_t n, bool wait)
{
        struct msghdr m = { .msg_iov = iov, .msg_iovlen = n };
        ssize_t got;

        if (w->tls)
                return receive_tls(w, iov, wait);
        do
                got = recvmsg(w->fd, &m, wait ? 0 : MSG_DONTWAIT);
        while (got < 0 && errno == EINTR);
        return got < 0 ? -errno : got;
}

/* ---- Sending ---- */

static int send_plain(const struct nbd_wire *w, struct iovec *iov, size_t n, int64_t until)
{
        struct msghdr m = { .msg_iov = iov, .msg_iovlen = n };
        const int flags = MSG_NOSIGNAL | (until == NBD_FOREVER ? 0 : MSG_DONTWAIT);

        while (m.msg_iovlen) {
                ssize_t sent = sendmsg(w->fd, &m, flags);
                int err = sent >= 0         ? 0
                          : errno == EAGAIN ? nbd_wire_await(w, POLLOUT, until)
                          : errno == EINTR  ? 0
                                            : -errno;
                if (err)
                        return err;
                size_t left = sent > 0 ? (size_t)sent : 0;
                while (m.msg_iovlen && left >= m.msg_iov->iov_len) {
                        left -= m.msg_iov->iov_len;
                        m.msg_iov++;
                        m.msg_iovlen--;
                }
                if (left) {
                        m.msg_iov->iov_base = (char *)m.msg_iov->iov_base + left;
                        m.msg_iov->iov_len -= left;
                }
        }
        return 0;
}

/* What the library sends at once: one record, or less where the peer wants smaller ones.  It keeps
 * what the socket does not take: then it is asked to go on.  Bytes, or -errno. */
static ssize_t send_some(const struct nbd_wire *w, const void *data, size_t len, int64_t until)
{
        ssize_t n = gnutls_record_send(w->tls, data, len);

        while (n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED) {
                int err = n == GNUTLS_E_AGAIN ? nbd_wire_await(w, POLLOUT, until) : 0;
                if (err)
                        return err;
                n = gnutls_record_send(w->tls, NULL, 0);
        }
        return n > 0 ? n : n == GNUTLS_E_PUSH_ERROR ? -EPIPE : -EPROTO;
}

static int send_record(const struct nbd_wire *w, const char *data, size_t len, int64_t until)
{
        while (len) {
                ssize_t n = send_some(w, data, len, until);
                if (n < 0)
                        return (int)n;
                data += n;
                len -= (size_t)n;
        }
        return 0;
}

static int send_tls(const struct nbd_wire *w, const struct iovec *iov, size_t n, int64_t until)
{
        char record[RECORD];
        size_t have = 0;
        int err = 0;

        for (size_t i = 0; i < n && !err; i++) {
                const char *at = iov[i].iov_base;
                size_t left = iov[i].iov_len;
                while (left && !err) {
                        size_t part = left < RECORD - have ? left : RECORD - have;
                        if (part == RECORD) {
                                err = send_record(w, at, RECORD, until);
                        } else {
                                memcpy(record + have, at, part);
                                have += part;
                        }
                        if (have == RECORD) {
                                err = send_record(w, record, RECORD, until);
                                have = 0;
                        }
                        at += part;
                        left -= part;
                }
        }
        return err || !have ? err : send_record(w, record, have, until);
}

int nbd_wire_send(struct nbd_wire *w, struct iovec *iov, size_t n, int64_t until)
{
        return w->tls ? send_tls(w, iov, n, until) : send_plain(w, iov, n, until);
}
