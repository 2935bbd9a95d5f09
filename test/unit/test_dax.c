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
#include "base/privfd.h"
#include "base/host.h"
#include "far/window.h"

/* --- what the runtime's files need from elsewhere --- */

struct options opt;
static int memory_error;
uint64_t host_memory_total(void) { return 64ull << 30; }
uint64_t host_memory_available(void) { return 48ull << 30; }
bool host_number(const char *path, uint64_t *v) { (void)path, (void)v; return false; }
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

static char folder[] = "/tmp/vmrun-test.XXXXXX", path[64];
static char why[FAR_WHY];

static void make_file(uint64_t bytes)
{
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        close(fd);
}

static struct node_option o = { .url = "dax:file", .weight = 1 };

static int open_node(struct far_node *n, const char *file)
{
        *n = (struct far_node){ .driver = &far_dax, .option = &o, .url = o.url };
        why[0] = 0;
        return far_dax.open(n, file, why);
}

static void refused(const char *file, int err, const char *words)
{
        struct far_node n;
        assert_int_equal(open_node(&n, file), err);
        if (!strstr(why, words) || strlen(why) + 1 >= FAR_WHY)
                fail_msg("'%s' instead of '%s'", why, words);
        assert_int_equal(privfd_next(0), -1);
}

static void files(void **state)
{
        struct far_node n, second;
        struct slab s[3];
        char text[256];

        (void)state;
        make_file(40 << 20);
        assert_int_equal(open_node(&n, path), 0);
        assert_int_equal(n.pages + n.kept, 40 << 8);
        assert_int_equal(n.kept, 1);
        assert_int_equal(n.granule, 0);
        far_dax.describe(&n, text, sizeof(text));
        assert_non_null(strstr(text, "40.0M of a file"));               /* one page less */

        /* Locked, also against this very process; free again when closed. */
        assert_int_equal(open_node(&second, path), -EWOULDBLOCK);
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
        far_dax.close(&n);
        assert_int_equal(privfd_next(0), -1);
        assert_int_equal(open_node(&n, path), -EWOULDBLOCK);
        munmap((void *)FAR_WINDOW, 64 << 20);
        assert_int_equal(open_node(&n, path), 0);
        far_dax.close(&n);
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
                if (open_node(&n, path) != 0 || write(ready[1], &byte, 1) != 1)
                        _exit(1);
                pause();
        }
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(open_node(&n, path), -EWOULDBLOCK);
        snprintf(expect, sizeof(expect), "process %d (big-job) uses it: wait for its end", pid);
        assert_non_null(strstr(why, expect));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(open_node(&n, path), 0);
        far_dax.close(&n);
        close(ready[0]);
        close(ready[1]);
}

static void no_files(void **state)
{
        char other[80];

        (void)state;
        refused("", -EINVAL, "give dax:PATH");
        refused("/no/such/file", -ENOENT, "no such file: make it");
        refused("/dev/null/x", -ENOTDIR, "no such file");
        refused(folder, -EISDIR, "it is a directory");
        refused("/dev/zero", -ENODEV, "no DAX device");
        refused("/dev/null", -ENODEV, "no DAX device");
        if (geteuid() != 0)                                     /* root may open everything */
                refused("/proc/version", -EACCES, "cannot be written");
        make_file(0);
        refused(path, -EINVAL, "too small with 0: make it larger");
        make_file(4096);
        refused(path, -EINVAL,
                "too small with 4K: make it larger"); /* the mark's page is all of it */
        make_file(4097);
        refused(path, -EINVAL, "4097 bytes, is no multiple of 4K");
        make_file(100);
        refused(path, -EINVAL, "no multiple of 4K");
        snprintf(other, sizeof(other), "%s/fifo", folder);
        assert_int_equal(mkfifo(other, 0600), 0);
        refused(other, -EINVAL, "neither a file nor a DAX device");
        unlink(other);
        make_file(1 << 20);
        chmod(path, 0400);
        if (geteuid() != 0)
                refused(path, -EACCES, "cannot be written");
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
        refused(path, -EEXIST, "data in it that vmrun did not write");
        assert_non_null(strstr(why, "?overwrite=yes"));
        make_file(4097); /* nor is it told how to make such a file fit */
        write_at(4096, "x");
        refused(path, -EEXIST, "data in it that vmrun did not write");
        make_file(1 << 20);
        write_at(500 << 10, "precious");                        /* behind a hole */
        refused(path, -EEXIST, "data in it that vmrun did not write");

        /* The file stays as it was until a slab of it is leased. */
        o.overwrite = true;
        assert_int_equal(open_node(&n, path), 0);
        far_dax.close(&n);
        o.overwrite = false;
        refused(path, -EEXIST, "data in it that vmrun did not write");

        o.overwrite = true;
        write_at(0, "precious");
        assert_int_equal(open_node(&n, path), 0);
        assert_int_equal(far_dax.lease(&n, NULL, 0, 255, &s, NULL), 0);
        assert_true(starts_with("precious"));                   /* no slot was written */
        memset((void *)s.va, 'P', 255 << 12);                   /* all of them */
        munmap((void *)s.va, 255 << 12);
        far_dax.close(&n);
        o.overwrite = false;
        assert_int_equal(open_node(&n, path), 0);               /* marked */
        far_dax.close(&n);

        /* cp makes another file of it, although its inode stays: the new file has no mark. */
        assert_int_equal(truncate(path, 0), 0);
        assert_int_equal(truncate(path, 1 << 20), 0);
        write_at(0, "precious");
        refused(path, -EEXIST, "data in it that vmrun did not write");

        /* Blocks that are set aside are no data. */
        make_file(1 << 20);
        int fd = open(path, O_RDWR);
        assert_int_equal(posix_fallocate(fd, 0, 1 << 20), 0);
        close(fd);
        assert_int_equal(stat(path, &st), 0);
        assert_true(st.st_blocks * 512 >= 1 << 20);
        assert_int_equal(open_node(&n, path), 0);
        far_dax.close(&n);
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
        if (!mkdtemp(folder)) {
                perror(folder);
                return 99;
        }
        snprintf(path, sizeof(path), "%s/file", folder);
        privfd_init();
        const struct CMUnitTest tests[] = { cmocka_unit_test(files), cmocka_unit_test(holder),
                                            cmocka_unit_test(no_files),
                                            cmocka_unit_test(others_data),
                                            cmocka_unit_test(alignment) };
        int failed = cmocka_run_group_tests_name("dax", tests, NULL, NULL);
        unlink(path);
        rmdir(folder);
        return failed;
}
