/*
 * Timed tiers (kern/far/timed.c) with a clock of the test's own: pages come when they are due, are
 * what was in the slot, and nothing waits in the host unless it is long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* In place of cpu.h: each reading of the clock takes a tick, and a copy COPY more. */
#define VMRUN_CPU_H
static uint64_t tsc;
static uint64_t cpu_tsc(void);
static void cpu_relax(void);
#include "far/timed.c"

#define COPY    50
#define FRAMES  256
#define LATENCY 10000
#define PAGE    100
#define KHZ     1000000                 /* a tick is a nanosecond */
#define SLEEP   20000                   /* SLEEP_LEAST_US */

struct vcpu vcpu_self;
struct vcpu_stats vcpu_self_stats;
const struct vcpu_fixed vcpu_self_fixed = { .number = 3 };
struct control control;
struct pager pager;

static struct frame frames[FRAMES];
static pte_slot_t pte[FRAMES];
static uint64_t content[FRAMES][PAGE_SIZE / 8] __attribute__((aligned(PAGE_SIZE))), slot[FRAMES];
static const struct slab slab = {
        .kind = SLAB_TIMED, .node = 1, .latency = LATENCY, .page_ticks = PAGE << SLAB_TICK_SHIFT
};
static unsigned woken, exits[EXIT_OPS];
static uint64_t slept_ns;

static uint64_t cpu_tsc(void) { return tsc++; }
static void cpu_relax(void) {}
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        fail_msg("kern_bug: %s: %#lx %#lx", what, a, b);
        __builtin_unreachable();
}
_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b) { kern_bug(what, a, b); }
void *env_frame_va(frame_t f) { return content[f]; }
static char pool[32][PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
static unsigned pool_used, pool_pages;  /* so many are left */
void *pool_page(enum pool_kind kind)
{
        assert_int_equal(kind, POOL_CARD);
        return pool_pages && pool_pages-- ? pool[pool_used++] : NULL;
}
void copy_page(void *restrict d, const void *restrict s)
{
        *(uint64_t *)d = *(const uint64_t *)s;
        tsc += COPY;
}
void env_relax(unsigned spins) { tsc += spins; }
/* A card that is not there never fails, and its pages have no sums. */
void ring_read_for(uint64_t s, frame_t f, uint32_t vcpu, int wrong)
{
        fail_msg("slot %lu, frame %u, vCPU %u, %d", (unsigned long)s, f, vcpu, wrong);
}
bool ring_has_room(void) { return true; }
bool pt_map_window(uint64_t va, uint64_t gpa, uint64_t len) { return va + gpa + len > 0; }

void env_wake_pte(pte_slot_t *e)
{
        assert_in_range((uintptr_t)e, (uintptr_t)pte, (uintptr_t)(pte + FRAMES));
        assert_int_equal(wires.lock, 0);
        woken++;
}

int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        (void)a4;
        exits[op]++;
        if (op == EXIT_WAIT_PTE) {
                assert_int_equal(*(const uint32_t *)a0, (uint32_t)a1);
                assert_int_equal(a2, 1);
                slept_ns = a3;
                tsc += a3;              /* at KHZ */
        }
        return 0;
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return vmexit5(op, a0, a1, a2, 0, 0);
}

static int setup(void **state)
{
        (void)state;
        memset(&wires, 0, sizeof(wires));
        memset(&writes, 0, sizeof(writes));
        memset((void *)ahead, 0, sizeof(ahead));
        memset(&vcpu_self_stats, 0, sizeof(vcpu_self_stats));
        memset(exits, 0, sizeof(exits));
        woken = 0;
        tsc = 1000000;
        control.tsc_khz = KHZ;
        control.stats_on = control.shadow_paging = 0;
        control.wire_copied = 0;
        pager = (struct pager){ .frames = frames, .nframes = FRAMES, .pfn0 = 1000,
                                .notices = { .frames = frames, .pfn0 = 1000 } };
        for (frame_t n = 0; n < FRAMES; n++) {
                frames[n] = (struct frame){ .word = FRAME_RESIDENT | FRAME_CLAIMED, .slot = n };
                frames[n].pte = &pte[n];
                content[n][0] = 0;
                slot[n] = 0x5000 + n;
        }
        timed_add(&slab);
        return 0;
}

static void ask(frame_t n, enum io_op op)
{
        pte[n] = pte_make_busy(1000 + n, pte_prot(true, true, false)) |
                 (op == IO_READ ? 0 : PTE_PREF);
        timed_read(&slab, &slot[n], n, op);
}

static void come(frame_t n, pte_t bits)
{
        assert_int_equal(pte[n] & (PTE_P | PTE_A | PTE_PREF | PTE_ST_HELD), bits);
        assert_int_equal(pte_num(pte[n]), 1000 + n);
        assert_int_equal(content[n][0], 0x5000 + n);
        assert_false(frames[n].word & FRAME_CLAIMED);
}

static void test_read(void **state)
{
        (void)state;
        ask(0, IO_READ);
        tsc = 1000000 + LATENCY;
        timed_poll();
        assert_int_equal(pte_kind(pte[0]), PTE_BUSY);
        assert_int_equal(content[0][0], 0);
        tsc += PAGE;
        timed_poll();
        come(0, PTE_P | PTE_A);
        assert_int_equal(woken, 0);
        /* another vCPU sleeps on it */
        ask(1, IO_READ);
        pte[1] |= PTE_WAITERS;
        tsc += LATENCY + 2 * PAGE;
        timed_poll();
        come(1, PTE_P | PTE_A);
        assert_int_equal(woken, 1);
}

/* The page was unmapped while it was on its way: the frame is no longer claimed, and the entry is
 * left alone. */
static void test_unmapped(void **state)
{
        (void)state;
        ask(0, IO_PREFETCH);
        pte[0] = 0;
        frames[0].word |= FRAME_ORPHAN;
        assert_true(timed_wait(&frames[0].word, frames[0].word, 0));
        tsc += LATENCY + 2 * PAGE;
        timed_poll();
        assert_int_equal(pte[0], 0);
        assert_int_equal(frames[0].word, FRAME_RESIDENT | FRAME_ORPHAN);
        assert_int_equal(timed_ahead(), 0);
        assert_false(timed_wait(&frames[0].word, frames[0].word, 0));
}

static void test_ahead(void **state)
{
        (void)state;
        ask(0, IO_PREFETCH);
        ask(1, IO_MARKER);
        assert_int_equal(timed_ahead(), 2);
        tsc += LATENCY + 2 * PAGE;
        timed_poll();
        come(0, PTE_P | PTE_PREF);
        come(1, PTE_ST_HELD | PTE_PREF);
        assert_int_equal(timed_ahead(), 0);
        control.shadow_paging = 1;
        ask(2, IO_PREFETCH);
        tsc += LATENCY + 2 * PAGE;
        timed_poll();
        come(2, PTE_P | PTE_A | PTE_PREF);
}

/* Words that wait for a page that a vCPU waits for, too, and for one that none waits for. */
static void test_notices(void **state)
{
        static struct notices table;
        _Atomic uint32_t words[2] = { 0 };

        (void)state;
        memset(&table, 0, sizeof(table));
        pager.notices.table = &table;
        ask(0, IO_READ);
        ask(1, IO_PREFETCH);
        for (unsigned i = 0; i < 2; i++)
                assert_true(notice_add(&pager.notices, &pte[i], &words[i], 2, 3));
        assert_int_equal(words[0] + words[1], 2);
        tsc += LATENCY + 2 * PAGE;
        timed_poll();
        assert_int_equal(words[0] + words[1], 0);
        assert_int_equal(table.count, 0);
}

/* The time of copies is no time of the wire: the page behind ten others is due no sooner by the TSC
 * than all copies took longer. */
static void test_copies_take_no_time(void **state)
{
        (void)state;
        for (frame_t n = 0; n < 12; n++)
                ask(n, IO_READ);
        tsc = 1000000 + LATENCY + 11 * PAGE;
        timed_poll();
        come(10, PTE_P | PTE_A);
        assert_int_equal(pte_kind(pte[11]), PTE_BUSY);
        assert_in_range(wires.copied, 11 * COPY, 11 * (COPY + 2));
        assert_int_equal(control.wire_copied, wires.copied);
        tsc = 1000000 + LATENCY + 12 * PAGE + 10 * COPY;
        timed_poll();
        assert_int_equal(pte_kind(pte[11]), PTE_BUSY);
        tsc += 2 * COPY;
        timed_poll();
        come(11, PTE_P | PTE_A);
}

/* Another vCPU that has the lock delivers. */
static void test_lock_is_taken(void **state)
{
        (void)state;
        ask(0, IO_READ);
        tsc += LATENCY + 2 * PAGE;
        wire_lock(&wires);
        timed_poll();
        assert_int_equal(pte_kind(pte[0]), PTE_BUSY);
        wire_unlock(&wires);
        timed_poll();
        come(0, PTE_P | PTE_A);
}

static void test_wait(void **state)
{
        const struct slab far = { .kind = SLAB_TIMED, .node = 2, .latency = 50 * SLEEP };

        (void)state;
        assert_false(timed_wait(&pte[0], pte_make_busy(1000, 0), 0));
        ask(0, IO_READ);                /* due soon: no exit */
        assert_true(timed_wait(&pte[0], pte[0], 0));
        assert_int_equal(exits[EXIT_WAIT_PTE], 0);
        timed_add(&far);
        pte[1] = pte_make_busy(1001, 0);
        timed_read(&far, &slot[1], 1, IO_READ);
        uint64_t due = tsc + 50 * SLEEP;
        assert_true(timed_wait(&pte[1], pte[1], 1));
        assert_int_equal(exits[EXIT_WAIT_PTE], 1);
        assert_in_range(tsc, due - SLEEP, due);
        timed_poll();                   /* frame 0's, which was due meanwhile */
        come(0, PTE_P | PTE_A);
        assert_false(timed_wait(&pte[0], pte[0], 0));
        /* a page that comes another way */
        assert_false(timed_wait(&pte[2], pte_make_busy(1002, 0), 2));
}

/* Bytes of a page take the wire for as long as they are long, behind the pages before them; a long
 * wait is a sleep, and pages that are due meanwhile come. */
static void test_part(void **state)
{
        const struct slab far = {
                .kind = SLAB_TIMED, .node = 2, .latency = 50 * SLEEP, .page_ticks = slab.page_ticks
        };
        uint64_t begun = tsc;

        (void)state;
        timed_part_wait(timed_part(&slab, 8));
        assert_in_range(tsc, begun + LATENCY, begun + LATENCY + 20);
        begun = tsc;
        for (frame_t n = 0; n < 10; n++)
                ask(n, IO_READ);
        timed_part_wait(timed_part(&slab, 8));
        assert_in_range(tsc, begun + 10 * PAGE + LATENCY, begun + 10 * PAGE + LATENCY + 20 * COPY);
        timed_poll();                   /* the last one was due a part of a tick before */
        for (frame_t n = 0; n < 10; n++)
                come(n, PTE_P | PTE_A);
        assert_int_equal(exits[EXIT_WAIT_PTE], 0);
        timed_add(&far);
        begun = tsc;
        timed_part_wait(timed_part(&far, 8));
        assert_int_equal(exits[EXIT_WAIT_PTE], 1);
        assert_in_range(tsc, begun + 50 * SLEEP, begun + 51 * SLEEP);
        assert_int_equal(wires.lock, 0);
}

/* A stay takes somewhat more than half of the pages asked for ahead; none if the next is far. */
static void test_stay(void **state)
{
        (void)state;
        for (frame_t n = 0; n < 100; n++)
                ask(n, IO_PREFETCH);
        timed_stay();
        assert_int_equal(timed_ahead(), 43);
        assert_in_range(now(), 1000000 + LATENCY + 57 * PAGE, 1000000 + LATENCY + 60 * PAGE);
        tsc += 100 * PAGE;
        assert_false(timed_poll_slow());
        assert_int_equal(timed_ahead(), 0);
        assert_false(timed_poll_slow());

        const struct slab slow = { .kind = SLAB_TIMED, .node = 2, .latency = 2 * SLEEP,
                                   .page_ticks = (uint64_t)SLEEP << (SLAB_TICK_SHIFT + 1) };
        timed_add(&slow);
        for (frame_t n = 100; n < 110; n++) {
                pte[n] = pte_make_busy(1000 + n, 0) | PTE_PREF;
                timed_read(&slow, &slot[n], n, IO_PREFETCH);
        }
        uint64_t before = tsc;
        timed_stay();
        assert_in_range(tsc, before, before + 10);
        tsc += 4 * SLEEP;
        assert_true(timed_poll_slow());
        assert_int_equal(timed_ahead(), 9);
        for (unsigned sum = 0; sum < EXIT_OPS; sum++)
                assert_int_equal(exits[sum], 0);
}

/* More pages than may be under way: the last ones are asked for when the first have come. */
static void test_full(void **state)
{
        (void)state;
        wires.fresh = WIRE_PAGES - 10;          /* as if other nodes had the rest */
        for (frame_t n = 0; n < 20; n++)
                ask(n, IO_READ);
        come(9, PTE_P | PTE_A);
        tsc += 2 * LATENCY + 20 * PAGE;
        timed_poll();
        come(19, PTE_P | PTE_A);
}

static void test_writes(void **state)
{
        (void)state;
        control.stats_on = 1;
        assert_int_equal(timed_written(), FRAME_NONE);
        assert_false(timed_write_wait());
        for (unsigned round = 0; round < 3; round++) {
                uint64_t begun = now();
                for (frame_t n = 0; n < IO_RING; n++) {
                        content[n][0] = round * 1000 + n;
                        timed_write(&slab, &slot[n], n);
                }
                tsc = begun + LATENCY + wires.copied;
                assert_int_equal(timed_written(), FRAME_NONE);
                for (frame_t n = 0; n < IO_RING; n++) {
                        tsc = begun + LATENCY + (n + 2) * PAGE + wires.copied;
                        assert_int_equal(timed_written(), n);
                        assert_int_equal(slot[n], round * 1000 + n);
                }
                assert_int_equal(timed_written(), FRAME_NONE);
        }
        uint64_t sum = 0;
        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                sum += vcpu_self_stats.hist[LAT_WRITEBACK][b];
        assert_int_equal(sum, 3 * IO_RING);
}

/* The cleaner yields while a write is due soon, and sleeps where it is far. */
static void test_write_wait(void **state)
{
        const struct slab far = { .kind = SLAB_TIMED, .node = 2, .latency = 50 * SLEEP };

        (void)state;
        timed_write(&slab, &slot[0], 0);
        assert_true(timed_write_wait());
        assert_int_equal(exits[EXIT_YIELD], 1);
        tsc += LATENCY + 2 * PAGE;
        assert_true(timed_write_wait());        /* it is over: no exit */
        assert_int_equal(exits[EXIT_YIELD], 1);
        assert_int_equal(timed_written(), 0);
        timed_add(&far);
        timed_write(&far, &slot[1], 1);
        uint64_t due = tsc + 50 * SLEEP;
        assert_true(timed_write_wait());
        assert_int_equal(exits[EXIT_WAIT_PTE], 1);
        assert_in_range(tsc, due - SLEEP, due);
}

/* The parts of a sampled fetch add up: its wait for others, and all from there to its end. */
static void test_parts(void **state)
{
        (void)state;
        control.stats_on = 1;
        for (frame_t n = 0; n < 4; n++)
                ask(n, IO_PREFETCH);
        ask(4, IO_READ);
        tsc = 1000000 + LATENCY + 6 * PAGE;
        timed_poll();
        come(4, PTE_P | PTE_A);
        assert_in_range(vcpu_self_stats.ticks[LAT_QUEUE], 3 * PAGE, 4 * PAGE);
        assert_in_range(vcpu_self_stats.ticks[LAT_WIRE], LATENCY + PAGE,
                        LATENCY + 4 * PAGE + 6 * COPY);
}

/* By way of a card: completions in its format, when the wire says so. */
static void ask_card(const struct slab *s, frame_t n)
{
        pte[n] = pte_make_busy(1000 + n, pte_prot(true, true, false));
        struct slab at = *s;
        at.place[0].from = (uint64_t)&slot[n];
        struct direct_queue *q = direct_read(&at, 0, n);
        assert_non_null(q);
        assert_ptr_equal(vcpu_self.direct, q);
        timed_rung(q);
}

static void test_card(void **state)
{
        const struct slab s = { .kind = SLAB_TIMED, .node = 7, .latency = LATENCY, .queues = 1,
                                .direct = 1, .place[0].epoch = CARD_EPOCH, .node_at = { 7 } };
        uint64_t before;

        (void)state;
        pool_pages = 5;
        assert_false(timed_add(&s));
        assert_false(direct_has(s.node));
        pool_pages = 3 * DIRECT_QUEUES;
        assert_true(timed_add(&s));
        assert_int_equal(pool_pages, 0);
        assert_true(timed_add(&s));             /* its next slab */
        for (unsigned round = 0; round < 3 * NIC_DEPTH; round++) {
                frame_t n = round % FRAMES;
                frames[n].word |= FRAME_CLAIMED;
                ask_card(&s, n);
                pte[n] |= PTE_WAITERS;
                timed_poll();
                direct_poll();
                assert_int_equal(pte_kind(pte[n]), PTE_BUSY);
                assert_true(timed_wait(&frames[n].word, frames[n].word, n));
                tsc += LATENCY;
                timed_poll();
                assert_int_equal(pte_kind(pte[n]), PTE_BUSY);
                direct_poll();
                come(n, PTE_P | PTE_A);
                assert_int_equal(woken, round + 1);
        }
        assert_false(direct_wait(&pte[0], 0, 0));
        assert_int_equal(exits[EXIT_WAIT_PTE], 0);
        /* What the card does takes no time. */
        before = control.wire_copied;
        frames[0].word |= FRAME_CLAIMED;
        ask_card(&s, 0);
        tsc += LATENCY;
        timed_poll();
        assert_in_range(control.wire_copied - before, COPY, COPY + 10);
        /* Another vCPU's page, which is there. */
        vcpu_self.direct = NULL;
        assert_true(direct_wait(&pte[0], 0, 0));
        come(0, PTE_P | PTE_A);
        /* A request that finds no place on the wire gets one as soon as a page has come. */
        for (frame_t n = 10; n < 20; n++)
                ask(n, IO_PREFETCH);
        wires.fresh = WIRE_PAGES;               /* as if other nodes had the rest */
        frames[2].word |= FRAME_CLAIMED;
        ask_card(&s, 2);
        assert_true(cards.stalled);
        assert_false(timed_wait(&frames[2].word, frames[2].word, 2));
        assert_true(direct_wait(&pte[2], (uint32_t)pte[2], 2));
        assert_int_equal(slept_ns, 50000);
        tsc += LATENCY;
        timed_poll();
        assert_false(cards.stalled);
        tsc += LATENCY;
        timed_poll();
        direct_poll();
        come(2, PTE_P | PTE_A);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_read, setup),
                cmocka_unit_test_setup(test_unmapped, setup),
                cmocka_unit_test_setup(test_ahead, setup),
                cmocka_unit_test_setup(test_notices, setup),
                cmocka_unit_test_setup(test_copies_take_no_time, setup),
                cmocka_unit_test_setup(test_lock_is_taken, setup),
                cmocka_unit_test_setup(test_wait, setup),
                cmocka_unit_test_setup(test_part, setup),
                cmocka_unit_test_setup(test_stay, setup),
                cmocka_unit_test_setup(test_full, setup),
                cmocka_unit_test_setup(test_writes, setup),
                cmocka_unit_test_setup(test_write_wait, setup),
                cmocka_unit_test_setup(test_parts, setup),
                cmocka_unit_test_setup(test_card, setup),
        };
        cmocka_set_message_output(CM_OUTPUT_TAP);
        return cmocka_run_group_tests_name("timed", tests, NULL, NULL);
}
