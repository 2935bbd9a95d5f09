/*
 * Slots: page-sized places in the far tiers.  The host leases slabs (control.slabs).  Memory that
 * the process tree shares says which slot is whose (far/slotmap.c), so taking and freeing a slot
 * needs no exit.
 */
#include <asm-generic/errno.h>
#include "base/cpu.h"
#include "base/exit.h"
#include "base/latency.h"
#include "base/lock.h"
#include "base/print.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "far/direct/queue.h"
#include "far/rings.h"
#include "far/slotmap.h"
#include "far/slots.h"
#include "far/timed.h"
#include "pager/env.h"

static struct slotmap slots;

/* For the vCPU that has the pager's writes (pager/cache.h) only. */
static uint64_t capacity;               /* slots in the slabs that kern uses */
/* yes: no slab is left, and no other process could free a slot.  Valid until a node is added: then
 * control.nodes_added differs from `nodes`. */
static struct { bool yes; uint32_t nodes; } out;
/* Until this TSC kern asks for no slab: the nodes have given all, and kern finds slots that other
 * processes of the tree free without an exit.  Then it asks again, since the host also looks for
 * dead processes. */
static uint64_t busy_until;
#define BUSY_MS 1
static bool mapped;                     /* the first unit of TREE_WINDOW */

/* A search by env_slot_take() was in vain, and since then no slab was added and this process has
 * freed no slot: a hint, relaxed, that saves a look at all chunks. */
static _Atomic bool in_vain;

static void may_find(void)
{
        if (atomic_load_explicit(&in_vain, memory_order_relaxed))
                atomic_store_explicit(&in_vain, false, memory_order_relaxed);
}

/* Shared slots to release, which the host does for a batch at a time.  The lock guards n and
 * slot. */
#define RELEASE_BATCH 64
static struct { struct lock lock; uint32_t n; uint64_t slot[RELEASE_BATCH]; } releasing;

static void release_now(void)
{
        if (releasing.n > 0)
                vmexit(EXIT_SLOTS_RELEASE, (uint64_t)releasing.slot, releasing.n, 0);
        releasing.n = 0;
}

static void release(uint64_t slot)
{
        lock_take(&releasing.lock);
        releasing.slot[releasing.n++] = slot;
        if (releasing.n == RELEASE_BATCH)
                release_now();
        lock_drop(&releasing.lock);
}

uint64_t slots_in_use(void)
{
        lock_take(&releasing.lock);
        release_now();
        lock_drop(&releasing.lock);
        return slotmap_held(&slots);
}

static const struct slab *slab_of(uint64_t slot) { return &control.slabs[slot >> SLAB_SHIFT]; }

bool env_slot_posted(uint64_t slot) { return slab_of(slot)->kind != SLAB_MEMORY; }

/* Makes slab i, which the host has leased, usable.  False: the pool has no page table left; the
 * next lease() begins again with this slab. */
static bool add_slab(uint32_t i)
{
        const struct slab *s = &control.slabs[i];

        if (i >= control.nslabs || s->pages == 0 || s->pages > SLAB_PAGES ||
            (s->kind != SLAB_MEMORY && s->kind != SLAB_REMOTE && s->kind != SLAB_TIMED))
                kern_bug("the host leased a slab that makes no sense", i, s->pages);
        if (!mapped) {
                mapped = pt_map_window(TREE_WINDOW, control.tree_gpa, SLAB_MAP_SIZE);
                if (!mapped)
                        return false;
                slotmap_init(&slots, (char *)TREE_WINDOW, control.slabs, control.tree_number);
        }
        if (!pt_map_window((uint64_t)tree_map(slots.units, i), s->map_gpa, SLAB_MAP_SIZE) ||
            (s->kind != SLAB_REMOTE &&
             !pt_map_window(s->va, s->gpa, (uint64_t)s->pages * PAGE_SIZE)))
                return false;
        if (s->kind == SLAB_TIMED && !timed_add(s))
                return false;
        if (s->kind == SLAB_REMOTE)
                direct_make(s->queues);
        capacity += s->pages;
        slots.nslabs = i + 1;
        may_find();
        return true;
}

static bool used_up(void)
{
        return out.yes &&
               out.nodes == atomic_load_explicit(&control.nodes_added, memory_order_relaxed);
}

/* True: there may be free slots now. */
static bool lease(void)
{
        uint32_t i = slots.nslabs;

        if (used_up())
                return false;
        /* Before the host is asked: a node that is added meanwhile is not missed. */
        out.nodes = atomic_load_explicit(&control.nodes_added, memory_order_acquire);
        int64_t ret = vmexit(EXIT_LEASE, i, 0, 0);
        out.yes = ret < 0 && ret != -EAGAIN && ret != -EBUSY;
        busy_until = ret == -EBUSY ? cpu_tsc() + BUSY_MS * control.tsc_khz : 0;
        return ret == -EAGAIN || (ret == 0 && add_slab(i));
}

void slots_fork(void)
{
        lock_take(&releasing.lock);
        release_now();
        lock_drop(&releasing.lock);
        out.yes = false;
        busy_until = 0;
}

static bool is_busy(void) { return busy_until && cpu_tsc() < busy_until; }

/* The slabs of the tree are added in order, no matter which process leased them. */
bool slots_reach(uint64_t slot)
{
        while (slot_slab(slot) >= slots.nslabs)
                if (!lease())
                        return false;
        return true;
}

void slots_lease_ahead(void)
{
        if (capacity != 0 && !is_busy() && capacity < slotmap_in_use(&slots) + capacity / 4)
                lease();
}

/* Guards the search for a slot: the cursor and what is set aside (far/slotmap.h).  Held for one
 * search, never over an exit but that of env_relax(). */
static _Atomic uint32_t searching;

/* Acquire: sees the cursor as the last holder left it. */
static bool may_search(void)
{
        return !atomic_exchange_explicit(&searching, 1, memory_order_acquire);
}

static uint64_t search_alone(bool steal)
{
        uint64_t slot = slotmap_take(&slots, steal);

        atomic_store_explicit(&searching, 0, memory_order_release);
        return slot;
}

static uint64_t search(bool steal)
{
        for (unsigned spins = 0; !may_search(); spins++)
                env_relax(spins);
        return search_alone(steal);
}

uint64_t env_slot_alloc(void)
{
        uint64_t slot;

        /* Saves a search that can only fail. */
        if (used_up() && slotmap_held(&slots) == capacity)
                return SLOT_NONE;
        while ((slot = search(false)) == SLOT_NONE)
                if (is_busy() || !lease())
                        return search(true);
        return slot;
}

uint64_t env_slot_take(void)
{
        /* Acquire: add_slab() has made the maps. */
        if (atomic_load_explicit(&in_vain, memory_order_relaxed) ||
            atomic_load_explicit(&slots.nslabs, memory_order_acquire) == 0)
                return SLOT_NONE;
        if (!may_search())              /* a fault waits for no other vCPU's search */
                return SLOT_NONE;
        uint64_t slot = search_alone(false);
        if (slot != SLOT_NONE && env_slot_posted(slot)) {
                slotmap_put(&slots, slot);
                slot = SLOT_NONE;
        }
        if (slot == SLOT_NONE)
                atomic_store_explicit(&in_vain, true, memory_order_relaxed);
        return slot;
}

void env_slot_free(uint64_t slot)
{
        if (!slotmap_put(&slots, slot))
                release(slot);
        may_find();
}

bool env_slot_writable(uint64_t slot) { return slotmap_writable(&slots, slot); }

static void *slot_va(const struct slab *s, uint64_t slot)
{
        return (void *)(s->va + (slot & (SLAB_PAGES - 1)) * PAGE_SIZE);
}

uint32_t slots_ahead(void) { return ring_prefetches() + timed_ahead(); }

/* A function of its own, so that a fault that copies the page itself saves no registers for this
 * call. */
static __attribute__((noinline)) void post_read(const struct slab *s, uint64_t slot, frame_t f,
                                                pte_slot_t *pte)
{
        bool timed = s->kind == SLAB_TIMED;
        /* Relaxed: direct_read() looks again. */
        struct direct_queue *q = atomic_load_explicit(&s->direct, memory_order_relaxed)
                                         ? direct_read(s, slot, f) : NULL;

        if (timed && q)
                timed_rung(q);
        else if (timed)
                timed_read(s, slot_va(s, slot), f, IO_READ);
        else if (!q)
                ring_read(slot, f, pte);
}

int env_slot_read(uint64_t slot, frame_t f, pte_slot_t *pte)
{
        const struct slab *s = slab_of(slot);

        if (s->kind != SLAB_MEMORY) {
                post_read(s, slot, f, pte);
                return ENV_POSTED;
        }
        copy_page(env_frame_va(f), slot_va(s, slot));
        return 0;
}

void *slot_bounce(void)
{
        uint32_t me = vcpu_self_fixed.number;

        return me < bounce_pages(pager.nframes) ? env_frame_va(pager.nframes + me) : NULL;
}

void slot_part_ask(struct slot_part *p)
{
        const struct slab *s = slab_of(p->slot);

        if (s->kind == SLAB_REMOTE)
                p->entry = ring_part(p->slot, p->offset, p->len, p->raw);
        else if (s->kind == SLAB_TIMED)
                p->due = timed_part(s, p->len);
}

int slot_part_take(const struct slot_part *p, void *to)
{
        const struct slab *s = slab_of(p->slot);
        const char *from = (char *)(s->kind == SLAB_REMOTE ? slot_bounce() : slot_va(s, p->slot)) +
                           p->offset;

        int err = 0;

        if (s->kind == SLAB_TIMED) {
                timed_part_wait(p->due);
        } else if (s->kind == SLAB_REMOTE) {
                for (uint64_t begun = 0; !ring_part_over(p->entry) && env_wait_on(&begun);)
                        env_relax(0);
                err = ring_part_wait(p->entry);
        }
        if (!err && to != from)
                memcpy(to, from, p->len);
        return err;
}

void env_slot_prefetch(uint64_t slot, frame_t f, pte_slot_t *pte, bool marker)
{
        const struct slab *s = slab_of(slot);

        (void)pte;                      /* the entry is found by the frame */
        if (s->kind == SLAB_TIMED)
                timed_read(s, slot_va(s, slot), f, marker ? IO_MARKER : IO_PREFETCH);
        else
                ring_prefetch(slot, f, marker);
}

/* For rings only: a wire by the clock brings pages in the order they were asked for. */
void slots_promote(frame_t f)
{
        uint64_t slot = pager.frames[f].slot;   /* by now it may be another page's: a hint */

        if (slot >> SLAB_SHIFT < control.nslabs && slab_of(slot)->kind == SLAB_REMOTE)
                ring_promote(f);
}

int env_slot_write(uint64_t slot, frame_t f)
{
        const struct slab *s = slab_of(slot);

        if (s->kind != SLAB_MEMORY) {
                if (s->kind == SLAB_TIMED)
                        timed_write(s, slot_va(s, slot), f);
                else
                        ring_write(slot, f);
                return ENV_POSTED;
        }
        uint64_t begun = control.stats_on ? cpu_tsc() : 0;
        copy_page(slot_va(s, slot), env_frame_va(f));
        if (begun)
                latency_add(LAT_WRITEBACK, cpu_tsc() - begun);
        return 0;
}

/* Both kinds of posted writes have room for as many. */
bool env_slot_write_room(void) { return pager.writing < IO_RING; }

frame_t env_slot_written(int *err)
{
        frame_t f = timed_written();

        *err = 0;
        return f != FRAME_NONE ? f : ring_written(err);
}

void slots_write_wait(void)
{
        if (!timed_write_wait())
                ring_write_wait();
}

/* --- waiting for an entry that is BUSY --- */

void env_wait_pte(pte_slot_t *pte, pte_t seen)
{
        const uint32_t half = pte_word_seen(seen);
        /* Another vCPU ends PART. */
        bool part = pte_kind(seen) == PTE_PART;

        void *word = (void *)pte_word(pte);
        frame_t f = (frame_t)(pte_num(seen) - pager.pfn0);

        if (!part && (timed_wait(word, half, f) || direct_wait(word, half, f)))
                return;
        vmexit(EXIT_WAIT_PTE, (uint64_t)word, half, part);
}

bool env_wait_on(uint64_t *begun)
{
        uint64_t now = cpu_tsc();

        if (!*begun)
                *begun = now;
        timed_poll();
        bool direct = direct_poll();
        /* Relaxed: a hint from the I/O thread that orders nothing. */
        uint64_t most = atomic_load_explicit(&control.wait_ticks, memory_order_relaxed);
        if (direct && most < DIRECT_SPIN_US * control.tsc_khz / 1000)
                most = DIRECT_SPIN_US * control.tsc_khz / 1000;
        return now - *begun < most;
}
