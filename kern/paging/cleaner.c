/*
 * The service vCPU: keeps a reserve of free frames by moving the CLOCK hand (pager/clock.c).
 *
 * It sleeps, in an exit, while enough frames are free; the vCPU that crosses the low mark wakes it.
 * It runs no program code, so its mode is never PROGRAM and no flush waits for it.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/flush.h"
#include "base/kern.h"
#include "base/page.h"
#include "base/state.h"
#include "far/slots.h"
#include "far/timed.h"
#include "pager/pager.h"
#include "paging/cleaner.h"

/* Frames that a pass frees at most, and those that the cold hand meets meanwhile, before waiters
 * hear of it. */
#define PASS_FRAMES 256
#define PASS_VISITS 4096

static uint32_t pass_visits(void)
{
        uint32_t n = pager.nframes / 4;
        return n > PASS_VISITS ? PASS_VISITS : n;
}

void cleaner_wake(void)
{
        if (!atomic_load_explicit(&control.service_asleep, memory_order_relaxed))
                return;
        /* The vCPU that clears the flag rings the doorbell: once a crossing. */
        if (atomic_exchange(&control.service_asleep, 0)) {
                atomic_fetch_add(&control.service_seq, 1);
                count(CNT_DOORBELLS);
                vmexit(EXIT_SERVICE_WAKE, 0, 0, 0);
        }
}

/* Bounds; the cleaner frees some pages much sooner. */
#define TURNS   16
#define TURN_NS 1000000ul
/* Calls that are passed over after a call in vain: where no frame can be freed, the cleaner would
 * look at all frames for each call. */
#define IN_VAIN 64

static bool has_less_than(uint32_t mark)
{
        return atomic_load_explicit(&pager.nfree, memory_order_relaxed) < mark;
}

/* nfree counts a batch that is on its way to a list or from it, too. */
static bool has_free(void) { return !has_less_than(1); }

static void wake_if_low(void)
{
        if (has_less_than(pager.low))
                cleaner_wake();
}

bool cleaner_gets_a_turn(void)
{
        static _Atomic uint32_t pass_over;      /* relaxed: a hint */
        uint32_t over = atomic_load_explicit(&pass_over, memory_order_relaxed);

        if (!atomic_load_explicit(&control.one_cpu, memory_order_relaxed) || over) {
                wake_if_low();
                if (over)
                        atomic_store_explicit(&pass_over, over - 1, memory_order_relaxed);
                return false;
        }
        /* As in frames_wait(), but this vCPU can go on without a frame.  The cleaner wakes wishers
         * after each pass, so that it takes some turns to stock up. */
        atomic_fetch_add(&control.frames_wishers, 1);
        for (unsigned i = 0; i < TURNS && has_less_than(pager.low); i++) {
                uint32_t seq = atomic_load(&control.frames_seq);
                wake_if_low();
                if (atomic_load_explicit(&control.stopping, memory_order_relaxed))
                        break;
                vmexit5(EXIT_WAIT_PTE, (uint64_t)&control.frames_seq, seq, 1, TURN_NS, 0);
        }
        atomic_fetch_sub(&control.frames_wishers, 1);
        if (has_less_than(pager.low / 2 + 1))
                atomic_store_explicit(&pass_over, IN_VAIN, memory_order_relaxed);
        return true;
}

static void wake_waiters(void)
{
        /* Full barrier: frames_seq moves before waiters and wishers are read. */
        atomic_fetch_add(&control.frames_seq, 1);
        if (atomic_load(&control.frames_waiters) + atomic_load(&control.frames_wishers) > 0)
                vmexit(EXIT_WAKE_FRAMES, 0, 0, 0);
}

/* Takes back what vCPUs have in stock.  Those that rest keep theirs; and a program may use all of
 * cache and far memory but for a reserve (base/charge.c), which may be less than the stocks.
 * True: there were some, or may be. */
static bool take_stocks(void)
{
        struct exit_stocks s;

        vmexit(EXIT_STOCKS, (uint64_t)&s, 0, 0);
        for (uint32_t i = 0; i < s.n; i++)
                frames_take_back(&pager, &s.chain[i]);
        return s.n > 0 || s.left;
}

/* Does this vCPU evict by itself, rather than wait for the cleaner?  Not if all threads share one
 * CPU and no other vCPU waits: then one sleep lets the cleaner free frames for many faults. */
static bool evicts_itself(void)
{
        return !atomic_load_explicit(&control.one_cpu, memory_order_relaxed) ||
               atomic_load_explicit(&control.frames_waiters, memory_order_relaxed) > 0;
}

int frames_wait(void)
{
        uint32_t seq = atomic_load(&control.frames_seq);
        bool starved = false;

        if (evicts_itself() &&
            clock_reclaim(&pager, &vcpu_self.sweeper, &vcpu_self.frames, counters()) > 0)
                return 0;
        count(CNT_FRAME_WAITS);
        /* Count this vCPU as a waiter (full barrier), then look once more.  The cleaner frees,
         * increments frames_seq, then looks for waiters; and before it sleeps it sets
         * service_asleep (full barrier), then looks for waiters. */
        atomic_fetch_add(&control.frames_waiters, 1);
        cleaner_wake();
        if (!frames_there(&pager)) {
                vmexit(EXIT_WAIT_FRAMES, seq, 0, 0);
                /* Only a finding from after this vCPU's request counts: an older finding is about
                 * pages that were in use then. */
                uint32_t found = atomic_load(&control.starved);
                bool newer = found != 0 && (int32_t)(found - seq) > 0;
                starved = newer && !frames_there(&pager);
        }
        atomic_fetch_sub(&control.frames_waiters, 1);
        return starved ? -ENOMEM : 0;
}

/*
 * When the cleaner gives up, and how a vCPU in frames_wait() learns of it.  A turn: the cold hand
 * has passed nframes frames, the hot hand twice as many, and all flushes are complete.  "only hot":
 * the turn met used pages, and none that could not be written.
 *
 *   event                                 fruitless turns  starved         the waiter
 *   a pass frees a frame                  0                0               woken; takes it
 *   a pass frees nothing, turn unfinished same             same            sleeps
 *   the first waiter arrives              0                same            sleeps
 *   a turn ends, waiter, only hot         0                same            sleeps
 *   a turn ends, waiter, busy frames      same             same            sleeps
 *   a turn ends, waiter, frames free or   same             same            woken
 *     in stock
 *   a turn ends otherwise                 + 1              same            sleeps
 *   FRUITLESS_TURNS, waiter               gives up         frames_seq + 1  woken: -ENOMEM
 *   FRUITLESS_TURNS, no waiter            gives up         same            -
 *
 * Pages that are only hot are no reason to fail a waiter: the vCPUs that keep them hot continue.
 * Busy frames are none either: an operation on a large range holds up to all frames until all TLBs
 * are flushed.  Frames that other vCPUs have in stock are taken back first.  A vCPU gives frames
 * back without waking a waiter, and another vCPU may take them before the waiter looks: so a turn
 * in which some are free does not count.  Turns before the waiter arrived do not count: it may
 * itself have kept pages hot.
 * `starved` is the frames_seq to which the wake-up moves, so a waiter believes it only if it is
 * newer than the frames_seq it read before it slept, and only while there is no free frame.
 */
#define FRUITLESS_TURNS 4

struct turn {
        uint32_t passed, shown, hot, busy, fruitless;
        uint64_t unwritable;
        bool waited_for;
};

/* A hot page is evicted after two visits of the hot hand and one of the cold hand. */
static bool is_over(const struct turn *t)
{
        return t->passed >= pager.nframes && t->shown >= 2 * pager.nframes;
}

static uint64_t unwritable(void)
{
        return atomic_load_explicit(&pager.unwritable, memory_order_relaxed);
}

/* Counts a pass that freed nothing.  True: give up. */
static bool fruitless(struct turn *t, const struct clock_result *r)
{
        bool waited_for = atomic_load(&control.frames_waiters) > 0;
        if (waited_for && !t->waited_for)
                *t = (struct turn){ .unwritable = unwritable() };
        t->waited_for = waited_for;
        t->passed += r->passed;
        t->shown += r->shown;
        t->hot += r->cleared + r->used;
        t->busy += r->busy;
        if (!is_over(t))
                return false;
        bool only_hot = t->hot > 0 && t->unwritable == unwritable();
        if (waited_for && only_hot) {
                t->fruitless = 0;
        } else if (waited_for && (take_stocks() || has_free() || t->busy)) {
                wake_waiters();
                vmexit(EXIT_YIELD, 0, 0, 0);    /* the vCPU that holds them may not be running */
        } else {
                t->fruitless++;
        }
        t->passed = t->shown = t->hot = t->busy = 0;
        t->unwritable = unwritable();
        return t->fruitless >= FRUITLESS_TURNS;
}

/* Frames that the hands have to free, beside those whose writes are under way. */
static uint32_t missing(void)
{
        uint32_t coming = atomic_load_explicit(&pager.nfree, memory_order_relaxed) + pager.writing;
        uint32_t high = atomic_load_explicit(&pager.high, memory_order_relaxed);

        return coming < high ? high - coming : 0;
}

static bool to_hold_still(void) { return atomic_load(&control.service_hold); }

/* Frees frames up to the high mark.  False: the cleaner gave up. */
static bool stock_up(void)
{
        struct turn turn = { .unwritable = unwritable() };

        while (atomic_load_explicit(&pager.nfree, memory_order_relaxed) < pager.high &&
               !to_hold_still()) {
                /* completes prefetches that no vCPU polls for; until then they hold frames */
                timed_poll();
                /* Enough writes are under way: wait for one first. */
                if (!env_slot_write_room() || missing() == 0)
                        slots_write_wait();
                uint32_t most = (uint32_t)lower(missing(), PASS_FRAMES);
                struct clock_result r = clock_pass(&pager, pass_visits(), most, counters());

                if (r.freed) {
                        turn = (struct turn){ .unwritable = unwritable() };
                        atomic_store(&control.starved, 0);
                        wake_waiters();
                        slots_lease_ahead();
                        continue;
                }
                if (r.unflushed)
                        flush_wait(atomic_load(&control.flush_epoch));
                if (pager.writing > 0) {
                        slots_write_wait();
                        continue;
                }
                if (fruitless(&turn, &r)) {
                        if (turn.waited_for)
                                atomic_store(&control.starved,
                                             atomic_load(&control.frames_seq) + 1);
                        wake_waiters();
                        return false;
                }
        }
        /* Frames stay claimed until their writes are over, so all are completed before this vCPU
         * sleeps. */
        while (pager.writing > 0) {
                slots_write_wait();
                clock_complete(&pager, counters());
        }
        wake_waiters();                 /* other vCPUs freed frames */
        return true;
}

/* Quiesced: sleeps until the host clears service_hold.  Another vCPU has the pager's writes
 * meanwhile.  No write is under way: stock_up() has waited for all. */
static void hold_still(void)
{
        while (to_hold_still()) {
                uint32_t seq = atomic_load(&control.service_seq);
                /* release: the vCPU that takes over sees pager and slots as this vCPU left them */
                atomic_store(&control.service_held, 1);
                if (to_hold_still())    /* the host clears it, then moves the sequence */
                        vmexit(EXIT_SERVICE_SLEEP, seq, 0, 0);
        }
        atomic_store(&control.service_held, 0);
}

_Noreturn void cleaner_main(void)
{
        for (;;) {
                hold_still();
                uint32_t seq = atomic_load(&control.service_seq);
                /* The host changes it, then moves the sequence. */
                pager_marks(&pager, !atomic_load(&control.far_off));
                bool stocked = stock_up();
                /* Set asleep (full barrier), then look once more.  A vCPU that pokes takes a frame,
                 * or becomes a waiter, then looks at asleep. */
                atomic_exchange(&control.service_asleep, 1);
                if ((atomic_load(&pager.nfree) >= pager.low ||
                     (!stocked && atomic_load(&control.frames_waiters) == 0)) &&
                    !to_hold_still()) {
                        /* Other vCPUs may have freed frames since stock_up().  They wake no
                         * waiters, so this does. */
                        wake_waiters();
                        vmexit(EXIT_SERVICE_SLEEP, seq, 0, 0);
                }
                atomic_store(&control.service_asleep, 0);
        }
}
