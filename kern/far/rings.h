/*
 * This vCPU's rings to the nodes.  A read is over when its entry is no longer BUSY; of a write
 * env_slot_written() tells.
 */
#ifndef VMRUN_RINGS_H
#define VMRUN_RINGS_H

#include "pager/pager.h"

void ring_read(uint64_t slot, frame_t f, pte_slot_t *pte);

/* For the vCPU that has the pager's writes (pager.h), which has seen env_slot_write_room(). */
void ring_write(uint64_t slot, frame_t f);
/* The same vCPU waits, bounded, for the oldest write under way. */
void ring_write_wait(void);

#endif
