/*
 * The calls of the vsyscall page, natively and under vmrun with the same result.  Where the
 * kernel has no such page (vsyscall=none), a native run checks nothing and prints the usual lines.
 */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>
#include <time.h>
#include "t_sys.h"

#define PAGE      0xffffffffff600000ul
#define TIMEOFDAY PAGE
#define TIME      (PAGE + 0x400)
#define CPU       (PAGE + 0x800)

static bool here;
static sigjmp_buf back;
static siginfo_t last;
static char alternate[65536];

static void on_fault(int sig, siginfo_t *info, void *context)
{
        (void)sig, (void)context;
        last = *info;
        siglongjmp(back, 1);
}

/* Calls `at`: all registers that a function keeps are kept, and rdi to r10 too. */
static long call(uint64_t at, const void *a, const void *b)
{
        uint64_t sp, sp_after, kept = 0x1122334455667788, kept_after;
        const void *di = a, *si = b;
        long ret;

        asm volatile("movq %%rsp, %[sp]\n"
                     "movq %[kept], %%r10\n"
                     "call *%[at]\n"
                     "movq %%rsp, %[sp_after]\n"
                     "movq %%r10, %[kept_after]\n"
                     : "=a"(ret), "+D"(di), "+S"(si), [sp] "=&r"(sp), [sp_after] "=&r"(sp_after),
                       [kept_after] "=&r"(kept_after)
                     : [at] "r"(at), [kept] "r"(kept)
                     : "rcx", "r10", "r11", "memory", "cc");
        CHECK(sp == sp_after && di == a && si == b && kept == kept_after);
        return ret;
}

/* The call must end in SIGSEGV, with that si_code if one is given. */
static void dies(const char *what, uint64_t at, const void *a, const void *b, int code)
{
        uint64_t address = code == SI_KERNEL ? 0 : at;

        printf("%s is SIGSEGV\n", what);
        if (!here)
                return;
        if (sigsetjmp(back, 1) == 0) {
                call(at, a, b);
                CHECK(!"it returns");
        } else {
                CHECK(last.si_signo == SIGSEGV);
                CHECK(!code || last.si_code == code);
                CHECK(!code || (uint64_t)(uintptr_t)last.si_addr == address);
        }
}

static void without_stack(void)
{
        printf("a call without a stack is SIGSEGV\n");
        if (!here || sigsetjmp(back, 1))
                return;
        asm volatile("movq %0, %%rsp\n"
                     "jmp *%1\n"
                     :
                     : "r"(nothing + 8), "r"(TIME)
                     : "memory");
        CHECK(!"it returns");
}

static void times(void)
{
        struct timeval tv = { 0 }, after;
        struct timezone tz = { -1, -1 };
        time_t now = 0, before = time(NULL);

        CHECK(call(TIMEOFDAY, &tv, &tz) == 0);
        gettimeofday(&after, NULL);
        CHECK(tv.tv_sec >= before && tv.tv_sec <= after.tv_sec);
        CHECK(tv.tv_usec >= 0 && tv.tv_usec < 1000000 && tz.tz_minuteswest != -1);
        CHECK(call(TIMEOFDAY, NULL, NULL) == 0);
        long t = call(TIME, &now, NULL);
        CHECK(t == now && t >= before && t <= time(NULL));
        CHECK(call(TIME, NULL, NULL) >= t);
        for (int i = 0; i < 1000; i++) {
                struct timeval next = { 0 };
                CHECK(call(TIMEOFDAY, &next, NULL) == 0);
                CHECK(timercmp(&next, &tv, >=));
                tv = next;
        }
}

static void cpus(void)
{
        unsigned cpu = ~0u, node = ~0u;
        cpu_set_t one;

        CHECK(call(CPU, NULL, NULL) == 0);
        CPU_ZERO(&one);
        CPU_SET((unsigned)sched_getcpu(), &one);
        if (sched_setaffinity(0, sizeof(one), &one) == 0) {
                CHECK(call(CPU, &cpu, &node) == 0);
                CHECK(cpu < CPU_SETSIZE && CPU_ISSET(cpu, &one) && node != ~0u);
        }
}

static bool in_maps(void)
{
        char line[4096];
        bool found = false, is_last = false;
        FILE *f = fopen("/proc/self/maps", "r");

        while (f && fgets(line, sizeof(line), f)) {
                is_last = !strcmp(line, "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0"
                                        "                  [vsyscall]\n");
                found |= strstr(line, "[vsyscall]") != NULL;
        }
        if (f)
                fclose(f);
        CHECK(found == is_last);
        return found && is_last;
}

int main(int argc, char **argv)
{
        struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
        const stack_t ss = { .ss_sp = alternate, .ss_size = sizeof(alternate) };

        memory_init();
        sigaltstack(&ss, NULL);
        sigaction(SIGSEGV, &sa, NULL);
        here = in_maps();
        CHECK(here || argc < 2 || strcmp(argv[1], "must"));
        if (here) {
                times();
                cpus();
        }
        dies("a call between two", PAGE + 1, NULL, NULL, SI_KERNEL);
        dies("a call behind the last", PAGE + 0xc00, NULL, NULL, SI_KERNEL);
        dies("a call behind the page", PAGE + 0x1000, NULL, NULL, SEGV_MAPERR);
        dies("a call before the page", PAGE - 0x400, NULL, NULL, SEGV_MAPERR);
        dies("a bad pointer", TIMEOFDAY, nothing, NULL, 0);
        dies("another", TIMEOFDAY, NULL, nothing, 0);
        dies("one of read-only memory", TIME, read_only, NULL, 0);
        dies("a third", CPU, NULL, nothing, 0);
        without_stack();
        printf("reading the page is SIGSEGV\n");
        if (here && sigsetjmp(back, 1) == 0) {
                printf("%d\n", *(volatile char *)PAGE);
                CHECK(!"it can be read");
        }
        printf("%d failures\n", failures);
        return failures != 0;
}
