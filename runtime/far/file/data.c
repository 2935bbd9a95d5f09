/*
 * See disk.h: transfers.  Requests for neighbouring pages are one command; a demand read is alone.
 *
 * The kernel carries out each command once and says how it went, so nothing of a command that has
 * failed can arrive later.  But the kernel cannot be told to drop a command: a disk that hangs may
 * end it hours later.
 *
 * [I] So a node that hands back reads into pages of its own, and copies them to the frames when the
 * command is over.  A command that was given up keeps its pages until the kernel has ended it; a
 * frame that was handed back is not written any more.  Of a write that was given up the kernel may
 * read the frame later, and write the bytes that are there by then: its slot is DUE, so no page is
 * written there again, and its copy there is not good.  The node is up again when all commands that
 * were given up have ended: so no older write can overtake a page that is sent to its slot again.
 *
 * With a single copy no command is given up before the end of the program, so pages go to and from
 * their frames.
 *
 * A read that failed fails for its own pages: request.c reads each once more, and an access to a
 * page that cannot be read gets SIGBUS.  A write that failed is sent again; see node.c.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include "common/clock.h"
#include "far/file/disk.h"

void disk_reset(struct disk_node *d)
{
        d->free = NULL;
        d->used = d->background = d->failed = d->given_up = d->spares = 0;
        d->failing = 0;
        d->room = NULL;
        for (unsigned k = DISK_DEPTH; k-- > 0; ) {
                d->command[k].r = NULL;
                d->command[k].given_up = false;
                d->command[k].next = d->free;
                d->free = &d->command[k];
        }
}

/* Not by malloc(): pages that the kernel still reads into may not be allocated again. */
int disk_room_make(struct disk_node *d)
{
        char *room = mmap(NULL, DISK_ROOM * PAGE_SIZE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (room == MAP_FAILED)
                return -errno;
        /* A child has room of its own. */
        (void)madvise(room, DISK_ROOM * PAGE_SIZE, MADV_DONTFORK);
        d->room = room;
        for (unsigned i = DISK_ROOM; i-- > 0; )         /* the first is taken first */
                d->spare[d->spares++] = room + i * (size_t)PAGE_SIZE;
        return 0;
}

void disk_room_drop(struct disk_node *d)
{
        if (d->room)
                munmap(d->room, DISK_ROOM * PAGE_SIZE);
        d->room = NULL;
}

static bool is_background(const struct disk_command *c) { return c->op != FAR_READ; }

/* Its requests are over, or handed back.  Returns them, linked. */
static struct far_request *take_requests(struct disk_node *d, struct disk_command *c)
{
        struct far_request *r = c->r;

        d->used--;
        d->background -= is_background(c);
        d->failed -= c->error != 0;
        c->r = NULL;
        return r;
}

/* The kernel has the command no more. */
static void free_command(struct disk_node *d, struct disk_command *c)
{
        for (unsigned i = 0; c->own && i < c->pages; i++)
                d->spare[d->spares++] = (char *)((uintptr_t)c->piece[i].iov_base & -PAGE_SIZE);
        c->next = d->free;
        d->free = c;
}

static size_t length(const struct disk_command *c)
{
        return c->pages == 1 ? c->piece[0].iov_len : c->pages * (size_t)PAGE_SIZE;
}

/* Gives back the requests of a command that is over.  Pages beyond `good` bytes could not be read
 * or written. */
static unsigned give_back(struct disk_node *d, struct disk_command *c, size_t good, int error)
{
        size_t len = length(c) / c->pages;
        struct far_request *r, *next;
        unsigned n = 0;

        for (r = c->r; r; r = r->next, n++) {
                r->error = (n + 1) * len <= good ? 0 : error;
                if (c->own && !r->error)
                        memcpy(r->frame + r->offset, c->piece[n].iov_base, len);
        }
        r = take_requests(d, c);
        free_command(d, c);
        for (; r; r = next) {
                next = r->next;
                far_done(r);
        }
        return n;
}

void disk_write_failed(struct disk_node *d, struct disk_command *c)
{
        give_back(d, c, c->good, c->error);
}

struct far_request *disk_give_up(struct disk_node *d)
{
        struct far_request *all = NULL;

        for (unsigned i = 0; i < DISK_DEPTH; i++) {
                struct disk_command *c = &d->command[i];
                struct far_request *next;
                if (!c->r)
                        continue;
                bool over = c->error != 0;      /* for the kernel */
                for (struct far_request *r = take_requests(d, c); r; r = next) {
                        next = r->next;
                        r->next = all;
                        all = r;
                }
                if (over) {
                        free_command(d, c);
                } else {
                        c->given_up = true;
                        d->given_up++;
                }
        }
        return all;
}

/* The command was not carried out, but would be if it were queued again; or its thread has ended
 * (io_end()). */
static bool is_passing(int result)
{
        return result == -EAGAIN || result == -EINTR || result == -ECANCELED;
}

/* The kernel has carried out a command, or not. */
static unsigned ended(struct disk_node *d, struct disk_command *c, int result)
{
        if (c->given_up) {
                c->given_up = false;
                d->given_up--;
                free_command(d, c);
                return 0;
        }
        if (is_passing(result)) {
                disk_ring_queue(d, c);
                return 0;
        }
        size_t good = result > 0 ? (size_t)result : 0;
        d->heard = d->clock;
        if (c->op != FAR_WRITE)         /* nothing is behind the file's end: it was cut */
                return give_back(d, c, good, result < 0 ? result : -ENODATA);
        if (good == length(c)) {
                d->failing = 0;
                return give_back(d, c, good, 0);
        }
        c->error = result < 0 ? result : -ENOSPC;
        c->good = good;
        d->failed++;
        return 0;
}

/* How many of r[], of one kind and for neighbouring slots, may go out as one command.  Puts them in
 * the order of their slots: pages that a stream reads forward were often written backward. */
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

/* Prefetches leave a page for each demand read that may come. */
static bool has_room(const struct disk_node *d, enum far_op op, unsigned pages)
{
        return !d->room || op == FAR_WRITE ||
               d->spares >= pages + (op == FAR_PREFETCH ? DISK_DEPTH : 0);
}

static void start(struct disk_node *d, struct far_request **r, unsigned n)
{
        struct disk_command *c = d->free;

        d->free = c->next;
        c->op = r[0]->op;
        c->own = d->room && c->op != FAR_WRITE;
        for (unsigned i = 0; i < n; i++) {
                char *page = c->own ? d->spare[--d->spares] : r[i]->frame;
                r[i]->next = i + 1 < n ? r[i + 1] : NULL;
                c->piece[i] = (struct iovec){ page + r[i]->offset, r[i]->len };
        }
        c->r = r[0];
        c->pages = n;
        c->error = 0;
        c->since = d->clock;
        if (!d->used++)
                d->heard = d->clock;
        d->background += is_background(c);
        disk_ring_queue(d, c);
}

/* Milliseconds in which vmrun ran: of a longer time between two calls only `most` counts.  So the
 * disk is not blamed for silence while vmrun was stopped (Ctrl-Z, a suspended machine), and
 * commands that were over meanwhile are seen before time-outs are looked at. */
static void disk_clock(struct disk_node *d)
{
        const int64_t most = d->far->hands_back ? DISK_STEP_MS : DISK_GAP_MS;
        int64_t now = now_ms(), gap = now - d->looked;

        d->clock += gap < most ? gap : most;
        d->looked = now;
}

unsigned disk_post(struct far_node *n, struct far_request **r, unsigned count)
{
        struct disk_node *d = n->data;
        unsigned taken = 0;

        for (; d->lost && taken < count; taken++)
                far_failed(r[taken]);
        if (disk_is_down(n))
                return taken;
        if (!d->used)
                disk_clock(d);          /* poll() had no need to */
        while (taken < count && d->free &&
               (r[taken]->op == FAR_READ || d->background < DISK_BACKGROUND)) {
                unsigned pages = gather(r + taken, count - taken);
                if (!has_room(d, r[taken]->op, pages))
                        break;
                start(d, r + taken, pages);
                taken += pages;
        }
        disk_ring_submit(d);
        return taken;
}

unsigned disk_take(struct disk_node *d)
{
        /* First: commands that are over by now were over in time. */
        disk_clock(d);
        return disk_ring_reap(d, ended);
}
