/*
 * The handover at an execve: from the vmrun of the program that ends to the vmrun of the next.
 *
 * The next vmrun has the argv and the environment of its program, so that /proc/PID/cmdline and
 * environ are as natively; everything else is in a sealed memory file.  It finds the file by
 * AT_EXECFN.  vmrun is re-executed by descriptor (execveat on fd N), which the kernel shows there
 * as "/dev/fd/N"; the memory file is fd N - 1.  No shell starts a program like that.  If another
 * program does, the seals and the magic of N - 1 show that it is not a handover.
 */
#ifndef VMRUN_HANDOVER_H
#define VMRUN_HANDOVER_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include "base/options.h"
#include "control/control.h"
#include "far/far.h"
#include "process/rlimits.h"
#include "stats/report.h"

struct handover {
        uint64_t magic;                 /* these three are for handover.c */
        uint32_t version, size;
        uint64_t bytes;
        struct options opt;             /* except argv */
        char path[PATH_MAX + 32];       /* as the program was named, for AT_EXECFN and comm */
        uint64_t mask;                  /* signals that the program blocks */
        struct limits_kept limits;
        /* the host's soft RLIMIT_STACK from before it was raised for this execve */
        uint64_t host_stack;
        /* number of environment strings whose first byte was replaced */
        uint32_t nhidden;
        /* Inherited descriptors; -1: none. */
        int program;                    /* the ELF file, which passed all checks */
        int kvm, message;
        struct far_kept far;
        struct stats_place stats;
        struct outfile profile;
        struct ctl_kept ctl;
};

/* Calls fn for each inherited descriptor that is private on both sides. */
void handover_private_fds(const struct handover *h, void (*fn)(int fd));

/* At vmrun's start: remembers its own file.  fd: an open descriptor of it, -1: none. */
void handover_init(int fd);

/* What execve needs. */
struct handover_fds { int settings, vmrun; };
/* Writes h and hidden[h->nhidden] to a memory file, and opens it and vmrun under the numbers that
 * the next vmrun expects; both stay open across execve.  Neither is private: the process may share
 * the list of private descriptors with its parent.  0, or -errno. */
int handover_make(struct handover *h, const uint32_t *hidden, struct handover_fds *fds);
void handover_drop(const struct handover_fds *fds);

/* The handover that this vmrun was started with; NULL: none, it was started by a command line.
 * *hidden: the numbers of hidden strings in environ; *vmrun: a descriptor of its own file, open
 * across execve.  Never freed. */
const struct handover *handover_find(const uint32_t **hidden, int *vmrun);

#endif
