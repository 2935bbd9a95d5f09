/*
 * How long a vCPU polls a BUSY entry before it sleeps (control.wait_ticks).
 */
#ifndef VMRUN_FAR_WAIT_H
#define VMRUN_FAR_WAIT_H

#include <stdint.h>

/* Called once the TSC's rate is known, before the program runs: sets the first value. */
void wait_first(void);
/* By the I/O side: a demand read took `took` ticks. */
void wait_learn(uint64_t took);

#endif
