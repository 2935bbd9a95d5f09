/*
 * /proc/self as a program finds it: stat, statm, status, auxv, task, comm. Sizes differ from run to
 * run; lines and checks are about their changes, and about their agreement with one another
 * and with the program's own data.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "t_sys.h"

static char text[1 << 18];
static int initialized = 5;

/* Without stdio, whose buffers would be part of the sizes. */
static char *content(const char *path)
{
        int fd = open(path, O_RDONLY);
        ssize_t n = 0, got;

        while (fd >= 0 && (got = read(fd, text + n, sizeof(text) - 1 - (size_t)n)) > 0)
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
static unsigned long number(const char *path, const char *name)
{
        return strtoul(line(content(path), name), NULL, 10);
}
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

        CHECK(size > 0 && kib("VmPeak:") >= size && kib("VmHWM:") >= kib("VmRSS:") &&
              kib("VmRSS:") <= size);
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

        CHECK(field(stat, 26) <= (uintptr_t)test_places &&
              (uintptr_t)test_places < field(stat, 27));
        CHECK(field(stat, 28) <= (uintptr_t)argv && (uintptr_t)argv - field(stat, 28) == 8);
        CHECK(field(stat, 45) <= (uintptr_t)&initialized &&
              (uintptr_t)&initialized < field(stat, 46));
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
        static const char *const masks[] = { "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:",
                                             "SigCgt:" };
        sigset_t set;

        signal(SIGUSR2, SIG_IGN);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGRTMIN + 3);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGUSR1);
        for (int i = 0; i < 5; i++)
                printf("%s%.17s\n", masks[i], line(content("/proc/self/status"), masks[i]));
        printf("stat: %llx %llx %llx\n", field("/proc/self/stat", 31), field("/proc/self/stat", 32),
               field("/proc/self/stat", 34));
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
                        snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
                        CHECK(number(path, "Tgid:") == (unsigned long)getpid());
                        snprintf(path, sizeof(path), "/proc/self/task/%s/stat", e->d_name);
                        CHECK(strtoul(content(path), NULL, 10) == strtoul(e->d_name, NULL, 10));
                }
        closedir(d);
        printf("%d tasks, %lu threads, %llu threads\n", tasks,
               number("/proc/self/status", "Threads:"), field("/proc/self/stat", 20));
        FAILS(ENOENT, open("/proc/self/task/1073741824/status", O_RDONLY));
        CHECK(number("/proc/thread-self/status", "Pid:") == (unsigned long)syscall(SYS_gettid));
        CHECK(number("/proc/self/status", "FDSize:") >= 64);
        /* By other paths to these files. */
        snprintf(path, sizeof(path), "/proc/%d/statm", getpid());
        CHECK(strtoul(content(path), NULL, 10) * 4 == kib("VmSize:"));
        dir = open("/proc/self", O_PATH);
        fd = openat(dir, "statm", O_RDONLY);
        CHECK(read(fd, text, 200) > 0 && strtoul(text, NULL, 10) * 4 == kib("VmSize:"));
        close(fd);
        close(dir);
}

static void *asleep(void *gate) { return (void)!read(*(int *)gate, &(char){ 0 }, 1), NULL; }

/* Each way to ask for the links of a file of /proc, as sandboxes do that must have one thread. */
static void links(int proc, const char *name, const char *when)
{
        struct statx x;
        struct stat st[3];
        char path[300];
        int fd = openat(proc, name, O_PATH);

        snprintf(path, sizeof(path), "/proc/%s", name);
        CHECK(!stat(path, &st[0]) && !fstat(fd, &st[1]) && !fstatat(proc, name, &st[2], 0) &&
              !statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &x));
        printf("%s, %s: %d links, %d, %d, %d\n", name, when, (int)st[0].st_nlink,
               (int)st[1].st_nlink, (int)st[2].st_nlink, (int)x.stx_nlink);
        close(fd);
}

static void test_links(void)
{
        static const char *const names[] = { "self/task/", "self/task", "thread-self/../../task",
                                             "self", "self/net", "self/attr", "sys" };
        int gate[2], proc = open("/proc", O_RDONLY | O_DIRECTORY), status;
        int here = open(".", O_PATH);
        char mine[32];
        pthread_t thread;
        struct stat st;

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                links(proc, names[i], "one thread");
        CHECK(!chdir("/proc/self/task") && !lstat(".", &st) && st.st_nlink == 3);
        CHECK(!lstat("../../self", &st) && st.st_nlink == 1);
        CHECK(!fchdir(here) && !pipe(gate));
        pthread_create(&thread, NULL, asleep, gate);
        links(proc, "self/task", "two threads");
        if (!fork()) {
                links(proc, "self/task", "a child");
                snprintf(mine, sizeof(mine), "/proc/%d/task", getpid());
                CHECK(!stat(mine, &st) && st.st_nlink == 3);
                /* Without any /proc but the descriptor. */
                if (!chroot("/proc/self/fdinfo"))
                        CHECK(!fstatat(proc, "self/task/", &st, 0) && st.st_nlink == 3 &&
                              stat("/proc/self/task", &st));
                _exit(failures != 0);
        }
        CHECK(wait(&status) > 0 && !status);
        if (!vfork()) {
                if (fstatat(proc, "self/task", &st, 0) || st.st_nlink != 3)
                        _exit(1);
                _exit(0);
        }
        CHECK(wait(&status) > 0 && !status);
        close_range(3, ~0U, 0);         /* the thread ends */
        pthread_join(thread, NULL);
}

/* Entries of a list; that of descriptors has its own. */
static int listed(int dirfd, const char *name)
{
        DIR *d = fdopendir(openat(dirfd, name, O_RDONLY | O_DIRECTORY));
        int n = 0;

        for (struct dirent *e; d && (e = readdir(d));)
                n += e->d_name[0] != '.';
        if (d)
                closedir(d);
        return n;
}

/* Sandboxes look there for what they forgot to close: after a chroot, when only a descriptor leads
 * to /proc, and from another namespace of processes. */
static void test_lists(void)
{
        static const char *const names[] = { "self/fd", "self/fdinfo", "thread-self/fd",
                                             "self/task/../fd", "self/task" };
        int proc = open("/proc", O_RDONLY | O_DIRECTORY), status;

        for (int child = 0; child < 3; child++) {
                fflush(stdout);
                if (!fork()) {
                        if (child && chroot("/dev"))
                                _exit(0);
                        if (child == 2 && unshare(CLONE_NEWPID))
                                _exit(0);
                        if (child == 2 && fork())
                                _exit(wait(&status) > 0 ? WEXITSTATUS(status) : 1);
                        /* In the other namespace vmrun does not know threads by their numbers. */
                        for (size_t i = 0; i < 5 - (size_t)(child == 2); i++)
                                printf("%s: %d listed\n", names[i], listed(proc, names[i]));
                        fflush(stdout);
                        _exit(failures != 0);
                }
                CHECK(wait(&status) > 0 && !status);
        }
        close(proc);
}

static void *outlive(void *leader)
{
        char path[64];
        struct stat st;

        pthread_join(*(pthread_t *)leader, NULL);
        snprintf(path, sizeof(path), "/proc/%d/task", getpid());
        CHECK(!stat(path, &st) && st.st_nlink == 4);
        CHECK(number("/proc/self/status", "Threads:") == 2);
        CHECK(field("/proc/self/stat", 20) == 2);
        _exit(failures != 0);
}

/* The first thread counts although it has ended. */
static void test_outlived(void)
{
        int status;

        if (!fork()) {
                pthread_t leader = pthread_self(), other;
                pthread_create(&other, NULL, outlive, &leader);
                pthread_exit(NULL);
        }
        CHECK(wait(&status) > 0 && !status);
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

/* Figures of smaps: of the mapping that begins at p, and of all together. */
static unsigned long in_map(const char *smaps, const void *p, const char *name)
{
        char head[32];

        snprintf(head, sizeof(head), "\n%08lx-", (unsigned long)p);
        const char *at = strstr(smaps, head);
        CHECK(at != NULL);
        return at ? strtoul(line(at, name), NULL, 10) : 0;
}

static unsigned long of_map(const void *p, const char *name)
{
        return in_map(content("/proc/self/smaps"), p, name);
}

static unsigned long of_all(const char *name)
{
        unsigned long total = 0;

        for (const char *p = content("/proc/self/smaps"); (p = strstr(p, name)) != NULL;
             p += strlen(name))
                if (p[-1] == '\n')
                        total += strtoul(p + strlen(name), NULL, 10);
        return total;
}

static void test_smaps(void)
{
        char *p = mmap(NULL, 66 * PG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *q = p + PG;

        mprotect(q, 64 * PG, PROT_READ | PROT_WRITE);
        for (int i = 0; i < 40; i++)
                q[i * PG] = 1;
        /* Of one moment: pages come and go. */
        char *now = strdup(content("/proc/self/smaps"));
        unsigned long rss = in_map(now, q, "Rss:"), in_use = rss + in_map(now, q, "Swap:");
        printf("size %lu, in use %lu, locked %lu", in_map(now, q, "Size:"),
               in_use, of_map(q, "Locked:"));
        CHECK(in_map(now, q, "Pss:") == rss && in_map(now, q, "Anonymous:") == rss);
        CHECK(in_map(now, q, "Private_Dirty:") <= rss && in_map(now, q, "Referenced:") <= rss);
        CHECK(strstr(content("/proc/self/smaps"), "VmFlags: rd wr mr mw me"));
        mlock(q, 64 * PG);
        printf(", then %lu of %lu\n", of_map(q, "Locked:"), of_map(q, "Rss:"));
        CHECK(of_map(q, "Swap:") == 0);
        munlock(q, 64 * PG);
        madvise(q, 64 * PG, MADV_DONTNEED);
        printf("given back: %lu\n", of_map(q, "Rss:") + of_map(q, "Swap:"));
        CHECK(of_all("Size:") >= kib("VmSize:") &&
              of_all("Size:") <= kib("VmSize:") + 64); /* [vsyscall] */
        CHECK(strstr(content("/proc/self/smaps_rollup"), "[rollup]\n"));
        unsigned long together = number("/proc/self/smaps_rollup", "Rss:") +
                                 number("/proc/self/smaps_rollup", "Swap:");
        unsigned long sum = of_all("Rss:") + of_all("Swap:");
        CHECK(together + 256 >= sum && sum + 256 >= together); /* reading is done with pages, too */
        munmap(p, 66 * PG);
}

/* Memory by its file: positions, borders, and the state of the descriptor. */
static void test_mem(void)
{
        char *p = mmap(NULL, 5 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
             buf[3 * PG];
        off_t at = (off_t)(uintptr_t)p;
        int fd = open("/proc/self/mem", O_RDWR), again, one_way;
        char path[64];

        munmap(p + 3 * PG, PG);
        memset(p, 'a', 3 * PG);
        CHECK(fd >= 0);
        T(pread(fd, buf, 100, at + 10));
        CHECK(buf[0] == 'a' && buf[99] == 'a');
        T(pwrite(fd, "bcd", 3, at + PG - 1));
        CHECK(!memcmp(p + PG - 1, "bcd", 3));
        T(pread(fd, buf, sizeof(buf), at + PG));                        /* up to the hole */
        FAILS(EIO, pread(fd, buf, 1, at + 3 * PG));
        FAILS(EIO, pwrite(fd, buf, 1, at + 3 * PG));
        FAILS(EIO, pread(fd, buf, 1, 0));
        FAILS(EFAULT, pread(fd, p + 3 * PG, 8, at));
        FAILS(EFAULT, pwrite(fd, p + 3 * PG, 8, at));
        FAILS(EINVAL, pread(fd, buf, 1, -1));
        T(pread(fd, buf, 0, 0));
        /* The position belongs to the description, not to the number. */
        CHECK(lseek(fd, at, SEEK_SET) == at);
        T(read(fd, buf, 10));
        again = dup(fd);
        CHECK(lseek(again, 0, SEEK_CUR) == at + 10);
        T(write(again, "xyz", 3));
        CHECK(!memcmp(p + 10, "xyz", 3) && lseek(fd, 0, SEEK_CUR) == at + 13);
        CHECK(lseek(fd, -3, SEEK_CUR) == at + 10);
        struct iovec v[2] = { { buf, 2 }, { buf + 100, 4 } };
        T(readv(fd, v, 2));
        CHECK(!memcmp(buf, "xy", 2) && !memcmp(buf + 100, "zaaa", 4) &&
              lseek(fd, 0, SEEK_CUR) == at + 16);
        v[0].iov_base = (char *)"12";
        v[1].iov_base = (char *)"3456";
        T(pwritev(fd, v, 2, at + PG));
        CHECK(!memcmp(p + PG, "123456", 6) && lseek(fd, 0, SEEK_CUR) == at + 16);
        close(fd);
        T(pread(again, buf, 4, at + PG));
        CHECK(!memcmp(buf, "1234", 4));
        close(again);
        snprintf(path, sizeof(path), "/proc/%d/mem", getpid());
        one_way = open(path, O_RDONLY | O_CLOEXEC);
        printf("flags %d %d\n", fcntl(one_way, F_GETFD), fcntl(one_way, F_GETFL) & O_ACCMODE);
        FAILS(EBADF, pwrite(one_way, "x", 1, at));
        T(pread(one_way, buf, 4, at + PG));
        close(one_way);
        one_way = open("/proc/thread-self/mem", O_WRONLY);
        FAILS(EBADF, read(one_way, buf, 1));
        T(pwrite(one_way, "x", 1, at));
        CHECK(p[0] == 'x');
        close(one_way);
        /* The number is another file's from here on. */
        fd = open("/dev/zero", O_RDWR);
        CHECK(fd == one_way || fd >= 0);
        T(pread(fd, buf, 4, at));
        close(fd);
        munmap(p, 5 * PG);
}

/* Its behaviour as a file, beside reads and writes. */
static void test_mem_as_file(void)
{
        int fd = open("/proc/self/mem", O_RDWR), path;
        char buf[16], link[64];

        FAILS(EINVAL, lseek(fd, 0, SEEK_END));
        FAILS(EINVAL, lseek(fd, 0, SEEK_DATA));
        FAILS(EINVAL, lseek(fd, 0, 99));
        CHECK(lseek(fd, -4096, SEEK_SET) == -4096 && lseek(fd, 0, SEEK_CUR) == -4096);
        FAILS(EIO, read(fd, buf, 1));
        CHECK(lseek(fd, 4096 + (off_t)(uintptr_t)&initialized, SEEK_CUR) ==
              (off_t)(uintptr_t)&initialized);
        CHECK(read(fd, buf, 4) == 4 && buf[0] == 5);
        FAILS(ENODEV, (long)mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 0));
        FAILS(ENODEV, (long)mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        close(fd);
        fd = open("/proc/self/mem", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        FAILS(EACCES, (long)mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 0));
        close(fd);
        FAILS(EEXIST, open("/proc/self/mem", O_RDWR | O_CREAT | O_EXCL, 0600));
        FAILS(ENOTDIR, open("/proc/self/mem", O_RDONLY | O_DIRECTORY));
        path = open("/proc/self/mem", O_PATH);
        CHECK(path >= 0);
        FAILS(EBADF, read(path, buf, 1));
        FAILS(EBADF, pread(path, buf, 4, (off_t)(uintptr_t)&initialized));
        FAILS(EBADF, lseek(path, 0, SEEK_SET));
        FAILS(EBADF, (long)mmap(NULL, PG, PROT_READ, MAP_PRIVATE, path, 0));
        snprintf(link, sizeof(link), "/proc/self/fd/%d", path);
        fd = open(link, O_RDONLY);
        CHECK(pread(fd, buf, 4, (off_t)(uintptr_t)&initialized) == 4 && buf[0] == 5);
        close(fd);
        close(path);
}

/* The child of a vfork is the first that opens it.  A file that is mapped then stays as it is. */
static void test_mem_after_vfork(void)
{
        static volatile int seen;
        int fd = open("private", O_RDWR | O_CREAT, 0600), mem;
        char *p, buf[8] = "";

        CHECK(write(fd, "content", 8) == 8);
        pid_t pid = vfork();
        if (pid == 0) {
                int here = open("/proc/self/mem", O_RDWR), got = 0;
                _exit(pread(here, &got, 4, (off_t)(uintptr_t)&initialized) != 4 || got != 5 ||
                      pwrite(here, "\1\0\0", 4, (off_t)(uintptr_t)&seen) != 4);
        }
        int status = -1;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0 && seen == 1);
        p = mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 0);
        mem = open("/proc/self/mem", O_RDWR);
        CHECK(mem >= 0);
        FAILS(EIO, pread(mem, buf, 8, 0));
        FAILS(EIO, pwrite(mem, "changed", 8, 0));
        T(pread(mem, buf, 8, (off_t)(uintptr_t)p));
        CHECK(!strcmp(buf, "content") && pread(fd, buf, 8, 0) == 8 && !strcmp(buf, "content"));
        close(mem);
        close(fd);
        munmap(p, PG);
        unlink("private");
}

/* A thread maps a file while the child of a vfork opens a file that vmrun writes: each has a table
 * of descriptors, and vmrun's own descriptors in one table are not touched by the other process. */
static _Atomic int stage;
static volatile char *mapped;

static void *map_meanwhile(void *arg)
{
        int fd = open("large", O_RDWR | O_CREAT, 0600);

        CHECK(ftruncate(fd, 2048 * PG) == 0 && pwrite(fd, "last", 4, 2047 * PG) == 4);
        while (stage != 1)
                usleep(1000);
        mapped = mmap(NULL, 2048 * PG, PROT_READ, MAP_PRIVATE, fd, 0);
        close(fd);
        stage = 2;
        return arg;
}

static int descriptors(void)
{
        DIR *d = opendir("/proc/self/fd");
        int n = 0;

        for (struct dirent *e; d && (e = readdir(d));)
                n += e->d_name[0] != '.';
        closedir(d);
        return n;
}

static void test_descriptors_of_vfork(void)
{
        pthread_t thread;
        int status = -1;

        CHECK(pthread_create(&thread, NULL, map_meanwhile, NULL) == 0);
        pid_t pid = vfork();
        if (pid == 0) {
                int fd;

                stage = 1;
                while (stage != 2)
                        usleep(1000);
                fd = open("/proc/self/stat", O_RDONLY);
                close(fd);
                close_range(3, ~0U, 0);
                /* Its parent maps this one, too, but later. */
                fd = open("own", O_RDWR | O_CREAT, 0600);
                char *p = mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 0);
                _exit(fd < 0 || p == MAP_FAILED || write(fd, "own", 3) != 3);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        pthread_join(thread, NULL);
        printf("%d descriptors\n", descriptors());
        close_range(3, ~0U, 0);
        CHECK(!memcmp((char *)mapped + 2047 * PG, "last", 4));
        munmap((void *)mapped, 2048 * PG);
        unlink("large");
        int fd = open("own", O_RDONLY);
        mapped = mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(!memcmp((char *)mapped, "own", 3));
        munmap((void *)mapped, PG);
        close(fd);
        unlink("own");
}

/* KSM alone knows whether pages may be merged. */
static void test_mergeable(void)
{
        char *p = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        memset(p, 'm', 4 * PG);
        T(madvise(p, 4 * PG, MADV_MERGEABLE));
        T(madvise(p, 4 * PG, MADV_UNMERGEABLE));
        FAILS(EINVAL, madvise(p + 1, PG, MADV_MERGEABLE));
        munmap(p + PG, PG);
        FAILS(ENOMEM, madvise(p, 4 * PG, MADV_MERGEABLE));
        CHECK(p[0] == 'm' && p[3 * PG] == 'm');
        munmap(p, 4 * PG);
}

/* Links by address: to this program, and to a file that is mapped in two parts. */
static void test_map_files(void)
{
        static const char name[] = "mapped";
        char entry[64], path[128], target[4096], here[4096], *p;
        struct stat st, file;
        int found = 0, others = 0, dots = 0, fd = open(name, O_RDWR | O_CREAT, 0600), dir;

        CHECK(ftruncate(fd, 4 * PG) == 0 && fstat(fd, &file) == 0);
        p = mmap(NULL, 4 * PG, PROT_READ, MAP_PRIVATE, fd, 0);
        close(fd);
        munmap(p + 2 * PG, PG);
        snprintf(entry, sizeof(entry), "%lx-%lx", (unsigned long)p, (unsigned long)p + 2 * PG);
        snprintf(path, sizeof(path), "/proc/self/map_files/%s", entry);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        CHECK(n > 0 && getcwd(here, sizeof(here)));
        target[n < 0 ? 0 : n] = 0;
        CHECK(!strncmp(target, here, strlen(here)) && !strcmp(target + strlen(here), "/mapped"));
        CHECK(stat(path, &st) == 0 && st.st_ino == file.st_ino && S_ISREG(st.st_mode));
        CHECK(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
        fd = open(path, O_RDONLY);
        CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == file.st_ino);
        close(fd);
        DIR *d = opendir("/proc/self/map_files");
        for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
                found += !strcmp(e->d_name, entry);
                dots += e->d_name[0] == '.';
                others += e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &st, 0) == 0;
        }
        CHECK(d && found == 1 && dots == 2 && others > 4);
        rewinddir(d);
        CHECK(readdir(d) != NULL && readdir(d) != NULL && readdir(d) != NULL);
        closedir(d);
        /* One entry after the other, as a small buffer has it. */
        dir = open("/proc/self/map_files", O_RDONLY | O_DIRECTORY);
        char few[64];
        int calls = 0;
        while ((n = syscall(SYS_getdents64, dir, few, sizeof(few))) > 0)
                calls++;
        CHECK(n == 0 && calls > 4);
        FAILS(EINVAL, (lseek(dir, 0, SEEK_SET), syscall(SYS_getdents64, dir, few, 8)));
        close(dir);
        snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)p,
                 (unsigned long)p + 4 * PG);
        FAILS(ENOENT, readlink(path, target, sizeof(target)));
        FAILS(ENOENT, open(path, O_RDONLY));
        FAILS(ENOENT, lstat(path, &st));
        munmap(p, 4 * PG);
        unlink(name);
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
        test_links();
        test_lists();
        test_outlived();
        test_names();
        test_smaps();
        test_mem_after_vfork();
        test_mem();
        test_mem_as_file();
        test_descriptors_of_vfork();
        test_mergeable();
        test_map_files();
        printf("failures %d\n", failures);
        return failures ? 1 : 0;
}
