/*
 * A line for each instruction of the table: what became of it. Children run them, for under vmrun some may stop their VM.
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
        uint32_t number, last;          /* last: the child ends behind this one */
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
                snprintf(text, n, "SIG%s code %d addr %s rip %s trap %lu err 0x%lx flags 0x%lx", sigabbrev_np(o->signo), o->code,
                         where(o->addr, i->code, addr, sizeof addr), where(o->rip, i->code, rip, sizeof rip), o->trap, o->err, o->flags);
        else if (i->flags & I_VALUE)
                snprintf(text, n, "ran, rax 0x%lx flags 0x%lx", o->rax, o->flags);
        else
                snprintf(text, n, "ran, flags 0x%lx", o->flags);
}

/* All from `first` on, until one that leaves something behind. */
static void child(int out, unsigned first)
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_prepare();
        for (unsigned n = first; n < instructions_count(); n++) {
                struct instruction i = instruction(n);
                struct report r = { .number = n, .last = (i.flags & I_ALONE) != 0 };

                run_code(i.code, &r.o);
                if (write(out, &r, sizeof r) != sizeof r || r.last)
                        break;
        }
        _exit(0);
}

/* What ended a child that had not said what became of its instruction. */
static void describe_end(int timed_out, int status, char *text, size_t n)
{
        if (timed_out)
                snprintf(text, n, "hangs");
        else if (WIFSIGNALED(status))
                snprintf(text, n, "dies by SIG%s", sigabbrev_np(WTERMSIG(status)));
        else
                snprintf(text, n, "exit status %d", WEXITSTATUS(status));
}

static void print(const char *only, const char *name, const char *text)
{
        if (!only || strcmp(only, name) == 0)
                printf("%s: %s\n", name, text);
}

/* One child's; returns the first that is still to be run. */
static unsigned turn(unsigned first, const char *only, int seconds)
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
                child(p[1], first);
        close(p[1]);
        while (!r.last && n < instructions_count()) {
                struct pollfd f = { .fd = p[0], .events = POLLIN };
                if (poll(&f, 1, seconds * 1000) != 1) {
                        timed_out = 1;
                        break;
                }
                if (read(p[0], &r, sizeof r) != sizeof r)
                        break;
                struct instruction i = instruction(r.number);
                describe(&i, &r.o, text, sizeof text);
                print(only, i.name, text);
                n = r.number + 1;
        }
        close(p[0]);
        if (timed_out)
                kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        if (!r.last && n < instructions_count()) {
                describe_end(timed_out, status, text, sizeof text);
                print(only, instruction(n).name, text);
                n++;
        }
        return n;
}

int instructions_main(const char *only, int table, int seconds)
{
        (void)table;
        for (unsigned n = 0; n < instructions_count(); )
                n = turn(n, only, seconds);
        return 0;
}
