/*
 * t_self: calls that change a program's attributes in the kernel, and calls that ask for them.
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "t_self.h"

struct self_call {
        const char *name;
        int nr, args;
        void (*arguments)(long a[5], size_t n);
        size_t n;                       /* how many cases there are */
};

static char buffer[4096];               /* what an argument points to */
#define BUFFER ((long)buffer)
#define OWN 0x7fffff01l                 /* stands for this process's number */

static void say_call(const struct self_call *c, size_t n)
{
        long a[5] = { 0 };

        memset(buffer, 0, sizeof(buffer));
        c->arguments(a, n);
        printf("%s(", c->name);
        for (int i = 0; i < c->args; i++)
                if (a[i] - BUFFER >= 0 && a[i] - BUFFER < (long)sizeof(buffer))
                        printf("%sbuffer+%ld", i ? ", " : "", a[i] - BUFFER);
                else
                        printf("%s%#lx", i ? ", " : "", a[i]);
        for (int i = 0; i < 5; i++)
                a[i] = a[i] == OWN ? getpid() : a[i];
        long result = syscall(c->nr, a[0], a[1], a[2], a[3], a[4]);
        if (result == -1)
                printf(") = %s", strerrorname_np(errno));
        else if ((c->nr == SYS_gettid || c->nr == SYS_getpgid) && result == getpid())
                printf(") = its number");
        else
                printf(") = %ld", result);
        /* Also what the call has been given. */
        for (int i = 0; i < 64; i += 8)
                if (*(uint64_t *)(buffer + i))
                        printf(" %d:%#lx", i, *(uint64_t *)(buffer + i));
        printf("\n");
}

/* --- what is asked --- */

static void g_rlimit(long a[5], size_t n)
{
        a[0] = n < 17 ? (long)n : -1;
        a[1] = BUFFER;
}

static void g_prlimit(long a[5], size_t n)
{
        const long pids[] = { 0, OWN, -1, 1 << 30 };
        a[0] = pids[n % 4];
        a[1] = (long[]){ RLIMIT_AS, RLIMIT_NOFILE, RLIMIT_NPROC, 16 }[n / 4];
        a[3] = BUFFER;
}

static void g_prctl(long a[5], size_t n)
{
        static const struct { int option; bool buffer; } get[] = {
                { PR_GET_PDEATHSIG, true }, { PR_GET_DUMPABLE, false }, { PR_GET_UNALIGN, true },
                { PR_GET_KEEPCAPS, false }, { PR_GET_FPEMU, true }, { PR_GET_FPEXC, true },
                { PR_GET_TIMING, false }, { PR_GET_NAME, true }, { PR_GET_ENDIAN, true },
                { PR_GET_SECCOMP, false }, { PR_GET_TSC, true }, { PR_GET_SECUREBITS, false },
                { PR_GET_TIMERSLACK, false }, { PR_MCE_KILL_GET, false },
                { PR_GET_CHILD_SUBREAPER, true }, { PR_GET_NO_NEW_PRIVS, false },
                { PR_GET_THP_DISABLE, false }, { 58 /* PR_GET_IO_FLUSHER */, false }, { 0, false },
                { 999, false }, { -1, false },
        };
        a[0] = get[n % COUNT(get)].option;
        a[1] = get[n % COUNT(get)].buffer ? BUFFER : 0;
        if (n >= COUNT(get))
                a[1 + draw(4)] = (long)draw(3);
}

static void g_capabilities(long a[5], size_t n)
{
        a[0] = (long[]){ PR_CAPBSET_READ, PR_CAP_AMBIENT, PR_GET_SPECULATION_CTRL }[n % 3];
        a[1] = a[0] == PR_CAP_AMBIENT ? 1 + (long)draw(5) : (long)draw(48);
        a[2] = a[0] == PR_CAP_AMBIENT ? (long)draw(42) : 0;
}

static void g_capget(long a[5], size_t n)
{
        static const uint32_t versions[] = { 0x20080522, 0x20071026, 0x19980330, 0, 0x12345678 };
        ((uint32_t *)buffer)[0] = versions[n % COUNT(versions)];
        ((uint32_t *)buffer)[1] = n % 7 == 6 ? 1 << 30 : 0;
        a[0] = BUFFER;
        a[1] = n % 2 ? BUFFER + 8 : 0;
}

static void g_pid(long a[5], size_t n)
{
        a[0] = (long[]){ 0, OWN, -1, 1 << 30 }[n % 4];
        a[1] = n / 4 ? 0 : BUFFER;
}

static void g_attr(long a[5], size_t n)
{
        a[1] = BUFFER;
        a[2] = (long[]){ 48, 56, 47, 0, 4096, 4097, 64 }[n];
        a[3] = n == 6;
}

static void g_cpus(long a[5], size_t n)
{
        a[1] = (long[]){ 128, 8, 7, 0, 4096, 1024 }[n];
        a[2] = BUFFER;
}

static void g_priority(long a[5], size_t n)
{
        a[0] = (long[]){ PRIO_PROCESS, 3, -1, PRIO_PROCESS }[n];
        a[1] = n == 3 ? 1 << 30 : 0;
}

static void g_number(long a[5], size_t n) { a[0] = (long)n - 1; }
static void g_ids(long a[5], size_t n)
{
        (void)n;
        for (int i = 0; i < 3; i++)
                a[i] = BUFFER + 4 * i;
}

static void g_personality(long a[5], size_t n) { (void)n, a[0] = 0xffffffff; }
static void g_ioprio(long a[5], size_t n) { a[0] = (long)n; }
static void g_groups(long a[5], size_t n) { a[0] = (long)n * 32 - 32, a[1] = BUFFER; }
static void g_none(long a[5], size_t n) { (void)a, (void)n; }

static const struct self_call questions[] = {
        { "getrlimit", SYS_getrlimit, 2, g_rlimit, 18 },
        { "prlimit64", SYS_prlimit64, 4, g_prlimit, 16 },
        { "prctl", SYS_prctl, 5, g_prctl, 42 },
        { "prctl", SYS_prctl, 5, g_capabilities, 9 },
        { "capget", SYS_capget, 2, g_capget, 10 },
        { "sched_getscheduler", SYS_sched_getscheduler, 1, g_pid, 4 },
        { "sched_getparam", SYS_sched_getparam, 2, g_pid, 8 },
        { "sched_getattr", SYS_sched_getattr, 4, g_attr, 7 },
        { "sched_getaffinity", SYS_sched_getaffinity, 3, g_cpus, 6 },
        { "sched_get_priority_max", SYS_sched_get_priority_max, 1, g_number, 10 },
        { "sched_get_priority_min", SYS_sched_get_priority_min, 1, g_number, 10 },
        { "getpriority", SYS_getpriority, 2, g_priority, 4 },
        { "getresuid", SYS_getresuid, 3, g_ids, 1 },
        { "getresgid", SYS_getresgid, 3, g_ids, 1 },
        { "getgroups", SYS_getgroups, 2, g_groups, 3 },
        { "personality", SYS_personality, 1, g_personality, 1 },
        { "ioprio_get", SYS_ioprio_get, 2, g_ioprio, 4 },
        { "getpgid", SYS_getpgid, 1, g_pid, 4 },
        { "gettid", SYS_gettid, 0, g_none, 1 },
        { "membarrier", SYS_membarrier, 2, g_none, 1 },
};

/* --- what changes something --- */

static void c_rlimit(long a[5], size_t n)
{
        static const uint64_t values[] = { RLIM_INFINITY, 1ul << 30, 1ul << 36, 8ul << 20, 20 };
        uint64_t *limit = (void *)buffer;

        a[0] = (long)draw(18) - 1;
        /* The program needs some of these itself. */
        bool needed = a[0] <= RLIMIT_STACK || a[0] == RLIMIT_AS || a[0] == RLIMIT_NPROC;
        limit[0] = values[draw(COUNT(values) - needed)];
        limit[1] = draw(3) ? limit[0] + draw(2) * 8 : values[draw(COUNT(values) - needed)];
        if (a[0] == RLIMIT_NOFILE && limit[0] < RLIM_INFINITY)
                limit[0] = limit[1] = 100 + draw(200);
        a[1] = BUFFER;
        (void)n;
}

static void c_prctl(long a[5], size_t n)
{
        static const int set[] = { PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS,
                                   PR_SET_TIMERSLACK, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER,
                                   PR_SET_SECUREBITS, PR_CAPBSET_DROP, PR_SET_THP_DISABLE,
                                   PR_MCE_KILL, PR_SET_TIMING, PR_SET_FPEMU, PR_SET_UNALIGN,
                                   PR_SET_ENDIAN, 57 /* PR_SET_IO_FLUSHER */, PR_CAP_AMBIENT };
        static const long values[] = { 0, 1, 2, 3, 17, 64, 65, -1, 1000000, 1ul << 40 };

        a[0] = ONE_OF(set);
        a[1] = draw(2) ? (long)draw(3) : ONE_OF(values);
        if (draw(5) == 0 || a[0] == PR_CAP_AMBIENT)
                a[2 + draw(3)] = (long)draw(45);
        (void)n;
}

static void c_name(long a[5], size_t n)
{
        a[0] = PR_SET_NAME;
        a[1] = draw(8) ? BUFFER : (long)draw(2);
        snprintf(buffer, sizeof(buffer), "%.*s", (int)draw(20), "a-name/too:long\\for?16");
        (void)n;
}

static void c_scheduler(long a[5], size_t n)
{
        a[0] = draw(6) ? 0 : -1;
        a[1] = (long[]){ SCHED_OTHER, SCHED_BATCH, SCHED_BATCH | 1 << 30, 4, 6, -1 }[draw(6)];
        *(int *)buffer = draw(3) ? 0 : 100;
        a[2] = draw(8) ? BUFFER : 0;
        (void)n;
}

static void c_attr(long a[5], size_t n)
{
        static const uint32_t sizes[] = { 48, 56, 0, 47, 49, 4096, 64 };
        struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; } *attr =
                (void *)buffer;

        attr->size = ONE_OF(sizes);
        attr->policy = (uint32_t[]){ SCHED_OTHER, SCHED_BATCH, 4, 77 }[draw(4)];
        attr->flags = draw(2) ? 0 : draw(0x20);
        attr->nice = (int)draw(3);
        attr->priority = draw(5) == 0;
        a[1] = BUFFER;
        a[2] = draw(8) == 0;
        (void)n;
}

static void c_cpus(long a[5], size_t n)
{
        a[1] = (long[]){ 8, 8, 128, 1, 0, 4096 }[draw(6)];
        a[2] = BUFFER;
        *(uint64_t *)buffer = (uint64_t[]){ 1, 2, 3, 0, 1ul << 63, -1ul }[draw(6)];
        (void)n;
}

static void c_priority(long a[5], size_t n)
{
        a[0] = (long[]){ PRIO_PROCESS, PRIO_PROCESS, 3, -1 }[draw(4)];
        a[1] = draw(4) || a[0] < 0 ? 0 : 1 << 30;
        a[2] = (long[]){ 0, 1, 2, 3, -1, -30 }[draw(6)];
        (void)n;
}

static void c_umask(long a[5], size_t n) { (void)n, a[0] = (long)draw(01777); }

static void c_personality(long a[5], size_t n)
{
        static const long bits[] = { ADDR_NO_RANDOMIZE, MMAP_PAGE_ZERO, ADDR_COMPAT_LAYOUT,
                                     ADDR_LIMIT_32BIT, SHORT_INODE, WHOLE_SECONDS,
                                     STICKY_TIMEOUTS, ADDR_LIMIT_3GB, 8 };
        a[0] = ONE_OF(bits) | ONE_OF(bits);
        (void)n;
}

static void c_capset(long a[5], size_t n)
{
        uint32_t *word = (void *)buffer;

        word[0] = draw(6) ? 0x20080522 : (uint32_t)draw(1ul << 32);
        for (int i = 2; i < 8; i++)
                word[i] = draw(2) ? 0 : (uint32_t)(draw(1ul << 32) & draw(1ul << 32));
        a[0] = BUFFER;
        a[1] = draw(8) ? BUFFER + 8 : 0;
        (void)n;
}

static void c_ids(long a[5], size_t n)
{
        for (int i = 0; i < 3; i++)
                a[i] = draw(3) ? 65534 : draw(2) ? 0 : -1;
        (void)n;
}

static const struct self_call changes[] = {
        { "setrlimit", SYS_setrlimit, 2, c_rlimit, 0 },
        { "setrlimit", SYS_setrlimit, 2, c_rlimit, 0 },
        { "prctl", SYS_prctl, 5, c_prctl, 0 },
        { "prctl", SYS_prctl, 5, c_prctl, 0 },
        { "prctl", SYS_prctl, 2, c_name, 0 },
        { "sched_setscheduler", SYS_sched_setscheduler, 3, c_scheduler, 0 },
        { "sched_setattr", SYS_sched_setattr, 3, c_attr, 0 },
        { "sched_setaffinity", SYS_sched_setaffinity, 3, c_cpus, 0 },
        { "setpriority", SYS_setpriority, 3, c_priority, 0 },
        { "umask", SYS_umask, 1, c_umask, 0 },
        { "personality", SYS_personality, 1, c_personality, 0 },
        { "capset", SYS_capset, 2, c_capset, 0 },
        { "setresuid", SYS_setresuid, 3, c_ids, 0 },
        { "setresgid", SYS_setresgid, 3, c_ids, 0 },
};

void make_change(void) { say_call(&ONE_OF(changes), 0); }

void ask_questions(void)
{
        for (size_t i = 0; i < COUNT(questions); i++)
                for (size_t n = 0; n < questions[i].n; n++)
                        say_call(&questions[i], n);
}
