#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <string.h>
#include "card_model.h"
#include "far/direct/mlx5.h"
#include "layout.h"
#include "pager_sched.h"

#define OWNER offsetof(struct mlx5_cqe64, op_own)

void card_model_init(struct card_model *c, struct nic *n, uint32_t posts)
{
        memset(c, 0, sizeof(*c));
        c->nic = n;
        c->posted = c->ended = posts;
        c->written = posts;
        c->send_record = htobe32(posts & 0xffff);
        c->done_record = htobe32(posts & 0xffffff);
        c->half = rnd(2);
        memset(c->send, (int)rnd(256), sizeof(c->send));
        memset(c->done, (int)rnd(256), sizeof(c->done));
        /* Completions of the turn before, or none at all. */
        for (uint32_t i = posts; i != posts + CARD_DONE; i++)
                c->done[i % CARD_DONE * NIC_BLOCK + OWNER] =
                        chance(2) ? (char)(MLX5_CQE_INVALID << 4 | rnd(2))
                                  : (char)(MLX5_CQE_REQ << 4 | !(i / CARD_DONE & 1));
        *n = (struct nic){
                .send = c->send, .done = c->done, .send_record = &c->send_record,
                .done_record = &c->done_record, .bell = c->bell, .bell_half = NIC_BLOCK,
                .half = c->half, .send_mask = CARD_SEND - 1, .done_mask = CARD_DONE - 1
        };
        c->number = 1 + rnd((1 << 24) - 1);
        c->key = rnd(~0u);
        nic_name(n, c->number, c->key);
}

static void read_request(struct card_model *c, uint32_t at)
{
        const char *block = c->send + at % CARD_SEND * NIC_BLOCK;
        const struct mlx5_wqe_raddr_seg *remote = (void *)(block + 16);
        const struct mlx5_wqe_data_seg *data = (void *)(block + 32);
        const struct nic_read r = {
                .from = be64toh(remote->raddr), .to = be64toh(data->addr),
                .from_key = be32toh(remote->rkey),
        };
        _Alignas(16) char golden[48] = { 0 };
        struct mlx5_wqe_raddr_seg *far = (void *)(golden + 16);

        mlx5dv_set_ctrl_seg((void *)golden, (uint16_t)at, MLX5_OPCODE_RDMA_READ, 0, c->number,
                            MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
        far->raddr = htobe64(r.from);
        far->rkey = htobe32(r.from_key);
        mlx5dv_set_data_seg((void *)(golden + 32), PAGE_SIZE, c->key, r.to);
        const char *why = model_expects(&r);
        if (why || memcmp(golden, block, sizeof(golden)) != 0)
                sched_fail("request %u: %s", at, why ? why : "it is not what mlx5dv.h makes of it");
        memcpy(c->copy[at % CARD_SEND], block, sizeof(golden));
}

static uint32_t record_of(const struct card_model *c) { return be32toh(c->send_record); }

static uint32_t *fenced_by(struct card_model *c, void *actor)
{
        unsigned i = 0;

        while (c->fenced[i].actor && c->fenced[i].actor != actor)
                i++;
        c->fenced[i].actor = actor;
        return &c->fenced[i].record;
}

void card_model_fence(struct card_model *c, void *actor)
{
        *fenced_by(c, actor) = record_of(c) + 1;
        if (c->ringer == actor)
                c->ringer = NULL;
}

void card_model_look(struct card_model *c, void *actor, bool locked)
{
        uint64_t bell[2];

        for (unsigned half = 0; half < 2; half++) {
                memcpy(&bell[half], c->bell + half * NIC_BLOCK, sizeof(bell[half]));
                memset(c->bell + half * NIC_BLOCK, 0, sizeof(bell[half]));
        }
        if (c->ringer && !locked)
                sched_fail("the lock is dropped, and the doorbell may still be in a store buffer");
        if (!bell[0] && !bell[1])
                return;
        uint32_t record = record_of(c), last = c->posted + ((record - c->posted) & 0xffff) - 1;
        if (c->ringer)
                sched_fail("rung again before a fence");
        c->ringer = actor;
        if (bell[!c->half])
                sched_fail("the other half of the register's turn");
        c->half ^= 1;
        if (record & ~0xffffu || last - c->posted >= NIC_DEPTH)
                sched_fail("the record of requests is %#x, and %#x were taken", record, c->posted);
        else if (last - c->ended >= NIC_DEPTH)
                sched_fail("more requests than the ring has room for");
        else if (memcmp(&bell[!c->half], c->send + last % CARD_SEND * NIC_BLOCK, 8) != 0)
                sched_fail("the doorbell is not the last request's");
        else if (*fenced_by(c, actor) != record + 1)
                sched_fail("no fence between record and doorbell");
        while (!sched_failed() && c->posted != last + 1)
                read_request(c, c->posted++);
}

static void write_completion(struct card_model *c, uint32_t at)
{
        char *to = c->done + c->written % CARD_DONE * NIC_BLOCK;
        struct mlx5_cqe64 done;
        uint32_t taken = be32toh(c->done_record);

        if (taken & ~0xffffffu || ((c->written - taken) & 0xffffff) >= CARD_DONE) {
                sched_fail("no room for a completion: %#x were written, %#x taken", c->written,
                           taken);
                return;
        }
        memset(&done, (int)rnd(256), sizeof(done));
        done.wqe_counter = htobe16((uint16_t)at);
        done.op_own = (uint8_t)((c->failed ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ) << 4 |
                                (c->written / CARD_DONE & 1));
        c->written++;
        for (unsigned i = 0, first = rnd(OWNER); i < OWNER; i++) {
                to[(first + i) % OWNER] = ((char *)&done)[(first + i) % OWNER];
                if (chance(16))
                        point();
                if (c->gone)
                        return;
        }
        point();
        if (c->gone)
                return;
        to[OWNER] = (char)done.op_own;
}

static bool step(struct card_model *c, bool fails)
{
        uint32_t at = c->ended;
        const char *block = c->send + at % CARD_SEND * NIC_BLOCK;

        if (c->gone || at == c->posted)
                return false;
        if (fails && !c->failed)
                c->failed_at = c->written;
        c->failed |= fails;
        const struct mlx5_wqe_raddr_seg *remote = (void *)(block + 16);
        const struct mlx5_wqe_data_seg *data = (void *)(block + 32);
        if (!c->failed)
                model_copy(c, &(struct nic_read){ .from = be64toh(remote->raddr),
                                                  .to = be64toh(data->addr) });
        if (c->gone)                    /* meanwhile */
                return false;
        if (memcmp(block, c->copy[at % CARD_SEND], sizeof(c->copy[0])) != 0)
                sched_fail("request %u changed while it was under way", at);
        c->ended++;
        write_completion(c, at);
        return true;
}

bool card_model_step(struct card_model *c, bool fails)
{
        c->works = true;
        bool done = step(c, fails);
        c->works = false;
        return done;
}
