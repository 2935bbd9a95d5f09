/*
 * libvmguest: arguments that are wrong, ranges at odd places, signal handlers, threads, and
 * processes that fork.  Its output is the same natively and under vmrun.
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "t_memory.h"
#include "hints.h"
#include "vmguest.h"

#define TOP ((char *)0x7ffffffff000ul)  /* where no program has memory */
#define PAGES 2048ul

static char *arena;

/* ---- arguments ---- */

static void bad_ranges(void)
{
        char *last = (char *)(UINTPTR_MAX - 100);
        struct vmg_stats s;

        CHECK(vmg_prefetch(last, 4096) == -EINVAL);
        CHECK(vmg_prefetch(NULL, SIZE_MAX) == -EINVAL);
        CHECK(vmg_prefetch(TOP, 1) == -EFAULT);
        CHECK(vmg_prefetch(TOP - PG, 2 * PG) == -EFAULT);
        CHECK(vmg_prefetch(last, 0) == -EFAULT);
        CHECK(vmg_prefetch(NULL, 0) == 0);
        CHECK(vmg_prefetch(NULL, 64) == 0);     /* nothing is there: nothing to ask for */
        CHECK(vmg_stream(arena, PG, 0) == -EINVAL);
        CHECK(vmg_stream(last, 4096, 1) == -EINVAL);
        CHECK(vmg_stream(TOP, 4096, 1) == -EFAULT);
        CHECK(vmg_stream(arena, 0, 1) == 0);
        CHECK(vmg_stream(arena, PAGES * PG, PTRDIFF_MIN) >= 0);
        CHECK(vmg_stream(arena, PAGES * PG, PTRDIFF_MAX) >= 0);
        CHECK(vmg_stream(NULL, (uintptr_t)TOP, -1) >= 0);
        CHECK(vmg_priority(last, 4096, VMG_LOW) == -EINVAL);
        CHECK(vmg_priority(arena, PG, (enum vmg_level)3) == -EINVAL);
        CHECK(vmg_priority(arena, PG, (enum vmg_level)-1) == -EINVAL);
        CHECK(vmg_priority(TOP, 1, VMG_HIGH) == -EFAULT);
        CHECK(vmg_priority(TOP - PG, 2 * PG, VMG_HIGH) == -EFAULT);
        CHECK(vmg_priority(arena, 0, VMG_HIGH) == 0);
        CHECK(vmg_priority(NULL, 64, VMG_HIGH) == 0);
        CHECK(vmg_resident(last, 4096) == -EINVAL);
        CHECK(vmg_resident(arena, 0) == 0);
        CHECK(vmg_cool(last, 4096) == -EINVAL);
        CHECK(vmg_cool(arena, 100) == 0);
        CHECK(vmg_drop(last, 4096) == -EINVAL);
        CHECK(vmg_drop(TOP, PG) < 0);
        CHECK(vmg_pin(last, 4096) == -EINVAL);
        CHECK(vmg_pin(TOP, PG) == -ENOMEM);
        CHECK(vmg_unpin(last, 4096) == -EINVAL);
        CHECK(vmg_stats(&s, sizeof(s)) == (vmg_version() ? 0 : -ENOSYS));
        CHECK(vmg_version() ? s.cache > 0 && s.cache_free <= s.cache : s.cache == 0);
}

static void bad_vectors(void)
{
        static struct iovec range[HINTS_RANGES + 1];
        struct iovec two[2] = { { arena, PG }, { TOP, PG } };
        char *gone = map_pages(1, RW, MAP_PRIVATE);

        for (int i = 0; i <= HINTS_RANGES; i++)
                range[i] = (struct iovec){ arena + (uint64_t)i * PG, 1 };
        CHECK(vmg_prefetchv(range, -1) == -EINVAL);
        CHECK(vmg_prefetchv(range, INT_MIN) == -EINVAL);
        CHECK(vmg_prefetchv(range, HINTS_RANGES + 1) == -EINVAL);
        CHECK(vmg_prefetchv(range, HINTS_RANGES) >= 0);
        CHECK(vmg_prefetchv(range, 0) == 0);
        CHECK(vmg_prefetchv(NULL, 0) == 0);
        CHECK(vmg_prefetchv(two, 2) == -EFAULT);
        munmap(gone, PG);
        if (vmg_version()) {            /* natively the library itself reads it */
                CHECK(vmg_prefetchv((struct iovec *)gone, 1) == -EFAULT);
                CHECK(vmg_prefetchv((struct iovec *)(TOP - 8), 1) == -EFAULT);
                CHECK(syscall(HINT_STATS, gone, HINT_NUMBERS, 0) == -1 && errno == EFAULT);
                CHECK(syscall(HINT_STATS, NULL, 0, 0) == HINT_NUMBERS);
                CHECK(syscall(HINTS_END) == -1 && errno == ENOSYS);
        }
        /* In memory that is shared, and from an object that is not there. */
        struct iovec *shared = mmap(NULL, PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
        shared[0] = two[0];
        CHECK(vmg_prefetchv(shared, 1) >= 0);
        munmap(shared, PG);
}

/* Fields for which a caller has no room are not written; fields that vmrun does not know are 0. */
static void short_stats(void)
{
        uint64_t room[64];

        memset(room, 0xff, sizeof(room));
        vmg_stats((struct vmg_stats *)room, 8);
        CHECK(room[1] == UINT64_MAX);
        memset(room, 0xff, sizeof(room));
        vmg_stats((struct vmg_stats *)room, sizeof(room));
        CHECK(room[63] == 0 && room[HINT_NUMBERS] == 0);
        CHECK((room[0] != 0) == (vmg_version() != 0));
}

/* ---- ranges ---- */

/* Only whole pages within the range lose their content, and neighbours keep theirs. */
static void edges(void)
{
        char *p = map_pages(4, RW, MAP_PRIVATE);

        memset(p, 1, 4 * PG);
        CHECK(vmg_drop(p + 1, PG - 1) == 0 && vmg_drop(p, PG - 1) == 0);
        CHECK(p[0] == 1 && p[PG - 1] == 1);
        CHECK(vmg_drop(p + 1, 3 * PG - 2) == 0);
        CHECK(p[PG - 1] == 1 && p[PG] == 0 && p[2 * PG - 1] == 0);
        CHECK(p[2 * PG] == 1 && p[3 * PG] == 1);
        CHECK(vmg_pin(p + PG - 1, 2) == 0);
        CHECK(vmg_resident(p + PG - 1, 2) == 2);
        CHECK(vmg_unpin(p + PG - 1, 2) == 0);
        CHECK(munmap(p + PG, PG) == 0);
        CHECK(vmg_resident(p, 4 * PG) == -ENOMEM);
        CHECK(vmg_prefetch(p, 4 * PG) >= 0);    /* a hole is left out */
        munmap(p, 4 * PG);
}

/* Hints of all kinds over memory of several times the cache change nothing of it. */
static void content(void)
{
        uint64_t x = 1;

        fill(arena, 0, PAGES, 1);
        for (unsigned turn = 0; turn < 400; turn++) {
                x = x * 6364136223846793005ul + 1442695040888963407ul;
                char *at = arena + (x >> 33) % (PAGES - 64) * PG + (x >> 20) % PG;
                size_t len = (x >> 10) % (64 * PG - PG);
                switch (turn % 6) {
                case 0: CHECK(vmg_prefetch(at, len) >= 0); break;
                case 1: CHECK(vmg_stream(at, len, (ptrdiff_t)(x % 20000) - 10000) >= 0 ||
                              x % 20000 == 10000); break;
                case 2: CHECK(vmg_cool(at, len) == 0); break;
                case 3: CHECK(vmg_resident(at, len) >= 0); break;
                case 4: CHECK(vmg_prefetchv(&(struct iovec){ at, len }, 1) >= 0); break;
                case 5: CHECK(madvise(arena, PAGES * PG, turn % 12 ? MADV_RANDOM : MADV_NORMAL) ==
                              0); break;
                }
                for (uint64_t i = 0; i < 8; i++) {
                        uint64_t page = ((uint64_t)(at - arena) / PG + i * 7) % PAGES;
                        verify("hinted", arena + page * PG, page, 1, 1);
                }
        }
        verify("arena", arena, 0, PAGES, 1);
}

/* Whatever has which priority, all of it moves through the cache: also where all pages are to be
 * kept. */
static void priorities(void)
{
        char *gap = map_pages(3, RW, MAP_PRIVATE), *shared;
        ssize_t all = vmg_version() ? PAGES : 0;
        uint64_t x = 2;

        for (unsigned turn = 0; turn < 64; turn++) {
                x = x * 6364136223846793005ul + 1442695040888963407ul;
                char *at = arena + (x >> 33) % (PAGES - 64) * PG;
                ssize_t n = vmg_priority(at, (x >> 20) % (64 * PG), (enum vmg_level)(turn % 3));
                CHECK(n >= 0 && n <= 64);
                verify("with priorities", arena + turn * 32 * PG, turn * 32, 32, 1);
        }
        CHECK(vmg_priority(arena, PAGES * PG, VMG_LOW) == all);
        fill(arena, 0, PAGES / 4, 2);
        verify("all low", arena, 0, PAGES / 4, 2);
        CHECK(vmg_priority(arena, PAGES * PG, VMG_HIGH) == all);
        fill(arena, 0, PAGES / 4, 1);
        verify("all high", arena, 0, PAGES, 1);
        CHECK(vmg_priority(NULL, (uintptr_t)TOP, VMG_HIGH) >= all);
        CHECK(vmg_priority(NULL, (uintptr_t)TOP, VMG_NORMAL) >= all);
        /* a page that was never touched, is not mapped, or is no far memory has none */
        CHECK(vmg_priority(gap, 3 * PG, VMG_HIGH) == 0);
        gap[0] = gap[2 * PG] = 1;
        munmap(gap + PG, PG);
        CHECK(vmg_priority(gap, 3 * PG, VMG_HIGH) == (all ? 2 : 0));
        CHECK(vmg_priority(gap + PG - 1, PG + 2, VMG_LOW) == (all ? 2 : 0));
        munmap(gap, 3 * PG);
        shared = mmap(NULL, PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        shared[0] = 1;
        CHECK(vmg_priority(shared, PG, VMG_HIGH) == 0);
        munmap(shared, PG);
}

/* A stream that ends: pages behind it are as they were, and a later access is an ordinary scan. */
static void streams(void)
{
        for (int down = 0; down < 2; down++) {
                CHECK(vmg_stream(arena, PAGES / 2 * PG, down ? -(ptrdiff_t)PG : (ptrdiff_t)PG) >=
                      0);
                for (uint64_t i = 0; i < PAGES; i++) {
                        uint64_t page = down ? (PAGES + PAGES / 2 - 1 - i) % PAGES : i;
                        verify("stream", arena + page * PG, page, 1, 1);
                }
        }
        CHECK(vmg_stream(arena, PAGES * PG, 7 * PG) >= 0);
        for (uint64_t i = 0; i < PAGES; i += 7)
                verify("stride", arena + i * PG, i, 1, 1);
}

/* ---- in handlers, threads, children ---- */

static atomic_int handled;

static void on_alarm(int signo)
{
        int saved = errno;

        (void)signo;
        if (vmg_prefetch(arena + (unsigned)handled % PAGES * PG, 3 * PG) < -1 || errno != saved)
                _exit(2);
        handled++;
}

static void handlers(void)
{
        struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
        struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };

        CHECK(sigaction(SIGALRM, &act, NULL) == 0);
        CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
        for (int turn = 0; turn < 200 && handled < 20; turn++)
                verify("arena", arena, 0, PAGES, 1);
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
        CHECK(handled >= 20);
}

static atomic_bool stop;

static void *hints_at_random(void *seed)
{
        uint64_t x = (uintptr_t)seed;

        while (!stop) {
                x = x * 6364136223846793005ul + 1442695040888963407ul;
                char *at = arena + (x >> 33) % (PAGES - 32) * PG;
                CHECK(vmg_prefetch(at, 32 * PG) >= 0);
                CHECK(vmg_stream(at, 32 * PG, x & 1 ? 4096 : -4096) >= 0);
                CHECK(vmg_priority(at, 32 * PG, (enum vmg_level)(x >> 40) % 3) >= 0);
                int err = vmg_cool(at, 8 * PG);
                CHECK(err == 0 || err == -ENOMEM);      /* it has just moved away */
        }
        return NULL;
}

/* While other threads unmap, protect and move the ranges of hints. */
static void threads(void)
{
        pthread_t id[2];
        char *mine = map_pages(64, RW, MAP_PRIVATE);

        for (uintptr_t i = 0; i < 2; i++)
                CHECK(pthread_create(&id[i], NULL, hints_at_random, (void *)(i + 1)) == 0);
        for (unsigned turn = 0; turn < 60; turn++) {
                char *part = arena + turn * 32 % (PAGES - 32) * PG;
                CHECK(mprotect(part, 32 * PG, PROT_NONE) == 0);
                CHECK(mprotect(part, 32 * PG, RW) == 0);
                CHECK(mremap(part, 32 * PG, 32 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, mine) == mine);
                verify("moved", mine, (uint64_t)(part - arena) / PG, 32, 1);
                CHECK(mremap(mine, 32 * PG, 32 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, part) == part);
                fill(part, (uint64_t)(part - arena) / PG, 32, 1);
        }
        stop = true;
        for (int i = 0; i < 2; i++)
                CHECK(pthread_join(id[i], NULL) == 0);
}

static void children(void)
{
        int status;

        CHECK(vmg_pin(arena, 4 * PG) == 0);
        CHECK(vmg_stream(arena, PAGES * PG, PG) >= 0);
        CHECK(vmg_priority(arena, PAGES * PG, VMG_HIGH) >= 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                CHECK(vmg_prefetch(arena, PAGES * PG) >= 0);
                verify("arena", arena, 0, PAGES, 1);
                fill(arena, 0, 64, 2);
                CHECK(vmg_drop(arena + 64 * PG, 64 * PG) == 0);
                verify("child", arena, 0, 64, 2);
                _exit(7);
        }
        verify("arena", arena, 0, PAGES, 1);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        verify("arena", arena, 0, PAGES, 1);
        CHECK(vmg_unpin(arena, 4 * PG) == 0);
}

int main(void)
{
        static const struct { const char *name; void (*run)(void); } part[] = {
                { "bad ranges", bad_ranges },   { "bad vectors", bad_vectors },
                { "short statistics", short_stats }, { "edges", edges },
                { "content", content },         { "priorities", priorities },
                { "streams", streams },
                { "handlers", handlers },       { "children", children },
                { "threads", threads },
        };

        arena = map_pages(PAGES, RW, MAP_PRIVATE);
        for (unsigned i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
                part[i].run();
                printf("ok %s\n", part[i].name);
                fflush(stdout);
        }
        return 0;
}
