/*
 * execve: the process goes on with another program, in a vmrun of its own that has the same
 * settings (handover.h).
 *
 * The caller fills an exec_room from the program's memory (syscalls/exec.c); all checks come before
 * the point of no return, by the very code that loads programs.  It works as well in a process that
 * only borrows this memory (vfork): nothing in it is different afterwards, but for the room itself,
 * which the thread's next execve takes away.
 */
#ifndef VMRUN_EXEC_H
#define VMRUN_EXEC_H

#include <limits.h>
#include <stdint.h>
#include "load/image.h"
#include "process/handover.h"
#include "vm/thread.h"

/* Linux allows 6 MiB of strings and pointers to them; the last string may begin just below. */
#define EXEC_STRING_MAX   131072u       /* bytes of one string, with its NUL */
#define EXEC_TEXT_MAX     (6u << 20)
#define EXEC_POINTERS_MAX (EXEC_TEXT_MAX / 8)

/* Host memory for one execve; large, and only as much of it exists as is used. */
struct exec_room {
        int dirfd, flags;               /* as execveat has them */
        char path[PATH_MAX];
        char **argv, **envp;            /* in pointer[], strings in text[]; both end with NULL */

        /* exec.c's own */
        struct program program;
        struct image image;
        struct handover handover;
        char **words;                   /* argv after "#!" lines, in pointer[] too */
        uint32_t hidden[EXEC_POINTERS_MAX];

        unsigned npointers;             /* used of pointer[] */
        size_t used;                    /* of text[] */
        char *pointer[2 * EXEC_POINTERS_MAX + 64];
        char text[EXEC_TEXT_MAX + EXEC_STRING_MAX + PAGE_SIZE];
};

/* The thread's room, empty; NULL: no memory. */
struct exec_room *exec_room(struct thread *t);
/* Harmless when repeated.  The parent of a vfork calls it when the child has gone. */
void exec_room_free(struct thread *t);

/* Runs the program; returns only if that fails: -errno, or -SYS_PUT_OFF.  Only from within
 * EXIT_SYSCALL. */
long exec_run(struct thread *t, struct exec_room *r);

/* At vmrun's start: was this process executed by a program under vmrun?  Then everything is as
 * options_parse, privfd_init, message_to and stats_init would have left it; else NULL.  The
 * descriptor `program` is the caller's. */
const struct handover *exec_resume(char **argv);
/* Else: what later executions need. */
void exec_init(void);

#endif
