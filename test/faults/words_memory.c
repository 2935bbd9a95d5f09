/*
 * See words.h.  A word is the number of its page, the version of the page, the process that wrote
 * it, and its own number in the page.  So each word that came from another place or another time
 * shows, and says where it came from.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "vmguest.h"
#include "words.h"

/* The fields of a word, from bit 0 on: its number, 9 bits; process, 16; version, 17; page, 22. */
#define PROCESS_SHIFT 9
#define VERSION_SHIFT 25
#define VERSION_MASK  0x1ffffu
#define PAGE_SHIFT    42

#define CALLS 16                        /* one in CALLS reads is a system call's, */
#define PARTS 4                         /* and one in PARTS of the others vmg_read's */
#define SHOWN 10                        /* wrong pages that a process describes */
/* Of one mapping: stacks may be large and hardly used; a mapping that cannot be written was
 * relocated before, or is the file's. */
#define LOCKED_MOST       (512ul << 10)
#define LOCKED_MOST_CONST (64ul << 10)

static volatile uint64_t (*memory)[WORDS];
static uint64_t *stamp;                 /* [npages]: a page's word 0 */
/* Set by the handler: the page that this thread is accessing was lost. */
static __thread volatile sig_atomic_t lost_here;
static _Atomic unsigned shown;
static __thread int pipe_of[2] = { -1, -1 };

uint64_t below(struct worker *w, uint64_t n) { return (uint64_t)nrand48(w->chance) % n; }

static void say_wrong(size_t page, size_t i, uint64_t got, size_t wrong)
{
        if (shown++ >= SHOWN)
                return;
        fprintf(stderr,
                "words: process %u: page %zu at %p, version %" PRIu64 " of process %" PRIu64
                ": %zu words are wrong; word %zu is %016" PRIx64 ": page %" PRIu64
                ", version %" PRIu64 " of process %" PRIu64 ", word %" PRIu64 "\n",
                process, page, (void *)(uintptr_t)memory[page],
                stamp[page] >> VERSION_SHIFT & VERSION_MASK, stamp[page] >> PROCESS_SHIFT & 0xffff,
                wrong, i, got, got >> PAGE_SHIFT, got >> VERSION_SHIFT & VERSION_MASK,
                got >> PROCESS_SHIFT & 0xffff, got & (WORDS - 1));
}

static void rewrite(size_t page)
{
        uint64_t version = ((stamp[page] >> VERSION_SHIFT) + 1) & VERSION_MASK;

        stamp[page] = page << PAGE_SHIFT | version << VERSION_SHIFT |
                      (uint64_t)process << PROCESS_SHIFT;
        do {
                lost_here = false;
                for (size_t i = 0; i < WORDS; i++)
                        memory[page][i] = stamp[page] | i;
                totals->lost += (uint64_t)lost_here;
        } while (lost_here);            /* in the middle of it, perhaps */
}

/* Reads the page at `at`: its own place, or a copy.  A page that was lost or is wrong is written
 * again, so that it counts once. */
static void check(size_t page, const volatile uint64_t *at)
{
        size_t wrong = 0, first = 0, i;
        uint64_t seen = 0;

        lost_here = false;
        for (i = 0; i < WORDS; i++) {
                uint64_t got = at[i];
                if (lost_here)
                        break;
                if (got == (stamp[page] | i))
                        continue;
                if (wrong++ == 0) {
                        first = i;
                        seen = got;
                }
        }
        totals->reads += i;
        totals->wrong += wrong;
        totals->lost += (uint64_t)lost_here;
        if (wrong)
                say_wrong(page, first, seen, wrong);
        if (wrong || lost_here)
                rewrite(page);
}

/* Has the kernel read the page, into a pipe.  A page that is lost gives EFAULT, and then SIGBUS. */
static void check_by_call(size_t page)
{
        uint64_t copy[WORDS];
        const void *at = (const void *)(uintptr_t)memory[page];

        if (write(pipe_of[1], at, PAGE) != PAGE) {
                if (errno != EFAULT)
                        totals->failed++;
                check(page, memory[page]);
        } else if (read(pipe_of[0], copy, PAGE) == PAGE) {
                check(page, copy);
        }
}

/* Has vmrun read the page where it is, in two parts.  A page that is lost gives EIO, and
 * then SIGBUS. */
static void check_by_parts(struct worker *w, size_t page)
{
        uint64_t copy[WORDS];
        const char *at = (const char *)(uintptr_t)memory[page];
        size_t first = below(w, PAGE);
        ssize_t n = vmg_read(copy, at, first, 0);

        if (n >= 0)
                n = vmg_read((char *)copy + first, at + first, PAGE - first, 0);
        if (n < 0 && n != -EIO)
                totals->failed++;
        check(page, n < 0 ? memory[page] : copy);
}

/* A page that vmrun lost gets an empty one in its place.  An error of another kind, or elsewhere,
 * ends the process: the access is repeated without a handler. */
static void on_bus(int signo, siginfo_t *info, void *context)
{
        size_t at = (uintptr_t)info->si_addr - (uintptr_t)memory;

        (void)context;
        if (info->si_code != BUS_MCEERR_AR || at >= npages * PAGE ||
            mmap((void *)(uintptr_t)memory[at / PAGE], PAGE, PROT_READ | PROT_WRITE,
                 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
                signal(signo, SIG_DFL);
        lost_here = true;
}

static void *map(size_t bytes)
{
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
}

bool memory_make(void)
{
        struct sigaction a = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };

        /* A small heap, for all threads, that need not grow after it was locked. */
        mallopt(M_ARENA_MAX, 1);
        mallopt(M_TOP_PAD, 32 << 10);
        sigaction(SIGBUS, &a, NULL);
        memory = map(npages * PAGE);
        stamp = map(npages * sizeof(*stamp));
        return memory && stamp;
}

/* vmrun lets half of the cache be locked.  A page beyond that could be lost, and the process with
 * it. */
static bool lock(uintptr_t from, uintptr_t to, size_t most)
{
        return from >= to || to - from > most || mlock((void *)from, to - from) == 0;
}

/* mlockall() would lock the pages too, and all of the libraries' code. */
static bool lock_all(void)
{
        char line[512], flags[5];
        uintptr_t here = (uintptr_t)__builtin_frame_address(0);
        bool all = true;
        uintptr_t from, to, first = (uintptr_t)memory, last = first + npages * PAGE;
        FILE *f = fopen("/proc/self/maps", "re");

        while (f && fgets(line, sizeof(line), f)) {
                if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, flags) != 3 ||
                    flags[0] != 'r' || flags[2] == 'x' || flags[3] != 'p')
                        continue;
                if (strstr(line, "[stack]")) {  /* its owner locks the used part */
                        if (here < from || here >= to)
                                continue;
                        from = (here & ~(PAGE - 1)) - 4 * PAGE;
                }
                size_t most = flags[1] == 'w' ? LOCKED_MOST : LOCKED_MOST_CONST;
                /* Neighbouring mappings are one line. */
                if (from < last && to > first) {
                        all &= lock(from, first, most);
                        all &= lock(last, to, most);
                } else {
                        all &= lock(from, to, most);
                }
        }
        if (f)
                fclose(f);
        return f && all;
}

bool memory_begin(void)
{
        if (!lock_all())
                fprintf(stderr, "words: cannot lock what it needs: %s\n", strerror(errno));
        for (unsigned i = 0; i < 2; i++)
                if (pipe_of[i] >= 0)
                        close(pipe_of[i]);
        return pipe2(pipe_of, O_CLOEXEC) == 0;
}

void memory_fill(struct worker *w)
{
        for (size_t page = w->number; page < npages; page += threads)
                rewrite(page);
}

void memory_check(struct worker *w)
{
        for (size_t page = w->number; page < npages; page += threads)
                check(page, memory[page]);
}

static size_t any_page(struct worker *w)
{
        return below(w, npages / threads) * threads + w->number;
}

void memory_work(struct worker *w, uint64_t n)
{
        while (n-- > 0) {
                size_t page = any_page(w);
                if (below(w, CALLS) == 0)
                        check_by_call(page);
                else if (vmg_version() > 1 && below(w, PARTS) == 0)
                        check_by_parts(w, page);
                else
                        check(page, memory[page]);
                if (below(w, 2))
                        rewrite(page);
        }
}

void memory_write(struct worker *w, pid_t parent)
{
        for (uint64_t i = 0; i % 64 || getppid() == parent; i++)
                rewrite(any_page(w));
}
