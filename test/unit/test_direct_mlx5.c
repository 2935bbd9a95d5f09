/*
 * Set-up of ConnectX queue pairs for kern (runtime/far/rdma/mlx5.c), with a library that is not
 * there.  It takes memory as libmlx5 does (rdma-core, providers/mlx5: verbs.c, dbrec.c, buf.c), and
 * hands out queue pairs.  kern's own code then posts to them, and takes completions, by the
 * addresses that it was given, through the memory slots of the VM.  Each call fails once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "far/rdma/mlx5.c"
#include "far/direct/mlx5.h"

#define NODE    3
#define GPA     0x780000000ull
#define BLOCKS  256                     /* of a send ring: four for each request */
#define RECV    4096                    /* bytes in front of it */

static struct fake {
        struct ibv_td td;
        struct ibv_pd pd;
        struct ibv_parent_domain_init_attr domain;
        struct ibv_cq_ex cq;
        struct ibv_qp qp;
        char *ring, *done;
        __be32 *ring_record, *done_record;
        /* with its doorbell, at 0x800 + i * 0x200 */
        _Alignas(PAGE_SIZE) char page[PAGE_SIZE];
} fake[DIRECT_QUEUES];
static struct { unsigned td, pd, pages; } there;        /* made, and not freed */
static unsigned made_td, made_pd;
static int fail_in;                     /* calls until one fails; 0: none does */
static struct mlx5dv_qp odd_qp;         /* what init_obj() says in place of the truth, if not 0 */
static struct mlx5dv_cq odd_cq;
static bool no_offset, no_mask;
static struct { uint64_t gpa, size; char *host; } slot[2 * DIRECT_QUEUES];

static bool fails(void)
{
        if (fail_in && --fail_in == 0) {
                errno = ENOSPC;
                return true;
        }
        return false;
}

/* --- the library --- */

static struct ibv_td *fake_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *a)
{
        (void)c;
        assert_int_equal(a->comp_mask, 0);
        if (fails())
                return NULL;
        there.td++;
        return &fake[made_td++].td;
}

static int fake_dealloc_td(struct ibv_td *td)
{
        /* while a domain has it, it is in use */
        assert_null(((struct fake *)((char *)td - offsetof(struct fake, td)))->domain.td);
        there.td--;
        return 0;
}

static struct ibv_pd *fake_alloc_domain(struct ibv_context *c,
                                        struct ibv_parent_domain_init_attr *a)
{
        struct fake *f = &fake[made_pd];

        (void)c;
        if (fails())
                return NULL;
        assert_int_equal(a->comp_mask, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
                                               IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT);
        assert_ptr_equal(a->td, &f->td);
        assert_non_null(a->pd);
        there.pd++;
        made_pd++;
        f->domain = *a;
        return &f->pd;
}

static struct fake *fake_of(const struct ibv_pd *pd)
{
        return (struct fake *)((char *)pd - offsetof(struct fake, pd));
}

static int fake_dealloc_pd(struct ibv_pd *pd)
{
        fake_of(pd)->domain.td = NULL;
        there.pd--;
        return 0;
}

static void *take(struct fake *f, size_t size, size_t alignment, uint64_t type)
{
        char *at = f->domain.alloc(&f->pd, f->domain.pd_context, size, alignment, type);

        if (!at)
                return NULL;
        assert_int_equal((uintptr_t)at % alignment, 0);
        for (size_t i = 0; i < size; i++)
                assert_int_equal(at[i], 0);
        memset(at, 0x5a, size);         /* nobody else's */
        return at;
}

static struct ibv_cq_ex *fake_create_cq(struct ibv_context *c, struct ibv_cq_init_attr_ex *a)
{
        struct fake *f = fake_of(a->parent_domain);

        (void)c;
        assert_true(a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD);
        assert_int_equal(a->cqe, NIC_DEPTH - 1);
        if (fails())
                return NULL;
        f->done_record = take(f, 8, 8, 3);
        f->done = take(f, NIC_DEPTH * NIC_BLOCK, PAGE_SIZE, 5);
        assert_true(f->done_record && f->done);
        for (unsigned i = 0; i < NIC_DEPTH; i++)
                f->done[i * NIC_BLOCK + 63] = (char)(MLX5_CQE_INVALID << 4);
        f->done_record[0] = 0;
        return &f->cq;
}

static int fake_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
        struct fake *f = fake_of(pd);

        assert_int_equal(a->sq_sig_all, 0);
        if (fails())
                return -1;
        f->ring_record = take(f, 8, 8, 3);
        f->ring = take(f, RECV + BLOCKS * NIC_BLOCK, 2 * PAGE_SIZE, 1);
        assert_true(f->ring_record && f->ring);
        f->ring += RECV;
        f->ring_record[0] = f->ring_record[1] = 0;
        f->qp.qp_num = 0x123400 + (uint32_t)(f - fake);
        id->qp = &f->qp;
        return 0;
}

static int fake_init_obj(struct mlx5dv_obj *o, uint64_t type)
{
        const struct fake *f = (struct fake *)((char *)o->qp.in - offsetof(struct fake, qp));
        unsigned i = (unsigned)(f - fake);

        assert_int_equal(type, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ);
        assert_ptr_equal(o->cq.in, &f->cq);
        assert_true(o->qp.out->comp_mask & MLX5DV_QP_MASK_UAR_MMAP_OFFSET);
        if (fails())
                return ENOSPC;
        *o->qp.out = (struct mlx5dv_qp){
                .dbrec = f->ring_record,
                .sq = { .buf = odd_qp.sq.buf ? odd_qp.sq.buf : f->ring,
                        .wqe_cnt = odd_qp.sq.wqe_cnt ? odd_qp.sq.wqe_cnt : BLOCKS,
                        .stride = odd_qp.sq.stride ? odd_qp.sq.stride : NIC_BLOCK },
                .bf = { .reg = (char *)0x7f0000000000 + i * PAGE_SIZE + 0x800 + i * 0x200,
                        .size = 0x100 },
                .comp_mask = no_mask ? 0 : MLX5DV_QP_MASK_UAR_MMAP_OFFSET,
                .uar_mmap_offset = no_offset ? 0 : (i + 1) * PAGE_SIZE,
        };
        *o->cq.out = (struct mlx5dv_cq){
                .buf = f->done,
                .dbrec = odd_cq.dbrec ? odd_cq.dbrec : f->done_record,
                .cqe_cnt = odd_cq.cqe_cnt ? odd_cq.cqe_cnt : NIC_DEPTH,
                .cqe_size = odd_cq.cqe_size ? odd_cq.cqe_size : NIC_BLOCK,
        };
        return 0;
}

static void *fake_map(int fd, uint64_t offset)
{
        assert_int_equal(fd, 77);
        assert_int_equal(offset % PAGE_SIZE, 0);
        if (fails())
                return NULL;
        there.pages++;
        return fake[offset / PAGE_SIZE - 1].page;
}

static void fake_unmap(void *page)
{
        assert_int_equal((uintptr_t)page % PAGE_SIZE, 0);
        there.pages--;
}

static const struct mlx5_calls calls = {
        .alloc_td = fake_alloc_td,
        .dealloc_td = fake_dealloc_td,
        .alloc_parent_domain = fake_alloc_domain,
        .dealloc_pd = fake_dealloc_pd,
        .create_cq_ex = fake_create_cq,
        .create_qp = fake_create_qp,
        .init_obj = fake_init_obj,
        .map_page = fake_map,
        .unmap_page = fake_unmap,
};

/* --- the VM --- */

int vm_replace_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size)
{
        unsigned i = 0;

        (void)vm;
        if (size && fails())
                return -ENOSPC;
        while (i < 2 * DIRECT_QUEUES && slot[i].gpa != gpa && slot[i].gpa)
                i++;
        assert_in_range(i, 0, 2 * DIRECT_QUEUES - 1);
        slot[i].gpa = gpa;
        slot[i].size = size;
        slot[i].host = host;
        assert_int_equal((uintptr_t)host % PAGE_SIZE, 0);
        assert_int_equal(gpa % PAGE_SIZE, 0);
        assert_int_equal(size % PAGE_SIZE, 0);
        return 0;
}

/* What kern reaches at this address of its window. */
static void *reach(const void *va)
{
        uint64_t gpa = GPA + ((uint64_t)va - direct_rings(NODE));

        for (unsigned i = 0; i < 2 * DIRECT_QUEUES; i++)
                if (slot[i].size && gpa >= slot[i].gpa && gpa - slot[i].gpa < slot[i].size)
                        return slot[i].host + (gpa - slot[i].gpa);
        fail_msg("no memory of the VM is at %p", va);
        return NULL;
}

/* --- the set-up --- */

static struct ibv_context context = { .cmd_fd = 77 };
static struct ibv_pd pd;
static struct ibv_mr mr = { .lkey = 0xabcdef12 };
static struct far_node far = { .index = NODE };
static struct far_direct direct = { .gpa = GPA };
static struct rdma_node node;
static struct rdma_cm_id id[DIRECT_QUEUES];
static struct nic nic[DIRECT_QUEUES];
static char why[FAR_WHY];

/* As direct.c does.  False: with `why`, or errno. */
static bool set_up(void)
{
        memset(fake, 0, sizeof(fake));
        memset(slot, 0, sizeof(slot));
        memset(&there, 0, sizeof(there));
        memset(id, 0, sizeof(id));
        made_td = made_pd = 0;
        why[0] = '\0';
        node = (struct rdma_node){ .n = &far, .dev = { .verbs = &context, .pd = &pd },
                                   .mem.mr = &mr };
        if (!rdma_mlx5.begin(&node, why))
                return false;
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                struct rdma_link *l = &node.direct.link[i];
                struct ibv_qp_init_attr attr = { .cap.max_send_wr = NIC_DEPTH };
                *l = (struct rdma_link){ .node = &node, .id = &id[i] };
                if (!(l->cq = rdma_mlx5.make_cq(l)) || rdma_mlx5.make_qp(l, &attr) != 0) {
                        snprintf(why, sizeof(why), "%s", strerror(errno));
                        return false;
                }
        }
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                if (!rdma_mlx5.show(&node, &direct, i, &nic[i], why))
                        return false;
        return true;
}

static void take_down(void)
{
        if (node.direct.mlx5)
                rdma_mlx5.end(&node, &direct);
        assert_null(node.direct.mlx5);
        assert_int_equal(there.td, 0);
        assert_int_equal(there.pd, 0);
        assert_int_equal(there.pages, 0);
        for (unsigned i = 0; i < 2 * DIRECT_QUEUES; i++)
                assert_int_equal(slot[i].size, 0);
}

static void by_slots(struct nic *n)
{
        n->send = reach(n->send);
        n->done = reach(n->done);
        n->send_record = reach(n->send_record);
        n->done_record = reach(n->done_record);
        n->bell = reach(n->bell);
}

/* Twice round each ring. */
static void drive(unsigned i)
{
        struct fake *f = &fake[i];
        struct nic *n = &nic[i];

        by_slots(n);
        assert_int_equal(n->format, NIC_MLX5);
        for (uint32_t at = 0; at < 2 * BLOCKS; at++) {
                const struct nic_read r = { .from = 0x1122334455667000 + at, .to = 0x7788990000,
                                            .from_key = 0xfeedbeef, .len = PAGE_SIZE };
                const char *block = f->ring + at % BLOCKS * NIC_BLOCK;
                struct mlx5_cqe64 *done = (void *)(f->done + at % NIC_DEPTH * NIC_BLOCK);
                char *bell = f->page + 0x800 + i * 0x200 + at % 2 * 0x100;
                _Alignas(16) char golden[48] = { 0 };
                uint32_t seen, status;

                mlx5_put(n, at, &r);
                mlx5_ring(n, at);
                mlx5dv_set_ctrl_seg((void *)golden, (uint16_t)at, MLX5_OPCODE_RDMA_READ, 0,
                                    f->qp.qp_num, MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
                ((struct mlx5_wqe_raddr_seg *)(golden + 16))->raddr = htobe64(r.from);
                ((struct mlx5_wqe_raddr_seg *)(golden + 16))->rkey = htobe32(r.from_key);
                mlx5dv_set_data_seg((void *)(golden + 32), r.len, mr.lkey, r.to);
                assert_memory_equal(golden, block, sizeof(golden));
                assert_int_equal(be32toh(f->ring_record[MLX5_SND_DBR]), (at + 1) & 0xffff);
                assert_int_equal(f->ring_record[MLX5_RCV_DBR], 0);
                assert_memory_equal(bell, block, 8);
                memset(bell, 0, 8);
                assert_false(mlx5_take(n, at, &seen, &status));
                done->wqe_counter = htobe16((uint16_t)at);
                done->op_own = (uint8_t)(MLX5_CQE_REQ << 4 | (at / NIC_DEPTH & 1));
                assert_true(mlx5_take(n, at, &seen, &status));
                assert_int_equal(seen, at);
                assert_int_equal(status, 0);
                assert_int_equal(be32toh(f->done_record[0]), at + 1);
        }
}

static void test_set_up(void **state)
{
        (void)state;
        rdma_mlx5_calls = &calls;
        for (unsigned round = 0; round < 2; round++) {
                assert_true(set_up());
                for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                        drive(i);
                take_down();
        }
}

/* Each call fails in turn: with a reason, and nothing is left. */
static void test_each_fails(void **state)
{
        unsigned failed = 0;

        (void)state;
        for (int n = 1;; n++) {
                fail_in = n;
                bool made = set_up();
                bool was_called = fail_in == 0;
                fail_in = 0;
                if (!was_called) {
                        assert_true(made);
                        take_down();
                        break;
                }
                assert_false(made);
                assert_non_null(strstr(why, strerror(ENOSPC)));
                take_down();
                failed++;
        }
        /* of a queue: two domains, two queues; the objects, a page, two slots */
        assert_int_equal(failed, DIRECT_QUEUES * 8);
}

/* Rings that kern cannot drive, or not reach, are not shown. */
static void test_odd_rings(void **state)
{
        static char elsewhere[BLOCKS * NIC_BLOCK];
        static __be32 record[2];
        const struct {
                struct mlx5dv_qp qp;
                struct mlx5dv_cq cq;
                bool no_offset, no_mask;
        } odd[] = {
                { .qp.sq.buf = elsewhere },
                { .qp.sq.wqe_cnt = 2 * DIRECT_RING / NIC_BLOCK },
                { .qp.sq.wqe_cnt = BLOCKS - 1 },
                { .qp.sq.wqe_cnt = NIC_DEPTH / 2 },
                { .qp.sq.stride = 2 * NIC_BLOCK },
                { .cq.cqe_cnt = NIC_DEPTH / 2 },
                { .cq.cqe_cnt = NIC_DEPTH + 3 },
                { .cq.cqe_size = 2 * NIC_BLOCK },
                { .cq.dbrec = record },
                { .no_offset = true },
                { .no_mask = true },
        };

        (void)state;
        for (unsigned i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
                odd_qp = odd[i].qp;
                odd_cq = odd[i].cq;
                no_offset = odd[i].no_offset;
                no_mask = odd[i].no_mask;
                assert_false(set_up());
                assert_non_null(strstr(why, "rings are not as they were asked for"));
                take_down();
        }
        odd_qp = (struct mlx5dv_qp){ .dbrec = NULL };
        odd_cq = (struct mlx5dv_cq){ .buf = NULL };
        no_offset = no_mask = false;
}

/* --check tries, and leaves nothing. */
static void test_can(void **state)
{
        struct rdma_device d = { .verbs = &context, .pd = &pd };

        (void)state;
        for (fail_in = 1; fail_in <= 2;) {
                int n = fail_in;
                made_td = made_pd = 0;
                assert_false(rdma_mlx5.can(&d, why));
                assert_non_null(strstr(why, strerror(ENOSPC)));
                assert_int_equal(there.td + there.pd, 0);
                fail_in = n + 1;
        }
        fail_in = 0;
        made_td = made_pd = 0;
        assert_true(rdma_mlx5.can(&d, why));
        assert_int_equal(there.td + there.pd, 0);
}

/* A library that asks for more than there is gets nothing, and nobody else's memory. */
static void test_memory(void **state)
{
        (void)state;
        assert_true(set_up());
        struct fake *f = &fake[1];
        assert_null(take(f, MEMORY + 1, 64, 1));
        assert_null(ring_alloc(NULL, &node.direct.mlx5->queue[1], SIZE_MAX, 64, 1));
        assert_null(take(f, MEMORY, PAGE_SIZE, 1));
        size_t all = 0;
        while (take(f, 0x3000, PAGE_SIZE, 1))
                all += 0x3000;
        assert_in_range(all, MEMORY / 2, MEMORY);
        char *first = take(f, 8, 8, 3), *second = take(f, 8, 8, 3);
        assert_true(!second || second - first >= CACHE_LINE);
        take_down();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_set_up),
                cmocka_unit_test(test_each_fails),
                cmocka_unit_test(test_odd_rings),
                cmocka_unit_test(test_can),
                cmocka_unit_test(test_memory),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
