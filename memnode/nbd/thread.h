/*
 * How threads of the NBD server are made.
 */
#ifndef MEMNODE_NBD_THREAD_H
#define MEMNODE_NBD_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that takes no signals: they are for the main thread.  0 or -errno. */
int nbd_thread(pthread_t *id, void *(*main_)(void *), void *arg, bool detached);

#endif
