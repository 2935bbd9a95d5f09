#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/clock.h"
#include "test/drivers/conformance.h"

/* After one in SETTLE_ONE_OF posts all transfers are awaited, so that the depth varies. */
#define SETTLE_ONE_OF 200

/* --- Transfers --- */

static void choose_part(struct far_request *r, uint32_t unit)
{
        unsigned units = PAGE_SIZE / unit, first = harness_random(units);

        r->offset = (uint16_t)(first * unit);
        r->len = (uint16_t)((1 + harness_random(units - first)) * unit);
}

/* Posts neighbours from a random page on, forward or backward, as far as they and their frames are
 * free.  Returns how many. */
static unsigned post_run(unsigned most)
{
        struct far_request *r[CONFORM_RUN];
        uint64_t p = harness_random((unsigned)harness.pages);
        enum far_op op = (enum far_op)harness_random(3);
        bool down = harness_random(2);
        uint32_t unit = op == FAR_READ && harness_random(2) ? harness.node->unit : 0;
        unsigned k = 0;

        if (!harness_can_read(p))
                op = FAR_WRITE;
        for (; k < most && harness_has_idle(); p += down ? -1ull : 1) {
                if (p >= harness.pages || harness_is_busy(p) ||
                    (op != FAR_WRITE && !harness_can_read(p)))
                        break;
                r[k] = harness_request(op, p);
                if (unit && op == FAR_READ)
                        choose_part(r[k], unit);
                k++;
        }
        harness_post(r, k);
        return k;
}

/* The program waits, as its vCPUs have nothing to transfer: only the driver's news are awaited. */
static void pause_posts(unsigned ms)
{
        struct pollfd fds[8];
        int timeout = (int)ms, k = harness.node->driver->arm(harness.node, fds, 8, &timeout);

        if (k >= 0)
                poll(fds, (nfds_t)k, timeout);
        harness_wait();
}

void conform_traffic(const struct traffic *t)
{
        int64_t end = now_ms() + t->ms;
        unsigned depth = t->depth ? t->depth : harness.depth;

        for (uint64_t posted = 0; t->ms ? now_ms() < end : posted < t->count; ) {
                uint64_t rest = t->ms ? t->run : t->count - posted;
                unsigned most = 1 + harness_random(rest < t->run ? (unsigned)rest : t->run);
                unsigned room = depth > harness.in_flight ? depth - harness.in_flight : 0;
                posted += post_run(most < room ? most : room);
                if (t->gap_ms)
                        pause_posts(t->gap_ms);
                else if (!harness_has_idle() || harness.in_flight >= depth)
                        harness_wait();
                else
                        harness_poll();
                if (harness_random(SETTLE_ONE_OF) == 0)
                        harness_settle();
        }
}

void conform_read_back(void)
{
        harness_settle();
        for (uint64_t p = 0; p < harness.pages; p++) {
                if (!harness_can_read(p))
                        continue;
                while (!harness_has_idle())
                        harness_wait();
                struct far_request *r = harness_request(FAR_READ, p);
                harness_post(&r, 1);
        }
        harness_settle();
}

/* --- Processes --- */

static _Noreturn void child(struct far_node *n)
{
        /* A module that must be loaded again cannot be tested by its own program. */
        if (n->driver->forked && n->driver->forked(n))
                harness_wrong("the driver must be loaded again");
        n->member++;
        harness_continue(n);
        harness_move(FAR_READ, 0, 100);
        harness_move(FAR_WRITE, 1000, 100);
        harness_move(FAR_READ, 1000, 100);
        _exit(0);
}

void conform_child(void)
{
        int status;

        harness_settle();
        harness_move(FAR_WRITE, 0, 100);
        pid_t pid = fork();
        if (pid < 0)
                harness_wrong("fork: %s", strerror(errno));
        if (!pid)
                child(harness.node);
        harness_move(FAR_WRITE, 100, 300);
        harness_move(FAR_READ, 0, 400);
        if (waitpid(pid, &status, 0) != pid || status)
                harness_wrong("the forked child: status %#x", (unsigned)status);
        harness_written_elsewhere(1000, 100);
        harness_move(FAR_READ, 1000, 100);
        conform_read_back();
}

bool conform_kept(struct far_node *next)
{
        static struct far_kept_node k;
        struct far_node *n = harness.node;
        char why[FAR_WHY] = "";

        k = (struct far_kept_node){ .kept = true, .fd = -1 };
        if (!n->driver->keep || !n->driver->keep(n, &k))
                return false;
        /* Execve ends the connections of the old program as a fork ends the child's copies. */
        if (n->driver->forked)
                n->driver->forked(n);
        *next = (struct far_node){ .driver = n->driver, .option = n->option, .url = n->url,
                                   .member = n->member, .inherited = &k };
        if (next->driver->open(next, strchr(next->url, ':') + 1, why) != 0)
                harness_wrong("the next program: %s", why);
        if (next->pages != n->pages)
                harness_wrong("the next program has %llu pages, not %llu",
                              (unsigned long long)next->pages, (unsigned long long)n->pages);
        harness_continue(next);
        conform_read_back();
        return true;
}

/* --- Leases --- */

static int lease_at(uint64_t first, uint64_t pages)
{
        struct far_node *n = harness.node;
        struct slab s = { .kind = n->driver->kind };
        struct far_place place = { .node = n, .first = first };

        return n->driver->lease(n, NULL, first, (uint32_t)pages, &s, &place);
}

void conform_lease_end(void)
{
        uint64_t end = harness.node->pages, rest = end - harness.pages;
        int more = lease_at(harness.pages, rest + 1),
            all = rest ? lease_at(harness.pages, rest) : 0,
            beyond = lease_at(end, 1);

        if (more != -ENOSPC || all != 0 || beyond != -ENOSPC)
                harness_wrong("leases of the last %llu pages: %d; one more: %d; one beyond: %d",
                              (unsigned long long)rest, all, more, beyond);
}

/* --- A node that cannot be used --- */

void conform_down(struct far_place slab)
{
        const struct far_range dead = { 7, 7 };
        struct far_node *n = harness.node;
        int64_t begin = now_ms();
        char why[FAR_WHY] = "";
        struct slab s;
        struct far_place place = { .node = n };
        struct far_request r = { .op = FAR_READ, .place = &slab, .len = PAGE_SIZE }, *p = &r;
        int lease = n->driver->lease(n, NULL, 0, 1, &s, &place),
            cut = n->fences ? n->driver->cut(n, &dead, 1, 5000, why) : -ENOLINK,
            use = n->driver->use(n, &slab, 1);

        if (lease != -ENOLINK || cut != -ENOLINK || use != 0 || (n->fences && !*why))
                harness_wrong("while the node is down: lease %d, cut %d, use %d", lease, cut, use);
        if (n->driver->post(n, &p, 1) != 0)
                harness_wrong("a request is taken while the node is down");
        if (now_ms() - begin > 100)
                harness_wrong("these waited for a node that is down");
}

void conform_lost(void)
{
        struct far_request *r[8];
        uint64_t given_back = harness.given_back;
        unsigned k = 0;

        for (uint64_t p = 0; p < harness.pages && k < 8 && harness_has_idle(); p++)
                if (!harness_is_busy(p))
                        r[k++] = harness_request(FAR_READ, p);
        if (harness_offer(r, k) != k || harness.given_back != given_back + k)
                harness_wrong("a lost node takes requests, and gives not all of them back");
}
