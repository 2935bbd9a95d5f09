/*
 * Sockets, waiting (poll, select, epoll), event descriptors, signals without handlers, prctl,
 * futex, System V, /proc/self.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/if_packet.h>
#include <linux/futex.h>
#include <linux/vm_sockets.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include "t_sys.h"

static void test_unix(void)
{
        int s[2], d[2], got;
        char buf[64], ctl[CMSG_SPACE(8)];
        struct iovec iov[2] = { { "abc", 3 }, { "defg", 4 } };
        struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 }, *rm;
        struct cmsghdr *c;

        T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
        FAILS(EFAULT, socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)nothing));
        T(socketpair(AF_UNIX, SOCK_DGRAM, 0, d));
        T(sendmsg(s[0], &m, 0));
        T(recv(s[1], edge(7), 7, 0));
        CHECK(!memcmp(pages + 2 * PG - 7, "abcdefg", 7));
        /* A descriptor goes over. */
        memset(ctl, 0, sizeof(ctl));
        m.msg_control = ctl;
        m.msg_controllen = CMSG_LEN(4);
        c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){ CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS };
        memcpy(CMSG_DATA(c), &d[0], 4);
        T(sendmsg(s[0], &m, 0));
        memset(ctl, 0, sizeof(ctl));
        rm = across(sizeof(*rm));
        *rm = (struct msghdr){ .msg_iov = &(struct iovec){ buf, sizeof(buf) },
                               .msg_iovlen = 1,
                               .msg_control = ctl,
                               .msg_controllen = sizeof(ctl) };
        T(recvmsg(s[1], rm, MSG_CMSG_CLOEXEC));
        printf("flags %x controllen %zu\n", rm->msg_flags, rm->msg_controllen);
        memcpy(&got, CMSG_DATA((struct cmsghdr *)ctl), 4);
        printf("got fd %d\n", got);
        T(write(got, "through", 7));
        T(read(d[1], buf, 3));
        CHECK(!memcmp(buf, "thr", 3));
        T(fcntl(got, F_GETFD));
        T(close(got));
        int bad = 5000;
        c = (void *)ctl;
        *c = (struct cmsghdr){ CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS };
        memcpy(CMSG_DATA(c), &bad, 4);
        m.msg_controllen = CMSG_LEN(4);
        FAILS(EBADF, sendmsg(s[0], &m, 0));
        m.msg_control = nothing;
        FAILS(EFAULT, sendmsg(s[0], &m, 0));
        m.msg_control = NULL;
        m.msg_controllen = 0;
        iov[1].iov_base = nothing;
        FAILS(EFAULT, sendmsg(d[0], &m, 0));
        FAILS(EFAULT, sendmsg(s[0], NULL, 0));
        FAILS(ENOTSOCK, sendmsg(1, NULL, 0));
        FAILS(EBADF, recvmsg(99, NULL, 0));
        /* Datagrams keep their borders, whatever their length. */
        char *big = calloc(1, 150000);
        memset(big, 7, 150000);
        T(setsockopt(d[0], SOL_SOCKET, SO_SNDBUF, &(int){ 400000 }, 4));
        T(send(d[0], big, 150000, 0));
        T(send(d[0], "x", 1, 0));
        memset(big, 0, 150000);
        T(recv(d[1], big, 150000, 0));
        printf("sum %u\n", sum(big, 150000));
        T(recv(d[1], big, 150000, 0));
        T(send(d[0], "truncated", 9, 0));
        T(recv(d[1], big, 4, MSG_TRUNC));
        struct mmsghdr mm[3] = { 0 };
        struct iovec v[3] = { { "one", 3 }, { "three", 5 }, { "", 0 } };
        for (int i = 0; i < 3; i++) {
                mm[i].msg_hdr.msg_iov = &v[i];
                mm[i].msg_hdr.msg_iovlen = 1;
        }
        T(sendmmsg(d[0], mm, 3, 0));
        printf("%u %u %u\n", mm[0].msg_len, mm[1].msg_len, mm[2].msg_len);
        for (int i = 0; i < 3; i++)
                v[i] = (struct iovec){ buf + 20 * i, 20 };
        T(recvmmsg(d[1], mm, 3, MSG_DONTWAIT, NULL));
        printf("%u %u %u\n", mm[0].msg_len, mm[1].msg_len, mm[2].msg_len);
        FAILS(EAGAIN, recvmmsg(d[1], mm, 3, MSG_DONTWAIT, NULL));
        T(shutdown(s[0], SHUT_WR));
        T(read(s[1], buf, 10));
        free(big);
        for (int i = 0; i < 2; i++) {
                close(s[i]);
                close(d[i]);
        }
}

static void test_inet(void)
{
        struct sockaddr_in *a = across(sizeof(*a)), b;
        socklen_t *len = edge(4), n;
        int l, c, s, one = 1;
        char buf[2000];

        l = T(socket(AF_INET, SOCK_STREAM, 0));
        FAILS(EINVAL, socket(AF_INET, 99, 0));
        T(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
        FAILS(EFAULT, setsockopt(l, SOL_SOCKET, SO_REUSEADDR, nothing, 4));
        FAILS(EINVAL, setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, 1));
        *a = (struct sockaddr_in){ .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        T(bind(l, (void *)a, sizeof(*a)));
        FAILS(EINVAL, bind(l, (void *)a, 1000000));
        FAILS(EINVAL, bind(l, (void *)a, -1));
        FAILS(EFAULT, bind(l, (void *)nothing, 16));
        T(listen(l, 5));
        *len = sizeof(b);
        T(getsockname(l, (void *)&b, len));
        CHECK(*len == sizeof(b) && b.sin_port);
        *len = 2;
        T(getsockname(l, (void *)edge(2), (memcpy(pages, len, 0), n = 2, &n)));
        printf("len %u\n", n);
        FAILS(EFAULT, getsockname(l, (void *)&b, (void *)nothing));
        FAILS(EINVAL, getsockname(l, (void *)&b, (n = (socklen_t)-1, &n)));
        c = T(socket(AF_INET, SOCK_STREAM, 0));
        FAILS(EFAULT, connect(c, (void *)nothing, sizeof(b)));
        if (T(connect(c, (void *)&b, sizeof(b))) < 0) {
                printf("no loopback interface\n");
                close(l);
                close(c);
                return;
        }
        n = sizeof(*a);
        a = across(sizeof(*a));
        s = T(accept4(l, (void *)a, &n, SOCK_CLOEXEC));
        CHECK(a->sin_family == AF_INET && n == sizeof(*a));
        T(send(c, "hello", 5, 0));
        n = sizeof(b);
        T(recvfrom(s, buf, 100, 0, (void *)&b, &n));
        FAILS(EAGAIN, recv(s, buf, 100, MSG_DONTWAIT));
        T(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
        n = 4;
        T(getsockopt(c, IPPROTO_TCP, TCP_NODELAY, across(4), &n));
        n = 2;
        T(getsockopt(c, SOL_SOCKET, SO_TYPE, edge(2), &n));
        printf("len %u\n", n);
        FAILS(EFAULT, getsockopt(c, SOL_SOCKET, SO_TYPE, &one, NULL));
        FAILS(EFAULT, getsockopt(c, SOL_SOCKET, SO_TYPE, nothing, (n = 4, &n)));
        /* Thrown away without a place to put it. */
        T(send(c, "12345678", 8, 0));
        T(recv(s, NULL, 6, MSG_TRUNC));
        T(recv(s, buf, 100, 0));
        /*
         * Options whose value says what is asked for, or whose length comes back with an error; one
         * beside others that are refused.
         */
        n = 0;
        T(getsockopt(c, SOL_IP, 80 /* SO_ORIGINAL_DST */, buf, &n) < 0);
        T(close(c));
        T(read(s, buf, 10));
        T(close(s));
        T(close(l));
        l = socket(AF_PACKET, SOCK_RAW, 0);
        for (int version = 0; version < 4;
             version++) { /* a user may have no such socket: EBADF then */
                int value = version;
                n = 4;
                T(getsockopt(l, SOL_PACKET, 11 /* PACKET_HDRLEN */, &value, &n));
                printf("header %d\n", value);
        }
        close(l);
        if (geteuid() == 0) {
                gid_t old[64], some[] = { 1, 2, 3 };
                int groups = getgroups(64, old), pair[2];
                setgroups(3, some);
                socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
                setgroups((size_t)groups, old);
                n = 4;
                FAILS(ERANGE, getsockopt(pair[0], SOL_SOCKET, 59 /* SO_PEERGROUPS */, buf, &n));
                printf("needs %u\n", n);
                T(getsockopt(pair[0], SOL_SOCKET, 59, buf, &n));
                close(pair[0]);
                close(pair[1]);
        }
        /* UDP */
        l = socket(AF_INET, SOCK_DGRAM, 0);
        c = socket(AF_INET, SOCK_DGRAM, 0);
        b = (struct sockaddr_in){ .sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        bind(l, (void *)&b, sizeof(b));
        n = sizeof(b);
        getsockname(l, (void *)&b, &n);
        T(sendto(c, "datagram", 8, 0, (void *)&b, sizeof(b)));
        FAILS(EFAULT, sendto(c, nothing, 8, 0, (void *)&b, sizeof(b)));
        FAILS(EMSGSIZE,
              sendto(c, memset(malloc(70000), 0, 70000), 70000, 0, (void *)&b, sizeof(b)));
        a = across(sizeof(*a));
        n = sizeof(*a);
        T(recvfrom(l, buf, sizeof(buf), 0, (void *)a, &n));
        CHECK(n == sizeof(*a) && a->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        T(ioctl(l, FIONREAD, edge(4)));
        /* Interfaces */
        struct ifreq *ifr = across(sizeof(*ifr)), list[32];
        strcpy(ifr->ifr_name, "lo");
        T(ioctl(l, SIOCGIFFLAGS, ifr) < 0);
        CHECK(ifr->ifr_flags & IFF_LOOPBACK);
        struct ifconf ifc = { .ifc_len = sizeof(list), .ifc_req = list };
        T(ioctl(l, SIOCGIFCONF, &ifc));
        CHECK(ifc.ifc_len >= (int)sizeof(list[0]) && ifc.ifc_req == list);
        ifc.ifc_req = NULL;
        T(ioctl(l, SIOCGIFCONF, &ifc));
        FAILS(EFAULT, ioctl(l, SIOCGIFCONF, nothing));
        close(l);
        close(c);
        /* Where there are no such sockets, both say EBADF. */
        uint32_t *cid = edge(sizeof(*cid));
        l = open("/dev/vsock", O_RDONLY);
        T(ioctl(l, IOCTL_VM_SOCKETS_GET_LOCAL_CID, cid));
        printf("local address %u\n", *cid);
        T(ioctl(l, IOCTL_VM_SOCKETS_GET_LOCAL_CID, nothing));
        close(l);
}

static void test_wait(void)
{
        int p[2], e;
        struct pollfd *f = across(2 * sizeof(*f));
        struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 0x1122334455667788 },
                           *evs = across(4 * sizeof(*evs));
        fd_set *r = across(sizeof(*r)), w;
        struct timeval tv = { 5, 0 };
        struct timespec ts = { 0, 1000000 };
        sigset_t none;

        sigemptyset(&none);
        pipe(p);
        f[0] = (struct pollfd){ p[0], POLLIN, 77 };
        f[1] = (struct pollfd){ p[1], POLLOUT, 77 };
        T(poll(f, 2, 0));
        printf("revents %d %d\n", f[0].revents, f[1].revents);
        f[1].fd = 9999;
        T(poll(f, 2, 0));
        printf("revents %d %d fd %d\n", f[0].revents, f[1].revents, f[1].fd);
        f[1].fd = -5;
        T(poll(f, 2, 1));
        printf("revents %d %d fd %d\n", f[0].revents, f[1].revents, f[1].fd);
        T(poll(NULL, 0, 1));
        FAILS(EFAULT, poll((void *)nothing, 1, 0));
        FAILS(EINVAL, poll(f, 100000000, 0));
        T(ppoll(f, 1, &ts, &none));
        FAILS(EINVAL, syscall(SYS_ppoll, f, 1, &ts, &none, 5));
        T(write(p[1], "x", 1));
        T(ppoll(f, 1, NULL, NULL));
        FD_ZERO(r);
        FD_ZERO(&w);
        FD_SET(p[0], r);
        FD_SET(p[1], &w);
        T(select(p[1] + 1, r, &w, NULL, &tv));
        printf("%d %d\n", FD_ISSET(p[0], r), FD_ISSET(p[1], &w));
        /* Linux ignores bits beyond the process's table, which has 64 places at least. */
        FD_SET(60, r);
        FAILS(EBADF, select(61, r, NULL, NULL, &tv));
        FAILS(EFAULT, select(5, (void *)nothing, NULL, NULL, NULL));
        FAILS(EINVAL, select(-1, NULL, NULL, NULL, NULL));
        tv = (struct timeval){ 0, 1000 };
        T(select(0, NULL, NULL, NULL, &tv));
        printf("left %ld\n", tv.tv_sec + tv.tv_usec);
        T(pselect(0, NULL, NULL, NULL, &ts, &none));
        e = T(epoll_create1(EPOLL_CLOEXEC));
        FAILS(EINVAL, epoll_create(0));
        T(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev));
        FAILS(EEXIST, epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev));
        FAILS(EFAULT, epoll_ctl(e, EPOLL_CTL_MOD, p[0], (void *)nothing));
        FAILS(EBADF, epoll_ctl(e, EPOLL_CTL_ADD, 9999, &ev));
        FAILS(EPERM, epoll_ctl(e, EPOLL_CTL_ADD, open("/etc/passwd", O_RDONLY), &ev));
        T(epoll_wait(e, evs, 4, 1000));
        printf("event %x %lx\n", evs[0].events, evs[0].data.u64);
        FAILS(EFAULT, epoll_wait(e, (void *)nothing, 4, 0));
        FAILS(EINVAL, epoll_wait(e, evs, 0, 0));
        FAILS(EINVAL, epoll_wait(e, evs, -1, 0));
        T(epoll_pwait(e, evs, 4, 0, &none));
        T(epoll_pwait2(e, (struct epoll_event *)edge(12), 1, &ts, NULL));
        T(epoll_wait(e, (struct epoll_event *)edge(12), 100, 0));
        T(close(e));
        close(p[0]);
        close(p[1]);
}

static void test_event_fds(void)
{
        uint64_t *v = across(8);
        sigset_t set, old;
        struct signalfd_siginfo *si = across(sizeof(*si));
        siginfo_t *info = across(sizeof(*info));
        struct itimerspec its = { { 0, 0 }, { 0, 1000000 } };
        int e = T(eventfd(3, EFD_NONBLOCK)), t, s, i;

        T(read(e, v, 8));
        printf("%lu\n", *v);
        FAILS(EAGAIN, read(e, v, 8));
        FAILS(EINVAL, read(e, v, 4));
        *v = 9;
        T(write(e, v, 8));
        FAILS(EFAULT, write(e, nothing, 8));
        t = T(timerfd_create(CLOCK_MONOTONIC, 0));
        T(timerfd_settime(t, 0, &its, across(sizeof(its))));
        T(read(t, edge(8), 8));
        FAILS(EFAULT, timerfd_settime(t, 0, (void *)nothing, NULL));
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGRTMIN + 3);
        T(sigprocmask(SIG_BLOCK, &set, &old));
        CHECK(!sigismember(&old, SIGSTKFLT));
        s = T(signalfd(-1, &set, SFD_NONBLOCK));
        FAILS(EAGAIN, read(s, si, sizeof(*si)));
        T(kill(getpid(), SIGUSR1));
        T(sigpending(&old));
        printf("pending %d\n", sigismember(&old, SIGUSR1));
        T(read(s, si, sizeof(*si)));
        printf("signo %u\n", si->ssi_signo);
        T(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){ .sival_int = 1234 }));
        T(sigwaitinfo(&set, info));
        printf("value %d\n", info->si_value.sival_int);
        FAILS(EAGAIN, sigtimedwait(&set, info, &(struct timespec){ 0, 1000 }));
        FAILS(EFAULT, syscall(SYS_rt_sigtimedwait, nothing, NULL, NULL, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigprocmask, SIG_BLOCK, nothing, NULL, 8));
        FAILS(EINVAL, syscall(SYS_rt_sigprocmask, 77, &set, NULL, 8));
        FAILS(EINVAL, syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 4));
        sigfillset(&set);
        T(sigprocmask(SIG_SETMASK, &set, NULL));
        T(sigprocmask(SIG_UNBLOCK, &set, NULL));
        struct sigaction act = { .sa_handler = SIG_IGN, .sa_flags = SA_RESTART }, was;
        T(sigaction(SIGUSR2, &act, NULL));
        T(sigaction(SIGUSR2, NULL, &was));
        printf("ignored %d flags %x\n", was.sa_handler == SIG_IGN, was.sa_flags & ~0x04000000);
        T(kill(getpid(), SIGUSR2));
        T(raise(SIGUSR2));
        act.sa_handler = SIG_DFL;
        T(sigaction(SIGSEGV, &act, NULL));
        FAILS(EINVAL, sigaction(SIGKILL, &act, NULL));
        FAILS(EINVAL, syscall(SYS_rt_sigaction, 65, &act, NULL, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigaction, SIGUSR1, nothing, NULL, 8));
        stack_t ss = { .ss_sp = pages, .ss_size = 2 * PG }, oss;
        T(sigaltstack(&ss, NULL));
        T(sigaltstack(NULL, &oss));
        CHECK(oss.ss_sp == pages && oss.ss_size == 2 * PG && oss.ss_flags == 0);
        ss.ss_size = 10;
        FAILS(ENOMEM, sigaltstack(&ss, NULL));
        ss.ss_flags = SS_DISABLE;
        T(sigaltstack(&ss, NULL));
        FAILS(ESRCH, kill(0x3fffffff, 0));
        i = T(inotify_init1(IN_NONBLOCK));
        T(inotify_add_watch(i, "/tmp", IN_DELETE_SELF));
        FAILS(EFAULT, inotify_add_watch(i, nothing, IN_CREATE));
        FAILS(EAGAIN, read(i, pages, 4096));
        close(e);
        close(t);
        close(s);
        close(i);
}

static void test_process(void)
{
        char name[16], *edge16;
        uint32_t *word = edge(4);
        struct timespec ts = { 0, 1000000 };

        T(prctl(PR_SET_NAME, "a name longer than fifteen"));
        T(prctl(PR_GET_NAME, name));
        printf("%s\n", name);
        edge16 = edge(3);
        strcpy(edge16, "ab");
        T(prctl(PR_SET_NAME, edge16));
        T(prctl(PR_GET_NAME, name));
        printf("%s\n", name);
        FAILS(EFAULT, prctl(PR_SET_NAME, nothing));
        FAILS(EFAULT, prctl(PR_GET_NAME, nothing));
        T(prctl(PR_GET_DUMPABLE));
        T(prctl(PR_SET_PDEATHSIG, 0));
        FAILS(EINVAL, prctl(9999));
        *word = 5;
        FAILS(EAGAIN, syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 4, NULL));
        FAILS(ETIMEDOUT, syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 5, &ts));
        FAILS(ETIMEDOUT,
              syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 5, &ts, NULL, -1));
        FAILS(EFAULT, syscall(SYS_futex, nothing, FUTEX_WAIT, 5, NULL));
        FAILS(EINVAL, syscall(SYS_futex, (char *)word + 1, FUTEX_WAIT, 5, NULL));
        FAILS(EINVAL, syscall(SYS_futex, word, FUTEX_WAIT_BITSET, 5, NULL, NULL, 0));
        T(syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1));
        T(syscall(SYS_futex, word, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, 1, pages, 5));
        FAILS(EAGAIN,
              syscall(SYS_futex, word, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, 1, pages, 6));
        T(syscall(SYS_futex, pages, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, 1, word,
                  FUTEX_OP(FUTEX_OP_ADD, 7, FUTEX_OP_CMP_EQ, 5)));
        printf("word %u\n", *word);
        CHECK(syscall(SYS_set_tid_address, pages) == syscall(SYS_gettid));
        T(geteuid() == getuid());
        gid_t groups[200];
        int n = getgroups(0, NULL);
        CHECK(getgroups(200, groups) == n);
        FAILS(EINVAL, getgroups(-1, groups));
        uid_t r, e, s;
        T(getresuid(&r, &e, &s));
        FAILS(EFAULT, syscall(SYS_getresuid, &r, nothing, &s));
        /* In a PID namespace, the leader of the session may be outside: 0. */
        CHECK(getpgid(0) == getpgrp() && getsid(0) >= 0);
        uint32_t head[2] = { 0x20080522, 0 }, data[6];
        T(syscall(SYS_capget, head, data));
        head[0] = 1;
        FAILS(EINVAL, syscall(SYS_capget, head, data));
        printf("version %x\n", head[0]);
        FAILS(EFAULT, syscall(SYS_capget, NULL, data));
}

static void test_sysv(void)
{
        struct { long type; char text[20]; } *m = across(sizeof(*m));
        struct msqid_ds ds;
        unsigned short vals[2] = { 4, 5 };
        int q = msgget(IPC_PRIVATE, 0600), s = semget(IPC_PRIVATE, 2, 0600);

        if (q < 0 || s < 0) {
                printf("no System V\n");
                return;
        }
        m->type = 3;
        strcpy(m->text, "message");
        T(msgsnd(q, m, 8, 0));
        FAILS(EFAULT, msgsnd(q, nothing, 8, 0));
        T(msgctl(q, IPC_STAT, &ds));
        printf("%lu\n", ds.msg_qnum);
        m = memset(m, 0, sizeof(*m));
        T(msgrcv(q, m, 20, 0, 0));
        printf("%ld %s\n", m->type, m->text);
        T(msgsnd(q, m, 8, 0));
        FAILS(EINVAL, msgrcv(q, m, -1ul, 0, 0));
        T(syscall(SYS_msgrcv, q, m, (1ul << 32) + 5, 0, 0));
        FAILS(ENOMSG, msgrcv(q, m, 20, 0, IPC_NOWAIT));
        T(msgctl(q, IPC_RMID, NULL));
        T(semctl(s, 0, SETALL, vals));
        T(semctl(s, 1, GETVAL));
        T(semop(s, &(struct sembuf){ 0, -3, 0 }, 1));
        T(semctl(s, 0, GETALL, across(4)));
        printf("%u\n", sum(pages + PG - 2, 4));
        FAILS(EAGAIN, semop(s, &(struct sembuf){ 0, -3, IPC_NOWAIT }, 1));
        FAILS(EFAULT, semop(s, (void *)nothing, 1));
        T(semctl(s, 0, IPC_RMID));
}

static void test_proc(char **argv)
{
        char path[4096], real[4096], line[4096];
        struct stat a, b;
        ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
        int fd, found = 0, stack = 0;
        FILE *f;

        CHECK(n > 0);
        path[n > 0 ? n : 0] = 0;
        CHECK(realpath(argv[0], real) && !strcmp(real, path));
        CHECK(readlink("//proc/./self/exe", line, sizeof(line)) == n);
        snprintf(line, sizeof(line), "/proc/%d/exe", getpid());
        CHECK(readlink(line, real, sizeof(real)) == n);
        CHECK(readlink("/proc/self/exe", edge(3), 3) == 3);
        CHECK(!lstat("/proc/self/exe", &a) && S_ISLNK(a.st_mode));
        FAILS(EFAULT, readlink("/proc/self/exe", nothing, 100));
        CHECK(!stat("/proc/self/exe", &a) && !stat(path, &b) && a.st_ino == b.st_ino);
        fd = open("/proc/self", O_PATH);
        CHECK(readlinkat(fd, "exe", line, sizeof(line)) == n);
        close(fd);
        fd = T(open("/proc/self/exe", O_RDONLY));
        CHECK(read(fd, line, 4) == 4 && !memcmp(line, "\177ELF", 4) && !fstat(fd, &a) &&
              a.st_ino == b.st_ino);
        close(fd);
        f = fopen("/proc/self/maps", "r");
        CHECK(f);
        while (f && fgets(line, sizeof(line), f)) {
                unsigned long from, to, off, ino;
                char perm[5], name[4096] = "";
                unsigned ma, mi;
                CHECK(sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %4095s", &from, &to, perm, &off, &ma,
                             &mi, &ino, name) >= 7);
                if (!strcmp(name, path) && strchr(perm, 'x') && (char *)test_proc >= (char *)from &&
                    (char *)test_proc < (char *)to) {
                        CHECK(ino == b.st_ino);
                        found = 1;
                }
                if (!strcmp(name, "[stack]") && (char *)line >= (char *)from &&
                    (char *)line < (char *)to)
                        stack = 1;
        }
        printf("maps: program %d stack %d\n", found, stack);
        if (f)
                fclose(f);
        fd = T(open("/proc/meminfo", O_RDONLY));
        CHECK(read(fd, line, 100) == 100 && !strncmp(line, "MemTotal: ", 10));
        close(fd);
        f = fopen("/proc/self/cmdline", "r");
        CHECK(f && fgets(line, sizeof(line), f) && !strcmp(line, argv[0]));
        fclose(f);
}

static const char *outcome(int result) { return result ? strerrorname_np(errno) : "ok"; }

/* Refused, because there is a pointer in it, or because the kernel would map the program's pages:
 * docs/syscalls.md. */
static bool is_refused(int level, int opt)
{
        return (level == IPPROTO_IP && opt >= 64 && opt < 80) ||
               (level == IPPROTO_IPV6 && (opt == 64 || opt == 65 || opt == 68 || opt == 69)) ||
               (level == SOL_SOCKET && (opt == SO_ZEROCOPY || opt == SO_GET_FILTER)) ||
               (level == IPPROTO_TCP && opt == 35);
}

/* Whatever number an option has, it is set and told as natively. */
static void test_options(void)
{
        static const int levels[] = { SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP };
        int value, fd;
        socklen_t n;

        for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
                for (int opt = 1; opt < 90; opt++) {
                        if (is_refused(levels[i], opt))
                                continue;
                        CHECK((fd = socket(AF_INET6, SOCK_STREAM, 0)) >= 0);
                        value = 1;
                        n = sizeof(value);
                        printf("option %d of level %d: set %s", opt, levels[i],
                               outcome(setsockopt(fd, levels[i], opt, &value, n)));
                        printf(", get %s\n", outcome(getsockopt(fd, levels[i], opt, &value, &n)));
                        close(fd);
                }
}

int main(int argc, char **argv)
{
        (void)argc;
        setvbuf(stdout, NULL, _IOFBF, 1 << 16);
        memory_init();
        close_range(3, ~0U, 0);
        test_unix();
        test_inet();
        test_options();
        test_wait();
        close_range(3, ~0U, 0);
        test_event_fds();
        test_process();
        test_sysv();
        test_proc(argv);
        printf("failures %d\n", failures);
        return failures ? 1 : 0;
}
