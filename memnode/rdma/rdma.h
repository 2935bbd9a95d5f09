/*
 * What the files of the RDMA server share: devices, connections, clients.
 *
 * One thread, rdma_thread() in server.c, owns all of it, so nothing here has a lock.  It handles
 * events of rdma_cm, completions of control connections, and the clock.  What takes long is done by
 * another thread, the worker: see worker.h for what that may touch.
 */
#ifndef MEMNODE_RDMA_H
#define MEMNODE_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include "common/keys.h"
#include "memnode/admission/origin.h"
#include "memnode/members.h"
#include "memnode/rdma/worker.h"
#include "nodeproto.h"

#define DEVICES_MAX     16
#define CLIENTS_MAX     1024
#define STRANGERS_MAX   64              /* control connections that have not said HELLO */
#define DATA_MAX        16              /* data connections a member of a client */
#define MEMBERS_MAX     256             /* of one client, connected at one time */
#define LEASES_MAX      4096            /* a client */
#define DEPTH_MAX       1024            /* transfers in flight a data connection */
#define RECEIVES        4               /* posted at a time, a control connection */
#define SENDS           4
#define REQUESTS_MAX    1000            /* a second: more is a flood */
/* from connecting to HELLO, and for the last messages to be sent */
#define HELLO_MS        5000
#define PROBE_MS        1000            /* between zero-byte WRITEs */
/* a WRITE that has neither completed nor failed by then: the client asked for endless retries */
#define PROBE_LOST_MS   10000

struct device {
        struct ibv_context *verbs;
        struct ibv_device_attr attr;
        /* of the completion queues of control connections */
        struct ibv_comp_channel *channel;
        /* of control connections: nothing in it may be read or written remotely */
        struct ibv_pd *pd;
        struct ibv_cq *idle;            /* of data connections, on which this side posts nothing */
};

struct lease { uint64_t slab; char *at; uint64_t bytes; struct ibv_mr *mr; struct lease *next; };

struct client {
        uint64_t id;                    /* random, never 0 */
        uint8_t secret[NODE_SECRET];
        char name[NODE_NAME_MAX];
        struct account *account;
        struct party *party;            /* for whom it counts; NULL: for nobody (resume.h) */
        /* Of its own leases and data connections only.  After memnode was restarted NULL, as the
         * registrations of its leases are, until its first connection says which device it is. */
        struct device *device;
        struct ibv_pd *pd;
        /* Not NULL: the worker registers its leases with this device, and has pd and leases. */
        struct device *coming;
        bool attached;                  /* it could */
        struct job attach, end;
        struct lease *leases;
        unsigned nleases;
        uint64_t bytes;                 /* of all leases */
        uint64_t last_slab;
        uint32_t restarts;              /* of memnode, that its leases have outlived (kept.c) */
        struct members members;
        /* control connections, one a member; 0: the client is gone, since gone_at */
        unsigned controls;
        uint64_t gone_at;               /* ms, of now_ms() */
        bool answered;                  /* its last member had moved, or could not */
        struct client *next;
};

struct connection {
        struct rdma_cm_id *id;          /* its context is this connection */
        struct device *device;
        enum node_kind kind;
        /* NULL: control without HELLO, or after the end of its client */
        struct client *client;
        /* of the client: the process at the other end.  A data connection has the generation of
         * its control connection. */
        uint64_t member;
        uint32_t generation;
        char peer[64], origin[ORIGIN_TEXT];     /* for the log */
        bool established, closing;      /* closing: its last messages are being sent */
        /* only `next` is still valid, until connections_reap() */
        bool ended;
        uint64_t deadline;              /* ms: for HELLO, or for closing */
        /* control only */
        struct party *party;            /* it counts for; NULL: for nobody */
        /* by which a connection without HELLO has proved itself, no bytes: none was needed; then
         * overwritten */
        struct key key;
        struct ibv_cq *cq;
        struct ibv_mr *mr;
        char *buffers;                  /* RECEIVES + SENDS of NODE_MESSAGE_MAX bytes */
        uint32_t request;               /* the number of the one in hand; 0: none */
        struct job *job;                /* of the one that the worker has; NULL: none */
        unsigned sends_busy;            /* bit i: send buffer i is in use */
        bool told;                      /* DRAIN was sent */
        bool answered;                  /* the member has moved, or cannot */
        bool moved;                     /* it has */
        bool probing;                   /* a zero-byte WRITE is under way */
        uint64_t probed_at;             /* ms */
        uint64_t second;                /* and how many requests came in it */
        unsigned requests;
        struct connection *next, *next_ended;
};

extern bool rdma_ending;                /* no new clients */
extern bool rdma_draining;              /* nor leases: clients are asked to move away */

/* For the statistics, which another thread reads: relaxed, no order is needed. */
struct rdma_counts { atomic_uint clients, gone, control, data, leases, refused, waits, abandoned; };
extern struct rdma_counts rdma_counts;

#endif
