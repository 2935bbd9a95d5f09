/*
 * What kern writes for soft-RoCE, and what it makes of a completion (kern/far/direct/rxe.h), by the
 * kernel's own headers; and that kern's sum of a page (sum.c) is the host's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include "far/direct/rxe.h"
#include "far/direct/sum.c"
#include "far/sum.h"
#include <netinet/in.h>
#include <rdma/rdma_user_rxe.h>         /* after the C library's headers */

#define ELEMENTS 8u
#define SHIFT    8
#define DONE_SHIFT 6

union ring {
        struct rxe_queue_buf head;
        char all[sizeof(struct rxe_queue_buf) + (ELEMENTS << SHIFT)];
};
#define DATA(ring) ((ring)->all + offsetof(struct rxe_queue_buf, data))

/* In memory that held something else before. */
static void make(struct nic *n, union ring *send, union ring *done)
{
        memset(send, 0xa5, sizeof(*send));
        memset(done, 0x5a, sizeof(*done));
        send->head.producer_index = done->head.consumer_index = 0;
        done->head.producer_index = 0;
        *n = (struct nic){
                .format = NIC_RXE, .key = 0x1234, .send = DATA(send), .done = DATA(done),
                .send_record = (_Atomic uint32_t *)&send->head.producer_index,
                .done_record = (_Atomic uint32_t *)&done->head.consumer_index,
                .done_index = (_Atomic uint32_t *)&done->head.producer_index,
                .send_shift = SHIFT, .send_mask = ELEMENTS - 1,
                .done_shift = DONE_SHIFT, .done_mask = ELEMENTS - 1
        };
}

static void test_elements(void **state)
{
        union ring send, done;
        struct nic n;

        (void)state;
        make(&n, &send, &done);
        for (uint32_t at = 0; at < 3 * ELEMENTS; at++) {
                struct nic_read r = {
                        .from = 0x100000000ull * at + 0x7000, .to = 0x680000000000ull + at * 4096,
                        .from_key = 0x777 + at, .len = 4096
                };
                const char *element = DATA(&send) + (at % ELEMENTS << SHIFT);
                struct rxe_send_wqe want = {
                        .wr = { .wr_id = at, .opcode = IBV_WR_RDMA_READ,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = { .remote_addr = r.from, .rkey = r.from_key } },
                        .iova = r.from,
                        .dma = { .length = 4096, .resid = 4096, .num_sge = 1 }
                };
                struct rxe_sge sge = { .addr = r.to, .length = 4096, .lkey = 0x1234 };
                rxe_put(&n, at, &r);
                assert_memory_equal(element, &want, offsetof(struct rxe_send_wqe, dma.sge));
                assert_memory_equal(element + offsetof(struct rxe_send_wqe, dma.sge), &sge,
                                    sizeof(sge));
                assert_int_equal(send.head.producer_index, (at + 1) % ELEMENTS);
        }
}

static void test_completions(void **state)
{
        union ring send, done;
        struct nic n;
        uint32_t at, status;

        (void)state;
        make(&n, &send, &done);
        for (uint32_t i = 0; i < 3 * ELEMENTS; i++) {
                struct ib_uverbs_wc *wc =
                        (void *)(DATA(&done) + (i % ELEMENTS << DONE_SHIFT));
                assert_false(rxe_take(&n, &at, &status));
                *wc = (struct ib_uverbs_wc){ .wr_id = 0x10000u * i + 7 * i,
                                             .status = i % 5 ? 0 : IBV_WC_REM_ACCESS_ERR,
                                             .opcode = IBV_WC_RDMA_READ };
                done.head.producer_index = (i + 1) % ELEMENTS;
                assert_true(rxe_take(&n, &at, &status));
                assert_int_equal(at, 7 * i);
                assert_int_equal(status, i % 5 ? 0 : IBV_WC_REM_ACCESS_ERR);
                assert_int_equal(done.head.consumer_index, (i + 1) % ELEMENTS);
        }
}

/* The bytes that rxe.h counts with. */
_Static_assert(sizeof(struct rxe_queue_buf) == 384, "the head of a ring");
_Static_assert(RXE_ELEMENT == offsetof(struct rxe_send_wqe, dma.sge) + sizeof(struct rxe_sge),
               "an element");

static void test_sums(void **state)
{
        static uint64_t page[PAGE_SIZE / 8];
        unsigned short chance[3] = { 1, 2, 3 };

        (void)state;
        if (!__builtin_cpu_supports("sse4.2"))
                skip();
        void *p = mmap((void *)TREE_WINDOW, 3 * SLAB_MAP_SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
        assert_ptr_equal(p, (void *)TREE_WINDOW);
        direct_sum_init();
        for (unsigned run = 0; run < 200; run++) {
                uint64_t slot = (uint64_t)jrand48(chance) & (2 * SLAB_PAGES - 1);
                for (unsigned i = 0; run && i < PAGE_SIZE / 8; i++)
                        page[i] = (uint64_t)jrand48(chance) << 32 ^ (uint64_t)jrand48(chance);
                uint64_t other = slot ^ 1;
                *slot_sum((char *)TREE_WINDOW, slot) = *slot_sum((char *)TREE_WINDOW, other) =
                        far_sum(piece_sums_seed(slot), page, PAGE_SIZE);
                assert_true(direct_sum_fits(slot, page));
                assert_false(direct_sum_fits(other, page));
                page[(unsigned)jrand48(chance) % (PAGE_SIZE / 8)] ^= 1ull << run % 64;
                assert_false(direct_sum_fits(slot, page));
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_elements), cmocka_unit_test(test_completions),
                cmocka_unit_test(test_sums),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
