/*
 * Calls whose answers depend on more than their arguments: on the room in a pipe, the order of
 * several errors, the state of another thread or process, the page cache, a file in execution.
 * Argument: a directory to work in.
 */
#include <asm/prctl.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/keyctl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "t_sys.h"

/* Nothing that stands in stdio's buffers is printed twice. */
static pid_t start_child(void)
{
        fflush(stdout);
        return fork();
}

static int failures_of(pid_t pid)
{
        int status;

        CHECK(waitpid(pid, &status, 0) == pid);
        return status;
}

/* ---- vmsplice: a pipe takes what it has room for ---- */

static void drain(int fd)
{
        static char buf[1 << 17];
        ssize_t n = read(fd, buf, sizeof(buf));

        printf("  %zd bytes, sum %u\n", n, n > 0 ? sum(buf, (size_t)n) : 0);
}

static void test_vmsplice(void)
{
        enum { N = 40 };
        static char much[N * PG + PG];
        struct iovec v[64];
        int p[2];

        for (size_t i = 0; i < sizeof(much); i++)
                much[i] = (char)(i * 7 ^ i >> 9);
        T(pipe(p));
        v[0] = (struct iovec){ much, N * PG };
        T(vmsplice(p[1], v, 1, 0));
        T(vmsplice(p[1], v, 1, SPLICE_F_NONBLOCK));
        drain(p[0]);
        /* Not at the start of a page: these bytes take one more of the pipe's places. */
        v[0] = (struct iovec){ (char *)(((uintptr_t)much + PG - 1) & ~(uintptr_t)(PG - 1)) + 100,
                               N * PG };
        T(vmsplice(p[1], v, 1, SPLICE_F_NONBLOCK));
        drain(p[0]);
        for (int i = 0; i < 64; i++)
                v[i] = (struct iovec){ much + 5000 * i % PG, 3 };
        T(vmsplice(p[1], v, 64, 0));
        drain(p[0]);
        T(vmsplice(p[1], v, 5, SPLICE_F_NONBLOCK));
        T(vmsplice(p[1], v, 5, SPLICE_F_GIFT | SPLICE_F_MORE | SPLICE_F_MOVE));
        drain(p[0]);
        /* Up to a hole. */
        memset(pages, 'p', 2 * PG);
        v[0] = (struct iovec){ pages + 10, 4 * PG };
        T(vmsplice(p[1], v, 1, 0));
        drain(p[0]);
        v[0] = (struct iovec){ nothing, PG };
        FAILS(EFAULT, vmsplice(p[1], v, 1, 0));
        v[0] = (struct iovec){ much, N * PG };
        T(vmsplice(p[1], v, 1, 0));
        v[0] = (struct iovec){ nothing, PG };
        FAILS(EAGAIN, vmsplice(p[1], v, 1, SPLICE_F_NONBLOCK));
        /* And out of it. */
        static char back[N * PG];
        v[0] = (struct iovec){ back + 1, 10000 };
        v[1] = (struct iovec){ back + 30000, 100000 };
        T(vmsplice(p[0], v, 2, 0));
        printf("  sum %u\n", sum(back, sizeof(back)));
        FAILS(EAGAIN, vmsplice(p[0], v, 2, SPLICE_F_NONBLOCK));
        T(vmsplice(p[0], v, 0, 0));
        FAILS(EINVAL, vmsplice(p[0], v, 1, 16));
        FAILS(EINVAL, vmsplice(-1, v, 1, 16));
        FAILS(EBADF, vmsplice(-1, (void *)nothing, 1, 0));
        FAILS(EBADF, vmsplice(1000, v, 1, 0));
        int null = open("/dev/null", O_RDWR);
        FAILS(EBADF, vmsplice(null, v, 1, 0));
        close(null);
        /* A larger pipe. */
        T(fcntl(p[1], F_SETPIPE_SZ, 1 << 17));
        v[0] = (struct iovec){ much, N * PG };
        T(vmsplice(p[1], v, 1, 0));
        close(p[0]);
        signal(SIGPIPE, SIG_IGN);
        FAILS(EPIPE, vmsplice(p[1], v, 1, 0));
        signal(SIGPIPE, SIG_DFL);
        close(p[1]);
}

/* ---- futex: requeueing looks at both words ---- */

static void requeue(const char *name, int op, void *a, void *b)
{
        errno = 0;
        long ret = syscall(SYS_futex, a, op, 1, 1L, b, 0);
        printf("%s: %ld %s\n", name, ret, ret < 0 ? strerrorname_np(errno) : "");
}

static void test_requeue(void)
{
        static const struct { const char *name; int op;
        } ops[] = {
                { "FUTEX_REQUEUE", FUTEX_REQUEUE },
                { "FUTEX_CMP_REQUEUE", FUTEX_CMP_REQUEUE },
                { "FUTEX_REQUEUE_PRIVATE", FUTEX_REQUEUE_PRIVATE },
                { "FUTEX_CMP_REQUEUE_PRIVATE", FUTEX_CMP_REQUEUE_PRIVATE },
        };
        char *shared = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        char *shared_ro = mmap(NULL, PG, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        void *const words[] = { pages,          pages + 1, pages + 64, nothing,   read_only,
                                (void *)-4096L, NULL,      shared,     shared_ro, shared + 2 };

        memset(pages, 0, 2 * PG);
        for (size_t op = 0; op < sizeof(ops) / sizeof(ops[0]); op++) {
                for (size_t a = 0; a < sizeof(words) / sizeof(words[0]); a++)
                        for (size_t b = 0; b < sizeof(words) / sizeof(words[0]); b++) {
                                char name[80];
                                snprintf(name, sizeof(name), "%s of word %zu to %zu", ops[op].name,
                                         a, b);
                                requeue(name, ops[op].op, words[a], words[b]);
                        }
                T(syscall(SYS_futex, pages + 1, ops[op].op, -1, 1L, pages, 0));
                T(syscall(SYS_futex, pages, ops[op].op, 1, -1L, pages + 1, 0));
                T(syscall(SYS_futex, pages, ops[op].op, 1, 1L, nothing, 1));
                T(syscall(SYS_futex, pages, ops[op].op, 1, 1L, pages + 4, 1));
        }
        munmap(shared, PG);
        munmap(shared_ro, PG);
}

/* ---- mmap: which error comes first ---- */

/* Words of a line, equal ones in a row only once with their number; NULL: its end. */
static void say(const char *word)
{
        static const char *last;
        static int times;

        if (word && last && !strcmp(word, last)) {
                times++;
                return;
        }
        if (last)
                printf(" %s * %d%s", last, times, word ? "" : "\n");
        last = word;
        times = 1;
}

static void test_mmap_errors(void)
{
        static const int types[] = { 0, MAP_SHARED, MAP_PRIVATE, MAP_SHARED_VALIDATE, 4 };
        static const int extras[] = { 0,           MAP_FIXED,     MAP_FIXED_NOREPLACE,
                                      MAP_HUGETLB, MAP_GROWSDOWN, MAP_ANONYMOUS,
                                      0x400000,    0x8000000 };
        static const size_t lens[] = { 0, 1, PG, 1ul << 47, ~0ul, ~0ul - 5000 };
        static const long offs[] = { 0, 1, PG, LONG_MAX & ~(PG - 1L), -PG };
        int fds[] = { -1,
                      999,
                      open("file", O_RDONLY | O_CREAT, 0600),
                      open("file", O_WRONLY),
                      open("file", O_RDWR),
                      open("file", O_PATH),
                      open(".", O_RDONLY),
                      0 };
        int p[2];
        char *busy = mmap(NULL, 2 * PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void *const at[] = { NULL, busy, busy + 1, (void *)(1ul << 47) };

        CHECK(ftruncate(fds[4], 2 * PG) == 0 && pipe(p) == 0);
        fds[7] = p[0];
        for (size_t fd = 0; fd < 8; fd++)
                for (size_t type = 0; type < 5; type++)
                        for (size_t extra = 0; extra < sizeof(extras) / sizeof(extras[0]);
                             extra++) {
                                say(NULL);
                                printf("mmap of %zu, flags %x %x:", fd, types[type], extras[extra]);
                                for (size_t len = 0; len < 6; len++)
                                        for (size_t off = 0; off < (fd < 6 ? 5 : 3);
                                             off++) /* files without a size may end later */
                                                for (size_t a = 0; a < 4; a++)
                                                        for (int prot = 1; prot <= 3; prot += 2) {
                                                                if (!at[a] &&
                                                                    (extras[extra] &
                                                                     (MAP_FIXED |
                                                                      MAP_FIXED_NOREPLACE)))
                                                                        /* root may, natively */
                                                                        continue;
                                                                char *m = mmap(
                                                                        at[a], lens[len], prot,
                                                                        types[type] | extras[extra],
                                                                        fds[fd], offs[off]);
                                                                int err = errno;
                                                                say(m == MAP_FAILED
                                                                            ? strerrorname_np(err)
                                                                            : "ok");
                                                                if (m == MAP_FAILED)
                                                                        continue;
                                                                munmap(m, lens[len]);
                                                                mmap(busy, 2 * PG, PROT_READ,
                                                                     MAP_FIXED | MAP_PRIVATE |
                                                                             MAP_ANONYMOUS,
                                                                     -1, 0);
                                                        }
                        }
        say(NULL);
        munmap(busy, 2 * PG);
        for (int i = 2; i < 8; i++)
                close(fds[i]);
        close(p[1]);
        unlink("file");
}

/* ---- mincore: the page cache ---- */

static void residency(const char *what, void *m, int n)
{
        unsigned char vec[64];

        memset(vec, 0xee, sizeof(vec));
        printf("%s: ", what);
        if (mincore(m, (size_t)n * PG, vec))
                printf("%s", strerrorname_np(errno));
        else
                for (int i = 0; i < n; i++)
                        printf("%x", vec[i]);
        printf("\n");
}

static void test_mincore(void)
{
        enum { N = 24 };
        static char page[PG];
        int fd = open("cached", O_RDWR | O_CREAT, 0600);
        char *m, *s;

        memset(page, 'c', sizeof(page));
        for (int i = 0; i < N; i++)
                CHECK(write(fd, page, PG) == PG);
        m = mmap(NULL, (N + 4) * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        residency("a file just written, mapped private", m, N + 4);
        m[5 * PG] = 1;
        residency("with a page changed", m, N + 4);
        (void)*(volatile char *)(m + 9 * PG);
        residency("with a page read", m, N + 4);
        residency("from its middle", m + 3 * PG, 2);
        s = mmap(NULL, (N + 4) * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        residency("mapped shared", s, N + 4);
        munmap(m, (N + 4) * PG);
        munmap(s, (N + 4) * PG);
        close(fd);
        unlink("cached");

        /* All holes: nothing of it is cached before it is touched. */
        fd = memfd_create("sparse", 0);
        CHECK(ftruncate(fd, N * PG) == 0);
        m = mmap(NULL, N * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        s = mmap(NULL, N * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        residency("nothing written", m, N);
        residency("nothing written, shared", s, N);
        CHECK(pwrite(fd, page, PG, 3 * PG) == PG);
        s[7 * PG] = 1;
        residency("two pages there", m, N);
        residency("two pages there, shared", s, N);
        pid_t pid = start_child();
        if (!pid) {
                s[11 * PG] = 1;
                _exit(0);
        }
        CHECK(failures_of(pid) == 0);
        residency("and one by a child", m, N);
        residency("and one by a child, shared", s, N);
        munmap(m, N * PG);
        munmap(s, N * PG);
        close(fd);

        s = mmap(NULL, N * PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        residency("shared memory", s, N);
        s[2 * PG] = 1;
        pid = start_child();
        if (!pid) {
                s[4 * PG] = 1;
                _exit(0);
        }
        CHECK(failures_of(pid) == 0);
        residency("shared memory, two pages touched", s, N);
        munmap(s, N * PG);

        m = mmap(NULL, N * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        residency("anonymous", m, N);
        m[0] = m[8 * PG] = 1;
        residency("anonymous, two pages touched", m, N);
        munmap(m + 4 * PG, PG);
        residency("with a hole", m, N);
        munmap(m, N * PG);
}

/* ---- get_robust_list of others ---- */

static pthread_barrier_t barrier;
static pid_t other;

static void *wait_for_end(void *arg)
{
        (void)arg;
        other = gettid();
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        return NULL;
}

static void test_robust_list(void)
{
        void *mine = NULL, *head = NULL;
        size_t len = 0;
        pthread_t thread;
        int p[2], q[2];
        char c;

        T(syscall(SYS_get_robust_list, 0, &mine, &len));
        printf("  length %zu\n", len);
        T(syscall(SYS_get_robust_list, getpid(), &head, &len));
        CHECK(head == mine);
        CHECK(pipe(p) == 0 && pipe(q) == 0);
        pid_t pid = start_child();
        if (!pid) {
                struct { void *next; long offset; void *pending; } list = { &list, 0, NULL };
                syscall(SYS_set_robust_list, &list, sizeof(list));
                void *l = &list;
                CHECK(write(p[1], &l, sizeof(l)) == sizeof(l) && read(q[0], &c, 1) == 1);
                _exit(failures);
        }
        void *expected = NULL;
        CHECK(read(p[0], &expected, sizeof(expected)) == sizeof(expected));
        len = 0;
        T(syscall(SYS_get_robust_list, pid, &head, &len));
        CHECK(head == expected && len == 24);
        FAILS(EFAULT, syscall(SYS_get_robust_list, pid, &head, nothing));
        FAILS(EFAULT, syscall(SYS_get_robust_list, pid, nothing, &len));
        CHECK(write(q[1], "", 1) == 1 && failures_of(pid) == 0);
        FAILS(ESRCH, syscall(SYS_get_robust_list, pid, &head, &len));
        FAILS(ESRCH, syscall(SYS_get_robust_list, -1, &head, &len));
        /*
         * A process of which this one may know nothing, and a process that executes another file.
         */
        pid = start_child();
        if (!pid) {
                if (geteuid() == 0)
                        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
                FAILS(EPERM, syscall(SYS_get_robust_list, 1, &head, &len));
                fflush(stdout);
                _exit(failures);
        }
        CHECK(failures_of(pid) == 0);
        pthread_barrier_init(&barrier, NULL, 2);
        CHECK(pthread_create(&thread, NULL, wait_for_end, NULL) == 0);
        pthread_barrier_wait(&barrier);
        T(syscall(SYS_get_robust_list, other, &head, &len));
        CHECK(head != mine && head);
        pid_t of_parent = other;
        pid = start_child();
        if (!pid) {
                void *its = head;
                T(syscall(SYS_get_robust_list, of_parent, &head, &len));
                CHECK(head == its);
                T(syscall(SYS_get_robust_list, getppid(), &head, &len));
                CHECK(head == mine);
                fflush(stdout);
                _exit(failures);
        }
        CHECK(failures_of(pid) == 0);
        pthread_barrier_wait(&barrier);
        pthread_join(thread, NULL);
        for (int i = 0; i < 2; i++)
                close(p[i]), close(q[i]);
}

/* ---- keys ---- */

#define key(cmd, ...) syscall(SYS_keyctl, cmd, ##__VA_ARGS__)

static void say_key(const char *what, long ret, const char *buf)
{
        printf("%s: %ld %s, \"%.40s\"\n", what, ret, ret < 0 ? strerrorname_np(errno) : "", buf);
}

static void test_keys(void)
{
        char *buf = pages;
        long ring, id, other_ring;

        memset(pages, 0, 2 * PG);
        OK(key(KEYCTL_JOIN_SESSION_KEYRING, NULL));
        OK(ring = syscall(SYS_add_key, "keyring", "t_calls", NULL, 0L, KEY_SPEC_SESSION_KEYRING));
        OK(id = syscall(SYS_add_key, "user", "name", "payload", 7L, ring));
        CHECK(syscall(SYS_add_key, "user", "name", "payload", 7L, ring) == id);
        FAILS(EFAULT, syscall(SYS_add_key, nothing, "name", "payload", 7L, ring));
        FAILS(EFAULT, syscall(SYS_add_key, "user", nothing, "payload", 7L, ring));
        FAILS(EFAULT, syscall(SYS_add_key, "user", "name", nothing, 7L, ring));
        FAILS(EFAULT, syscall(SYS_add_key, "user", "name", NULL, 7L, ring));
        FAILS(EFAULT, syscall(SYS_add_key, "user", "name", nothing - 3, 7L, ring));
        FAILS(EINVAL, syscall(SYS_add_key, "user", "name", nothing, 1L << 20, ring));
        FAILS(EINVAL, syscall(SYS_add_key, "user", NULL, "payload", 7L, ring));
        FAILS(EINVAL, syscall(SYS_add_key, "user", "name", "", 0L, ring));
        FAILS(ENODEV, syscall(SYS_add_key, "no such type", "name", "payload", 7L, ring));
        CHECK(syscall(SYS_request_key, "user", "name", NULL, 0L) == id);
        FAILS(ENOKEY, syscall(SYS_request_key, "user", "another", NULL, 0L));
        FAILS(EFAULT, syscall(SYS_request_key, "user", nothing, NULL, 0L));
        FAILS(EFAULT, syscall(SYS_request_key, "user", "another", nothing, 0L));
        /* The size is returned whether there is room for the data or not. */
        for (long n = 0; n <= 8; n += 2) {
                memset(buf, '-', 40);
                say_key("read", key(KEYCTL_READ, id, buf, n), buf);
        }
        T(key(KEYCTL_READ, id, NULL, 0L));
        FAILS(EFAULT, key(KEYCTL_READ, id, nothing, 100L));
        FAILS(EFAULT, key(KEYCTL_READ, id, nothing - 3, 100L));
        T(key(KEYCTL_READ, id, nothing - 7, 100L));
        memset(buf, 0, 200);
        for (long n = 0; n <= 100; n += 50) {
                memset(buf, '-', 150);
                say_key("describe", key(KEYCTL_DESCRIBE, id, buf, n), buf);
        }
        T(key(KEYCTL_GET_SECURITY, id, buf, 100L));
        T(key(KEYCTL_UPDATE, id, "something longer", 16L));
        memset(buf, 0, 100);
        say_key("read", key(KEYCTL_READ, id, buf, 100L), buf);
        FAILS(EFAULT, key(KEYCTL_UPDATE, id, nothing, 16L));
        CHECK(key(KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user", "name", 0L) == id);
        FAILS(ENOKEY, key(KEYCTL_SEARCH, ring, "user", "no name", 0L));
        FAILS(EFAULT, key(KEYCTL_SEARCH, ring, nothing, "no name", 0L));
        OK(other_ring = syscall(SYS_add_key, "keyring", "t_calls 2", NULL, 0L,
                                KEY_SPEC_PROCESS_KEYRING));
        T(key(KEYCTL_LINK, id, other_ring));
        int32_t *ids = (int32_t *)pages;
        T(key(KEYCTL_READ, other_ring, ids, 100L));
        CHECK(ids[0] == id);
        T(key(KEYCTL_RESTRICT_KEYRING, other_ring, NULL, NULL));
        FAILS(EPERM, key(KEYCTL_LINK, ring, other_ring));
        T(key(KEYCTL_UNLINK, id, other_ring));
        T(key(KEYCTL_SETPERM, id, 0x3f3f0000L));
        T(key(KEYCTL_SET_TIMEOUT, id, 1000L));
        memset(buf, '-', 20);
        long caps = key(KEYCTL_CAPABILITIES, buf, 12L);
        printf("capabilities %ld %u\n", caps, sum(buf, 14));
        FAILS(EFAULT, key(KEYCTL_CAPABILITIES, nothing, 12L));
        struct keyctl_dh_params dh = { .priv = (int32_t)id,
                                       .prime = (int32_t)id,
                                       .base = (int32_t)id };
        T(key(KEYCTL_DH_COMPUTE, &dh, NULL, 0L, NULL));
        T(key(KEYCTL_DH_COMPUTE, nothing, NULL, 0L, NULL));
        T(key(KEYCTL_DH_COMPUTE, &dh, buf, 100L,
              &(struct keyctl_kdf_params){ .hashname = (char *)"sha256" }));
        T(key(KEYCTL_DH_COMPUTE, &dh, buf, 100L,
              &(struct keyctl_kdf_params){ .hashname = nothing }));
        T(key(KEYCTL_PKEY_QUERY, id, 0L, "", buf));
        T(key(KEYCTL_PKEY_ENCRYPT,
              &(struct keyctl_pkey_params){ .key_id = (int32_t)id, .in_len = 5, .out_len = 5 }, "",
              "12345", buf));
        T(key(KEYCTL_PKEY_VERIFY, nothing, "", "12345", buf));
        struct iovec v[] = { { (char *)"pay", 3 }, { (char *)"load", 4 } };
        T(key(KEYCTL_INSTANTIATE_IOV, id, v, 2L, 0L));
        T(key(KEYCTL_INSTANTIATE, id, "payload", 7L, 0L));
        T(key(99L));
        T(key(-1L));
        T(key(KEYCTL_REVOKE, id));
        FAILS(EKEYREVOKED, key(KEYCTL_READ, id, buf, 100L));
        T(key(KEYCTL_CLEAR, ring));
        T(key(KEYCTL_INVALIDATE, ring));
}

/*
 * ---- a program's file is not written to while it runs, and not executed while it is open for
 * writing ----
 */

static void copy_self(const char *to)
{
        static char buf[1 << 16];
        int in = open("/proc/self/exe", O_RDONLY),
            out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
        ssize_t n;

        while ((n = read(in, buf, sizeof(buf))) > 0)
                CHECK(write(out, buf, (size_t)n) == n);
        close(in), close(out);
}

/* errno of the execve, or 0. */
static int try(const char *program)
{
        pid_t pid = start_child();
        int status;

        if (!pid) {
                execl(program, program, "none", NULL);
                _exit(errno);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        return WEXITSTATUS(status);
}

/* Is there a lock on the file, for another process? */
static int is_locked(const char *path)
{
        pid_t pid = start_child();
        int status;

        if (!pid) {
                struct flock l = { .l_type = F_WRLCK, .l_len = 1 };
                int fd = open(path, O_RDWR);
                _exit(fcntl(fd, F_GETLK, &l) != 0 ? 2 : l.l_type != F_UNLCK);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) < 2);
        return WEXITSTATUS(status) == 1;
}

/* To look whether a file is busy must cost no lock on it. */
static void test_locks_stay(void)
{
        struct flock l = { .l_type = F_WRLCK, .l_len = 1 };
        int fd = open("data", O_RDWR | O_CREAT, 0777);

        CHECK(fcntl(fd, F_SETLK, &l) == 0 && is_locked("data"));
        int again = open("data", O_RDWR);
        printf("locked, opened once more: %d\n", is_locked("data"));
        close(again);
        printf("and closed: %d\n", is_locked("data"));
        close(fd);
        unlink("data");
}

static void test_busy(void)
{
        int p[2], q[2];
        char c;

        CHECK(symlink("prog", "link") == 0);
        copy_self("prog");
        CHECK(pipe(p) == 0 && pipe(q) == 0);
        pid_t pid = start_child();
        if (!pid) {
                dup2(p[0], 100);
                dup2(q[1], 101);
                close_range(3, 99, 0);
                execl("prog", "prog", ".", "hold", NULL);
                _exit(1);
        }
        CHECK(read(q[0], &c, 1) == 1);
        int hold = dup2(p[1], 90);
        printf("while it runs\n");
        close_range(3, 89, 0);
        OK(open("/proc/self/exe", O_WRONLY));
        for (int i = 0; i < 2; i++) {
                OK(open("prog", O_WRONLY));
                OK(open("prog", O_RDONLY | O_TRUNC));
                OK(open("link", O_RDWR));
                OK(open("link", O_WRONLY | O_NOFOLLOW));
                OK(open("prog", O_WRONLY | O_CREAT | O_EXCL, 0600));
                OK(open("prog", O_WRONLY | O_DIRECTORY));
                OK(openat(AT_FDCWD, "./prog", O_WRONLY | O_CREAT, 0600));
                OK(truncate("prog", 10));
                OK(truncate("link", 10));
                OK(creat("prog", 0600));
                if (i)
                        break;
                CHECK(write(hold, "", 1) == 1);
                printf("afterwards: %d\n", failures_of(pid));
        }
        close_range(3, ~0U, 0);
        unlink("prog");
        copy_self("prog");
        CHECK(try("prog") == 0);
        int fd = open("prog", O_RDWR | O_CLOEXEC);
        printf("open for writing: %s\n", strerrorname_np(try("prog")));
        printf("by its link: %s\n", strerrorname_np(try("link")));
        int script = open("script", O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
        CHECK(write(script, "#!prog none\n", 12) == 12);
        printf("a script that is: %s\n", strerrorname_np(try("./script")));
        close(script);
        printf("one whose interpreter is: %s\n", strerrorname_np(try("./script")));
        close(fd);
        CHECK(try("./script") == 0);
        fd = open("prog", O_RDONLY);
        CHECK(try("prog") == 0);
        close(fd);
        unlink("prog");
        unlink("link");
        unlink("script");
        test_locks_stay();
}

/* ---- arch_prctl ---- */

static void test_arch_prctl(void)
{
        unsigned long base = 0;

        T(syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0));
        T(syscall(SYS_arch_prctl, ARCH_GET_CPUID, 1));
        /* vmrun is as a CPU without CPUID faulting; this one may have it. */
        CHECK(syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1) == 0 || errno == ENODEV);
        T(syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0));
        FAILS(EINVAL, syscall(SYS_arch_prctl, 0x7777, 0));
        T(syscall(SYS_arch_prctl, ARCH_GET_FS, &base));
        CHECK(base == (unsigned long)pthread_self());
        FAILS(EFAULT, syscall(SYS_arch_prctl, ARCH_GET_FS, nothing));
        FAILS(EPERM, syscall(SYS_arch_prctl, ARCH_SET_GS, 1ul << 63));
}

/* CAP_IPC_LOCK lifts the limit of locked memory, as long as the process has it. */
static void test_memlock(void)
{
        pid_t pid = start_child();

        if (!pid) {
                char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                const struct rlimit small = { PG, PG };
                T(setrlimit(RLIMIT_MEMLOCK, &small));
                if (geteuid() == 0) {
                        T(mlock(p, 2 * PG));
                        T(munlock(p, 2 * PG));
                        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
                }
                FAILS(ENOMEM, mlock(p, 2 * PG));
                T(mlock(p, PG));
                fflush(stdout);
                _exit(failures);
        }
        CHECK(failures_of(pid) == 0);
}

int main(int argc, char **argv)
{
        setvbuf(stdout, NULL, _IOFBF, 1 << 16);
        if (argc > 2 && !strcmp(argv[2], "hold")) {     /* executed by test_busy() */
                char c;
                return write(101, "", 1) == 1 && read(100, &c, 1) == 1 ? 0 : 1;
        }
        if (argc > 1 && !strcmp(argv[1], "none"))
                return 0;
        if (scratch_begin(argc, argv, "t_calls"))
                return 2;
        static const struct { const char *name; void (*test)(void);
        } tests[] = {
                { "vmsplice", test_vmsplice },  { "requeue", test_requeue },
                { "mmap", test_mmap_errors },   { "mincore", test_mincore },
                { "robust", test_robust_list }, { "arch_prctl", test_arch_prctl },
                { "keys", test_keys },          { "busy", test_busy },
                { "memlock", test_memlock },
        };
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
                if (argc <= 2 || !strcmp(argv[2], tests[i].name)) {
                        tests[i].test();
                        fflush(stdout);
                }
        return scratch_end();
}
