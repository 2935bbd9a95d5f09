/*
 * Which page goes: a CLOCK with two hands over one array of frames (docs/architecture.md,
 * "Eviction").
 *
 * Frames are cold, or HOT.  The cold hand passes hot frames by.  It clears A of a cold page that
 * was used, and evicts one that was not.  A page asks to be hot when the cold hand finds it used
 * for the second time, or for the first after it came BACK soon after its eviction: the use for
 * which it was brought in proves nothing.  It becomes hot while more frames are cold than the
 * target says.  Else each fourth request moves the hot hand by a frame, and is granted if that
 * frame was hot and unused.  The hot hand clears A of a hot page that was used, and makes one that
 * was not cold.  It also moves while too few frames are cold, and while the cold hand finds nothing
 * to evict.
 *
 * Both hands are counters; evictors take the frames from them by pieces.  The target follows from
 * which pages come back (balance.h).  As long as nothing shows that this is better than CLOCK,
 * seven eighths of the frames are to be cold.
 *
 * A page of high priority is hot when the cold hand meets it, and the hot hand leaves it for two
 * more visits.  The number of visits is fixed: if all pages have high priority, the evictions only
 * come that many turns later.  A page of low priority is never hot, and is evicted as soon as the
 * flush is over that covers its first visit.
 *
 * A page that only system calls use never gets A.  Their pins set USED in the frame word, which
 * counts as A does and is cleared with it.
 */
#include "pager/evict.h"

/* The hot hand leaves a page of high priority as often. */
#define HIGH_STAYS (2 * FRAME_STAYED_1)
/* Frames that the hot hand passes for each of the cold hand, while too few are cold. */
#define HOT_PACE 8
/* Requests to be hot for each frame that the hot hand passes. */
#define REQUESTS 4

#define INLINE static inline __attribute__((always_inline))

/* What all steps of an evictor's hands need.  l: NULL for the cleaner, as for evict().  Functions
 * that are not inlined take it by value: its address would keep it out of registers, which costs
 * some 20 instructions an eviction. */
struct step {
        struct pager *pg;
        struct sweeper *s;
        struct frame_list *l;
        struct clock_result *r;
        uint64_t *cnt;
        uint32_t want;                  /* frames that are freed, or claimed for a write, then */
        uint32_t visits;                /* frames that the cold hand meets, at most */
};

static bool enough(const struct step *t)
{
        return t->r->freed + (t->l ? 0 : t->pg->writing) >= t->want;
}

static struct frame_list *list_of(const struct step *t) { return t->l ? t->l : &t->pg->freed; }

/* A frame became hot, or ceased to be. */
INLINE void changed(const struct step *t, int32_t by)
{
        t->s->over -= by;
        t->s->hot += by;
        frames_hot(t->pg, list_of(t), by);
}

/* Must a frame stay because its flush is not over? */
static bool is_unflushed(uint64_t w, struct clock_result *r)
{
        uint64_t epoch = frame_flush(w);

        if (env_flush_done(epoch))
                return false;
        r->unflushed++;
        r->unbegun += epoch == env_flush_next();
        return true;
}

/* Frees an unmapped frame that is no longer held, and that no TLB reaches. */
static bool reap_orphan(struct pager *pg, struct frame_list *l, frame_t n, uint64_t w,
                        struct clock_result *r)
{
        struct frame *f = &pg->frames[n];
        if (frame_word_held(w) || is_unflushed(w, r) ||
            !atomic_compare_exchange_strong(&f->word, &w, w | FRAME_CLAIMED))
                return false;
        evict_give(pg, l, n);
        return true;
}

/* The page of a frame was used: clears A and USED, and changes the frame's flags.  OUT *seen: the
 * entry; 0: there is none.  False: the frame is held. */
INLINE bool clear_use(const struct step *t, frame_t n, uint64_t w, uint64_t clear, uint64_t set,
                      pte_t *seen)
{
        struct pager *pg = t->pg;
        struct frame *f = &pg->frames[n];
        pte_t p;

        if (!frame_claim(f, w))
                return false;
        pte_slot_t *pte = entry_of(pg, n, &p);
        *seen = pte ? p : 0;
        bool cleared = pte && (p & PTE_A) &&
                       atomic_compare_exchange_strong(pte, &p, p & ~(PTE_A | PTE_PREF | PTE_FRESH));
        if (cleared)
                frame_stamp(f);
        t->r->cleared += cleared;
        t->r->used += (w & FRAME_USED) != 0;
        t->r->ahead += cleared && (*seen & PTE_PREF) && !pg->blind;
        frame_change(f, clear | FRAME_USED | FRAME_CLAIMED, set);
        return true;
}

/* Frames of a piece of the cold hand, and of the hot one. */
#define PIECE_MIN 8
#define PIECE_MAX 512
#define HOT_PIECE 64

static uint32_t piece_size(uint32_t nframes)
{
        uint32_t n = nframes / 64;

        return n < PIECE_MIN ? PIECE_MIN : n > PIECE_MAX ? PIECE_MAX : n;
}

/* The next frame for an evictor to look at.  Evictors take the frames by pieces, so the order is
 * CLOCK's however many they are.  What an evictor that is stopped has left of its piece is met
 * again a turn later; so it drops what it has left when it comes back half a turn later.  It looks
 * for that once a tick. */
INLINE frame_t next_frame(const struct pager *pg, struct piece *p, _Atomic uint64_t *hand,
                          uint32_t size)
{
        uint32_t tick = pte_tick(atomic_load_explicit(&pg->now, memory_order_relaxed));

        if (p->tick != tick) {
                uint32_t now = (uint32_t)atomic_load_explicit(hand, memory_order_relaxed);
                p->tick = tick;
                if (now - p->number > pg->nframes / size / 2 + 1)
                        p->at = p->end;
        }
        if (p->at >= p->end) {
                uint32_t pieces = (pg->nframes - 1) / size + 1;
                uint64_t number = atomic_fetch_add_explicit(hand, 1, memory_order_relaxed);

                p->number = (uint32_t)number;
                p->at = (uint32_t)(number % pieces) * size;
                p->end = pg->nframes - p->at < size ? pg->nframes : p->at + size;
        }
        return p->at++;
}

/* The hot hand meets a frame.  True: it was hot, and is cold now. */
static __attribute__((noinline)) bool hot_step(struct step by_value)
{
        const struct step *t = &by_value;
        struct pager *pg = t->pg;
        uint32_t size = piece_size(pg->nframes);
        frame_t n = next_frame(pg, &t->s->hot_hand, &pg->hot_hand,
                               size < HOT_PIECE ? size : HOT_PIECE);
        struct frame *f = &pg->frames[n];
        uint64_t w = atomic_load(&f->word);
        pte_t p, seen;

        t->r->shown++;
        t->cnt[CNT_SHOWN]++;
        if (!(w & FRAME_HOT) || (w & (FRAME_ORPHAN | FRAME_LOCKED)) || frame_word_held(w) ||
            !entry_of(pg, n, &p))
                return false;
        t->r->used++;
        if (!is_cold(p, w) && !(p & PTE_LOW)) {
                clear_use(t, n, w, FRAME_STAYED, 0, &seen);
                return false;
        }
        bool stays = (p & PTE_HIGH) && (w & FRAME_STAYED) < HIGH_STAYS;
        uint64_t next = stays ? w + FRAME_STAYED_1
                              : (w & ~(FRAME_HOT | FRAME_STAYED)) | FRAME_WAS | FRAME_OLD;
        if (!atomic_compare_exchange_strong(&f->word, &w, next) || stays)
                return false;
        changed(t, -1);
        return true;
}

/* How many frames are hot, and how many are cold beyond the target, as far as the common counts
 * know.  Free frames are neither: so each page that comes in makes room for a hot one, each that
 * goes moves the hot hand, and it shows which hot pages come back. */
static __attribute__((noinline)) void look(struct step by_value)
{
        const struct step *t = &by_value;
        struct pager *pg = t->pg;

        frames_hot_told(pg, list_of(t));
        uint32_t hot = atomic_load_explicit(&pg->nhot, memory_order_relaxed);
        uint32_t others = atomic_load_explicit(&pg->nfree, memory_order_relaxed) +
                          atomic_load_explicit(&pg->stocked, memory_order_relaxed) +
                          atomic_load_explicit(&pg->locked, memory_order_relaxed);
        uint32_t target = atomic_load_explicit(&pg->target, memory_order_relaxed);

        t->s->hot = (int32_t)hot;
        t->s->over = (int32_t)(pg->nframes - others - hot - target);
        t->s->look = 4 * atomic_load_explicit(&pg->batch, memory_order_relaxed);
}

/* A page asks to be hot. */
INLINE bool grants(const struct step *t)
{
        if (t->s->over > 0)
                return true;
        return ++t->s->requests % REQUESTS == 0 && hot_step(*t);
}

static bool asks(const struct pager *pg, pte_t p, uint64_t w)
{
        /* With a blind hand a page that was brought in ahead always looks used. */
        return (w & (FRAME_OLD | FRAME_BACK)) && !(p & PTE_LOW) && !(pg->blind && (p & PTE_PREF));
}

/* The cold hand meets a page that was used. */
INLINE void second_chance(const struct step *t, frame_t n, pte_t p, uint64_t w)
{
        bool hot = (p & PTE_HIGH) || (asks(t->pg, p, w) && grants(t));
        uint64_t set = hot ? FRAME_HOT : FRAME_OLD | (p & PTE_LOW ? FRAME_PASSED : 0);
        pte_t seen;

        if (!clear_use(t, n, w, FRAME_BACK | FRAME_PASSED | (hot ? FRAME_OLD | FRAME_WAS : 0), set,
                       &seen))
                return;
        if (hot)
                changed(t, 1);
        if (p & PTE_LOW)
                frame_passed(t->pg, n);
}

/* The cold hand leaves a page that was not used: see may_go(). */
INLINE void stay(const struct step *t, frame_t n, pte_t p, uint64_t w)
{
        bool hot = p & PTE_HIGH;

        t->r->used++;
        if (atomic_compare_exchange_strong(&t->pg->frames[n].word, &w,
                                           w | (hot ? FRAME_HOT : FRAME_OLD)) &&
            hot)
                changed(t, 1);
}

/* The cold hand meets frame n, which is not hot.  w: its word. */
INLINE void visit(const struct step *t, frame_t n, uint64_t w)
{
        struct pager *pg = t->pg;
        pte_t p;

        if (w & FRAME_ORPHAN) {
                t->r->freed += reap_orphan(pg, t->l, n, w, t->r);
                return;
        }
        if (!(w & FRAME_RESIDENT) || (w & FRAME_LOCKED) || frame_word_held(w)) {
                t->r->busy += (w & FRAME_RESIDENT) && frame_word_closed(w);
                return;
        }
        if (!entry_of(pg, n, &p))
                return;
        if (!is_cold(p, w)) {
                second_chance(t, n, p, w);
        } else if (!may_go(p, w)) {
                stay(t, n, p, w);
        } else if (!is_unflushed(w, t->r)) {
                uint32_t writing = t->l ? 0 : pg->writing;
                bool freed = evict(pg, t->l, n, t->cnt);
                t->r->freed += freed;
                if (freed || (!t->l && pg->writing != writing)) {
                        t->s->vain = 0;
                        t->s->over--;
                }
        }
}

static bool passes_by(uint64_t w) { return (w & (FRAME_HOT | FRAME_ORPHAN)) == FRAME_HOT; }

/* The cold hand passes hot frames by: most of its way where most frames are hot.  OUT *w: the word
 * of the frame that it meets then, which is hot where the visits are used up. */
INLINE frame_t pass_hot(const struct step *t, uint64_t *w)
{
        struct pager *pg = t->pg;
        struct piece *p = &t->s->cold_hand;
        const uint32_t size = piece_size(pg->nframes), left = t->visits - t->r->passed;
        frame_t n = next_frame(pg, p, &pg->hand, size);
        uint32_t passed = 1;

        while (passes_by(*w = atomic_load(&pg->frames[n].word)) && passed < left) {
                n = p->at < p->end ? p->at++ : next_frame(pg, p, &pg->hand, size);
                passed++;
        }
        t->s->vain += passed;
        t->s->look -= passed < t->s->look ? passed : t->s->look;
        t->r->passed += passed;
        t->cnt[CNT_SCANNED] += passed;
        return n;
}

/* The cold hand moves to the next frame that is not hot, and the hot hand as far as it has to. */
INLINE void cold_step(const struct step *t)
{
        struct pager *pg = t->pg;
        struct sweeper *s = t->s;

        if (s->look == 0)
                look(*t);
        for (unsigned i = 0; i < HOT_PACE && s->over < 0 && s->hot > 0; i++)
                hot_step(*t);
        if (s->vain > pg->nframes)
                hot_step(*t);
        uint64_t w;
        frame_t n = pass_hot(t, &w);
        if (!passes_by(w))
                visit(t, n, w);
}

/* Balances anew, for the tick that is over at `now` evictions.
 *
 * [I] One evictor does so, and no other waits for it.  If it is stopped meanwhile, the next tick is
 * late, and then another takes its place.  Should it go on after that, counts of both are mixed:
 * the target, which has bounds, may be worse for some ticks. */
static void end_tick(struct pager *pg, uint64_t now)
{
        struct returns sum;
        struct balance b;
        uint32_t *word = (uint32_t *)&b;

        for (size_t i = 0; i < BALANCE_WORDS; i++)
                word[i] = atomic_load_explicit(&pg->balance[i], memory_order_relaxed);
        env_returns(&sum);
        balance_tick(&b, &sum, frames_for_hands(pg),
                     atomic_load_explicit(&pg->high, memory_order_relaxed));
        if (atomic_load_explicit(&pg->ticking, memory_order_relaxed) != now)
                return;
        for (size_t i = 0; i < BALANCE_WORDS; i++)
                atomic_store_explicit(&pg->balance[i], word[i], memory_order_relaxed);
        atomic_store_explicit(&pg->target, b.target, memory_order_relaxed);
        atomic_store_explicit(&pg->now, pte_now(b.tick), memory_order_relaxed);
        atomic_store_explicit(&pg->ticked, now, memory_order_relaxed);
}

/* Adds what the hands of this evictor evicted to the common count, by batches. */
static void tick_if_due(struct pager *pg, struct sweeper *s, const uint64_t *cnt)
{
        uint32_t mine = (uint32_t)(cnt[CNT_EVICTED_CLEAN] + cnt[CNT_EVICTED_DIRTY] -
                                   cnt[CNT_EVICTED_PASSED]);
        uint32_t news = mine - s->told, length = pg->nframes / 8;

        if (news < atomic_load_explicit(&pg->batch, memory_order_relaxed))
                return;
        s->told = mine;
        uint64_t now = atomic_fetch_add_explicit(&pg->evicted, news, memory_order_relaxed) + news;
        uint64_t held = atomic_load_explicit(&pg->ticking, memory_order_relaxed);
        if (now - atomic_load_explicit(&pg->ticked, memory_order_relaxed) < length ||
            (held != 0 && now - held < length) ||
            /* Acquire: sees what the last one wrote before its release. */
            !atomic_compare_exchange_strong_explicit(&pg->ticking, &held, now,
                                                     memory_order_acquire, memory_order_relaxed))
                return;
        if (now - atomic_load_explicit(&pg->ticked, memory_order_relaxed) >= length)
                end_tick(pg, now);
        atomic_compare_exchange_strong_explicit(&pg->ticking, &now, 0, memory_order_release,
                                                memory_order_relaxed);
}

/* Evicts pages that streams have passed, up to the first whose flush is not over. */
static __attribute__((noinline)) void evict_passed(struct step by_value)
{
        const struct step *t = &by_value;
        struct pager *pg = t->pg;
        uint32_t tail = atomic_load_explicit(&pg->passed_tail, memory_order_relaxed);

        if (tail - pg->passed_head > PASSED_FRAMES)
                pg->passed_head = tail - PASSED_FRAMES;
        for (; pg->passed_head != tail && !enough(t) && env_slot_write_room(); pg->passed_head++) {
                _Atomic uint32_t *hint = &pg->passed[pg->passed_head % PASSED_FRAMES];
                uint32_t n = atomic_load_explicit(hint, memory_order_relaxed) - 1;
                if (n >= pg->nframes)           /* a vCPU adds it now */
                        continue;
                uint64_t w = atomic_load(&pg->frames[n].word);
                if ((w & FRAME_RESIDENT) && is_unflushed(w, t->r))
                        break;
                t->r->freed += evict(pg, NULL, n, t->cnt);
        }
}

/* Begins a flush if one is due.  A flush makes each vCPU reload its TLB, and a frame that the hand
 * clears is met again only a turn later: so one begins for half of the frames that are to be cold,
 * or a quarter of all, or because cold frames that are needed wait for it. */
static void flush_if_due(struct pager *pg, const struct clock_result *r, bool needed, uint64_t *cnt)
{
        uint64_t next = env_flush_next();
        uint32_t tail = atomic_load_explicit(&pg->passed_tail, memory_order_relaxed);

        /* One has begun, which covers what was cleared before. */
        if (atomic_load_explicit(&pg->next_flush, memory_order_relaxed) != next) {
                atomic_store_explicit(&pg->next_flush, next, memory_order_relaxed);
                atomic_store_explicit(&pg->cleared, 0, memory_order_relaxed);
                atomic_store_explicit(&pg->passed_covered, tail, memory_order_relaxed);
        }
        uint32_t before = r->cleared ? atomic_fetch_add_explicit(&pg->cleared, r->cleared,
                                                                 memory_order_relaxed)
                                     : atomic_load_explicit(&pg->cleared, memory_order_relaxed);
        int32_t cleared = (int32_t)(before + r->cleared);
        /* Below 0 for a moment: another evictor may have counted what came after tail was read. */
        int32_t passed =
                (int32_t)(tail - atomic_load_explicit(&pg->passed_covered, memory_order_relaxed));
        uint32_t half = atomic_load_explicit(&pg->target, memory_order_relaxed) / 2;
        uint32_t most = half < pg->nframes / 4 ? half : pg->nframes / 4;
        if ((needed && r->unbegun && !r->freed) || cleared + passed >= (int32_t)most) {
                env_flush_begin();
                cnt[passed > cleared ? CNT_BEGUN_PASSED : CNT_BEGUN_HAND]++;
        }
}

struct clock_result clock_pass(struct pager *pg, uint32_t count, uint32_t most, uint64_t *cnt)
{
        struct clock_result r = { .freed = evict_written(pg, cnt) };
        struct step t = { pg, &pg->cleaner, NULL, &r, cnt, r.freed + pg->writing + most, count };

        env_flush_look();
        evict_passed(t);
        while (r.passed < t.visits && !enough(&t) && env_slot_write_room())
                cold_step(&t);
        evict_over(pg);
        pg->slot_pause -= r.passed < pg->slot_pause ? r.passed : pg->slot_pause;
        frames_give(pg);
        flush_if_due(pg, &r, !pg->writing, cnt);
        tick_if_due(pg, &pg->cleaner, cnt);
        cnt[CNT_PREFETCH_HITS] += r.ahead;
        return r;
}

uint32_t clock_complete(struct pager *pg, uint64_t *cnt)
{
        uint32_t freed = evict_written(pg, cnt);

        frames_give(pg);
        return freed;
}

/* Of a call of clock_reclaim().  Few evictions, so that a fault stays short.  Not many frames, so
 * that the hand does not run ahead of what it has shown where the vCPU can evict little; but the
 * frames of a piece were often filled together, and then all of them were used. */
#define RECLAIM_FRAMES 8
#define RECLAIM_PIECES 4

uint32_t clock_reclaim(struct pager *pg, struct sweeper *s, struct frame_list *l, uint64_t *cnt)
{
        struct clock_result r = { .freed = 0 };
        struct step t = {
                pg, s, l, &r, cnt, RECLAIM_FRAMES, RECLAIM_PIECES * piece_size(pg->nframes)
        };

        env_flush_look();
        while (r.passed < t.visits && !enough(&t))
                cold_step(&t);
        /* All evictors write to the words of flush_if_due(), so it is asked once a batch. */
        s->cleared += r.cleared;
        if (s->cleared >= FRAME_BATCH || r.unbegun) {
                r.cleared = s->cleared;
                s->cleared = 0;
                flush_if_due(pg, &r, true, cnt);
        }
        tick_if_due(pg, s, cnt);
        cnt[CNT_PREFETCH_HITS] += r.ahead;
        cnt[CNT_DIRECT_RECLAIM] += r.freed;
        return r.freed;
}
