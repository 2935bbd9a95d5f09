/*
 * t_memory: file mappings, and system calls that move data straight from and to far memory.
 */
#include <sys/random.h>
#include <sys/uio.h>
#include "t_memory.h"

int t_memory_files(uint64_t n, int (*make_file)(uint64_t, uint64_t), int scratch_fd);

static int (*temp_file)(uint64_t npages, uint64_t version);
static int scratch;
static uint64_t n;                      /* pages */

static void test_private(void)
{
        int fd = temp_file(n, 1);
        char *p = mmap(NULL, n * PG, RW, MAP_PRIVATE, fd, 0), page[PG];
        CHECK(p != MAP_FAILED);
        verify("private", p, 0, n, 1);
        for (uint64_t i = 0; i < n; i += 3)
                fill(p + i * PG, i, 1, 2);
        verify("private again", p + PG, 1, 1, 1);
        for (uint64_t i = 0; i < n; i++)
                verify("own copies", p + i * PG, i, 1, i % 3 ? 1 : 2);
        for (uint64_t i = 0; i < n; i++) {
                CHECK(pread(fd, page, PG, (off_t)(i * PG)) == (ssize_t)PG);
                verify("the file", page, i, 1, 1);
        }
        CHECK(madvise(p, n * PG, MADV_DONTNEED) == 0);
        verify("private after DONTNEED", p, 0, n, 1);
        CHECK(mprotect(p + 8 * PG, 8 * PG, PROT_NONE) == 0);
        fill(p, 0, 8, 3);
        CHECK(mprotect(p, 32 * PG, RW) == 0);
        verify("private after mprotect", p + 8 * PG, 8, 24, 1);
        verify("private after mprotect", p, 0, 8, 3);
        char *q = map_pages(n / 2, PROT_NONE, MAP_PRIVATE);
        CHECK(remap(p, n * PG, n / 2 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
        verify("private, moved", q, 0, 8, 3);
        verify("private, moved", q + 8 * PG, 8, n / 2 - 8, 1);
        CHECK(munmap(q, n / 2 * PG) == 0);

        /* At an offset, read-only first; through a descriptor that is closed. */
        p = mmap(NULL, n / 2 * PG, PROT_READ, MAP_PRIVATE, fd, (off_t)(n / 4 * PG));
        CHECK(p != MAP_FAILED && close(fd) == 0);
        verify("at an offset", p, n / 4, n / 2, 1);
        CHECK(mprotect(p, n / 2 * PG, RW) == 0);
        fill(p + 5 * PG, 5, 40, 4);
        verify("at an offset, before", p, n / 4, 5, 1);
        verify("at an offset, written", p + 5 * PG, 5, 40, 4);
        verify("at an offset, behind", p + 45 * PG, n / 4 + 45, n / 2 - 45, 1);
        CHECK(munmap(p, n / 2 * PG) == 0);
}

static void test_tail(void)
{
        int fd = temp_file(3, 1);
        CHECK(ftruncate(fd, (off_t)(2 * PG + 2 * CELL + 100)) == 0);
        char *p = mmap(NULL, 8 * PG, RW, MAP_PRIVATE, fd, 0),
             *s = mmap(NULL, 8 * PG, RW, MAP_SHARED, fd, 0);
        CHECK(p != MAP_FAILED && s != MAP_FAILED);
        for (char *m = p; m; m = m == p ? s : NULL) {
                verify("before the tail", m, 0, 2, 1);
                CHECK(cell_wrong(m + 2 * PG, page_tag(2, 1)) < 0);
                for (size_t i = 2 * CELL + 100; i < PG; i++)
                        CHECK(m[2 * PG + i] == 0);
                FAILS(EFAULT, pwrite(scratch, m + 3 * PG, 1,
                                     0)); /* beyond the end: EFAULT here, SIGBUS for a load */
                FAILS(EFAULT, pread(scratch, m + 7 * PG, 1, 0));
                CHECK(pwrite(scratch, m + 2 * PG, PG, 0) == (ssize_t)PG);
        }
        CHECK(munmap(p, 8 * PG) == 0);
        CHECK(ftruncate(fd, (off_t)(4 * PG)) ==
              0); /* longer: zeros, and pages where there were none */
        for (size_t i = 2 * CELL + 100; i < 2 * PG; i++)
                CHECK(s[2 * PG + i] == 0);
        CHECK(ftruncate(fd, (off_t)PG) == 0);           /* shorter, with pages in use */
        FAILS(EFAULT, pwrite(scratch, s + 2 * PG, 1, 0));
        verify("what is left", s, 0, 1, 1);
        CHECK(munmap(s, 8 * PG) == 0 && close(fd) == 0);
}

static void test_shared(void)
{
        int fd = temp_file(n, 1);
        char *p = mmap(NULL, n * PG, RW, MAP_SHARED, fd, 0), page[PG];
        CHECK(p != MAP_FAILED);
        verify("shared", p, 0, n, 1);
        for (uint64_t i = 0; i < n; i += 2)
                fill(p + i * PG, i, 1, 2);
        for (uint64_t i = 0; i < n; i++) {
                CHECK(pread(fd, page, PG, (off_t)(i * PG)) == (ssize_t)PG);
                verify("seen by read", page, i, 1, i % 2 ? 1 : 2);
                fill(page, i, 1, 3);
                CHECK(i % 5 || pwrite(fd, page, PG, (off_t)(i * PG)) == (ssize_t)PG);
        }
        for (uint64_t i = 0; i < n; i++)
                verify("seen by the mapping", p + i * PG, i, 1, i % 5 == 0 ? 3 : i % 2 ? 1 : 2);
        CHECK(msync(p, n * PG, MS_SYNC) == 0 && msync(p, n * PG, MS_ASYNC) == 0);
        FAILS(EINVAL, msync(p, PG, MS_SYNC | MS_ASYNC));
        char *q = mmap(NULL, n * PG, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(q != MAP_FAILED);
        fill(p + 7 * PG, 7, 9, 4);
        verify("a second mapping", q + 7 * PG, 7, 9, 4);
        CHECK(madvise(p, n * PG, MADV_DONTNEED) == 0);  /* of a shared mapping: nothing is lost */
        verify("shared after DONTNEED", p + 7 * PG, 7, 9, 4);
        CHECK(mprotect(p, n * PG, PROT_NONE) == 0);
        FAILS(EFAULT, pwrite(scratch, p, 1, 0));
        CHECK(mprotect(p, n * PG, RW) == 0);
        verify("shared after mprotect", p + 7 * PG, 7, 9, 4);
        /* File to mapping and mapping to file, without a copy in between. */
        CHECK(pwrite(scratch, p + 7 * PG, 9 * PG, 0) == (ssize_t)(9 * PG));
        CHECK(pread(scratch, p + 107 * PG, 9 * PG, 0) == (ssize_t)(9 * PG));
        verify("shared, by system calls", q + 107 * PG, 7, 9, 4);
        char *r = map_pages(16, PROT_NONE, MAP_PRIVATE);
        CHECK(remap(p, 16 * PG, 16 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, r) == r);
        fill(r, 0, 1, 6);
        verify("shared, moved", q, 0, 1, 6);
        verify("shared, moved", r + 7 * PG, 7, 9, 4);
        CHECK(munmap(r, 16 * PG) == 0 && munmap(p, n * PG) == 0 && munmap(q, n * PG) == 0 &&
              close(fd) == 0);

        p = map_pages(n, RW, MAP_SHARED);
        verify("shared anonymous, fresh", p, 0, n, 0);
        fill(p, 0, n, 5);
        CHECK(munmap(p + 10 * PG, PG) == 0 && madvise(p + 11 * PG, PG, MADV_DONTNEED) == 0);
        verify("shared anonymous", p, 0, 10, 5);
        verify("shared anonymous", p + 11 * PG, 11, n - 11, 5);
        CHECK(munmap(p, n * PG) == 0);
        fd = open("/dev/zero", O_RDWR);
        p = mmap(NULL, 16 * PG, RW, MAP_PRIVATE, fd, 0);
        CHECK(p != MAP_FAILED);
        verify("/dev/zero", p, 0, 16, 0);
        fill(p, 0, 16, 1);
        verify("/dev/zero, written", p, 0, 16, 1);
        CHECK(munmap(p, 16 * PG) == 0 && close(fd) == 0);
}

/* Pages f(i) of src, all far by now, through system calls into dst. */
static void test_bulk(void)
{
        char *src = map_pages(n + 1, RW, MAP_PRIVATE), *dst = map_pages(n + 2, RW, MAP_PRIVATE);
        int fd = temp_file(1, 0);
        fill(src, 0, n, 1);
        fill(dst, 0, n, 9);
        CHECK(pwrite(fd, src, n * PG, 0) == (ssize_t)(n * PG));
        CHECK(pread(fd, dst, n * PG, 0) == (ssize_t)(n * PG));
        verify("bulk", dst, 0, n, 1);
        for (uint64_t shift = 1; shift < PG; shift = shift * 5 + 2) {   /* unaligned */
                memset(dst, 0xee, n * PG);
                CHECK(pread(fd, dst + shift, (n - 1) * PG, 0) == (ssize_t)((n - 1) * PG));
                CHECK(dst[shift - 1] == (char)0xee && dst[shift + (n - 1) * PG] == (char)0xee);
                memmove(dst, dst + shift, (n - 1) * PG);
                verify("bulk, unaligned", dst, 0, n - 1, 1);
        }
        for (uint64_t shift = 3; shift < PG; shift = shift * 7 + 4) {
                CHECK(pwrite(fd, src + shift, (n - 1) * PG, (off_t)shift) ==
                      (ssize_t)((n - 1) * PG));
                CHECK(pread(fd, dst, n * PG, 0) == (ssize_t)(n * PG));
                verify("bulk write, unaligned", dst, 0, n, 1);
        }
        /* Up to what can be accessed, and no further. */
        CHECK(mprotect(dst + n / 2 * PG, PG, PROT_READ) == 0);
        memset(dst, 0, n / 2 * PG);
        CHECK(pread(fd, dst + 100, n * PG, 0) == (ssize_t)(n / 2 * PG - 100));
        memmove(dst, dst + 100, n / 2 * PG - 100);
        verify("bulk, cut short", dst, 0, n / 2 - 1, 1);
        FAILS(EFAULT, pread(fd, dst + n / 2 * PG, n * PG, 0));
        CHECK(mprotect(dst, n * PG, RW) == 0);

        /* Vectors over far pages, odd lengths. */
        struct iovec v[64];
        size_t total = 0;
        for (unsigned i = 0; i < 64; i++) {
                v[i] = (struct iovec){ dst + i * (n / 64) * PG + i * 7, (i % 4) * PG / 2 + 16 * i };
                total += v[i].iov_len;
        }
        memset(dst, 0, n * PG);
        CHECK(preadv(fd, v, 64, 0) == (ssize_t)total);
        CHECK(pwritev(fd, v, 64, (off_t)(2 * n * PG)) == (ssize_t)total);
        CHECK(total < n * PG && pread(fd, dst, total, (off_t)(2 * n * PG)) == (ssize_t)total);
        verify("vectors", dst, 0, total / PG, 1);

        CHECK(getrandom(dst, 3 * PG, 0) == (ssize_t)(3 * PG));
        uint64_t bits = 0;
        for (unsigned i = 0; i < 3 * PG; i++)
                bits += (uint64_t)__builtin_popcount((unsigned char)dst[i]);
        CHECK(bits > 3 * PG * 39 / 10 && bits < 3 * PG * 41 / 10);

        int pipes[2];
        CHECK(pipe(pipes) == 0);
        for (uint64_t i = 0; i + 8 < n; i += 8) {       /* there and back, at odd places */
                CHECK(write(pipes[1], src + i * PG, 8 * PG) == (ssize_t)(8 * PG));
                CHECK(read(pipes[0], dst + (n - 8 - i) * PG + 13, 8 * PG) == (ssize_t)(8 * PG));
                memmove(dst + (n - 8 - i) * PG, dst + (n - 8 - i) * PG + 13, 8 * PG);
                verify("pipe", dst + (n - 8 - i) * PG, i, 8, 1);
        }
        CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0 && close(fd) == 0);
        verify("the source", src, 0, n, 1);
        CHECK(munmap(src, (n + 1) * PG) == 0 && munmap(dst, (n + 2) * PG) == 0);
}

int t_memory_files(uint64_t npages, int (*make_file)(uint64_t, uint64_t), int scratch_fd)
{
        n = npages;
        temp_file = make_file;
        scratch = scratch_fd;
        test_private();
        printf("private files: ok\n");
        test_tail();
        printf("tails: ok\n");
        test_shared();
        printf("shared files: ok\n");
        test_bulk();
        printf("bulk transfers: ok\n");
        return 0;
}
