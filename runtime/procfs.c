/*
 * Paths into /proc that must lead to the program.
 *
 * Native and right, since vmrun's process is the program's as far as the kernel knows: comm (the
 * loader sets it), cwd, root, fd, io, limits of most kinds, ns.  Written here: exe, maps, meminfo,
 * cmdline, environ, auxv, and with the program's numbers in the host's text stat, statm, status
 * (procfs_numbers.c); smaps (procfs_smaps.c), map_files (procfs_maps.c), mem (procfs_mem.c).  Not
 * there: what else tells of vmrun's memory page by page (pagemap and its like), as in a kernel
 * built without it. vmrun's own descriptors and threads are in no listing.  What is written here is
 * as of the open, not of each read.
 *
 * Paths are taken as text: absolute, relative to a descriptor, or to the working directory if that
 * is in /proc.  Symbolic links elsewhere that lead into /proc, and "..", are not followed here.
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
#include "files.h"
#include "gmem.h"
#include "image.h"
#include "procfs.h"
#include "procfs_text.h"
#include "stop.h"
#include "vmrun.h"

#define PROC_MAGIC 0x9fa0

static char exe[PATH_MAX];

static struct range { uint64_t start, end; } args, environment;
static struct aux auxv[IMAGE_AUX_MAX + 1];
static size_t auxv_size;

void procfs_set_image(const struct image *im)
{
        args = (struct range){ im->stack.arg_start, im->stack.arg_end };
        environment = (struct range){ im->stack.env_start, im->stack.env_end };
        auxv_size = im->stack.naux * sizeof auxv[0];
        memcpy(auxv, im->stack.aux, auxv_size);
        procfs_numbers_set(im);
}

void procfs_set_exe(const char *path) { snprintf(exe, sizeof exe, "%s", path); }
const char *procfs_exe(void) { return exe; }

uint64_t procfs_mem_total(void) { return (CONTROL->nframes + CONTROL->far_pages) * PAGE_SIZE; }

/* --- which file of this process's directory a path means --- */

/* Removes "//" and "/./". */
static void tidy(char *s)
{
        char *to = s;

        for (char *p = s; *p;) {
                if (p[0] == '/' && p[1] == '/')
                        p++;
                else if (p[0] == '/' && p[1] == '.' && (p[2] == '/' || (!p[2] && p > s)))
                        p += 2;
                else
                        *to++ = *p++;
        }
        *to = 0;
}

/* Could the last component be of interest at all?  Spares relative paths the look at their directory. */
static bool name_matters(const char *path)
{
        static const char *const names[] = { "exe", "maps", "mem", "meminfo", "cmdline", "environ", "smaps", "smaps_rollup", "pagemap", "numa_maps",
                                             "stat", "statm", "status", "auxv" };
        const char *last = strrchr(path, '/');

        last = last ? last + 1 : path;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
                if (!strcmp(last, names[i]))
                        return true;
        return (last[0] >= '0' && last[0] <= '9') || strstr(path, "map_files");
}

/* Skips a number that is this process's, or this thread's; NULL: it is not. */
static const char *skip_own(const char *p)
{
        char *end;
        long n = strtol(p, &end, 10);

        if (end == p || (*end && *end != '/') || (n != getpid() && n != syscall(SYS_gettid)))
                return NULL;
        return end;
}

/* A thread that vmrun has for itself.  Each of the program's is known by its vCPU. */
static bool is_helper(pid_t tid)
{
        uint32_t n = atomic_load_explicit(&CONTROL->nvcpus, memory_order_acquire);      /* their blocks are filled in */

        for (uint32_t i = 0; i < n; i++) {
                const struct vcpu_fixed *v = vcpu_fixed(vcpu_block(i));
                if (v->role == ROLE_PROGRAM && v->tid == (uint32_t)tid)
                        return false;
        }
        return n > 0;
}

/* Skips the number of a thread of this process: *task; NULL if it is none. */
static const char *skip_task(const char *p, pid_t *task)
{
        char *end, path[64];
        long n = strtol(p, &end, 10);

        if (end == p || n <= 0 || n > INT32_MAX || (*end && *end != '/'))
                return NULL;
        snprintf(path, sizeof path, "/proc/self/task/%ld", n);
        *task = (pid_t)n;
        return access(path, F_OK) ? NULL : end;
}

/*
 * Writes what comes after /proc/self/ to rest ("exe", "maps", "fd/7"), after /proc/ for global files with a leading
 * slash ("/meminfo").  A path by way of a thread is the same, with *task its number; else that is 0.  false: not a path into /proc, or
 * another process's.
 */
static bool own_path(int dirfd, const char *path, char rest[PATH_MAX], pid_t *task)
{
        char full[2 * PATH_MAX], dir[PATH_MAX], link[64];
        const char *p;
        ssize_t n;

        if (path[0] == '/') {
                if (strncmp(path, "/proc", 5) && strncmp(path, "/dev/fd/", 8) && !(path[1] == '/' || path[1] == '.'))
                        return false;
                snprintf(full, sizeof full, "%s", path);
        } else {
                if (!path[0] || !name_matters(path))
                        return false;
                if (dirfd == AT_FDCWD)
                        snprintf(link, sizeof link, "/proc/thread-self/cwd");
                else
                        snprintf(link, sizeof link, "/proc/thread-self/fd/%d", dirfd);
                n = readlink(link, dir, sizeof dir - 1);
                if (n < 5)
                        return false;
                dir[n] = 0;
                if (strncmp(dir, "/proc", 5) || (dir[5] && dir[5] != '/'))
                        return false;
                snprintf(full, sizeof full, "%s/%s", dir, path);
        }
        tidy(full);
        *task = 0;
        if (!strncmp(full, "/dev/fd/", 8)) {
                snprintf(rest, PATH_MAX, "fd/%.200s", full + 8);
                return true;
        }
        if (strncmp(full, "/proc/", 6))
                return false;
        p = full + 6;
        if (!strncmp(p, "self/", 5))
                p += 5;
        else if (!strncmp(p, "thread-self/", 12)) {
                p += 12;
                *task = (pid_t)syscall(SYS_gettid);
        }
        else if (*p >= '0' && *p <= '9') {
                p = skip_own(p);
                if (!p || *p++ != '/')
                        return false;
        } else {
                snprintf(rest, PATH_MAX, "/%.4000s", p);
                return true;
        }
        if (!strncmp(p, "task/", 5)) {
                const char *q = skip_task(p + 5, task);
                if (q && *q)
                        p = q + 1;
        }
        snprintf(rest, PATH_MAX, "%.4000s", p);
        return true;
}

#define MAP_FILES "map_files/"
static bool is_map_file(const char *rest) { return !strncmp(rest, MAP_FILES, strlen(MAP_FILES)); }

static int map_file(const char *rest, char path[PATH_MAX])
{
        return procfs_map_file(thread_self, rest + strlen(MAP_FILES), path);
}

/* The host's folder has entries of vmrun's own mappings: no name leads there. */
#define NO_MAP_FILE "/proc/thread-self/" MAP_FILES "none"

const char *procfs_follow(int dirfd, const char *path)
{
        static _Thread_local char file[PATH_MAX];
        char rest[PATH_MAX];
        pid_t task;

        if (!exe[0] || !own_path(dirfd, path, rest, &task))
                return path;
        if (is_map_file(rest))
                return map_file(rest, file) ? NO_MAP_FILE : file;
        return !strcmp(rest, "exe") ? exe : path;
}

const char *procfs_itself(int dirfd, const char *path)
{
        char rest[PATH_MAX], file[PATH_MAX];
        pid_t task;

        if (!exe[0] || !own_path(dirfd, path, rest, &task) || !is_map_file(rest))
                return path;
        return map_file(rest, file) ? NO_MAP_FILE : "/proc/thread-self/exe";
}

long procfs_readlink(int dirfd, const char *path, char *buf, size_t n)
{
        char rest[PATH_MAX], file[PATH_MAX];
        const char *target = exe;
        pid_t task;

        if (!exe[0] || !own_path(dirfd, path, rest, &task))
                return -1;
        if (is_map_file(rest)) {
                if (map_file(rest, file))
                        return -ENOENT;
                target = file;
        } else if (strcmp(rest, "exe")) {
                return -1;
        }
        size_t len = strnlen(target, n);
        memcpy(buf, target, len);
        return (long)len;
}

enum procfs_dir procfs_dir(int fd)
{
        char link[64], dir[PATH_MAX], rest[PATH_MAX];
        struct statfs fs;
        ssize_t n;
        pid_t task;

        if (syscall(SYS_fstatfs, fd, &fs) || fs.f_type != PROC_MAGIC)
                return PROCFS_OTHER;
        snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
        n = readlink(link, dir, sizeof dir - 1);
        if (n <= 0)
                return PROCFS_OTHER;
        dir[n] = 0;
        if (!own_path(AT_FDCWD, dir, rest, &task))
                return PROCFS_OTHER;
        return !strcmp(rest, "fd") || !strcmp(rest, "fdinfo") ? PROCFS_FDS :
               !strcmp(rest, "task") ? PROCFS_TASKS :
               !strcmp(rest, "map_files") ? PROCFS_MAPS : PROCFS_OTHER;
}

bool procfs_hides(enum procfs_dir dir, const char *name)
{
        if (name[0] < '0' || name[0] > '9')
                return false;
        return dir == PROCFS_FDS ? privfd_is(atoi(name)) : dir == PROCFS_TASKS && is_helper(atoi(name));
}

unsigned procfs_helpers(void)
{
        DIR *d = opendir("/proc/self/task");
        unsigned n = 0;

        for (struct dirent *e; d && (e = readdir(d));)
                n += procfs_hides(PROCFS_TASKS, e->d_name);
        if (d)
                closedir(d);
        return n;
}

/* --- files written here --- */

void text_add(struct text *x, const char *fmt, ...)
{
        va_list ap;

        for (;;) {
                va_start(ap, fmt);
                int n = vsnprintf(x->p ? x->p + x->n : NULL, x->p ? x->room - x->n : 0, fmt, ap);
                va_end(ap);
                if (n < 0)
                        return;
                if (x->p && (size_t)n < x->room - x->n) {
                        x->n += (size_t)n;
                        return;
                }
                size_t room = (x->room + (size_t)n + 4096) * 2;
                char *p = realloc(x->p, room);
                if (!p)
                        return;
                x->p = p;
                x->room = room;
        }
}

void procfs_each_map(struct thread *t, void (*fn)(const struct map_entry *, void *), void *arg)
{
        struct map_entry e[PAGE_SIZE / sizeof(struct map_entry)];
        uint64_t from = 0;

        for (;;) {
                int64_t n = thread_upcall(t, UPCALL_MAPS, from, 0, 0);
                if (n <= 0 || n > (int64_t)(sizeof e / sizeof e[0]))
                        return;
                memcpy(e, vcpu_xfer(t->v), (size_t)n * sizeof e[0]);
                for (int64_t i = 0; i < n; i++)
                        fn(&e[i], arg);
                if (e[n - 1].end <= from)
                        return;
                from = e[n - 1].end;
        }
}

/* A line as fs/proc/task_mmu.c writes it: names start at column 74. */
void procfs_map_line(const struct map_entry *e, struct text *x)
{
        char path[PATH_MAX] = "";
        dev_t dev = 0;
        ino_t ino = 0;
        size_t start = x->n;

        if (e->file != FILE_NONE && file_describe(e->file, path, sizeof path, &dev, &ino))
                path[0] = 0;
        if (e->file == FILE_NONE && (e->flags & MAP_ENTRY_STACK))
                snprintf(path, sizeof path, "[stack]");
        else if (e->file == FILE_NONE && (e->flags & MAP_ENTRY_HEAP))
                snprintf(path, sizeof path, "[heap]");
        text_add(x, "%08lx-%08lx %c%c%c%c %08lx %02x:%02x %lu ", (unsigned long)e->start, (unsigned long)e->end,
            e->prot & PROT_READ ? 'r' : '-', e->prot & PROT_WRITE ? 'w' : '-', e->prot & PROT_EXEC ? 'x' : '-',
            e->flags & MAP_SHARED ? 's' : 'p', (unsigned long)e->off, major(dev), minor(dev), (unsigned long)ino);
        if (path[0]) {
                int pad = 73 - (int)(x->n - start);
                text_add(x, "%*s", pad > 0 ? pad : 0, "");
                for (const char *s = path; *s; s++)
                        if (*s == '\n')
                                text_add(x, "\\012");
                        else
                                text_add(x, "%c", *s);
        }
        text_add(x, "\n");
}

static void map_line(const struct map_entry *e, void *arg) { procfs_map_line(e, arg); }

static void map_size(const struct map_entry *e, void *arg)
{
        if (e->prot & PROT_WRITE)
                *(uint64_t *)arg += e->end - e->start;
}

/* Memory less what the program could have written to, but at least a sixteenth of it: it may have reserved more than it uses. */
uint64_t procfs_mem_free(struct thread *t)
{
        uint64_t total = procfs_mem_total(), used = 0;

        procfs_each_map(t, map_size, &used);
        return used < total - total / 16 ? total - used : total / 16;
}

/* The host's file with the three numbers replaced that programs size their caches by. */
static void meminfo(struct thread *t, struct text *x)
{
        unsigned long total = procfs_mem_total() >> 10, avail = procfs_mem_free(t) >> 10;
        FILE *f = fopen("/proc/meminfo", "re");
        char line[256];

        while (f && fgets(line, sizeof line, f)) {
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

/* Strings of the program's, from its own memory, as it may have changed them. */
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

/* An fd, read-only, whose content is x: the lowest free one, as open would give. */
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
        snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
        ret = open(link, O_RDONLY | (flags & (O_CLOEXEC | O_NONBLOCK)));
        if (ret < 0)
                ret = -errno;
        privfd_close(fd);
        return ret;
}

bool procfs_open(struct thread *t, int dirfd, const char *path, int flags, long *ret)
{
        static const char *const absent[] = { "pagemap", "numa_maps" };
        char rest[PATH_MAX];
        struct text x = { 0 };
        bool maps, smaps, info, cmdline, environ, aux, numbers;
        pid_t task;

        if (!own_path(dirfd, path, rest, &task))
                return false;
        if (task && is_helper(task))
                return *ret = -ENOENT, true;
        for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
                if (!strncmp(rest, absent[i], strlen(absent[i])) &&
                    (!rest[strlen(absent[i])] || rest[strlen(absent[i])] == '/'))
                        return *ret = -ENOENT, true;
        if (!strcmp(rest, "mem"))
                return *ret = flags & (O_PATH | O_DIRECTORY) ? -EACCES : procfs_mem_open(flags),
                       true;
        if ((!strncmp(rest, "fd/", 3) && privfd_is(atoi(rest + 3))) ||
            (!strncmp(rest, "fdinfo/", 7) && privfd_is(atoi(rest + 7))))
                return *ret = -ENOENT, true;
        maps = !strcmp(rest, "maps");
        smaps = !strcmp(rest, "smaps") || !strcmp(rest, "smaps_rollup");
        info = !strcmp(rest, "/meminfo");
        cmdline = !strcmp(rest, "cmdline") && args.end > args.start;
        environ = !strcmp(rest, "environ") && environment.end > environment.start;
        aux = !strcmp(rest, "auxv") && auxv_size;
        numbers = !strcmp(rest, "stat") || !strcmp(rest, "statm") || !strcmp(rest, "status");
        if ((!maps && !smaps && !info && !cmdline && !environ && !aux && !numbers) ||
            (flags & O_PATH))
                return false;
        if ((flags & O_ACCMODE) != O_RDONLY)
                return *ret = -EACCES, true;
        if (flags & O_DIRECTORY)
                return *ret = -ENOTDIR, true;
        if (maps)
                procfs_each_map(t, map_line, &x);
        else if (smaps)
                procfs_smaps(t, rest[5], &x);
        else if (info)
                meminfo(t, &x);
        else if (aux)
                bytes(auxv, auxv_size, &x);
        else if (numbers)
                procfs_numbers(t, rest, task, &x);
        else
                strings(t, cmdline ? &args : &environment, &x);
        *ret = serve(&x, info ? "meminfo" : rest, flags);
        free(x.p);
        return true;
}
