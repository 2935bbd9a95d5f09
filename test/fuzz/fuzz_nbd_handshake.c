/*
 * Fuzzes the NBD handshake (memnode/nbd/handshake.c) with libFuzzer.  Built and run by ./run, never
 * by make.
 *
 * Threat model. An attacker who can connect to memnode's NBD port controls every byte of the
 * handshake, and how the bytes are cut into receives. With keys, options are for those that TLS has
 * let in: STARTTLS is the only way there. All clients share memnode's machine. What must hold:
 *   - nobody attaches to an export, or looks for one, before TLS where TLS is required;
 *   - no read or write outside the handshake's own memory (the sanitizers see to it; input and
 *     names are copied to exact sizes);
 *   - bounded memory and bounded work: one answer for one option, and no byte taken after the end;
 *   - the outcome depends on the bytes alone, not on how they were cut up: all at once, byte by
 *     byte, and at random give equal answers and an equal end;
 *   - an export is attached at most once, and after any end but ATTACHED it is not attached:
 *     otherwise a client could keep a lease alive without a connection;
 *   - everything sent is a well-formed answer, so that a malicious client cannot make memnode say
 *     something to fool others.
 * Out of scope: the contents of exports, the commands (test/nbd/cases.py throws garbage at them),
 * denial of service by connecting often (bounded in greet.c by number and time), and TLS itself,
 * which is GnuTLS's.
 *
 * The first byte of an input is the seed of its cuts, and says whether sending fails somewhere; the
 * rest is what the client sends.
 */
#include <stdio.h>
#include <stdlib.h>
#include "memnode/members.h"
#include "memnode/nbd/handshake.h"
#include "memnode/nbd/name.h"
#include "memnode/nbd/proto.h"

#define FAIL(what) do { fprintf(stderr, "fuzz: %s\n", what); abort(); } while (0)

struct world {
        uint8_t *out;
        size_t nout, room, fail_after;
        unsigned attached, detached;
        enum nbd_door door;
        bool tls, secured;              /* it is offered; it has begun */
        unsigned options;               /* before it began */
};

/* Copies the name, so that the address sanitizer knows its end, and reads it. */
static uint32_t find(const char *name, size_t len, uint64_t *size, const char **text)
{
        struct nbd_lease_name l;
        char *copy = malloc(len ? len : 1);

        if (!copy || len > NBD_NAME_MAX)
                FAIL("a name longer than names may be");
        memcpy(copy, name, len);
        int err = nbd_lease_parse(copy, len, &l);
        bool sized = l.verb == NBD_LEASE || l.verb == NBD_CREATE;
        bool whose = l.verb == NBD_CREATE || l.verb == NBD_JOIN;
        if (!err && ((sized && (l.size == 0 || l.size % 4096)) ||
                     (whose && (!l.who.member || !l.who.generation ||
                                l.who.link >= MEMBER_LINKS))))
                FAIL("not the name of a lease, but taken for one");
        uint64_t first, last;
        unsigned ranges = 0;
        while (!err && l.verb == NBD_CUT && nbd_lease_range(&l, &first, &last)) {
                if (!first || first > last)
                        FAIL("a range that is none");
                ranges++;
        }
        if (!err && l.verb == NBD_CUT && (!ranges || l.ranges_len))
                FAIL("ranges that were taken for some, and are none");
        uint32_t error = err == 0 || (len == 4 && memcmp(copy, "disk", 4) == 0) ? 0
                         : err == -22 ? NBD_REP_ERR_INVALID
                                      : NBD_REP_ERR_UNKNOWN;
        free(copy);
        *size = 1 << 20;
        *text = "no";
        return error;
}

static uint32_t on_attach(void *ctx, const char *name, size_t len, uint64_t *size,
                          const char **text)
{
        struct world *w = ctx;
        uint32_t error = find(name, len, size, text);
        if (w->door == NBD_DOOR_TLS && !w->secured)
                FAIL("a stranger comes in");
        w->attached += !error;
        return error;
}

static uint32_t on_look(void *ctx, const char *name, size_t len, uint64_t *size, const char **text)
{
        const struct world *w = ctx;
        if (w->door == NBD_DOOR_TLS && !w->secured)
                FAIL("a stranger looks in");
        return find(name, len, size, text);
}

static void on_detach(void *ctx) { ((struct world *)ctx)->detached++; }
static const char *on_listed(void *ctx, unsigned i) { (void)ctx; return i == 0 ? "disk" : NULL; }

static int on_send(void *ctx, const void *data, size_t len)
{
        struct world *w = ctx;

        if (w->nout + len > w->fail_after)
                return -32;
        if (w->nout + len > w->room) {
                w->room = (w->nout + len) * 2;
                w->out = realloc(w->out, w->room);
                if (!w->out)
                        FAIL("no memory");
        }
        memcpy(w->out + w->nout, data, len);
        w->nout += len;
        return 0;
}

static const struct nbd_handshake_ops ops = { on_attach, on_look, on_detach, on_listed, on_send };

/* Cuts: 0: none; 1: every byte; else at random from that seed. */
static size_t play(struct world *w, struct nbd_handshake *h, const uint8_t *in, size_t n,
                   unsigned cuts)
{
        size_t taken = 0;
        unsigned seed = cuts;

        nbd_handshake_start(h, &ops, w, w->door, w->tls);
        while (taken < n && h->end == NBD_HS_GOING) {
                seed = seed * 1103515245u + 12345u;
                size_t part = cuts == 0 ? n : cuts == 1 ? 1 : 1 + (seed >> 16) % 64;
                if (part > n - taken)
                        part = n - taken;
                uint8_t *copy = malloc(part);
                if (!copy)
                        FAIL("no memory");
                memcpy(copy, in + taken, part);
                size_t got = nbd_handshake_input(h, copy, part);
                free(copy);
                if (got > part || (got < part && h->end == NBD_HS_GOING))
                        FAIL("it took more or less than there was");
                taken += got;
                if (h->end == NBD_HS_OPTION) {
                        if (w->door != NBD_DOOR_STOP)
                                FAIL("it stops at an open door");
                        nbd_handshake_go_on(h);
                }
                if (h->end == NBD_HS_TLS) {
                        if (!w->tls || w->secured)
                                FAIL("TLS where there is none, or twice");
                        w->secured = true;
                        w->options = h->options;
                        nbd_handshake_secured(h);
                }
        }
        if (h->end != NBD_HS_GOING && nbd_handshake_input(h, in, n) != 0)
                FAIL("it took bytes after the end");
        if (w->attached > 1 || w->detached > w->attached ||
            (h->end == NBD_HS_ATTACHED) != (w->attached - w->detached == 1))
                FAIL("attached too often, or not given back");
        if ((h->end == NBD_HS_BROKEN) != (h->broken != NULL))
                FAIL("broken without a reason");
        return taken;
}

/* The greeting, then replies to options; what may follow them is the answer to EXPORT_NAME. */
static void well_formed(const struct world *w, const struct nbd_handshake *h)
{
        size_t at = 18, replies = 0;

        if (w->nout < 18)
                FAIL("no greeting");
        while (w->nout - at >= 20 && nbd_get64(w->out + at) == NBD_OPTION_REPLY_MAGIC) {
                uint32_t type = nbd_get32(w->out + at + 12), len = nbd_get32(w->out + at + 16);
                if (len > w->nout - at - 20)
                        FAIL("an answer is longer than what was sent");
                if ((type & 0x80000000) && len == 0)
                        FAIL("a refusal without a sentence");
                at += 20 + len;
                replies++;
        }
        if (at != w->nout &&
            !(h->end == NBD_HS_ATTACHED && (w->nout - at == 10 || w->nout - at == 134)))
                FAIL("what was sent is no answer");
        /* size, name, description, block sizes, and the end of them */
        if (replies > 5u * (w->options + h->options))
                FAIL("more answers than questions");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        /* static: what is left of another run must not matter */
        static struct nbd_handshake first, h;

        if (size < 1)
                return 0;
        size_t fail_after = data[0] & 0x80 ? (size_t)(data[0] & 0x7f) * 4 : SIZE_MAX;
        const enum nbd_door door = data[size - 1] % 3;
        const bool tls = door == NBD_DOOR_TLS || data[size - 1] & 0x40;
        struct world w1 = { .fail_after = fail_after, .door = door, .tls = tls };
        /* What follows STARTTLS in one receive ends the handshake, so there cuts matter. */
        size_t taken = play(&w1, &first, data + 1, size - 1, tls);
        if (fail_after == SIZE_MAX)
                well_formed(&w1, &first);
        for (unsigned cuts = 1; cuts <= 2; cuts++) {
                struct world w = { .fail_after = fail_after, .door = door, .tls = tls };
                size_t n = play(&w, &h, data + 1, size - 1, cuts == 1 ? 1 : 2u + data[0]);
                if (tls && cuts > 1) {
                        free(w.out);
                        continue;
                }
                if (n != taken || h.end != first.end || h.structured != first.structured ||
                    w.nout != w1.nout || (w.nout && memcmp(w.out, w1.out, w.nout) != 0))
                        FAIL("the cuts make a difference");
                free(w.out);
        }
        free(w1.out);
        return 0;
}
