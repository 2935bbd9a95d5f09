/*
 * execve: the state of a program that another program, here itself, has executed, and the state of
 * a program whose execve failed.
 *
 *   t_exec              all steps, each of which executes the next one; prints what it sees
 *   t_exec again N KIB  N times: fills KIB of memory, checks it, and executes itself
 *   t_exec parent N KIB N times: fills KIB of memory, lets `t_exec again 1 KIB` run beside it, and
 *                       checks and changes its memory meanwhile
 *   t_exec ids          prints its user, group and capabilities
 *   t_exec args ...     prints them
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/xattr.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include "t_sys.h"

extern char **environ;

static char self[PATH_MAX];

/* Executes itself at the given step. */
static void go(const char *step, char *const envp[])
{
        char *argv[] = { (char *)"t_exec", (char *)"step", (char *)step, NULL };

        fflush(stdout);
        execve(self, argv, envp);
        printf("step %s: execve: %s\n", step, strerrorname_np(errno));
        exit(1);
}

static void show_file(const char *name)
{
        char text[4096];
        int fd = open(name, O_RDONLY);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

        printf("%s: %zd:", name, n);
        for (ssize_t i = 0; i < n; i++)
                printf(text[i] > ' ' && text[i] < 127 ? "%c" : "<%02x>", (unsigned char)text[i]);
        printf("\n");
        if (fd >= 0)
                close(fd);
}

static void show_fds(void)
{
        DIR *d = opendir("/proc/self/fd");

        printf("fds:");
        for (int fd = 0; fd < 1024; fd++)
                if (fd != dirfd(d) && fcntl(fd, F_GETFD) >= 0)
                        printf(" %d", fd);
        int n = 0;
        for (struct dirent *e; (e = readdir(d)); )
                n += e->d_name[0] != '.';
        printf("; %d listed\n", n - 1);
        closedir(d);
}

/* --- descriptors --- */

static void nothing_happens(int sig) { (void)sig; }

static void set_fds(void)
{
        int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);

        T(write(fd, "kept text", 9));
        dup2(fd, 10);
        dup3(fd, 11, O_CLOEXEC);
        dup2(fd, 700);
        lseek(fd, 5, SEEK_SET);
        close(fd);
        go("fds", environ);
}

static void see_fds(void)
{
        char text[16] = "";

        show_fds();
        T(read(10, text, 4));
        printf("%s\n", text);
        FAILS(EBADF, read(11, text, 4));
        T(fcntl(700, F_GETFD));
        T(open("file", O_RDONLY));
        /* All descriptors are closed but the three, and another descriptor when the next program
         * begins. */
        T(syscall(SYS_close_range, 3, ~0u, 0));
        T(close(2));
        go("closed", environ);
}

static void see_closed(void)
{
        show_fds();
        T(open("file", O_WRONLY));      /* 2 */
        T(write(2, "stderr", 6));
        T(dup2(1, 2));
        T(open("file", O_RDONLY));
        T(close(3));

        struct sigaction sa = { .sa_handler = nothing_happens,
                                .sa_flags = SA_NOCLDWAIT | SA_RESTART | SA_ONSTACK };
        stack_t ss = { .ss_sp = malloc(65536), .ss_size = 65536 };
        sigset_t set;

        T(sigaltstack(&ss, NULL));
        T(sigaction(SIGUSR1, &sa, NULL));
        T(sigaction(SIGCHLD, &sa, NULL));
        T(sigaction(SIGTERM, &sa, NULL));
        T(sigaction(SIGRTMIN + 3, &sa, NULL));
        signal(SIGUSR2, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGRTMIN + 5);
        T(sigprocmask(SIG_SETMASK, &set, NULL));
        T(raise(SIGHUP));
        T(raise(SIGTERM));
        T(sigqueue(getpid(), SIGRTMIN + 5, (union sigval){ .sival_int = 77 }));
        T(sigqueue(getpid(), SIGRTMIN + 5, (union sigval){ .sival_int = 78 }));
        go("signals", environ);
}

/* --- signals --- */

static void see_signals(void)
{
        struct timespec now = { 0 };
        struct sigaction sa;
        siginfo_t info;
        sigset_t set, pending;
        stack_t ss;

        sigprocmask(SIG_BLOCK, NULL, &set);
        sigpending(&pending);
        for (int i = 1; i <= SIGRTMAX; i++) {
                if (sigaction(i, NULL, &sa) != 0)
                        continue;
                bool is_default = sa.sa_handler == SIG_DFL && !sa.sa_flags;
                if (!is_default || sigismember(&set, i) || sigismember(&pending, i))
                        printf("signal %d: %s%s%s\n", i,
                               is_default                 ? "default"
                               : sa.sa_handler == SIG_IGN ? "ignored"
                                                          : "handled",
                               sigismember(&set, i) ? " blocked" : "",
                               sigismember(&pending, i) ? " pending" : "");
        }
        T(sigaltstack(NULL, &ss));
        printf("altstack %d\n", ss.ss_flags);
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGRTMIN + 5);
        while (sigtimedwait(&set, &info, &now) > 0)
                printf("took %d value %d\n", info.si_signo,
                       info.si_signo >= SIGRTMIN ? info.si_value.sival_int : 0);
        signal(SIGUSR2, SIG_DFL);
        sigemptyset(&set);
        sigprocmask(SIG_SETMASK, &set, NULL);

        static char *const envp[] = { (char *)"PLAIN=1",
                                      (char *)"",
                                      (char *)"no equals sign",
                                      (char *)"ODD=\x01\xff\n\t\x80",
                                      (char *)"LD_NOTHING=a b",
                                      (char *)"MALLOC_NOTHING_=1",
                                      (char *)"GLIBC_TUNABLES=glibc.malloc.tcache_count=1",
                                      (char *)"\x01"
                                              "D_PLAIN=1",
                                      (char *)"LD_TRACE_NOTHING=",
                                      (char *)"=",
                                      NULL };
        char *argv[] = { (char *)"", (char *)"step",       (char *)"names",
                         (char *)"", (char *)"\xff\xfe\n", (char *)"last one",
                         NULL };
        fflush(stdout);
        execve(self, argv, envp);
        exit(1);
}

/* --- names --- */

static void see_names(int argc, char **argv)
{
        char text[PATH_MAX] = "";

        for (int i = 0; i < argc; i++)
                printf("argument %d: %zu bytes, sum %x\n", i, strlen(argv[i]),
                       sum(argv[i], strlen(argv[i])));
        for (char **e = environ; *e; e++)
                printf("environment: %zu bytes, sum %x\n", strlen(*e), sum(*e, strlen(*e)));
        show_file("/proc/self/cmdline");
        show_file("/proc/self/environ");
        show_file("/proc/self/comm");
        T(readlink("/proc/self/exe", text, sizeof(text) - 1));
        CHECK(!strcmp(text, self));
        prctl(PR_SET_NAME, "another");
        T(symlink(self, "a-rather-long-link-name"));
        char *args[] = { (char *)"argv0", (char *)"step", (char *)"link", NULL };
        fflush(stdout);
        execve("./a-rather-long-link-name", args, environ);
        exit(1);
}

static void see_link(void)
{
        char text[PATH_MAX] = "";

        show_file("/proc/self/comm");
        show_file("/proc/self/cmdline");
        T(readlink("/proc/self/exe", text, sizeof(text) - 1));
        CHECK(!strcmp(text, self));

        /*
         * No arguments and no environment: Linux gives the program an empty argv[0], and the test
         * continues below.
         */
        T(setenv("X", "1", 1));
        fflush(stdout);
        execve(self, NULL, NULL);
        exit(1);
}

/* --- failures --- */

static char *const no_args[] = { (char *)"x", NULL };

static void write_to(const char *name, const char *text, mode_t mode)
{
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        if (write(fd, text, strlen(text)) < 0)
                perror(name);
        fchmod(fd, mode);
        close(fd);
}

/* A copy of this program whose interpreter is another, or which ends early. */
static void spoil(const char *name, const char *interp, off_t length)
{
        int in = open(self, O_RDONLY), out = open(name, O_RDWR | O_CREAT | O_TRUNC, 0755);
        static char text[1 << 20];
        ssize_t n = read(in, text, sizeof(text));
        char *at = interp ? memmem(text, (size_t)n, "/lib64/ld-linux", 15) : NULL;

        if (at)
                memcpy(at, interp, strlen(interp));
        if (write(out, text, length ? (size_t)length : (size_t)n) < 0)
                perror(name);
        close(in);
        close(out);
}

static void fail(void)
{
        char *bad[] = { (char *)"x", nothing, NULL }, *text;
        char name[32];

        mkdir("folder", 0755);
        write_to("plain", "echo no\n", 0644);
        write_to("empty", "", 0755);
        write_to("text", "echo no\n", 0755);
        write_to("nowhere", "#!/no/such/interpreter -x\n", 0755);
        write_to("folder-script", "#!folder\n", 0755);
        write_to("no-line", "#!\n", 0755);
        for (int i = 0; i < 7; i++) {
                char line[64];
                snprintf(name, sizeof(name), "chain%d", i);
                snprintf(line, sizeof(line), "#!./chain%d\n", i + 1);
                write_to(name, line, 0755);
        }
        spoil("bad-interp", "/lib64/xx", 0);
        spoil("cut", NULL, 70);
        symlink("loop", "loop");
        FAILS(ENOENT, execve("none", no_args, environ));
        FAILS(ENOENT, execve("", no_args, environ));
        FAILS(EACCES, execve("folder", no_args, environ));
        FAILS(EACCES, execve("plain", no_args, environ));
        FAILS(ENOTDIR, execve("plain/x", no_args, environ));
        FAILS(ENOEXEC, execve("empty", no_args, environ));
        FAILS(ENOEXEC, execve("text", no_args, environ));
        FAILS(ENOEXEC, execve("cut", no_args, environ));
        FAILS(ENOEXEC, execve("no-line", no_args, environ));
        FAILS(ENOENT, execve("nowhere", no_args, environ));
        FAILS(EACCES, execve("folder-script", no_args, environ));
        FAILS(ELOOP, execve("chain0", no_args, environ));
        FAILS(ELOOP, execve("loop", no_args, environ));
        FAILS(ENOENT, execve("bad-interp", no_args, environ));
        FAILS(EACCES, execve("/dev/null", no_args, environ));
        FAILS(EFAULT, execve(NULL, no_args, environ));
        FAILS(EFAULT, execve(nothing, no_args, environ));
        FAILS(EFAULT, execve(self, (char **)nothing, environ));
        FAILS(EFAULT, execve(self, bad, environ));
        FAILS(EFAULT, execve(self, no_args, bad));
        FAILS(EFAULT,
              execve(self, (char **)(nothing - 8 * !!memset(nothing - 8, 'x', 8)), environ));
        text = malloc(4 << 20);
        memset(text, 'a', 4 << 20);
        text[5000] = 0;
        FAILS(ENAMETOOLONG, execve(text, no_args, environ));
        text[5000] = 'a';
        text[131072] = 0;
        char *long_one[] = { (char *)"x", text, NULL };
        FAILS(E2BIG, execve(self, long_one, environ));
        FAILS(E2BIG, execve(self, no_args, long_one));
        text[131072] = 'a';
        text[131071] = 0;
        char **many = calloc(100, sizeof(*many));
        for (int i = 0; i < 60; i++)
                many[i] = text;
        FAILS(E2BIG, execve(self, many, environ));
        char **short_ones = calloc(500001, sizeof(*short_ones));
        for (int i = 0; i < 500000; i++)
                short_ones[i] = text + 131070;
        FAILS(E2BIG, execve(self, short_ones, environ));
        free(short_ones);
        free(many);
        free(text);
}

/* The program's state is unchanged after execve has failed. */
static void see_failures(int argc, char **argv)
{
        char buffer[64] = "";
        struct sigaction sa = { .sa_handler = nothing_happens }, old;
        sigset_t set;
        int fd;

        printf("argc %d, argv[0] of %zu bytes, %s environment\n", argc, strlen(argv[0]),
               *environ ? "an" : "no");
        memory_init();
        sigaction(SIGUSR1, &sa, NULL);
        fd = open("file", O_RDWR | O_CLOEXEC);
        show_fds();
        fail();
        show_fds();
        T(pread(fd, buffer, 4, 0));
        T(fcntl(fd, F_GETFD));
        T(sigaction(SIGUSR1, NULL, &old));
        CHECK(old.sa_handler == nothing_happens);
        T(sigprocmask(SIG_SETMASK, NULL, &set));
        for (int i = 1; i <= SIGRTMAX; i++)
                if (sigismember(&set, i) > 0)
                        printf("signal %d is blocked\n", i);
        T(raise(SIGUSR1));
        show_file("/proc/self/comm");
        char *env[] = { (char *)"PATH=/bin:/usr/bin", NULL };
        go("at", env);
}

/* --- execveat --- */

static long at(int fd, const char *path, const char *step, int flags)
{
        char *argv[] = { (char *)"t_exec", (char *)"step", (char *)step, NULL };

        fflush(stdout);
        return syscall(SYS_execveat, fd, path, argv, environ, flags);
}

static int folder_of_self(char **name)
{
        char folder[PATH_MAX];

        strcpy(folder, self);
        *strrchr(folder, '/') = 0;
        *name = strrchr(self, '/') + 1;
        return open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void see_at(void)
{
        char *name;
        int dir = folder_of_self(&name), fd;

        show_file("/proc/self/cmdline");
        symlink(self, "link");
        FAILS(EINVAL, at(dir, name, "x", 0x4000000));
        FAILS(ENOENT, at(dir, "none", "x", 0));
        FAILS(ENOENT, at(dir, "", "x", 0));
        FAILS(EACCES, at(dir, "", "x", AT_EMPTY_PATH));
        FAILS(EBADF, at(77, "none", "x", 0));
        FAILS(EBADF, at(77, "", "x", AT_EMPTY_PATH));
        FAILS(ELOOP, at(AT_FDCWD, "link", "x", AT_SYMLINK_NOFOLLOW));
        fd = open("plain", O_RDONLY | O_CLOEXEC);
        FAILS(ENOTDIR, at(fd, "x", "x", 0));
        FAILS(EACCES, at(fd, "", "x", AT_EMPTY_PATH));
        write_to("script", "#!/bin/echo from the\n", 0755);
        close(fd);
        fd = open("script", O_RDONLY | O_CLOEXEC);
        FAILS(ENOENT, at(fd, "", "x", AT_EMPTY_PATH));
        close(fd);
        close(dir);
        dir = folder_of_self(&name);
        at(dir, name, "at-path", AT_SYMLINK_NOFOLLOW);
        exit(1);
}

static void see_at_path(void)
{
        show_file("/proc/self/cmdline");
        show_fds();
        int fd = open(self, O_PATH | O_CLOEXEC);
        at(fd, "", "at-fd", AT_EMPTY_PATH);
        exit(1);
}

/* --- limits, and other attributes that the kernel keeps --- */

static void set_limits(void)
{
        struct itimerval it = { .it_value = { 1000, 0 } };
        cpu_set_t one;

        show_file("/proc/self/cmdline");
        show_fds();
        T(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 100, 200 }));
        T(setrlimit(RLIMIT_AS, &(struct rlimit){ 1ul << 40, 1ul << 41 }));
        T(setrlimit(RLIMIT_DATA, &(struct rlimit){ 1ul << 39, 1ul << 40 }));
        T(setrlimit(RLIMIT_STACK, &(struct rlimit){ 64 << 20, RLIM_INFINITY }));
        T(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 4096 }));
        umask(0123);
        T(setitimer(ITIMER_REAL, &it, NULL));
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        T(sched_setaffinity(0, sizeof(one), &one));
        T(setpriority(PRIO_PROCESS, 0, 3));
        T(prctl(PR_SET_PDEATHSIG, SIGHUP));
        T(mkdir("deeper", 0755));
        T(chdir("deeper"));
        char id[64];
        snprintf(id, sizeof(id), "IDS=%d %d %d %d", getpid(), getppid(), getpgid(0), getsid(0));
        char *env[] = { id, NULL };
        go("limits", env);
}

static void see_limits(void)
{
        static const int limits[] = { RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK,
                                      RLIMIT_CORE };
        struct itimerval it;
        struct rlimit r;
        cpu_set_t set;
        char text[PATH_MAX], id[64];
        int sig = 0;

        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
                getrlimit(limits[i], &r);
                printf("limit %d: %lx %lx\n", limits[i], (long)r.rlim_cur, (long)r.rlim_max);
        }
        printf("umask %o\n", umask(022));
        getitimer(ITIMER_REAL, &it);
        CHECK(it.it_value.tv_sec > 900 && it.it_value.tv_sec < 1000);
        sched_getaffinity(0, sizeof(set), &set);
        printf("cpus %d\n", CPU_COUNT(&set));
        printf("nice %d\n", getpriority(PRIO_PROCESS, 0));
        T(prctl(PR_GET_PDEATHSIG, &sig));
        printf("death signal %d\n", sig);
        snprintf(id, sizeof(id), "%d %d %d %d", getpid(), getppid(), getpgid(0), getsid(0));
        CHECK(!strcmp(id, getenv("IDS")));
        printf("in %s\n", strrchr(getcwd(text, sizeof(text)), '/'));
        int fd = -1;
        for (int got; (got = open("/dev/null", O_RDONLY)) >= 0; )
                fd = got;
        printf("last descriptor %d\n", fd);
        close(fd);
        show_fds();

        /*
         * 5 MiB of arguments need the stack limit from above; natively the kernel's, under vmrun
         * kern's.
         */
        char **big = calloc(50, sizeof(*big)), *text2 = malloc(131072);
        memset(text2, 'b', 131072);
        text2[131071] = 0;
        for (int i = 0; i < 43; i++)
                big[i] = i < 3 ? (char *[]){ (char *)"t_exec", (char *)"step", (char *)"big" }[i]
                               : text2;
        fflush(stdout);
        execve(self, big, environ);
        exit(1);
}

static void see_big(int argc, char **argv)
{
        unsigned s = 0;

        for (int i = 0; i < argc; i++)
                s = s * 31 + sum(argv[i], strlen(argv[i]));
        printf("argc %d, sum %x\n", argc, s);
        show_fds();
        if (failures == 0)
                printf("all steps done\n");
        exit(failures != 0);
}

static void show_capabilities(void)
{
        char line[256];
        FILE *f = fopen("/proc/self/status", "r");

        while (f && fgets(line, sizeof(line), f))
                if (!strncmp(line, "Cap", 3))
                        fputs(line, stdout);
        if (f)
                fclose(f);
}

static uint64_t word(size_t i, int n) { return i * 0x9e3779b97f4a7c15 + (uint64_t)n; }

static void fill(uint64_t *p, size_t words, int n)
{
        for (size_t i = 0; i < words; i++)
                p[i] = word(i, n);
}

static void verify(const uint64_t *p, size_t words, int n)
{
        for (size_t i = 0; i < words; i++)
                if (p[i] != word(i, n)) {
                        printf("word %zu of fill %d is wrong\n", i, n);
                        exit(1);
                }
}

static void parent(int n, const char *kib)
{
        size_t words = strtoul(kib, NULL, 10) * 1024 / sizeof(uint64_t);
        uint64_t *p = malloc(words * sizeof(*p));
        int status;

        fill(p, words, n + 1);
        while (n-- > 0) {
                fflush(stdout);
                pid_t pid = vfork();
                if (pid == 0) {
                        execl(self, "t_exec", "again", "1", kib, NULL);
                        _exit(1);
                }
                verify(p, words, n + 2);
                fill(p, words, n + 1);
                T(waitpid(pid, &status, 0) == pid && status == 0);
                verify(p, words, n + 1);
        }
        exit(0);
}

static void again(int n, size_t kib)
{
        size_t words = kib * 1024 / sizeof(uint64_t);
        uint64_t *p = malloc(kib * 1024);
        char count[16];

        fill(p, words, n);
        verify(p, words, n);
        printf("%d\n", n);
        fflush(stdout);
        if (n == 0)
                exit(0);
        snprintf(count, sizeof(count), "%d", n - 1);
        char size[24];
        snprintf(size, sizeof(size), "%zu", kib);
        execl(self, "t_exec", "again", count, size, NULL);
        exit(1);
}

/* Makes the file one with cap_net_raw+ep. */
static int make_capable(const char *file)
{
        const struct vfs_cap_data c = {
                .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
                .data[0].permitted = 1 << CAP_NET_RAW,
        };

        return setxattr(file, XATTR_NAME_CAPS, &c, sizeof(c), 0) ? 1 : 0;
}

int main(int argc, char **argv)
{
        const char *step = argc > 2 && !strcmp(argv[1], "step") ? argv[2] : "";

        self[readlink("/proc/self/exe", self, sizeof(self) - 1)] = 0;
        if (argc == 4 && !strcmp(argv[1], "again"))
                again(atoi(argv[2]), strtoul(argv[3], NULL, 10));
        if (argc == 4 && !strcmp(argv[1], "parent"))
                parent(atoi(argv[2]), argv[3]);
        if (argc == 3 && !strcmp(argv[1], "capable"))
                return make_capable(argv[2]);
        if (argc == 2 && !strcmp(argv[1], "ids")) {
                printf("%d %d %d %d\n", getuid(), geteuid(), getgid(), getegid());
                show_capabilities();
                return 0;
        }
        if (argc > 1 && !strcmp(argv[1], "args")) {
                for (int i = 0; i < argc; i++)
                        printf("[%s]\n", argv[i]);
                return 0;
        }
        if (*step)
                printf("step %s\n", step);
        if (argc == 1 && !*environ)
                see_failures(argc, argv);
        else if (argc == 1)
                set_fds();
        else if (!strcmp(step, "fds"))
                see_fds();
        else if (!strcmp(step, "closed"))
                see_closed();
        else if (!strcmp(step, "signals"))
                see_signals();
        else if (!strcmp(step, "names"))
                see_names(argc, argv);
        else if (!strcmp(step, "link"))
                see_link();
        else if (!strcmp(step, "at"))
                see_at();
        else if (!strcmp(step, "at-path"))
                see_at_path();
        else if (!strcmp(step, "at-fd"))
                set_limits();
        else if (!strcmp(step, "limits"))
                see_limits();
        else if (!strcmp(step, "big"))
                see_big(argc, argv);
        return 1;
}
