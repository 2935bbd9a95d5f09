/*
 * A thread of vmrun's own (own_thread.h) that calls a function at intervals.
 */
#ifndef VMRUN_TICKER_H
#define VMRUN_TICKER_H

#include <pthread.h>
#include <stdbool.h>

struct ticker {
        const char *name;               /* of the thread, 15 characters at most */
        unsigned ms;                    /* from the end of one tick to the next */
        void (*tick)(void);
        /* The fields below are the ticker's own.  `lock` guards to_end, and is free during a tick;
         * `ticking` is held during a tick. */
        pthread_mutex_t lock, ticking;
        pthread_cond_t asked;
        bool to_end;
        pthread_t id;
        bool exists;                    /* of the threads that start and end it: one at a time */
};
#define TICKER_INIT                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .ticking = PTHREAD_MUTEX_INITIALIZER,                 \
        .asked = PTHREAD_COND_INITIALIZER

/* 0, also if the thread exists already; or an error number. */
int ticker_start(struct ticker *t);
/* Ends the thread, for a process that must have one thread; waits for the tick that is under
 * way. */
void ticker_rest(struct ticker *t);
/* For fork: no tick is under way from ticker_hold() to ticker_release().  In the child the thread
 * does not exist. */
void ticker_hold(struct ticker *t);
void ticker_release(struct ticker *t);
void ticker_forked(struct ticker *t);

#endif
