/*
 * Signals with handlers of the program's: taken on the host, delivered in the guest.
 *
 * A program thread's mask, its pending signals, signalfd and waits are the host thread's own, and
 * so are the dispositions SIG_DFL and SIG_IGN.  Only where the program has a handler does vmrun
 * have one: it takes one signal, notes its siginfo and leaves all signals blocked.  kern is then
 * made to look (EVENT_HOST), and within EXIT_EVENT the frame is built, upon which the mask becomes
 * what Linux would have set.
 *
 * With --stats, vmrun also has a handler where the default action ends the program.  The signal
 * takes the same way, at whose end stands the end of the program (END_KILLED) instead of a frame.
 */
#ifndef VMRUN_SIGNALS_H
#define VMRUN_SIGNALS_H

#include <pthread.h>
#include <stdint.h>
#include "signal/sigframe.h"
#include "vm/thread.h"

#define SIGNALS_MAX 64

struct sighand {
        pthread_mutex_t lock;           /* guards the rest */
        struct ksigaction action[SIGNALS_MAX + 1];      /* the program's */
        bool known[SIGNALS_MAX + 1];
};

/* This host thread runs t from now on, a new thread of the program. */
void signals_thread_start(struct thread *t);
/* Once for each process: the host's dispositions where the program's are the default ones. */
void signals_process_start(struct thread *t);
/* t goes on with dispositions of its own, `copy`, which are those it has now. */
void signals_copy(struct thread *t, struct sighand *copy);

/* rt_sigaction once its arguments are read; new or old may be NULL.  0, -errno or -SYS_PUT_OFF. */
long signals_action(struct thread *t, int sig, const struct ksigaction *new,
                    struct ksigaction *old);

/* The host's disposition of the kick signal (vm.h) becomes a handler, whatever the program's is;
 * and what the program's is, before an execve. */
void signals_expect_kicks(struct thread *t);
void signals_end_kicks(struct thread *t);

/* All handlers become SIG_DFL. */
void signals_clear(struct thread *t);

/* Holds back all signals of this thread, and tells the program's mask; signals_release sets that
 * again, or another. */
uint64_t signals_hold(struct thread *t);
/* Signals that may end the program even while they are held: those that people send for that, have
 * their default action in the host's kernel too, and that the program does not block.  So one that
 * is stuck can be ended.  0 when nothing is held. */
uint64_t signals_deadly(struct thread *t);
/* The program is ending: the same, whatever handlers it had for them. */
void signals_open_deadly(struct thread *t);
void signals_release(struct thread *t, uint64_t mask);

/* EXIT_EVENT: makes the frame of the signal that was taken, if any. */
void signals_deliver(struct thread *t);

/* An exception of the program's, described in v->regs: its handler will run next, or the program
 * ends (t->end).  vector: the CPU's number of the exception, or SIGNALS_NO_VECTOR. */
#define SIGNALS_NO_VECTOR (-1)
void signals_fault(struct thread *t, int signo, int code, uint64_t addr, int vector);

#endif
