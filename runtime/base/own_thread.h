/*
 * Threads of vmrun's own, without which the program cannot go on.
 */
#ifndef VMRUN_OWN_THREAD_H
#define VMRUN_OWN_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* pthread_create().  EAGAIN may be a shortage that is over in a moment: it is tried again for a
 * fifth of a second.  0 or an error number. */
static inline int own_thread(pthread_t *id, void *(*thread_main)(void *), void *arg)
{
        int err;

        for (long ms = 1; (err = pthread_create(id, NULL, thread_main, arg)) == EAGAIN && ms <= 20;
             ms++)
                nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
        return err;
}

#endif
