/*
 * Which file runs: commands, chains of "#!" lines, and the checks of execve.
 */
#ifndef VMRUN_SCRIPT_H
#define VMRUN_SCRIPT_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define SCRIPTS_MAX    5                /* "#!" files in a row, as Linux; one more is ELOOP */
#define SCRIPT_LINE    256              /* Linux looks at no more of a file */

/* One sentence, with the file's name, for the user. */
struct why { char text[PATH_MAX + 512]; };
/* Writes the sentence and returns err. */
int refuse(struct why *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Finds a command as a shell does: name itself if it has a slash, else the first executable file of
 * that name in the directories of path (NULL: the system's default path).  0; -ENOENT (exit status
 * 127); -EACCES (126) if all files found are not executable. */
int program_find(char out[PATH_MAX], const char *name, const char *path, struct why *why);

/* An executable file, opened after the checks execve makes, at the end of its chain of "#!"
 * lines. */
struct program {
        int fd;                         /* close-on-exec, not one of vmrun's private fds */
        struct stat st;
        /* the path fd was opened by: path itself, or a name in line[] */
        const char *file;
        /* what the program gets: argv with the words of "#!" lines put in front; at least one */
        char **argv;
        char **argv_room;               /* the allocation argv points into */
        char line[SCRIPTS_MAX][SCRIPT_LINE];
};
/* Which file: as execveat names it.  flags: AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW. */
struct program_place { int dirfd; const char *path; int flags; };
/* path: the file's name for the program and in messages, normally at->path.  path, argv and its
 * strings must stay valid while p is used.  0, or -errno and nothing to close. */
int program_open(struct program *p, const struct program_place *at, const char *path,
                 char *const argv[], struct why *why);
void program_close(struct program *p);
/* Only the checks and the open, for a file that `user` needs.  role: its purpose, for messages
 * ("loader"). */
int program_open_file(const char *path, const char *role, const char *user, struct stat *st,
                      struct why *why);

/* A program's file must not be written to while the program runs.  The host kernel ensures that for
 * files it executes itself.  vmruns tell each other by a lock on a byte that no file has, which
 * lasts as long as a process has the file open as its program.  If the file system has no locks,
 * there is no protection. */
static inline struct flock program_lock(short type)
{
        return (struct flock){
                .l_type = type, .l_whence = SEEK_SET, .l_start = INT64_MAX - 1, .l_len = 1
        };
}

static inline void program_mark_running(int fd)
{
        struct flock l = program_lock(F_RDLCK);
        fcntl(fd, F_OFD_SETLK, &l);
}

static inline bool program_is_running(int fd)
{
        struct flock l = program_lock(F_WRLCK);
        return fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

#endif
