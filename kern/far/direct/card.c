#include "far/direct/card.h"
#include "far/direct/mlx5.h"

void card_init(struct card *c, uint32_t node, char *send, char *done)
{
        c->node = node;
        c->queue.nic = (struct nic){
                .send = send, .done = done, .send_record = &c->send_record,
                .done_record = &c->done_record, .bell = c->bell, .bell_half = NIC_BLOCK,
                .send_mask = NIC_DEPTH - 1, .done_mask = NIC_DEPTH - 1
        };
        c->queue.epoch = CARD_EPOCH;
        nic_name(&c->queue.nic, node + 1, 0);
        /* As libmlx5 does: else zeroes would look like completions of the first turn. */
        for (unsigned i = 0; i < NIC_DEPTH; i++)
                done[i * NIC_BLOCK + 63] = (char)(MLX5_INVALID << 4);
        /* Release: as the host does, where there is one. */
        atomic_store_explicit(&c->queue.state, DIRECT_UP, memory_order_release);
}

bool card_next(const struct card *c, struct card_read *r)
{
        /* Acquire: sees the blocks. */
        uint32_t posted = be32(atomic_load_explicit(&c->send_record, memory_order_acquire));
        const uint64_t *block =
                (uint64_t *)(c->queue.nic.send + c->begun % NIC_DEPTH * NIC_BLOCK);

        if (((posted - c->begun) & 0xffff) == 0)
                return false;
        *r = (struct card_read){
                .from = (void *)be64(block[2]), .to = (void *)be64(block[5]),
                .at = c->begun & 0xffff
        };
        return true;
}

void card_began(struct card *c) { c->begun++; }

void card_end(struct card *c, uint32_t at)
{
        uint8_t *done = (uint8_t *)c->queue.nic.done + c->over % NIC_DEPTH * NIC_BLOCK;
        uint8_t turn = c->over++ / NIC_DEPTH & 1;

        done[60] = (uint8_t)(at >> 8);
        done[61] = (uint8_t)at;
        /* Release: the completion and the data are there. */
        atomic_store_explicit((_Atomic uint8_t *)done + 63, MLX5_OK << 4 | turn,
                              memory_order_release);
}
