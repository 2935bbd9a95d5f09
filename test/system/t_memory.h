/*
 * For t_memory: cells of memory whose content is a function of a tag, and checks.
 */
#ifndef T_MEMORY_H
#define T_MEMORY_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PG        4096ul
#define CELL      512ul                 /* what one tag stands for */
#define CELLS     (PG / CELL)
#define RW        (PROT_READ | PROT_WRITE)
#define ANON      (MAP_PRIVATE | MAP_ANONYMOUS)
#define MiB       (1ul << 20)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* The i-th word of a cell with this tag.  Tag 0: zeros. */
static inline uint64_t cell_word(uint64_t tag, unsigned i)
{
        if (!tag)
                return 0;
        uint64_t x = (tag + 0x9e3779b97f4a7c15ull * (i + 1)) * 0xbf58476d1ce4e5b9ull;
        return x ^ x >> 29;
}

static inline void cell_fill(void *p, uint64_t tag)
{
        uint64_t *w = p;
        for (unsigned i = 0; i < CELL / 8; i++)
                w[i] = cell_word(tag, i);
}

/* The first word that is wrong, or -1. */
static inline int cell_wrong(const void *p, uint64_t tag)
{
        const uint64_t *w = p;
        for (unsigned i = 0; i < CELL / 8; i++)
                if (w[i] != cell_word(tag, i))
                        return (int)i;
        return -1;
}

/* A page of the deterministic tests: tag by its number in its mapping and a version. */
static inline uint64_t page_tag(uint64_t page, uint64_t version)
{
        return version ? version << 40 | (page + 1) << 4 : 0;
}

static inline void fill(void *at, uint64_t first, uint64_t pages, uint64_t version)
{
        for (uint64_t p = 0; p < pages; p++)
                for (unsigned c = 0; c < CELLS; c++)
                        cell_fill((char *)at + p * PG + c * CELL,
                                  version ? page_tag(first + p, version) + c : 0);
}

static inline _Noreturn void fail_at(const char *what, const void *at, uint64_t page, uint64_t tag,
                                     int word)
{
        printf("FAILED %s: page %lu at %p, tag %lx, word %d: %lx instead of %lx\n", what, page, at,
               tag, word, ((const uint64_t *)at)[word], cell_word(tag, (unsigned)word));
        fflush(stdout);
        exit(1);
}

static inline void verify(const char *what, const void *at, uint64_t first, uint64_t pages,
                          uint64_t version)
{
        for (uint64_t p = 0; p < pages; p++)
                for (unsigned c = 0; c < CELLS; c++) {
                        const char *cell = (const char *)at + p * PG + c * CELL;
                        uint64_t tag = version ? page_tag(first + p, version) + c : 0;
                        int wrong = cell_wrong(cell, tag);
                        if (wrong >= 0)
                                fail_at(what, cell, first + p, tag, wrong);
                }
}

#define CHECK(cond) do {                                                                          \
        if (!(cond)) {                                                                            \
                printf("FAILED %s:%d: %s (errno %s)\n", __FILE__, __LINE__, #cond,                \
                       strerrorname_np(errno));                                                   \
                fflush(stdout);                                                                   \
                exit(1);                                                                          \
        } } while (0)
/* A call that must fail with this error. */
#define FAILS(err, expr) do {                                                                     \
        errno = 0;                                                                                \
        long r_ = (long)(expr);                                                                   \
        if (r_ != -1 || errno != (err)) {                                                         \
                printf("FAILED %s:%d: %s: %ld, %s instead of %s\n", __FILE__, __LINE__, #expr, r_, \
                       strerrorname_np(errno), strerrorname_np(err));                             \
                fflush(stdout);                                                                   \
                exit(1);                                                                          \
        } } while (0)

static inline void *map_pages(uint64_t pages, int prot, int flags)
{
        void *p = mmap(NULL, pages * PG, prot, flags | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        return p;
}

/* The five-argument call: glibc passes the new address only with MREMAP_FIXED. */
static inline void *remap(void *old, uint64_t old_len, uint64_t new_len, int flags, void *new)
{
        return (void *)syscall(SYS_mremap, old, old_len, new_len, flags, new);
}

/* t_memory_random.c */
int random_test(uint64_t seed, uint64_t steps, uint64_t pages);
/* t_memory_limits.c */
int limits_test(uint64_t memory_pages);
int full_test(uint64_t rounds);
int hot_test(uint64_t rounds);
int calls_test(uint64_t rounds);
int exhaust_test(bool by_call);

#endif
