/*
 * Signals with handlers of the program: taken on the host, delivered in the guest.
 *
 * A program thread's mask, its pending signals, signalfd and waits are the host thread's own, and
 * so are the dispositions SIG_DFL and SIG_IGN.  vmrun has a handler only where the program has one:
 * it takes one signal, records its siginfo and leaves all signals blocked.  Then kern is made to
 * exit (EVENT_HOST).  Within EXIT_EVENT the frame is built, and the mask becomes the mask that
 * Linux would have set.
 *
 * With --stats, vmrun also has a handler where the default action ends the program.  Such a signal
 * is taken and leads to EXIT_EVENT, too; there the program ends (END_KILLED), and no frame is
 * built.
 */
#ifndef VMRUN_SIGNALS_H
#define VMRUN_SIGNALS_H

#include <pthread.h>
#include <stdint.h>
#include "signal/sigframe.h"
#include "vm/thread.h"

#define SIGNALS_MAX 64

struct sighand {
        pthread_mutex_t lock;           /* guards the fields below */
        struct ksigaction action[SIGNALS_MAX + 1];      /* the program's */
        bool known[SIGNALS_MAX + 1];
};

/* From now on this host thread runs t, a new thread of the program. */
void signals_thread_start(struct thread *t);
/* Once for each process: sets the host's actions for signals whose disposition is the default. */
void signals_process_start(struct thread *t);
/* t continues with its own dispositions, `copy`, a copy of the current ones. */
void signals_copy(struct thread *t, struct sighand *copy);

/* rt_sigaction with its arguments read; new or old may be NULL.  0, -errno or -SYS_PUT_OFF. */
long signals_action(struct thread *t, int sig, const struct ksigaction *new,
                    struct ksigaction *old);

/* signals_expect_kicks() sets a host handler for the kick signal (vm/vcpu.h), whatever the
 * program's disposition; signals_end_kicks() sets the program's disposition again, before an
 * execve. */
void signals_expect_kicks(struct thread *t);
void signals_end_kicks(struct thread *t);

/* All handlers become SIG_DFL. */
void signals_clear(struct thread *t);

/* Blocks all signals of this thread and returns the program's mask; signals_release sets that mask
 * again, or another. */
uint64_t signals_hold(struct thread *t);
/* Signals that may end the program even while signals are held: users send them for that purpose,
 * their action in the host kernel is the default, too, and the program does not block them.  So a
 * program that is stuck can be ended.  0 when nothing is held. */
uint64_t signals_deadly(struct thread *t);
/* The program is ending: opens these signals, whatever handlers the program had for them. */
void signals_open_deadly(struct thread *t);
void signals_release(struct thread *t, uint64_t mask);

/* EXIT_EVENT: drops the SIGBUS that Linux has sent this thread because of a split lock in the guest
 * (KVM_EXIT_EXCEPTION).  signals_fault() makes the program's SIGBUS. */
void signals_drop_forced(struct thread *t);
/* EXIT_EVENT: makes the frame of the signal that was taken, if any. */
void signals_deliver(struct thread *t);

/* An exception of the program, described in v->regs: its handler will run next, or the program ends
 * (t->end).  vector: the CPU's number of the exception, or SIGNALS_NO_VECTOR. */
#define SIGNALS_NO_VECTOR (-1)
void signals_fault(struct thread *t, int signo, int code, uint64_t addr, int vector);

#endif
