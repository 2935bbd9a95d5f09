/*
 * Threads of the NBD server.
 */
#include <signal.h>
#include "nbd/thread.h"

#define STACK (128u << 10)

int nbd_thread(pthread_t *id, void *(*main_)(void *), void *arg, bool detached)
{
        sigset_t all, old;
        pthread_attr_t attr;

        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, STACK);
        if (detached)
                pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &old);
        int err = -pthread_create(id, &attr, main_, arg);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&attr);
        return err;
}
