/*
 * What the files of the RDMA server share: devices, connections, clients.
 *
 * One thread, rdma_thread() in server.c, owns all of it, so nothing here has a lock.  It handles
 * events of rdma_cm, completions of control connections, and the clock.  A long operation makes all
 * clients wait: the registration of a lease takes some 0.1 s a GiB and more, and memory may still
 * have to be zeroed.  No client is lost by that: whether a client is alive is judged by the answers
 * of its network card, and only after all answers have been read.
 */
#ifndef MEMNODE_RDMA_H
#define MEMNODE_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include "memnode/members.h"
#include "memnode.h"
#include "rdma/message.h"

#define DEVICES_MAX     16
#define CLIENTS_MAX     256
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

struct client {
        uint64_t id;                    /* random, never 0 */
        uint8_t secret[NODE_SECRET];
        char name[NODE_NAME_MAX];
        struct account *account;
        /* Of its own leases and data connections only.  After memnode was restarted NULL, as the
         * registrations of its leases are, until its first connection says which device it is. */
        struct device *device;
        struct ibv_pd *pd;
        struct lease *leases;
        unsigned nleases;
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
        char peer[64];                  /* for the log */
        bool established, closing;      /* closing: its last messages are being sent */
        /* only `next` is still valid, until connections_reap() */
        bool ended;
        uint64_t deadline;              /* ms: for HELLO, or for closing */
        /* control only */
        struct ibv_cq *cq;
        struct ibv_mr *mr;
        char *buffers;                  /* RECEIVES + SENDS of NODE_MESSAGE_MAX bytes */
        uint32_t request;               /* the number of the one in hand; 0: none */
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
extern struct connection *connections;
extern struct client *clients;

/* For the statistics, which another thread reads: relaxed, no order is needed. */
struct rdma_counts { atomic_uint clients, gone, control, data, leases, refused, waits; };
extern struct rdma_counts rdma_counts;

/* device.c: the device of a context, made known on first use; NULL with a warning. */
struct device *device_get(struct ibv_context *verbs);
struct device *device_at(unsigned i);   /* NULL after the last */
void device_close_all(void);

/* connection.c */
/* From an accepted request on, it is in the list and counted. */
void connection_add(struct connection *c);
/* Frees what control_setup() and rdma_create_qp() made; any part may be missing. */
void connection_release(struct connection *c);
/* Ends a connection, for good and at once; its client is not touched.  A function called from a
 * loop over the connections may end any connection: its memory stays and its `next` stays valid
 * until connections_reap(), which the thread calls where it holds no pointer to a connection. */
void connection_end(struct connection *c);
void connections_reap(void);
/* The connection broke: as connection_end(), and if it was the last control connection of its
 * client, the client is gone from now on. */
void connection_lost(struct connection *c, const char *why);
/* All data connections of a client, or of one member of it. */
void connection_end_data(const struct client *cl);
void connection_end_member(const struct client *cl, uint64_t member);
/* All connections of members that were cut, except `self`.  When it returns, no network card takes
 * anything more from them. */
void connection_end_cut(struct client *cl, const struct connection *self);
/* The client has ended: its control connections belong to no client, and end once all messages sent
 * have arrived. */
void connection_disown(const struct client *cl);

/* connect.c */
void connection_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
                      const struct rdma_conn_param *param);
/* The clock of all control connections. */
void connections_tick(uint64_t now);

/* control.c: messages on control connections.  A function that may end the connection returns
 * whether it still exists. */
/* before accept: queue pair, buffers, receives.  0 or -errno */
int control_setup(struct connection *c);
void control_completions(struct device *d);     /* the device's channel has something */
bool control_tick(struct connection *c, uint64_t now);
bool control_goodbye(struct connection *c);     /* memnode ends */
/* Draining waits for its member. */
bool control_waits(const struct connection *c);
/* ends a connection that is closing, if all messages sent have arrived */
bool control_close(struct connection *c);

/* client.c */
struct lease { uint64_t slab; char *at; uint64_t bytes; struct ibv_mr *mr; struct lease *next; };

struct client *client_new(struct device *d, const char *name, char *why, size_t n,
                          enum node_error *error);
struct client *client_find(uint64_t id, const uint8_t secret[NODE_SECRET]);     /* NULL */
/* Ends its data connections and registrations and gives its memory back, in this order.  Its
 * control connections then belong to no client. */
void client_end(struct client *cl);
void client_tick(uint64_t now);         /* ends clients that have been gone for too long */
/* A client that was taken over has come through this device: registers its leases there.  False: it
 * cannot be done now, with a warning. */
bool client_attach(struct client *cl, struct device *d);
/* 0 or enum node_error */
int client_find_slab(const struct client *cl, uint64_t slab, struct node_grant *g, char *why,
                     size_t n);
int client_lease(struct client *cl, uint64_t bytes, struct node_grant *g, char *why, size_t n);
int client_release(struct client *cl, uint64_t slab, char *why, size_t n);
/* Makes a client whose id, secret, leases and members the caller fills in, and has no connections,
 * device or registrations; NULL with why. */
struct client *client_taken_over(const char *name, char *why, size_t n);
/* Its connections are ended and its registrations gone, but it keeps its leases and is in no list:
 * for kept.c.  False: a registration cannot be ended. */
bool client_detach(struct client *cl);

/* kept.c: clients that outlive memnode */
void clients_begin_grace(void);         /* of those that were taken over */
/* memnode ends, with --resume: ends the connections of clients that will be back, without a word,
 * and puts them by for rdma_server_kept(). */
void clients_keep(void);

#endif
