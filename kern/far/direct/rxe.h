/*
 * Queues of soft-RoCE (rxe): how a READ is written, and found to be over.
 *
 * Formats: Linux, include/uapi/rdma/rdma_user_rxe.h (struct rxe_queue_buf, rxe_send_wqe), and
 * ib_user_verbs.h (struct ib_uverbs_wc).  Numbers are this CPU's.  test_direct_rxe.c compares them
 * with those headers.
 *
 *   element of the send ring   0 number   12 opcode   16 flags   24 address   32 key
 *                            152 address 184 length  188 left   196 pieces
 *                            208 piece: address, length, key
 *   completion                 0 number    8 status
 *
 * The card keeps its state of a request in the other words of the element, which begin as zeroes.
 * It learns of requests by a system call of the host: the doorbell is an exit.
 */
#ifndef VMRUN_RXE_H
#define VMRUN_RXE_H

#include "abi_direct.h"

#define RXE_READ      4u
#define RXE_SIGNALED  2u
#define RXE_ELEMENT 224                 /* bytes that are written */

/* Writes post number `at`, whose element is free, and gives it to the card. */
static inline void rxe_put(const struct nic *n, uint32_t at, const struct nic_read *r)
{
        uint32_t next = atomic_load_explicit(n->send_record, memory_order_relaxed);
        char *element = n->send + ((uint64_t)(next & n->send_mask) << n->send_shift);
        uint64_t *quad = (uint64_t *)element;
        uint32_t *word = (uint32_t *)element;

        for (unsigned i = 0; i < RXE_ELEMENT / 8; i++)
                quad[i] = 0;
        quad[0] = at;
        word[3] = RXE_READ;
        word[4] = RXE_SIGNALED;
        quad[3] = quad[19] = r->from;
        word[8] = r->from_key;
        word[46] = word[47] = r->len;
        word[49] = 1;
        quad[26] = r->to;
        word[54] = r->len;
        word[55] = n->key;
        /* Release: the card sees the element. */
        atomic_store_explicit(n->send_record, (next + 1) & n->send_mask, memory_order_release);
}

/* Takes a completion.  False: none has come.  OUT *at: the low 16 bits of its post number;
 * *status: 0 if the data is there. */
static inline bool rxe_take(const struct nic *n, uint32_t *at, uint32_t *status)
{
        uint32_t next = atomic_load_explicit(n->done_record, memory_order_relaxed);
        const uint32_t *c = (uint32_t *)(n->done +
                                         ((uint64_t)(next & n->done_mask) << n->done_shift));

        /* Acquire: the completion is read after it, and the data of the READ. */
        if (next == atomic_load_explicit(n->done_index, memory_order_acquire))
                return false;
        *at = c[0] & 0xffff;
        *status = c[2];
        /* Release: the card may write over the completion. */
        atomic_store_explicit(n->done_record, (next + 1) & n->done_mask, memory_order_release);
        return true;
}

#endif
