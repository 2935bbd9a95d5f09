/*
 * words: fills memory with words that say where they belong, reads and rewrites it at random, and
 * counts the words that are wrong.  A page that vmrun lost (SIGBUS with BUS_MCEERR_AR) is replaced
 * and counted, and the program continues.  An ordinary Linux program: natively nothing is ever
 * wrong or lost.
 *
 * With --children it is a tree of processes: children share the pages copy-on-write, rewrite some
 * and check all.  Some have children of their own, some execute this program again, and some are
 * killed while they write.
 *
 * SIGTERM to the first process means that it has worked long enough.
 *
 * Says what all processes found together.  Exit status: 0 no word was wrong, and children ended as
 * they must; 1 words were wrong; 2 usage or no memory; 3 a child ended as it must not.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "words.h"

#define STACK    (64ul << 10)           /* of a thread */
#define CHILDREN 16                     /* at a time, at most */
#define ROUNDS   4                      /* of children, in a run that is limited by accesses */
#define STEP     64                     /* accesses between two looks at the clock */
#define VMRUN_FAILED 125                /* vmrun's exit status when a node is lost */

struct totals *totals;
size_t npages;
unsigned threads = 1;
uint16_t process;

static const char *program;
static uint64_t accesses = 20000, seed = 1;
static double seconds;                  /* 0: accesses decide */
static unsigned children;
static int kind_of_all = -1;             /* of all children; -1: by chance */
static int totals_fd = -1;
static struct timespec began;            /* when all was filled */
static volatile sig_atomic_t told;      /* by SIGTERM: it is to end */
/* No thread fills memory before all threads have locked theirs, or works before all is filled. */
static pthread_barrier_t together;

static bool time_is_left(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return !told && (double)(t.tv_sec - began.tv_sec) +
               (double)(t.tv_nsec - began.tv_nsec) * 1e-9 < seconds;
}

static void on_term(int signal)
{
        (void)signal;
        told = 1;
}

static void set_chance(struct worker *w, uint64_t by)
{
        uint64_t z = seed * 0x9e3779b97f4a7c15 + by;

        for (unsigned i = 0; i < 3; i++)
                w->chance[i] = (unsigned short)(z >> 16 * i);
        nrand48(w->chance);
}

static void begin(void)
{
        if (!memory_begin())
                totals->failed++;
        if (pthread_barrier_wait(&together) == PTHREAD_BARRIER_SERIAL_THREAD)
                fputs("words: begins\n", stderr);      /* from here on it bears lost pages */
}

/* The seconds it is to run begin when all is filled, however long that took. */
static void fill(struct worker *w)
{
        memory_fill(w);
        if (pthread_barrier_wait(&together) == PTHREAD_BARRIER_SERIAL_THREAD) {
                clock_gettime(CLOCK_MONOTONIC, &began);
                fputs("words: filled\n", stderr);      /* pages that do not fit are far */
        }
        pthread_barrier_wait(&together);
}

static void *run_thread(void *arg)
{
        struct worker *w = arg;

        begin();
        fill(w);
        if (!seconds)
                memory_work(w, accesses);
        while (seconds && time_is_left())
                memory_work(w, STEP);
        memory_check(w);
        return NULL;
}

/* --- children --- */

enum kind { READER, WRITER, PARENT, EXECUTER, VICTIM, KINDS };
struct child { pid_t pid; enum kind kind; };

static void count_end(const struct child *c, int status)
{
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
                totals->killed++;
        else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS)
                totals->spoiled++;
        else if (WIFEXITED(status) && WEXITSTATUS(status) == VMRUN_FAILED)
                totals->cut_off++;
        else if (WIFEXITED(status) && WEXITSTATUS(status) <= 1)
                totals->ended++;
        else {
                totals->failed++;
                fprintf(stderr, "words: a child of kind %d ended with status %#x\n", c->kind,
                        (unsigned)status);
        }
}

static void await(const struct child *c)
{
        int status;
        pid_t got;

        do
                got = waitpid(c->pid, &status, 0);
        while (got < 0 && errno == EINTR);
        if (got == c->pid)
                count_end(c, status);
}

/* This program again, with memory of its own that counts together with ours. */
static void execute(struct worker *w)
{
        char size[32], count[32], chance[32], fd[16];

        snprintf(size, sizeof(size), "%zuK", npages * PAGE / 2 >> 10);
        snprintf(count, sizeof(count), "%" PRIu64, accesses / 8 + 1);
        snprintf(chance, sizeof(chance), "%" PRIu64, below(w, 1u << 30));
        snprintf(fd, sizeof(fd), "%d", totals_fd);
        execl(program, program, "--size", size, "--accesses", count, "--seed", chance, "--totals",
              fd, (char *)NULL);
        fprintf(stderr, "words: %s: %s\n", program, strerror(errno));
}

static struct child start(struct worker *w, bool nested);

/* A child's life; it returns its exit status. */
static int live(struct worker *w, enum kind kind, pid_t parent)
{
        uint64_t wrong = totals->wrong;

        process = (uint16_t)++totals->processes;
        set_chance(w, process);
        if (!memory_begin())
                return 2;
        if (kind == EXECUTER) {
                execute(w);
                return VMRUN_FAILED - 1;
        }
        if (kind == VICTIM)
                memory_write(w, parent);        /* and then its parent is dead */
        struct child own = { 0 };
        if (kind == PARENT)
                own = start(w, true);
        if (kind != READER)
                memory_work(w, accesses / 8 + 1);
        memory_check(w);
        if (own.pid > 0) {
                if (own.kind == VICTIM)
                        kill(own.pid, SIGKILL);
                await(&own);
        }
        return totals->wrong > wrong;
}

/* pid -1: there is no child. */
static struct child start(struct worker *w, bool nested)
{
        struct child c = { .kind = (enum kind)below(w, KINDS) };

        if (kind_of_all >= 0)
                c.kind = (enum kind)kind_of_all;
        else if (nested && c.kind == PARENT)
                c.kind = WRITER;
        pid_t parent = getpid();        /* it may be dead before the child can ask */
        c.pid = fork();
        if (c.pid == 0)
                _exit(live(w, c.kind, parent));
        if (c.pid < 0)
                fprintf(stderr, "words: fork: %s\n", strerror(errno));
        return c;
}

/* Starts children, and ends those that are to be killed, one after the other, while it works
 * itself: it takes slots that the dead had. */
static void round_of_children(struct worker *w, uint64_t work)
{
        struct child c[CHILDREN];

        for (unsigned i = 0; i < children; i++)
                c[i] = start(w, false);
        for (unsigned i = 0; i < children; i++) {
                memory_work(w, work / children);
                if (c[i].pid > 0 && c[i].kind == VICTIM)
                        kill(c[i].pid, SIGKILL);
        }
        for (unsigned i = 0; i < children; i++) {
                memory_work(w, STEP);
                if (c[i].pid > 0)
                        await(&c[i]);
        }
}

static void run_tree(struct worker *w)
{
        begin();
        fill(w);
        for (unsigned i = 0; seconds ? time_is_left() : i < ROUNDS; i++)
                round_of_children(w, accesses / ROUNDS);
        memory_check(w);
}

/* --- options --- */

static void usage(FILE *f)
{
        fputs("usage: words [OPTION...]\n"
              "  --size SIZE     memory, with a suffix K, M or G (default 8M)\n"
              "  --accesses N    of each thread (default 20000)\n"
              "  --seconds S     work so long from when memory is filled, or until SIGTERM\n"
              "  --seed N        (default 1)\n"
              "  --threads N     each with pages of its own (default 1)\n"
              "  --children N    at a time; forked by the first thread (default 0, at most 16)\n"
              "  --victims       all of them are killed while they write\n"
              "  --writers       all of them write, check all and end\n",
              f);
}

static uint64_t number(const char *s)
{
        char *end;
        uint64_t v = strtoull(s, &end, 0);
        const char *letter = *end ? strchr("KMG", *end) : NULL;

        if (letter)
                v <<= *letter == 'K' ? 10 : *letter == 'M' ? 20 : 30;
        if (end == s || (*end && !letter) || (letter && end[1])) {
                fprintf(stderr, "words: not a number: %s\n", s);
                exit(2);
        }
        return v;
}

static void parse(int argc, char **argv)
{
        static const struct option options[] = {
                { "accesses", required_argument, NULL, 'a' },
                { "children", required_argument, NULL, 'c' },
                { "help", no_argument, NULL, 'h' },
                { "seconds", required_argument, NULL, 't' },
                { "seed", required_argument, NULL, 'r' },
                { "size", required_argument, NULL, 's' },
                { "threads", required_argument, NULL, 'p' },
                { "victims", no_argument, NULL, 'v' },
                { "writers", no_argument, NULL, 'w' },
                /* for a program that words executes itself */
                { "totals", required_argument, NULL, 'f' },
                { NULL, 0, NULL, 0 }
        };

        npages = (8 << 20) / PAGE;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1; )
                switch (c) {
                case 'a': accesses = number(optarg); break;
                case 'c': children = (unsigned)number(optarg); break;
                case 'f': totals_fd = (int)number(optarg); break;
                case 'h': usage(stdout); exit(0);
                case 'p': threads = (unsigned)number(optarg); break;
                case 'r': seed = number(optarg); break;
                case 's': npages = number(optarg) / PAGE; break;
                case 't': seconds = strtod(optarg, NULL); break;
                case 'v': kind_of_all = VICTIM; break;
                case 'w': kind_of_all = WRITER; break;
                default: usage(stderr); exit(2);
                }
        if (optind != argc || !threads || threads > 64 || npages / threads < 2 ||
            npages >= 1ul << 22 || children > CHILDREN) {
                usage(stderr);
                exit(2);
        }
}

static bool share_totals(void)
{
        bool anew = totals_fd < 0;

        if (anew)
                totals_fd = memfd_create("words", 0);
        if (totals_fd < 0 || (anew && ftruncate(totals_fd, (off_t)PAGE) != 0))
                return false;
        totals = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, totals_fd, 0);
        return totals != MAP_FAILED;
}

static void print_totals(void)
{
        printf("words: %" PRIu64 " reads, %" PRIu64 " wrong, %" PRIu64 " lost; children: %" PRIu64
               " ended, %" PRIu64 " killed, %" PRIu64 " spoiled, %" PRIu64 " cut off, %" PRIu64
               " failed\n",
               totals->reads, totals->wrong, totals->lost, totals->ended, totals->killed,
               totals->spoiled, totals->cut_off, totals->failed);
}

int main(int argc, char **argv)
{
        struct worker w[64];
        pthread_t id[64];
        pthread_attr_t small;

        program = argv[0];
        parse(argc, argv);
        if (seconds)
                sigaction(SIGTERM, &(struct sigaction){ .sa_handler = on_term,
                                                        .sa_flags = SA_RESTART }, NULL);
        bool executed = totals_fd >= 0;
        if (!share_totals() || !memory_make()) {
                fprintf(stderr, "words: no memory: %s\n", strerror(errno));
                return 2;
        }
        process = (uint16_t)++totals->processes;
        uint64_t wrong = totals->wrong;
        pthread_barrier_init(&together, NULL, threads);
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, STACK);
        for (unsigned i = 0; i < threads; i++) {
                w[i] = (struct worker){ .number = i };
                set_chance(&w[i], (uint64_t)i << 32 | process);
        }
        for (unsigned i = 1; i < threads; i++)
                if (pthread_create(&id[i], &small, run_thread, &w[i]) != 0)
                        return 2;
        if (children)
                run_tree(&w[0]);
        else
                run_thread(&w[0]);
        for (unsigned i = 1; i < threads; i++)
                pthread_join(id[i], NULL);
        if (executed)
                return totals->wrong > wrong;
        print_totals();
        return totals->wrong ? 1 : totals->failed ? 3 : 0;
}
