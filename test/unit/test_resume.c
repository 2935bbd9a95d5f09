/*
 * The file in which leases outlive memnode: what was written is read, byte for byte; a file is
 * refused if a byte of it is changed, or its end is missing; and one that says nonsense with the
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

#define POOL    (16ul << 20)
#define LEASES  4
#define LARGEST (1ul << 20)

struct memnode_options opt;

static char path[64], why[256];
static struct resume_lease wrote[LEASES], took[LEASES];
static unsigned ntook;
static unsigned lives;                  /* calls of alive() */

static void alive(void) { lives++; }

/* As memnode's: memory of zeros, and the members. */
static int take(struct resume_lease *l, char *text, size_t n)
{
        if (ntook == LEASES || l->size > LARGEST) {
                snprintf(text, n, "no room");
                return -ENOSPC;
        }
        l->base = calloc(1, l->size);
        assert_non_null(l->base);
        took[ntook++] = *l;
        return 0;
}

static void forget(void)
{
        while (ntook) {
                free(took[--ntook].base);
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

static bool is_as_written(unsigned n)
{
        bool same = ntook == n;

        for (unsigned i = 0; same && i < n; i++)
                same = memcmp(wrote[i].digits, took[i].digits, RESUME_DIGITS) == 0 &&
                       wrote[i].incarnation == took[i].incarnation &&
                       wrote[i].size == took[i].size &&
                       memcmp(wrote[i].base, took[i].base, wrote[i].size) == 0 &&
                       same_members(&wrote[i].members, &took[i].members);
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

/* A lease of that size in the pool, some of whose pages were written. */
static void make(struct resume_lease *l, uint64_t size)
{
        *l = (struct resume_lease){ .incarnation = 1 + (uint64_t)rand(), .size = size };
        for (unsigned i = 0; i < RESUME_DIGITS; i++)
                l->digits[i] = "0123456789abcdef"[rand() % 16];
        l->base = pool_alloc(size);
        assert_non_null(l->base);
        make_members(&l->members);
        for (unsigned i = 0; i < 8; i++)
                l->base[(uint64_t)rand() % size] = (char)rand();
}

static void write_them(unsigned n)
{
        assert_int_equal(resume_write(path, wrote, n, alive, why, sizeof(why)), 0);
}

static void drop(unsigned n)
{
        while (n--) {
                pool_free(wrote[n].base, wrote[n].size);
                members_free(&wrote[n].members);
        }
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
                        make(&wrote[i], 4096 * (1 + (uint64_t)rand() % (LARGEST / 4096)));
                write_them(n);
                assert_int_equal(read_it(), 0);
                assert_true(is_as_written(n));
                assert_false(is_as_written(n - 1));
                drop(n);
        }
        assert_true(lives > 50);
}

/* Runs are of blocks that hold something, and no longer than they may be. */
static void only_what_holds_something_is_written(void **state)
{
        struct stat st;

        (void)state;
        make(&wrote[0], LARGEST);
        memset(wrote[0].base, 0, LARGEST);
        write_them(1);
        assert_true(stat(path, &st) == 0 && st.st_size < 4096);
        assert_int_equal(st.st_mode & 07777, 0600);
        wrote[0].base[LARGEST - 1] = 1;
        write_them(1);
        assert_true(stat(path, &st) == 0 && st.st_size < 70000 && st.st_size > 65536);
        assert_int_equal(read_it(), 0);
        assert_true(is_as_written(1));
        drop(1);
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
        make(&wrote[0], 8192);
        make(&wrote[1], 4096);
        write_them(2);
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
        drop(2);
}

static void an_end_that_is_missing_is_found(void **state)
{
        (void)state;
        make(&wrote[0], 8192);
        write_them(1);
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
        drop(1);
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
        make(&wrote[0], 8192);
        make(&wrote[1], 4096);
        write_them(2);
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
        drop(2);
}

static void files_of_others_are_refused(void **state)
{
        char other[80];

        (void)state;
        make(&wrote[0], 4096);
        write_them(1);
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
        drop(1);
}

static void one_at_a_time_uses_it(void **state)
{
        char name[80];

        (void)state;
        assert_int_equal(resume_lock(path, why, sizeof(why)), 0);
        assert_int_equal(resume_lock(path, why, sizeof(why)), -EWOULDBLOCK);
        make(&wrote[0], 4096);
        write_them(1);
        assert_int_equal(resume_remove(path, why, sizeof(why)), 0);
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(resume_remove(path, why, sizeof(why)), 0);
        drop(1);
        snprintf(name, sizeof(name), "%s.lock", path);
        unlink(name);
}

static void what_cannot_be_written_is_no_file(void **state)
{
        (void)state;
        make(&wrote[0], 4096);
        assert_true(resume_write("/proc/none/file", wrote, 1, alive, why, sizeof(why)) < 0);
        assert_non_null(strstr(why, "cannot be written"));
        assert_true(resume_lock("/proc/none/file", why, sizeof(why)) < 0);
        assert_true(resume_remove("/proc", why, sizeof(why)) < 0);
        assert_non_null(strstr(why, "cannot be removed"));
        drop(1);
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
