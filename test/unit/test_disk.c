/*
 * file:PATH: which files it takes, that each page comes back as it was written last, and what
 * becomes of transfers that fail.  On a real file of the folder where the test runs, driven as the
 * I/O thread drives it.
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
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/clock.h"
#include "far/file/disk.h"
#include "file_node.h"
#include "test/drivers/conformance.h"

#define MIB   (1u << 20)
#define PAGES 2048u                     /* of the node that most tests use, in two slabs */
#define HALF  (PAGES / 2)
#define DEPTH 200u
#define PATIENT 15000                   /* --timeout, ms: longer than a busy disk takes */

extern const struct far_driver *const far_module[];
static struct node_option *const o = &file_nodes.option;
static const char *const path = file_nodes.path, *const folder = file_nodes.folder;
static const char *const why = file_nodes.why;

/* A node of PAGES pages in a file that is made for it. */
static void make_node(struct far_node *n)
{
        *o = (struct node_option){ .size = (PAGES + 1) * (uint64_t)PAGE_SIZE };
        assert_int_equal(file_node_open(n, path), 0);
        assert_int_equal(n->pages, PAGES);
        harness_start(n, PAGES, HALF);
        conform_lease_end();
}

/* --- tests --- */

/* With something under way, the driver says when it must be polled at the latest. */
static void deadline(void **state)
{
        struct far_request *r;
        struct pollfd fds[4];
        struct far_node n;
        int ms = -1;

        (void)state;
        make_node(&n);
        r = harness_request(FAR_WRITE, 0);
        harness_post(&r, 1);
        assert_int_equal(n.driver->arm(&n, fds, 4, &ms), 1);
        assert_in_range(ms, 1, 1000);
        harness_settle();
        file_node_close(&n);
        unlink(path);
}

/* What is read is what was written last, also a part of a page. */
static void transfers(void **state)
{
        static const struct traffic traffic = { .count = 20000, .run = 48 };
        struct far_node n;

        (void)state;
        make_node(&n);
        harness_move(FAR_WRITE, 0, PAGES);
        conform_traffic(&traffic);
        harness_settle();
        harness_move(FAR_PREFETCH, 0, PAGES);
        conform_read_back();

        struct far_request *part = harness_request(FAR_READ, 77);
        part->offset = 1024;
        part->len = 512;
        harness_post(&part, 1);
        harness_settle();
        file_node_close(&n);
        unlink(path);
}

static blkcnt_t blocks(void)
{
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        return st.st_blocks;
}

static void fill(uint64_t bytes, bool data)
{
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0);
        if (data)
                assert_int_equal(write(fd, "somebody's", 10), 10);
        else
                assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        close(fd);
}

static void files(void **state)
{
        struct far_node n, second;
        char text[FAR_WHY], other[128];
        struct stat st;

        (void)state;
        *o = (struct node_option){ 0 };
        file_node_refused("", -EINVAL, "file:PATH");
        file_node_refused(path, -ENOENT, "?size=8G");
        file_node_refused(folder, -EISDIR, "directory");
        file_node_refused("/dev/zero", -EINVAL, "neither a file nor a block device");
        snprintf(other, sizeof(other), "%s/fifo", folder);
        assert_int_equal(mkfifo(other, 0600), 0);
        file_node_refused(other, -EINVAL, "neither a file nor a block device");
        unlink(other);

        /* The content of a file stays, unless the user says otherwise. */
        fill(0, true);
        file_node_refused(path, -EEXIST, "overwrite=yes");
        o->size = 8 * MIB;
        snprintf(other, sizeof(other), "%s/none/far", folder);
        file_node_refused(other, -ENOENT, "the folder that it is to be made in");
        file_node_refused(path, -EEXIST, "overwrite=yes");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, 10);
        o->overwrite = true;
        assert_int_equal(file_node_open(&n, path), 0);
        assert_int_equal(n.pages + n.kept, 8 * MIB / PAGE_SIZE);
        file_node_close(&n);
        o->overwrite = false;
        file_node_refused(path, -EEXIST, "overwrite=yes");        /* nothing was written to it */

        /* A file that vmrun makes is gone again if it was not used. */
        unlink(path);
        o->size = PAGE_SIZE;
        file_node_refused(path, -EINVAL, "too small");
        assert_int_equal(access(path, F_OK), -1);
        o->size = 8 * MIB;
        assert_int_equal(file_node_open(&n, path), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        n.driver->describe(&n, text, sizeof(text));
        assert_non_null(strstr(text, "8.0M of a file"));        /* one page less */
        assert_int_equal(file_node_open(&second, path), -EWOULDBLOCK);
        assert_non_null(strstr(why, "another node of this vmrun uses it"));
        file_node_close(&n);
        assert_int_equal(access(path, F_OK), -1);

        /* A file that was used stays, as a file of vmrun's, without its blocks; it may grow. */
        make_node(&n);
        harness_move(FAR_WRITE, 0, 64);
        assert_true(blocks() * 512 >= (blkcnt_t)(PAGES + 1) * PAGE_SIZE);
        file_node_close(&n);
        assert_true(blocks() * 512 < (blkcnt_t)64 * PAGE_SIZE);
        o->size = 0;
        assert_int_equal(file_node_open(&n, path), 0);
        assert_int_equal(n.pages, PAGES);
        file_node_close(&n);
        o->size = 16 * MIB;
        assert_int_equal(file_node_open(&n, path), 0);
        assert_int_equal(n.pages + n.kept, 16 * MIB / PAGE_SIZE);
        /* Blocks that a killed run left in it are given back by the next run. */
        assert_int_equal(fallocate(((struct disk_node *)n.data)->fd, 0, 0, 16 * MIB), 0);
        file_node_close(&n);
        assert_true(blocks() * 512 < (blkcnt_t)64 * PAGE_SIZE);

        /* A file whose blocks were allocated before keeps them, and its size. */
        unlink(path);
        fill((PAGES + 1) * (uint64_t)PAGE_SIZE, false);
        int fd = open(path, O_RDWR);
        assert_int_equal(fallocate(fd, 0, 0, (PAGES + 1) * (off_t)PAGE_SIZE), 0);
        close(fd);
        o->size = 0;
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(file_node_open(&n, path), 0);
                harness_start(&n, PAGES, HALF);
                harness_move(FAR_WRITE, 0, 3);
                file_node_close(&n);
                assert_true(blocks() * 512 >= (blkcnt_t)PAGES * PAGE_SIZE);
        }
        o->size = 64 * MIB;
        /* far_node_open() refuses it by its size */
        assert_int_equal(file_node_open(&n, path), 0);
        assert_int_equal(n.pages, PAGES);
        file_node_close(&n);

        /* No signal of a limit that is the program's. */
        unlink(path);
        struct rlimit was, low = { 0 };
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
        low = (struct rlimit){ MIB, was.rlim_max };
        setrlimit(RLIMIT_FSIZE, &low);
        file_node_refused(path, -EFBIG, "ulimit -f");
        setrlimit(RLIMIT_FSIZE, &was);
        assert_int_equal(access(path, F_OK), -1);
}

/* The superblock of a member of an md RAID 1.2, which leaves the first page as it is. */
static void become_raid(int fd)
{
        uint32_t sb[128] = { 0xa92b4efc, 1 };   /* magic, version 1 */
        uint64_t sum = 0;

        for (unsigned i = 4; i < 8; i++)
                sb[i] = 0x11223344 * i;         /* UUID of the set */
        sb[20] = sb[34] = 8192;                 /* sectors of the set, and of data here */
        sb[18] = 1;                             /* RAID 1 */
        sb[23] = sb[55] = 2;                    /* disks */
        sb[32] = 2048;                          /* where data begins, and the superblock is */
        sb[36] = 8;
        for (unsigned i = 0; i < 64 + 1; i++)
                sum += sb[i];
        sb[54] = (uint32_t)sum + (uint32_t)(sum >> 32);
        assert_int_equal(pwrite(fd, sb, sizeof(sb), 4096), sizeof(sb));
}

/* Foreign data behind the first page stays, although that page says that the file is vmrun's. */
static void of_others(void **state)
{
        struct far_node n;

        (void)state;
        make_node(&n);
        harness_move(FAR_WRITE, 0, 64);
        file_node_close(&n);
        assert_int_equal(file_node_open(&n, path), 0);
        file_node_close(&n);
        int fd = open(path, O_RDWR);
        become_raid(fd);
        file_node_refused(path, -EEXIST, "vmrun did not write (linux_raid_member)");
        o->overwrite = true;
        assert_int_equal(file_node_open(&n, path), 0);
        file_node_close(&n);
        o->overwrite = false;
        /* Also in a file that was never vmrun's, whose first page is empty. */
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(ftruncate(fd, 8 * MIB), 0);
        become_raid(fd);
        file_node_refused(path, -EEXIST, "linux_raid_member");
        close(fd);
        unlink(path);
}

/* A read of missing pages fails for those pages alone, and they can be written again. */
static void cut_short(void **state)
{
        struct far_node n;

        (void)state;
        make_node(&n);
        harness_move(FAR_WRITE, 0, PAGES);
        assert_int_equal(truncate(path, (HALF + 1 + 5) * (off_t)PAGE_SIZE), 0);
        harness.errors = true;
        harness_move(FAR_PREFETCH, HALF, 8);            /* one command */
        assert_int_equal(harness.bad_reads, 3);
        harness_move(FAR_READ, HALF + 4, 2);
        assert_int_equal(harness.bad_reads, 4);
        harness.errors = false;
        assert_false(n.lost);
        harness_move(FAR_WRITE, HALF + 4, 4);
        harness_move(FAR_READ, HALF + 4, 4);
        file_node_close(&n);
        unlink(path);
}

/* Limits the size of files, so that writes behind `bytes` fail. */
static void limit_file(rlim_t bytes)
{
        struct rlimit r;

        assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
        r.rlim_cur = bytes;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void post_some(enum far_op op, uint64_t first, unsigned count)
{
        struct far_request *r[DEPTH];

        for (unsigned i = 0; i < count; i++)
                r[i] = harness_request(op, first + i);
        harness_post(r, count);
}

/* For 300 ms, in which a write is sent again and again. */
static void poll_a_moment(void)
{
        for (int64_t end = now_ms() + 300; now_ms() < end; usleep(1000))
                harness_poll();
}

/* A write that fails is sent again for a moment, and ends with an error then; if none succeeds in
 * time the node is lost, and the driver keeps no request.  A limit of file sizes makes writes
 * fail. */
static void failing_writes(void **state)
{
        struct far_node n;
        struct rlimit was;

        (void)state;
        make_node(&n);
        harness_move(FAR_WRITE, 0, PAGES);
        opt.timeout_ms = 1000;          /* for writes that fail */
        harness.errors = true;
        signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);

        limit_file(100 * PAGE_SIZE);
        uint64_t before = harness.done;
        post_some(FAR_WRITE, 80, 40);                   /* one of two commands is cut */
        poll_a_moment();
        assert_in_range(harness.done - before, 0, 19);
        post_some(FAR_READ, 500, 10);                   /* reads go on meanwhile */
        harness_settle();
        assert_false(n.lost);
        assert_int_equal(harness.done - before, 40 + 10);
        assert_in_range(harness.bad_writes, 21, 30);
        for (unsigned i = 0; i < 4 && !n.lost; i++) {
                post_some(FAR_WRITE, 180 + i, 1);
                harness_settle();
        }
        assert_true(n.lost);
        assert_true(n.lost_pages);
        assert_non_null(strstr(n.why, "ulimit -f"));
        assert_int_equal(harness.given_back, 1);
        conform_lost();
        limit_file(was.rlim_cur);
        file_node_close(&n);

        opt.timeout_ms = PATIENT;
        harness.errors = false;
        make_node(&n);
        harness_move(FAR_WRITE, 0, PAGES);
        limit_file(100 * PAGE_SIZE);
        post_some(FAR_WRITE, 180, 40);
        poll_a_moment();
        assert_int_equal(harness.in_flight, 40);
        limit_file(was.rlim_cur);
        harness_settle();
        assert_false(n.lost);
        conform_read_back();
        file_node_close(&n);
        unlink(path);
}

/* A child of fork, and the next program, have this file, a ring of their own, and the lock. */
static void family(void **state)
{
        struct far_node n, next, other;

        (void)state;
        make_node(&n);
        conform_child();
        assert_true(conform_kept(&next));
        assert_int_equal(file_node_open(&other, path), -EWOULDBLOCK);
        free(n.data);
        file_node_close(&next);
        assert_true(blocks() * 512 < (blkcnt_t)64 * PAGE_SIZE);
        unlink(path);
}

/* A process that gets a killed process's lock meets none of the killed one's writes. */
static void killed(void **state)
{
        struct far_node n;
        int ready[2];
        char c;

        (void)state;
        for (unsigned round = 0; round < 10; round++) {
                assert_int_equal(pipe(ready), 0);
                pid_t pid = fork();
                if (!pid) {
                        struct far_request *r[DEPTH];
                        make_node(&n);
                        harness_move(FAR_WRITE, 0, PAGES);
                        for (unsigned i = 0; i < DEPTH; i++)
                                r[i] = harness_request(FAR_WRITE, i * 7);
                        harness_post(r, DEPTH);
                        (void)!write(ready[1], "x", 1);
                        kill(getpid(), SIGKILL);
                }
                close(ready[1]);
                assert_int_equal(read(ready[0], &c, 1), 1);
                close(ready[0]);
                assert_int_equal(waitpid(pid, NULL, 0), pid);
                make_node(&n);
                harness_move(FAR_WRITE, 0, PAGES);
                usleep(2000);
                harness_move(FAR_READ, 0, PAGES);
                file_node_close(&n);
        }
        unlink(path);
}

/* With `copies` the driver moves pages by way of pages of its own. */
static void transfers_copies(void **state)
{
        harness.hands_back = true;
        transfers(state);
        harness.hands_back = false;
}
static void family_copies(void **state)
{
        harness.hands_back = true;
        family(state);
        harness.hands_back = false;
}

/* The messages on a system without io_uring. */
static void forbidden(void **state)
{
        static const struct { int error; const char *words; } answers[] = {
                { EPERM, "seccomp" }, { ENOSYS, "no io_uring" }, { ENOMEM, "ulimit -l" }
        };

        (void)state;
        for (unsigned i = 0; i < 3; i++) {
                pid_t pid = fork();
                int status;
                if (!pid) {
                        struct sock_filter f[] = {
                                BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                         offsetof(struct seccomp_data, nr)),
                                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
                                BPF_STMT(BPF_RET | BPF_K,
                                         SECCOMP_RET_ERRNO | (unsigned)answers[i].error),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
                        };
                        struct sock_fprog p = { 4, f };
                        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) != 0)
                                _exit(77);
                        *o = (struct node_option){ .size = 8 * MIB };
                        file_node_refused(path, -answers[i].error, answers[i].words);
                        _exit(access(path, F_OK) == 0);
                }
                assert_int_equal(waitpid(pid, &status, 0), pid);
                if (WEXITSTATUS(status) != 77)
                        assert_int_equal(status, 0);
        }
}

/* Skips, with the reason: this folder or kernel has no file: nodes. */
static void usable(void **state)
{
        struct far_node n;

        (void)state;
        *o = (struct node_option){ .size = 8 * MIB };
        if (file_node_open(&n, path) == 0)
                return file_node_close(&n);
        print_message("# %s\n", why);
        skip();
}

int main(void)
{
        const struct CMUnitTest first[] = { cmocka_unit_test(usable) };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(deadline), cmocka_unit_test(transfers),
                cmocka_unit_test(files), cmocka_unit_test(of_others),
                cmocka_unit_test(cut_short),
                cmocka_unit_test(failing_writes), cmocka_unit_test(family),
                cmocka_unit_test(killed), cmocka_unit_test(forbidden),
                cmocka_unit_test(transfers_copies), cmocka_unit_test(family_copies)
        };
        struct far_node n;

        opt.timeout_ms = PATIENT;
        if (!file_nodes_init(far_module[0], "disk-test.XXXXXX"))
                return 1;
        harness_init(DEPTH, PAGES);
        *o = (struct node_option){ .size = 8 * MIB };
        bool works = file_node_open(&n, path) == 0;
        if (works)
                file_node_close(&n);
        int status = works ? cmocka_run_group_tests(tests, NULL, NULL)
                           : cmocka_run_group_tests(first, NULL, NULL);
        harness_end();
        file_nodes_end();
        return status;
}
