/*
 * Before sources that the model of fences compiles: their atomic operations, locks and waits are
 * steps of the model (fence_model.h), and what they ask the kernel is answered by it.
 */
#ifndef TEST_FENCE_HOOKS_H
#define TEST_FENCE_HOOKS_H

#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "fence_model.h"

#define point crash_point
#include "pager_hooks.h"
#undef point
#define point() crash_point()

static inline int64_t ms_of(const struct timespec *t)
{
        return (int64_t)t->tv_sec * 1000 + t->tv_nsec / 1000000;
}
int model_fcntl(int fd, int cmd, struct flock *l);
int model_shutdown(int fd);
int model_close(int fd);
ssize_t model_random(void *to, size_t n);

#define pthread_mutex_lock(m)    model_lock(m)
#define pthread_mutex_trylock(m) (model_trylock(m) ? 0 : EBUSY)
#define pthread_mutex_unlock(m)  model_unlock(m)
#define pthread_cond_wait(c, m)  model_wait(c, m, INT64_MAX)
#define pthread_cond_clockwait(c, m, clock, until) \
        (model_wait(c, m, ms_of(until)) ? 0 : ETIMEDOUT)
#define pthread_cond_broadcast(c) model_wake(c)
#define pthread_cond_signal(c)    model_wake(c)
#define fcntl(fd, cmd, l)         model_fcntl(fd, cmd, l)
#define shutdown(fd, how)         ((void)(how), model_shutdown(fd))
#define close(fd)                 model_close(fd)
#define getrandom(to, n, flags)   model_random(to, n)
#define getpid()                  1

#endif
