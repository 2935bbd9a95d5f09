/*
 * t_shm: mappings that forked processes share, shared mappings that mremap makes longer, and files
 * that are cut short while they are mapped.
 */
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "t_shm.h"

/* --- a touch --- */

static sigjmp_buf back;
static volatile sig_atomic_t expected;  /* a fault is: else the test fails */
static siginfo_t seen;

static void on_fault(int signo, siginfo_t *info, void *context)
{
        (void)context;
        if (!expected) {
                signal(signo, SIG_DFL);
                return;
        }
        seen = *info;
        siglongjmp(back, signo);
}

int touch(void *p, bool write)
{
        struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
        volatile char *c = p;

        CHECK(sigaction(SIGBUS, &a, NULL) == 0 && sigaction(SIGSEGV, &a, NULL) == 0);
        int signo = sigsetjmp(back, 1);
        if (signo == 0) {
                expected = 1;
                char value = *c;
                if (write)
                        *c = value;
        }
        expected = 0;
        CHECK(signo == 0 || (seen.si_signo == signo && seen.si_addr == p));
        CHECK(signo != SIGBUS || seen.si_code == BUS_ADRERR);
        CHECK(signo != SIGSEGV || seen.si_code == SEGV_MAPERR || seen.si_code == SEGV_ACCERR);
        return signo;
}

void expect_maps(const void *p, uint64_t n, const char *middle, int number, const char *name,
                 unsigned key)
{
        char line[512], wanted[128], start[64];
        FILE *f = fopen("/proc/self/maps", "r");

        CHECK(f != NULL);
        int len = snprintf(start, sizeof(start), "%lx-%lx ", (unsigned long)p,
                           (unsigned long)p + n * PG);
        while (fgets(line, sizeof(line), f) && strncmp(line, start, (size_t)len) != 0)
                ;
        fclose(f);
        CHECK(strncmp(line, start, (size_t)len) == 0);
        snprintf(wanted, sizeof(wanted), middle, number);
        CHECK(strncmp(line + len, wanted, strlen(wanted)) == 0);
        snprintf(wanted, sizeof(wanted), name, key);
        char *at = strchr(line, '/');
        CHECK(at && strncmp(at, wanted, strlen(wanted)) == 0 && at[strlen(wanted)] == '\n');
}

/* --- objects --- */

#define FEW 20ul                        /* pages */

static int in_folder(void)
{
        int fd = open("t_shm.tmp", O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && unlink("t_shm.tmp") == 0);
        return fd;
}

static int posix(void)
{
        char name[40];
        snprintf(name, sizeof(name), "/t_shm.%d", getpid());
        int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && shm_unlink(name) == 0);
        return fd;
}

static int memory(void)
{
        int fd = memfd_create("t_shm", MFD_ALLOW_SEALING);
        CHECK(fd >= 0);
        return fd;
}

static int anonymous(void) { return -1; }

static int (*const objects[])(void) = { in_folder, posix, memory, anonymous };

/* The object k, FEW pages long, mapped; *fd is -1 where there is none. */
static char *map_object(unsigned k, int *fd)
{
        *fd = objects[k]();
        CHECK(*fd < 0 || ftruncate(*fd, FEW * PG) == 0);
        char *p =
                mmap(NULL, FEW * PG, RW, *fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, *fd, 0);
        CHECK(p != MAP_FAILED);
        return p;
}

/* --- two processes --- */

/*
 * Each process writes words that the other reads, in turns, also through another mapping, and to
 * pages that neither had touched before the fork.
 */
static void pair(unsigned k)
{
        int fd, to[2], from[2];
        char *p = map_object(k, &fd), c = 0;

        CHECK(pipe(to) == 0 && pipe(from) == 0);
        fill(p, 0, FEW / 2, 1);
        pid_t child = start_child();
        if (!child) {
                for (uint64_t round = 0; round < 20; round++) {
                        verify("what the parent wrote", p, 0, FEW / 2, 1 + 2 * round);
                        fill(p, 0, FEW, 2 + 2 * round);
                        CHECK(write(from[1], &c, 1) == 1 && read(to[0], &c, 1) == 1);
                }
                CHECK(munmap(p, FEW / 2 * PG) == 0 && munmap(p + FEW / 2 * PG, FEW / 2 * PG) == 0);
                _exit(0);
        }
        for (uint64_t round = 0; round < 20; round++) {
                CHECK(read(from[0], &c, 1) == 1);
                verify("what the child wrote", p, 0, FEW, 2 + 2 * round);
                if (fd >= 0 && round % 2) {
                        char *q = mmap(NULL, FEW * PG, RW, MAP_SHARED, fd, 0);
                        CHECK(q != MAP_FAILED);
                        verify("another mapping", q, 0, FEW, 2 + 2 * round);
                        fill(q, 0, FEW, 3 + 2 * round);
                        CHECK(munmap(q, FEW * PG) == 0);
                } else {
                        fill(p, 0, FEW, 3 + 2 * round);
                }
                CHECK(write(to[1], &c, 1) == 1);
        }
        reap(child, 0);
        verify("when the child is gone", p, 0, FEW, 41);
        CHECK(munmap(p, FEW * PG) == 0);
        for (int i = 0; i < 2; i++)
                close(to[i]), close(from[i]);
        close(fd);
}

static void seals(void)
{
        int fd;
        char *p = map_object(2, &fd);

        FAILS(EBUSY, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));     /* it is mapped for writing */
        CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        FAILS(EPERM, ftruncate(fd, PG));
        fill(p, 0, FEW, 1);
        CHECK(munmap(p, FEW * PG) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
        FAILS(EPERM, mmap(NULL, PG, RW, MAP_SHARED, fd, 0));
        p = mmap(NULL, FEW * PG, RW, MAP_PRIVATE, fd, 0);
        CHECK(p != MAP_FAILED);
        verify("sealed", p, 0, FEW, 1);
        CHECK(munmap(p, FEW * PG) == 0);
        close(fd);
}

/* --- files that are cut short --- */

/* The content of [p, p + FEW pages), of an object that has `left` whole pages and `bytes` more. */
static void expect_cut(char *p, uint64_t left, uint64_t bytes)
{
        uint64_t there = left + (bytes > 0);

        for (uint64_t i = 0; i < FEW; i++) {
                CHECK(touch(p + i * PG, false) == (i < there ? 0 : SIGBUS));
                CHECK(touch(p + i * PG + 77, true) == (i < there ? 0 : SIGBUS));
                CHECK(touch(p + i * PG + PG - 1, true) == (i < there ? 0 : SIGBUS));
        }
        verify("what is left", p, 0, left, 1);
        for (uint64_t i = bytes; bytes && i < PG; i++)
                CHECK(p[left * PG + i] == 0);
}

static void cut_file(int fd, uint64_t left, uint64_t bytes, bool by_child)
{
        pid_t child = by_child ? start_child() : 0;

        if (child == 0)
                CHECK(ftruncate(fd, (off_t)(left * PG + bytes)) == 0);
        if (by_child && child == 0)
                _exit(0);
        if (by_child)
                reap(child, 0);
}

/* A system call whose buffer reaches into the part of p that was cut off, at page `left`, stops
 * there. */
static void calls_stop(char *p, uint64_t left)
{
        int fd = memory();
        char *from = p + (left - 3) * PG + 77;
        ssize_t there = 3 * PG - 77;

        CHECK(pwrite(fd, from, 6 * PG, 0) == there);
        CHECK(ftruncate(fd, 6 * PG) == 0 && pread(fd, from, 6 * PG, 0) == there);
        FAILS(EFAULT, pwrite(fd, p + left * PG, PG, 0));
        FAILS(EFAULT, pread(fd, p + left * PG, PG, 0));
        close(fd);
}

static void cut(unsigned k, bool by_child)
{
        int fd;
        char *p = map_object(k, &fd);
        char *fresh = mmap(NULL, FEW * PG, RW, MAP_SHARED, fd, 0),
             *private = mmap(NULL, FEW * PG, RW, MAP_PRIVATE, fd, 0);

        CHECK(fresh != MAP_FAILED && private != MAP_FAILED);
        fill(p, 0, FEW, 1);
        cut_file(fd, FEW / 2, 0, by_child);
        calls_stop(p, FEW / 2);
        expect_cut(p, FEW / 2, 0);
        cut_file(fd, 3, 100, by_child);
        expect_cut(p, 3, 100);
        expect_cut(fresh, 3, 100);
        CHECK(touch(private + 3 * PG, false) == 0 && touch(private + 4 * PG, false) == SIGBUS &&
              touch(private + 5 * PG + 5, true) == SIGBUS);
        cut_file(fd, FEW, 0, by_child);
        for (uint64_t i = 4; i < FEW; i++)
                CHECK(touch(p + i * PG, true) == 0 && touch(fresh + i * PG, false) == 0);
        verify("longer again", fresh + 4 * PG, 4, FEW - 4, 0);
        CHECK(touch(private + 4 * PG, false) == 0 && touch(private + 5 * PG, true) == 0);
        fill(p, 0, FEW, 1);
        cut_file(fd, 3, 100, by_child); /* shorter and longer again, without an access */
        cut_file(fd, FEW, 0, by_child);
        verify("what was not cut", fresh, 0, 3, 1);
        verify("what was", fresh + 4 * PG, 4, FEW - 4, 0);
        for (uint64_t i = 100; i < PG; i++)
                CHECK(p[3 * PG + i] == 0);
        fill(p, 0, FEW, 2);
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5 * PG, 2 * PG) == 0);
        verify("around a hole", fresh, 0, 5, 2);
        verify("a hole", p + 5 * PG, 5, 2, 0);
        verify("behind a hole", p + 7 * PG, 7, FEW - 7, 2);
        fill(fresh + 5 * PG, 5, 2, 3);
        verify("filled again", p + 5 * PG, 5, 2, 3);
        cut_file(fd, 0, 0, by_child);
        expect_cut(fresh, 0, 0);
        CHECK(munmap(p, FEW * PG) == 0 && munmap(fresh, FEW * PG) == 0 &&
              munmap(private, FEW * PG) == 0);
        close(fd);
}

/* A private mapping loses its own copies, too: by ftruncate, truncate and O_TRUNC. */
static void cut_private(void)
{
        int fd = open("t_shm.tmp", O_RDWR | O_CREAT | O_EXCL, 0600);

        CHECK(fd >= 0);
        for (int way = 0; way < 4; way++) {
                char page[PG];
                for (uint64_t i = 0; i < FEW; i++) {
                        fill(page, i, 1, 1);
                        CHECK(pwrite(fd, page, PG, (off_t)(i * PG)) == PG);
                }
                char *p = mmap(NULL, FEW * PG, RW, MAP_PRIVATE, fd, 0),
                     *q = mmap(NULL, FEW / 2 * PG, PROT_READ, MAP_PRIVATE, fd, FEW / 2 * PG);
                CHECK(p != MAP_FAILED && q != MAP_FAILED);
                fill(p, 0, FEW / 2 + 3, 2);
                verify("the file", p + (FEW / 2 + 3) * PG, FEW / 2 + 3, FEW / 2 - 3, 1);
                verify("the file's second half", q, FEW / 2, FEW / 2, 1);
                uint64_t left = way < 2 ? 3 : 0;
                switch (way) {
                case 0: CHECK(ftruncate(fd, 3 * PG) == 0); break;
                case 1: CHECK(truncate("t_shm.tmp", 3 * PG) == 0); break;
                case 2: CHECK(close(open("t_shm.tmp", O_RDWR | O_TRUNC)) == 0); break;
                case 3: CHECK(close(creat("t_shm.tmp", 0600)) == 0); break;
                }
                verify("its own copies that are left", p, 0, left, 2);
                for (uint64_t i = left; i < FEW; i++)
                        CHECK(touch(p + i * PG, i % 2) == SIGBUS);
                CHECK(touch(q, false) == SIGBUS && touch(q + 4 * PG, false) == SIGBUS);
                CHECK(ftruncate(fd, FEW * PG) == 0);
                verify("its own copies that are left, again", p, 0, left, 2);
                verify("longer again", p + left * PG, left, FEW - left, 0);
                fill(p, 0, FEW, 3);
                verify("written again", p, 0, FEW, 3);
                verify("the second half, longer again", q, FEW / 2, FEW / 2, 0);
                CHECK(munmap(p, FEW * PG) == 0 && munmap(q, FEW / 2 * PG) == 0);
        }
        CHECK(close(fd) == 0 && unlink("t_shm.tmp") == 0);
}

/* Without a handler the program dies of it. */
static void die_of_it(void)
{
        int fd;
        char *p = map_object(0, &fd);

        CHECK(touch(p, true) == 0);
        pid_t child = start_child();
        if (!child) {
                signal(SIGBUS, SIG_DFL);
                prctl(PR_SET_DUMPABLE, 0);      /* a core would show in the status */
                CHECK(ftruncate(fd, 0) == 0);
                *(volatile char *)p = 1;
                _exit(0);
        }
        reap(child, SIGBUS);
        CHECK(touch(p, false) == SIGBUS && munmap(p, FEW * PG) == 0);
        close(fd);
}

/* --- longer --- */

static void longer(unsigned k)
{
        int fd;
        char *p = map_object(k, &fd), *q, *room = map_pages(4 * FEW, PROT_NONE, MAP_PRIVATE);
        uint64_t end = fd < 0 ? FEW : 2 * FEW;          /* of the object, now */

        CHECK(fd < 0 || ftruncate(fd, (off_t)(end * PG)) == 0);
        fill(p, 0, FEW, 1);
        q = remap(p, FEW * PG, FEW * PG, MREMAP_MAYMOVE | MREMAP_FIXED, room);
        CHECK(q == room);
        FAILS(ENOMEM, remap(q, FEW * PG, 2 * FEW * PG, 0, NULL));       /* no room behind it */
        CHECK(munmap(room + FEW * PG, 3 * FEW * PG) == 0);
        CHECK(remap(q, FEW * PG, 3 * FEW * PG, 0, NULL) == q);          /* in place */
        verify("the old part", q, 0, FEW, 1);
        verify("the new part", q + FEW * PG, FEW, end - FEW, 0);
        CHECK(touch(q + end * PG, false) == SIGBUS &&
              touch(q + (3 * FEW - 1) * PG, true) == SIGBUS);
        fill(q, 0, end, 2);
        if (fd >= 0) {
                char page[PG];
                CHECK(pread(fd, page, PG, (off_t)((end - 1) * PG)) == PG);
                verify("the file", page, end - 1, 1, 2);
        }

        /* Only its end grows, elsewhere; the beginning stays. */
        p = remap(q + 2 * PG, (3 * FEW - 2) * PG, 4 * FEW * PG, MREMAP_MAYMOVE, NULL);
        CHECK(p != MAP_FAILED);
        verify("moved, the beginning", q, 0, 2, 2);
        verify("moved", p, 2, end - 2, 2);
        CHECK(touch(p + (end - 2) * PG, false) == SIGBUS);
        CHECK(p == q + 2 * PG || touch(q + 2 * PG, false) == SIGSEGV);

        /* A child has this mapping as well, and can grow it, too. */
        pid_t child = start_child();
        if (!child) {
                verify("in a child", p, 2, end - 2, 2);
                p = remap(p, 4 * FEW * PG, 5 * FEW * PG, MREMAP_MAYMOVE, NULL);
                CHECK(p != MAP_FAILED);
                fill(p, 2, end - 2, 3);
                _exit(0);
        }
        reap(child, 0);
        verify("what the child wrote", p, 2, end - 2, 3);

        /* An old length of 0: once more. */
        room = remap(p, 0, 3 * PG, MREMAP_MAYMOVE, NULL);
        CHECK(room != MAP_FAILED && room != p);
        verify("twice", room, 2, 3, 3);
        fill(p, 2, 3, 4);
        verify("twice, changed", room, 2, 3, 4);
        FAILS(ENOMEM, remap(p, 0, 3 * PG, 0, NULL));
        CHECK(munmap(q, 2 * PG) == 0 && munmap(p, 4 * FEW * PG) == 0);
        verify("what remains", room, 2, 3, 4);
        CHECK(munmap(room, 3 * PG) == 0);
        close(fd);
}

static void read_only(void)
{
        int fd;
        char *p = map_object(0, &fd), *q, name[40];

        fill(p, 0, FEW, 1);
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        int ro = open(name, O_RDONLY);
        CHECK(ro >= 0 && (q = mmap(NULL, PG, PROT_READ, MAP_SHARED, ro, PG)) != MAP_FAILED);
        close(ro);
        q = remap(q, PG, 5 * PG, MREMAP_MAYMOVE, NULL);
        CHECK(q != MAP_FAILED);
        verify("for reading", q, 1, 5, 1);
        CHECK(touch(q + 4 * PG, true) == SIGSEGV);
        FAILS(EACCES, mprotect(q, PG, RW));
        CHECK(munmap(q, 5 * PG) == 0 && munmap(p, FEW * PG) == 0);
        close(fd);
}

/* A file of which few pages are used may be longer than memory. */
static void sparse(void)
{
        const uint64_t size = 160ull << 30;
        int fd = memfd_create("sparse", 0);

        CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
        uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(p != MAP_FAILED);
        p[0] = 1;
        p[size - 1] = 2;
        uint8_t end[2] = { 0 };
        CHECK(pread(fd, end, 1, 0) == 1 && pread(fd, end + 1, 1, (off_t)size - 1) == 1);
        CHECK(end[0] == 1 && end[1] == 2);
        munmap(p, size);
        close(fd);
}

void shared_files_tests(void)
{
        sparse();
        printf("sparse: ok\n");
        for (unsigned k = 0; k < 4; k++)
                pair(k);
        printf("pairs: ok\n");
        seals();
        printf("seals: ok\n");
        for (unsigned k = 0; k < 3; k++) {
                cut(k, false);
                cut(k, true);
        }
        cut_private();
        die_of_it();
        printf("cut short: ok\n");
        for (unsigned k = 0; k < 4; k++)
                longer(k);
        read_only();
        printf("longer: ok\n");
}
