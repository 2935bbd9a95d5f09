/*
 * A thread that sleeps until its next turn, and how it rests over a fork.
 */
#include <time.h>
#include "base/own_thread.h"
#include "base/ticker.h"
#include "common/clock.h"

/* False: the thread must end. */
static bool wait_for_next(struct ticker *t)
{
        const struct timespec next = deadline_in_ms(t->ms);

        pthread_mutex_lock(&t->lock);
        while (!t->to_end &&
               pthread_cond_clockwait(&t->asked, &t->lock, CLOCK_MONOTONIC, &next) == 0)
                ;
        bool go_on = !t->to_end;
        pthread_mutex_unlock(&t->lock);
        return go_on;
}

static void *ticker_main(void *ticker)
{
        struct ticker *t = ticker;

        own_thread_begins(t->name);
        while (wait_for_next(t)) {
                pthread_mutex_lock(&t->ticking);
                t->tick();
                pthread_mutex_unlock(&t->ticking);
        }
        return NULL;
}

int ticker_start(struct ticker *t)
{
        if (t->exists)
                return 0;
        t->to_end = false;
        int err = own_thread(&t->id, ticker_main, t);
        t->exists = err == 0;
        return err;
}

void ticker_rest(struct ticker *t)
{
        if (!t->exists)
                return;
        pthread_mutex_lock(&t->lock);
        t->to_end = true;
        pthread_cond_signal(&t->asked);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->id, NULL);
        t->exists = false;
}

void ticker_hold(struct ticker *t)
{
        pthread_mutex_lock(&t->ticking);
        pthread_mutex_lock(&t->lock);
}

void ticker_release(struct ticker *t)
{
        pthread_mutex_unlock(&t->lock);
        pthread_mutex_unlock(&t->ticking);
}

void ticker_forked(struct ticker *t)
{
        t->exists = false;
        pthread_mutex_init(&t->lock, NULL);
        pthread_mutex_init(&t->ticking, NULL);
        pthread_cond_init(&t->asked, NULL);
}
