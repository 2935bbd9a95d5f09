/*
 * Bringing pages in ahead of the program.
 *
 * pager/lookahead.c says which pages; this file asks for them.  A page is asked for by making its
 * entry BUSY, from REMOTE, which is its own proof: in whatever VMA it is, its content is in that
 * slot.  So no VMA is looked at, and only the address of the walk is published, so that no table on
 * the way is reused meanwhile.
 *
 * Frames come from the stock of free frames, of which half the low mark is kept for demand.  A
 * prefetch reclaims nothing, and waits for nothing: a page without a free frame is not asked for.
 * But where all threads have one CPU, a vCPU that finds no frames lets the cleaner run, for a
 * bounded time.
 */
#include "base/state.h"
#include "base/tables.h"
#include "far/rings.h"
#include "far/slots.h"
#include "far/timed.h"
#include "pager/pager.h"
#include "pager/pointers.h"
#include "pager/replay.h"
#include "paging/cleaner.h"
#include "paging/notice.h"
#include "paging/prefetch.h"
#include "paging/record.h"
#include "space/vma.h"

_Static_assert(sizeof(struct lookahead) <= LOOKAHEAD_ROOM, "the history fits the vCPU's block");
_Static_assert(sizeof(struct pointers) <= POINTERS_ROOM, "so do its pointers");

/* Walks that stay within one page table publish once. */
struct walk { uint64_t table; pte_slot_t *first; };

#define TABLE_MASK (~((uint64_t)(1 << 21) - 1))

static pte_slot_t *walk_to(struct walk *w, uint64_t addr)
{
        if (addr >= TASK_SIZE || (addr >= RESERVED_START && addr < RESERVED_END))
                return NULL;
        if (w->table != (addr & TABLE_MASK)) {
                w->table = addr & TABLE_MASK;
                pt_publish(w->table);
                w->first = pt_find(w->table);
        }
        return w->first ? w->first + pt_index(addr, 12) : NULL;
}

#define NO_WALK ((struct walk){ .table = 1 })

static enum lookahead_use used(void *arg, uint64_t page)
{
        pte_slot_t *pte = walk_to(arg, page * PAGE_SIZE);
        enum lookahead_use u = pte ? page_use(&pager, pte) : LOOKAHEAD_OTHER;

        if (u == LOOKAHEAD_USED)
                count(CNT_PREFETCH_HITS);
        return u;
}

/* How many pages may be asked for now: at most a sixteenth of the cache is under way, and no more
 * than the ring holds; half the low mark of free frames is kept for demand.  While the program is
 * recorded: none. */
static uint32_t room(void)
{
        if (recording())
                return 0;
        uint32_t most = pager.nframes / 16, now = slots_ahead(), keep = pager.low / 2;
        uint32_t nfree = atomic_load_explicit(&pager.nfree, memory_order_relaxed);

        if (most > IO_RING)
                most = IO_RING;
        most = now < most ? most - now : 0;
        nfree = nfree > keep ? nfree - keep : 0;
        return most < nfree ? most : nfree;
}

/* The entry of a page that is far and takes time to come; NULL: the page is not so.  *p: the value
 * of the entry. */
static pte_slot_t *far_entry(struct walk *w, uint64_t addr, pte_t *p)
{
        pte_slot_t *pte = walk_to(w, addr);

        *p = pte ? atomic_load_explicit(pte, memory_order_acquire) : 0;
        return pte_kind(*p) == PTE_REMOTE && !(*p & PTE_LOST) && (*p & PTE_ACCESS) &&
                               env_slot_posted(pte_slot(*p))
                       ? pte
                       : NULL;
}

/* Are there too few frames for room()? */
static bool short_of_frames(void)
{
        return atomic_load_explicit(&pager.nfree, memory_order_relaxed) <= pager.low / 2;
}

/* Asks for a page.  False: there is no frame. */
static bool ask(pte_slot_t *pte, pte_t p, bool marker, uint32_t *asked)
{
        frame_t n = frame_take(&pager, &vcpu_self.frames, counters());

        if (n == FRAME_NONE)
                return false;
        if (page_prefetch(&pager, pte, p, n, marker, counters()))
                ++*asked;
        else
                frame_free(&pager, &vcpu_self.frames, n);
        return true;
}

static void end_walk(struct walk *w)
{
        if (w->table != 1)
                pt_unpublish();
        *w = NO_WALK;
}

static void finish(struct walk *w, uint32_t asked)
{
        end_walk(w);
        if (asked) {
                counters()[CNT_PREFETCHED] += asked;
                ring_prefetch_ring();
        }
        /* Not only below the low mark: the next window finds the frames that the cleaner frees
         * meanwhile. */
        if (atomic_load_explicit(&pager.nfree, memory_order_relaxed) < pager.low + asked)
                cleaner_wake();
}

/* The first pages of the batch, of which no more than `most` are far. */
static uint32_t fitting(struct walk *w, const struct lookahead_batch *b, uint32_t most)
{
        uint64_t addr = b->first * PAGE_SIZE;
        uint32_t i;
        pte_t p;

        if (b->count <= most)
                return b->count;
        for (i = 0; i < b->count; i++, addr += (uint64_t)b->stride * PAGE_SIZE)
                if (far_entry(w, addr, &p) && most-- == 0)
                        break;
        return i;
}

/* Asks for a batch.  If the page that the policy wants as marker is here already, the next page
 * that is not here becomes the marker. */
static uint32_t ask_batch(struct walk *w, const struct lookahead_batch *b)
{
        uint64_t addr = b->first * PAGE_SIZE;
        uint32_t asked = 0, before = 0;
        bool marked = b->marker >= b->count;

        for (uint32_t i = 0; i < b->count; i++, addr += (uint64_t)b->stride * PAGE_SIZE) {
                bool marker = !marked && i >= b->marker;
                pte_t p;
                pte_slot_t *pte = far_entry(w, addr, &p);
                if (pte && !ask(pte, p, marker, &asked))
                        break;
                marked |= marker && asked > before;
                before = asked;
        }
        return asked;
}

/* Behind a long stream: its pages are evicted before pages that may be used again. */
static void drop_behind(struct walk *w, const struct lookahead_batch *b)
{
        uint64_t addr = b->passed * PAGE_SIZE;

        for (uint32_t i = 0; i < b->npassed; i++, addr += (uint64_t)b->stride * PAGE_SIZE) {
                pte_slot_t *pte = walk_to(w, addr);
                if (pte && page_pass(&pager, &vcpu_self.frames, pte))
                        count(CNT_PREFETCH_HITS);
        }
}

static struct lookahead *history(void) { return (struct lookahead *)vcpu_self.lookahead; }

/* The program says that it continues from here; the policy does not know yet.  The marker's fault
 * comes here again. */
static struct lookahead_batch from_now_on(uint64_t page, const struct lookahead_rule *rule)
{
        return (struct lookahead_batch){
                .first = page + 1,
                .stride = 1,
                .count = rule->window,
                .marker = rule->window * 2 / 3,
        };
}

static struct lookahead_rule rule_now(void)
{
        return (struct lookahead_rule){
                .policy = atomic_load_explicit(&control.prefetch_policy, memory_order_relaxed),
                .window = atomic_load_explicit(&control.prefetch_window, memory_order_relaxed),
                .history = atomic_load_explicit(&control.prefetch_history, memory_order_relaxed),
                .forget = pager.nframes,
        };
}

/* --- pages that a recorded run needed next --- */

/* Pages a batch, at most. */
#define REPLAY_BATCH 64

/* The next pages that are far, at most `most`.  A page that comes next and is here counts as used,
 * so that the hand leaves it until then. */
static uint32_t look_ahead(struct walk *w, struct replay_stream *s, uint64_t *wanted, uint32_t most)
{
        const struct replay *r = (const struct replay *)control.replay;
        uint64_t page;
        uint32_t n = 0;

        while (n < most && (page = replay_next(r, s)) != 0) {
                pte_slot_t *pte;
                pte_t p;

                if (far_entry(w, page * PAGE_SIZE, &p))
                        wanted[n++] = page * PAGE_SIZE;
                else if ((pte = walk_to(w, page * PAGE_SIZE)) != NULL)
                        page_keep(&pager, pte);
        }
        return n;
}

/* The first use of a page two thirds into the batch leads on to the next.  Only now that all pages
 * have been looked at is that page known; meanwhile other tables were published. */
static uint32_t ask_wanted(struct walk *w, const uint64_t *wanted, uint32_t n)
{
        uint32_t asked = 0;

        for (uint32_t i = 0; i < n; i++) {
                pte_t p;
                pte_slot_t *pte = far_entry(w, wanted[i], &p);
                if (pte && !ask(pte, p, i == n * 2 / 3, &asked))
                        break;
        }
        return asked;
}

/* False: the record says nothing about this page. */
static bool prefetch_recorded(uint64_t addr, enum lookahead_cause cause)
{
        const struct replay *r = (const struct replay *)control.replay;
        const uint32_t me = vcpu_self_fixed.number;
        uint64_t wanted[REPLAY_BATCH];
        struct walk w = NO_WALK;

        if (me >= r->streams ||
            !replay_at(r, &r->stream[me], addr / PAGE_SIZE, cause != LOOKAHEAD_MISS))
                return false;
        if (room() < REPLAY_BATCH / 4 && short_of_frames())
                cleaner_gets_a_turn();
        uint32_t most = room();
        if (most > REPLAY_BATCH)
                most = REPLAY_BATCH;
        uint32_t n = look_ahead(&w, &r->stream[me], wanted, most);
        uint32_t asked = ask_wanted(&w, wanted, n);
        counters()[CNT_REPLAYED] += asked;
        finish(&w, asked);
        return true;
}

void prefetch(uint64_t addr, enum lookahead_cause cause)
{
        struct lookahead_rule rule = rule_now();
        struct lookahead_batch batch;
        struct walk w = NO_WALK;
        uint32_t advice = vma_advice(addr);

        timed_poll();
        if (recording() || (control.replay && prefetch_recorded(addr, cause)))
                return;
        if (rule.policy == LOOKAHEAD_NONE || advice == VMA_RANDOM)
                return;
        if (advice == VMA_SEQUENTIAL)
                rule.forget = 1;
        lookahead_fault(history(), &rule, addr / PAGE_SIZE, cause, used, &w, &batch);
        if (advice == VMA_SEQUENTIAL && batch.count == 0)
                batch = from_now_on(addr / PAGE_SIZE, &rule);
        uint32_t n = fitting(&w, &batch, room());
        if (n < batch.count && short_of_frames()) {
                end_walk(&w);
                if (cleaner_gets_a_turn())
                        n = fitting(&w, &batch, room());
        }
        if (n < batch.count)
                lookahead_cut(history(), &rule, &batch, n);
        uint32_t asked = ask_batch(&w, &batch);
        drop_behind(&w, &batch);
        finish(&w, asked);
}

/* --- pages that a page points to --- */

struct following { struct walk walk; uint32_t room, asked; };

static enum pointers_answer ask_pointed(void *arg, uint64_t addr)
{
        struct following *f = arg;
        pte_t p;

        if (f->asked >= f->room)
                return POINTERS_FULL;
        pte_slot_t *pte = far_entry(&f->walk, addr, &p);
        if (!pte)
                return POINTERS_NO;
        uint32_t before = f->asked;
        if (!ask(pte, p, true, &f->asked))
                return POINTERS_FULL;
        return f->asked > before ? POINTERS_YES : POINTERS_NO;
}

/* The first use of a page is that of a marker: from then on it is a page like any other. */
static bool was_used(void *arg, uint64_t page)
{
        struct following *f = arg;
        pte_slot_t *pte = walk_to(&f->walk, page * PAGE_SIZE);

        return pte && page_use(&pager, pte) != LOOKAHEAD_UNUSED;
}

void prefetch_pointed(uint64_t addr, frame_t n)
{
        struct following f = { .walk = NO_WALK, .room = room() };
        struct pointers_env env = { .ask = ask_pointed, .used = was_used, .arg = &f };

        if (f.room == 0 && short_of_frames() && cleaner_gets_a_turn())
                f.room = room();
        if (f.room == 0)
                return;
        uint32_t touched = (uint32_t)(addr % PAGE_SIZE / sizeof(uint64_t));
        counters()[CNT_POINTED] += pointers_follow((struct pointers *)vcpu_self.pointers,
                                                   env_frame_va(n), touched, &env);
        finish(&f.walk, f.asked);
}

/* --- pages that the program names --- */

uint32_t prefetch_stream(uint64_t addr, int64_t stride, uint64_t count)
{
        struct lookahead_rule rule = rule_now();
        struct lookahead_batch batch;
        struct walk w = NO_WALK;

        timed_poll();
        lookahead_stream(history(), &rule, addr / PAGE_SIZE, stride, count, used, &w, &batch);
        uint32_t n = fitting(&w, &batch, room());
        if (n < batch.count && batch.marker != LOOKAHEAD_NO_MARKER)
                lookahead_cut(history(), &rule, &batch, n);
        batch.count = n;                /* a batch without a marker leads to no next one */
        uint32_t asked = ask_batch(&w, &batch);
        finish(&w, asked);
        return asked;
}

/* No page table: nothing up to the next one. */
static uint64_t after(const struct walk *w, uint64_t addr)
{
        return w->first ? addr + PAGE_SIZE : (addr & TABLE_MASK) + ~TABLE_MASK + 1;
}

uint32_t prefetch_range(uint64_t start, uint64_t end, bool mark)
{
        struct walk w = NO_WALK;
        uint32_t most = room(), asked = 0;

        for (uint64_t addr = start & ~(uint64_t)(PAGE_SIZE - 1); addr < end && asked < most; ) {
                pte_t p;
                pte_slot_t *pte = far_entry(&w, addr, &p);
                if (pte && !ask(pte, p, mark && asked == 0, &asked))
                        break;
                addr = after(&w, addr);
        }
        finish(&w, asked);
        return asked;
}

/* Where this vCPU can ask for no more, other vCPUs may have asked. */
uint32_t prefetch_counted(uint64_t start, uint64_t end, bool mark, const struct counted *c,
                          uint32_t *counted)
{
        struct walk w = NO_WALK;
        uint32_t most = room(), asked = 0;

        for (uint64_t addr = start & ~(uint64_t)(PAGE_SIZE - 1); addr < end; ) {
                pte_t p;
                pte_slot_t *pte = far_entry(&w, addr, &p);
                if (pte && asked < most && counted_room() &&
                    !ask(pte, p, mark && asked == 0, &asked))
                        most = asked;
                pte = walk_to(&w, addr);
                *counted += pte && counted_add(c, pte);
                addr = after(&w, addr);
        }
        finish(&w, asked);
        return asked;
}
