/*
 * From a request of the guest to transfers of its page, and back.
 *
 *   request_begin()   a ring's entry becomes a request: of a read, or of a write
 *   send_*()          chooses places of the slab (copies.h): one to read, all to write; a transfer
 *                     each, on the list of its node and kind
 *   request_post()    as many of a list as its node's driver has room for; demand reads first
 *   driver            moves the data, and calls far_done()
 *   far_done()        a read: the sum is compared, the entry becomes PRESENT.  A write: when each
 *                     place has its copy or has missed it, its ring entry is over.  vCPUs that
 *                     sleep on it are woken
 *
 * A node that breaks hands its transfers back (far_failed).  Then outage.c carries their requests
 * on without the node: a read is asked of another place; a write misses the copy there, which no
 * process reads from then on.  A request that no node can carry out now is stranded: outage.c tries
 * it again until --timeout has passed, and ends the program then.
 */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <guest_ram.h>
#include <x86intrin.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/options.h"
#include "base/word.h"
#include "far/copies.h"
#include "far/held.h"
#include "far/meter.h"
#include "far/nodes.h"
#include "far/repair.h"
#include "far/request.h"
#include "far/sums.h"
#include "far/wait.h"
#include "include/allocator.h"
#include "pager/notices.h"

#define BATCH       64                  /* transfers given to a driver at a time */

struct requests requests;

void request_pieces(struct slot_pieces *of_tree) { requests.pieces = of_tree; }

void request_forked(void)
{
        memset(requests.queue, 0, sizeof(requests.queue));
        requests.stranded = requests.behind = requests.writes = NULL;
        requests.failed = NULL;
        requests.taken_over = NULL;
        atomic_store_explicit(&requests.waiting, false, memory_order_relaxed);
        for (unsigned i = 0; i < far_nodes(); i++)
                far_node_at(i)->given = far_node_at(i)->writing = 0;
}

static struct request *new_request(void)
{
        struct request *q = requests.unused;

        if (q) {
                requests.unused = q->next;
                return q;
        }
        q = malloc(sizeof(*q) + FAR_PLACES * sizeof(q->copy[0]));
        if (!q)
                die_(EXIT_VMRUN_FAILED,
                     "no memory for a request to a memory node: free some on this host");
        return q;
}

static void reuse(struct request *q)
{
        q->next = requests.unused;
        requests.unused = q;
}

/* Not for a request of a part, whose bytes go to a bounce page. */
static struct frame *frame_of(const struct request *q)
{
        return &((struct frame *)CONTROL->frame_table)[q->frame];
}

/* ---- to the drivers ---- */

static void queue(struct far_request *r)
{
        struct queue *list = &requests.queue[r->place->node->index][r->op];

        r->next = NULL;
        if (!list->head)
                list->tail = &list->head;
        *list->tail = r;
        list->tail = &r->next;
}

static void transfer(struct request *q, unsigned k, enum far_op op, unsigned offset, unsigned len)
{
        struct far_request *r = &q->copy[op == FAR_WRITE ? k : 0];

        *r = (struct far_request){ .op = op,
                                   .page = slot_page(q->slot),
                                   .place = &q->slab->place[k],
                                   .frame = frame_host(q->frame),
                                   .offset = (uint16_t)offset,
                                   .len = (uint16_t)len,
                                   .owner = q };
        r->place->node->writing += op == FAR_WRITE;
        r->place->node->given++;
        queue(r);
}

static unsigned place_of(const struct far_request *r)
{
        const struct request *q = r->owner;

        return (unsigned)(r->place - q->slab->place);
}

/* No node can carry the request out now: outage.c tries it again. */
static void strand(struct request *q)
{
        if (!q->stranded)
                q->stranded = requests.patient_ms + 1;
        q->next = requests.stranded;
        requests.stranded = q;
        atomic_store_explicit(&requests.waiting, true, memory_order_relaxed);
}

static void prefetch_over(struct request *q, int err);
static void repair_over(struct request *q);
static void repair_read(struct request *q);

/* Of the slab's nodes: drivers of all remote nodes have far_sum(). */
static struct sums sums(const struct request *q)
{
        return (struct sums){ (char *)TREE_WINDOW, requests.pieces,
                              q->slab->place[0].node->driver->sum };
}

/* Sums of pieces are kept once a process of the tree reads parts, if the nodes can.  Relaxed: both
 * words are hints; the tree's follows the word that this process's vCPUs set. */
static bool keeps_pieces(const struct request *q)
{
        _Atomic uint32_t *kept = &TREE_COMMON->parts_read;
        unsigned unit = q->slab->place[0].node->unit;

        if (!unit || PIECE_SIZE % unit)
                return false;
        if (!atomic_load_explicit(kept, memory_order_relaxed)) {
                if (!atomic_load_explicit(&CONTROL->parts_read, memory_order_relaxed))
                        return false;
                atomic_store_explicit(kept, 1, memory_order_relaxed);
        }
        return true;
}

/* Chooses the bytes that are read at place k: those that the program wants, by the node's unit; or,
 * if they are to be compared with a sum, their pieces; or the whole page. */
static void choose_bytes(struct request *q, unsigned k, unsigned *offset, unsigned *len)
{
        unsigned unit = q->slab->place[k].node->unit;
        const struct io_entry *e = q->entry;
        struct sums s = sums(q);

        *offset = 0;
        *len = PAGE_SIZE;
        q->raw = q->part && unit && (e->op == IO_PART_RAW || !opt.verify);
        if (q->raw) {
                *offset = e->offset / unit * unit;
                *len = (e->offset + e->len + unit - 1) / unit * unit - *offset;
        } else if (q->part && opt.verify && !q->again && !q->bad && unit &&
                   PIECE_SIZE % unit == 0 && keeps_pieces(q) &&
                   sums_of_part(&s, q->slot, e->offset, e->len, &q->right)) {
                *offset = q->right.offset;
                *len = q->right.len;
        }
}

/* The place to read, as an index: what came wrong is read at the same place once more, if that
 * still answers.  -1: none. */
static int place_to_read(struct request *q)
{
        const struct copies c = copies();

        if (q->again && far_answers(q->slab->place[q->again - 1].node) &&
            copies_good(&c, q->slab, q->slot) >> (q->again - 1) & 1)
                return (int)q->again - 1;
        q->again = 0;
        return copies_to_read(&c, q->slab, q->slot, q->bad);
}

static void send_read(struct request *q)
{
        int k = place_to_read(q);
        unsigned offset, len;

        if (k >= 0) {
                q->stranded = 0;
                choose_bytes(q, (unsigned)k, &offset, &len);
                transfer(q, (unsigned)k, q->copy[0].op, offset, len);
        } else if (q->ahead) {
                prefetch_over(q, -EIO); /* a vCPU that needs the page asks for it */
        } else if (q->repair) {
                repair_over(q);
        } else {
                strand(q);
        }
}

/* Is one of the places at a node that cannot fence?  Until such a node has answered, and for ever
 * if it was sent the page more than once, no other page may go to the slot (docs/protocol.md). */
static bool any_unfencing(const struct far_slab *s, unsigned places)
{
        for (unsigned k = 0; k < s->places; k++)
                if (places >> k & 1 && !s->place[k].node->fences)
                        return true;
        return false;
}

/* Counts a write that is over at each node that cannot fence and where the write may still arrive.
 * True: there is such a node. */
static bool count_retired(const struct request *q)
{
        bool due = false;

        for (unsigned k = 0; q->late >> k; k++) {
                struct far_node *n = q->slab->place[k].node;
                if (q->late >> k & 1 && !n->fences) {
                        count_one(&n->retired);
                        due = true;
                }
        }
        return due;
}

/* To the places in q->waits. */
static void write_copies(struct request *q)
{
        const unsigned places = q->waits;

        for (unsigned k = 0; places >> k; k++)
                if (places >> k & 1)
                        transfer(q, k, FAR_WRITE, 0, PAGE_SIZE);
}

/* A process whose connections are not there yet would make fewer copies than it can, and the
 * node that has them may be the next to end. */
static bool is_early(const struct far_slab *s)
{
        for (unsigned k = 0, n = s->places; n > 1 && k < n; k++)
                if (far_expected(s->place[k].node))
                        return true;
        return false;
}

/* The program may change the page meanwhile: then it is dirty again, and no process reads the bytes
 * that arrive in the slot. */
static void send_write(struct request *q)
{
        const struct copies c = copies();

        q->good = 0;
        if (is_early(q->slab)) {
                q->stranded = 0;        /* that is no node's silence */
                strand(q);
                return;
        }
        q->waits = copies_to_write(&c, q->slab, q->slot);
        if (q->waits) {
                q->stranded = 0;
                /* At each attempt: the slab may have got a place at such a node meanwhile. */
                if (any_unfencing(q->slab, q->waits))
                        slot_write_begins(slot_word((char *)TREE_WINDOW, q->slot));
                write_copies(q);
        } else {
                strand(q);
        }
}

static bool is_part(uint32_t op) { return op == IO_PART || op == IO_PART_RAW; }

static bool makes_sense(const struct io_entry *e, unsigned vcpu)
{
        if (e->op == IO_READ && e->offset > VCPUS_MAX)
                return false;
        if (is_part(e->op) ? e->frame != CONTROL->nframes + vcpu || !e->len ||
                                     e->offset + e->len > PAGE_SIZE
                           : e->frame >= CONTROL->nframes)
                return false;
        return e->op <= IO_PROMOTE && e->slot >> SLAB_SHIFT < CONTROL->nslabs &&
               (e->op != IO_READ || e->len <= far_slab(slot_slab(e->slot))->places);
}

/* A vCPU waits for the page that a prefetch into this frame brings.  If the transfer has not gone
 * to its node yet, it goes there as a demand read. */
static void promote(frame_t frame)
{
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct queue *list = &requests.queue[i][FAR_PREFETCH];
                for (struct far_request **at = &list->head; *at; at = &(*at)->next) {
                        struct far_request *r = *at;
                        if (((struct request *)r->owner)->frame != frame)
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

static struct request *begin(uint64_t slot, frame_t frame, enum far_op op)
{
        struct request *q = new_request();

        *q = (struct request){ .slab = far_slab(slot_slab(slot)),
                               .slot = slot,
                               .frame = frame,
                               .taken = __rdtsc() };
        q->copy[0].op = op;
        return q;
}

/* [I] A slot is not repaired, nor called wrong, while a write of it is under way: the copy would be
 * of the slot's older page, and might be called good after the write was over.  Writes that come
 * while the slot is held wait (`behind`). */
static void note_write(struct request *q)
{
        q->before = NULL;
        q->after = requests.writes;
        if (requests.writes)
                requests.writes->before = q;
        requests.writes = q;
}

static void forget_write(struct request *q)
{
        *(q->before ? &q->before->after : &requests.writes) = q->after;
        if (q->after)
                q->after->before = q->before;
}

bool request_written(uint64_t slot)
{
        for (const struct request *q = requests.writes; q; q = q->after)
                if (q->slot == slot)
                        return true;
        return false;
}

/* Stores the new sum only now: a repair that was still running compares with the old page's. */
static void begin_write(struct request *q)
{
        if (opt.verify) {
                struct sums s = sums(q);
                sums_store(&s, q->slot, frame_host(q->frame), keeps_pieces(q));
        }
        note_write(q);
        send_write(q);
}

void request_take_over(uint64_t slot, frame_t frame, unsigned vcpu)
{
        if (slot >> SLAB_SHIFT >= CONTROL->nslabs || frame >= CONTROL->nframes ||
            vcpu >= VCPUS_MAX)
                die_(EXIT_VMRUN_FAILED,
                     "a queue's entry makes no sense (vCPU %u, frame %u, slot %#llx): a bug in "
                     "vmrun, or the program may have written into kern", vcpu, frame,
                     (unsigned long long)slot);
        struct request *q = begin(slot, frame, FAR_READ);

        q->vcpu = vcpu;
        q->next = requests.taken_over;
        requests.taken_over = q;
}

unsigned request_taken_over(void)
{
        struct request *list = requests.taken_over, *next;
        unsigned n = 0;

        requests.taken_over = NULL;
        for (; list; list = next, n++) {
                next = list->next;
                send_read(list);
        }
        return n;
}

/* Kern has asked a node itself, for a vCPU of that number. */
static void begin_for(struct request *q, const struct io_entry *e)
{
        q->vcpu = e->offset - 1u;
        if (e->len) {
                q->again = e->len;
                count_one(&q->slab->place[e->len - 1].node->reread);
        }
}

void request_begin(struct io_entry *e, unsigned vcpu)
{
        static const enum far_op ops[] = {
                [IO_READ] = FAR_READ, [IO_PREFETCH] = FAR_PREFETCH, [IO_WRITE] = FAR_WRITE,
                [IO_MARKER] = FAR_PREFETCH, [IO_PART] = FAR_READ, [IO_PART_RAW] = FAR_READ
        };

        if (!makes_sense(e, vcpu))
                die_(EXIT_VMRUN_FAILED,
                     "a ring entry makes no sense (op %u, frame %u, slot %#llx): a bug in vmrun, "
                     "or the program may have written into kern",
                     e->op, e->frame, (unsigned long long)e->slot);
        if (e->op == IO_PROMOTE) {
                promote(e->frame);
                return;
        }
        enum far_op op = ops[e->op];
        struct request *q = begin(e->slot, e->frame, op);
        q->entry = e;
        q->vcpu = vcpu;
        q->ahead = op == FAR_PREFETCH;
        q->marker = e->op == IO_MARKER;
        q->part = is_part(e->op);
        q->asked = op == FAR_READ ? e->asked : 0;
        if (e->op == IO_READ && e->offset)
                begin_for(q, e);
        if (op != FAR_WRITE) {
                send_read(q);
                return;
        }
        if (held_has(q->slot)) {
                q->next = requests.behind;
                requests.behind = q;
                return;
        }
        begin_write(q);
}

void request_repair(uint64_t slot, frame_t frame)
{
        if (request_written(slot)) {
                repair_put_off(slot);
                return;
        }
        struct request *q = begin(slot, frame, FAR_PREFETCH);

        q->repair = true;
        send_read(q);
}

void request_check(uint64_t slot, unsigned k, frame_t frame, check_fn *check)
{
        struct request *q = begin(slot, frame, FAR_PREFETCH);

        q->check = check;
        transfer(q, k, FAR_PREFETCH, 0, PAGE_SIZE);
}

static void check_over(struct request *q, enum check found)
{
        frame_t frame = q->frame;
        check_fn *over = q->check;

        reuse(q);
        over(frame, found);
}

static void fail_all(struct far_request *r)
{
        for (struct far_request *next; r; r = next) {
                next = r->next;
                far_failed(r);
        }
}

static unsigned post_queue(struct far_node *node, struct queue *list)
{
        unsigned posted = 0;

        while (list->head) {
                struct far_request *batch[BATCH], *after[BATCH], *rest;
                unsigned n = 0;
                for (struct far_request *r = list->head; r && n < BATCH; r = r->next, n++) {
                        struct request *q = r->owner;
                        if (q->asked)
                                q->sent = meter_now();
                        batch[n] = r;
                        after[n] = r->next;     /* once taken, next is the driver's */
                }
                /* The list is empty while the driver has the batch: the node may break there, and
                 * far_down() hands the list back. */
                rest = list->head;
                list->head = NULL;
                unsigned took = node->driver->post(node, batch, n);
                if (took)
                        rest = after[took - 1];
                posted += took;
                if (!far_answers(node)) {
                        fail_all(rest);
                        break;
                }
                list->head = rest;
                if (took < n)
                        break;
        }
        return posted;
}

unsigned request_post(void)
{
        unsigned posted = 0;

        for (unsigned op = FAR_READ; op <= FAR_WRITE; op++)
                for (unsigned i = 0; i < far_nodes(); i++)
                        if (requests.queue[i][op].head)
                                posted += post_queue(far_node_at(i), &requests.queue[i][op]);
        return posted;
}

/* ---- and back ---- */

/* Has the page, or have its pieces, come as they were sent?  From a page that was read whole for a
 * part this learns the sums of the pieces: the next part of that page is read by pieces alone. */
static bool is_right(const struct far_request *r)
{
        const struct request *q = r->owner;
        struct sums s = sums(q);

        if (r->error)
                return false;
        if (!opt.verify || q->raw)
                return true;
        if (r->len < PAGE_SIZE)
                return sums_part_fits(&s, &q->right, r->frame);
        return q->part && keeps_pieces(q) ? sums_learn(&s, q->slot, r->frame)
                                          : sums_fit(&s, q->slot, r->frame);
}

/* The entry that the page of a read is for.  To be asked while the entry is BUSY: afterwards the
 * frame may have another page. */
static pte_slot_t *entry_of(const struct request *q)
{
        return atomic_load_explicit(&frame_of(q)->pte, memory_order_relaxed);
}

/* With --io inline the waiting threads are in io_wait(), and are told there (turns.c). */
static void wake_entry(pte_slot_t *pte)
{
        if (opt.io == IO_THREAD)
                word_wake((const void *)pte_word(pte), INT_MAX);
}

/* Tells vCPUs that sleep until the frame's transfer is over (kern/pager/notices.h).  For a demand
 * read, called only if its entry had WAITERS. */
static void tell_notices(const struct request *q)
{
        const struct notices_of told = {
                .table = (struct notices *)CONTROL->notices,
                .frames = (struct frame *)CONTROL->frame_table,
                .pfn0 = frame_pfn0(),
        };

        notices_over(&told, q->frame);
}

static void prefetch_over(struct request *q, int err)
{
        struct frame *f = frame_of(q);
        pte_slot_t *pte = entry_of(q);

        if (page_prefetched(f, frame_pfn0() + q->frame,
                            pte_ahead(q->marker, CONTROL->shadow_paging), err))
                wake_entry(pte);
        tell_notices(q);
        /* Relaxed: a hint for the vCPU. */
        atomic_fetch_add_explicit(&vcpu_rings(q->vcpu)->prefetches_over, 1, memory_order_relaxed);
        reuse(q);
}

/* The ring entry of a write or a part is over.  Release: the bytes are there.  Its vCPU may reuse
 * the entry then. */
static void entry_over(struct request *q, enum io_state state)
{
        _Atomic uint32_t *word = &q->entry->state;

        if (atomic_exchange(word, state) == IO_AWAITED)
                word_wake(word, INT_MAX);
        reuse(q);
}

static void page_lost(struct request *q, struct far_node *n, const struct far_request *r)
{
        count_one(&n->damaged);
        warnx_("%s: page %llu of it (slot %#llx) %s%s, twice: an access to it ends in SIGBUS; see "
               "%s", n->option->origin, (unsigned long long)(r->place->first + r->page),
               (unsigned long long)q->slot,
               r->error ? "could not be read: " : "did not come back as it was written",
               r->error ? strerror(-r->error) : "",
               n->driver->local ? "the kernel's log (dmesg)" : "the node's memory and the network");
        if (q->part) {
                entry_over(q, IO_LOST);
                return;
        }
        pte_slot_t *pte = entry_of(q);
        /* Relaxed: page_fetched() releases it. */
        atomic_store_explicit(&vcpu_rings(q->vcpu)->read_failed, 1, memory_order_relaxed);
        if (page_fetched(frame_of(q), frame_pfn0() + q->frame, 0, -EIO)) {
                wake_entry(pte);
                tell_notices(q);
        }
        reuse(q);
}

/* A page that did not come as it was sent is read once more, whole: if a link spoiled it on the
 * way, it is right then.  Else another copy is read, and if that copy is right the first copy is
 * not read again.  Else the page is lost, and an access to it is SIGBUS. */
static void read_wrong(struct far_request *r)
{
        struct request *q = r->owner;
        struct far_node *n = r->place->node;
        const struct copies c = copies();

        if (!q->again) {
                q->again = place_of(r) + 1;
                count_one(&n->reread);
                send_read(q);
                return;
        }
        q->bad |= 1u << place_of(r);
        if (copies_to_read(&c, q->slab, q->slot, q->bad) >= 0) {
                q->again = 0;
                send_read(q);
        } else if (q->repair && !r->error && copies_drain(&c, n)) {
                /* The node drains: a process that reads the page must find no better copy
                 * elsewhere.  Perhaps no process will, as the page changed while it was sent. */
                repair_read(q);
        } else if (q->repair) {
                q->unfit = !r->error;
                repair_over(q);
        } else if (q->ahead) {
                count_one(&n->dropped);         /* a vCPU that needs the page asks for it */
                prefetch_over(q, -EIO);
        } else {
                page_lost(q, n, r);
        }
}

void request_spoiled(uint64_t slot, unsigned places)
{
        const struct copies c = copies();

        for (unsigned k = 0; places >> k; k++)
                if (places >> k & 1) {
                        struct far_node *n = far_slab(slot_slab(slot))->place[k].node;
                        copies_spoiled(&c, slot, k);
                        count_one(&n->damaged);
                        info_("%s: page %u of slab %u did not come back as it was written, twice; "
                              "another copy did",
                              n->option->origin, slot_page(slot), slot_slab(slot));
                }
}

static void count_page(const struct far_request *r)
{
        const struct request *q = r->owner;
        struct far_node *n = r->place->node;

        if (q->raw || r->len < PAGE_SIZE)       /* no page */
                return;
        count_one(r->op == FAR_WRITE ? &n->written : &n->read);
        if (r->repeated)
                count_one(&n->resent);
        if (atomic_load_explicit(&CONTROL->stats_on, memory_order_relaxed))
                meter_page(n, r->op == FAR_WRITE, q->taken);
        if (q->asked && !q->again)
                meter_fetch(q->asked, q->sent);
}

static void fetch_over(struct request *q)
{
        pte_slot_t *pte = entry_of(q);

        if (page_fetched(frame_of(q), frame_pfn0() + q->frame, PTE_P | PTE_A, 0)) {
                wake_entry(pte);
                tell_notices(q);
        }
        reuse(q);
}

static void count_missed(const struct request *q)
{
        const struct far_slab *s = q->slab;
        unsigned places = s->places;

        if (q->good == (1u << places) - 1)
                return;
        bool missed = false;
        for (unsigned k = 0; k < places; k++) {
                struct far_node *n = s->place[k].node;
                if (q->good >> k & 1 || is_set(&n->is_drained))
                        continue;
                count_one(&n->missed);
                missed = true;
        }
        if (missed)
                repair_missed();
}

/* The places that are not at nodes drained for this process, also if a node was drained after its
 * copy was over: if no other node has the page, the page is written again. */
static unsigned not_drained(const struct request *q, unsigned places)
{
        unsigned set = 0;

        for (unsigned k = 0; places >> k; k++)
                if (places >> k & 1 && !is_set(&q->slab->place[k].node->is_drained))
                        set |= 1u << k;
        return set;
}

/* Warns once a node: `retired` counts all such writes. */
static void say_refused(const struct far_request *r)
{
        struct far_node *n = r->place->node;

        if (n->refused)
                return;
        n->refused = true;
        warnx_("%s: page %llu of it could not be written (%s), and goes elsewhere: see the "
               "kernel's log (dmesg); further ones are not reported",
               n->option->origin, (unsigned long long)(r->place->first + r->page),
               strerror(-r->error));
}

/* A node could not carry the write out (far_request.error), and no other node has the page: kern
 * takes another slot.
 * [I] This slot stays DUE, since such a node does not fence: it is never written again. */
static void write_lost(struct request *q)
{
        forget_write(q);
        count_retired(q);
        entry_over(q, IO_LOST);
}

/* A copy of a write is there, or its node has missed it.  The write is over when that is known of
 * all copies and one is there: no transfer touches the frame any more. */
static void copy_over(struct far_request *r, bool good)
{
        struct request *q = r->owner;
        unsigned set = 1u << place_of(r);
        const struct copies c = copies();

        r->place->node->writing--;
        q->waits &= ~set;
        q->good |= good ? set : 0;
        if (r->repeated || !good)
                q->late |= set;
        if (r->error) {
                q->refused = true;
                say_refused(r);
        }
        if (q->waits)
                return;
        q->good = not_drained(q, q->good);
        if (q->repair) {
                copies_repaired(&c, q->slot, q->good);
                repair_over(q);
        } else if (!q->good && q->refused) {
                write_lost(q);
        } else if (!q->good) {
                send_write(q);
        } else {
                copies_written(&c, q->slot, q->good);
                if (!copies_staying(&c, q->slab, q->good))
                        repair_needed();
                count_missed(q);
                forget_write(q);
                if (any_unfencing(q->slab, ~0u) && !count_retired(q))
                        slot_write_ends(slot_word((char *)TREE_WINDOW, q->slot));
                entry_over(q, IO_OVER);
        }
}

/* For repair a copy was read, and is right: writes it to the places that lack the page. */
static void repair_read(struct request *q)
{
        const struct copies c = copies();

        q->waits = copies_to_repair(&c, q->slab, q->slot);
        if (q->waits)
                write_copies(q);
        else
                repair_over(q);
}

static void repair_over(struct request *q)
{
        const uint64_t slot = q->slot;

        if (q->unfit)
                repair_unfit(slot);
        else
                repair_done(slot, q->good);
        reuse(q);
        request_go_on(slot);
}

void request_go_on(uint64_t slot)
{
        struct request *list = requests.behind, *next;

        requests.behind = NULL;
        for (; list; list = next) {
                next = list->next;
                if (list->slot == slot) {
                        begin_write(list);
                } else {
                        list->next = requests.behind;
                        requests.behind = list;
                }
        }
}

void far_done(struct far_request *r)
{
        struct request *q = r->owner;
        _Atomic unsigned *barren = &r->place->node->barren;

        r->place->node->given--;
        if (!r->error && atomic_load_explicit(barren, memory_order_relaxed))
                atomic_store_explicit(barren, 0, memory_order_relaxed);
        if (q->check) {
                count_page(r);
                check_over(q, is_right(r) ? CHECK_RIGHT : CHECK_WRONG);
                return;
        }
        if (r->op != FAR_WRITE && !is_right(r)) {
                read_wrong(r);
                return;
        }
        if (!r->error)
                count_page(r);
        if (r->op == FAR_WRITE) {
                copy_over(r, !r->error);
                return;
        }
        request_spoiled(q->slot, q->bad);       /* copies that were read before this one */
        if (q->repair) {
                repair_read(q);
                return;
        }
        if (q->ahead) {
                prefetch_over(q, 0);
                return;
        }
        wait_learn(__rdtsc() - q->taken);
        if (q->part)
                entry_over(q, IO_OVER);
        else
                fetch_over(q);
}

void far_failed(struct far_request *r)
{
        struct far_node *n = r->place->node;

        n->given--;
        if (n->hands_back && !n->failed) {
                n->failed = true;
                atomic_fetch_add_explicit(&n->barren, 1, memory_order_relaxed);
        }
        r->next = requests.failed;
        requests.failed = r;
}

void request_hand_back(const struct far_node *n)
{
        for (unsigned op = FAR_READ; op <= FAR_WRITE; op++) {
                fail_all(requests.queue[n->index][op].head);
                requests.queue[n->index][op].head = NULL;
        }
}

bool request_is_idle(const struct far_node *n)
{
        return !n->given && !requests.taken_over;
}

void request_go_without(struct far_request *r)
{
        struct request *q = r->owner;

        if (q->check)
                check_over(q, CHECK_SILENT);
        else if (r->op == FAR_WRITE)
                copy_over(r, false);
        else
                send_read(q);
}

void request_send(struct request *q)
{
        if (is_write(q))
                send_write(q);
        else
                send_read(q);
}
