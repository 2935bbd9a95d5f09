/*
 * Calls that Linux allows to a process with one thread only: unshare and setns of user namespaces
 * and their like.  The program keeps more memory than a small cache holds, and something in vector
 * registers, and looks whether all of it is there afterwards.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include "t_sys.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define WORDS (3u << 20 >> 3)
static uint64_t *many;
static int net;

static uint64_t value(uint64_t i, uint64_t turn) { return (i + 1) * 0x9e3779b97f4a7c15ull ^ turn; }

static void fill(uint64_t turn)
{
        for (uint64_t i = 0; i < WORDS; i++)
                many[i] = value(i, turn);
}

static void check_filled(uint64_t turn)
{
        uint64_t wrong = 0;

        for (uint64_t i = 0; i < WORDS; i++)
                wrong += many[i] != value(i, turn);
        CHECK(wrong == 0);
}

/* unshare with registers that the call must leave alone. */
static long unshare_with_registers(int flags)
{
        double in[2] = { 1.5, -2.25 }, out[2];
        long ret;

        __asm__ volatile("movupd %2, %%xmm7\n\tsyscall\n\tmovupd %%xmm7, %1"
                         : "=a"(ret), "=m"(out)
                         : "m"(in), "a"(SYS_unshare), "D"((long)flags)
                         : "rcx", "r11", "xmm7", "memory");
        CHECK(out[0] == in[0] && out[1] == in[1]);
        return ret;
}

/* In a child, since it cannot be undone. */
static void in_child(const char *what, void (*test)(void))
{
        int status;

        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                failures = 0;
                test();
                fflush(stdout);
                _exit(failures);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        printf("%s: %s %d\n", what, WIFEXITED(status) ? "status" : "signal",
               WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        CHECK(status == 0);
}

static void *nothing_to_do(void *arg) { return arg; }

static void threads_and_children(void)
{
        pthread_t id;
        int status;

        CHECK(pthread_create(&id, NULL, nothing_to_do, NULL) == 0 && pthread_join(id, NULL) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                check_filled(2);
                _exit(failures != 0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void map(const char *file, unsigned id)
{
        char text[32];
        int fd = open(file, O_WRONLY), n = snprintf(text, sizeof(text), "0 %u 1\n", id);

        CHECK(fd >= 0 && write(fd, text, (size_t)n) == n);
        close(fd);
}

static void user_namespace(void)
{
        struct timespec before, after;
        unsigned uid = getuid(), gid = getgid();
        char link[2][64] = { "", "" };

        CHECK(readlink("/proc/self/ns/user", link[0], sizeof(link[0]) - 1) > 0);
        clock_gettime(CLOCK_MONOTONIC, &before);
        fill(1);
        CHECK(unshare_with_registers(CLONE_NEWUSER) == 0);
        check_filled(1);
        clock_gettime(CLOCK_MONOTONIC, &after);
        CHECK(after.tv_sec - before.tv_sec < 60 &&
              (after.tv_sec > before.tv_sec || after.tv_nsec >= before.tv_nsec));
        CHECK(readlink("/proc/self/ns/user", link[1], sizeof(link[1]) - 1) > 0);
        CHECK(strcmp(link[0], link[1]) != 0);
        int fd = open("/proc/self/setgroups", O_WRONLY);
        CHECK(fd >= 0 && write(fd, "deny", 4) == 4);
        close(fd);
        map("/proc/self/uid_map", uid);
        map("/proc/self/gid_map", gid);
        fill(2);
        threads_and_children();
        check_filled(2);
        /* Once more, with all the kinds that a sandbox takes. */
        T(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | net));
        check_filled(2);
        threads_and_children();
        T(execl("/bin/echo", "echo", "executed", NULL));
}

static void pid_namespace(void)
{
        fill(2);
        T(unshare(CLONE_NEWUSER | CLONE_NEWPID));
        fflush(stdout);
        int status;
        pid_t pid = fork();
        if (pid == 0) {
                CHECK(getpid() == 1);
                threads_and_children();
                _exit(failures != 0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        fill(3);
        check_filled(3);
}

static int ready[2], done[2];

/* A process in namespaces of its own, to be joined. */
static pid_t neighbour(int flags)
{
        char c;

        CHECK(pipe(ready) == 0 && pipe(done) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (unshare(flags) == 0)
                        (void)!write(ready[1], "", 1);
                close(done[1]);
                (void)!read(done[0], &c, 1);
                _exit(0);
        }
        close(ready[1]);
        CHECK(read(ready[0], &c, 1) == 1);
        return pid;
}

static int ns_of(pid_t pid, const char *kind)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        return fd;
}

static void join(void)
{
        pid_t pid = neighbour(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS);
        int user = ns_of(pid, "user"), mount = ns_of(pid, "mnt"), uts = ns_of(pid, "uts");

        fill(2);
        FAILS(EINVAL, setns(user, CLONE_NEWNS));
        T(setns(user, 0));
        check_filled(2);
        T(setns(mount, CLONE_NEWNS));
        T(setns(uts, 0));
        FAILS(EINVAL, setns(user, CLONE_NEWUSER));       /* it is in it already */
        threads_and_children();
        check_filled(2);
        close(done[1]);
        CHECK(waitpid(pid, NULL, 0) == pid);
}

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* User and PID namespace in one call, by a pidfd of the second one's first process. */
static void join_by_pidfd(void)
{
        int to_us[2], to_it[2], status;
        pid_t pid, first = 0;
        char c;

        CHECK(pipe(to_us) == 0 && pipe(to_it) == 0);
        pid = fork();
        if (pid == 0) {
                close(to_it[1]);
                if (unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0 && (first = fork()) == 0) {
                        (void)!read(to_it[0], &c, 1);
                        _exit(0);
                }
                (void)!write(to_us[1], &first, sizeof(first));
                _exit(waitpid(first, NULL, 0) != first);
        }
        CHECK(read(to_us[0], &first, sizeof(first)) == sizeof(first) && first > 0);
        int fd = (int)syscall(SYS_pidfd_open, first, 0);
        fill(2);
        CHECK(fd >= 0);
        T(setns(fd, CLONE_NEWUSER | CLONE_NEWPID));
        check_filled(2);
        pid_t in_it = fork();
        if (in_it == 0)
                _exit(getpid() > 1 && getpid() < 50 ? 0 : 1);
        CHECK(waitpid(in_it, &status, 0) == in_it && status == 0);
        close(to_it[1]);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* --- a child of vfork in another PID namespace: its number there may be anybody's here --- */

static _Atomic int stop_computing;
static pid_t victim[10];                /* with numbers one after the other */

static void *compute(void *arg)
{
        while (!stop_computing)
                ;
        return arg;
}

static void *map_and_unmap(void *arg)
{
        while (!stop_computing) {
                char *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                               0);
                m[0] = m[8192] = 1;
                munmap(m, 65536);
        }
        return arg;
}

static pid_t sleeper(void)
{
        pid_t pid = fork();

        while (pid == 0)
                pause();
        return pid;
}

/* The child has the number that a victim has for its parent. Threads use up some numbers. */
static int beside_the_victim(void)
{
        pthread_t id;
        pid_t pid;
        int status;
        struct timespec from, now;

        stop_computing = 0;
        CHECK(pthread_create(&id, NULL, map_and_unmap, NULL) == 0);
        T(unshare(CLONE_NEWPID));
        CHECK(sleeper() > 0);
        while ((pid = vfork()) > 0) {
                CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
                if (!WIFEXITED(status) || WEXITSTATUS(status) != 42)
                        break;
        }
        if (pid == 0) {
                if (getpid() < victim[0])
                        _exit(42);
                clock_gettime(CLOCK_MONOTONIC, &from);
                do {
                        for (volatile int i = 0; i < 10000000; i++)
                                ;
                        clock_gettime(CLOCK_MONOTONIC, &now);
                } while (now.tv_sec - from.tv_sec < 2);
                _exit(getpid() > victim[9]);
        }
        CHECK(pid > 0 && status == 0);
        stop_computing = 1;
        CHECK(pthread_join(id, NULL) == 0);
        return failures;
}

/* The child waits for a thread of its parent that it cannot see. */
static int beside_a_thread(void)
{
        pthread_t id;
        int status;

        stop_computing = 0;
        CHECK(pthread_create(&id, NULL, compute, NULL) == 0);
        T(unshare(CLONE_NEWPID));
        CHECK(sleeper() > 0);
        pid_t pid = vfork();
        if (pid == 0) {
                for (int i = 0; i < 20; i++) {
                        char *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                        m[0] = m[8192] = 1;
                        munmap(m, 65536);
                }
                _exit(0);
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        stop_computing = 1;
        CHECK(pthread_join(id, NULL) == 0);
        return failures;
}

static void other_numbers(void)
{
        int status;

        T(unshare(CLONE_NEWUSER | CLONE_NEWPID));
        fflush(stdout);
        pid_t first = fork();
        if (first == 0) {
                pid_t pid;
                for (int i = 0; i < 10; i++)
                        victim[i] = sleeper();
                for (int i = 0; i < 2; i++) {
                        fflush(stdout);
                        if ((pid = fork()) == 0) {
                                failures = 0;
                                int n = i ? beside_a_thread() : beside_the_victim();
                                fflush(stdout);
                                _exit(n);
                        }
                        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
                }
                for (int i = 0; i < 10; i++)
                        CHECK(waitpid(victim[i], &status, WNOHANG) == 0);
                fflush(stdout);
                _exit(failures);
        }
        CHECK(waitpid(first, &status, 0) == first && status == 0);
}

static pthread_barrier_t barrier;
static void *wait_there(void *arg)
{
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        return arg;
}

/* A program that has threads is refused, until they have ended. */
static void with_threads(void)
{
        pthread_t id;

        pthread_barrier_init(&barrier, NULL, 2);
        CHECK(pthread_create(&id, NULL, wait_there, NULL) == 0);
        pthread_barrier_wait(&barrier);
        FAILS(EINVAL, unshare(CLONE_NEWUSER));
        FAILS(EINVAL, unshare(CLONE_THREAD));
        FAILS(EINVAL, unshare(CLONE_NEWUSER | CLONE_NEWPID));
        pthread_barrier_wait(&barrier);
        CHECK(pthread_join(id, NULL) == 0);
        for (int i = 0; i < 1000 && unshare(CLONE_THREAD) != 0; i++)
                usleep(1000);           /* the kernel still has to bury it */
        T(unshare(CLONE_THREAD));
        T(unshare(CLONE_NEWUSER));
        FAILS(EINVAL, unshare(0x3));
}

static void child_of_vfork(void)
{
        int status;
        pid_t pid = vfork();

        if (pid == 0)
                _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        fill(2);
        T(unshare(CLONE_NEWUSER));
        check_filled(2);
}

/* usage: t_ns [net]     net: network namespaces, too */
int main(int argc, char **argv)
{
        (void)argv;
        net = argc > 1 ? CLONE_NEWNET : 0;
        many = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        setvbuf(stdout, NULL, _IOLBF, 0);
        in_child("a user namespace", user_namespace);
        in_child("a PID namespace", pid_namespace);
        in_child("namespaces of another process", join);
        in_child("namespaces of a pidfd", join_by_pidfd);
        in_child("process numbers of two namespaces", other_numbers);
        in_child("with threads", with_threads);
        in_child("beside a child of vfork", child_of_vfork);
        T(unshare(CLONE_NEWUSER));      /* the first process, too */
        printf("%d failures\n", failures);
        return failures != 0;
}
