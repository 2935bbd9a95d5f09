/*
 * Signals for a thread that makes system calls with odd flags set.
 *
 * Each signal comes to a stack that has not been touched, while the thread does nothing but system
 * calls: so one of them may be on its way back just then, with its flags restored and the jump
 * still to come. Whatever the flags are, the stack's new pages are zero but for the frame, no other
 * page changes, the frame holds the flags, and the handler begins with DF clear.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include "t_entry.h"

enum {
        PAGE = 4096,
        STACK_PAGES = 8,
        FRESH_PAGES = 2 /* at its top */,
        OTHER_PAGES = 64,
        FILL = 0xa5,
        DF = 0x400,
        NT = 0x4000
};

static unsigned char *stack, *other;
static uint64_t kept;                   /* flags that only the program changes */
static uint64_t flags;                  /* set around the system calls, and kept */
static struct { long pages, frames, handlers, calls; } bad;
static volatile long taken;             /* signals */

extern char calls_begin[], calls_end[]; /* where the flags are set */

static void handler(int sig, siginfo_t *si, void *context)
{
        const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
        uint64_t now, rsp;

        __asm__ volatile("pushfq; pop %0; cld; mov %%rsp, %1" : "=r"(now), "=r"(rsp));
        (void)sig, (void)si;
        if (now & DF)
                bad.handlers++;
        if (g[REG_RIP] >= (greg_t)calls_begin && g[REG_RIP] < (greg_t)calls_end &&
            ((uint64_t)g[REG_EFL] & flags) != flags)
                bad.frames++;
        /* Below what this function may use of its stack. */
        for (uint64_t p = rsp & ~(PAGE - 1ul); p + 512 < rsp; p += 8)
                if (*(const uint64_t *)p) {
                        bad.pages++;
                        break;
                }
        taken++;
}

/*
 * getpid until n signals were taken, with these flags set all the time. Returns how many gave
 * something else.
 */
__attribute__((noinline))
static long call_until(long n, uint64_t with)
{
        long wrong = 0;

        __asm__ volatile(
                "       lea -128(%%rsp), %%rsp\n"
                "       pushfq; orq %[with], (%%rsp); popfq\n"
                "calls_begin:\n"
                "       mov $39, %%eax; syscall\n"
                "       cmp %[pid], %%rax; je 2f; incq %[wrong]\n"
                "2:     cmp %[n], %[taken]\n"
                "       jl calls_begin\n"
                "calls_end:\n"
                "       pushfq; andq $~0x44400, (%%rsp); popfq\n"
                "       lea 128(%%rsp), %%rsp\n"
                : [wrong] "+r"(wrong)
                : [with] "r"(with), [n] "r"(n), [taken] "m"(taken), [pid] "r"((long)getpid())
                : "rax", "rcx", "r11", "memory", "cc");
        return wrong;
}

static long harmed_pages(void)
{
        static unsigned char as_filled[PAGE];
        long harmed = 0;

        memset(as_filled, FILL, PAGE);
        for (long i = 0; i < OTHER_PAGES; i++)
                harmed += memcmp(other + i * PAGE, as_filled, PAGE) != 0;
        return harmed;
}

static void rounds_with(const char *name, uint64_t with, long rounds, timer_t timer)
{
        unsigned char *fresh = stack + (STACK_PAGES - FRESH_PAGES) * PAGE;

        flags = with & kept;
        memset(&bad, 0, sizeof(bad));
        memset(other, FILL, OTHER_PAGES * PAGE);
        taken = 0;
        for (long n = 1; n <= rounds; n++) {
                const struct itimerspec soon = { .it_value.tv_nsec =
                                                         5000 + (long)(rand() & 0xffff) };

                memset(fresh, FILL, FRESH_PAGES * PAGE); /* what the frame's page may have been */
                madvise(fresh, FRESH_PAGES * PAGE, MADV_DONTNEED);
                timer_settime(timer, 0, &soon, NULL);
                bad.calls += call_until(n, with);
        }
        printf("%s: %ld pages not zero, %ld other pages harmed, %ld frames and %ld handlers with "
               "wrong flags, %ld wrong results\n",
               name, bad.pages, harmed_pages(), bad.frames, bad.handlers, bad.calls);
}

int flags_main(long rounds, bool level3)
{
        struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK };
        struct sigevent se = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
        timer_t timer;

        setvbuf(stdout, NULL, _IOLBF, 0);
        stack = mmap(NULL, STACK_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
        other = mmap(NULL, OTHER_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
        if (stack == MAP_FAILED || other == MAP_FAILED ||
            timer_create(CLOCK_MONOTONIC, &se, &timer)) {
                perror("FAILED to begin");
                return 1;
        }
        sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = STACK_PAGES * PAGE }, NULL);
        sigaction(SIGUSR1, &sa, NULL);
        kept = level3 ? ~(uint64_t)NT : ~0ull;
        rounds_with("no flags", 0, rounds / 10, timer);
        rounds_with("DF", DF, rounds, timer);
        rounds_with("NT", NT, rounds, timer);
        rounds_with("AC", 0x40000, rounds / 10, timer);
        rounds_with("DF, NT and AC", 0x44400, rounds, timer);
        return 0;
}
