/*
 * rdma:// nodes: types that the parts of the driver share.
 *
 *   driver.c     the driver's functions: open, lease, close, describe
 *   settings.c   the settings of a node, from vmrun's options
 *   address.c    the URL, name service, the source address of a chosen device
 *   link.c       one connection of rdma_cm: address, route, queue pair, connect; never waits
 *   words.c      why a connection failed, as text
 *   device.c     the device: its protection domain, channels, registered memory, hidden descriptors
 *   control.c    the control connection: messages of nodeproto.h, keeping it up
 *   find.c       where slabs are after memnode was restarted with them
 *   data.c       the data connections: open and close, post, poll, arm
 *   queue.c      one data connection: from requests to work requests, and back
 *   run.c        which requests go in one work request
 *   pace.c       how much background the device has at a time, so that a demand read need not
 *                wait for it
 *   direct.c     queue pairs that kern drives by itself: made, looked after, taken down
 *   card.h       what differs between the cards of such queue pairs:
 *   rxe.c        soft-RoCE, and rings.c: where its rings are
 *   mlx5.c       ConnectX cards
 *   silence.c    how long nothing may end, and when the node is asked whether it is there
 *   forked.c     a forked child: away from its parent's connections
 *   member.c     joins with connections of its own: a forked child, a program after execve
 *   recover.c    the data connections: made, and when one breaks: silence, reconnection, requests
 *                under way posted again, or handed back
 *
 * Two threads run this code.  The data connections belong to the thread that calls post, poll and
 * arm ("the I/O thread"), without a lock.  The control connection belongs to the thread that holds
 * its lock: lease() holds it until it is answered; the I/O thread only tries it, so it never waits
 * for lease().  The thread that holds the lock advances the control connection (control_step), so
 * either thread alone can repair it.
 *
 * The data connections belong to one control connection at a time.  A connection of either kind
 * that breaks takes all others with it, and they are made again in the order of the protocol,
 * control first.  The two sides communicate by numbers that only grow: the control connection has a
 * generation (control.up), and the I/O thread stores the generation that it found broken
 * (control.broken).
 */
#ifndef VMRUN_RDMA_H
#define VMRUN_RDMA_H

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "abi_direct.h"
#include "common/clock.h"
#include "common/hostport.h"
#include "common/keys.h"
#include "far/node.h"
#include "nodeproto.h"

/* ---- settings ---- */

struct rdma_settings {
        uint64_t size;                  /* the most bytes to use; 0: all */
        uint32_t timeout_ms;            /* tolerated silence */
        uint32_t connect_timeout_ms;
        const char *device;             /* NULL: by the routing table */
        int gid_index;                  /* of the device; -1: chosen */
        struct key key;                 /* without a name: none */
        const char *program;            /* for memnode's log */
};

/* ---- addresses ---- */

#define RDMA_HOST_MAX HOSTPORT_HOST
#define RDMA_ADDRESSES 8

union rdma_sockaddr { struct sockaddr sa; struct sockaddr_in in; struct sockaddr_in6 in6; };

/* ---- one connection ---- */

enum rdma_failure {
        FAIL_NONE,
        FAIL_SILENT,                    /* no answer, no route, broken: it may work again */
        FAIL_DEAF,                      /* the host answers, but no memnode listens */
        FAIL_UNKNOWN,                   /* memnode does not know this client (any more) */
        FAIL_COOKIE,                    /* memnode gave another cookie: ask again at once */
        FAIL_FINAL,                     /* no use in trying again */
};

/* Memory of a ring, as rxe's library has mapped it. */
struct rdma_ring { void *at; size_t size; };
struct rdma_rings { struct rdma_ring send, done; };

struct rdma_node;
struct rdma_link {
        struct rdma_node *node;
        struct rdma_event_channel *channel;     /* for its events; not owned by the link */
        /* for its completions; not owned by the link, made with the device */
        struct ibv_comp_channel **comp;
        enum {
                LINK_NONE, LINK_ADDRESS, LINK_ROUTE, LINK_CONNECT, LINK_UP, LINK_FAILED,
                LINK_AGAIN              /* to be started again, with another cookie */
        } state;
        struct rdma_cm_id *id;          /* owned by the link, as are its QP and: */
        struct ibv_cq *cq;
        uint32_t send, recv, sge;       /* size of the queues */
        /* Makes its queue pair, which is one for kern to drive; NULL: any other. */
        const struct rdma_card *card;
        /* Called after the QP is made and before it is connected: posts receives.  NULL: nothing to
         * do. */
        int (*ready)(struct rdma_link *l);
        /* private data of the connection request; cookie and proof are filled in last */
        struct node_private ask;
        unsigned cookies;               /* that were asked for since the start */
        uint16_t depth;                 /* allowed by memnode */
        uint32_t restarts;              /* of memnode, that this client has outlived */
        uint8_t reads;                  /* outstanding READs that both devices can do */
        enum rdma_failure failure;
        char why[FAR_WHY];              /* LINK_FAILED: a sentence */
};

/* ---- the device ---- */

#define RDMA_POOL_PAGES 256

struct rdma_device {
        struct ibv_context *verbs;      /* owned by librdmacm, which never closes it */
        struct ibv_pd *pd;
        struct ibv_comp_channel *control_comp, *data_comp;
        struct ibv_device_attr attr;
        uint8_t port;
};
struct rdma_memory {
        struct ibv_mr *mr;              /* covers all frames, or the pool */
        char *base;                     /* of the frames; NULL: attach() has not come so far */
        size_t len;
        /* NULL: the frames are registered; else pages to copy through */
        char *pool;
};

/* ---- the control connection ---- */

#define CONTROL_RECEIVES 8

union rdma_message {
        struct node_header h;
        struct node_hello hello;
        struct node_welcome welcome;
        struct node_refused refused;
        struct node_lease lease;
        struct node_grant grant;
        struct node_release release;
        struct node_find find;
        struct node_cut cut;
        struct node_moved moved;
        struct node_plain plain;
        char bytes[NODE_MESSAGE_MAX];
};

struct rdma_control {
        /* Guards the fields below, except the atomics. */
        pthread_mutex_t lock;
        struct rdma_link link;
        /* set by open: any thread may wait for its descriptor */
        struct rdma_event_channel *channel;
        union rdma_message *buffers;    /* CONTROL_RECEIVES to receive, one to send */
        struct ibv_mr *mr;
        enum { CONTROL_DOWN, CONTROL_CONNECTING, CONTROL_UP } state;
        uint64_t id;                    /* 0: memnode has not said WELCOME yet */
        uint8_t secret[NODE_SECRET];
        unsigned generation;            /* of the last attempt to connect; from 1 on */
        unsigned deaf;                  /* attempts in a row that found no listener */
        /* ms: start of the last attempt, of the next one, end of this one */
        int64_t started, next, deadline;
        bool sending;                   /* the device uses the send buffer */
        bool probing;                   /* a WRITE of no bytes is under way */
        int64_t probed;                 /* ms: when the last one began, or the connection came up */
        uint32_t asked;                 /* the number of the last request */
        bool answered;                  /* answer is valid */
        /* the number of MOVED, 0: none was sent; and on which generation */
        uint32_t moved;
        unsigned moved_on;
        struct rdma_grant *finding;     /* memnode was asked where this slab is; NULL: none */
        union rdma_message answer;
        char why[FAR_WHY];              /* the last failure; with lost: the final sentence */
        bool gone;                      /* with lost: the data that the node held is gone */

        /* The generation that is up, 0: none.  Stored with release after id, QP, grants and all are
         * in place; the I/O thread loads it with acquire to know when and for what to make data
         * connections. */
        atomic_uint up;
        /* The I/O thread asks whether the node is there: a WRITE of no bytes is wanted now; and how
         * many have been answered.  Relaxed: they publish no other data. */
        atomic_bool ask;
        atomic_uint answers;
        /* Written by the I/O thread: generations up to this one are broken.  Read by the thread
         * that holds the lock.  Relaxed: it publishes no other data. */
        atomic_uint broken;
        /* The node will not come back.  Stored with release after `why`, which does not change any
         * more; loaded with acquire. */
        atomic_bool lost;
};

/* ---- the data connections ---- */

#define DATA_QUEUES   3                 /* by far_op */
#define DATA_DEPTH    128               /* requests in flight on each */
#define DATA_SGE      16
#define DATA_AHEAD    8                /* prefetches in one READ: its pages come all at once */
#define DATA_CHAIN    64                /* requests in one ibv_post_send */
#define DATA_SIGNAL   8                 /* one WRITE in this many is signaled */
#define DATA_WC       16
#define DATA_ATTEMPT_MS 1500            /* to make all of a kind: of these, or of kern's own */

/* address, rkey, restarts: changed by find.c, with control's lock.  [I] They are used on a data
 * connection only if `restarts` is the link's.  Relaxed: they are there before a connection for
 * which they are right is up (control.up publishes them, or place_add() does); and the connections
 * for which the older values were right have ended with the older memnode. */
struct rdma_grant {
        uint64_t slab, bytes;
        _Atomic uint64_t address;
        _Atomic uint32_t rkey, restarts;
        struct rdma_grant *next;
};

struct rdma_queue {
        struct rdma_link link;
        /* Requests that are not over, oldest first: a QP completes in order, and so does this list.
         * Those from `unsent` on wait to be posted.  A request is in one list, once, until
         * far_done(). */
        struct far_request *head, **tail, *unsent;
        unsigned count, depth;          /* in the list; at most */
        /* requests posted on this connection, and over; a wr_id is the value of sent after it */
        uint64_t sent, done;
        struct ibv_wc wc[DATA_WC];      /* completions that arm() found */
        int nwc;
        bool armed;                     /* the next completion makes an event on the channel */
        char **spare;                   /* free pages of the pool */
        unsigned nspare;
        uint64_t seen;                  /* done when the watchdog last looked */
        /* when `done` last changed, or nothing was under way; by rdma_data.ran */
        int64_t moved;
};

/* See pace.c.  Times are in ticks of the TSC. */
struct rdma_pace {
        /* pages of each kind of background posted at a time; 0: not known yet */
        unsigned window;
        unsigned good;                  /* good samples in a row */
        /* a demand read is over since the last background page was posted */
        bool owed;
        uint64_t best;                  /* latency of an undisturbed demand read */
        uint64_t last;                  /* when a demand read was last asked for */
        /* 0, or the earliest time at which the measured demand read may have been asked for */
        uint64_t asked;
        uint64_t done;                  /* background pages that were over then */
        /* The last turns of the I/O thread, newest first: when they ended (0: unknown, it slept),
         * background pages over by then. */
        struct { uint64_t end, done; } turn[2];
};

/* See silence.c.  Times are by rdma_data.ran. */
/* the node was asked whether it is there: when, and control.answers before */
struct rdma_silence { bool asking; int64_t asked; unsigned answers; };

struct rdma_data {
        struct rdma_event_channel *channel;
        struct rdma_pace pace;
        struct rdma_queue q[DATA_QUEUES];
        enum { DATA_DOWN, DATA_CONNECTING, DATA_UP } state;
        /* of the control connection to which the data connections belong */
        unsigned generation;
        int64_t deadline, looked;       /* end of the attempt; when the clock was last read; ms */
        int64_t ran;                    /* ms, without the time in which this process was stopped */
        /* of these since a connection broke */
        int64_t silence;
        struct rdma_silence asks;
        bool progress;                  /* a request has completed on these connections */
        /* arm() was called: channels may have events */
        bool slept;
        /* far_lost() was called: nothing is under way, or will be */
        bool lost;
        unsigned looks;                 /* calls of poll since then */
        char why[FAR_WHY];              /* the last failure */
        struct ibv_send_wr wr[DATA_CHAIN];
        struct ibv_sge sge[DATA_CHAIN];
        /* counters; read by describe() without a lock, so atomically */
        uint64_t copies, reconnections, merged;
        bool made;                      /* they were up once */
};

/* ---- queue pairs that kern drives by itself, see direct.c ---- */

struct rdma_direct {
        enum {
                RDMA_DIRECT_NONE, RDMA_DIRECT_CONNECTING, RDMA_DIRECT_UP,
                RDMA_DIRECT_GIVEN_UP            /* for a while, until `deadline` */
        } state;
        bool begun, shown;              /* card's begin(); the VM has all rings */
        unsigned generation;            /* of the data connections to which they belong */
        int64_t deadline;               /* ms: end of the attempt, or of the pause */
        uint64_t came;                  /* READs when they became UP */
        unsigned barren;                /* breaks in a row, after READs of which none came */
        bool again;                     /* the attempt follows one that lacked a valid cookie */
        unsigned failed;                /* attempts in a row */
        struct rdma_link link[DIRECT_QUEUES];
        struct rdma_rings rings[DIRECT_QUEUES];         /* rxe */
        struct rdma_mlx5 *mlx5;                         /* mlx5.c */
        /* Completions, and sleeps of vCPUs, when the watchdog last looked. */
        uint32_t seen[DIRECT_QUEUES], slept[DIRECT_QUEUES];
        /* As of struct rdma_queue; and when vCPUs last slept. */
        int64_t moved[DIRECT_QUEUES], polled[DIRECT_QUEUES];
        uint32_t posted, over;          /* of all queues, for the pace of the background */
        /* For threads of vCPUs, which ring.  Relaxed: a ring too many, or for a queue pair that is
         * gone, does no harm.  handle: of the kernel's queue pair, + 1; 0: none.  bells: a set of
         * queues, for which the I/O side has to ring. */
        _Atomic uint32_t handle[DIRECT_QUEUES], bells;
        int fd;                         /* of the device; stored before handle[] */
};

/* ---- all of it ---- */

static inline bool rdma_is_down(const struct far_node *n)
{
        return n->hands_back && !atomic_load_explicit(&n->up, memory_order_relaxed);
}

struct rdma_node {
        struct far_node *n;
        struct rdma_settings set;
        char host[RDMA_HOST_MAX], name[NODE_NAME_MAX];  /* as in the URL; memnode's own name */
        union rdma_sockaddr to, from;   /* from.sa.sa_family AF_UNSPEC: any */
        struct rdma_device dev;
        struct rdma_memory mem;
        struct rdma_control control;
        struct rdma_data data;
        struct rdma_direct direct;
        /* By who opens the device, with control's lock: kern can drive queues to it; and is to.
         * Relaxed: a hint for other threads than that and the I/O side. */
        const struct rdma_card *card;
        _Atomic bool direct_wanted;
        /* The last one that memnode gave, for all links; 0: none yet.  Relaxed: it publishes
         * nothing, and an older one costs a rejection. */
        _Atomic uint64_t cookie;
        uint64_t limit;                 /* bytes to lease in all, from WELCOME */
        uint32_t depth, grace_ms;       /* from WELCOME */
        bool keeps;                     /* memnode knows its clients again after a restart */
        /* Leases so far.  lease() pushes with release; the I/O thread only checks whether there are
         * any. */
        _Atomic(struct rdma_grant *) grants;
};

#endif
