/*
 * Requests of the guest, and the transfers that carry them out: request.c.  The I/O side (io.c)
 * calls these, one thread at a time.
 */
#ifndef VMRUN_FAR_REQUEST_H
#define VMRUN_FAR_REQUEST_H

#include <stdbool.h>
#include "far/far.h"
#include "far/sums.h"
#include "pager/frame.h"

/* Where the tree of this process keeps the sums of pieces. */
void request_pieces(struct slot_pieces *of_tree);
/* Takes an entry of vCPU number vcpu off its ring (include/abi.h). */
void request_begin(struct io_entry *e, unsigned vcpu);
/* Copies a slot's page from a place that has it to those where it is wanting, by way of a frame
 * that nobody else uses; then calls repair_done() or repair_unfit(). */
void request_repair(uint64_t slot, frame_t frame);
/* Reads the copy at place k, whose node answers, and compares its sum; then calls over().  No hold
 * is needed, and none is looked for. */
enum check { CHECK_RIGHT, CHECK_WRONG, CHECK_SILENT };
typedef void check_fn(frame_t frame, enum check found);
void request_check(uint64_t slot, unsigned k, frame_t frame, check_fn *over);
/* Is a write of this process under way? */
bool request_written(uint64_t slot);
/* The copies at these places are wrong, although they were written, and another one is right:
 * nobody is to read them. */
void request_spoiled(uint64_t slot, unsigned places);
/* The slot is no longer held (repair_holds()): begins the writes that waited for that. */
void request_go_on(uint64_t slot);
/* Gives drivers what they have room for; demand reads first.  Returns how many transfers. */
unsigned request_post(void);
/* Hands all transfers back that were not posted to the node yet, as its driver would. */
void request_hand_back(const struct far_node *n);
/* No transfer of this process is under way at the node. */
bool request_is_idle(const struct far_node *n);
/* In a forked child: nothing is under way. */
void request_forked(void);

#endif
