/*
 * The nodes, for vmctl: prints their state, and adds a node.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/message.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/size.h"
#include "common/wrap.h"
#include "control/nodes.h"
#include "far/drain.h"
#include "far/grow.h"
#include "far/nodes.h"
#include "far/sequence.h"
#include "settings/absolute.h"
#include "settings/node_draft.h"
#include "settings/service.h"
#include "stats/formats.h"
#include "stats/report.h"

/* What the statistics say of node i. */
static const struct stats_item *item(const struct stats *s, unsigned i, const char *what)
{
        char key[STATS_KEY];

        snprintf(key, sizeof(key), "node.%u.%s", i, what);
        return stats_find(s, key);
}

/* Of memory tiers only a single one's pages are counted. */
static const char *bytes_text(const struct stats *s, unsigned i, const char *what, char to[32])
{
        const struct stats_item *c = item(s, i, what);

        return c ? size_text(c->v, to) : "-";
}

static const char *latency_text(const struct stats *s, unsigned i, const char *what, char to[80])
{
        const struct stats_item *l = item(s, i, what);
        char a[32], b[32];

        if (!l || stats_is_empty(l))
                return "-";
        snprintf(to, 80, "%s, %s", stats_ns_text(histogram_percentile_ns(l->h, 500000), a),
                 stats_ns_text(histogram_percentile_ns(l->h, 990000), b));
        return to;
}

static const char *state_of(const struct far_node *n, char to[2 * FAR_WHY])
{
        int silent = __atomic_load_n(&n->silent, __ATOMIC_RELAXED);
        int64_t down = __atomic_load_n(&n->down_since, __ATOMIC_RELAXED);
        const char *drains = drain_state(n);

        if (drains)
                strcpy(to, drains);
        else if (n->lost)
                snprintf(to, 2 * FAR_WHY, "lost: %s", n->why);
        else if (down)
                snprintf(to, 2 * FAR_WHY, "does not answer, for %.1f s",
                         (double)(now_ms() - down) / 1000);
        else if (silent)
                snprintf(to, 2 * FAR_WHY, "gives no more: %s", strerror(-silent));
        else
                strcpy(to, "works");
        return to;
}

static uint64_t leased_of(const struct far_node *n)
{
        return __atomic_load_n(&n->leased, __ATOMIC_RELAXED);
}

/* By node. */
struct counts { uint64_t used[NODES_MAX], lacking[NODES_MAX]; };

static bool is_gone(const struct far_node *n)
{
        return n->lost ||
               atomic_load_explicit(&n->is_drained, memory_order_relaxed);
}

/* How much the node lacks, if it may still get it. */
static const char *lacking_text(const struct far_node *n, const struct counts *of, char to[32])
{
        return is_gone(n) || n->driver->kind != SLAB_REMOTE
                       ? "-" : size_text(of->lacking[n->index] * PAGE_SIZE, to);
}

/* How far a drain is. */
static void print_moved(const struct far_node *n, char to[2 * FAR_WHY])
{
        char a[32], b[32];
        uint64_t left, pages = slabs_at(n, &left);

        snprintf(to, 2 * FAR_WHY, "draining: %s of %s pages are at other nodes",
                 stats_number_text(pages - left, a), stats_number_text(pages, b));
}

#define SCREEN 100
#define NAME   20

/* A state other than "works" stands below the node. */
static void print_text(const struct stats *s, const struct counts *of, FILE *f)
{
        char a[80], b[80], state[2 * FAR_WHY], line[2 * FAR_WHY + 8];

        fprintf(f, "%2s %-*s%7s%7s%7s%7s%7s%8s %-16s %s\n", "", NAME, "node", "holds", "leased",
                "used", "lacks", "read", "written", "read p50, p99", "write p50, p99");
        for (unsigned i = 0; i < far_nodes(); i++) {
                const struct far_node *n = far_node_at(i);
                bool long_name = strlen(n->option->name) > NAME;
                fprintf(f, "%2u %-*.*s%s", i, long_name ? 0 : NAME, long_name ? NAME - 3 : NAME,
                        n->option->name, long_name ? "..." : "");
                fprintf(f, "%7s", size_text(n->pages * PAGE_SIZE, a));
                fprintf(f, "%7s", size_text(leased_of(n) * PAGE_SIZE, a));
                fprintf(f, "%7s", size_text(of->used[i] * PAGE_SIZE, a));
                fprintf(f, "%7s", lacking_text(n, of, a));
                fprintf(f, "%7s", bytes_text(s, i, "read_bytes", a));
                fprintf(f, "%8s", bytes_text(s, i, "written_bytes", a));
                fprintf(f, " %-16s %s\n", latency_text(s, i, "read_ns", a),
                        latency_text(s, i, "write_ns", b));
                if (strcmp(state_of(n, state), "works") == 0)
                        continue;
                if (strcmp(state, "draining") == 0)
                        print_moved(n, state);
                snprintf(line, sizeof(line), "%s\n", state);
                fputs("   ", f);
                wrap_print(f, line, SCREEN - 3);
        }
}

static void member(FILE *f, const char *name, const char *text)
{
        fprintf(f, ", \"%s\": ", name);
        json_string(f, text);
}

static void print_latency(FILE *f, const struct stats *s, unsigned i, const char *what)
{
        const struct stats_item *l = item(s, i, what);

        if (l && !stats_is_empty(l))
                fprintf(f, ", \"%s\": {\"p50\": %" PRIu64 ", \"p99\": %" PRIu64 "}", what,
                        histogram_percentile_ns(l->h, 500000),
                        histogram_percentile_ns(l->h, 990000));
}

static void print_json(const struct stats *s, const struct counts *of, FILE *f)
{
        char c[2 * FAR_WHY];

        fprintf(f, "[");
        for (unsigned i = 0; i < far_nodes(); i++) {
                const struct far_node *n = far_node_at(i);
                const struct stats_item *in = item(s, i, "read"), *out = item(s, i, "written");
                fprintf(f, "%s\n  {\"number\": %u", i ? "," : "", i);
                member(f, "name", n->option->name);
                member(f, "url", n->url);
                member(f, "state", state_of(n, c));
                fprintf(f, ", \"pages\": %" PRIu64 ", \"leased\": %" PRIu64 ", \"used\": %" PRIu64,
                        n->pages, leased_of(n), of->used[i]);
                if (!is_gone(n) && n->driver->kind == SLAB_REMOTE)
                        fprintf(f, ", \"lacking\": %" PRIu64, of->lacking[i]);
                if (strcmp(c, "draining") == 0) {
                        uint64_t left, pages = slabs_at(n, &left);
                        fprintf(f, ", \"moved\": %" PRIu64 ", \"to_move\": %" PRIu64,
                                pages - left, left);
                }
                if (in && out)
                        fprintf(f, ", \"read\": %" PRIu64 ", \"written\": %" PRIu64, in->v, out->v);
                print_latency(f, s, i, "read_ns");
                print_latency(f, s, i, "write_ns");
                fprintf(f, "}");
        }
        fprintf(f, "\n]\n");
}

int nodes_print(enum form form, FILE *f, char why[CTL_WHY])
{
        static struct counts of;                /* one thread serves requests */
        struct stats s = { 0 };
        int err = stats_snapshot(&s);

        if (err) {
                snprintf(why, CTL_WHY, "out of memory: free some on this host");
        } else {
                slabs_used(of.used);
                slabs_lacking(of.lacking);
                (form == FORM_JSON ? print_json : print_text)(&s, &of, f);
        }
        stats_free(&s);
        return err;
}

/* ---- one more ---- */

static int draft(struct node_draft *d, const char *url, char why[CTL_WHY])
{
        char reason[SETTING_WHY], *origin;

        node_draft_init(d);
        int err = node_draft_set(d, "url", url, reason);
        if (!err)
                err = node_draft_check(d, reason);
        if (!err && asprintf(&origin, "vmctl nodes add %s", url) < 0) {
                snprintf(reason, sizeof(reason), "out of memory: free some on this host");
                err = -ENOMEM;
        }
        if (err) {
                snprintf(why, CTL_WHY, "%.128s: %s", url, reason);
                return err;
        }
        d->node.origin = origin;
        return 0;
}

/* Paths are meant in the client's folder. */
static void make_absolute(const struct session *s, struct node_option *n)
{
        static struct options o;        /* one thread serves requests */

        n->name = n->url;
        o = (struct options){ .nnodes = 1, .nodes = { *n } };
        options_make_absolute(&o, s->directory ? s->directory : "/");
        *n = o.nodes[0];
}

static int add(const struct session *s, struct node_option *o, FILE *f, char why[CTL_WHY])
{
        char reason[FAR_WHY] = "see the messages of vmrun", text[FAR_WHY];
        int err = far_add(s->vm, o, reason);

        if (err) {
                snprintf(why, CTL_WHY, "%.128s: %s", o->url, reason);
                node_option_free(o);
                return err;
        }
        const struct far_node *n = far_node_at(far_nodes() - 1);
        n->driver->describe(n, text, sizeof(text));
        info_("node %u: %s", n->index, text);
        fprintf(f, "node %u: %s\n", n->index, text);
        return 0;
}

static bool has_node(const char *url)
{
        for (unsigned i = 0; i < far_nodes(); i++)
                if (!is_gone(far_node_at(i)) && strcmp(far_node_at(i)->url, url) == 0)
                        return true;
        return false;
}

/* The nodes of a name in DNS that are not there yet. */
static int add_service(const struct session *s, const struct node_option *o, FILE *f,
                       char why[CTL_WHY])
{
        static struct node_option found[NODES_MAX];     /* one thread serves requests */
        char reason[SETTING_WHY];
        unsigned added = 0;
        int n = service_find(o, opt.connect_timeout_ms, found, NODES_MAX, reason);
        int err = n < 0 ? n : 0;

        if (n < 0)
                snprintf(why, CTL_WHY, "%.128s: %s", o->url, reason);
        for (int i = 0; i < n; i++)
                if (err || has_node(found[i].url))
                        node_option_free(&found[i]);
                else if (!(err = add(s, &found[i], f, why)))
                        added++;
        if (!err && !added)
                fputs("no new node\n", f);
        return err;
}

int nodes_add(const struct session *s, const char *url, FILE *f, char why[CTL_WHY])
{
        struct node_draft d;
        int err = draft(&d, url, why);

        if (err) {
                node_option_free(&d.node);
                return err;
        }
        make_absolute(s, &d.node);
        if (!node_is_service(d.node.url))
                return add(s, &d.node, f, why);
        err = add_service(s, &d.node, f, why);
        node_option_free(&d.node);
        return err;
}
