/*
 * TLB flushes by epochs (kern/base/flush.c), beside vCPUs that run the program: when a flush is
 * complete, and which vCPUs are kicked for it. Without a guest: vCPU blocks are memory at their
 * fixed address.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

/* In place of cpu.h: a flush of this vCPU's TLB is counted, and another thread may begin one in the
 * middle of it. */
#define VMRUN_CPU_H
static unsigned tlb_flushes, begun_meanwhile;
static void cpu_flush_tlb(int level);
static uint64_t tsc;
static uint64_t cpu_tsc(void) { return tsc; }
#include "base/flush.c"

#define VCPUS 3

struct vcpu vcpu_self;
const struct vcpu_fixed vcpu_self_fixed;
struct vcpu_stats vcpu_self_stats;
struct control control;

#define TICKS_A_MS 10
static unsigned kicks[VCPUS], exits;
static uint64_t last_kick[VCPUS];
static bool deaf;                       /* a vCPU that is kicked does not flush at once */

static void cpu_flush_tlb(int level)
{
        assert_int_equal(level, vcpu_self_fixed.level);
        tlb_flushes++;
        for (; begun_meanwhile; begun_meanwhile--)
                env_flush_begin();
}

/* vCPU i flushes. */
static void flushes(unsigned i)
{
        atomic_store(&vcpu_block(i)->flushed, atomic_load(&control.flush_epoch));
        kicked[i] = last_kick[i] = 0;
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        (void)a1;
        (void)a2;
        assert_int_equal(op, EXIT_KICK);
        const struct exit_kick *in = (const struct exit_kick *)a0;
        for (unsigned i = 1; i < VCPUS_MAX / 64; i++)
                assert_int_equal(in->vcpus[i], 0);
        assert_in_range(in->vcpus[0], 1, (1 << VCPUS) - 1);
        exits++;
        for (unsigned i = 0; i < VCPUS; i++)
                if (in->vcpus[0] >> i & 1) {
                        assert_true(!last_kick[i] || tsc - last_kick[i] >= 10 * TICKS_A_MS);
                        kicks[i]++;
                        last_kick[i] = tsc;
                        if (!deaf)
                                flushes(i);
                }
        return 0;
}

/* A deaf vCPU ignores kicks for the first 500 naps of a wait, which take 250 ms here. */
static unsigned naps;
int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        (void)a4;
        assert_int_equal(op, EXIT_WAIT_PTE);
        assert_int_equal(*(const uint32_t *)a0, a1);    /* else it would not sleep */
        assert_int_equal(a2, 1);
        assert_in_range(a3, 1, 1000000);
        assert_true(naps < 10000);
        tsc += TICKS_A_MS / 2;
        if (++naps == 500)
                deaf = false;
        return 0;
}

/* A wait spins for some time only. */
void env_relax(unsigned spins)
{
        assert_true(spins < 2000);
        tsc++;
}

static int setup(void **state)
{
        (void)state;
        memset(&vcpu_self, 0, sizeof(vcpu_self));
        memset(&vcpu_self_stats, 0, sizeof(vcpu_self_stats));
        memset(kicks, 0, sizeof(kicks));
        memset(last_kick, 0, sizeof(last_kick));
        memset((void *)kicked, 0, sizeof(kicked));
        memset((void *)left_to_kvm, 0, sizeof(left_to_kvm));
        exits = naps = 0;
        control.tsc_khz = TICKS_A_MS;
        tlb_flushes = begun_meanwhile = 0;
        deaf = false;
        atomic_store(&control.nvcpus, VCPUS);
        for (unsigned i = 0; i < VCPUS; i++) {
                atomic_store(&vcpu_block(i)->mode, MODE_KERN);
                atomic_store(&vcpu_block(i)->flushed, atomic_load(&control.flush_epoch));
                atomic_store(&control.steal[i].state, 0);
        }
        return 0;
}

static void runs_program(unsigned i) { atomic_store(&vcpu_block(i)->mode, MODE_PROGRAM); }

static bool done(uint64_t epoch)
{
        env_flush_look();
        return env_flush_done(epoch);
}

/* A flush that has begun does not cover a page stamped with the next epoch: a vCPU may have dropped
 * its translations before the entry was changed. */
static void test_next_epoch_is_not_begun(void **state)
{
        (void)state;
        for (unsigned i = 0; i < 3; i++) {
                uint64_t begun = env_flush_begin();
                assert_true(done(begun));
                uint64_t next = env_flush_next();
                assert_int_equal(next, begun + 1);
                assert_false(done(next));
                assert_int_equal(env_flush_next(), next);
                assert_int_equal(env_flush_begin(), next);
                assert_true(done(next));
        }
}

static void test_program_must_flush(void **state)
{
        (void)state;
        runs_program(1);
        runs_program(2);
        uint64_t first = env_flush_begin(), second = env_flush_begin();
        assert_false(done(first));
        atomic_store(&vcpu_block(1)->flushed, second);
        assert_false(done(first));
        atomic_store(&vcpu_block(2)->flushed, first);
        assert_true(done(first));
        assert_false(done(second));
        /* It has entered kern: it will flush before it runs the program again. */
        atomic_store(&vcpu_block(2)->mode, MODE_KERN);
        assert_true(done(second));
        /* A flush that was complete stays so, though this vCPU has not flushed yet. */
        runs_program(2);
        env_flush_begin();
        assert_true(done(first));
        assert_true(done(second));
}

/* Without a look nobody learns of it; a look tells of all flushes at once. */
static void test_one_looks_for_all(void **state)
{
        (void)state;
        runs_program(0);
        runs_program(1);
        uint64_t first = env_flush_begin(), second = env_flush_begin(), third = env_flush_begin();
        atomic_store(&vcpu_block(0)->flushed, second);
        atomic_store(&vcpu_block(1)->flushed, third);
        assert_false(env_flush_done(first));
        assert_true(done(first));
        assert_true(env_flush_done(second));
        assert_false(env_flush_done(third));
        atomic_store(&vcpu_block(0)->flushed, third);
        assert_true(done(third));
}

static void test_blocks_not_in_use(void **state)
{
        (void)state;
        runs_program(2);
        atomic_store(&control.nvcpus, 2);
        assert_true(done(env_flush_begin()));
        atomic_store(&control.nvcpus, 3);
        assert_false(done(env_flush_begin()));
}

static void test_wait_kicks_the_program_only(void **state)
{
        (void)state;
        runs_program(1);
        uint64_t e = env_flush_begin();
        flush_wait(e);
        assert_int_equal(kicks[0], 0);
        assert_int_equal(kicks[1], 1);
        assert_int_equal(kicks[2], 0);
        assert_int_equal(vcpu_self_stats.counter[CNT_KICKS], 1);
        flush_wait(e);
        assert_int_equal(kicks[1], 1);
}

/* One exit kicks all; the next flush kicks them again at once. */
static void test_one_exit_a_flush(void **state)
{
        (void)state;
        for (unsigned flush = 1; flush <= 3; flush++) {
                runs_program(0);
                runs_program(2);
                flush_wait(env_flush_begin());
                assert_int_equal(exits, flush);
                assert_int_equal(kicks[0], flush);
                assert_int_equal(kicks[1], 0);
                assert_int_equal(kicks[2], flush);
        }
}

/* Another vCPU has kicked it: one kick is enough for both, unless it is lost. */
static void test_kick_under_way(void **state)
{
        (void)state;
        runs_program(1);
        uint64_t e = env_flush_begin();
        tsc = 1000;
        kick(e);                                /* has effect: the mark is cleared */
        assert_int_equal(kicks[1], 1);
        e = env_flush_begin();
        kicked[1] = tsc;
        kick(e);
        assert_int_equal(exits, 1);
        tsc += KICK_AGAIN_MS * TICKS_A_MS;
        kick(e);
        assert_int_equal(kicks[1], 2);
}

/* Its own flush takes the mark of a kick away. */
static void test_own_flush_takes_the_mark(void **state)
{
        (void)state;
        kicked[0] = 5;
        kicked[1] = 5;
        flush_self();
        assert_int_equal(kicked[0], 0);
        assert_int_equal(kicked[1], 5);
}

/* A kick without effect is repeated, and the wait does not end early. */
static void test_wait_lasts(void **state)
{
        (void)state;
        runs_program(2);
        deaf = true;
        uint64_t e = env_flush_begin();
        flush_wait(e);
        assert_false(deaf);
        assert_in_range(kicks[2], 2, 10);
        assert_true(atomic_load(&vcpu_block(2)->flushed) >= e);
}

static uint8_t steal(unsigned i) { return atomic_load(&control.steal[i].state); }
static uint64_t by_kvm(void) { return vcpu_self_stats.counter[CNT_FLUSHES_KVM]; }

/* KVM flushes a vCPU that the host does not run, for all who wait; the others are kicked. */
static void test_vcpus_that_do_not_run(void **state)
{
        (void)state;
        runs_program(0);
        runs_program(1);
        atomic_store(&control.steal[1].state, STEAL_PREEMPTED);
        atomic_store(&control.steal[2].state, STEAL_PREEMPTED);     /* it is in kern */
        uint64_t e = env_flush_begin();
        assert_false(done(e));
        flush_wait(e);
        assert_int_equal(kicks[0], 1);
        assert_int_equal(kicks[1], 0);
        assert_int_equal(by_kvm(), 1);
        assert_int_equal(steal(1), STEAL_PREEMPTED | STEAL_FLUSH);
        assert_int_equal(steal(2), STEAL_PREEMPTED);
        assert_int_equal(naps, 0);
        e = env_flush_begin();                  /* it has not run since */
        assert_false(done(e));
        flush_wait(e);
        assert_int_equal(kicks[1], 0);
        assert_int_equal(by_kvm(), 2);
        atomic_store(&control.steal[1].state, 0);   /* now it does */
        assert_true(done(e));
        flush_wait(env_flush_begin());
        assert_int_equal(kicks[1], 1);
        assert_int_equal(by_kvm(), 2);
        assert_int_equal(steal(1), 0);
}

/* It was kicked, and lost its CPU before it took the kick. */
static void test_kicked_and_does_not_run(void **state)
{
        (void)state;
        runs_program(1);
        uint64_t e = env_flush_begin();
        deaf = true;
        kick(e);
        assert_int_equal(kicks[1], 1);
        atomic_store(&control.steal[1].state, STEAL_PREEMPTED);
        flush_wait(e);
        assert_int_equal(by_kvm(), 1);
        atomic_store(&control.steal[1].state, 0);
        last_kick[1] = 0;
        deaf = false;
        flush_wait(env_flush_begin());          /* no mark of that kick keeps this one away */
        assert_int_equal(kicks[1], 2);
        assert_int_equal(naps, 0);
}

/* What another vCPU waits for is not taken back. */
static void test_later_flush_stays(void **state)
{
        (void)state;
        runs_program(1);
        atomic_store(&control.steal[1].state, STEAL_PREEMPTED);
        uint64_t first = env_flush_begin(), second = env_flush_begin();
        assert_true(leave_to_kvm(1, second));
        assert_true(leave_to_kvm(1, first));
        assert_int_equal(left_to_kvm[1], second);
}

static void test_own_flush(void **state)
{
        (void)state;
        uint64_t e = env_flush_begin();
        flush_self();
        assert_int_equal(tlb_flushes, 1);
        assert_int_equal(vcpu_self_stats.counter[CNT_FLUSHES], 1);
        assert_int_equal(atomic_load(&vcpu_self.flushed), e);
}

/* A flush that begins while this vCPU's is under way is not covered by it. */
static void test_own_flush_notes_what_had_begun(void **state)
{
        (void)state;
        uint64_t before = atomic_load(&control.flush_epoch);
        begun_meanwhile = 2;
        flush_self();
        assert_int_equal(atomic_load(&control.flush_epoch), before + 2);
        assert_int_equal(atomic_load(&vcpu_self.flushed), before);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_next_epoch_is_not_begun, setup),
                cmocka_unit_test_setup(test_program_must_flush, setup),
                cmocka_unit_test_setup(test_one_looks_for_all, setup),
                cmocka_unit_test_setup(test_blocks_not_in_use, setup),
                cmocka_unit_test_setup(test_wait_kicks_the_program_only, setup),
                cmocka_unit_test_setup(test_one_exit_a_flush, setup),
                cmocka_unit_test_setup(test_kick_under_way, setup),
                cmocka_unit_test_setup(test_own_flush_takes_the_mark, setup),
                cmocka_unit_test_setup(test_wait_lasts, setup),
                cmocka_unit_test_setup(test_vcpus_that_do_not_run, setup),
                cmocka_unit_test_setup(test_kicked_and_does_not_run, setup),
                cmocka_unit_test_setup(test_later_flush_stays, setup),
                cmocka_unit_test_setup(test_own_flush, setup),
                cmocka_unit_test_setup(test_own_flush_notes_what_had_begun, setup),
        };
        void *blocks = vcpu_block(0);

        if (mmap(blocks, VCPUS * VCPU_BLOCK, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != blocks)
                return 99;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
