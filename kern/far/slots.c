/*
 * Slots: page-sized places in the far tiers.  The host leases slabs (control.slabs).  Memory that
 * the process tree shares says which slot is whose (far/slotmap.c), so taking and freeing a slot
 * needs no exit.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/lock.h"
#include "base/print.h"
#include "base/string.h"
#include "base/tables.h"
#include "far/rings.h"
#include "far/slotmap.h"
#include "far/slots.h"

static struct slotmap slots;

/* For the vCPU that has the pager's writes (pager/pager.h) only. */
static uint64_t capacity;               /* slots in our slabs */
/* no slab is left, and no other process could free a slot */
static bool used_up;
static bool mapped;                     /* the first unit of TREE_WINDOW */

/* Shared slots to release, which the host does for a batch at a time.  The lock guards the other
 * two. */
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

/* Makes slab i, which the host has leased, usable.  False: the pool has no page table left; the
 * next lease() begins again with this slab. */
static bool add_slab(uint32_t i)
{
        const struct slab *s = &control.slabs[i];

        if (i >= control.nslabs || s->pages == 0 || s->pages > SLAB_PAGES ||
            (s->kind != SLAB_MEMORY && s->kind != SLAB_REMOTE))
                kern_bug("the host leased a slab that makes no sense", i, s->pages);
        if (!mapped) {
                mapped = pt_map_window(TREE_WINDOW, control.tree_gpa, SLAB_MAP_SIZE);
                if (!mapped)
                        return false;
                slotmap_init(&slots, (char *)TREE_WINDOW, control.slabs, control.tree_number);
        }
        if (!pt_map_window((uint64_t)tree_map(slots.units, i), s->map_gpa, SLAB_MAP_SIZE) ||
            (s->kind == SLAB_MEMORY &&
             !pt_map_window(s->va, s->gpa, (uint64_t)s->pages * PAGE_SIZE)))
                return false;
        capacity += s->pages;
        slots.nslabs = i + 1;
        return true;
}

/* True: there may be free slots now. */
static bool lease(void)
{
        uint32_t i = slots.nslabs;

        if (used_up)
                return false;
        int64_t ret = vmexit(EXIT_LEASE, i, 0, 0);
        used_up = ret < 0 && ret != -EAGAIN && ret != -EBUSY;
        return ret == -EAGAIN || (ret == 0 && add_slab(i));
}

void slots_fork(void)
{
        lock_take(&releasing.lock);
        release_now();
        lock_drop(&releasing.lock);
        used_up = false;
}

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
        if (capacity != 0 && capacity < slotmap_in_use(&slots) + capacity / 4)
                lease();
}

uint64_t env_slot_alloc(void)
{
        uint64_t slot;

        /* Saves a search that can only fail. */
        if (used_up && slotmap_held(&slots) == capacity)
                return SLOT_NONE;
        while ((slot = slotmap_take(&slots, false)) == SLOT_NONE)
                if (!lease())
                        return slotmap_take(&slots, true);
        return slot;
}

void env_slot_free(uint64_t slot)
{
        if (!slotmap_put(&slots, slot))
                release(slot);
}

bool env_slot_writable(uint64_t slot) { return slotmap_writable(&slots, slot); }

static const struct slab *slab_of(uint64_t slot) { return &control.slabs[slot >> SLAB_SHIFT]; }
static void *slot_va(const struct slab *s, uint64_t slot)
{
        return (void *)(s->va + (slot & (SLAB_PAGES - 1)) * PAGE_SIZE);
}

int env_slot_read(uint64_t slot, frame_t f, pte_slot_t *pte)
{
        const struct slab *s = slab_of(slot);

        if (s->kind != SLAB_MEMORY) {
                ring_read(slot, f, pte);
                return ENV_POSTED;
        }
        copy_page(env_frame_va(f), slot_va(s, slot));
        return 0;
}

int env_slot_write(uint64_t slot, frame_t f)
{
        const struct slab *s = slab_of(slot);

        if (s->kind != SLAB_MEMORY) {
                ring_write(slot, f);
                return ENV_POSTED;
        }
        copy_page(slot_va(s, slot), env_frame_va(f));
        return 0;
}
