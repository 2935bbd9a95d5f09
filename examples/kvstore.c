#include "kvstore.h"

#include <stdatomic.h>

#define PROGRAM "ycsb"
#include "example.h"

#define STRIPES 1024                    /* a power of two */

struct record {
        struct record *next;            /* in the bucket's chain */
        uint64_t key;
        uint64_t value[];
};

struct store {
        size_t buckets;                 /* a power of two, at least STRIPES */
        size_t capacity, record_size;
        struct record **chains;         /* [buckets], each guarded by its stripe's lock */
        char *records;                  /* [capacity] */
        atomic_size_t used;             /* of them; may pass capacity */
        pthread_mutex_t locks[STRIPES]; /* bucket b belongs to stripe b mod STRIPES */
};

struct store *store_new(size_t capacity, size_t value_size)
{
        struct store *s = reserve(1, sizeof(*s));
        s->capacity = capacity;
        s->record_size = sizeof(struct record) + value_size;
        for (s->buckets = STRIPES; s->buckets < capacity; s->buckets *= 2)
                ;
        s->chains = reserve(s->buckets, sizeof(struct record *));
        s->records = reserve(capacity, s->record_size);
        for (int i = 0; i < STRIPES; i++)
                pthread_mutex_init(&s->locks[i], NULL);
        return s;
}

static size_t bucket_of(const struct store *s, uint64_t key)
{
        return scramble(key) & (s->buckets - 1);
}

static pthread_mutex_t *lock_of(struct store *s, uint64_t key)
{
        return &s->locks[bucket_of(s, key) % STRIPES];
}

static struct record *new_record(struct store *s, uint64_t key)
{
        size_t n = atomic_fetch_add(&s->used, 1);
        if (n >= s->capacity)
                return NULL;
        struct record *r = (struct record *)(s->records + n * s->record_size);
        struct record **chain = &s->chains[bucket_of(s, key)];
        *r = (struct record){ .next = *chain, .key = key };
        *chain = r;
        return r;
}

void *store_lock(struct store *s, uint64_t key, bool create)
{
        pthread_mutex_lock(lock_of(s, key));
        struct record *r = s->chains[bucket_of(s, key)];
        while (r && r->key != key)
                r = r->next;
        if (!r && create)
                r = new_record(s, key);
        if (!r) {
                pthread_mutex_unlock(lock_of(s, key));
                return NULL;
        }
        return r->value;
}

void store_unlock(struct store *s, uint64_t key) { pthread_mutex_unlock(lock_of(s, key)); }

size_t store_count(struct store *s) { return atomic_load(&s->used); }
