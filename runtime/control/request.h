/*
 * Carrying out requests (request.c), for the thread of server.c.
 */
#ifndef VMRUN_CONTROL_REQUEST_H
#define VMRUN_CONTROL_REQUEST_H

#include <stdint.h>
#include <stdio.h>
#include "control/protocol.h"
#include "stats/model.h"

struct vm;

#define CTL_WHY 512

/* What a request is carried out with, and what a connection keeps. */
struct session {
        struct vm *vm;
        int64_t since;                  /* start of the process, seconds since 1970 */
        /* Of the last "sample" of this connection: what it counts from. */
        struct stats before;
        char *directory;                /* of the client, for paths in URLs; NULL: not told */
        bool samples;                   /* there was one: latencies are measured meanwhile */
};

/* Prints the answer to f, a memory stream.  0, or -errno with why. */
int request_serve(struct session *s, const struct request *r, FILE *f, char why[CTL_WHY]);
/* The connection is over. */
void session_end(struct session *s);
/* In a forked child: the sessions are its parent's.  Latencies are measured as opt says. */
void sessions_forked(void);

/* --- settings (running.c) --- */

/* One setting by name, or all (""). */
int running_get(const char *name, enum form form, FILE *f, char why[CTL_WHY]);
/* NAME=VALUE */
int running_set(struct vm *vm, const char *setting, char why[CTL_WHY]);
/* Stores in the control page what the settings of opt say that may change while the program
 * runs. */
void running_apply(void);

/* --- nodes (nodes.c) --- */

int nodes_print(enum form form, FILE *f, char why[CTL_WHY]);
int nodes_add(const struct session *s, const char *url, FILE *f, char why[CTL_WHY]);

/* --- scrubs (scrub.c) --- */

/* "start", "start RATE", "stop", or "": how far it has come, and what it has found. */
int scrub_ask(const char *what, enum form form, FILE *f, char why[CTL_WHY]);

#endif
