/*
 * Which file runs: PATH search, the checks of execve, and "#!" lines (script.h).
 *
 * "#!" lines are read as Linux's fs/binfmt_script.c reads them.  A text file without one is
 * ENOEXEC, as for execve: running it by /bin/sh is the habit of shells and of execvp, not the
 * kernel's.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "load/script.h"

int refuse(struct why *why, int err, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(why->text, sizeof(why->text), fmt, ap);
        va_end(ap);
        return err;
}

/* ---- PATH ---- */

static bool is_executable(const char *path, int *err)
{
        struct stat st;
        *err = 0;
        if (stat(path, &st))
                *err = -errno;
        else if (!S_ISREG(st.st_mode))
                *err = -EACCES;
        else if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS))
                *err = -errno;
        return *err == 0;
}

/* Errors after which execvp tries the next directory. */
static bool try_next(int err)
{
        return err == -ENOENT || err == -ENOTDIR || err == -EACCES || err == -ESTALE ||
               err == -ENODEV || err == -ETIMEDOUT;
}

int program_find(char out[PATH_MAX], const char *name, const char *path, struct why *why)
{
        if (*name == '\0')
                return refuse(why, -ENOENT, "the name of the program is empty");
        if (strchr(name, '/')) {
                if (strlen(name) >= PATH_MAX)
                        return refuse(why, -ENAMETOOLONG,
                                      "%.64s...: path longer than %d bytes: give a shorter one",
                                      name, PATH_MAX - 1);
                strcpy(out, name);
                return 0;
        }
        if (!path)
                path = "/bin:/usr/bin";
        char denied[PATH_MAX] = "";
        for (const char *p = path, *end;; p = end + 1) {
                end = p + strcspn(p, ":");
                /* an empty element is the current directory */
                int n = snprintf(out, PATH_MAX, "%.*s%s%s", (int)(end - p), p, end > p ? "/" : "",
                                 name);
                int err = -ENOENT;
                if (n < PATH_MAX && is_executable(out, &err))
                        return 0;
                if (err == -EACCES && !*denied)
                        strcpy(denied, out);
                if (!try_next(err))
                        return refuse(why, err, "%s: %s", out, strerror(-err));
                if (*end == '\0')
                        break;
        }
        if (*denied)
                return refuse(why, -EACCES,
                              "%s: found in PATH, but is not an executable file: chmod +x it",
                              denied);
        return refuse(why, -ENOENT,
                      "%s: not found in PATH (for a program in this directory say ./%s)", name,
                      name);
}

/* ---- Opening ---- */

/* What helps against an error in looking a path up. */
static const char *cure_of(int err)
{
        switch (err) {
        case -ENOENT:
                return ": check the path";
        case -ENOTDIR:
                return ": a part of its path is a file: check the path";
        case -EACCES:
                return ": a folder on its path may not be searched: chmod +x it";
        case -ELOOP:
                return ": symbolic links on its path lead back to themselves: mend them";
        case -ENAMETOOLONG:
                return ": give it a shorter path";
        default:
                return "";
        }
}

/* Opens for reading; the file exists and may be executed.  O_NONBLOCK: in case it has become a FIFO
 * since. */
static int open_at(const struct program_place *at)
{
        const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
        char link[64];

        if (*at->path)
                return openat(at->dirfd, at->path,
                              flags | (at->flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0));
        /* The descriptor may not be readable. */
        snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", at->dirfd);
        return open(link, flags);
}

#ifndef AT_EXECVE_CHECK
#define AT_EXECVE_CHECK 0x10000
#endif

/* File systems whose inodes only this kernel uses.  Others (NFS, CIFS, FUSE, clusters) refuse a
 * lease for other reasons, as without a delegation. */
static bool is_local(int fd)
{
        static const uint32_t local[] = {
                0xef53 /* ext */, 0x58465342 /* XFS */, 0x9123683e /* Btrfs */,
                0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */, 0x794c7630 /* overlayfs */,
                0xf2f52010 /* F2FS */, 0xca451a4e /* bcachefs */, 0x2fc12fc1 /* ZFS */,
        };
        struct statfs fs;

        if (fstatfs(fd, &fs))
                return false;
        for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
                if ((uint32_t)fs.f_type == local[i])
                        return true;
        return false;
}

/* Does a process have the file open for writing?  The kernel does not execute such a file.  Since
 * Linux 6.14 it can be asked; before, it shows by refusing a lease, which only the owner of the
 * file may request.  (If a writer comes while we hold the lease, we get a signal that need not be
 * handled.) */
static bool open_for_writing(int fd)
{
        static char *const none[] = { (char *)"", NULL };

        if (syscall(SYS_execveat, fd, "", none, none, AT_EMPTY_PATH | AT_EXECVE_CHECK) == 0)
                return false;
        if (errno != EINVAL)
                return errno == ETXTBSY;
        fcntl(fd, F_SETSIG, SIGURG);
        if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
                return errno == EAGAIN && is_local(fd);
        fcntl(fd, F_SETLEASE, F_UNLCK);
        return false;
}

/* who: the file's name in messages. */
static int open_checked(const struct program_place *at, const char *who, struct stat *st,
                        struct why *why)
{
        if (fstatat(at->dirfd, at->path, st, at->flags))
                return refuse(why, -errno, "%s: %s%s", who, strerror(errno), cure_of(-errno));
        if (S_ISLNK(st->st_mode))
                return refuse(why, -ELOOP, "%s: is a symbolic link, which was not to be followed",
                              who);
        if (!S_ISREG(st->st_mode))
                return refuse(why, -EACCES, "%s: %s", who,
                              S_ISDIR(st->st_mode) ? "is a directory: name a program in it"
                                                    : "not a regular file: name a program");
        if (faccessat(at->dirfd, at->path, X_OK, AT_EACCESS | at->flags)) {
                int err = -errno;
                if (err != -EACCES)
                        return refuse(why, err, "%s: %s%s", who, strerror(-err), cure_of(err));
                return refuse(why, err,
                              "%s: not executable for this user (chmod +x it), or on a file system "
                              "mounted noexec",
                              who);
        }
        int fd = open_at(at);
        if (fd < 0) {
                int err = -errno;
                if (err == -EACCES)
                        return refuse(why, err,
                                      "%s: may be executed, but not read: vmrun reads a program to "
                                      "load it (chmod +r it)",
                                      who);
                return refuse(why, err, "%s: cannot be opened: %s", who, strerror(-err));
        }
        if (fstat(fd, st) || !S_ISREG(st->st_mode)) {
                close(fd);
                return refuse(why, -EACCES, "%s: was replaced while it was opened: start it again",
                              who);
        }
        if (open_for_writing(fd)) {
                close(fd);
                return refuse(why, -ETXTBSY,
                              "%s: is open for writing: wait until its writer has closed it", who);
        }
        return fd;
}

int program_open_file(const char *path, const char *role, const char *user, struct stat *st,
                      struct why *why)
{
        const struct program_place at = { AT_FDCWD, path, 0 };
        char who[PATH_MAX + 300];

        if (!*path)                     /* Linux resolves the empty name to the current directory */
                return refuse(why, -EACCES, "%s: names no %s", user, role);
        snprintf(who, sizeof(who), "%.200s (the %s of %s)", path, role, user);
        int fd = open_checked(&at, who, st, why);
        if (fd == -ENOENT && path[strlen(path) - 1] == '\r')
                return refuse(why, fd,
                              "%s: its #! line ends in CR LF, which makes the CR a part of the "
                              "interpreter's name: remove it (dos2unix)",
                              user);
        return fd;
}

/* ---- "#!" ---- */

static bool blank(char c) { return c == ' ' || c == '\t'; }

/* Splits a "#!" line in place.  line holds the first bytes of the file, padded with zeros; its last
 * byte is never part of the line.  *arg is NULL if there is none.  -ENOEXEC if there is no name, or
 * it may be cut off. */
static int split_line(char line[SCRIPT_LINE], char **name, char **arg)
{
        char *last = line + SCRIPT_LINE - 1, *p = line + 2, *end = memchr(line, '\n', SCRIPT_LINE);
        if (!end) {
                while (p < last && blank(*p))
                        p++;
                while (p < last && *p && !blank(*p))
                        p++;
                if (p == last && *p && !blank(*p))
                        /* a name without an end: cutting it could run another program */
                        return -ENOEXEC;
                end = last;
        }
        while (blank(end[-1]))
                end--;
        *end = '\0';
        for (p = line + 2; p < end && blank(*p);)
                p++;
        if (p == end)
                return -ENOEXEC;
        *name = p;                      /* may be empty, if the file ends here */
        while (*p && !blank(*p))
                p++;
        *arg = NULL;
        if (*p) {
                *p++ = '\0';
                while (blank(*p))
                        p++;
                *arg = p;
        }
        return 0;
}

/* Reads the beginning of the file: 1 with a "#!" line in line, 0 if it has none, or -errno. */
static int read_line(int fd, char line[SCRIPT_LINE])
{
        memset(line, 0, SCRIPT_LINE);
        for (size_t done = 0; done < SCRIPT_LINE;) {
                ssize_t n = pread(fd, line + done, SCRIPT_LINE - done, (off_t)done);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                done += (size_t)n;
        }
        return line[0] == '#' && line[1] == '!';
}

/* Room for argv and for two more words in front of it for each "#!" line. */
static int copy_argv(struct program *p, char *const argv[])
{
        static char *const none[] = { (char *)"", NULL };
        if (!argv || !argv[0])
                argv = none;            /* Linux gives a program with no arguments an empty one */
        size_t n = 0, room = 2 * SCRIPTS_MAX;
        while (argv[n])
                n++;
        p->argv_room = calloc(room + n + 1, sizeof(*p->argv_room));
        if (!p->argv_room)
                return -ENOMEM;
        p->argv = p->argv_room + room;
        memcpy(p->argv, argv, n * sizeof(*argv));
        return 0;
}

/* Goes from the script p->fd to the interpreter that its line names. */
static int follow(struct program *p, char line[SCRIPT_LINE], struct why *why)
{
        char *name, *arg;
        if (split_line(line, &name, &arg))
                return refuse(why, -ENOEXEC,
                              "%s: no interpreter in its #! line, or one that does not end within "
                              "%d bytes: name one, as in #!/bin/sh",
                              p->file, SCRIPT_LINE);
        /* the script's path replaces argv[0], as in Linux */
        p->argv[0] = (char *)p->file;
        if (arg)
                *--p->argv = arg;
        *--p->argv = name;
        close(p->fd);
        p->fd = program_open_file(name, "#! interpreter", p->file, &p->st, why);
        p->file = name;
        return p->fd < 0 ? p->fd : 0;
}

/* True: the script is named by a descriptor that is closed before its interpreter opens it. */
static bool out_of_reach(const struct program_place *at)
{
        return at->dirfd != AT_FDCWD && *at->path != '/' &&
               (fcntl(at->dirfd, F_GETFD) & FD_CLOEXEC);
}

int program_open(struct program *p, const struct program_place *at, const char *path,
                 char *const argv[], struct why *why)
{
        *p = (struct program) { .fd = -1, .file = path };
        int err = copy_argv(p, argv);
        if (err)
                return refuse(why, err, "%s: no memory for its arguments", path);
        err = p->fd = open_checked(at, path, &p->st, why);
        for (unsigned depth = 0; err >= 0; depth++) {
                char line[SCRIPT_LINE];
                err = read_line(p->fd, line);
                if (err < 0)
                        refuse(why, err, "%s: cannot be read: %s", p->file, strerror(-err));
                if (err <= 0)
                        break;
                if (depth == 0 && out_of_reach(at)) {
                        err = refuse(why, -ENOENT,
                                     "%s: a script on a close-on-exec descriptor, which its "
                                     "interpreter cannot open",
                                     path);
                        break;
                }
                if (depth == SCRIPTS_MAX) {
                        err = refuse(why, -ELOOP,
                                     "%s: more than %d scripts whose interpreters are scripts: "
                                     "name a program in the last one's #! line",
                                     path, SCRIPTS_MAX);
                        break;
                }
                memcpy(p->line[depth], line, SCRIPT_LINE);
                err = follow(p, p->line[depth], why);
        }
        if (err < 0)
                program_close(p);
        return err < 0 ? err : 0;
}

void program_close(struct program *p)
{
        if (p->fd >= 0)
                close(p->fd);
        p->fd = -1;
        free(p->argv_room);
        p->argv_room = p->argv = NULL;
}
