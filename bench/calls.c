/*
 * What system calls, threads, processes and signals cost a program: one program natively and under
 * vmrun.
 *
 *   calls [COUNT] [WHAT...]
 *
 * WHAT: getppid read1 read1m futex thread fork spawn signal (default: all). Each is done COUNT
 * times (default 1000; the slow ones a tenth of that). Prints WHAT_p50 and WHAT_p99 in ns.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "samples.h"

#define MEBIBYTE (1u << 20)

extern char **environ;

static struct samples s;
static unsigned count = 1000;

static void check(bool good, const char *what)
{
        if (good)
                return;
        perror(what);
        exit(1);
}

static void getppid_(void)
{
        for (unsigned i = 0; i < count; i++) {
                uint64_t begin = samples_now();
                syscall(SYS_getppid);
                samples_add(&s, samples_now() - begin);
        }
}

static void reads(size_t size, unsigned n)
{
        int fd = memfd_create("calls", 0);
        char *buf = mmap(NULL, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

        check(fd >= 0 && buf != MAP_FAILED && ftruncate(fd, (off_t)size) == 0, "a file");
        check(pwrite(fd, buf, size, 0) == (ssize_t)size, "write");
        for (unsigned i = 0; i < n; i++) {
                uint64_t begin = samples_now();
                check(pread(fd, buf, size, 0) == (ssize_t)size, "read");
                samples_add(&s, samples_now() - begin);
        }
        munmap(buf, size);
        close(fd);
}

static void read1(void) { reads(1, count); }
static void read1m(void) { reads(MEBIBYTE, count / 10); }

static _Atomic uint32_t turn;

static void pass(uint32_t mine)
{
        atomic_store(&turn, !mine);
        syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        while (atomic_load(&turn) != mine)
                syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !mine, NULL, NULL, 0);
}

static void *partner(void *arg)
{
        (void)arg;
        while (atomic_load(&turn) != 1)
                syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        for (unsigned i = 0; i + 1 < count; i++)
                pass(1);
        atomic_store(&turn, 0);
        syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        return NULL;
}

/* There and back: two wake-ups, two waits. */
static void futex(void)
{
        pthread_t id;

        check(pthread_create(&id, NULL, partner, NULL) == 0, "pthread_create");
        for (unsigned i = 0; i < count; i++) {
                uint64_t begin = samples_now();
                pass(0);
                samples_add(&s, samples_now() - begin);
        }
        pthread_join(id, NULL);
}

static void *nothing(void *arg) { return arg; }

static void thread(void)
{
        for (unsigned i = 0; i < count / 10; i++) {
                pthread_t id;
                uint64_t begin = samples_now();
                check(pthread_create(&id, NULL, nothing, NULL) == 0, "pthread_create");
                pthread_join(id, NULL);
                samples_add(&s, samples_now() - begin);
        }
}

static void reap(pid_t pid)
{
        int status;
        check(waitpid(pid, &status, 0) == pid && status == 0, "a child");
}

static void fork_(void)
{
        for (unsigned i = 0; i < count / 10; i++) {
                uint64_t begin = samples_now();
                pid_t pid = fork();
                if (pid == 0)
                        _exit(0);
                check(pid > 0, "fork");
                reap(pid);
                samples_add(&s, samples_now() - begin);
        }
}

static void spawn(void)
{
        char *argv[] = { "true", NULL };

        for (unsigned i = 0; i < count / 10; i++) {
                pid_t pid;
                uint64_t begin = samples_now();
                check(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0,
                      "posix_spawn");
                reap(pid);
                samples_add(&s, samples_now() - begin);
        }
}

static volatile sig_atomic_t taken;

static void handler(int signo) { taken += signo == SIGUSR1; }

/* From kill() to its return, the handler in between. */
static void signal_(void)
{
        struct sigaction a = { .sa_handler = handler };
        pid_t self = getpid(), tid = (pid_t)syscall(SYS_gettid);

        sigaction(SIGUSR1, &a, NULL);
        for (unsigned i = 0; i < count; i++) {
                uint64_t begin = samples_now();
                syscall(SYS_tgkill, self, tid, SIGUSR1);
                samples_add(&s, samples_now() - begin);
        }
        check(taken == (sig_atomic_t)count, "a signal");
}

static const struct { const char *name; void (*run)(void);
} all[] = {
        { "getppid", getppid_ }, { "read1", read1 }, { "read1m", read1m }, { "futex", futex },
        { "thread", thread },    { "fork", fork_ },  { "spawn", spawn },   { "signal", signal_ },
};

int main(int argc, char **argv)
{
        int first = 1;

        if (argc > 1 && atoi(argv[1]) > 0)
                count = (unsigned)atoi(argv[first++]);
        if (count < 10 || !samples_init(&s, count)) {
                fputs("usage: calls [COUNT] [WHAT...]  (COUNT: 10 or more)\n", stderr);
                return 2;
        }
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
                bool wanted = first == argc;
                for (int k = first; k < argc; k++)
                        wanted |= strcmp(argv[k], all[i].name) == 0;
                if (!wanted)
                        continue;
                all[i].run();
                samples_print(&s, all[i].name);
                fflush(stdout);
        }
        return 0;
}
