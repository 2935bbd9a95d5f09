/*
 * Many CPUs in one thread: each has a clock, and the CPU with the earliest clock runs next.  Code
 * that is compiled with -fsanitize=thread calls the functions of this file's .c, in place of
 * libtsan's, for each load, store and atomic operation: so they know which CPU uses which cache
 * line when, and what that costs it.
 *
 * What an access costs:
 *
 *   a line that this CPU owns, or shares unchanged    plain
 *   a line that another CPU wrote last                move: a load shares the line from then on, a
 *                                                     store takes it for its CPU alone
 *   a store to a line that other CPUs share           move
 *
 * A CPU that needs a line which moves at the moment waits until that is over: so locked operations
 * on one line queue.  Caches have no end, and lines that nobody has written cost as shared ones.
 */
#ifndef TEST_LINES_SIM_H
#define TEST_LINES_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "layout.h"

#define SIM_CPUS 65                     /* 64, and the cleaner's */
#define SIM_LINE CACHE_LINE
#define SIM_WORDS (SIM_LINE / 4)

/* What the CPUs spend their time on. */
enum sim_spent {
        SPENT_PLAIN,                    /* accesses that move no line */
        SPENT_MOVES,                    /* moves of lines */
        SPENT_QUEUES,                   /* waits for a line that moves */
        SPENT_SPINS,                    /* pauses in the loop of a lock, or another word */
        SPENT_PROGRAM, SPENT_TRAPS, SPENT_COPIES, SPENT_FLUSHES, SPENT_EXITS, SPENT_ASLEEP,
        SPENT_KINDS
};

/* In ns. */
struct sim_cost { uint32_t plain, move; };

/* Before the first of the other functions.  switched is called before a CPU runs. */
void sim_begin(struct sim_cost cost, void (*switched)(unsigned cpu));
/* Memory of the test's own: accesses there cost nothing. */
void sim_exempt(const void *start, size_t size);
/* CPU number cpu runs this function. */
void sim_spawn(unsigned cpu, void (*run)(unsigned cpu));
/* Runs the CPUs until one says sim_stop(). False: before that all of them slept. */
bool sim_run(void);
_Noreturn void sim_stop(void);

/* --- for the CPU that runs --- */

unsigned sim_cpu(void);
uint64_t sim_now(void);
void sim_spend(enum sim_spent what, uint64_t ns);
/* A pause in a loop that looks at a word again and again. */
void sim_pause(uint64_t ns);
/* Sleeps if the word holds `seen`, until sim_wake() or for at most so many ns; 0: no limit. */
void sim_sleep(const void *word, uint32_t seen, uint64_t ns);
/* What the 8 bytes hold, for the test itself. */
uint64_t sim_look(const void *word);
/* Wakes CPUs that sleep on the word, at most so many. */
void sim_wake(const void *word, uint32_t most);

/* --- what was counted --- */

/* Of a line: its moves from CPU to CPU, also by the word that was used, and the ns that CPUs waited
 * for it: in its queue, or spinning. */
struct sim_line { uint64_t addr, moves, waited; uint32_t word[SIM_WORDS]; };
/* Forgets what was counted up to now. */
void sim_count_anew(void);
uint64_t sim_spent(unsigned cpu, enum sim_spent what);
/* Calls f for each line that has moved. */
void sim_lines(void (*f)(const struct sim_line *line, void *arg), void *arg);

#endif
