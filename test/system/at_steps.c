/*
 * Sends signals to children of a program at each step of their beginning.
 *
 * usage: at_steps signals|kill COMMAND...
 *
 * Traces COMMAND, natively or under vmrun.  A step is a host system call of a child, where it
 * begins or ends.  The first child only shows how many steps there are, and gets no signal.  Each
 * later one is a round: it gets its signal (t_steps.h) at the next step, or a moment after it, and
 * is let go.
 *
 * signals: the steps end where the child reads from STEPS_FD, and a byte is there for each.
 * kill: the signal is SIGKILL, and the steps end with the child.
 *
 * Exit status: COMMAND's.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "t_steps.h"

#define LATE_MOST_NS 400000             /* after a step: some are long calls, of KVM_RUN */
#define STOPPED_NS   5000000            /* a child has stopped, or will never */

static bool kills;
static int bytes, left_bytes;           /* both ends of the pipe; reading does not wait */
static unsigned steps, rounds;

static void pause_ns(long ns)
{
        const struct timespec t = { .tv_nsec = ns };

        nanosleep(&t, NULL);
}

static void let_go(pid_t pid, int request, int sig)
{
        if (ptrace((enum __ptrace_request)request, pid, NULL, (void *)(intptr_t)sig) != 0 &&
            errno != ESRCH)
                err(2, "ptrace(%d)", request);
}

/* A child that died of SIGKILL meanwhile is its parent's only when its tracer has seen its end. */
static void detach(pid_t pid)
{
        int status;

        if (ptrace(PTRACE_DETACH, pid, NULL, NULL) != 0)
                waitpid(pid, &status, __WALL);
}

/* The child is at its end: it enters the read, or it is gone. */
static bool at_end(pid_t pid, int status)
{
        struct user_regs_struct r;

        if (WIFEXITED(status) || WIFSIGNALED(status))
                return true;
        if (kills || ptrace(PTRACE_GETREGS, pid, NULL, &r) != 0)
                return false;
        return r.orig_rax == SYS_read && r.rdi == STEPS_FD;
}

/* Runs a child for `most` steps, or to its end.  Returns its steps; *gone: it was reaped. */
static unsigned go(pid_t pid, unsigned most, bool *gone)
{
        unsigned n = 0;
        int status, sig = 0;

        *gone = false;
        while (waitpid(pid, &status, __WALL) == pid) {
                *gone = WIFEXITED(status) || WIFSIGNALED(status);
                if (at_end(pid, status) || n == most)
                        break;
                bool step = WSTOPSIG(status) == (SIGTRAP | 0x80);
                bool event = status >> 16 || WSTOPSIG(status) == SIGSTOP;
                sig = step || event ? 0 : WSTOPSIG(status);
                n += step;
                let_go(pid, PTRACE_SYSCALL, sig);
        }
        return n;
}

static void one_child(pid_t pid)
{
        const unsigned round = rounds++, r = round - 1;
        const int sig = kills ? SIGKILL : steps_signal(r);
        const bool late = rand() % 2;
        char left[16];
        bool gone;

        /* of children that did not get there */
        while (read(left_bytes, left, sizeof(left)) > 0)
                ;
        if (round == 0) {
                steps = go(pid, UINT32_MAX, &gone);
                fprintf(stderr, "at_steps: %u steps\n", steps);
        } else {
                /* Rounds with the same signal go through all steps in turn. */
                go(pid, (r / 64 + r * 37) % (steps + 1), &gone);
        }
        if (gone)
                return;
        if (round && !late)
                kill(pid, sig);
        detach(pid);
        if (round && late) {
                pause_ns(rand() % LATE_MOST_NS);
                kill(pid, sig);
        }
        if (!kills && write(bytes, "", 1) != 1)
                err(2, "write");
        if (round && !kills && steps_stops(r)) {
                pause_ns(STOPPED_NS);
                kill(pid, SIGCONT);
        }
}

static void start(char **command)
{
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execvp(*command, command);
        err(127, "%s", *command);
}

int main(int argc, char **argv)
{
        const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                             PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
        int status, pipes[2];
        unsigned long child;

        if (argc < 3 || pipe(pipes) != 0 || dup2(pipes[0], STEPS_FD) < 0)
                errx(2, "usage: at_steps signals|kill COMMAND...");
        kills = strcmp(argv[1], "kill") == 0;
        bytes = pipes[1];
        left_bytes = open("/proc/self/fd/9", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        pid_t pid = fork();
        if (pid == 0)
                start(argv + 2);
        waitpid(pid, &status, 0);
        ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options);
        let_go(pid, PTRACE_CONT, 0);
        while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
                int event = status >> 16;
                bool forks = event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK;
                if (forks)
                        ptrace(PTRACE_GETEVENTMSG, pid, NULL, &child);
                let_go(pid, PTRACE_CONT, event ? 0 : WSTOPSIG(status));
                if (forks)
                        one_child((pid_t)child);
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
