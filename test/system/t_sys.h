/*
 * For the system call tests: every call is printed with its result, so that a native run and one
 * under vmrun can be compared byte for byte; results that must hold everywhere are checked as well.
 */
#ifndef T_SYS_H
#define T_SYS_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tests of bad arguments need them. */
#pragma GCC diagnostic ignored "-Wnonnull"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"
#endif

static int failures;

/* Makes a call and prints it: result, or the error's name. */
#define T(expr) ({                                                                      \
        errno = 0;                                                                      \
        long r_ = (long)(expr);                                                         \
        int e_ = errno;                                                                 \
        if (r_ == -1 && e_)                                                             \
                printf("%s: %s\n", #expr, strerrorname_np(e_));                         \
        else                                                                            \
                printf("%s: %ld\n", #expr, r_);                                         \
        errno = e_;                                                                     \
        r_; })
/* Only whether it succeeded. */
#define OK(expr) printf("%s: %s\n", #expr, (long)(expr) < 0 ? strerrorname_np(errno) : "ok")
#define CHECK(cond) do {                                                                \
        if (!(cond)) {                                                                  \
                failures++;                                                             \
                printf("FAILED %s:%d: %s (errno %s)\n", __FILE__, __LINE__, #cond,      \
                       strerrorname_np(errno));                                         \
        } } while (0)
/* A call that must fail with this error, here and anywhere. */
#define FAILS(err, expr) do { T(expr); CHECK(errno == (err)); } while (0)

/*
 * Two writable pages followed by an inaccessible one; a read-only page; an address where nothing
 * is.
 */
static char *pages, *read_only, *nothing;
#define PG 4096
static inline void memory_init(void)
{
        pages = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(pages + 2 * PG, PG);
        nothing = pages + 2 * PG;
        read_only = pages + 3 * PG;
        memset(read_only, 'r', PG);
        mprotect(read_only, PG, PROT_READ);
}
/* The last n bytes before the hole; n bytes with a page border in their middle.  Cleared. */
static inline void *edge(size_t n) { return memset(pages + 2 * PG - n, 0, n); }
static inline void *across(size_t n) { return memset(pages + PG - n / 2, 0, n); }

/* Four times the smallest cache that the tests use: pages not touched meanwhile are far then. */
static inline void forget(void)
{
        static char *much;
        static char turn;

        if (!much)
                much = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0);
        turn++;
        for (int i = 0; i < 4 << 20; i += PG)
                much[i] = turn;
}

static inline unsigned sum(const void *p, size_t n)
{
        unsigned s = 0;
        for (size_t i = 0; i < n; i++)
                s = s * 31 + ((const unsigned char *)p)[i];
        return s;
}

/* A scratch folder below argv[1] or /tmp becomes the current one; 2 if it cannot. */
static char scratch[4096];
static inline int scratch_begin(int argc, char **argv, const char *name)
{
        snprintf(scratch, sizeof(scratch), "%s/%s.XXXXXX", argc > 1 ? argv[1] : "/tmp", name);
        if (!mkdtemp(scratch) || chdir(scratch)) {
                perror(scratch);
                return 2;
        }
        memory_init();
        close_range(3, ~0U, 0);         /* whatever was inherited */
        return 0;
}
/* Removes it, if it is empty.  Returns main()'s result. */
static inline int scratch_end(void)
{
        printf("failures %d\n", failures);
        if (chdir("..") || rmdir(scratch))
                printf("left over: %s\n", strerrorname_np(errno));
        return failures ? 1 : 0;
}
#endif
