/*
 * /proc/self as a program finds it: stat, statm, status, auxv, task, comm.  Sizes differ from run to run; what is printed and checked is
 * how they change, and that they agree with one another and with what the program knows of itself.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include "t_sys.h"

static char text[1 << 16];
static int initialized = 5;

/* Without stdio, whose buffers would be part of what is measured. */
static char *content(const char *path)
{
        int fd = open(path, O_RDONLY);
        ssize_t n = 0, got;

        while (fd >= 0 && (got = read(fd, text + n, sizeof text - 1 - (size_t)n)) > 0)
                n += got;
        text[n] = 0;
        CHECK(fd >= 0 && n > 0);
        close(fd);
        return text;
}

/* A line of status: the text behind its name. */
static const char *line(const char *status, const char *name)
{
        const char *p = strstr(status, name);

        CHECK(p && (p == status || p[-1] == '\n'));
        return p ? p + strlen(name) : "";
}
static unsigned long number(const char *path, const char *name) { return strtoul(line(content(path), name), NULL, 10); }
static unsigned long kib(const char *name) { return number("/proc/self/status", name); }

/* Fields of stat, counted from 1; 3 is the state. */
static unsigned long long field(const char *path, int n)
{
        const char *p = strrchr(content(path), ')');

        CHECK(p != NULL);
        for (int i = 2; p && i < n; i++)
                p = strchr(p + 1, ' ');
        CHECK(p != NULL);
        return p ? strtoull(p + 1, NULL, 10) : 0;
}

static void test_sizes(void)
{
        unsigned long size = kib("VmSize:"), data = kib("VmData:"), peak;
        unsigned long used = kib("VmRSS:") + kib("VmSwap:"), mapped = 0, pages;
        char *p, *m;

        CHECK(size > 0 && kib("VmPeak:") >= size && kib("VmHWM:") >= kib("VmRSS:") && kib("VmRSS:") <= size);
        CHECK(kib("VmStk:") > 0 && kib("VmExe:") > 0);
        pages = strtoul(content("/proc/self/statm"), &p, 10);
        CHECK(pages * 4 == size);
        CHECK(field("/proc/self/stat", 23) == (unsigned long long)size * 1024);
        for (m = content("/proc/self/maps"); m && *m; m = strchr(m, '\n') + 1) {
                unsigned long from = strtoul(m, &p, 16), to = strtoul(p + 1, NULL, 16);
                if (from < 1ul << 63)
                        mapped += (to - from) / 1024;
        }
        CHECK(mapped == size);
        p = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("mapped: size + %lu data + %lu\n", kib("VmSize:") - size, kib("VmData:") - data);
        peak = kib("VmPeak:");
        CHECK(peak >= size + 65536);
        for (int i = 0; i < 12 << 20; i += PG)
                p[i] = 1;
        CHECK(kib("VmRSS:") + kib("VmSwap:") >= used + (11 << 10));
        printf("locked %lu", kib("VmLck:"));
        mlock(p, 8 * PG);
        printf(", then %lu", kib("VmLck:"));
        munlock(p, 8 * PG);
        printf(", then %lu\n", kib("VmLck:"));
        munmap(p, 64 << 20);
        printf("unmapped: size + %lu\n", kib("VmSize:") - size);
        CHECK(kib("VmPeak:") == peak);
}

static void test_places(int argc, char **argv, char **envp)
{
        const char *stat = "/proc/self/stat";
        char *last;
        uint64_t *aux;
        size_t n = 0;

        CHECK(field(stat, 26) <= (uintptr_t)test_places && (uintptr_t)test_places < field(stat, 27));
        CHECK(field(stat, 28) <= (uintptr_t)argv && (uintptr_t)argv - field(stat, 28) == 8);
        CHECK(field(stat, 45) <= (uintptr_t)&initialized && (uintptr_t)&initialized < field(stat, 46));
        CHECK(field(stat, 47) <= (uintptr_t)sbrk(0));
        CHECK(field(stat, 48) == (uintptr_t)argv[0]);
        last = argv[argc - 1];
        CHECK(field(stat, 49) == (uintptr_t)(last + strlen(last) + 1));
        CHECK(!envp[0] || field(stat, 50) == (uintptr_t)envp[0]);
        while (envp[n])
                n++;
        CHECK(!n || field(stat, 51) == (uintptr_t)(envp[n - 1] + strlen(envp[n - 1]) + 1));
        aux = (uint64_t *)(envp + n + 1);
        for (n = 0; aux[n]; n += 2)
                ;
        n = (n + 2) * 8;
        CHECK(!memcmp(content("/proc/self/auxv"), aux, n));
        printf("page size of auxv %lu\n", getauxval(AT_PAGESZ));
}

static void test_signals(void)
{
        static const char *const masks[] = { "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:" };
        sigset_t set;

        signal(SIGUSR2, SIG_IGN);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGRTMIN + 3);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGUSR1);
        for (int i = 0; i < 5; i++)
                printf("%s%.17s\n", masks[i], line(content("/proc/self/status"), masks[i]));
        printf("stat: %llx %llx %llx\n", field("/proc/self/stat", 31), field("/proc/self/stat", 32), field("/proc/self/stat", 34));
        sigtimedwait(&set, NULL, &(struct timespec){ 0, 0 });
}

static void test_tasks(void)
{
        DIR *d = opendir("/proc/self/task");
        char path[300];
        int tasks = 0, fd, dir;

        for (struct dirent *e; d && (e = readdir(d));)
                if (e->d_name[0] != '.') {
                        tasks++;
                        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
                        CHECK(number(path, "Tgid:") == (unsigned long)getpid());
                        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
                        CHECK(strtoul(content(path), NULL, 10) == strtoul(e->d_name, NULL, 10));
                }
        closedir(d);
        printf("%d tasks, %lu threads, %llu threads\n", tasks, number("/proc/self/status", "Threads:"), field("/proc/self/stat", 20));
        FAILS(ENOENT, open("/proc/self/task/1073741824/status", O_RDONLY));
        CHECK(number("/proc/thread-self/status", "Pid:") == (unsigned long)syscall(SYS_gettid));
        CHECK(number("/proc/self/status", "FDSize:") >= 64);
        /* By other ways to the same file. */
        snprintf(path, sizeof path, "/proc/%d/statm", getpid());
        CHECK(strtoul(content(path), NULL, 10) * 4 == kib("VmSize:"));
        dir = open("/proc/self", O_PATH);
        fd = openat(dir, "statm", O_RDONLY);
        CHECK(read(fd, text, 200) > 0 && strtoul(text, NULL, 10) * 4 == kib("VmSize:"));
        close(fd);
        close(dir);
}

static void test_names(void)
{
        int fd;

        printf("comm %s", content("/proc/self/comm"));
        fd = open("/proc/self/comm", O_WRONLY);
        T(write(fd, "a (new) name", 12));
        close(fd);
        printf("comm %s", content("/proc/self/comm"));
        printf("status %.13s\n", line(content("/proc/self/status"), "Name:"));
        CHECK(strstr(content("/proc/self/stat"), " (a (new) name) R "));
        prctl(PR_SET_NAME, "again");
        printf("comm %s", content("/proc/thread-self/comm"));
}

int main(int argc, char **argv, char **envp)
{
        setvbuf(stdout, NULL, _IOLBF, 0);
        printf("begin\n");              /* stdout has its buffer now */
        close_range(3, ~0U, 0);
        test_sizes();
        test_places(argc, argv, envp);
        test_signals();
        test_tasks();
        test_names();
        printf("failures %d\n", failures);
        return failures ? 1 : 0;
}
