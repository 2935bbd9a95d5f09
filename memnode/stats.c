/*
 * The figures in Prometheus's text format, version 0.0.4: base units, one HELP and one TYPE a
 * metric.  Each sample has the name of the file without .prom as a label, so that the files of
 * several memnodes of a host can be collected together.
 *
 * A thread of its own writes the file, since a disk may be slow; the main thread writes the last
 * one.  Two counters outlive memnode: their values are read from the file that was there.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "account.h"
#include "admission/party.h"
#include "admission/refusals.h"
#include "common/clock.h"
#include "common/outfile.h"
#include "common/prom.h"
#include "common/size.h"
#include "drain.h"
#include "every.h"
#include "memnode.h"
#include "pool.h"
#include "server.h"
#include "stats.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

#define SUFFIX ".prom"
#define LOCK_MS 5000            /* the longest that the end waits for the other thread's disk */

/* Set before the thread starts: */
static struct outfile file = OUTFILE_NONE;
static char stem[NAME_MAX + 1];         /* its name without the suffix */
static uint64_t starts, drains;         /* of the memnodes before this one */
static unsigned resumed;
static bool was_up;                     /* the memnode before did not write its end */
static time_t began;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* who has it writes the file */
/* Guarded by it: */
static bool over, failed;

/* ---- the format ---- */

struct out { FILE *f; const char *name; };

static struct out metric(FILE *f, const char *name, const char *type, const char *help)
{
        fprintf(f, "# HELP memnode_%s %s\n# TYPE memnode_%s %s\n", name, help, name, type);
        return (struct out){ f, name };
}

static void label(FILE *f, const char *name, const char *value)
{
        fprintf(f, ",%s=\"", name);
        prom_escaped(f, value);
        putc('"', f);
}

static void begin_sample(struct out o)
{
        fprintf(o.f, "memnode_%s{memnode=\"", o.name);
        prom_escaped(o.f, stem);
        putc('"', o.f);
}

static void end_sample(struct out o, uint64_t value) { fprintf(o.f, "} %" PRIu64 "\n", value); }

static void sample(struct out o, const char *name, const char *value, uint64_t v)
{
        begin_sample(o);
        label(o.f, name, value);
        end_sample(o, v);
}

/* A metric of one sample. */
static void figure(FILE *f, const char *name, const char *type, const char *help, uint64_t v)
{
        struct out o = metric(f, name, type, help);

        begin_sample(o);
        end_sample(o, v);
}

/* ---- the figures ---- */

static void print_life(FILE *f, bool last)
{
        bool drained = drain_began();
        struct out o = metric(f, "info", "gauge", "This memnode: its version and addresses");
        char urls[800] = "";

        for (size_t i = 0, n = 0; i < opt.nlisten && n < sizeof(urls); i++)
                n += (size_t)snprintf(urls + n, sizeof(urls) - n, "%s%s", i ? " " : "",
                                      opt.listen[i]);
        begin_sample(o);
        label(f, "version", PACKAGE_VERSION);
        label(f, "listen", urls);
        end_sample(o, 1);
        figure(f, "up", "gauge", "1 while it serves, 0 after its end (a killed one leaves 1)",
               !last);
        figure(f, "start_time_seconds", "gauge", "When it began to serve, in seconds since 1970",
               (uint64_t)began);
        figure(f, "starts_total", "counter", "How often a memnode with this file began to serve",
               starts + 1);
        figure(f, "drains_total", "counter", "How often a memnode with this file was drained",
               drains + drained);
        figure(f, "draining", "gauge", "1 while clients move their pages to other nodes",
               drained && !last);
        figure(f, "resumed_leases", "gauge", "Leases taken over from the memnode before", resumed);
}

static void print_memory(FILE *f)
{
        uint64_t size = pool_size();

        figure(f, "pool_size_bytes", "gauge", "Memory that it serves", size);
        figure(f, "pool_used_bytes", "gauge", "Memory that is given out", size - pool_left());
        figure(f, "pool_page_size_bytes", "gauge", "Size of a page of that memory", opt.hugepage);
}

static void print_servers(FILE *f)
{
        struct server_figures of[SERVERS];

        for (unsigned i = 0; i < SERVERS; i++)
                servers[i]->count(&of[i]);
        struct out o = metric(f, "connections", "gauge", "Connections of clients");
        for (unsigned i = 0; i < SERVERS; i++)
                sample(o, "protocol", servers[i]->protocol, of[i].connections);
        o = metric(f, "leases", "gauge", "Leases of clients");
        for (unsigned i = 0; i < SERVERS; i++)
                sample(o, "protocol", servers[i]->protocol, of[i].leases);
        o = metric(f, "abandoned_total", "counter",
                   "Leases (RDMA: clients) that ended because nobody came back to them");
        for (unsigned i = 0; i < SERVERS; i++)
                sample(o, "protocol", servers[i]->protocol, of[i].abandoned);
}

static void print_traffic(FILE *f)
{
        struct account_totals t = account_totals();
        uint64_t refusals[REFUSALS];

        figure(f, "accounts", "gauge", "Exports, leases, and clients over RDMA",
               t.accounts);
        figure(f, "reads_total", "counter", "Reads over NBD (RDMA's are not seen)", t.reads);
        figure(f, "writes_total", "counter", "Writes over NBD (RDMA's are not seen)", t.writes);
        figure(f, "read_bytes_total", "counter", "Bytes read over NBD", t.read_bytes);
        figure(f, "written_bytes_total", "counter", "Bytes written over NBD", t.written_bytes);
        refusals_count(refusals);
        struct out o = metric(f, "refusals_total", "counter",
                              "Refused clients and requests, by cause");
        for (unsigned i = 0; i < REFUSALS; i++)
                sample(o, "cause", refusal_names[i], refusals[i]);
}

static void print_client(struct out o, const struct party_figures *p, uint64_t v)
{
        begin_sample(o);
        label(o.f, "client", p->name);
        label(o.f, "known_by", p->has_key ? "key" : "origin");
        end_sample(o, v);
}

static void print_clients(FILE *f)
{
        unsigned n;
        struct party_figures *all = party_all(&n);

        struct out o = metric(f, "client_held_bytes", "gauge", "Memory that a client holds");
        for (unsigned i = 0; i < n; i++)
                print_client(o, &all[i], all[i].held);
        o = metric(f, "client_quota_bytes", "gauge", "Memory that a client may hold at most");
        for (unsigned i = 0; i < n; i++)
                if (all[i].quota != UINT64_MAX)
                        print_client(o, &all[i], all[i].quota);
        o = metric(f, "client_leases", "gauge", "Leases (RDMA: programs) of a client");
        for (unsigned i = 0; i < n; i++)
                print_client(o, &all[i], all[i].leases);
        o = metric(f, "client_connections", "gauge", "Connections of a client");
        for (unsigned i = 0; i < n; i++)
                print_client(o, &all[i], all[i].connections);
        free(all);
}

/* 0 or -errno; the caller frees *text. */
static int make_text(bool last, char **text, size_t *size)
{
        FILE *f = open_memstream(text, size);

        if (!f)
                return -errno;
        print_life(f, last);
        print_memory(f);
        print_servers(f);
        print_traffic(f);
        print_clients(f);
        bool bad = ferror(f);
        bad |= fclose(f) != 0;
        return bad ? -ENOMEM : 0;
}

/* ---- the file ---- */

static void write_file(bool last)
{
        char *text = NULL;
        size_t size;

        if (!lock_within(&lock, LOCK_MS))
                return;
        if (over) {
                pthread_mutex_unlock(&lock);
                return;
        }
        int err = make_text(last, &text, &size);
        if (!err)
                err = outfile_replace(&file, file.name, text, size);
        free(text);
        if (err && (last || !failed))
                warnx_("--stats %s: could not be written: %s", opt.stats, strerror(-err));
        if (!err && failed)
                notice_("--stats %s: is written again", opt.stats);
        failed = err;
        over = last;
        pthread_mutex_unlock(&lock);
}

static void write_now(void) { write_file(false); }

/* What the file before says of a counter. */
static void take_over(const char *line, const char *name, uint64_t *to)
{
        const char *value = strrchr(line, ' ');

        if (value && strncmp(line, name, strlen(name)) == 0)
                *to = strtoull(value, NULL, 10);
}

/* Of a memnode that was killed: what a client loses. */
static void say_lost(const char *line)
{
        const char *client = strstr(line, ",client=\"");
        uint64_t bytes = 0;
        char a[32];

        take_over(line, "memnode_client_held_bytes{", &bytes);
        if (was_up && !resumed && client && bytes)
                warnx_("--stats %s: %s of %.*s", opt.stats, size_text(bytes, a),
                       (int)strcspn(client + 9, "\""), client + 9);
}

static void read_before(void)
{
        uint64_t up = 0;
        int fd = openat(file.dir_fd, file.name, O_RDONLY | O_CLOEXEC);
        FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
        char *line = NULL;
        size_t room = 0;

        while (f && getline(&line, &room, f) > 0) {
                take_over(line, "memnode_starts_total{", &starts);
                take_over(line, "memnode_drains_total{", &drains);
                take_over(line, "memnode_up{", &up);
                if (up && !was_up && !resumed)
                        warnx_("--stats %s: the memnode before did not write its end: it was "
                               "killed, or the disk was full. Lost is what it served:", opt.stats);
                was_up = up;
                say_lost(line);
        }
        free(line);
        if (f)
                fclose(f);
        else if (fd >= 0)
                close(fd);
}

int stats_open(const char *path, char *why, size_t n)
{
        size_t len = strlen(path), suffix = strlen(SUFFIX);

        if (len <= suffix || path[len - suffix - 1] == '/' ||
            strcmp(path + len - suffix, SUFFIX) != 0) {
                snprintf(why, n, "the node exporter reads files that end in " SUFFIX " only: give "
                         "it such a name");
                return -EINVAL;
        }
        int err = outfile_open(&file, path, NULL);
        if (err) {
                snprintf(why, n, "cannot be written: %s: %s", strerror(-err), outfile_cure(err));
                return err;
        }
        file.mode |= 0444;              /* the node exporter is another user */
        /* A link's target may be called otherwise. */
        len = strlen(file.name);
        suffix = len > suffix && strcmp(file.name + len - suffix, SUFFIX) == 0 ? suffix : 0;
        snprintf(stem, sizeof(stem), "%.*s", (int)(len - suffix), file.name);
        read_before();
        return 0;
}

void stats_resumed(unsigned leases) { resumed = leases; }

void stats_begin(unsigned interval_ms)
{
        if (file.dir_fd < 0)
                return;
        began = time(NULL);
        write_file(false);
        int err = every(interval_ms, write_now);
        if (err)
                warnx_("--stats %s: is written at the end only: no thread can be made: %s",
                       opt.stats, strerror(-err));
}

void stats_end(void)
{
        if (file.dir_fd >= 0)
                write_file(true);
}
