/*
 * A program for split_lock: its instruction gets the SIGBUS of a split lock.
 *
 * usage: t_split HOW
 *
 * HOW: the SIGBUS is "handled", is handled by a second "thread", has its "default" action, is
 * "ignored", or is "blocked".  "plain": it has a handler, but there is no such instruction.
 * "guide": a guide executes the instruction, and natively nothing does; "guide-blocked": the SIGBUS
 * is blocked meanwhile.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "t_split.h"
#include "vmguest.h"

static volatile struct { int count, code, at, trapno, err, thread; void *addr; } seen;

void split_waits(void);
void split_waited(void);

/* The waiting instruction is one: RIP is always at it.  split_lock ends it. */
__asm__(".pushsection .text\n"
        "split_wait:\n"
        "       pushq   %rbx\n"
        "       movq    $" SPLIT_MARK_TEXT ", %rbx\n"
        "       leaq    split_waits(%rip), %rax\n"
        "split_waits:\n"
        "       jmp     split_waits\n"
        "split_waited:\n"
        "       popq    %rbx\n"
        "       ret\n"
        ".popsection\n");

void split_wait(void);

static void handler(int sig, siginfo_t *info, void *context)
{
        greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;

        (void)sig;
        seen.count++;
        seen.code = info->si_code;
        seen.addr = info->si_code > 0 ? info->si_addr : NULL;
        seen.at = r[REG_RIP] == (greg_t)(uintptr_t)split_waits;
        seen.trapno = (int)r[REG_TRAPNO];
        seen.err = (int)r[REG_ERR];
        seen.thread = gettid() != getpid();
        if (seen.at)
                r[REG_RIP] = (greg_t)(uintptr_t)split_waited;
}

static void report(void)
{
        sigset_t pending, mask;

        sigpending(&pending);
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        printf("%d times, code %d, address %p, at the instruction: %d, trap %d, error %d, "
               "thread: %d, pending: %d, blocked: %d\n",
               seen.count, seen.code, seen.addr, seen.at, seen.trapno, seen.err, seen.thread,
               sigismember(&pending, SIGBUS), sigismember(&mask, SIGBUS));
}

static void *run(void *arg)
{
        for (int i = 0; i < 2; i++) {
                split_wait();
                report();
        }
        return arg;
}

static void block_bus(int how)
{
        sigset_t bus;

        sigemptyset(&bus);
        sigaddset(&bus, SIGBUS);
        sigprocmask(how, &bus, NULL);
}

/* ---- a guide: it is ended, and its program continues ---- */

#define SIZE (4ul << 20)                /* several times the cache */

static long guide(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        split_wait();
        return 0;
}

static int guided(void)
{
        char *arena = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int wrong = 0;

        if (arena == MAP_FAILED)
                return 1;
        memset(arena, 3, SIZE);
        if (vmg_guide(arena, SIZE, guide, NULL) != 0)
                return 1;
        for (size_t at = 0; at < SIZE; at += VMG_PAGE)
                wrong += arena[at] != 3;
        printf("wrong: %d\n", wrong);
        report();
        /* No SIGBUS waits, and the handler is still there. */
        block_bus(SIG_UNBLOCK);
        report();
        raise(SIGBUS);
        report();
        return 0;
}

static void set(const char *how)
{
        struct sigaction a = { .sa_flags = SA_SIGINFO };

        a.sa_sigaction = handler;
        if (strcmp(how, "ignored") == 0) {
                a.sa_flags = 0;
                a.sa_handler = SIG_IGN;
        }
        if (strcmp(how, "default") != 0)
                sigaction(SIGBUS, &a, NULL);
        if (strstr(how, "blocked"))
                block_bus(SIG_BLOCK);
}

int main(int argc, char **argv)
{
        const char *how = argc > 1 ? argv[1] : "plain";
        pthread_t other;

        setvbuf(stdout, NULL, _IONBF, 0);
        set(how);
        printf("%s\n", how);
        if (strcmp(how, "plain") == 0)
                return 0;
        if (strncmp(how, "guide", 5) == 0)
                return guided();
        if (strcmp(how, "thread") != 0)
                run(NULL);
        else if (pthread_create(&other, NULL, run, NULL) == 0)
                pthread_join(other, NULL);
        return 0;
}
