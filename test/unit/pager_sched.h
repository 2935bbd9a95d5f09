/*
 * A deterministic scheduler of coroutines for the model check: at each point() a seed chooses the
 * actor that continues.
 */
#ifndef TEST_PAGER_SCHED_H
#define TEST_PAGER_SCHED_H

#include <stdbool.h>
#include <stdint.h>

void sched_seed(uint64_t seed);
uint32_t rnd(uint32_t n);                       /* 0 .. n-1 */
static inline bool chance(uint32_t one_in) { return rnd(one_in) == 0; }

/* Forgets all actors. About one point in switch_in switches. tick is called at every point. */
void sched_reset(uint32_t switch_in, void (*tick)(void));
void sched_spawn(void (*run)(void *arg), void *arg);
/* Runs the actors until each has returned: 0, or -1 as soon as one called sched_fail(). */
int sched_run(void);

void point(void);                               /* does nothing outside actors */
/* In an actor: others run, this one hardly before ready() says so; look again. */
void sched_wait(bool (*ready)(void *arg), void *arg);
/* The actor that runs sleeps, if another is awake. */
void sched_delay(uint32_t steps);
bool spurious(void);
/* Ends the run.  Prints why; outside actors it only does that. */
void sched_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool sched_failed(void);
unsigned sched_running(void);                    /* actors that have not returned */
void *sched_arg(void);                          /* of the actor that runs; NULL outside actors */

extern uint64_t sched_steps;                    /* points passed since the program began */
/* A model takes this part of its steps: 10 with the thread sanitizer, which finds nothing in actors
 * of one thread but takes ten times as long; 4 with the address sanitizer; else 1. */
extern const unsigned sched_slow;
/* A number in the environment. */
uint64_t sched_setting(const char *name, uint64_t otherwise);

#endif
