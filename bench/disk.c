/*
 * The file: driver of vmrun without a guest: random reads or writes of single pages, N in flight,
 * for some seconds.
 *
 *   disk [--depth N] [--seconds S] [--pages N] read|write PATH
 *
 * Prints pages_per_s.  The loop is that of the I/O thread (runtime/far/io.c): post, poll, and sleep
 * when nothing has come.  PATH is overwritten, whatever it is.
 */
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "common/clock.h"
#include "far/node.h"

#define DEPTH_MAX 256u
#define SLAB      4096u                 /* pages */
#define SLABS_MOST 1024u

/* ---- what the driver expects around it ---- */

struct options opt = { .timeout_ms = 10000 };

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void die(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        fputs("disk: ", stderr);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
        exit(1);
}

int privfd_move(int fd) { return fd; }
void privfd_close(int fd) { close(fd); }
bool privfd_is(int fd) { return fd < 0; }
void privfd_forget(int fd) { (void)fd; }
bool privfd_making(void) { return true; }
void privfd_made(bool held) { (void)held; }
void far_failed(struct far_request *r) { (void)r; }
void far_asked(struct far_node *n) { (void)n; }
void far_up(struct far_node *n) { (void)n; }
void far_down(struct far_node *n, const char *why) { (void)n, (void)why; }
void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
{
        (void)n, (void)pages;
        die("the node is lost: %s", fmt);
}

/* ---- requests ---- */

extern const struct far_driver *const far_module[];
static struct node_option option = { .weight = 1, .overwrite = true };
static struct far_node node = { .option = &option };
static struct far_place places[SLABS_MOST];
static struct far_request requests[DEPTH_MAX], *idle[DEPTH_MAX];
static unsigned nidle, depth = 32, seconds = 3;
static uint64_t pages = 65536, over;

void far_done(struct far_request *r)
{
        if (r->error)
                die("page %u cannot be read", r->page);
        over++;
        idle[nidle++] = r;
}

static uint64_t rnd(void)
{
        static uint64_t seed = 88172645463325252ull;
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return seed >> 11;
}

static void prepare(const char *path)
{
        static char url[4096], why[FAR_WHY];

        snprintf(url, sizeof(url), "file:%s", path);
        node.driver = far_module[0];
        node.url = url;
        option.size = (pages + 1) * PAGE_SIZE;
        if (node.driver->open(&node, path, why) != 0)
                die("%s", why);
        pages = pages < node.pages ? pages : node.pages;
        pages = pages < (uint64_t)SLAB * SLABS_MOST ? pages : (uint64_t)SLAB * SLABS_MOST;
        for (uint64_t first = 0; first < pages; first += SLAB) {
                struct slab s;
                uint32_t some = pages - first < SLAB ? (uint32_t)(pages - first) : SLAB;
                struct far_place *p = &places[first / SLAB];
                *p = (struct far_place){ .node = &node, .first = first };
                if (node.driver->lease(&node, NULL, first, some, &s, p) != 0)
                        die("no lease of pages at %llu", (unsigned long long)first);
        }
        char *frames = aligned_alloc(PAGE_SIZE, (size_t)depth * PAGE_SIZE);
        if (!frames || node.driver->attach(&node, frames, (size_t)depth * PAGE_SIZE, why) != 0)
                die("attach: %s", why);
        memset(frames, 1, (size_t)depth * PAGE_SIZE);
        for (; nidle < depth; nidle++) {
                idle[nidle] = &requests[nidle];
                requests[nidle] = (struct far_request){
                        .frame = frames + (size_t)nidle * PAGE_SIZE, .len = PAGE_SIZE
                };
        }
}

/* As many as are idle, at pages that next() says. */
static void post(enum far_op op, uint64_t (*next)(void))
{
        struct far_request *r[DEPTH_MAX];
        unsigned n = nidle;

        for (unsigned i = 0; i < n; i++) {
                uint64_t page = next();
                r[i] = idle[i];
                r[i]->op = op;
                r[i]->place = &places[page / SLAB];
                r[i]->page = page % SLAB;
        }
        if (n && node.driver->post(&node, r, n) != n)
                die("the driver has no room for %u", n);
        nidle = 0;
}

static void wait_for_some(void)
{
        struct pollfd fds[4];
        int ms = -1;

        if (node.driver->poll(&node))
                return;
        int n = node.driver->arm(&node, fds, 4, &ms);
        poll(fds, (nfds_t)n, ms);
        node.driver->poll(&node);
}

static uint64_t in_order, random_limit;
static uint64_t next_in_order(void) { return in_order++ % pages; }
static uint64_t next_random(void) { return rnd() % random_limit; }

int main(int argc, char **argv)
{
        static const struct option names[] = { { "depth", 1, NULL, 'd' },
                                               { "seconds", 1, NULL, 's' },
                                               { "pages", 1, NULL, 'p' },
                                               { NULL, 0, NULL, 0 } };
        for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1; )
                switch (c) {
                case 'd': depth = (unsigned)atoi(optarg); break;
                case 's': seconds = (unsigned)atoi(optarg); break;
                case 'p': pages = strtoull(optarg, NULL, 0); break;
                default: return 2;
                }
        if (optind + 2 != argc || !depth || depth > 128 || !pages)
                die("give read or write, and a path; at most 128 in flight");
        bool write = strcmp(argv[optind], "write") == 0;

        prepare(argv[optind + 1]);
        while (in_order < pages) {      /* once, so that reads find something */
                post(FAR_WRITE, next_in_order);
                wait_for_some();
        }
        random_limit = pages;
        over = 0;
        int64_t start = now_ms(), now;
        do {
                post(write ? FAR_WRITE : FAR_READ, next_random);
                wait_for_some();
        } while ((now = now_ms()) - start < seconds * 1000ll);
        printf("pages_per_s %.0f\n", (double)over * 1000 / (double)(now - start));
        while (nidle < depth)
                wait_for_some();
        node.driver->close(&node);
        return 0;
}
