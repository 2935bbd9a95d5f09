/*
 * Scrubs, for vmctl: begins a scrub, ends it, and prints its findings.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "base/options.h"
#include "common/json.h"
#include "control/scrub_ask.h"
#include "far/nodes.h"
#include "far/scrub.h"
#include "settings/settings.h"

static const char *const states[] = {
        [SCRUB_NONE] = "none", [SCRUB_RUNS] = "running", [SCRUB_OVER] = "finished",
        [SCRUB_STOPPED] = "stopped",
};

/* The counters of a scrub, in flat lines and JSON. */
static const struct { const char *key; unsigned which; } counts[] = {
        { "pages", SCRUB_PAGES }, { "copies", SCRUB_COPIES }, { "wrong", SCRUB_BAD },
        { "repaired", SCRUB_REPAIRED }, { "unread", SCRUB_UNREAD }, { "lost", SCRUB_LOST },
};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

static const char *node_name(const struct scrub_loss *l)
{
        return far_node_at(l->node)->option->name;
}

/* Nodes whose pages have no sums: mem: and dax:. */
static unsigned without_sums(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < far_nodes(); i++)
                n += far_node_at(i)->driver->kind != SLAB_REMOTE;
        return n;
}

static void print_text(const struct scrub_report *r, FILE *f)
{
        const uint64_t *n = r->count;

        if (r->state == SCRUB_NONE) {
                fprintf(f, "no scrub was started in this process\n");
                return;
        }
        fprintf(f, "%s after %.1f s: %" PRIu64 " pages, %" PRIu64 " copies read\n",
                states[r->state], (double)r->ms / 1000, n[SCRUB_PAGES], n[SCRUB_COPIES]);
        fprintf(f, "wrong     %10" PRIu64 " copies, of which %" PRIu64 " were made right\n",
                n[SCRUB_BAD], n[SCRUB_REPAIRED]);
        fprintf(f, "not read  %10" PRIu64 " copies, whose nodes do not answer now\n",
                n[SCRUB_UNREAD]);
        fprintf(f, "lost      %10" PRIu64 " pages, of which no copy is right\n", n[SCRUB_LOST]);
        for (unsigned i = 0; i < r->losses; i++)
                fprintf(f, "  page %" PRIu64 " of %s (slot %#" PRIx64 ")\n", r->loss[i].page,
                        node_name(&r->loss[i]), r->loss[i].slot);
        if (n[SCRUB_LOST] > r->losses)
                fprintf(f, "  and %" PRIu64 " more\n", n[SCRUB_LOST] - r->losses);
        if (without_sums())
                fprintf(f, "%u of %u nodes are memory of this host: their pages have no sums, and "
                        "were not read\n", without_sums(), far_nodes());
}

static void print_flat(const struct scrub_report *r, FILE *f)
{
        fprintf(f, "state %s\nms %" PRId64 "\nall %" PRIu64 "\n", states[r->state], r->ms,
                r->pages);
        for (size_t i = 0; i < COUNTS; i++)
                fprintf(f, "%s %" PRIu64 "\n", counts[i].key, r->count[counts[i].which]);
}

static void print_json(const struct scrub_report *r, FILE *f)
{
        fprintf(f, "{\"state\": \"%s\", \"seconds\": %.3f, \"rate\": %" PRIu64,
                states[r->state], (double)r->ms / 1000, r->rate);
        for (size_t i = 0; i < COUNTS; i++)
                fprintf(f, ", \"%s\": %" PRIu64, counts[i].key, r->count[counts[i].which]);
        fprintf(f, ", \"nodes_without_sums\": %u, \"losses\": [", without_sums());
        for (unsigned i = 0; i < r->losses; i++) {
                fprintf(f, "%s{\"slot\": %" PRIu64 ", \"page\": %" PRIu64 ", \"node\": ",
                        i ? ", " : "", r->loss[i].slot, r->loss[i].page);
                json_string(f, node_name(&r->loss[i]));
                fputc('}', f);
        }
        fprintf(f, "]}\n");
}

/* A rate as --rebuild-rate takes it; without one, the rate of --rebuild-rate. */
static int rate_of(const char *text, uint64_t *rate, char why[CTL_WHY])
{
        static struct options o;        /* one thread serves requests */
        char reason[SETTING_WHY];

        *rate = opt.rebuild_rate;
        if (!*text)
                return 0;
        o = opt;
        int err = setting_set(&o, setting_find("rebuild-rate"), text, reason);
        if (err)
                snprintf(why, CTL_WHY, "--rate %.64s: %s", text, reason);
        *rate = o.rebuild_rate;
        return err;
}

static int start(const char *rate_text, char why[CTL_WHY])
{
        char reason[SCRUB_WHY];
        uint64_t rate;
        int err = rate_of(rate_text, &rate, why);

        if (err)
                return err;
        err = scrub_start(rate, reason);
        if (err)
                snprintf(why, CTL_WHY, "scrub: %s", reason);
        return err;
}

int scrub_ask(const char *what, enum form form, FILE *f, char why[CTL_WHY])
{
        static struct scrub_report r;   /* one thread serves requests */

        if (strcmp(what, "stop") == 0) {
                scrub_stop();
        } else if (strncmp(what, "start", 5) == 0 && (!what[5] || what[5] == ' ')) {
                int err = start(what[5] ? what + 6 : "", why);
                if (err)
                        return err;
        } else if (*what) {
                snprintf(why, CTL_WHY, "scrub: '%.32s' is nothing that it does: start, stop, or "
                         "nothing", what);
                return -EINVAL;
        }
        scrub_look(&r);
        (form == FORM_JSON ? print_json : form == FORM_FLAT ? print_flat : print_text)(&r, f);
        return 0;
}
