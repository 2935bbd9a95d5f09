/*
 * Slots: page-sized places in the far tiers.  The host leases slabs (control.slabs); each has a bitmap here.
 *
 * The service vCPU allocates, in order, so that neighbours are written to neighbouring slots; any vCPU frees.
 */
#include <asm-generic/errno-base.h>
#include "kern.h"
#include "pt.h"

#define SLAB_PAGES   (1u << SLAB_SHIFT)
#define BITS_A_PAGE  (PAGE_SIZE * 8)
#define MAP_PAGES    (SLAB_PAGES / BITS_A_PAGE)

/* A slab's bitmap: bit set = in use.  Bits are set by the service vCPU alone and cleared by whoever frees. */
struct slab_map { _Atomic uint64_t *bits[MAP_PAGES]; };

static struct slab_map maps[SLABS_MAX];
static uint32_t nmaps;                          /* slabs whose bitmap exists; service vCPU only, as all below but used */
static uint64_t capacity;                       /* slots in all leased slabs */
static uint64_t cursor;                         /* next slot number to try */
static bool exhausted;                          /* the host has no more slabs */
static _Atomic uint64_t used;

uint64_t slots_in_use(void) { return atomic_load_explicit(&used, memory_order_relaxed); }

static bool lease(void)
{
        if (exhausted || nmaps == SLABS_MAX)
                return false;
        if (vmexit(EXIT_LEASE, 0, 0, 0) != 0) {
                exhausted = true;
                return false;
        }
        uint32_t i = (uint32_t)vcpu_self.exit.out[0];
        struct slab *s = &control.slabs[i];
        if (i != nmaps || s->pages == 0 || s->pages > SLAB_PAGES || (s->kind != SLAB_MEMORY && s->kind != SLAB_REMOTE))
                kern_bug("the host leased a slab that makes no sense", i, s->pages);
        for (uint32_t b = 0; b * BITS_A_PAGE < s->pages; b++)
                if (!(maps[i].bits[b] = pool_page(POOL_SLOTS)))
                        return false;
        if (s->kind == SLAB_MEMORY && !pt_map_window(s->va, s->gpa, (uint64_t)s->pages * PAGE_SIZE))
                return false;
        nmaps++;
        capacity += s->pages;
        return true;
}

void slots_lease_ahead(void)
{
        if (capacity - slots_in_use() < capacity / 4 || capacity == 0)
                lease();
}

/* The first free slot of slab i at or after page `from`, marked used; SLOT_NONE if there is none. */
static uint64_t search_slab(uint32_t i, uint32_t from)
{
        uint32_t pages = control.slabs[i].pages;

        for (uint32_t at = from; at < pages; at = (at | 63) + 1) {
                _Atomic uint64_t *word = &maps[i].bits[at / BITS_A_PAGE][at % BITS_A_PAGE / 64];
                uint64_t w = atomic_load_explicit(word, memory_order_relaxed) | ((1ull << (at & 63)) - 1);
                if (pages - (at & ~63u) < 64)
                        w |= ~0ull << (pages & 63);
                if (w == ~0ull)
                        continue;
                uint32_t bit = (uint32_t)__builtin_ctzll(~w);
                /* Acquire: the slot's last owner has let go of its content (env_slot_free). */
                atomic_fetch_or_explicit(word, 1ull << bit, memory_order_acquire);
                return (uint64_t)i << SLAB_SHIFT | ((at & ~63u) + bit);
        }
        return SLOT_NONE;
}

uint64_t env_slot_alloc(void)
{
        if (slots_in_use() == capacity && !lease())
                return SLOT_NONE;
        for (uint32_t tries = 0; tries <= nmaps; tries++) {
                uint32_t slab = (uint32_t)(cursor >> SLAB_SHIFT);
                uint64_t s = slab < nmaps ? search_slab(slab, cursor & (SLAB_PAGES - 1)) : SLOT_NONE;
                if (s != SLOT_NONE) {
                        cursor = s + 1;
                        atomic_fetch_add_explicit(&used, 1, memory_order_relaxed);
                        return s;
                }
                cursor = slab + 1 < nmaps ? (uint64_t)(slab + 1) << SLAB_SHIFT : 0;
        }
        return SLOT_NONE;
}

void env_slot_free(uint64_t slot)
{
        uint32_t i = (uint32_t)(slot >> SLAB_SHIFT), page = slot & (SLAB_PAGES - 1);
        _Atomic uint64_t *word = &maps[i].bits[page / BITS_A_PAGE][page % BITS_A_PAGE / 64];
        uint64_t bit = 1ull << (page & 63);

        if (!(atomic_fetch_and_explicit(word, ~bit, memory_order_release) & bit))
                kern_bug("a slot was freed twice", slot, 0);
        atomic_fetch_sub_explicit(&used, 1, memory_order_relaxed);
}

static const struct slab *slab_of(uint64_t slot) { return &control.slabs[slot >> SLAB_SHIFT]; }
static void *slot_va(const struct slab *s, uint64_t slot) { return (void *)(s->va + (slot & (SLAB_PAGES - 1)) * PAGE_SIZE); }

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
