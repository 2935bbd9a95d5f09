/*
 * vmg_prefetchv_counted, vmg_wait, vmg_arrived: arguments that are wrong, words that are far,
 * moved, unmapped or given up while pages are on their way, ranges likewise, many words at a time,
 * and threads and processes that fork, execute and end meanwhile.  Its output is the same
 * natively and under vmrun.
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

static uint64_t next(uint64_t *x)
{
        *x = *x * 6364136223846793005ul + 1442695040888963407ul;
        return *x >> 20;
}

/* Counted pages of [at, at + pages); never more than there are. */
static ssize_t ask(char *at, uint64_t pages, uint32_t *left)
{
        ssize_t n = vmg_prefetchv_counted(&(struct iovec){ at, pages * PG }, 1, left);

        CHECK(n >= 0 && n <= (ssize_t)pages);
        return n;
}

/* ---- arguments ---- */

static void arguments(void)
{
        static struct iovec many[HINTS_RANGES + 1];
        struct iovec one = { arena, PG }, two[2] = { { arena, PG }, { TOP, PG } };
        uint32_t left = 0, *end = (uint32_t *)(UINTPTR_MAX - 3);
        char *p = map_pages(2, RW, MAP_PRIVATE);
        bool here = vmg_version() > 0;

        CHECK(vmg_prefetchv_counted(&one, 1, (uint32_t *)((char *)&left + 2)) == -EINVAL);
        CHECK(vmg_prefetchv_counted(&one, 1, (uint32_t *)TOP) == -EFAULT);
        CHECK(vmg_prefetchv_counted(&one, 1, end) == -EFAULT);
        CHECK(vmg_prefetchv_counted(&one, -1, &left) == -EINVAL);
        CHECK(vmg_prefetchv_counted(&one, INT_MIN, &left) == -EINVAL);
        CHECK(vmg_prefetchv_counted(many, HINTS_RANGES + 1, &left) == -EINVAL);
        CHECK(vmg_prefetchv_counted(NULL, 0, &left) == 0 && left == 0);
        CHECK(vmg_prefetchv_counted(many, HINTS_RANGES, &left) == 0 && left == 0);
        CHECK(vmg_prefetchv_counted(two, 2, &left) == -EFAULT);
        CHECK(vmg_wait(&left) == 0 && left == 0 && vmg_arrived(&left) == 1);
        if (here) {
                CHECK(vmg_prefetchv_counted(&one, 1, NULL) == -EFAULT);
                CHECK(vmg_prefetchv_counted((struct iovec *)TOP, 1, &left) == -EFAULT);
                CHECK(vmg_wait(NULL) == -EFAULT && vmg_wait((uint32_t *)TOP) == -EFAULT);
                CHECK(vmg_wait((uint32_t *)(p + 1)) == -EINVAL);
                CHECK(syscall(HINT_WAIT, &left, 2, 0) == -1 && errno == EINVAL);
                CHECK(syscall(HINT_COUNTED, &one, ~0ul, &left) == -1 && errno == EINVAL);
                CHECK(mprotect(p, PG, PROT_READ) == 0);
                CHECK(vmg_prefetchv_counted(&one, 1, (uint32_t *)p) == -EFAULT);
                CHECK(munmap(p, PG) == 0);
                CHECK(vmg_prefetchv_counted(&one, 1, (uint32_t *)p) == -EFAULT);
                uint32_t *shared = mmap(NULL, PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                CHECK(vmg_prefetchv_counted(&one, 1, shared) == -EINVAL);
                munmap(shared, PG);
        }
        /* nothing counts there */
        left = 5;
        CHECK(vmg_wait(&left) == -EINVAL && left == 5);
        errno = 33;
        CHECK(vmg_arrived(&left) <= 0 && errno == 33);
        munmap(p, 2 * PG);
}

/* A resident page is not counted, nor is a page that was never touched. */
static void nothing_to_wait_for(void)
{
        char *p = map_pages(16, RW, MAP_PRIVATE);
        uint32_t left = 0;

        CHECK(ask(p, 16, &left) == 0 && left == 0);
        memset(p, 1, 16 * PG);
        CHECK(vmg_pin(p, 16 * PG) == 0);
        CHECK(ask(p, 16, &left) == 0 && left == 0);
        CHECK(munmap(p, 16 * PG) == 0);
        CHECK(ask(p, 16, &left) == 0 && left == 0);
}

/* ---- content ---- */

/* One word for several calls, in turn on the stack, in memory that is far, and in the range that is
 * asked for. */
static void content(void)
{
        uint64_t x = 1;
        uint32_t mine = 0;
        char *words = map_pages(PAGES, RW, MAP_PRIVATE);

        fill(arena, 0, PAGES, 1);
        for (unsigned turn = 0; turn < 400; turn++) {
                uint64_t page = next(&x) % (PAGES - 32);
                uint32_t *left = turn % 2 ? &mine : (uint32_t *)(words + next(&x) % PAGES * PG);
                ssize_t n = ask(arena + page * PG, 1 + next(&x) % 16, left);
                n += ask(arena + (page + 8) * PG, 1 + next(&x) % 16, left);
                CHECK(n >= 0 && *left <= (uint32_t)n);
                int arrived = vmg_arrived(left);
                CHECK(arrived == 0 || arrived == 1);
                CHECK(vmg_wait(left) == 0 && *left == 0 && vmg_arrived(left) == 1);
                verify("counted", arena + page * PG, page, 24, 1);
        }
        verify("arena", arena, 0, PAGES, 1);
        munmap(words, PAGES * PG);
}

/* Looking is enough: pages come without a wait. */
static void looking(void)
{
        uint32_t left = 0;

        for (uint64_t page = 0; page < 256; page += 16) {
                ask(arena + page * PG, 16, &left);
                for (unsigned long turn = 0; !vmg_arrived(&left); turn++)
                        CHECK(turn < 100000000);
                verify("looked at", arena + page * PG, page, 16, 1);
        }
}

/* Thousands of words, each of one page, and many of the same page. */
static void many(void)
{
        static uint32_t left[4096];
        uint64_t x = 2;

        for (unsigned i = 0; i < 4096; i++)
                ask(arena + (i % 2 ? next(&x) % PAGES : i / 512 % PAGES) * PG, 1, &left[i]);
        for (unsigned i = 4096; i-- > 0;)
                CHECK(vmg_wait(&left[i]) == 0 && left[i] == 0);
}

/* ---- memory that goes away meanwhile ---- */

/* The range is unmapped, given up, moved, or may not be touched. */
static void ranges_go(void)
{
        char *p = map_pages(256, RW, MAP_PRIVATE), *away = map_pages(32, RW, MAP_PRIVATE);
        uint32_t left = 0;

        for (unsigned turn = 0; turn < 40; turn++) {
                char *at = p + turn % 8 * 32 * PG;
                fill(p, 0, 256, turn + 1);
                verify("arena", arena + turn * 32 * PG, turn * 32, 32, 1);
                ask(at, 32, &left);
                switch (turn % 5) {
                case 0: CHECK(munmap(at, 32 * PG) == 0); break;
                case 1: CHECK(vmg_drop(at, 32 * PG) == 0); break;
                case 2: CHECK(mremap(at, 32 * PG, 32 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, away) ==
                              away); break;
                case 3: CHECK(mprotect(at, 32 * PG, PROT_NONE) == 0); break;
                case 4: CHECK(mmap(at, 32 * PG, RW, ANON | MAP_FIXED, -1, 0) == at); break;
                }
                CHECK(vmg_wait(&left) == 0 && left == 0);
                if (turn % 5 == 2)
                        verify("moved", away, turn % 8 * 32, 32, turn + 1);
                CHECK(mmap(at, 32 * PG, RW, ANON | MAP_FIXED, -1, 0) == at);
        }
        munmap(p, 256 * PG);
        munmap(away, 32 * PG);
}

/* The word's page is unmapped, given up, made read-only, or moved: nothing else is written to. */
static void words_go(void)
{
        char *w = map_pages(2, RW, MAP_PRIVATE);
        uint64_t x = 3;

        for (unsigned turn = 0; turn < 60; turn++) {
                uint32_t *left = (uint32_t *)(w + 64);
                uint64_t page = next(&x) % (PAGES - 32);
                ask(arena + page * PG, 32, left);
                switch (turn % 5) {
                case 0: CHECK(munmap(w, PG) == 0); break;
                case 1: CHECK(vmg_drop(w, PG) == 0); break;
                case 2: CHECK(mprotect(w, PG, PROT_READ) == 0); break;
                case 3: CHECK(mremap(w, PG, PG, MREMAP_MAYMOVE | MREMAP_FIXED, w + PG) == w + PG);
                        CHECK(vmg_wait((uint32_t *)(w + PG + 64)) == 0); break;
                case 4: CHECK(mmap(w, PG, RW, ANON | MAP_FIXED, -1, 0) == w); break;
                }
                verify("counted", arena + page * PG, page, 32, 1);
                if (turn % 5 == 2)
                        CHECK(mprotect(w, PG, RW) == 0);
                else
                        CHECK(mmap(w, 2 * PG, RW, ANON | MAP_FIXED, -1, 0) == w);
                CHECK(vmg_wait(left) == 0);
                for (unsigned i = 0; i < 2 * PG; i++)
                        CHECK(w[i] == 0);
        }
        munmap(w, 2 * PG);
}

/* ---- handlers, threads, processes ---- */

static atomic_int handled;

static void on_alarm(int signo)
{
        static uint32_t left;

        (void)signo;
        if (vmg_prefetchv_counted(&(struct iovec){ arena + (unsigned)handled % PAGES * PG, 3 * PG },
                                  1, &left) < 0 || (handled % 2 && vmg_wait(&left) != 0))
                _exit(2);
        handled++;
}

static void handlers(void)
{
        struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
        struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
        uint32_t left = 0;
        uint64_t x = 4;

        CHECK(sigaction(SIGALRM, &act, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
        while (handled < 20) {
                ask(arena + next(&x) % (PAGES - 16) * PG, 16, &left);
                CHECK(vmg_wait(&left) == 0 && left == 0);
        }
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static atomic_bool stop;
static uint32_t common;

/* Each counts in a word of its own, and in one of all. */
static void *asks_at_random(void *seed)
{
        uint64_t x = (uintptr_t)seed;
        uint32_t left = 0;

        while (!stop) {
                uint64_t page = next(&x) % (PAGES - 16);
                ask(arena + page * PG, 16, &left);
                ask(arena + page * PG, 4, &common);
                if (next(&x) % 4 == 0)
                        CHECK(vmg_drop(arena + page * PG, PG) == 0);
                CHECK(vmg_wait(&left) == 0 && left == 0);
        }
        return NULL;
}

/* A child's words count nothing, and its pages are there. */
static void child(uint32_t *left)
{
        uint32_t own = 0;

        CHECK(*left == 0 && vmg_wait(left) == 0);
        ask(arena, 32, &own);
        ask(arena + 64 * PG, 32, left);
        CHECK(vmg_wait(&own) == 0 && vmg_wait(left) == 0);
        ask(arena + 128 * PG, 32, left);        /* not waited for */
        _exit(7);
}

static void fork_once(uint32_t *left, bool execute)
{
        int status;
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0 && execute) {
                ask(arena + 64 * PG, 32, left);
                execl("/bin/true", "true", NULL);
        }
        if (pid == 0)
                child(left);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == (execute ? 0 : 7));
}

static void threads(void)
{
        pthread_t id[3];
        uint32_t left = 0;

        for (uintptr_t i = 0; i < 3; i++)
                CHECK(pthread_create(&id[i], NULL, asks_at_random, (void *)(i + 1)) == 0);
        for (unsigned turn = 0; turn < 12; turn++) {
                char *part = arena + turn * 32 * PG;
                ask(part, 32, &left);
                if (turn % 3 == 0)
                        fork_once(&left, turn % 2);
                CHECK(mprotect(part, 32 * PG, PROT_NONE) == 0);
                CHECK(mprotect(part, 32 * PG, RW) == 0);
                CHECK(vmg_wait(&left) == 0 && left == 0);
        }
        stop = true;
        for (int i = 0; i < 3; i++)
                CHECK(pthread_join(id[i], NULL) == 0);
        CHECK(vmg_wait(&common) == 0 && common == 0);
}

/* It ends with pages on their way, and another thread that waits. */
static void *waits(void *arg)
{
        uint32_t left = 0;

        (void)arg;
        for (uint64_t x = 9;; ) {
                ask(arena + next(&x) % (PAGES - 16) * PG, 16, &left);
                vmg_wait(&left);
        }
        return NULL;
}

int main(void)
{
        static const struct { const char *name; void (*run)(void); } part[] = {
                { "arguments", arguments },     { "nothing to wait for", nothing_to_wait_for },
                { "content", content },         { "looking", looking },
                { "many", many },               { "ranges go", ranges_go },
                { "words go", words_go },       { "handlers", handlers },
                { "threads", threads },
        };
        static uint32_t left;
        pthread_t id;

        arena = map_pages(PAGES, RW, MAP_PRIVATE);
        for (unsigned i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
                part[i].run();
                printf("ok %s\n", part[i].name);
                fflush(stdout);
        }
        CHECK(pthread_create(&id, NULL, waits, NULL) == 0);
        usleep(20000);
        ask(arena, 64, &left);
        return 0;
}
