/*
 * The memory of a program, at several times the cache: its output is the same
 * natively and under vmrun.
 *
 * usage: t_memory [--size MB]                  each test, over a working set of that size (32)
 *        t_memory --random SEED STEPS [PAGES]  random operations against a model
 *                                              (t_memory_random.c)
 *        t_memory --limits PAGES, --full N, --hot N, --calls N, --exhaust, --exhaust-read
 *                                              the limits (t_memory_limits.c)
 * Writes files into the current folder, and removes them.
 */
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include "t_memory.h"

static uint64_t pages;                  /* the working set */
static int scratch;                     /* a file */

static int temp_file(uint64_t npages, uint64_t version)
{
        int fd = open("t_memory.tmp", O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && unlink("t_memory.tmp") == 0);
        char page[PG];
        for (uint64_t p = 0; p < npages; p++) {
                fill(page, p, 1, version);
                CHECK(pwrite(fd, page, PG, (off_t)(p * PG)) == (ssize_t)PG);
        }
        return fd;
}

/* Can the system read (write) there?  Tells protection without a signal. */
static bool readable(const void *p) { return pwrite(scratch, p, 1, 0) == 1; }
static bool writable(void *p)
{
        char *c = p, was;
        if (pwrite(scratch, c, 1, 0) != 1)
                return false;           /* x86 has no memory that can only be written */
        ssize_t n = pread(scratch, &was, 1, 0);
        return n == 1 && pread(scratch, c, 1, 0) == 1;
}

static void test_fill(void)
{
        char *p = map_pages(pages, RW, MAP_PRIVATE);
        for (uint64_t v = 1; v <= 2; v++) {
                fill(p, 0, pages, v);
                verify("fill", p, 0, pages, v);
        }
        for (uint64_t i = 0; i < pages; i++) {          /* all over the place */
                uint64_t n = i * 7919 % pages;
                verify("stride", p + n * PG, n, 1, 2);
                if (n % 3 == 0)
                        fill(p + n * PG, n, 1, 3);
        }
        for (uint64_t n = 0; n < pages; n++)
                verify("mixed", p + n * PG, n, 1, n % 3 ? 2 : 3);
        CHECK(munmap(p, pages * PG) == 0);
        p = map_pages(pages, RW, MAP_PRIVATE);
        verify("fresh memory", p, 0, pages, 0); /* reading leaves it clean: it may be dropped */
        verify("fresh memory again", p, 0, pages, 0);
        CHECK(munmap(p, pages * PG) == 0);
}

static void test_brk(void)
{
        char *base = sbrk(0), *p = (char *)(((uintptr_t)base + PG - 1) & ~(PG - 1));
        CHECK(brk(p + pages * PG) == 0);
        fill(p, 0, pages, 1);
        verify("brk", p, 0, pages, 1);
        for (uint64_t n = pages; n > 16; n /= 2) {
                CHECK(brk(p + n / 2 * PG) == 0);
                CHECK(!readable(p + n / 2 * PG));
                verify("brk, shrunk", p, 0, n / 2, 1);
                CHECK(brk(p + (n / 2 + 8) * PG) == 0);
                verify("brk, grown again", p + n / 2 * PG, 0, 8, 0);
                CHECK(brk(p + n / 2 * PG) == 0);
        }
        CHECK(brk(p + PG / 2) == 0);
        CHECK(readable(p + PG - 1));                    /* whole pages */
        CHECK(brk(base) == 0);
        CHECK(sbrk(0) == base);
}

/* Chunks of all sizes come and go, as under malloc. */
static void test_churn(void)
{
        struct { char *p; uint64_t n, v; } c[64] = { 0 };
        uint64_t x = 1, total = 0;
        for (uint64_t v = 1; v <= 1000; v++) {
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                unsigned i = x >> 58;
                if (c[i].p) {
                        verify("chunk", c[i].p, i, c[i].n, c[i].v);
                        CHECK(munmap(c[i].p, c[i].n * PG) == 0);
                }
                c[i].n = 1 + (x >> 40) % (pages / 64);
                if (x >> 33 & 7)
                        c[i].n = 1 + c[i].n % 16;
                c[i].v = v;
                c[i].p = map_pages(c[i].n, RW, MAP_PRIVATE);
                fill(c[i].p, i, c[i].n, v);
                total += c[i].n;
        }
        for (unsigned i = 0; i < 64; i++)
                if (c[i].p) {
                        verify("chunk at the end", c[i].p, i, c[i].n, c[i].v);
                        CHECK(munmap(c[i].p, c[i].n * PG) == 0);
                }
        printf("churn: %lu pages\n", total);
}

static void test_malloc(void)
{
        static struct { unsigned char *p; size_t n; unsigned char v; } c[1024];
        uint64_t x = 7, sum = 0;
        for (unsigned turn = 0; turn < 6000; turn++) {
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                unsigned i = x >> 54;
                for (size_t k = 0; k < c[i].n; k++)
                        CHECK(c[i].p[k] == (unsigned char)(c[i].v + k));
                c[i].n = (x >> 20 & 31) ? x >> 24 & 0x7ff : x >> 24 & 0x3ffff;
                CHECK((c[i].p = realloc(c[i].p, c[i].n + 1)));
                c[i].v = (unsigned char)turn;
                for (size_t k = 0; k < c[i].n; k++)
                        c[i].p[k] = (unsigned char)(c[i].v + k);
                sum += c[i].n;
        }
        for (unsigned i = 0; i < 1024; i++) {
                for (size_t k = 0; k < c[i].n; k++)
                        CHECK(c[i].p[k] == (unsigned char)(c[i].v + k));
                free(c[i].p);
        }
        printf("malloc: %lu bytes\n", sum);
}

static void test_holes(void)
{
        uint64_t n = pages / 2;
        char *p = map_pages(n, RW, MAP_PRIVATE);
        fill(p, 0, n, 1);
        for (uint64_t i = 0; i + 3 < n; i += 7)         /* pages i, i+1, i+2 of each seven */
                CHECK(munmap(p + i * PG, 3 * PG) == 0);
        for (uint64_t i = 0; i < n; i++) {
                bool gone = i % 7 < 3 && i - i % 7 + 3 < n;
                if (!gone)
                        verify("between holes", p + i * PG, i, 1, 1);
                else if (i % 64 < 8)
                        CHECK(!readable(p + i * PG));
        }
        for (uint64_t i = 0; i + 3 < n;
             i += 14) { /* every other hole filled: zeros there, the rest as it was */
                CHECK(mmap(p + i * PG, 3 * PG, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) ==
                      p + i * PG);
                verify("filled hole", p + i * PG, i, 3, 0);
                fill(p + i * PG, i, 3, 2);
        }
        FAILS(EEXIST, mmap(p, PG, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
        CHECK(munmap(p, n * PG) == 0);
        CHECK(!readable(p) && !readable(p + (n - 1) * PG));
        CHECK(munmap(p, n * PG) == 0);                  /* nothing there: no error */
}

static void test_mremap(void)
{
        uint64_t n = pages / 4;
        char *p = map_pages(n, RW, MAP_PRIVATE), *q, *room;
        fill(p, 0, n, 1);
        for (uint64_t to = n; to < 4 * n; to += n / 2 + 3) {
                q = remap(p, to * PG, (to + n / 2 + 3) * PG, MREMAP_MAYMOVE, NULL);
                CHECK(q != MAP_FAILED);
                p = q;
                verify("grown", p, 0, to, 1);
                verify("what was added", p + to * PG, 0, n / 2 + 3, 0);
                fill(p + to * PG, to, n / 2 + 3, 1);
        }
        CHECK(remap(p, 2 * n * PG, n * PG, 0, NULL) ==
              p); /* shrink; the rest behind it is another mapping now */
        verify("shrunk", p, 0, n, 1);
        CHECK(!readable(p + n * PG) && readable(p + 2 * n * PG));
        CHECK(munmap(p + 2 * n * PG, 3 * n * PG) == 0);

        room = map_pages(3 * n, RW, MAP_PRIVATE);
        fill(room, 0, 3 * n, 9);
        CHECK(remap(p, n * PG, n * PG, MREMAP_MAYMOVE | MREMAP_FIXED, room + n * PG) ==
              room + n * PG);
        verify("moved onto a mapping", room + n * PG, 0, n, 1);
        verify("left of it", room, 0, n, 9);
        verify("right of it", room + 2 * n * PG, 2 * n, n, 9);
        CHECK(!readable(p));
        /* Odd distances, so that page tables do not line up; page by page and backwards. */
        CHECK(remap(room + n * PG, n * PG, (n - 5) * PG, MREMAP_MAYMOVE | MREMAP_FIXED,
                    p + 3 * PG) == p + 3 * PG);
        verify("moved and shrunk", p + 3 * PG, 0, n - 5, 1);
        for (uint64_t i = 0; i < 64; i++)
                CHECK(remap(p + (3 + i) * PG, PG, PG, MREMAP_MAYMOVE | MREMAP_FIXED,
                            room + (n + 63 - i) * PG) != MAP_FAILED);
        for (uint64_t i = 0; i < 64; i++)
                verify("one by one", room + (n + 63 - i) * PG, i, 1, 1);
        verify("the rest stays", p + 67 * PG, 64, n - 5 - 64, 1);
        FAILS(EINVAL, remap(room, 4 * PG, 4 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, room + 2 * PG));
        FAILS(EFAULT, remap(p, PG, 2 * PG, MREMAP_MAYMOVE, NULL));      /* nothing there any more */
        FAILS(ENOMEM, remap(room, n / 2 * PG, n * PG, 0, NULL));        /* no room in place */

        q = remap(room, n * PG, n * PG, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        CHECK(q != MAP_FAILED && q != room);
        verify("DONTUNMAP: new place", q, 0, n, 9);
        verify("DONTUNMAP: old place", room, 0, n, 0);
        fill(room, 0, n, 4);
        verify("DONTUNMAP: new place again", q, 0, n, 9);
        verify("DONTUNMAP: old place again", room, 0, n, 4);
        CHECK(munmap(q, n * PG) == 0 && munmap(p + 67 * PG, (n - 72) * PG) == 0);
        CHECK(munmap(room, n * PG) == 0 && munmap(room + n * PG, 2 * n * PG) == 0);
}

static void test_mprotect(void)
{
        uint64_t n = pages / 2;
        char *p = map_pages(n, RW, MAP_PRIVATE);
        fill(p, 0, n / 2, 1); /* the other half is never touched at first */
        CHECK(mprotect(p, n * PG, PROT_NONE) == 0);
        for (uint64_t i = 0; i < n; i += n / 16)
                CHECK(!readable(p + i * PG));
        CHECK(mprotect(p, n * PG, PROT_READ) == 0);
        verify("read-only", p, 0, n / 2, 1);
        verify("read-only, untouched", p + n / 2 * PG, 0, n / 4, 0);
        for (uint64_t i = 0; i < n; i += n / 16)
                CHECK(readable(p + i * PG) && !writable(p + i * PG));
        CHECK(mprotect(p, n * PG, RW) == 0);
        verify("writable again", p, 0, n / 2, 1);
        fill(p, 0, n, 2);
        for (int turn = 0; turn < 4;
             turn++) { /* stripes of 1, 2, 4, 8 pages change while others stay */
                uint64_t w = 1u << turn;
                for (uint64_t i = 0; i + w <= n; i += 64 * w)
                        CHECK(mprotect(p + i * PG, w * PG, turn & 1 ? PROT_READ : PROT_NONE) == 0);
                for (uint64_t i = 0; i + 64 * w <= n; i += 64 * w) {
                        CHECK(readable(p + i * PG) == (turn & 1));
                        verify("beside a stripe", p + (i + w) * PG, i + w, 63 * w, 2);
                }
                CHECK(mprotect(p, n * PG, RW) == 0);
                verify("after stripes", p, 0, n, 2);
        }
        for (uint64_t i = 0; i < n;
             i++) /* page by page, each just written: dirty, and then inaccessible */
                if (i % 5 == 0) {
                        fill(p + i * PG, i, 1, 3);
                        CHECK(mprotect(p + i * PG, PG, PROT_NONE) == 0);
                }
        char *q = map_pages(n, RW, MAP_PRIVATE);        /* pressure */
        fill(q, 0, n, 8);
        CHECK(mprotect(p, n * PG, PROT_READ | PROT_EXEC) == 0);
        for (uint64_t i = 0; i < n; i++)
                verify("kept while inaccessible", p + i * PG, i, 1, i % 5 ? 2 : 3);
        verify("pressure", q, 0, n, 8);
        CHECK(munmap(q, n * PG) == 0);
        CHECK(munmap(p + n / 2 * PG, PG) == 0);
        FAILS(ENOMEM, mprotect(p, n * PG, RW));
        CHECK(writable(p) && !writable(p + (n / 2 + 1) * PG)); /* up to the hole */
        CHECK(munmap(p, n * PG) == 0);
}

static void test_madvise(void)
{
        uint64_t n = pages / 2;
        char *p = map_pages(n, RW, MAP_PRIVATE);
        fill(p, 0, n, 1);
        for (uint64_t i = 0; i < n; i += 8)
                CHECK(madvise(p + i * PG, 3 * PG, MADV_DONTNEED) == 0);
        for (uint64_t i = 0; i < n; i++)
                verify("DONTNEED", p + i * PG, i, 1, i % 8 < 3 ? 0 : 1);
        fill(p, 0, n, 2);
        CHECK(madvise(p, n * PG, MADV_COLD) == 0);
        verify("COLD", p, 0, n, 2);
        fill(p, 0, n / 16, 3);
        CHECK(madvise(p, n * PG, MADV_PAGEOUT) == 0);
        verify("PAGEOUT", p, 0, n / 16, 3);
        verify("PAGEOUT", p + n / 16 * PG, n / 16, n - n / 16, 2);
        CHECK(madvise(p, n * PG, MADV_WILLNEED) == 0);
        verify("WILLNEED", p + n / 2 * PG, n / 2, n / 2, 2);
        CHECK(madvise(p, n * PG, MADV_FREE) == 0);
        for (uint64_t i = 0; i < n; i++) { /* each page: as it was, or zeros; written pages stay */
                uint64_t v = cell_wrong(p + i * PG, 0) < 0 ? 0 : i < n / 16 ? 3 : 2;
                if (i % 2)
                        verify("FREE", p + i * PG, i, 1, v);
                else
                        fill(p + i * PG, i, 1, 4);
        }
        char *q = map_pages(n, RW, MAP_PRIVATE);
        fill(q, 0, n, 8);
        for (uint64_t i = 0; i < n; i += 2)
                verify("written after FREE", p + i * PG, i, 1, 4);
        CHECK(munmap(p + 5 * PG, PG) == 0);
        FAILS(ENOMEM, madvise(p, n * PG, MADV_DONTNEED));      /* and yet done */
        verify("DONTNEED over a hole", p, 0, 5, 0);
        verify("DONTNEED behind a hole", p + 6 * PG, 0, n - 6, 0);
        FAILS(EINVAL, madvise(p, PG, 999));
        FAILS(EINVAL, madvise(p + 1, PG, MADV_DONTNEED));
        CHECK(munmap(p, n * PG) == 0 && munmap(q, n * PG) == 0);

        p = map_pages(64, RW, MAP_PRIVATE);
        CHECK(madvise(p, 32 * PG, MADV_POPULATE_WRITE) == 0);
        CHECK(madvise(p + 32 * PG, 32 * PG, MADV_POPULATE_READ) == 0);
        verify("populated", p, 0, 64, 0);
        CHECK(mprotect(p, 4 * PG, PROT_READ) == 0);
        FAILS(EINVAL, madvise(p, 8 * PG, MADV_POPULATE_WRITE));
        CHECK(mprotect(p, 4 * PG, PROT_NONE) == 0);
        FAILS(EINVAL, madvise(p, 8 * PG, MADV_POPULATE_READ));
        CHECK(munmap(p + 16 * PG, PG) == 0);
        FAILS(ENOMEM, madvise(p + 8 * PG, 16 * PG, MADV_POPULATE_READ));
        CHECK(munmap(p, 64 * PG) == 0);
}

static void test_fixed(void)
{
        uint64_t n = pages / 2;
        char *p = map_pages(n, RW, MAP_PRIVATE);
        fill(p, 0, n, 1);
        for (uint64_t i = 0; i + 5 < n; i += 16)
                CHECK(mmap(p + i * PG, 5 * PG, i % 32 ? RW : PROT_READ, ANON | MAP_FIXED, -1, 0) ==
                      p + i * PG);
        for (uint64_t i = 0; i < n; i++)
                verify("MAP_FIXED over pages", p + i * PG, i, 1, i % 16 < 5 ? 0 : 1);
        CHECK(munmap(p, n * PG) == 0);
}

static void test_mlock(void)
{
        unsigned char vec[16];
        char *p = map_pages(pages / 2, RW, MAP_PRIVATE), *q = map_pages(pages / 2, RW, MAP_PRIVATE);
        fill(p, 0, pages / 2, 1);
        CHECK(mlock(p + 3, 15 * PG) == 0); /* whole pages around it; these are far by now */
        fill(q, 0, pages / 2, 2);
        CHECK(mincore(p, 16 * PG, vec) == 0);
        for (int i = 0; i < 16; i++)
                CHECK(vec[i] & 1);
        FAILS(EINVAL, madvise(p, PG, MADV_DONTNEED));
        CHECK(munlock(p, 16 * PG) == 0);
        verify("was locked", p, 0, pages / 2, 1);
        CHECK(mincore(p + pages / 4 * PG, PG, vec) == 0);
        FAILS(EINVAL, mincore(p + 1, PG, vec));
        FAILS(EFAULT, mincore(p, PG, NULL));
        CHECK(munmap(q, pages / 2 * PG) == 0);
        FAILS(ENOMEM, mincore(q, PG, vec));
        FAILS(ENOMEM, mlock(q, PG));
        CHECK(munmap(p, pages / 2 * PG) == 0);
        p = map_pages(4, RW, MAP_PRIVATE | MAP_LOCKED);
        q = map_pages(pages / 2, RW, MAP_PRIVATE);
        fill(q, 0, pages / 2, 2);
        CHECK(mincore(p, 4 * PG, vec) == 0);
        for (int i = 0; i < 4; i++)
                CHECK(vec[i] & 1);
        CHECK(munmap(p, 4 * PG) == 0 && munmap(q, pages / 2 * PG) == 0);
}

/* Locked by the page: the range may be of any length, and the program uses any part of it. */
static void test_mlock_onfault(void)
{
        uint64_t n = pages / 2 < 1024 ? pages / 2 : 1024;
        char *p = map_pages(n, RW, MAP_PRIVATE);

        CHECK(syscall(SYS_mlock2, p, n * PG, MLOCK_ONFAULT) == 0);
        fill(p, 0, 4, 1);
        FAILS(EINVAL, madvise(p, PG, MADV_DONTNEED));
        fill(p + 4 * PG, 4, n - 4, 1);
        verify("locked by the page", p, 0, n, 1);
        CHECK(munlock(p, n * PG) == 0 && munmap(p, n * PG) == 0);
        CHECK(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
        p = map_pages(n, RW, MAP_PRIVATE);
        fill(p, 0, n, 2);
        CHECK(munlockall() == 0);
        verify("was to be locked by the page", p, 0, n, 2);
        CHECK(munmap(p, n * PG) == 0);
}

/* Frames of 16 KiB, each with content of its own, more than the cache. */
static uint64_t deep(uint64_t level)
{
        volatile uint64_t frame[2048];
        for (unsigned i = 0; i < 2048; i += 64)
                frame[i] = cell_word(level + 1, i);
        uint64_t sum = level ? deep(level - 1) : 0;
        for (unsigned i = 0; i < 2048; i += 64)
                CHECK(frame[i] == cell_word(level + 1, i));
        return sum * 31 + frame[64];
}

static void test_stacks(void)
{
        struct rlimit r;
        CHECK(getrlimit(RLIMIT_STACK, &r) == 0);
        uint64_t most = r.rlim_cur > 8 * MiB ? 8 * MiB : r.rlim_cur;
        for (int i = 0; i < 3; i++)
                printf("recursion: %lx\n", deep(most / 16384 * 3 / 4));

        /* A mapping that grows down, page by page and by leaps. */
        char *area = map_pages(2048, PROT_NONE, MAP_PRIVATE);
        CHECK(munmap(area, 2047 * PG) == 0);
        char *top = area + 2047 * PG;
        CHECK(mmap(top - 4 * PG, 4 * PG, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0) ==
              top - 4 * PG);
        uint64_t n = 4;
        while (n < 1500) {
                uint64_t leap = 1 + n % 37;
                *(volatile char *)(top - (n + leap) * PG + 8) = 1;
                n += leap;
                fill(top - n * PG, 2048 - n, leap, 6);
        }
        verify("grown down", top - n * PG, 2048 - n, n - 4, 6);
        CHECK(read(-1, top - (n + 3) * PG, 1) == -1 && errno == EBADF);
        CHECK(readable(top - (n + 2) * PG));            /* grows for a system call too */
        CHECK(munmap(area, 2048 * PG) == 0);
}

static void test_guards(void)
{
        char *p = map_pages(4, RW, MAP_PRIVATE);
        CHECK(mprotect(p + 2 * PG, PG, PROT_NONE) == 0);
        fill(p, 0, 2, 1);
        FAILS(EFAULT, pwrite(scratch, p + 2 * PG, 1, 0));
        CHECK(pwrite(scratch, p, 2 * PG, 0) == (ssize_t)(2 * PG));
        FAILS(EFAULT, pread(scratch, p + 2 * PG, 1, 0));
        CHECK(munmap(p + 3 * PG, PG) == 0);
        FAILS(EFAULT, pread(scratch, p + 3 * PG, 1, 0));
        FAILS(EFAULT, pread(scratch, (char *)-4096, 1, 0));
        verify("before a guard", p, 0, 2, 1);
        CHECK(munmap(p, 3 * PG) == 0);
}

int t_memory_files(uint64_t n, int (*make_file)(uint64_t, uint64_t), int scratch_fd);

static void test_sparse(void)
{
        const uint64_t tib = 1ul << 40;
        char *p = mmap(NULL, tib, RW, ANON | MAP_NORESERVE, -1, 0), *q;
        CHECK(p != MAP_FAILED);
        for (uint64_t i = 0; i < 512; i++)
                fill(p + i * (tib / 512) + (i % 7) * PG, i, 1, 5);
        for (uint64_t i = 0; i < 512; i++) {
                verify("sparse", p + i * (tib / 512) + (i % 7) * PG, i, 1, 5);
                verify("beside it", p + i * (tib / 512) + (i % 7 + 1) * PG, i, 1, 0);
        }
        q = remap(p, tib, tib, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        CHECK(q != MAP_FAILED);
        CHECK(mprotect(q, tib, PROT_READ) == 0);
        for (uint64_t i = 0; i < 512; i++) {
                verify("sparse, moved", q + i * (tib / 512) + (i % 7) * PG, i, 1, 5);
                if (i % 32 == 0)
                        verify("sparse, left", p + i * (tib / 512) + (i % 7) * PG, i, 1, 0);
        }
        CHECK(munmap(p, tib) == 0);
        CHECK(madvise(q, tib, MADV_DONTNEED) == 0);
        verify("sparse, dropped", q, 0, 8, 0);
        CHECK(munmap(q, tib) == 0);
}

static void test_files(void) { t_memory_files(pages / 4, temp_file, scratch); }

int main(int argc, char **argv)
{
        static char buffer[1 << 16];
        static const struct { const char *name; void (*run)(void);
        } tests[] = {
                { "fill", test_fill },         { "brk", test_brk },
                { "churn", test_churn },       { "malloc", test_malloc },
                { "holes", test_holes },       { "mremap", test_mremap },
                { "mprotect", test_mprotect }, { "madvise", test_madvise },
                { "fixed", test_fixed },       { "mlock", test_mlock },
                { "mlock on fault", test_mlock_onfault },
                { "stacks", test_stacks },     { "guards", test_guards },
                { "files", test_files },       { "sparse", test_sparse },
        };
        uint64_t mb = 32;
        const char *mode = argc > 1 ? argv[1] : "--size", *only = NULL;

        setvbuf(stdout, buffer, _IOLBF, sizeof(buffer));
        if (!strcmp(mode, "--random") && argc > 3)
                return random_test(strtoul(argv[2], NULL, 0), strtoul(argv[3], NULL, 0),
                                   argc > 4 ? strtoul(argv[4], NULL, 0) : 4096);
        if (!strcmp(mode, "--limits") && argc > 2)
                return limits_test(strtoul(argv[2], NULL, 0));
        if (!strcmp(mode, "--full") && argc > 2)
                return full_test(strtoul(argv[2], NULL, 0));
        if (!strcmp(mode, "--hot") && argc > 2)
                return hot_test(strtoul(argv[2], NULL, 0));
        if (!strcmp(mode, "--calls") && argc > 2)
                return calls_test(strtoul(argv[2], NULL, 0));
        if (!strcmp(mode, "--exhaust") || !strcmp(mode, "--exhaust-read"))
                return exhaust_test(mode[9]);
        if (!strcmp(mode, "--size") && argc > 2) {
                mb = strtoul(argv[2], NULL, 0);
                only = argc > 3 ? argv[3] : NULL;
        } else if (argc > 1) {
                fprintf(stderr, "usage: t_memory [--size MB [TEST]] | --random SEED STEPS [PAGES] "
                                "| --limits PAGES | --full N | --hot N | --calls N | --exhaust\n");
                return 2;
        }
        pages = mb * MiB / PG;
        scratch = temp_file(1, 0);
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
                if (!only || !strcmp(only, tests[i].name)) {
                        tests[i].run();
                        printf("%s: ok\n", tests[i].name);
                }
        return 0;
}
