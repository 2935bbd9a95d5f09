/*
 * Resource limits of the program.
 *
 * kern keeps the limits on memory (control.rlimit_*): set on the host, they would limit vmrun,
 * whose mappings are the cache.  Therefore limits_begin() raises the host's soft limits of address
 * space and data to the hard limits; the program keeps those that it began with.  privfd
 * keeps the limit of descriptors.  All others are those of the host process.
 */
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/resource.h>
#include "abi_control.h"
#include "base/privfd.h"
#include "marshal/call.h"
#include "process/rlimits.h"

/* Hard limits of the resources that kern keeps; kern has only the soft limits.  Under lock. */
static struct { bool known, set; uint64_t max; } hard[RLIM_NLIMITS];
/* What the program sees of the soft limit of locked memory: kern has none where CAP_IPC_LOCK lifts
 * it, also in a user namespace, where Linux does not.  Under lock. */
static uint64_t memlock;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const int kept_limits[LIMITS_KEPT] = { RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK,
                                              RLIMIT_MEMLOCK };

uint64_t *limits_kept_here(int res)
{
        switch (res) {
        case RLIMIT_AS:      return &CONTROL->rlimit_as;
        case RLIMIT_DATA:    return &CONTROL->rlimit_data;
        case RLIMIT_STACK:   return &CONTROL->rlimit_stack;
        case RLIMIT_MEMLOCK: return &CONTROL->rlimit_memlock;
        }
        return NULL;
}

static uint64_t soft_limit(int res)
{
        return res == RLIMIT_MEMLOCK ? memlock : *limits_kept_here(res);
}

static void set_soft_limit(int res, uint64_t soft)
{
        bool lifted = res == RLIMIT_MEMLOCK && has_capability(CAP_IPC_LOCK);

        *limits_kept_here(res) = lifted ? UINT64_MAX : soft;
        if (res == RLIMIT_MEMLOCK)
                memlock = soft;
}

void limits_look_at_rights(void)
{
        pthread_mutex_lock(&lock);
        set_soft_limit(RLIMIT_MEMLOCK, memlock);
        pthread_mutex_unlock(&lock);
}

long limits_host(int pid, int res, const uint64_t *new, uint64_t *old)
{
        return sys_own(__NR_prlimit64, (uint64_t)pid, (uint64_t)res, P(new), P(old), 0, 0);
}

static bool may_raise(void)
{
        struct { uint32_t version; int pid; } head = { 0x20080522, 0 };
        struct {
                uint32_t effective, permitted, inheritable;
        } data[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

        return !sys_own(__NR_capget, P(&head), P(data), 0, 0, 0, 0) &&
               (data[0].effective & 1u << 24 /* CAP_SYS_RESOURCE */);
}

static uint64_t hard_of(int res, uint64_t soft)
{
        uint64_t host[2];

        if (!hard[res].known) {
                hard[res].known = true;
                hard[res].max = limits_host(0, res, NULL, host) ? UINT64_MAX : host[1];
                if (hard[res].max < soft)
                        hard[res].max = soft;
        }
        return hard[res].max;
}

void limits_begin(struct limits_kept *k)
{
        for (int i = 0; i < LIMITS_KEPT; i++) {
                int res = kept_limits[i];
                struct rlimit r = { RLIM_INFINITY, RLIM_INFINITY };
                struct limit_kept *l = &k->memory[i];

                getrlimit(res, &r);
                *l = (struct limit_kept){ r.rlim_cur, r.rlim_max, false };
                if ((res == RLIMIT_AS || res == RLIMIT_DATA) && l->soft < l->hard) {
                        r.rlim_cur = r.rlim_max;
                        l->set = setrlimit(res, &r) == 0;
                }
        }
}

uint64_t limits_stack(const struct limits_kept *k)
{
        int i = 0;

        while (kept_limits[i] != RLIMIT_STACK)
                i++;
        return k->memory[i].soft;
}

void limits_keep(struct limits_kept *k)
{
        k->nofile[0] = privfd_nofile_soft();
        k->nofile[1] = privfd_nofile_hard();
        /* Without the lock: normally no other thread runs, and a child of vfork, which shares our
         * address space, may be killed while it holds the lock. */
        for (int i = 0; i < LIMITS_KEPT; i++) {
                int res = kept_limits[i];
                k->memory[i] = (struct limit_kept){ soft_limit(res), hard_of(res, soft_limit(res)),
                                                    hard[res].set };
        }
}

void limits_adopt(const struct limits_kept *k)
{
        for (int i = 0; i < LIMITS_KEPT; i++) {
                int res = kept_limits[i];
                set_soft_limit(res, k->memory[i].soft);
                hard[res].known = true;
                hard[res].set = k->memory[i].set;
                hard[res].max = k->memory[i].hard;
        }
}

static bool set_host(int res, uint64_t soft, uint64_t max, bool hard_too, struct limit_kept *old)
{
        uint64_t was[2], new[2] = { soft, max };

        if (limits_host(0, res, NULL, was))
                return false;
        if (!hard_too) {
                new[0] = soft < was[1] ? soft : was[1];
                new[1] = was[1];
        }
        *old = (struct limit_kept){ was[0], was[1], true };
        return limits_host(0, res, new, NULL) == 0;
}

void limits_to_host(const struct limits_kept *k, bool hard_too, struct limits_kept *old)
{
        struct limit_kept nofile;

        for (int i = 0; i < LIMITS_KEPT; i++)
                if (!k->memory[i].set || !set_host(kept_limits[i], k->memory[i].soft,
                                                   k->memory[i].hard, hard_too, &old->memory[i]))
                        old->memory[i].set = false;
        if (!set_host(RLIMIT_NOFILE, k->nofile[0], k->nofile[1], hard_too, &nofile))
                nofile = (struct limit_kept){ k->nofile[0], k->nofile[1], false };
        old->nofile[0] = nofile.soft;
        old->nofile[1] = nofile.hard;
}

/* Own limits, { soft, hard } each; new or old may be NULL. */
long limits_own(int res, const uint64_t new[2], uint64_t old[2])
{
        uint64_t max;
        long ret = 0;

        if (!limits_kept_here(res) && res != RLIMIT_NOFILE)
                return limits_host(0, res, new, old);
        if (new && new[0] > new[1])
                return -EINVAL;
        pthread_mutex_lock(&lock);
        if (res == RLIMIT_NOFILE) {
                if (old) {
                        old[0] = privfd_nofile_soft();
                        old[1] = privfd_nofile_hard();
                }
                if (new)
                        ret = privfd_set_nofile(new[0], new[1]);
                goto out;
        }
        max = hard_of(res, soft_limit(res));
        if (old) {
                old[0] = soft_limit(res);
                old[1] = max;
        }
        if (new) {
                if (new[1] > max && !may_raise()) {
                        ret = -EPERM;
                        goto out;
                }
                hard[res].max = new[1];
                hard[res].set = true;
                set_soft_limit(res, new[0]);
        }
out:
        pthread_mutex_unlock(&lock);
        return ret;
}
