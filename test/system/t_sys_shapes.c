/*
 * Large and odd shapes of arguments: control data, long and empty vectors, queues, a thousand
 * descriptors, small buffers, and all of that in memory that is far. Argument: a directory to work
 * in.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include "t_sys.h"

/* ---- control data ---- */

struct letter {
        struct msghdr m;
        struct iovec v;
        char body[16];
        _Alignas(8) char control[512];
};

static void add_rights(struct letter *l, const int *fds, int n)
{
        struct cmsghdr *c = (void *)(l->control + l->m.msg_controllen);

        c->cmsg_len = CMSG_LEN(4 * (size_t)n);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(c), fds, 4 * (size_t)n);
        l->m.msg_controllen += CMSG_SPACE(4 * (size_t)n);
}

static struct letter *letter(void *where, size_t control)
{
        struct letter *l = where;

        memset(l, 0, sizeof(*l));
        l->v = (struct iovec){ l->body, sizeof(l->body) };
        l->m = (struct msghdr){ .msg_iov = &l->v,
                                .msg_iovlen = 1,
                                .msg_control = l->control,
                                .msg_controllen = control };
        return l;
}

/* Prints what came with a message, and closes it. */
static void open_letter(struct letter *l)
{
        printf("  flags %x, %zu bytes of control data\n", l->m.msg_flags, l->m.msg_controllen);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&l->m); c; c = CMSG_NXTHDR(&l->m, c)) {
                int n = (int)(c->cmsg_len - CMSG_LEN(0)) / 4, fds[64];
                memcpy(fds, CMSG_DATA(c),
                       c->cmsg_len - CMSG_LEN(0) < sizeof(fds) ? c->cmsg_len - CMSG_LEN(0)
                                                              : sizeof(fds));
                if (c->cmsg_type == SCM_RIGHTS) {
                        printf("  %d descriptors:", n);
                        for (int i = 0; i < n; i++) {
                                printf(" %d%s", fds[i],
                                       fcntl(fds[i], F_GETFD) & FD_CLOEXEC ? " to be closed" : "");
                                close(fds[i]);
                        }
                        printf("\n");
                } else {
                        CHECK(c->cmsg_type == SCM_CREDENTIALS && fds[0] == getpid());
                        printf("  credentials\n");
                }
        }
}

static void test_control(void)
{
        int s[2], fds[3], many[254];
        struct letter *l = (void *)pages;
        /*
         * Its header, vector and control data all lie across the border of two pages, one after the
         * other.
         */
        size_t spread[] = { 0, PG - 20, PG - offsetof(struct letter, v) - 8,
                            PG - offsetof(struct letter, control) - 20 };

        socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
        for (int i = 0; i < 3; i++)
                fds[i] = open("/dev/null", O_RDONLY);
        for (int i = 0; i < 254; i++)
                many[i] = fds[0];
        for (size_t i = 0; i < sizeof(spread) / sizeof(spread[0]); i++) {
                l = letter(pages + (spread[i] & ~7ul), 0);
                add_rights(l, fds, 3);
                forget();
                T(sendmsg(s[0], &l->m, 0));
                letter(l, 256);
                forget();
                T(recvmsg(s[1], &l->m, MSG_CMSG_CLOEXEC));
                open_letter(l);
        }
        /* Two lists in one message; one list and credentials. */
        letter(l, 0);
        add_rights(l, fds, 1);
        add_rights(l, fds + 1, 2);
        T(sendmsg(s[0], &l->m, 0));
        letter(l, 256);
        T(recvmsg(s[1], &l->m, 0));
        open_letter(l);
        T(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &(int){ 1 }, 4));
        letter(l, 0);
        add_rights(l, fds, 2);
        T(sendmsg(s[0], &l->m, 0));
        letter(l, 256);
        T(recvmsg(s[1], &l->m, 0));
        open_letter(l);
        T(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &(int){ 0 }, 4));
        /* Too little room: for one of three, for a head alone, for part of a head, for nothing. */
        size_t rooms[] = { CMSG_LEN(4), CMSG_LEN(8), CMSG_LEN(0), CMSG_LEN(0) - 1, 1, 0 };
        for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
                letter(l, 0);
                add_rights(l, fds, 3);
                T(sendmsg(s[0], &l->m, 0));
                letter(l, rooms[i]);
                T(recvmsg(s[1], &l->m, 0));
                open_letter(l);
                printf("  next free %d\n", dup(0));
                close_range((unsigned)fds[2] + 1, ~0U, 0);
        }
        /* What the kernel must refuse. */
        letter(l, 0);
        add_rights(l, fds, 3);
        ((struct cmsghdr *)(void *)l->control)->cmsg_len = 5;
        FAILS(EINVAL, sendmsg(s[0], &l->m, 0));
        ((struct cmsghdr *)(void *)l->control)->cmsg_len = 4000;
        FAILS(EINVAL, sendmsg(s[0], &l->m, 0));
        l->m.msg_controllen = (size_t)1 << 40;
        FAILS(ENOBUFS, sendmsg(s[0], &l->m, 0));
        letter(l, 0);
        static _Alignas(8) char big[CMSG_SPACE(sizeof(many))];
        struct cmsghdr *c = (void *)big;
        *c = (struct cmsghdr){ CMSG_LEN(sizeof(many)), SOL_SOCKET, SCM_RIGHTS };
        memcpy(CMSG_DATA(c), many, sizeof(many));
        l->m.msg_control = big;
        l->m.msg_controllen = sizeof(big);
        FAILS(EINVAL, sendmsg(s[0], &l->m, 0));
        c->cmsg_len = CMSG_LEN(sizeof(many) - 4);
        l->m.msg_controllen = c->cmsg_len;
        T(sendmsg(s[0], &l->m, 0));
        letter(l, 40);
        T(recvmsg(s[1], &l->m, 0));
        open_letter(l);
        close_range(3, ~0U, 0);
}

/* ---- vectors ---- */

static void test_vectors(void)
{
        struct iovec *v =
                mmap(NULL, 8 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *data =
                mmap(NULL, 32 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int fd = open("vector", O_RDWR | O_CREAT | O_TRUNC, 0600), s[2], p[2];

        for (int i = 0; i < 32 * PG; i++)
                data[i] = (char)(i * 11 + (i >> 9));
        /*
         * 1024 pieces of 1 to 63 bytes, some empty, some across pages, the vector itself over
         * several pages.
         */
        for (int i = 0; i < 1025; i++)
                v[i] = (struct iovec){ data + i * 120, (size_t)i * 7 % 64 };
        forget();
        T(writev(fd, v, 1024));
        FAILS(EINVAL, writev(fd, v, 1025));
        FAILS(EINVAL, pwritev(fd, v, 1025, 0));
        T(writev(fd, v, 0));
        memset(data, 0, 32 * PG);
        forget();
        T(preadv(fd, v, 1024, 0));
        printf("sum %u\n", sum(data, 32 * PG));
        T(preadv(fd, v, 0, 0));
        FAILS(EINVAL, readv(fd, v, 1025));
        /* Nothing but empty pieces; addresses of empty pieces do not matter. */
        for (int i = 0; i < 1024; i++)
                v[i] = (struct iovec){ nothing, 0 };
        T(readv(fd, v, 1024));
        T(writev(fd, v, 1024));
        v[1023] = (struct iovec){ data, 5 };
        T(pwritev(fd, v, 1024, 0));
        /* 4 GiB in all: more than a call may move. */
        for (int i = 0; i < 1024; i++)
                v[i] = (struct iovec){ data, 4 << 20 };
        T(lseek(fd, 0, SEEK_END));
        T(readv(fd, v, 1024));
        v[5].iov_len = SSIZE_MAX;
        T(readv(fd, v, 1024) == -1 ? errno == EINVAL || errno == EFAULT : 0);
        v[5].iov_len = (size_t)SSIZE_MAX + 1;
        FAILS(EINVAL, readv(fd, v, 1024));
        /* These pieces through a socket and a pipe, where they become one. */
        for (int i = 0; i < 1024; i++)
                v[i] = (struct iovec){ data + i * 16, (size_t)i % 9 };
        for (int i = 0; i < 32 * PG; i++)
                data[i] = (char)i;
        socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
        pipe(p);
        struct msghdr m = { .msg_iov = v, .msg_iovlen = 1024 };
        T(sendmsg(s[0], &m, 0));
        m.msg_iovlen = 1025;
        FAILS(EMSGSIZE, sendmsg(s[0], &m, 0));
        FAILS(EMSGSIZE, recvmsg(s[1], &m, MSG_DONTWAIT));
        T(recv(s[1], data + 16 * PG, 16 * PG, 0));
        printf("sum %u\n", sum(data + 16 * PG, 5000));
        m.msg_iovlen = 0;
        T(sendmsg(s[0], &m, 0));
        T(recvmsg(s[1], &m, 0));
        T(writev(p[1], v, 1024));
        memset(data, 0, PG);
        T(readv(p[0], v, 1024));
        printf("sum %u\n", sum(data, 5 * PG));
        /* Much, from many pieces, into a pipe that has room. */
        for (int i = 0; i < 20; i++)
                v[i] = (struct iovec){ data, 12 * PG };
        if (T(fcntl(p[1], F_SETPIPE_SZ, 1 << 20)) >= 0)
                T(writev(p[1], v, 20));
        close_range(3, ~0U, 0);
        unlink("vector");
        munmap(v, 8 * PG);
        munmap(data, 32 * PG);
}

/* ---- queues ---- */

static void test_queues(void)
{
        int q = msgget(IPC_PRIVATE, 0600), s = semget(IPC_PRIVATE, 3, 0600);
        struct { long type; char text[8192]; } *m = (void *)(pages + 8);
        struct sembuf *ops =
                mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        unsigned short *vals = across(6);

        if (q < 0 || s < 0) {
                printf("no System V\n");
                return;
        }
        for (int i = 1; i <= 5; i++) {
                m->type = i;
                memset(m->text, i, 1500);
                forget();
                T(msgsnd(q, m, 1500 + (size_t)i, 0));
        }
        T(msgrcv(q, m, 4000, 3, 0));
        printf("type %ld, %d\n", m->type, m->text[1499]);
        T(msgrcv(q, m, 4000, -2, 0));
        printf("type %ld\n", m->type);
        FAILS(E2BIG, msgrcv(q, m, 100, 0, 0));
        T(msgrcv(q, m, 100, 0, MSG_NOERROR));
        T(msgrcv(q, m, 4000, 2, MSG_EXCEPT));
        printf("type %ld\n", m->type);
        m = edge(8);
        T(msgrcv(q, m, 0, 0, MSG_NOERROR));
        FAILS(ENOMSG, msgrcv(q, m, 0, 0, IPC_NOWAIT));
        m->type = 0;
        FAILS(EINVAL, msgsnd(q, m, 0, 0));
        m->type = 9;
        T(msgsnd(q, m, 0, 0));
        FAILS(EINVAL, msgsnd(q, m, (size_t)-1, 0));
        T(msgctl(q, IPC_RMID, NULL));
        for (int i = 0; i < 501; i++)
                ops[i] = (struct sembuf){ (unsigned short)(i % 3), 1, 0 };
        forget();
        T(semop(s, ops, 500));
        FAILS(E2BIG, semop(s, ops, 501));
        FAILS(EINVAL, semop(s, ops, 0));
        T(semctl(s, 0, GETALL, vals));
        printf("%u %u %u\n", vals[0], vals[1], vals[2]);
        ops[0].sem_num = 7;
        FAILS(EFBIG, semop(s, ops, 1));
        ops[0] = (struct sembuf){ 0, 0, 0 };
        FAILS(EAGAIN, semtimedop(s, ops, 1, &(struct timespec){ 0, 3000000 }));
        FAILS(EINVAL, semtimedop(s, ops, 1, &(struct timespec){ 0, 1000000000 }));
        FAILS(EFAULT, semtimedop(s, ops, 1, (void *)nothing));
        memset(vals, 0, 6);
        T(semctl(s, 0, SETALL, vals));
        T(semtimedop(s, ops, 1, NULL));
        T(semctl(s, 0, IPC_RMID));
        munmap(ops, 4 * PG);
}

/* ---- a thousand descriptors ---- */

static void test_thousand(void)
{
        struct rlimit r;
        int e, n = 0, first, got;
        struct epoll_event *ev =
                mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct pollfd *f =
                mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fd_set *set = across(sizeof(*set));

        getrlimit(RLIMIT_NOFILE, &r);
        r.rlim_cur = 1020;
        T(setrlimit(RLIMIT_NOFILE, &r));
        e = epoll_create1(0);
        first = e + 1;
        while ((got = eventfd((unsigned)n % 3 ? 1 : 0, EFD_NONBLOCK)) >= 0) {
                ev[0] = (struct epoll_event){ EPOLLIN | EPOLLONESHOT,
                                              { .u64 = (uint64_t)n * 0x100000001ull } };
                CHECK(got == first + n && !epoll_ctl(e, EPOLL_CTL_ADD, got, ev));
                n++;
        }
        printf("%d event descriptors, then %s\n", n, strerrorname_np(errno));
        forget();
        T(got = epoll_wait(e, ev, 1000, 0));
        uint64_t all = 0;
        for (int i = 0; i < got; i++)
                all += ev[i].data.u64;
        printf("all %lx\n", all);
        T(epoll_wait(e, ev, 1000, 0));
        FAILS(EINVAL, epoll_wait(e, ev, INT_MAX, 0));
        for (int i = 0; i < n; i++)
                f[i] = (struct pollfd){ first + i, POLLIN | POLLOUT, -1 };
        forget();
        T(poll(f, (nfds_t)n, 0));
        unsigned long events = 0;
        for (int i = 0; i < n; i++)
                events += (unsigned long)f[i].revents * (unsigned)i;
        printf("events %lu\n", events);
        FAILS(EINVAL, poll(f, 1021, 0));
        FD_ZERO(set);
        for (int i = 0; i < n; i++)
                FD_SET(first + i, set);
        T(select(1020, set, NULL, NULL, &(struct timeval){ 0, 0 }));
        printf("set %u\n", sum(set, sizeof(*set)));
        close_range(3, ~0U, 0);
        munmap(ev, 4 * PG);
        munmap(f, 4 * PG);
}

/* ---- directories in small pieces ---- */

static void test_listing(void)
{
        char name[64], *buf;
        unsigned names = 0, calls = 0;
        long n;
        int fd;

        mkdir("many", 0700);
        for (int i = 0; i < 40; i++) {
                snprintf(name, sizeof(name), "many/%0*d", 1 + i, i);
                close(open(name, O_CREAT | O_WRONLY, 0600));
        }
        fd = open("many", O_RDONLY | O_DIRECTORY);
        buf = across(72);
        while ((n = syscall(SYS_getdents64, fd, buf, 72)) > 0) {
                calls++;
                for (long at = 0; at < n; at += ((struct dirent64 *)(void *)(buf + at))->d_reclen)
                        names++;
        }
        printf("%u names, then %ld; one by one: %d\n", names, n, calls > 20);
        lseek(fd, 0, SEEK_SET);
        names = 0;
        buf = edge(66);
        while ((n = syscall(SYS_getdents, fd, buf, 66)) > 0)
                for (long at = 0; at < n; at += *(unsigned short *)(void *)(buf + at + 16))
                        names++;
        printf("%u names, then %ld\n", names, n);
        lseek(fd, 0, SEEK_SET);
        FAILS(EINVAL, syscall(SYS_getdents64, fd, buf, 10));
        FAILS(EINVAL, syscall(SYS_getdents64, fd, buf, 0));
        for (int i = 0; i < 40; i++) {
                snprintf(name, sizeof(name), "many/%0*d", 1 + i, i);
                unlink(name);
        }
        rmdir("many");
        close(fd);
}

/* ---- everything far ---- */

static void test_far(void)
{
        char *path = across(300),
             *to = mmap(NULL, 64 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct stat *st = across(sizeof(*st));
        int fd;

        memset(path, '/', 290);
        memcpy(path, "./", 2);
        strcpy(path + 290, "far");
        forget();
        fd = open(path, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0);
        for (int i = 0; i < 64 * PG; i++)
                to[i] = (char)(i ^ i >> 8);
        forget();
        T(write(fd, to + 5, 63 * PG + 1));
        memset(to, 0, 64 * PG);
        forget();
        T(pread(fd, to + 100, 63 * PG, 1));
        printf("sum %u\n", sum(to, 64 * PG));
        forget();
        T(fstat(fd, st));
        printf("size %ld\n", (long)st->st_size);
        forget();
        T(readlink("/proc/self/exe", to + PG - 3, 6));
        /* A timeout, a set and a mask in three far pages. */
        struct timespec *ts = (void *)(to + PG - 8);
        *ts = (struct timespec){ 0, 1000 };
        memset(to + 3 * PG, 0, PG);
        forget();
        T(ppoll((void *)(to + 3 * PG), 1, ts, (void *)(to + 3 * PG + 2048)));
        close(fd);
        unlink("far");
        munmap(to, 64 * PG);
}

/* process_vm_readv and process_vm_writev: on this process and an ended one, and the checks in their
 * order. */
static void test_process_vm(void)
{
        char *a = pages, *b = pages + PG;
        pid_t pid = getpid();
        struct iovec l[2] = { { b, 10 }, { b + 100, 20 } },
                     r[3] = { { a, 5 }, { a + 50, 0 }, { a + 10, 25 } };
        struct iovec over = { nothing - 4, 8 }, to = { read_only, 8 }, minus = { a, (size_t)-1 },
                     none = { a, 0 };

        for (int i = 0; i < 200; i++)
                a[i] = (char)i;
        memset(b, 0, 200);
        T(process_vm_readv(pid, l, 2, r, 3, 0));
        printf("sum %u\n", sum(b, 200));
        T(process_vm_readv((pid_t)syscall(SYS_gettid), l, 1, r, 3, 0));
        T(process_vm_writev(pid, r, 3, l, 2, 0));
        printf("sum %u\n", sum(a, 200));
        /* Up to the first byte that is not accessible, at either side. */
        T(process_vm_readv(pid, l, 2, &over, 1, 0));
        T(process_vm_readv(pid, &over, 1, r, 3, 0));
        FAILS(EFAULT, process_vm_writev(pid, l, 2, &to, 1, 0));
        T(process_vm_readv(pid, l, 1, &to, 1, 0));
        FAILS(EFAULT, process_vm_readv(pid, l, 1, &(struct iovec){ nothing, 1 }, 1, 0));
        FAILS(EFAULT, process_vm_readv(pid, l, 1, &(struct iovec){ (void *)-4096, 1 }, 1, 0));
        /* What is refused first. */
        FAILS(EINVAL, process_vm_readv(-1, (void *)1, 1, (void *)1, 1, 1));
        FAILS(EFAULT, process_vm_readv(-1, (void *)1, 1, r, 3, 0));
        FAILS(EINVAL, process_vm_readv(-1, l, 1025, r, 3, 0));
        FAILS(EINVAL, process_vm_readv(-1, &minus, 1, r, 3, 0));
        T(process_vm_readv(-1, &none, 1, (void *)1, 1, 0));
        FAILS(EINVAL, process_vm_readv(-1, l, 1, r, 1025, 0));
        FAILS(EFAULT, process_vm_readv(-1, l, 1, (void *)1, 3, 0));
        FAILS(EINVAL, process_vm_readv(-1, l, 1, &minus, 1, 0));
        T(process_vm_readv(-1, l, 1, &none, 1, 0));
        T(process_vm_readv(-1, l, 1, r, 0, 0));
        FAILS(ESRCH, process_vm_readv(-1, l, 1, r, 1, 0));
        FAILS(ESRCH, process_vm_readv(0, l, 1, r, 1, 0));
        FAILS(ESRCH, process_vm_writev(1073741824, l, 1, r, 1, 0));
}

int main(int argc, char **argv)
{
        setvbuf(stdout, NULL, _IOLBF, 0);
        if (scratch_begin(argc, argv, "t_sys_shapes"))
                return 2;
        test_control();
        test_vectors();
        test_queues();
        test_thousand();
        test_listing();
        test_far();
        test_process_vm();
        return scratch_end();
}
