/*
 * The service vCPU: keeps free frames in stock by moving the CLOCK hand (pager/clock.c).
 *
 * It sleeps, in an exit, while enough frames are free; the vCPU that crosses the low mark wakes it.  It runs no program code, so its
 * mode is never PROGRAM and no flush waits for it.
 */
#include <asm-generic/errno-base.h>
#include "cpu.h"
#include "kern.h"

/* Frames the hand passes before the flush for what it cleared is asked for. */
static uint32_t pass_size(void)
{
        uint32_t n = pager.nframes / 8;
        return n > 256 ? 256 : n;
}

void cleaner_poke(void)
{
        if (atomic_load_explicit(&pager.nfree, memory_order_relaxed) >= pager.low ||
            !atomic_load_explicit(&control.service_asleep, memory_order_relaxed))
                return;
        /* Whoever takes the flag down rings the bell: one bell a crossing. */
        if (atomic_exchange(&control.service_asleep, 0)) {
                atomic_fetch_add(&control.service_seq, 1);
                count(CNT_DOORBELLS);
                vmexit(EXIT_SERVICE_WAKE, 0, 0, 0);
        }
}

static void wake_waiters(void)
{
        atomic_fetch_add(&control.frames_seq, 1);       /* full barrier: before the look at the waiters */
        if (atomic_load(&control.frames_waiters) > 0)
                vmexit(EXIT_WAKE_FRAMES, 0, 0, 0);
}

#define RECLAIM_SCAN 64

/* Takes a clean, cold frame without help. */
static bool reclaim_directly(void)
{
        struct vcpu *v = &vcpu_self;

        for (unsigned i = 0; i < RECLAIM_SCAN; i++) {
                uint32_t n = v->reclaim_hand;
                v->reclaim_hand = n + 1 >= pager.nframes ? 0 : n + 1;
                if (clock_take_clean(&pager, n)) {
                        frame_free(&pager, &v->frames, n);
                        count(CNT_DIRECT_RECLAIM);
                        return true;
                }
        }
        return false;
}

int frames_wait(void)
{
        uint32_t seq = atomic_load(&control.frames_seq);

        if (reclaim_directly())
                return 0;
        if (atomic_load(&control.starved))
                return -ENOMEM;
        count(CNT_FRAME_WAITS);
        cleaner_poke();
        /* Counted as a waiter (full barrier), then look once more: the cleaner frees, bumps the sequence, then looks for waiters. */
        atomic_fetch_add(&control.frames_waiters, 1);
        if (atomic_load(&pager.nfree) == 0 && !atomic_load(&control.starved))
                vmexit(EXIT_WAIT_FRAMES, seq, 0, 0);
        atomic_fetch_sub(&control.frames_waiters, 1);
        return 0;
}

/* Turns of the hand without a single free frame, with flushes complete, after which waiting has no point. */
#define FRUITLESS_TURNS 4

static void stock_up(void)
{
        uint64_t passed = 0;

        while (atomic_load_explicit(&pager.nfree, memory_order_relaxed) < pager.high) {
                uint32_t n = pass_size();
                struct clock_result r = clock_pass(&pager, n, counters());

                if (r.freed) {
                        passed = 0;
                        atomic_store(&control.starved, 0);
                        wake_waiters();
                        slots_lease_ahead();
                        continue;
                }
                if (r.unflushed)
                        flush_wait(atomic_load(&control.flush_epoch));
                passed += n;
                if (passed > (uint64_t)pager.nframes * FRUITLESS_TURNS) {
                        atomic_store(&control.starved, 1);
                        wake_waiters();
                        return;
                }
        }
}

_Noreturn void cleaner_main(void)
{
        for (;;) {
                uint32_t seq = atomic_load(&control.service_seq);
                stock_up();
                /* Asleep (full barrier), then look once more: a poker takes a frame, then looks at asleep. */
                atomic_exchange(&control.service_asleep, 1);
                if (atomic_load(&pager.nfree) >= pager.low || atomic_load(&control.starved))
                        vmexit(EXIT_SERVICE_SLEEP, seq, 0, 0);
                atomic_store(&control.service_asleep, 0);
        }
}
