#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/clock.h"
#include "test/drivers/harness.h"

#define TRAP      0xa5                  /* a frame is full of it after its request came back */
#define TRAP_MS   300                   /* the shortest time */
#define EMPTY     0xee                  /* a frame is full of it before a read */
#define SETTLE_MS 60000                 /* longer than any driver's time-out in a test */

struct harness harness = { .seed = 88172645463325252ull };
struct options opt;

static struct harness_job *jobs, *idle;
static uint32_t *version;               /* of each page; 0: never written */
static bool *busy;
static uint32_t slab_size;              /* pages */
static struct far_place places[HARNESS_SLABS];
static struct slab slabs[HARNESS_SLABS];
static uint64_t most;                   /* pages that there is room for */
static int64_t last_done_ms;            /* now_ms() at the last far_done() */
static bool falling;                    /* far_down() was called: the rest must be given back */

uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

unsigned harness_random(unsigned below)
{
        harness.seed ^= harness.seed << 13;
        harness.seed ^= harness.seed >> 7;
        harness.seed ^= harness.seed << 17;
        return (unsigned)(harness.seed >> 20) % below;
}

/* --- Pages and frames --- */

static void fill(char *frame, uint64_t page)
{
        for (unsigned i = 0; i < PAGE_SIZE / 8; i++) {
                uint64_t w = (page << 40 ^ (uint64_t)version[page] << 12 ^ i) *
                                     0x9e3779b97f4a7c15ull + i;
                if (!version[page])
                        w = 0;
                memcpy(frame + 8 * i, &w, 8);
        }
}

static void fill_frame(struct harness_job *j)
{
        if (j->r.op == FAR_WRITE)
                fill(j->r.frame, j->page);
        else
                memset(j->r.frame, EMPTY, PAGE_SIZE);
}

static bool is_full_of(const char *frame, int byte)
{
        char expected[PAGE_SIZE];

        memset(expected, byte, PAGE_SIZE);
        return memcmp(frame, expected, PAGE_SIZE) == 0;
}

/* The part that was read is as written last; the rest of the frame is as it was. */
static void verify(const struct harness_job *j)
{
        const struct far_request *r = &j->r;
        char written[PAGE_SIZE], expected[PAGE_SIZE];

        memset(expected, EMPTY, PAGE_SIZE);
        fill(written, j->page);
        memcpy(expected + r->offset, written + r->offset, r->len);
        for (unsigned i = 0; i < PAGE_SIZE; i++)
                if (r->frame[i] != expected[i])
                        harness_wrong("page %llu, version %u: byte %u is %#x, must be %#x; "
                                      "%u bytes were read from byte %u on",
                                      (unsigned long long)j->page, version[j->page], i,
                                      (unsigned char)r->frame[i], (unsigned char)expected[i],
                                      r->len, r->offset);
}

static void make_idle(struct harness_job *j)
{
        busy[j->page] = false;
        j->next = idle;
        idle = j;
}

struct far_place harness_place(unsigned slab) { return places[slab]; }
bool harness_has_idle(void) { return idle; }
bool harness_is_busy(uint64_t page) { return busy[page]; }
bool harness_can_read(uint64_t page) { return version[page] || harness.zeroed; }

void harness_written_elsewhere(uint64_t first, uint64_t count)
{
        for (uint64_t p = first; p < first + count; p++)
                version[p]++;
}

/* --- What drivers call --- */

unsigned far_connect_ms(const struct far_node *n) { (void)n; return opt.connect_timeout_ms; }
void far_asked(struct far_node *n) { atomic_store(&n->asked, true); }

void far_done(struct far_request *r)
{
        struct harness_job *j = (struct harness_job *)r;

        if (!j->under_way)
                harness_wrong("a request for page %llu ends twice", (unsigned long long)j->page);
        if (!harness.node->up)
                harness_wrong("page %llu is done while the node is down",
                              (unsigned long long)j->page);
        if (r->error && !harness.errors)
                harness_wrong("page %llu: %s", (unsigned long long)j->page, strerror(-r->error));
        if (r->op == FAR_WRITE)
                harness.bad_writes += r->error != 0;
        else if (r->error)
                harness.bad_reads++;
        else
                verify(j);
        j->under_way = false;
        harness.in_flight--;
        harness.done++;
        last_done_ms = now_ms();
        make_idle(j);
        if (harness.on_done)
                harness.on_done(j);
}

void far_failed(struct far_request *r)
{
        struct harness_job *j = (struct harness_job *)r;

        if (!j->under_way)
                harness_wrong("a request for page %llu fails after it has ended",
                              (unsigned long long)j->page);
        if (r->place->node->hands_back ? r->place->node->up : !r->place->node->lost)
                harness_wrong("page %llu is given back by a node that can be used",
                              (unsigned long long)j->page);
        j->under_way = false;
        harness.in_flight--;
        harness.given_back++;
        if (r->place->node->lost || !r->place->node->hands_back)
                return make_idle(j);
        memset(r->frame, TRAP, PAGE_SIZE);
        j->handed_ms = now_ms();
        harness.waiting++;
}

void far_up(struct far_node *n)
{
        if (n->up)
                harness_wrong("the node is up twice, or does not hand back");
        n->up = true;
}

void far_down(struct far_node *n, const char *why)
{
        if (!n->up || !n->hands_back)
                harness_wrong("the node is down twice, or does not hand back: %s", why);
        fprintf(stderr, "# down: %s\n", why);
        n->up = false;
        falling = true;
        harness.downs++;
        if (now_ms() - last_done_ms > harness.slowest_ms)
                harness.slowest_ms = now_ms() - last_done_ms;
}

void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(n->why, sizeof(n->why), fmt, ap);
        va_end(ap);
        n->lost = true;
        n->lost_pages = pages;
}

/* --- Requests --- */

/* After the driver has returned. */
static void check_kept(void)
{
        if ((falling || harness.node->lost) && harness.in_flight)
                harness_wrong("the node is %s, and the driver keeps %u requests",
                              falling ? "down" : "lost", harness.in_flight);
        falling = false;
}

struct far_request *harness_request(enum far_op op, uint64_t page)
{
        struct harness_job *j = idle;

        if (!j || busy[page])
                harness_wrong("page %llu is busy, or there is no frame for it",
                              (unsigned long long)page);
        idle = j->next;
        busy[page] = true;
        version[page] += op == FAR_WRITE;
        *j = (struct harness_job){
                .r = { .op = op,
                       .page = (uint32_t)(page % slab_size),
                       .place = &places[page / slab_size],
                       .frame = harness.frames + (size_t)(j - jobs) * PAGE_SIZE,
                       .len = PAGE_SIZE },
                .page = page
        };
        fill_frame(j);
        return &j->r;
}

/* A slab that is memory: copies at once, as kern does. */
static unsigned copy(struct far_request **r, unsigned count)
{
        for (unsigned i = 0; i < count; i++) {
                char *slot = (char *)slabs[r[i]->place - places].va +
                             (size_t)r[i]->page * PAGE_SIZE;
                if (r[i]->op == FAR_WRITE)
                        memcpy(slot, r[i]->frame, PAGE_SIZE);
                else
                        memcpy(r[i]->frame + r[i]->offset, slot + r[i]->offset, r[i]->len);
                far_done(r[i]);
        }
        return count;
}

/* One call of post().  The driver may give a request back within it, so each is under way
 * before. */
static unsigned post(struct far_request **r, unsigned count)
{
        struct far_node *n = harness.node;
        bool takes = n->up || n->lost;

        for (unsigned i = 0; i < count; i++) {
                struct harness_job *j = (struct harness_job *)r[i];
                j->under_way = true;
                j->posted_ns = now_ns();
        }
        harness.in_flight += count;
        if (harness.in_flight > harness.most_in_flight)
                harness.most_in_flight = harness.in_flight;
        unsigned took = n->driver->kind == SLAB_MEMORY ? copy(r, count)
                                                       : n->driver->post(n, r, count);
        if (took > count || (took && !takes) || (took < count && n->lost))
                harness_wrong("of %u requests the driver takes %u: the node is %s", count, took,
                              n->lost ? "lost" : takes ? "up" : "down");
        for (unsigned i = took; i < count; i++) {
                struct harness_job *j = (struct harness_job *)r[i];
                if (!j->under_way)
                        harness_wrong("page %llu was given back, and not taken",
                                      (unsigned long long)j->page);
                j->under_way = false;
        }
        harness.in_flight -= count - took;
        check_kept();
        return took;
}

void harness_post(struct far_request **r, unsigned count)
{
        for (unsigned at = 0; at < count; ) {
                unsigned took = post(r + at, count - at);
                at += took;
                if (!took)
                        harness_wait();
        }
}

unsigned harness_offer(struct far_request **r, unsigned count)
{
        unsigned took = post(r, count);

        for (unsigned i = took; i < count; i++) {
                struct harness_job *j = (struct harness_job *)r[i];
                version[j->page] -= r[i]->op == FAR_WRITE;
                make_idle(j);
        }
        return took;
}

/* Starts requests that were handed back, once the node is up and the trap was long enough there. */
static void start_again(void)
{
        for (unsigned i = 0; i < harness.depth && harness.waiting && harness.node->up; i++) {
                struct harness_job *j = &jobs[i];
                struct far_request *r = &j->r;
                int64_t handed = j->handed_ms;
                if (!handed || now_ms() - handed < TRAP_MS)
                        continue;
                if (!is_full_of(r->frame, TRAP))
                        harness_wrong("the frame of page %llu was written after it was handed back",
                                      (unsigned long long)j->page);
                fill_frame(j);
                j->handed_ms = 0;
                harness.waiting--;
                if (post(&r, 1) == 1)
                        continue;
                memset(r->frame, TRAP, PAGE_SIZE);
                j->handed_ms = handed;
                harness.waiting++;
                return;
        }
}

unsigned harness_poll(void)
{
        struct far_node *n = harness.node;
        unsigned done = n->driver->poll ? n->driver->poll(n) : 0;

        check_kept();
        if (n->lost && harness.on_lost)
                harness.on_lost(n);
        return done;
}

void harness_sleep(int ms)
{
        struct far_node *n = harness.node;
        struct pollfd fds[8];

        if (harness.waiting && ms > 20)
                ms = 20;
        int k = n->driver->arm ? n->driver->arm(n, fds, 8, &ms) : -EAGAIN;
        if (k < 0 && k != -EAGAIN)
                harness_wrong("arm: %s", strerror(-k));
        if (k >= 0 && poll(fds, (nfds_t)k, ms) == 0 && harness.patience_ms &&
            ms >= (int)harness.patience_ms)
                harness_wrong("nothing was told in %d ms with %u in flight", ms,
                              harness.in_flight);
        harness_poll();
        start_again();
}

void harness_wait(void)
{
        for (unsigned i = 0; i < 50; i++)
                if (harness_poll())
                        return;
        harness_sleep(harness.patience_ms ? (int)harness.patience_ms : 1000);
}

void harness_settle(void)
{
        int64_t end = now_ms() + SETTLE_MS;

        while ((harness.in_flight || harness.waiting) && !harness.node->lost) {
                harness_wait();
                if (now_ms() > end)
                        harness_wrong("%u requests are under way, and %u wait, after %u s",
                                      harness.in_flight, harness.waiting, SETTLE_MS / 1000);
        }
}

void harness_move(enum far_op op, uint64_t first, uint64_t count)
{
        struct far_request *r[harness.depth];

        for (uint64_t p = first; p < first + count; ) {
                unsigned some = 0;
                while (some < harness.depth && p < first + count)
                        r[some++] = harness_request(op, p++);
                harness_post(r, some);
                harness_settle();
        }
}

/* --- A node --- */

void harness_init(unsigned depth, uint64_t most_pages)
{
        harness.depth = depth;
        most = most_pages;
        harness.frames = aligned_alloc(PAGE_SIZE, (size_t)depth * PAGE_SIZE);
        jobs = calloc(depth, sizeof(*jobs));
        version = calloc(most, sizeof(*version));
        busy = calloc(most, sizeof(*busy));
        if (!harness.frames || !jobs || !version || !busy)
                harness_wrong("out of memory");
}

void harness_end(void)
{
        free(harness.frames);
        free(jobs);
        free(version);
        free(busy);
}

/* After open(), before attach(). */
static void choose(struct far_node *n)
{
        harness.node = n;
        n->hands_back = harness.hands_back;
        n->up = !n->hands_back;
}

static void attach(struct far_node *n)
{
        char why[FAR_WHY] = "";

        if (n->driver->attach &&
            n->driver->attach(n, harness.frames, (size_t)harness.depth * PAGE_SIZE, why) != 0)
                harness_wrong("attach: %s", why);
        if (!n->up)
                harness_wrong("the node is not up after attach");
}

static uint32_t pages_of(unsigned slab)
{
        uint64_t rest = harness.pages - (uint64_t)slab * slab_size;

        return (uint32_t)(rest < slab_size ? rest : slab_size);
}

static unsigned slab_count(void)
{
        return (unsigned)((harness.pages + slab_size - 1) / slab_size);
}

void harness_prepare(struct far_node *n, uint32_t slab_pages)
{
        choose(n);
        harness.pages = 0;
        slab_size = slab_pages;
        harness.in_flight = harness.most_in_flight = harness.waiting = harness.downs = 0;
        harness.done = harness.bad_reads = harness.bad_writes = harness.given_back = 0;
        harness.slowest_ms = 0;
        last_done_ms = now_ms();
        falling = false;
        memset(version, 0, most * sizeof(*version));
        memset(busy, 0, most * sizeof(*busy));
        idle = NULL;
        for (unsigned i = harness.depth; i--; idle = &jobs[i])
                jobs[i] = (struct harness_job){ .next = idle };
}

void harness_lease(uint64_t pages)
{
        struct far_node *n = harness.node;
        unsigned i = slab_count();
        uint64_t end = harness.pages + pages;

        if (end > most || end > n->pages || end > (uint64_t)slab_size * HARNESS_SLABS)
                harness_wrong("%llu pages are too many", (unsigned long long)end);
        harness.pages = end;
        for (; i < slab_count(); i++) {
                uint64_t first = (uint64_t)i * slab_size;
                places[i] = (struct far_place){ .node = n, .first = first };
                slabs[i] = (struct slab){ .kind = n->driver->kind };
                int err = n->driver->lease(n, NULL, first, pages_of(i), &slabs[i], &places[i]);
                if (err)
                        harness_wrong("no lease of %u pages at page %llu: %s", pages_of(i),
                                      (unsigned long long)first, strerror(-err));
        }
}

void harness_start(struct far_node *n, uint64_t pages, uint32_t slab_pages)
{
        harness_prepare(n, slab_pages);
        attach(n);
        harness_lease(pages);
}

void harness_continue(struct far_node *n)
{
        choose(n);
        attach(n);
        for (unsigned i = 0; i < slab_count(); i++) {
                places[i].node = n;
                int err = n->driver->use
                                  ? n->driver->use(n, &places[i], pages_of(i))
                                  : n->driver->lease(n, NULL, places[i].first, pages_of(i),
                                                     &slabs[i], &places[i]);
                if (err)
                        harness_wrong("the slab at page %llu cannot be used: %s",
                                      (unsigned long long)places[i].first, strerror(-err));
        }
}
