/*
 * See disk.h: the node as a whole, from poll() to its end: a disk that is silent, or that fails
 * writes.
 *
 * A node that hands back (far_driver) goes down when it is silent, and up again when the kernel has
 * ended all commands that were given up: that is the fence of a disk (docs/protocol.md, rule 13).
 * With a single copy silence of --timeout is the node's end, and the program's.
 *
 * A write that fails is sent again for a moment: the page is still in its frame.  Then it ends with
 * an error, and the page goes to another slot: a bad place of the disk costs a slot.  If no write
 * succeeds for --timeout, the disk is bad, and the node is lost.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include "base/options.h"
#include "far/file/disk.h"

static void hand_back(struct far_request *r)
{
        for (struct far_request *next; r; r = next) {
                next = r->next;
                far_failed(r);
        }
}

/* Takes down a node that is up, and that hands back. */
static void down(struct disk_node *d, const char *why)
{
        struct far_request *all = disk_give_up(d);

        far_down(d->far, why);
        hand_back(all);
}

/* The node will not come back.  With a single copy the kernel may still read into frames, but pages
 * of the program were there, so the program ends. */
static void lose(struct disk_node *d, const char *why)
{
        d->lost = true;
        if (d->far->hands_back && !disk_is_down(d->far))
                down(d, why);
        far_lost(d->far, true, "%s", why);
        hand_back(disk_give_up(d));
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

/* ms for which commands have been under way and none was over.  *oldest: ms of the longest one. */
static int64_t silence(const struct disk_node *d, int64_t *oldest /* OUT */)
{
        *oldest = 0;
        for (unsigned i = 0; i < DISK_DEPTH; i++) {
                const struct disk_command *c = &d->command[i];
                if (c->r && !c->error && d->clock - c->since > *oldest)
                        *oldest = d->clock - c->since;
        }
        return d->used > d->failed ? d->clock - d->heard : 0;
}

/* True: the node takes no transfers any more. */
static bool is_silent(struct disk_node *d)
{
        const int64_t limit = opt.timeout_ms;
        const bool soon = d->far->hands_back;
        int64_t oldest, quiet = silence(d, &oldest);
        char why[FAR_WHY];

        if (oldest <= limit && !(soon && quiet >= DISK_SILENT_MS))
                return false;
        if (!soon || oldest > limit)
                quiet = oldest;
        snprintf(why, sizeof(why), "it has not answered for %lld.%lld s while %u transfers wait: "
                 "see the kernel's log (dmesg)%s", (long long)quiet / 1000,
                 (long long)quiet % 1000 / 100, d->used, soon ? "" : ", or raise --timeout");
        if (soon)
                down(d, why);
        else
                lose(d, why);
        return true;
}

/* True: the node is lost. */
static bool is_bad(struct disk_node *d, int error)
{
        const int64_t limit = opt.timeout_ms;
        char why[FAR_WHY];

        if (d->failing <= limit)
                return false;
        snprintf(why, sizeof(why), "writing to it has failed for %lld s (%s): %s",
                 (long long)(limit + 999) / 1000, strerror(-error), cure(error));
        lose(d, why);
        return true;
}

/* Looks at commands that take long, and sends failed writes again.  ms: since the last look. */
static void judge(struct disk_node *d, int64_t ms)
{
        const int64_t limit = opt.timeout_ms / 2 < DISK_AGAIN_MS ? opt.timeout_ms / 2
                                                                 : DISK_AGAIN_MS;

        if (is_silent(d))               /* a node that is down has nothing under way */
                return;
        d->failing += d->failed ? ms : 0;
        for (unsigned i = 0; i < DISK_DEPTH && d->failed; i++) {
                struct disk_command *c = &d->command[i];
                if (!c->r || !c->error)
                        continue;
                if (is_bad(d, c->error))
                        return;
                if (d->clock - c->since > limit) {
                        disk_write_failed(d, c);
                        continue;
                }
                c->error = 0;
                d->failed--;
                disk_ring_queue(d, c);
        }
}

static int tick(const struct disk_node *d)
{
        return d->far->hands_back ? DISK_SOON_MS : d->failed ? DISK_PAUSE_MS : DISK_TICK_MS;
}

unsigned disk_poll(struct far_node *n)
{
        struct disk_node *d = n->data;

        if (d->lost || !(d->used + d->given_up))
                return 0;
        unsigned over = disk_take(d);
        if (disk_is_down(n) && !d->given_up)
                far_up(n);
        int64_t ms = d->clock - d->judged;
        if (ms >= tick(d)) {
                d->judged = d->clock;
                judge(d, ms);
        }
        if (!d->lost)
                disk_ring_submit(d);
        return over;
}

int disk_arm(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms)
{
        struct disk_node *d = n->data;
        int ms = disk_ring_pending(d) || !max ? 1 : tick(d);

        if (d->lost || !(d->used + d->given_up))
                return 0;
        if (*timeout_ms < 0 || ms < *timeout_ms)
                *timeout_ms = ms;
        if (max)
                fds[0] = (struct pollfd){ .fd = d->ring.ring_fd, .events = POLLIN };
        return max ? 1 : 0;
}
