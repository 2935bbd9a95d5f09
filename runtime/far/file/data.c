/*
 * See disk.h: transfers.  Requests for neighbouring pages are one command; a demand read is alone.
 *
 * The kernel carries out each command once and says how it went, so nothing of one that has failed
 * can arrive later.  A read that failed fails for its own pages: io.c reads each once more, and who
 * touches one that cannot be read gets SIGBUS.  A write that failed is sent again until it succeeds
 * or the node's time is up: the page is still in its frame.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include "base/message.h"
#include "base/options.h"
#include "common/clock.h"
#include "far/file/disk.h"

void disk_reset(struct disk_node *d)
{
        d->free = NULL;
        d->used = d->background = d->failed = 0;
        for (unsigned k = DISK_DEPTH; k-- > 0; ) {
                d->command[k].r = NULL;
                d->command[k].next = d->free;
                d->free = &d->command[k];
        }
}

static bool is_background(const struct disk_command *c) { return c->r->op != FAR_READ; }

/* Returns its requests, linked. */
static struct far_request *take_back(struct disk_node *d, struct disk_command *c)
{
        struct far_request *r = c->r;

        d->used--;
        d->background -= is_background(c);
        c->r = NULL;
        c->next = d->free;
        d->free = c;
        return r;
}

static size_t length(const struct disk_command *c)
{
        return c->pages == 1 ? c->piece[0].iov_len : c->pages * (size_t)PAGE_SIZE;
}

/* Gives back what is over.  Pages beyond `good` bytes could not be read. */
static unsigned give_back(struct disk_node *d, struct disk_command *c, size_t good, int error)
{
        size_t len = length(c) / c->pages;
        struct far_request *r = take_back(d, c), *next;
        unsigned n = 0;

        for (; r; r = next, n++) {
                next = r->next;
                r->error = (n + 1) * len <= good ? 0 : error;
                far_done(r);
        }
        return n;
}

/* Not carried out, but would be if asked again; or its thread has ended (io_end()). */
static bool is_passing(int result)
{
        return result == -EAGAIN || result == -EINTR || result == -ECANCELED;
}

/* The kernel has carried out a command, or not. */
static unsigned ended(struct disk_node *d, struct disk_command *c, int result)
{
        if (is_passing(result)) {
                disk_ring_queue(d, c);
                return 0;
        }
        size_t good = result > 0 ? (size_t)result : 0;
        if (c->r->op != FAR_WRITE)      /* behind its end is nothing: it was cut */
                return give_back(d, c, good, result < 0 ? result : -ENODATA);
        if (good == length(c))
                return give_back(d, c, good, 0);
        c->error = result < 0 ? result : -ENOSPC;
        d->failed++;
        return 0;
}

/* How many of r[], of one kind and for neighbouring slots, may go out as one command.  Puts them in
 * the order of their slots: what a stream reads forward was often written backward. */
static unsigned gather(struct far_request **r, unsigned count)
{
        static const unsigned most[] = {
                [FAR_READ] = 1, [FAR_PREFETCH] = DISK_AHEAD, [FAR_WRITE] = DISK_RUN
        };
        bool down = count > 1 && r[1]->page + 1 == r[0]->page;
        unsigned n = 1;

        while (n < count && n < most[r[0]->op] && r[n]->op == r[0]->op &&
               r[n]->place == r[0]->place &&
               r[n]->page == (down ? r[0]->page - n : r[0]->page + n))
                n++;
        for (unsigned i = 0; down && i < n / 2; i++) {
                struct far_request *other = r[i];
                r[i] = r[n - 1 - i];
                r[n - 1 - i] = other;
        }
        return n;
}

static void start(struct disk_node *d, struct far_request **r, unsigned n, int64_t now)
{
        struct disk_command *c = d->free;

        d->free = c->next;
        for (unsigned i = 0; i < n; i++) {
                r[i]->next = i + 1 < n ? r[i + 1] : NULL;
                c->piece[i] = (struct iovec){ r[i]->frame + r[i]->offset, r[i]->len };
        }
        c->r = r[0];
        c->pages = n;
        c->error = 0;
        c->since = now;
        d->used++;
        d->background += is_background(c);
        disk_ring_queue(d, c);
}

unsigned disk_post(struct far_node *n, struct far_request **r, unsigned count)
{
        struct disk_node *d = n->data;
        int64_t now = now_ms();
        unsigned taken = 0;

        for (; d->lost && taken < count; taken++)
                far_failed(r[taken]);
        while (taken < count && d->free &&
               (r[taken]->op == FAR_READ || d->background < DISK_BACKGROUND)) {
                unsigned pages = gather(r + taken, count - taken);
                start(d, r + taken, pages, now);
                taken += pages;
        }
        disk_ring_submit(d);
        return taken;
}

/* ---- Trouble ---- */

/* The node will not come back: gives back all it has.  The kernel may still hold some of it, but
 * pages of the program were there, so the program ends. */
static void lose(struct disk_node *d)
{
        d->lost = true;
        for (unsigned i = 0; i < DISK_DEPTH; i++) {
                struct disk_command *c = &d->command[i];
                struct far_request *r = c->r ? take_back(d, c) : NULL, *next;
                for (; r; r = next) {
                        next = r->next;
                        far_failed(r);
                }
        }
}

static const char *cure(int error)
{
        switch (error) {
        case -ENOSPC:
        case -EDQUOT: return "its file system is full";
        case -EFBIG:  return "the program's limit of file sizes (ulimit -f) is below its size";
        default:      return "see the kernel's log (dmesg)";
        }
}

/* Looks at what takes long, and sends again what failed. */
static void judge(struct disk_node *d, int64_t now)
{
        int64_t limit = opt.timeout_ms;

        for (unsigned i = 0; i < DISK_DEPTH && d->used; i++) {
                struct disk_command *c = &d->command[i];
                if (!c->r)
                        continue;
                if (now - c->since > limit) {
                        if (c->error)
                                far_lost(d->far, true, "writing to it has failed for %lld s "
                                         "(%s): %s", (long long)(limit + 999) / 1000,
                                         strerror(-c->error), cure(c->error));
                        else
                                far_lost(d->far, true, "it has not answered for %lld s while %u "
                                         "transfers wait: see the kernel's log (dmesg), or raise "
                                         "--timeout", (long long)(limit + 999) / 1000, d->used);
                        return lose(d);
                }
                if (c->error) {
                        c->error = 0;
                        d->failed--;
                        disk_ring_queue(d, c);
                }
        }
}

unsigned disk_poll(struct far_node *n)
{
        struct disk_node *d = n->data;

        if (d->lost || !d->used)
                return 0;
        unsigned over = disk_ring_reap(d, ended);
        int64_t now = now_ms();
        /* After all that is over: vmrun itself may have been stopped for long. */
        if (now - d->judged >= (d->failed ? DISK_PAUSE_MS : DISK_TICK_MS)) {
                d->judged = now;
                judge(d, now);
        }
        if (!d->lost)
                disk_ring_submit(d);
        return over;
}

int disk_arm(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms)
{
        struct disk_node *d = n->data;
        int ms = disk_ring_pending(d) || !max ? 1 : d->failed ? DISK_PAUSE_MS : DISK_TICK_MS;

        if (d->lost || !d->used)
                return 0;
        if (*timeout_ms < 0 || ms < *timeout_ms)
                *timeout_ms = ms;
        if (max)
                fds[0] = (struct pollfd){ .fd = d->ring.ring_fd, .events = POLLIN };
        return max ? 1 : 0;
}
