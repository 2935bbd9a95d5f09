/*
 * The nodes, in --stats: what was moved and how long it took; and the parts of a fetch.
 */
#include <stdio.h>
#include "abi_control.h"
#include "far/direct.h"
#include "far/drain.h"
#include "far/far.h"
#include "far/fewer.h"
#include "far/meter.h"
#include "far/nodes.h"
#include "far/repair.h"
#include "far/scrub.h"
#include "far/timing.h"
#include "stats/stats.h"
#include "vm/counters.h"

static void add_part(struct stats *s, const char *name, enum latency kind, const struct meter *m)
{
        static const struct stats_kind part = {
                .key = "part_ns.%", .type = STATS_LATENCY, .unit = STATS_NS,
                .metric = "fetch_part_latency", .label = "part",
                .title = "of a fetch: %",
                .help = "Parts of one fetch in 64",
        };
        static uint64_t both[HIST_BUCKETS];     /* one thread at a time adds statistics */
        uint64_t ticks;
        const uint64_t *kern = counters_latency(kind, &ticks);

        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                both[b] = kern[b] + (m ? __atomic_load_n(&m->bucket[b], __ATOMIC_RELAXED) : 0);
        ticks += m ? __atomic_load_n(&m->ticks, __ATOMIC_RELAXED) : 0;
        stats_latency(s, &part, name, both, ticks, CONTROL->tsc_khz);
}

/* The vCPUs measure what they see, also of pages that they copy themselves; the I/O side measures
 * the rest. */
static void add_parts(struct stats *s)
{
        add_part(s, "handler", LAT_HANDLER, NULL);
        add_part(s, "queue", LAT_QUEUE, &meter_queue);
        add_part(s, "wire", LAT_WIRE, &meter_wire);
        add_part(s, "install", LAT_INSTALL, NULL);
}

static void add_latencies(struct stats *s, const struct far_node *n, const char *number)
{
        static const struct stats_kind kind[] = { {
                .key = "node.%.read_ns", .type = STATS_LATENCY, .unit = STATS_NS,
                .metric = "node_read_latency", .label = "node", .title = "read p50, p99",
                .help = "Time to read a page of a node, from when the I/O side took the request",
        }, {
                .key = "node.%.write_ns", .type = STATS_LATENCY, .unit = STATS_NS,
                .metric = "node_write_latency", .label = "node", .title = "write p50, p99",
                .help = "Time to write a page to a node, from when the I/O side took the request",
        } };

        for (int write = 0; write < 2; write++) {
                const struct meter *m = &meter_node[n->index][write];
                stats_latency(s, &kind[write], number, m->bucket,
                              __atomic_load_n(&m->ticks, __ATOMIC_RELAXED), CONTROL->tsc_khz);
        }
}

#define NODE(name, what, as, shown, text)                                                        \
        { .key = "node.%." #name, .type = STATS_COUNTER, .unit = what, .metric = "node_" as,     \
          .label = "node", .title = shown, .help = text }

static void add_moved(struct stats *s, const char *number, uint64_t pages_in, uint64_t pages_out)
{
        static const struct stats_kind
                read = NODE(read, STATS_NUMBER, "pages_read", "pages read", "Pages read of a node"),
                written = NODE(written, STATS_NUMBER, "pages_written", "pages written",
                               "Pages written to a node"),
                in = NODE(read_bytes, STATS_BYTES, "read", "bytes read", "Bytes read of a node"),
                out = NODE(written_bytes, STATS_BYTES, "written", "bytes written",
                           "Bytes written to a node");

        stats_count(s, &read, number, pages_in);
        stats_count(s, &written, number, pages_out);
        stats_count(s, &in, number, pages_in * PAGE_SIZE);
        stats_count(s, &out, number, pages_out * PAGE_SIZE);
}

static void add_mishaps(struct stats *s, const struct far_node *n, const char *number)
{
        static const struct stats_kind
                resent = NODE(resent, STATS_NUMBER, "pages_resent", "sent again",
                              "Pages that were sent again over a new connection"),
                reread = NODE(reread, STATS_NUMBER, "pages_reread", "read again",
                              "Pages that did not come as they were sent, and were read again"),
                damaged = NODE(damaged, STATS_NUMBER, "pages_damaged", "damaged",
                               "Pages that were lost, because they did not come better then"),
                left = NODE(left, STATS_NUMBER, "pages_left", "left",
                            "Pages read ahead that did not come better then"),
                retired = NODE(retired, STATS_NUMBER, "pages_retired", "retired",
                               "Pages that are not written again");

        stats_count(s, &resent, number, n->resent);
        stats_count(s, &reread, number, n->reread);
        stats_count(s, &damaged, number, n->damaged);
        stats_count(s, &left, number, n->dropped);
        stats_count(s, &retired, number, n->retired);
}

/* Of nodes that have copies of other nodes' pages. */
static void add_copies(struct stats *s, const struct far_node *n, const char *number)
{
        static const struct stats_kind
                breaks = NODE(breaks, STATS_NUMBER, "breaks", "stopped to answer",
                              "How often a node stopped to answer"),
                missed = NODE(missed, STATS_NUMBER, "pages_missed", "writes missed",
                              "Pages that were written to other nodes and not to this one");

        stats_count(s, &breaks, number, n->breaks);
        stats_count(s, &missed, number, n->missed);
}

static void add_repairs(struct stats *s)
{
        static const struct stats_kind fewer = {
                .key = "replicas.fewer", .type = STATS_GAUGE, .unit = STATS_NUMBER,
                .metric = "pages_with_fewer_copies", .title = "pages with fewer copies",
                .help = "Far pages, of all processes of the tree, with fewer copies at nodes that "
                        "answer than --replicas",
        }, repaired = {
                .key = "repair.pages", .type = STATS_COUNTER, .unit = STATS_NUMBER,
                .metric = "repair_pages", .title = "copies made up for",
                .help = "Pages copied to nodes that had missed them",
        };

        if (opt.replicas > 1)
                stats_count(s, &fewer, NULL, fewer_pages());
        if (opt.replicas > 1 || repair_pages())
                stats_count(s, &repaired, NULL, repair_pages());
}

static void add_state(struct stats *s, const struct far_node *n, const char *number)
{
        static const struct stats_kind down = {
                .key = "node.%.down", .type = STATS_GAUGE, .metric = "node_down", .label = "node",
                .title = "down", .help = "1 if a node does not answer, or is lost",
        }, kind = {
                .key = "node.%.state", .type = STATS_TEXT, .label = "node", .title = "state",
                .help = "Whether a node is used, is draining, is drained, or is lost",
        };
        const char *state = drain_state(n);

        stats_text(s, &kind, number, state ? state : n->lost ? "lost" : "used", false);
        stats_count(s, &down, number,
                    !atomic_load_explicit(&n->is_drained, memory_order_relaxed) &&
                    (n->lost || __atomic_load_n(&n->down_since, __ATOMIC_RELAXED)));
}

/* From the first scrub on. */
static void add_scrubs(struct stats *s)
{
#define SCRUB(name, shown, text)                                                                 \
        { .key = "scrub." #name, .type = STATS_COUNTER, .unit = STATS_NUMBER,                    \
          .metric = "scrub_" #name, .title = shown, .help = text }
        static const struct stats_kind kind[SCRUB_COUNTS] = {
                [SCRUB_PAGES] = SCRUB(pages, "scrubbed", "Far pages that a scrub has looked at"),
                [SCRUB_COPIES] = SCRUB(copies, "copies read by scrubs",
                                       "Copies that scrubs have read"),
                [SCRUB_BAD] = SCRUB(wrong, "copies that were wrong",
                                    "Copies that scrubs have found not to be as they were written"),
                [SCRUB_REPAIRED] = SCRUB(repaired, "made right",
                                         "Copies that scrubs have made right from others"),
                [SCRUB_UNREAD] = SCRUB(unread, "copies not read by scrubs",
                                       "Copies on nodes that did not answer a scrub"),
                [SCRUB_LOST] = SCRUB(lost, "pages without a right copy",
                                     "Pages of which a scrub has found no right copy"),
        };
#undef SCRUB

        for (unsigned i = 0; scrub_total(SCRUB_PAGES) && i < SCRUB_COUNTS; i++)
                stats_count(s, &kind[i], NULL, scrub_total(i));
}

/* A node that is memory, but as slow as one behind a network. */
static void add_timing(struct stats *s, const struct node_option *o, const char *number)
{
        static const struct stats_kind latency = {
                .key = "node.%.latency_ns", .type = STATS_GAUGE, .unit = STATS_NUMBER,
                .label = "node", .title = "wire, ns",
                .help = "Latency of the network that a memory node stands for, in nanoseconds",
        }, bandwidth = {
                .key = "node.%.bandwidth", .type = STATS_GAUGE, .unit = STATS_BYTES,
                .label = "node", .title = "wire, bytes/s",
                .help = "Bytes a second of the network that a memory node stands for",
        };

        if (timing_given(o)) {
                stats_count(s, &latency, number, o->latency);
                stats_count(s, &bandwidth, number, o->bandwidth);
        }
}

/* On hardware the network card moves the pages: by this time such a run took longer. */
static void add_copied(struct stats *s)
{
        static const struct stats_kind copied = {
                .key = "wire.copied_ns", .type = STATS_COUNTER, .unit = STATS_NUMBER,
                .title = "copies for timed nodes, ns",
                .help = "Time for which vCPUs copied pages in place of a network card, in ns",
        };
        uint64_t ticks = atomic_load_explicit(&CONTROL->wire_copied, memory_order_relaxed);

        if (CONTROL->tsc_khz)
                stats_count(s, &copied, NULL,
                            (uint64_t)((unsigned __int128)ticks * 1000000 / CONTROL->tsc_khz));
}

void far_stats(struct stats *s)
{
        static const struct stats_kind name = {
                .key = "node.%.name", .type = STATS_TEXT, .label = "node",
        }, url = {
                .key = "node.%.url", .type = STATS_TEXT, .label = "node", .title = "node",
                .help = "The nodes",
        }, leased = {
                .key = "node.%.leased_bytes", .type = STATS_GAUGE, .unit = STATS_BYTES,
                .metric = "node_leased", .label = "node", .title = "leased",
                .help = "Memory of a node that was leased",
        };
        char number[16];

        add_parts(s);
        add_repairs(s);
        add_scrubs(s);
        for (unsigned i = 0; i < far_nodes(); i++)
                if (timing_given(far_node_at(i)->option)) {
                        add_copied(s);
                        break;
                }
        for (unsigned i = 0; i < far_nodes(); i++) {
                const struct far_node *n = far_node_at(i);
                snprintf(number, sizeof(number), "%u", i);
                stats_text(s, &url, number, n->url, false);
                stats_text(s, &name, number, n->option->name, false);
                stats_count(s, &leased, number,
                            __atomic_load_n(&n->leased, __ATOMIC_RELAXED) * PAGE_SIZE);
                add_timing(s, n->option, number);
                if (n->driver->kind == SLAB_REMOTE) {
                        add_state(s, n, number);
                        add_moved(s, number, n->read + direct_reads(n), n->written);
                        add_latencies(s, n, number);
                        add_mishaps(s, n, number);
                        if (n->hands_back)
                                add_copies(s, n, number);
                } else if (far_nodes() == 1) {
                        /* The vCPUs copy the pages of memory tiers, and count them together. */
                        add_moved(s, number, counters_value(CNT_FETCHED),
                                  counters_value(CNT_WRITEBACK));
                }
        }
}
