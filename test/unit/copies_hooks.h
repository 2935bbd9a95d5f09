/*
 * Before sources that the model of copies compiles: their atomic operations are steps of the model
 * (copies_model.h), and what they ask the kernel is answered by it.
 */
#ifndef TEST_COPIES_HOOKS_H
#define TEST_COPIES_HOOKS_H

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "copies_model.h"

#define point crash_point
#include "pager_hooks.h"
#undef point
#define point() crash_point()

/* The tree and the number of the process that runs. */
#define copies() ((struct copies){ .units = units, .self = self()->number })

int model_fcntl(int fd, int cmd, struct flock *l);

/* Only cut.c has mutexes of its own, and one thread of the model's processes is in there. */
#define pthread_mutex_lock(m)    ((void)(m))
#define pthread_mutex_trylock(m) ((void)(m), 0)
#define pthread_mutex_unlock(m)  ((void)(m))
#define fcntl(fd, cmd, l)        model_fcntl(fd, cmd, l)
#define getpid()                 1

#endif
