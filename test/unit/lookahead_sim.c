#include <stdlib.h>
#include "lookahead_sim.h"

#define SIM_DUE (1u << 16)              /* a power of two above any cache's frames */

static struct sim_page *page_at(struct sim *s, uint64_t page)
{
        uint64_t i = page * 0x9e3779b97f4a7c15ull >> 47;

        while (s->table[i].page1 && s->table[i].page1 != page + 1)
                i = (i + 1) % SIM_TABLE;
        s->table[i].page1 = page + 1;
        return &s->table[i];
}

void sim_begin(struct sim *s, const struct lookahead_rule *rule, struct sim_wire wire,
               uint64_t step, uint32_t frames)
{
        *s = (struct sim){ .rule = *rule, .wire = wire, .step = step, .frames = frames };
        s->table = calloc(SIM_TABLE, sizeof(*s->table));
        s->frame = calloc(frames, sizeof(*s->frame));
        s->due = calloc(SIM_DUE, sizeof(*s->due));
        if (!s->table || !s->frame || !s->due)
                abort();
}

void sim_end(struct sim *s)
{
        free(s->table);
        free(s->frame);
        free(s->due);
}

void sim_count_anew(struct sim *s)
{
        s->accesses = s->misses = s->late = s->markers = 0;
        s->fetched = s->prefetched = s->wasted = s->faults = 0;
}

uint64_t sim_wasted(const struct sim *s)
{
        uint64_t n = s->wasted;

        for (uint32_t i = 0; i < s->used; i++)
                n += s->frame[i]->pref && !s->frame[i]->touched;
        return n;
}

/* Gives the page a frame, if need be another page's. */
static void take_frame(struct sim *s, struct sim_page *p)
{
        if (s->used < s->frames) {
                s->frame[s->used++] = p;
                return;
        }
        for (;; s->hand = (s->hand + 1) % s->frames) {
                struct sim_page *old = s->frame[s->hand];
                if (old->arrives > s->now)
                        continue;
                if (old->a) {
                        old->a = old->pref = false;
                        continue;
                }
                if (s->spare && old->pref && !old->touched && !old->spared) {
                        old->spared = true;
                        continue;
                }
                s->wasted += old->pref && !old->touched;
                *old = (struct sim_page){ .page1 = old->page1 };
                s->frame[s->hand] = p;
                s->hand = (s->hand + 1) % s->frames;
                return;
        }
}

static void fetch(struct sim *s, struct sim_page *p)
{
        take_frame(s, p);
        if (s->wire_free < s->now)
                s->wire_free = s->now;
        s->wire_free += s->wire.page;
        p->arrives = s->wire_free + s->wire.latency;
        p->resident = true;
        s->fetched++;
}

static enum lookahead_use used(void *arg, uint64_t page)
{
        struct sim *s = arg;
        const struct sim_page *p = page_at(s, page);

        if (!p->resident)
                return LOOKAHEAD_UNUSED;
        if (!p->pref)
                return LOOKAHEAD_OTHER;
        if (s->shadow)
                return LOOKAHEAD_HIDDEN;
        return p->touched ? LOOKAHEAD_USED : LOOKAHEAD_UNUSED;
}

/* At most a sixteenth of the cache is under way. */
static bool has_room(struct sim *s)
{
        while (s->first_under_way < s->sent && s->due[s->first_under_way % SIM_DUE] <= s->now)
                s->first_under_way++;
        return s->sent - s->first_under_way < s->frames / 16;
}

/* The marker is the page fetched that is nearest before its place, or the first after it. */
static void prefetch(struct sim *s, struct lookahead_batch *b)
{
        struct sim_page *sent[LOOKAHEAD_MOST] = { 0 }, *marker = NULL;

        for (uint32_t i = 0; i < b->count; i++) {
                struct sim_page *p = page_at(s, b->first + (uint64_t)b->stride * i);
                if (p->resident)
                        continue;
                if (!has_room(s)) {
                        lookahead_cut(&s->look, &s->rule, b, i);
                        break;
                }
                fetch(s, p);
                p->pref = true;
                s->prefetched++;
                s->due[s->sent++ % SIM_DUE] = p->arrives;
                sent[i] = p;
        }
        if (b->marker == LOOKAHEAD_NO_MARKER)
                return;
        for (uint32_t i = 0; i < b->count; i++)
                if (sent[i] && (!marker || i <= b->marker))
                        marker = sent[i];
        if (marker)
                marker->marker = true;
}

static void fault(struct sim *s, uint64_t page, enum lookahead_cause cause)
{
        struct lookahead_batch b;

        s->faults++;
        lookahead_fault(&s->look, &s->rule, page, cause, used, s, &b);
        prefetch(s, &b);
}

void sim_access(struct sim *s, uint64_t page)
{
        struct sim_page *p = page_at(s, page);

        s->now += s->step;
        s->accesses++;
        if (!p->resident) {
                s->misses++;
                fetch(s, p);
                p->a = p->touched = true;
                fault(s, page, LOOKAHEAD_MISS);
        } else if (p->arrives > s->now) {
                s->late++;
                p->a = p->touched = true;
                p->marker = false;
                fault(s, page, LOOKAHEAD_LATE);
        } else if (p->marker) {
                s->markers++;
                p->a = p->touched = true;
                p->marker = false;
                fault(s, page, LOOKAHEAD_MARKER);
        }
        p->a = p->touched = true;
        if (s->now < p->arrives)
                s->now = p->arrives;
}

void sim_preload(struct sim *s, uint64_t page)
{
        struct sim_page *p = page_at(s, page);

        if (p->resident)
                return;
        take_frame(s, p);
        p->resident = true;
}
