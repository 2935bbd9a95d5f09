/*
 * See copies_model.h: copies.c, request.c and outage.c, as they are.  The state of the last two is
 * swapped when another process of the model continues.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <guest_ram.h>
#include <x86intrin.h>
#include "base/message.h"
#include "base/options.h"
#include "base/word.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/drain.h"
#include "far/meter.h"
#include "far/nodes.h"
#include "far/outage.h"
#include "far/repair.h"
#include "far/request.h"
#include "far/wait.h"
#include "include/allocator.h"
#include "pager/frame.h"
#include "vm/vm.h"
#include "copies_hooks.h"

#include "far/copies.c"

struct model_control *control_of_self(void)
{
        static struct model_control c;

        c = (struct model_control){ .nframes = HELD, .nslabs = SLABS, .slabs = slabs,
                                    .tree_number = self()->number };
        return &c;
}
static struct io_rings rings;
static void *pool_alloc(size_t n);
static bool not_modelled(void)
{
        sched_fail("the model fetches parts only");
        return false;
}

#undef CONTROL
#define CONTROL control_of_self()
#undef TREE_WINDOW
#define TREE_WINDOW units
#define frame_host(f) frame_of_self(f)
#define frame_pfn0()  0
#define vcpu_rings(n) ((void)(n), &rings)
#define malloc(n)     pool_alloc(n)
#define page_fetched(f, pfn, how, err)    ((void)(f), (void)(err), not_modelled())
#define page_prefetched(f, pfn, how, err) page_fetched(f, pfn, how, err)

/* Of a write, frame i is that of page i; of a read, the bounce page of vCPU i; then come those of
 * repairs. */
static char *frame_of_self(uint32_t f)
{
        struct seat *s = self();
        return (char *)(f < HELD       ? &s->page[f].frame
                        : f < 2 * HELD ? &s->page[f - HELD].bounce
                                       : &s->copy_frame[f - 2 * HELD]);
}

uint64_t called_over[SLOTS];
/* When a copy was made up for last, by slot. */
static uint64_t made_good[SLOTS];
#define copies_written(c, slot, good)                                                              \
        (called_over[index_of(slot)] = *(uint64_t *)frame_host(q->frame),                          \
         check_written(slot, good), (copies_written)(c, slot, good))
#define copies_repaired(c, slot, good) \
        (made_good[index_of(slot)] = sched_steps, (copies_repaired)(c, slot, good))

#include "far/request.c"
#include "far/outage.c"

struct options opt = { .timeout_ms = 1u << 30, .verify = true, .replicas = 2 };

/* The copies that were wanting when a process began to look at all of them, and all that may have
 * changed since. */
static struct sight {
        bool wanting[SLOTS];
        struct { uint16_t word; unsigned good; uint64_t written, made; } of[SLOTS];
        struct { unsigned places; } slab[SLABS];
        struct { uint64_t serial; bool answers; } node[NODES];
} sight[SEATS];

static bool answers(const struct far_node *n)
{
        return !n->lost && !*(const bool *)&n->is_drained && *(const bool *)&n->up;
}

static bool is_held_by_one(uint64_t slot)
{
        for (const struct seat *s = seats; s < seats + SEATS; s++)
                for (const struct page *g = s->page; s->alive && g < s->page + HELD; g++)
                        if (g->slot == slot && (g->state == HELD_STILL || g->state == READS))
                                return true;
        return false;
}

static bool is_wanting_now(uint64_t slot, unsigned good)
{
        const struct far_slab *f = &self()->slab[slot_slab(slot)];
        const uint64_t draining = *(uint64_t *)&((struct tree_common *)units)->draining;
        const uint64_t unfit = *(uint64_t *)&tree_map(units, slot_slab(slot))->unfit[0];
        bool have = false, lack = false, foreign = false;

        for (unsigned k = 0; k < f->places; k++) {
                const struct far_node *n = f->place[k].node;
                foreign |= !n->fences;
                if (!answers(n))
                        continue;
                have |= good >> k & 1;
                lack |= !(good >> k & 1) && n->fences && !(draining >> n->index & 1);
        }
        /* where nodes do not fence, pages that are DUE for good are not copied */
        return have && lack && !foreign && !(unfit >> slot_page(slot) & 1) && is_held_by_one(slot);
}

static void see(struct sight *now)
{
        memset(now, 0, sizeof(*now));
        for (unsigned i = 0; i < SLOTS; i++) {
                const uint64_t slot = (uint64_t)(i / PAGES) << SLAB_SHIFT | i % PAGES;
                const struct far_slab *f = &self()->slab[i / PAGES];
                unsigned good = 0;
                for (unsigned k = 0; k < f->places; k++)
                        good |= (unsigned)is_good_at(slot, k) << k;
                now->wanting[i] = is_wanting_now(slot, good);
                now->of[i].word = *(uint16_t *)slot_word(units, slot);
                now->of[i].good = good;
                now->of[i].written = called_over[i];
                now->of[i].made = made_good[i];
                now->slab[i / PAGES].places = f->places;
        }
        for (unsigned k = 0; k < NODES; k++) {
                now->node[k].serial = self()->view[k].serial;
                now->node[k].answers = answers(&self()->node[k]);
        }
}

void see_copies(void) { see(&sight[self() - seats]); }

/* A process says that no process wants a copy: so of each that was wanting when it began to look,
 * and still is, something has changed meanwhile. */
static void check_whole(void)
{
        const struct sight *old = &sight[self() - seats];
        struct sight now;

        see(&now);
        met.whole++;
        for (unsigned i = 0; i < SLOTS; i++)
                if (old->wanting[i] && now.wanting[i] &&
                    memcmp(&old->of[i], &now.of[i], sizeof(now.of[i])) == 0 &&
                    memcmp(old->slab, now.slab, sizeof(now.slab)) == 0 &&
                    memcmp(old->node, now.node, sizeof(now.node)) == 0)
                        sched_fail("process %u says that no copy is wanting, but one of slot %u is",
                                   self()->tree.self, i);
}

void warnx_(const char *fmt, ...)
{
        if (strstr(fmt, "copies of all processes"))
                check_whole();
}
void info_(const char *fmt, ...) { (void)fmt; }
_Noreturn void die_(int status, const char *fmt, ...)
{
        (void)status;
        sched_fail("vmrun ends: %s", fmt);
        abort();
}
void wait_learn(uint64_t took) { (void)took; }
void meter_page(const struct far_node *n, bool write, uint64_t taken)
{
        (void)n;
        (void)write;
        (void)taken;
}
void meter_fetch(uint64_t asked, uint64_t sent) { (void)asked, (void)sent; }
unsigned far_nodes(void) { return NODES; }
struct far_node *far_node_at(unsigned i) { return &self()->node[i]; }
struct far_slab *far_slab(uint32_t i) { return &self()->slab[i]; }
void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
{
        (void)fmt;
        n->lost_pages |= pages;
        n->lost = true;
}

/* ---- the memory of a process ---- */

/* The queues, which stand last, are by node: the model has the first few nodes. */
enum { MEMORY = offsetof(struct requests, queue[NODES]) };
_Static_assert(offsetof(struct requests, queue) + sizeof(requests.queue) == sizeof(requests),
               "the queues stand last");
static struct { char requests[MEMORY], outage[sizeof(outage)]; } memory[SEATS];
static struct seat *loaded;

void memory_of(struct seat *s)
{
        if (loaded == s)
                return;
        if (loaded) {
                memcpy(memory[loaded - seats].requests, &requests, MEMORY);
                memcpy(memory[loaded - seats].outage, &outage, sizeof(outage));
                repair_memory_out((unsigned)(loaded - seats));
                drain_memory_out((unsigned)(loaded - seats));
        }
        memcpy(&requests, memory[s - seats].requests, MEMORY);
        memcpy(&outage, memory[s - seats].outage, sizeof(outage));
        repair_memory_in((unsigned)(s - seats));
        drain_memory_in((unsigned)(s - seats));
        loaded = s;
}

bool memory_is_loaded(const struct seat *s) { return loaded == s; }

void memory_reset(struct seat *s)
{
        if (loaded == s)
                loaded = NULL;
        memset(&memory[s - seats], 0, sizeof(memory[0]));
        repair_memory_reset((unsigned)(s - seats));
        drain_memory_reset((unsigned)(s - seats));
}

static struct block { struct block *next; } *blocks;
static void *pool_alloc(size_t n)
{
        struct block *b = calloc(1, sizeof(*b) + n);

        if (!b)
                abort();
        b->next = blocks;
        blocks = b;
        return b + 1;
}

void memory_free_all(void)
{
        for (struct block *b = blocks, *next; b; b = next) {
                next = b->next;
                free(b);
        }
        blocks = NULL;
        loaded = NULL;
}

/* ---- the I/O side ---- */

uint64_t request_slot(const struct far_request *r) { return ((struct request *)r->owner)->slot; }

bool is_good_at(uint64_t slot, unsigned place)
{
        if (!*(uint32_t *)&tree_map(units, slot_slab(slot))->places)
                return place == 0;
        return *(uint64_t *)&tree_map(units, slot_slab(slot))->good[place][slot_page(slot) / 64] >>
                       slot % 64 & 1;
}

static bool is_gone(const struct page *g)
{
        const struct far_slab *f = far_slab(slot_slab(g->slot));
        bool right = (g->state == READS || g->state == WRITES) &&
                     f->places == head->slab[slot_slab(g->slot)].places;

        /* Another process makes a copy good, or adds a place, after this one has looked for one: it
         * ends for a page that is there a moment later.  It had lost the node with the only
         * copy. */
        if ((g->state == READS && sched_steps - made_good[index_of(g->slot)] < 500) ||
            ((g->state == READS || g->state == WRITES) && sched_steps - place_added < 5000))
                return true;
        for (unsigned k = 0; k < f->places; k++)
                right &= f->place[k].node->lost || (g->state == READS && !is_good_at(g->slot, k));
        return right;
}

/* All nodes that have it were drained: then it is elsewhere too. */
static bool was_drained(const struct page *g)
{
        const struct far_slab *f = far_slab(slot_slab(g->slot));
        bool drained = false;

        for (unsigned k = 0; k < f->places; k++)
                if (is_good_at(g->slot, k)) {
                        if (!*(const bool *)&f->place[k].node->is_drained)
                                return false;
                        drained = true;
                }
        return drained;
}

/* A node is lost, and a page with it: the program ends. */
static void ends(const struct far_node *n)
{
        struct seat *s = self();
        bool gone = false;

        for (unsigned i = 0; i < HELD; i++) {
                struct page *g = &s->page[i];
                gone |= is_gone(g);
                if (g->state == READS && is_gone(g) && was_drained(g))
                        sched_fail("node %u is drained for process %u, but alone has its page in "
                                   "slot %#lx", n->index, s->tree.self, (unsigned long)g->slot);
        }
        /* Without copies the loss of a node with pages is enough. */
        if (!gone && !(opt.replicas == 1 && n->lost_pages && !n->is_drained))
                sched_fail("process %u ends for node %u, but has all its pages", s->tree.self,
                           n->index);
        met.gone++;
        process_kill(s);
        crash_point();
}

void side_step(void)
{
        struct seat *s = self();
        uint64_t slot, before = repairs_made();
        frame_t frame;

        request_pieces((struct slot_pieces *)1);        /* no node has a unit: they are not read */
        outage_on_loss(ends);
        for (unsigned i = 0; i < HELD; i++) {
                struct page *g = &s->page[i];
                if (!g->asked)
                        continue;
                g->asked = false;
                request_begin(&g->entry, g->state == READS ? i : 0);
        }
        request_post();
        driver_step();
        outage_step();
        drain_turn();
        while (repair_next(&slot, &frame)) {
                check_repairer(slot);
                request_repair(slot, frame);
        }
        met.copied += repairs_made() - before;
        crash_point();
}
