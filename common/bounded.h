/*
 * A call that may take minutes and cannot be stopped, such as one of libc's resolver, with a time
 * limit: it runs in a thread of its own, which is left behind when the time is over.
 */
#ifndef COMMON_BOUNDED_H
#define COMMON_BOUNDED_H

#include <pthread.h>
#include <stdbool.h>

/* The first member of what the call reads and writes, which malloc() made. */
struct bounded {
        void (*run)(struct bounded *b);         /* in that thread, which takes no signals */
        void (*drop)(struct bounded *b);        /* frees it, in whichever thread */
        /* bounded.c's own; the lock guards the two flags */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool done, abandoned;
};

/* 0: it has run, and the caller ends it by bounded_drop().  -ETIMEDOUT: it is not the caller's any
 * more.  Another -errno: no thread can be made; it is dropped. */
int bounded_run(struct bounded *b, unsigned timeout_ms);
void bounded_drop(struct bounded *b);

#endif
