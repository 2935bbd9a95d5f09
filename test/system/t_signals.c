/*
 * Signal handlers: every line it prints must be the same natively and under vmrun. Timers only end
 * waits; no output depends on when they do.
 *
 *   t_signals            all of it
 *   t_signals die N      dies in the n-th way, for a test of the status
 *   t_signals storm MS   timers against everything else, for so long
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define PG 4096
#define NOINLINE __attribute__((noinline))
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

typedef void action(int, siginfo_t *, void *);

static const char *error_name(int e) { return e ? strerrorname_np(e) : "ok"; }

/* A call and its result, as it was even where printing it disturbs errno. */
#define T(expr) do { errno = 0; long r_ = (long)(expr); int e_ = errno; \
        printf("%s: %ld %s\n", #expr, r_, r_ < 0 ? error_name(e_) : ""); } while (0)

static void on(int sig, action *f, int flags, ...)
{
        struct sigaction sa = { .sa_sigaction = f, .sa_flags = flags | SA_SIGINFO };
        va_list ap;

        va_start(ap, flags);
        for (int s; (s = va_arg(ap, int)) != 0; )
                sigaddset(&sa.sa_mask, s);
        va_end(ap);
        if (sigaction(sig, &sa, NULL))
                printf("sigaction %d: %s\n", sig, error_name(errno));
}

static sigset_t set_of(int a, int b)
{
        sigset_t s;

        sigemptyset(&s);
        if (a)
                sigaddset(&s, a);
        if (b)
                sigaddset(&s, b);
        return s;
}

/* The kernel's 64 bits of the thread's mask. */
static unsigned long mask_now(void)
{
        unsigned long m = 0;

        syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &m, 8);
        return m;
}

static void every(long us)
{
        const struct itimerval t = { .it_interval.tv_usec = us, .it_value.tv_usec = us };
        setitimer(ITIMER_REAL, &t, NULL);
}

static void once_after(long us)
{
        setitimer(ITIMER_REAL, &(struct itimerval){ .it_value.tv_usec = us }, NULL);
}

static volatile sig_atomic_t calls;
static void count_call(int sig, siginfo_t *si, void *uc) { (void)sig, (void)si, (void)uc, calls++; }

/* ---- siginfo and frames ---- */

static void show(int sig, siginfo_t *si, void *ctx)
{
        ucontext_t *uc = ctx;
        unsigned long mask;

        memcpy(&mask, &uc->uc_sigmask, 8);
        printf("  signal %d code %d errno %d, mine %d, value %d; mask in frame %lx, now %lx\n",
               si->si_signo, si->si_code, si->si_errno,
               si->si_code <= 0 && si->si_code != SI_TIMER
                       ? si->si_pid == getpid() && si->si_uid == getuid()
                       : -1,
               si->si_code == SI_QUEUE || si->si_code == SI_TIMER ? si->si_value.sival_int : -1,
               mask, mask_now());
        if (sig != si->si_signo)
                printf("  arguments differ\n");
}

/* What a frame looks like, but for addresses. */
static void show_frame(int sig, siginfo_t *si, void *ctx)
{
        ucontext_t *uc = ctx;
        greg_t *g = uc->uc_mcontext.gregs;
        unsigned char *fp = (unsigned char *)uc->uc_mcontext.fpregs;
        uint32_t magic1, extended, size, magic2 = 0;
        uint64_t features, bv = 0, rbp;
        unsigned long rsp = (unsigned long)g[REG_RSP];

        memcpy(&magic1, fp + 464, 4);
        memcpy(&extended, fp + 468, 4);
        memcpy(&features, fp + 472, 8);
        memcpy(&size, fp + 480, 4);
        if (size < 16384)
                memcpy(&magic2, fp + size, 4);
        memcpy(&bv, fp + 512, 8);
        printf("  signal %d: uc_flags %lx link %p csgsfs %lx\n", sig, uc->uc_flags,
               (void *)uc->uc_link, (long)g[REG_CSGSFS] & 0xffffffffffff);
        printf("  ss %lx oldmask %lx stack %p %lx flags %x\n", (long)g[REG_CSGSFS] >> 48 & 0xffff,
               (long)g[REG_OLDMASK], uc->uc_stack.ss_sp, (long)uc->uc_stack.ss_size,
               uc->uc_stack.ss_size ? uc->uc_stack.ss_flags : 0); /* else inherited, 0 or 2 */
        printf("  IF %d, DF %d; frame at %lu mod 16, fpstate at %lu mod 64\n",
               !!(g[REG_EFL] & 0x200), !!(g[REG_EFL] & 0x400), ((unsigned long)uc - 8) % 16,
               (unsigned long)fp % 64);
        printf("  magics %x %x, sizes agree %d, x87 and SSE %d %d\n", magic1, magic2,
               extended == size + 4, (int)(features & 3), (int)(bv & 3));
        printf("  red zone free %d, info behind the context %d\n",
               (unsigned long)fp + size + 4 <= rsp - 128, (char *)si - (char *)uc == 304);
        __asm__("pushfq; popq %0" : "=r"(rbp));
        printf("  in the handler: DF %d, return address %d\n", !!(rbp & 0x400),
               *(void **)((char *)uc - 8) != NULL);
}

static void test_info(void)
{
        puts("siginfo");
        on(SIGUSR1, show, 0, SIGUSR2, 0);
        T(raise(SIGUSR1));
        T(kill(getpid(), SIGUSR1));
        T(syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1));
        T(sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 42 }));
        on(SIGRTMIN + 1, show, SA_NODEFER, 0);
        timer_t id;
        struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL,
                               .sigev_signo = SIGRTMIN + 1,
                               .sigev_value.sival_int = 77 };
        const struct itimerspec in = { .it_value.tv_nsec = 1000000 };
        sigset_t s = set_of(SIGRTMIN + 1, 0), none = set_of(0, 0);
        sigprocmask(SIG_BLOCK, &s, NULL);
        T(timer_create(CLOCK_MONOTONIC, &ev, &id));
        T(timer_settime(id, 0, &in, NULL));
        T(sigsuspend(&none));
        timer_delete(id);
        sigprocmask(SIG_UNBLOCK, &s, NULL);
        on(SIGUSR1, show_frame, 0, 0);
        __asm__ volatile("std" ::: "cc");
        long r;
        __asm__ volatile("syscall"
                         : "=a"(r)
                         : "0"(SYS_tgkill), "D"((long)getpid()), "S"((long)getpid()), "d"(SIGUSR1)
                         : "rcx", "r11", "memory");
        uint64_t flags;
        __asm__ volatile("pushfq; popq %0; cld" : "=r"(flags) :: "cc");
        printf("direction flag kept: %d\n", !!(flags & 0x400));
}

/* ---- masks, nesting, flags ---- */

static int depth, rounds;
static void nested(int sig, siginfo_t *si, void *uc)
{
        (void)si, (void)uc;
        depth++;
        printf("  %*s> %d mask %lx\n", depth * 2, "", sig, mask_now());
        if (rounds++ < 5)
                raise(sig == SIGUSR1 ? SIGUSR2 : SIGUSR1);
        printf("  %*s< %d\n", depth * 2, "", sig);
        depth--;
}

static int raised_inside;
static void raises_itself(int sig, siginfo_t *si, void *uc)
{
        sigset_t p;

        (void)si, (void)uc;
        printf("  in %d (%d)\n", sig, raised_inside);
        if (raised_inside++ < 2) {
                raise(sig);
                sigpending(&p);
                printf("  raised again, pending %d\n", sigismember(&p, sig));
        }
}

static void test_masks(void)
{
        struct sigaction sa;
        sigset_t s, old, p;

        puts("masks and nesting");
        on(SIGUSR1, nested, 0, 0);
        on(SIGUSR2, nested, 0, 0);
        raise(SIGUSR1);
        rounds = 0;
        on(SIGUSR1, nested, 0, SIGUSR2, SIGINT, 0);
        raise(SIGUSR1);
        printf("mask after %lx\n", mask_now());
        raised_inside = 0;
        on(SIGUSR1, raises_itself, 0, 0);
        raise(SIGUSR1);
        raised_inside = 0;
        on(SIGUSR1, raises_itself, SA_NODEFER, 0);
        raise(SIGUSR1);
        on(SIGUSR1, show, SA_RESETHAND | SA_RESTART | SA_NODEFER, SIGTERM, 0);
        raise(SIGUSR1);
        sigaction(SIGUSR1, NULL, &sa);
        printf("after RESETHAND: default %d flags %x TERM in mask %d\n", sa.sa_handler == SIG_DFL,
               (unsigned)sa.sa_flags, sigismember(&sa.sa_mask, SIGTERM));
        on(SIGUSR1, show, (int)0x00ff0000, 0);
        sigaction(SIGUSR1, NULL, &sa);
        printf("flags the kernel keeps %x, the handler's own address %d\n", (unsigned)sa.sa_flags,
               sa.sa_sigaction == show);

        puts("pending and queued");
        s = set_of(SIGUSR1, SIGRTMIN + 2);
        sigprocmask(SIG_BLOCK, &s, &old);
        on(SIGRTMIN + 2, show, 0, 0);
        for (int i = 1; i <= 3; i++) {
                sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = i * 11 });
                raise(SIGUSR1);
        }
        sigpending(&p);
        printf("pending %d %d %d\n", sigismember(&p, SIGUSR1), sigismember(&p, SIGRTMIN + 2),
               sigismember(&p, SIGUSR2));
        T(sigprocmask(SIG_SETMASK, &old, NULL));
        sigpending(&p);
        printf("pending %d %d\n", sigismember(&p, SIGUSR1), sigismember(&p, SIGRTMIN + 2));
        raise(SIGSTOP - 19 + SIGURG);   /* ignored by default */
        signal(SIGUSR1, SIG_IGN);
        T(raise(SIGUSR1));
        sigprocmask(SIG_BLOCK, &s, NULL);
        on(SIGUSR1, show, 0, 0);
        raise(SIGUSR1);
        signal(SIGUSR1, SIG_IGN);       /* forgets it */
        on(SIGUSR1, show, 0, 0);
        T(sigprocmask(SIG_SETMASK, &old, NULL));
}

/* ---- waits ---- */

static int pipe_fds[2];
static int ticks, ticks_until_write;
static void tick(int sig, siginfo_t *si, void *uc)
{
        (void)sig, (void)si, (void)uc;
        if (++ticks == ticks_until_write)
                (void)!write(pipe_fds[1], "x", 1);
}

static void test_waits(int flags)
{
        struct pollfd pf;
        char c[4];
        struct timespec long_time = { .tv_sec = 1000 }, left = { 0 };
        struct timeval tv = { .tv_sec = 1000 };
        fd_set fds;
        int ep = epoll_create1(0);
        struct epoll_event ev = { .events = EPOLLIN };

        printf("waits, SA_RESTART %d\n", !!flags);
        (void)!pipe(pipe_fds);
        pf = (struct pollfd){ .fd = pipe_fds[0], .events = POLLIN };
        epoll_ctl(ep, EPOLL_CTL_ADD, pipe_fds[0], &ev);
        on(SIGALRM, tick, flags, 0);
        every(20000);
        ticks = 0;
        /* Without SA_RESTART the first tick ends it: poll would find the byte of a later tick. */
        ticks_until_write = flags ? 3 : 0;
        T(read(pipe_fds[0], c, 4));
        ticks_until_write = 0;
        printf("ticks seen %d\n", flags ? ticks >= 3 : ticks >= 1);
        /* Linux takes the number from EAX, also of a call that is made again. */
        ticks = 0;
        ticks_until_write = flags ? 3 : 0;
        T(syscall(1l << 32 | SYS_read, pipe_fds[0], c, 4));
        ticks_until_write = 0;
        T(poll(&pf, 1, -1));
        T(poll(&pf, 1, 100000));
        T(pause());
        T(nanosleep(&long_time, &left));
        printf("time left %d\n", left.tv_sec >= 900 && left.tv_sec < 1000);
        T(clock_nanosleep(CLOCK_REALTIME, 0, &long_time, &left));
        FD_ZERO(&fds);
        FD_SET(pipe_fds[0], &fds);
        T(select(pipe_fds[0] + 1, &fds, NULL, NULL, &tv));
        T(epoll_wait(ep, &ev, 1, -1));
        sigset_t s = set_of(SIGUSR1, 0), none = set_of(0, 0);
        T(sigsuspend(&s));
        T(sigtimedwait(&s, NULL, &long_time));
        T(sigwaitinfo(&s, NULL));
        T(ppoll(&pf, 1, NULL, &none));
        /* A message that does not fit is sent in part, with SA_RESTART too. */
        static char message[64 << 10];
        int s2[2], room = 4096;
        (void)!socketpair(AF_UNIX, SOCK_STREAM, 0, s2);
        setsockopt(s2[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        long sent = send(s2[0], message, sizeof(message), 0);
        printf("sent in part %d\n", sent > 0 && sent < (long)sizeof(message));
        static uint32_t word;
        if (!flags) {           /* else they would never end */
                T(send(s2[0], message, sizeof(message), 0));
                T(syscall(SYS_futex, &word, 0, 0, NULL, NULL, 0));
        }
        every(0);
        close(s2[0]);
        close(s2[1]);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        close(ep);
}

static void masked(int sig, siginfo_t *si, void *ctx)
{
        unsigned long m;

        (void)si;
        memcpy(&m, &((ucontext_t *)ctx)->uc_sigmask, 8);
        printf("  %d: mask in frame %lx, now %lx\n", sig, m, mask_now());
}

static void test_waits_with_mask(void)
{
        sigset_t both = set_of(SIGUSR1, SIGUSR2), one = set_of(SIGUSR2, 0), none = set_of(0, 0),
                 old;
        const struct timespec now = { 0 };
        struct epoll_event ev;
        int ep = epoll_create1(0);
        siginfo_t si;

        puts("waits with a mask of their own");
        on(SIGUSR1, masked, 0, SIGINT, 0);
        on(SIGUSR2, masked, 0, SIGTERM, 0);
        sigprocmask(SIG_BLOCK, &both, &old);
        raise(SIGUSR1), raise(SIGUSR2);
        T(sigsuspend(&none));
        raise(SIGUSR1), raise(SIGUSR2);
        T(sigsuspend(&one));
        printf("mask %lx\n", mask_now());
        T(ppoll(NULL, 0, NULL, &none));
        raise(SIGUSR1);
        T(pselect(0, NULL, NULL, NULL, NULL, &none));
        raise(SIGUSR1);
        T(epoll_pwait(ep, &ev, 1, -1, &none));
        raise(SIGUSR1);
        T(sigtimedwait(&both, &si, &now));
        printf("got %d\n", si.si_signo);
        T(sigtimedwait(&both, &si, &now));
        sigqueue(getpid(), SIGUSR2, (union sigval){ .sival_int = 5 });
        T(sigwaitinfo(&both, &si));
        printf("value %d code %d\n", si.si_value.sival_int, si.si_code);
        int fd = signalfd(-1, &both, SFD_NONBLOCK);
        struct signalfd_siginfo fdsi;
        T(read(fd, &fdsi, sizeof(fdsi)));
        sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 6 });
        T(read(fd, &fdsi, sizeof(fdsi)));
        printf("signalfd: %d value %d\n", fdsi.ssi_signo, fdsi.ssi_int);
        close(fd);
        close(ep);
        sigprocmask(SIG_SETMASK, &old, NULL);
        on(SIGPIPE, masked, SA_RESTART, 0);
        (void)!pipe(pipe_fds);
        close(pipe_fds[0]);
        T(write(pipe_fds[1], "x", 1));
        close(pipe_fds[1]);
}

/* ---- a loop without system calls, and the extended state ---- */

static volatile sig_atomic_t stop;
static uint32_t mxcsr_seen;
static uint16_t fcw_seen;
static int has_avx;
static void clobber(int sig, siginfo_t *si, void *uc)
{
        (void)sig, (void)si, (void)uc;
        const uint32_t mxcsr = 0x5f80;
        const uint16_t fcw = 0x7f;

        __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr_seen), "=m"(fcw_seen));
        __asm__ volatile("ldmxcsr %0; fninit; fldcw %1; fldpi" :: "m"(mxcsr), "m"(fcw));
        if (has_avx)
                __asm__ volatile("vzeroall" ::
                                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                                           "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
                                           "xmm13", "xmm14", "xmm15");
        else
                __asm__ volatile(
                        "pxor %%xmm0, %%xmm0; pxor %%xmm7, %%xmm7; pxor %%xmm15, %%xmm15" ::
                                : "xmm0", "xmm7", "xmm15");
        __asm__ volatile("fninit");
        calls++;
        stop = 1;
}

struct vectors { unsigned char r[16][32]; } __attribute__((aligned(64)));

#define EACH(op, suffix) \
        op(0, suffix) op(1, suffix) op(2, suffix) op(3, suffix) op(4, suffix) op(5, suffix) \
                op(6, suffix) op(7, suffix) op(8, suffix) op(9, suffix) op(10, suffix) \
                        op(11, suffix) op(12, suffix) op(13, suffix) op(14, suffix) op(15, suffix)
#define LOAD_YMM(n, x) "vmovdqu " #n "*32(%[in]), %%ymm" #n "\n"
#define STORE_YMM(n, x) "vmovdqu %%ymm" #n ", " #n "*32(%[out])\n"
#define LOAD_XMM(n, x) "movdqu " #n "*32(%[in]), %%xmm" #n "\n"
#define STORE_XMM(n, x) "movdqu %%xmm" #n ", " #n "*32(%[out])\n"
/* Either makes a system call that raises a signal, or spins until a handler ran. */
#define WAIT "test %%rax, %%rax\n js 1f\n syscall\n jmp 2f\n1: cmpl $0, (%[stop])\n je 1b\n2:\n"
#define CLOBBERED                                                        \
        "rcx", "r11", "memory", "cc",                                    \
        "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",  \
        "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

static void hold_vectors(const struct vectors *in, struct vectors *out, long nr)
{
        register const void *in_ __asm__("r12") = in;
        register void *out_ __asm__("r13") = out;
        register volatile void *stop_ __asm__("r14") = &stop;
        long rax = nr;

        if (has_avx)
                __asm__ volatile(EACH(LOAD_YMM, ) WAIT EACH(STORE_YMM, )
                                 : "+a"(rax)
                                 : [in] "r"(in_), [out] "r"(out_), [stop] "r"(stop_),
                                   "D"((long)getpid()), "S"((long)getpid()), "d"((long)SIGUSR1)
                                 : CLOBBERED);
        else
                __asm__ volatile(EACH(LOAD_XMM, ) WAIT EACH(STORE_XMM, )
                                 : "+a"(rax)
                                 : [in] "r"(in_), [out] "r"(out_), [stop] "r"(stop_),
                                   "D"((long)getpid()), "S"((long)getpid()), "d"((long)SIGUSR1)
                                 : CLOBBERED);
}

static int vectors_kept(const struct vectors *a, const struct vectors *b)
{
        for (int i = 0; i < 16; i++)
                if (memcmp(a->r[i], b->r[i], has_avx ? 32 : 16))
                        return 0;
        return 1;
}

static void test_state(void)
{
        static struct vectors in, out;
        const uint32_t mxcsr = 0x3f80;
        uint32_t mxcsr_after;
        const uint16_t fcw = 0x27f;
        uint16_t fcw_after;
        double st;

        puts("extended state");
        has_avx = __builtin_cpu_supports("avx");
        for (size_t i = 0; i < sizeof(in); i++)
                in.r[i / 32][i % 32] = (unsigned char)(i * 37 + 11);
        on(SIGUSR1, clobber, 0, 0);
        on(SIGALRM, clobber, 0, 0);
        __asm__ volatile("ldmxcsr %0; fldcw %1; fldpi" :: "m"(mxcsr), "m"(fcw));
        hold_vectors(&in, &out, SYS_tgkill);
        __asm__ volatile("stmxcsr %0; fnstcw %1; fstpl %2"
                         : "=m"(mxcsr_after), "=m"(fcw_after), "=m"(st));
        printf("over raise: vectors %d mxcsr %x fcw %x pi %d; handler began with %x %x\n",
               vectors_kept(&in, &out), mxcsr_after, fcw_after, st > 3.14159 && st < 3.1416,
               mxcsr_seen, fcw_seen);
        for (int i = 0; i < 20; i++) {
                memset(&out, 0, sizeof(out));
                stop = 0;
                once_after(2000);
                hold_vectors(&in, &out, -1);
                if (!vectors_kept(&in, &out))
                        printf("spinning: vectors lost\n");
        }
        __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr_after), "=m"(fcw_after));
        printf("spinning: mxcsr %x fcw %x\n", mxcsr_after, fcw_after);
        const uint32_t normal = 0x1f80;
        __asm__ volatile("ldmxcsr %0; fninit" :: "m"(normal));
        on(SIGVTALRM, count_call, 0, 0);
        const struct itimerval v = { .it_value.tv_usec = 10000 };
        calls = 0;
        setitimer(ITIMER_VIRTUAL, &v, NULL);
        while (!calls)
                ;
        puts("virtual timer came");
}

/* ---- exceptions ---- */

static sigjmp_buf env;
static int skip;
static void *expected_addr;
static const char *insn_at;             /* where the fault is expected */
static void fault(int sig, siginfo_t *si, void *ctx)
{
        greg_t *g = ((ucontext_t *)ctx)->uc_mcontext.gregs;

        printf("  signal %d code %d addr %s trapno %ld err %lx%s\n", sig, si->si_code,
               si->si_addr == NULL                 ? "0"
               : si->si_addr == (void *)g[REG_RIP] ? "rip"
               : si->si_addr == expected_addr      ? "as expected"
                                                   : "other",
               (long)g[REG_TRAPNO], (long)g[REG_ERR],
               g[REG_TRAPNO] != 14                   ? ""
               : (void *)g[REG_CR2] == expected_addr ? " cr2 right"
                                                     : " cr2 wrong");
        if (insn_at && (const char *)g[REG_RIP] != insn_at)
                printf("  rip is %ld off\n", (long)((const char *)g[REG_RIP] - insn_at));
        if (skip)
                g[REG_RIP] += skip;
        else
                siglongjmp(env, 1);
}

/* Executes an instruction of len bytes that faults and is stepped over. */
#define FAULTS(insn, len, ...) do {                                              \
        skip = len;                                                              \
        printf("%s\n", insn);                                                    \
        __asm__ volatile("leaq 1f(%%rip), %%r12\n movq %%r12, %0\n1: " insn      \
                         : "=m"(insn_at)                                         \
                         : "c"(0L), ##__VA_ARGS__                                \
                         : "r12", "memory", "cc");                               \
        skip = 0; insn_at = NULL; } while (0)

static void raise_fpe(uint32_t mxcsr, double a, double b)
{
        volatile double x = a, y = b, z;
        const uint32_t normal = 0x1f80;

        if (sigsetjmp(env, 1) == 0) {
                __asm__ volatile("ldmxcsr %0" :: "m"(mxcsr));
                if (a > 1e300)
                        z = x * y;
                else
                        z = x / y;
                (void)z;
                printf("no exception\n");
        }
        __asm__ volatile("ldmxcsr %0" :: "m"(normal));
}

static void raise_x87(uint16_t fcw, double a, double b)
{
        if (sigsetjmp(env, 1) == 0) {
                __asm__ volatile(
                        "fninit; fldcw %0; fldl %1; fldl %2; fdivrp; fwait; fstp %%st" ::"m"(fcw),
                        "m"(a), "m"(b));
                printf("no exception\n");
        }
        __asm__ volatile("fninit");
}

static void test_faults(void)
{
        char *p = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        puts("exceptions");
        memset(p, 1, 4 * PG);
        mprotect(p + PG, PG, PROT_READ);
        munmap(p + 2 * PG, PG);
        for (int s = 0; s < 5; s++)
                on(((int[]){ SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP })[s], fault, 0, 0);
        expected_addr = p + 2 * PG + 16;
        FAULTS("movb (%%rax), %%cl", 2, "a"(expected_addr));
        FAULTS("movb $1, (%%rax)", 3, "a"(expected_addr));
        expected_addr = (void *)8;
        FAULTS("movb $1, (%%rax)", 3, "a"(expected_addr));
        expected_addr = (void *)0xffffffff81000000;
        FAULTS("movb (%%rax), %%cl", 2, "a"(expected_addr));
        expected_addr = p;
        FAULTS("movb (%%rax), %%cl", 2, "a"(0x8000000000000000));
        expected_addr = p + PG + 5;
        FAULTS("movb $1, (%%rax)", 3, "a"(expected_addr));
        expected_addr = p + 3 * PG;
        if (sigsetjmp(env, 1) == 0)
                ((void (*)(void))expected_addr)();
        puts("returned from a page without execution");
        FAULTS("ud2", 2);
        FAULTS("divl %%ecx", 2, "a"(1), "d"(0));
        skip = 0;
        FAULTS("hlt", 1);
        FAULTS("outb %%al, $0x80", 2, "a"(0));
        FAULTS("inb $0x80, %%al", 2, "a"(0));
        FAULTS("outb %%al, %%dx", 1, "a"(0), "d"(0x3f8));
        puts("int3");
        skip = 0;
        if (sigsetjmp(env, 1) == 0)
                __asm__ volatile("int3");
        puts("SSE and x87 exceptions");
        raise_fpe(0x1d80, 1, 0);
        raise_fpe(0x1f00, 0, 0);
        raise_fpe(0x1b80, 1e308, 10);
        raise_fpe(0x0f80, 1, 3);
        raise_x87(0x37b, 1, 0);
        raise_x87(0x37e, 0, 0);
        raise_x87(0x35f, 1, 3);
        munmap(p, PG * 2);
        munmap(p + 3 * PG, PG);
}

/* One step by the trap flag. */
static int steps;
static void step(int sig, siginfo_t *si, void *ctx)
{
        greg_t *g = ((ucontext_t *)ctx)->uc_mcontext.gregs;

        (void)sig;
        if (steps++ == 0)
                printf("  step: code %d addr is rip %d TF %d\n", si->si_code,
                       si->si_addr == (void *)g[REG_RIP], !!(g[REG_EFL] & 0x100));
        if (steps == 5)
                g[REG_EFL] &= ~0x100;
}

static void test_step(void)
{
        long n = 0;

        puts("trap flag");
        on(SIGTRAP, step, 0, 0);
        __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq; incq %0; incq %0; incq %0; incq %0; "
                         "incq %0; incq %0"
                         : "+r"(n)::"cc", "memory");
        printf("%ld increments, %d steps\n", n, steps);
        steps = 0;
        __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq; movl $39, %%eax; syscall; incq %0; "
                         "incq %0; incq %0; incq %0"
                         : "+r"(n)::"rax", "rcx", "r11", "cc", "memory");
        printf("%ld increments, %d steps over a system call\n", n, steps);
}

/* ---- contexts that the handler changes ---- */

static int change;
static double changed_to = 2.5;
static void changes(int sig, siginfo_t *si, void *ctx)
{
        ucontext_t *uc = ctx;
        greg_t *g = uc->uc_mcontext.gregs;
        unsigned char *fp = (unsigned char *)uc->uc_mcontext.fpregs;

        (void)sig, (void)si;
        switch (change) {
        case 1: g[REG_RAX] = 1234; g[REG_R15] = 99; break;
        case 2: memcpy(fp + 160, &changed_to, 8); break;                        /* xmm0 */
        case 3: { uint32_t m = 0x5f80; memcpy(fp + 24, &m, 4); break; }
        case 4: uc->uc_mcontext.fpregs = NULL; break;
        case 5: {
                uint32_t m = 0;
                memcpy(fp + 464, &m, 4);
                break;
        } /* magic1: FXSAVE's part only */
        case 6: {
                uint64_t bv = 1;
                memcpy(fp + 512, &bv, 8);
                break;
        } /* SSE to its initial state */
        case 7:
                g[REG_EFL] |= 0x1 | 0x3000 | 0x20000 | 0x4000 | 0x200000;
                g[REG_EFL] &= ~0x200;
                break;
        case 8: sigaddset(&uc->uc_sigmask, SIGUSR2); sigaddset(&uc->uc_sigmask, SIGKILL); break;
        case 10: { uint32_t m = 0xffff1f80; memcpy(fp + 24, &m, 4); break; }
        case 11: { uint64_t bv = 1ull << 62; memcpy(fp + 512, &bv, 8); break; }
        case 12: { uint64_t bv = 1ull << 63; memcpy(fp + 520, &bv, 8); break; }
        case 13: uc->uc_mcontext.fpregs = (void *)((char *)uc->uc_mcontext.fpregs + 8); break;
        case 14: uc->uc_mcontext.fpregs = (void *)16; break;
        case 15: g[REG_RIP] = (greg_t)0x8000000000000000; break;
        case 16: g[REG_RIP] = (greg_t)0xffffffff81000000; break;
        case 17: {
                uint32_t m = 0x7fffffff;
                memcpy(fp + 480, &m, 4);
                break;
        } /* nonsense size: FXSAVE's part only */
        }
}

static void caught(int sig, siginfo_t *si, void *ctx)
{
        (void)ctx;
        printf("  caught %d code %d addr %s\n", sig, si->si_code, si->si_addr ? "some" : "0");
        siglongjmp(env, 1);
}

static void jump(int sig, siginfo_t *si, void *uc)
{
        (void)si, (void)uc;
        siglongjmp(env, sig);
}

static void try_change(int what)
{
        register long r15 __asm__("r15") = 7;
        static double x;
        uint32_t mxcsr;
        const uint32_t normal = 0x1f80;
        uint64_t flags;
        long rax = SYS_tgkill;

        change = what;
        printf("change %d\n", what);
        if (sigsetjmp(env, 1) == 0) {
                x = 1.5;
                r15 = 7;
                __asm__ volatile("movsd %2, %%xmm0; syscall; movsd %%xmm0, %2; pushfq; popq %%rdi; "
                                 "pushq $0; popfq"
                                 : "+a"(rax), "+r"(r15), "+m"(x), "=D"(flags)
                                 : "3"((long)getpid()), "S"((long)getpid()), "d"((long)SIGUSR1)
                                 : "rcx", "r11", "xmm0", "memory", "cc");
                __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
                printf("  rax %ld r15 %ld xmm0 %g mxcsr %x CF %d IF %d IOPL %d NT %d ID %d mask "
                       "%lx\n",
                       rax, r15, x, mxcsr, (int)flags & 1, (int)(flags >> 9 & 1),
                       (int)(flags >> 12 & 3), (int)(flags >> 14 & 1), (int)(flags >> 21 & 1),
                       mask_now());
        }
        __asm__ volatile("ldmxcsr %0" :: "m"(normal));
        sigset_t none = set_of(0, 0);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

static void test_changes(void)
{
        puts("changed contexts");
        on(SIGUSR1, changes, 0, 0);
        on(SIGSEGV, jump, 0, 0);
        on(SIGILL, jump, 0, 0); /* a KVM that emulates what faults may not know the instruction */
        /* QEMU's emulation takes any MXCSR: then there is nothing to refuse in change 10. */
        const uint32_t bad = 0xffff1f80, normal = 0x1f80;
        volatile int first = 11;
        if (sigsetjmp(env, 1) == 0)
                __asm__ volatile("ldmxcsr %0; ldmxcsr %1" :: "m"(bad), "m"(normal));
        else
                first = 10;
        on(SIGSEGV, caught, 0, 0);
        for (int i = 1; i <= 8; i++)
                try_change(i);
        for (int i = first; i <= 17; i++)
                try_change(i);
}

/* ---- memory by SIGSEGV, long jumps ---- */

static char *guarded;
static int opened;
static void open_page(int sig, siginfo_t *si, void *uc)
{
        char *page = (char *)((unsigned long)si->si_addr & ~(unsigned long)(PG - 1));

        (void)sig, (void)uc;
        opened++;
        if (mprotect(page, PG, PROT_READ | PROT_WRITE))
                _exit(3);
}

static void test_memory(void)
{
        unsigned sum = 0;

        puts("pages opened by a handler");
        guarded = mmap(NULL, 64 * PG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        on(SIGSEGV, open_page, 0, 0);
        for (int i = 0; i < 64; i++)
                guarded[i * PG + i] = (char)i;
        for (int i = 0; i < 64; i++)
                sum += (unsigned char)guarded[i * PG + i];
        printf("%d pages, sum %u\n", opened, sum);
        munmap(guarded, 64 * PG);

        puts("long jumps");
        for (volatile int i = 0; i < 3; i++) {
                on(SIGUSR1, jump, 0, SIGUSR2, 0);
                int r = sigsetjmp(env, 1);
                if (!r) {
                        raise(SIGUSR1);
                        puts("not reached");
                }
                printf("jumped by %d, mask %lx\n", r, mask_now());
                on(SIGALRM, jump, 0, 0);
                r = sigsetjmp(env, 1);
                if (!r) {
                        once_after(3000);
                        for (;;)
                                if (i == 1)
                                        syscall(SYS_getppid);
                                else if (i == 2)
                                        usleep(100);
                }
                printf("jumped by %d, mask %lx\n", r, mask_now());
        }
}

/* ---- the alternate stack ---- */

static char *alt;
#define ALT_SIZE (64 * 1024)

static void where(int sig, siginfo_t *si, void *ctx)
{
        ucontext_t *uc = ctx;
        char here;
        stack_t now;
        stack_t small = { .ss_sp = alt, .ss_size = ALT_SIZE / 2 };

        (void)si;
        sigaltstack(NULL, &now);
        printf("  %d: on it %d; now %d %lx flags %x; in frame %d %lx flags %x\n", sig,
               &here >= alt && &here < alt + ALT_SIZE, now.ss_sp == alt, (long)now.ss_size,
               now.ss_flags, uc->uc_stack.ss_sp == alt, (long)uc->uc_stack.ss_size,
               uc->uc_stack.ss_flags);
        T(sigaltstack(&small, NULL));
        if (sig == SIGUSR1)
                raise(SIGUSR2);
        if (sig == SIGSEGV)
                siglongjmp(env, 1);
}

/* More and more stack, until there is none. */
static volatile int never;
static NOINLINE int overflow(volatile char *above)
{
        volatile char big[2000];

        big[0] = above ? (char)(above[0] + 1) : 1;
        return never ? 0 : overflow(big) + big[0];
}

static void alt_too_small(int sig, siginfo_t *si, void *uc)
{
        (void)sig, (void)si, (void)uc;
        volatile char most[ALT_SIZE - 6000];
        most[0] = 1;
        raise(SIGUSR2);
        printf("not reached %d\n", most[0]);
}

static void test_altstack(void)
{
        stack_t ss = { 0 }, old;
        struct rlimit rl;

        puts("alternate stack");
        alt = mmap(NULL, ALT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        T(sigaltstack(NULL, &old));
        printf("at first %p %lx %x\n", old.ss_sp, (long)old.ss_size, old.ss_flags);
        ss = (stack_t){ .ss_sp = alt, .ss_size = 2047 };
        T(sigaltstack(&ss, NULL));
        ss = (stack_t){ .ss_sp = alt, .ss_size = ALT_SIZE, .ss_flags = 3 };
        T(sigaltstack(&ss, NULL));
        T(sigaltstack((void *)8, NULL));
        for (int mode = 0; mode < 3; mode++) {
                ss.ss_flags = mode == 0 ? 0 : mode == 1 ? SS_ONSTACK : (int)SS_AUTODISARM;
                T(sigaltstack(&ss, &old));
                printf("was flags %x\n", old.ss_flags);
                on(SIGUSR1, where, SA_ONSTACK, 0);
                on(SIGUSR2, where, SA_ONSTACK, 0);
                raise(SIGUSR1);
                on(SIGUSR1, where, 0, 0);
                raise(SIGUSR1);
                T(sigaltstack(NULL, &old));
                printf("flags %x\n", old.ss_flags);
        }
        ss = (stack_t){ .ss_sp = alt, .ss_size = ALT_SIZE };
        sigaltstack(&ss, NULL);
        puts("stack overflow");
        getrlimit(RLIMIT_STACK, &rl);
        rl.rlim_cur = 512 * 1024;
        setrlimit(RLIMIT_STACK, &rl);
        on(SIGSEGV, where, SA_ONSTACK, 0);
        for (int i = 0; i < 2; i++)
                if (sigsetjmp(env, 1) == 0)
                        overflow(NULL);
        ss.ss_flags = SS_DISABLE;
        T(sigaltstack(&ss, NULL));
        T(sigaltstack(NULL, &old));
        printf("at last %p %lx %x\n", old.ss_sp, (long)old.ss_size, old.ss_flags);
}

/* ---- storms ---- */

static uint64_t work(uint64_t x, int n)
{
        for (int i = 0; i < n; i++)
                x = x * 6364136223846793005ull + 1442695040888963407ull;
        return x;
}

/* A read or write of a file is complete, whatever signal comes meanwhile. */
static void test_files(void)
{
        const size_t size = 8 << 20;
        char *big = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int fd = memfd_create("file", 0), whole = 0;

        on(SIGALRM, count_call, 0, 0);
        calls = 0;
        memset(big, 1, size);
        for (int i = 0; i < 20; i++) {
                once_after(100 + i * i * 100);
                whole += (i & 1 ? pread(fd, big, size, 0) : pwrite(fd, big, size, 0)) ==
                         (ssize_t)size;
                while (calls <= i)
                        usleep(1000);
        }
        printf("whole transfers %d\n", whole);
        close(fd);
        munmap(big, size);
}

/* Timers against computing, system calls and page faults: none of them may be disturbed. */
static void storm(int ms)
{
        struct timespec start, now;
        double d = 1;
        long elapsed;
        uint64_t x = 1, turns = 0, bad = 0;
        char buf[64];
        int fd = open("/dev/zero", 0);

        calls = 0;
        on(SIGALRM, clobber, SA_RESTART, 0);
        on(SIGVTALRM, count_call, 0, 0);
        /*
         * Far apart enough that the program gets on where a signal takes milliseconds (the lab with
         * shadow paging).
         */
        every(10000);
        const struct itimerval v = { .it_interval.tv_usec = 13000, .it_value.tv_usec = 13000 };
        setitimer(ITIMER_VIRTUAL, &v, NULL);
        clock_gettime(CLOCK_MONOTONIC, &start);
        do {
                uint64_t y = work(x, 1000);
                bad += y != work(x, 1000);
                d = d * 1.0000001 + 1e-9;
                bad += syscall(SYS_getppid) != getppid();
                memset(buf, 1, sizeof(buf));
                bad += read(fd, buf, sizeof(buf)) != sizeof(buf) || buf[5] != 0;
                char *p = mmap(NULL, 16 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                               -1, 0);
                for (int i = 0; i < 16; i++)
                        p[i * PG] = (char)turns;
                for (int i = 0; i < 16; i++)
                        bad += p[i * PG] != (char)turns;
                munmap(p, 16 * PG);
                x = y;
                turns++;
                clock_gettime(CLOCK_MONOTONIC, &now);
                elapsed = (now.tv_sec - start.tv_sec) * 1000 +
                          (now.tv_nsec - start.tv_nsec) / 1000000;
        } while (elapsed < ms || (elapsed < 40 * ms && (turns <= 3 || calls <= 3)));
        every(0);
        setitimer(ITIMER_VIRTUAL, &(struct itimerval){ 0 }, NULL);
        close(fd);
        printf("storm: bad %lu, some signals %d, some turns %d\n", (unsigned long)bad, calls > 3,
               turns > 3);
}

/* ---- deaths ---- */

static void die(int way)
{
        volatile char *volatile low = (char *)8;
        sigset_t s = set_of(SIGSEGV, 0);
        stack_t ss = { .ss_sp = (void *)0x1000, .ss_size = ALT_SIZE };

        on(SIGSEGV, count_call, 0, 0);
        switch (way) {
        case 1: sigprocmask(SIG_BLOCK, &s, NULL); *low = 1; break;      /* blocked */
        case 2: signal(SIGSEGV, SIG_IGN); *low = 1; break;
        case 3: on(SIGSEGV, count_call, SA_RESETHAND, 0); *low = 1; break;      /* a second time */
        case 4:
                sigaltstack(&ss, NULL);
                on(SIGSEGV, count_call, SA_ONSTACK, 0);
                *low = 1;
                break; /* no frame */
        case 5: on(SIGTERM, count_call, SA_RESETHAND, 0); raise(SIGTERM); raise(SIGTERM); break;
        case 6: alarm(1); while (1) { } break;
        case 7:
                signal(SIGSEGV, SIG_DFL);
                on(SIGUSR1, changes, 0, 0);
                change = 15;
                raise(SIGUSR1);
                break;
        case 8: on(SIGABRT, count_call, 0, 0); abort(); break;
        case 9: alarm(1); pause(); break;
        case 11:        /* a frame that would leave the alternate stack */
                ss.ss_sp = alt = mmap(NULL, ALT_SIZE, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                sigaltstack(&ss, NULL);
                on(SIGUSR1, alt_too_small, SA_ONSTACK, 0);
                on(SIGUSR2, count_call, SA_ONSTACK, 0);
                raise(SIGUSR1);
                break;
        case 10:
                __asm__ volatile("movq $16, %%rsp; movl $15, %%eax; syscall" ::: "memory");
                break; /* no frame to return to */
        }
        printf("alive\n");
}

int main(int argc, char **argv)
{
        setvbuf(stdout, NULL, _IOLBF, 0);
        if (argc == 3 && strcmp(argv[1], "die") == 0)
                return die(atoi(argv[2])), 0;
        if (argc == 3 && strcmp(argv[1], "storm") == 0)
                return storm(atoi(argv[2])), 0;
        test_info();
        test_masks();
        test_waits(0);
        test_waits(SA_RESTART);
        test_waits_with_mask();
        test_state();
        test_faults();
        test_step();
        test_changes();
        test_memory();
        test_altstack();
        test_files();
        storm(300);
        return 0;
}
