/*
 * The parts of the rdma:// driver without a device: URLs, what memnode's private data says, which
 * requests go in one WRITE, how much background work the device has at a time, when a node is
 * silent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "far/rdma/address.h"
#include "far/rdma/pace.h"
#include "far/rdma/run.h"
#include "far/rdma/silence.h"
#include "far/rdma/words.h"

static void is_url(const char *rest, const char *host, uint16_t port)
{
        char h[RDMA_HOST_MAX] = "", why[FAR_WHY] = "";
        uint16_t p = 0;

        assert_int_equal(rdma_parse_url(rest, h, &p, why), 0);
        assert_string_equal(h, host);
        assert_int_equal(p, port);
        assert_string_equal(why, "");
}

static void is_no_url(const char *rest)
{
        char h[RDMA_HOST_MAX], why[FAR_WHY] = "";
        uint16_t p;

        assert_true(rdma_parse_url(rest, h, &p, why) < 0);
        assert_non_null(strstr(why, "rdma://HOST"));
}

static void urls(void **state)
{
        (void)state;
        is_url("//m1", "m1", NODE_PORT);
        is_url("//m1/", "m1", NODE_PORT);
        is_url("//m1:1", "m1", 1);
        is_url("//m1.example.org:65535/", "m1.example.org", 65535);
        is_url("//10.0.0.1:7000", "10.0.0.1", 7000);
        is_url("//[::1]", "::1", NODE_PORT);
        is_url("//[fe80::1%eth0]:7472", "fe80::1%eth0", 7472);
}

static void no_urls(void **state)
{
        static const char *const bad[] = { "",
                                           "m1",
                                           "/m1",
                                           "//",
                                           "///",
                                           "//:7471",
                                           "//m1:",
                                           "//m1:0",
                                           "//m1:65536",
                                           "//m1:+1",
                                           "//m1: 1",
                                           "//m1:7x",
                                           "//m1:18446744073709551617",
                                           "//m1/x",
                                           "//[::1",
                                           "//[]",
                                           "//[::1]x",
                                           "//::1",
                                           "//user@m1" };
        char longest[RDMA_HOST_MAX + 8] = "//";

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                is_no_url(bad[i]);
        memset(longest + 2, 'a', RDMA_HOST_MAX);
        is_no_url(longest);
        longest[2 + RDMA_HOST_MAX - 1] = '\0';
        is_url(longest, longest + 2, NODE_PORT);
}

/* An older memnode says less, and is told apart from what is none. */
static void replies(void **state)
{
        struct node_private p = { .magic = NODE_MAGIC, .version = NODE_VERSION,
                                  .length = sizeof(p), .kind = NODE_ECOOKIE, .cookie = 5 }, got;

        (void)state;
        assert_int_equal(rdma_words_reply(&p, sizeof(p), &got), REPLY_WHOLE);
        assert_memory_equal(&p, &got, sizeof(p));
        assert_int_equal(rdma_words_reply(&p, sizeof(p) - 1, &got), REPLY_NONE);
        assert_int_equal(rdma_words_reply(NULL, 0, &got), REPLY_NONE);
        p.length--;
        assert_int_equal(rdma_words_reply(&p, sizeof(p), &got), REPLY_NONE);
        p.version = 5;
        p.length = 48;
        assert_int_equal(rdma_words_reply(&p, 48, &got), REPLY_VERSION);
        assert_int_equal(got.version, 5);
        p.magic++;
        assert_int_equal(rdma_words_reply(&p, sizeof(p), &got), REPLY_NONE);
}

#define PAGE 4096ull
static struct far_place place, other;
static struct far_request r[8];
static struct ibv_sge sge[8];
static struct rdma_run run;

/* Requests for pages and memory as given, all of one place. */
static void line(unsigned n, const uint32_t *page, const uint64_t *memory)
{
        memset(r, 0, sizeof(r));
        for (unsigned i = 0; i < n; i++)
                r[i] = (struct far_request){ .op = FAR_WRITE,
                                             .page = page[i],
                                             .place = &place,
                                             .next = i + 1 < n ? &r[i + 1] : NULL,
                                             .cookie = { memory[i] * PAGE } };
}

static void run_of_one(void **state)
{
        (void)state;
        line(1, (const uint32_t[]){ 7 }, (const uint64_t[]){ 3 });
        assert_int_equal((run = rdma_run(r, 16, 8, sge)).pages, 1);
        assert_int_equal(run.pieces, 1);
        assert_int_equal(sge[0].addr, 3 * PAGE);
        assert_int_equal(sge[0].length, PAGE);
}

static void run_in_pieces(void **state)
{
        (void)state;
        line(5, (const uint32_t[]){ 7, 8, 9, 10, 12 }, (const uint64_t[]){ 3, 4, 9, 2, 3 });
        /* 12 is no neighbour of 10 */
        assert_int_equal((run = rdma_run(r, 16, 8, sge)).pages, 4);
        assert_int_equal(run.pieces, 3);
        assert_int_equal(sge[0].addr, 3 * PAGE);
        assert_int_equal(sge[0].length, 2 * PAGE);
        assert_int_equal(sge[1].addr, 9 * PAGE);
        assert_int_equal(sge[1].length, PAGE);
        assert_int_equal(sge[2].addr, 2 * PAGE);        /* before the last piece is not after it */
        assert_int_equal(sge[2].length, PAGE);
}

static void run_has_limits(void **state)
{
        (void)state;
        line(5, (const uint32_t[]){ 1, 2, 3, 4, 5 }, (const uint64_t[]){ 1, 2, 8, 6, 7 });
        assert_int_equal((run = rdma_run(r, 1, 8, sge)).pages, 1);
        assert_int_equal((run = rdma_run(r, 4, 8, sge)).pages, 4);
        assert_int_equal(run.pieces, 3);
        assert_int_equal((run = rdma_run(r, 16, 1, sge)).pages, 2);
        assert_int_equal(run.pieces, 1);
        assert_int_equal(sge[0].length, 2 * PAGE);
        assert_int_equal((run = rdma_run(r, 16, 2, sge)).pages, 3);
        assert_int_equal(run.pieces, 2);
        assert_int_equal((run = rdma_run(&r[3], 16, 1, sge)).pages, 2);
}

static void run_downwards(void **state)
{
        (void)state;
        line(5, (const uint32_t[]){ 10, 9, 8, 7, 8 }, (const uint64_t[]){ 4, 3, 8, 9, 5 });
        assert_int_equal((run = rdma_run(r, 16, 8, sge)).pages, 4);
        assert_int_equal(run.lowest, 7);
        assert_int_equal(run.pieces, 3);
        assert_int_equal(sge[0].addr, 9 * PAGE);
        assert_int_equal(sge[1].addr, 8 * PAGE);        /* one address up, but one page down */
        assert_int_equal(sge[2].addr, 3 * PAGE);
        assert_int_equal(sge[2].length, 2 * PAGE);
        assert_int_equal((run = rdma_run(r, 3, 8, sge)).lowest, 8);
        assert_int_equal((run = rdma_run(r, 16, 1, sge)).pages, 2);
        assert_int_equal(run.lowest, 9);
        assert_int_equal(sge[0].addr, 3 * PAGE);
        line(1, (const uint32_t[]){ 0 }, (const uint64_t[]){ 1 });
        assert_int_equal(rdma_run(r, 16, 8, sge).lowest, 0);
}

static void run_ends_with_the_slab(void **state)
{
        (void)state;
        line(3, (const uint32_t[]){ 1, 2, 3 }, (const uint64_t[]){ 1, 2, 3 });
        r[1].place = &other;
        assert_int_equal((run = rdma_run(r, 16, 8, sge)).pages, 1);
        assert_int_equal(sge[0].length, PAGE);
        line(2, (const uint32_t[]){ 2, 2 }, (const uint64_t[]){ 1, 2 });
        assert_int_equal((run = rdma_run(r, 16, 8, sge)).pages, 1);
}

/* --- the pace --- */

#define ALONE 1000                      /* ticks of a demand read that nothing delays */

struct clock { struct rdma_pace p; uint64_t now, sent; };

/* A demand read that finds as much of the background before it as may be posted, each page of which
 * takes `page` ticks; then a pause.  Returns the ticks that the read took. */
static uint64_t demand(struct clock *c, uint64_t page)
{
        unsigned n = rdma_pace_room(&c->p, 0);
        uint64_t from = c->now;

        rdma_pace_turn(&c->p, c->sent, c->now);
        rdma_pace_turn(&c->p, c->sent, c->now);
        c->sent += page ? n : 0;
        if (page && n)
                rdma_pace_sent(&c->p);
        c->now += page * n;
        rdma_pace_asked(&c->p, c->sent, c->now);
        c->now += ALONE;
        rdma_pace_done(&c->p, c->sent, c->now);
        uint64_t took = c->now - from;
        c->now += ALONE;
        return took;
}

/* The window that many demand reads lead to, and how many of the last 100 took more than three
 * times ALONE. */
static unsigned settle(struct clock *c, uint64_t page, unsigned *slow)
{
        for (unsigned i = 0; i < 900; i++)
                demand(c, page);
        *slow = 0;
        for (unsigned i = 0; i < 100; i++)
                *slow += demand(c, page) > 3 * ALONE;
        return c->p.window;
}

static void pace_of_a_serial_device(void **state)
{
        struct clock c = { .now = 1000000 };
        unsigned slow;

        (void)state;
        assert_int_equal(rdma_pace_room(&c.p, 0), DATA_DEPTH);  /* nothing is known */
        demand(&c, 0);
        assert_in_range(settle(&c, ALONE * 9 / 10, &slow), 1, 2);
        assert_int_equal(slow, 0);
}

static void pace_of_a_pipelined_device(void **state)
{
        struct clock c = { .now = 1000000 };
        unsigned slow;

        (void)state;
        demand(&c, 0);
        /* 20 in the time of one demand read */
        assert_in_range(settle(&c, ALONE / 20, &slow), 12, 21);
        assert_int_equal(slow, 0);
        /* It became as slow as a serial one, then as fast as it was. */
        assert_in_range(settle(&c, ALONE, &slow), 1, 2);
        assert_in_range(settle(&c, ALONE / 20, &slow), 12, 21);
}

static void pace_blames_no_innocent(void **state)
{
        struct clock c = { .now = 1000000 };

        (void)state;
        demand(&c, 0);
        /* this thread does not run for a while, time and again, with nothing posted */
        for (unsigned i = 0; i < 100; i++) {
                rdma_pace_turn(&c.p, c.sent, c.now);
                rdma_pace_turn(&c.p, c.sent, c.now);
                rdma_pace_asked(&c.p, c.sent, c.now);
                c.now += 50 * ALONE;
                rdma_pace_done(&c.p, c.sent, c.now);
        }
        assert_int_equal(c.p.window, DATA_DEPTH);
}

static void pace_ends_with_the_demand(void **state)
{
        struct clock c = { .now = 1000000 };
        unsigned slow;

        (void)state;
        demand(&c, 0);
        assert_in_range(settle(&c, ALONE, &slow), 1, 2);
        assert_in_range(rdma_pace_room(&c.p, 0), 1, 2);
        assert_int_equal(rdma_pace_room(&c.p, 2), 0);
        c.now += 10000 * ALONE;
        rdma_pace_turn(&c.p, c.sent, c.now);
        assert_int_equal(rdma_pace_room(&c.p, 2), DATA_DEPTH);
        demand(&c, 0);                  /* nothing was forgotten */
        assert_in_range(rdma_pace_room(&c.p, 0), 1, 3);
}

/* A thread that takes turns only for a demand read posts the background right behind it, and the
 * device does that first. */
static void pace_of_what_comes_behind(void **state)
{
        struct clock c = { .now = 1000000 };
        uint64_t took = 0;

        (void)state;
        demand(&c, 0);
        for (unsigned i = 0; i < 200; i++) {
                rdma_pace_turn(&c.p, c.sent, c.now);
                rdma_pace_asked(&c.p, c.sent, c.now);
                unsigned n = rdma_pace_room(&c.p, 0);
                if (n)
                        rdma_pace_sent(&c.p);
                n = n < 64 ? n : 64;
                c.sent += n;
                took = (n + 1) * ALONE;
                c.now += took;
                rdma_pace_turn(&c.p, c.sent - n, c.now);
                rdma_pace_done(&c.p, c.sent, c.now);
                c.now += 100 * ALONE;
        }
        assert_in_range(took, ALONE, 3 * ALONE);
}

/* A serial device: nothing is posted while a demand read is waited for, but something after
 * each. */
static void pace_holds_and_pays(void **state)
{
        struct clock c = { .now = 1000000 };
        unsigned slow;

        (void)state;
        demand(&c, 0);
        settle(&c, ALONE, &slow);
        rdma_pace_sent(&c.p);
        rdma_pace_asked(&c.p, c.sent, c.now);
        assert_int_equal(rdma_pace_room(&c.p, 0), 0);
        rdma_pace_done(&c.p, c.sent, c.now + ALONE);
        rdma_pace_asked(&c.p, c.sent, c.now + ALONE);           /* the next one at once */
        assert_true(rdma_pace_room(&c.p, 0) > 0);
        rdma_pace_sent(&c.p);
        assert_int_equal(rdma_pace_room(&c.p, 0), 0);
}

/* A transfer begins at 0 and ends at `ends` (0: never).  A question is answered after `takes`,
 * until `dies` (0: always).  When are the connections given up, and as what? */
static int64_t given_up(bool hands_back, int64_t ends, int64_t takes, int64_t dies,
                        enum rdma_verdict *as, unsigned *questions)
{
        struct rdma_silence s = { .asking = false };
        int64_t due = 0;
        unsigned answers = 7;

        *questions = 0;
        for (int64_t now = 0; now < 10000; now += 10) {
                if (due && now >= due && (!dies || now < dies)) {
                        answers++;
                        due = 0;
                }
                *as = rdma_silence(&s, hands_back, ends && now >= ends ? 0 : now, now, answers);
                if (*as == RDMA_ASK) {
                        ++*questions;
                        due = now + takes;
                }
                if (*as == RDMA_SILENT || *as == RDMA_STUCK)
                        return now;
        }
        return -1;
}

static void silences(void **state)
{
        enum rdma_verdict as;
        unsigned n;

        (void)state;
        /* It does not answer; or too late. */
        assert_in_range(given_up(true, 0, 20000, 0, &as, &n), 700, 800);
        assert_int_equal(as, RDMA_SILENT);
        assert_int_equal(n, 1);
        assert_in_range(given_up(true, 0, 300, 0, &as, &n), 700, 800);
        /* The node is slow, and then serves again. */
        assert_int_equal(given_up(true, 2900, 100, 0, &as, &n), -1);
        assert_in_range(n, 8, 11);
        /* It answers, but nothing ends. */
        assert_in_range(given_up(true, 0, 10, 0, &as, &n), 3000, 3100);
        assert_int_equal(as, RDMA_STUCK);
        /* It was slow, and then it died: at most two questions later. */
        assert_in_range(given_up(true, 0, 10, 1500, &as, &n), 1500, 2010);
        assert_int_equal(as, RDMA_SILENT);
        /* A short silence asks nothing. */
        assert_int_equal(given_up(true, 400, 10, 0, &as, &n), -1);
        assert_int_equal(n, 0);
        /* Without other copies there is no other node to ask for the page. */
        assert_in_range(given_up(false, 0, 20000, 0, &as, &n), 3000, 3100);
        assert_int_equal(n, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(silences),
                cmocka_unit_test(urls),
                cmocka_unit_test(no_urls),
                cmocka_unit_test(replies),
                cmocka_unit_test(run_of_one),
                cmocka_unit_test(run_in_pieces),
                cmocka_unit_test(run_has_limits),
                cmocka_unit_test(run_downwards),
                cmocka_unit_test(run_ends_with_the_slab),
                cmocka_unit_test(pace_of_a_serial_device),
                cmocka_unit_test(pace_of_a_pipelined_device),
                cmocka_unit_test(pace_blames_no_innocent),
                cmocka_unit_test(pace_ends_with_the_demand),
                cmocka_unit_test(pace_of_what_comes_behind),
                cmocka_unit_test(pace_holds_and_pays),
        };
        return cmocka_run_group_tests_name("rdma", tests, NULL, NULL);
}
