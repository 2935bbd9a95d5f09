/*
 * A network card that is not there: it reads the send ring of a queue as a ConnectX card does, and
 * writes completions in its format.  So memory of this host that is as slow as a node (far/timed.h)
 * is read in the way in which a real node would be, and kern's instructions can be counted on any
 * machine.  It never fails.
 */
#ifndef VMRUN_CARD_H
#define VMRUN_CARD_H

#include "far/direct/queue.h"

/* The card of one queue.  What it does, it does under the lock of the tier's clock. */
struct card {
        struct direct_queue queue;      /* first */
        struct card *next;              /* of all cards */
        uint32_t node;
        uint32_t begun, over;           /* requests, modulo 2^32 */
        _Alignas(CACHE_LINE) _Atomic uint32_t send_record, done_record;
        _Alignas(CACHE_LINE) char bell[2 * NIC_BLOCK];
};

/* What the card has read from its send ring. */
struct card_read {
        const void *from;
        void *to;
        uint32_t at;                    /* the low 16 bits of its post number */
};

/* Makes a card of zeroed memory for a node, and its queue.  send, done: pages, zeroed too. */
void card_init(struct card *c, uint32_t node, char *send, char *done);
/* The next request that was posted; card_began() takes it off.  False: there is none. */
bool card_next(const struct card *c, struct card_read *r);
void card_began(struct card *c);
/* The data of a request is there: writes its completion. */
void card_end(struct card *c, uint32_t at);

#endif
