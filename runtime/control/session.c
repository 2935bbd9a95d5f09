/*
 * Carries out requests: statistics, samples, settings, nodes and scrubs.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/options.h"
#include "common/json.h"
#include "common/line.h"
#include "control/nodes.h"
#include "control/running.h"
#include "control/scrub_ask.h"
#include "control/session.h"
#include "far/sequence.h"
#include "stats/report.h"
#include "stats/write.h"
#include "vm/counters.h"

static int no_memory(char why[CTL_WHY])
{
        snprintf(why, CTL_WHY, "out of memory: free some on this host");
        return -ENOMEM;
}

/* ---- which process this is, for vmctl list ---- */

static void about(const struct session *s, enum form form, FILE *f)
{
        const struct { const char *name; uint64_t v; } numbers[] = {
                { "pid", (uint64_t)getpid() },
                { "since", (uint64_t)s->since },
                { "cache_bytes", CONTROL->nframes * PAGE_SIZE },
                { "cache_used_bytes", counters_cache_used() * PAGE_SIZE },
                { "far_used_bytes", far_used_pages() * PAGE_SIZE },
        };
        bool json = form == FORM_JSON;
        char program[256];

        snprintf(program, sizeof(program), "%s", opt.argv && *opt.argv ? *opt.argv : "");
        line_clean(program, strlen(program));
        fputs(json ? "{" : "", f);
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                fprintf(f, json ? "\"%s\": %" PRIu64 ", " : "%s %" PRIu64 "\n", numbers[i].name,
                        numbers[i].v);
        fputs(json ? "\"program\": " : "program ", f);
        if (json)
                json_string(f, program);
        else
                fputs(program, f);
        fputs(json ? "}" : "\n", f);
}

/* ---- what was counted since the last sample ---- */

static unsigned samplers;               /* sessions that sample */

/* Latencies are measured for --stats, and while a client takes samples. */
static void measure(void)
{
        counters_measure(opt.stats || samplers > 0);
}

static int sample(struct session *s, FILE *f)
{
        struct stats now = { 0 }, since = { 0 };

        if (!s->samples) {
                s->samples = true;
                samplers++;
                measure();
        }
        if (stats_snapshot(&now) != 0 || stats_copy(&since, &now) != 0) {
                stats_free(&since);
                stats_free(&now);
                return -ENOMEM;
        }
        /* else there was a reset, and all of it is new */
        if (stats_value(&now, "elapsed_ns") >= stats_value(&s->before, "elapsed_ns"))
                stats_subtract(&since, &s->before);
        stats_print(&since, f, STATS_FLAT);
        stats_free(&since);
        stats_free(&s->before);
        s->before = now;
        return 0;
}

void session_end(struct session *s)
{
        if (s->samples) {
                samplers--;
                measure();
        }
        stats_free(&s->before);
        free(s->directory);
        *s = (struct session){ 0 };
}

void sessions_forked(void)
{
        samplers = 0;
        measure();
}

/* ---- all requests ---- */

static int set_directory(struct session *s, const char *path, char why[CTL_WHY])
{
        if (*path != '/') {
                snprintf(why, CTL_WHY, "from: '%.64s' is no absolute path", path);
                return -EINVAL;
        }
        free(s->directory);
        s->directory = strdup(path);
        return s->directory ? 0 : no_memory(why);
}

int request_serve(struct session *s, const struct request *r, FILE *f, char why[CTL_WHY])
{
        static const enum stats_format formats[] = {
                [FORM_TEXT] = STATS_TABLE, [FORM_JSON] = STATS_JSON, [FORM_FLAT] = STATS_FLAT,
                [FORM_PROM] = STATS_PROM,
        };

        switch (r->verb) {
        case VERB_ABOUT:
                about(s, r->form, f);
                return 0;
        case VERB_STATS:
                return stats_write(f, formats[r->form]) == 0 ? 0 : no_memory(why);
        case VERB_RESET:
                return stats_reset() == 0 ? 0 : no_memory(why);
        case VERB_SAMPLE:
                return sample(s, f) == 0 ? 0 : no_memory(why);
        case VERB_GET:
                return running_get(r->argument, r->form, f, why);
        case VERB_SET:
                return running_set(s->vm, r->argument, why);
        case VERB_NODES:
                return nodes_print(r->form, f, why);
        case VERB_FROM:
                return set_directory(s, r->argument, why);
        case VERB_ADD:
                return nodes_add(s, r->argument, f, why);
        case VERB_SCRUB:
                return scrub_ask(r->argument, r->form, f, why);
        }
        return -EINVAL;
}
