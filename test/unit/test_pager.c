/*
 * The transitions of the pager core, one by one: each from each state, with what can fail in it.
 * Races are the subject of test_pager_model.c and test_pager_race.c; where one is played here, a
 * hook plays the other side.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>
#include "abi_stats.h"
#include "pager_env.h"

#define FRAMES 8
#define SLOTS  6
#define PAGES  8

static struct frame_list list;
static struct sweeper sweeper;
static uint64_t cnt[CNT_COUNT];
static pte_t rw, ro, no_access;
static jmp_buf bug;
static bool bug_expected;
static const char *bug_text;

static void on_bug(const char *what, uint64_t a, uint64_t b)
{
        if (!bug_expected)
                fail_msg("env_bug: %s: %#lx %#lx", what, (unsigned long)a, (unsigned long)b);
        bug_text = what;
        longjmp(bug, 1);
}

static void begin(uint32_t nframes, uint32_t nslots, uint64_t first_epoch)
{
        env_setup(nframes, nslots, PAGES, first_epoch);
        env.pg.target = nframes;                        /* CLOCK, of so few frames */
        env.bug = on_bug;
        list = (struct frame_list){ .list = 0 };
        sweeper = (struct sweeper){ .vain = 0 };
        memset(cnt, 0, sizeof(cnt));
        rw = pte_prot(true, true, false);
        ro = pte_prot(true, false, false);
        no_access = pte_prot(false, false, false);
}

static int setup(void **state)
{
        (void)state;
        begin(FRAMES, SLOTS, 10);
        return 0;
}

static void audit(void)
{
        struct frame_list *lists[] = { &list };
        const char *bad = env_audit(lists, 1);
        if (bad)
                fail_msg("%s", bad);
}

/* All vCPUs have flushed. */
static void flushed(void) { env.flushed = env.flush_epoch; }

static void flush(void)
{
        env_flush_begin();
        flushed();
}

/* Every test ends with everything given back. */
static int teardown(void **state)
{
        pte_t old;

        (void)state;
        env.step = NULL;
        env.io = NULL;
        env.alloc = NULL;
        audit();
        for (unsigned v = 0; v < PAGES; v++) {
                frame_t f = page_detach(&env.pg, &env.pte[v], &old);
                env.charged -= (old & PTE_CHARGED) != 0;
                if (f != FRAME_NONE)
                        frame_discard(&env.pg, &list, f);
        }
        flush();
        env_pass(env.nframes, cnt);          /* orphans */
        frame_list_drain(&env.pg, &list);
        const char *bad = env_audit_empty();
        env_teardown();
        if (bad)
                fail_msg("%s", bad);
        return 0;
}

static struct frame *frame_at(unsigned v) { return &env.frames[pte_num(env.pte[v]) - ENV_PFN0]; }
static enum pte_kind kind(unsigned v) { return pte_kind(env.pte[v]); }
/* A frame's word without its stamp and what the hands know of it. */
#define STATE (0xffffffffull & ~(FRAME_STAYED | FRAME_HOT | FRAME_OLD | FRAME_BACK | FRAME_WAS | \
                                 FRAME_PASSED))
static uint64_t flags(unsigned v) { return frame_at(v)->word & STATE; }

/* A resident page; ad as the CPU would have left it. */
static frame_t make_present(unsigned v, pte_t keep, pte_t ad, uint64_t content)
{
        frame_t f = frame_take(&env.pg, &list, cnt);
        assert_int_not_equal(f, FRAME_NONE);
        env.content[f][0] = content;
        env.charged += (keep & PTE_CHARGED) != 0;
        assert_int_equal(page_install(&env.pg, &env.pte[v], f, keep, ad), 0);
        return f;
}

/* A page in a slot of its own. */
static uint64_t make_remote(unsigned v, pte_t keep, uint64_t content)
{
        uint64_t slot = env_slot_alloc();
        assert_true(slot != SLOT_NONE);
        env.far[slot][0] = content;
        env.charged += (keep & PTE_CHARGED) != 0;
        env.pte[v] = pte_make_remote(slot, keep);
        return slot;
}

static frame_t fetch(unsigned v)
{
        frame_t f = frame_take(&env.pg, &list, cnt);
        assert_int_equal(page_fetch(&env.pg, &env.pte[v], env.pte[v], f, cnt), 0);
        return f;
}

/* By a vCPU that is out of frames. */
static uint32_t reclaim(void) { return clock_reclaim(&env.pg, &sweeper, &list, cnt); }

/* Two turns of the hand with a flush between them evict every cold page that may be evicted. */
static uint32_t evict_all(void)
{
        uint32_t freed = env_pass(env.nframes, cnt).freed;
        flush();
        return freed + env_pass(env.nframes, cnt).freed;
}

/* --- frames --- */

static void test_frame_counts(void **state)
{
        frame_t f[FRAMES];

        (void)state;
        for (unsigned i = 0; i < FRAMES; i++) {
                f[i] = frame_take(&env.pg, &list, cnt);
                assert_int_equal(env.frames[f[i]].word, FRAME_RESIDENT | FRAME_CLAIMED);
                assert_int_equal(env.frames[f[i]].slot, SLOT_NONE);
                assert_int_equal(env.pg.nfree + list.free.n, FRAMES - i - 1);
        }
        assert_int_equal(frame_take(&env.pg, &list, cnt), FRAME_NONE);
        for (unsigned i = 0; i < FRAMES; i++) {
                if (i % 2)
                        frame_free(&env.pg, &list, f[i]);
                else
                        frame_collect(&env.pg, f[i]);
                frames_give(&env.pg);
                assert_int_equal(env.pg.nfree + list.free.n, i + 1);
                audit();
        }
        assert_true(list.free.n <= 4);          /* no vCPU hoards: it keeps two batches at most */
        assert_true(cnt[CNT_REFILLS] >= FRAMES / 2);
}

static void test_free_gives_slot_back(void **state)
{
        (void)state;
        frame_t f = frame_take(&env.pg, &list, cnt);
        uint64_t slot = env_slot_alloc();
        env.frames[f].slot = slot;
        frame_free(&env.pg, &list, f);
        assert_int_equal(env.slot_used[slot], 0);
}

static void test_list_overflow(void **state)
{
        (void)state;
        env_teardown();
        begin(2048, SLOTS, 0);
        frame_t f[100];
        for (unsigned i = 0; i < 100; i++)
                f[i] = frame_take(&env.pg, &list, cnt);
        for (unsigned i = 0; i < 100; i++) {
                frame_free(&env.pg, &list, f[i]);
                assert_true(list.free.n <= 2 * FRAME_BATCH);
        }
        audit();
}

/* --- install, fetch, wait --- */

static void test_install(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw | PTE_CHARGED, PTE_A, 1);
        assert_int_equal(env.pte[0], pte_make_present(ENV_PFN0 + f, rw | PTE_CHARGED, PTE_A));
        assert_int_equal(flags(0), FRAME_RESIDENT);
        assert_ptr_equal(env.frames[f].pte, &env.pte[0]);

        /* Any state but NONE: the frame stays the caller's. */
        make_remote(1, rw, 1);
        env.pte[2] = pte_make_arena(5, rw);
        frame_t g = frame_take(&env.pg, &list, cnt);
        for (unsigned v = 0; v < 3; v++) {
                pte_t before = env.pte[v];
                assert_int_equal(page_install(&env.pg, &env.pte[v], g, rw, PTE_A), -EAGAIN);
                assert_int_equal(env.pte[v], before);
                assert_true(env.frames[g].word & FRAME_CLAIMED);
        }
        frame_free(&env.pg, &list, g);
}

static void test_stray_bits(void **state)
{
        pte_t old;

        (void)state;
        env.pte[0] = PTE_A;                     /* left by a walk that began before the page went */
        env.pte[1] = PTE_A | PTE_D;
        assert_int_equal(kind(0), PTE_NONE);
        assert_int_equal(kind(1), PTE_NONE);
        make_present(0, rw, PTE_A, 1);
        assert_int_equal(page_detach(&env.pg, &env.pte[1], &old), FRAME_NONE);
        uint64_t slot = make_remote(2, rw, 7);
        env.pte[2] |= PTE_A | PTE_D;
        assert_int_equal(kind(2), PTE_REMOTE);
        frame_t f = fetch(2);
        assert_int_equal(env.pte[2], pte_make_present(ENV_PFN0 + f, rw, PTE_A));
        assert_int_equal(env.frames[f].slot, slot);
}

static void test_fetch(void **state)
{
        (void)state;
        uint64_t slot = make_remote(0, ro | PTE_CHARGED, 42);
        pte_t seen = env.pte[0];
        frame_t f = fetch(0);
        assert_int_equal(env.content[f][0], 42);
        assert_int_equal(env.pte[0], pte_make_present(ENV_PFN0 + f, ro | PTE_CHARGED, PTE_A));
        assert_int_equal(flags(0), FRAME_RESIDENT);     /* clean: the slot stays its copy */
        assert_int_equal(env.frames[f].slot, slot);
        assert_int_equal(env.slot_used[slot], 1);
        assert_int_equal(env.wakes, 0);

        frame_t g = frame_take(&env.pg, &list, cnt);    /* the entry is not what was seen */
        assert_int_equal(page_fetch(&env.pg, &env.pte[0], seen, g, cnt), -EAGAIN);
        assert_int_equal(env.frames[g].slot, SLOT_NONE);
        frame_free(&env.pg, &list, g);
}

static int fail_io(bool write, uint64_t slot)
{
        (void)write;
        (void)slot;
        return -EIO;
}

static void wait_while_busy(void)
{
        static bool inside;
        if (inside || kind(0) != PTE_BUSY)
                return;
        inside = true;          /* a second vCPU finds the page BUSY: spins, sets WAITERS, sleeps */
        page_wait(&env.pte[0], env.pte[0]);
        assert_true(env.pte[0] & PTE_WAITERS);
        inside = false;
        env.step = NULL;
}

static void test_fetch_wakes(void **state)
{
        (void)state;
        for (int failing = 0; failing < 2; failing++) {
                uint64_t slot = make_remote(0, rw | PTE_CHARGED, 5);
                pte_t seen = env.pte[0], old;
                env.waits = env.wakes = 0;
                env.step = wait_while_busy;
                env.io = failing ? fail_io : NULL;
                frame_t f = frame_take(&env.pg, &list, cnt);
                assert_int_equal(page_fetch(&env.pg, &env.pte[0], seen, f, cnt),
                                 failing ? -EIO : 0);
                assert_int_equal(env.waits, 1);
                assert_int_equal(env.wakes, 1);
                assert_false(env.pte[0] & PTE_WAITERS);
                if (failing) {
                        assert_int_equal(env.pte[0],
                                         pte_make_remote(slot, rw | PTE_CHARGED) | PTE_LOST);
                        assert_int_equal(env.frames[f].word, FRAME_RESIDENT | FRAME_CLAIMED);
                        assert_int_equal(env.frames[f].slot, SLOT_NONE);
                        frame_free(&env.pg, &list, f);
                        break;
                }
                frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[0], &old));
                env.charged--;
        }
}

static void test_wait_returns(void **state)
{
        (void)state;
        pte_t busy = pte_make_busy(ENV_PFN0, rw);
        env.pte[0] = pte_make_remote(0, rw);
        page_wait(&env.pte[0], busy);                   /* changed already */
        assert_int_equal(env.waits, 0);
        env.pte[0] = busy | PTE_WAITERS;
        page_wait(&env.pte[0], busy);   /* another thread waits: that is a change, too */
        assert_int_equal(env.waits, 0);
        page_wait(&env.pte[0], busy | PTE_WAITERS);
        assert_int_equal(env.waits, 1);
        env.pte[0] = 0;
}

/* --- the reserve --- */

static void test_reserve(void **state)
{
        static const struct { uint32_t nframes, high; } cache[] = {
                { 64, 16 }, { 256, 32 }, { 1024, 128 }, { 4096, 128 }, { 8192, 256 },
                { 131072, 4096 }, { 1 << 20, 4096 }
        };

        (void)state;
        for (size_t i = 0; i < sizeof(cache) / sizeof(cache[0]); i++) {
                struct pager pg = { .nframes = cache[i].nframes };
                pager_marks(&pg, true);
                assert_int_equal(pg.high, cache[i].high);
                assert_int_equal(pg.low, cache[i].high / 2);
                pager_marks(&pg, false);
                assert_int_equal(pg.low, 1);
        }
}

/* --- pins --- */

static void test_pin(void **state)
{
        (void)state;
        frame_t f = make_present(0, ro, PTE_A, 1);
        make_remote(1, rw, 1);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], true), FRAME_NONE);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[1], false), FRAME_NONE);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[2], false), FRAME_NONE);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], false), f);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], false), f);
        assert_int_equal(flags(0) & FRAME_PINS, 2);
        assert_false(frame_claim(&env.frames[f], env.frames[f].word));
        frame_unpin(&env.frames[f], true);
        frame_unpin(&env.frames[f], false);
        assert_int_equal(flags(0), FRAME_RESIDENT | FRAME_DIRTY | FRAME_USED);
        assert_true(frame_claim(&env.frames[f], env.frames[f].word));
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], false), FRAME_NONE);
        atomic_fetch_and(&env.frames[f].word, ~FRAME_CLAIMED);
        page_protect(&env.pg, &env.pte[0], no_access);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], false), FRAME_NONE);
}

static void unpin_once(void)
{
        env.step = NULL;
        assert_int_equal(flags(0), FRAME_RESIDENT | FRAME_PINS);
        frame_unpin(frame_at(0), false);
}

/* There is room for 65,535 pins: the next one must not spill into the flags. */
static void test_pins_saturate(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A, 1);
        atomic_fetch_or(&frame_at(0)->word, FRAME_PINS);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], false), FRAME_NONE);
        env.step = unpin_once;
        assert_true(page_protect(&env.pg, &env.pte[0], ro));
        assert_int_equal(flags(0), FRAME_RESIDENT | (FRAME_PINS - 1));
        env.step = NULL;
        atomic_fetch_and(&frame_at(0)->word, ~FRAME_PINS);
}

/* A walk sets A again, and another holder of a pin clears it after further flushes have begun. */
static unsigned steps_before_cool;
static void cool_meanwhile(void)
{
        if (steps_before_cool-- > 0)
                return;
        env.step = NULL;
        env.pte[0] |= PTE_A;
        env_flush_begin();
        page_cool(&env.pg, &list, &env.pte[0]);
}

/* The later stamp stays, wherever the first holder was interrupted. */
static void test_stamps_do_not_go_back(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A, 1);
        for (unsigned i = 0; i < 5; i++) {
                env.pte[0] |= PTE_A;
                steps_before_cool = i;
                env.step = cool_meanwhile;
                page_cool(&env.pg, &list, &env.pte[0]);
                assert_int_equal(env.step == NULL, i < 4);
                env.step = NULL;
                assert_int_equal(frame_word_epoch(frame_at(0)->word), env_flush_next());
        }
}

/* fork: slots in a batch are promised, but not shared yet; completing writes must not evict. */
static void test_fork_completes_only(void **state)
{
        (void)state;
        for (unsigned v = 0; v < SLOTS; v++)
                make_remote(v, rw, 100 + v);
        frame_t f = fetch(0);                   /* clean: promised to the child by its slot */
        uint64_t promised = env.frames[f].slot;
        make_present(6, rw, PTE_A | PTE_D, 7);  /* a stream has passed it */
        assert_false(page_pass(&env.pg, &list, &env.pte[6]));
        flush();
        clock_complete(&env.pg, cnt);           /* fork.c, complete_writes() */
        assert_int_equal(env.far[promised][0], 100);
        assert_int_equal(env.frames[f].slot, promised);
}

/* fork.c, write_out() */
static bool post_each(void) { return true; }
static void test_fork_page_evicted_meanwhile(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A | PTE_D, 7);
        assert_false(page_pass(&env.pg, &list, &env.pte[0]));
        flush();
        env.post = post_each;
        for (unsigned v = 1; v <= ENV_TRANSFERS; v++) {
                make_present(v, rw, PTE_A | PTE_D, v);
                assert_int_equal(page_write_back(&env.pg, &env.pte[v], cnt), ENV_POSTED);
        }
        /* now page 0: take_resident() has seen it PRESENT and dirty */
        assert_int_equal(kind(0), PTE_PRESENT);
        for (unsigned i = 0; !env_slot_write_room(); i++) {
                for (unsigned k = 0; k < (i ? ENV_TRANSFERS : 1); k++)
                        env_io_step(0);
                clock_complete(&env.pg, cnt);
        }
        enum pte_kind k = kind(0);
        while (env.pg.writing) {
                env_io_step(0);
                clock_complete(&env.pg, cnt);
        }
        env.post = NULL;
        /* Else page_write_back() takes a slot for a frame. */
        assert_int_equal(k, PTE_PRESENT);
}

/* The frame was evicted and is now the target of another page's fetch, which may last. */
static unsigned spins_while_claimed;
static frame_t pinned_late;
static void evicted_and_reused(void)
{
        if (spins_while_claimed++ == 0)
                env.pte[0] = pte_make_remote(5, rw);
        if (spins_while_claimed == 1000)        /* the node answers at last */
                atomic_fetch_and(&env.frames[pinned_late].word, ~FRAME_CLAIMED);
}
static void test_pin_gives_up(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw, PTE_A, 1);
        pte_t was = env.pte[0];
        pinned_late = f;
        atomic_fetch_or(&env.frames[f].word, FRAME_CLAIMED);
        spins_while_claimed = 0;
        env.step = evicted_and_reused;
        page_protect(&env.pg, &env.pte[0], ro);
        env.step = NULL;
        unsigned n = spins_while_claimed;
        env.pte[0] = was;
        atomic_fetch_and(&env.frames[f].word, ~FRAME_CLAIMED);
        assert_true(n < 10);
}

/* HELD -> HELD begins no flush, so it must not ask for one. */
static void test_held_again(void **state)
{
        (void)state;
        make_remote(1, rw, 1);
        fetch(1);
        assert_true(page_protect(&env.pg, &env.pte[1], no_access));
        flush();
        assert_false(page_protect(&env.pg, &env.pte[1], no_access));
        for (unsigned i = 0; i < 10; i++) {
                env_pass(env.nframes, cnt);
                flushed();
        }
        assert_int_equal(kind(1), PTE_REMOTE);
}

#include "test_pager_range.h"
#include "test_pager_clock.h"
#include "test_pager_hands.h"
#include "test_pager_notices.h"
#include "test_pager_free.h"

int main(void)
{
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
                T(test_frame_counts), T(test_free_gives_slot_back), T(test_list_overflow),
                T(test_stocks), T(test_collected), T(test_low),
                T(test_install), T(test_stray_bits), T(test_fetch), T(test_fetch_wakes),
                T(test_wait_returns), T(test_reserve), T(test_pin), T(test_pins_saturate),
                T(test_stamps_do_not_go_back), T(test_fork_completes_only),
                T(test_fork_page_evicted_meanwhile), T(test_pin_gives_up), T(test_held_again),
                T(test_detach), T(test_detach_waits_for_busy), T(test_detach_bad_entry),
                T(test_frame_outside), T(test_discard_held), T(test_discard_claimed),
                T(test_protect_not_resident), T(test_protect_present), T(test_protect_held),
                T(test_protect_arena), T(test_protect_dirty), T(test_protect_waits),
                T(test_move), T(test_move_waits_for_busy), T(test_drop), T(test_drop_pinned),
                T(test_change_of_cold_pages), T(test_cool), T(test_second_chance),
                T(test_flush_for_a_quarter), T(test_flush_for_what_is_needed),
                T(test_evict_untouched), T(test_evict_clean_copy), T(test_evict_dirty),
                T(test_evict_software_dirty), T(test_used_by_calls), T(test_evict_held),
                T(test_evict_prefetched), T(test_evict_high), T(test_evict_all_high),
                T(test_evict_low), T(test_priority_travels), T(test_touch), T(test_not_evicted),
                T(test_locked_meanwhile), T(test_write_fails), T(test_written_meanwhile),
                T(test_use_while_written), T(test_pinned_while_written),
                T(test_locked_while_written), T(test_no_slot), T(test_no_claim_for_slot),
                T(test_no_slot_for_pinned), T(test_slot_taken_back), T(test_shared_slot),
                T(test_shared_slot_kept), T(test_search_in_vain), T(test_locked_frames),
                T(test_write_back_for_fork), T(test_write_back_full), T(test_reclaim),
                T(test_reclaim_bound), T(test_turn), T(test_reclaim_leaves),
                T(test_asks), T(test_exchange), T(test_too_few_cold), T(test_comes_back),
                T(test_ticks), T(test_says_nothing), T(test_late_hint), T(test_blind_hand),
                T(test_hot_count), T(test_mark), T(test_stopped_while_balancing),
                T(test_epochs), T(test_epoch_wrap), T(test_orphans_wait),
                T(test_notice_comes), T(test_notice_of_nothing), T(test_notice_of_failure),
                T(test_notice_of_unmapped), T(test_notice_of_demand), T(test_notice_of_copy),
                T(test_notice_limit), T(test_notice_late_look), T(test_notice_comes_early),
                T(test_notice_word_unmapped),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
