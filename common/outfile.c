/*
 * Writes a file under a name of its own, then renames it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/outfile.h"
#include "common/put.h"

#define WRITE_MS 5000                   /* the longest wait for a disk that takes nothing */

const char *outfile_cure(int err)
{
        return err == -EISDIR                      ? "name a file in it"
               : err == -EINVAL                    ? "name a regular file"
               : err == -ENOENT || err == -ENOTDIR ? "make its folder first"
               : err == -ENAMETOOLONG              ? "give a shorter name"
                                                   : "name a file where this user may write";
}

/* The folder of a path, which is cut to it. */
static int open_folder(struct outfile *o, char *path)
{
        char *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;

        if (!*name || strlen(name) > NAME_MAX - OUTFILE_ADDED)
                return *name ? -ENAMETOOLONG : -EISDIR;
        strcpy(o->name, name);
        if (slash)
                *(slash == path ? slash + 1 : slash) = 0;
        int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
                int err = -errno;
                close(fd);
                return err;
        }
        return fd;
}

int outfile_open(struct outfile *o, const char *path, int (*move)(int fd))
{
        struct stat st;

        if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
                return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
        char *real = realpath(path, NULL);
        if (!real && !(real = strdup(path)))
                return -ENOMEM;
        int fd = open_folder(o, real);
        free(real);
        if (fd >= 0 && move)
                fd = move(fd);
        if (fd < 0)
                return fd;
        o->dir_fd = fd;
        o->pid = getpid();
        o->mode = umask(0);
        umask(o->mode);
        o->mode = 0666 & ~o->mode;
        return 0;
}

void outfile_name(const struct outfile *o, size_t stem, char name[NAME_MAX + 1])
{
        if (getpid() == o->pid && !o->execs)
                snprintf(name, NAME_MAX + 1, "%s", o->name);
        else
                snprintf(name, NAME_MAX + 1, "%.*s.%d.%u%s", (int)stem, o->name, getpid(), o->execs,
                         o->name + stem);
}

int outfile_replace(const struct outfile *o, const char *name, const char *text, size_t n)
{
        char temporary[NAME_MAX + 1];

        snprintf(temporary, sizeof(temporary), ".%.*s.%d", NAME_MAX - 16, o->name,
                 getpid() % 10000000);
        /* In a folder where others may write, too, it is a new file and nobody's link. */
        unlinkat(o->dir_fd, temporary, 0);
        int fd = openat(o->dir_fd, temporary,
                        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        bool good = put_all(fd, text, n, WRITE_MS) && fchmod(fd, o->mode) == 0 &&
                    renameat(o->dir_fd, temporary, o->dir_fd, name) == 0;
        int err = good ? 0 : -errno;
        if (!good)
                unlinkat(o->dir_fd, temporary, 0);
        close(fd);
        return err;
}
