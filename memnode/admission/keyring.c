#include <pthread.h>
#include <stdatomic.h>
#include "admission/keyring.h"
#include "common/message.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct keys keys;                /* guarded by it */
/* Set before the first client comes, and never unset.  Relaxed: it publishes nothing. */
static atomic_bool used;

int keyring_load(const char *path, char *why, size_t n)
{
        struct keys fresh, old;
        bool others = false;
        int err = keys_read(path, &fresh, &others, why, n);

        if (err)
                return err;
        if (others)
                warnx_("%s: every user of this host may read these keys: `chmod o= %s`", path,
                       path);
        pthread_mutex_lock(&lock);
        old = keys;
        keys = fresh;
        pthread_mutex_unlock(&lock);
        keys_free(&old);
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
