/*
 * Fuzzes the commands of an NBD connection (memnode/nbd/transmit.c) with libFuzzer, against a model
 * of them.  Built and run by ./run.
 *
 * Threat model.  A client that is attached to an export controls every byte it sends, how they are
 * cut up, and when it reads its replies. Behind and beside its export lies the memory of other
 * clients.  What must hold:
 *   - no byte outside the export is read or written (it has exactly its size here, between the
 *     address sanitizer's red zones); the status of memnode that a lease has behind its last byte
 *     is no memory of any client's;
 *   - every request is answered once, in order, with the cookie it came with and the error that the
 *     protocol has for it; memnode sends the data of the requests, in the form that was agreed on,
 *     and nothing else;
 *   - the export holds what the requests say, and a READ returns bytes that were at its place at
 *     some time;
 *   - only wrong magic, a goodbye and the end of the stream end it, after everything before has
 *     been answered.
 * Out of scope: several connections beside each other, cut ones included (test/nbd/cases.py), and
 * memory given back to the host (`zeroes` there).
 *
 * The first three bytes of an input choose the form of replies, how receives and sends are cut, and
 * whether memnode is about to end; the rest is a script: a byte 0 to 127 and what follows makes a
 * request that mostly makes sense, any other is followed by raw bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include "memnode/account.h"
#include "memnode/memnode.h"
#include "memnode/nbd/export.h"
#include "memnode/nbd/proto.h"
#include "memnode/nbd/transmit.h"
#include "nodeproto.h"

#define FAIL(what) do { fprintf(stderr, "fuzz: %s\n", what); abort(); } while (0)
#define SIZE   12288u                   /* of the export */
#define STREAM (256u << 10)             /* the most that a script makes */

struct memnode_options opt = { .hugepage = 4096 };

/* --- the wire --- */

static uint8_t in[STREAM];
static size_t nin, in_at;
static uint8_t *out;
static size_t nout, room;
static unsigned seed, cuts, accounted;
static size_t fail_after;               /* bytes after which sending fails */

static size_t part(size_t n)
{
        if (!cuts || n <= 1)
                return n;
        seed = seed * 1103515245u + 12345u;
        size_t most = cuts == 1 ? 1 : (seed >> 16) % 3000 + 1;
        return n < most ? n : most;
}

ssize_t fuzz_recvmsg(int fd, struct msghdr *m, int flags)
{
        static unsigned looks;
        size_t got = 0, wanted = 0;

        (void)fd;
        if (flags & MSG_DONTWAIT && ++looks % 3 == 0) {
                errno = EAGAIN;
                return -1;
        }
        for (size_t i = 0; i < m->msg_iovlen; i++)
                wanted += m->msg_iov[i].iov_len;
        if (wanted == 0)
                FAIL("it waits for nothing");
        size_t left = part(wanted < nin - in_at ? wanted : nin - in_at);
        for (size_t i = 0; i < m->msg_iovlen && left; i++) {
                size_t n = m->msg_iov[i].iov_len < left ? m->msg_iov[i].iov_len : left;
                memcpy(m->msg_iov[i].iov_base, in + in_at, n);
                in_at += n;
                got += n;
                left -= n;
        }
        return (ssize_t)got;
}

ssize_t fuzz_sendmsg(int fd, const struct msghdr *m, int flags)
{
        size_t total = 0, sent = 0;

        (void)fd, (void)flags;
        if (nout >= fail_after) {
                errno = EPIPE;
                return -1;
        }
        for (size_t i = 0; i < m->msg_iovlen; i++)
                total += m->msg_iov[i].iov_len;
        if (total == 0)
                FAIL("it sends nothing");
        size_t left = part(total);
        if (nout + left > room) {
                room = 2 * (nout + left);
                out = realloc(out, room);
                if (!out)
                        FAIL("no memory");
        }
        for (size_t i = 0; i < m->msg_iovlen && left; i++) {
                size_t n = m->msg_iov[i].iov_len < left ? m->msg_iov[i].iov_len : left;
                memcpy(out + nout, m->msg_iov[i].iov_base, n);
                nout += n;
                sent += n;
                left -= n;
        }
        return (ssize_t)sent;
}

void account_count(struct account *a, uint64_t reads, uint64_t writes, uint64_t read_bytes,
                   uint64_t written_bytes)
{
        (void)a, (void)read_bytes, (void)written_bytes;
        accounted += (unsigned)(reads + writes);
}

/* --- the model: written from the protocol, not from the code --- */

static uint8_t image[SIZE];             /* what the export must hold */
static uint32_t seen[SIZE][8];          /* bit v: the byte had value v at some time */
static uint64_t loose_from, loose_to;   /* a WRITE that broke off: its bytes may be there or not */
static unsigned counted;

static void put(uint64_t at, uint8_t v)
{
        image[at] = v;
        seen[at][v >> 5] |= 1u << (v & 31);
}

static bool has_status, draining;
bool nbd_export_has_status(const struct nbd_export *e) { (void)e; return has_status; }

static bool is_status(uint64_t offset, uint32_t length)
{
        return has_status && offset == SIZE && length && length <= NODE_STATUS_BYTES;
}

/* The error of a request; 0: none. */
static uint32_t wanted_error(uint16_t flags, uint16_t type, uint64_t offset, uint32_t length,
                             bool stopping)
{
        static const uint16_t known[] = { [NBD_CMD_READ] = NBD_CMD_FUA | NBD_CMD_DF,
                                          [NBD_CMD_WRITE] = NBD_CMD_FUA,
                                          [NBD_CMD_FLUSH] = NBD_CMD_FUA,
                                          [NBD_CMD_TRIM] = NBD_CMD_FUA,
                                          [NBD_CMD_CACHE] = NBD_CMD_FUA,
                                          [NBD_CMD_WRITE_ZEROES] = NBD_CMD_FUA | NBD_CMD_NO_HOLE |
                                                                   NBD_CMD_FAST_ZERO };
        bool outside = offset > SIZE || length > SIZE - offset;

        if (stopping)
                return NBD_ESHUTDOWN;
        if (type > NBD_CMD_WRITE_ZEROES || (flags & ~known[type]))
                return NBD_EINVAL;
        if ((type == NBD_CMD_READ || type == NBD_CMD_WRITE) && length > NBD_PAYLOAD_MAX)
                return NBD_EINVAL;
        if (type == NBD_CMD_FLUSH || !outside)
                return 0;
        if ((type == NBD_CMD_READ || type == NBD_CMD_WRITE) && is_status(offset, length))
                return 0;
        return type == NBD_CMD_WRITE || type == NBD_CMD_WRITE_ZEROES ? NBD_ENOSPC : NBD_EINVAL;
}

/* Takes n bytes of what was sent. */
static const uint8_t *take(size_t *at, size_t n)
{
        if (nout - *at < n)
                FAIL("a reply is missing or short");
        *at += n;
        return out + *at - n;
}

static void check_data(const uint8_t *data, uint64_t offset, uint32_t length)
{
        for (uint32_t i = 0; i < length && is_status(offset, length); i++)
                if (data[i] != (i || !draining ? 0 : NODE_DRAINS))
                        FAIL("a status that is none");
        for (uint32_t i = 0; i < length && !is_status(offset, length); i++)
                if (!(seen[offset + i][data[i] >> 5] & 1u << (data[i] & 31)))
                        FAIL("a READ returned a byte that never was there");
}

static void check_simple(size_t *at, uint64_t cookie, uint32_t error, const uint64_t *offset,
                         uint32_t length)
{
        const uint8_t *h = take(at, 16);
        if (nbd_get32(h) != NBD_SIMPLE_MAGIC || nbd_get64(h + 8) != cookie ||
            nbd_get32(h + 4) != error)
                FAIL("not the reply to this request");
        if (offset && !error)
                check_data(take(at, length), *offset, length);
}

/* The chunk by which a structured connection answers READs, and refuses. */
static void check_chunk(size_t *at, uint64_t cookie, uint32_t error, uint64_t offset,
                        uint32_t length)
{
        const uint8_t *h = take(at, 20);
        uint32_t len = nbd_get32(h + 16);

        if (nbd_get32(h) != NBD_CHUNK_MAGIC || nbd_get16(h + 4) != NBD_CHUNK_DONE ||
            nbd_get64(h + 8) != cookie)
                FAIL("not the chunk of this request");
        const uint8_t *p = take(at, len);
        if (error) {
                if (nbd_get16(h + 6) != NBD_CHUNK_ERROR || len < 7 || nbd_get32(p) != error ||
                    nbd_get16(p + 4) != len - 6)
                        FAIL("not the error chunk of this request");
        } else if (length == 0) {
                if (nbd_get16(h + 6) != NBD_CHUNK_NONE || len != 0)
                        FAIL("a READ of nothing with something");
        } else {
                if (nbd_get16(h + 6) != NBD_CHUNK_DATA || len != 8 + length ||
                    nbd_get64(p) != offset)
                        FAIL("not the data of this request");
                check_data(p + 8, offset, length);
        }
}

/*
 * Goes through the received bytes, and returns the result that nbd_transmit() must have.  Once to
 * see the contents of the export at any time, and again for the replies (answered is not NULL): the
 * reply to a READ may leave after a later WRITE, with the bytes of that.
 */
static int replay(size_t *answered, bool structured, bool stopping)
{
        size_t at = 0;

        counted = 0;

        for (;;) {
                if (nin - at < sizeof(struct nbd_request))
                        return -EPIPE;
                const uint8_t *r = in + at;
                uint16_t flags = nbd_get16(r + 4), type = nbd_get16(r + 6);
                uint64_t cookie = nbd_get64(r + 8), offset = nbd_get64(r + 16);
                uint32_t length = nbd_get32(r + 24);
                at += sizeof(struct nbd_request);
                if (nbd_get32(r) != NBD_REQUEST_MAGIC)
                        return -EPROTO;
                if (type == NBD_CMD_DISC)
                        return 0;
                uint32_t error = wanted_error(flags, type, offset, length, stopping);
                bool word = type == NBD_CMD_WRITE && !error && is_status(offset, length);
                if (type == NBD_CMD_WRITE) {
                        size_t have = nin - at < length ? nin - at : length;
                        for (size_t i = 0; !error && !word && i < have; i++)
                                put(offset + i, in[at + i]);
                        if (have < length && !error && !word)
                                loose_from = offset, loose_to = offset + have;
                        at += have;
                        if (have < length)
                                return -EPIPE;
                }
                if (!error && (type == NBD_CMD_TRIM || type == NBD_CMD_WRITE_ZEROES))
                        for (uint32_t i = 0; i < length; i++)
                                put(offset + i, 0);
                counted += !error && !word && (type == NBD_CMD_READ || type == NBD_CMD_WRITE ||
                                      type == NBD_CMD_TRIM || type == NBD_CMD_WRITE_ZEROES);
                if (!answered)
                        continue;
                if (structured && (error || type == NBD_CMD_READ))
                        check_chunk(answered, cookie, error, offset, length);
                else
                        check_simple(answered, cookie, error, type == NBD_CMD_READ ? &offset : NULL,
                                     length);
        }
}

/* --- scripts --- */

struct reader { const uint8_t *p; size_t left; };
static unsigned byte(struct reader *r) { return r->left ? r->left--, *r->p++ : 0; }

static void add(const void *p, size_t n)
{
        if (n > STREAM - nin)
                n = STREAM - nin;
        memcpy(in + nin, p, n);
        nin += n;
}

static const uint32_t lengths[] = { 0,
                                    1,
                                    511,
                                    4095,
                                    4096,
                                    4097,
                                    8192,
                                    SIZE,
                                    SIZE + 1,
                                    NBD_PAYLOAD_MAX,
                                    NBD_PAYLOAD_MAX + 1,
                                    UINT32_MAX };
static const uint64_t offsets[] = { 0,    1,        4096,       8191,       SIZE - 1,
                                    SIZE, SIZE + 1, 1ull << 32, 1ull << 63, UINT64_MAX };

static void request(struct reader *r, unsigned what)
{
        uint8_t h[sizeof(struct nbd_request)], data[SIZE + 8];
        uint16_t type = what & 7, flags = what & 0x40 ? (uint16_t)byte(r) : 0;
        unsigned o = byte(r), l = byte(r);
        uint64_t offset = o < 10 ? offsets[o] : o * 48u;
        uint32_t length = l < 12 ? lengths[l] : l * 7u;

        nbd_put32(h, what & 0x38 || type != 7 ? NBD_REQUEST_MAGIC : 0x25609514);
        nbd_put16(h + 4, flags);
        nbd_put16(h + 6, type);
        nbd_put64(h + 8, 0x1122334455660000ull + nin);
        nbd_put64(h + 16, offset);
        nbd_put32(h + 24, length);
        add(h, sizeof(h));
        if (type != NBD_CMD_WRITE)
                return;
        memset(data, (int)byte(r), sizeof(data));
        for (size_t n = what & 0x20 ? length / 2 : length, one; n && nin < STREAM; n -= one) {
                one = n < sizeof(data) ? n : sizeof(data);
                if (one > STREAM - nin)
                        one = STREAM - nin;
                add(data, one);
        }
}

static void make_stream(struct reader *r)
{
        nin = 0;
        while (r->left && nin < STREAM) {
                unsigned what = byte(r);
                size_t n = what & 0x7f;
                if (what < 0x80) {
                        request(r, what);
                } else {
                        n = n < r->left ? n : r->left;
                        add(r->p, n);
                        r->p += n;
                        r->left -= n;
                }
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size < 3)
                return 0;
        _Atomic bool stopping = data[0] & 2;
        struct nbd_export e = { .base = malloc(SIZE), .size = SIZE };
        static const _Atomic bool cut;
        _Atomic bool drains = data[0] & 0x20, stays = false;
        struct nbd_wire wire = { .fd = -1 };
        struct nbd_link l = { .wire = &wire, .e = &e, .structured = data[0] & 1,
                              .stopping = &stopping, .cut = &cut, .draining = &drains,
                              .stays = &stays };
        has_status = data[0] & 0x40;
        draining = drains;
        struct reader r = { data + 3, size - 3 };
        if (!e.base)
                FAIL("no memory");

        make_stream(&r);
        seed = data[1];
        cuts = data[0] >> 2 & 3;
        fail_after = data[0] & 0x80 ? data[2] * 64u : SIZE_MAX;
        in_at = nout = accounted = 0;
        loose_from = loose_to = 0;
        memset(seen, 0, sizeof(seen));
        for (uint32_t i = 0; i < SIZE; i++)
                put(i, (uint8_t)(i * 7 + (i >> 8)));
        memcpy(e.base, image, SIZE);

        size_t ahead = part(nin < NBD_RECEIVE ? nin : NBD_RECEIVE), answered = 0;
        in_at = ahead;
        uint8_t *copy = malloc(ahead ? ahead : 1);
        if (!copy)
                FAIL("no memory");
        memcpy(copy, in, ahead);
        int err = nbd_transmit(&l, copy, ahead);
        free(copy);

        if (fail_after == SIZE_MAX) {
                replay(NULL, l.structured, stopping);
                if (err != replay(&answered, l.structured, stopping))
                        FAIL("it ended otherwise than the stream says");
                if (answered != nout)
                        FAIL("more was sent than was asked for");
                if (accounted != counted)
                        FAIL("the statistics count something else");
                for (uint64_t i = 0; i < SIZE; i++)
                        if ((uint8_t)e.base[i] != image[i] && !(i >= loose_from && i < loose_to))
                                FAIL("the export holds something else");
        } else if (err > 0) {
                FAIL("no result that nbd_transmit() may have");
        }
        free(e.base);
        return 0;
}
