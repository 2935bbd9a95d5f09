/*
 * Free frames: lists of batches that all vCPUs share, and a stock of each vCPU.  So a vCPU touches
 * what others write only once a batch.
 *
 * A batch is a chain of free frames, named by the first.  The slot of a frame in it has the next
 * frame; in the first of a batch that is on a list it also has, above, how many they are.  `below`
 * of the first is the batch below it on the list.  So batches move whole, whatever their length.
 *
 * [I] A list is one word: its first batch, and a tag that each change increments.  A vCPU reads
 * which batch is below, then takes the first by one compare-and-swap.  Meanwhile other vCPUs may
 * have taken that batch and given it back, with another one below: then the tag differs.  It has 32
 * bits, and would have to wrap around within these few instructions.
 *
 * Frames that were never used are taken from one cursor, once the lists are empty.
 */
#include "abi_stats.h"
#include "pager/pager.h"

#define NO_BATCH FRAME_NONE

/* Frames that are kept free: at least two batches of prefetches, at most 16 MiB. */
#define RESERVE_MIN 128
#define RESERVE_MAX 4096

void pager_init(struct pager *pg, struct frame *frames, uint32_t nframes, uint64_t pfn0)
{
        *pg = (struct pager){
                .frames = frames, .nframes = nframes, .pfn0 = pfn0,
                .notices = { .frames = frames, .pfn0 = pfn0 },
                .spare_slot = SLOT_NONE,
        };

        atomic_init(&pg->nfree, nframes);
        for (unsigned i = 0; i < FREE_LISTS; i++)
                atomic_init(&pg->list[i].head, NO_BATCH);

        pager_marks(pg, true);
        pager_share(pg, 2);

        struct balance b;
        balance_init(&b, frames_for_hands(pg));
        for (size_t i = 0; i < BALANCE_WORDS; i++)
                atomic_init(&pg->balance[i], ((uint32_t *)&b)[i]);
        atomic_init(&pg->target, b.target);
        atomic_init(&pg->now, pte_now(b.tick));
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

/* The stocks must not use up a small cache: all vCPUs together keep at most an eighth of it, two
 * batches each.  But a stock that was filled when there were fewer vCPUs stays as large until its
 * vCPU refills it, or until it is taken back (paging/cleaner.c). */
void pager_share(struct pager *pg, uint32_t vcpus)
{
        uint32_t b = pg->nframes / (16 * (vcpus < 2 ? 2 : vcpus));

        b = b > FRAME_BATCH ? FRAME_BATCH : b < 2 ? 2 : b;
        atomic_store_explicit(&pg->batch, b, memory_order_relaxed);
        atomic_store_explicit(&pg->stocked, vcpus * b / 2, memory_order_relaxed);
}

static uint32_t batch_size(struct pager *pg)
{
        return atomic_load_explicit(&pg->batch, memory_order_relaxed);
}

static void chain_add(struct pager *pg, struct frame_chain *c, frame_t n)
{
        pg->frames[n].slot = c->first;
        *c = (struct frame_chain){ n, c->n + 1 };
}

/* Cuts off all behind the first `keep` frames. */
static struct frame_chain chain_cut(struct pager *pg, struct frame_chain *c, uint32_t keep)
{
        struct frame_chain rest = { c->first, c->n - keep };

        for (uint32_t i = 0; i < keep; i++)
                rest.first = (frame_t)pg->frames[rest.first].slot;
        c->n = keep;
        return rest;
}

/* The word of a list that was `head` and now begins with this batch. */
static uint64_t list_next(uint64_t head, frame_t first)
{
        return ((head >> 32) + 1) << 32 | first;
}

static frame_t list_below(const struct frame *f)
{
        return atomic_load_explicit(&f->below, memory_order_relaxed);
}

/* Gives a chain back, which is then empty.  Neighbours that are freed one after the other go to
 * several lists. */
static void batch_give(struct pager *pg, struct frame_chain *c)
{
        struct frame *f = &pg->frames[c->first];
        _Atomic uint64_t *list = &pg->list[c->first / FRAME_BATCH % FREE_LISTS].head;
        uint64_t head = atomic_load_explicit(list, memory_order_relaxed);

        f->slot = (uint64_t)c->n << 32 | (frame_t)f->slot;
        /* Relaxed: other threads order nothing by the number. */
        atomic_fetch_add_explicit(&pg->nfree, c->n, memory_order_relaxed);
        do {
                atomic_store_explicit(&f->below, (frame_t)head, memory_order_relaxed);
                /* Release: the vCPU that takes the batch sees its chain, and what is below. */
        } while (!atomic_compare_exchange_weak_explicit(list, &head, list_next(head, c->first),
                                                        memory_order_release,
                                                        memory_order_relaxed));
        c->n = 0;
}

/* Takes the first batch of a list; NO_BATCH: there is none. */
static frame_t batch_take(struct pager *pg, _Atomic uint64_t *list)
{
        /* Acquire: sees what batch_give() wrote, of this batch and of those below. */
        uint64_t head = atomic_load_explicit(list, memory_order_acquire);
        frame_t first;

        do {
                first = (frame_t)head;
                if (first == NO_BATCH)
                        return NO_BATCH;
        } while (!atomic_compare_exchange_weak_explicit(
                list, &head, list_next(head, list_below(&pg->frames[first])),
                memory_order_acquire, memory_order_acquire));
        return first;
}

/* Takes a batch.  A vCPU begins with the list after its last one: so vCPUs spread. */
static bool take_batch(struct pager *pg, struct frame_list *l)
{
        for (unsigned i = 0; i < FREE_LISTS; i++) {
                frame_t first = batch_take(pg, &pg->list[l->list++ % FREE_LISTS].head);
                if (first == NO_BATCH)
                        continue;
                l->free = (struct frame_chain){
                        first, (uint32_t)(pg->frames[first].slot >> 32)
                };
                return true;
        }
        return false;
}

/* Relaxed: nobody has written to these frames. */
static void take_fresh(struct pager *pg, struct frame_list *l, uint32_t want)
{
        uint32_t at = atomic_load_explicit(&pg->fresh, memory_order_relaxed), n;

        do {
                n = want < pg->nframes - at ? want : pg->nframes - at;
        } while (n > 0 && !atomic_compare_exchange_weak_explicit(
                                  &pg->fresh, &at, at + n, memory_order_relaxed,
                                  memory_order_relaxed));
        while (n > 0)
                chain_add(pg, &l->free, at + --n);
}

/* Gives back all but `keep` frames of a stock. */
static void spill(struct pager *pg, struct frame_list *l, uint32_t keep)
{
        struct frame_chain rest = chain_cut(pg, &l->free, keep);

        batch_give(pg, &rest);
}

bool frame_list_refill(struct pager *pg, struct frame_list *l, uint64_t *cnt)
{
        uint32_t want = batch_size(pg), low = atomic_load_explicit(&pg->low, memory_order_relaxed);

        cnt[CNT_REFILLS]++;
        /* Where frames are short, vCPUs look here often: they write nothing then. */
        if (atomic_load(&pg->nfree) == 0) {
                l->low = true;
                atomic_thread_fence(memory_order_seq_cst);      /* as below */
                return false;
        }
        if (!take_batch(pg, l))
                take_fresh(pg, l, want);
        /* Full barrier, before this vCPU looks at service_asleep: a cleaner that falls asleep sees
         * this number, or is seen asleep (cleaner_main). */
        l->low = atomic_fetch_sub(&pg->nfree, l->free.n) - l->free.n < low;
        if (l->free.n > 2 * want)       /* a batch from when there were fewer vCPUs */
                spill(pg, l, want);
        return l->free.n > 0;
}

/* A claimed frame that no entry names becomes a free one, on no list yet. */
static void frame_reset(struct pager *pg, struct frame_list *l, struct frame *f)
{
        uint64_t w = atomic_load_explicit(&f->word, memory_order_relaxed);

        if (w & FRAME_LOCKED)
                atomic_fetch_sub_explicit(&pg->locked, 1, memory_order_relaxed);
        if (w & FRAME_HOT)
                frames_hot(pg, l, -1);
        if (f->slot != SLOT_NONE)
                env_slot_free(f->slot);
        f->slot = SLOT_NONE;
        atomic_store_explicit(&f->word, 0, memory_order_release);
}

void frame_free(struct pager *pg, struct frame_list *l, frame_t n)
{
        frame_reset(pg, l, &pg->frames[n]);
        if (l->free.n >= 2 * batch_size(pg))
                spill(pg, l, batch_size(pg));
        chain_add(pg, &l->free, n);
}

void frame_collect(struct pager *pg, frame_t n)
{
        frame_reset(pg, &pg->freed, &pg->frames[n]);
        chain_add(pg, &pg->freed.free, n);
        if (pg->freed.free.n >= batch_size(pg))
                frames_give(pg);
}

void frames_give(struct pager *pg) { frame_list_drain(pg, &pg->freed); }

void frames_take_back(struct pager *pg, struct frame_chain *stock) { batch_give(pg, stock); }

bool frames_there(struct pager *pg)
{
        for (unsigned i = 0; i < FREE_LISTS; i++)
                if ((frame_t)atomic_load(&pg->list[i].head) != NO_BATCH)
                        return true;
        return atomic_load(&pg->fresh) < pg->nframes;
}

void frame_list_drain(struct pager *pg, struct frame_list *l)
{
        if (l->free.n > 0)
                batch_give(pg, &l->free);
        frames_hot_told(pg, l);
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
