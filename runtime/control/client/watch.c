/*
 * vmctl PID watch: what happens, each second.  vmrun counts from one sample of a connection to the
 * next, so the first sample is thrown away.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/clock.h"
#include "common/json.h"
#include "common/size.h"
#include "control/client/client.h"
#include "control/client/screen.h"
#include "control/client/talk.h"
#include "stats/formats.h"
#include "stats/read.h"

/* ---- one sample ---- */

static const char *const kinds[] = { "zero", "file", "fetch", "shared", "wait", "marker" };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))
#define NODES 64
#define PAGE  4096

struct sample {
        char program[256];
        double seconds, faults, kind[KINDS], in, out, evicted;  /* the last five per second */
        uint64_t p50, p99;              /* of a fetch, ns; 0: none */
        uint64_t cache, cache_used, hot, to_be_cold, far, far_used;     /* bytes */
        uint64_t fewer;                 /* pages with fewer copies than --replicas */
        double hits;                    /* of what was prefetched, percent; -1: nothing was */
        unsigned nodes;
        /* Of memory tiers only a single one's pages are counted. */
        struct {
                char name[64], url[64];
                bool counted;
                double in, out;
                uint64_t p50, p99;
        } node[NODES];
};

static double rate(const char *flat, const char *key, double seconds)
{
        return (double)flat_number(flat, key) / seconds;
}

static uint64_t of_node(const char *flat, unsigned n, const char *what)
{
        char key[64];

        snprintf(key, sizeof(key), "node.%u.%s", n, what);
        return flat_number(flat, key);
}

static void take_nodes(struct sample *s, const char *flat)
{
        char key[64], text[64];

        for (s->nodes = 0; s->nodes < NODES; s->nodes++) {
                unsigned n = s->nodes;
                snprintf(key, sizeof(key), "node.%u.url", n);
                if (!*flat_text(flat, key, s->node[n].url, sizeof(s->node[n].url)))
                        break;
                snprintf(key, sizeof(key), "node.%u.name", n);
                flat_text(flat, key, s->node[n].name, sizeof(s->node[n].name));
                snprintf(key, sizeof(key), "node.%u.read", n);
                s->node[n].counted = *flat_text(flat, key, text, sizeof(text));
                s->node[n].in = (double)of_node(flat, n, "read") / s->seconds;
                s->node[n].out = (double)of_node(flat, n, "written") / s->seconds;
                s->node[n].p50 = of_node(flat, n, "read_ns.p50");
                s->node[n].p99 = of_node(flat, n, "read_ns.p99");
        }
}

static void take(struct sample *s, const char *flat)
{
        uint64_t ahead = flat_number(flat, "count.prefetched");
        char key[32];

        flat_text(flat, "about.program", s->program, sizeof(s->program));
        s->seconds = (double)flat_number(flat, "elapsed_ns") / 1e9;
        if (s->seconds <= 0)
                s->seconds = 1e-9;
        s->faults = rate(flat, "faults.total", s->seconds);
        for (size_t k = 0; k < KINDS; k++) {
                snprintf(key, sizeof(key), "faults.%s", kinds[k]);
                s->kind[k] = rate(flat, key, s->seconds);
        }
        s->in = rate(flat, "count.fetched", s->seconds) + (double)ahead / s->seconds;
        s->out = rate(flat, "count.writeback", s->seconds);
        s->evicted = rate(flat, "evicted", s->seconds);
        s->p50 = flat_number(flat, "latency_ns.fetch.p50");
        s->p99 = flat_number(flat, "latency_ns.fetch.p99");
        s->cache = flat_number(flat, "cache_bytes");
        s->cache_used = flat_number(flat, "cache_used_bytes");
        s->hot = flat_number(flat, "cache_hot_bytes");
        s->to_be_cold = flat_number(flat, "cache_to_be_cold_bytes");
        s->far = flat_number(flat, "far_bytes");
        s->far_used = flat_number(flat, "far_used_bytes");
        s->fewer = flat_number(flat, "replicas.fewer");
        s->hits = ahead ? 100.0 * (double)flat_number(flat, "count.prefetch_hits") / (double)ahead
                        : -1;
        take_nodes(s, flat);
}

/* ---- in three forms ---- */

static const char *latency(uint64_t p50, uint64_t p99, char to[80])
{
        char a[32], b[32];

        if (!p99)
                return "-";
        snprintf(to, 80, "%s, %s", stats_ns_text(p50, a), stats_ns_text(p99, b));
        return to;
}

static const char *hits(const struct sample *s, char to[32])
{
        if (s->hits < 0)
                return "-";
        snprintf(to, 32, "%.0f %%", s->hits);
        return to;
}

static void print_line(const struct sample *s)
{
        char now[16] = "", a[80], b[32];
        time_t t = time(NULL);
        struct tm tm;

        if (localtime_r(&t, &tm))
                strftime(now, sizeof(now), "%T", &tm);
        printf("%s %.0f faults/s (", now, s->faults);
        for (size_t k = 0; k < KINDS; k++)
                printf("%s%s %.0f", k ? ", " : "", kinds[k], s->kind[k]);
        printf("), fetch p50, p99 %s", latency(s->p50, s->p99, a));
        printf(", pages in %.0f/s, out %.0f/s", s->in, s->out);
        printf(", cache %s of", size_text(s->cache_used, b));
        printf(" %s", size_text(s->cache, b));
        printf(", hot %s", size_text(s->hot, b));
        printf(", to be cold %s", size_text(s->to_be_cold, b));
        printf(", far %s", size_text(s->far_used, b));
        printf(", prefetch hits %s", hits(s, b));
        for (unsigned n = 0; n < s->nodes; n++)
                if (s->node[n].counted)
                        printf(", node %s in %.0f/s out %.0f/s", s->node[n].name, s->node[n].in,
                               s->node[n].out);
        printf("\n");
}

static void print_screen(pid_t pid, const struct sample *s, FILE *f)
{
        char a[80], b[32], c[32];

        fprintf(f, "%.40s, process %d, the last %.1f s; q or Ctrl-C ends this\n\n",
                basename(s->program), pid, s->seconds);
        fprintf(f, "faults/s    %12.0f\n", s->faults);
        for (size_t k = 0; k < KINDS; k++)
                fprintf(f, "  %-10s%12.0f\n", kinds[k], s->kind[k]);
        fprintf(f, "\nfetch p50, p99        %s\n", latency(s->p50, s->p99, a));
        fprintf(f, "pages in/s  %12.0f\npages out/s %12.0f\nevicted/s   %12.0f\n", s->in, s->out,
                s->evicted);
        fprintf(f, "prefetch hits         %s\n", hits(s, b));
        fprintf(f, "cache       %12s of %s\n", size_text(s->cache_used, b),
                size_text(s->cache, c));
        fprintf(f, "  hot       %12s, to be cold %s\n", size_text(s->hot, b),
                size_text(s->to_be_cold, c));
        fprintf(f, "far memory  %12s of %s", size_text(s->far_used, b), size_text(s->far, c));
        if (s->fewer)
                fprintf(f, ", %s with few copies", size_text(s->fewer * PAGE, b));
        fputs("\n\n", f);
        fprintf(f, "%-32s%11s%11s  %s\n", "node", "in/s", "out/s", "read p50, p99");
        for (unsigned n = 0; n < s->nodes; n++) {
                fprintf(f, "%-32.31s", s->node[n].name);
                if (s->node[n].counted)
                        fprintf(f, "%11.0f%11.0f  %s\n", s->node[n].in, s->node[n].out,
                                latency(s->node[n].p50, s->node[n].p99, a));
                else
                        fprintf(f, "%11s%11s  -\n", "-", "-");
        }
}

static bool show_screen(pid_t pid, const struct sample *s)
{
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return true;
        print_screen(pid, s, f);
        bool read = fclose(f) != 0 || screen_show(text);
        free(text);
        return read;
}

static void print_json(const struct sample *s)
{
        printf("{\"program\": ");
        json_string(stdout, s->program);
        printf(", \"seconds\": %.3f, \"faults_per_second\": {\"total\": %.1f", s->seconds,
               s->faults);
        for (size_t k = 0; k < KINDS; k++)
                printf(", \"%s\": %.1f", kinds[k], s->kind[k]);
        printf("}, ");
        if (s->p99)
                printf("\"fetch_ns\": {\"p50\": %" PRIu64 ", \"p99\": %" PRIu64 "}, ", s->p50,
                       s->p99);
        printf("\"pages_in_per_second\": %.1f, \"pages_out_per_second\": %.1f, "
               "\"evicted_per_second\": %.1f, ", s->in, s->out, s->evicted);
        if (s->hits >= 0)
                printf("\"prefetch_hit_percent\": %.1f, ", s->hits);
        printf("\"cache_bytes\": %" PRIu64 ", \"cache_used_bytes\": %" PRIu64
               ", \"cache_hot_bytes\": %" PRIu64 ", \"cache_to_be_cold_bytes\": %" PRIu64
               ", \"far_bytes\": %" PRIu64 ", \"far_used_bytes\": %" PRIu64 ", \"nodes\": [",
               s->cache, s->cache_used, s->hot, s->to_be_cold, s->far, s->far_used);
        for (unsigned n = 0; n < s->nodes; n++) {
                printf("%s{\"name\": ", n ? ", " : "");
                json_string(stdout, s->node[n].name);
                printf(", \"url\": ");
                json_string(stdout, s->node[n].url);
                if (s->node[n].counted)
                        printf(", \"pages_in_per_second\": %.1f, \"pages_out_per_second\": %.1f",
                               s->node[n].in, s->node[n].out);
                printf("}");
        }
        printf("]}\n");
}

/* ---- again and again ---- */

/* The connection ends with an execve; the next program listens on this socket again. */
static int again(pid_t pid, int fd)
{
        struct answer a;

        close(fd);
        fd = talk_open(pid);
        if (fd >= 0 && talk(fd, "sample", TALK_MS, &a) == 0) {
                free(a.text);
                return fd;
        }
        if (fd >= 0)
                close(fd);
        return -ESRCH;
}

/* False: standard output has no reader any more. */
static bool print(pid_t pid, const char *flat, bool json)
{
        static struct sample s;

        take(&s, flat);
        if (json)
                print_json(&s);
        else if (screen_is_there())
                return show_screen(pid, &s);
        else
                print_line(&s);
        return fflush(stdout) == 0;
}

static int show_all(pid_t pid, int fd, unsigned interval_ms, bool json)
{
        struct answer a;
        int err = 0;

        for (bool first = true; first || !screen_wait(interval_ms); first = false) {
                err = talk(fd, "sample", TALK_MS, &a);
                if (err == -ECONNRESET || err == -EPIPE) {
                        fd = again(pid, fd);
                        if (fd >= 0)
                                continue;
                        if (!screen_is_over())
                                fprintf(stderr, "vmctl: process %d has ended\n", pid);
                        return 0;
                }
                if (err)
                        break;
                bool go_on = !a.ok || first || print(pid, a.text, json);
                free(a.text);
                if (!go_on)
                        break;
        }
        close(fd);
        return screen_is_over() ? 0 : err;
}

int watch(pid_t pid, unsigned interval_ms, bool json)
{
        int fd = talk_open(pid);

        if (fd < 0)
                return fd;
        screen_begin(!json);
        int err = show_all(pid, fd, interval_ms, json);
        screen_end();
        return err;
}
