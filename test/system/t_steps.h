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

static inline int steps_signal(unsigned round) { return (int)(round % 64) + 1; }

/* A parent that ignores SIGCHLD does not learn how its children ended.  A blocked 32 ends a child
 * whose vmrun makes a thread, and one that is handled is lost there: libc begins threads with it
 * open (BUGS in vmrun(1)). */
static inline enum steps_mode steps_mode(unsigned round)
{
        enum steps_mode m = round / 64 % STEPS_MODES;

        return (m == STEPS_IGNORED && steps_signal(round) == SIGCHLD) ||
                               (m != STEPS_IGNORED && steps_signal(round) == 32)
                       ? STEPS_DEFAULT
                       : m;
}

/* The child would stop, and only at_steps would continue it. */
static inline bool steps_stops(unsigned round)
{
        int sig = steps_signal(round);

        return sig == SIGSTOP || (steps_mode(round) == STEPS_DEFAULT &&
                                  (sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU));
}

#endif
