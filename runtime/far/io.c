/*
 * The I/O thread: from the guest's rings (abi.h) to the drivers of the nodes, and back.
 *
 *   take()      entries off the rings of all vCPUs, as requests on the list of their node and kind
 *   post()      as many of a list as its node's driver has room for; demand reads first
 *   driver      moves the data, and calls far_done()
 *   far_done()  a read: the entry becomes PRESENT; a write: its ring entry is over.  vCPUs that
 *               sleep on it are woken
 *
 * It spins while work is in flight or was a moment ago, if a driver's completions bypass the host
 * kernel.  Then it sleeps in poll(2) on the drivers' completion channels and on the guest's
 * doorbell (an ioeventfd: no exit).  With --io inline there is no such thread: the vCPUs' own
 * threads do the work while they wait (io_wait), one at a time.
 *
 * [I] A sleeping I/O thread misses nothing.  It sets io_asleep (full barrier), then looks at the
 * tails once more; a vCPU moves its tail (full barrier), then looks at io_asleep.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <poll.h>
#include <pthread.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <window.h>
#include <x86intrin.h>
#include "base/message.h"
#include "base/options.h"
#include "base/own_thread.h"
#include "base/privfd.h"
#include "base/word.h"
#include "common/clock.h"
#include "far/far.h"
#include "far/io.h"
#include "far/meter.h"
#include "include/tree.h"
#include "pager/frame.h"
#include "vm/vm.h"

#define BATCH      64                   /* requests given to a driver at a time */
#define INLINE_MORE 16                  /* turns after the one that brought what was waited for */
#define FDS_MAX    256                  /* of all drivers together */

struct io_request {
        struct far_request r;           /* first: far_done() is given its address */
        struct io_entry *entry;         /* of a write or a part */
        uint64_t slot;
        frame_t frame;
        unsigned vcpu;                  /* whose ring it came from */
        bool again;                     /* a read that has failed its check once */
        /* A page that nobody had asked for when its request was made, even if r.op is FAR_READ by
         * now; and its first use is to be a fault. */
        bool ahead, marker;
        /* Bytes for a vCPU's bounce page, which no entry and no frame names; and they are not
         * compared with a sum. */
        bool part, raw;
        uint64_t taken;                 /* TSC when it came off its ring */
        /* For the parts of a fetch, of a sampled read: when its vCPU asked, by the guest's TSC, and
         * when it went to its driver; else 0. */
        uint64_t asked, sent;
};

struct queue { struct far_request *head, **tail; };

static struct vm *io_vm;
static int doorbell = -1;               /* eventfd; private */
/* nodes are attached; written under the lease lock (slabs.c), before the first slab exists */
static bool started;
/* Without a completion, before it sleeps.  A hint: it may grow when a node is added. */
static _Atomic uint64_t spin_ticks;
static unsigned cpus;                   /* of this host */
/* io_stop() asks; the I/O thread answers and touches no driver any more.  The answer is a
 * release. */
static atomic_bool stop_asked, stopped;

static bool forked;                     /* io_forked() was called */
/* futex: 1: nodes are attached.  Stored with release by the thread that attached them, for threads
 * that then call drivers. */
static _Atomic uint32_t attached;

/* Futex.  io_hold() asks; the I/O thread finishes what it is doing and answers.  The answer is a
 * release, so the thread that asked sees all that the I/O thread did. */
static _Atomic uint32_t hold;
enum { HOLD_NONE, HOLD_ASKED, HOLD_HELD, HOLD_END };   /* HOLD_END: the I/O thread must end */
static pthread_t io_thread;

/* The rest belongs to the I/O thread; with --io inline to the thread that holds this lock. */
static pthread_mutex_t io_lock = PTHREAD_MUTEX_INITIALIZER;
/* by node and far_op: taken from a ring, not yet posted */
static struct queue queues[NODES_MAX][3];
static struct far_request *unused;
static struct far_request *failed;      /* for settle() */

static void (*on_loss)(const struct far_node *n);

static struct io_request *new_request(void)
{
        struct far_request *r = unused;

        if (r) {
                unused = r->next;
                return (struct io_request *)r;
        }
        struct io_request *q = malloc(sizeof(*q));
        if (!q)
                die_(EXIT_VMRUN_FAILED,
                     "no memory for a request to a memory node: free some on this host");
        return q;
}

/* Not of a part. */
static struct frame *frame_of(const struct io_request *q)
{
        return &((struct frame *)CONTROL->frame_table)[q->frame];
}

/* How long a vCPU polls an entry before it sleeps.  Sleeping and waking normally cost more than a
 * node takes to answer, but polling for a slow node takes a CPU from other threads. */
#define WAIT_LEAST_US 20
#define WAIT_MOST_US  4000

/* The value until a node has answered, and for good if all tiers are memory.  There the vCPU that
 * found the page copies it itself, in about a microsecond, so a vCPU that meets the page meanwhile
 * sees it arrive.  If the copying vCPU's thread does not run, or the host has to allocate the page
 * first, sleeping is right.  A sleep costs about 20 us (two exits, two futex calls, the wake-up of
 * another thread), so polling that long first never costs more than twice the better choice. */
void io_first_wait(void)
{
        /* a hint */
        atomic_store_explicit(&CONTROL->wait_ticks, WAIT_LEAST_US * CONTROL->tsc_khz / 1000,
                              memory_order_relaxed);
}

/* Records how long a demand read took.  The wait is twice the average of about the last eight; it
 * is short if that is too long, or if there are not enough CPUs for all vCPUs and this thread. */
static void learn_wait(uint64_t took)
{
        static uint64_t average;
        uint64_t us = CONTROL->tsc_khz / 1000, wait;

        average = average ? average - average / 8 + took / 8 : took;
        wait = 2 * average;
        if (wait > WAIT_MOST_US * us || wait < WAIT_LEAST_US * us ||
            atomic_load(&CONTROL->nvcpus) > cpus)
                wait = WAIT_LEAST_US * us;
        atomic_store_explicit(&CONTROL->wait_ticks, wait, memory_order_relaxed);        /* a hint */
}

static void queue(struct far_request *r)
{
        struct queue *list = &queues[r->place->node->index][r->op];

        r->next = NULL;
        if (!list->head)
                list->tail = &list->head;
        *list->tail = r;
        list->tail = &r->next;
}

static _Atomic uint32_t *sum_of(const struct io_request *q)
{
        return slot_sum((char *)TREE_WINDOW, q->slot);
}

/* Whether a page came as it was sent; relaxed: see struct slab_map. */
static bool is_right(const struct io_request *q)
{
        const struct far_driver *d = q->r.place->node->driver;

        return !opt.verify || q->raw ||
               d->sum(q->slot, q->r.frame) ==
                       atomic_load_explicit(sum_of(q), memory_order_relaxed);
}

/* A node that cannot fence: until it has answered, and for ever if it was sent the page more than
 * once, no other page may go to the slot (docs/protocol.md). */
static void write_begins(const struct io_request *q)
{
        if (!q->r.place->node->fences)
                slot_write_begins(slot_word((char *)TREE_WINDOW, q->slot));
}

static void write_ends(const struct io_request *q)
{
        struct far_node *n = q->r.place->node;

        if (!n->fences && q->r.repeated)
                n->retired++;
        else if (!n->fences)
                slot_write_ends(slot_word((char *)TREE_WINDOW, q->slot));
}

/* The entry that the page of a read is for.  To be asked while it is BUSY: afterwards the frame may
 * be another page's. */
static pte_slot_t *entry_of(const struct io_request *q)
{
        return atomic_load_explicit(&frame_of(q)->pte, memory_order_relaxed);
}

/* inline: the waiting thread is in io_wait() */
static void wake_entry(pte_slot_t *pte)
{
        if (opt.io == IO_THREAD)
                word_wake((const void *)pte_word(pte), INT_MAX);
}

static void reuse(struct far_request *r)
{
        r->next = unused;
        unused = r;
}

static void prefetch_over(struct io_request *q, int err)
{
        struct frame *f = frame_of(q);
        pte_slot_t *pte = entry_of(q);

        if (page_prefetched(f, frame_pfn0() + q->frame,
                            pte_ahead(q->marker, CONTROL->shadow_paging), err))
                wake_entry(pte);
        /* Relaxed: a hint for the vCPU. */
        atomic_fetch_add_explicit(&vcpu_rings(q->vcpu)->prefetches_over, 1, memory_order_relaxed);
        reuse(&q->r);
}

/* Release: the bytes are there.  The entry may be reused then. */
static void over(struct io_request *q, enum io_state state)
{
        _Atomic uint32_t *word = &q->entry->state;

        if (atomic_exchange(word, state) == IO_AWAITED)
                word_wake(word, INT_MAX);
        reuse(&q->r);
}

/* A page that did not come as it was sent is read once more: what a link spoiled on the way is
 * right then.  Else it is lost, and an access to it is SIGBUS. */
static void wrong(struct io_request *q)
{
        struct far_node *n = q->r.place->node;

        if (!q->again) {
                q->again = true;
                n->reread++;
                queue(&q->r);
                return;
        }
        if (q->ahead) {
                n->left++;              /* who needs the page asks for it, and is told */
                prefetch_over(q, -EIO);
                return;
        }
        n->damaged++;
        warnx_("%s: page %llu of it (slot %#llx) did not come back as it was written, twice: an "
               "access to it ends in SIGBUS; see the node's memory and the network",
               n->option->origin, (unsigned long long)(q->r.place->first + q->r.page),
               (unsigned long long)q->slot);
        if (q->part) {
                over(q, IO_LOST);
                return;
        }
        pte_slot_t *pte = entry_of(q);
        /* Relaxed: page_fetched() releases it. */
        atomic_store_explicit(&vcpu_rings(q->vcpu)->read_failed, 1, memory_order_relaxed);
        if (page_fetched(frame_of(q), frame_pfn0() + q->frame, 0, -EIO))
                wake_entry(pte);
        reuse(&q->r);
}

/* Counters that other threads only read. */
static void one_more(_Atomic uint64_t *c)
{
        atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static void count_page(const struct io_request *q)
{
        struct far_node *n = q->r.place->node;

        if (q->raw)                     /* no page */
                return;
        one_more(q->r.op == FAR_WRITE ? &n->written : &n->read);
        if (q->r.repeated)
                one_more(&n->resent);
        if (atomic_load_explicit(&CONTROL->stats_on, memory_order_relaxed))
                meter_page(n, q->r.op == FAR_WRITE, q->taken);
        if (q->asked && !q->again)
                meter_fetch(q->asked, q->sent);
}

static void fetch_over(struct io_request *q)
{
        pte_slot_t *pte = entry_of(q);

        if (page_fetched(frame_of(q), frame_pfn0() + q->frame, PTE_P | PTE_A, 0))
                wake_entry(pte);
        reuse(&q->r);
}

void far_done(struct far_request *r)
{
        struct io_request *q = (struct io_request *)r;

        if (r->op != FAR_WRITE && !is_right(q)) {
                wrong(q);
                return;
        }
        count_page(q);
        if (r->op == FAR_WRITE) {
                write_ends(q);
                over(q, IO_OVER);
        } else if (q->ahead) {
                prefetch_over(q, 0);
        } else {
                if (opt.io == IO_THREAD)
                        learn_wait(__rdtsc() - q->taken);
                if (q->part)
                        over(q, IO_OVER);
                else
                        fetch_over(q);
        }
}

void far_failed(struct far_request *r)
{
        r->next = failed;
        failed = r;
}

void io_on_loss(void (*owner)(const struct far_node *n)) { on_loss = owner; }

/* Handles the loss of a node.  A slab has only one place, so a failed request is a lost page. */
static void settle(struct far_node *n)
{
        if (n->lost_pages || failed)
                on_loss(n);
        if (!n->settled)
                warnx_("%s: %s: nothing was there yet, so the program goes on without it",
                       n->option->origin, n->why);
        n->settled = true;
}

/* A vCPU waits for the page that a prefetch into this frame brings.  If the request has not gone to
 * its node yet, it goes with those of demand. */
static void promote(frame_t frame)
{
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct queue *list = &queues[i][FAR_PREFETCH];
                for (struct far_request **at = &list->head; *at; at = &(*at)->next) {
                        struct far_request *r = *at;
                        if (((struct io_request *)r)->frame != frame)
                                continue;
                        *at = r->next;
                        if (!r->next)
                                list->tail = at;
                        r->op = FAR_READ;
                        queue(r);
                        return;
                }
        }
}

static bool is_part(uint32_t op) { return op == IO_PART || op == IO_PART_RAW; }

static bool makes_sense(const struct io_entry *e, unsigned vcpu)
{
        if (is_part(e->op) ? e->frame != CONTROL->nframes + vcpu || !e->len ||
                                     e->offset + e->len > PAGE_SIZE
                           : e->frame >= CONTROL->nframes)
                return false;
        return e->op <= IO_PROMOTE && e->slot >> SLAB_SHIFT < CONTROL->nslabs;
}

/* Which bytes of the page are read: all of them, to be compared with their sum, or those that the
 * program wants, as its node can read them. */
static void choose_bytes(struct io_request *q, const struct io_entry *e)
{
        unsigned unit = q->r.place->node->unit;

        q->part = is_part(e->op);
        q->raw = q->part && unit && (e->op == IO_PART_RAW || !opt.verify);
        q->r.offset = q->raw ? e->offset / unit * unit : 0;
        q->r.len = q->raw ? (e->offset + e->len + unit - 1) / unit * unit - q->r.offset : PAGE_SIZE;
}

static void enqueue(struct io_entry *e, unsigned vcpu)
{
        static const enum far_op ops[] = {
                [IO_READ] = FAR_READ, [IO_PREFETCH] = FAR_PREFETCH, [IO_WRITE] = FAR_WRITE,
                [IO_MARKER] = FAR_PREFETCH, [IO_PART] = FAR_READ, [IO_PART_RAW] = FAR_READ
        };
        const struct far_place *place = &far_slab((uint32_t)(e->slot >> SLAB_SHIFT))->place[0];

        if (!makes_sense(e, vcpu))
                die_(EXIT_VMRUN_FAILED,
                     "a ring entry makes no sense (op %u, frame %u, slot %#llx): a bug in vmrun, "
                     "or the program may have written into kern",
                     e->op, e->frame, (unsigned long long)e->slot);
        if (e->op == IO_PROMOTE) {
                promote(e->frame);
                return;
        }
        struct io_request *q = new_request();
        q->entry = e;
        q->taken = __rdtsc();
        q->frame = e->frame;
        q->r.op = ops[e->op];
        q->asked = q->r.op == FAR_READ ? e->asked : 0;
        q->r.page = e->slot & ((1u << SLAB_SHIFT) - 1);
        q->r.place = place;
        q->r.frame = frame_host(e->frame);
        q->r.repeated = false;
        q->slot = e->slot;
        q->vcpu = vcpu;
        q->again = false;
        q->ahead = q->r.op == FAR_PREFETCH;
        q->marker = e->op == IO_MARKER;
        choose_bytes(q, e);
        /* The program may change the page meanwhile: then it is dirty again, and what arrives in
         * the slot is not read. */
        if (q->r.op == FAR_WRITE && opt.verify)
                atomic_store_explicit(sum_of(q), place->node->driver->sum(q->slot, q->r.frame),
                                      memory_order_relaxed);
        if (q->r.op == FAR_WRITE)
                write_begins(q);
        queue(&q->r);
}

static unsigned take_ring(struct io_ring *ring, unsigned vcpu)
{
        uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        /* Acquire: the entries before it are there. */
        uint32_t n = atomic_load_explicit(&ring->tail, memory_order_acquire) - head;

        if (n > IO_RING)
                die_(EXIT_VMRUN_FAILED,
                     "a ring holds %u entries, more than it has: a bug in vmrun, or the program "
                     "may have written into kern",
                     n);
        for (uint32_t i = 0; i < n; i++)
                enqueue(&ring->entry[(head + i) % IO_RING], vcpu);
        if (n)
                atomic_store_explicit(&ring->head, head + n, memory_order_release);
        return n;
}

static unsigned take(void)
{
        unsigned n = 0, vcpus = atomic_load_explicit(&CONTROL->nvcpus, memory_order_acquire);

        for (unsigned i = 0; i < vcpus; i++)
                n += take_ring(&vcpu_rings(i)->demand, i);
        for (unsigned i = 0; i < vcpus; i++)
                n += take_ring(&vcpu_rings(i)->prefetch, i);
        for (unsigned i = 0; i < vcpus; i++)
                n += take_ring(&vcpu_rings(i)->bulk, i);
        return n;
}

static unsigned post_queue(struct far_node *node, struct queue *list)
{
        unsigned posted = 0;

        while (list->head) {
                struct far_request *batch[BATCH], *after[BATCH];
                unsigned n = 0;
                for (struct far_request *r = list->head; r && n < BATCH; r = r->next, n++) {
                        struct io_request *q = (struct io_request *)r;
                        if (q->asked)
                                q->sent = meter_now();
                        batch[n] = r;
                        after[n] = r->next;     /* once taken, next is the driver's */
                }
                unsigned took = node->driver->post(node, batch, n);
                if (took) {
                        list->head = after[took - 1];
                        posted += took;
                }
                if (took < n)
                        break;
        }
        return posted;
}

static bool is_remote(const struct far_node *n) { return n->driver->kind == SLAB_REMOTE; }

/* One turn over rings, queues and drivers.  Returns how much there was to do. */
static unsigned step(void)
{
        unsigned work = take();

        for (unsigned op = FAR_READ; op <= FAR_WRITE; op++)
                for (unsigned i = 0; i < far_nodes(); i++)
                        if (queues[i][op].head)
                                work += post_queue(far_node_at(i), &queues[i][op]);
        for (unsigned i = 0; i < far_nodes(); i++)
                if (is_remote(far_node_at(i))) {
                        work += far_node_at(i)->driver->poll(far_node_at(i));
                        if (far_node_at(i)->lost)
                                settle(far_node_at(i));
                }
        return work;
}

static bool tails_moved(void)
{
        for (unsigned i = 0, n = atomic_load(&CONTROL->nvcpus); i < n; i++) {
                struct io_rings *r = vcpu_rings(i);
                if (atomic_load(&r->demand.tail) != atomic_load(&r->demand.head) ||
                    atomic_load(&r->prefetch.tail) != atomic_load(&r->prefetch.head) ||
                    atomic_load(&r->bulk.tail) != atomic_load(&r->bulk.head))
                        return true;
        }
        return false;
}

/* Sleeps until a driver has a completion or the doorbell rings, at most limit_ms.  False: it did
 * not sleep. */
static bool wait_for_news(int limit_ms)
{
        struct pollfd fds[FDS_MAX] = { { .fd = doorbell, .events = POLLIN } };
        unsigned n = 1;

        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *node = far_node_at(i);
                int got = is_remote(node) ? node->driver->arm(node, fds + n, FDS_MAX - n, &limit_ms)
                                          : 0;
                if (got < 0)
                        return false;
                n += (unsigned)got;
        }
        poll(fds, n, limit_ms);
        if (fds[0].revents & POLLIN) {
                uint64_t rings;
                if (read(doorbell, &rings, sizeof(rings)) < 0 && errno != EAGAIN)
                        die_(EXIT_VMRUN_FAILED, "the doorbell of the I/O thread cannot be read: %s",
                             strerror(errno));
        }
        return true;
}

/* The process is ending, and this thread ends with it. */
static _Noreturn void stay_stopped(void)
{
        atomic_store_explicit(&stopped, true, memory_order_release);
        for (;;)
                pause();
}

static int attach(struct far_node *n, char why[FAR_WHY])
{
        uint64_t bounce = bounce_pages(CONTROL->nframes);

        return n->driver->attach(n, frame_host(0), (CONTROL->nframes + bounce) * PAGE_SIZE, why);
}

static void attach_all(void)
{
        char why[FAR_WHY];

        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                int err = is_remote(n) ? attach(n, why) : 0;
                if (err && n->lost)
                        settle(n);
                if (err)
                        die_(EXIT_VMRUN_FAILED, "%s: %s", n->option->origin, why);
        }
        atomic_store(&attached, 1);
        word_wake(&attached, INT_MAX);
}

void io_wait_attached(void)
{
        while (!atomic_load(&attached))
                /* ends within the connect time-outs, or with the process */
                word_sleep(&attached, 0, NULL);
}

bool io_is_attached(void) { return atomic_load(&attached); }

/* Quiesced until io_release().  False: the thread must end. */
static bool stand_still(void)
{
        uint32_t asked = HOLD_ASKED;

        if (atomic_compare_exchange_strong(&hold, &asked, HOLD_HELD))
                word_wake(&hold, INT_MAX);
        while (atomic_load(&hold) == HOLD_HELD)
                word_sleep(&hold, HOLD_HELD, NULL);
        return atomic_load(&hold) != HOLD_END;
}

static void *io_main(void *arg)
{
        uint64_t idle_since = 0;

        (void)arg;
        prctl(PR_SET_NAME, "vmrun-io");
        if (!atomic_load(&attached))
                attach_all();
        for (;;) {
                if (atomic_load_explicit(&stop_asked, memory_order_relaxed))
                        stay_stopped();
                if (atomic_load_explicit(&hold, memory_order_relaxed) != HOLD_NONE &&
                    !stand_still())
                        return NULL;
                if (step() > 0) {
                        idle_since = 0;
                        continue;
                }
                uint64_t now = __rdtsc();
                if (!idle_since)
                        idle_since = now;
                if (now - idle_since < spin_ticks) {
                        _mm_pause();
                        continue;
                }
                /* full barrier: before the look at the tails */
                atomic_exchange(&CONTROL->io_asleep, 1);
                if (!tails_moved())
                        wait_for_news(-1);
                atomic_store(&CONTROL->io_asleep, 0);
                idle_since = 0;
        }
}

void io_wait(const void *word, uint32_t seen)
{
        const _Atomic uint32_t *w = word;

        pthread_mutex_lock(&io_lock);
        for (uint64_t since = __rdtsc(); atomic_load(w) == seen; ) {
                if (step() > 0)
                        since = __rdtsc();
                else if (__rdtsc() - since > spin_ticks && wait_for_news(10))
                        since = __rdtsc();
        }
        /* What else has come saves the program an exit each. */
        for (unsigned i = 0; i < INLINE_MORE && step() > 0; i++)
                ;
        pthread_mutex_unlock(&io_lock);
}

void io_hold(void)
{
        const uint64_t ring = 1;

        if (!started)
                return;
        if (opt.io == IO_INLINE) {
                pthread_mutex_lock(&io_lock);
                return;
        }
        atomic_store(&hold, HOLD_ASKED);
        if (write(doorbell, &ring, sizeof(ring)) < 0 && errno != EAGAIN)
                die_(EXIT_VMRUN_FAILED, "the I/O thread cannot be woken: %s", strerror(errno));
        while (atomic_load(&hold) == HOLD_ASKED)
                word_sleep(&hold, HOLD_ASKED, NULL);
}

void io_release(void)
{
        if (started && opt.io == IO_INLINE)
                pthread_mutex_unlock(&io_lock);
        else if (started) {
                atomic_store(&hold, HOLD_NONE);
                word_wake(&hold, INT_MAX);
        }
}

void io_end(void)
{
        if (!started || opt.io == IO_INLINE)
                return;
        atomic_store(&hold, HOLD_END);
        word_wake(&hold, INT_MAX);
        pthread_join(io_thread, NULL);
}

void io_forked(void)
{
        if (doorbell >= 0)
                privfd_close(doorbell);
        doorbell = -1;
        started = false;
        forked = true;
        atomic_store(&attached, 0);
        atomic_store(&hold, HOLD_NONE);
        pthread_mutex_init(&io_lock, NULL);
        memset(queues, 0, sizeof(queues));
}

bool io_stop(unsigned limit_ms)
{
        const struct timespec ms = { .tv_nsec = 1000000 };
        const uint64_t ring = 1;

        if (!started)
                return true;
        if (opt.io == IO_INLINE)
                return lock_within(&io_lock, limit_ms);     /* for good */
        atomic_store_explicit(&stop_asked, true, memory_order_relaxed);
        if (write(doorbell, &ring, sizeof(ring)) < 0)
                return false;
        for (unsigned i = 0; i < limit_ms && !atomic_load_explicit(&stopped, memory_order_acquire);
             i++)
                nanosleep(&ms, NULL);
        return atomic_load_explicit(&stopped, memory_order_acquire);
}

/* KVM answers OUTB to DOORBELL_PORT by adding to the eventfd. */
static int make_doorbell(void)
{
        if (doorbell < 0)
                doorbell = PRIVFD_NEW(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        if (doorbell < 0)
                return doorbell;
        struct kvm_ioeventfd e = {
                .addr = DOORBELL_PORT, .len = 1, .fd = doorbell, .flags = KVM_IOEVENTFD_FLAG_PIO
        };
        return ioctl(io_vm->fd, KVM_IOEVENTFD, &e) == 0 ? 0 : -errno;
}

/* Starts the thread, with its doorbell in the VM.  -EINVAL: this process has left its PID namespace
 * for its children's (unshare) and can make no more threads. */
static int start_thread(void)
{
        sigset_t all, old;

        int err = make_doorbell();
        if (err)
                die_(EXIT_VMRUN_FAILED,
                     "KVM cannot wake the I/O thread (KVM_IOEVENTFD): %s: try --io inline",
                     strerror(-err));
        if (opt.io == IO_INLINE)
                return 0;
        sigfillset(&all);               /* signals are the program's */
        pthread_sigmask(SIG_SETMASK, &all, &old);
        err = own_thread(&io_thread, io_main, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (err && err != EINVAL)
                die_(EXIT_VMRUN_FAILED, "the I/O thread cannot be made: %s: try --io inline",
                     strerror(err));
        return -err;
}

void io_again(void)
{
        if (!started)
                return;
        if (opt.io == IO_THREAD)
                atomic_store(&hold, HOLD_NONE);
        if (start_thread() != 0)
                die_(EXIT_VMRUN_FAILED, "the I/O thread cannot be made after unshare or setns of a "
                                        "PID namespace: try --io inline");
}

static void choose_spin(void)
{
        unsigned spin_us = 0;

        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                if (is_remote(n) && n->driver->spin_us > spin_us)
                        spin_us = n->driver->spin_us;
        }
        atomic_store_explicit(&spin_ticks, CONTROL->tsc_khz * spin_us / 1000,
                              memory_order_relaxed);
}

int io_add(struct far_node *n, char *why)
{
        if (!started) {                 /* io_start() attaches it */
                far_node_add(n);
                return 0;
        }
        io_hold();
        int err = is_remote(n) ? attach(n, why) : 0;
        if (!err) {
                far_node_add(n);
                choose_spin();
        }
        io_release();
        return err;
}

void io_start(struct vm *vm)
{
        if (started)
                return;
        io_vm = vm;
        if (!forked || opt.io == IO_INLINE)
                attach_all();
        choose_spin();
        cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
        if (start_thread() != 0) {
                opt.io = IO_INLINE;
                if (!atomic_load(&attached))
                        attach_all();
        }
        if (opt.io == IO_INLINE)        /* nothing arrives until the waiting vCPU exits */
                atomic_store_explicit(&CONTROL->wait_ticks, 0, memory_order_relaxed);
        started = true;
}
