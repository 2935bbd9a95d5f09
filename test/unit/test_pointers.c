/*
 * Pages that a page points to: which words are followed, and what is learnt of their places.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "pager/pointers.h"

#define FAR 0x7f0000000000ull           /* far page n is at FAR + (n << 12) */
#define WORDS 512

static struct pointers p;
/* The page, between two others. */
static uint64_t pages[3 * WORDS], *const words = pages + WORDS, asked[1024];
static unsigned nasked, room;
static bool far_is_used, all_far;

static enum pointers_answer ask(void *arg, uint64_t addr)
{
        (void)arg;
        if (addr < FAR && !all_far)
                return POINTERS_NO;
        if (nasked == room)
                return POINTERS_FULL;
        for (unsigned i = 0; i < nasked; i++)
                if (asked[i] >> 12 == addr >> 12)
                        return POINTERS_NO;     /* it is under way */
        asked[nasked++] = addr;
        return POINTERS_YES;
}

static bool used(void *arg, uint64_t page)
{
        (void)arg;
        (void)page;
        return far_is_used;
}

static const struct pointers_env env = { .ask = ask, .used = used };

static uint32_t follow(unsigned touched)
{
        nasked = 0;
        return pointers_follow(&p, words, touched, &env);
}

/* In the turn of a page that is looked at in all places. */
static uint32_t follow_all(unsigned touched)
{
        p.turn = 0;
        return follow(touched);
}

static int setup(void **state)
{
        (void)state;
        memset(&p, 0, sizeof(p));
        memset(pages, 0, sizeof(pages));
        room = sizeof(asked) / sizeof(asked[0]);
        far_is_used = true;
        all_far = false;
        return 0;
}

/* Only words around the one touched that are addresses of far pages, in their order. */
static void test_places(void **state)
{
        (void)state;
        for (unsigned i = 0; i < WORDS; i++)
                words[i] = FAR + ((uint64_t)i << 12) + i;
        assert_int_equal(follow(200), POINTERS_MOST);
        assert_true(asked[0] == words[200 - POINTERS_BEFORE]);
        memset(pages, 0, sizeof(pages));
        words[199] = FAR + 8;
        words[203] = FAR + 0x5000;
        words[200 + POINTERS_AFTER] = FAR + 0x9000;
        words[200 - POINTERS_BEFORE - 1] = FAR + 0xa000;
        assert_int_equal(follow_all(200), 2);
        assert_true(asked[0] == FAR + 8 && asked[1] == FAR + 0x5000);
}

/* The page's first and last words have fewer neighbours. */
static void test_edges(void **state)
{
        (void)state;
        for (unsigned i = 0; i < 3 * WORDS; i++)
                if (i < WORDS || i >= 2 * WORDS)
                        pages[i] = FAR + 0x100000 + ((uint64_t)i << 12);
        words[0] = FAR;
        words[WORDS - 1] = FAR + 0x1000;
        assert_int_equal(follow(0), 1);
        assert_true(asked[0] == FAR);
        assert_int_equal(follow_all(WORDS - 1), 1);
        assert_true(asked[0] == FAR + 0x1000);
        assert_int_equal(follow_all(POINTERS_BEFORE), 1);
        assert_true(asked[0] == FAR);
}

/* Numbers that no program's address is. */
static void test_numbers(void **state)
{
        (void)state;
        all_far = true;
        words[10] = 1;
        words[11] = 0xffff;
        words[12] = 1ull << 47;
        words[13] = UINT64_MAX;
        words[14] = 0xffff800000000000ull;
        assert_int_equal(follow(10), 0);
        p.rest = 0;
        words[15] = 0x10000;
        words[16] = (1ull << 47) - 1;
        assert_int_equal(follow(10), 2);
}

/* Two words to one page ask for it once. */
static void test_once(void **state)
{
        (void)state;
        words[10] = FAR + 16;
        words[11] = FAR + 32;
        assert_int_equal(follow(10), 1);
}

static void test_room(void **state)
{
        (void)state;
        for (unsigned i = 0; i < 8; i++)
                words[i] = FAR + ((uint64_t)i << 12);
        room = 3;
        assert_int_equal(follow(0), 3);
        room = 0;
        assert_int_equal(follow(0), 0);
}

/* Follows n pages, each of which points to another one in this word; how often it led on. */
static unsigned walk(unsigned n, unsigned word)
{
        unsigned led = 0;
        static uint64_t next;

        for (unsigned i = 0; i < n; i++) {
                words[word] = FAR + (++next << 12);
                led += follow(8) > 0;
        }
        return led;
}

/* A place whose pages are used is followed always; one whose are not soon no more, and others
 * are not touched by it. */
static void test_learns(void **state)
{
        (void)state;
        assert_int_equal(walk(1000, 9), 1000);
        far_is_used = false;
        unsigned led = walk(1000, 9);
        assert_in_range(led, 1, 60);
        words[9] = 0;
        p.rest = p.nowhere = p.turn = 0;
        far_is_used = true;
        words[20] = FAR + 0x3000;
        assert_int_equal(follow(8), 1);
}

/* A place that was left is tried again, and followed once its pages are used. */
static void test_tries_again(void **state)
{
        (void)state;
        far_is_used = false;
        walk(3000, 9);
        far_is_used = true;
        unsigned led = walk(100000, 9);
        assert_in_range(led, 50000, 100000);
}

static uint64_t newest;

static bool used_later(void *arg, uint64_t page)
{
        (void)arg;
        return page + POINTERS_ASKED / 2 < newest;
}

/* A page has its time to be used before it is judged. */
static void test_time(void **state)
{
        const struct pointers_env later = { .ask = ask, .used = used_later };

        (void)state;
        for (unsigned i = 0; i < 1000; i++) {
                newest = (FAR >> 12) + i;
                words[9] = newest << 12;
                nasked = 0;
                assert_int_equal(pointers_follow(&p, words, 8, &later), 1);
        }
}

/* Half of the pages are used, as of a tree's two children: not worth it. */
static void test_half_used(void **state)
{
        unsigned led = 0;

        (void)state;
        for (unsigned i = 0; i < 4000; i++) {
                far_is_used = i % 2 == 0;
                led += walk(1, 9);
        }
        assert_in_range(led, 1, 500);
}

/* Of places that lead on, each page is looked at; of the others, one in POINTERS_ALL. */
static void test_leads(void **state)
{
        unsigned led = 0;

        (void)state;
        walk(100, 9);
        words[9] = 0;
        for (unsigned i = 0; i < 10 * POINTERS_ALL; i++) {
                words[30] = FAR + 0x100000000 + ((uint64_t)i << 12);
                led += follow(8) > 0;
                p.lead &= ~(1ull << (30 - 8 + POINTERS_BEFORE));
        }
        assert_int_equal(led, 10);
}

/* Pages without pointers are hardly looked at, and those with some soon again. */
static void test_rests(void **state)
{
        unsigned looked = 0;

        (void)state;
        all_far = true;
        for (unsigned i = 0; i < 64000; i++) {
                looked += p.rest == 0;
                follow(100);
        }
        assert_in_range(looked, 64000 / POINTERS_REST, 64000 / POINTERS_REST + 100);
        words[100] = FAR;
        for (unsigned i = 0; i < POINTERS_REST; i++)
                follow(100);
        assert_int_equal(follow(100), 1);
        assert_int_equal(p.rest, 0);
}

/* With any content it stays within bounds: run under the sanitizers. */
static void test_random(void **state)
{
        uint64_t x = 88172645463325252ull;

        (void)state;
        for (unsigned i = 0; i < 20000; i++) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                words[x % WORDS] = x >> (x >> 32) % 48;
                all_far = x & 1 << 20;
                far_is_used = x & 1 << 21;
                room = (x >> 22) % 32;
                assert_true(follow((x >> 10) % WORDS) <= POINTERS_MOST);
                for (unsigned k = 0; k < POINTERS_PLACES; k++)
                        assert_in_range(p.trust[k] + 8, 0, 16);
                assert_true(p.rest < POINTERS_REST);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, setup)
                T(test_places), T(test_edges), T(test_numbers), T(test_once), T(test_room),
                T(test_leads), T(test_learns), T(test_tries_again), T(test_half_used),
                T(test_time), T(test_rests), T(test_random),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
