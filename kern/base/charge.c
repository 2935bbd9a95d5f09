/*
 * The number of pages that are charged: one counter, which all vCPUs change.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/kern.h"
#include "base/print.h"
#include "pager/env.h"

/* A counter that orders nothing, hence relaxed everywhere. */
static _Atomic uint64_t charged;

uint64_t mm_charged(void) { return atomic_load_explicit(&charged, memory_order_relaxed); }

uint64_t mm_limit(void)
{
        uint64_t all = control.nframes +
                       atomic_load_explicit(&control.far_pages, memory_order_relaxed);
        /* Frames that must stay free or pinned for faults to proceed. */
        uint64_t reserve = control.nframes / 16 + 64;

        return all > reserve ? all - reserve : 0;
}

bool mm_charge(uint64_t pages)
{
        uint64_t now = mm_charged(), limit = mm_limit();

        do {
                if (pages > limit || now > limit - pages)
                        return false;
        } while (!atomic_compare_exchange_weak_explicit(
                &charged, &now, now + pages, memory_order_relaxed, memory_order_relaxed));
        return true;
}

void mm_uncharge(uint64_t pages)
{
        if (atomic_fetch_sub_explicit(&charged, pages, memory_order_relaxed) < pages)
                kern_bug("more pages uncharged than charged", pages, 0);
}

void env_uncharge_page(void) { mm_uncharge(1); }

int mm_charge_page(void)
{
        return mm_charge(1) ? 0 : -ENOMEM;
}

void mm_charge_init(void)
{
        atomic_store_explicit(&charged, 0, memory_order_relaxed);
}
