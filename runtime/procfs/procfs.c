/*
 * Paths into /proc that must lead to the program.
 *
 * Native and correct, since to the kernel vmrun's process is the program's: comm (the loader sets
 * it), cwd, root, fd, io, ns.  Written here: exe, maps, meminfo, cmdline, environ, auxv; stat,
 * statm, status, limits and sched, which are the host's text with the program's numbers
 * (numbers.c); smaps (smaps.c), map_files (maps.c), mem (mem.c).  Who may read them is the host's
 * decision about its own file: a process that has changed its user may not read all of its own.
 * Missing: other files that show vmrun's memory page by page (pagemap and its like), as in a kernel
 * built without them.  Listings and counts of links leave out vmrun's own descriptors and threads.
 * The content is made at open, not at each read.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/privfd.h"
#include "load/image.h"
#include "memory/gmem.h"
#include "procfs/mem.h"
#include "procfs/numbers.h"
#include "procfs/procfs.h"
#include "procfs/smaps.h"
#include "procfs/text.h"
#include "vm/stop.h"

static struct range { uint64_t start, end; } args, environment;
static struct aux auxv[IMAGE_AUX_MAX + 1];
static size_t auxv_size;

void procfs_set_image(const struct image *im)
{
        args = (struct range){ im->stack.arg_start, im->stack.arg_end };
        environment = (struct range){ im->stack.env_start, im->stack.env_end };
        auxv_size = im->stack.naux * sizeof(auxv[0]);
        memcpy(auxv, im->stack.aux, auxv_size);
        procfs_numbers_set(im);
}

uint64_t procfs_mem_total(void) { return (CONTROL->nframes + CONTROL->far_pages) * PAGE_SIZE; }

static void map_line(const struct map_entry *e, void *arg) { procfs_map_line(e, arg); }

static void map_size(const struct map_entry *e, void *arg)
{
        if (e->prot & PROT_WRITE)
                *(uint64_t *)arg += e->end - e->start;
}

/* Memory minus what the program may write to, but at least a sixteenth of it: the program may have
 * reserved more than it uses. */
uint64_t procfs_mem_free(struct thread *t)
{
        uint64_t total = procfs_mem_total(), used = 0;

        procfs_each_map(t, map_size, &used);
        return used < total - total / 16 ? total - used : total / 16;
}

/* The host's file, in which the three numbers by which programs size their caches are replaced. */
static void meminfo(struct thread *t, struct text *x)
{
        unsigned long total = procfs_mem_total() >> 10, avail = procfs_mem_free(t) >> 10;
        FILE *f = fopen("/proc/meminfo", "re");
        char line[256];

        while (f && fgets(line, sizeof(line), f)) {
                if (!strncmp(line, "MemTotal:", 9))
                        text_add(x, "MemTotal:       %8lu kB\n", total);
                else if (!strncmp(line, "MemFree:", 8))
                        text_add(x, "MemFree:        %8lu kB\n", avail);
                else if (!strncmp(line, "MemAvailable:", 13))
                        text_add(x, "MemAvailable:   %8lu kB\n", avail);
                else
                        text_add(x, "%s", line);
        }
        if (f)
                fclose(f);
}

/* Strings from the program's own memory, since the program may have changed them. */
static void strings(struct thread *t, const struct range *r, struct text *x)
{
        x->p = malloc(r->end - r->start);
        x->n = x->p && gmem_read(t, x->p, r->start, r->end - r->start) == 0 ? r->end - r->start : 0;
}

static void bytes(const void *p, size_t n, struct text *x)
{
        x->p = malloc(n);
        x->n = x->p ? n : 0;
        if (x->p)
                memcpy(x->p, p, n);
}

/* A read-only fd with content x: the lowest free number, as from open. */
static long serve(struct text *x, const char *name, int flags)
{
        char link[64];
        int fd = PRIVFD_NEW(memfd_create(name, MFD_CLOEXEC));
        long ret;

        if (fd < 0)
                return fd;
        for (size_t n = 0; n < x->n;) {
                ssize_t w = write(fd, x->p + n, x->n - n);
                if (w <= 0)
                        break;
                n += (size_t)w;
        }
        fchmod(fd, 0444);
        snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", fd);
        ret = open(link, O_RDONLY | (flags & (O_CLOEXEC | O_NONBLOCK)));
        if (ret < 0)
                ret = -errno;
        privfd_close(fd);
        return ret;
}

/* The host's own file, of the process (task 0) or of a thread. */
static void host_file(char *path, size_t n, const char *rest, pid_t task)
{
        if (rest[0] == '/')
                snprintf(path, n, "/proc%.64s", rest);
        else if (task)
                snprintf(path, n, "/proc/self/task/%d/%.64s", (int)task, rest);
        else
                snprintf(path, n, "/proc/self/%.64s", rest);
}

static int may_open(const char *path, int flags)
{
        int access = (flags & O_ACCMODE) == O_RDONLY ? R_OK :
                     (flags & O_ACCMODE) == O_WRONLY ? W_OK : R_OK | W_OK;

        return faccessat(AT_FDCWD, path, access, AT_EACCESS) ? -errno : 0;
}

bool procfs_open(struct thread *t, int dirfd, const char *path, int flags, long *ret)
{
        static const char *const absent[] = { "pagemap", "numa_maps" };
        char rest[PATH_MAX], host[128];
        struct text x = { 0 };
        bool maps, smaps, info, cmdline, environ, aux, numbers;
        pid_t task;

        if (!procfs_own_path(dirfd, path, rest, &task))
                return false;
        if (task && procfs_is_helper(task))
                return *ret = -ENOENT, true;
        for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
                if (!strncmp(rest, absent[i], strlen(absent[i])) &&
                    (!rest[strlen(absent[i])] || rest[strlen(absent[i])] == '/'))
                        return *ret = -ENOENT, true;
        host_file(host, sizeof(host), rest, task);
        if (!strcmp(rest, "mem")) {
                *ret = flags & O_PATH ? 0 : may_open(host, flags);
                if (!*ret)
                        *ret = procfs_mem_open(t, flags);
                return true;
        }
        if ((!strncmp(rest, "fd/", 3) && privfd_is(atoi(rest + 3))) ||
            (!strncmp(rest, "fdinfo/", 7) && privfd_is(atoi(rest + 7))))
                return *ret = -ENOENT, true;
        maps = !strcmp(rest, "maps");
        smaps = !strcmp(rest, "smaps") || !strcmp(rest, "smaps_rollup");
        info = !strcmp(rest, "/meminfo");
        cmdline = !strcmp(rest, "cmdline") && args.end > args.start;
        environ = !strcmp(rest, "environ") && environment.end > environment.start;
        aux = !strcmp(rest, "auxv") && auxv_size;
        numbers = procfs_is_numbers(rest);
        /* An open for writing alone gets the host's file.  One for both is refused, as natively but
         * for sched and root: the host's file would show vmrun's numbers. */
        if ((!maps && !smaps && !info && !cmdline && !environ && !aux && !numbers) ||
            (flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
                return false;
        if ((flags & O_ACCMODE) != O_RDONLY)
                return *ret = -EACCES, true;
        *ret = may_open(host, flags);
        if (*ret)
                return true;
        if (flags & O_DIRECTORY)
                return *ret = -ENOTDIR, true;
        if (maps) {
                procfs_each_map(t, map_line, &x);
                procfs_map_line(&procfs_vsyscall, &x);
        } else if (smaps)
                procfs_smaps(t, rest[5], &x);
        else if (info)
                meminfo(t, &x);
        else if (aux)
                bytes(auxv, auxv_size, &x);
        else if (numbers)
                procfs_numbers(t, host, rest, &x);
        else
                strings(t, cmdline ? &args : &environment, &x);
        *ret = serve(&x, info ? "meminfo" : rest, flags);
        free(x.p);
        return true;
}
