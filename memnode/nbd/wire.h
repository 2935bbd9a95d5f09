/*
 * The bytes of a connection: of its socket, or of TLS on it.  One thread at a time.
 */
#ifndef MEMNODE_NBD_WIRE_H
#define MEMNODE_NBD_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct gnutls_session_int;
struct nbd_wire {
        int fd;                                 /* blocking; not the wire's own */
        struct gnutls_session_int *tls;         /* NULL: none */
        bool waits;                             /* whether TLS's receive may wait: its own */
};
/* Receives at least one byte into the parts, in order: how many, 0 at the end of the stream, or
 * -errno: -EAGAIN if there are none and it may not wait. */
ssize_t nbd_wire_receive(struct nbd_wire *w, struct iovec *iov, size_t n, bool wait);
/* Sends the parts, whose entries it changes, and waits as long as the peer does not read; but not
 * beyond `until`, by now_ms().  0 or -errno. */
int nbd_wire_send(struct nbd_wire *w, struct iovec *iov, size_t n, int64_t until);
#define NBD_FOREVER INT64_MAX
/* Waits for poll() events.  0, -ETIMEDOUT after `until`, or -errno. */
int nbd_wire_await(const struct nbd_wire *w, short events, int64_t until);
/* Whether the peer takes no answers any more, as far as they were sent to it.  One that sends
 * nothing more may still wait for them. */
bool nbd_wire_is_gone(const struct nbd_wire *w);

#endif
