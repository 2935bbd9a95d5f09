/*
 * For at_steps and t_steps: which signal a child gets in which round, and how it says that its
 * beginning is over.
 */
#ifndef T_STEPS_H
#define T_STEPS_H

#include <signal.h>
#include <stdbool.h>

#define STEPS_FD 9                      /* a child reads a byte from here, then ends */

enum steps_mode { STEPS_DEFAULT, STEPS_HANDLED, STEPS_IGNORED, STEPS_BLOCKED, STEPS_MODES };

/* 32 and 33 are left out: libc has them for itself where there are threads, and vmrun has some. */
static inline int steps_signal(unsigned round)
{
        int sig = (int)(round % 64) + 1;

        return sig == 32 || sig == 33 ? SIGTERM : sig;
}

/* A parent that ignores SIGCHLD does not learn how its children ended. */
static inline enum steps_mode steps_mode(unsigned round)
{
        enum steps_mode m = round / 64 % STEPS_MODES;

        return m == STEPS_IGNORED && steps_signal(round) == SIGCHLD ? STEPS_DEFAULT : m;
}

/* The child would stop, and only at_steps would continue it. */
static inline bool steps_stops(unsigned round)
{
        int sig = steps_signal(round);

        return sig == SIGSTOP || (steps_mode(round) == STEPS_DEFAULT &&
                                  (sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU));
}

#endif
