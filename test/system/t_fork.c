/*
 * fork and the memory of both processes, at several times the cache: its output is the same
 * natively and under vmrun.
 *
 * usage: t_fork [short] [--size MB [TEST]] memory of parent and child, over a working set of that
 *                                          size (4), then processes (t_fork_process.c) and threads
 *                                          (t_fork_threads.c); TEST: one of memory, by its name, or
 *                                          "memory" for all of them
 *        t_fork --bomb SEED CHILDREN [MB]  children that are killed at any moment
 *        t_fork --time MB FORKS            how long fork, exit and wait take with that much
 *                                          resident, in microseconds
 * short: a fifth of the children, where each takes a tenth of a second.  Writes files into the
 * current folder, and removes them.
 */
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "t_fork.h"

static uint64_t pages;                  /* the working set */
unsigned effort = 100;
static int scratch;                     /* a file */

/* Can the system read there?  Tells protection without a signal. */
static bool readable(const void *p) { return pwrite(scratch, p, 1, 0) == 1; }
static bool writable(void *p)
{
        char was;
        return pwrite(scratch, p, 1, 0) == 1 && pread(scratch, &was, 1, 0) == 1 &&
               pread(scratch, p, 1, 0) == 1;
}

static int temp_file(uint64_t npages, uint64_t version)
{
        int fd = open("t_fork.tmp", O_RDWR | O_CREAT | O_EXCL, 0600);
        char page[PG];

        CHECK(fd >= 0 && unlink("t_fork.tmp") == 0);
        for (uint64_t p = 0; p < npages; p++) {
                fill(page, p, 1, version);
                CHECK(pwrite(fd, page, PG, (off_t)(p * PG)) == (ssize_t)PG);
        }
        return fd;
}

/* Gives every `step`-th page a version, or checks it, and `else_version` in the others. */
static void change(char *p, uint64_t n, uint64_t step, uint64_t version)
{
        for (uint64_t i = 0; i < n; i += step)
                fill(p + i * PG, i, 1, version);
}
static void expect(const char *what, const char *p, uint64_t n, uint64_t step, uint64_t version,
                   uint64_t else_version)
{
        for (uint64_t i = 0; i < n; i++)
                verify(what, p + i * PG, i, 1, i % step ? else_version : version);
}

/* Neither process sees changes of the other, meanwhile and afterwards. */
static void test_private(void)
{
        char *p = map_pages(pages, RW, MAP_PRIVATE);

        fill(p, 0, pages, 1);
        pid_t child = start_child();
        if (!child) {
                expect("what the parent had", p, pages, 1, 1, 0);
                change(p, pages, 3, 2);
                expect("the child's changes", p, pages, 3, 2, 1);
                CHECK(munmap(p + pages / 2 * PG, pages / 4 * PG) == 0);
                char *q = map_pages(pages / 4, RW, MAP_PRIVATE);
                verify("fresh memory of the child's", q, 0, pages / 4, 0);
                fill(q, 0, pages / 4, 7);
                expect("the child's changes again", p, pages / 2, 3, 2, 1);
                verify("the child's own", q, 0, pages / 4, 7);
                _exit(0);
        }
        change(p, pages, 5, 3);
        expect("the parent's changes", p, pages, 5, 3, 1);
        reap(child, 0);
        expect("the parent's changes, later", p, pages, 5, 3, 1);
        CHECK(munmap(p, pages * PG) == 0);
}

/* Memory that only one of the two still has: slots of both are now that process's alone. */
static void test_leave(void)
{
        char *p = map_pages(pages, RW, MAP_PRIVATE);
        int go[2];

        fill(p, 0, pages, 1);
        CHECK(pipe(go) == 0);
        pid_t child = start_child();
        if (!child) {
                char c;
                close(go[1]);
                CHECK(read(go[0], &c, 1) ==
                      0); /* the parent has unmapped it, and used the room for other things */
                expect("what the parent had and left", p, pages, 1, 1, 0);
                change(p, pages, 2, 2);
                expect("changed by the child that stayed", p, pages, 2, 2, 1);
                _exit(0);
        }
        CHECK(munmap(p, pages * PG) == 0);
        p = map_pages(pages, RW, MAP_PRIVATE);
        fill(p, 0, pages, 4);
        close(go[1]);
        verify("new memory of the parent's", p, 0, pages, 4);
        reap(child, 0);
        verify("new memory of the parent's, later", p, 0, pages, 4);
        close(go[0]);
        CHECK(munmap(p, pages * PG) == 0);
}

static void test_shared(void)
{
        uint64_t n = pages / 8;
        char *p = map_pages(n, RW, MAP_SHARED);
        int fd = temp_file(n, 5);
        char *f = mmap(NULL, n * PG, RW, MAP_SHARED, fd, 0);
        volatile uint32_t *turn = map_pages(1, RW, MAP_SHARED);

        CHECK(f != MAP_FAILED);
        change(p, n, 1, 1);
        pid_t child = start_child();
        if (!child) {
                for (uint32_t t = 1; t < 40; t += 2) { /* both change the same page in turn */
                        while (*turn != t)
                                usleep(100);
                        verify("the parent's turn", p, 0, 1, 100 + t - 1);
                        fill(p, 0, 1, 100 + t);
                        *turn = t + 1;
                }
                change(p + n / 2 * PG, n / 2, 1, 2);
                verify("a shared file", f, 0, n, 5);
                change(f, n, 2, 6);
                _exit(0);
        }
        for (uint32_t t = 0; t < 40; t += 2) {
                while (*turn != t)
                        usleep(100);
                if (t)
                        verify("the child's turn", p, 0, 1, 100 + t - 1);
                fill(p, 0, 1, 100 + t);
                *turn = t + 1;
        }
        reap(child, 0);
        verify("shared, changed by the child", p + n / 2 * PG, 0, n / 2, 2);
        expect("a shared file, changed by the child", f, n, 2, 6, 5);
        CHECK(munmap(p, n * PG) == 0 && munmap(f, n * PG) == 0 && munmap((void *)turn, PG) == 0);
        close(fd);
}

static void test_file(void)
{
        int fd = temp_file(pages, 1);
        char *p = mmap(NULL, pages * PG, RW, MAP_PRIVATE, fd, 0), page[PG];

        CHECK(p != MAP_FAILED);
        change(p, pages, 4, 2);
        pid_t child = start_child();
        if (!child) {
                expect("a private file", p, pages, 4, 2, 1);
                change(p, pages, 2, 3);
                expect("a private file, changed", p, pages, 2, 3, 1);
                _exit(0);
        }
        expect("a private file in the parent", p, pages, 4, 2, 1);
        reap(child, 0);
        for (uint64_t i = 0; i < pages; i += 64) {
                CHECK(pread(fd, page, PG, (off_t)(i * PG)) == (ssize_t)PG);
                verify("the file itself", page, i, 1, 1);
        }
        CHECK(munmap(p, pages * PG) == 0);
        close(fd);
}

static void test_brk_and_stack(void)
{
        char on_stack[64 * PG], *heap = sbrk(0);
        uint64_t n = pages / 4;

        heap += -(uintptr_t)heap % PG;
        CHECK(brk(heap + n * PG) == 0);
        fill(heap, 0, n, 1);
        fill(on_stack, 0, 64, 1);
        pid_t child = start_child();
        if (!child) {
                CHECK(sbrk(0) == heap + n * PG);
                verify("the heap", heap, 0, n, 1);
                verify("the stack", on_stack, 0, 64, 1);
                fill(on_stack, 0, 64, 2);
                CHECK(brk(heap + (n + 16) * PG) == 0);
                verify("the heap's end", heap + n * PG, 0, 16, 0);
                fill(heap, 0, n + 16, 2);
                verify("the heap, changed", heap, 0, n + 16, 2);
                verify("the stack, changed", on_stack, 0, 64, 2);
                _exit(0);
        }
        reap(child, 0);
        CHECK(sbrk(0) == heap + n * PG);
        verify("the parent's heap", heap, 0, n, 1);
        verify("the parent's stack", on_stack, 0, 64, 1);
        CHECK(brk(heap) == 0);
}

static void test_protection(void)
{
        uint64_t n = pages / 4;
        char *p = map_pages(4 * n, RW, MAP_PRIVATE);

        fill(p, 0, 4 * n, 1);
        CHECK(mprotect(p, n * PG, PROT_NONE) == 0 && mprotect(p + n * PG, n * PG, PROT_READ) == 0);
        for (int generation = 0; generation < 2;
             generation++) { /* the second time pages are as the first fork left them */
                pid_t child = start_child();
                if (!child) {
                        CHECK(!readable(p) && !readable(p + (n - 1) * PG));
                        CHECK(readable(p + n * PG) && !writable(p + (2 * n - 1) * PG) &&
                              writable(p + 2 * n * PG));
                        verify("read-only", p + n * PG, n, n, 1);
                        CHECK(mprotect(p, 2 * n * PG, RW) == 0);
                        verify("accessible again", p, 0, 2 * n, 1);
                        fill(p, 0, 4 * n, 2);
                        verify("changed", p, 0, 4 * n, 2);
                        _exit(0);
                }
                reap(child, 0);
                CHECK(!readable(p) && readable(p + n * PG) && !writable(p + n * PG));
        }
        CHECK(mprotect(p, 2 * n * PG, RW) == 0);
        verify("the parent's", p, 0, 4 * n, 1);
        CHECK(munmap(p, 4 * n * PG) == 0);
}

static void test_advice(void)
{
        char *locked = map_pages(8, RW, MAP_PRIVATE), *p = map_pages(64, RW, MAP_PRIVATE),
             *s = map_pages(4, RW, MAP_SHARED);
        int fd = temp_file(4, 3);
        char *f = mmap(NULL, 4 * PG, RW, MAP_PRIVATE, fd, 0);

        fill(locked, 0, 8, 1);
        fill(p, 0, 64, 1);
        fill(s, 0, 4, 1);
        CHECK(f != MAP_FAILED && mlock(locked, 8 * PG) == 0);
        CHECK(madvise(p, 16 * PG, MADV_DONTFORK) == 0 &&
              madvise(p + 16 * PG, 16 * PG, MADV_WIPEONFORK) == 0);
        CHECK(madvise(s, 4 * PG, MADV_DONTFORK) == 0 && madvise(f, 4 * PG, MADV_DONTFORK) == 0);
        verify("a file", f, 0, 4, 3);
        pid_t child = start_child();
        if (!child) {
                verify("locked pages", locked, 0, 8, 1);
                fill(locked, 0, 8, 2);
                CHECK(!readable(p) && !readable(p + 15 * PG) && !readable(s) && !readable(f));
                verify("wiped pages", p + 16 * PG, 0, 16, 0);
                verify("other pages", p + 32 * PG, 32, 32, 1);
                char *q = mmap(p, 16 * PG, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
                CHECK(q == p);
                verify("what is there instead", q, 0, 16, 0);
                pid_t grandchild = start_child();
                if (!grandchild) {
                        fill(p + 16 * PG, 0, 16, 5);
                        verify("wiped pages of a grandchild", p + 16 * PG, 0, 16, 5);
                        _exit(0);
                }
                reap(grandchild, 0);
                _exit(0);
        }
        reap(child, 0);
        verify("locked pages of the parent", locked, 0, 8, 1);
        verify("all pages of the parent", p, 0, 64, 1);
        verify("a file of the parent", f, 0, 4, 3);
        CHECK(munmap(locked, 8 * PG) == 0 && munmap(p, 64 * PG) == 0 && munmap(s, 4 * PG) == 0 &&
              munmap(f, 4 * PG) == 0);
        close(fd);
}

static void generation(char *p, unsigned left)
{
        expect("what came down", p, pages / 2, left, 10 + left, left == 6 ? 10 + left : 1);
        if (left == 1)
                _exit(0);
        for (uint64_t i = 0; i < pages / 2; i++)
                fill(p + i * PG, i, 1, i % (left - 1) ? 1 : 10 + left - 1);
        pid_t child = start_child();
        if (!child)
                generation(p, left - 1);
        reap(child, 0);
        expect("what was handed on", p, pages / 2, left - 1, 10 + left - 1, 1);
        if (left < 6)
                _exit(0);
}

static void test_generations(void)
{
        char *p = map_pages(pages / 2, RW, MAP_PRIVATE);
        fill(p, 0, pages / 2, 16);
        generation(p, 6);
        CHECK(munmap(p, pages / 2 * PG) == 0);
}

static void test_many(void)
{
        uint64_t n = pages / 2;
        char *p = map_pages(n, RW, MAP_PRIVATE);
        pid_t child[20];
        unsigned most = times(20);

        fill(p, 0, n, 1);
        for (uint64_t k = 0; k < times(100); k++) {     /* one after the other */
                fill(p + k % n * PG, k % n, 1, 2);
                if (!(child[0] = start_child())) {
                        verify("the last change", p + k % n * PG, k % n, 1, 2);
                        verify("no change", p + (n - 1) * PG, n - 1, 1, 1);
                        fill(p + (n - 1) * PG, n - 1, 1, 3);
                        _exit((int)k);
                }
                reap(child[0], (int)k << 8);
        }
        fill(p, 0, n, 1);
        for (unsigned k = 0; k < most; k++) {           /* at once */
                if (!(child[k] = start_child())) {
                        change(p, n, k + 1, 10 + k);
                        expect("one of many", p, n, k + 1, 10 + k, 1);
                        _exit(0);
                }
        }
        for (unsigned k = 0; k < most; k++)
                reap(child[k], 0);
        verify("the parent of many", p, 0, n, 1);
        CHECK(munmap(p, n * PG) == 0);
}

/* Read without stdio, which would allocate. */
static size_t read_maps(char *text, size_t room)
{
        int fd = open("/proc/self/maps", O_RDONLY);
        size_t n = 0;

        CHECK(fd >= 0);
        for (ssize_t r; (r = read(fd, text + n, room - n)) > 0; )
                n += (size_t)r;
        close(fd);
        return n;
}

static void test_maps(void)
{
        static char before[65536], in_child[65536];
        char *p = map_pages(16, RW, MAP_PRIVATE), *s = map_pages(3, PROT_READ, MAP_SHARED);

        CHECK(mprotect(p + 4 * PG, 4 * PG, PROT_NONE) == 0);
        size_t n = read_maps(before, sizeof(before));
        pid_t child = start_child();
        if (!child) {
                size_t m = read_maps(in_child, sizeof(in_child));
                CHECK(n == m && memcmp(before, in_child, n) == 0);
                _exit(0);
        }
        reap(child, 0);
        CHECK(munmap(p, 16 * PG) == 0 && munmap(s, 3 * PG) == 0);
}

static uint64_t random_state;
static uint32_t rnd(uint32_t n)
{
        random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
        return (uint32_t)((random_state >> 33) % n);
}

/* Killed children leave the parent's memory as it is, and their own share of far memory free. */
static int bomb(uint64_t seed, unsigned children)
{
        pid_t live[8] = { 0 };
        unsigned killed = 0;

        random_state = seed;
        char *p = map_pages(pages, RW, MAP_PRIVATE);
        fill(p, 0, pages, 1);
        for (unsigned k = 0; k < children; k++) {
                unsigned i = rnd(8);
                if (live[i]) {
                        kill(live[i], SIGKILL);
                        CHECK(waitpid(live[i], NULL, 0) == live[i]);
                        killed++;
                }
                if (!(live[i] = start_child()))
                        for (uint64_t v = 2;; v++) {
                                change(p, pages, 1 + v % 7, v);
                                if (v % 3 == 0 && !start_child())
                                        _exit(0);
                                while (waitpid(-1, NULL, WNOHANG) > 0)
                                        ;
                        }
                usleep(rnd(20000));
                change(p, pages, 1 + rnd(50), 1);
        }
        for (unsigned i = 0; i < 8; i++)
                if (live[i]) {
                        kill(live[i], SIGKILL);
                        CHECK(waitpid(live[i], NULL, 0) == live[i]);
                        killed++;
                }
        verify("the parent of the killed", p, 0, pages, 1);
        printf("bomb: %u children killed\n", killed);
        return 0;
}

static int64_t now_us(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

static int time_forks(uint64_t mb, unsigned forks)
{
        uint64_t n = mb * MiB / PG;
        char *p = map_pages(n, RW, MAP_PRIVATE);

        fill(p, 0, n, 1);
        int64_t begin = now_us();
        for (unsigned k = 0; k < forks; k++) {
                pid_t child = start_child();
                if (!child)
                        _exit(0);
                reap(child, 0);
        }
        printf("%.1f\n", (double)(now_us() - begin) / forks);
        return 0;
}

int main(int argc, char **argv)
{
        if (argc > 1 && strcmp(argv[1], "short") == 0) {
                effort = 20;
                argc--, argv++;
        }
        pages = (argc >= 3 && strcmp(argv[1], "--size") == 0 ? (uint64_t)atoi(argv[2]) : 4) * MiB /
                PG;
        CHECK((scratch = open("t_fork.scratch", O_RDWR | O_CREAT, 0600)) >= 0 &&
              unlink("t_fork.scratch") == 0);
        if (argc == 5)
                pages = (uint64_t)atoi(argv[4]) * MiB / PG;
        signal(SIGCHLD, SIG_DFL);       /* ignored, it would take the children away */
        if (argc >= 4 && strcmp(argv[1], "--bomb") == 0)
                return bomb((uint64_t)atoll(argv[2]), (unsigned)atoi(argv[3]));
        if (argc == 4 && strcmp(argv[1], "--time") == 0)
                return time_forks((uint64_t)atoll(argv[2]), (unsigned)atoi(argv[3]));
        static const struct { const char *name; void (*run)(void);
        } tests[] = {
                { "private", test_private },
                { "leave", test_leave },
                { "shared", test_shared },
                { "file", test_file },
                { "brk and stack", test_brk_and_stack },
                { "protection", test_protection },
                { "advice", test_advice },
                { "generations", test_generations },
                { "many", test_many },
                { "maps", test_maps },
        };
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
                if (argc == 4 && strcmp(argv[3], tests[i].name) != 0 &&
                    strcmp(argv[3], "memory") != 0)
                        continue;
                tests[i].run();
                printf("%s: ok\n", tests[i].name);
                fflush(stdout);
        }
        if (argc < 4) {
                process_tests();
                thread_tests();
        }
        return 0;
}
