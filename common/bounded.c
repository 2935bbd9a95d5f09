#include <errno.h>
#include <signal.h>
#include "common/bounded.h"
#include "common/clock.h"

void bounded_drop(struct bounded *b)
{
        pthread_cond_destroy(&b->changed);
        pthread_mutex_destroy(&b->lock);
        b->drop(b);
}

static void *call(void *arg)
{
        struct bounded *b = arg;

        b->run(b);
        pthread_mutex_lock(&b->lock);
        b->done = true;
        bool abandoned = b->abandoned;
        pthread_cond_signal(&b->changed);
        pthread_mutex_unlock(&b->lock);
        if (abandoned)
                bounded_drop(b);
        return NULL;
}

/* Signals are the program's: the new thread gets none. */
static int start(struct bounded *b, pthread_t *thread)
{
        sigset_t all, old;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int err = -pthread_create(thread, NULL, call, b);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        return err;
}

static void prepare(struct bounded *b)
{
        pthread_condattr_t monotonic;

        b->done = b->abandoned = false;
        pthread_mutex_init(&b->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&b->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
}

int bounded_run(struct bounded *b, unsigned timeout_ms)
{
        struct timespec end = deadline_in_ms(timeout_ms);
        pthread_t thread;

        prepare(b);
        int err = start(b, &thread);
        if (err) {
                bounded_drop(b);
                return err;
        }
        pthread_mutex_lock(&b->lock);
        for (int late = 0; !b->done && late != ETIMEDOUT; )
                late = pthread_cond_timedwait(&b->changed, &b->lock, &end);
        bool done = b->done;
        b->abandoned = !done;
        pthread_mutex_unlock(&b->lock);
        if (!done) {
                pthread_detach(thread);
                return -ETIMEDOUT;
        }
        pthread_join(thread, NULL);
        return 0;
}
