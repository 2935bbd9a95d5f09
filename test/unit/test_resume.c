/*
 * The file in which leases outlive memnode.  It is read as it was written, byte for byte.  A file
 * is refused if a byte of it is changed, or its end is missing.  A file that says nonsense with the
 * right sums does no harm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "memnode/memnode.h"
#include "memnode/pool.h"
#include "memnode/resume.h"
#include "memnode/resume_read.h"
#include "memnode/resume_write.h"

#define POOL    (16ul << 20)
#define LEASES  4
#define LARGEST (1ul << 20)
#define PIECES  5

struct memnode_options opt;

static char path[64], why[256];
static struct resume_list wrote;
static struct resume_lease took[LEASES];
static struct resume_piece took_piece[LEASES][PIECES];
static unsigned ntook;
static unsigned lives;                  /* calls of alive() */

static void alive(void) { lives++; }

/* As memnode's: memory of zeros, and the members. */
static int take(struct resume_lease *l, char *text, size_t n)
{
        bool fits = ntook < LEASES && l->npieces <= PIECES;

        for (uint32_t k = 0; fits && k < l->npieces; k++)
                fits = l->piece[k].size <= LARGEST;
        if (!fits) {
                snprintf(text, n, "no room");
                return -ENOSPC;
        }
        for (uint32_t k = 0; k < l->npieces; k++) {
                l->piece[k].base = calloc(1, l->piece[k].size);
                assert_non_null(l->piece[k].base);
                took_piece[ntook][k] = l->piece[k];
        }
        took[ntook] = *l;
        took[ntook].piece = took_piece[ntook];
        ntook++;
        return 0;
}

static void forget(void)
{
        while (ntook) {
                const struct resume_lease *l = &took[--ntook];
                for (uint32_t k = 0; k < l->npieces; k++)
                        free(l->piece[k].base);
                members_free(&took[ntook].members);
        }
}

static int read_it(void)
{
        unsigned count;

        forget();
        *why = '\0';
        int err = resume_read(path, take, alive, &count, why, sizeof(why));
        assert_true(err ? *why != '\0' : count == ntook);
        return err;
}

static bool same_members(const struct members *a, const struct members *b)
{
        bool same = a->nknown == b->nknown && a->ncut == b->ncut;

        for (size_t i = 0; same && i < a->nknown; i++)
                same = a->known[i].number == b->known[i].number &&
                       a->known[i].awaited == b->known[i].awaited &&
                       memcmp(a->known[i].generation, b->known[i].generation,
                              sizeof(a->known[i].generation)) == 0;
        for (size_t i = 0; same && i < a->ncut; i++)
                same = a->cut[i].first == b->cut[i].first && a->cut[i].last == b->cut[i].last;
        return same;
}

static bool same_pieces(const struct resume_lease *a, const struct resume_lease *b)
{
        bool same = a->npieces == b->npieces;

        for (uint32_t k = 0; same && k < a->npieces; k++)
                same = a->piece[k].slab == b->piece[k].slab &&
                       a->piece[k].size == b->piece[k].size &&
                       memcmp(a->piece[k].base, b->piece[k].base, a->piece[k].size) == 0;
        return same;
}

static bool same_lease(const struct resume_lease *a, const struct resume_lease *b)
{
        return a->kind == b->kind && memcmp(a->digits, b->digits, RESUME_DIGITS) == 0 &&
               a->incarnation == b->incarnation && strcmp(a->name, b->name) == 0 &&
               strcmp(a->party, b->party) == 0 &&
               a->last_slab == b->last_slab && a->restarts == b->restarts && same_pieces(a, b) &&
               same_members(&a->members, &b->members);
}

/* The leases that were read are the first n that were written. */
static bool is_as_written(unsigned n)
{
        bool same = ntook == n;

        for (unsigned i = 0; same && i < n; i++)
                same = same_lease(&wrote.lease[i], &took[i]);
        return same;
}

static void make_members(struct members *m)
{
        for (unsigned i = 0; i < 20; i++)
                members_admit(m, 1 + (uint64_t)rand() % 40, (unsigned)rand() % MEMBER_LINKS,
                              1 + (uint32_t)rand());
        for (unsigned i = 0; i < 6; i++) {
                uint64_t first = 1 + (uint64_t)rand() % 60;
                members_cut(m, first, first + (uint64_t)rand() % 3);
        }
        members_await(m, 1 + (uint64_t)rand() % 40);
}

/* Memory of that size in the pool, some of whose pages were written. */
static struct resume_piece piece(uint64_t slab, uint64_t size)
{
        struct resume_piece p = { .slab = slab, .size = size, .base = pool_alloc(size) };

        assert_non_null(p.base);
        for (unsigned i = 0; i < 8; i++)
                p.base[(uint64_t)rand() % size] = (char)rand();
        return p;
}

static struct resume_lease lease(enum resume_kind kind)
{
        struct resume_lease l = { .kind = kind,
                                  .incarnation = 1 + (uint64_t)rand() };

        for (unsigned i = 0; i < RESUME_DIGITS; i++)
                l.digits[i] = "0123456789abcdef"[rand() % 16];
        memset(l.party, 'p', (size_t)rand() % RESUME_PARTY);
        make_members(&l.members);
        return l;
}

/* One over NBD, of that size. */
static void make(uint64_t size)
{
        struct resume_lease l = lease(RESUME_NBD);
        struct resume_piece p = piece(0, size);

        assert_int_equal(resume_add(&wrote, &l, &p, 1), 0);
}

/* Makes a client over RDMA, with n slabs of at most that size. */
static void make_client(uint32_t n, uint64_t size)
{
        struct resume_lease l = lease(RESUME_RDMA);
        struct resume_piece p[PIECES];

        l.restarts = (uint32_t)rand();
        snprintf(l.name, sizeof(l.name), "host:program %d", rand() % 100);
        for (uint32_t k = 0; k < n; k++)
                p[k] = piece(++l.last_slab, 4096 * (1 + (uint64_t)rand() % (size / 4096)));
        l.last_slab += (uint64_t)rand() % 3;
        assert_int_equal(resume_add(&wrote, &l, p, n), 0);
}

static void write_them(void)
{
        assert_int_equal(resume_write(path, &wrote, alive, why, sizeof(why)), 0);
}

static void drop(void)
{
        for (unsigned i = 0; i < wrote.count; i++) {
                struct resume_lease *l = &wrote.lease[i];
                for (uint32_t k = 0; k < l->npieces; k++)
                        pool_free(l->piece[k].base, l->piece[k].size);
                members_free(&l->members);
        }
        resume_list_free(&wrote);
        forget();
        unlink(path);
}

static int setup(void **state)
{
        (void)state;
        snprintf(path, sizeof(path), "test_resume.%d", getpid());
        return pool_open(POOL, 4096, why, sizeof(why));
}
static int teardown(void **state)
{
        (void)state;
        unlink(path);
        pool_close();
        return 0;
}

/* ---- The file as bytes ---- */

static unsigned char *bytes;
static size_t length;

static void load(void)
{
        struct stat st;
        int fd = open(path, O_RDONLY);

        assert_true(fd >= 0 && fstat(fd, &st) == 0);
        length = (size_t)st.st_size;
        bytes = malloc(length);
        assert_true(bytes && read(fd, bytes, length) == st.st_size);
        close(fd);
}

static void store(size_t n)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
        close(fd);
}

static void put_at(size_t at, const void *from, size_t n)
{
        int fd = open(path, O_WRONLY);

        assert_true(fd >= 0 && pwrite(fd, from, n, (off_t)at) == (ssize_t)n);
        close(fd);
}

/* ---- Tests ---- */

static void what_was_written_is_read(void **state)
{
        (void)state;
        for (unsigned round = 0; round < 15; round++) {
                unsigned n = 1 + (unsigned)rand() % LEASES;
                for (unsigned i = 0; i < n; i++)
                        if (rand() % 2)
                                make(4096 * (1 + (uint64_t)rand() % (LARGEST / 4096)));
                        else
                                make_client(1 + (uint32_t)rand() % PIECES, LARGEST / 2);
                write_them();
                assert_int_equal(read_it(), 0);
                assert_true(is_as_written(n));
                assert_false(is_as_written(n - 1));
                drop();
        }
        assert_true(lives > 50);
}

/* Runs are of blocks that hold something, and no longer than they may be. */
static void only_what_holds_something_is_written(void **state)
{
        struct stat st;

        (void)state;
        make(LARGEST);
        char *base = wrote.lease[0].piece[0].base;
        memset(base, 0, LARGEST);
        write_them();
        assert_true(stat(path, &st) == 0 && st.st_size < 4096);
        assert_int_equal(st.st_mode & 07777, 0600);
        base[LARGEST - 1] = 1;
        write_them();
        assert_true(stat(path, &st) == 0 && st.st_size < 70000 && st.st_size > 65536);
        assert_int_equal(read_it(), 0);
        assert_true(is_as_written(1));
        drop();
}

static void no_file_is_no_lease(void **state)
{
        (void)state;
        assert_int_equal(read_it(), 0);
        assert_int_equal(ntook, 0);
}

static void a_byte_that_is_wrong_is_found(void **state)
{
        (void)state;
        make(8192);
        make_client(2, 4096);
        write_them();
        load();
        for (size_t at = 0; at < length; at++) {
                unsigned char wrong = bytes[at] ^ (unsigned char)(1 + rand() % 255);
                put_at(at, &wrong, 1);
                assert_true(read_it() < 0);
                put_at(at, &bytes[at], 1);
        }
        assert_int_equal(read_it(), 0);
        assert_true(is_as_written(2));
        free(bytes);
        drop();
}

static void an_end_that_is_missing_is_found(void **state)
{
        (void)state;
        make_client(2, 8192);
        write_them();
        load();
        for (size_t n = length; n-- > 0; ) {
                assert_int_equal(truncate(path, (off_t)n), 0);
                assert_true(read_it() < 0);
        }
        store(length);
        int fd = open(path, O_WRONLY | O_APPEND);
        assert_int_equal(write(fd, "", 1), 1);
        close(fd);
        assert_true(read_it() < 0);
        free(bytes);
        drop();
}

static void correct_sums(void)
{
        struct resume_head h;

        memcpy(&h, bytes, sizeof(h));
        if (h.words_at <= length && h.words_bytes <= length - h.words_at)
                h.words_sum = resume_sum(0, bytes + h.words_at, h.words_bytes);
        h.sum = resume_sum(0, &h, offsetof(struct resume_head, sum));
        memcpy(bytes, &h, sizeof(h));
}

/* Any value at any place of what it says of leases.  Numbers that are very large or very small are
 * the worst. */
static void nonsense_with_the_right_sums_does_no_harm(void **state)
{
        static const uint64_t odd[] = { 0, 1, 4096, 4097, UINT32_MAX, INT64_MAX, UINT64_MAX };
        unsigned refused = 0;

        (void)state;
        make(8192);
        make_client(2, 4096);
        write_them();
        load();
        unsigned char *good = malloc(length);
        assert_non_null(good);
        memcpy(good, bytes, length);
        struct resume_head h;
        memcpy(&h, good, sizeof(h));
        for (unsigned round = 0; round < 20000; round++) {
                memcpy(bytes, good, length);
                for (int i = 1 + rand() % 3; i > 0; i--) {
                        size_t at = (uint64_t)rand() % (h.words_bytes / 8) * 8;
                        uint64_t v = rand() % 2 ? odd[(unsigned)rand() % 7] : (uint64_t)rand();
                        /* now and then in the head */
                        at += rand() % 8 ? h.words_at : 0;
                        memcpy(bytes + (at < length - 8 ? at : 8), &v, rand() % 3 ? 8 : 4);
                }
                correct_sums();
                store(length);
                refused += read_it() < 0;
        }
        assert_true(refused > 10000);
        free(good);
        free(bytes);
        drop();
}

static void files_of_others_are_refused(void **state)
{
        char other[80];

        (void)state;
        make(4096);
        write_them();
        assert_int_equal(chmod(path, 0644), 0);
        assert_int_equal(read_it(), -EACCES);
        assert_int_equal(chmod(path, 0600), 0);
        snprintf(other, sizeof(other), "%s.link", path);
        assert_int_equal(rename(path, other), 0);
        assert_int_equal(symlink(other, path), 0);
        assert_int_equal(read_it(), -ELOOP);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rename(other, path), 0);
        assert_int_equal(read_it(), 0);
        drop();
}

static void one_at_a_time_uses_it(void **state)
{
        char name[80];

        (void)state;
        assert_int_equal(resume_lock(path, why, sizeof(why)), 0);
        assert_int_equal(resume_lock(path, why, sizeof(why)), -EWOULDBLOCK);
        make(4096);
        write_them();
        assert_int_equal(resume_remove(path, why, sizeof(why)), 0);
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(resume_remove(path, why, sizeof(why)), 0);
        drop();
        snprintf(name, sizeof(name), "%s.lock", path);
        unlink(name);
}

static void what_cannot_be_written_is_no_file(void **state)
{
        (void)state;
        make(4096);
        assert_true(resume_write("/proc/none/file", &wrote, alive, why, sizeof(why)) < 0);
        assert_non_null(strstr(why, "cannot be written"));
        assert_true(resume_lock("/proc/none/file", why, sizeof(why)) < 0);
        assert_true(resume_remove("/proc", why, sizeof(why)) < 0);
        assert_non_null(strstr(why, "cannot be removed"));
        drop();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_was_written_is_read),
                cmocka_unit_test(only_what_holds_something_is_written),
                cmocka_unit_test(no_file_is_no_lease),
                cmocka_unit_test(a_byte_that_is_wrong_is_found),
                cmocka_unit_test(an_end_that_is_missing_is_found),
                cmocka_unit_test(nonsense_with_the_right_sums_does_no_harm),
                cmocka_unit_test(files_of_others_are_refused),
                cmocka_unit_test(one_at_a_time_uses_it),
                cmocka_unit_test(what_cannot_be_written_is_no_file),
        };
        srand(1);
        return cmocka_run_group_tests(tests, setup, teardown);
}
