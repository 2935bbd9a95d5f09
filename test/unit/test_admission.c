/*
 * Who may come to a memnode, and for whom that counts: files of keys, origins, parties and their
 * limits, and how many lines refused clients have in the log.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "memnode/admission/keyring.h"
#include "memnode/admission/origin.h"
#include "memnode/admission/party.h"
#include "memnode/admission/refusals.h"

#define GiB (1ull << 30)
#define K32 "000102030405060708090a0b0c0d0e0f"

/* ---- The log, and the clock ---- */

static unsigned lines, whispers;
static char last[600];
static int64_t clock_ms = 1000;

void warnx_(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(last, sizeof(last), fmt, ap);
        va_end(ap);
        lines++;
}

void info_(const char *fmt, ...) { (void)fmt; whispers++; }
int64_t now_ms(void) { return clock_ms; }

/* ---- Keys ---- */

static char path[] = "/tmp/vmrun-test-keys-XXXXXX";

static void write_keys(const char *text)
{
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        fputs(text, f);
        fclose(f);
}

static void good_keys(void **state)
{
        (void)state;
        struct keys k;
        struct key one;
        char why[300];
        bool others;

        write_keys("alice:" K32 "\r\n\nbob:" K32 K32 K32 K32 "\nC-3@x:FF" K32);
        chmod(path, 0640);
        assert_int_equal(keys_read(path, &k, &others, why, sizeof(why)), 0);
        assert_false(others);
        assert_int_equal(k.count, 3);
        assert_string_equal(k.key[0].name, "alice");
        assert_int_equal(k.key[0].bytes, 16);
        for (unsigned i = 0; i < 16; i++)
                assert_int_equal(k.key[0].secret[i], i);
        assert_int_equal(k.key[1].bytes, 64);
        assert_int_equal(k.key[2].bytes, 17);
        assert_int_equal(k.key[2].secret[0], 0xff);
        assert_ptr_equal(keys_find(&k, "bob", 3), &k.key[1]);
        assert_ptr_equal(keys_find(&k, "bobby", 3), &k.key[1]);
        assert_null(keys_find(&k, "bobby", 5));
        assert_null(keys_find(&k, "bob", 2));
        assert_null(keys_find(&k, "", 0));
        keys_free(&k);
        chmod(path, 0604);
        assert_int_equal(keys_read(path, &k, &others, why, sizeof(why)), 0);
        assert_true(others);
        keys_free(&k);
        assert_int_equal(keys_pick(path, "bob", &one, why, sizeof(why)), 0);
        assert_string_equal(one.name, "bob");
        assert_int_equal(keys_pick(path, "eve", &one, why, sizeof(why)), -ENOENT);
        assert_int_equal(keys_pick(path, NULL, &one, why, sizeof(why)), -ENOENT);
        assert_non_null(strstr(why, "client=NAME"));
        write_keys("alice:" K32 "\n");
        assert_int_equal(keys_pick(path, NULL, &one, why, sizeof(why)), 0);
        assert_string_equal(one.name, "alice");
}

static void bad_keys(void **state)
{
        (void)state;
        static const struct { const char *text, *words; } t[] = {
                { "", "it has no key" },
                { "\n\n", "it has no key" },
                { "alice\n", "line 1: it is no NAME:HEX" },
                { ":" K32 "\n", "line 1: it is no NAME:HEX" },
                { "a:" K32 "\nb:0123456789abcdef0123456789abcde\n", "line 2: the key must have" },
                { "b:0123456789abcdef0123456789abcd\n", "the key must have" },
                { "b:" K32 "0\n", "the key must have" },
                { "b:" K32 K32 K32 K32 "00\n", "the key must have" },
                { "b:0123456789abcdef0123456789abcdeg\n", "no hexadecimal digit" },
                { "b: " K32 K32 "\n", "the key must have" },
                { "a b:" K32 "\n", "without spaces" },
                { "#61:" K32 "\n", "begin with #" },
                { "a:" K32 "\na:" K32 "\n", "line 2: that name was there before" },
                { "a:" K32 K32 K32 K32 K32 K32 K32 K32 K32 K32 "\n", "line 1: it is too long" },
                { "0123456789012345678901234567890123456789012345678901234567890123x:" K32,
                  "longer than 64 bytes" },
        };
        struct keys k;
        char why[300];

        for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
                write_keys(t[i].text);
                int err = keys_read(path, &k, NULL, why, sizeof(why));
                if (err != -EINVAL || !strstr(why, t[i].words))
                        print_error("%s: %d, %s\n", t[i].text, err, why);
                assert_int_equal(err, -EINVAL);
                assert_non_null(strstr(why, t[i].words));
                assert_null(strstr(why, K32));  /* no secret in a message */
                assert_null(k.key);
        }
        assert_int_equal(keys_read("/nonexistent", &k, NULL, why, sizeof(why)), -ENOENT);
        assert_int_not_equal(keys_read("/tmp", &k, NULL, why, sizeof(why)), 0);
}

static void ring(void **state)
{
        (void)state;
        struct key k;
        char why[300];

        assert_false(keyring_is_used());
        write_keys("alice:" K32 "\nbob:" K32 "\n");
        chmod(path, 0600);
        lines = 0;
        assert_int_equal(keyring_load(path, why, sizeof(why)), 0);
        assert_int_equal(lines, 0);
        assert_true(keyring_is_used());
        assert_true(keyring_find("alice", 5, &k));
        assert_string_equal(k.name, "alice");
        assert_false(keyring_find("carol", 5, &k));
        write_keys("nonsense");                 /* the old ones stay */
        assert_int_not_equal(keyring_load(path, why, sizeof(why)), 0);
        assert_true(keyring_find("bob", 3, &k));
        write_keys("carol:" K32 "\n");
        chmod(path, 0644);
        assert_int_equal(keyring_load(path, why, sizeof(why)), 0);
        assert_int_equal(lines, 1);             /* others may read it */
        assert_false(keyring_find("bob", 3, &k));
        assert_true(keyring_find("carol", 5, &k));
}

/* ---- Origins ---- */

static void origins(void **state)
{
        (void)state;
        static const struct { const char *address, *text; } t[] = {
                { "10.0.0.1", "10.0.0.1" },
                { "::ffff:10.0.0.1", "10.0.0.1" },
                { "::1", "::1" },
                { "fd00:1:2:3:4:5:6:7", "fd00:1:2:3::/64" },
                { "fd00:1:2:3::1", "fd00:1:2:3::/64" },
                { "fd00:1:2:4::1", "fd00:1:2:4::/64" },
        };
        char text[ORIGIN_TEXT], wanted[ORIGIN_TEXT];

        for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
                struct sockaddr_in in4 = { .sin_family = AF_INET };
                struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
                bool four = inet_pton(AF_INET, t[i].address, &in4.sin_addr) == 1;
                if (!four)
                        assert_int_equal(inet_pton(AF_INET6, t[i].address, &in6.sin6_addr), 1);
                origin_text(text, four ? (struct sockaddr *)&in4 : (struct sockaddr *)&in6, -1);
                assert_string_equal(text, t[i].text);
        }
        int pair[2];
        struct sockaddr_un un = { .sun_family = AF_UNIX };
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        origin_text(text, (struct sockaddr *)&un, pair[0]);
        snprintf(wanted, sizeof(wanted), "user %u", getuid());
        assert_string_equal(text, wanted);
        close(pair[0]);
        close(pair[1]);
}

/* ---- Parties ---- */

static unsigned fill(struct party *p, bool fresh)
{
        unsigned n = 0;

        while (party_connect(p, fresh))
                n++;
        return n;
}

static void empty(struct party *p, unsigned n)
{
        while (n-- > 0)
                party_disconnect(p);
}

static void connections(void **state)
{
        (void)state;
        const struct party_limits limits[] = { { "alice", UINT64_MAX, 0, 5 } };
        struct party *origin = party_of_origin("10.0.0.1"), *other = party_of_origin("10.0.0.2"),
                     *alice = party_of_key("alice"), *bob = party_of_key("bob");

        assert_int_equal(party_set_limits(limits, 1), 0);
        assert_ptr_equal(party_of_origin("10.0.0.1"), origin);
        party_put(origin);
        assert_ptr_not_equal(party_of_origin("alice"), alice);  /* a name is no key */

        /* an origin leaves a quarter for others, and what is fresh leaves it for members */
        unsigned mine = fill(origin, true);
        assert_int_equal(mine, 768);
        assert_false(party_crowded(origin, true));
        assert_false(party_connect(other, true));
        assert_true(party_connect(other, false));
        assert_true(party_crowded(other, true));
        assert_false(party_crowded(other, false));
        party_disconnect(other);
        /* a few may come to replace others */
        unsigned more = fill(origin, false);
        assert_in_range(more, 1, 64);
        assert_true(party_crowded(origin, false));
        empty(origin, mine + more);

        unsigned few = fill(alice, true);
        assert_int_equal(few, 5);
        assert_false(party_crowded(alice, false));
        assert_true(party_connect(alice, false));
        assert_true(party_crowded(alice, false));
        empty(alice, few + 1);

        unsigned all = fill(bob, false);
        assert_in_range(all, 1024, 1024 + 64);
        assert_true(party_crowded(bob, false));
        party_disconnect(bob);
        empty(bob, all - 1);
        assert_false(party_crowded(bob, true));

        mine = 0;
        while (party_lease(origin))
                mine++;
        assert_int_equal(mine, 768);
        more = 0;
        while (party_lease(bob))
                more++;
        assert_int_equal(more, 256);
        while (mine-- > 0)
                party_unlease(origin);
        while (more-- > 0)
                party_unlease(bob);
        party_put(origin);
        party_put(other);
        party_put(alice);
        party_put(bob);
}

static void memory(void **state)
{
        (void)state;
        const struct party_limits limits[] = { { "alice", 4 * GiB, 2 * GiB, 9 },
                                               { "bob", UINT64_MAX, 3 * GiB, 9 } };
        struct party *alice = party_of_key("alice"), *bob = party_of_key("bob"),
                     *origin = party_of_origin("10.0.0.1");
        uint64_t left = 10 * GiB;

        assert_int_equal(party_set_limits(limits, 2), 0);
        /* of 10 GiB alice may have 4, and the others 5 are kept from the origin */
        assert_true(party_room(origin, left) == 5 * GiB);
        assert_true(party_room(alice, left) == 4 * GiB);
        assert_true(party_room(bob, left) == 8 * GiB);
        assert_int_equal(party_take(alice, 4 * GiB + 4096, left), -EDQUOT);
        assert_int_equal(party_take(alice, GiB, left), 0);
        party_took(alice, GiB, true);           /* half of her reserve is no longer kept */
        assert_true(party_room(origin, left - GiB) == 5 * GiB);
        party_give(alice, GiB);
        assert_int_equal(party_take(origin, 5 * GiB + 4096, left), -ENOSPC);
        assert_int_equal(party_take(origin, 5 * GiB, left), 0);
        /* while it is being taken the pool counts it as left */
        assert_int_equal(party_take(origin, 4096, left), -ENOSPC);
        left -= 5 * GiB;
        party_took(origin, 5 * GiB, true);
        assert_true(party_room(alice, left) == 2 * GiB);
        assert_int_equal(party_take(alice, 3 * GiB, left), -ENOSPC);
        assert_int_equal(party_take(alice, 2 * GiB, left), 0);
        left -= 2 * GiB;
        party_took(alice, 2 * GiB, true);
        /* her reserve is taken, his is not */
        assert_true(party_room(bob, left) == 3 * GiB);
        assert_true(party_room(origin, left) == 0);
        assert_int_equal(party_take(bob, 3 * GiB, left), 0);
        party_took(bob, 3 * GiB, false);        /* there was no piece that large */
        assert_true(party_room(bob, left) == 3 * GiB);
        party_give(alice, 2 * GiB);
        left += 2 * GiB;
        assert_true(party_room(origin, left) == 0);
        assert_true(party_room(alice, left) == 2 * GiB);
        /* SIGHUP */
        assert_int_equal(party_set_limits(limits, 1), 0);
        assert_true(party_room(origin, left) == 3 * GiB);
        party_give(origin, 5 * GiB);
        party_put(alice);
        party_put(bob);
        party_put(origin);
}

/* ---- Refusals ---- */

static void refusals(void **state)
{
        (void)state;
        char origin[ORIGIN_TEXT];

        lines = whispers = 0;
        for (unsigned i = 0; i < 1000; i++)
                refused(REFUSED_KEY, "10.0.0.1", "client", "it has %s", "no key");
        assert_int_equal(lines, 1);
        assert_int_equal(whispers, 999);
        assert_string_equal(last, "client: refused: it has no key");
        clock_ms += 59999;
        refused(REFUSED_SLOW, "10.0.0.1", "client", "late");
        assert_int_equal(lines, 1);
        clock_ms++;
        refused(REFUSED_SLOW, "10.0.0.1", "client", "late");
        assert_int_equal(lines, 2);
        assert_non_null(strstr(last, "1000 times before"));

        clock_ms += 60000;
        lines = 0;
        for (unsigned i = 0; i < 10000; i++) {          /* each from another origin */
                snprintf(origin, sizeof(origin), "10.1.%u.%u", i / 250, i % 250);
                refused(REFUSED_CROWD, origin, "client", "many");
        }
        assert_int_equal(lines, REFUSAL_LINES);
        clock_ms += 60000;
        lines = 0;
        refused(REFUSED_CROWD, "10.2.0.1", "client", "many");
        assert_int_equal(lines, 2);                     /* and how many there were */
        assert_non_null(strstr(last, "9940 clients more"));

        char *text = NULL;
        size_t n;
        FILE *f = open_memstream(&text, &n);
        refusals_print(f);
        fclose(f);
        assert_string_equal(text, "refused: 1000 without a valid key, 2 too slow, 10001 too many "
                                  "at once, 0 above a limit, 0 not the protocol, 0 requests\n");
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(good_keys), cmocka_unit_test(bad_keys), cmocka_unit_test(ring),
                cmocka_unit_test(origins),   cmocka_unit_test(connections),
                cmocka_unit_test(memory),    cmocka_unit_test(refusals),
        };
        int fd = mkstemp(path);

        if (fd < 0)
                return 1;
        close(fd);
        int failed = cmocka_run_group_tests(tests, NULL, NULL);
        unlink(path);
        return failed;
}
