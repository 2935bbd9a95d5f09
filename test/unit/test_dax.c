/*
 * dax:PATH: which files it takes, that slabs are where they should be, and what is said of the
 * others.  And the window that it shares with mem:, with its alignment.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/host.h"
#include "far/window.h"
#include "file_node.h"
#include "test/drivers/conformance.h"

#define PAGES 2048u
#define DEPTH 200u

/* --- what the runtime's files need from elsewhere --- */

static int memory_error;
uint64_t host_memory_total(void) { return 64ull << 30; }
uint64_t host_memory_available(void) { return 48ull << 30; }
const char *host_memory_limit(void) { return NULL; }
bool host_number(const char *path, uint64_t *v) { (void)path, (void)v; return false; }
void info_(const char *fmt, ...) { (void)fmt; }
void die_(int status, const char *fmt, ...) { (void)fmt; _exit(status); }
uint64_t vm_take_gpa(struct vm *vm, uint64_t size)
{
        static uint64_t next = 1ull << 32;
        (void)vm;
        next += size;
        return next - size;
}
int vm_add_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size)
{
        (void)vm, (void)gpa, (void)host, (void)size;
        return memory_error;
}

static struct node_option *const o = &file_nodes.option;
static const char *const path = file_nodes.path, *const folder = file_nodes.folder;
static const char *const why = file_nodes.why;

static void make_file(uint64_t bytes)
{
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        close(fd);
}

/* A mapped slab keeps the lock of its file. */
static void unmap_all(void) { munmap((void *)FAR_WINDOW, 1 << 30); }

static void files(void **state)
{
        struct far_node n, second;
        struct slab s[3];
        char text[256];

        (void)state;
        make_file(40 << 20);
        assert_int_equal(file_node_open(&n, path), 0);
        assert_int_equal(n.pages + n.kept, 40 << 8);
        assert_int_equal(n.kept, 1);
        assert_int_equal(n.granule, 0);
        far_dax.describe(&n, text, sizeof(text));
        assert_non_null(strstr(text, "40.0M of a file"));               /* one page less */

        /* Locked, also against this very process; free again when closed. */
        assert_int_equal(file_node_open(&second, path), -EWOULDBLOCK);
        assert_non_null(strstr(why, "another node of this vmrun uses it"));

        /* The slabs are the file, page by page, and one behind the other. */
        const uint32_t pages[] = { 4096, 4096, 2047 };
        uint64_t first = 0;
        for (int i = 0; i < 3; i++) {
                assert_int_equal(far_dax.lease(&n, NULL, first, pages[i], &s[i], NULL), 0);
                assert_int_equal(s[i].va % (2 << 20), 0);
                for (uint32_t p = 0; p < pages[i]; p += 256)
                        *(volatile uint64_t *)(s[i].va + p * 4096ull) = first + p + 1;
                first += pages[i];
        }
        int fd = open(path, O_RDONLY);
        for (uint64_t p = 0; p < first; p += 256) {
                uint64_t v;
                assert_int_equal(pread(fd, &v, 8, (off_t)(p * 4096)), 8);
                assert_int_equal(v, p + 1);
        }
        struct stat st;
        assert_int_equal(fstat(fd, &st), 0);
        /* allocated when leased, not when written */
        assert_true(st.st_blocks * 512 >= 40 << 20);
        close(fd);

        /* Memory that KVM refuses is not mapped: its place is free for the next. */
        memory_error = -EINVAL;
        assert_int_equal(far_dax.lease(&n, NULL, 0, 512, &s[0], NULL), -EINVAL);
        memory_error = 0;
        assert_int_equal(far_dax.lease(&n, NULL, 0, 512, &s[0], NULL), 0);
        assert_int_equal(s[0].va, s[2].va + (2048 << 12));      /* rounded up to 2 MiB */
        assert_int_equal(*(uint64_t *)s[0].va, 1);              /* nothing zeroes it */

        /* The lock stays as long as any of it is mapped. */
        file_node_close(&n);
        assert_int_equal(file_node_open(&n, path), -EWOULDBLOCK);
        unmap_all();
        assert_int_equal(file_node_open(&n, path), 0);
        file_node_close(&n);
}

/* The message names the owner. */
static void holder(void **state)
{
        struct far_node n;
        char expect[64];
        int ready[2];
        char byte = 0;

        (void)state;
        make_file(1 << 20);
        assert_int_equal(pipe(ready), 0);
        pid_t pid = fork();
        if (pid == 0) {
                prctl(PR_SET_NAME, "big-job");
                if (file_node_open(&n, path) != 0 || write(ready[1], &byte, 1) != 1)
                        _exit(1);
                pause();
        }
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(file_node_open(&n, path), -EWOULDBLOCK);
        snprintf(expect, sizeof(expect), "process %d (big-job) uses it: wait for its end", pid);
        assert_non_null(strstr(why, expect));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(file_node_open(&n, path), 0);
        file_node_close(&n);
        close(ready[0]);
        close(ready[1]);
}

static void no_files(void **state)
{
        char other[80];

        (void)state;
        file_node_refused("", -EINVAL, "give dax:PATH");
        file_node_refused("/no/such/file", -ENOENT, "no such file: make it");
        file_node_refused("/dev/null/x", -ENOTDIR, "no such file");
        file_node_refused(folder, -EISDIR, "it is a directory");
        file_node_refused("/dev/zero", -ENODEV, "no DAX device");
        file_node_refused("/dev/null", -ENODEV, "no DAX device");
        if (geteuid() != 0)                                     /* root may open everything */
                file_node_refused("/proc/version", -EACCES, "cannot be written");
        make_file(0);
        file_node_refused(path, -EINVAL, "too small with 0: make it larger");
        make_file(4096);
        file_node_refused(path, -EINVAL,
                "too small with 4K: make it larger"); /* the mark's page is all of it */
        make_file(4097);
        file_node_refused(path, -EINVAL, "4097 bytes, is no multiple of 4K");
        make_file(100);
        file_node_refused(path, -EINVAL, "no multiple of 4K");
        snprintf(other, sizeof(other), "%s/fifo", folder);
        assert_int_equal(mkfifo(other, 0600), 0);
        file_node_refused(other, -EINVAL, "neither a file nor a DAX device");
        unlink(other);
        make_file(1 << 20);
        chmod(path, 0400);
        if (geteuid() != 0)
                file_node_refused(path, -EACCES, "cannot be written");
}

static void write_at(off_t at, const char *text)
{
        int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, text, strlen(text), at), strlen(text));
        close(fd);
}

static bool starts_with(const char *text)
{
        char found[64] = "";
        int fd = open(path, O_RDONLY);
        assert_true(pread(fd, found, strlen(text), 0) >= 0);
        close(fd);
        return strcmp(found, text) == 0;
}

/* Data of others is not overwritten, unless the user allows it. vmrun recognises its own data. */
static void others_data(void **state)
{
        struct far_node n;
        struct slab s;
        struct stat st;

        (void)state;
        make_file(1 << 20);
        write_at(0, "precious");
        file_node_refused(path, -EEXIST, "data in it that vmrun did not write");
        assert_non_null(strstr(why, "?overwrite=yes"));
        make_file(4097); /* nor is it told how to make such a file fit */
        write_at(4096, "x");
        file_node_refused(path, -EEXIST, "data in it that vmrun did not write");
        make_file(1 << 20);
        write_at(500 << 10, "precious");                        /* behind a hole */
        file_node_refused(path, -EEXIST, "data in it that vmrun did not write");

        /* The file stays as it was until a slab of it is leased. */
        o->overwrite = true;
        assert_int_equal(file_node_open(&n, path), 0);
        file_node_close(&n);
        o->overwrite = false;
        file_node_refused(path, -EEXIST, "data in it that vmrun did not write");

        o->overwrite = true;
        write_at(0, "precious");
        assert_int_equal(file_node_open(&n, path), 0);
        assert_int_equal(far_dax.lease(&n, NULL, 0, 255, &s, NULL), 0);
        assert_true(starts_with("precious"));                   /* no slot was written */
        memset((void *)s.va, 'P', 255 << 12);                   /* all of them */
        munmap((void *)s.va, 255 << 12);
        file_node_close(&n);
        o->overwrite = false;
        assert_int_equal(file_node_open(&n, path), 0);               /* marked */
        file_node_close(&n);

        /* cp makes another file of it, although its inode stays: the new file has no mark. */
        assert_int_equal(truncate(path, 0), 0);
        assert_int_equal(truncate(path, 1 << 20), 0);
        write_at(0, "precious");
        file_node_refused(path, -EEXIST, "data in it that vmrun did not write");

        /* Blocks that are set aside are no data. */
        make_file(1 << 20);
        int fd = open(path, O_RDWR);
        assert_int_equal(posix_fallocate(fd, 0, 1 << 20), 0);
        close(fd);
        assert_int_equal(stat(path, &st), 0);
        assert_true(st.st_blocks * 512 >= 1 << 20);
        assert_int_equal(file_node_open(&n, path), 0);
        file_node_close(&n);
}

/* As kern uses it: any page in any order; in a child of fork; and in the next program. */
static void use(struct far_node *n)
{
        static const struct traffic traffic = { .count = 20000, .run = 48 };
        struct far_node next;

        assert_int_equal(n->pages, PAGES);
        harness_start(n, PAGES, PAGES / 2);
        conform_traffic(&traffic);
        conform_read_back();
        conform_child();
        assert_true(conform_kept(&next));
        free(n->data);
        file_node_close(&next);
        unmap_all();
}

static void pages(void **state)
{
        struct far_node n;

        (void)state;
        make_file((PAGES + 1) * PAGE_SIZE);
        assert_int_equal(file_node_open(&n, path), 0);
        use(&n);
}

/* mem: has no file, but the size in its place. */
static void memory(void **state)
{
        struct far_node n;

        (void)state;
        file_nodes.driver = &far_mem;
        assert_int_equal(file_node_open(&n, "8M"), 0);
        use(&n);
        file_nodes.driver = &far_dax;
}

/* Mappings of large pages begin at multiples of them, whatever is in the window. */
static void alignment(void **state)
{
        struct slab s;

        (void)state;
        int fd = memfd_create("window", MFD_CLOEXEC);
        assert_int_equal(ftruncate(fd, 4ll << 30), 0);
        assert_int_equal(window_map(NULL, fd, 0, 1, 0, &s), 0);
        uint64_t end = s.va + (2 << 20);
        assert_int_equal(window_map(NULL, fd, 0, 1 << 18, 1 << 30, &s), 0);
        assert_int_equal(s.va % (1 << 30), 0);
        assert_in_range(s.va - end, 0, (1 << 30) - 1);
        end = s.va + (1 << 30);
        assert_int_equal(window_map(NULL, fd, 0, 512, 2 << 20, &s), 0);
        assert_int_equal(s.va, end);
        /* It ends somewhere. */
        assert_int_equal(ftruncate(fd, 1ll << 30), 0);
        int err, count = 0;
        while ((err = window_map(NULL, fd, 0, 1 << 18, 1 << 30, &s)) == 0)
                assert_true(++count < 4096);
        assert_int_equal(err, -ENOSPC);
        assert_true(s.va + (1 << 30) <= FAR_WINDOW_END);
        close(fd);
}

int main(void)
{
        if (!file_nodes_init(&far_dax, "/tmp/vmrun-test.XXXXXX")) {
                perror("/tmp");
                return 99;
        }
        harness_init(DEPTH, PAGES);
        const struct CMUnitTest tests[] = { cmocka_unit_test(files), cmocka_unit_test(pages),
                                            cmocka_unit_test(memory),
                                            cmocka_unit_test(holder),
                                            cmocka_unit_test(no_files),
                                            cmocka_unit_test(others_data),
                                            cmocka_unit_test(alignment) };
        int failed = cmocka_run_group_tests_name("dax", tests, NULL, NULL);
        harness_end();
        file_nodes_end();
        return failed;
}
