/*
 * The control socket, by which vmctl(1) asks a running vmrun for its statistics and changes its
 * settings.  protocol.h has the protocol; vmctl(1) describes it.
 *
 * A thread of its own listens and answers (server.c).  It takes no signals and no lock of the fault
 * path.  Each process has a socket of its own; after execve the next program listens on the socket
 * of the program before.
 */
#ifndef VMRUN_CONTROL_H
#define VMRUN_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include "control/place.h"

struct vm;

/* Makes socket and thread, unless opt.control says no.  If that is not possible, the program runs
 * without, and -v says why.  Once at the start of a program, when its statistics are registered;
 * after ctl_rest(); never in the child of a vfork.  No program thread runs meanwhile. */
void ctl_start(struct vm *vm);
/* Ends the thread, for a process that must have one thread.  The socket stays. */
void ctl_rest(void);
/* For fork and execve: the thread is quiesced, uses no malloc, and no request is under way, from
 * ctl_hold() to ctl_release().  May wait for a node that is being added.  In a forked child
 * ctl_forked() takes the place of ctl_release(), once it is up. */
void ctl_hold(void);
void ctl_release(void);
void ctl_forked(struct vm *vm);
/* The program ends: answers nothing more, and removes the socket.  Takes a second at most. */
void ctl_end(void);

/* What the next program after execve needs.  Descriptors are private; -1: none. */
struct ctl_kept {
        int dir_fd, listen_fd;
        int64_t since;                  /* seconds since 1970: start of the process */
        char name[PLACE_NAME];
};
/* child: of vfork, which gets a socket of its own. */
void ctl_keep(struct ctl_kept *k, bool child);
/* Before ctl_start(). */
void ctl_adopt(const struct ctl_kept *k);

#endif
