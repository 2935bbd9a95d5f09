/*
 * Which words many vCPUs fight for, and how many vCPUs the pager serves at once: kern on simulated
 * CPUs (lines_guest.h).  Threads touch pages at random, of which a quarter fits the cache; the rest
 * is in memory.  All of it repeats exactly.
 *
 * The tables go to the output.  Environment, for other loads than the test's; then no bound is
 * checked:
 *
 *   LINES_VCPUS   most vCPUs (16; at most 64)
 *   LINES_FRAMES  of the cache (16,384)
 *   LINES_LOCAL   percent of the pages that have a frame (25)
 *   LINES_WRITES  percent of the touches that write (50)
 *   LINES_CAUSE   1: also what most vCPUs reach if moves of lines, flushes, exits or copies cost
 *                 nothing
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "lines_guest.h"

/* --- bounds --- */

/* At 16 vCPUs: so many times the rate of one, at least. */
static const double speed_up_least = 8.5;
/* Of a line that is not a page's own: moves in 32 touches, at 16 vCPUs. */
static const double moves_most = 1;
/* Lines that move more often, by the field that moves them. */
static const struct { const char *name; double moves_most; } known[] = {
        { "pager.nfree", 3 },
};

/* --- costs --- */

/* All assumed.  A trap and an exit as in docs/performance.md, Predictions; with the exit goes the
 * system call that sleeps or wakes.  A move is within a socket, a copy at 10 GB/s, and a flush has
 * with it the walks that fill the TLB again. */
static const struct lines_cost costs = {
        .touch = 20, .trap = 150, .copy = 400, .flush = 200, .pause = 40, .exit = 3000,
        .line = { .plain = 1, .move = 60 },
};

/* --- a run --- */

/* Lines under one name: moves of all, and of the one that moves most, in 32 touches; ns that CPUs
 * waited for them, by touch. */
struct named { char name[64]; bool own; unsigned lines; double moves, most, waited; };
#define NAMES 256
struct report {
        bool done;
        struct lines_result r;
        unsigned nnames;
        struct named name[NAMES];
};
static struct report *report;           /* shared with the process that runs the guest */
static struct lines_load load;
static bool is_tests_own = true;

static uint32_t setting(const char *name, uint32_t otherwise)
{
        const char *text = getenv(name);

        if (!text || !*text)
                return otherwise;
        is_tests_own = false;
        return (uint32_t)strtoul(text, NULL, 0);
}

/* For sim_lines(). */
static void note_line(const struct sim_line *l, void *unused)
{
        struct named new = { .lines = 1 }, *n = report->name;
        unsigned most = 0;

        (void)unused;
        for (unsigned i = 0; i < SIM_WORDS; i++)
                if (l->word[i] > l->word[most])
                        most = i;
        new.own = lines_name(l->addr + most * 4, new.name, sizeof(new.name));
        while (n < report->name + report->nnames && strcmp(n->name, new.name) != 0)
                n++;
        if (n == report->name + NAMES)
                abort();
        if (n == report->name + report->nnames) {
                *n = new;
                report->nnames++;
        } else {
                n->lines++;
        }
        double moves = (double)l->moves * 32 / (double)load.touches;
        n->moves += moves;
        n->waited += (double)l->waited / (double)load.touches;
        if (moves > n->most)
                n->most = moves;
}

static int by_moves(const void *a, const void *b)
{
        double x = ((const struct named *)a)->moves, y = ((const struct named *)b)->moves;

        return x < y ? 1 : x > y ? -1 : 0;
}

/* In a process of its own: kern has state that exists once. */
static void run(unsigned vcpus)
{
        load.vcpus = vcpus;
        memset(report, 0, sizeof(*report));
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
                report->done = lines_run(&load, &report->r);
                sim_lines(note_line, NULL);
                qsort(report->name, report->nnames, sizeof(report->name[0]), by_moves);
                fflush(stdout);
                _exit(0);
        }
        int status = -1;
        assert_true(child > 0 && waitpid(child, &status, 0) == child);
        assert_int_equal(status, 0);
        assert_true(report->done);
}

static double touch_ns(void) { return (double)report->r.ns / (double)load.touches; }
static double count(enum vcpu_counter c) { return (double)report->r.counter[c]; }
static double in_1000(enum vcpu_counter c) { return 1000 * count(c) / (count(CNT_FETCHED) + 1); }

static double share(bool cleaner, enum sim_spent what)
{
        double sum = 0;

        for (unsigned k = 0; k < SPENT_KINDS; k++)
                sum += (double)report->r.spent[cleaner][k];
        return 100 * (double)report->r.spent[cleaner][what] / (sum + 1);
}

/* --- the tables --- */

static void say_rates_head(void)
{
        printf("# | vCPUs | speed-up | ns a touch of one | p50 | p99 | cleaner busy, %% | "
               "waits in 1,000 fetches | direct | flushes begun a turn | made a fetch | kicks |\n"
               "# |---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

static void say_rates(unsigned vcpus, double speed_up)
{
        const struct lines_result *r = &report->r;
        double turns = count(CNT_SCANNED) / load.frames;

        printf("# | %u | %.2f | %.0f | %lu | %lu | %.0f | %.1f | %.1f | %.1f | %.2f | %.0f |\n",
               vcpus, speed_up, touch_ns() * vcpus, (unsigned long)r->p50,
               (unsigned long)r->p99, 100 - share(true, SPENT_ASLEEP), in_1000(CNT_FRAME_WAITS),
               in_1000(CNT_DIRECT_RECLAIM), turns > 0 ? (double)r->flushes / turns : 0,
               count(CNT_FLUSHES) / (count(CNT_FETCHED) + 1), count(CNT_KICKS));
}

static void say_times(void)
{
        static const char *const what[] = {
                [SPENT_PLAIN] = "accesses that move no line",
                [SPENT_MOVES] = "moves of lines",
                [SPENT_QUEUES] = "waits for a line that moves",
                [SPENT_SPINS] = "spinning",
                [SPENT_PROGRAM] = "the program",
                [SPENT_TRAPS] = "traps",
                [SPENT_COPIES] = "copies",
                [SPENT_FLUSHES] = "flushes",
                [SPENT_EXITS] = "exits",
                [SPENT_ASLEEP] = "asleep",
        };

        printf("#\n# | %u vCPUs: %% of their time | vCPUs | cleaner |\n# |---|---|---|\n",
               load.vcpus);
        for (unsigned k = 0; k < SPENT_KINDS; k++)
                printf("# | %s | %.1f | %.1f |\n", what[k], share(false, k), share(true, k));
}

static void say_lines(void)
{
        printf("#\n# | line | of them | moves in 32 touches | of the one that moves most | "
               "ns waited a touch |\n# |---|---|---|---|---|\n");
        for (const struct named *n = report->name; n < report->name + report->nnames; n++)
                if (n->moves >= 0.1 || n->waited >= 1)
                        printf("# | `%s` | %u | %.1f | %.2f | %.0f |\n", n->name, n->lines,
                               n->moves, n->most, n->waited);
}

/* --- the tests --- */

/* As compiled code calls it (lines_sim.c). */
uint64_t add(volatile uint64_t *p, uint64_t n, int order) __asm__("__tsan_atomic64_fetch_add");
static struct {
        uint64_t word[5 * SIM_LINE / 8] __attribute__((aligned(SIM_LINE)));
        unsigned stride, running;
        uint64_t moves, waited;
} sums;

static void add_100(unsigned cpu)
{
        static const uint32_t never;

        for (unsigned i = 0; i < 100; i++)
                add(&sums.word[cpu * sums.stride], 1, 0);
        if (--sums.running == 0)
                sim_stop();
        sim_sleep(&never, 0, 0);
}

static void sum_up(const struct sim_line *l, void *unused)
{
        (void)unused;
        sums.moves += l->moves;
        sums.waited += l->waited;
}

static void no_switch(unsigned cpu) { (void)cpu; }

/* CPUs that add to one word queue for it; CPUs that add each to a line of its own do not; words of
 * one line are no better than one word. */
static void test_costs(void **state)
{
        static const struct { unsigned stride; uint64_t moves, ns; } expect[] = {
                { 0, 400, 400 * 60 }, { 1, 400, 400 * 60 }, { SIM_LINE / 8, 0, 100 },
        };

        (void)state;
        for (unsigned i = 0; i < 3; i++) {
                memset(&sums, 0, sizeof(sums));
                sums.stride = expect[i].stride;
                sums.running = 4;
                sim_begin((struct sim_cost){ 1, 60 }, no_switch);
                for (unsigned cpu = 0; cpu < 4; cpu++)
                        sim_spawn(cpu, add_100);
                assert_true(sim_run());
                sim_lines(sum_up, NULL);
                assert_in_range(sums.moves, expect[i].moves - expect[i].moves / 100,
                                expect[i].moves);
                assert_in_range(sim_now(), expect[i].ns - expect[i].ns / 50, expect[i].ns);
                assert_int_equal(sums.waited > 0, expect[i].moves > 0);
        }
}

static double most_of(const char *name)
{
        for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
                if (strcmp(known[i].name, name) == 0)
                        return known[i].moves_most;
        return moves_most;
}

static void test_many_vcpus(void **state)
{
        const unsigned most = setting("LINES_VCPUS", 16);
        double one = 0, speed_up = 0;

        (void)state;
        say_rates_head();
        for (unsigned vcpus = 1; vcpus <= most; vcpus *= 2) {
                run(vcpus);
                if (vcpus == 1)
                        one = touch_ns();
                speed_up = one / touch_ns();
                say_rates(vcpus, speed_up);
        }
        say_times();
        say_lines();
        if (!is_tests_own)
                return;
        unsigned worse = 0;
        for (const struct named *n = report->name; n < report->name + report->nnames; n++) {
                if (n->own || n->most <= most_of(n->name))
                        continue;
                printf("# %s: error: %.2f moves in 32 touches, and %.2f are allowed\n", n->name,
                       n->most, most_of(n->name));
                worse++;
        }
        assert_int_equal(worse, 0);
        printf("# speed-up %.2f, and it must be %.2f\n", speed_up, speed_up_least);
        assert_true(speed_up >= speed_up_least);
}

static void as_it_is(struct lines_load *l) { (void)l; }
static void no_moves(struct lines_load *l) { l->cost.line.move = l->cost.line.plain; }
static void no_flushes(struct lines_load *l) { l->cost.flush = 0; }
static void no_exits(struct lines_load *l) { l->cost.exit = 0; }
static void no_copies(struct lines_load *l) { l->cost.copy = 0; }
static void no_writes(struct lines_load *l) { l->writes = 0; }
/* So few that each TLB holds them all before anything is counted. */
static void all_local(struct lines_load *l) { l->pages = l->frames / 64; }

/* What most vCPUs reach without one thing at a time. */
static void test_cause(void **state)
{
        static const struct {
                const char *what;
                void (*change)(struct lines_load *l);
        } without[] = {
                { "as it is", as_it_is },
                { "moves of lines cost nothing", no_moves },
                { "flushes cost nothing", no_flushes },
                { "exits cost nothing", no_exits },
                { "copies cost nothing", no_copies },
                { "no touch writes", no_writes },
                { "all pages are local", all_local },
        };
        const struct lines_load usual = load;
        const unsigned most = setting("LINES_VCPUS", 16);

        (void)state;
        if (!setting("LINES_CAUSE", 0))
                skip();
        printf("#\n# | | ns a touch, 1 vCPU | %u vCPUs together | speed-up | cleaner busy, %% | "
               "direct reclaims in 1,000 fetches |\n# |---|---|---|---|---|---|\n", most);
        for (unsigned i = 0; i < sizeof(without) / sizeof(without[0]); i++) {
                load = usual;
                without[i].change(&load);
                run(1);
                double one = touch_ns();
                run(most);
                printf("# | %s | %.0f | %.0f | %.2f | %.0f | %.0f |\n", without[i].what, one,
                       touch_ns(), one / touch_ns(), 100 - share(true, SPENT_ASLEEP),
                       in_1000(CNT_DIRECT_RECLAIM));
        }
        load = usual;
}

static int setup(void **state)
{
        (void)state;
        load = (struct lines_load){ .frames = setting("LINES_FRAMES", 16384),
                                    .writes = setting("LINES_WRITES", 50), .cost = costs };
        load.pages = (uint32_t)((uint64_t)load.frames * 100 / setting("LINES_LOCAL", 25));
        load.before = 3ull * load.frames;
        load.touches = 2ull * load.frames;
        report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0);
        return report == MAP_FAILED ? -1 : 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_costs),
                cmocka_unit_test(test_many_vcpus),
                cmocka_unit_test(test_cause),
        };
        return cmocka_run_group_tests(tests, setup, NULL);
}
