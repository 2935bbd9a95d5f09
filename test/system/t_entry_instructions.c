/*
 * A line for each instruction of the table: its result. Children run them, for under vmrun
 * some may stop their VM.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "t_entry.h"

struct report {
        uint64_t last;                  /* the child ends behind this one */
        struct outcome o;
};

static const char *where(uint64_t addr, const void *code, char *text, size_t n)
{
        uint64_t of_code = addr - (uint64_t)code, of_data = addr - (uint64_t)data;

        if (addr && of_code < 64)
                snprintf(text, n, "+%lu", of_code);
        else if (of_data < DATA_SIZE)
                snprintf(text, n, "data+%lu", of_data);
        else
                snprintf(text, n, "0x%lx", addr);
        return text;
}

static void describe(const struct instruction *i, const struct outcome *o, char *text, size_t n)
{
        char addr[32], rip[32];

        if (o->signo)
                snprintf(text, n, "SIG%s code %d addr %s rip %s trap %lu err 0x%lx flags 0x%lx%s",
                         sigabbrev_np(o->signo), o->code,
                         where(o->addr, i->code, addr, sizeof(addr)),
                         where(o->rip, i->code, rip, sizeof(rip)), o->trap, o->err, o->flags,
                         o->more ? ", and more signals" : "");
        else if (i->flags & I_VALUE)
                snprintf(text, n, "ran, rax 0x%lx flags 0x%lx", o->rax, o->flags);
        else
                snprintf(text, n, "ran, flags 0x%lx", o->flags);
}

/* All from `first` on, up to an instruction that spoils the CPU's state. */
static void child(int out, unsigned first, unsigned end)
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_prepare();
        for (unsigned n = first; n < end; n++) {
                struct instruction i = instruction(n);
                struct report r = { .last = (i.flags & I_ALONE) != 0 };

                run_code(i.code, &r.o);
                if (write(out, &r, sizeof(r)) != sizeof(r) || r.last)
                        break;
        }
        _exit(0);
}

/* What ended a child that had not told the outcome of its instruction. */
static void describe_end(int timed_out, int status, char *text, size_t n)
{
        if (timed_out)
                snprintf(text, n, "hangs");
        else if (WIFSIGNALED(status))
                snprintf(text, n, "dies by SIG%s", sigabbrev_np(WTERMSIG(status)));
        else
                snprintf(text, n, "exit status %d", WEXITSTATUS(status));
}

/* One child's turn; returns the first instruction that is still to be run. */
static unsigned turn(unsigned first, unsigned end, int seconds)
{
        int p[2], status, timed_out = 0;
        char text[256];
        unsigned n = first;
        struct report r = { 0 };

        if (pipe(p) < 0) {
                perror("FAILED pipe");
                exit(1);
        }
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
                child(p[1], first, end);
        close(p[1]);
        while (!r.last && n < end) {
                struct pollfd f = { .fd = p[0], .events = POLLIN };
                timed_out = poll(&f, 1, seconds * 1000) != 1;
                if (timed_out || read(p[0], &r, sizeof(r)) != sizeof(r))
                        break;
                struct instruction i = instruction(n);
                describe(&i, &r.o, text, sizeof(text));
                printf("%s: %s\n", i.name, text);
                n++;
        }
        close(p[0]);
        if (timed_out)
                kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        if (!r.last && n < end) {
                describe_end(timed_out, status, text, sizeof(text));
                printf("%s: %s\n", instruction(n++).name, text);
        }
        return n;
}

/* All from first up to end. */
static void range(unsigned first, unsigned end, int seconds)
{
        while (first < end)
                first = turn(first, end, seconds);
}

int instructions_main(int seconds, const char *only, const char *without)
{
        unsigned n = 0, end = instructions_count();
        const char *name = only ? only : without;

        while (name && n < end && strcmp(instruction(n).name, name) != 0)
                n++;
        if (name && n == end) {
                fprintf(stderr, "t_entry: there is no instruction '%s'\n", name);
                return 2;
        }
        if (only) {
                range(n, n + 1, seconds);
        } else if (without) {
                range(0, n, seconds);
                range(n + 1, end, seconds);
        } else {
                range(0, end, seconds);
        }
        return 0;
}
