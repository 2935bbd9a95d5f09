/*
 * vmg_read: arguments that are wrong, all kinds of pages, destinations that are far themselves, and
 * threads that read what others store to, unmap, protect and fork.  Its output is the same
 * natively and under vmrun.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include "t_memory.h"
#include "vmguest.h"

#define TOP ((char *)0x7ffffffff000ul)  /* where no program has memory */
#define PAGES 2048ul

static char *arena, *copy;              /* PAGES pages each */

static uint64_t next(uint64_t *x)
{
        *x = *x * 6364136223846793005ul + 1442695040888963407ul;
        return *x >> 20;
}

/* As it is under vmrun and natively: all bytes or -EFAULT. */
static bool reads(void *dst, const void *src, size_t len)
{
        ssize_t n = vmg_read(dst, src, len, 0);

        CHECK(n == (ssize_t)len || n == -EFAULT);
        return n >= 0;
}

/* ---- arguments ---- */

static void arguments(void)
{
        char here[64], *last = (char *)(UINTPTR_MAX - 100);
        char *p = map_pages(4, RW, MAP_PRIVATE);

        memset(p, 7, 4 * PG);
        CHECK(vmg_read(here, p, 8, 2) == -EINVAL);
        CHECK(vmg_read(here, p, 8, ~VMG_UNVERIFIED) == -EINVAL);
        CHECK(vmg_read(here, last, 4096, 0) == -EINVAL);
        CHECK(vmg_read(last, here, 4096, 0) == -EINVAL);
        CHECK(vmg_read(here, NULL, SIZE_MAX, 0) == -EINVAL);
        CHECK(vmg_read(here, p, (size_t)1 << 62, 0) == -EFAULT);
        CHECK(vmg_read(here, TOP, 1, 0) == -EFAULT);
        CHECK(vmg_read(TOP, here, 1, 0) == -EFAULT);
        CHECK(vmg_read(here, TOP - 8, 16, 0) == -EFAULT);
        CHECK(vmg_read(here, NULL, 1, 0) == -EFAULT);
        CHECK(vmg_read(NULL, here, 1, 0) == -EFAULT);
        CHECK(vmg_read(NULL, NULL, 0, 0) == 0);
        CHECK(vmg_read(here, p, 0, VMG_UNVERIFIED) == 0);
        CHECK(vmg_read(here, p + PG - 3, 6, VMG_UNVERIFIED) == 6 && here[5] == 7);
        CHECK(munmap(p + PG, PG) == 0);
        CHECK(!reads(here, p + PG, 1) && !reads(here, p + PG - 1, 2) && !reads(p + PG, here, 1));
        CHECK(!reads(p + PG - 1, here, 2));
        CHECK(reads(here, p + PG - 1, 1) && reads(here, p + 2 * PG, 64));
        CHECK(mprotect(p + 2 * PG, PG, PROT_NONE) == 0);
        CHECK(!reads(here, p + 2 * PG, 1) && !reads(p + 2 * PG, here, 1));
        CHECK(mprotect(p + 2 * PG, PG, PROT_READ) == 0);
        CHECK(reads(here, p + 2 * PG, 1) && !reads(p + 2 * PG, here, 1));
        errno = 33;
        CHECK(vmg_read(here, NULL, 1, 0) == -EFAULT && errno == 33);
        munmap(p, 4 * PG);
        /* kern's own part of the address space, natively unused */
        CHECK(!reads(here, (void *)0x680000000000ul, 8));
        CHECK(!reads(here, (void *)0x67fffffff000ul, 8));
}

/* ---- pages of all kinds ---- */

static void check_part(const char *part, size_t at, size_t len, uint64_t version)
{
        for (size_t i = 0; i < len; i++, at++) {
                uint64_t tag = page_tag(at / PG, version) + at % PG / CELL;
                uint64_t w = cell_word(tag, (unsigned)(at % CELL / 8));
                CHECK(part[i] == (char)(w >> at % 8 * 8));
        }
}

/* Far pages are right, and stay far. */
static void content(void)
{
        uint64_t x = 1;
        char part[3 * PG];

        fill(arena, 0, PAGES, 1);
        for (unsigned turn = 0; turn < 3000; turn++) {
                size_t at = next(&x) % (PAGES * PG - sizeof(part));
                size_t len = turn % 8 ? 1 + next(&x) % 200 : next(&x) % sizeof(part);
                ssize_t here = vmg_resident(arena + at, len);
                CHECK(vmg_read(part, arena + at, len, turn & 1) == (ssize_t)len);
                if (vmg_version() && here == 0)
                        CHECK(vmg_resident(arena + at, len) == 0);
                check_part(part, at, len, 1);
        }
        verify("arena", arena, 0, PAGES, 1);
}

/* The destination is far, never touched, or both are parts of one page. */
static void destinations(void)
{
        uint64_t x = 2;

        for (unsigned turn = 0; turn < 1000; turn++) {
                size_t at = next(&x) % (PAGES - 2) * PG, len = next(&x) % (2 * PG);
                CHECK(vmg_read(copy + at + 5, arena + at + 5, len, 0) == (ssize_t)len);
                check_part(copy + at + 5, at + 5, len, 1);
        }
        CHECK(vmg_read(copy, arena, PAGES * PG, 0) == (ssize_t)(PAGES * PG));
        verify("copy", copy, 0, PAGES, 1);
        CHECK(vmg_read(copy + 100, copy + 1000, 500, 0) == 500);
        check_part(copy + 100, 1000, 500, 1);
}

static void no_content(void)
{
        char *p = map_pages(64, RW, MAP_PRIVATE), part[2 * PG];

        memset(part, 1, sizeof(part));
        CHECK(reads(part, p + 100, sizeof(part)));
        for (size_t i = 0; i < sizeof(part); i++)
                CHECK(part[i] == 0);
        CHECK(!vmg_version() || vmg_resident(p, 64 * PG) == 0);
        p[0] = 1;
        CHECK(madvise(p, PG, MADV_DONTNEED) == 0 && reads(part, p, 1) && part[0] == 0);
        munmap(p, 64 * PG);
}

static void files(void)
{
        char part[PG], name[] = "/tmp/t_hints_readXXXXXX";
        int fd = mkstemp(name);

        CHECK(fd >= 0 && unlink(name) == 0);
        for (unsigned i = 0; i < 4; i++) {
                memset(part, 'a' + (int)i, PG);
                CHECK(write(fd, part, i < 3 ? PG : 10) > 0);
        }
        for (int shared = 0; shared < 2; shared++) {
                char *p = mmap(NULL, 8 * PG, RW, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
                CHECK(p != MAP_FAILED);
                CHECK(reads(part, p + PG - 2, 4) && memcmp(part, "aabb", 4) == 0);
                CHECK(reads(part, p + 3 * PG + 9, 2) && part[0] == 'd' && part[1] == 0);
                p[2 * PG] = 'x';
                CHECK(reads(part, p + 2 * PG, 2) && memcmp(part, "xc", 2) == 0);
                CHECK(!reads(part, p + 4 * PG, 1));     /* beyond its end */
                CHECK(reads(p + 100, arena, 64) && memcmp(p + 100, arena, 64) == 0);
                munmap(p, 8 * PG);
        }
        close(fd);
}

/* ---- threads ----
 *
 * Group 0: one thread counts bytes up, so that a reader knows the range of its value: from the
 * last store before its call to the last store begun before its answer.
 * Group 1: MADV_DONTNEED: zero, or the page's byte.  Group 2: unmapped for a while.  Group 3: no
 * access for a while, or moved away. */
#define GROUPS 4
#define GROUP (PAGES / GROUPS)
#define COUNTED 37ul                    /* the byte that counts: another place in each page */

static atomic_bool stop;
static atomic_uint begun[GROUP], stored[GROUP];       /* of which the byte has the lowest 8 bits */

static char *page_of(unsigned group, uint64_t page) { return arena + (group * GROUP + page) * PG; }
static size_t place(uint64_t page) { return page * COUNTED % (PG - 8); }
static char byte_of(unsigned group, uint64_t page) { return (char)(1 + (page * 7 + group) % 120); }

static void *count_up(void *arg)
{
        uint64_t x = 3;

        (void)arg;
        while (!stop) {
                uint64_t page = next(&x) % GROUP;
                unsigned value = begun[page] + 1;
                begun[page] = value;
                ((volatile char *)page_of(0, page))[place(page)] = (char)value;
                stored[page] = value;
        }
        return NULL;
}

/* Nothing can be said if the byte has run through all its values meanwhile. */
static void check_counted(unsigned least, unsigned char value, unsigned most)
{
        CHECK(most - least > 255 || (unsigned char)(value - least) <= most - least);
}

static void read_counted(uint64_t *x)
{
        uint64_t page = next(x) % GROUP;
        unsigned least = stored[page];
        unsigned char part[8];

        CHECK(vmg_read(part, page_of(0, page) + place(page), 8, *x & 1) == 8);
        check_counted(least, part[0], begun[page]);
        CHECK((char)part[7] == byte_of(0, page));
}

static void read_changing(uint64_t *x)
{
        unsigned group = 1 + (unsigned)(next(x) % (GROUPS - 1));
        uint64_t page = next(x) % (GROUP - 1);
        size_t at = next(x) % PG, len = 1 + next(x) % 128;
        char part[128];

        if (!reads(part, page_of(group, page) + at, len)) {
                CHECK(group >= 2);
                return;
        }
        for (size_t i = 0; i < len; i++) {
                char b = byte_of(group, page + (at + i >= PG));
                CHECK(part[i] == b || (group < 3 && part[i] == 0));
        }
}

static void *read_all_groups(void *seed)
{
        uint64_t x = (uintptr_t)seed;

        while (!stop) {
                read_counted(&x);
                read_changing(&x);
                /* and by loads, so that pages come and go */
                uint64_t page = next(&x) % GROUP;
                unsigned least = stored[page];
                unsigned char now = (unsigned char)((volatile char *)page_of(0, page))[place(page)];
                check_counted(least, now, begun[page]);
        }
        return NULL;
}

/* In a child no other thread runs: both ways read the same bytes. */
static void child(void)
{
        uint64_t x = (uint64_t)getpid();
        char part[64];

        for (unsigned i = 0; i < 300; i++) {
                char *at = page_of(0, next(&x) % GROUP) + next(&x) % (PG - 64);
                CHECK(vmg_read(part, at, 64, 0) == 64 && memcmp(part, at, 64) == 0);
                CHECK(vmg_read(part, at, 64, 0) == 64 && memcmp(part, at, 64) == 0);
                memset(at, 3, 64);
        }
        _exit(9);
}

static void disturb(unsigned turn, char *away)
{
        uint64_t page = turn * 8 % GROUP;
        char *p;
        int status;

        p = page_of(1, page);
        CHECK(madvise(p, 8 * PG, MADV_DONTNEED) == 0);
        for (uint64_t i = 0; i < 8; i++)
                memset(p + i * PG, byte_of(1, page + i), PG);
        p = page_of(2, page);
        CHECK(munmap(p, 8 * PG) == 0);
        CHECK(mmap(p, 8 * PG, RW, ANON | MAP_FIXED, -1, 0) == p);
        for (uint64_t i = 0; i < 8; i++)
                memset(p + i * PG, byte_of(2, page + i), PG);
        p = page_of(3, page);
        CHECK(mprotect(p, 8 * PG, PROT_NONE) == 0 && mprotect(p, 8 * PG, RW) == 0);
        CHECK(mremap(p, 8 * PG, 8 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
        CHECK(mremap(away, 8 * PG, 8 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
        if (turn % 20)
                return;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                child();
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

static void threads(void)
{
        pthread_t id[4];
        char *away = map_pages(8, RW, MAP_PRIVATE);

        for (unsigned g = 0; g < GROUPS; g++)
                for (uint64_t page = 0; page < GROUP; page++)
                        memset(page_of(g, page), byte_of(g, page), PG);
        for (uint64_t page = 0; page < GROUP; page++)
                begun[page] = stored[page] = (unsigned char)byte_of(0, page);
        CHECK(pthread_create(&id[0], NULL, count_up, NULL) == 0);
        for (uintptr_t i = 1; i < 4; i++)
                CHECK(pthread_create(&id[i], NULL, read_all_groups, (void *)i) == 0);
        for (unsigned turn = 0; turn < 80; turn++)
                disturb(turn, away);
        stop = true;
        for (int i = 0; i < 4; i++)
                CHECK(pthread_join(id[i], NULL) == 0);
}

int main(void)
{
        static const struct { const char *name; void (*run)(void); } part[] = {
                { "arguments", arguments }, { "content", content },
                { "destinations", destinations }, { "no content", no_content },
                { "files", files }, { "threads", threads },
        };

        arena = map_pages(PAGES, RW, MAP_PRIVATE);
        copy = map_pages(PAGES, RW, MAP_PRIVATE);
        for (unsigned i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
                part[i].run();
                printf("ok %s\n", part[i].name);
                fflush(stdout);
        }
        return 0;
}
