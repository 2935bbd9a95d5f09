/*
 * This vCPU's rings to the nodes.  A read is over when its entry is no longer BUSY;
 * env_slot_written() reports writes that are over.
 */
#ifndef VMRUN_RINGS_H
#define VMRUN_RINGS_H

#include "pager/pager.h"

void ring_read(uint64_t slot, frame_t f, pte_slot_t *pte);

/* Only for the vCPU that has the pager's writes (pager/pager.h), after env_slot_write_room() was
 * true. */
void ring_write(uint64_t slot, frame_t f);
/* Waits, bounded, for the oldest write under way.  Only for the same vCPU. */
void ring_write_wait(void);

#endif
