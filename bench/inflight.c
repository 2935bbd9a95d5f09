/*
 * The rdma:// driver of vmrun with a memnode, without a guest: what it makes of the device when
 * much is in flight.
 *
 *   inflight [--depth N] [--reads N] [--watch PID] bandwidth|demand URL
 *
 *   bandwidth   pages in their order, as prefetches, N in flight: mb_per_s; watched_ms: processor
 *               time of process PID meanwhile
 *   demand      one demand read at a time, first alone (demand_idle_p50, ...), then while N
 *               prefetches are kept in flight (demand_busy_p50, ..., and prefetch_mb_per_s
 *               meanwhile), in ns. The time of a read begins at the moment it is wanted. That
 *               moment is drawn beforehand, as a vCPU does not wait for the I/O thread.
 *
 * The loop is that of the I/O thread (runtime/far/io.c): take what is asked, post demand reads,
 * post prefetches, poll. Every page that arrives is checked: it must be zero, as leased pages are
 * that were never written, and its frame was not zero before.
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "far/rdma/settings.h"

#define DEPTH_MAX 256u
#define PAGES     16384u                /* of the slab */
#define GAP_US    1000                  /* from the end of a demand read to the next, on average */

/* ---- what the driver expects around it ---- */

struct options opt = { .timeout_ms = 10000, .connect_timeout_ms = 60000 };

static void say(const char *fmt, va_list ap)
{
        fputs("inflight: ", stderr);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
}

void warnx_(const char *fmt, ...) { va_list ap; va_start(ap, fmt); say(fmt, ap); va_end(ap); }
void info_(const char *fmt, ...) { va_list ap; va_start(ap, fmt); say(fmt, ap); va_end(ap); }

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void die(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
        exit(1);
}

void far_failed(struct far_request *r) { (void)r; }
void far_asked(struct far_node *n) { (void)n; }
void far_up(struct far_node *n) { (void)n; }
void far_down(struct far_node *n, const char *why) { (void)n, (void)why; }
void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
{
        va_list ap;
        (void)n, (void)pages;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
        exit(1);
}

int rdma_settings(const struct far_node *n, struct rdma_settings *s, char why[FAR_WHY])
{
        (void)n;
        (void)why;
        *s = (struct rdma_settings){ .timeout_ms = opt.timeout_ms,
                                     .connect_timeout_ms = opt.connect_timeout_ms,
                                     .gid_index = -1,
                                     .program = "inflight" };
        return 0;
}

/* No program is here from which a descriptor must be hidden. */
int privfd_move(int fd) { return fd; }
void privfd_close(int fd) { close(fd); }
/* Nor does it fork. */
bool privfd_is(int fd) { return fd < 0; }
void privfd_forget(int fd) { (void)fd; }
bool privfd_making(void) { return true; }
void privfd_made(bool held) { (void)held; }
void die_(int status, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
        exit(status);
}

extern const struct far_driver *const far_module[];

/* ---- requests ---- */

static struct node_option option = { .gid_index = -1 };
static struct far_node node = { .option = &option, .member = 1 };
static struct far_place place = { .node = &node };
static struct far_request prefetch[DEPTH_MAX], demand;
static struct far_request *idle[DEPTH_MAX];
static unsigned nidle, depth = 64;
static uint64_t reads = 20000, prefetched;
static pid_t watched;
static bool demand_posted;
static uint64_t demand_over;            /* when; 0: not yet */

void far_done(struct far_request *r)
{
        uint64_t *word = (uint64_t *)r->frame;

        if (*word != 0 || word[PAGE_SIZE / 8 - 1] != 0)
                die("page %u arrived as something else", r->page);
        if (r->op == FAR_READ) {
                demand_over =
                        __rdtsc(); /* the guest sees it now, whatever else is done in this turn */
        } else {
                prefetched++;
                idle[nidle++] = r;
        }
}

static void aim(struct far_request *r, enum far_op op, uint32_t page)
{
        uint64_t *word = (uint64_t *)r->frame;

        *word = word[PAGE_SIZE / 8 - 1] = ~0ull;
        r->op = op;
        r->page = page;
        r->len = PAGE_SIZE;
        r->place = &place;
}

static void keep_prefetching(void)
{
        static uint32_t next;
        static struct far_request *waiting[DEPTH_MAX];
        static unsigned nwaiting;

        while (nidle) {
                struct far_request *r = idle[--nidle];
                aim(r, FAR_PREFETCH, next++ % PAGES);
                waiting[nwaiting++] = r;
        }
        unsigned took = nwaiting ? node.driver->post(&node, waiting, nwaiting) : 0;
        nwaiting -= took;
        memmove(waiting, waiting + took, nwaiting * sizeof(*waiting));
}

/* One turn of the I/O thread; wanted: there is a demand read to post. */
static void turn(bool wanted, bool prefetching)
{
        struct far_request *r = &demand;

        if (wanted && !demand_posted)
                demand_posted = node.driver->post(&node, &r, 1) == 1;
        if (prefetching)
                keep_prefetching();
        if (node.driver->poll(&node) == 0)
                _mm_pause();
}

/* ---- measuring ---- */

static uint64_t now_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return (x > y) - (x < y);
}

/* Processor time of a process, in ms. */
static uint64_t cpu_ms(pid_t pid)
{
        char path[64];
        unsigned long user, sys;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        FILE *f = fopen(path, "r");
        if (!f || fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                         &user, &sys) != 2)
                die("%s: cannot be read", path);
        fclose(f);
        return (user + sys) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

static void bandwidth(void)
{
        uint64_t cpu = watched ? cpu_ms(watched) : 0, first = prefetched, began = now_ns();

        while (prefetched - first < reads)
                turn(false, true);
        uint64_t took = now_ns() - began;
        printf("mb_per_s %.2f\n", (double)(prefetched - first) * PAGE_SIZE * 1e3 / (double)took);
        if (watched)
                printf("watched_ms %llu\nwall_ms %llu\n",
                       (unsigned long long)(cpu_ms(watched) - cpu),
                       (unsigned long long)(took / 1000000));
}

/* `reads` demand reads, with prefetches beside them or not. */
static void demands(const char *name, bool busy)
{
        uint64_t *ticks = calloc(reads, sizeof(*ticks)), random = 88172645463325252, first,
                 began = now_ns(), tsc = __rdtsc();

        if (!ticks)
                die("no memory for %llu figures", (unsigned long long)reads);
        while (now_ns() - began < 50000000)     /* let it become as it will be */
                turn(false, busy);
        uint64_t ticks_per_us = (__rdtsc() - tsc) / ((now_ns() - began) / 1000);
        first = prefetched;
        began = now_ns();
        for (uint64_t i = 0; i < reads; i++) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                uint64_t want = __rdtsc() + (random >> 16) % (2 * GAP_US * ticks_per_us);
                aim(&demand, FAR_READ, (uint32_t)((random >> 40) % PAGES));
                demand_posted = false;
                demand_over = 0;
                while (!demand_over)
                        turn(__rdtsc() >= want, busy);
                ticks[i] = demand_over - want;
        }
        uint64_t took = now_ns() - began;
        double ns = 1000.0 / (double)ticks_per_us;
        qsort(ticks, reads, sizeof(*ticks), by_size);
        printf("%s_min %.0f\n%s_p50 %.0f\n%s_p99 %.0f\n", name, (double)ticks[0] * ns, name,
               (double)ticks[reads / 2] * ns, name, (double)ticks[reads - reads / 100 - 1] * ns);
        if (busy)
                printf("prefetch_mb_per_s %.2f\nwindow %u\n",
                       (double)(prefetched - first) * PAGE_SIZE * 1e3 / (double)took,
                       ((struct rdma_node *)node.data)->data.pace.window);
        free(ticks);
}

static void open_node(const char *url)
{
        char why[FAR_WHY] = "?";
        struct slab s = { 0 };
        size_t len = (DEPTH_MAX + 1) * PAGE_SIZE;
        char *frames = mmap(NULL, len, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

        option.url = option.origin = option.name = node.url = url;
        node.driver = far_module[0];
        if (frames == MAP_FAILED)
                die("no memory for the frames: %s", strerror(errno));
        if (node.driver->open(&node, url + strlen("rdma:"), why) != 0)
                die("%s: %s", url, why);
        if (node.driver->attach(&node, frames, len, why) != 0)
                die("%s: %s", url, why);
        int err = node.driver->lease(&node, NULL, 0, PAGES, &s, &place);
        if (err)
                die("%s: no lease of %u pages: %s", url, PAGES, strerror(-err));
        for (unsigned i = 0; i < depth; i++) {
                prefetch[i].frame = frames + i * PAGE_SIZE;
                idle[nidle++] = &prefetch[i];
        }
        demand.frame = frames + DEPTH_MAX * PAGE_SIZE;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "depth", required_argument, NULL, 'd' },
                { "reads", required_argument, NULL, 'r' },
                { "watch", required_argument, NULL, 'w' },
                { NULL, 0, NULL, 0 },
        };

        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'd': depth = (unsigned)strtoul(optarg, NULL, 10); break;
                case 'r': reads = strtoull(optarg, NULL, 10); break;
                case 'w': watched = (pid_t)strtol(optarg, NULL, 10); break;
                default: depth = 0;
                }
        bool is_demand = argc - optind == 2 && strcmp(argv[optind], "demand") == 0;
        if (depth == 0 || depth > DEPTH_MAX || reads < 100 || argc - optind != 2 ||
            (!is_demand && strcmp(argv[optind], "bandwidth") != 0) ||
            strncmp(argv[optind + 1], "rdma:", 5) != 0) {
                fprintf(stderr,
                        "usage: inflight [--depth 1..%u] [--reads 100..] [--watch PID] "
                        "bandwidth|demand rdma://HOST[:PORT]\n",
                        DEPTH_MAX);
                return 2;
        }
        open_node(argv[optind + 1]);
        if (is_demand) {
                demands("demand_idle", false);
                demands("demand_busy", true);
        } else {
                bandwidth();
        }
        node.driver->close(&node);
        return 0;
}
