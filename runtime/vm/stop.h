/*
 * Stopping all threads of the program but one.
 */
#ifndef VMRUN_STOP_H
#define VMRUN_STOP_H

#include "vm/thread.h"

/* threads_enter(): t is one of the program's threads from now on; threads_left(): no longer. */
void threads_enter(struct thread *t);
void threads_left(struct thread *t);
/* In a child that was just forked: no thread is stopped any more. */
void threads_list_forked(void);

/* Stops all other threads of the program where they hold no lock of kern, have no fault under way
 * and touch nothing of the guest: before they return to the program, or in a call of the host
 * kernel, which continues meanwhile.  If another thread stops all threads, too, this thread is
 * stopped first, and may never return. */
void threads_stop(struct thread *t);
void threads_go(void);
/* After threads_stop(), as the last step before the process or its program ends: only children of
 * vfork, which share its address space, continue.  If it does not end after all, call
 * threads_go(). */
void threads_stop_for_good(void);
/* Number of frames that the stopped threads hold pinned. */
uint64_t threads_pins(const struct thread *t);

/* How many threads the program has; the first one counts until the process ends, as on Linux.
 * t: the calling thread. */
unsigned threads_count(const struct thread *t);
/* The program thread with that tid, or NULL.  t: the calling thread. */
struct thread *threads_find(struct thread *t, pid_t tid);

/* In EXIT_EVENT and EXIT_PAUSE: waits here while all threads must stop. */
void threads_pause(struct thread *t);

/* threads_safe_begin() and threads_safe_end() stand around a part that may take long on the host
 * and touches nothing of the guest: meanwhile t counts as stopped.  [I] t->safe is stored, full
 * barrier, then threads_stopping is read.  threads_stop() stores threads_stopping, full barrier,
 * then reads t->safe.  So either t sees that it must wait, or the other thread sees that t is not
 * safe. */
/* vCPU number + 1 of the thread that stops all; a futex */
extern _Atomic uint32_t threads_stopping;
void threads_tell_stopper(void);
void threads_wait_to_go(struct thread *t);

static inline void threads_safe_begin(struct thread *t)
{
        atomic_exchange(&t->safe, 1);
        if (atomic_load(&threads_stopping))
                threads_tell_stopper();
}

static inline void threads_safe_end(struct thread *t)
{
        atomic_exchange(&t->safe, 0);
        if (atomic_load(&threads_stopping))
                threads_wait_to_go(t);
}

#endif
