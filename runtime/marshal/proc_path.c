/*
 * Which file of /proc a path names, and the links there that must lead to the program
 * (proc_path.h).
 *
 * Paths are taken as text: absolute, relative to a descriptor, or to the working directory if that
 * is in /proc.  Symbolic links elsewhere that lead into /proc, and "..", are not followed here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/privfd.h"
#include "marshal/proc_path.h"
#include "memory/files_read.h"
#include "vm/stop.h"

static char exe[PATH_MAX];

void procfs_set_exe(const char *path) { snprintf(exe, sizeof(exe), "%s", path); }

void procfs_each_map(struct thread *t, void (*fn)(const struct map_entry *, void *), void *arg)
{
        struct map_entry e[PAGE_SIZE / sizeof(struct map_entry)];
        uint64_t from = 0;

        for (;;) {
                int64_t n = thread_upcall(t, UPCALL_MAPS, from, 0, 0);
                if (n <= 0 || n > (int64_t)(sizeof(e) / sizeof(e[0])))
                        return;
                memcpy(e, vcpu_xfer(t->v), (size_t)n * sizeof(e[0]));
                for (int64_t i = 0; i < n; i++)
                        fn(&e[i], arg);
                if (e[n - 1].end <= from)
                        return;
                from = e[n - 1].end;
        }
}

struct wanted { uint64_t start, end; uint32_t file; };

static void match(const struct map_entry *e, void *arg)
{
        struct wanted *w = arg;

        if (e->start == w->start && e->end == w->end)
                w->file = e->file;
}

static int find_map_file(struct thread *t, const char *name, char path[PATH_MAX])
{
        struct wanted w = { .file = FILE_NONE };
        char again[40], *p;
        dev_t dev;
        ino_t ino;

        w.start = strtoull(name, &p, 16);
        w.end = *p == '-' ? strtoull(p + 1, NULL, 16) : 0;
        snprintf(again, sizeof(again), "%llx-%llx", (unsigned long long)w.start,
                 (unsigned long long)w.end);
        if (strcmp(name, again) == 0)
                procfs_each_map(t, match, &w);
        if (w.file == FILE_NONE || file_describe(w.file, path, PATH_MAX, &dev, &ino) != 0)
                return -ENOENT;
        return path[0] == '/' ? 0 : -ENOENT;
}

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

/* Could the last component matter at all?  Saves the lookup of the directory for most relative
 * paths. */
static bool name_matters(const char *path)
{
        static const char *const names[] = { "exe",     "maps",      "mem",   "meminfo",
                                             "cmdline", "environ",   "smaps", "smaps_rollup",
                                             "pagemap", "numa_maps", "stat",  "statm",
                                             "status",  "auxv",      "limits", "sched" };
        const char *last = strrchr(path, '/');

        last = last ? last + 1 : path;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (!strcmp(last, names[i]))
                        return true;
        return (last[0] >= '0' && last[0] <= '9') || strstr(path, "map_files");
}

/* Skips the number of this process or of this thread; NULL: it is another number. */
static const char *skip_own(const char *p)
{
        char *end;
        long n = strtol(p, &end, 10);

        if (end == p || (*end && *end != '/') || (n != getpid() && n != syscall(SYS_gettid)))
                return NULL;
        return end;
}

/* True: a thread of vmrun itself.  Each thread of the program is known by its vCPU. */
bool procfs_is_helper(pid_t tid)
{
        /* acquire: their blocks are filled in */
        uint32_t n = atomic_load_explicit(&CONTROL->nvcpus, memory_order_acquire);

        for (uint32_t i = 0; i < n; i++) {
                const struct vcpu_fixed *v = vcpu_fixed(vcpu_block(i));
                if (v->role == ROLE_PROGRAM && v->tid == (uint32_t)tid)
                        return false;
        }
        return n > 0;
}

/* Skips the number of a thread of this process, which goes to *task; NULL if it is no such
 * number. */
static const char *skip_task(const char *p, pid_t *task)
{
        char *end, path[64];
        long n = strtol(p, &end, 10);

        if (end == p || n <= 0 || n > INT32_MAX || (*end && *end != '/'))
                return NULL;
        snprintf(path, sizeof(path), "/proc/self/task/%ld", n);
        *task = (pid_t)n;
        return access(path, F_OK) ? NULL : end;
}

/*
 * Writes to rest the part after /proc/self/ ("exe", "maps", "fd/7"); for global files the part
 * after /proc, with a leading slash ("/meminfo").  For a path through a thread *task is its number,
 * else 0.  false: not a path into /proc, or of another process.
 */
bool procfs_own_path(int dirfd, const char *path, char rest[PATH_MAX], pid_t *task)
{
        char full[2 * PATH_MAX], dir[PATH_MAX], link[64];
        const char *p;
        ssize_t n;

        if (path[0] == '/') {
                if (strncmp(path, "/proc", 5) && strncmp(path, "/dev/fd/", 8) &&
                    !(path[1] == '/' || path[1] == '.'))
                        return false;
                snprintf(full, sizeof(full), "%s", path);
        } else {
                if (!path[0] || !name_matters(path))
                        return false;
                if (dirfd == AT_FDCWD)
                        snprintf(link, sizeof(link), "/proc/thread-self/cwd");
                else
                        snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", dirfd);
                n = readlink(link, dir, sizeof(dir) - 1);
                if (n < 5)
                        return false;
                dir[n] = 0;
                if (strncmp(dir, "/proc", 5) || (dir[5] && dir[5] != '/'))
                        return false;
                snprintf(full, sizeof(full), "%s/%s", dir, path);
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
        return find_map_file(thread_self, rest + strlen(MAP_FILES), path);
}

/* The host's folder has entries for vmrun's own mappings: use a name that does not exist. */
#define NO_MAP_FILE "/proc/thread-self/" MAP_FILES "none"

const char *procfs_follow(int dirfd, const char *path)
{
        static _Thread_local char file[PATH_MAX];
        char rest[PATH_MAX];
        pid_t task;

        if (!exe[0] || !procfs_own_path(dirfd, path, rest, &task))
                return path;
        if (is_map_file(rest))
                return map_file(rest, file) ? NO_MAP_FILE : file;
        return !strcmp(rest, "exe") ? exe : path;
}

const char *procfs_itself(int dirfd, const char *path)
{
        char rest[PATH_MAX], file[PATH_MAX];
        pid_t task;

        if (!exe[0] || !procfs_own_path(dirfd, path, rest, &task) || !is_map_file(rest))
                return path;
        return map_file(rest, file) ? NO_MAP_FILE : "/proc/thread-self/exe";
}

long procfs_readlink(int dirfd, const char *path, char *buf, size_t n)
{
        char rest[PATH_MAX], file[PATH_MAX];
        const char *target = exe;
        pid_t task;

        if (!exe[0] || !procfs_own_path(dirfd, path, rest, &task))
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

/*
 * Is that directory of /proc this process's list of threads?  Asked by the way from there, not by
 * name: it holds for any mount of /proc, in any namespace of processes, and after a chroot.
 */
static bool is_task_list(int dirfd, const char *path, dev_t dev, ino_t ino)
{
        char again[2 * PATH_MAX];
        struct stat st;

        snprintf(again, sizeof(again), "%s%s../../self/task", path, path[0] ? "/" : "");
        return fstatat(dirfd, again, &st, 0) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/* What a directory of /proc looks like, so that other answers cost nothing. */
static bool like_proc(mode_t mode, unsigned dev_major, uint64_t size, uint64_t block)
{
        return S_ISDIR(mode) && dev_major == 0 && size == 0 && block == 1024;
}

static void links_of_stat(struct thread *t, int dirfd, uint64_t path, uint64_t answer)
{
        struct stat *st = (struct stat *)(uintptr_t)answer;

        if (like_proc(st->st_mode, major(st->st_dev), (uint64_t)st->st_size,
                      (uint64_t)st->st_blksize) &&
            is_task_list(dirfd, path ? (const char *)(uintptr_t)path : "", st->st_dev, st->st_ino))
                st->st_nlink = 2 + threads_count(t);
}

void procfs_links(struct thread *t, long nr, const uint64_t h[6])
{
        struct statx *sx = (struct statx *)(uintptr_t)h[4];

        switch (nr) {
        case SYS_stat:
        case SYS_lstat:
                links_of_stat(t, AT_FDCWD, h[0], h[1]);
                break;
        case SYS_fstat:
                links_of_stat(t, (int)h[0], 0, h[1]);
                break;
        case SYS_newfstatat:
                links_of_stat(t, (int)h[0], h[1], h[2]);
                break;
        case SYS_statx:
                if (like_proc(sx->stx_mode, sx->stx_dev_major, sx->stx_size, sx->stx_blksize) &&
                    is_task_list((int)h[0], h[1] ? (const char *)(uintptr_t)h[1] : "",
                                 makedev(sx->stx_dev_major, sx->stx_dev_minor), sx->stx_ino))
                        sx->stx_nlink = 2 + threads_count(t);
                break;
        }
}

#define PROC_MAGIC 0x9fa0

/* Do two paths, both relative to directory fd, lead to one file? */
static bool is_same(int fd, const char *a, const char *b)
{
        struct stat x, y;

        return fstatat(fd, a, &x, AT_EMPTY_PATH) == 0 && fstatat(fd, b, &y, 0) == 0 &&
               x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Is fd a directory right below /proc/self, /proc/TID of the calling thread, or /proc/self/task/TID
 * of any thread?  Numbers are those of this /proc, which may be of another namespace. */
static bool is_in_self(int fd)
{
        char link[64], thread[64];
        ssize_t n = readlinkat(fd, "../../thread-self", link, sizeof(link) - 1);

        if (n > 0) {
                link[n] = 0;
                const char *number = strrchr(link, '/');
                snprintf(thread, sizeof(thread), "../..%.40s", number ? number : "/self");
                if (is_same(fd, "..", "../../self") || is_same(fd, "..", thread))
                        return true;
        }
        return is_same(fd, "../..", "../../../../self/task");
}

/* Does this /proc number processes as getpid() does?  Else procfs_hides() could not recognise
 * vmrun's threads in it. */
static bool is_numbered_as_here(int fd)
{
        char link[64], here[64];
        ssize_t n = readlinkat(fd, "../../self", link, sizeof(link));

        return n > 0 && n == snprintf(here, sizeof(here), "%d", getpid()) &&
               memcmp(link, here, (size_t)n) == 0;
}

/* Uses paths relative to fd, as is_task_list() does, for the same reason. */
enum procfs_dir procfs_dir(int fd)
{
        struct statfs fs;

        if (syscall(SYS_fstatfs, fd, &fs) || fs.f_type != PROC_MAGIC || !is_in_self(fd))
                return PROCFS_OTHER;
        if (is_same(fd, "", "../fd") || is_same(fd, "", "../fdinfo"))
                return PROCFS_FDS;
        if (is_same(fd, "", "../map_files"))
                return PROCFS_MAPS;
        return is_same(fd, "", "../task") && is_numbered_as_here(fd) ? PROCFS_TASKS : PROCFS_OTHER;
}

bool procfs_hides(enum procfs_dir dir, const char *name)
{
        if (name[0] < '0' || name[0] > '9')
                return false;
        return dir == PROCFS_FDS ? privfd_is(atoi(name))
                                 : dir == PROCFS_TASKS && procfs_is_helper(atoi(name));
}
