/*
 * The number of pages that are charged: one counter, and stocks of charges beside it.
 *
 * A page's charge comes from a stock and goes back there.  A stock is filled and emptied by the
 * batch, so the counter, which all vCPUs share, changes once a batch.  A vCPU's number chooses its
 * stock.
 *
 * [I] No charge is refused because of what is in the stocks.  They are filled only while as much as
 * the commit limit's reserve is left below the limit; and before a charge is refused, all stocks
 * are emptied.
 *
 * Counter and stocks order nothing, hence relaxed everywhere.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/kern.h"
#include "base/print.h"
#include "pager/env.h"

#define STOCKS 64
#define BATCH  32

struct stock { _Alignas(CACHE_LINE) _Atomic uint64_t n; };
static struct stock charged;            /* in use, and in the stocks */
static struct stock stock[STOCKS];

static _Atomic uint64_t *own_stock(void) { return &stock[vcpu_self_fixed.number % STOCKS].n; }

static uint64_t count_of(_Atomic uint64_t *n)
{
        return atomic_load_explicit(n, memory_order_relaxed);
}

/* Exact while no other vCPU charges. */
uint64_t mm_charged(void)
{
        uint64_t in_use = count_of(&charged.n);

        for (unsigned i = 0; i < STOCKS; i++)
                in_use -= count_of(&stock[i].n);
        return (int64_t)in_use < 0 ? 0 : in_use;
}

/* Frames that must stay free or pinned for faults to proceed. */
static uint64_t reserve(void) { return control.nframes / 16 + 64; }

uint64_t mm_limit(void)
{
        uint64_t all = control.nframes +
                       atomic_load_explicit(&control.far_pages, memory_order_relaxed);

        return all > reserve() ? all - reserve() : 0;
}

/* Adds pages to the counter, if that stays within the limit. */
static bool add(uint64_t pages, uint64_t limit)
{
        uint64_t now = count_of(&charged.n);

        do {
                if (pages > limit || now > limit - pages)
                        return false;
        } while (!atomic_compare_exchange_weak_explicit(&charged.n, &now, now + pages,
                                                        memory_order_relaxed,
                                                        memory_order_relaxed));
        return true;
}

void mm_uncharge(uint64_t pages)
{
        if (atomic_fetch_sub_explicit(&charged.n, pages, memory_order_relaxed) < pages)
                kern_bug("more pages uncharged than charged", pages, 0);
}

/* Empties all stocks.  False: there was nothing in them. */
static bool empty_stocks(void)
{
        uint64_t n = 0;

        for (unsigned i = 0; i < STOCKS; i++)
                if (count_of(&stock[i].n))
                        n += atomic_exchange_explicit(&stock[i].n, 0, memory_order_relaxed);
        mm_uncharge(n);
        return n > 0;
}

bool mm_charge(uint64_t pages)
{
        do {
                if (add(pages, mm_limit()))
                        return true;
        } while (empty_stocks());
        return false;
}

/* Takes n charges out of a stock that has at least `least`. */
static bool take(_Atomic uint64_t *own, uint64_t n, uint64_t least)
{
        uint64_t have = count_of(own);

        do {
                if (have < least)
                        return false;
        } while (!atomic_compare_exchange_weak_explicit(own, &have, have - n, memory_order_relaxed,
                                                        memory_order_relaxed));
        return true;
}

int mm_charge_page(void)
{
        _Atomic uint64_t *own = own_stock();
        uint64_t limit = mm_limit();

        if (take(own, 1, 1))
                return 0;
        if (limit > reserve() && add(BATCH, limit - reserve())) {
                atomic_fetch_add_explicit(own, BATCH - 1, memory_order_relaxed);
                return 0;
        }
        return mm_charge(1) ? 0 : -ENOMEM;
}

void env_uncharge_page(void)
{
        _Atomic uint64_t *own = own_stock();

        atomic_fetch_add_explicit(own, 1, memory_order_relaxed);
        if (take(own, BATCH, 2 * BATCH))
                mm_uncharge(BATCH);
}

void mm_charge_init(void)
{
        atomic_store_explicit(&charged.n, 0, memory_order_relaxed);
        for (unsigned i = 0; i < STOCKS; i++)
                atomic_store_explicit(&stock[i].n, 0, memory_order_relaxed);
}
