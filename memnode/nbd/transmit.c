/*
 * The commands of one NBD connection, served in order by its one thread.
 *
 * What makes it fast: requests are read many at a time, and their replies leave together in one
 * sendmsg(), headers from here and data straight from the export's memory.  The data of a WRITE
 * that is not yet in the buffer is received straight into that memory.
 *
 * Before this thread sleeps it polls for a moment, for a client that sends its next request at
 * once: waking the thread costs more than serving the request.
 *
 * [I] Queued replies are sent before this thread waits for anything, so it never waits for a client
 * that itself waits for a reply.  A client that does not read its replies stops its own thread in
 * sendmsg(), which holds no lock and only this connection's memory.
 *
 * Requests of several connections, and a READ whose reply is queued here, may overlap a WRITE: the
 * protocol leaves open what such a READ returns.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include "account.h"
#include "memnode.h"
#include "nbd/export.h"
#include "nbd/proto.h"
#include "nbd/transmit.h"
#include "nodeproto.h"

#define PAGE            4096ul
/* zeroed ranges at least this long go back to the host where possible */
#define RETURNED        (1u << 20)
/* Zeroed between two looks whether memnode is to end, or the client has gone. */
#define ZERO_STEP       (4u << 20)
#define BATCH           64                      /* replies that leave together at most */
/* more than this is sent at once: the client has enough to do */
#define BATCH_BYTES     (256u << 10)
/* after a WRITE this large only the next header is read ahead: the data behind it */
#define DIRECT          (32u << 10)
                                                /* is then received in place, not copied from the
                                                 * buffer */
/* the longest poll for a request before this thread sleeps */
#define LOOK_NS         100000ul

struct reply_head {
        union {
                struct nbd_simple_reply simple;
                struct nbd_chunk_header chunk;
        };
        uint8_t rest[8];                        /* offset of data; error and length of its text */
};

struct conn {
        const struct nbd_link *l;
        size_t from, to;                        /* in[from, to) is received and not yet served */
        size_t ahead;                           /* bytes to read ahead next time */
        struct iovec iov[2 * BATCH];            /* queued replies */
        struct reply_head head[BATCH];
        unsigned niov, nheads;
        size_t queued;                          /* bytes in iov */
        /* how long a receive took: average of about the last eight */
        uint64_t wait_ns;
        uint64_t reads, writes, read_bytes, written_bytes;      /* since the last account_count() */
        uint8_t in[NBD_RECEIVE];
};

/* ---- Sending ---- */

static int flush(struct conn *c)
{
        int err = c->queued ? nbd_wire_send(c->l->wire, c->iov, c->niov, NBD_FOREVER) : 0;

        if (err)
                return err;
        c->queued = 0;
        c->niov = c->nheads = 0;
        if (c->reads | c->writes) {
                account_count(c->l->e->account, c->reads, c->writes, c->read_bytes,
                              c->written_bytes);
                c->reads = c->writes = c->read_bytes = c->written_bytes = 0;
        }
        return 0;
}

static void add(struct conn *c, const void *at, size_t len)
{
        c->iov[c->niov++] = (struct iovec){ (void *)at, len };
        c->queued += len;
}

/* Room for one more reply: a head and a part behind it. */
static int room(struct conn *c)
{
        return c->nheads == BATCH || c->queued >= BATCH_BYTES ? flush(c) : 0;
}

static int simple(struct conn *c, uint64_t cookie, uint32_t error)
{
        int err = room(c);
        if (err)
                return err;
        struct reply_head *h = &c->head[c->nheads++];
        h->simple = (struct nbd_simple_reply){ htobe32(NBD_SIMPLE_MAGIC), htobe32(error),
                                               htobe64(cookie) };
        add(c, h, sizeof(h->simple));
        return 0;
}

/* A structured reply of one chunk: `fixed` bytes of h->rest, then `len` at `at`. */
static int chunk(struct conn *c, uint64_t cookie, uint16_t type, const uint8_t *rest, size_t fixed,
                 const void *at, size_t len)
{
        int err = room(c);
        if (err)
                return err;
        struct reply_head *h = &c->head[c->nheads++];
        h->chunk = (struct nbd_chunk_header){
                htobe32(NBD_CHUNK_MAGIC), htobe16(NBD_CHUNK_DONE),          htobe16(type),
                htobe64(cookie),          htobe32((uint32_t)(fixed + len)),
        };
        uint8_t *p = (uint8_t *)h + sizeof(h->chunk);
        memcpy(p, rest, fixed);
        add(c, h, sizeof(h->chunk) + fixed);
        if (len)
                add(c, at, len);
        return 0;
}
_Static_assert(offsetof(struct reply_head, rest) >= sizeof(struct nbd_chunk_header),
               "what follows a chunk header has room");

static int fail(struct conn *c, const struct nbd_request *r, uint32_t error, const char *text)
{
        uint8_t rest[6];

        if (!c->l->structured)
                return simple(c, r->cookie, error);
        nbd_put32(rest, error);
        nbd_put16(rest + 4, (uint16_t)strlen(text));
        return chunk(c, r->cookie, NBD_CHUNK_ERROR, rest, sizeof(rest), text, strlen(text));
}

/* ---- Receiving ---- */

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * One receive into up to two places: the number of bytes, or -errno; 0 at the end of the stream.
 * Before it sleeps it polls for twice the time that receives took lately, and yields the CPU to
 * other threads meanwhile.  If the client is slow, so that the average is too long, it does not
 * poll.
 */
static ssize_t receive(struct conn *c, struct iovec *iov, size_t n)
{
        uint64_t from = now_ns(), took = 0, look = 2 * c->wait_ns <= LOOK_NS ? 2 * c->wait_ns : 0;
        ssize_t got = nbd_wire_receive(c->l->wire, iov, n, false);

        while (got == -EAGAIN && (took = now_ns() - from) < look) {
                sched_yield();
                got = nbd_wire_receive(c->l->wire, iov, n, false);
        }
        if (got == -EAGAIN) {
                got = nbd_wire_receive(c->l->wire, iov, n, true);
                took = now_ns() - from;
        }
        if (took > 4 * LOOK_NS)                 /* one pause counts no more than this */
                took = 4 * LOOK_NS;
        c->wait_ns += took / 8 - c->wait_ns / 8;
        return got;
}

/* -ECONNABORTED: what was received must not be served any more. */
static int check_cut(const struct conn *c)
{
        /* Relaxed: the thread that cuts, or ends all, waits until this one has left. */
        return atomic_load_explicit(c->l->cut, memory_order_relaxed) ||
                               (c->l->kept &&
                                atomic_load_explicit(c->l->stopping, memory_order_relaxed))
                       ? -ECONNABORTED
                       : 0;
}

/* Receives at least one more byte into the buffer.  -EPIPE: the client has ended the stream. */
static int refill(struct conn *c)
{
        memmove(c->in, c->in + c->from, c->to - c->from);
        c->to -= c->from;
        c->from = 0;
        size_t want = sizeof(c->in) - c->to;
        struct iovec iov = { c->in + c->to, want < c->ahead ? want : c->ahead };
        ssize_t n = receive(c, &iov, 1);
        if (n <= 0)
                return n ? (int)n : -EPIPE;
        c->to += (size_t)n;
        return 0;
}

/* The data of a WRITE: len bytes to `at`, or to nowhere if at is NULL. */
static int payload(struct conn *c, char *at, size_t len)
{
        size_t n = c->to - c->from < len ? c->to - c->from : len;

        if (at && n) {
                memcpy(at, c->in + c->from, n);
                at += n;
        }
        c->from += n;
        len -= n;
        c->ahead = len >= DIRECT ? sizeof(struct nbd_request) : sizeof(c->in);
        if (!len)
                return 0;
        int err = flush(c);
        if (err)
                return err;
        c->from = c->to = 0;                    /* all of it was taken */
        while (len) {
                /* The next requests, if already there, are received with the last part. */
                struct iovec iov[2] = { { at, len }, { c->in, c->ahead } };
                if (!at)
                        iov[0] = (struct iovec){ c->in, len < sizeof(c->in) ? len : sizeof(c->in) };
                ssize_t got = receive(c, iov, at ? 2 : 1);
                if (got <= 0)
                        return got ? (int)got : -EPIPE;
                size_t part = (size_t)got < len ? (size_t)got : len;
                len -= part;
                c->to = (size_t)got - part;
                if (at)
                        at += part;
                err = check_cut(c);             /* no slice more than the one under way */
                if (err)
                        return err;
        }
        return 0;
}

/* ---- The status behind a lease (nodeproto.h) ---- */

/* By whether the lease is kept, and enum node_status.  Replies that are queued point here. */
static const uint8_t statuses[2][2][NODE_STATUS_BYTES] = {
        { { NODE_SERVES, 0 }, { NODE_DRAINS, 0 } },
        { { NODE_SERVES, NODE_KEEPS }, { NODE_DRAINS, NODE_KEEPS } },
};

static bool is_status(const struct conn *c, const struct nbd_request *r)
{
        return r->offset == c->l->e->size && r->length && r->length <= NODE_STATUS_BYTES &&
               nbd_export_has_status(c->l->e);
}

static void note_used(struct conn *c)
{
        if (!atomic_load_explicit(&c->l->e->used, memory_order_relaxed))
                atomic_store_explicit(&c->l->e->used, true, memory_order_relaxed);
}

static const char *status(struct conn *c)
{
        note_used(c);
        bool drains = atomic_load_explicit(c->l->draining, memory_order_relaxed);
        return (const char *)statuses[c->l->kept][drains];
}

/* ---- Commands ---- */

static bool inside(const struct conn *c, const struct nbd_request *r)
{
        return r->offset <= c->l->e->size && r->length <= c->l->e->size - r->offset;
}

static int do_read(struct conn *c, const struct nbd_request *r)
{
        uint8_t offset[8];

        if (r->length > NBD_PAYLOAD_MAX)
                return fail(c, r, NBD_EINVAL, "a READ of more than 32 MiB");
        if (!inside(c, r) && !is_status(c, r))
                return fail(c, r, NBD_EINVAL, "a READ beyond the end of the export");
        /* not before it is known to be inside */
        const char *at = inside(c, r) ? c->l->e->base + r->offset : status(c);
        c->reads++;
        c->read_bytes += r->length;
        if (c->l->structured) {
                nbd_put64(offset, r->offset);
                return r->length ? chunk(c, r->cookie, NBD_CHUNK_DATA, offset, sizeof(offset), at,
                                         r->length)
                                 : chunk(c, r->cookie, NBD_CHUNK_NONE, offset, 0, NULL, 0);
        }
        int err = simple(c, r->cookie, 0);
        if (!err && r->length)
                add(c, at, r->length);
        return err;
}

static int do_write(struct conn *c, const struct nbd_request *r, bool known_flags, bool ending)
{
        bool stays = is_status(c, r);
        uint32_t error = ending ? NBD_ESHUTDOWN :
                         !known_flags || r->length > NBD_PAYLOAD_MAX ? NBD_EINVAL :
                         !inside(c, r) && !stays ? NBD_ENOSPC : 0;
        if (!error && !stays)
                note_used(c);
        /* The client sends the data even if the request is refused. */
        int err = payload(c, error || stays ? NULL : c->l->e->base + r->offset, r->length);
        if (err)
                return err;
        if (!error && stays) {
                atomic_store_explicit(c->l->stays, true, memory_order_relaxed);
                return simple(c, r->cookie, 0);
        }
        if (error)
                return fail(c, r, error,
                            error == NBD_ESHUTDOWN ? "memnode is about to end"
                            : error == NBD_ENOSPC  ? "a WRITE beyond the end of the export"
                            : known_flags          ? "a WRITE of more than 32 MiB"
                                                   : "a flag that WRITE has not");
        c->writes++;
        c->written_bytes += r->length;
        return simple(c, r->cookie, 0);
}

/*
 * Zeroes a range.  If the pool has small pages, long ranges are given back to the host, unless
 * `keep`; huge pages would lose their reservation.  MADV_REMOVE acts on the mapping's file, so all
 * readers see it at once.
 */
static void zero(char *at, size_t len, bool keep)
{
        char *first = (char *)(((uintptr_t)at + PAGE - 1) & ~(uintptr_t)(PAGE - 1)),
             *last = (char *)((uintptr_t)(at + len) & ~(uintptr_t)(PAGE - 1));

        if (keep || opt.hugepage != PAGE || len < RETURNED ||
            madvise(first, (size_t)(last - first), MADV_REMOVE) != 0) {
                memset(at, 0, len);
                return;
        }
        memset(at, 0, (size_t)(first - at));
        memset(last, 0, (size_t)(at + len - last));
}

static bool stopping(const struct conn *c)
{
        /* Relaxed: the flag publishes no other data.  A client whose lease is kept must not hear
         * that it is over: its connection breaks (check_cut). */
        return !c->l->kept && atomic_load_explicit(c->l->stopping, memory_order_relaxed);
}

/* TRIM may leave the bytes as they are.  Zeroes are what other memory servers return, and no
 * discarded data stays. */
static int do_zero(struct conn *c, const struct nbd_request *r)
{
        if (!inside(c, r))
                return fail(c, r, r->type == NBD_CMD_TRIM ? NBD_EINVAL : NBD_ENOSPC,
                            "beyond the end of the export");
        char *at = c->l->e->base + r->offset, *end = at + r->length;
        note_used(c);
        while (at < end) {
                int err = check_cut(c);
                if (err)
                        return err;
                if (nbd_wire_is_gone(c->l->wire))       /* it would be work for nobody */
                        return -EPIPE;
                if (stopping(c))
                        return fail(c, r, NBD_ESHUTDOWN, "memnode is about to end");
                size_t len = ZERO_STEP - (uintptr_t)at % ZERO_STEP;     /* to a border of pages */
                len = len < (size_t)(end - at) ? len : (size_t)(end - at);
                zero(at, len, r->flags & NBD_CMD_NO_HOLE);
                at += len;
        }
        c->writes++;
        c->written_bytes += r->length;
        int err = simple(c, r->cookie, 0);
        /* After long work the answer goes at once: by it we learn whether the client is there. */
        return err || r->length < ZERO_STEP ? err : flush(c);
}

/*
 * The flags that a command may have.  FUA asks for no more than a reply already promises, because
 * memory has no cache; it is accepted on each command on which clients are known to set it.
 * NO_HOLE: memory stays with the export.  FAST_ZERO: always faster than sending zeroes.
 */
static uint16_t flags_of(uint16_t type)
{
        switch (type) {
        case NBD_CMD_READ: return NBD_CMD_FUA | NBD_CMD_DF;
        case NBD_CMD_WRITE_ZEROES: return NBD_CMD_FUA | NBD_CMD_NO_HOLE | NBD_CMD_FAST_ZERO;
        default: return NBD_CMD_FUA;
        }
}

/* Serves the request at in[from].  1: the client ends properly (DISC). */
static int serve(struct conn *c)
{
        struct nbd_request r;

        memcpy(&r, c->in + c->from, sizeof(r));
        c->from += sizeof(r);
        r = (struct nbd_request){
                be32toh(r.magic),  be16toh(r.flags),  be16toh(r.type),
                be64toh(r.cookie), be64toh(r.offset), be32toh(r.length),
        };
        if (r.magic != NBD_REQUEST_MAGIC)
                return -EPROTO;
        c->ahead = sizeof(c->in);                /* a long WRITE decides otherwise */

        bool known_flags = (r.flags & ~flags_of(r.type)) == 0;
        bool ending = stopping(c);
        if (r.type == NBD_CMD_DISC)
                return 1;
        if (r.type == NBD_CMD_WRITE)
                return do_write(c, &r, known_flags, ending);
        if (ending)
                return fail(c, &r, NBD_ESHUTDOWN, "memnode is about to end");
        if (!known_flags)
                return fail(c, &r, NBD_EINVAL, "a flag that this command has not");
        switch (r.type) {
        case NBD_CMD_READ: return do_read(c, &r);
        case NBD_CMD_TRIM:
        case NBD_CMD_WRITE_ZEROES: return do_zero(c, &r);
        case NBD_CMD_CACHE:
                if (!inside(c, &r))
                        return fail(c, &r, NBD_EINVAL, "a CACHE beyond the end of the export");
                return simple(c, r.cookie, 0);
        case NBD_CMD_FLUSH: return simple(c, r.cookie, 0);
        default: return fail(c, &r, NBD_EINVAL, "a command that memnode does not know");
        }
}

int nbd_transmit(const struct nbd_link *l, const uint8_t *ahead, size_t len)
{
        int err = 0;
        struct conn *c = malloc(sizeof(*c));

        if (!c)
                return -ENOMEM;
        memset(c, 0, offsetof(struct conn, in));
        c->l = l;
        c->ahead = sizeof(c->in);
        memcpy(c->in, ahead, len);
        c->to = len;
        while (!err) {
                while (!(err = check_cut(c)) && c->to - c->from >= sizeof(struct nbd_request) &&
                       !(err = serve(c)))
                        ;
                if (!err)
                        err = flush(c);
                if (!err)
                        err = refill(c);
        }
        /* Whatever ended the connection, served requests are answered.  If sending is what failed,
         * this fails again. */
        if (err == 1 || err == -EPROTO || err == -EPIPE) {
                int last = flush(c);
                err = err == 1 ? 0 : last ? last : err;
        }
        free(c);
        return err;
}
