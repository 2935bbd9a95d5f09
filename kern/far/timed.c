/*
 * The clock is the TSC without the ticks that copies take: on hardware the network card moves the
 * pages, beside the CPU.  So if all threads share one CPU, the program's time without the ticks of
 * copies is its time on such hardware.
 */
#include "base/cpu.h"
#include "base/exit.h"
#include "base/latency.h"
#include "base/print.h"
#include "base/state.h"
#include "base/string.h"
#include "base/pool.h"
#include "far/direct/card.h"
#include "far/timed.h"
#include "far/wire.h"
#include "pager/env.h"

/* A longer wait is a sleep in the host; a shorter wait would end no sooner by a sleep. */
#define SLEEP_LEAST_US 20

static struct wires wires;
/* Prefetches under way, by vCPU. */
static _Atomic uint32_t ahead[VCPUS_MAX];

/* The writes under way, in the order of their asking. */
static struct {
        uint32_t head, tail;
        struct { uint64_t due, asked; void *slot; frame_t frame; } page[IO_RING];
} writes;

/* Under the lock the clock does not run back; without the lock the result is a hint. */
static uint64_t now(void)
{
        return cpu_tsc() - atomic_load_explicit(&wires.copied, memory_order_relaxed);
}

static uint64_t sleep_least(void) { return SLEEP_LEAST_US * control.tsc_khz / 1000; }

/* What a network card does, which began at a time, takes no time.  With the lock held. */
static void leave_out(uint64_t begun)
{
        uint64_t sum = atomic_load_explicit(&wires.copied, memory_order_relaxed);

        sum += cpu_tsc() - begun;
        atomic_store_explicit(&wires.copied, sum, memory_order_relaxed);
        atomic_store_explicit(&control.wire_copied, sum, memory_order_relaxed);
}

/* With the lock held. */
static void copy(void *to, const void *from)
{
        uint64_t begun = cpu_tsc();

        copy_page(to, from);
        leave_out(begun);
}

/* --- cards --- */

static struct {
        struct card *first;             /* only grows, at its front */
        bool stalled;                   /* one had no place on the wire for its next request */
} cards;

static struct card *new_card(unsigned node)
{
        char *page[3];

        for (unsigned i = 0; i < 3; i++)
                if (!(page[i] = pool_page(POOL_CARD)))
                        return NULL;    /* what it has taken is left */
        struct card *c = (struct card *)page[0];
        card_init(c, node, page[1], page[2]);
        return c;
}

static bool add_cards(unsigned node)
{
        struct direct_queue *queue[DIRECT_QUEUES];

        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                struct card *c = new_card(node);
                if (!c)
                        return false;
                queue[i] = &c->queue;
                wire_lock(&wires);
                c->next = cards.first;
                cards.first = c;
                wire_unlock(&wires);
        }
        direct_add(node, queue);
        return true;
}

/* Puts what was posted to a card on its way, at time t.  With the lock held. */
static void begin(struct card *c, uint64_t t)
{
        struct card_read r;

        while (card_next(c, &r)) {
                const struct wire_page page = {
                        .slot = r.from, .card = c, .at = r.at, .op = IO_READ,
                        .frame = (frame_t)(((char *)r.to - (char *)env_frame_va(0)) / PAGE_SIZE),
                };
                if (!wire_ask(&wires, c->node, &page, t)) {
                        cards.stalled = true;
                        return;
                }
                card_began(c);
        }
}

void timed_rung(struct direct_queue *q)
{
        wire_lock(&wires);
        uint64_t t = now(), begun = cpu_tsc();
        begin((struct card *)q, t);
        leave_out(begun);
        wire_unlock(&wires);
}

/* A page has left the wire, so there is a place on it.  With the lock held. */
static void begin_stalled(void)
{
        uint64_t t = now(), begun = cpu_tsc();

        cards.stalled = false;
        for (struct card *c = cards.first; c && !cards.stalled; c = c->next)
                begin(c, t);
        leave_out(begun);
}

bool timed_add(const struct slab *s)
{
        if (s->node >= SLAB_NODES)
                kern_bug("a slab's node has no such number", s->node, s->pages);
        wire_lock(&wires);
        wire_add(&wires, s->node, &(struct wire_rate){ s->latency, s->page_ticks });
        wire_unlock(&wires);
        return !s->queues || direct_has(s->node) || add_cards(s->node);
}

void timed_read(const struct slab *s, const void *slot, frame_t f, enum io_op op)
{
        const uint16_t me = (uint16_t)vcpu_self_fixed.number;
        const struct wire_page page = {
                .slot = slot, .frame = f, .vcpu = me, .op = (uint8_t)op,
                .asked = op == IO_READ && fetch_sampled() ? cpu_tsc() : 0,
        };

        if (op != IO_READ)
                atomic_fetch_add_explicit(&ahead[me], 1, memory_order_relaxed);
        for (unsigned spins = 0;; spins++) {
                wire_lock(&wires);
                bool asked = wire_ask(&wires, s->node, &page, now());
                wire_unlock(&wires);
                if (asked)
                        return;
                timed_poll();           /* ends when the first of all these is due */
                env_relax(spins);
        }
}

uint32_t timed_ahead(void)
{
        return atomic_load_explicit(&ahead[vcpu_self_fixed.number], memory_order_relaxed);
}

/* A page has come.  With the lock held.  Returns the entry if a vCPU sleeps on it. */
static pte_slot_t *deliver(const struct wire_page *p)
{
        struct frame *f = &pager.frames[p->frame];
        pte_slot_t *pte = atomic_load_explicit(&f->pte, memory_order_relaxed);
        uint64_t pfn = pager.pfn0 + p->frame;
        bool awaited;

        copy(env_frame_va(p->frame), p->slot);
        if (p->card) {
                uint64_t begun = cpu_tsc();
                card_end(p->card, p->at);
                leave_out(begun);
                return NULL;
        }
        if (p->op == IO_READ) {
                awaited = page_fetched(f, pfn, PTE_P | PTE_A, 0);
        } else {
                awaited = page_prefetched(
                        f, pfn, pte_ahead(p->op == IO_MARKER, control.shadow_paging), 0);
                atomic_fetch_sub_explicit(&ahead[p->vcpu], 1, memory_order_relaxed);
        }
        if (p->op != IO_READ || awaited)
                notices_over(&pager.notices, p->frame);
        if (p->asked) {
                latency_add(LAT_QUEUE, p->queued);
                latency_add(LAT_WIRE, cpu_tsc() - p->asked - p->queued);
        }
        return awaited ? pte : NULL;
}

void timed_poll(void)
{
        for (;;) {
                uint64_t next = atomic_load_explicit(&wires.next, memory_order_relaxed);
                struct wire_page p;
                pte_slot_t *awaited = NULL;

                /* If the lock is taken, another vCPU delivers the pages. */
                if (!next || next > now() || !wire_try_lock(&wires))
                        return;
                bool due = wire_take(&wires, now(), &p);
                if (due)
                        awaited = deliver(&p);
                if (due && cards.stalled)
                        begin_stalled();
                wire_unlock(&wires);
                if (!due)
                        return;
                if (awaited)
                        env_wake_pte(awaited);
        }
}

bool timed_poll_slow(void)
{
        uint32_t before = timed_ahead();

        timed_poll();
        return timed_ahead() > before / 4 * 3;
}

/* Sleeps in the host while the word is `seen`, until shortly before a time. */
static void sleep_until(const void *word, uint64_t seen, uint64_t due)
{
        uint64_t wake = now() + sleep_least() / 2;

        if (due > wake)
                vmexit5(EXIT_WAIT_PTE, (uint64_t)word, seen, 1,
                        (due - wake) * 1000000 / control.tsc_khz, 0);
}

bool timed_wait(const void *word, uint64_t seen, frame_t f)
{
        uint64_t due;

        if (!atomic_load_explicit(&wires.next, memory_order_relaxed))
                return false;
        wire_lock(&wires);
        bool found = wire_find(&wires, f, &due);
        wire_unlock(&wires);
        if (found && due > now() + sleep_least())
                sleep_until(word, seen, due);
        return found;
}

uint64_t timed_part(const struct slab *s, size_t len)
{
        uint64_t begun, due;

        wire_lock(&wires);
        due = wire_send_bytes(&wires.node[s->node].in, &wires.node[s->node].rate, len, now(),
                              &begun);
        wire_unlock(&wires);
        return due;
}

void timed_part_wait(uint64_t due)
{
        static const uint32_t never;
        uint64_t t;

        while ((t = now()) < due) {
                timed_poll();
                if (due > t + sleep_least())
                        sleep_until(&never, 0, due);
                else
                        cpu_relax();
        }
}

void timed_stay(void)
{
        uint32_t enough = timed_ahead() * 7 / 16;

        for (unsigned spins = 0; timed_ahead() > enough;) {
                uint64_t next = atomic_load_explicit(&wires.next, memory_order_relaxed), t = now();
                if (!next || next > t + sleep_least())
                        return;
                timed_poll();
                /* if no page comes although one is due, the holder of the lock may not be
                 * running */
                env_relax(next <= t ? spins++ : 0);
        }
}

/* --- writes --- */

void timed_write(const struct slab *s, void *slot, frame_t f)
{
        uint32_t at = writes.tail++ % IO_RING;
        uint64_t begun;

        writes.page[at].slot = slot;
        writes.page[at].frame = f;
        writes.page[at].asked = control.stats_on ? cpu_tsc() : 0;
        writes.page[at].due = wire_send(&wires.node[s->node].out, &wires.node[s->node].rate, now(),
                                        &begun);
}

frame_t timed_written(void)
{
        uint32_t at = writes.head % IO_RING;

        if (writes.head == writes.tail || writes.page[at].due > now())
                return FRAME_NONE;
        wire_lock(&wires);
        copy(writes.page[at].slot, env_frame_va(writes.page[at].frame));
        wire_unlock(&wires);
        writes.head++;
        if (writes.page[at].asked)
                latency_add(LAT_WRITEBACK, cpu_tsc() - writes.page[at].asked);
        return writes.page[at].frame;
}

bool timed_write_wait(void)
{
        /* the cleaner has nothing else to do: it waits for half of its writes at once */
        uint32_t at = (writes.head + (writes.tail - writes.head) / 2) % IO_RING;
        uint32_t seq = atomic_load(&control.service_seq);

        if (writes.head == writes.tail)
                return false;
        if (writes.page[at].due > now() + sleep_least())
                sleep_until(&control.service_seq, seq, writes.page[at].due);
        else if (writes.page[writes.head % IO_RING].due > now())
                vmexit(EXIT_YIELD, 0, 0, 0);    /* no thread waits for this vCPU */
        return true;
}
