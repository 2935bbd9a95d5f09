/*
 * The registry of mapped files and the arena of shared mappings, against the host kernel's own
 * mmap: errors, bytes and the end of file must be equal.  The arena's allocator against a model, at
 * random.
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
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "abi_control.h"
#include "memory/arena.h"
#include "settings/check.h"
#include "far/io.h"
#include "memory/files.h"
#include "memory/files_read.h"
#include "memory/shm.h"
#include "vm/kvm.h"
#include "vm/level.h"
#include "vm/space.h"
#include "vm/vcpu.h"
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"

#define NFRAMES 64
#define FRAMES_OFF 0x8000000ull
#define PHYS_BITS 36                    /* an arena of 8 GiB */

int vm_probe_level(char *why, size_t n) { snprintf(why, n, "not here"); return -ENODEV; }
/* No node here is remote. */
void io_start(struct vm *vm, struct slot_pieces *pieces)
{
        (void)vm;
        (void)pieces;
}
void io_wait_attached(void) {}
void io_forked(void) {}
void io_on_loss(void (*owner)(const struct far_node *n)) { (void)owner; }
bool io_stop(unsigned limit_ms) { (void)limit_ms; return true; }
uint64_t vm_take_gpa(struct vm *vm, uint64_t size) { (void)vm; (void)size; return 0; }
void *kern_pointer(struct thread *t, uint64_t va, uint64_t len)
{
        (void)t;
        (void)len;
        return (void *)va;
}

/* KVM's memory slots: adjacent, no two at one place. */
static uint64_t slots_end, slots_limit = UINT64_MAX;
static unsigned nslots;
int vm_add_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size)
{
        (void)vm;
        if (size > slots_limit)
                return -EINVAL;
        assert_int_equal((uint64_t)host - ARENA, slots_end);
        assert_int_equal(gpa, CONTROL->arena_gpa + slots_end);
        assert_int_equal(size % PAGE_SIZE, 0);
        slots_end += size;
        assert_true(gpa + size <= 1ull << PHYS_BITS);
        nslots++;
        return 0;
}

static struct thread thread;
static char *frame(uint32_t n) { return (char *)WINDOW + FRAMES_OFF + n * 4096ull; }

/* An unlinked file with this content, a hole in place of every page of dots. */
static int make_file(size_t bytes)
{
        char name[] = "/tmp/test_files.XXXXXX";
        int fd = mkstemp(name);
        assert_true(fd >= 0);
        unlink(name);
        for (size_t at = 0; at < bytes; at += 4096) {
                char page[4096];
                size_t n = bytes - at < 4096 ? bytes - at : 4096;
                memset(page, 'a' + (int)(at / 4096 % 26), n);
                if (at / 4096 % 4 != 2)
                        assert_int_equal(pwrite(fd, page, n, (off_t)at), n);
        }
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        return fd;
}

static int reopen(int fd, int flags)
{
        char name[32];
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        int n = open(name, flags | O_CLOEXEC);
        assert_true(n >= 0);
        return n;
}

static int store(uint64_t gpa, const char *from, uint64_t len)
{
        return arena_copy(gpa, (void *)from, len, true);
}

static int map_private(int fd, int prot, int flags, uint64_t off, uint64_t len, uint32_t *id,
                       int *refused)
{
        struct file_mapping m = {
                .fd = fd, .prot = prot, .flags = flags, .off = off, .len = len
        };
        int err = files_map_private(&m);
        *id = m.id;
        *refused = m.refused;
        return err;
}

static int map_shared(int fd, int prot, int flags, uint64_t off, uint64_t len, uint32_t *id,
                      uint64_t *gpa, int *refused)
{
        struct file_mapping m = {
                .fd = fd, .prot = prot, .flags = flags, .off = off, .len = len
        };
        int err = files_map_shared(NULL, &m);
        *id = m.id;
        *gpa = m.gpa;
        *refused = m.refused;
        return err;
}

static int64_t read_frames(uint32_t id, uint64_t off, uint32_t first, uint32_t n, int step)
{
        uint32_t list[NFRAMES];
        for (uint32_t i = 0; i < n; i++)
                list[i] = first + i * (uint32_t)step;
        memset(frame(0), 0xee, NFRAMES * 4096);
        return files_read(id, off, list, n);
}

/* Reads through the registry and compares with a mapping of the host, page by page. */
static void compare(int fd, uint32_t id, uint64_t size, uint64_t off, uint32_t n, int step)
{
        uint64_t pages = (size + 4095) / 4096, first = off / 4096;
        int64_t expect = first >= pages ? 0 : pages - first < n ? (int64_t)(pages - first) : n;
        assert_int_equal(read_frames(id, off, 1, n, step), expect);
        if (expect) {
                char *p = mmap(NULL, (size_t)expect * 4096, PROT_READ, MAP_PRIVATE, fd, (off_t)off);
                assert_ptr_not_equal(p, MAP_FAILED);
                for (int64_t i = 0; i < expect; i++)
                        assert_memory_equal(p + i * 4096, frame(1 + (uint32_t)(i * step)), 4096);
                munmap(p, (size_t)expect * 4096);
        }
        for (uint32_t i = 0; i < NFRAMES; i++) {        /* nothing else was touched */
                int64_t k = i < 1 || (i - 1) % (uint32_t)step ? -1 : (int64_t)(i - 1) / step;
                if (k < 0 || k >= expect)
                        assert_int_equal((unsigned char)frame(i)[0] + (unsigned char)frame(i)[4095],
                                         2 * 0xee);
        }
}

static void reading(void **state)
{
        static const size_t sizes[] = { 0,    1,     4095,       4096,         4097,
                                        8192, 12288, 16384 + 17, 40 * 4096 - 1 };
        (void)state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                int fd = make_file(sizes[i]), refused;
                uint32_t id;
                assert_int_equal(
                        map_private(fd, PROT_READ, MAP_PRIVATE, 0, 1 << 20, &id, &refused),
                        0);
                assert_int_equal(refused, 0);
                for (uint64_t off = 0; off <= sizes[i] + 8192; off += 4096) {
                        compare(fd, id, sizes[i], off, 1, 1);
                        compare(fd, id, sizes[i], off, 16, 1);
                        compare(fd, id, sizes[i], off, 16, 3);
                }
                assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
                /* The mapping outlives the descriptor, and sees the file grow and shrink. */
                int again = reopen(fd, O_RDWR);
                close(fd);
                assert_int_equal(ftruncate(again, 100), 0);
                compare(again, id, 100, 0, 4, 1);
                assert_int_equal(pwrite(again, "x", 1, 9000), 1);
                compare(again, id, 9001, 0, 4, 2);
                close(again);
                assert_int_equal(files_live(), 1);
                assert_int_equal(files_ref(id, -1), 0);
                assert_int_equal(files_live(), 0);
                assert_int_equal(files_read(id, 0, &(uint32_t){ 1 }, 1), -EBADF);
        }
        assert_int_equal(privfd_next(0), -1);
}

static void bad_requests(void **state)
{
        (void)state;
        int fd = make_file(8192), refused;
        uint32_t id, list[2000] = { 0 };
        assert_int_equal(map_private(fd, PROT_READ, MAP_PRIVATE, 0, 8192, &id, &refused), 0);
        assert_int_equal(files_read(id, 0, list, 0), -EINVAL);
        assert_int_equal(files_read(id, 0, list, 1025), -EINVAL);
        assert_int_equal(files_read(id, 1, list, 1), -EINVAL);
        assert_int_equal(files_read(id, (uint64_t)INT64_MAX & ~4095ull, list, 1), -EINVAL);
        list[0] = NFRAMES;
        assert_int_equal(files_read(id, 0, list, 1), -EINVAL);
        list[0] = 0;
        assert_int_equal(files_read(id + 1, 0, list, 1), -EBADF);
        assert_int_equal(files_read(FILE_NONE, 0, list, 1), -EBADF);
        assert_int_equal(files_read(123456, 0, list, 1), -EBADF);
        assert_int_equal(files_ref(id + 1, 1), -EBADF);
        assert_int_equal(files_ref(id, 1), 0);
        assert_int_equal(files_ref(id, -1), 0);
        assert_int_equal(files_ref(id, -1), 0);
        assert_int_equal(files_ref(id, -1), -EBADF);

        /* Through the exits, as kern asks. */
        struct exit_req *rq = &thread.v->exit;
        rq->a[0] = (uint64_t)fd, rq->a[1] = PROT_READ, rq->a[2] = MAP_PRIVATE, rq->a[3] = 0,
        rq->a[4] = 8192;
        assert_int_equal(files_exit_map(&thread, rq), 0);
        id = (uint32_t)rq->out[0];
        assert_int_equal(rq->out[0] >> 32, 0);
        const uint32_t wanted = 5;
        rq->a[0] = id, rq->a[1] = 4096, rq->a[2] = 1, rq->a[3] = (uint64_t)&wanted;
        assert_int_equal(files_exit_read(&thread, rq), 1);
        assert_int_equal(frame(5)[0], 'b');
        rq->a[2] = 1ull << 40;
        assert_int_equal(files_exit_read(&thread, rq), -EINVAL);
        rq->a[0] = id | 1ull << 32, rq->a[1] = (uint64_t)-1;
        assert_int_equal(files_exit_ref(&thread, rq), -EBADF);
        rq->a[0] = id;
        assert_int_equal(files_exit_ref(&thread, rq), 0);
        assert_int_equal(files_live(), 0);
        close(fd);
}

/* One id for all mappings of a file that were opened alike. */
static void identity(void **state)
{
        (void)state;
        int fd = make_file(8192), ro = reopen(fd, O_RDONLY), ro2 = reopen(fd, O_RDONLY),
            other = make_file(8192), refused;
        uint32_t a, b, c, d, e;
        assert_int_equal(map_private(fd, PROT_READ, MAP_PRIVATE, 0, 4096, &a, &refused), 0);
        assert_int_equal(map_private(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE, 4096, 40960, &b,
                                           &refused),
                         0);
        assert_int_equal(map_private(ro, PROT_READ, MAP_PRIVATE, 0, 4096, &c, &refused), 0);
        assert_int_equal(
                map_private(ro2, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0, 4096, &d, &refused),
                0);
        assert_int_equal(map_private(other, PROT_READ, MAP_PRIVATE, 0, 4096, &e, &refused),
                         0);
        assert_int_equal(a, b);
        assert_int_not_equal(a, c);
        assert_int_equal(c, d);
        assert_int_not_equal(a, e);
        assert_int_equal(files_live(), 3);

        char path[4096], expect[4096], name[32];
        struct stat st;
        dev_t dev;
        ino_t ino;
        fstat(fd, &st);
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        expect[readlink(name, expect, sizeof(expect) - 1)] = 0;
        assert_int_equal(file_describe(a, path, sizeof(path), &dev, &ino), 0);
        assert_string_equal(path, expect);
        assert_true(dev == st.st_dev && ino == st.st_ino);
        assert_int_equal(file_describe(a, path, 5, &dev, &ino), 0);
        assert_int_equal(strlen(path), 4);
        assert_int_equal(file_describe(4711, path, sizeof(path), &dev, &ino), -EBADF);

        uint32_t ids[] = { a, b, c, d, e };
        for (int i = 0; i < 5; i++)
                assert_int_equal(files_ref(ids[i], -1), 0);
        assert_int_equal(files_live(), 0);
        assert_int_equal(privfd_next(0), -1);
        close(fd), close(ro), close(ro2), close(other);
}

/* The registry returns the errors of the host's mmap. After a success nothing is left. */
static void errors(void **state)
{
        (void)state;
        int file = make_file(8192), p[2];
        assert_int_equal(pipe(p), 0);
        int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(sealed, 8192) | fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE), 0);
        const int fds[] = { file,
                            reopen(file, O_RDONLY),
                            reopen(file, O_WRONLY),
                            open("/tmp", O_RDONLY | O_DIRECTORY),
                            p[0],
                            p[1],
                            open("/tmp", O_PATH),
                            reopen(file, O_PATH),
                            -1,
                            12345,
                            sealed,
                            open("/dev/zero", O_RDWR),
                            open("/dev/null", O_RDWR),
                            open("/proc/self/status", O_RDONLY) };
        const int prots[] = { PROT_NONE, PROT_READ, PROT_WRITE, PROT_READ | PROT_WRITE,
                              PROT_EXEC | PROT_READ };
        const uint64_t offs[] = {
                0, 4096, 100, 1ull << 62, (uint64_t)INT64_MAX - 4095, 1ull << 63, (uint64_t)-4096
        };

        for (size_t f = 0; f < sizeof(fds) / sizeof(fds[0]); f++)
                for (size_t i = 0; i < 5; i++)
                        for (size_t o = 0; o < 7; o++)
                                for (int shared = 0; shared < 2; shared++) {
                                        int flags = shared ? MAP_SHARED : MAP_PRIVATE, refused = 0,
                                            err, expect = 0;
                                        uint32_t id;
                                        uint64_t gpa = 0;
                                        void *m = mmap(NULL, 4096, prots[i], flags, fds[f],
                                                       (off_t)offs[o]);
                                        if (m == MAP_FAILED)
                                                expect = -errno;
                                        else
                                                munmap(m, 4096);
                                        if (shared)
                                                err = map_shared(fds[f], prots[i],
                                                                       flags, offs[o], 4096, &id,
                                                                       &gpa, &refused);
                                        else
                                                err = map_private(fds[f], prots[i], flags,
                                                                        offs[o], 4096, &id,
                                                                        &refused);
                                        /* kern refuses an odd or overflowing offset itself. */
                                        bool close_enough = err && (offs[o] % 4096 ||
                                                                    offs[o] > INT64_MAX - 4096);
                                        if (err != expect && !close_enough)
                                                fail_msg("fd %zu prot %d off %#llx %s: %d, host %d",
                                                         f, prots[i], (unsigned long long)offs[o],
                                                         shared ? "shared" : "private", err,
                                                         expect);
                                        if (!err && shared)
                                                assert_int_equal(
                                                        arena_unmap(gpa, 4096, files_unmapped), 0);
                                        if (!err && !shared)
                                                assert_int_equal(files_ref(id, -1), 0);
                                        assert_int_equal(files_live(), 0);
                                }
        for (size_t f = 0; f < sizeof(fds) / sizeof(fds[0]); f++)
                if (fds[f] >= 0)
                        close(fds[f]);
        close(p[0]), close(p[1]);
        assert_int_equal(privfd_next(0), -1);
        uint64_t used, backed;
        arena_usage(&used, &backed);
        assert_int_equal(used, 0);
}

static void dev_zero(void **state)
{
        (void)state;
        int fd = open("/dev/zero", O_RDWR), refused;
        uint32_t id;
        uint64_t gpa;
        assert_int_equal(map_private(fd, PROT_READ, MAP_PRIVATE, 0, 1 << 20, &id, &refused),
                         0);
        assert_int_equal(read_frames(id, 1 << 20, 0, 8, 1), 8);
        for (int i = 0; i < 8 * 4096; i++)
                assert_int_equal(frame(0)[i], 0);
        assert_int_equal(files_ref(id, -1), 0);
        assert_int_equal(map_shared(fd, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 8192,
                                          &id, &gpa, &refused),
                         0);
        assert_true(files_pages_left(id, 0) >= 2);
        *(char *)arena_host(gpa + 4096) = 1;
        assert_int_equal(arena_unmap(gpa, 8192, files_unmapped), 0);
        close(fd);
}

/* Memory that a socket shares has no end; it cannot be read, as a private mapping would have to. */
static void sockets(void **state)
{
        (void)state;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), refused;
        uint32_t id;
        uint64_t gpa;

        assert_int_equal(map_shared(fd, PROT_READ, MAP_SHARED, 0, 8192, &id, &gpa, &refused), 0);
        assert_true(files_pages_left(id, 0) >= 2);
        assert_true(files_pages_left(id, 4096) >= 1);
        assert_int_equal(arena_unmap(gpa, 8192, files_unmapped), 0);
        assert_int_equal(map_private(fd, PROT_READ, MAP_PRIVATE, 0, 8192, &id, &refused), -ENODEV);
        assert_int_equal(files_live(), 0);
        close(fd);
}

static void shared_files(void **state)
{
        (void)state;
        int fd = make_file(3 * 4096 + 1), ro = reopen(fd, O_RDONLY), refused;
        uint32_t id, id2;
        uint64_t gpa, gpa2;
        char c;

        /* Read-only for the program now, and writable later: the file allows it. */
        assert_int_equal(
                map_shared(fd, PROT_READ, MAP_SHARED, 0, 4 * 4096, &id, &gpa, &refused),
                0);
        assert_int_equal(refused & PROT_WRITE, 0);
        *(char *)arena_host(gpa + 4096) = 'Z';
        assert_int_equal(pread(fd, &c, 1, 4096), 1);
        assert_int_equal(c, 'Z');
        assert_int_equal(store(gpa + 4097, "hello", 5), 0);
        assert_memory_equal(arena_host(gpa + 4097), "hello", 5);

        assert_int_equal(map_shared(ro, PROT_READ, MAP_SHARED, 4096, 4096, &id2, &gpa2,
                                          &refused),
                         0);
        assert_int_equal(refused & PROT_WRITE, PROT_WRITE);
        assert_int_not_equal(id, id2);
        assert_memory_equal(arena_host(gpa2), "Zhello", 6);
        char loaded[6];
        assert_int_equal(arena_copy(gpa2, loaded, 6, false), 0);
        assert_memory_equal(loaded, "Zhello", 6);
        assert_int_equal(store(gpa2, "x", 1), -EFAULT);

        /* Where the object ends, now and after a truncation. */
        assert_int_equal(files_pages_left(id, 0), 4);
        assert_int_equal(files_pages_left(id, 3 * 4096), 1);
        assert_int_equal(files_pages_left(id, 4 * 4096), 0);
        assert_int_equal(ftruncate(fd, 4096), 0);
        assert_int_equal(files_pages_left(id, 0), 1);
        assert_int_equal(files_pages_left(id, 4096), 0);
        assert_int_equal(store(gpa + 8192, "x", 1), -EFAULT); /* a store would be SIGBUS */
        assert_int_equal(arena_copy(gpa + 8192, loaded, 1, false), -EFAULT);
        assert_int_equal(files_next_shared(FILE_NONE), id < id2 ? id : id2);
        assert_int_equal(files_next_shared(id < id2 ? id : id2), id < id2 ? id2 : id);
        assert_int_equal(files_next_shared(id < id2 ? id2 : id), FILE_NONE);

        struct exit_req rq = { .a = { gpa, 4096, MS_SYNC } };
        assert_int_equal(arena_exit_msync(&thread, &rq), 0);
        rq.a[2] = 64;
        assert_int_equal(arena_exit_msync(&thread, &rq), -EINVAL);
        rq.a[0] = gpa + (1ull << 33);
        assert_int_equal(arena_exit_msync(&thread, &rq), -EINVAL);

        /* The id lives as long as a page of it is mapped. */
        assert_int_equal(files_ref(id, -1), -EBADF);
        assert_int_equal(arena_unmap(gpa + 4096, 4096, files_unmapped), 0);
        assert_int_equal(files_pages_left(id, 0), 1);
        assert_int_equal(arena_unmap(gpa + 4096, 4096, files_unmapped), -EINVAL);
        assert_int_equal(arena_unmap(gpa, 4 * 4096, files_unmapped), -EINVAL);
        assert_int_equal(arena_unmap(gpa, 4096, files_unmapped), 0);
        assert_int_equal(arena_unmap(gpa + 8192, 8192, files_unmapped), 0);
        assert_int_equal(files_pages_left(id, 0), -EBADF);
        assert_int_equal(arena_unmap(gpa2, 4096, files_unmapped), 0);
        assert_int_equal(files_live(), 0);
        close(fd), close(ro);
}

/* Closing a handle of a shared mapping must not cost the program its POSIX locks, as closing an
 * ordinary descriptor would. */
static void locks_survive(void **state)
{
        (void)state;
        int fd = make_file(4096), refused;
        uint32_t id;
        uint64_t gpa;
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10 };
        assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
        assert_int_equal(
                map_shared(fd, PROT_READ, MAP_SHARED, 0, 4096, &id, &gpa, &refused), 0);
        assert_int_equal(arena_unmap(gpa, 4096, files_unmapped), 0);
        /* locks of open file descriptions see the process' own as foreign */
        int ofd = reopen(fd, O_RDWR);
        struct flock probe = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10 };
        assert_int_equal(fcntl(ofd, F_OFD_GETLK, &probe), 0);
        assert_int_equal(probe.l_type, F_WRLCK);
        close(ofd), close(fd);
}

static void anonymous(void **state)
{
        (void)state;
        struct exit_req rq = { .a = { 5000 } };
        char path[64];
        dev_t dev;
        ino_t ino;
        assert_int_equal(files_exit_anon_shared(&thread, &rq), 0);
        uint32_t id = (uint32_t)rq.out[0];
        assert_int_equal(rq.out[0] >> 32, 0);
        assert_int_equal(files_pages_left(id, 0), 2);
        assert_int_equal(files_pages_left(id, 8192), 0);
        assert_int_equal(file_describe(id, path, sizeof(path), &dev, &ino), 0);
        assert_string_equal(path, "/dev/zero (deleted)");
        strcpy(arena_host(rq.out[1] + 4096), "there");
        struct exit_req un = { .a = { rq.out[1], 8192 } };
        assert_int_equal(files_exit_unmap(&thread, &un), 0);
        assert_int_equal(files_live(), 0);
        rq.a[0] = 0;
        assert_int_equal(files_exit_anon_shared(&thread, &rq), -EINVAL);
        rq.a[0] = 9ull << 30;                   /* more than the arena */
        assert_int_equal(files_exit_anon_shared(&thread, &rq), -ENOMEM);
        rq.a[0] = UINT64_MAX;
        assert_int_equal(files_exit_anon_shared(&thread, &rq), -ENOMEM);
        assert_int_equal(files_live(), 0);
}

/* The arena is no part of a core that this process would leave. */
static bool would_be_dumped(const void *p)
{
        char line[512];
        unsigned long start, end;
        bool inside = false, found = false, dumped = true;
        FILE *f = fopen("/proc/self/smaps", "r");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
                        inside = start <= (unsigned long)p && (unsigned long)p < end;
                if (inside && strncmp(line, "VmFlags:", 8) == 0) {
                        found = true;
                        dumped = !strstr(line, " dd");
                }
        }
        fclose(f);
        assert_true(found);
        return dumped;
}

/* An object at a second place, longer. Each place is given back by itself. */
static void mapped_again(void **state)
{
        (void)state;
        int fd = make_file(5 * 4096), refused;
        uint32_t id;
        uint64_t gpa, used, backed;
        assert_int_equal(map_shared(fd, PROT_READ | PROT_WRITE, MAP_SHARED, 4096,
                                          2 * 4096, &id, &gpa, &refused),
                         0);
        assert_false(would_be_dumped(arena_host(gpa)));
        /* from the file's third page on, one beyond its end */
        struct exit_req rq = { .a = { id, gpa + 4096, 4 * 4096 } };
        assert_int_equal(files_exit_again(&thread, &rq), 0);
        uint64_t again = rq.out[1];
        assert_false(would_be_dumped(arena_host(again)));
        strcpy((char *)arena_host(again) + 4096, "fourth");
        char c[7];
        assert_int_equal(pread(fd, c, 7, 3 * 4096), 7);
        assert_string_equal(c, "fourth");
        assert_int_equal(store(again + 3 * 4096, "x", 1), -EFAULT);
        assert_int_equal(arena_unmap(gpa, 2 * 4096, files_unmapped), 0);
        assert_string_equal((char *)arena_host(again) + 4096, "fourth");
        assert_int_equal(files_live(), 1);

        /* Refused, nothing stays behind. */
        rq = (struct exit_req){ .a = { id, again, 9ull << 30 } };       /* more than the arena */
        assert_int_equal(files_exit_again(&thread, &rq), -ENOMEM);
        rq = (struct exit_req){ .a = { id, gpa, 4096 } };               /* nothing is there now */
        assert_int_equal(files_exit_again(&thread, &rq), -EINVAL);
        rq = (struct exit_req){ .a = { id + 1, again, 4096 } };
        assert_int_equal(files_exit_again(&thread, &rq), -EBADF);
        arena_usage(&used, &backed);
        assert_int_equal(used, 4 * 4096);
        assert_int_equal(arena_unmap(again, 4 * 4096, files_unmapped), 0);
        assert_int_equal(files_live(), 0);
        close(fd);
}

/* --- files of huge pages --- */

#define HUGE (2ul << 20)
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB"

/* Changes how many huge pages the host reserves, under the lock of test/system/mappings.sh.  What
 * it was, or -1. */
static long set_pool(int by)
{
        static int lock = -1;
        char text[24] = "";
        int fd = open(POOL "/nr_hugepages", O_RDWR);
        if (lock < 0 && (lock = open(POOL, O_RDONLY)) >= 0)
                flock(lock, LOCK_EX);
        if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
                return -1;
        long was = atol(text);
        int n = snprintf(text, sizeof(text), "%ld", was + by);
        bool done = pwrite(fd, text, (size_t)n, 0) == n;
        close(fd);
        if (by < 0)
                close(lock), lock = -1;
        return done ? was : -1;
}

static uint64_t size_of(int fd)
{
        struct stat st;
        assert_int_equal(fstat(fd, &st), 0);
        return (uint64_t)st.st_size;
}

static int exit_map(int fd, uint64_t prot, int flags, uint64_t off, uint64_t len)
{
        struct exit_req *rq = &thread.v->exit;
        rq->a[0] = (uint64_t)fd, rq->a[1] = prot, rq->a[2] = (uint64_t)flags, rq->a[3] = off;
        rq->a[4] = len;
        return (int)files_exit_map(&thread, rq);
}

/* What kern learns, and what it does not have to ask for. */
static void huge_rules(int fd)
{
        int plain = make_file(4096);
        const uint64_t *out = thread.v->exit.out;
        assert_int_equal(exit_map(plain, 0, MAP_SHARED | MAP_HUGETLB, 0, 4096), -EINVAL);
        assert_int_equal(exit_map(plain, 0, MAP_SHARED | MAP_HUGETLB, 0, 0), -EINVAL);
        assert_int_equal(exit_map(plain, 0, MAP_SHARED, 0, 0), 0);
        assert_int_equal(exit_map(fd, 0, MAP_SHARED | MAP_HUGETLB, 0, 0), 0);
        assert_int_equal(exit_map(99, 0, MAP_SHARED | MAP_HUGETLB, 0, 0), -EBADF);
        for (int flags = MAP_SHARED; flags <= MAP_PRIVATE; flags++) {
                assert_int_equal(exit_map(fd, PROT_READ, flags, 4096, 4096), -EINVAL);
                /* with MAP_FIXED at a page that is no huge one's */
                assert_int_equal(exit_map(fd, 4096 | PROT_READ, flags, 0, 4096), -EINVAL);
                assert_int_equal(exit_map(fd, HUGE | PROT_READ, flags | MAP_HUGETLB, 0, 1), 0);
                assert_int_equal(object_order(out[0]), 9);
                if (flags == MAP_PRIVATE)
                        assert_int_equal(files_ref(object_id(out[0]), -1), 0);
                else
                        assert_int_equal(arena_unmap(out[1], HUGE, files_unmapped), 0);
        }
        assert_int_equal(size_of(fd), 0);
        assert_int_equal(files_live(), 0);
        close(plain);
}

/* The file grows to the end of a mapping that may be written, as natively, and no further. */
static void huge_sizes(int fd)
{
        const uint64_t *out = thread.v->exit.out;
        assert_int_equal(exit_map(fd, PROT_READ, MAP_PRIVATE, 0, HUGE), 0);
        assert_int_equal(size_of(fd), 0);
        assert_int_equal(exit_map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0, 4096), 0);
        assert_int_equal(size_of(fd), HUGE);
        uint32_t id = object_id(out[0]);
        assert_int_equal(files_ref(id, -1), 0);
        assert_int_equal(exit_map(fd, PROT_READ | PROT_WRITE, MAP_SHARED, HUGE, 4096), 0);
        assert_int_equal(size_of(fd), 2 * HUGE);
        assert_int_equal(object_refused(out[0]), 0);
        uint64_t gpa = out[1];
        assert_int_equal((gpa - CONTROL->arena_gpa) % HUGE, 0);
        strcpy((char *)arena_host(gpa) + HUGE - 4096, "last");
        assert_int_equal(read_frames(id, 2 * HUGE - 8192, 0, 4, 1), 2);
        assert_string_equal(frame(1), "last");
        assert_int_equal(files_ref(id, -1), 0);
        assert_int_equal(arena_unmap(gpa, HUGE, files_unmapped), 0);
        assert_int_equal(files_live(), 0);
}

/* A mapping of one byte takes 2 MiB, and lies over no other object. */
static void huge_neighbours(int fd)
{
        struct exit_req a = { .a = { 4096 } }, b = a;
        uint64_t used, backed;
        assert_int_equal(files_exit_anon_shared(&thread, &a) | files_exit_anon_shared(&thread, &b),
                         0);
        strcpy(arena_host(b.out[1]), "here");
        assert_int_equal(arena_unmap(a.out[1], 4096, files_unmapped), 0);
        assert_int_equal(exit_map(fd, PROT_READ, MAP_SHARED, 0, 1), 0);
        assert_string_equal(arena_host(b.out[1]), "here");
        arena_usage(&used, &backed);
        assert_int_equal(used, HUGE + 4096);
        assert_int_equal(arena_unmap(thread.v->exit.out[1], HUGE, files_unmapped), 0);
        assert_int_equal(arena_unmap(b.out[1], 4096, files_unmapped), 0);
        assert_int_equal(files_live(), 0);
}

static bool reserved;                   /* by this test */

static int take_huge_pages(void **state)
{
        (void)state;
        reserved = set_pool(4) >= 0;
        return 0;
}

static int give_huge_pages(void **state)
{
        (void)state;
        if (reserved)
                set_pool(-4);
        return 0;
}

static void huge_files(void **state)
{
        (void)state;
        int fd = reserved ? memfd_create("test_files", MFD_HUGETLB | MFD_CLOEXEC) : -1;
        void *p = mmap(NULL, 4 * HUGE, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
                print_message("# four huge pages cannot be reserved\n");
                skip();
        }
        munmap(p, 4 * HUGE);
        huge_rules(fd);
        huge_sizes(fd);
        huge_neighbours(fd);
        close(fd);
}

static unsigned attachments(int shmid)
{
        struct shmid_ds ds;
        assert_int_equal(shmctl(shmid, IPC_STAT, &ds), 0);
        return (unsigned)ds.shm_nattch;
}

static void segments(void **state)
{
        (void)state;
        int shmid = shmget(IPC_PRIVATE, 3 * 4096 - 5, IPC_CREAT | 0600);
        char path[64];
        uint64_t used, backed;
        dev_t dev;
        ino_t ino;
        assert_true(shmid >= 0);
        struct exit_req rw = { .a = { (uint64_t)shmid, 0 } },
                        ro = { .a = { (uint64_t)shmid, SHM_RDONLY } },
                        none = { .a = { (uint32_t)-1 } };
        assert_int_equal(shm_exit_attach(&thread, &none), -EINVAL);
        assert_int_equal(files_live(), 0);
        assert_int_equal(shm_exit_attach(&thread, &rw), 3 * 4096);
        assert_int_equal(shm_exit_attach(&thread, &ro), 3 * 4096);
        uint32_t id = (uint32_t)rw.out[0];
        assert_int_equal(rw.out[0] >> 32, 0);
        assert_int_equal(ro.out[0] >> 32, PROT_WRITE);
        assert_int_not_equal(id, (uint32_t)ro.out[0]);
        assert_int_equal(attachments(shmid), 2);
        assert_false(would_be_dumped(arena_host(rw.out[1])));
        arena_usage(&used, &backed);
        assert_int_equal(used, 2 * 3 * 4096);
        strcpy(arena_host(rw.out[1] + 2 * 4096), "shared");
        assert_string_equal(arena_host(ro.out[1] + 2 * 4096), "shared");
        assert_int_equal(store(ro.out[1], "x", 1), -EFAULT);
        assert_int_equal(files_pages_left(id, 4096), 2);
        assert_int_equal(files_pages_left(id, 3 * 4096), 0);
        assert_int_equal(file_describe(id, path, sizeof(path), &dev, &ino), 0);
        assert_string_equal(path, "/SYSV00000000 (deleted)");
        assert_int_equal(ino, shmid);
        assert_int_equal(arena_unmap(rw.out[1] + 4096, 2 * 4096, files_unmapped), 0);
        assert_int_equal(attachments(shmid), 2);
        assert_int_equal(arena_unmap(rw.out[1], 4096, files_unmapped), 0);
        assert_int_equal(attachments(shmid), 1);
        assert_int_equal(arena_unmap(ro.out[1], 3 * 4096, files_unmapped), 0);
        assert_int_equal(attachments(shmid), 0);
        assert_int_equal(shmctl(shmid, IPC_RMID, NULL), 0);
        assert_int_equal(shm_exit_attach(&thread, &rw), -EINVAL);
        assert_int_equal(files_live(), 0);
}

/* --- the allocator at random --- */

#define MODEL_PAGES (8ull << 30 >> PAGE_SHIFT)
#define STEPS 20000
static uint32_t model[MODEL_PAGES];             /* owner of each page */

static uint64_t seed;
static uint32_t rnd(uint32_t n)
{
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        return (uint32_t)((seed >> 11) % n);
}

/* Maps len bytes of memory at a multiple of unit, as a mapping of huge pages claims them. */
static int64_t map_aligned(uint64_t len, uint64_t unit, struct exit_req *rq)
{
        struct file_mapping m = {
                .fd = -1, .flags = MAP_SHARED | MAP_ANONYMOUS, .len = len, .unit = unit
        };
        uint32_t id = files_segment(1, 1, len, len / PAGE_SIZE);
        int err = arena_map_fd(NULL, id, &m);
        if (err)
                files_unmapped(id, len / PAGE_SIZE);
        rq->out[0] = id;
        rq->out[1] = m.gpa;
        return err;
}

/* A slot is made large enough also where the pages are larger than the free space at its start. */
static void larger_than_a_slot(void)
{
        struct exit_req a = { .a = { 4096 } }, b;
        assert_int_equal(files_exit_anon_shared(&thread, &a), 0);
        assert_int_equal(map_aligned(1ull << 30, 1ull << 30, &b), 0);
        assert_int_equal((b.out[1] - CONTROL->arena_gpa) % (1ull << 30), 0);
        assert_int_equal(arena_unmap(b.out[1], 1ull << 30, files_unmapped), 0);
        assert_int_equal(arena_unmap(a.out[1], 4096, files_unmapped), 0);
}

static void allocator(void **state)
{
        static struct { uint64_t at, n; uint32_t id; } live[256];
        uint64_t used_pages = 0, used, backed;
        unsigned count = 0;
        (void)state;
        seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)time(NULL) << 16 | 1;
        print_message("# seed %llu\n", (unsigned long long)seed);
        larger_than_a_slot();

        for (unsigned step = 0; step < STEPS; step++) {
                if (count < 256 && rnd(2)) {
                        uint64_t n = rnd(20) ? 1 + rnd(64) : 1 + rnd(MODEL_PAGES / 4);
                        uint64_t unit = rnd(4) ? 1 : 512, from = 0;
                        n = unit > 1 ? (n + unit - 1) / unit * unit : n;
                        struct exit_req rq = { .a = { n * PAGE_SIZE } };
                        int64_t err = unit > 1 ? map_aligned(n * PAGE_SIZE, HUGE, &rq)
                                               : files_exit_anon_shared(&thread, &rq);
                        if (err) {                      /* only when it really does not fit */
                                assert_int_equal(err, -ENOMEM);
                                for (uint64_t i = 0; i < MODEL_PAGES; i++) {
                                        from = model[i] ? i + 1 : from;
                                        assert_true((from + unit - 1) / unit * unit + n > i + 1);
                                }
                                continue;
                        }
                        uint64_t at = (rq.out[1] - CONTROL->arena_gpa) / PAGE_SIZE;
                        assert_int_equal(at % unit, 0);
                        assert_true(at + n <= MODEL_PAGES && (at + n) * PAGE_SIZE <= slots_end);
                        for (uint64_t i = at; i < at + n; i++) {
                                assert_int_equal(model[i], 0);
                                model[i] = (uint32_t)rq.out[0];
                        }
                        *(volatile uint32_t *)arena_host(rq.out[1] + (n - 1) * PAGE_SIZE) = 1;
                        live[count].at = at, live[count].n = n,
                        live[count++].id = (uint32_t)rq.out[0];
                        used_pages += n;
                } else if (count) {
                        /* A piece at either end, or all, or, wrongly, one page more. */
                        unsigned k = rnd(count);
                        uint64_t n = rnd(3) ? live[k].n : 1 + rnd((uint32_t)live[k].n),
                                 at = live[k].at;
                        if (rnd(2)) {
                                at += live[k].n - n;
                                live[k].n -= n;
                        } else {
                                live[k].at += n;
                                live[k].n -= n;
                        }
                        if (at + n < MODEL_PAGES && !model[at + n])
                                assert_int_equal(arena_unmap(CONTROL->arena_gpa + at * PAGE_SIZE,
                                                             (n + 1) * PAGE_SIZE, files_unmapped),
                                                 -EINVAL);
                        assert_int_equal(arena_unmap(CONTROL->arena_gpa + at * PAGE_SIZE,
                                                     n * PAGE_SIZE, files_unmapped),
                                         0);
                        for (uint64_t i = at; i < at + n; i++)
                                model[i] = 0;
                        used_pages -= n;
                        assert_int_equal(files_pages_left(live[k].id, 0) == -EBADF, live[k].n == 0);
                        if (!live[k].n)
                                live[k] = live[--count];
                }
                arena_usage(&used, &backed);
                assert_int_equal(used, used_pages * PAGE_SIZE);
                assert_int_equal(files_live(), count);
        }
        while (count--)
                assert_int_equal(arena_unmap(CONTROL->arena_gpa + live[count].at * PAGE_SIZE,
                                             live[count].n * PAGE_SIZE, files_unmapped),
                                 0);
        arena_usage(&used, &backed);
        assert_int_equal(used, 0);
        assert_int_equal(files_live(), 0);
        assert_true(backed <= 8ull << 30 && nslots <= 10);

        /* One range over several owners, as munmap of neighbours may ask for it. */
        struct exit_req a = { .a = { 4096 } }, b = a;
        assert_int_equal(files_exit_anon_shared(&thread, &a) | files_exit_anon_shared(&thread, &b),
                         0);
        assert_int_equal(b.out[1], a.out[1] + 4096);
        assert_int_equal(arena_unmap(a.out[1], 8192, files_unmapped), 0);
        assert_int_equal(files_live(), 0);
}

/* Once KVM has met a page without memory, each page is looked at before it is mapped.  (For ever:
 * this test is the last.) */
static void distrust(void **state)
{
        (void)state;
        int fd = make_file(2 * 4096), refused;
        uint32_t id;
        uint64_t gpa;
        assert_int_equal(map_shared(fd, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 4 * 4096, &id, &gpa,
                                    &refused),
                         0);
        assert_int_equal(arena_there(gpa, true, 4), 4);
        arena_distrust();
        assert_int_equal(arena_there(gpa, false, 2), 1);
        assert_int_equal(arena_there(gpa + 4096, true, 1), 1);
        assert_int_equal(arena_there(gpa + 4096, true, 0), 0);
        assert_int_equal(arena_there(gpa, true, -EBADF), -EBADF);
        assert_int_equal(arena_there(gpa + 8192, false, 2), 0);
        assert_int_equal(arena_there(gpa + 8192, true, 2), 0);
        struct exit_req rq = { .a = { id, 0, gpa | 1 } };
        assert_int_equal(files_exit_shared_check(&thread, &rq), 1);
        assert_int_equal(arena_unmap(gpa, 4 * 4096, files_unmapped), 0);
        close(fd);
}

/* Guest-physical space: far memory and the arena share what a small cache leaves, whatever the
 * CPU. */
static void space(void **state)
{
        const uint64_t GiB = 1ull << 30, host = ARENA_END - ARENA;

        (void)state;
        for (unsigned bits = 36; bits <= 48; bits++)
                for (uint64_t far = 0; far <= 1ull << 13; far = far ? far * 2 : 1) {
                        uint64_t top = 1ull << bits, ram = 5 * GiB;
                        uint64_t pool = space_pool(GiB / PAGE_SIZE, far * GiB / PAGE_SIZE);
                        struct space_arena a = space_arena(bits, ram, pool);
                        assert_true(space_pool_pages(pool) * PAGE_SIZE >= (far + 1) * GiB);
                        assert_true(a.size >= (top / 8 < host ? top / 8 : host));
                        assert_true(a.size <= host && a.gpa + a.size <= top);
                        assert_int_equal(a.gpa % GiB, 0);
                        /* room for all that the pool has tables for, unless the eighth is
                         * too much */
                        assert_true(a.gpa == top / 8 * 7 ||
                                    a.gpa >= ram + space_pool_pages(pool) * PAGE_SIZE + 8 * GiB);
                }
        /* 39 and 40 bits, no more than 64 GiB of far memory */
        assert_true(space_arena(39, 5 * GiB, GiB).size >= 400 * GiB);
        assert_true(space_arena(40, 5 * GiB, GiB).size >= 900 * GiB);
}

int main(void)
{
        void *ram = mmap((void *)WINDOW, FRAMES_OFF + NFRAMES * 4096, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (ram != (void *)WINDOW) {
                perror("the window is taken");
                return 99;
        }
        CONTROL->nframes = NFRAMES;
        CONTROL->frames_off = FRAMES_OFF;
        CONTROL->arena_size = (1ull << PHYS_BITS) / 8;
        CONTROL->arena_gpa = (1ull << PHYS_BITS) - CONTROL->arena_size;
        thread.v = vcpu_block(0);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(reading), cmocka_unit_test(bad_requests),
                cmocka_unit_test(identity), cmocka_unit_test(errors), cmocka_unit_test(dev_zero),
                cmocka_unit_test(sockets),
                cmocka_unit_test(shared_files), cmocka_unit_test(locks_survive),
                cmocka_unit_test(anonymous), cmocka_unit_test(mapped_again),
                cmocka_unit_test_setup_teardown(huge_files, take_huge_pages, give_huge_pages),
                cmocka_unit_test(segments), cmocka_unit_test(allocator), cmocka_unit_test(distrust),
                cmocka_unit_test(space),
        };
        return cmocka_run_group_tests_name("files", tests, NULL, NULL);
}
