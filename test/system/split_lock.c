/*
 * Runs vmrun as on a host where a split lock is fatal (split_lock_detect=fatal), of which there
 * are few.
 *
 * usage: split_lock program|kern COMMAND...
 *
 * Traces COMMAND and its threads.  KVM_RUN is made to end as KVM and Linux have it end there: with
 * KVM_EXIT_EXCEPTION and the vector of #AC, and with SIGBUS forced on the thread.
 *
 * program: each time that a thread of the program waits at its instruction (t_split.h).
 * kern: once, where kern makes an exit, when the program has begun to write.
 *
 * Exit status: COMMAND's.
 */
#include <err.h>
#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "t_split.h"

#define VECTOR_AC   17
#define THREADS     64
#define LOOK_NS     20000000            /* without an event: then it looks at the running vCPUs */
#define SYSCALL_LEN 2
#define SCRATCH     1024                /* below RSP of a thread that is in ioctl() */

static pid_t running[THREADS];          /* threads in KVM_RUN */
static bool in_kern, written, done;

static void request(enum __ptrace_request what, pid_t pid, void *addr, void *data)
{
        if (ptrace(what, pid, addr, data) < 0 && errno != ESRCH)
                err(2, "ptrace(%d)", (int)what);
}

static void let_go(pid_t pid, int sig)
{
        request(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)sig);
}

static void copy(pid_t pid, uint64_t at, void *data, size_t size, bool in)
{
        const struct iovec here = { data, size }, there = { (void *)(uintptr_t)at, size };
        ssize_t n = in ? process_vm_writev(pid, &here, 1, &there, 1, 0)
                       : process_vm_readv(pid, &here, 1, &there, 1, 0);

        if (n != (ssize_t)size)
                err(2, "memory of %d at %#lx", pid, at);
}

/* Waits for the next stop at the beginning or end of a system call.  All signals are blocked; but
 * trace() may have interrupted the thread after KVM_RUN had ended. */
static void wait_stop(pid_t pid)
{
        int status;

        do {
                request(PTRACE_SYSCALL, pid, NULL, NULL);
                if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
                        errx(2, "thread %d has ended: status %#x", pid, status);
        } while (status >> 16 == PTRACE_EVENT_STOP);
        if (WSTOPSIG(status) != (SIGTRAP | 0x80))
                errx(2, "thread %d is not at its system call: status %#x", pid, status);
}

/* Has the thread, which stands at the end of the system call of `r`, make another call. */
static long make_call(pid_t pid, const struct user_regs_struct *r, long nr, uint64_t a, uint64_t b,
                      uint64_t c, uint64_t d)
{
        struct user_regs_struct now = *r;

        now.rip -= SYSCALL_LEN;
        now.rax = (uint64_t)nr;
        now.rdi = a;
        now.rsi = b;
        now.rdx = c;
        now.r10 = d;
        request(PTRACE_SETREGS, pid, NULL, &now);
        wait_stop(pid);
        wait_stop(pid);
        request(PTRACE_GETREGS, pid, NULL, &now);
        return (long)now.rax;
}

/* Where the vCPU with that descriptor has its struct kvm_run. */
static uint64_t find_run(pid_t pid, uint64_t fd)
{
        char path[64], name[64] = "", line[512];
        uint64_t at = 0;

        snprintf(path, sizeof(path), "/proc/%d/fd/%lu", pid, fd);
        if (readlink(path, name, sizeof(name) - 1) < 0)
                err(2, "%s", path);
        snprintf(path, sizeof(path), "/proc/%d/maps", pid);
        FILE *f = fopen(path, "r");
        while (f && !at && fgets(line, sizeof(line), f)) {
                char *end = strchr(line, '\n');
                if (end)
                        *end = '\0';
                const char *file = strstr(line, "anon_inode:");
                if (file && strcmp(file, name) == 0)
                        at = strtoull(line, NULL, 16);
        }
        if (!at)
                errx(2, "%s has no '%s'", path, name);
        fclose(f);
        return at;
}

/* As force_sig_fault() of Linux: a SIGBUS that is blocked or ignored gets the default action. */
static void force_bus(pid_t pid, const struct user_regs_struct *r, uint64_t blocked)
{
        const uint64_t scratch = (r->rsp - SCRATCH) & ~15ull;
        struct { uint64_t handler, flags, restorer, mask; } action;
        siginfo_t info = { .si_signo = SIGBUS, .si_code = BUS_ADRALN };

        make_call(pid, r, SYS_rt_sigaction, SIGBUS, 0, scratch, 8);
        copy(pid, scratch, &action, sizeof(action), false);
        if (action.handler == (uintptr_t)SIG_IGN || blocked >> (SIGBUS - 1) & 1) {
                action.handler = 0;
                copy(pid, scratch, &action, sizeof(action), true);
                make_call(pid, r, SYS_rt_sigaction, SIGBUS, scratch, 0, 8);
        }
        copy(pid, scratch, &info, sizeof(info), true);
        long tgid = make_call(pid, r, SYS_getpid, 0, 0, 0, 0);
        if (make_call(pid, r, SYS_rt_tgsigqueueinfo, (uint64_t)tgid, (uint64_t)pid, SIGBUS,
                      scratch) != 0)
                errx(2, "no SIGBUS for thread %d", pid);
}

static bool waits_at_instruction(pid_t pid, const struct user_regs_struct *r)
{
        const uint64_t scratch = (r->rsp - SCRATCH) & ~15ull;
        struct kvm_regs guest;

        if (make_call(pid, r, SYS_ioctl, r->rdi, KVM_GET_REGS, scratch, 0) != 0)
                return false;
        copy(pid, scratch, &guest, sizeof(guest), false);
        return guest.rbx == SPLIT_MARK && guest.rip == guest.rax;
}

/* KVM_RUN has ended.  With immediate_exit the guest did not run. */
static void after_run(pid_t pid)
{
        const uint64_t all = ~0ull;
        struct user_regs_struct r;
        struct kvm_run run;
        uint64_t mask, at;

        request(PTRACE_GETREGS, pid, NULL, &r);
        if (in_kern ? r.rax != 0 || !written || done : (long)r.rax != -EINTR)
                return;
        request(PTRACE_GETSIGMASK, pid, (void *)sizeof(mask), &mask);
        request(PTRACE_SETSIGMASK, pid, (void *)sizeof(all), (void *)&all);
        at = find_run(pid, r.rdi);
        copy(pid, at, &run, sizeof(run), false);
        if (in_kern || (!run.immediate_exit && waits_at_instruction(pid, &r))) {
                done = true;
                run.exit_reason = KVM_EXIT_EXCEPTION;
                run.ex.exception = VECTOR_AC;
                run.ex.error_code = 0;
                copy(pid, at, &run, sizeof(run), true);
                force_bus(pid, &r, mask);
                r.rax = 0;
        }
        request(PTRACE_SETREGS, pid, NULL, &r);
        request(PTRACE_SETSIGMASK, pid, (void *)sizeof(mask), &mask);
}

static pid_t *slot(pid_t pid)
{
        for (int i = 0; i < THREADS; i++)
                if (running[i] == pid)
                        return &running[i];
        errx(2, "more than %d threads", THREADS);
}

static bool is_running(pid_t pid)
{
        for (int i = 0; i < THREADS; i++)
                if (running[i] == pid)
                        return true;
        return false;
}

static void at_call(pid_t pid)
{
        struct __ptrace_syscall_info i = { .op = PTRACE_SYSCALL_INFO_NONE };

        request(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(i), &i);
        if (i.op == PTRACE_SYSCALL_INFO_ENTRY) {
                written |= i.entry.nr == SYS_write && i.entry.args[0] == STDOUT_FILENO;
                if (i.entry.nr == SYS_ioctl && i.entry.args[1] == KVM_RUN)
                        *slot(0) = pid;
        } else if (is_running(pid)) {
                *slot(pid) = 0;
                after_run(pid);
        }
}

static void stopped(pid_t pid, int status)
{
        int sig = WSTOPSIG(status);

        if (sig == (SIGTRAP | 0x80))
                at_call(pid);
        let_go(pid, sig == (SIGTRAP | 0x80) || status >> 16 ? 0 : sig);
}

/* Traces until the first process has ended; returns its wait status. */
static int trace(pid_t first)
{
        const struct timespec look = { .tv_nsec = LOOK_NS };
        sigset_t child;
        pid_t pid;
        int status;

        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child, NULL);
        for (;;) {
                while ((pid = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
                        if (WIFSTOPPED(status))
                                stopped(pid, status);
                        else if (is_running(pid))
                                *slot(pid) = 0;
                        if (pid == first && !WIFSTOPPED(status))
                                return status;
                }
                if (sigtimedwait(&child, NULL, &look) >= 0)
                        continue;
                for (int i = 0; i < THREADS; i++)
                        if (running[i])
                                request(PTRACE_INTERRUPT, running[i], NULL, NULL);
        }
}

/* Begins when its tracer has closed the other end of the pipe. */
static void start(int begin, char **command)
{
        char byte;

        if (read(begin, &byte, 1) == 0)
                execvp(*command, command);
        err(127, "%s", *command);
}

int main(int argc, char **argv)
{
        const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
        int status, pipes[2];

        if (argc < 3 || pipe(pipes) != 0)
                errx(2, "usage: split_lock program|kern COMMAND...");
        in_kern = strcmp(argv[1], "kern") == 0;
        pid_t pid = fork();
        if (pid == 0) {
                close(pipes[1]);
                start(pipes[0], argv + 2);
        }
        request(PTRACE_SEIZE, pid, NULL, (void *)options);
        request(PTRACE_INTERRUPT, pid, NULL, NULL);
        waitpid(pid, &status, __WALL);
        let_go(pid, 0);
        close(pipes[1]);
        status = trace(pid);
        if (!done)
                errx(2, "KVM_RUN never ended by a split lock");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
