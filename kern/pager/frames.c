/*
 * Free frames: a global list under a lock, and a reserve for each vCPU so that the lock is taken
 * once a batch.
 */
#include "abi_stats.h"
#include "pager/pager.h"

#define LIST_END FRAME_NONE

/* Frames that are kept free: at least two batches of prefetches, at most 16 MiB. */
#define RESERVE_MIN 128
#define RESERVE_MAX 4096

static void pool_lock(struct pager *pg)
{
        unsigned spins = 0;

        /* Acquire: sees the list as the last holder left it. */
        while (atomic_exchange_explicit(&pg->lock, 1, memory_order_acquire))
                env_relax(spins++);
}

static void pool_unlock(struct pager *pg)
{
        atomic_store_explicit(&pg->lock, 0, memory_order_release);
}

void pager_init(struct pager *pg, struct frame *frames, uint32_t nframes, uint64_t pfn0)
{
        *pg = (struct pager){
                .frames = frames, .nframes = nframes, .pfn0 = pfn0, .free_head = LIST_END,
                .notices = { .frames = frames, .pfn0 = pfn0 },
        };
        atomic_init(&pg->nfree, nframes);

        pager_marks(pg, true);
        pager_share(pg, 2);
}

/* Room for a burst while the cleaner wakes up.  The reserve caches nothing, so it is a 32nd of the
 * frames; in a small cache it is more, but at most an eighth. */
static uint32_t reserve_of(uint32_t nframes)
{
        uint32_t n = nframes / 32, least = nframes / 8;

        if (least > RESERVE_MIN)
                least = RESERVE_MIN;
        if (n < least)
                n = least;
        return n < RESERVE_MAX ? n : RESERVE_MAX;
}

/* Without a reserve the cleaner is woken when no frame is left. */
void pager_marks(struct pager *pg, bool reserve)
{
        uint32_t high = reserve ? reserve_of(pg->nframes) : 0;

        if (high < FRAME_BATCH / 2)
                high = FRAME_BATCH / 2;
        atomic_store_explicit(&pg->high, high, memory_order_relaxed);
        atomic_store_explicit(&pg->low, reserve ? high / 2 : 1, memory_order_relaxed);
}

/* The reserves must not use up a small cache: all vCPUs together keep at most an eighth of it, two
 * batches each. */
void pager_share(struct pager *pg, uint32_t vcpus)
{
        uint32_t b = pg->nframes / (16 * (vcpus < 2 ? 2 : vcpus));
        atomic_store_explicit(&pg->batch,
                              b > FRAME_BATCH ? FRAME_BATCH
                              : b < 2         ? 2
                                              : b,
                              memory_order_relaxed);
}

static uint32_t batch_size(struct pager *pg)
{
        return atomic_load_explicit(&pg->batch, memory_order_relaxed);
}

static void refill(struct pager *pg, struct frame_list *l)
{
        uint32_t want = batch_size(pg);

        pool_lock(pg);
        while (l->n < want) {
                frame_t f = pg->free_head;
                if (f != LIST_END)
                        pg->free_head = (frame_t)pg->frames[f].slot;
                else if (pg->fresh < pg->nframes)
                        f = pg->fresh++;
                else
                        break;
                l->f[l->n++] = f;
                atomic_fetch_sub_explicit(&pg->nfree, 1, memory_order_relaxed);
        }
        pool_unlock(pg);
}

/* Pushes onto the global list.  Its lock is held. */
static void push(struct pager *pg, frame_t n)
{
        pg->frames[n].slot = pg->free_head;
        pg->free_head = n;
        atomic_fetch_add_explicit(&pg->nfree, 1, memory_order_relaxed);
}

static void spill(struct pager *pg, struct frame_list *l, uint32_t keep)
{
        pool_lock(pg);
        while (l->n > keep)
                push(pg, l->f[--l->n]);
        pool_unlock(pg);
}

bool frame_list_refill(struct pager *pg, struct frame_list *l, uint64_t *cnt)
{
        refill(pg, l);
        cnt[CNT_REFILLS]++;
        return l->n > 0;
}

/* A claimed frame that no entry names becomes a free one, on no list yet. */
static void frame_reset(struct pager *pg, struct frame *f)
{
        if (atomic_load_explicit(&f->word, memory_order_relaxed) & FRAME_LOCKED)
                atomic_fetch_sub_explicit(&pg->locked, 1, memory_order_relaxed);
        if (f->slot != SLOT_NONE)
                env_slot_free(f->slot);
        f->slot = SLOT_NONE;
        atomic_store_explicit(&f->word, 0, memory_order_release);
}

void frame_free(struct pager *pg, struct frame_list *l, frame_t n)
{
        frame_reset(pg, &pg->frames[n]);
        if (l->n == sizeof(l->f) / sizeof(l->f[0]) || l->n >= 2 * batch_size(pg))
                spill(pg, l, batch_size(pg));
        l->f[l->n++] = n;
}

void frame_free_global(struct pager *pg, frame_t n)
{
        frame_reset(pg, &pg->frames[n]);
        pool_lock(pg);
        push(pg, n);
        pool_unlock(pg);
}

void frame_list_drain(struct pager *pg, struct frame_list *l)
{
        spill(pg, l, 0);
}

void frame_discard(struct pager *pg, struct frame_list *l, frame_t n)
{
        struct frame *f = &pg->frames[n];
        uint64_t w = atomic_load(&f->word);

        for (;;) {
                if (frame_claim(f, w)) {
                        frame_free(pg, l, n);
                        return;
                }
                w = atomic_load(&f->word);
                if (!frame_word_held(w))
                        continue;
                /* Held by a system call's pin or by the hand: the hand frees it when it next passes
                 * and the frame is no longer held. */
                if (atomic_compare_exchange_strong(&f->word, &w, w | FRAME_ORPHAN))
                        return;
        }
}
