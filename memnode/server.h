/*
 * The servers: what memnode asks of each of its two protocols.
 */
#ifndef MEMNODE_SERVER_H
#define MEMNODE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "memnode/resume.h"

/* What a server has now, and since the start. */
struct server_figures {
        unsigned connections, leases;
        uint64_t abandoned;             /* leases (RDMA: clients) to which nobody came back */
};

/* The main thread calls them, and count any thread. */
struct server {
        const char *protocol;
        /* Before the listeners: takes over a lease that outlived its memnode (resume_read()). */
        int (*take_over)(struct resume_lease *l, char *why, size_t n);
        /* Listens at a URL of this server, and has threads for it from here on.  0, or -errno with
         * a sentence in why that names the thing, the cause and the cure, without the URL. */
        int (*listen)(const char *url, char *why, size_t n);
        /* Clients are admitted from here on; until then they wait in the queues of listeners. */
        void (*begin)(void);
        /* Draining: clients are asked to move away, and no lease is made any more. */
        void (*drain)(void);
        /* Then, any number of times: how many processes of clients are waited for; say: one log
         * line for each.  A client without connections is waited for during DRAIN_GONE_MS; a client
         * that uses no memory yet, not at all. */
        unsigned (*waits)(bool say);
        /* A clean end: sends GOODBYE to the clients, finishes what is under way, closes.  Returns
         * when that is done or some seconds after timeout_ms.  False: threads are still at work in
         * the pool. */
        bool (*stop)(unsigned timeout_ms);
        /* After stop() was true: adds to list what is still leased to members.  0 or -ENOMEM. */
        int (*kept)(struct resume_list *list);
        /* Last: names in the log the leases that end with memnode.  kept: those of kept() do
         * not. */
        void (*lose)(bool kept);
        void (*print)(FILE *to);        /* statistics; NULL: it has none */
        void (*count)(struct server_figures *f);
};
extern const struct server rdma_server; /* of rdma:// */
extern const struct server nbd_server;  /* of nbd:// and nbd+unix:// */

#define SERVERS 2
extern const struct server *const servers[SERVERS];

#endif
