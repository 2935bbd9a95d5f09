#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "admission/keyring.h"
#include "common/message.h"
#include "common/proof.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it: */
static struct keys keys;
static uint64_t *marks;                 /* of each, since a stranger may ask at any rate */
/* Set before the first client comes, and never unset.  Relaxed: it publishes nothing. */
static atomic_bool used;

/* NULL: no memory. */
static uint64_t *marks_of(const struct keys *k)
{
        uint64_t *m = calloc(k->count, sizeof(*m));

        for (unsigned i = 0; m && i < k->count; i++)
                m[i] = proof_mark(k->key[i].name);
        return m;
}

int keyring_load(const char *path, char *why, size_t n)
{
        struct keys fresh, old;
        bool others = false;
        int err = keys_read(path, &fresh, &others, why, n);

        if (err)
                return err;
        uint64_t *fresh_marks = marks_of(&fresh), *old_marks;
        if (!fresh_marks) {
                keys_free(&fresh);
                snprintf(why, n, "no memory is left");
                return -ENOMEM;
        }
        if (others)
                warnx_("%s: every user of this host may read these keys: `chmod o= %s`", path,
                       path);
        pthread_mutex_lock(&lock);
        old = keys;
        keys = fresh;
        old_marks = marks;
        marks = fresh_marks;
        pthread_mutex_unlock(&lock);
        keys_free(&old);
        free(old_marks);
        atomic_store_explicit(&used, true, memory_order_relaxed);
        return 0;
}

bool keyring_is_used(void) { return atomic_load_explicit(&used, memory_order_relaxed); }

bool keyring_find(const char *name, size_t len, struct key *k)
{
        pthread_mutex_lock(&lock);
        const struct key *found = keys_find(&keys, name, len);
        if (found)
                *k = *found;
        pthread_mutex_unlock(&lock);
        return found;
}

bool keyring_find_mark(uint64_t mark, struct key *k)
{
        const struct key *found = NULL;

        pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < keys.count; i++)       /* to the end: see keyring.h */
                found = marks[i] == mark ? &keys.key[i] : found;
        if (found)
                *k = *found;
        pthread_mutex_unlock(&lock);
        return found;
}
