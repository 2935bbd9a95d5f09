/*
 * Threads of vmrun's own, without which the program cannot go on.
 */
#ifndef VMRUN_OWN_THREAD_H
#define VMRUN_OWN_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* Less than a huge page: some hosts make one of any memory that is large enough, and a thread that
 * touches a page of its stack would add 2 MiB to what --cache allows. */
#define OWN_STACK (512u << 10)

/* pthread_create().  EAGAIN may be a shortage that is over in a moment: it is tried again for a
 * fifth of a second.  0 or an error number. */
static inline int own_thread(pthread_t *id, void *(*thread_main)(void *), void *arg)
{
        pthread_attr_t a;
        int err;

        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, OWN_STACK);
        for (long ms = 1; (err = pthread_create(id, &a, thread_main, arg)) == EAGAIN && ms <= 20;
             ms++)
                nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
        pthread_attr_destroy(&a);
        return err;
}

#endif
