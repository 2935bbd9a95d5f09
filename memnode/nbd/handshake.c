/*
 * The handshake of NBD, fixed newstyle: a state machine that is fed bytes and asks its ops for
 * everything else, so that it can be tested and fuzzed without a socket.
 *
 * Its memory is bounded by struct nbd_handshake.  An option whose data does not fit is skipped as
 * it arrives, and refused; the caller bounds the time that takes.  Nothing is sent except in answer
 * to a complete option.
 */
#include <stdio.h>
#include "nbd/handshake.h"
#include "nbd/proto.h"

/* a client needs a handful; a client that guesses names is not wanted */
#define OPTIONS_MAX     256
#define OPTIONS_BEFORE  16              /* while the door is shut */

static void broken(struct nbd_handshake *h, const char *why)
{
        h->end = NBD_HS_BROKEN;
        h->broken = why;
}

static void send_(struct nbd_handshake *h, const void *data, size_t len)
{
        if (h->end == NBD_HS_GOING && h->ops->send(h->ctx, data, len) != 0)
                broken(h, "the connection broke");
}

/* An answer of up to two parts. */
static void reply2(struct nbd_handshake *h, uint32_t type, const void *a, size_t alen,
                   const void *b, size_t blen)
{
        struct nbd_option_reply_header r = {
                htobe64(NBD_OPTION_REPLY_MAGIC),
                htobe32(h->option),
                htobe32(type),
                htobe32((uint32_t)(alen + blen)),
        };
        send_(h, &r, sizeof(r));
        if (alen)
                send_(h, a, alen);
        if (blen)
                send_(h, b, blen);
}

static void reply(struct nbd_handshake *h, uint32_t type, const void *data, size_t len)
{
        reply2(h, type, data, len, NULL, 0);
}
static void ack(struct nbd_handshake *h) { reply(h, NBD_REP_ACK, NULL, 0); }
static void refuse(struct nbd_handshake *h, uint32_t error, const char *text)
{
        reply(h, error, text, strlen(text));
}

static uint16_t transmission_flags(const struct nbd_handshake *h)
{
        uint16_t flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA |
                         NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_CAN_MULTI_CONN |
                         NBD_FLAG_SEND_CACHE | NBD_FLAG_SEND_FAST_ZERO;
        return h->structured ? flags | NBD_FLAG_SEND_DF : flags;
}

/* The old way to choose an export: it has no error reply, only the end of the connection. */
static void export_name(struct nbd_handshake *h)
{
        uint8_t answer[8 + 2 + 124] = { 0 };
        uint64_t size;
        const char *text;

        if (h->ops->attach(h->ctx, (const char *)h->buf, h->have, &size, &text) != 0) {
                broken(h, text);
                return;
        }
        nbd_put64(answer, size);
        nbd_put16(answer + 8, transmission_flags(h));
        send_(h, answer, h->client_flags & NBD_NO_ZEROES ? 10 : sizeof(answer));
        if (h->end == NBD_HS_GOING)
                h->end = NBD_HS_ATTACHED;
        else
                h->ops->detach(h->ctx);
}

static void list(struct nbd_handshake *h)
{
        uint8_t len[4];
        const char *name;

        if (h->have) {
                refuse(h, NBD_REP_ERR_INVALID, "LIST has no data");
                return;
        }
        for (unsigned i = 0; (name = h->ops->listed(h->ctx, i)); i++) {
                nbd_put32(len, (uint32_t)strlen(name));
                reply2(h, NBD_REP_SERVER, len, sizeof(len), name, strlen(name));
        }
        ack(h);
}

/* INFO and GO: u32 length of the name, the name, u16 number of information requests, the requests,
 * u16 each. */
struct go { const char *name, *description; size_t name_len; const uint8_t *wish; };

static bool wants(const struct go *g, unsigned info)
{
        for (unsigned i = 0; i < nbd_get16(g->wish); i++)
                if (nbd_get16(g->wish + 2 + 2 * i) == info)
                        return true;
        return false;
}

static void infos(struct nbd_handshake *h, uint64_t size, const struct go *g)
{
        uint8_t export[2 + 8 + 2], block[2 + 3 * 4], type[2];

        nbd_put16(export, NBD_INFO_EXPORT);
        nbd_put64(export + 2, size);
        nbd_put16(export + 10, transmission_flags(h));
        reply(h, NBD_REP_INFO, export, sizeof(export));
        if (wants(g, NBD_INFO_NAME)) {
                nbd_put16(type, NBD_INFO_NAME);
                reply2(h, NBD_REP_INFO, type, sizeof(type), g->name, g->name_len);
        }
        if (*g->description && wants(g, NBD_INFO_DESCRIPTION)) {
                nbd_put16(type, NBD_INFO_DESCRIPTION);
                reply2(h, NBD_REP_INFO, type, sizeof(type), g->description, strlen(g->description));
        }
        /* Sent even if not requested: libnbd and the kernel's client ask for it, others can use
         * it. */
        nbd_put16(block, NBD_INFO_BLOCK_SIZE);
        nbd_put32(block + 2, NBD_BLOCK_MIN);
        nbd_put32(block + 6, NBD_BLOCK_WANT);
        nbd_put32(block + 10, NBD_PAYLOAD_MAX);
        reply(h, NBD_REP_INFO, block, sizeof(block));
}

static void go(struct nbd_handshake *h, bool attach)
{
        const uint8_t *d = h->buf;
        uint64_t size = 0;
        const char *text = "";
        uint32_t name_len = h->have >= 6 ? nbd_get32(d) : UINT32_MAX;

        if (h->have < 6 || name_len > h->have - 6 ||
            (h->have - 6 - name_len) != 2u * nbd_get16(d + 4 + name_len)) {
                refuse(h, NBD_REP_ERR_INVALID, "the lengths within this option do not add up");
                return;
        }
        if (name_len > NBD_NAME_MAX) {
                refuse(h, NBD_REP_ERR_TOO_BIG, "the name of an export has 4096 bytes at most");
                return;
        }
        const char *name = (const char *)d + 4;
        uint32_t error = attach ? h->ops->attach(h->ctx, name, name_len, &size, &text)
                                : h->ops->look(h->ctx, name, name_len, &size, &text);
        if (error) {
                refuse(h, error, text);
                return;
        }
        infos(h, size, &(struct go){ name, text, name_len, d + 4 + name_len });
        ack(h);
        if (!attach)
                return;
        if (h->end == NBD_HS_GOING)
                h->end = NBD_HS_ATTACHED;
        else
                h->ops->detach(h->ctx);
}

static void structured(struct nbd_handshake *h)
{
        if (h->have) {
                refuse(h, NBD_REP_ERR_INVALID, "STRUCTURED_REPLY has no data");
                return;
        }
        h->structured = true;
        ack(h);
}

static void starttls(struct nbd_handshake *h)
{
        if (!h->offers_tls) {
                refuse(h, NBD_REP_ERR_POLICY, "memnode has no keys, and so no TLS: use nbd://, or "
                       "start it with --keys");
        } else if (h->secured || h->have) {
                refuse(h, NBD_REP_ERR_INVALID,
                       h->have ? "STARTTLS has no data" : "TLS has begun before");
        } else {
                ack(h);
                if (h->end == NBD_HS_GOING)
                        h->end = NBD_HS_TLS;
        }
}

/* Before TLS, where it is required. */
static void send_away(struct nbd_handshake *h)
{
        static const char text[] = "memnode wants a key: with vmrun use nbds:// and keys=FILE, "
                                   "with other clients TLS and a key of its --keys";

        h->sent_away = true;
        if (h->option == NBD_OPT_EXPORT_NAME)   /* it has no error reply */
                broken(h, text);
        else
                refuse(h, NBD_REP_ERR_TLS_REQD, text);
}

static void serve(struct nbd_handshake *h)
{
        bool passes = h->door == NBD_DOOR_OPEN || h->option == NBD_OPT_ABORT ||
                      h->option == NBD_OPT_STARTTLS;

        if (!passes && h->door == NBD_DOOR_TLS) {
                send_away(h);
                return;
        }
        if (!passes) {
                h->end = NBD_HS_OPTION;
                return;
        }
        switch (h->option) {
        case NBD_OPT_EXPORT_NAME: export_name(h); break;
        case NBD_OPT_ABORT:
                ack(h);
                if (h->end == NBD_HS_GOING)
                        h->end = NBD_HS_GOODBYE;
                break;
        case NBD_OPT_LIST: list(h); break;
        case NBD_OPT_INFO: go(h, false); break;
        case NBD_OPT_GO: go(h, true); break;
        case NBD_OPT_STRUCTURED_REPLY: structured(h); break;
        case NBD_OPT_STARTTLS: starttls(h); break;
        case NBD_OPT_LIST_META_CONTEXT:
        case NBD_OPT_SET_META_CONTEXT:
                refuse(h, NBD_REP_ERR_UNSUP, "memnode has no metadata contexts");
                break;
        default: refuse(h, NBD_REP_ERR_UNSUP, "memnode does not know this option"); break;
        }
}

static void next_option(struct nbd_handshake *h)
{
        h->state = NBD_HS_HEADER;
        h->have = 0;
        h->need = sizeof(struct nbd_option_header);
}

static void flags(struct nbd_handshake *h)
{
        h->client_flags = nbd_get32(h->buf);
        /* The protocol requires the end: an unknown flag may change the stream in unknown ways. */
        if (h->client_flags & ~(uint32_t)(NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES))
                broken(h, "it set flags in its first word that memnode did not offer");
        else
                next_option(h);
}

static void header(struct nbd_handshake *h)
{
        struct nbd_option_header o;

        memcpy(&o, h->buf, sizeof(o));
        h->option = be32toh(o.option);
        h->length = be32toh(o.length);
        if (be64toh(o.magic) != NBD_OPTION_MAGIC) {
                broken(h, "what it sent is no NBD option");
        } else if (!(h->client_flags & NBD_FIXED_NEWSTYLE) && h->option != NBD_OPT_EXPORT_NAME) {
                broken(h, "it sent an option that needs the fixed newstyle handshake, which it did "
                          "not agree to");
        } else if (++h->options > (h->door == NBD_DOOR_OPEN ? OPTIONS_MAX : OPTIONS_BEFORE)) {
                broken(h, "it sent too many options");
        } else if (h->length > NBD_OPTION_MAX ||
                   (h->option == NBD_OPT_EXPORT_NAME && h->length > NBD_NAME_MAX)) {
                if (h->option == NBD_OPT_EXPORT_NAME)
                        broken(h, "the name of its export is too long");
                h->state = NBD_HS_SKIP;
        } else {
                h->state = NBD_HS_DATA;
                h->have = 0;
                h->need = h->length;
        }
}

static void data(struct nbd_handshake *h)
{
        serve(h);
        if (h->end == NBD_HS_GOING)
                next_option(h);
}

void nbd_handshake_go_on(struct nbd_handshake *h)
{
        h->door = NBD_DOOR_OPEN;
        h->end = NBD_HS_GOING;
        data(h);
}

/* What came before TLS may be anybody's words, so nothing of it counts. */
void nbd_handshake_secured(struct nbd_handshake *h)
{
        h->door = NBD_DOOR_OPEN;
        h->secured = true;
        h->structured = false;
        h->options = 0;
        h->end = NBD_HS_GOING;
        next_option(h);
}

void nbd_handshake_start(struct nbd_handshake *h, const struct nbd_handshake_ops *ops, void *ctx,
                         enum nbd_door door, bool offers_tls)
{
        uint8_t greeting[8 + 8 + 2];

        memset(h, 0, offsetof(struct nbd_handshake, buf));
        h->ops = ops;
        h->ctx = ctx;
        h->end = NBD_HS_GOING;
        h->door = door;
        h->offers_tls = offers_tls;
        h->state = NBD_HS_FLAGS;
        h->need = 4;
        nbd_put64(greeting, NBD_MAGIC);
        nbd_put64(greeting + 8, NBD_OPTION_MAGIC);
        nbd_put16(greeting + 16, NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
        send_(h, greeting, sizeof(greeting));
}

static size_t skip(struct nbd_handshake *h, size_t len)
{
        size_t n = len < h->length ? len : h->length;

        h->length -= (uint32_t)n;
        if (h->length == 0) {
                refuse(h, NBD_REP_ERR_TOO_BIG, "the data of this option is too long");
                if (h->end == NBD_HS_GOING)
                        next_option(h);
        }
        return n;
}

size_t nbd_handshake_input(struct nbd_handshake *h, const uint8_t *in, size_t len)
{
        size_t taken = 0;

        while (h->end == NBD_HS_GOING) {
                if (h->state == NBD_HS_SKIP) {
                        if (taken == len)
                                break;
                        taken += skip(h, len - taken);
                        continue;
                }
                size_t n = h->need - h->have;
                if (n > len - taken)
                        n = len - taken;
                memcpy(h->buf + h->have, in + taken, n);
                h->have += n;
                taken += n;
                if (h->have < h->need)
                        break;
                switch (h->state) {
                case NBD_HS_FLAGS: flags(h); break;
                case NBD_HS_HEADER: header(h); break;
                default: data(h); break;
                }
        }
        /* Somebody else may have put them there, before the client that TLS is with spoke. */
        if (h->end == NBD_HS_TLS && taken < len)
                broken(h, "it sent more before TLS began");
        return taken;
}
