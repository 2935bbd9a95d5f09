/*
 * Which vCPUs' rings the I/O side polls, and what it takes off them.  See polled.h.
 *
 * [I] No request is missed.  A vCPU that is not polled has `polled` 0.  The I/O side clears the
 * word (full barrier), then looks at the tails once more; a vCPU moves its tail (full barrier),
 * then looks at the word, and if that is 0 it sets its bit of io_news.  `polled` is 1 only while
 * the vCPU is in the list, as the I/O side alone writes both.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "abi_control.h"
#include "abi_rings.h"
#include "base/message.h"
#include "far/polled.h"
#include "far/request.h"

/* A vCPU is polled no more after one to two times as many turns without a request. */
#define QUIET_TURNS 4096

static struct {
        unsigned n;                     /* vCPUs that are polled: the numbers of */
        uint16_t vcpu[VCPUS_MAX];
        /* By number.  Not from the vCPU's rings, which a program at p = 0 may write to. */
        bool listed[VCPUS_MAX];
        bool busy[VCPUS_MAX];           /* had requests in the last turns */
        unsigned turns;                 /* since all were not busy */
} polled;

static unsigned take_ring(struct io_ring *ring, unsigned vcpu)
{
        uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        /* Acquire: the entries before it are there. */
        uint32_t n = atomic_load_explicit(&ring->tail, memory_order_acquire) - head;

        if (n == 0)
                return 0;
        if (n > IO_RING)
                die_(EXIT_VMRUN_FAILED,
                     "a ring holds %u entries, more than it has: a bug in vmrun, or the program "
                     "may have written into kern",
                     n);
        for (uint32_t i = 0; i < n; i++)
                request_begin(&ring->entry[(head + i) % IO_RING], vcpu);
        atomic_store_explicit(&ring->head, head + n, memory_order_release);
        polled.busy[vcpu] = true;
        return n;
}

/* Relaxed: its rings are looked at in each turn from here on. */
static void say_polled(struct io_rings *r)
{
        atomic_store_explicit(&r->polled, 1, memory_order_relaxed);
}

static void add(unsigned vcpu)
{
        polled.busy[vcpu] = true;
        if (polled.listed[vcpu])        /* it moved a tail while it was being dropped */
                return;
        polled.listed[vcpu] = true;
        polled.vcpu[polled.n++] = (uint16_t)vcpu;
        say_polled(vcpu_rings(vcpu));
}

/* Words of io_news that are in use.  Acquire: their vCPUs have rings. */
static unsigned words(void)
{
        return (atomic_load_explicit(&CONTROL->nvcpus, memory_order_acquire) + 63) / 64;
}

static void add_news(void)
{
        for (unsigned w = 0, n = words(); w < n; w++) {
                if (!atomic_load_explicit(&CONTROL->io_news[w], memory_order_relaxed))
                        continue;
                for (uint64_t news = atomic_exchange(&CONTROL->io_news[w], 0); news;
                     news &= news - 1)
                        add(w * 64 + (unsigned)__builtin_ctzll(news));
        }
}

static bool has_entries(struct io_rings *r)
{
        return atomic_load(&r->demand.tail) != atomic_load(&r->demand.head) ||
               atomic_load(&r->prefetch.tail) != atomic_load(&r->prefetch.head) ||
               atomic_load(&r->bulk.tail) != atomic_load(&r->bulk.head);
}

/* Is this vCPU to be polled on?  Else it is dropped. */
static bool keep(unsigned vcpu)
{
        struct io_rings *r = vcpu_rings(vcpu);

        if (polled.busy[vcpu])
                return true;
        /* full barrier: before the look at the tails */
        atomic_exchange(&r->polled, 0);
        if (!has_entries(r))
                return false;
        say_polled(r);
        return true;
}

static void drop_quiet(void)
{
        unsigned kept = 0;

        for (unsigned i = 0; i < polled.n; i++) {
                unsigned vcpu = polled.vcpu[i];
                polled.listed[vcpu] = keep(vcpu);
                if (polled.listed[vcpu])
                        polled.vcpu[kept++] = (uint16_t)vcpu;
                polled.busy[vcpu] = false;
        }
        polled.n = kept;
        polled.turns = 0;
}

unsigned polled_take(void)
{
        unsigned n = 0;

        add_news();
        for (unsigned i = 0; i < polled.n; i++)
                n += take_ring(&vcpu_rings(polled.vcpu[i])->demand, polled.vcpu[i]);
        for (unsigned i = 0; i < polled.n; i++)
                n += take_ring(&vcpu_rings(polled.vcpu[i])->prefetch, polled.vcpu[i]);
        for (unsigned i = 0; i < polled.n; i++)
                n += take_ring(&vcpu_rings(polled.vcpu[i])->bulk, polled.vcpu[i]);
        if (++polled.turns == QUIET_TURNS)
                drop_quiet();
        return n;
}

bool polled_have_news(void)
{
        for (unsigned w = 0, n = words(); w < n; w++)
                if (atomic_load(&CONTROL->io_news[w]))
                        return true;
        for (unsigned i = 0; i < polled.n; i++)
                if (has_entries(vcpu_rings(polled.vcpu[i])))
                        return true;
        return false;
}

void polled_forked(void)
{
        memset(&polled, 0, sizeof(polled));
}
