/*
 * Resource limits and the size of memory.
 *
 * Limits on memory are kern's (control.rlimit_*): set on the host, they would limit vmrun, whose mappings are the cache.
 * Descriptors are privfd's.  Everything else is the host process's own.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include "sys.h"
#include "../rlimits.h"
#include "../procfs.h"

/* Hard limits of those kern keeps; it knows the soft ones only.  Under lock. */
static struct { bool known, set; uint64_t max; } hard[RLIM_NLIMITS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const int kept_limits[LIMITS_KEPT] = { RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_MEMLOCK };

static uint64_t *kept(int res)
{
        switch (res) {
        case RLIMIT_AS:      return &CONTROL->rlimit_as;
        case RLIMIT_DATA:    return &CONTROL->rlimit_data;
        case RLIMIT_STACK:   return &CONTROL->rlimit_stack;
        case RLIMIT_MEMLOCK: return &CONTROL->rlimit_memlock;
        }
        return NULL;
}

static long host_limit(int pid, int res, const uint64_t *new, uint64_t *old)
{
        return sys_own(__NR_prlimit64, (uint64_t)pid, (uint64_t)res, P(new), P(old), 0, 0);
}

/* Does memory begin at the window there, as it does in each vmrun, whatever its file and version?
 * /proc is asked, not the memory itself, which may be read by fewer than limits may be set. */
static bool has_window(int pid)
{
        char path[32], wanted[32], text[4096 + 1];
        size_t have = 1;
        ssize_t n;
        bool found = false;

        snprintf(path, sizeof path, "/proc/%d/maps", pid);
        int fd = PRIVFD_NEW(open(path, O_RDONLY | O_CLOEXEC));
        if (fd < 0)
                return false;
        snprintf(wanted, sizeof wanted, "\n%llx-", (unsigned long long)WINDOW);
        text[0] = '\n';
        while (!found && (n = read(fd, text + have, sizeof text - 1 - have)) > 0) {
                have += (size_t)n;
                text[have] = 0;
                found = strstr(text, wanted) != NULL;
                size_t keep = have < sizeof wanted ? have : sizeof wanted;
                memmove(text, text + have - keep, keep);
                have = keep;
        }
        privfd_close(fd);
        return found;
}

/*
 * (sys.h)  Its limits are in its own vmrun, and the host's are that vmrun's: it must not be kept
 * from its cache or its descriptors.  The file tells of one that has no window yet.
 */
bool sys_under_vmrun(int pid)
{
        char path[32];
        struct stat theirs, own;

        snprintf(path, sizeof path, "/proc/%d/exe", pid);
        if (stat("/proc/thread-self/exe", &own) != 0)
                return true;            /* without /proc nobody can tell */
        return (stat(path, &theirs) == 0 && theirs.st_dev == own.st_dev &&
                theirs.st_ino == own.st_ino) || has_window(pid);
}

static bool may_raise(void)
{
        struct { uint32_t version; int pid; } head = { 0x20080522, 0 };
        struct { uint32_t effective, permitted, inheritable; } data[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

        return !sys_own(__NR_capget, P(&head), P(data), 0, 0, 0, 0) && (data[0].effective & 1u << 24 /* CAP_SYS_RESOURCE */);
}

static uint64_t hard_of(int res, uint64_t soft)
{
        uint64_t host[2];

        if (!hard[res].known) {
                hard[res].known = true;
                hard[res].max = host_limit(0, res, NULL, host) ? UINT64_MAX : host[1];
                if (hard[res].max < soft)
                        hard[res].max = soft;
        }
        return hard[res].max;
}

void limits_keep(struct limits_kept *k)
{
        k->nofile[0] = privfd_nofile_soft();
        k->nofile[1] = privfd_nofile_hard();
        /* Without the lock: as a rule nobody else runs, and a process that borrows our memory may be killed while it holds it. */
        for (int i = 0; i < LIMITS_KEPT; i++) {
                int res = kept_limits[i];
                k->memory[i] = (struct limit_kept){ *kept(res), hard_of(res, *kept(res)), hard[res].set };
        }
}

void limits_adopt(const struct limits_kept *k)
{
        for (int i = 0; i < LIMITS_KEPT; i++) {
                int res = kept_limits[i];
                *kept(res) = k->memory[i].soft;
                hard[res].known = true;
                hard[res].set = k->memory[i].set;
                hard[res].max = k->memory[i].hard;
        }
}

static bool set_host(int res, uint64_t soft, uint64_t max, bool hard_too, struct limit_kept *old)
{
        uint64_t was[2], new[2] = { soft, max };

        if (host_limit(0, res, NULL, was))
                return false;
        if (!hard_too) {
                new[0] = soft < was[1] ? soft : was[1];
                new[1] = was[1];
        }
        *old = (struct limit_kept){ was[0], was[1], true };
        return host_limit(0, res, new, NULL) == 0;
}

void limits_to_host(const struct limits_kept *k, bool hard_too, struct limits_kept *old)
{
        struct limit_kept nofile;

        for (int i = 0; i < LIMITS_KEPT; i++)
                if (!k->memory[i].set || !set_host(kept_limits[i], k->memory[i].soft, k->memory[i].hard, hard_too, &old->memory[i]))
                        old->memory[i].set = false;
        if (!set_host(RLIMIT_NOFILE, k->nofile[0], k->nofile[1], hard_too, &nofile))
                nofile = (struct limit_kept){ k->nofile[0], k->nofile[1], false };
        old->nofile[0] = nofile.soft;
        old->nofile[1] = nofile.hard;
}

/* Own limits, { soft, hard } each; new or old may be NULL. */
static long own_limit(int res, const uint64_t new[2], uint64_t old[2])
{
        uint64_t *soft = kept(res), max;
        long ret = 0;

        if (!soft && res != RLIMIT_NOFILE)
                return host_limit(0, res, new, old);
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
        max = hard_of(res, *soft);
        if (old) {
                old[0] = *soft;
                old[1] = max;
        }
        if (new) {
                if (new[1] > max && !may_raise()) {
                        ret = -EPERM;
                        goto out;
                }
                hard[res].max = new[1];
                hard[res].set = true;
                *soft = new[0];
        }
out:
        pthread_mutex_unlock(&lock);
        return ret;
}

long sys_getrlimit(struct thread *t, long nr, const uint64_t a[6])
{
        uint64_t old[2];
        long ret;

        (void)nr;
        if ((uint32_t)a[0] >= RLIM_NLIMITS)
                return -EINVAL;
        ret = own_limit((int)a[0], NULL, old);
        return ret ? ret : gmem_write(t, a[1], old, 16) ? -EFAULT : 0;
}

long sys_setrlimit(struct thread *t, long nr, const uint64_t a[6])
{
        uint64_t new[2];

        (void)nr;
        if (gmem_read(t, new, a[1], 16))
                return -EFAULT;
        if ((uint32_t)a[0] >= RLIM_NLIMITS)
                return -EINVAL;
        return own_limit((int)a[0], new, NULL);
}

long sys_prlimit64(struct thread *t, long nr, const uint64_t a[6])
{
        int pid = (int)a[0], res = (int)a[1];
        uint64_t new[2], old[2];
        long ret;

        (void)nr;
        if ((uint32_t)res >= RLIM_NLIMITS)
                return -EINVAL;
        if (a[2] && gmem_read(t, new, a[2], 16))
                return -EFAULT;
        if (pid == 0 || pid == sys_own(__NR_getpid, 0, 0, 0, 0, 0, 0) || pid == sys_own(__NR_gettid, 0, 0, 0, 0, 0, 0))
                ret = own_limit(res, a[2] ? new : NULL, old);
        else if (a[2] && (kept(res) || res == RLIMIT_NOFILE) && sys_under_vmrun(pid))
                ret = -EPERM;
        else
                ret = host_limit(pid, res, a[2] ? new : NULL, old);
        if (ret || !a[3])
                return ret;
        return gmem_write(t, a[3], old, 16) ? -EFAULT : 0;
}

long sys_sysinfo(struct thread *t, long nr, const uint64_t a[6])
{
        struct sysinfo *si = sys_out(t, a[0], sizeof *si);
        long ret = sys_raw(nr, P(si), 0, 0, 0, 0, 0);

        if (ret)
                return ret;
        si->mem_unit = 1;
        si->totalram = procfs_mem_total();
        si->freeram = procfs_mem_free(t);
        si->sharedram = si->bufferram = 0;
        si->totalswap = si->freeswap = 0;
        si->totalhigh = si->freehigh = 0;
        return sys_deliver(t, a[0], si, sizeof *si, 0);
}
