/*
 * The NBD handshake as a state machine: what memnode answers to each option, that it never takes a
 * byte too many, that it does not matter how the bytes are cut up, and that wrong lengths and
 * magics end or are refused as the protocol has it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include "memnode/nbd/handshake.h"
#include "memnode/nbd/proto.h"

/* The client's bytes, and the answers. */
static uint8_t in[64 << 10], out[64 << 10];
static size_t nin, nout, cursor;
static struct nbd_handshake h;
/* Calls of the exports. */
static unsigned attached, detached, looked;
static size_t fail_after;               /* send fails once that many bytes are out */

static uint32_t find(const char *name, size_t len, uint64_t *size, const char **text)
{
        *size = 0x1122334455667788;
        *text = "no such thing";
        return len == 4 && memcmp(name, "disk", 4) == 0 ? 0 : NBD_REP_ERR_UNKNOWN;
}

static uint32_t on_attach(void *ctx, const char *name, size_t len, uint64_t *size,
                          const char **text)
{
        (void)ctx;
        uint32_t error = find(name, len, size, text);
        attached += !error;
        return error;
}

static uint32_t on_look(void *ctx, const char *name, size_t len, uint64_t *size, const char **text)
{
        (void)ctx;
        looked++;
        return find(name, len, size, text);
}

static void on_detach(void *ctx) { (void)ctx; detached++; }

static const char *on_listed(void *ctx, unsigned i)
{
        (void)ctx;
        return i == 0 ? "disk" : i == 1 ? "another" : NULL;
}

static int on_send(void *ctx, const void *data, size_t len)
{
        (void)ctx;
        if (nout + len > fail_after)
                return -32;
        assert_true(nout + len <= sizeof(out));
        memcpy(out + nout, data, len);
        nout += len;
        return 0;
}

static const struct nbd_handshake_ops ops = { on_attach, on_look, on_detach, on_listed, on_send };

/* ---- The client ---- */

static void put(const void *data, size_t len)
{
        assert_true(nin + len <= sizeof(in));
        memcpy(in + nin, data, len);
        nin += len;
}

static void put16(uint16_t v) { uint8_t b[2]; nbd_put16(b, v); put(b, 2); }
static void put32(uint32_t v) { uint8_t b[4]; nbd_put32(b, v); put(b, 4); }
static void put64(uint64_t v) { uint8_t b[8]; nbd_put64(b, v); put(b, 8); }

static void option(uint32_t number, const void *data, uint32_t len)
{
        put64(NBD_OPTION_MAGIC);
        put32(number);
        put32(len);
        put(data, len);
}

/* INFO or GO with two wishes. */
static void go(uint32_t number, const char *name)
{
        put64(NBD_OPTION_MAGIC);
        put32(number);
        put32((uint32_t)(4 + strlen(name) + 2 + 4));
        put32((uint32_t)strlen(name));
        put(name, strlen(name));
        put16(2);
        put16(NBD_INFO_NAME);
        put16(NBD_INFO_BLOCK_SIZE);
}

static int start(void **state)
{
        (void)state;
        nin = nout = cursor = 0;
        attached = detached = looked = 0;
        fail_after = sizeof(out);
        return 0;
}

static void begin(uint32_t flags) { put32(flags); }

/* Feeds what is left of the bytes from `taken` on, in pieces; returns how many it has taken. */
static size_t feed_on(size_t taken, size_t piece)
{
        while (taken < nin && h.end == NBD_HS_GOING) {
                size_t n = piece < nin - taken ? piece : nin - taken,
                       got = nbd_handshake_input(&h, in + taken, n);
                assert_true(got <= n);
                assert_true(got == n || h.end != NBD_HS_GOING);
                taken += got;
        }
        return taken;
}

/* Feeds it in pieces of `piece` bytes; returns how many it took. */
static size_t feed_door(size_t piece, enum nbd_door door, bool offers_tls)
{
        nout = cursor = 0;
        nbd_handshake_start(&h, &ops, NULL, door, offers_tls);
        return feed_on(0, piece);
}

static size_t feed(size_t piece) { return feed_door(piece, NBD_DOOR_OPEN, false); }

/* ---- The answers ---- */

static const uint8_t *get(size_t n)
{
        assert_true(cursor + n <= nout);
        cursor += n;
        return out + cursor - n;
}

static void greeting(void)
{
        assert_true(nbd_get64(get(8)) == NBD_MAGIC);
        assert_true(nbd_get64(get(8)) == NBD_OPTION_MAGIC);
        assert_int_equal(nbd_get16(get(2)), NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
}

/* The next answer, of that type to that option; returns the length of its data. */
static uint32_t answer(uint32_t number, uint32_t type)
{
        assert_true(nbd_get64(get(8)) == NBD_OPTION_REPLY_MAGIC);
        assert_int_equal(nbd_get32(get(4)), number);
        assert_int_equal(nbd_get32(get(4)), type);
        return nbd_get32(get(4));
}

static void refused(uint32_t number, uint32_t error)
{
        uint32_t len = answer(number, error);
        assert_true(len > 0);           /* with a sentence for people */
        get(len);
}

static void all_read(void) { assert_int_equal(cursor, nout); }

/* The answers to go(number, "disk"). */
static void infos(uint32_t number, uint16_t with, uint16_t without)
{
        assert_int_equal(answer(number, NBD_REP_INFO), 12);
        assert_int_equal(nbd_get16(get(2)), NBD_INFO_EXPORT);
        assert_true(nbd_get64(get(8)) == 0x1122334455667788);
        uint16_t flags = nbd_get16(get(2));
        assert_int_equal(flags & with, with);
        assert_int_equal(flags & without, 0);
        assert_int_equal(answer(number, NBD_REP_INFO), 6);
        assert_int_equal(nbd_get16(get(2)), NBD_INFO_NAME);
        assert_memory_equal(get(4), "disk", 4);
        assert_int_equal(answer(number, NBD_REP_INFO), 14);
        assert_int_equal(nbd_get16(get(2)), NBD_INFO_BLOCK_SIZE);
        assert_int_equal(nbd_get32(get(4)), 1);
        assert_int_equal(nbd_get32(get(4)), 4096);
        assert_int_equal(nbd_get32(get(4)), 32 << 20);
        assert_int_equal(answer(number, NBD_REP_ACK), 0);
}

/* ---- Tests ---- */

static void usual(void **state)
{
        (void)state;
        begin(3);
        option(NBD_OPT_STRUCTURED_REPLY, "", 0);
        go(NBD_OPT_INFO, "disk");
        go(NBD_OPT_GO, "disk");
        size_t end = nin;
        put("request", 7);              /* what follows is not the handshake's */
        for (size_t piece = 1; piece < nin + 5; piece++) {
                attached = looked = 0;
                size_t taken = feed(piece);
                assert_int_equal(taken, end);
                assert_int_equal(h.end, NBD_HS_ATTACHED);
                assert_true(h.structured);
                assert_int_equal(attached, 1);
                assert_int_equal(looked, 1);
                greeting();
                assert_int_equal(answer(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK), 0);
                infos(NBD_OPT_INFO, NBD_FLAG_HAS_FLAGS | NBD_FLAG_CAN_MULTI_CONN | NBD_FLAG_SEND_DF,
                      2);
                infos(NBD_OPT_GO,
                      NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA | NBD_FLAG_SEND_TRIM |
                              NBD_FLAG_SEND_WRITE_ZEROES,
                      2);
                all_read();
        }
}

static void no_df_without_structured(void **state)
{
        (void)state;
        begin(3);
        go(NBD_OPT_GO, "disk");
        feed(1000);
        assert_int_equal(h.end, NBD_HS_ATTACHED);
        assert_false(h.structured);
        greeting();
        infos(NBD_OPT_GO, NBD_FLAG_HAS_FLAGS, NBD_FLAG_SEND_DF);
        all_read();
}

static void old_way(void **state)
{
        (void)state;
        for (uint32_t flags = 0; flags < 4; flags++) {
                start(NULL);
                begin(flags);
                option(NBD_OPT_EXPORT_NAME, "disk", 4);
                feed(3);
                assert_int_equal(h.end, NBD_HS_ATTACHED);
                greeting();
                assert_true(nbd_get64(get(8)) == 0x1122334455667788);
                assert_true(nbd_get16(get(2)) & NBD_FLAG_HAS_FLAGS);
                if (!(flags & NBD_NO_ZEROES))
                        for (int i = 0; i < 124; i++)
                                assert_int_equal(*get(1), 0);
                all_read();
        }
        start(NULL);
        begin(3);
        option(NBD_OPT_EXPORT_NAME, "disc", 4);
        feed(1000);
        assert_int_equal(h.end, NBD_HS_BROKEN);
        greeting();
        all_read();                     /* it has no words for an error */
}

static void list(void **state)
{
        (void)state;
        begin(3);
        option(NBD_OPT_LIST, "", 0);
        option(NBD_OPT_LIST, "x", 1);
        option(NBD_OPT_ABORT, "", 0);
        feed(1000);
        assert_int_equal(h.end, NBD_HS_GOODBYE);
        greeting();
        assert_int_equal(answer(NBD_OPT_LIST, NBD_REP_SERVER), 8);
        assert_int_equal(nbd_get32(get(4)), 4);
        assert_memory_equal(get(4), "disk", 4);
        assert_int_equal(answer(NBD_OPT_LIST, NBD_REP_SERVER), 11);
        assert_int_equal(nbd_get32(get(4)), 7);
        assert_memory_equal(get(7), "another", 7);
        assert_int_equal(answer(NBD_OPT_LIST, NBD_REP_ACK), 0);
        refused(NBD_OPT_LIST, NBD_REP_ERR_INVALID);
        assert_int_equal(answer(NBD_OPT_ABORT, NBD_REP_ACK), 0);
        all_read();
}

/* Each is refused, and the handshake continues. */
static void refusals(void **state)
{
        (void)state;
        static const uint8_t name_beyond[] = { 0, 0, 0, 9, 'd', 'i', 's', 'k', 0, 0 },
                             wishes_beyond[] = { 0, 0, 0, 4, 'd', 'i', 's', 'k', 0, 1 },
                             name_huge[] = { 255, 255, 255, 255, 'd', 'i', 's', 'k', 0, 0 },
                             too_long[] = { 0, 0, 0, 1, 'd', 0, 0, 7 };
        static uint8_t long_name[4 + NBD_NAME_MAX + 1 + 2];

        nbd_put32(long_name, NBD_NAME_MAX + 1);
        begin(3);
        option(NBD_OPT_STARTTLS, "", 0);
        option(NBD_OPT_SET_META_CONTEXT, "abcd", 4);
        option(NBD_OPT_LIST_META_CONTEXT, "abcd", 4);
        option(0, "", 0);
        option(4711, "data", 4);
        option(NBD_OPT_STRUCTURED_REPLY, "x", 1);
        go(NBD_OPT_GO, "disc");
        go(NBD_OPT_INFO, "");
        option(NBD_OPT_GO, "", 0);
        option(NBD_OPT_GO, name_beyond, sizeof(name_beyond));
        option(NBD_OPT_INFO, wishes_beyond, sizeof(wishes_beyond));
        option(NBD_OPT_GO, name_huge, sizeof(name_huge));
        option(NBD_OPT_GO, too_long, sizeof(too_long));
        option(NBD_OPT_GO, long_name, sizeof(long_name));
        feed(1000);
        assert_int_equal(h.end, NBD_HS_GOING);
        assert_false(h.structured);
        assert_int_equal(attached, 0);
        greeting();
        refused(NBD_OPT_STARTTLS, NBD_REP_ERR_POLICY);
        refused(NBD_OPT_SET_META_CONTEXT, NBD_REP_ERR_UNSUP);
        refused(NBD_OPT_LIST_META_CONTEXT, NBD_REP_ERR_UNSUP);
        refused(0, NBD_REP_ERR_UNSUP);
        refused(4711, NBD_REP_ERR_UNSUP);
        refused(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_INVALID);
        refused(NBD_OPT_GO, NBD_REP_ERR_UNKNOWN);
        refused(NBD_OPT_INFO, NBD_REP_ERR_UNKNOWN);
        refused(NBD_OPT_GO, NBD_REP_ERR_INVALID);
        refused(NBD_OPT_GO, NBD_REP_ERR_INVALID);
        refused(NBD_OPT_INFO, NBD_REP_ERR_INVALID);
        refused(NBD_OPT_GO, NBD_REP_ERR_INVALID);
        refused(NBD_OPT_GO, NBD_REP_ERR_INVALID);
        refused(NBD_OPT_GO, NBD_REP_ERR_TOO_BIG);
        all_read();
}

/* Data that does not fit is skipped whatever its pieces, and the next option is understood. */
static void oversized(void **state)
{
        (void)state;
        static uint8_t much[NBD_OPTION_MAX + 1];
        static const size_t pieces[] = { 1, 7, 4096, sizeof(in) };

        begin(3);
        option(NBD_OPT_GO, much, sizeof(much));
        option(NBD_OPT_GO, much, NBD_OPTION_MAX);       /* fits, but makes no sense */
        go(NBD_OPT_GO, "disk");
        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
                assert_int_equal(feed(pieces[i]), nin);
                assert_int_equal(h.end, NBD_HS_ATTACHED);
                greeting();
                refused(NBD_OPT_GO, NBD_REP_ERR_TOO_BIG);
                refused(NBD_OPT_GO, NBD_REP_ERR_INVALID);
                infos(NBD_OPT_GO, 0, 0);
                all_read();
        }
}

static void expect_broken(void)
{
        feed(1000);
        assert_int_equal(h.end, NBD_HS_BROKEN);
        assert_non_null(h.broken);
        assert_int_equal(attached, 0);
        greeting();
        all_read();
        assert_int_equal(nbd_handshake_input(&h, in, nin), 0);  /* nothing more is taken */
}

static void garbage(void **state)
{
        (void)state;
        begin(4);                       /* a flag we did not offer */
        go(NBD_OPT_GO, "disk");
        expect_broken();

        start(NULL);
        begin(3);
        put("GET / HTTP/1.1\r\n\r\n", 18);
        expect_broken();

        start(NULL);
        begin(0);                       /* not the fixed newstyle: then there is EXPORT_NAME only */
        go(NBD_OPT_GO, "disk");
        expect_broken();

        start(NULL);
        begin(3);
        put64(NBD_OPTION_MAGIC);
        put32(NBD_OPT_EXPORT_NAME);
        put32(NBD_NAME_MAX + 1);
        expect_broken();
}

static void too_many_options(void **state)
{
        (void)state;
        begin(3);
        for (int i = 0; i < 1000; i++)
                option(NBD_OPT_LIST, "x", 1);
        assert_true(feed(1000) < nin);
        assert_int_equal(h.end, NBD_HS_BROKEN);
}

/* Wherever the connection breaks: an export that was attached is either the caller's or
 * detached. */
static void send_fails(void **state)
{
        (void)state;
        begin(3);
        option(NBD_OPT_LIST, "", 0);
        go(NBD_OPT_GO, "disk");
        feed(1000);
        size_t whole = nout;
        for (size_t n = 0; n < whole; n++) {
                attached = detached = 0;
                fail_after = n;
                feed(1000);
                assert_int_equal(h.end, NBD_HS_BROKEN);
                assert_int_equal(attached, detached);
        }
        start(NULL);
        begin(3);
        option(NBD_OPT_EXPORT_NAME, "disk", 4);
        fail_after = 20;
        feed(1000);
        assert_int_equal(h.end, NBD_HS_BROKEN);
        assert_int_equal(attached, 1);
        assert_int_equal(detached, 1);
}

/* Before TLS nothing is told but that it is wanted. */
static void wants_tls(void **state)
{
        (void)state;
        for (size_t piece = 1; piece < 400; piece += 133) {
                start(NULL);
                begin(3);
                option(NBD_OPT_STRUCTURED_REPLY, "", 0);
                option(NBD_OPT_LIST, "", 0);
                go(NBD_OPT_INFO, "disk");
                go(NBD_OPT_GO, "disk");
                option(NBD_OPT_STARTTLS, "x", 1);
                option(NBD_OPT_STARTTLS, "", 0);
                assert_int_equal(feed_door(piece, NBD_DOOR_TLS, true), nin);
                assert_int_equal(h.end, NBD_HS_TLS);
                assert_int_equal(attached + looked, 0);
                assert_true(h.sent_away);
                greeting();
                refused(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_TLS_REQD);
                refused(NBD_OPT_LIST, NBD_REP_ERR_TLS_REQD);
                refused(NBD_OPT_INFO, NBD_REP_ERR_TLS_REQD);
                refused(NBD_OPT_GO, NBD_REP_ERR_TLS_REQD);
                refused(NBD_OPT_STARTTLS, NBD_REP_ERR_INVALID);
                assert_int_equal(answer(NBD_OPT_STARTTLS, NBD_REP_ACK), 0);
                all_read();
        }
        start(NULL);                    /* it has no error reply */
        begin(3);
        option(NBD_OPT_EXPORT_NAME, "disk", 4);
        feed_door(1000, NBD_DOOR_TLS, true);
        assert_int_equal(h.end, NBD_HS_BROKEN);
        assert_int_equal(attached, 0);
        start(NULL);
        begin(3);
        for (unsigned i = 0; i < 100; i++)
                option(NBD_OPT_LIST, "", 0);
        feed_door(1000, NBD_DOOR_TLS, true);
        assert_int_equal(h.end, NBD_HS_BROKEN);
        assert_true(h.options < 20);
}

/* What came before TLS may be anybody's. */
static void secured(void **state)
{
        (void)state;
        begin(3);
        option(NBD_OPT_STARTTLS, "", 0);
        size_t plain = nin;
        assert_int_equal(feed_door(1000, NBD_DOOR_TLS, true), plain);
        start(NULL);                    /* words that were put in behind it */
        begin(3);
        option(NBD_OPT_STARTTLS, "", 0);
        go(NBD_OPT_GO, "disk");
        feed_door(1000, NBD_DOOR_TLS, true);
        assert_int_equal(h.end, NBD_HS_BROKEN);
        assert_int_equal(attached, 0);

        /* where TLS may be, but need not be: what was agreed on before counts no more */
        start(NULL);
        begin(3);
        option(NBD_OPT_STRUCTURED_REPLY, "", 0);
        option(NBD_OPT_STARTTLS, "", 0);
        feed_door(1000, NBD_DOOR_OPEN, true);
        assert_int_equal(h.end, NBD_HS_TLS);
        assert_true(h.structured);
        nbd_handshake_secured(&h);
        assert_int_equal(h.end, NBD_HS_GOING);
        assert_false(h.structured);
        size_t before = nin;
        option(NBD_OPT_STARTTLS, "", 0);
        go(NBD_OPT_GO, "disk");
        cursor = nout;
        assert_int_equal(feed_on(before, 1000), nin);
        assert_int_equal(h.end, NBD_HS_ATTACHED);
        refused(NBD_OPT_STARTTLS, NBD_REP_ERR_INVALID);
        assert_int_equal(attached, 1);
}

/* The first option waits until the client may come in, and what is behind it is not touched. */
static void stops(void **state)
{
        (void)state;
        begin(3);
        option(NBD_OPT_STARTTLS, "", 0);
        go(NBD_OPT_GO, "disk");
        size_t upto = nin;
        put("requests", 8);
        assert_int_equal(feed_door(1000, NBD_DOOR_STOP, false), upto);
        assert_int_equal(h.end, NBD_HS_OPTION);
        assert_int_equal(attached, 0);
        greeting();
        refused(NBD_OPT_STARTTLS, NBD_REP_ERR_POLICY);
        all_read();
        nbd_handshake_go_on(&h);
        assert_int_equal(h.end, NBD_HS_ATTACHED);
        assert_int_equal(attached, 1);
        start(NULL);
        begin(3);
        option(NBD_OPT_ABORT, "", 0);
        feed_door(1000, NBD_DOOR_STOP, false);
        assert_int_equal(h.end, NBD_HS_GOODBYE);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(usual, start),
                cmocka_unit_test_setup(no_df_without_structured, start),
                cmocka_unit_test_setup(old_way, start),
                cmocka_unit_test_setup(list, start),
                cmocka_unit_test_setup(refusals, start),
                cmocka_unit_test_setup(oversized, start),
                cmocka_unit_test_setup(garbage, start),
                cmocka_unit_test_setup(too_many_options, start),
                cmocka_unit_test_setup(send_fails, start),
                cmocka_unit_test_setup(wants_tls, start),
                cmocka_unit_test_setup(secured, start),
                cmocka_unit_test_setup(stops, start),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
