/*
 * A ConnectX card that forgives nothing, for test_direct.c.  It reads what was posted as the card
 * does, by rdma-core's own structs and setters (mlx5dv.h), and complains where a real card would
 * read something wrong, or where it may do so one time in a million.
 *
 *   - A request is what mlx5dv.h makes of it, to the byte, and one that this test has asked for.
 *   - It is not touched until its completion is written: the card may read it again.
 *   - The record is stored after the request, then a fence, then the doorbell, then a fence before
 *     anyone else rings.
 *   - The doorbell is the beginning of the last request that was posted, in the half whose turn it
 *     is.
 *   - A completion comes in pieces, in any order, its last byte last; before it the data, too.
 *   - No completion overwrites one that was not taken, as the record of completions says.
 *   - Requests of a queue end in order, those of different queues in any.
 *   - After one that fails, all others of the queue fail, and bring nothing.
 *
 * What no model shows: buffers for write combining, order on PCI Express, firmware.
 */
#ifndef TEST_CARD_MODEL_H
#define TEST_CARD_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#define NIC_DEPTH 4u                    /* so that queues are full at times */
#include "abi_direct.h"

/* Blocks and completions of its rings, more than there are requests at a time. */
#define CARD_SEND (4 * NIC_DEPTH)
#define CARD_DONE (2 * NIC_DEPTH)
#define CARD_WORDS 4                    /* of a page that are looked at, at its two ends */

struct card_model {
        struct nic *nic;
        _Alignas(64) char send[CARD_SEND * NIC_BLOCK], done[CARD_DONE * NIC_BLOCK];
        _Atomic uint32_t send_record, done_record;
        _Alignas(64) char bell[2 * NIC_BLOCK];
        uint32_t number, key;           /* of the queue pair, and of this process's memory */
        uint32_t half;                  /* that must ring next */
        uint32_t posted, ended;         /* requests that were rung for, and that are over */
        uint32_t written;               /* completions */
        bool failed, gone;              /* a request has failed; the queue pair was destroyed */
        uint32_t failed_at;             /* `written` of the first that failed */
        bool works;                     /* card_model_step() runs */
        char copy[CARD_SEND][48];       /* of each request when it was rung for */
        void *ringer;                   /* the actor that rang, until its fence */
        struct { void *actor; uint32_t record; } fenced[8];     /* what each has fenced last */
};

/* Makes the rings of a queue that has gone through so many requests. */
void card_model_init(struct card_model *c, struct nic *n, uint32_t posts);
/* At each step, by the actor that made it; at each of its fences. */
void card_model_look(struct card_model *c, void *actor, bool locked);
void card_model_fence(struct card_model *c, void *actor);
/* Ends the first request; fails: it brings no data.  False: there is none. */
bool card_model_step(struct card_model *c, bool fails);

/* Of the test: is this a READ that it has asked for?  Else why not. */
const char *model_expects(const struct nic_read *r);
void model_copy(const struct card_model *c, const struct nic_read *r);

#endif
