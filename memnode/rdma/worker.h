/*
 * One thread for what takes long: it registers memory and ends registrations.  A lease for which
 * memory is still being zeroed is tried again now and then.  So one client's lease makes no other
 * one wait longer than a registration takes.
 *
 * [I] The RDMA thread alone has clients and connections.  A job has all that the worker needs, and
 * while a job has something of a client, the client is there: its last job ends it.
 *
 * The jobs of one owner are done in their order, and owners take turns.  There are as many as
 * connections and leases at most: a connection has one request under way.
 *
 * All functions but run() and undo() are called by the RDMA thread.
 */
#ifndef MEMNODE_RDMA_WORKER_H
#define MEMNODE_RDMA_WORKER_H

#include <stdbool.h>

struct job {
        void (*run)(struct job *j);     /* in the worker; see again */
        void (*done)(struct job *j);    /* in the RDMA thread, when it has run; frees it */
        /* In the worker, instead of done(): nobody waits for it any more.  Frees it. */
        void (*undo)(struct job *j);
        bool must;                      /* it runs also if nobody waits for it */
        /* Set by run(), but not with must: it has made nothing yet, and is put off: it runs once
         * more in some 10 ms, and what its owner asked for later waits for it. */
        bool again;
        const void *owner;
        /* worker.c's own, all zero before */
        enum { JOB_NEW, JOB_QUEUED, JOB_LATER, JOB_RUNNING, JOB_RAN, JOB_DONE } state;
        bool ran, dropped;
        struct job *next;
};

/* Starts the thread.  0 or -errno. */
int worker_start(void);
/* A descriptor that can be read when worker_results() has something to do. */
int worker_fd(void);
void worker_add(struct job *j);
/* Nobody waits for it; done() itself may say so, and is then through with it.  True: it did not
 * begin, or was put off, and is the caller's again. */
bool worker_drop(struct job *j);
void worker_results(void);              /* done() for jobs that have run */
/* Waits until no job is left, and calls done() for all. */
void worker_wait(void);
void worker_stop(void);                 /* the same, and ends the thread */

#endif
