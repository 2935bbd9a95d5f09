/*
 * Snapshots: collecting them from the owners, and counting from the last reset on.
 *
 * Nothing is ever set to 0: counters belong to the threads that count.  A reset remembers a
 * snapshot, and its numbers are subtracted from later snapshots.  So no count is lost or goes back.
 *
 * Only the thread that holds stats_lock (report.c) uses this file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/line.h"
#include "stats/model.h"

#define OWNERS_MAX 16
static stats_fn *owner[OWNERS_MAX];
static unsigned owners;

static struct stats base;               /* at the last reset */

void stats_register(stats_fn *fn)
{
        if (owners == OWNERS_MAX)
                abort();                /* raise OWNERS_MAX */
        owner[owners++] = fn;
}

/* ---- adding ---- */

bool stats_only_counters(const struct stats *s) { return s->only_counters; }

/* The new item, zeroed but for kind and instance; NULL: there is no memory, or the item is not
 * asked for. */
static struct stats_item *add(struct stats *s, const struct stats_kind *k, const char *instance)
{
        if (s->only_counters && (k->type == STATS_GAUGE || k->type == STATS_TEXT))
                return NULL;
        if (s->n == s->room) {
                unsigned room = s->room ? 2 * s->room : 128;
                struct stats_item *more = realloc(s->item, room * sizeof(*more));
                if (!more) {
                        s->failed = true;
                        return NULL;
                }
                s->item = more;
                s->room = room;
        }
        struct stats_item *i = &s->item[s->n++];
        *i = (struct stats_item){ .kind = k };
        snprintf(i->instance, sizeof(i->instance), "%s", instance ? instance : "");
        return i;
}

void stats_count(struct stats *s, const struct stats_kind *k, const char *instance, uint64_t v)
{
        struct stats_item *i = add(s, k, instance);

        if (i)
                i->v = v;
}

void stats_numbered(struct stats *s, const struct stats_kind *k, unsigned instance, uint64_t v)
{
        char number[16];

        snprintf(number, sizeof(number), "%u", instance);
        stats_count(s, k, number, v);
}

void stats_ratio(struct stats *s, const struct stats_kind *k, unsigned times, uint64_t a,
                 uint64_t b)
{
        struct stats_item *i = add(s, k, NULL);

        if (i) {
                i->v = a;
                i->by = b;
                i->times = times;
        }
}

void stats_text(struct stats *s, const struct stats_kind *k, const char *instance, const char *text,
                bool number)
{
        struct stats_item *i = add(s, k, instance);

        if (!i)
                return;
        i->number = number;
        i->text = strdup(text);
        if (i->text)            /* names may hold any bytes: no format takes all of them */
                line_clean(i->text, strlen(i->text));
        else
                s->n--, s->failed = true;
}

void stats_latency(struct stats *s, const struct stats_kind *k, const char *instance,
                   const uint64_t *bucket, uint64_t ticks, uint64_t tsc_khz)
{
        struct stats_item *i = tsc_khz ? add(s, k, instance) : NULL;

        if (!i)
                return;
        i->h = malloc(sizeof(*i->h));
        if (!i->h) {
                s->n--, s->failed = true;
                return;
        }
        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                i->h->bucket[b] = __atomic_load_n(&bucket[b], __ATOMIC_RELAXED);
        i->h->ticks = ticks;
        i->h->tsc_khz = tsc_khz;
}

void stats_free(struct stats *s)
{
        for (unsigned i = 0; i < s->n; i++) {
                free(s->item[i].text);
                free(s->item[i].h);
        }
        free(s->item);
        *s = (struct stats){ 0 };
}

int stats_copy(struct stats *to, const struct stats *from)
{
        for (unsigned n = 0; n < from->n; n++) {
                const struct stats_item *f = &from->item[n];
                struct stats_item *i = add(to, f->kind, f->instance);
                if (!i)
                        return -ENOMEM;
                *i = *f;
                i->text = f->text ? strdup(f->text) : NULL;
                i->h = f->h ? malloc(sizeof(*i->h)) : NULL;
                if ((f->text && !i->text) || (f->h && !i->h))
                        return -ENOMEM;
                if (i->h)
                        *i->h = *f->h;
        }
        return 0;
}

/* ---- reading ---- */

const char *stats_name(const struct stats_item *i, const char *pattern, char to[STATS_KEY])
{
        const char *mark = strchr(pattern, '%');

        if (mark)
                snprintf(to, STATS_KEY, "%.*s%s%s", (int)(mark - pattern), pattern, i->instance,
                         mark + 1);
        else
                snprintf(to, STATS_KEY, "%s", pattern);
        return to;
}

double stats_ratio_of(const struct stats_item *i)
{
        return i->by ? i->times * (double)i->v / (double)i->by : 0.0;
}

bool stats_is_empty(const struct stats_item *i)
{
        return i->kind->type == STATS_LATENCY && histogram_count(i->h) == 0;
}

const struct stats_item *stats_find(const struct stats *s, const char *key)
{
        char name[STATS_KEY];

        for (unsigned i = 0; i < s->n; i++)
                if (strcmp(stats_name(&s->item[i], s->item[i].kind->key, name), key) == 0)
                        return &s->item[i];
        return NULL;
}

uint64_t stats_value(const struct stats *s, const char *key)
{
        const struct stats_item *i = stats_find(s, key);

        return i ? i->v : 0;
}

/* ---- collecting ---- */

static uint64_t start;                  /* ns */

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void stats_begin(void) { start = now_ns(); }

static void add_elapsed(struct stats *s)
{
        static const struct stats_kind elapsed = {
                .key = "elapsed_ns", .type = STATS_COUNTER, .unit = STATS_NS, .metric = "elapsed",
                .help = "Time since vmrun started the program, or since the last reset",
        };

        stats_count(s, &elapsed, NULL, now_ns() - start);
}

static int collect(struct stats *s, bool only_counters)
{
        s->only_counters = only_counters;
        for (unsigned i = 0; i < owners; i++)
                owner[i](s);
        add_elapsed(s);
        return s->failed ? -ENOMEM : 0;
}

static bool same(const struct stats_item *a, const struct stats_item *b)
{
        return a->kind == b->kind && strcmp(a->instance, b->instance) == 0;
}

static void take_off(struct stats_item *i, const struct stats_item *before)
{
        i->v -= before->v;
        i->by -= before->by;
        if (i->h) {
                for (unsigned b = 0; b < HIST_BUCKETS; b++)
                        i->h->bucket[b] -= before->h->bucket[b];
                i->h->ticks -= before->h->ticks;
        }
}

/* Both snapshots have their items in one order, but each may have items that the other lacks. */
void stats_subtract(struct stats *s, const struct stats *before)
{
        unsigned at = 0;

        for (unsigned i = 0; i < s->n; i++) {
                enum stats_type type = s->item[i].kind->type;
                if (type == STATS_GAUGE || type == STATS_TEXT)
                        continue;
                for (unsigned tries = 0; tries < before->n; tries++, at++) {
                        at = at < before->n ? at : 0;
                        if (same(&s->item[i], &before->item[at])) {
                                take_off(&s->item[i], &before->item[at++]);
                                break;
                        }
                }
        }
}

int stats_count_up(struct stats *s)
{
        int err = collect(s, false);

        if (!err)
                stats_subtract(s, &base);
        return err;
}

int stats_rebase(void)
{
        struct stats now = { 0 };
        int err = collect(&now, true);

        if (err) {
                stats_free(&now);
                return err;
        }
        stats_free(&base);
        base = now;
        return 0;
}

bool stats_has_base(void) { return base.n > 0; }
