#include "far/wire.h"
#include "pager/env.h"

bool wire_try_lock(struct wires *w)
{
        /* Acquire: sees the lists as the last holder left them. */
        return !atomic_exchange_explicit(&w->lock, 1, memory_order_acquire);
}

void wire_lock(struct wires *w)
{
        for (unsigned spins = 0; !wire_try_lock(w); spins++)
                env_relax(spins);
}

void wire_unlock(struct wires *w) { atomic_store_explicit(&w->lock, 0, memory_order_release); }

static void append(struct wires *w, struct wire_list *l, uint32_t at)
{
        w->page[at - 1].next = 0;
        if (l->head)
                w->page[l->tail - 1].next = at;
        else
                l->head = at;
        l->tail = at;
}

static uint32_t remove_first(struct wires *w, struct wire_list *l)
{
        uint32_t at = l->head;

        if (at)
                l->head = w->page[at - 1].next;
        return at;
}

/* The node whose first page is due before the first pages of all others; -1: no page is under
 * way. */
static int first_due(const struct wires *w, uint64_t *due)
{
        int first = -1;

        *due = 0;
        for (unsigned i = 0; i < w->count; i++) {
                uint32_t at = w->node[i].asked.head;
                if (!at || (first >= 0 && w->page[at - 1].due >= *due))
                        continue;
                *due = w->page[at - 1].due;
                first = (int)i;
        }
        return first;
}

static void set_next(struct wires *w)
{
        uint64_t due;

        first_due(w, &due);
        /* Relaxed: a hint. */
        atomic_store_explicit(&w->next, due, memory_order_relaxed);
}

void wire_add(struct wires *w, unsigned node, const struct wire_rate *r)
{
        w->node[node].rate = *r;
        if (node >= w->count)
                w->count = node + 1;
}

bool wire_ask(struct wires *w, unsigned node, const struct wire_page *page, uint64_t now)
{
        uint32_t at = remove_first(w, &w->unused);
        uint64_t begun;

        if (!at && w->fresh < WIRE_PAGES)
                at = ++w->fresh;
        if (!at)
                return false;
        struct wire_page *p = &w->page[at - 1];
        *p = *page;
        p->due = wire_send(&w->node[node].in, &w->node[node].rate, now, &begun);
        p->queued = begun - now;
        append(w, &w->node[node].asked, at);
        set_next(w);
        return true;
}

bool wire_take(struct wires *w, uint64_t now, struct wire_page *page)
{
        uint64_t due;
        int node = first_due(w, &due);

        if (node < 0 || due > now)
                return false;
        uint32_t at = remove_first(w, &w->node[node].asked);
        *page = w->page[at - 1];
        append(w, &w->unused, at);
        set_next(w);
        return true;
}

bool wire_find(const struct wires *w, frame_t frame, uint64_t *due)
{
        for (unsigned i = 0; i < w->count; i++)
                for (uint32_t at = w->node[i].asked.head; at; at = w->page[at - 1].next)
                        if (w->page[at - 1].frame == frame) {
                                *due = w->page[at - 1].due;
                                return true;
                        }
        return false;
}
