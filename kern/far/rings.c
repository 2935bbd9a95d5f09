/*
 * This vCPU's rings of far memory (abi_rings.h): requests to the host to move a page to or from a
 * node behind a SLAB_REMOTE slab.
 *
 * A vCPU has one demand read under way at a time, and waits for it.  The service vCPU has up to
 * IO_RING writes, and so has the vCPU that forks while the service vCPU is quiesced.
 */
#include <asm-generic/errno-base.h>
#include "base/cpu.h"
#include "base/exit.h"
#include "base/kern.h"
#include "base/latency.h"
#include "base/print.h"
#include "base/state.h"
#include "far/rings.h"
#include "pager/env.h"

static struct io_rings *rings(void) { return vcpu_rings(vcpu_self_fixed.number); }

/* After a full barrier behind the store to a tail: the entry is published before this vCPU looks
 * whether the I/O side polls its rings, and whether the I/O thread sleeps.  The I/O side stores
 * both words before it looks at the tails for the last time (runtime/far/polled.c, io.c). */
static void ring_doorbell(void)
{
        const uint32_t me = vcpu_self_fixed.number;

        if (!atomic_load_explicit(&rings()->polled, memory_order_relaxed))
                /* a full barrier as well */
                atomic_fetch_or(&control.io_news[me / 64], 1ull << me % 64);
        if (atomic_load_explicit(&control.io_asleep, memory_order_relaxed) &&
            atomic_exchange(&control.io_asleep, 0)) {
                count(CNT_IO_DOORBELLS);
                cpu_ring_doorbell();
        }
}

/* Only this vCPU writes tail. */
static void submit(struct io_ring *r, uint32_t tail)
{
        atomic_exchange(&r->tail, tail + 1);
        ring_doorbell();
}

static inline void read_page(uint64_t slot, frame_t f, uint16_t vcpu, uint16_t wrong,
                             uint64_t asked)
{
        struct io_ring *r = &rings()->demand;
        uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        struct io_entry *e = &r->entry[tail % IO_RING];

        if (tail - atomic_load_explicit(&r->head, memory_order_acquire) >= IO_RING)
                kern_bug("the ring of demand reads is full", tail, slot);
        e->op = IO_READ;
        e->frame = f;
        e->offset = vcpu;
        e->len = wrong;
        e->slot = slot;
        e->asked = asked;
        submit(r, tail);
}

void ring_read(uint64_t slot, frame_t f, pte_slot_t *pte)
{
        (void)pte;                      /* the host finds the entry by the frame */
        read_page(slot, f, 0, 0, fetch_sampled() ? cpu_tsc() : 0);
}

void ring_read_for(uint64_t slot, frame_t f, uint32_t vcpu, int wrong)
{
        read_page(slot, f, (uint16_t)(vcpu + 1), (uint16_t)(wrong + 1), 0);
}

bool ring_has_room(void)
{
        const struct io_ring *r = &rings()->demand;

        /* Else it could reuse the entry of a part, which is this vCPU's until that has come. */
        if (vcpu_self.part_asked)
                return false;
        /* Relaxed: a hint; only this vCPU fills the ring. */
        return atomic_load_explicit(&r->tail, memory_order_relaxed) -
                       atomic_load_explicit(&r->head, memory_order_relaxed) < IO_RING / 2;
}

struct io_entry *ring_part(uint64_t slot, uint32_t offset, uint32_t len, bool raw)
{
        struct io_ring *r = &rings()->demand;
        uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        struct io_entry *e = &r->entry[tail % IO_RING];

        if (tail - atomic_load_explicit(&r->head, memory_order_acquire) >= IO_RING)
                kern_bug("the ring of demand reads is full", tail, slot);
        atomic_store_explicit(&e->state, IO_ASKED, memory_order_relaxed);
        e->op = raw ? IO_PART_RAW : IO_PART;
        e->frame = pager.nframes + vcpu_self_fixed.number;
        e->offset = (uint16_t)offset;
        e->len = (uint16_t)len;
        e->slot = slot;
        e->asked = 0;
        vcpu_self.part_asked = 1;
        submit(r, tail);
        return e;
}

bool ring_part_over(const struct io_entry *e)
{
        /* Relaxed: a hint. */
        return atomic_load_explicit(&e->state, memory_order_relaxed) != IO_ASKED;
}

/* This vCPU asks for nothing else on this ring meanwhile: so the entry stays its own, although the
 * host has taken it off. */
int ring_part_wait(struct io_entry *e)
{
        /* Acquire, here and below: the bytes are there. */
        uint32_t state = atomic_load_explicit(&e->state, memory_order_acquire);

        /* The host wakes this vCPU only if it finds AWAITED. */
        if (state == IO_ASKED && atomic_compare_exchange_strong(&e->state, &state, IO_AWAITED))
                do
                        vmexit(EXIT_WAIT_PTE, (uint64_t)&e->state, IO_AWAITED, 0);
                while ((state = atomic_load(&e->state)) == IO_AWAITED);
        vcpu_self.part_asked = 0;
        return state == IO_LOST ? -EIO : 0;
}

uint32_t ring_prefetches(void)
{
        struct io_rings *r = rings();

        /* Relaxed: a hint.  The ring's own entries are free once head has passed them. */
        return atomic_load_explicit(&r->prefetch.tail, memory_order_relaxed) -
               atomic_load_explicit(&r->prefetches_over, memory_order_relaxed);
}

void ring_prefetch(uint64_t slot, frame_t f, bool marker)
{
        struct io_ring *r = &rings()->prefetch;
        uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        struct io_entry *e = &r->entry[tail % IO_RING];

        if (tail - atomic_load_explicit(&r->head, memory_order_acquire) >= IO_RING)
                kern_bug("the ring of prefetches is full", tail, slot);
        e->op = marker ? IO_MARKER : IO_PREFETCH;
        e->frame = f;
        e->slot = slot;
        e->asked = 0;
        /* Release: the entry is complete.  ring_prefetch_ring() rings the doorbell for all. */
        atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
}

void ring_prefetch_ring(void)
{
        _Atomic uint32_t *tail = &rings()->prefetch.tail;

        /* a full barrier, as in submit() */
        atomic_exchange(tail, atomic_load_explicit(tail, memory_order_relaxed));
        ring_doorbell();
}

void ring_promote(frame_t f)
{
        struct io_ring *r = &rings()->demand;
        uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        struct io_entry *e = &r->entry[tail % IO_RING];

        if (tail - atomic_load_explicit(&r->head, memory_order_acquire) >= IO_RING)
                return;
        e->op = IO_PROMOTE;
        e->frame = f;                   /* by now it may be another page's: a hint */
        e->slot = 0;
        e->asked = 0;
        submit(r, tail);
}

bool env_fetch_failed(void)
{
        _Atomic uint32_t *failed = &rings()->read_failed;

        /* Relaxed: the host stored the word before the entry, which this vCPU has read with
         * acquire. */
        if (__builtin_expect(!atomic_load_explicit(failed, memory_order_relaxed), 1))
                return false;
        atomic_store_explicit(failed, 0, memory_order_relaxed);
        return true;
}

void ring_write(uint64_t slot, frame_t f)
{
        struct io_ring *r = &rings()->bulk;
        uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        struct io_entry *e = &r->entry[tail % IO_RING];

        atomic_store_explicit(&e->state, IO_ASKED, memory_order_relaxed);
        e->op = IO_WRITE;
        e->frame = f;
        e->slot = slot;
        e->asked = control.stats_on ? cpu_tsc() : 0;
        submit(r, tail);
}

/* Writes are reported in the order they were asked for: a slow one delays the report of those
 * behind it. */
static bool is_over(uint32_t state) { return state == IO_OVER || state == IO_LOST; }

frame_t ring_written(int *err)
{
        struct io_ring *r = &rings()->bulk;
        struct io_entry *e = &r->entry[vcpu_self.writes_seen % IO_RING];
        /* Acquire: the node has the data; or the slot is DUE. */
        uint32_t state = atomic_load_explicit(&e->state, memory_order_acquire);

        if (vcpu_self.writes_seen == atomic_load_explicit(&r->tail, memory_order_relaxed) ||
            !is_over(state))
                return FRAME_NONE;
        vcpu_self.writes_seen++;
        if (e->asked)
                latency_add(LAT_WRITEBACK, cpu_tsc() - e->asked);
        *err = state == IO_LOST ? -EIO : 0;
        return e->frame;
}

#define WRITE_SPINS 100

void ring_write_wait(void)
{
        struct io_entry *e = &rings()->bulk.entry[vcpu_self.writes_seen % IO_RING];

        /* No thread waits for this vCPU: it yields its CPU to the threads that make completions. */
        for (unsigned spins = 0; spins < WRITE_SPINS; spins++) {
                if (is_over(atomic_load_explicit(&e->state, memory_order_relaxed)))
                        return;
                env_relax(0);
        }
        uint32_t asked = IO_ASKED;
        if (atomic_compare_exchange_strong(&e->state, &asked, IO_AWAITED) || asked == IO_AWAITED)
                vmexit(EXIT_WAIT_PTE, (uint64_t)&e->state, IO_AWAITED, 0);
}

void env_wake_pte(pte_slot_t *pte)
{
        vmexit(EXIT_WAKE_PTE, pte_word(pte), 0, 0);
}
