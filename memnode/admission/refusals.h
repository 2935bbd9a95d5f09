/*
 * Refused clients: counted by cause, and in the log so that nobody floods it.  An origin has at
 * most one line a minute; all together have at most REFUSAL_LINES.  Any thread.
 */
#ifndef MEMNODE_REFUSALS_H
#define MEMNODE_REFUSALS_H

#include <stdint.h>
#include <stdio.h>

enum refusal {
        REFUSED_KEY,                    /* no proof, a wrong one, or a key that is not known */
        REFUSED_SLOW,                   /* it took too long to say what it wants */
        REFUSED_CROWD,                  /* others of its origin came, or too many in all */
        REFUSED_LIMIT,                  /* more connections, leases or memory than it may have */
        REFUSED_PROTOCOL,               /* not the protocol */
        REFUSED_REQUEST,                /* it asked for what is not there, or not for it */
        REFUSALS
};
#define REFUSAL_LINES 60                /* a minute */

/* origin: its text.  who: the connection, for the log.  The message says why. */
void refused(enum refusal cause, const char *origin, const char *who, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));
/* For the statistics: a line. */
void refusals_print(FILE *to);
/* How many there were, by cause. */
void refusals_count(uint64_t counts[REFUSALS]);
extern const char *const refusal_names[REFUSALS];

#endif
