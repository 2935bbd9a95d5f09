/*
 * The table of guides.
 *
 * [I] fn and arg of a guide change only while its state is not ON and no vCPU is counted in
 * `running`.  guides_find() takes no lock: it counts itself (full barrier), then looks whether the
 * guide is on and covers the address.  Who takes a guide off stores the state (full barrier), then
 * looks at the count.  So the guide that guides_find() returns keeps its function until
 * guides_leave().
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/lock.h"
#include "space/guides.h"

_Atomic uint32_t guides_on;

static struct guide table[GUIDES_MAX];
static _Atomic uint32_t used;           /* entries that were ever in use: the first of the table */
static struct lock guides_lock;         /* for those who write to the table, used and order */
static uint64_t order;

static uint32_t state_of(const struct guide *g)
{
        return atomic_load_explicit(&g->state, memory_order_relaxed);
}

/* Under the lock.  Full barrier; and who sees ON, here and on the host, sees a complete guide. */
static void set_state(struct guide *g, enum guide_state s)
{
        bool was = state_of(g) == GUIDE_ON, is = s == GUIDE_ON;

        atomic_store(&g->state, s);
        if (is != was)
                atomic_fetch_add_explicit(&guides_on, is ? 1 : (uint32_t)-1,
                                          memory_order_relaxed);
}

static bool is_unused(const struct guide *g, enum guide_state s)
{
        return state_of(g) == (uint32_t)s && atomic_load(&g->running) == 0;
}

/* An entry that was never used, else the entry of a guide that is over: the statistics keep such
 * guides as long as they can. */
static struct guide *unused(void)
{
        for (int s = GUIDE_FREE; s <= GUIDE_REMOVED; s++)
                for (int i = 0; s != GUIDE_ON && i < GUIDES_MAX; i++)
                        if (is_unused(&table[i], (enum guide_state)s))
                                return &table[i];
        return NULL;
}

int guides_add(const struct guide *new)
{
        lock_take(&guides_lock);
        struct guide *g = unused();
        if (g) {
                set_state(g, GUIDE_FREE);
                atomic_store_explicit(&g->start, new->start, memory_order_relaxed);
                atomic_store_explicit(&g->end, new->end, memory_order_relaxed);
                atomic_store_explicit(&g->order, ++order, memory_order_relaxed);
                g->mapped = new->mapped;
                g->fn = new->fn;
                g->arg = new->arg;
                for (int i = 0; i < GUIDE_ENDS; i++)
                        atomic_store_explicit(&g->ended[i], 0, memory_order_relaxed);
                for (int i = 0; i < GUIDE_NAME; i++)
                        g->name[i] = new->name[i];
                control.guides = (uint64_t)table;
                set_state(g, GUIDE_ON);
                if (g == &table[used])  /* a fault that sees it late calls no guide */
                        atomic_fetch_add_explicit(&used, 1, memory_order_relaxed);
        }
        lock_drop(&guides_lock);
        return g ? 0 : -ENOSPC;
}

uint32_t guides_drop(uint64_t start, uint64_t end)
{
        bool dropped[GUIDES_MAX] = { false };
        uint32_t n = 0;

        lock_take(&guides_lock);
        for (int i = 0; i < GUIDES_MAX; i++) {
                dropped[i] = state_of(&table[i]) == GUIDE_ON && table[i].start >= start &&
                             table[i].start < end;
                if (dropped[i]) {
                        set_state(&table[i], GUIDE_OFF);
                        n++;
                }
        }
        lock_drop(&guides_lock);
        /* The host ends a guide that takes too long.  Acquire: all that the guide did is over.  An
         * entry that is reused meanwhile runs another guide: waiting for that guide as well does no
         * harm. */
        for (int i = 0; i < GUIDES_MAX; i++)
                while (dropped[i] && state_of(&table[i]) != GUIDE_ON &&
                       atomic_load(&table[i].running))
                        vmexit(EXIT_YIELD, 0, 0, 0);
        return n;
}

/* Takes [start, end) out of the range of a guide.  False: nothing is left of it, or two pieces. */
static bool cut(struct guide *g, uint64_t start, uint64_t end)
{
        if (g->end <= start || g->start >= end)
                return true;
        if (g->start >= start && g->end <= end)
                return false;
        if (!g->mapped)
                return true;
        if (g->start < start && g->end > end)
                return false;
        if (g->start < start)
                g->end = start;
        else
                g->start = end;
        return true;
}

void guides_forget(uint64_t start, uint64_t end)
{
        if (atomic_load_explicit(&guides_on, memory_order_relaxed) == 0)
                return;
        lock_take(&guides_lock);
        for (int i = 0; i < GUIDES_MAX; i++) {
                struct guide *g = &table[i];
                if (state_of(g) == GUIDE_ON &&
                    ((g->fn >= start && g->fn < end) || !cut(g, start, end)))
                        set_state(g, GUIDE_OFF);
        }
        lock_drop(&guides_lock);
}

bool guides_next(uint64_t after, struct hint_guide *out)
{
        const struct guide *next = NULL;

        lock_take(&guides_lock);
        for (int i = 0; i < GUIDES_MAX; i++) {
                const struct guide *g = &table[i];
                if (state_of(g) == GUIDE_ON && g->order > after &&
                    (!next || g->order < next->order))
                        next = g;
        }
        if (next)
                *out = (struct hint_guide){ .order = next->order, .start = next->start,
                                            .len = next->end - next->start,
                                            .fn = next->fn, .arg = next->arg };
        lock_drop(&guides_lock);
        return next;
}

/* Acquire: a guide that is on is complete. */
static inline bool is_on(const struct guide *g) { return atomic_load(&g->state) == GUIDE_ON; }

static inline bool is_for(const struct guide *g, uint64_t addr)
{
        return addr >= atomic_load_explicit(&g->start, memory_order_relaxed) &&
               addr < atomic_load_explicit(&g->end, memory_order_relaxed);
}

/* A hint: the guide may be over by now. */
static struct guide *newest(uint64_t addr)
{
        struct guide *const end = &table[atomic_load_explicit(&used, memory_order_relaxed)];
        struct guide *found = NULL;
        uint64_t last = 0;

        for (struct guide *g = table; g < end; g++) {
                if (!is_for(g, addr) || !is_on(g))
                        continue;
                uint64_t at = atomic_load_explicit(&g->order, memory_order_relaxed);
                if (at > last) {
                        found = g;
                        last = at;
                }
        }
        return found;
}

struct guide *guides_find(uint64_t addr, uint64_t *fn, uint64_t *arg)
{
        struct guide *g;

        /* Again only if a guide was taken off meanwhile. */
        for (; (g = newest(addr)) != NULL; guides_leave(g)) {
                atomic_fetch_add(&g->running, 1);
                /* The state first: before it is on, the range may be half another guide's. */
                if (is_on(g) && is_for(g, addr)) {
                        *fn = g->fn;
                        *arg = g->arg;
                        return g;
                }
        }
        return NULL;
}

bool guides_count(struct guide *g, enum guide_end how)
{
        uint64_t stops = 0;
        bool removed = false;

        atomic_fetch_add_explicit(&g->ended[how], 1, memory_order_relaxed);
        for (int i = GUIDE_TOUCHED; i <= GUIDE_LATE; i++)
                stops += atomic_load_explicit(&g->ended[i], memory_order_relaxed);
        if (stops >= GUIDE_STOPS && state_of(g) == GUIDE_ON) {
                lock_take(&guides_lock);
                removed = state_of(g) == GUIDE_ON;
                if (removed)
                        set_state(g, GUIDE_REMOVED);
                lock_drop(&guides_lock);
        }
        return removed;
}

/* Release: guides_drop() sees that all that the guide did is over. */
void guides_leave(struct guide *g)
{
        atomic_fetch_sub_explicit(&g->running, 1, memory_order_release);
}
