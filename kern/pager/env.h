/*
 * The environment of the pager: the functions that it calls and does not have.  base/ and far/
 * provide them in the guest, the unit tests on the host.
 */
#ifndef VMRUN_ENV_H
#define VMRUN_ENV_H

#include <stdbool.h>
#include <stdint.h>
#include "abi_stats.h"
#include "pager/frame.h"

void *env_frame_va(frame_t f);                          /* content of a frame */
/* In a spin: pauses, and from time to time (not at 0) lets other threads run. */
void env_relax(unsigned spins);
/* Should the vCPU look again at a word that other threads change, before it sleeps?  *begun: 0 at
 * the first call. */
bool env_wait_on(uint64_t *begun);
/* Asks all vCPUs for a TLB flush; returns its epoch (1, 2, ...). */
uint64_t env_flush_begin(void);
/* The epoch that the next env_flush_begin will return. */
uint64_t env_flush_next(void);
/* Has every vCPU been seen to have flushed since env_flush_begin() returned this epoch?  Reads one
 * word; 0: true. */
bool env_flush_done(uint64_t epoch);
/* Looks at all vCPUs, so that env_flush_done() knows more; for those who would wait. */
void env_flush_look(void);
/* Far tier -> frame.  0; -errno; ENV_POSTED: under way, and page_fetched() is called when it is
 * over. */
int env_slot_read(uint64_t slot, frame_t f, pte_slot_t *pte);
/* Far tier -> frame, for a page that no vCPU waits for.  The caller has made sure that there is
 * room. */
void env_slot_prefetch(uint64_t slot, frame_t f, pte_slot_t *pte, bool marker);
/* The fetch that this vCPU waited for is over: has it failed?  True once a failure. */
bool env_fetch_failed(void);
/* Frame -> far tier.  0; -errno; ENV_POSTED: under way, and env_slot_written() reports its end.
 * For the pager's writes only, as the next two functions. */
int env_slot_write(uint64_t slot, frame_t f);
bool env_slot_write_room(void);                         /* can another write be posted? */
/* A write that is over; FRAME_NONE if there is none (now). */
frame_t env_slot_written(int *err);
#define ENV_POSTED 1
/* A slot, or SLOT_NONE; for the pager's writes only. */
uint64_t env_slot_alloc(void);
/* A slot that is not posted, if that takes no exit, or SLOT_NONE; for any vCPU. */
uint64_t env_slot_take(void);
/* Can a write to this slot end with ENV_POSTED? */
bool env_slot_posted(uint64_t slot);
void env_slot_free(uint64_t slot);
/* May this process write to a slot that it holds?  False: other processes read the slot too. */
bool env_slot_writable(uint64_t slot);
/* What all vCPUs have counted until about now, modulo 2^32 (CNT_GONE and what follows). */
void env_returns(struct returns *sum);
/* Gives back the charge of a CHARGED page that went back to NONE by eviction. */
void env_uncharge_page(void);
/* Sleeps, bounded, until the entry differs from seen. */
void env_wait_pte(pte_slot_t *pte, pte_t seen);
void env_wake_pte(pte_slot_t *pte);
_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b);

#endif
