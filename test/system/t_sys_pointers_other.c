/*
 * Calls about processes, signals, time, limits and memory.  (t_sys_pointers.c)
 */
#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include "t_sys_pointers.h"

static const struct timespec ms = { 0, 1000000 }, none = { 0, 0 };
static const uint64_t usr1 = 1ull << (SIGUSR1 - 1), quiet = 0, ignore[4] = { 1, 0, 0, 0 };
static const siginfo_t info = { .si_signo = SIGUSR2, .si_code = SI_QUEUE };
static const struct {
        uint64_t sp;
        int32_t flags, pad;
        uint64_t size;
} altstack = { 0, 2 /* SS_DISABLE */, 0, 0 };
static const struct sigevent event = { .sigev_notify = SIGEV_NONE };
static const uint64_t limit[2] = { 0, RLIM_INFINITY }, all_cpus[16] = { ~0ull };
static const int32_t priority = 0, word = 5;
static const struct { uint32_t size, policy; uint64_t rest[6]; } attr = { 56, 0, { 0 } };
static const struct { uint32_t version; int32_t pid; } capabilities = { 0x20080522, 0 };
static const uint32_t no_groups[2] = { 0, 0 };
static const uint8_t timex[208];
static const struct sembuf up = { 0, 1, IPC_NOWAIT };
static const struct { long type; char text[32]; } message = { 1, "message" };
static const uint16_t two[2] = { 1, 1 };
static const struct {
        uint64_t flags, maxmsg, rest[6];
} mq_attr = { 0, 0, { 0 } }, mq_make = { 0, 4, { 64 } };
static const struct { uint64_t handled; } ruleset = { 1 };

#define PRCTL(option, ...) { #option, SYS_prctl, 0, { option }, { __VA_ARGS__ } }
#define M SETS_MESSAGE
const struct call other_calls[] = {
        /* time */
        { "nanosleep", SYS_nanosleep, 0, { 0 }, { IN(0, ms), OUT(1, 16) } },
        { "clock_nanosleep", SYS_clock_nanosleep, 0, { CLOCK_MONOTONIC, 0 },
          { IN(2, ms), OUT(3, 16) } },
        { "clock_nanosleep, no such clock", SYS_clock_nanosleep, 0, { 77, 0 },
          { IN(2, ms), OUT(3, 16) } },
        { "clock_gettime", SYS_clock_gettime, 0, { CLOCK_MONOTONIC }, { OUT(1, 16) } },
        { "clock_gettime of the process", SYS_clock_gettime, 0, { CLOCK_PROCESS_CPUTIME_ID },
          { OUT(1, 16) } },
        { "clock_gettime, no such clock", SYS_clock_gettime, 0, { 77 }, { OUT(1, 16) } },
        { "clock_getres", SYS_clock_getres, 0, { CLOCK_MONOTONIC }, { OUT(1, 16) } },
        { "clock_settime", SYS_clock_settime, HARMFUL, { CLOCK_REALTIME }, { IN(1, ms) } },
        { "clock_adjtime", SYS_clock_adjtime, ANY_RESULT, { CLOCK_REALTIME }, { IN(1, timex) } },
        { "adjtimex", SYS_adjtimex, ANY_RESULT, { 0 }, { IN(0, timex) } },
        { "gettimeofday", SYS_gettimeofday, 0, { 0 }, { OUT(0, 16), OUT(1, 8) } },
        { "settimeofday", SYS_settimeofday, HARMFUL, { 0 }, { ARG(0, 16, &limit) } },
        { "time", SYS_time, ANY_RESULT, { 0 }, { OUT(0, 8) } },
        { "times", SYS_times, ANY_RESULT, { 0 }, { OUT(0, 32) } },
        { "getitimer", SYS_getitimer, 0, { ITIMER_VIRTUAL }, { OUT(1, 32) } },
        { "setitimer", SYS_setitimer, 0, { ITIMER_VIRTUAL }, { OUT(1, 32), OUT(2, 32) } },
        { "timer_create", SYS_timer_create, ANY_RESULT, { CLOCK_MONOTONIC },
          { IN(1, event), OUT(2, 4) } },
        { "timer_settime", SYS_timer_settime, 0, { VAR(TIMER), 0 }, { OUT(2, 32), OUT(3, 32) } },
        { "timer_gettime", SYS_timer_gettime, 0, { VAR(TIMER) }, { OUT(1, 32) } },
        { "timer_gettime of none", SYS_timer_gettime, 0, { 0x7777777 }, { OUT(1, 32) } },
        { "getrusage", SYS_getrusage, 0, { RUSAGE_SELF }, { OUT(1, 144) } },
        /* signals */
        { "rt_sigaction", SYS_rt_sigaction, 0, { SIGUSR2, 0, 0, 8 },
          { IN(1, ignore), OUT(2, 32) } },
        { "rt_sigaction of SIGKILL", SYS_rt_sigaction, 0, { SIGKILL, 0, 0, 8 },
          { IN(1, ignore), OUT(2, 32) } },
        { "rt_sigprocmask", SYS_rt_sigprocmask, 0, { SIG_UNBLOCK, 0, 0, 8 },
          { IN(1, quiet), OUT(2, 8) } },
        { "rt_sigpending", SYS_rt_sigpending, 0, { 0, 8 }, { OUT(0, 8) } },
        { "rt_sigtimedwait", SYS_rt_sigtimedwait, SETS_SIGNAL, { 0, 0, 0, 8 },
          { IN(0, usr1), OUT(1, 128), IN(2, none) } },
        { "rt_sigsuspend", SYS_rt_sigsuspend, HARMFUL, { 0, 8 }, { IN(0, usr1) } },
        { "rt_sigqueueinfo", SYS_rt_sigqueueinfo, 0, { VAR(PID), SIGUSR2 }, { IN(2, info) } },
        { "rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, 0, { VAR(PID), VAR(PID), SIGUSR2 },
          { IN(3, info) } },
        { "pidfd_send_signal", SYS_pidfd_send_signal, 0, { FD_FILE, SIGUSR2 }, { IN(2, info) } },
        { "sigaltstack", SYS_sigaltstack, 0, { 0 }, { IN(0, altstack), OUT(1, 24) } },
        /* processes and limits */
        { "wait4", SYS_wait4, 0, { -1 }, { OUT(1, 4), OUT(3, 144) } },
        { "waitid", SYS_waitid, 0, { 0, 0, 0, 4 }, { OUT(2, 128), OUT(4, 144) } },
        { "uname", SYS_uname, 0, { 0 }, { OUT(0, 390) } },
        { "sysinfo", SYS_sysinfo, 0, { 0 }, { OUT(0, 112) } },
        { "sethostname", SYS_sethostname, HARMFUL, { 0, 3 }, { ARG(0, 3, "abc") } },
        { "setdomainname", SYS_setdomainname, HARMFUL, { 0, 3 }, { ARG(0, 3, "abc") } },
        { "getrlimit", SYS_getrlimit, 0, { RLIMIT_CORE }, { OUT(1, 16) } },
        { "getrlimit of memory", SYS_getrlimit, 0, { RLIMIT_AS }, { OUT(1, 16) } },
        { "setrlimit", SYS_setrlimit, 0, { RLIMIT_CORE }, { ARG(1, 16, limit) } },
        { "setrlimit of memory", SYS_setrlimit, HARMFUL, { RLIMIT_AS }, { ARG(1, 16, limit) } },
        { "prlimit64", SYS_prlimit64, 0, { 0, RLIMIT_CORE }, { ARG(2, 16, limit), OUT(3, 16) } },
        { "prlimit64 of descriptors", SYS_prlimit64, 0, { 0, RLIMIT_NOFILE }, { OUT(3, 16) } },
        { "getgroups", SYS_getgroups, ANY_RESULT, { 100 }, { OUT(1, 400) } },
        { "setgroups", SYS_setgroups, HARMFUL, { 2 }, { IN(1, no_groups) } },
        { "getresuid", SYS_getresuid, 0, { 0 }, { OUT(0, 4), OUT(1, 4), OUT(2, 4) } },
        { "getresgid", SYS_getresgid, 0, { 0 }, { OUT(0, 4), OUT(1, 4), OUT(2, 4) } },
        { "capget", SYS_capget, 0, { 0 }, { IN(0, capabilities), OUT(1, 24) } },
        { "capset", SYS_capset, HARMFUL, { 0 }, { IN(0, capabilities), OUT(1, 24) } },
        { "sched_setaffinity", SYS_sched_setaffinity, 0, { 0, 128 }, { IN(2, all_cpus) } },
        { "sched_getaffinity", SYS_sched_getaffinity, 0, { 0, 128 }, { OUT(2, 128) } },
        { "sched_setparam", SYS_sched_setparam, 0, { 0 }, { IN(1, priority) } },
        { "sched_getparam", SYS_sched_getparam, 0, { 0 }, { OUT(1, 4) } },
        { "sched_setscheduler", SYS_sched_setscheduler, 0, { 0, 0 }, { IN(2, priority) } },
        { "sched_rr_get_interval", SYS_sched_rr_get_interval, 0, { 0 }, { OUT(1, 16) } },
        { "sched_setattr", SYS_sched_setattr, 0, { 0, 0, 0 }, { IN(1, attr) } },
        { "sched_getattr", SYS_sched_getattr, 0, { 0, 0, 56, 0 }, { OUT(1, 56) } },
        { "getcpu", SYS_getcpu, 0, { 0 }, { OUT(0, 4), OUT(1, 4) } },
        { "syslog", SYS_syslog, HARMFUL, { 3, 0, 10 }, { OUT(1, 10) } },
        { "get_robust_list", SYS_get_robust_list, 0, { 0 }, { OUT(1, 8), OUT(2, 8) } },
        PRCTL(PR_SET_NAME, STR(1, "a name")),
        PRCTL(PR_GET_NAME, OUT(1, 16)),
        PRCTL(PR_GET_PDEATHSIG, OUT(1, 4)),
        PRCTL(PR_GET_CHILD_SUBREAPER, OUT(1, 4)),
        PRCTL(PR_GET_TSC, OUT(1, 4)),
        { "landlock_create_ruleset", SYS_landlock_create_ruleset, MAKES_FD, { 0, 8, 0 },
          { IN(0, ruleset) } },
        /* futex: whose value is not the one expected */
        { "FUTEX_WAIT", SYS_futex, 0, { 0, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 4 },
          { IN(0, word), IN(3, ms) } },
        { "FUTEX_WAIT, shared", SYS_futex, 0, { 0, FUTEX_WAIT, 4 }, { IN(0, word), IN(3, ms) } },
        { "FUTEX_WAIT_BITSET", SYS_futex, 0,
          { 0, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 4, 0, 0, -1 }, { IN(0, word), IN(3, ms) } },
        { "FUTEX_CMP_REQUEUE", SYS_futex, 0,
          { 0, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, 1, 0, 4 }, { IN(0, word), IN(4, word) } },
        { "FUTEX_WAKE, shared", SYS_futex, 0, { 0, FUTEX_WAKE, 1 }, { IN(0, word) } },
        { "FUTEX_WAKE_OP", SYS_futex, 0,
          { 0, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, 1, 0, 1 << 12 },
          { IN(0, word), IN(4, word) } },
        /* System V and POSIX queues */
        { "semop", SYS_semop, 0, { VAR(SEM), 0, 1 }, { IN(1, up) } },
        { "semtimedop", SYS_semtimedop, 0, { VAR(SEM), 0, 1 }, { IN(1, up), IN(3, ms) } },
        { "semop of none", SYS_semop, 0, { 0x7fffffff, 0, 1 }, { IN(1, up) } },
        { "semctl GETALL", SYS_semctl, 0, { VAR(SEM), 0, GETALL }, { OUT(3, 4) } },
        { "semctl SETALL", SYS_semctl, 0, { VAR(SEM), 0, SETALL }, { IN(3, two) } },
        { "semctl IPC_STAT", SYS_semctl, 0, { VAR(SEM), 0, IPC_STAT }, { OUT(3, 104) } },
        { "semctl IPC_SET", SYS_semctl, HARMFUL, { VAR(SEM), 0, IPC_SET }, { OUT(3, 104) } },
        { "semctl IPC_INFO", SYS_semctl, ANY_RESULT, { 0, 0, IPC_INFO }, { OUT(3, 40) } },
        { "msgsnd", SYS_msgsnd, M, { VAR(MSG), 0, 32, IPC_NOWAIT }, { IN(1, message) } },
        { "msgrcv", SYS_msgrcv, M, { VAR(MSG), 0, 32, 0, IPC_NOWAIT }, { OUT(1, 40) } },
        { "msgrcv of none", SYS_msgrcv, 0, { 0x7fffffff, 0, 32, 0, IPC_NOWAIT }, { OUT(1, 40) } },
        { "msgctl IPC_STAT", SYS_msgctl, 0, { VAR(MSG), IPC_STAT }, { OUT(2, 120) } },
        { "msgctl IPC_SET", SYS_msgctl, HARMFUL, { VAR(MSG), IPC_SET }, { OUT(2, 120) } },
        { "msgctl MSG_INFO", SYS_msgctl, ANY_RESULT, { 0, MSG_INFO }, { OUT(2, 32) } },
        { "shmctl SHM_INFO", SYS_shmctl, ANY_RESULT, { 0, SHM_INFO }, { OUT(2, 48) } },
        { "shmctl IPC_INFO", SYS_shmctl, ANY_RESULT, { 0, IPC_INFO }, { OUT(2, 72) } },
        { "mq_open", SYS_mq_open, MAKES_FD, { 0, O_RDWR, 0600 },
          { STR(0, "t_sys_pointers.none"), IN(3, mq_make) } },
        { "mq_unlink", SYS_mq_unlink, 0, { 0 }, { STR(0, "t_sys_pointers.none") } },
        { "mq_timedsend", SYS_mq_timedsend, M, { FD_QUEUE, 0, 6, 1 },
          { ARG(1, 6, "queued"), IN(4, ms) } },
        { "mq_timedreceive", SYS_mq_timedreceive, M, { FD_QUEUE, 0, 64 },
          { OUT(1, 64), OUT(3, 4), IN(4, ms) } },
        { "mq_getsetattr", SYS_mq_getsetattr, 0, { FD_QUEUE }, { IN(1, mq_attr), OUT(2, 64) } },
        { "mq_notify", SYS_mq_notify, 0, { FD_QUEUE }, { IN(1, event) } },
        /* kern's own */
        { "arch_prctl ARCH_GET_FS", SYS_arch_prctl, 0, { ARCH_GET_FS }, { OUT(1, 8) } },
        { "mincore", SYS_mincore, 0, { 0, 4096 }, { ARG(0, 4096, NULL), OUT(2, 1) } },
        { "munmap", SYS_munmap, ADDRESS | HARMFUL, { 0, 4096 }, { OUT(0, 4096) } },
        { "munmap of nothing", SYS_munmap, ADDRESS | HARMFUL, { 0, 0 }, { OUT(0, 4096) } },
        { "mprotect", SYS_mprotect, ADDRESS | HARMFUL, { 0, 4096, PROT_READ }, { OUT(0, 4096) } },
        { "mprotect of nothing", SYS_mprotect, ADDRESS | HARMFUL, { 0, 0, PROT_READ },
          { OUT(0, 4096) } },
        { "madvise", SYS_madvise, ADDRESS | HARMFUL, { 0, 4096, MADV_DONTNEED }, { OUT(0, 4096) } },
        { "mlock", SYS_mlock, ADDRESS | HARMFUL, { 0, 4096 }, { OUT(0, 4096) } },
        { "munlock", SYS_munlock, ADDRESS | HARMFUL, { 0, 4096 }, { OUT(0, 4096) } },
        { "msync", SYS_msync, ADDRESS | HARMFUL, { 0, 4096, MS_SYNC }, { OUT(0, 4096) } },
        { "mremap", SYS_mremap, ADDRESS | HARMFUL, { 0, 4096, 4096, 0 }, { OUT(0, 4096) } },
};
const size_t n_other_calls = sizeof(other_calls) / sizeof(other_calls[0]);
