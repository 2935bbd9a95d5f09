/*
 * vmrun's NBD driver on the harness of ../drivers, with whatever server is there: random writes,
 * reads and prefetches, each read compared with what was written last, then everything once more.
 * At the end no descriptor may be left.
 *
 *   driver [--depth N] [--count N] [--seconds S] [--pages N] [--size BYTES]
 *          [--keys FILE --client NAME]
 *          [--timeout MS] [--connect-timeout MS] [--gap MS] [--open-only] [--unasked] [--runs]
 *          [--hand-back] [--downs N] [--stop PID] [--drain PID] [--family] URL
 *
 * --runs: writes and prefetches of neighbouring pages that are posted together, as the guest's are,
 * instead of single pages.
 *
 * --unasked: reads one page after the other, and before each the sockets are looked at once, as
 * when another node has woken the I/O thread.  A read that then takes as long as the driver's tick
 * was not sent at once.
 *
 * --hand-back: other nodes have copies of the pages (far_node.hands_back).  --downs N: the node
 * must go down N times.  --stop: its server, process PID, is stopped and continued here.  --drain:
 * its server, process PID, is drained in the end.
 *
 * --family: a forked child uses the node, too, and then the next program does, as after execve.
 *
 * Exit status: 0; 1 if data is wrong or something leaked; 125 as vmrun, with the driver's sentence
 * on standard error.
 */
#include <dirent.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/message.h"
#include "base/privfd.h"
#include "far/nbd/settings.h"
#include "test/drivers/conformance.h"

#define LEASE_PAGES  1024u
#define SAMPLES      1000000u           /* latencies that are kept */

extern const struct far_driver *const far_module[];

static struct nbd_settings settings = { .connect_timeout_ms = 5000, .timeout_ms = 10000 };
static struct nbd_key key = { .fd = -1 };
static struct traffic traffic = { .count = 20000, .run = 1 };
static unsigned depth = 64;
static bool unasked, family, open_only;
static unsigned downs_wanted = UINT_MAX;
static pid_t server;                    /* --stop, --drain */
static bool drains;                     /* memnode drains in the end */
static uint64_t pages = 4096, *latency, latencies;

/* ---- vmrun's part ---- */

struct nbd_settings nbd_settings(const struct far_node *n) { (void)n; return settings; }

int nbd_settings_key(const struct far_node *n, struct nbd_key *k, char why[FAR_WHY])
{
        (void)n, (void)why;
        *k = key;
        return 0;
}

static void say(const char *fmt, va_list ap)
{
        char line[1024];
        vsnprintf(line, sizeof(line), fmt, ap);
        fprintf(stderr, "driver: %s\n", line);
}

void warnx_(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
}

void info_(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
}

void die_(int status, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
        _exit(status);
}

_Noreturn void harness_wrong(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
        _exit(1);
}

/* As in vmrun, the loss of a node ends it all. */
static void end_lost(struct far_node *n)
{
        conform_lost();
        die_(125, "%s", n->why);
}

static void note_latency(const struct harness_job *j)
{
        if (latencies < SAMPLES)
                latency[latencies++] = now_ns() - j->posted_ns;
}

/* ---- Cases of NBD alone ---- */

static void read_one_by_one(void)
{
        unsigned late = 0;

        for (unsigned i = 0; i < 40; i++) {
                uint64_t p = harness_random((unsigned)pages), begin = now_ns();
                harness_sleep(0);
                struct far_request *r =
                        harness_request(harness_can_read(p) ? FAR_READ : FAR_WRITE, p);
                if (!harness_offer(&r, 1))
                        die_(1, "no room for a single transfer");
                while (harness.in_flight)
                        harness_sleep(1000);
                late += now_ns() - begin > NBD_TICK_MS * 1000000ull / 2;
        }
        /* A busy machine may be late a few times. */
        if (late > 4)
                die_(1, "%u of 40 transfers were late", late);
}

static uint64_t ms_since(uint64_t begin) { return (now_ns() - begin) / 1000000; }

/* The server stands still with transfers under way. */
static void stop_server(void)
{
        kill(server, SIGSTOP);
        usleep(50000);
        for (uint64_t p = 0; p < pages && harness_has_idle(); p++) {
                struct far_request *r =
                        harness_request(harness_can_read(p) && p % 2 ? FAR_READ : FAR_WRITE, p);
                if (!harness_offer(&r, 1))
                        break;
        }
}

static void poll_for(uint64_t ms)
{
        for (uint64_t begin = now_ns(); ms_since(begin) < ms; )
                harness_sleep(1000);
}

/* The server is stopped, for less than a second of the time in which this process runs. */
static void pause_with_it(struct far_node *n)
{
        stop_server();
        poll_for(200);
        usleep(2000000);
        poll_for(200);
        if (!n->up)
                die_(1, "the node is down because this process did not run");
        kill(server, SIGCONT);
        harness_settle();
}

/* The server is stopped, and the node is down after a second.  A process of the tree attaches, and
 * finds it down.  Then the server continues. */
static void stop_and_go(struct far_node *n)
{
        char why[FAR_WHY] = "";
        uint64_t begin;

        stop_server();
        uint64_t posted = harness.in_flight;
        for (begin = now_ns(); n->up; )
                harness_sleep(1000);
        printf("%llu transfers are handed back after %llu ms\n", (unsigned long long)posted,
               (unsigned long long)ms_since(begin));
        if (ms_since(begin) < 900 || ms_since(begin) > 1500 || harness.given_back != posted)
                die_(1, "%llu of %llu are handed back after %llu ms",
                     (unsigned long long)harness.given_back, (unsigned long long)posted,
                     (unsigned long long)ms_since(begin));
        conform_down(harness_place(0));
        poll_for(2 * settings.timeout_ms);   /* never lost by silence */

        n->driver->forked(n);
        n->member = 2;
        begin = now_ns();
        if (n->driver->attach(n, harness.frames, (size_t)depth * PAGE_SIZE, why) != 0 ||
            n->up || ms_since(begin) > 1300)
                die_(1, "attach, %llu ms: %s", (unsigned long long)ms_since(begin),
                     n->up ? "up" : why);
        conform_down(harness_place(0));
        kill(server, SIGCONT);
        for (begin = now_ns(); !n->up && ms_since(begin) < 3000; )
                harness_sleep(1000);
        if (!n->up)
                die_(1, "not up again after 3 s");
        printf("up again after %llu ms\n", (unsigned long long)ms_since(begin));
        harness_settle();
}

/* memnode drains, hears first that this process stays, and then that it has moved. */
static void drain(struct far_node *n)
{
        harness_settle();
        uint64_t begin = now_ns();
        kill(server, SIGTERM);
        while (!n->asked && ms_since(begin) < 3000)
                harness_sleep(100);
        if (!n->asked)
                die_(1, "memnode does not say within 3 s that it drains");
        printf("asked after %llu ms\n", (unsigned long long)ms_since(begin));
        while (!n->driver->answer(n, false) && ms_since(begin) < 5000)
                harness_sleep(10);
        while (!n->driver->answer(n, true) && ms_since(begin) < 5000)
                harness_sleep(10);
        if (ms_since(begin) >= 5000)
                die_(1, "the answer is not done after 5 s");
        poll_for(100);               /* which asks nothing more */
}

/* ---- The frame around it ---- */

static unsigned open_files(void)
{
        unsigned n = 0;
        DIR *d = opendir("/proc/self/fd");
        while (d && readdir(d))
                n++;
        if (d)
                closedir(d);
        return n;
}

static int by_size(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return x < y ? -1 : x > y;
}

static void parse(int argc, char **argv)
{
        static const struct option names[] = {
                { "depth", 1, NULL, 'd' },   { "count", 1, NULL, 'c' },
                { "seconds", 1, NULL, 's' }, { "pages", 1, NULL, 'p' },
                { "size", 1, NULL, 'z' },    { "keys", 1, NULL, 't' },
                { "client", 1, NULL, 'n' },  { "family", 0, NULL, 'f' },
                { "timeout", 1, NULL, 'T' }, { "connect-timeout", 1, NULL, 'C' },
                { "gap", 1, NULL, 'g' },     { "open-only", 0, NULL, 'o' },
                { "unasked", 0, NULL, 'u' }, { "hand-back", 0, NULL, 'h' },
                { "downs", 1, NULL, 'D' },   { "stop", 1, NULL, 'S' },
                { "drain", 1, NULL, 'l' },   { "runs", 0, NULL, 'r' },
                { NULL, 0, NULL, 0 }
        };
        for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1; ) {
                uint64_t v = optarg ? strtoull(optarg, NULL, 0) : 0;
                switch (c) {
                case 'd': depth = (unsigned)v; break;
                case 'c': traffic.count = v; break;
                case 's': traffic.ms = 1000 * (unsigned)v; break;
                case 'p': pages = v; break;
                case 'z': settings.size = v; break;
                case 't': snprintf(key.file, sizeof(key.file), "%s", optarg); break;
                case 'n': snprintf(key.client, sizeof(key.client), "%s", optarg); break;
                case 'T': settings.timeout_ms = (unsigned)v; break;
                case 'C': settings.connect_timeout_ms = (unsigned)v; break;
                case 'g': traffic.gap_ms = (unsigned)v; break;
                case 'o': open_only = true; break;
                case 'u': unasked = true; break;
                case 'r': traffic.run = CONFORM_RUN; break;
                case 'h': harness.hands_back = true; break;
                case 'f': family = true; break;
                case 'D': downs_wanted = (unsigned)v; break;
                case 'S': server = (pid_t)v; break;
                case 'l': server = (pid_t)v, drains = true; break;
                default: exit(2);
                }
        }
        settings.tls = *key.file;
        if (optind + 1 != argc || !depth)
                die_(2, "give one URL");
}

static void find_driver(struct far_node *n, const char *url)
{
        const char *colon = strchr(url, ':');

        n->url = url;
        for (const struct far_driver *const *m = far_module; colon && *m; m++)
                if (strlen((*m)->scheme) == (size_t)(colon - url) &&
                    strncmp((*m)->scheme, url, (size_t)(colon - url)) == 0)
                        n->driver = *m;
        if (!n->driver)
                die_(2, "%s: unknown scheme", url);
}

/* Opens the node and leases its pages; or ends with 125 and the driver's sentence. */
static void open_node(struct far_node *n)
{
        unsigned files = open_files();
        char why[FAR_WHY] = "", text[FAR_WHY];
        uint64_t begin = now_ns();

        int err = n->driver->open(n, strchr(n->url, ':') + 1, why);
        if (err) {
                if (open_files() != files || privfd_next(0) >= 0 || err > 0 || !*why)
                        die_(1, "open failed with %d (%s) and left descriptors, or gave no reason",
                             err, why);
                die_(125, "%s: %s (after %llu ms)", n->url, why,
                     (unsigned long long)ms_since(begin));
        }
        n->driver->describe(n, text, sizeof(text));
        printf("%s (%llu pages)\n", text, (unsigned long long)n->pages);
        fflush(stdout);
        pages = pages < n->pages ? pages : n->pages;
        harness_init(depth, pages);
        harness_start(n, pages, LEASE_PAGES);
        conform_lease_end();
        harness.seed = now_ns() | 1;
        printf("seed %llu\n", (unsigned long long)harness.seed);
}

static void print_speed(uint64_t begin)
{
        double s = (double)(now_ns() - begin) / 1e9;

        if (!latencies)
                return;
        qsort(latency, latencies, sizeof(*latency), by_size);
        printf("depth %u: %llu transfers in %.2f s, %.0f a second, latency p50 %.0f us, "
               "p99 %.0f us\n",
               depth, (unsigned long long)harness.done, s, (double)harness.done / s,
               (double)latency[latencies / 2] / 1e3, (double)latency[latencies * 99 / 100] / 1e3);
}

static void transfer(struct far_node *n)
{
        uint64_t begin = now_ns();

        if (!open_only)
                conform_traffic(&traffic);
        harness_settle();
        if (unasked)
                read_one_by_one();
        if (server && !drains) {
                pause_with_it(n);
                stop_and_go(n);
        }
        print_speed(begin);
        conform_read_back();
        if (drains)
                drain(n);
}

int main(int argc, char **argv)
{
        /* Of this program and of the next.  Static: memory of the old one stays reachable, so it is
         * no leak. */
        static struct far_node n, next;
        struct far_node *last = &n;

        parse(argc, argv);
        n = (struct far_node){ .member = 1 };
        find_driver(&n, argv[optind]);
        latency = calloc(SAMPLES, sizeof(*latency));
        if (!latency)
                die_(1, "out of memory");
        harness.on_done = note_latency;
        harness.on_lost = end_lost;
        unsigned files = open_files();
        open_node(&n);
        transfer(&n);
        if (family) {
                conform_child();
                if (!conform_kept(&next))
                        die_(1, "the next program cannot have the node");
                last = &next;
        }
        last->driver->close(last);
        if (open_files() != files || privfd_next(0) >= 0)
                die_(1, "descriptors are left: %u, before there were %u; private: %d", open_files(),
                     files, privfd_next(0));
        if (harness.hands_back)
                printf("down %u times, %llu transfers handed back\n", harness.downs,
                       (unsigned long long)harness.given_back);
        if (downs_wanted != UINT_MAX &&
            (harness.downs != downs_wanted || (harness.downs && !harness.given_back)))
                die_(1, "the node was down %u times, not %u", harness.downs, downs_wanted);
        harness_end();
        free(latency);
        return 0;
}
