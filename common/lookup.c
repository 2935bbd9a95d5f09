/*
 * getaddrinfo() may take minutes where the name server is silent, and cannot be stopped.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/bounded.h"
#include "common/lookup.h"

struct question {
        struct bounded b;
        char host[256], service[32];
        bool has_service;
        int flags;
        int error;                      /* of getaddrinfo() */
        struct addrinfo *list;          /* NULL: none, or another has it */
};

static void question_drop(struct bounded *b)
{
        struct question *q = (struct question *)b;

        if (q->list)
                freeaddrinfo(q->list);
        free(q);
}

static void ask(struct bounded *b)
{
        struct question *q = (struct question *)b;
        const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = q->flags };

        q->error = getaddrinfo(q->host, q->has_service ? q->service : NULL, &hints, &q->list);
}

int lookup(const char *host, const char *service, int flags, unsigned timeout_ms,
           struct addrinfo **list)
{
        const struct addrinfo numeric = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };

        if (getaddrinfo(host, service, &numeric, list) == 0)
                return 0;
        struct question *q = calloc(1, sizeof(*q));
        if (!q)
                return EAI_MEMORY;
        q->b.run = ask;
        q->b.drop = question_drop;
        snprintf(q->host, sizeof(q->host), "%s", host);
        snprintf(q->service, sizeof(q->service), "%s", service ? service : "");
        q->has_service = service;
        q->flags = flags;
        int err = bounded_run(&q->b, timeout_ms);
        if (err) {
                errno = -err;
                return err == -ETIMEDOUT ? LOOKUP_LATE : LOOKUP_NO_THREAD;
        }
        *list = q->list;
        q->list = NULL;
        err = q->error;
        bounded_drop(&q->b);
        return err;
}
