/*
 * Drives vmrun's NBD driver as its I/O thread does, without a guest: random writes, reads and
 * prefetches of single pages, each read compared with what was written last, then everything once
 * more.  At the end no descriptor may be left.
 *
 *   driver [--depth N] [--count N] [--seconds S] [--pages N] [--size BYTES] [--token-file F]
 *   [--timeout MS] [--connect-timeout MS]
 *          [--gap MS] [--open-only] [--unasked] [--runs] [--hand-back] [--downs N] [--stop PID] URL
 *
 * --runs: writes and prefetches of neighbouring pages that are posted together, as the guest's are,
 * instead of single pages.
 *
 * --unasked: reads one page after the other, and before each the sockets are looked at once, as
 * when another node has woken the I/O thread.  A read that then takes as long as the driver's tick
 * was not sent at once.
 *
 * --hand-back: other nodes have copies of the pages (far_node.hands_back).  A transfer that is
 * handed back is started again when the node is up.  Until then its frame has a pattern, so a late
 * transfer shows.  --downs: how often the node must go down.  --stop: the driver stops the node's
 * server, process PID, and continues it.
 *
 * Exit status: 0; 1 if data is wrong or something leaked; 125 as vmrun, with the driver's sentence
 * on standard error.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/host.h"
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "far/nbd/settings.h"

#define PART_PAGES 1024u
#define SLABS      256u
#define RUN        64u                  /* pages: longer than what the driver joins */

extern const struct far_driver *const far_module[];

static struct nbd_settings settings = { .connect_timeout_ms = 5000, .timeout_ms = 10000 };
static unsigned depth = 64, gap_ms;
static bool unasked, in_runs, hand_back;
static unsigned downs_wanted = UINT_MAX;
static pid_t server;                    /* --stop, --drain */
static bool drains;                     /* memnode drains in the end */
static uint64_t count = 20000, seconds, pages = 4096;

/* ---- vmrun's part ---- */

struct options opt;
struct nbd_settings nbd_settings(const struct far_node *n) { (void)n; return settings; }

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

void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
        n->lost = true;
        n->lost_pages = pages;
}

static unsigned downs;
static bool falling;                    /* far_down() was called: the rest must be given back */

void far_up(struct far_node *n)
{
        if (n->up)
                die_(1, "the node is up twice");
        n->up = true;
}

void far_down(struct far_node *n, const char *why)
{
        if (!n->up)
                die_(1, "the node is down twice");
        warnx_("down: %s", why);
        n->up = false;
        falling = true;
        downs++;
}

/* ---- Pages and frames ---- */

struct job {                            /* one frame, and what is under way with it */
        struct far_request r;
        uint64_t page, posted_ns, handed_ns;
        struct job *next;               /* while it is free */
};
static struct job *jobs, *idle;
static struct job *handed;              /* handed back, not started again yet */
#define TRAP      0xa5                  /* what their frames are full of */
#define TRAP_MS   300                   /* and how long at least */
static uint64_t handed_back;
static uint32_t *version;               /* of each page as written last; 0: never */
static bool *busy;                      /* a transfer of the page is under way */
static struct far_place places[SLABS];
static uint64_t in_flight, finished, wrong, *latency, latencies;

static uint64_t now_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t seed;
static uint64_t rnd(void)
{
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return seed;
}

/* Each 8 bytes tell page, version and their own place, so that torn and shifted pages are seen. */
static uint64_t pattern(uint64_t page, uint32_t v, unsigned i)
{
        return (page << 40 ^ (uint64_t)v << 12 ^ i) * 0x9e3779b97f4a7c15ull + i;
}

static void fill(char *frame, uint64_t page, uint32_t v)
{
        for (unsigned i = 0; i < PAGE_SIZE / 8; i++) {
                uint64_t w = pattern(page, v, i);
                memcpy(frame + 8 * i, &w, 8);
        }
}

static bool matches(const char *frame, uint64_t page, uint32_t v)
{
        for (unsigned i = 0; i < PAGE_SIZE / 8; i++) {
                uint64_t w = pattern(page, v, i);
                if (memcmp(frame + 8 * i, &w, 8) != 0)
                        return false;
        }
        return true;
}

void far_done(struct far_request *r)
{
        struct job *j = (struct job *)((char *)r - offsetof(struct job, r));

        if (!busy[j->page]) {
                fprintf(stderr, "driver: page %llu is done twice\n", (unsigned long long)j->page);
                wrong++;
                return;
        }
        if (hand_back && !r->place->node->up)
                die_(1, "page %llu is done while the node is down", (unsigned long long)j->page);
        if (r->op != FAR_WRITE && !matches(r->frame, j->page, version[j->page])) {
                fprintf(stderr, "driver: page %llu, version %u: wrong data\n",
                        (unsigned long long)j->page, version[j->page]);
                wrong++;
        }
        if (latencies < 1000000)
                latency[latencies++] = now_ns() - j->posted_ns;
        busy[j->page] = false;
        j->next = idle;
        idle = j;
        in_flight--;
        finished++;
}

unsigned far_connect_ms(const struct far_node *n) { (void)n; return opt.connect_timeout_ms; }
void far_asked(struct far_node *n) { atomic_store(&n->asked, true); }

void far_failed(struct far_request *r)
{
        struct job *j = (struct job *)((char *)r - offsetof(struct job, r));

        if (!busy[j->page])
                die_(1, "page %llu fails after it was done", (unsigned long long)j->page);
        in_flight--;
        if (!hand_back) {
                busy[j->page] = false;
                return;
        }
        if (r->place->node->up || !j->posted_ns)
                die_(1, "page %llu is handed back by a node that is up, or twice",
                     (unsigned long long)j->page);
        memset(r->frame, TRAP, PAGE_SIZE);
        j->posted_ns = 0;
        j->handed_ns = now_ns();
        j->next = handed;
        handed = j;
        handed_back++;
}

static void check_fall(void)
{
        if (falling && in_flight)
                die_(1, "the node is down, and the driver keeps %llu requests",
                     (unsigned long long)in_flight);
        falling = false;
}

/* As io.c: the loss of a node ends it all, after the driver has given back what it had. */
static unsigned poll_node(struct far_node *n)
{
        unsigned done = n->driver->poll(n);

        check_fall();
        if (n->lost && in_flight)
                die_(1, "the node is lost, and the driver keeps %llu requests",
                     (unsigned long long)in_flight);
        if (n->lost)
                _exit(125);
        return done;
}

/* A transfer of page p in an idle frame. */
static struct far_request *prepare(uint64_t p, enum far_op op)
{
        struct job *j = idle;
        struct far_request *r = &j->r;

        r->op = op;
        r->place = &places[p / PART_PAGES];
        r->page = (uint32_t)(p % PART_PAGES);
        j->page = p;
        j->posted_ns = now_ns();
        if (op == FAR_WRITE)
                fill(r->frame, p, version[p] + 1);
        else
                memset(r->frame, 0xee, PAGE_SIZE);
        idle = j->next;
        busy[p] = true;
        in_flight++;
        /* before: it may be handed back within post() */
        version[p] += op == FAR_WRITE;
        return r;
}

/* The driver has no room for it. */
static void not_taken(struct far_request *r)
{
        struct job *j = (struct job *)((char *)r - offsetof(struct job, r));

        version[j->page] -= r->op == FAR_WRITE;
        busy[j->page] = false;
        in_flight--;
        j->next = idle;
        idle = j;
}

/* False: there is no room. */
static bool start(struct far_node *n, uint64_t p, enum far_op op)
{
        struct far_request *r = prepare(p, op);

        if (n->driver->post(n, &r, 1) == 1) {
                check_fall();
                return true;
        }
        not_taken(r);
        return false;
}

/* Starts the transfers that were handed back, once the node is up and the trap was there for long
 * enough. */
static void start_again(struct far_node *n)
{
        char trap[PAGE_SIZE];

        memset(trap, TRAP, sizeof(trap));
        for (struct job **at = &handed, *j; n->up && (j = *at); ) {
                struct far_request *r = &j->r;
                if (now_ns() - j->handed_ns < TRAP_MS * 1000000ull) {
                        at = &j->next;
                        continue;
                }
                if (memcmp(r->frame, trap, PAGE_SIZE) != 0)
                        die_(1, "the frame of page %llu was written after it was handed back",
                             (unsigned long long)j->page);
                *at = j->next;
                if (r->op == FAR_WRITE)
                        fill(r->frame, j->page, version[j->page]);
                else
                        memset(r->frame, 0xee, PAGE_SIZE);
                j->posted_ns = now_ns();
                in_flight++;
                if (n->driver->post(n, &r, 1) == 1)
                        continue;
                in_flight--;
                memset(r->frame, TRAP, PAGE_SIZE);
                j->next = *at;
                *at = j;
                return;
        }
}

/* As the I/O thread: sleeps until something comes, at most ms. */
static void sleep_until_news(struct far_node *n, int ms)
{
        struct pollfd fds[8];
        ms = handed && ms > 20 ? 20 : ms;
        int k = n->driver->arm(n, fds, 8, &ms);

        if (k >= 0)
                poll(fds, (nfds_t)k, ms);
        poll_node(n);
        start_again(n);
}

/* Looks a few times before. */
static void wait_some(struct far_node *n)
{
        for (unsigned i = 0; i < 50; i++)
                if (poll_node(n))
                        return;
        sleep_until_news(n, 1000);
}

static void work(struct far_node *n)
{
        uint64_t begin = now_ns(), posted = 0;

        while (seconds ? now_ns() - begin < seconds * 1000000000u : posted < count) {
                bool full = !idle;
                while (idle && (seconds || posted < count)) {
                        uint64_t p = rnd() % pages;
                        enum far_op op = (enum far_op)(rnd() % 3);
                        if (busy[p])
                                /* the guest, too, has one transfer of a page at a time */
                                break;
                        if (!start(n, p, version[p] ? op : FAR_WRITE)) {
                                full = true;
                                break;
                        }
                        posted++;
                        if (gap_ms)
                                break;
                }
                if (gap_ms) {
                        struct pollfd fds[8];
                        int ms = (int)gap_ms, k = n->driver->arm(n, fds, 8, &ms);
                        poll(fds, (nfds_t)k, ms);
                }
                if (full || gap_ms || in_flight >= depth)
                        wait_some(n);
                else
                        poll_node(n);
        }
        while (in_flight || handed)
                wait_some(n);
}

/* Transfers of neighbouring pages from p on, forward or backward, as far as they and their frames
 * are free.  Returns how many the driver took. */
static unsigned start_run(struct far_node *n, uint64_t p, unsigned most)
{
        struct far_request *r[RUN];
        bool down = rnd() % 2;
        enum far_op op = rnd() % 2 ? FAR_WRITE : FAR_PREFETCH;
        unsigned k = 0;

        for (; k < most && idle; p += down ? -1u : 1, k++) {
                if (p >= pages || busy[p])
                        break;
                op = version[p] ? op : FAR_WRITE;
                r[k] = prepare(p, op);
        }
        unsigned taken = k ? n->driver->post(n, r, k) : 0;
        check_fall();
        for (unsigned i = taken; i < k; i++)
                not_taken(r[i]);
        return taken;
}

static void work_in_runs(struct far_node *n)
{
        for (uint64_t posted = 0; posted < count; ) {
                unsigned taken = start_run(n, rnd() % pages, 1 + (unsigned)(rnd() % RUN));
                posted += taken;
                if (taken && idle)
                        poll_node(n);
                else
                        wait_some(n);
        }
        while (in_flight || handed)
                wait_some(n);
}

static void read_one_by_one(struct far_node *n)
{
        unsigned late = 0;

        for (unsigned i = 0; i < 40; i++) {
                uint64_t p = rnd() % pages, begin = now_ns();
                sleep_until_news(n, 0);
                if (!start(n, p, version[p] ? FAR_READ : FAR_WRITE))
                        die_(1, "no room for a single transfer");
                while (in_flight)
                        sleep_until_news(n, 1000);
                late += now_ns() - begin > NBD_TICK_MS * 1000000ull / 2;
        }
        /* A busy machine may be late a few times. */
        if (late > 4)
                die_(1, "%u of 40 transfers were late", late);
}

static void read_all_back(struct far_node *n)
{
        for (uint64_t p = 0; p < pages; p++) {
                if (!version[p])
                        continue;
                while (!idle || !start(n, p, FAR_READ))
                        wait_some(n);
        }
        while (in_flight || handed)
                wait_some(n);
}

static uint64_t ms_since(uint64_t begin) { return (now_ns() - begin) / 1000000; }

/* While the node is down: the calls that fail at once, and those that do not. */
static void check_down(struct far_node *n)
{
        const struct far_range dead = { 7, 7 };
        char why[FAR_WHY] = "";
        uint64_t begin = now_ns();
        struct slab s;
        struct far_place place = { .node = n };
        struct far_request *r = &jobs[0].r;
        int lease = n->driver->lease(n, NULL, 0, 1, &s, &place),
            cut = n->fences ? n->driver->cut(n, &dead, 1, 5000, why) : -ENOLINK,
            use = n->driver->use(n, &place, 1);

        if (lease != -ENOLINK || cut != -ENOLINK || use != 0 || (n->fences && !*why))
                die_(1, "while the node is down: lease %d, cut %d, use %d", lease, cut, use);
        if (n->driver->post(n, &r, 1) != 0)
                die_(1, "a request is taken while the node is down");
        if (ms_since(begin) > 100)
                die_(1, "these waited for a node that is down");
}

/* The server stands still with transfers under way. */
static void stop_server(struct far_node *n)
{
        kill(server, SIGSTOP);
        usleep(50000);
        for (uint64_t p = 0; p < pages && idle; p++)
                if (!start(n, p, version[p] && p % 2 ? FAR_READ : FAR_WRITE))
                        break;
}

static void poll_for(struct far_node *n, uint64_t ms)
{
        for (uint64_t begin = now_ns(); ms_since(begin) < ms; )
                sleep_until_news(n, 1000);
}

/* It does so for less than a second in which this process runs. */
static void pause_with_it(struct far_node *n)
{
        stop_server(n);
        poll_for(n, 200);
        usleep(2000000);
        poll_for(n, 200);
        if (!n->up)
                die_(1, "the node is down because this process did not run");
        kill(server, SIGCONT);
        while (in_flight)
                wait_some(n);
}

/* The server is down after a second; then a process of the tree attaches that finds it so; then the
 * server is continued. */
static void stop_and_go(struct far_node *n, char *frames)
{
        char why[FAR_WHY] = "";
        uint64_t begin;

        stop_server(n);
        uint64_t posted = in_flight;
        for (begin = now_ns(); n->up; )
                sleep_until_news(n, 1000);
        printf("%llu transfers are handed back after %llu ms\n", (unsigned long long)posted,
               (unsigned long long)ms_since(begin));
        if (ms_since(begin) < 900 || ms_since(begin) > 1500 || handed_back != posted)
                die_(1, "%llu of %llu are handed back after %llu ms",
                     (unsigned long long)handed_back, (unsigned long long)posted,
                     (unsigned long long)ms_since(begin));
        check_down(n);
        poll_for(n, 2 * settings.timeout_ms);   /* never lost by silence */

        n->driver->forked(n);
        n->member = 2;
        begin = now_ns();
        if (n->driver->attach(n, frames, (size_t)depth * PAGE_SIZE, why) != 0 || n->up ||
            ms_since(begin) > 1300)
                die_(1, "attach, %llu ms: %s", (unsigned long long)ms_since(begin),
                     n->up ? "up" : why);
        check_down(n);
        kill(server, SIGCONT);
        for (begin = now_ns(); !n->up && ms_since(begin) < 3000; )
                sleep_until_news(n, 1000);
        if (!n->up)
                die_(1, "not up again after 3 s");
        printf("up again after %llu ms\n", (unsigned long long)ms_since(begin));
        while (in_flight || handed)
                wait_some(n);
}

/* memnode drains, hears first that this process stays, and then that it has moved. */
static void drain(struct far_node *n)
{
        while (in_flight)
                wait_some(n);
        uint64_t begin = now_ns();
        kill(server, SIGTERM);
        while (!n->asked && ms_since(begin) < 3000)
                sleep_until_news(n, 100);
        if (!n->asked)
                die_(1, "memnode does not say within 3 s that it drains");
        printf("asked after %llu ms\n", (unsigned long long)ms_since(begin));
        while (!n->driver->answer(n, true) && ms_since(begin) < 5000)
                sleep_until_news(n, 10);
        if (ms_since(begin) >= 5000)
                die_(1, "the answer is not done after 5 s");
        poll_for(n, 100);               /* which asks nothing more */
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

static void lease_all(struct far_node *n)
{
        pages = pages < n->pages ? pages : n->pages;
        pages = pages < (uint64_t)SLABS * PART_PAGES ? pages : (uint64_t)SLABS * PART_PAGES;
        for (uint64_t first = 0; first < pages; first += PART_PAGES) {
                struct far_place *at = &places[first / PART_PAGES];
                struct slab s = { .kind = n->driver->kind };
                uint32_t some = (uint32_t)(pages - first < PART_PAGES ? pages - first : PART_PAGES);
                *at = (struct far_place){ .node = n, .first = first };
                if (n->driver->lease(n, NULL, first, some, &s, at) != 0)
                        die_(1, "no lease of %u pages at %llu", some, (unsigned long long)first);
        }
        struct slab s;
        struct far_place beyond = { .node = n, .first = n->pages };
        if (n->driver->lease(n, NULL, n->pages, 1, &s, &beyond) != -ENOSPC)
                die_(1, "a page beyond the end was leased");
}

static void parse(int argc, char **argv, bool *open_only)
{
        static const struct option names[] = {
                { "depth", 1, NULL, 'd' },   { "count", 1, NULL, 'c' },
                { "seconds", 1, NULL, 's' }, { "pages", 1, NULL, 'p' },
                { "size", 1, NULL, 'z' },    { "token-file", 1, NULL, 't' },
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
                case 'c': count = v; break;
                case 's': seconds = v; break;
                case 'p': pages = v; break;
                case 'z': settings.size = v; break;
                case 't': settings.token_file = optarg; break;
                case 'T': settings.timeout_ms = (unsigned)v; break;
                case 'C': settings.connect_timeout_ms = (unsigned)v; break;
                case 'g': gap_ms = (unsigned)v; break;
                case 'o': *open_only = true; break;
                case 'u': unasked = true; break;
                case 'r': in_runs = true; break;
                case 'h': hand_back = true; break;
                case 'D': downs_wanted = (unsigned)v; break;
                case 'S': server = (pid_t)v; break;
                case 'l': server = (pid_t)v, drains = true; break;
                default: exit(2);
                }
        }
        if (optind + 1 != argc || !depth)
                die_(2, "give one URL");
}

int main(int argc, char **argv)
{
        bool open_only = false;
        char why[FAR_WHY] = "", text[FAR_WHY];
        struct far_node n = { .member = 1 };

        parse(argc, argv, &open_only);
        n.url = argv[optind];
        const char *colon = strchr(n.url, ':');
        for (const struct far_driver *const *m = far_module; colon && *m; m++)
                if (strlen((*m)->scheme) == (size_t)(colon - n.url) &&
                    strncmp((*m)->scheme, n.url, (size_t)(colon - n.url)) == 0)
                        n.driver = *m;
        if (!n.driver)
                die_(2, "%s: unknown scheme", n.url);

        unsigned files = open_files();
        uint64_t begin = now_ns();
        int err = n.driver->open(&n, colon + 1, why);
        if (err) {
                if (open_files() != files || privfd_next(0) >= 0 || err > 0 || !*why)
                        die_(1, "open failed with %d (%s) and left descriptors, or gave no reason",
                             err, why);
                die_(125, "%s: %s (after %llu ms)", n.url, why,
                     (unsigned long long)(now_ns() - begin) / 1000000);
        }
        n.driver->describe(&n, text, sizeof(text));
        printf("%s (%llu pages)\n", text, (unsigned long long)n.pages);
        fflush(stdout);
        n.hands_back = hand_back;

        char *frames = aligned_alloc(PAGE_SIZE, (size_t)depth * PAGE_SIZE);
        jobs = calloc(depth, sizeof(*jobs));
        if (!frames || !jobs)
                die_(1, "out of memory");
        if (n.driver->attach(&n, frames, (size_t)depth * PAGE_SIZE, why) != 0)
                die_(1, "attach: %s", why);
        if (n.up != hand_back)
                die_(1, "the node is not up after attach, or it is without need");
        lease_all(&n);
        version = calloc(pages, sizeof(*version));
        busy = calloc(pages, sizeof(*busy));
        latency = calloc(1000000, sizeof(*latency));
        if (!version || !busy || !latency)
                die_(1, "out of memory");
        seed = now_ns() | 1;
        printf("seed %llu\n", (unsigned long long)seed);
        for (unsigned i = 0; i < depth; i++) {
                jobs[i].r.frame = frames + (size_t)i * PAGE_SIZE;
                jobs[i].r.len = PAGE_SIZE;
                jobs[i].next = idle;
                idle = &jobs[i];
        }

        begin = now_ns();
        if (open_only)
                count = seconds = 0;
        if (in_runs)
                work_in_runs(&n);
        else
                work(&n);
        if (unasked)
                read_one_by_one(&n);
        if (server && !drains) {
                pause_with_it(&n);
                stop_and_go(&n, frames);
        }
        double s = (double)(now_ns() - begin) / 1e9;
        uint64_t some = finished;
        qsort(latency, latencies, sizeof(*latency), by_size);
        if (latencies)
                printf("depth %u: %llu transfers in %.2f s, %.0f a second, latency p50 %.0f us, "
                       "p99 %.0f us\n",
                       depth, (unsigned long long)some, s, (double)some / s,
                       (double)latency[latencies / 2] / 1e3,
                       (double)latency[latencies * 99 / 100] / 1e3);
        read_all_back(&n);
        if (drains)
                drain(&n);
        n.driver->close(&n);
        if (open_files() != files || privfd_next(0) >= 0)
                die_(1, "descriptors are left: %u, before there were %u; private: %d", open_files(),
                     files, privfd_next(0));
        if (hand_back)
                printf("down %u times, %llu transfers handed back\n", downs,
                       (unsigned long long)handed_back);
        if (downs_wanted != UINT_MAX && (downs != downs_wanted || (downs && !handed_back)))
                die_(1, "the node was down %u times, not %u", downs, downs_wanted);
        printf("%llu wrong\n", (unsigned long long)wrong);
        free(frames);
        free(jobs);
        free(version);
        free(busy);
        free(latency);
        return wrong ? 1 : 0;
}
