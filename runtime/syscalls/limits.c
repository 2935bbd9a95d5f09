/*
 * Resource limits and the size of memory.
 *
 * kern keeps the limits on memory (control.rlimit_*): set on the host, they would limit vmrun,
 * whose mappings are the cache.  privfd keeps the limit of descriptors.  All other limits are the
 * host process's.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include "base/privfd.h"
#include "marshal/call.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "process/rlimits.h"
#include "procfs/procfs.h"
#include "syscalls/handlers.h"
#include "syscalls/limits.h"

/* Has process pid a mapping at the start of the window?  Each vmrun has, of any file and version.
 * Uses /proc, not the memory itself: more users may set its limits than may read its memory. */
static bool has_window(int pid)
{
        char path[32], wanted[32], text[4096 + 1];
        size_t have = 1;
        ssize_t n;
        bool found = false;

        snprintf(path, sizeof(path), "/proc/%d/maps", pid);
        int fd = PRIVFD_NEW(open(path, O_RDONLY | O_CLOEXEC));
        if (fd < 0)
                return false;
        snprintf(wanted, sizeof(wanted), "\n%llx-", (unsigned long long)WINDOW);
        text[0] = '\n';
        while (!found && (n = read(fd, text + have, sizeof(text) - 1 - have)) > 0) {
                have += (size_t)n;
                text[have] = 0;
                found = strstr(text, wanted) != NULL;
                size_t keep = have < sizeof(wanted) ? have : sizeof(wanted);
                memmove(text, text + have - keep, keep);
                have = keep;
        }
        privfd_close(fd);
        return found;
}

/*
 * A program's limits are kept by its own vmrun.  The limits in the host kernel are that vmrun's,
 * which must not lose its cache or its descriptors.  A vmrun without a window yet is recognised by
 * its file.
 */
bool sys_under_vmrun(int pid)
{
        char path[32];
        struct stat theirs, own;

        snprintf(path, sizeof(path), "/proc/%d/exe", pid);
        if (stat("/proc/thread-self/exe", &own) != 0)
                return true;            /* cannot be known without /proc */
        return (stat(path, &theirs) == 0 && theirs.st_dev == own.st_dev &&
                theirs.st_ino == own.st_ino) || has_window(pid);
}

long sys_getrlimit(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t old[2];
        long ret;

        (void)row;
        if ((uint32_t)a[0] >= RLIM_NLIMITS)
                return -EINVAL;
        ret = limits_own((int)a[0], NULL, old);
        return ret ? ret : gmem_write(t, a[1], old, 16) ? -EFAULT : 0;
}

long sys_setrlimit(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t new[2];

        (void)row;
        if (gmem_read(t, new, a[1], 16))
                return -EFAULT;
        if ((uint32_t)a[0] >= RLIM_NLIMITS)
                return -EINVAL;
        return limits_own((int)a[0], new, NULL);
}

long sys_prlimit64(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int pid = (int)a[0], res = (int)a[1];
        uint64_t new[2], old[2];
        long ret;

        (void)row;
        if (a[2] && gmem_read(t, new, a[2], 16))
                return -EFAULT;
        if (pid == 0 || pid == sys_own(__NR_getpid, 0, 0, 0, 0, 0, 0) ||
            pid == sys_own(__NR_gettid, 0, 0, 0, 0, 0, 0))
                ret = limits_own(res, a[2] ? new : NULL, old);
        else if (a[2] && (limits_kept_here(res) || res == RLIMIT_NOFILE) && sys_under_vmrun(pid))
                ret = -EPERM;
        else
                ret = limits_host(pid, res, a[2] ? new : NULL, old);
        if (ret || !a[3])
                return ret;
        return gmem_write(t, a[3], old, 16) ? -EFAULT : 0;
}

long sys_sysinfo(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct sysinfo *si = sys_out(t, a[0], sizeof(*si));
        long ret = sys_raw(row->nr, P(si), 0, 0, 0, 0, 0);

        if (ret)
                return ret;
        si->mem_unit = 1;
        si->totalram = procfs_mem_total();
        si->freeram = procfs_mem_free(t);
        si->sharedram = si->bufferram = 0;
        si->totalswap = si->freeswap = 0;
        si->totalhigh = si->freehigh = 0;
        return sys_deliver(t, a[0], si, sizeof(*si), 0);
}
