#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "every.h"

struct task { unsigned ms; void (*fn)(void); };

static void *repeat(void *arg)
{
        const struct task *t = arg;
        const struct timespec pause = { t->ms / 1000, (long)(t->ms % 1000) * 1000000 };

        for (;;) {
                clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
                t->fn();
        }
        return NULL;
}

int every(unsigned ms, void (*fn)(void))
{
        struct task *t = malloc(sizeof(*t));
        pthread_t id;

        if (!t)
                return -ENOMEM;
        *t = (struct task){ ms, fn };
        int err = -pthread_create(&id, NULL, repeat, t);
        if (err)
                free(t);
        else
                pthread_detach(id);
        return err;
}
