/*
 * NBD exports and leases over accounts of the test's own: which names are leases, which clients get
 * in, that all that name a lease share it, and that it ends after its grace time and not before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "memnode/account.h"
#include "memnode/admission/party.h"
#include "memnode/memnode.h"
#include "memnode/nbd/export.h"
#include "memnode/nbd/name.h"
#include "memnode/nbd/proto.h"
#include "memnode/nbd/thread.h"

#define HEX     "00112233445566778899aabbccddeeff"
#define OTHER   "00112233445566778899aabbccddeefe"

struct memnode_options opt;

/* ---- Accounts of the test's own ---- */

struct account { char *at; char name[64]; };
static pthread_mutex_t account_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned accounts, opened;       /* guarded by account_lock */
/* what account_take() says; set while no other thread runs */
static int take_error;
static unsigned take_ms;                /* how long it takes */

struct account *account_open(const char *name, struct party *party)
{
        struct account *a = calloc(1, sizeof(*a));
        (void)party;
        assert_non_null(a);
        snprintf(a->name, sizeof(a->name), "%s", name);
        assert_null(strstr(name, HEX)); /* the secret is not for the log */
        pthread_mutex_lock(&account_lock);
        accounts++;
        opened++;
        pthread_mutex_unlock(&account_lock);
        return a;
}

const char *account_party(const struct account *a) { (void)a; return ""; }

void account_close(struct account *a)
{
        pthread_mutex_lock(&account_lock);
        accounts--;
        pthread_mutex_unlock(&account_lock);
        free(a->at);
        free(a);
}

int account_take(struct account *a, uint64_t bytes, char **at)
{
        usleep(take_ms * 1000);
        if (take_error)
                return take_error;
        assert_int_equal(bytes % 4096, 0);
        *at = a->at = calloc(1, bytes);
        assert_non_null(*at);
        return 0;
}

static bool crowds;                     /* what party_crowded() says of a new lease */
bool party_crowded(struct party *p, bool fresh) { (void)p; return fresh && crowds; }

static unsigned open_accounts(void)
{
        pthread_mutex_lock(&account_lock);
        unsigned n = accounts;
        pthread_mutex_unlock(&account_lock);
        return n;
}

/* The secret is not for the log. */
static void check(const char *fmt, va_list ap)
{
        char text[400];

        vsnprintf(text, sizeof(text), fmt, ap);
        assert_null(strstr(text, HEX));
        assert_null(strstr(text, OTHER));
}
void info_(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        check(fmt, ap);
        va_end(ap);
}
void notice_(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        check(fmt, ap);
        va_end(ap);
}
void warnx_(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        check(fmt, ap);
        va_end(ap);
}

int nbd_thread(pthread_t *id, void *(*main_)(void *), void *arg, bool detached)
{
        assert_false(detached);
        return -pthread_create(id, NULL, main_, arg);
}

/* ---- Helpers ---- */

static _Thread_local struct nbd_who who; /* of this thread's last attach() */

static uint32_t attach(const char *name, struct nbd_export **e)
{
        const char *text = NULL;
        uint32_t error = nbd_export_attach(name, strlen(name), NULL, e, &who, &text);
        if (error)
                assert_true(text && *text);
        return error;
}

static uint32_t look(const char *name, uint64_t *size)
{
        const char *text = NULL;
        struct nbd_export *e;
        uint32_t error = nbd_export_look(name, strlen(name), size, &e, &text);
        if (!error && e)
                nbd_export_detach(e);
        return error;
}

/* Until n accounts are open, 30 s at most. */
static void wait_accounts(unsigned n)
{
        for (int i = 0; i < 3000 && open_accounts() != n; i++)
                usleep(10000);
        assert_int_equal(open_accounts(), n);
}

static int open_exports(void **state)
{
        char why[200];
        (void)state;
        /* long enough for a busy machine */
        opt.grace_ms = 1000;
        return nbd_exports_open(why, sizeof(why));
}

static int close_exports(void **state)
{
        (void)state;
        take_error = 0;
        take_ms = 0;
        wait_accounts(0);
        nbd_exports_close();
        return 0;
}

/* ---- Tests ---- */

static void names(void **state)
{
        (void)state;
        static const struct { const char *name; int ret; uint64_t size;
        } t[] = {
                { "", -ENOENT, 0 },
                { "disk", -ENOENT, 0 },
                { "lease", -ENOENT, 0 },
                { "Lease-" HEX "-4096", -ENOENT, 0 },
                { "lease-", -EINVAL, 0 },
                { "lease-" HEX, -EINVAL, 0 },
                { "lease-" HEX "-", -EINVAL, 0 },
                { "lease-" HEX "4096", -EINVAL, 0 },
                { "lease-" HEX "-0", -EINVAL, 0 },
                { "lease-" HEX "-4095", -EINVAL, 0 },
                { "lease-" HEX "-04096", -EINVAL, 0 },
                { "lease-" HEX "-+4096", -EINVAL, 0 },
                { "lease-" HEX "-4096 ", -EINVAL, 0 },
                { "lease-" HEX "--4096", -EINVAL, 0 },
                { "lease-" HEX "-0x1000", -EINVAL, 0 },
                { "lease-" HEX "-4K", -EINVAL, 0 },
                { "lease-" HEX "-18446744073709551616", -EINVAL, 0 },
                { "lease-" HEX "-184467440737095516160", -EINVAL, 0 },
                { "lease-0011223344556677889-aabbccddeeff0-4096", -EINVAL, 0 },
                { "lease-00112233445566778899AABBCCDDEEFF-4096", -EINVAL, 0 },
                { "lease-" HEX "f-4096", -EINVAL, 0 },
                { "lease-" HEX "-4096", 0, 4096 },
                { "lease-" HEX "-1099511627776", 0, 1ull << 40 },
                { "lease-" HEX "-4096-", -EINVAL, 0 },
                { "lease-" HEX "-4096-token", -EINVAL, 0 },
                { "lease-" HEX "-18446744073709547520", 0, 18446744073709547520ull },
        };
        for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
                struct nbd_lease_name l;
                size_t len = strlen(t[i].name);
                /* so that a sanitizer sees a read beyond the end */
                char *exact = malloc(len + !len);
                assert_non_null(exact);
                memcpy(exact, t[i].name, len);
                int ret = nbd_lease_parse(exact, len, &l);
                if (ret != t[i].ret)
                        print_error("%s\n", t[i].name);
                assert_int_equal(ret, t[i].ret);
                if (ret == 0) {
                        assert_memory_equal(l.hex, HEX, NBD_LEASE_HEX);
                        assert_true(l.size == t[i].size);
                }
                free(exact);
        }
}

static void names_of_members(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                int ret;
                enum nbd_verb verb;
                struct nbd_who who;
        } t[] = {
                { "create-" HEX "-8192-1-1-1", 0, NBD_CREATE, { 1, 0, 1, false } },
                { "create-" HEX "-8192-18446744073709551615-4-4294967295", 0, NBD_CREATE,
                  { UINT64_MAX, 3, UINT32_MAX, false } },
                { "join-" HEX "-0123456789abcdef-7-2-3", 0, NBD_JOIN, { 7, 1, 3, false } },
                { "join-" HEX "-0123456789abcdef-7-2-3-", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8192-1-1-1-token", -EINVAL, 0, { 0 } },
                { "cut-" HEX "-0123456789abcdef-1.1", 0, NBD_CUT, { 0 } },
                { "cut-" HEX "-0123456789abcdef-1.1,3.9,12.18446744073709551615", 0, NBD_CUT,
                  { 0 } },
                { "cut-" HEX "-0123456789abcdef-1.1-t", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8192", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8192-0-1-1", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8192-1-0-1", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8192-1-5-1", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8192-1-1-0", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8192-1-1-4294967296", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8191-1-1-1", -EINVAL, 0, { 0 } },
                { "create-" HEX "-8192-1-1-1x", -EINVAL, 0, { 0 } },
                { "join-" HEX "-0123456789abcde-7-2-3", -EINVAL, 0, { 0 } },
                { "join-" HEX "-0123456789ABCDEF-7-2-3", -EINVAL, 0, { 0 } },
                { "join-" HEX "-0123456789abcdef-07-2-3", -EINVAL, 0, { 0 } },
                { "cut-" HEX "-0123456789abcdef-", -EINVAL, 0, { 0 } },
                { "cut-" HEX "-0123456789abcdef-1", -EINVAL, 0, { 0 } },
                { "cut-" HEX "-0123456789abcdef-0.1", -EINVAL, 0, { 0 } },
                { "cut-" HEX "-0123456789abcdef-2.1", -EINVAL, 0, { 0 } },
                { "cut-" HEX "-0123456789abcdef-1.1,", -EINVAL, 0, { 0 } },
                { "cut-" HEX "-0123456789abcdef-1.1;2.2", -EINVAL, 0, { 0 } },
        };
        for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
                struct nbd_lease_name l;
                size_t len = strlen(t[i].name);
                char *exact = malloc(len);
                memcpy(exact, t[i].name, len);
                int ret = nbd_lease_parse(exact, len, &l);
                if (ret != t[i].ret)
                        print_error("%s\n", t[i].name);
                assert_int_equal(ret, t[i].ret);
                if (ret == 0) {
                        assert_int_equal(l.verb, t[i].verb);
                        assert_true(l.who.member == t[i].who.member);
                        assert_int_equal(l.who.link, t[i].who.link);
                        assert_int_equal(l.who.generation, t[i].who.generation);
                }
                free(exact);
        }
}

static struct nbd_export *made(const char *name, char incarnation[17])
{
        struct nbd_export *e;
        char text[NBD_DESCRIPTION];

        assert_int_equal(attach(name, &e), 0);
        nbd_export_describe(e, text);
        assert_int_equal(sscanf(text, "incarnation %16s", incarnation), 1);
        assert_int_equal(strlen(incarnation), 16);
        return e;
}

/* A lease of members is made once.  A connection joins it only with its incarnation and with a
 * generation that is new, and as long as its member is not cut. */
static void members(void **state)
{
        (void)state;
        struct nbd_export *e, *f;
        char incarnation[17], other[17], name[200];
        uint64_t size;

        e = made("create-" HEX "-8192-1-1-1", incarnation);
        assert_true(nbd_export_current(e, &who));
        assert_int_equal(attach("create-" HEX "-8192-1-1-2", &f), NBD_REP_ERR_INVALID);
        assert_int_equal(attach("lease-" HEX "-8192", &f), NBD_REP_ERR_INVALID);
        snprintf(name, sizeof(name), "join-" HEX "-%s-1-1-1", incarnation);
        assert_int_equal(attach(name, &f), NBD_REP_ERR_POLICY); /* CREATE was that generation */
        snprintf(name, sizeof(name), "join-" HEX "-%s-1-1-3", incarnation);
        struct nbd_who first = who;
        assert_int_equal(attach(name, &f), 0);
        assert_ptr_equal(e, f);
        assert_true(nbd_export_current(e, &who));
        first = (struct nbd_who){ 1, 0, 1, false };
        assert_false(nbd_export_current(e, &first));
        nbd_export_detach(f);
        snprintf(name, sizeof(name), "join-" HEX "-%s-1-1-2", incarnation);
        assert_int_equal(attach(name, &f), NBD_REP_ERR_POLICY); /* it comes late */
        snprintf(name, sizeof(name), "join-" HEX "-%016x-1-1-9", 1);
        assert_int_equal(attach(name, &f), NBD_REP_ERR_UNKNOWN);
        snprintf(name, sizeof(name), "join-" OTHER "-%s-1-1-9", incarnation);
        assert_int_equal(attach(name, &f), NBD_REP_ERR_UNKNOWN);

        snprintf(name, sizeof(name), "join-" HEX "-%s-2-1-1", incarnation);
        assert_int_equal(attach(name, &f), 0);
        struct nbd_who second = who;
        nbd_export_detach(f);
        snprintf(name, sizeof(name), "cut-" HEX "-%s-2.2,5.7", incarnation);
        assert_int_equal(attach(name, &f), NBD_REP_ERR_INVALID);
        assert_int_equal(look(name, &size), 0);
        assert_int_equal(size, 8192);
        assert_false(nbd_export_current(e, &second));
        snprintf(name, sizeof(name), "join-" HEX "-%s-2-1-2", incarnation);
        assert_int_equal(attach(name, &f), NBD_REP_ERR_INVALID);
        snprintf(name, sizeof(name), "join-" HEX "-%s-6-3-1", incarnation);
        assert_int_equal(attach(name, &f), NBD_REP_ERR_INVALID);        /* before it ever came */
        snprintf(name, sizeof(name), "join-" HEX "-%s-8-3-1", incarnation);
        assert_int_equal(attach(name, &f), 0);
        nbd_export_detach(f);
        snprintf(name, sizeof(name), "cut-" HEX "-%016x-3.4", 1);
        assert_int_equal(look(name, &size), NBD_REP_ERR_UNKNOWN);
        nbd_export_leave(e);
        wait_accounts(0);

        /* This secret again, as from a request that was held back: another incarnation. */
        e = made("create-" HEX "-8192-1-1-1", other);
        assert_string_not_equal(incarnation, other);
        snprintf(name, sizeof(name), "join-" HEX "-%s-8-3-2", incarnation);
        assert_int_equal(attach(name, &f), NBD_REP_ERR_UNKNOWN);
        nbd_export_leave(e);
}

static void shared_and_freed(void **state)
{
        (void)state;
        struct nbd_export *a, *b, *c;
        uint64_t size;
        unsigned before = opened;

        assert_int_equal(look("lease-" HEX "-8192", &size), 0); /* takes nothing */
        assert_int_equal(size, 8192);
        assert_int_equal(opened, before);
        assert_int_equal(attach("lease-" HEX "-8192", &a), 0);
        assert_int_equal(a->size, 8192);
        memset(a->base, 0x5a, a->size);
        assert_int_equal(attach("lease-" HEX "-8192", &b), 0);
        assert_ptr_equal(a, b);
        assert_int_equal(attach("lease-" OTHER "-8192", &c), 0);
        assert_ptr_not_equal(a, c);
        assert_int_equal(c->base[0], 0);
        assert_int_equal(attach("lease-" HEX "-4096", &c), NBD_REP_ERR_INVALID);
        assert_int_equal(look("lease-" HEX "-4096", &size), NBD_REP_ERR_INVALID);
        assert_null(nbd_export_listed(0));
        assert_int_equal(attach("lease-" OTHER "-8192", &c), 0);
        nbd_export_detach(c);
        nbd_export_detach(c);

        nbd_export_detach(a);
        wait_accounts(1);               /* OTHER has gone; HEX is in use by b, however long */
        usleep(1500000);
        assert_int_equal(open_accounts(), 1);
        nbd_export_detach(b);
        /* within the grace time: the bytes are still there */
        assert_int_equal(attach("lease-" HEX "-8192", &a), 0);
        assert_int_equal(a->base[8191], 0x5a);
        usleep(1500000);                /* and the old time does not count any more */
        assert_int_equal(open_accounts(), 1);
        nbd_export_detach(a);
        wait_accounts(0);
        assert_int_equal(attach("lease-" HEX "-4096", &a), 0);  /* gone: any size */
        assert_int_equal(a->base[0], 0);
        nbd_export_detach(a);
}

/* Grace times that end in another order than they began. */
static void earlier_one_later(void **state)
{
        (void)state;
        struct nbd_export *a, *b;

        assert_int_equal(attach("lease-" HEX "-4096", &a), 0);
        assert_int_equal(attach("lease-" OTHER "-4096", &b), 0);
        opt.grace_ms = 3000;
        nbd_export_detach(a);
        opt.grace_ms = 50;
        nbd_export_detach(b);
        wait_accounts(1);
        assert_int_equal(attach("lease-" HEX "-4096", &a), 0);
        nbd_export_detach(a);
}

static void limits(void **state)
{
        (void)state;
        struct nbd_export *e;

        take_error = -EDQUOT;
        assert_int_equal(attach("lease-" HEX "-8192", &e), NBD_REP_ERR_POLICY);
        take_error = -ENOSPC;
        assert_int_equal(attach("lease-" HEX "-8192", &e), NBD_REP_ERR_POLICY);
        assert_int_equal(open_accounts(), 0);
        take_error = 0;                 /* nothing of it is left */
        assert_int_equal(attach("lease-" HEX "-4096", &e), 0);
        nbd_export_detach(e);
}

/* A party that is full makes nothing, and joins what is there. */
static void full(void **state)
{
        (void)state;
        struct nbd_export *e, *again;
        unsigned before = opened;

        crowds = true;
        assert_int_equal(attach("lease-" HEX "-4096", &e), NBD_REP_ERR_POLICY);
        assert_int_equal(attach("create-" HEX "-4096-1-1-1", &e), NBD_REP_ERR_POLICY);
        assert_int_equal(opened, before);
        crowds = false;
        assert_int_equal(attach("lease-" HEX "-4096", &e), 0);
        crowds = true;
        assert_int_equal(attach("lease-" HEX "-4096", &again), 0);
        crowds = false;
        nbd_export_detach(e);
        nbd_export_detach(e);
}

/* Several connections come at once: one makes the lease, all get it or all are refused. */
static void *attach_main(void *arg)
{
        struct nbd_export **e = arg;
        return (void *)(uintptr_t)attach("lease-" HEX "-8192", e);
}

static void at_once(void **state)
{
        (void)state;
        struct nbd_export *e[8];
        pthread_t id[8];

        take_ms = 50;
        for (int round = 0; round < 2; round++) {
                unsigned before = opened;
                take_error = round ? -ENOSPC : 0;
                for (int i = 0; i < 8; i++)
                        assert_int_equal(pthread_create(&id[i], NULL, attach_main, &e[i]), 0);
                for (int i = 0; i < 8; i++) {
                        void *error;
                        pthread_join(id[i], &error);
                        assert_int_equal((uintptr_t)error, round ? NBD_REP_ERR_POLICY : 0);
                        if (!round) {
                                assert_ptr_equal(e[i], e[0]);
                                nbd_export_detach(e[i]);
                        }
                }
                if (!round)
                        assert_int_equal(opened, before + 1);
                wait_accounts(0);
        }
}

static void named(void **state)
{
        (void)state;
        struct nbd_export *e, *d;
        uint64_t size;
        char why[200];

        assert_int_equal(attach("", &e), NBD_REP_ERR_UNKNOWN);
        opt.export[0].name = "first";
        opt.export[0].size = 10000;     /* not a whole number of pages */
        opt.export[1].name = "second";
        opt.export[1].size = 4096;
        opt.nexports = 2;
        take_error = -ENOSPC;
        assert_int_equal(nbd_exports_open(why, sizeof(why)), -ENOSPC);
        assert_non_null(strstr(why, "first"));
        assert_int_equal(open_accounts(), 0);
        take_error = 0;
        assert_int_equal(nbd_exports_open(why, sizeof(why)), 0);
        assert_int_equal(nbd_exports_open(why, sizeof(why)), 0);
        assert_int_equal(open_accounts(), 2);
        assert_string_equal(nbd_export_listed(0), "first");
        assert_string_equal(nbd_export_listed(1), "second");
        assert_null(nbd_export_listed(2));
        assert_int_equal(attach("", &d), 0);
        assert_int_equal(attach("first", &e), 0);
        assert_ptr_equal(d, e);
        assert_int_equal(e->size, 10000);
        assert_int_equal(look("second", &size), 0);
        assert_int_equal(size, 4096);
        assert_int_equal(attach("secon", &e), NBD_REP_ERR_UNKNOWN);
        assert_int_equal(attach("second2", &e), NBD_REP_ERR_UNKNOWN);
        assert_int_equal(look("third", &size), NBD_REP_ERR_UNKNOWN);
        nbd_export_detach(d);
        nbd_export_detach(d);
        usleep(200000);
        assert_int_equal(open_accounts(), 2);   /* they stay */
        nbd_exports_close();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names), cmocka_unit_test(names_of_members),
                cmocka_unit_test_setup_teardown(members, open_exports, close_exports),
                cmocka_unit_test_setup_teardown(shared_and_freed, open_exports, close_exports),
                cmocka_unit_test_setup_teardown(earlier_one_later, open_exports, close_exports),
                cmocka_unit_test_setup_teardown(limits, open_exports, close_exports),
                cmocka_unit_test_setup_teardown(full, open_exports, close_exports),
                cmocka_unit_test_setup_teardown(at_once, open_exports, close_exports),
                cmocka_unit_test_setup(named, open_exports),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
