/*
 * getaddrinfo() may take minutes where the name server is silent, and cannot be stopped.  So it
 * runs in a thread, which is left behind when the time is over.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/clock.h"
#include "common/lookup.h"

/* Shared by the thread that asks and the thread that waits; the last of the two frees it. */
struct question {
        char host[256], service[32];
        bool has_service;
        int flags;
        pthread_mutex_t lock;           /* guards the fields below */
        pthread_cond_t answered;
        bool done, abandoned;
        int error;                      /* of getaddrinfo() */
        struct addrinfo *list;
};

static void question_free(struct question *q)
{
        pthread_cond_destroy(&q->answered);
        pthread_mutex_destroy(&q->lock);
        free(q);
}

static void *ask(void *arg)
{
        struct question *q = arg;
        const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = q->flags };
        struct addrinfo *list = NULL;
        int error = getaddrinfo(q->host, q->has_service ? q->service : NULL, &hints, &list);

        pthread_mutex_lock(&q->lock);
        q->error = error;
        q->list = list;
        q->done = true;
        bool abandoned = q->abandoned;
        pthread_cond_signal(&q->answered);
        pthread_mutex_unlock(&q->lock);
        if (abandoned) {
                if (error == 0)
                        freeaddrinfo(list);
                question_free(q);
        }
        return NULL;
}

/* Signals are the program's: the new thread gets none. */
static int start(struct question *q, pthread_t *thread)
{
        sigset_t all, old;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int err = pthread_create(thread, NULL, ask, q);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        return err;
}

static int wait_for(struct question *q, pthread_t thread, unsigned timeout_ms,
                    struct addrinfo **list)
{
        struct timespec end = deadline_in_ms(timeout_ms);
        int err = 0;

        pthread_mutex_lock(&q->lock);
        while (!q->done && err != ETIMEDOUT)
                err = pthread_cond_timedwait(&q->answered, &q->lock, &end);
        bool done = q->done;
        q->abandoned = !done;
        pthread_mutex_unlock(&q->lock);
        if (!done) {
                pthread_detach(thread);
                return LOOKUP_LATE;
        }
        pthread_join(thread, NULL);
        *list = q->list;
        err = q->error;
        question_free(q);
        return err;
}

int lookup(const char *host, const char *service, int flags, unsigned timeout_ms,
           struct addrinfo **list)
{
        const struct addrinfo numeric = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
        pthread_condattr_t monotonic;
        pthread_t thread;

        if (getaddrinfo(host, service, &numeric, list) == 0)
                return 0;
        struct question *q = calloc(1, sizeof(*q));
        if (!q)
                return EAI_MEMORY;
        snprintf(q->host, sizeof(q->host), "%s", host);
        snprintf(q->service, sizeof(q->service), "%s", service ? service : "");
        q->has_service = service;
        q->flags = flags;
        pthread_mutex_init(&q->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&q->answered, &monotonic);
        pthread_condattr_destroy(&monotonic);
        int err = start(q, &thread);
        if (err) {
                question_free(q);
                errno = err;
                return LOOKUP_NO_THREAD;
        }
        return wait_for(q, thread, timeout_ms, list);
}
