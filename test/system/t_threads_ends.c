/*
 * t_threads: ends of a program with threads, one a run: t_threads end N. The test is the status,
 * and that it ends soon.
 */
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "t_threads.h"

static _Atomic int busy;
static _Atomic uint32_t word;
static int pipe_fd[2];

static void *spins(void *arg)
{
        busy++;
        for (volatile uint64_t i = 0; ; i++) { }
        return arg;
}

static void *reads(void *arg)
{
        char c;

        busy++;
        (void)!read(pipe_fd[0], &c, 1);
        return arg;
}

static void *waits(void *arg)
{
        busy++;
        for (;;)
                futex_(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        return arg;
}

static void *naps(void *arg)
{
        busy++;
        sleep(1000);
        return arg;
}

/* Twice the caches of the tests, and more. */
static void *faults(void *arg)
{
        const size_t size = 24 << 20;
        volatile char *p =
                mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        busy++;
        for (uint32_t x = 1; ; x = x * 1664525 + 1013904223)
                p[x % size]++;
        return arg;
}

static void *calls(void *arg)
{
        busy++;
        for (;;)
                (void)!syscall(SYS_getppid);
        return arg;
}

static void *nothing(void *arg) { return arg; }

static void *makes_threads(void *arg)
{
        pthread_t id;

        busy++;
        for (;;)
                if (pthread_create(&id, NULL, nothing, NULL) == 0)
                        pthread_join(id, NULL);
        return arg;
}

static void *maps(void *arg)
{
        busy++;
        for (;;) {
                char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                               -1, 0);
                for (int i = 0; p != MAP_FAILED && i < 1 << 20; i += 16384)
                        p[i] = 1;
                munmap(p, 1 << 20);
        }
        return arg;
}

/* Other threads in every state that a thread can be in when the end comes. */
static void surround(void)
{
        void *(*const all[])(void *) = { spins,  reads, waits,         naps, faults,
                                         faults, calls, makes_threads, maps };
        const int n = sizeof(all) / sizeof(all[0]);

        if (pipe(pipe_fd))
                exit(98);
        for (int i = 0; i < n; i++)
                pthread_detach(start(all[i], NULL));
        if (!BECOMES(busy == n))
                exit(97);
        sleep_ms(30);
}

/* The main thread's end can be joined like any other's, also after a bare SYS_exit. */
static void join_main(void *id)
{
        if (pthread_join(*(pthread_t *)id, NULL))
                _exit(95);
}

static void *exits_5(void *arg) { sleep_ms(50); exit(5); return arg; }
static void *exits_5_alone(void *arg) { join_main(arg); exit(5); return arg; }
static void *returns(void *arg) { sleep_ms(50); return arg; }
static void *aborts(void *arg) { abort(); return arg; }
static void *touches_nothing(void *arg) { *(volatile int *)arg = 1; return NULL; }
static void *kills_all(void *arg) { kill(getpid(), SIGTERM); pause(); return arg; }
static void *exits_all_6(void *arg) { syscall(SYS_exit_group, 6); return arg; }
static void *exits_raw_3_alone(void *arg) { join_main(arg); syscall(SYS_exit, 3); return arg; }

static int deepens(volatile char *above, int depth)
{
        volatile char frame[1024];

        frame[0] = above[0];
        return depth ? deepens(frame, depth - 1) + frame[0] : 1;
}
static void *overflows(void *arg)
{
        volatile char c = 0;

        return deepens(&c, 1 << 20) ? arg : NULL;
}

static void stays(void)
{
        for (;;)
                pause();
}

static pthread_barrier_t both;
static void *ends_too(void *status)
{
        pthread_barrier_wait(&both);
        _exit((int)(intptr_t)status);
        return NULL;
}

static sigset_t usr1(void)
{
        sigset_t s;

        sigemptyset(&s);
        sigaddset(&s, SIGUSR1);
        return s;
}

/*
 * A process whose first thread is gone still has its memory and files: all that a call may do with
 * them.
 */
static void *goes_on_alone(void *arg)
{
        char path[] = "/tmp/t_threads.XXXXXX", text[8192], *p;
        int fd = mkstemp(path), status;

        join_main(arg);
        sleep_ms(20); /* joined, it is not yet a zombie, and nothing tells when it is */
        unlink(path);
        memset(text, 'x', sizeof(text));
        CHECK(write(fd, text, sizeof(text)) == sizeof(text));
        p = mmap(NULL, sizeof(text), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(p != MAP_FAILED && p[5000] == 'x');
        memset(text, 'y', sizeof(text));
        CHECK(pwrite(fd, text, 4096, 0) == 4096 && p[0] == 'y' && p[4096] == 'x');
        CHECK(pread(fd, p + 4096, 4096, 0) == 4096 && p[4096] == 'y');
        CHECK(pipe(pipe_fd) == 0 && write(pipe_fd[1], p + 4000, 200) == 200 &&
              read(pipe_fd[0], p + 100, 200) == 200);
        CHECK(getcwd(p + 4090, 4000) != NULL);
        struct timespec *t = (struct timespec *)(p + 4088);
        CHECK(syscall(SYS_clock_getres, CLOCK_REALTIME, t) == 0);
        char *q = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
        CHECK(q != MAP_FAILED && q[4095] == p[8191]);
        char *r = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, dup(fd), 0);
        CHECK(r != MAP_FAILED && memcmp(r, p, 4096) == 0);
        CHECK(finish(start(nothing, arg)) == arg);
        pid_t pid = vfork();
        if (pid == 0)
                _exit(4);
        CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 4);
        exit(failures ? 96 : 20);
}

/* Its first thread is gone, and so are its entries in /proc. */
static void *executes_alone(void *arg)
{
        join_main(arg);
        sleep_ms(20);           /* as above */
        execl("/bin/sh", "sh", "-c", "exit 21", (char *)NULL);
        return arg;
}

enum { GO = 100, ANSWER = 102 };        /* pipes that the next program finds again */

static void pipe_at(int fd)
{
        int p[2];

        if (pipe(p) || dup2(p[0], fd) != fd || dup2(p[1], fd + 1) != fd + 1)
                exit(98);
        close(p[0]);
        close(p[1]);
}

static void *has_child(void *arg)
{
        char c = 0;

        if (vfork() == 0) {
                busy = 1;
                _exit(read(GO, &c, 1) == 1 && write(ANSWER + 1, &c, 1) == 1 ? 4 : 5);
        }
        return arg;
}

/*
 * The memory that a child borrows outlives the program that it belongs to.  The next program, `end
 * -1`, asks the child and waits for it.
 */
static void executes_beside_child(void)
{
        pipe_at(GO);
        pipe_at(ANSWER);
        start(has_child, NULL);
        BECOMES(busy == 1);
        sleep_ms(30);
        execl("/proc/self/exe", "t_threads", "end", "-1", (char *)NULL);
}

static void asks_child(void)
{
        char c = 'c';
        int status;

        CHECK(write(GO + 1, &c, 1) == 1 && read(ANSWER, &c, 1) == 1 && c == 'c');
        CHECK(wait(&status) > 0 && status == 4 << 8);
        exit(failures ? 96 : 22);
}

static void *exits_23(void *arg) { sleep_ms(50); exit(23); return arg; }

/* A child of a vfork's child is a process like others: it may lose its first thread. */
static void grandchild_loses_first_thread(void)
{
        int status;
        pid_t child = vfork(), pid;

        if (child == 0) {
                pid = fork();
                if (pid == 0) {
                        start(exits_23, NULL);
                        syscall(SYS_exit, 9);
                }
                _exit(pid < 0 && errno == ENOSYS                             ? 23
                      : waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                             : 96);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        exit(failures ? 96 : WEXITSTATUS(status));
}

void end_in_way(int way)
{
        static pthread_t self;
        sigset_t s = usr1();

        self = pthread_self();
        switch (way) {
        case 1: surround(); exit(3); break;                             /* by main */
        case 2: surround(); start(exits_5, NULL); stays(); break;       /* by another */
        case 3: start(exits_5_alone, &self); pthread_exit(NULL); break;
        case 4: start(returns, NULL); start(returns, NULL); pthread_exit(NULL); break;
        case 5:
                start(exits_raw_3_alone, &self);
                syscall(SYS_exit, 9);
                break; /* the last one's counts */
        case 6: finish(start(aborts, NULL)); break;
        case 7: surround(); finish(start(aborts, NULL)); break;
        case 8: surround(); finish(start(touches_nothing, (void *)16)); break;
        case 9: finish(start(overflows, NULL)); break;                  /* into the guard page */
        case 10: surround(); finish(start(kills_all, NULL)); break;
        case 11: surround(); start(exits_all_6, NULL); stays(); break;
        case 12: /* several at once: one of them is first, none is lost */
                pthread_barrier_init(&both, NULL, 6);
                for (int i = 0; i < 5; i++)
                        start(ends_too, (void *)4);
                ends_too((void *)4);
                break;
        case 13: /* a signal that ends all, to one thread */
                surround();
                pthread_kill(start(naps, NULL), SIGUSR2);
                stays();
                break;
        case 14: /* blocked by all, then open in one */
                pthread_sigmask(SIG_BLOCK, &s, NULL);
                start(naps, NULL);
                kill(getpid(), SIGUSR1);
                sleep_ms(50);
                pthread_sigmask(SIG_UNBLOCK, &s, NULL);
                break;
        case 15: surround(); syscall(SYS_exit_group, 0); break;
        case 16: /* while threads come and go */
                pthread_detach(start(makes_threads, NULL));
                pthread_detach(start(makes_threads, NULL));
                sleep_ms(200);
                exit(8);
                break;
        case 17: surround(); raise(SIGKILL); break;
        case 18:
                surround();
                alarm(1);
                pthread_exit(NULL);
                break; /* the others continue, until a timer ends all */
        case 19: start(goes_on_alone, &self); pthread_exit(NULL); break;
        case 20: start(executes_alone, &self); pthread_exit(NULL); break;
        case 21: executes_beside_child(); break;
        case 22: grandchild_loses_first_thread(); break;
        case -1: asks_child(); break;
        }
}
