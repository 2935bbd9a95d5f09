/*
 * A program that waits for far memory at known places, for --profile: three quarters of it in
 * hot(), a quarter in cool().  The argument chooses other work.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PG    4096ul
#define PAGES 4096ul                    /* 16 MiB */
#define TURNS 1500

/* Under its own name, also where the compiler knows all calls. */
#ifdef __clang__
#define FUNCTION __attribute__((noinline))
#else
#define FUNCTION __attribute__((noinline, noclone))
#endif
/* Keeps the call before it from becoming a jump. */
#define BACK() __asm__ volatile("" ::: "memory")

static char *arena;

static _Thread_local unsigned seed = 1;
static char *any_page(void)
{
        seed = seed * 1103515245 + 12345;
        return arena + (seed >> 4) % PAGES * PG;
}

FUNCTION void hot(int n)
{
        while (n-- > 0)
                ++*any_page();
}

FUNCTION void cool(int n)
{
        while (n-- > 0)
                ++*any_page();
}

FUNCTION void work(void)
{
        for (int i = 0; i < 4; i++) {
                hot(TURNS);
                cool(TURNS / 3);
                BACK();
        }
}

/* ---- threads ---- */

FUNCTION void *worker(void *arg)
{
        seed = (unsigned)(uintptr_t)arg;
        hot(TURNS);
        BACK();
        return NULL;
}

static void threads(void)
{
        pthread_t t[4];

        for (uintptr_t i = 0; i < 4; i++)
                if (pthread_create(&t[i], NULL, worker, (void *)(i + 1)) != 0)
                        exit(1);
        for (int i = 0; i < 4; i++)
                pthread_join(t[i], NULL);
}

/* ---- what needs pages for others ---- */

FUNCTION void sender(void)
{
        int fd = open("/dev/null", O_WRONLY);
        int pipes[2];

        if (fd < 0 || pipe(pipes) != 0)
                exit(1);
        for (int i = 0; i < TURNS; i++) {
                char byte;
                if (write(pipes[1], any_page(), 1) != 1 || read(pipes[0], &byte, 1) != 1)
                        exit(1);
        }
        close(fd);
}

FUNCTION void copier(void)
{
        static char to[8192];

        for (int i = 0; i < TURNS; i++) {
                memcpy(to, any_page(), 4000 + (size_t)i % 8);
                BACK();
        }
}

/* ---- junk ---- */

/* Touches a page with that in RBP. */
static void touch_with(uint64_t rbp, const char *page)
{
        char c;

        __asm__ volatile("mov %%rbp, %%r15\n\t"
                         "mov %2, %%rbp\n\t"
                         "movb (%1), %0\n\t"
                         "mov %%r15, %%rbp"
                         : "=&q"(c) : "r"(page), "r"(rbp) : "r15", "memory");
}

FUNCTION void junk(void)
{
        uint64_t room[2050], *frames = (uint64_t *)(((uintptr_t)room + 15) & ~15ul);
        const uint64_t at = (uintptr_t)frames, code = (uintptr_t)&hot + 4;
        const uint64_t values[] = {
                0, 1, 8, ~0ull, ~7ull, ~15ull, at + 8, at + 1, at - 4096, at, at + 16, at + 64,
                0xffff800000000000, 0xffffffff81000000, 0x0000800000000000, 0x00007ffffffffff0,
                0x00007ffffffff000, 0x0000680000000000, 0x0000680000100000, 0x000067fffffe8000,
                0x00006a0000000000, 0x00006ffffffffff0, (uintptr_t)arena, (uintptr_t)&hot,
                (uintptr_t)arena + PAGES * PG - 8, at + (1 << 20), at + (64 << 20),
        };

        for (int turn = 0; turn < 6; turn++) {
                for (int i = 0; i < 2048; i += 2) {
                        frames[i] = turn == 0   ? at + 16               /* a loop */
                                    : turn == 1 ? at + 8 * (uint64_t)i + 16     /* a long chain */
                                    : turn == 2 ? at + 8 * (uint64_t)i  /* each leads to itself */
                                    : turn == 3 ? values[i / 2 % (sizeof(values) / 8)]
                                    : turn == 4 ? at - 8 * (uint64_t)i  /* downwards */
                                                : 0x0101010101010101 * (uint64_t)i;
                        frames[i + 1] = i % 3 || turn == 1 ? code : values[i % 20];
                }
                for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
                        for (int again = 0; again < 8; again++)
                                touch_with(values[i], any_page());
        }
        BACK();
}

/* ---- */

static void in_child(const char *self)
{
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                cool(TURNS);
                if (self)
                        execl(self, self, "work", NULL);
                exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
                exit(1);
        hot(TURNS);
        BACK();
}

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "work";

        arena = mmap(NULL, PAGES * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (arena == MAP_FAILED)
                return 1;
        for (unsigned long i = 0; i < PAGES; i++)
                memset(arena + i * PG, (int)i | 1, 64);
        if (strcmp(what, "threads") == 0)
                threads();
        else if (strcmp(what, "sender") == 0)
                sender();
        else if (strcmp(what, "copier") == 0)
                copier();
        else if (strcmp(what, "junk") == 0)
                junk();
        else if (strcmp(what, "fork") == 0)
                in_child(NULL);
        else if (strcmp(what, "forkexec") == 0)
                in_child("/proc/self/exe");
        else
                work();
        if (strcmp(what, "exec") == 0)
                execl("/proc/self/exe", argv[0], "work", NULL);
        if (strcmp(what, "noexec") == 0 && execl("/dev/null", argv[0], NULL) != -1)
                return 1;
        if (strcmp(what, "killed") == 0)
                raise(SIGTERM);
        puts("done");
        return 0;
}
