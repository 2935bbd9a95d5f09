/*
 * Guides: a fault that runs one is a fault like any other, whatever the guide does, or does wrong.
 * Its output is the same natively and under vmrun.  --called: guides must have been called, which
 * takes a tier that makes a fault wait.
 */
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "t_memory.h"
#include "vmguest.h"

#define PAGES 1536ul

static char *arena;
static bool must_be_called;
static bool alone = true;               /* no other thread may have evicted a page meanwhile */

/* The words that guides write are in this program's own data, which is pinned since it is small. */
static struct {
        atomic_ulong calls, missed, came, used;
        atomic_ulong wrong;             /* things that a guide found to be not as promised */
} seen;

static uint64_t next_random(uint64_t *x)
{
        *x = *x * 6364136223846793005ul + 1442695040888963407ul;
        return *x >> 33;
}

/* Reads all of the arena in an order that no policy guesses. */
static void visit_all(unsigned step)
{
        for (unsigned long i = 0; i < PAGES; i++) {
                unsigned long page = (i * step) % PAGES;
                verify("arena", arena + page * PG, page, 1, 1);
        }
}
#define STEP 997                        /* prime, so each page is visited once */

static void count_calls(const char *what)
{
        if (must_be_called && seen.calls == 0) {
                fprintf(stderr, "%s: no guide was called\n", what);
                exit(1);
        }
        CHECK(seen.wrong == 0);
        seen.calls = seen.missed = seen.came = seen.used = 0;
}

static void with_guide(vmg_guide_fn *fn, void *arg)
{
        CHECK(vmg_guide(arena, PAGES * PG, fn, arg) == 0);
        visit_all(STEP);
        CHECK(vmg_unguide(arena, PAGES * PG) == (vmg_version() ? 1 : 0) || seen.calls);
}

/* ---- a guide that prefetches ---- */

static long look_ahead(const struct vmg_fault *f, void *arg)
{
        char *page = (char *)(f->addr & ~(PG - 1));
        unsigned long at = (unsigned long)(page - arena) / PG;
        struct iovec next[2];
        uint64_t word;

        seen.calls++;
        seen.wrong += arg != &seen || f->size != sizeof(*f) || at >= PAGES;
        switch (f->event) {
        case VMG_MISSED:
                seen.missed++;
                break;
        case VMG_CAME:
                seen.came++;
                seen.wrong += vmg_peek(&word, page, sizeof(word)) != 0 && alone;
                return 0;
        case VMG_USED:
                seen.used++;
                seen.wrong += vmg_peek(&word, page, sizeof(word)) != 0 && alone;
                break;
        default:
                seen.wrong++;
        }
        for (unsigned long i = 0; i < 2; i++)
                next[i] = (struct iovec){ arena + (at + (i + 1) * STEP) % PAGES * PG, 8 };
        seen.wrong += vmg_prefetchv(next, 2) < 0;
        return f->event == VMG_MISSED ? VMG_AGAIN : 0;
}

static void helpful(void)
{
        with_guide(look_ahead, &seen);
        if (must_be_called)
                CHECK(seen.missed > 0 && seen.came > 0 && seen.used > 0 &&
                      seen.came <= seen.missed);
        count_calls("helpful");
}

/* ---- nothing of the thread changes ---- */

/* The upper halves of AVX's registers, where there are any. */
/* ---- a guide that reads ---- */

static char *blank, *hole;              /* a page that is never touched; nothing is mapped */

/* 8: right; -EAGAIN: it is not here.  Anything else is wrong. */
static ssize_t read_word(unsigned long page)
{
        uint64_t word;
        ssize_t n = vmg_read(&word, arena + page * PG + 8, sizeof(word), 0);

        if (n == sizeof(word))
                seen.wrong += word != cell_word(page_tag(page, 1), 1);
        else
                seen.wrong += n != -EAGAIN;
        return n;
}

static long reads(const struct vmg_fault *f, void *arg)
{
        unsigned long at = (f->addr - (uintptr_t)arena) / PG;
        char some[16] = "not zero";
        static char much[PG + 1];

        (void)arg;
        seen.calls++;
        seen.missed += f->event == VMG_MISSED;
        seen.came += f->event == VMG_CAME;
        if (f->event == VMG_CAME)
                seen.wrong += read_word(at) != 8;
        else
                read_word(at);
        read_word((at + STEP) % PAGES);
        seen.wrong += vmg_read(some, blank + PG - 4, 8, 0) != 8 || some[0] || some[7];
        seen.wrong += vmg_read(some, hole, 8, 0) != -EFAULT;
        seen.wrong += vmg_read(some, NULL, 8, 0) != -EFAULT;
        seen.wrong += vmg_read(NULL, &seen, 8, 0) != -EFAULT;
        seen.wrong += vmg_read(hole, &seen, 8, 0) != -EFAULT;
        seen.wrong += vmg_read(blank, &seen, 8, 0) != -EFAULT;
        seen.wrong += vmg_read(some, &seen, 8, 2) != -EINVAL;
        seen.wrong += vmg_read(much, arena, PG + 1, 0) != -EINVAL;
        seen.wrong += vmg_read(much, &must_be_called, 1, 0) != 1 || much[0] != must_be_called;
        return f->event == VMG_MISSED ? VMG_AGAIN : 0;
}

static void reading(void)
{
        blank = map_pages(2, RW, MAP_PRIVATE);
        hole = map_pages(1, RW, MAP_PRIVATE);
        munmap(hole, PG);
        with_guide(reads, NULL);
        CHECK(!must_be_called || (seen.missed && seen.came));
        CHECK(!vmg_version() || vmg_resident(blank, 2 * PG) == 0);
        munmap(blank, 2 * PG);
        count_calls("reading");
}

static bool has_avx;

__attribute__((target("avx"))) static void clobber_avx(void)
{
        __asm__ volatile("vxorps %%ymm2, %%ymm2, %%ymm2; vzeroupper" ::: "xmm2");
}
static void clobber_upper(void)
{
        if (has_avx)
                clobber_avx();
}

/* 1 if they differ behind the touch. */
__attribute__((target("avx"))) static unsigned long touch_with_avx(const volatile char *at)
{
        uint64_t in[4] = { 1, 2, 3, 4 }, out[4];

        __asm__ volatile("vmovups %1, %%ymm2; movb (%2), %%al; vmovups %%ymm2, %0; vzeroupper"
                         : "=m"(out)
                         : "m"(in), "r"(at)
                         : "rax", "xmm2", "memory");
        return memcmp(in, out, sizeof(in)) != 0;
}

static long clobber(const struct vmg_fault *f, void *arg)
{
        static const uint64_t junk[8] __attribute__((aligned(64))) = { 1, 2, 3, 4, 5, 6, 7, 8 };
        unsigned mxcsr = 0x1fbf;
        unsigned short fcw = 0x77f, now;

        (void)f;
        (void)arg;
        seen.calls++;
        __asm__ volatile("fnstcw %0" : "=m"(now));
        seen.wrong += now != 0x37f;
        __asm__ volatile("ldmxcsr %0; fldcw %1; fld1; fldpi; fldz\n\t"
                         "movups %2, %%xmm0; movups %2, %%xmm1; movups %2, %%xmm7\n\t"
                         "movups %2, %%xmm8; movups %2, %%xmm15\n\t"
                         "std; mov $-1, %%r8; mov %%r8, %%r9; mov %%r8, %%r10; mov %%r8, %%r11\n\t"
                         "cld"
                         :: "m"(mxcsr), "m"(fcw), "m"(junk)
                         : "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm7", "xmm8", "xmm15",
                           "memory");
        clobber_upper();
        return VMG_AGAIN;
}

/* Fills the registers, touches the page, and looks at them: the number of those that differ. */
static unsigned long touch_with_registers(const volatile char *at)
{
        static uint64_t in[16][2] __attribute__((aligned(16))), out[16][2];
        uint64_t gp[8], flags;
        unsigned mxcsr = 0x9fc0, mxcsr_out;
        unsigned short fcw = 0x27f, fcw_out;
        double pi = 0;
        unsigned long bad = 0;

        for (int i = 0; i < 16; i++)
                in[i][0] = 0x1111 * (unsigned)(i + 1), in[i][1] = ~in[i][0];
        __asm__ volatile(
                "ldmxcsr %[m]; fldcw %[c]; fldpi\n\t"
                "movups 0(%[in]), %%xmm0; movups 16(%[in]), %%xmm1; movups 112(%[in]), %%xmm7\n\t"
                "movups 128(%[in]), %%xmm8; movups 240(%[in]), %%xmm15\n\t"
                "mov $8, %%r8; mov $9, %%r9; mov $10, %%r10; mov $11, %%r11\n\t"
                "mov $12, %%r12; mov $13, %%r13; mov $14, %%r14; mov $15, %%r15\n\t"
                "stc\n\t"
                "movb (%[at]), %%al\n\t"
                "pushf; pop %[fl]\n\t"
                "movups %%xmm0, 0(%[out]); movups %%xmm1, 16(%[out])\n\t"
                "movups %%xmm7, 112(%[out]); movups %%xmm8, 128(%[out])\n\t"
                "movups %%xmm15, 240(%[out])\n\t"
                "mov %%r8, 0(%[gp]); mov %%r9, 8(%[gp]); mov %%r10, 16(%[gp])\n\t"
                "mov %%r11, 24(%[gp]); mov %%r12, 32(%[gp]); mov %%r13, 40(%[gp])\n\t"
                "mov %%r14, 48(%[gp]); mov %%r15, 56(%[gp])\n\t"
                "stmxcsr %[mo]; fnstcw %[co]; fstpl %[pi]; fninit; cld\n\t"
                : [mo] "=m"(mxcsr_out), [co] "=m"(fcw_out), [pi] "=m"(pi), [fl] "=&d"(flags)
                : [m] "m"(mxcsr), [c] "m"(fcw), [in] "D"(in), [out] "S"(out), [gp] "b"(gp),
                  [at] "c"(at)
                : "rax", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
                  "xmm7", "xmm8", "xmm15", "memory", "cc");
        __asm__ volatile("ldmxcsr %0" :: "m"((const unsigned){ 0x1f80 }));
        for (unsigned i = 0; i < 8; i++)
                bad += gp[i] != 8 + i;
        for (int i = 0; i < 16; i += i == 1 ? 6 : i == 8 ? 7 : 1)
                bad += memcmp(in[i], out[i], 16) != 0;
        return bad + (mxcsr_out != mxcsr) + (fcw_out != fcw) + (pi < 3.14 || pi > 3.15) +
               !(flags & 1);
}

static void registers(void)
{
        unsigned long bad = 0;

        CHECK(vmg_guide(arena, PAGES * PG, clobber, NULL) == 0);
        for (unsigned long i = 0; i < PAGES; i++)
                bad += has_avx && i % 2 ? touch_with_avx(arena + i * STEP % PAGES * PG + 5)
                                        : touch_with_registers(arena + i * STEP % PAGES * PG + 5);
        vmg_unguide(arena, PAGES * PG);
        CHECK(bad == 0);
        count_calls("registers");
}

/* ---- guides that break their rules ---- */

static long touches_far(const struct vmg_fault *f, void *arg)
{
        volatile char *other = arena + ((f->addr - (uintptr_t)arena) / PG + PAGES / 2) % PAGES * PG;
        unsigned long sum = 0;

        (void)arg;
        seen.calls++;
        for (int i = 0; i < 64; i++)
                sum += (unsigned long)other[(unsigned long)i * 7 * PG % (PAGES / 2 * PG)];
        return (long)(sum & 1);
}

static long touches_nothing(const struct vmg_fault *f, void *arg)
{
        (void)f;
        seen.calls++;
        return *(volatile long *)arg;
}

static long recurses(const struct vmg_fault *f, void *arg)
{
        volatile char room[1024];

        seen.calls++;
        room[0] = 1;
        room[1023] = f ? (char)recurses(f, (void *)&room[0]) : 1;
        (void)arg;
        return room[1023];
}

static long jumps_away(const struct vmg_fault *f, void *arg)
{
        (void)f;
        seen.calls++;
        return ((long (*)(void))arg)();
}

static long divides(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        seen.calls++;
        __asm__ volatile("xor %%ecx, %%ecx; mov $1, %%eax; cltd; idiv %%ecx" ::: "rax", "rcx",
                         "rdx");
        return 0;
}

static long undefined(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        seen.calls++;
        __asm__ volatile("ud2");
        return 0;
}

static long breaks(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        seen.calls++;
        __asm__ volatile("int3");
        return 0;
}

static long halts(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        seen.calls++;
        __asm__ volatile("hlt");
        return 0;
}

static long not_canonical(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        seen.calls++;
        return *(volatile long *)0x8000000000000000ul;
}

static long wrecks_fpu(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        seen.calls++;
        /* an exception of SSE: 1 / 0, not masked */
        __asm__ volatile("ldmxcsr %0; xorps %%xmm1, %%xmm1; cvtsi2sd %1, %%xmm0\n\t"
                         "divsd %%xmm1, %%xmm0"
                         :: "m"((const unsigned){ 0x1d80 }), "r"(1) : "xmm0", "xmm1");
        return 0;
}

static long calls_host(const struct vmg_fault *f, void *arg)
{
        uintptr_t number = (uintptr_t)arg;

        (void)f;
        seen.calls++;
        __asm__ volatile("syscall"      /* not through libc, which is not pinned */
                         : "+a"(number)
                         : "D"(0), "S"(0), "d"(0)
                         : "rcx", "r11", "memory");
        return (long)number;
}

static long guides(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        seen.calls++;
        return vmg_unguide(arena, PAGES * PG);
}

static long unmaps(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        seen.calls++;
        return vmg_drop(arena, PAGES * PG);
}

static long loops(const struct vmg_fault *f, void *arg)
{
        (void)arg;
        seen.calls++;
        while (f)
                __asm__ volatile("pause");
        return 0;
}

static long hints_for_ever(const struct vmg_fault *f, void *arg)
{
        (void)arg;
        seen.calls++;
        while (vmg_prefetch((void *)f->addr, PG) >= 0)
                ;
        return 0;
}

/* A guide is called no more once it was stopped three times; none of it is seen outside. */
static void misbehaving(void)
{
        static const struct { vmg_guide_fn *fn; uintptr_t arg; } bad[] = {
                { touches_far, 0 },      { touches_nothing, 0 },
                { touches_nothing, 0xfffffffffffffff8ul },
                { recurses, 0 },         { jumps_away, 0x10 },
                { divides, 0 },          { undefined, 0 },
                { breaks, 0 },           { halts, 0 },
                { not_canonical, 0 },    { wrecks_fpu, 0 },
                { calls_host, SYS_getppid }, { calls_host, SYS_pause },
                { calls_host, SYS_fork },    { calls_host, SYS_vfork },
                { calls_host, SYS_exit },    { calls_host, SYS_exit_group },
                { calls_host, SYS_execve },  { calls_host, SYS_rt_sigreturn },
                { calls_host, SYS_munmap },  { calls_host, 100000 },
                { guides, 0 },           { unmaps, 0 },
                { loops, 0 },            { hints_for_ever, 0 },
        };

        for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                CHECK(vmg_guide(arena, PAGES * PG, bad[i].fn, (void *)bad[i].arg) == 0);
                visit_all(STEP);
                /* Some find all that they touch; QEMU's emulation raises no #XM. */
                if (must_be_called && bad[i].fn != recurses && bad[i].fn != touches_far &&
                    bad[i].fn != wrecks_fpu && seen.calls != 3) {
                        fprintf(stderr, "guide %u was called %lu times\n", i, seen.calls);
                        exit(1);
                }
                CHECK(vmg_unguide(arena, PAGES * PG) >= 0);
                count_calls("misbehaving");
        }
}

/* ---- arguments ---- */

static void arguments(void)
{
        char *last = (char *)(UINTPTR_MAX - 100);
        char here[64] = "here", copy[64];
        bool v = vmg_version();

        CHECK(vmg_guide(arena, 0, look_ahead, &seen) == -EINVAL);
        CHECK(vmg_guide(arena, PG, NULL, &seen) == -EFAULT);
        CHECK(vmg_guide(last, 4096, look_ahead, &seen) == (v ? -EFAULT : 0));
        CHECK(vmg_unguide(arena, PG) == 0);
        CHECK(vmg_unguide(last, 4096) == (v ? -EFAULT : 0));
        CHECK(vmg_peek(copy, here, sizeof(here)) == 0 && memcmp(copy, here, sizeof(here)) == 0);
        CHECK(vmg_peek(copy, here, 0) == 0);
        CHECK(vmg_peek(copy, here, PG + 1) == -EINVAL);
        if (v) {
                CHECK(vmg_peek(copy, last, 8) == -EFAULT);
                CHECK(vmg_peek(copy, NULL, 8) == -EAGAIN);
                CHECK(vmg_peek(NULL, here, 8) == -EFAULT);
                char *locked = map_pages(1, RW, MAP_PRIVATE);
                memset(locked, 3, PG);
                CHECK(mprotect(locked, PG, PROT_NONE) == 0);
                CHECK(vmg_peek(copy, locked, 8) == -EAGAIN);
                munmap(locked, PG);
        }
        /* As many as there is room for, and room again. */
        int made = 0;
        while (made < 100 && vmg_guide(arena + (unsigned)made * PG, PG, look_ahead, &seen) == 0)
                made++;
        CHECK(made == (v ? 64 : 100));
        CHECK(vmg_guide(arena, PG, look_ahead, &seen) == (v ? -ENOSPC : 0));
        CHECK(vmg_unguide(arena, 32 * PG) == (v ? 32 : 0));
        CHECK(vmg_unguide(arena, PAGES * PG) == (v ? 32 : 0));
        seen.calls = 0;
}

/* ---- its code goes away ---- */

static void code_is_gone(void)
{
        /* xor %eax, %eax; ret */
        static const unsigned char code[] = { 0x31, 0xc0, 0xc3 };
        unsigned char *at = mmap(NULL, PG, RW | PROT_EXEC, ANON, -1, 0);

        CHECK(at != MAP_FAILED);
        memcpy(at, code, sizeof(code));
        CHECK(vmg_pin(at, PG) == 0);
        CHECK(vmg_guide(arena, PAGES * PG, (vmg_guide_fn *)(uintptr_t)at, NULL) == 0);
        visit_all(STEP);
        CHECK(munmap(at, PG) == 0);
        CHECK(mmap(at, PG, RW | PROT_EXEC, ANON | MAP_FIXED, -1, 0) == at);
        visit_all(STEP);
        CHECK(vmg_unguide(arena, PAGES * PG) == 0);
        munmap(at, PG);
        /* And what it guides: a new mapping there has no guide. */
        char *range = map_pages(8, RW, MAP_PRIVATE);
        CHECK(vmg_guide(range, 8 * PG, look_ahead, &seen) == 0);
        CHECK(munmap(range, 8 * PG) == 0);
        CHECK(vmg_unguide(range, 8 * PG) == 0);
}

/* ---- its range goes away ---- */

/* A guide for eight pages, of which `first` and some more are unmapped.  How many guides there are
 * then. */
static int left_of(unsigned first, unsigned pages)
{
        char *range = map_pages(8, RW, MAP_PRIVATE);

        CHECK(vmg_guide(range, 8 * PG, look_ahead, &seen) == 0);
        CHECK(munmap(range + first * PG, pages * PG) == 0);
        int left = vmg_unguide(range, 8 * PG);
        munmap(range, 8 * PG);
        return left;
}

static void range_is_gone(void)
{
        int one = vmg_version() ? 1 : 0, status;
        char *range = map_pages(8, RW, MAP_PRIVATE), *to = map_pages(8, RW, MAP_PRIVATE);

        CHECK(left_of(0, 8) == 0 && left_of(2, 2) == 0);
        CHECK(left_of(0, 7) == one && left_of(1, 7) == one && left_of(0, 1) == one);
        /* In two pieces; then there is room for as many again, as often as one likes. */
        for (int i = 0; i < 200; i++) {
                CHECK(vmg_guide(range, 8 * PG, look_ahead, &seen) == 0);
                CHECK(munmap(range + 3 * PG, 5 * PG) == 0 && munmap(range, 3 * PG) == 0);
                CHECK(mmap(range, 8 * PG, RW, ANON | MAP_FIXED, -1, 0) == range);
        }
        CHECK(vmg_unguide(range, 8 * PG) == 0);
        CHECK(vmg_guide(range, 8 * PG, look_ahead, &seen) == 0);
        CHECK(mremap(range, 8 * PG, 8 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        CHECK(vmg_unguide(range, 8 * PG) == 0 && vmg_unguide(to, 8 * PG) == 0);
        /* A part of it moves, and its pages leave another. */
        range = map_pages(8, RW, MAP_PRIVATE);
        CHECK(vmg_guide(range, 8 * PG, look_ahead, &seen) == 0);
        CHECK(mremap(range, PG, PG, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, to) == to);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
                _exit(vmg_unguide(range, PG) == 0 && vmg_unguide(range, 2 * PG) == one ? 0 : 1);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(vmg_unguide(range, PG) == 0 && vmg_unguide(range, 2 * PG) == one);
        /* Not all of a range need be mapped: the guide serves later mappings there, too. */
        CHECK(munmap(range + 4 * PG, PG) == 0);
        CHECK(vmg_guide(range, 8 * PG, look_ahead, &seen) == 0);
        CHECK(munmap(range, 2 * PG) == 0 && vmg_unguide(range, PG) == one);
        munmap(range, 8 * PG);
        munmap(to, 8 * PG);
}

/* ---- signals, threads, children ---- */

static atomic_int alarms;
static void on_alarm(int signo)
{
        (void)signo;
        alarms++;
}

/* Long enough for a signal to find it: then one more was entered than was left. */
static atomic_ulong entered, left;

static long dawdles(const struct vmg_fault *f, void *arg)
{
        entered++;
        for (int i = 0; i < 20000; i++)
                __asm__ volatile("pause");
        left++;
        return look_ahead(f, arg);
}

static bool enough_signals(void)
{
        return alarms >= 40 && (!must_be_called || entered > left);
}

static void signals(void)
{
        struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
        struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };

        alarms = 0;
        CHECK(sigaction(SIGALRM, &act, NULL) == 0);
        CHECK(vmg_guide(arena, PAGES * PG, dawdles, &seen) == 0);
        CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
        for (int turn = 0; turn < 200 && !enough_signals(); turn++)
                visit_all(STEP);
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
        CHECK(enough_signals());
        vmg_unguide(arena, PAGES * PG);
        seen.calls += entered;
        count_calls("signals");
}

static atomic_bool stop;

static void *visits(void *arg)
{
        uint64_t x = (uintptr_t)arg;

        while (!stop) {
                uint64_t page = next_random(&x) % PAGES;
                verify("arena", arena + page * PG, page, 1, 1);
        }
        return NULL;
}

/* Guides come and go, good ones and bad ones, while threads fault and processes fork. */
static void threads(void)
{
        static vmg_guide_fn *const fn[] = { look_ahead, clobber, look_ahead, loops, look_ahead,
                                            undefined };
        pthread_t id[3];

        stop = false;
        alone = false;
        for (uintptr_t i = 0; i < 3; i++)
                CHECK(pthread_create(&id[i], NULL, visits, (void *)(i + 1)) == 0);
        for (unsigned turn = 0; turn < 24; turn++) {
                CHECK(vmg_guide(arena, PAGES * PG, fn[turn % 6], &seen) == 0);
                for (uint64_t i = 0, x = turn; i < 60; i++) {
                        uint64_t page = next_random(&x) % PAGES;
                        verify("arena", arena + page * PG, page, 1, 1);
                }
                if (turn % 8 == 3) {
                        int status;
                        pid_t pid = fork();
                        CHECK(pid >= 0);
                        if (pid == 0) {
                                visit_all(STEP);
                                _exit(vmg_unguide(arena, PAGES * PG) >= 0 ? 5 : 6);
                        }
                        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
                              WEXITSTATUS(status) == 5);
                }
                CHECK(vmg_unguide(arena, PAGES * PG) >= 0);
        }
        stop = true;
        for (int i = 0; i < 3; i++)
                CHECK(pthread_join(id[i], NULL) == 0);
        count_calls("threads");
}

static atomic_bool in_linker, leave_linker;

static int stay(struct dl_phdr_info *o, size_t size, void *arg)
{
        (void)o, (void)size, (void)arg;
        in_linker = true;
        while (!leave_linker)
                sched_yield();
        return 1;
}

static void *stays_in_linker(void *arg)
{
        dl_iterate_phdr(stay, NULL);
        return arg;
}

/* Another thread has a lock of the dynamic linker's, which nobody gives back in the child. */
static void child_while_locked(void)
{
        pthread_t t;
        int status;

        CHECK(vmg_guide(arena, PAGES * PG, look_ahead, &seen) == 0);
        CHECK(pthread_create(&t, NULL, stays_in_linker, NULL) == 0);
        while (!in_linker)
                sched_yield();
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                _exit(vmg_unguide(arena, PAGES * PG) == (vmg_version() ? 1 : 0) ? 8 : 9);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 8);
        leave_linker = true;
        CHECK(pthread_join(t, NULL) == 0);
        CHECK(vmg_unguide(arena, PAGES * PG) >= 0);
}

static void children(void)
{
        int status;

        child_while_locked();
        CHECK(vmg_guide(arena, PAGES * PG, look_ahead, &seen) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                seen.calls = 0;
                visit_all(STEP);
                count_calls("child");
                CHECK(vmg_unguide(arena, PAGES * PG) == (vmg_version() ? 1 : 0));
                registers();
                _exit(7);
        }
        visit_all(STEP);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        vmg_unguide(arena, PAGES * PG);
        count_calls("children");
}

int main(int argc, char **argv)
{
        static const struct { const char *name; void (*run)(void); } part[] = {
                { "helpful", helpful },           { "reading", reading },
                { "registers", registers },
                { "arguments", arguments },       { "misbehaving", misbehaving },
                { "code is gone", code_is_gone }, { "range is gone", range_is_gone },
                { "signals", signals },           { "children", children },
                { "threads", threads },
        };

        has_avx = __builtin_cpu_supports("avx");
        must_be_called = argc > 1 && strcmp(argv[1], "--called") == 0;
        arena = map_pages(PAGES, RW, MAP_PRIVATE);
        fill(arena, 0, PAGES, 1);
        for (unsigned i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
                if (argc > 2 && strcmp(argv[2], part[i].name) != 0)
                        continue;
                part[i].run();
                printf("ok %s\n", part[i].name);
                fflush(stdout);
        }
        return 0;
}
