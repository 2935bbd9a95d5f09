/*
 * execve: the process continues with another program, in a new vmrun with the settings of this one
 * (handover.h).
 *
 * The caller fills an exec_room from the program's memory (syscalls/exec.c); all checks come before
 * the point of no return, by the code that loads programs.  It also works in a process that shares
 * this address space (vfork): nothing in it has changed afterwards, except the room itself, which
 * the thread's next execve frees.
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

/* Host memory for one execve; large, but only the pages in use exist. */
struct exec_room {
        int dirfd, flags;               /* as for execveat */
        char path[PATH_MAX];
        char **argv, **envp;            /* in pointer[], strings in text[]; both end with NULL */

        /* used only by exec.c */
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
/* May be called again.  The parent of a vfork calls it when the child has ended. */
void exec_room_free(struct thread *t);

/* Runs the program; returns only if that fails: -errno, or -SYS_PUT_OFF.  Only from within
 * EXIT_SYSCALL. */
long exec_run(struct thread *t, struct exec_room *r);

/* At vmrun's start: was this process executed by a program under vmrun?  If so, sets up what
 * options_parse, privfd_init, message_to and stats_init would; else NULL.  The caller owns the
 * descriptor `program`. */
const struct handover *exec_resume(char **argv);
/* Called otherwise: sets up what later executions need. */
void exec_init(void);

#endif
