/*
 * A fuzzer for kern's ways in: blocks of random code (t_entry_fuzz_code.c), and another thread that
 * kicks at random moments. A line for each block: its number, and a hash of its effects: every
 * signal with its frame, and registers and memory at its end. The lines are the same natively.
 * Signals of the other thread are not part of the hash: their handler only sees that it begins as
 * handlers do.
 *
 *   t_entry_fuzz [--level3] SEED BLOCKS [BLOCK]
 *
 * runs that many blocks, or only this one, with its code and all that goes into its hash; BLOCK
 * "all": all of them so.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include "t_entry_fuzz.h"

enum { ALT_PAGES = 16, RF = 0x10000, TF = 0x100, DF = 0x400, SIGNALS_MAX = 64 };

static uint64_t hash;
static unsigned signals_taken;
static int shows_all;
static unsigned char *alt_stack;
static volatile sig_atomic_t alt_is_fresh;

/* One more word of what the block did. */
static void note(const char *what, uint64_t v)
{
        hash = (hash ^ v) * 0x100000001b3ul;
        hash ^= hash >> 29;
        if (shows_all)
                printf("  %s 0x%lx\n", what, v);
}

static void fail(const char *what)
{
        printf("FAILED %s\n", what);
        fflush(stdout);
        _exit(1);
}

/* Handlers begin with the block's AC, which C does not expect, and must begin without its DF. */
static inline void begin_handler(void)
{
        uint64_t f, rsp;

        __asm__ volatile(
                "pushfq; pop %0; cld; pushfq; andq $~0x40000, (%%rsp); popfq; mov %%rsp, %1"
                : "=r"(f), "=r"(rsp)
                :
                : "memory");
        if (f & (DF | TF))
                fail("a handler begins with DF or TF");
        if (alt_is_fresh) {             /* nothing but this frame has been there */
                for (uint64_t p = rsp & ~(PAGE - 1); p + 1024 < rsp; p += 8)
                        if (*(uint64_t *)p)
                                fail("a fresh page of the signal stack is not zero");
                alt_is_fresh = 0;
        }
}

static void on_kick(int sig, siginfo_t *si, void *context)
{
        begin_handler();
        (void)sig, (void)si, (void)context;
}

static const int order[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15 };

static void note_frame(int sig, const siginfo_t *si, const greg_t *g)
{
        char name[8];

        note("signal", (uint64_t)sig);
        note("code", (uint64_t)(int64_t)si->si_code);
        note("rip", (uint64_t)g[REG_RIP]);
        note("flags", (uint64_t)g[REG_EFL] & ~(uint64_t)RF);
        if (sig == SIGUSR2)             /* its registers hold numbers of processes */
                return;
        if (sig == SIGTRAP &&
            si->si_code == TRAP_TRACE) /* and these are different each time */
                return;
        note("addr", (uint64_t)si->si_addr);
        note("trap", (uint64_t)g[REG_TRAPNO]);
        if (g[REG_TRAPNO] != 13)        /* QEMU has other ones for INT n */
                note("err", (uint64_t)g[REG_ERR] &
                                    (g[REG_TRAPNO] == 14 ? ~1ul : ~0ul)); /* P: if it is resident */
        for (unsigned i = 0; i < 16; i++) {
                snprintf(name, sizeof(name), "r%u", i);
                note(name, (uint64_t)g[order[i]]);
        }
}

/* Continues with the next part of the code and the same registers. Stepping stays as it is. */
static void on_signal(int sig, siginfo_t *si, void *context)
{
        greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;

        begin_handler();
        note_frame(sig, si, g);
        if ((sig == SIGTRAP && si->si_code == TRAP_TRACE) || sig == SIGUSR2) {
                if (++signals_taken > SIGNALS_MAX || (uint64_t)g[REG_RIP] >= W->slot_at[W->slots])
                        g[REG_EFL] &= ~TF;
                return;
        }
        W->slot++;
        g[REG_RIP] = (greg_t)W->slot_at[W->slot];
        g[REG_RSP] = (greg_t)(STACK + PAGES * PAGE - 64);
        if (W->slot == W->slots)
                g[REG_EFL] &= ~TF;
}

/* ---- the other thread ---- */

static atomic_int stop;

static void *kicker(void *arg)
{
        struct random r = { (uint64_t)arg | 1 };
        char *own =
                mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        while (!atomic_load(&stop)) {
                const struct timespec t = { .tv_nsec = (long)below(&r, 300000) };
                char *page = own + below(&r, 8) * PAGE;

                switch (below(&r, 4)) {
                case 0:                 /* flushes of all TLBs */
                        *page = 1;
                        mprotect(page, PAGE, PROT_READ);
                        mprotect(page, PAGE, PROT_READ | PROT_WRITE);
                        break;
                case 1:
                        *page = 1;
                        madvise(page, PAGE, MADV_DONTNEED);
                        break;
                default:
                        syscall(SYS_tgkill, W->pid, W->tid, SIGUSR1);
                        break;
                }
                if (below(&r, 2))
                        nanosleep(&t, NULL);
        }
        return NULL;
}

/* ---- blocks ---- */

static void map(uint64_t addr, unsigned pages, int prot, int flags)
{
        if (mmap((void *)addr, pages * PAGE, prot, MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0) ==
            MAP_FAILED)
                fail("mmap");
}

static void fill(uint64_t addr, unsigned pages)
{
        for (uint64_t p = addr; p < addr + pages * PAGE; p += 8)
                *(uint64_t *)p = p * 0x9e3779b97f4a7c15ul;
}

static void memory_begin(void)
{
        sigset_t kick;

        sigemptyset(&kick);
        sigaddset(&kick, SIGUSR1);
        sigprocmask(SIG_BLOCK, &kick, NULL);
        fill(TOUCHED, PAGES);
        map(FRESH, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        map(STACK, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        fill(SHARED, PAGES);
        memset(alt_stack, 0xa5, ALT_PAGES * PAGE);
        madvise(alt_stack, ALT_PAGES * PAGE, MADV_DONTNEED);
        alt_is_fresh = 1;
        sigprocmask(SIG_UNBLOCK, &kick, NULL);
}

/* A page of FRESH may be gone or without access by now: the block has changed it. */
static void note_memory(const char *what, uint64_t addr)
{
        for (uint64_t page = addr; page < addr + PAGES * PAGE; page += PAGE) {
                uint64_t sum = 0;
                if (addr == FRESH && mprotect((void *)page, PAGE, PROT_READ)) {
                        note(what, 0);
                        continue;
                }
                for (uint64_t p = page; p < page + PAGE; p += 8)
                        sum = (sum ^ *(uint64_t *)p) * 0x100000001b3ul;
                note(what, sum);
        }
}

/*
 * For a disassembler: xxd -r -p, then objdump -D -b binary -m i386:x86-64 --adjust-vma=0x10000000.
 */
static void show_code(void)
{
        const unsigned char *end = (unsigned char *)W->slot_at[W->slots];

        printf("code ");
        for (const unsigned char *p = (unsigned char *)CODE; p < end; p++)
                printf("%02x", *p);
        printf("\n");
}

static void block(uint64_t seed, unsigned long n)
{
        struct random r = { (seed * 0x9e3779b97f4a7c15ul + n) * 0xbf58476d1ce4e5b9ul | 1 };
        char name[8];
        const sigset_t none = { 0 };

        for (unsigned i = 0; i < 8; i++)
                random_next(&r);
        memory_begin();
        code_make(&r);
        if (shows_all)
                show_code();
        hash = 0xcbf29ce484222325ul;
        signals_taken = 0;
        ((void (*)(void))CODE)();
        for (unsigned i = 0; i < 16; i++) {
                snprintf(name, sizeof(name), "r%u", i);
                note(name, i == 4 ? W->rsp : W->regs[i]);
        }
        note("flags", W->flags);
        for (unsigned i = 0; i < 16; i++)
                note("xmm", W->xmm[i / 2][i % 2]);
        note_memory("touched", TOUCHED);
        note_memory("fresh", FRESH);
        note_memory("shared", SHARED);
        note_memory("stack", STACK);
        sigprocmask(SIG_SETMASK, &none, NULL);
        printf("%lu %016lx\n", n, hash);
        fflush(stdout);
}

static void prepare(void)
{
        static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGUSR2 };
        struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };

        map(CODE, CODE_LEN / PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE);
        map(WORDS, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        map(TOUCHED, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        map(READONLY, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        fill(READONLY, PAGES);
        mprotect((void *)READONLY, PAGES * PAGE, PROT_READ);
        map(NONE, PAGES, PROT_NONE, MAP_PRIVATE);
        map(SHARED, PAGES, PROT_READ | PROT_WRITE, MAP_SHARED);
        map(FAR, FAR_PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        fill(FAR, FAR_PAGES);
        alt_stack = mmap(NULL, ALT_PAGES * PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        sigaltstack(&(stack_t){ .ss_sp = alt_stack, .ss_size = ALT_PAGES * PAGE }, NULL);
        sigfillset(&sa.sa_mask);
        for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
                sigaction(signals[i], &sa, NULL);
        sa.sa_sigaction = on_kick;
        sigaction(SIGUSR1, &sa, NULL);
        W->pid = (uint64_t)getpid();
        W->tid = (uint64_t)syscall(SYS_gettid);
        W->zero_fd = (uint64_t)open("/dev/zero", O_RDONLY);
        W->null_fd = (uint64_t)open("/dev/null", O_WRONLY);
}

int main(int argc, char **argv)
{
        pthread_t t;

        if (argc > 1 && strcmp(argv[1], "--level3") == 0) {
                code_for_level3 = 1;
                argv++, argc--;
        }
        if (argc < 3 || argc > 4) {
                fprintf(stderr, "usage: t_entry_fuzz [--level3] SEED BLOCKS [BLOCK]\n");
                return 2;
        }
        const uint64_t seed = strtoull(argv[1], NULL, 0);
        const unsigned long blocks = strtoul(argv[2], NULL, 0);

        setvbuf(stdout, NULL, _IOFBF, 1 << 16);
        prepare();
        if (pthread_create(&t, NULL, kicker, (void *)seed))
                fail("pthread_create");
        shows_all = argc == 4;
        if (shows_all && strcmp(argv[3], "all") != 0) {
                block(seed, strtoul(argv[3], NULL, 0));
        } else {
                for (unsigned long n = 0; n < blocks; n++)
                        block(seed, n);
        }
        atomic_store(&stop, 1);
        pthread_join(t, NULL);
        return 0;
}
