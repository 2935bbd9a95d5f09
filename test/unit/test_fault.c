/*
 * The fault path (kern/paging/fault.c) without a guest: what it asks of the host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>
#include <linux/mman.h>
#include "base/exit.h"
#include "base/kern.h"
#include "base/print.h"
#include "base/signal.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "paging/cleaner.h"
#include "paging/fault.h"
#include "space/account.h"
#include "space/grow.h"
#include "pager_env.h"

#define START  0x10000000ull            /* of the one VMA there is */
#define PAGES  32

struct vcpu vcpu_self;
struct vcpu_stats vcpu_self_stats;
uint64_t vcpu_self_xfer[PAGE_SIZE / 8];
struct control control;
struct pager pager;

static const struct vma file_vma = { .start = START, .end = START + PAGES * PAGE_SIZE, .prot = 1, .flags = MAP_PRIVATE, .file = 7, .off = 0x5000 };
static unsigned reads, refusals;        /* refusals: so often the host does not know the file */

/* --- the rest of kern --- */

pte_slot_t *pt_find(uint64_t addr) { return &env.pte[(addr - START) / PAGE_SIZE]; }
pte_slot_t *pt_make(uint64_t addr) { return pt_find(addr); }
int mm_grow_stack(uint64_t addr) { (void)addr; return -EFAULT; }
int mm_charge_page(void) { return 0; }
void mm_uncharge(uint64_t pages) { (void)pages; }
uint64_t mm_charged(void) { return 0; }
uint64_t mm_limit(void) { return 0; }
int frames_wait(void) { return -ENOMEM; }
void cleaner_poke(void) {}
void kern_log(int level, const char *fmt, ...) { (void)level; (void)fmt; }
void zero_page(void *d) { memset(d, 0, sizeof(env_page)); }
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b) { env_bug(what, a, b); }
void program_signal(uint64_t vector, int signo, int code, uint64_t addr)
{
        (void)vector;
        (void)signo;
        (void)code;
        env_bug("a signal", addr, 0);
}

int mm_lookup(uint64_t addr, struct vma *out)
{
        *out = file_vma;
        return addr >= file_vma.start && addr < file_vma.end ? 0 : -EFAULT;
}

/* --- the host --- */

int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        const uint32_t *frame = (const uint32_t *)a3;

        (void)a4;
        assert_int_equal(op, EXIT_FILE_READ);
        if (refusals) {
                refusals--;
                return -EBADF;
        }
        assert_int_equal(a0, file_vma.file);
        for (uint64_t i = 0; i < a2; i++) {
                assert_true(frame[i] < env.nframes);
                assert_true(env.frames[frame[i]].word & FRAME_CLAIMED);
                env.content[frame[i]][0] = a1 + i * PAGE_SIZE;
        }
        reads++;
        return (int64_t)a2;
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2) { return vmexit5(op, a0, a1, a2, 0, 0); }

/* An upcall has its arguments in xfer, as mm_batch() the operations of the loader, and answers there.  What it does may fault pages of a file in
 * (a locked VMA, MAP_POPULATE; no operation of today's loader does): the operations still to come stay what they are. */
static void test_file_fault_leaves_xfer_alone(void **state)
{
        uint64_t before[PAGE_SIZE / 8];

        (void)state;
        env_setup(256, 4, PAGES, 0);
        pager_init(&pager, env.frames, env.nframes, ENV_PFN0);
        memset(vcpu_self_xfer, 0x5a, sizeof vcpu_self_xfer);
        memcpy(before, vcpu_self_xfer, sizeof before);
        assert_int_equal(fault_in(START, START + PAGES * PAGE_SIZE, false), 0);
        assert_int_equal(reads, PAGES / FAULT_AROUND);
        for (unsigned v = 0; v < PAGES; v++) {
                assert_int_equal(pte_kind(env.pte[v]), PTE_PRESENT);
                assert_int_equal(env.content[pte_num(env.pte[v]) - ENV_PFN0][0], file_vma.off + v * PAGE_SIZE);
        }
        assert_memory_equal(vcpu_self_xfer, before, sizeof before);
        env_teardown();
}

/* A file that the host does not know: let go and mapped again meanwhile, or lost for good. */
static void test_file_is_lost(void **state)
{
        (void)state;
        env_setup(256, 4, PAGES, 0);
        pager_init(&pager, env.frames, env.nframes, ENV_PFN0);
        refusals = 100;
        assert_int_equal(fault_in(START, START + PAGE_SIZE, false), 0);
        assert_int_equal(refusals, 0);
        refusals = 1000000;
        assert_int_equal(fault_in(START + FAULT_AROUND * PAGE_SIZE, START + PAGES * PAGE_SIZE, false), -EIO);
        assert_true(refusals > 0);
        refusals = 0;
        env_teardown();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_file_fault_leaves_xfer_alone),
                cmocka_unit_test(test_file_is_lost),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
