#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "admission/party.h"

#define SPARE 32                        /* connections that come to replace others */
#define KEY "client "                   /* before a key's name: no origin begins so */

struct party {
        char name[PARTY_NAME];          /* constant */
        /* Guarded by lock: */
        unsigned holders, connections, leases;
        uint64_t held;                  /* bytes, those that it is taking included */
        struct party *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it: */
static struct party *parties;
static struct party_limits *limits;
static unsigned nlimits;
static unsigned connections, leases;    /* of all parties */
static uint64_t taking;                 /* bytes that the pool still counts as left */

static const char *key_of(const struct party *p)
{
        return strncmp(p->name, KEY, strlen(KEY)) == 0 ? p->name + strlen(KEY) : NULL;
}

/* NULL: it has none, as an origin. */
static const struct party_limits *limits_of(const struct party *p)
{
        const char *key = key_of(p);

        for (unsigned i = 0; key && i < nlimits; i++)
                if (strcmp(limits[i].name, key) == 0)
                        return &limits[i];
        return NULL;
}

int party_set_limits(const struct party_limits *from, unsigned n)
{
        struct party_limits *copy = calloc(n ? n : 1, sizeof(*copy)), *old;

        if (!copy)
                return -ENOMEM;
        if (n)
                memcpy(copy, from, n * sizeof(*copy));
        pthread_mutex_lock(&lock);
        old = limits;
        limits = copy;
        nlimits = n;
        pthread_mutex_unlock(&lock);
        free(old);
        return 0;
}

static struct party *find(const char *name)
{
        struct party *p = parties;

        while (p && strcmp(p->name, name) != 0)
                p = p->next;
        return p;
}

struct party *party_named(const char *name)
{
        pthread_mutex_lock(&lock);
        struct party *p = find(name);
        if (!p && (p = calloc(1, sizeof(*p)))) {
                snprintf(p->name, sizeof(p->name), "%s", name);
                p->next = parties;
                parties = p;
        }
        if (p)
                p->holders++;
        pthread_mutex_unlock(&lock);
        return p;
}

struct party *party_of_key(const char *name)
{
        char text[PARTY_NAME];

        snprintf(text, sizeof(text), KEY "%s", name);
        return party_named(text);
}

struct party *party_of_origin(const char *text) { return party_named(text); }

const char *party_name(const struct party *p) { return p->name; }

struct party *party_hold(struct party *p)
{
        pthread_mutex_lock(&lock);
        p->holders++;
        pthread_mutex_unlock(&lock);
        return p;
}

void party_put(struct party *gone)
{
        pthread_mutex_lock(&lock);
        bool last = --gone->holders == 0;
        if (last) {
                struct party **p = &parties;
                while (*p != gone)
                        p = &(*p)->next;
                *p = gone->next;
        }
        pthread_mutex_unlock(&lock);
        if (last)
                free(gone);
}

/* ---- Connections and leases ---- */

/* With the lock. */
static unsigned most_connections(const struct party *p)
{
        const struct party_limits *l = limits_of(p);

        return l        ? l->connections
               : key_of(p) ? PARTY_CONNECTIONS
                           : PARTY_ORIGIN_PART(PARTY_CONNECTIONS);
}

static unsigned most_of_all(bool fresh)
{
        return fresh ? PARTY_ORIGIN_PART(PARTY_CONNECTIONS) : PARTY_CONNECTIONS;
}

bool party_crowded(struct party *p, bool fresh)
{
        pthread_mutex_lock(&lock);
        bool is = p->connections > most_connections(p) || connections > most_of_all(fresh);
        pthread_mutex_unlock(&lock);
        return is;
}

bool party_connect(struct party *p, bool fresh)
{
        pthread_mutex_lock(&lock);
        unsigned spare = fresh ? 0 : SPARE;
        bool room = p->connections < most_connections(p) + spare &&
                    connections < most_of_all(fresh) + spare;
        p->connections += room;
        connections += room;
        pthread_mutex_unlock(&lock);
        return room;
}

void party_disconnect(struct party *p)
{
        pthread_mutex_lock(&lock);
        p->connections--;
        connections--;
        pthread_mutex_unlock(&lock);
}

bool party_lease(struct party *p)
{
        pthread_mutex_lock(&lock);
        unsigned most = key_of(p) ? PARTY_LEASES : PARTY_ORIGIN_PART(PARTY_LEASES);
        bool room = leases < PARTY_LEASES && p->leases < most;
        p->leases += room;
        leases += room;
        pthread_mutex_unlock(&lock);
        return room;
}

void party_unlease(struct party *p)
{
        pthread_mutex_lock(&lock);
        p->leases--;
        leases--;
        pthread_mutex_unlock(&lock);
}

/* ---- Memory ---- */

/* With the lock: what the keys of others have reserved and do not hold yet. */
static uint64_t kept_from(const struct party *p)
{
        const struct party_limits *own = limits_of(p);
        uint64_t bytes = 0;

        for (unsigned i = 0; i < nlimits; i++) {
                char name[PARTY_NAME];
                snprintf(name, sizeof(name), KEY "%s", limits[i].name);
                const struct party *other = find(name);
                uint64_t held = other ? other->held : 0;
                if (&limits[i] != own && held < limits[i].reserve)
                        bytes += limits[i].reserve - held;
        }
        return bytes;
}

/* With the lock. */
static uint64_t quota_left(const struct party *p)
{
        const struct party_limits *l = limits_of(p);

        return !l ? UINT64_MAX : p->held < l->quota ? l->quota - p->held : 0;
}

/* With the lock. */
static uint64_t pool_room(const struct party *p, uint64_t left)
{
        uint64_t others = kept_from(p) + taking;

        return left > others ? left - others : 0;
}

int party_take(struct party *p, uint64_t bytes, uint64_t left)
{
        pthread_mutex_lock(&lock);
        int err = quota_left(p) < bytes ? -EDQUOT : pool_room(p, left) < bytes ? -ENOSPC : 0;
        if (!err) {
                p->held += bytes;
                taking += bytes;
        }
        pthread_mutex_unlock(&lock);
        return err;
}

void party_took(struct party *p, uint64_t bytes, bool taken)
{
        pthread_mutex_lock(&lock);
        taking -= bytes;
        if (!taken)
                p->held -= bytes;
        pthread_mutex_unlock(&lock);
}

void party_give(struct party *p, uint64_t bytes)
{
        pthread_mutex_lock(&lock);
        p->held -= bytes;
        pthread_mutex_unlock(&lock);
}

uint64_t party_room(struct party *p, uint64_t left)
{
        pthread_mutex_lock(&lock);
        uint64_t quota = quota_left(p), room = pool_room(p, left);
        pthread_mutex_unlock(&lock);
        return quota < room ? quota : room;
}

struct party_figures *party_all(unsigned *n)
{
        struct party_figures *all = NULL;
        unsigned count = 0;

        pthread_mutex_lock(&lock);
        for (const struct party *p = parties; p; p = p->next)
                count++;
        if (count)
                all = calloc(count, sizeof(*all));
        *n = all ? count : 0;
        for (const struct party *p = parties; p && all; p = p->next) {
                const struct party_limits *l = limits_of(p);
                const char *key = key_of(p);
                struct party_figures *f = &all[--count];
                *f = (struct party_figures){ .has_key = key, .connections = p->connections,
                                             .leases = p->leases, .held = p->held,
                                             .quota = l ? l->quota : UINT64_MAX };
                snprintf(f->name, sizeof(f->name), "%s", key ? key : p->name);
        }
        pthread_mutex_unlock(&lock);
        return all;
}
