/*
 * Fills the table of a replay, and keeps it right while files are mapped.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "replay/table.h"

/* The program and its heap are at one end of the address space, mappings at the other. */
order_event place_of(const struct places *p, uint64_t page)
{
        if (page >= p->mapped)
                return order_make(ORDER_STACK, (int64_t)(page - p->stack));
        if (page < p->low || page - p->low < p->mapped - page)
                return order_make(ORDER_LOW, (int64_t)(page - p->low));
        return order_make(ORDER_MAPPED, (int64_t)(page - p->mapped));
}

/* The page number where an event's page is; 0: nowhere, or not known yet. */
static uint64_t place_now(const struct places *p, order_event e)
{
        const uint64_t from[ORDER_FILE] = { p->low, p->mapped, p->stack };
        unsigned object = order_object(e);

        if (object >= ORDER_FILE)
                return 0;
        uint64_t page = from[object] + (uint64_t)order_page(e);
        return page < TASK_SIZE / PAGE_SIZE ? page : 0;
}

/* ---- numbers ---- */

static uint64_t mix(uint64_t v, unsigned bits) { return v * 0x9e3779b97f4a7c15ull >> (64 - bits); }

static unsigned bits_for(uint64_t entries)
{
        unsigned bits = 6;

        while (1ull << bits < entries)
                bits++;
        return bits;
}

/* By file, then by page: the sort looks at the table that is being made. */
static const order_event *sorting;

static int by_place(const void *a, const void *b)
{
        order_event x = sorting[*(const uint32_t *)a], y = sorting[*(const uint32_t *)b];

        if (order_object(x) != order_object(y))
                return order_object(x) < order_object(y) ? -1 : 1;
        return order_page(x) < order_page(y) ? -1 : order_page(x) > order_page(y);
}

static void sort_file_pages(struct table *t)
{
        for (uint32_t i = 0; i < t->pages; i++)
                if (order_object(t->page[i]) >= ORDER_FILE)
                        t->file_page[t->file_pages++] = i;
        sorting = t->page;
        qsort(t->file_page, t->file_pages, sizeof(*t->file_page), by_place);
}

int table_number(struct table *t, const struct order *o)
{
        const unsigned bits = bits_for(2ull * o->events);
        uint32_t *seen = calloc(1ul << bits, sizeof(*seen));    /* page + 1 */

        *t = (struct table){ .events = o->events };
        if (o->threads)
                t->streams = o->thread[o->threads - 1].number + 1;
        t->number = malloc((o->events + 1ul) * sizeof(*t->number));
        t->page = malloc((o->events + 1ul) * sizeof(*t->page));
        t->file_page = malloc((o->events + 1ul) * sizeof(*t->file_page));
        if (!seen || !t->number || !t->page || !t->file_page) {
                free(seen);
                table_free(t);
                return -ENOMEM;
        }
        for (uint32_t i = 0; i < o->events; i++) {
                uint64_t h = mix(o->event[i], bits);
                while (seen[h] && t->page[seen[h] - 1] != o->event[i])
                        h = (h + 1) & ((1ul << bits) - 1);
                if (!seen[h]) {
                        t->page[t->pages] = o->event[i];
                        seen[h] = ++t->pages;
                }
                t->number[i] = seen[h] - 1;
        }
        free(seen);
        sort_file_pages(t);
        return 0;
}

void table_free(struct table *t)
{
        free(t->number);
        free(t->page);
        free(t->file_page);
        *t = (struct table){ 0 };
}

/* ---- layout ---- */

/* Four entries a page, so that files can be mapped again elsewhere. */
static uint32_t hash_bits(const struct table *t) { return bits_for(4ull * t->pages); }

static size_t whole(size_t bytes) { return (bytes + PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE; }

static void *cut(uintptr_t *room, size_t bytes)
{
        void *at = (void *)*room;

        *room += whole(bytes);
        return at;
}

/* The addresses of its parts, in room at `at`. */
static struct replay plan(const struct table *t, uintptr_t *at)
{
        struct replay r = { .events = t->events, .pages = t->pages, .streams = t->streams,
                            .hash_bits = hash_bits(t) };

        cut(at, sizeof(r));
        r.order = cut(at, r.events * sizeof(*r.order));
        r.where = cut(at, r.events * sizeof(*r.where));
        r.first = cut(at, (r.pages + 1ul) * sizeof(*r.first));
        r.addr = cut(at, r.pages * sizeof(*r.addr));
        r.hash = cut(at, sizeof(*r.hash) << r.hash_bits);
        r.stream = cut(at, r.streams * sizeof(*r.stream));
        return r;
}

size_t table_size(const struct table *t)
{
        uintptr_t at = 0;

        plan(t, &at);
        return at;
}

/* ---- where pages are ---- */

/* Relaxed: vCPUs take the address for a hint. */
static void set_addr(struct table *t, uint32_t number, uint64_t page)
{
        struct replay *r = t->replay;
        const uint64_t mask = (1ull << r->hash_bits) - 1;
        uint64_t entry = page << REPLAY_PAGE_BITS | (number + 1), h = replay_hash(r, page);

        atomic_store_explicit(&r->addr[number], page, memory_order_relaxed);
        for (;; h++) {
                uint64_t e = atomic_load_explicit(&r->hash[h & mask], memory_order_relaxed);
                if (e == entry)
                        return;
                if (e == 0)
                        break;
        }
        /* In a hash so full a search would take long: pages that moved so often are not found. */
        if (t->used >= mask / 4 * 3)
                return;
        t->used++;
        atomic_store_explicit(&r->hash[h & mask], entry, memory_order_relaxed);
}

void table_mapped(struct table *t, uint32_t file, uint64_t first, uint64_t n, uint64_t at)
{
        const unsigned object = ORDER_FILE + file;
        uint32_t low = 0, high = t->file_pages;

        while (low < high) {            /* the file's first page at or behind `first` */
                uint32_t mid = low + (high - low) / 2;
                order_event e = t->page[t->file_page[mid]];
                if (order_object(e) < object ||
                    (order_object(e) == object && order_page(e) < (int64_t)first))
                        low = mid + 1;
                else
                        high = mid;
        }
        for (; low < t->file_pages; low++) {
                uint32_t number = t->file_page[low];
                uint64_t in = (uint64_t)order_page(t->page[number]) - first;
                if (order_object(t->page[number]) != object || in >= n)
                        return;
                set_addr(t, number, at + in);
        }
}

/* ---- making ---- */

/* Events of a page together, in their order: counted, then put in from the end. */
static void sort_events(struct replay *r)
{
        for (uint32_t e = 0; e < r->events; e++)
                r->first[r->order[e]]++;
        for (uint32_t i = 1; i <= r->pages; i++)
                r->first[i] += r->first[i - 1];
        for (uint32_t e = r->events; e-- > 0;)
                r->where[--r->first[r->order[e]]] = e;
}

static void make_streams(struct replay *r, const struct order *o)
{
        uint32_t at = 0;

        for (uint32_t i = 0; i < o->threads; i++) {
                const struct order_thread *t = &o->thread[i];
                r->stream[t->number] = (struct replay_stream){
                        .begin = at, .end = at + t->events, .cursor = at, .ahead = at,
                        .astray = REPLAY_NONE,
                };
                at += t->events;
        }
}

void table_make(struct table *t, const struct order *o, const struct places *p, void *room)
{
        uintptr_t at = (uintptr_t)room;
        struct replay *r = t->replay = room;

        *r = plan(t, &at);
        memcpy(r->order, t->number, t->events * sizeof(*r->order));
        sort_events(r);
        make_streams(r, o);
        for (uint32_t i = 0; i < t->pages; i++) {
                uint64_t page = place_now(p, t->page[i]);
                if (page)
                        set_addr(t, i, page);
        }
}
