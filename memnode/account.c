/*
 * Accounts: how much of the pool each client holds, and under which limit.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/line.h"
#include "common/size.h"
#include "account.h"
#include "admission/party.h"
#include "memnode.h"
#include "pool.h"

#define NAME_MAX_BYTES 72

struct piece { char *at; uint64_t bytes; struct piece *next; };

struct account {
        char name[NAME_MAX_BYTES];
        struct party *party;            /* NULL: memnode's own */
        /* guarded by lock */
        struct piece *pieces;
        /* bytes of the pieces, including those that account_take() is fetching now */
        uint64_t held;
        struct account *next;
        /* Counts for the statistics; relaxed, because nothing depends on their order. */
        _Atomic uint64_t reads, writes, read_bytes, written_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct account *accounts;
static struct account_totals past;      /* of those that were closed; how many there are now */

struct account *account_open(const char *name, struct party *party)
{
        struct account *a = calloc(1, sizeof(*a));
        if (!a || (party && !party_lease(party))) {
                free(a);
                return NULL;
        }
        a->party = party ? party_hold(party) : NULL;
        snprintf(a->name, sizeof(a->name), "%s", name);
        /* The client chose the name, and it is shown on terminals. */
        line_clean(a->name, strlen(a->name));
        for (char *c = a->name; *c; c++)
                if (*c == '"')
                        *c = '?';
        pthread_mutex_lock(&lock);
        past.accounts++;
        a->next = accounts;
        accounts = a;
        pthread_mutex_unlock(&lock);
        return a;
}

const char *account_party(const struct account *a)
{
        return a->party ? party_name(a->party) : "";
}

static void add_counts(struct account_totals *t, const struct account *a)
{
        t->reads += atomic_load_explicit(&a->reads, memory_order_relaxed);
        t->writes += atomic_load_explicit(&a->writes, memory_order_relaxed);
        t->read_bytes += atomic_load_explicit(&a->read_bytes, memory_order_relaxed);
        t->written_bytes += atomic_load_explicit(&a->written_bytes, memory_order_relaxed);
}

struct account_totals account_totals(void)
{
        pthread_mutex_lock(&lock);
        struct account_totals t = past;
        for (const struct account *a = accounts; a; a = a->next)
                add_counts(&t, a);
        pthread_mutex_unlock(&lock);
        return t;
}

void account_close(struct account *a)
{
        pthread_mutex_lock(&lock);
        for (struct account **p = &accounts; *p; p = &(*p)->next) {
                if (*p == a) {
                        *p = a->next;
                        past.accounts--;
                        add_counts(&past, a);
                        break;
                }
        }
        pthread_mutex_unlock(&lock);
        for (struct piece *p = a->pieces, *next; p; p = next) {
                next = p->next;
                pool_free(p->at, p->bytes);
                free(p);
        }
        if (a->party) {
                party_give(a->party, a->held);
                party_unlease(a->party);
                party_put(a->party);
        }
        free(a);
}

/* SIGHUP changes the limit while other threads read it; either value will do. */
static uint64_t limit_now(void) { return __atomic_load_n(&opt.max_per_client, __ATOMIC_RELAXED); }

/* With the lock: 0 or an error of account_take(). */
static int may_take(const struct account *a, uint64_t bytes)
{
        uint64_t limit = limit_now();

        if (bytes > limit || a->held > limit - bytes)
                return -EDQUOT;
        return a->party ? party_take(a->party, bytes, pool_left()) : 0;
}

int account_claim(struct account *a, uint64_t bytes)
{
        pthread_mutex_lock(&lock);
        int err = may_take(a, bytes);
        if (!err)
                a->held += bytes;
        pthread_mutex_unlock(&lock);
        return err;
}

void account_unclaim(struct account *a, uint64_t bytes)
{
        if (a->party)
                party_took(a->party, bytes, false);
        pthread_mutex_lock(&lock);
        a->held -= bytes;
        pthread_mutex_unlock(&lock);
}

/* The end of a claim: with memory, or without. */
static int settle(struct account *a, struct piece *p)
{
        if (!p->at) {
                account_unclaim(a, p->bytes);
                free(p);
                return -ENOSPC;
        }
        if (a->party)
                party_took(a->party, p->bytes, true);
        pthread_mutex_lock(&lock);
        p->next = a->pieces;
        a->pieces = p;
        pthread_mutex_unlock(&lock);
        return 0;
}

int account_try(struct account *a, uint64_t bytes, char **at)
{
        struct piece *p = malloc(sizeof(*p));
        bool soon = false;

        if (!p) {
                account_unclaim(a, bytes);
                return -ENOSPC;
        }
        *p = (struct piece){ .at = pool_try(bytes, &soon), .bytes = bytes };
        *at = p->at;
        if (!soon)
                return settle(a, p);
        free(p);
        return -EAGAIN;
}

int account_take(struct account *a, uint64_t bytes, char **at)
{
        struct piece *p = malloc(sizeof(*p));
        int err = p ? account_claim(a, bytes) : -ENOMEM;

        if (err) {
                free(p);
                return err;
        }
        /* Without the lock, since it may wait until memory is zeroed. */
        *p = (struct piece){ .at = pool_alloc(bytes), .bytes = bytes };
        *at = p->at;
        return settle(a, p);
}

void account_give(struct account *a, char *at, uint64_t bytes)
{
        struct piece *found = NULL;

        pthread_mutex_lock(&lock);
        for (struct piece **p = &a->pieces; *p; p = &(*p)->next) {
                if ((*p)->at == at && (*p)->bytes == bytes) {
                        found = *p;
                        *p = found->next;
                        a->held -= bytes;
                        break;
                }
        }
        pthread_mutex_unlock(&lock);
        if (!found) {
                warnx_("%s gave back memory that it does not hold: a bug, ignored", a->name);
                return;
        }
        pool_free(at, bytes);
        if (a->party)
                party_give(a->party, bytes);
        free(found);
}

uint64_t account_limit(const struct account *a)
{
        uint64_t limit = limit_now(), left = pool_left();

        if (a->party)
                left = party_room(a->party, left);
        pthread_mutex_lock(&lock);
        uint64_t most = a->held + left;
        pthread_mutex_unlock(&lock);
        return most < limit ? most : limit;
}

void account_count(struct account *a, uint64_t reads, uint64_t writes, uint64_t read_bytes,
                   uint64_t written_bytes)
{
        atomic_fetch_add_explicit(&a->reads, reads, memory_order_relaxed);
        atomic_fetch_add_explicit(&a->writes, writes, memory_order_relaxed);
        atomic_fetch_add_explicit(&a->read_bytes, read_bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&a->written_bytes, written_bytes, memory_order_relaxed);
}

void account_print(FILE *to)
{
        char a[32], b[32], c[32];

        pthread_mutex_lock(&lock);
        fprintf(to, "accounts %u, limit of each %s\n", past.accounts,
                limit_now() == UINT64_MAX ? "all" : size_text(limit_now(), a));
        for (struct account *i = accounts; i; i = i->next) {
                fprintf(to, "account \"%s\": holds %s, %llu reads of %s, %llu writes of %s\n",
                        i->name, size_text(i->held, a), (unsigned long long)i->reads,
                        size_text(i->read_bytes, b), (unsigned long long)i->writes,
                        size_text(i->written_bytes, c));
        }
        pthread_mutex_unlock(&lock);
}
