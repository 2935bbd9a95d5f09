/*
 * The cleaner's thread and vCPU: made at first use, or before the first vfork, so a program that
 * fits its cache seldom has them.
 */
#ifndef VMRUN_SERVICE_H
#define VMRUN_SERVICE_H

#include "vm/thread.h"

/* Makes the thread if it does not exist.  Any thread. */
void service_ensure(struct vm *vm);
/* The cleaner is quiesced, with no transfer under way, from service_hold() to service_release():
 * the thread that has stopped all other program threads then has the pager to itself.  Waits until
 * the cleaner's transfers are over, at most limit_ms (0: no limit).  False: it is not quiesced
 * yet. */
bool service_hold(unsigned limit_ms);
#define STILL_MS 1000                   /* at the end of a program: for the cleaner's last writes */
void service_release(void);
/* EXIT_SERVICE_SLEEP: sleeps until the sequence is no longer `seen`. */
void service_sleep(uint32_t seen);
/* Has the service thread kick u's vCPU, soon. */
void service_kick(struct thread *u);
/* Has the cleaner look at what the host changed (control.far_off), also if it sleeps.  Any
 * thread. */
void service_wake(void);
/* Between service_hold() and service_release(), when no other thread can ring the doorbell: ends
 * the thread, and makes it again on the existing vCPU.  Both do nothing if there was none. */
void service_end(void);
void service_again(void);
/* In a forked child: the thread does not exist. */
void service_forked(void);

#endif
