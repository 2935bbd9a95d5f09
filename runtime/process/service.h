/*
 * The cleaner's thread and vCPU: made on first use, or before a first vfork, so a program that fits
 * its cache seldom has them.
 */
#ifndef VMRUN_SERVICE_H
#define VMRUN_SERVICE_H

#include "vm/thread.h"

/* It exists afterwards.  Any thread. */
void service_ensure(struct vm *vm);
/* It keeps still, with nothing under way, from service_hold() to service_release(): then who
 * stopped all other program threads has the pager to himself.  Waits as long as its transfers take,
 * with a limit that is not 0 at most so long; false: then it does not yet. */
bool service_hold(unsigned limit_ms);
void service_release(void);
/* EXIT_SERVICE_SLEEP: until the sequence is no longer `seen`. */
void service_sleep(uint32_t seen);
/* Has the service thread kick u's vCPU, soon. */
void service_kick(struct thread *u);
/* Between service_hold() and service_release(), where nobody else can ring for it: ends the thread,
 * and makes it again, on the vCPU that there is; or does nothing if there was none. */
void service_end(void);
void service_again(void);
/* In a forked child: there is none. */
void service_forked(void);

#endif
