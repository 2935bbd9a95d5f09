/*
 * Requests of one connection of the control socket, and their answers.  For the thread of server.c.
 */
#ifndef VMRUN_CONTROL_SESSION_H
#define VMRUN_CONTROL_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "control/protocol.h"
#include "stats/model.h"

struct vm;

#define CTL_WHY 512

/* What a connection keeps from one request to the next. */
struct session {
        struct vm *vm;
        int64_t since;                  /* start of the process, seconds since 1970 */
        /* Of the last "sample" of this connection: what it counts from. */
        struct stats before;
        char *directory;                /* of the client, for paths in URLs; NULL: not told */
        /* there was a "sample": latencies are measured until the connection ends */
        bool samples;
};

/* Prints the answer to f, a memory stream.  0, or -errno with why. */
int request_serve(struct session *s, const struct request *r, FILE *f, char why[CTL_WHY]);
/* The connection is over. */
void session_end(struct session *s);
/* In a forked child: the sessions are its parent's.  Latencies are measured as opt says. */
void sessions_forked(void);

#endif
