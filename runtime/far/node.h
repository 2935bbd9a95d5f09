/*
 * Far-memory nodes and their drivers: the header for the author of a driver.
 *
 * A node is one --node URL or [node] section; its scheme names the driver.  Space is leased slab by
 * slab when the cleaner asks (EXIT_LEASE), from the node that the placement chooses, so nothing at
 * start grows with a node's size.  A driver says how the data of its slabs moves: SLAB_MEMORY is
 * mapped at the same address in host and guest, and kern copies; SLAB_REMOTE goes through the
 * rings.
 *
 * Functions return 0 or -errno; where there is a `why`, it receives one sentence for the user that
 * names the thing, the cause and the cure, without the URL.
 */
#ifndef VMRUN_FAR_NODE_H
#define VMRUN_FAR_NODE_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "abi_slab.h"
#include "base/options.h"
#include "common/clock.h"
#include "far/sum.h"
#include "include/allocator.h"

struct vm;
struct far_direct;

#define FAR_WHY 256
_Static_assert(NODES_MAX <= SLAB_NODES, "kern can tell nodes apart");
_Static_assert(REPLICAS_MAX < SLAB_PLACES, "there is room for nodes in place of lost ones");

/* A node across execve: the old program opened it, and the next program continues to use it. */
#define FAR_KEPT 768
struct far_kept_node {
        bool kept;
        bool drained;                   /* and is not used any more: far_node.is_drained */
        bool up;                        /* or was to come up */
        int fd;                         /* private; -1: none */
        char data[FAR_KEPT] __attribute__((aligned(8)));        /* the driver's own */
};

/* A node of this process.  The fields stand in groups by their writer. */
struct far_node {
        /* --- By nodes.c, before any other thread sees the node; constant, but for `driver` and
         * `module` in a forked child (far_reload()) and `member` (slabs.c). --- */
        const struct far_driver *driver;
        void *module;                   /* of its driver (dlopen); NULL: vmrun itself */
        const struct node_option *option;       /* as given; lives as long as the node */
        const char *url;                /* option->url */
        unsigned index;                 /* in the table of nodes */
        /* This process, among those of its tree: a number that no other process of the tree ever
         * has.  Set before attach(), and before open() unless the node is inherited. */
        uint64_t member;
        /* From keep() before execve, for open() to continue with; NULL: nothing. */
        const struct far_kept_node *inherited;
        /* Other nodes have copies of its pages, so the driver gives a transfer back that it cannot
         * carry out now (see "Nodes that hand back").  Set after open(). */
        bool hands_back;

        /* --- By the driver in open(); constant then, but for `data`, `unit` and `pages`. --- */
        void *data;                     /* the driver's own */
        /* Capacity.  Lowered by nodes.c to option->size, then under the lease lock: to the pages
         * that slabs can name, and to the leased pages when the node has no more. */
        uint64_t pages;
        /* Pages that the driver keeps for itself, not counted in `pages`, out of the size that the
         * user asked for. */
        uint32_t kept;
        uint32_t granule;               /* pages: slabs begin and end at its multiples; 0: any */
        /* Bytes: reads of a part of a page begin and end at its multiples.  0: pages are read
         * whole.  Known at the latest when a link is up. */
        uint32_t unit;
        bool alone;                     /* no second process can use it, so there is no fork */
        /* cut() works, and no transfer sent on a connection arrives once the node has answered on
         * that connection's successor. */
        bool fences;

        /* --- Under the lease lock (slabs.h). --- */
        uint32_t slab_most;             /* pages of the largest slab to ask for */
        uint32_t slabs;                 /* leased so far */
        uint64_t leased;                /* pages in them */
        int silent;                     /* -errno of a lease: the node is not asked again; else 0 */

        /* --- By the I/O side: the node's state.  far_answers() is the summary. --- */
        /* attach() succeeded in this process: poll() and arm() may be called.  A child attaches no
         * node that was drained for its parent. */
        bool attached;
        /* It takes transfers now; always, if not hands_back.  By far_up() and far_down() alone, and
         * cleared in a forked child.  Relaxed: for other threads a hint. */
        _Atomic bool up;
        int64_t down_since;             /* now_ms(); 0: it is up, or was not up yet */
        /* It was up for the process that forked this one, or for the program before this one, so it
         * is to come up here: by now_ms(), until when writes and new slabs wait for it; INT64_MAX:
         * it was not attached yet; 0: it came, or broke.  Relaxed: for other threads a hint. */
        _Atomic int64_t expected_until;
        /* How often it came up and went down without a transfer that ended well (far_pause()).
         * `failed`: a transfer has failed since it came up. */
        _Atomic unsigned barren;
        bool failed;
        unsigned given, writing;        /* transfers that are not over, queued ones too; writes */
        bool refused;                   /* a write has failed there, and request.c has said so */
        /* Nothing more is asked of it (drain.c); then it becomes lost, without a page.  Relaxed:
         * for other threads a hint. */
        _Atomic bool is_drained;
        /* By far_lost(): it will not come back.  Stored last, so a thread that reads it has the
         * reason, and whether pages were there. */
        _Atomic bool lost;
        bool lost_pages;
        char why[FAR_WHY];
        bool settled;                   /* outage.c has handled the loss */

        /* --- By the thread of the service vCPU, once: the queues of this process to the node that
         * kern drives by itself (abi_direct.h); NULL: none. --- */
        _Atomic(struct far_direct *) direct;

        /* --- By the I/O side: statistics of this process, in pages but for `breaks`.  Relaxed:
         * other threads only read them. --- */
        _Atomic uint64_t read, written;
        _Atomic uint64_t resent;        /* of these, sent again over a new connection */
        _Atomic uint64_t reread;        /* came wrong, and were read once more */
        _Atomic uint64_t damaged;       /* were wrong then too: lost, or read of another node */
        _Atomic uint64_t dropped;       /* prefetched, and wrong then too: left at the node */
        _Atomic uint64_t retired;       /* never written again: an old write may still arrive */
        _Atomic uint64_t missed;        /* with copies: writes that it missed */
        _Atomic uint64_t breaks;        /* with copies: how often it went down */

        /* --- By any thread: the node drains (drain.h).  Relaxed, as they publish nothing
         * else, but for `noted`: release and acquire. --- */
        _Atomic bool asked;             /* by far_asked(): by its own word to this process */
        _Atomic bool noted;             /* it is in tree_common.draining */
        _Atomic bool stuck;             /* no other node can take its pages */
};

/* The place of a slab on a node. */
struct far_place {
        struct far_node *node;
        /* its first page, in the node's count of leased pages */
        uint64_t first;
        void *data;                     /* the driver's own, from lease() */
        uint64_t word[3];               /* from lease(), for use() in any process of the tree */
};
#define FAR_PLACES SLAB_PLACES
struct far_slab {
        /* entries of place[] below it do not change any more; stored with release */
        _Atomic unsigned places;
        struct far_place place[FAR_PLACES];
};

/* The transfer of one page, or of a part of it, between a frame and a node.  request.c makes it and
 * gives it to the driver of its node.  The driver gives it back by far_done() when the transfer is
 * over, or by far_failed() if it never will be. */
struct far_request {
        enum far_op { FAR_READ, FAR_PREFETCH, FAR_WRITE } op;   /* in this order of urgency */
        uint32_t page;                  /* in its slab */
        const struct far_place *place;
        char *frame;                    /* PAGE_SIZE bytes of the memory given to attach() */
        /* The bytes of the page to move: all, unless op is FAR_READ; then by the node's unit.  They
         * are at this offset of the frame, too. */
        uint16_t offset, len;
        /* by the driver: sent more than once, and the first sending may still arrive */
        bool repeated;
        /* By the driver, of a transfer that is over: the node has the page no more, or could not
         * write it, -errno; else 0.  If it is a write, and the node does not fence, no page is
         * written to the slot again. */
        int error;
        struct far_request *next;       /* for lists of the driver */
        uint64_t cookie[2];             /* the driver's own */
        void *owner;                    /* its struct request (request.h) */
};

/* Processes of the tree that have ended, by their numbers (far_node.member). */
struct far_range { uint64_t first, last; };

/* A driver of remote memory (kind == SLAB_REMOTE) also has the functions from attach on.  post,
 * poll and arm are called by one thread at a time, normally the I/O thread, and never wait.  lease
 * may wait, and may run beside them.
 *
 * Nodes that hand back (far_node.hands_back)
 *
 * A node is down until the driver calls far_up(), at the earliest within attach().  It goes down
 * when a connection breaks; and
 *   NBD: when the server answers a transfer with an error, or when transfers are under way on a
 *     connection and none of them ends for a second;
 *   RDMA: when none of them ends for three seconds, or for half a second and then the node does
 *     not answer on the control connection either;
 *   a disk: when no transfer ends for a second, or one of them does not end for --timeout.
 * Silence is counted between calls of poll(), at most 50 ms each, so a process that did not run
 * blames no node.  Then the driver, within poll() or post():
 *   1. ends all data connections of this process to the node.  From here on no old request touches
 *      a frame.  At the node an old WRITE may still arrive; if the node fences, only before
 *      far_up();
 *   2. calls far_down(), if the node was up;
 *   3. gives back by far_failed() each request that it has taken and that is not over;
 *   4. connects again in the background, from poll(), for as long as it takes;
 *   5. calls far_up() when everything is connected and the node has ended the older connections.
 * Only proof ends the node by far_lost(), as without hands_back: a goodbye, an answer that the
 * pages are gone, or that this process may never come back, or a host that refuses connections.
 * Silence never does, however long.
 *
 * While the node is down, post() takes nothing, lease() and cut() fail at once with -ENOLINK, or
 * within 50 ms if it goes down meanwhile, and use() works.  After far_lost(), post() takes all and
 * gives it back.  attach() in a forked child or after execve waits a second at most.  Then it
 * returns 0, with the node up or down, or an error if there is proof that the node is lost. */
struct far_driver {
        const char *scheme;             /* "mem" for mem:... */
        enum slab_kind kind;
        /* Could o, with `rest` behind its scheme and the colon, name a node?  Looks at the words
         * alone, and comes before open(). */
        int (*check)(const struct node_option *o, const char *rest, char why[FAR_WHY]);
        /* Sets pages and data.  A remote node is connected here, within opt.connect_timeout. */
        int (*open)(struct far_node *n, const char *rest, char why[FAR_WHY]);
        /* Leases one more slab of `pages` pages (at most 1 << SLAB_SHIFT, and within n->pages),
         * which begins at page `first` of the node.  SLAB_MEMORY: fills s.  SLAB_REMOTE: may fill
         * place->data.  Called by one thread at a time. */
        int (*lease)(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages,
                     struct slab *s, struct far_place *place);
        /* Makes a slab that another process of the tree leased usable in this one.  place: as
         * lease() left it, except data.  NULL: lease() does that too. */
        int (*use)(struct far_node *n, struct far_place *place, uint32_t pages);
        void (*close)(struct far_node *n);
        /* Fills in the data that open() needs in the next program of this process to find the slabs
         * of the process tree.  NULL, or false: not possible, the next program must lease again. */
        bool (*keep)(const struct far_node *n, struct far_kept_node *k);
        /* For -v and the statistics: "mem: 4G in this process". */
        void (*describe)(const struct far_node *n, char *text, size_t size);

        /* Makes the frames and bounce pages, [base, base+len), ready for transfers.  Called once,
         * before the first post. */
        int (*attach)(struct far_node *n, char *base, size_t len, char why[FAR_WHY]);
        /* Starts transfers, all of one kind: the first requests of r[], as many as there is room
         * for now.  Returns how many it took. */
        unsigned (*post)(struct far_node *n, struct far_request **r, unsigned count);
        /* Calls far_done() for each transfer that is over; returns how many.  Also handles
         * time-outs and reconnection. */
        unsigned (*poll)(struct far_node *n);
        /* Called before the I/O thread sleeps.  Fills in at most max entries for poll(2), so that
         * the thread wakes at the next completion, and lowers *timeout_ms if the driver has a
         * deadline sooner.  Returns how many entries, or -EAGAIN: poll() has work now. */
        int (*arm)(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms);
        /* How long the I/O thread calls poll() without a completion before it sleeps.  0 if
         * completions come through the host kernel: a spinning thread would only take the CPU from
         * the threads that produce them. */
        unsigned spin_us;
        /* A completion interrupts the thread that called post(), also in a system call of the
         * program: so no thread of the program may call it (--io inline). */
        bool own_thread;
        /* Its system calls want the credentials, or the root, of the thread that opened the node:
         * so a thread of the program that has got others may not call it (--io inline). */
        bool own_rights;
        /* The node is on this host, and keep() gives the next program all that it needs, whatever
         * became of its rights.  So after execve the node is not leased again.  A remote node is,
         * by a process without others in its tree. */
        bool local;
        /* The I/O side is about to stand still, for a fork or for a process that must have one
         * thread: no thread of the driver's own works after that, until the next poll().  NULL: it
         * has none. */
        void (*rest)(struct far_node *n);
        /* In a forked child: closes the inherited copies of the parent's connections, without
         * telling the node.  attach() makes the child's own connections, to the same slabs, when a
         * slab is first needed.  True: the module must be loaded again before that, because its
         * libraries keep state of the parent; so nothing in n->data points into the module.  NULL:
         * this driver cannot. */
        bool (*forked)(struct far_node *n);
        far_sum_fn *sum;                /* far_sum() */
        /* Has the node end all connections of dead members, and refuse new ones.  0: nothing that
         * those members sent can arrive any more.  -ESTALE: likewise, since all data that the
         * node held is gone.  Else -errno with why.  Waits, at most limit_ms.  Any thread, one at a
         * time, the node attached; only if node.fences. */
        int (*cut)(struct far_node *n, const struct far_range *dead, unsigned count,
                   unsigned limit_ms, char why[FAR_WHY]);
        /* Answers a draining node (far_asked()).  moved: this process needs the node no more, and
         * has nothing under way there; its connections end, for good.  Else its pages cannot move.
         * By the thread that calls poll(); never waits.  False: not done yet, to be called
         * again. */
        bool (*answer)(struct far_node *n, bool moved);

        /* Could kern drive queues to the node by itself (abi_direct.h)?  Any thread; the node is
         * attached.  NULL: never. */
        bool (*direct)(const struct far_node *n);
        /* The doorbell of such a queue, by the thread of a vCPU.  0, also if the queue pair is gone
         * meanwhile; -EACCES: the kernel does not let this thread do so, and poll() will. */
        int (*ring)(struct far_node *n, unsigned queue);
};
/* The transfer is over: wakes the vCPUs that wait for it. */
void far_done(struct far_request *r);
/* The transfer will never be over on this node; far_lost() or far_down() has given the reason.
 * Once the driver has returned, outage.c has the request go on. */
void far_failed(struct far_request *r);
/* Only for nodes that hand back (see struct far_driver).  far_up(): the node takes transfers.
 * far_down(): it takes none for now.  Called in turns, far_up() first.  Neither may call the
 * driver. */
void far_up(struct far_node *n);
void far_down(struct far_node *n, const char *why);
/* The node wants this process to move its pages elsewhere.  Any thread; may be repeated. */
void far_asked(struct far_node *n);
/* The node will not come back: records why, and whether pages of the program may be there.  The
 * driver then gives all its transfers back and takes no more.  A node that hands back goes down
 * before. */
void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

extern const struct far_driver far_mem, far_dax;
/* A module defines `const struct far_driver *const far_module[]`, which ends with NULL. */

/* A flag of a node, relaxed: it publishes nothing else. */
static inline bool is_set(const _Atomic bool *flag)
{
        return atomic_load_explicit(flag, memory_order_relaxed);
}

/* A statistic that the I/O side alone counts: relaxed, as other threads only read it. */
static inline void count_one(_Atomic uint64_t *c)
{
        atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

/* Does it take transfers now?  By the I/O side; for others a hint. */
static inline bool far_answers(const struct far_node *n)
{
        return !n->lost && !is_set(&n->is_drained) && is_set(&n->up);
}
/* It does not answer yet, and is expected to: see expected_until.  Any thread: a hint. */
static inline bool far_expected(const struct far_node *n)
{
        int64_t until = atomic_load_explicit(&n->expected_until, memory_order_relaxed);

        return until && !is_set(&n->up) && !n->lost && !is_set(&n->is_drained) && now_ms() < until;
}

/* How long a driver waits before it connects again to a node that went down, in ms: `least`, and
 * twice as long for each further time that the node came up and carried nothing out. */
static inline unsigned far_pause(const struct far_node *n, unsigned least)
{
        /* Relaxed: a hint, also for a thread that is not the I/O side. */
        unsigned barren = atomic_load_explicit(&n->barren, memory_order_relaxed);

        return barren < 2 ? least : least << (barren < 6 ? barren - 1 : 5);
}

/* How long the node may take to answer at open.  Shorter for a node that may have returned: it is
 * asked while the program runs, by a thread for which other threads may wait. */
unsigned far_connect_ms(const struct far_node *n);

#endif
