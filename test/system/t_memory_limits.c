/*
 * t_memory: a program that uses up cache and far memory.  Only of use under vmrun.
 */
#include "t_memory.h"

static uint64_t take_all(char *chunk[], uint64_t most, uint64_t step)
{
        uint64_t n = 0;
        while (n < most && (chunk[n] = mmap(NULL, step * PG, RW, ANON, -1, 0)) != MAP_FAILED)
                n++;
        return n;
}

/*
 * memory_pages: the pages that cache and far tiers hold together.  The program can have most of
 * them, no more, and the same number each time.
 */
int limits_test(uint64_t memory_pages)
{
        static char *chunk[4096];
        uint64_t step = memory_pages / 1024 + 1, first = 0;
        char *p;

        for (int turn = 0; turn < 8; turn++) {
                uint64_t n = take_all(chunk, 4096, step);
                CHECK(errno == ENOMEM && n * step <= memory_pages && n * step > memory_pages / 2);
                CHECK(turn == 0 || n == first);
                first = n;
                uint64_t heap = (uint64_t)sbrk(0);
                errno = 0;
                CHECK(sbrk((intptr_t)(memory_pages * PG)) == (void *)-1 && errno == ENOMEM &&
                      (uint64_t)sbrk(0) == heap);
                FAILS(ENOMEM, remap(chunk[0], step * PG, memory_pages * PG, MREMAP_MAYMOVE, NULL));
                /* A mapping whose pages need not be there at once is allowed. */
                CHECK((p = mmap(NULL, 8 * memory_pages * PG, RW, ANON | MAP_NORESERVE, -1, 0)) !=
                      MAP_FAILED);
                CHECK(munmap(p, 8 * memory_pages * PG) == 0);
                CHECK((p = mmap(NULL, 8 * memory_pages * PG, PROT_NONE, ANON, -1, 0)) !=
                      MAP_FAILED);
                FAILS(ENOMEM, mprotect(p, 8 * memory_pages * PG, RW));
                CHECK(munmap(p, 8 * memory_pages * PG) == 0);
                CHECK((p = mmap(NULL, 8 * memory_pages * PG, PROT_READ, ANON, -1, 0)) !=
                      MAP_FAILED);
                CHECK(munmap(p, 8 * memory_pages * PG) == 0);
                for (uint64_t i = 0; i < n; i++) {      /* given back in several ways */
                        fill(chunk[i], i, turn % 2 ? 1 : 0, 1);
                        switch (turn) {
                        case 1: CHECK(mprotect(chunk[i], step * PG, PROT_NONE) == 0); break;
                        case 2: CHECK(madvise(chunk[i], step * PG, MADV_DONTNEED) == 0); break;
                        case 3:
                                CHECK((chunk[i] = remap(
                                               chunk[i], step * PG, step * PG,
                                               MREMAP_MAYMOVE | MREMAP_FIXED,
                                               (char *)(0x100000000000 + i * step * 2 * PG))) !=
                                      MAP_FAILED);
                                break;
                        case 4:
                                CHECK(mmap(chunk[i], step * PG, PROT_NONE, ANON | MAP_FIXED, -1,
                                           0) == chunk[i]);
                                break;
                        case 5:
                                CHECK(step < 2 || munmap(chunk[i] + (step - 1) * PG, PG) == 0);
                                break;
                        }
                        CHECK(munmap(chunk[i], step * PG) == 0);
                }
        }
        /* Pages that are charged one by one are given back, too. */
        for (int turn = 0; turn < 4; turn++) {
                uint64_t n = memory_pages / 2;
                CHECK((p = mmap(NULL, 8 * memory_pages * PG, RW, ANON | MAP_NORESERVE, -1, 0)) !=
                      MAP_FAILED);
                fill(p, 0, n, 1);
                verify("NORESERVE", p, 0, n, 1);
                CHECK(madvise(p, n / 2 * PG, MADV_DONTNEED) == 0);
                fill(p + n * PG, 0, n / 2, 2);
                verify("NORESERVE", p + n / 2 * PG, n / 2, n / 2, 1);
                CHECK(munmap(p, 8 * memory_pages * PG) == 0);
        }
        uint64_t n = take_all(chunk, 4096, step);
        CHECK(n == first);
        printf("limits: ok\n");
        return 0;
}

/* All the memory there is, in use: nothing may be lost, and nothing may fail. */
int full_test(uint64_t rounds)
{
        static char *chunk[65536];
        const uint64_t step = 16;
        uint64_t n = take_all(chunk, 65536, step), x = 1, last = 0;

        CHECK(errno == ENOMEM && n > 4);
        munmap(chunk[--n], step * PG); /* a little for the stack and for standard output */
        munmap(chunk[--n], step * PG);
        for (uint64_t i = 0; i < n; i++)
                fill(chunk[i], i * step, step, 1);
        for (uint64_t i = 0; i < n; i++)
                verify("full", chunk[i], i * step, step, 1);
        for (uint64_t i = 0; i < rounds;
             i++) { /* any page, and again and again the few that are hot */
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                uint64_t c = (x >> 40) % n, p = x >> 33 & 15;
                verify("full, at random", chunk[c] + p * PG, c * step + p, 1, 1);
                fill(chunk[c] + p * PG, c * step + p, 1, 1);
                if (i % 64 == 0)
                        for (uint64_t spin = 0; spin < 2000; spin++)
                                last += *(volatile char *)(chunk[spin % 8] + spin % 16 * PG);
        }
        for (uint64_t i = 0; i < n; i++)
                verify("full, at the end", chunk[i], i * step, step, 1);
        printf("full: ok\n");
        return last == 1;
}

/*
 * Hot pages that leave the cleaner nothing to take, then a burst of others: that must never look
 * like memory used up.
 */
int hot_test(uint64_t rounds)
{
        const uint64_t most = 64, cold = 512;
        char *hot = map_pages(most, RW, MAP_PRIVATE), *rest = map_pages(cold, RW, MAP_PRIVATE);
        uint64_t last = 0;

        fill(hot, 0, most, 1);
        fill(rest, 0, cold, 2);
        for (uint64_t i = 0; i < rounds; i++) {
                uint64_t n = 24 + i % 40;
                for (uint64_t spin = 0; spin < 8000000; spin++)
                        last += *(volatile char *)(hot + spin % n * PG);
                for (uint64_t p = 0; p < 64; p++) {
                        uint64_t c = (i * 64 + p) % cold;
                        verify("cold", rest + c * PG, c, 1, 2);
                }
        }
        verify("hot", hot, 0, most, 1);
        printf("hot: ok\n");
        return last == 1;
}

/*
 * A buffer that only system calls use, while the program takes ever more memory: it should stay
 * resident, and nothing else comes back.
 */
int calls_test(uint64_t rounds)
{
        const uint64_t n = 64, fresh = 32;
        char *buffer = map_pages(n, RW, MAP_PRIVATE);
        FILE *file = tmpfile();

        CHECK(file);
        fill(buffer, 0, n, 1);
        for (uint64_t i = 0; i < rounds; i++) {
                char *p = map_pages(fresh, RW, MAP_PRIVATE);
                for (uint64_t k = 0; k < fresh; k++)
                        p[k * PG] = 1;
                CHECK(pwrite(fileno(file), buffer, n * PG, 0) == (ssize_t)(n * PG));
                CHECK(pread(fileno(file), buffer, n * PG, 0) == (ssize_t)(n * PG));
        }
        verify("by calls", buffer, 0, n, 1);
        puts("calls: ok");
        return 0;
}

/* Touches more than there is: SIGBUS, and vmrun says why. */
int exhaust_test(bool by_call)
{
        char *p = mmap(NULL, 1ul << 40, RW, ANON | MAP_NORESERVE, -1, 0);
        CHECK(p != MAP_FAILED);
        printf("exhausting\n");
        fflush(stdout);
        int fd = open("/dev/zero", O_RDONLY);
        for (uint64_t i = 0; ; i++) {
                if (by_call && read(fd, p + i * 256 * PG, 256 * PG) < 0) {
                        printf("read: %s\n", strerrorname_np(errno));
                        fflush(stdout);
                        return 3;
                }
                if (!by_call)
                        fill(p + i * PG, i, 1, 1);
        }
}
