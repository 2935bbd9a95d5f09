/*
 * Queues of ConnectX cards (mlx5): how a READ is written, rung for, and found to be over.
 *
 * Formats: rdma-core, providers/mlx5/mlx5dv.h and the PRM of Mellanox adapters, chapters on work
 * queues and completion queues.  All numbers are big-endian.
 *
 *   a block      0 control segment   opcode and post number, queue pair and size, flags
 *               16 remote segment    address, key
 *               32 data segment      length, key, address
 *   completion  54 vendor syndrome   55 syndrome   60 post number (16 bits)   63 opcode, owner
 *
 * Order of stores (rdma-core, providers/mlx5/qp.c): the block; the record; the doorbell, which is
 * the block's first quadword.  Between the last two the CPU's store buffer must be empty, since the
 * register is memory of another type.  A completion is valid when its owner bit agrees with the
 * turn of the ring; then the card has written all of it, and the data before.
 */
#ifndef VMRUN_MLX5_H
#define VMRUN_MLX5_H

#include "base/cpu.h"
#include "abi_direct.h"

#define MLX5_OP_READ   0x10u
#define MLX5_SIGNALED  8u               /* a completion is written */
#define MLX5_OK        0u               /* opcodes of completions */
#define MLX5_INVALID   15u

static inline uint32_t be32(uint32_t v) { return __builtin_bswap32(v); }
static inline uint64_t be64(uint64_t v) { return __builtin_bswap64(v); }
/* Two words, in this order. */
static inline uint64_t two(uint32_t first, uint32_t second)
{
        return (uint64_t)second << 32 | first;
}

/* Writes post number `at`, whose block is free. */
static inline void mlx5_put(const struct nic *n, uint32_t at, const struct nic_read *r)
{
        uint64_t *quad = (uint64_t *)(n->send + (at & n->send_mask) * NIC_BLOCK);

        quad[0] = two(be32((at & 0xffff) << 8 | MLX5_OP_READ), n->pair);
        quad[1] = two(be32(MLX5_SIGNALED), 0);
        quad[2] = be64(r->from);
        quad[3] = two(be32(r->from_key), 0);
        quad[4] = two(be32(r->len), n->key);
        quad[5] = be64(r->to);
}

/* Post number `at` is the last that was written. */
static inline void mlx5_ring(struct nic *n, uint32_t at)
{
        const uint64_t *block = (uint64_t *)(n->send + (at & n->send_mask) * NIC_BLOCK);
        _Atomic uint64_t *bell = (_Atomic uint64_t *)(n->bell + n->half * n->bell_half);

        /* Release: the card sees the blocks. */
        atomic_store_explicit(n->send_record, be32((at + 1) & 0xffff), memory_order_release);
        cpu_store_fence();
        /* Release: as above, for a card that is a thread. */
        atomic_store_explicit(bell, *block, memory_order_release);
        cpu_store_fence();              /* before another vCPU may ring */
        n->half ^= 1;
}

/* The opcode of the next completion; MLX5_INVALID: it has not come. */
static inline uint32_t mlx5_next(const struct nic *n, uint32_t seen)
{
        const char *c = n->done + (seen & n->done_mask) * NIC_BLOCK;
        /* Acquire: the rest of the completion is read after it, and the data of the READ. */
        uint8_t owner = atomic_load_explicit((const _Atomic uint8_t *)c + 63, memory_order_acquire);

        return (owner & 1) == !!(seen & (n->done_mask + 1)) ? owner >> 4 : MLX5_INVALID;
}

/* Takes completion number `seen`.  False: it has not come.  OUT *at: the low 16 bits of its post
 * number; *syndrome: 0 if the data is there. */
static inline bool mlx5_take(const struct nic *n, uint32_t seen, uint32_t *at, uint32_t *syndrome)
{
        const uint8_t *c = (uint8_t *)n->done + (seen & n->done_mask) * NIC_BLOCK;
        uint32_t op = mlx5_next(n, seen);

        if (op == MLX5_INVALID)
                return false;
        *at = (uint32_t)c[60] << 8 | c[61];
        *syndrome = op == MLX5_OK ? 0 : 0x100 | c[55];
        /* Release: the card may write over the completion. */
        atomic_store_explicit(n->done_record, be32((seen + 1) & 0xffffff), memory_order_release);
        return true;
}

#endif
