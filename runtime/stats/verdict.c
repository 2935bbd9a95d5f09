/*
 * The verdict on the numbers: is the cache too small, the cleaner behind, the wire or the queue the
 * limit?  vmrun(1) has the rules.  A rule says nothing where there is too little to judge by.
 */
#include <string.h>
#include "stats/model.h"
#include "stats/verdict.h"

#define WAITS_PERCENT    10             /* of the time, some thread waits for far memory */
#define NO_FRAME_PERCENT 5              /* of the faults that need a frame sleep for one */
#define FAULTS_LEAST     1000
#define SAMPLES_LEAST    16
#define PART_PERCENT     50             /* of the time of a fetch */

struct verdict {
        unsigned waits;                 /* per cent of the time */
        unsigned no_frame;              /* per cent of the faults that need one sleep for it */
        unsigned wire, queue;           /* per cent of a fetch, 0: unknown */
        uint64_t damaged;
};

static unsigned percent(uint64_t part, uint64_t whole)
{
        return whole ? (unsigned)((__uint128_t)part * 100 / whole) : 0;
}

static uint64_t sum_ns(const struct stats *s, const char *key)
{
        const struct stats_item *i = stats_find(s, key);

        return i && i->h ? histogram_sum_ns(i->h) : 0;
}

static uint64_t mean_ns(const struct stats *s, const char *key)
{
        const struct stats_item *i = stats_find(s, key);

        return i && i->h && histogram_count(i->h) >= SAMPLES_LEAST ? histogram_mean_ns(i->h) : 0;
}

static struct verdict judge(const struct stats *s)
{
        struct verdict v = { 0 };
        uint64_t faults = stats_value(s, "faults.zero") + stats_value(s, "faults.file") +
                          stats_value(s, "faults.fetch");
        uint64_t handler = mean_ns(s, "part_ns.handler"), queue = mean_ns(s, "part_ns.queue"),
                 wire = mean_ns(s, "part_ns.wire"), install = mean_ns(s, "part_ns.install");

        v.waits = percent(sum_ns(s, "latency_ns.fetch") + sum_ns(s, "latency_ns.wait"),
                          stats_value(s, "elapsed_ns"));
        if (faults >= FAULTS_LEAST)
                v.no_frame = percent(stats_value(s, "count.frame_waits"), faults);
        /* only requests to nodes wait in a queue */
        if (queue && wire) {
                v.queue = percent(queue, handler + queue + wire + install);
                v.wire = percent(wire, handler + queue + wire + install);
        }
        for (unsigned i = 0; i < s->n; i++)
                if (strcmp(s->item[i].kind->key, "node.%.damaged") == 0)
                        v.damaged += s->item[i].v;
        return v;
}

static bool cache_is_small(const struct verdict *v) { return v->waits >= WAITS_PERCENT; }
static bool cleaner_is_behind(const struct verdict *v) { return v->no_frame >= NO_FRAME_PERCENT; }
static bool wire_limits(const struct verdict *v)
{
        return cache_is_small(v) && v->wire >= PART_PERCENT;
}
static bool queue_limits(const struct verdict *v)
{
        return cache_is_small(v) && v->queue >= PART_PERCENT;
}

void stats_judge(struct stats *s)
{
        static const struct stats_kind verdict = {
                .key = "verdict.%", .type = STATS_GAUGE, .metric = "verdict", .label = "about",
                .help = "1 if it limits the program, by the rules of vmrun(1)",
        };
        const struct verdict v = judge(s);

        stats_count(s, &verdict, "cache", cache_is_small(&v));
        stats_count(s, &verdict, "cleaner", cleaner_is_behind(&v));
        stats_count(s, &verdict, "wire", wire_limits(&v));
        stats_count(s, &verdict, "queue", queue_limits(&v));
}

/* Twice the cache, in a form that --cache takes. */
static const char *larger_cache(const struct stats *s, char to[32])
{
        uint64_t bytes = 2 * stats_value(s, "cache_bytes");
        bool gib = bytes >= 16ull << 30;
        unsigned shift = gib ? 30 : 20;

        snprintf(to, 32, "--cache %llu%c",
                 (unsigned long long)((bytes + (1ull << shift) - 1) >> shift), gib ? 'G' : 'M');
        return to;
}

void stats_print_verdict(const struct stats *s, FILE *f)
{
        const struct verdict v = judge(s);
        char cache[32];

        larger_cache(s, cache);
        if (v.damaged)
                fprintf(f, "%llu pages were damaged and are lost: see the node's memory and the "
                           "network.\n", (unsigned long long)v.damaged);
        if (cache_is_small(&v))
                fprintf(f, "The cache is small: threads waited for far memory, together %u %% of "
                           "the time: try %s, or --profile FILE to see where.\n", v.waits, cache);
        if (wire_limits(&v))
                fprintf(f, "The way to the nodes is the limit, %u %% of a fetch: try nearer nodes, "
                           "or fetch ahead: --record FILE, then --replay FILE.\n", v.wire);
        if (queue_limits(&v))
                fprintf(f, "Requests queue up before they are sent, %u %% of a fetch: try --io "
                           "inline, or more nodes.\n", v.queue);
        if (cleaner_is_behind(&v))
                fprintf(f, "The cleaner is behind, %u %% of the faults that needed a frame slept "
                           "until one was free: leave it a CPU, or try %s.\n", v.no_frame, cache);
        if (!v.damaged && !cache_is_small(&v) && !cleaner_is_behind(&v))
                fprintf(f, "Far memory does not limit this program: its threads waited for it, "
                           "together %u %% of the time.\n", v.waits);
}
