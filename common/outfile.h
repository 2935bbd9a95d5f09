/*
 * A file that a process writes whole, such as its statistics: readers see the one before or the new
 * one.  Each program of a tree under vmrun writes a file with a name of its own.
 */
#ifndef COMMON_OUTFILE_H
#define COMMON_OUTFILE_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

struct outfile {
        int dir_fd;                     /* its folder; -1: there is no file */
        /* of the process started first, whose first program writes the plain name; */
        pid_t pid;
        /* others add their pid and this number of execve calls, so that no two write one name */
        unsigned execs;
        mode_t mode;
        char name[NAME_MAX + 1];
};
#define OUTFILE_NONE { .dir_fd = -1 }
#define OUTFILE_ADDED 24                /* bytes of a name reserved for the addition */

/* Remembers where the file is, before the program can change directory or root.  A link stands for
 * the file that it points to.  move: gives the folder's descriptor the number that it keeps, or
 * -errno; NULL: it stays where it is.  0; -EISDIR; -EINVAL: it exists, and is no regular file; or
 * another -errno: it could not be written. */
int outfile_open(struct outfile *o, const char *path, int (*move)(int fd));
/* The cure of such an error, as the end of a message. */
const char *outfile_cure(int err);

/* The name that this process writes: an addition stands behind the first `stem` bytes. */
void outfile_name(const struct outfile *o, size_t stem, char name[NAME_MAX + 1]);
/* Puts a file with this text there, under that name, as a whole or not at all.  0 or -errno. */
int outfile_replace(const struct outfile *o, const char *name, const char *text, size_t n);

#endif
