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
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/options.h"
#include "base/privfd.h"
#include "common/clock.h"
#include "far/file/disk.h"

#define MIB   (1u << 20)
#define PAGES 2048u                     /* of the node that most tests use, in two slabs */
#define HALF  (PAGES / 2)
#define DEPTH 200u
#define PATIENT 15000                   /* --timeout, ms: longer than a busy disk takes */

/* --- what vmrun has --- */

struct options opt;
static char lost_why[FAR_WHY];
static unsigned failed;

struct job {
        struct far_request r;
        bool under_way;
};
static struct job jobs[DEPTH];
static char *frames;
static uint32_t version[PAGES];         /* as written last; 0: never */
/* over: calls of far_done(); bad, unwritten: reads and writes with an error */
static unsigned in_flight, over, bad, unwritten;

/* Each 8 bytes tell page, version and place. */
static uint64_t pattern(uint64_t page, uint32_t v, unsigned i)
{
        return (page << 40 ^ (uint64_t)v << 12 ^ i) * 0x9e3779b97f4a7c15ull + i;
}

static uint64_t page_of(const struct far_request *r) { return r->place->first + r->page; }

void far_done(struct far_request *r)
{
        struct job *j = (struct job *)r;

        assert_true(j->under_way);
        j->under_way = false;
        in_flight--;
        over++;
        unwritten += r->op == FAR_WRITE && r->error;
        if (r->op == FAR_WRITE)
                return;
        bad += r->error != 0;
        for (unsigned i = 0; !r->error && i < PAGE_SIZE / 8; i++)
                assert_int_equal(((uint64_t *)r->frame)[i],
                                 pattern(page_of(r), version[page_of(r)], i));
}

void far_up(struct far_node *n) { n->up = true; }

void far_down(struct far_node *n, const char *reason)
{
        (void)reason;
        n->up = false;
}

void far_failed(struct far_request *r)
{
        assert_true(((struct job *)r)->under_way);
        ((struct job *)r)->under_way = false;
        in_flight--;
        failed++;
}

void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(lost_why, sizeof(lost_why), fmt, ap);
        va_end(ap);
        n->lost = true;
        n->lost_pages = pages;
}

/* --- a node --- */

extern const struct far_driver *const far_module[];
static char folder[] = "disk-test.XXXXXX", path[64], why[FAR_WHY];
static struct node_option o = { .url = "file:x", .weight = 1 };
static struct far_place places[2];
static bool copies;                     /* other nodes have copies of this node's pages */

static int open_with(struct far_node *n, const char *file, const struct far_kept_node *before)
{
        static char url[128];

        snprintf(url, sizeof(url), "file:%s", file);
        o.url = url;
        *n = (struct far_node){ .driver = far_module[0], .option = &o, .url = o.url,
                                .inherited = before, .hands_back = copies, .up = !copies };
        why[0] = 0;
        return n->driver->open(n, file, why);
}
static int open_node(struct far_node *n, const char *file) { return open_with(n, file, NULL); }

static void refused(const char *file, int err, const char *words)
{
        struct far_node n;

        assert_int_equal(open_node(&n, file), err);
        if (!strstr(why, words) || strlen(why) + 1 >= FAR_WHY)
                fail_msg("'%s' instead of '%s'", why, words);
        assert_int_equal(privfd_next(0), -1);
}

static void lease(struct far_node *n)
{
        struct slab s;

        assert_int_equal(n->driver->attach(n, frames, DEPTH * PAGE_SIZE, why), 0);
        for (unsigned i = 0; i < 2; i++) {
                places[i] = (struct far_place){ .node = n, .first = i * HALF };
                assert_int_equal(n->driver->lease(n, NULL, i * HALF, HALF, &s, &places[i]), 0);
        }
        assert_int_equal(n->driver->lease(n, NULL, n->pages, 1, &s, &places[0]), -ENOSPC);
        memset(version, 0, sizeof(version));
}

/* A node of PAGES pages in a file that is made for it. */
static void make_node(struct far_node *n)
{
        o = (struct node_option){ .weight = 1, .size = (PAGES + 1) * (uint64_t)PAGE_SIZE };
        assert_int_equal(open_node(n, path), 0);
        assert_int_equal(n->pages, PAGES);
        lease(n);
}

static void close_node(struct far_node *n)
{
        n->driver->close(n);
        assert_int_equal(privfd_next(0), -1);
}

/* A request in the idle job k. */
static struct far_request *request(unsigned k, enum far_op op, unsigned page)
{
        struct far_request *r = &jobs[k].r;

        assert_false(jobs[k].under_way);
        *r = (struct far_request){ .op = op, .page = page % HALF, .place = &places[page / HALF],
                                   .frame = frames + k * (size_t)PAGE_SIZE, .len = PAGE_SIZE };
        if (op == FAR_WRITE)
                version[page]++;
        for (unsigned i = 0; i < PAGE_SIZE / 8; i++)
                ((uint64_t *)r->frame)[i] =
                        op == FAR_WRITE ? pattern(page, version[page], i) : ~0ull;
        return r;
}

/* Posts all of them, as fast as there is room, as io.c does. */
static void post(struct far_node *n, struct far_request **r, unsigned count)
{
        for (unsigned at = 0; at < count; ) {
                unsigned took = n->driver->post(n, r + at, count - at);
                for (unsigned i = at; i < at + took; i++) {
                        if (n->lost)
                                continue;
                        ((struct job *)r[i])->under_way = true;
                        in_flight++;
                }
                at += took;
                if (!took)
                        n->driver->poll(n);
        }
}

/* Until nothing is under way, or the node is lost; sleeps as the I/O thread does. */
static void settle(struct far_node *n)
{
        int64_t end = now_ms() + 20000;

        while (in_flight && !n->lost) {
                struct pollfd fds[4];
                int ms = -1, k = n->driver->arm(n, fds, 4, &ms);
                assert_true(ms > 0 && ms <= 1000 && k == 1);
                poll(fds, (nfds_t)k, ms);
                n->driver->poll(n);
                assert_true(now_ms() < end);
        }
}

static void move(struct far_node *n, enum far_op op, unsigned first, unsigned count)
{
        struct far_request *r[DEPTH];

        for (unsigned done = 0; done < count; ) {
                unsigned now = count - done < DEPTH ? count - done : DEPTH;
                for (unsigned i = 0; i < now; i++)
                        r[i] = request(i, op, first + done + i);
                post(n, r, now);
                settle(n);
                done += now;
        }
}

/* --- tests --- */

static uint64_t seed = 88172645463325252ull;
static unsigned rnd(unsigned n)
{
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return (unsigned)(seed >> 20) % n;
}

static bool is_busy(uint64_t page)
{
        for (unsigned k = 0; k < DEPTH; k++)
                if (jobs[k].under_way && page_of(&jobs[k].r) == page)
                        return true;
        return false;
}

/* Runs of neighbours, up and down, of all kinds, many at a time.  A read finds the page that was
 * written last. */
static void transfers(void **state)
{
        struct far_node n;

        (void)state;
        make_node(&n);
        move(&n, FAR_WRITE, 0, PAGES);
        for (unsigned round = 0; round < 800; round++) {
                struct far_request *r[48];
                enum far_op op = (enum far_op)rnd(3);
                unsigned most = rnd(4) ? rnd(48) + 1 : 1, first = rnd(PAGES), count = 0;
                bool down = rnd(2);
                for (unsigned k = 0; k < DEPTH && count < most; k++) {
                        unsigned page = down ? first - count : first + count;
                        if (jobs[k].under_way)
                                continue;
                        if (page >= PAGES || is_busy(page))
                                break;
                        r[count++] = request(k, op, page);
                }
                post(&n, r, count);
                n.driver->poll(&n);
                if (rnd(50) == 0)
                        settle(&n);
        }
        settle(&n);
        assert_int_equal(bad, 0);
        move(&n, FAR_PREFETCH, 0, PAGES);
        move(&n, FAR_READ, 0, PAGES);
        assert_int_equal(bad, 0);

        /* A part of a page. */
        struct far_request *part = request(0, FAR_READ, 77);
        part->offset = 1024;
        part->len = 512;
        jobs[0].under_way = true;
        in_flight++;
        assert_int_equal(n.driver->post(&n, &part, 1), 1);
        part->op = FAR_WRITE;           /* far_done() looks at whole pages */
        settle(&n);
        part->op = FAR_READ;
        for (unsigned i = 0; i < PAGE_SIZE / 8; i++)
                assert_int_equal(((uint64_t *)part->frame)[i],
                                 i >= 128 && i < 192 ? pattern(77, version[77], i) : ~0ull);
        close_node(&n);
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
        o = (struct node_option){ .weight = 1 };
        refused("", -EINVAL, "file:PATH");
        refused(path, -ENOENT, "?size=8G");
        refused(folder, -EISDIR, "directory");
        refused("/dev/zero", -EINVAL, "neither a file nor a block device");
        snprintf(other, sizeof(other), "%s/fifo", folder);
        assert_int_equal(mkfifo(other, 0600), 0);
        refused(other, -EINVAL, "neither a file nor a block device");
        unlink(other);

        /* The content of a file stays, unless the user says otherwise. */
        fill(0, true);
        refused(path, -EEXIST, "overwrite=yes");
        o.size = 8 * MIB;
        snprintf(other, sizeof(other), "%s/none/far", folder);
        refused(other, -ENOENT, "the folder that it is to be made in");
        refused(path, -EEXIST, "overwrite=yes");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, 10);
        o.overwrite = true;
        assert_int_equal(open_node(&n, path), 0);
        assert_int_equal(n.pages + n.kept, 8 * MIB / PAGE_SIZE);
        close_node(&n);
        o.overwrite = false;
        refused(path, -EEXIST, "overwrite=yes");        /* nothing was written to it */

        /* A file that vmrun makes is gone again if it was not used. */
        unlink(path);
        o.size = PAGE_SIZE;
        refused(path, -EINVAL, "too small");
        assert_int_equal(access(path, F_OK), -1);
        o.size = 8 * MIB;
        assert_int_equal(open_node(&n, path), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        n.driver->describe(&n, text, sizeof(text));
        assert_non_null(strstr(text, "8.0M of a file"));        /* one page less */
        assert_int_equal(open_node(&second, path), -EWOULDBLOCK);
        assert_non_null(strstr(why, "another node of this vmrun uses it"));
        close_node(&n);
        assert_int_equal(access(path, F_OK), -1);

        /* A file that was used stays, as a file of vmrun's, without its blocks; it may grow. */
        make_node(&n);
        move(&n, FAR_WRITE, 0, 64);
        assert_true(blocks() * 512 >= (blkcnt_t)(PAGES + 1) * PAGE_SIZE);
        close_node(&n);
        assert_true(blocks() * 512 < (blkcnt_t)64 * PAGE_SIZE);
        o.size = 0;
        assert_int_equal(open_node(&n, path), 0);
        assert_int_equal(n.pages, PAGES);
        close_node(&n);
        o.size = 16 * MIB;
        assert_int_equal(open_node(&n, path), 0);
        assert_int_equal(n.pages + n.kept, 16 * MIB / PAGE_SIZE);
        /* Blocks that a killed run left in it are given back by the next run. */
        assert_int_equal(fallocate(((struct disk_node *)n.data)->fd, 0, 0, 16 * MIB), 0);
        close_node(&n);
        assert_true(blocks() * 512 < (blkcnt_t)64 * PAGE_SIZE);

        /* A file whose blocks were allocated before keeps them, and its size. */
        unlink(path);
        fill((PAGES + 1) * (uint64_t)PAGE_SIZE, false);
        int fd = open(path, O_RDWR);
        assert_int_equal(fallocate(fd, 0, 0, (PAGES + 1) * (off_t)PAGE_SIZE), 0);
        close(fd);
        o.size = 0;
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(open_node(&n, path), 0);
                lease(&n);
                move(&n, FAR_WRITE, 0, 3);
                close_node(&n);
                assert_true(blocks() * 512 >= (blkcnt_t)PAGES * PAGE_SIZE);
        }
        o.size = 64 * MIB;
        assert_int_equal(open_node(&n, path), 0);       /* far_node_open() refuses it by its size */
        assert_int_equal(n.pages, PAGES);
        close_node(&n);

        /* No signal of a limit that is the program's. */
        unlink(path);
        struct rlimit was, low = { 0 };
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
        low = (struct rlimit){ MIB, was.rlim_max };
        setrlimit(RLIMIT_FSIZE, &low);
        refused(path, -EFBIG, "ulimit -f");
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
        move(&n, FAR_WRITE, 0, 64);
        close_node(&n);
        assert_int_equal(open_node(&n, path), 0);
        close_node(&n);
        int fd = open(path, O_RDWR);
        become_raid(fd);
        refused(path, -EEXIST, "vmrun did not write (linux_raid_member)");
        o.overwrite = true;
        assert_int_equal(open_node(&n, path), 0);
        close_node(&n);
        o.overwrite = false;
        /* Also in a file that was never vmrun's, whose first page is empty. */
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(ftruncate(fd, 8 * MIB), 0);
        become_raid(fd);
        refused(path, -EEXIST, "linux_raid_member");
        close(fd);
        unlink(path);
}

/* A read of missing pages fails for those pages alone, and they can be written again. */
static void cut_short(void **state)
{
        struct far_node n;

        (void)state;
        make_node(&n);
        move(&n, FAR_WRITE, 0, PAGES);
        assert_int_equal(truncate(path, (HALF + 1 + 5) * (off_t)PAGE_SIZE), 0);
        bad = 0;
        move(&n, FAR_PREFETCH, HALF, 8);        /* one command */
        assert_int_equal(bad, 3);
        move(&n, FAR_READ, HALF + 4, 2);
        assert_int_equal(bad, 4);
        assert_false(n.lost);
        move(&n, FAR_WRITE, HALF + 4, 4);
        move(&n, FAR_READ, HALF + 4, 4);
        assert_int_equal(bad, 4);
        bad = 0;
        close_node(&n);
        unlink(path);
}

/* A write that fails is sent again for a moment, and ends with an error then; if none succeeds in
 * time the node is lost, and the driver keeps no request.  A limit of file sizes makes writes
 * fail. */
static void failing_writes(void **state)
{
        struct rlimit was, low;
        struct far_node n;
        struct far_request *r[40];

        (void)state;
        make_node(&n);
        move(&n, FAR_WRITE, 0, PAGES);
        opt.timeout_ms = 1000;          /* of writes that fail */
        signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
        low = (struct rlimit){ 100 * PAGE_SIZE, was.rlim_max };

        setrlimit(RLIMIT_FSIZE, &low);
        over = 0;
        for (unsigned i = 0; i < 40; i++)
                r[i] = request(i, FAR_WRITE, 80 + i);   /* one of two commands is cut */
        post(&n, r, 40);
        for (int64_t end = now_ms() + 300; now_ms() < end; usleep(1000))
                n.driver->poll(&n);
        assert_in_range(over, 0, 19);
        for (unsigned i = 0; i < 10; i++)       /* reads go on meanwhile */
                r[i] = request(40 + i, FAR_READ, 500 + i);
        post(&n, r, 10);
        settle(&n);
        assert_false(n.lost);
        assert_int_equal(over, 40 + 10);
        assert_in_range(unwritten, 21, 30);
        for (unsigned i = 0; i < 4 && !n.lost; i++) {
                r[0] = request(0, FAR_WRITE, 180 + i);
                post(&n, r, 1);
                settle(&n);
        }
        assert_true(n.lost);
        assert_true(n.lost_pages);
        assert_non_null(strstr(lost_why, "ulimit -f"));
        assert_int_equal(failed, 1);
        assert_int_equal(in_flight, 0);
        /* A lost node takes no more. */
        r[0] = request(0, FAR_READ, 3);
        jobs[0].under_way = true;
        in_flight++;
        assert_int_equal(n.driver->post(&n, r, 1), 1);
        assert_int_equal(in_flight, 0);
        setrlimit(RLIMIT_FSIZE, &was);
        close_node(&n);

        opt.timeout_ms = PATIENT;
        make_node(&n);
        move(&n, FAR_WRITE, 0, PAGES);
        setrlimit(RLIMIT_FSIZE, &low);
        for (unsigned i = 0; i < 40; i++)
                r[i] = request(i, FAR_WRITE, 180 + i);
        post(&n, r, 40);
        for (int64_t end = now_ms() + 300; now_ms() < end; usleep(1000))
                n.driver->poll(&n);
        assert_int_equal(in_flight, 40);
        setrlimit(RLIMIT_FSIZE, &was);
        settle(&n);
        assert_false(n.lost);
        move(&n, FAR_READ, 0, PAGES);
        assert_int_equal(bad, 0);
        close_node(&n);
        unlink(path);
}

/* A child of fork, and the next program, have this file, a ring of their own, and the lock. */
static void family(void **state)
{
        struct far_kept_node kept = { .kept = true };
        struct far_node n, next, other;
        int status;

        (void)state;
        make_node(&n);
        move(&n, FAR_WRITE, 0, 100);
        pid_t pid = fork();
        if (!pid) {
                assert_false(n.driver->forked(&n));
                assert_int_equal(n.driver->use(&n, &places[0], HALF), 0);
                assert_int_equal(n.driver->attach(&n, frames, DEPTH * PAGE_SIZE, why), 0);
                move(&n, FAR_READ, 0, 100);
                move(&n, FAR_WRITE, 1000, 100);
                move(&n, FAR_READ, 1000, 100);
                _exit(bad || privfd_next(0) < 0);
        }
        move(&n, FAR_WRITE, 100, 300);
        move(&n, FAR_READ, 0, 400);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        for (unsigned i = 1000; i < 1100; i++)
                version[i]++;
        move(&n, FAR_READ, 1000, 100);
        assert_int_equal(bad, 0);

        /* The old program ends without a close(). */
        assert_true(n.driver->keep(&n, &kept));
        disk_ring_drop(n.data);
        assert_int_equal(open_with(&next, path, &kept), 0);
        assert_int_equal(next.pages, n.pages);
        places[0].node = places[1].node = &next;
        assert_int_equal(next.driver->attach(&next, frames, DEPTH * PAGE_SIZE, why), 0);
        move(&next, FAR_READ, 0, 400);
        assert_int_equal(bad, 0);
        assert_int_equal(open_node(&other, path), -EWOULDBLOCK);
        free(n.data);
        close_node(&next);
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
                        move(&n, FAR_WRITE, 0, PAGES);
                        for (unsigned i = 0; i < DEPTH; i++)
                                r[i] = request(i, FAR_WRITE, i * 7);
                        post(&n, r, DEPTH);
                        (void)!write(ready[1], "x", 1);
                        kill(getpid(), SIGKILL);
                }
                close(ready[1]);
                assert_int_equal(read(ready[0], &c, 1), 1);
                close(ready[0]);
                assert_int_equal(waitpid(pid, NULL, 0), pid);
                make_node(&n);
                move(&n, FAR_WRITE, 0, PAGES);
                usleep(2000);
                move(&n, FAR_READ, 0, PAGES);
                assert_int_equal(bad, 0);
                close_node(&n);
        }
        unlink(path);
}

/* With `copies` the driver moves pages by way of pages of its own. */
static void transfers_copies(void **state)
{
        copies = true;
        transfers(state);
        copies = false;
}
static void family_copies(void **state)
{
        copies = true;
        family(state);
        copies = false;
}

/* What a system without io_uring is told. */
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
                        o = (struct node_option){ .weight = 1, .size = 8 * MIB };
                        refused(path, -answers[i].error, answers[i].words);
                        _exit(access(path, F_OK) == 0);
                }
                assert_int_equal(waitpid(pid, &status, 0), pid);
                if (WEXITSTATUS(status) != 77)
                        assert_int_equal(status, 0);
        }
}

/* Can this folder and this kernel do it at all? */
static void usable(void **state)
{
        struct far_node n;

        (void)state;
        o = (struct node_option){ .weight = 1, .size = 8 * MIB };
        if (open_node(&n, path) == 0)
                return close_node(&n);
        print_message("# %s\n", why);
        skip();
}

int main(void)
{
        const struct CMUnitTest first[] = { cmocka_unit_test(usable) };
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(transfers), cmocka_unit_test(files), cmocka_unit_test(of_others),
                cmocka_unit_test(cut_short),
                cmocka_unit_test(failing_writes), cmocka_unit_test(family),
                cmocka_unit_test(killed), cmocka_unit_test(forbidden),
                cmocka_unit_test(transfers_copies), cmocka_unit_test(family_copies)
        };
        struct far_node n;

        privfd_init();
        opt.timeout_ms = PATIENT;
        if (!mkdtemp(folder))
                return 1;
        snprintf(path, sizeof(path), "%s/far", folder);
        frames = aligned_alloc(PAGE_SIZE, DEPTH * (size_t)PAGE_SIZE);
        o = (struct node_option){ .weight = 1, .size = 8 * MIB };
        bool works = frames && open_node(&n, path) == 0;
        if (works)
                close_node(&n);
        int status = works ? cmocka_run_group_tests(tests, NULL, NULL)
                           : cmocka_run_group_tests(first, NULL, NULL);
        free(frames);
        rmdir(folder);
        return status;
}
