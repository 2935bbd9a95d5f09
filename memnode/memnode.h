/*
 * What the parts of memnode share: settings, messages, and the accounts of its clients.
 */
#ifndef MEMNODE_MEMNODE_H
#define MEMNODE_MEMNODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "common/message.h"
#include "memnode/resume.h"

/* Settings, from the command line and the configuration file (options.c). */
struct memnode_options {
        uint64_t size;                  /* bytes to serve */
        uint64_t max_per_client;        /* bytes one client may have */
        /* bytes of a page of the pool; 0: 2 MiB if available, else 4 KiB */
        uint64_t hugepage;
        const char *listen[16];         /* --listen URLs in order */
        unsigned nlisten;
        struct { const char *name; uint64_t size; } export[64];         /* named NBD exports */
        unsigned nexports;
        uint8_t token[64];              /* padded with zeros, as nodeproto.h has it */
        bool have_token, verbose;
        uint32_t grace_ms;              /* how long a vanished client keeps its memory */
        uint32_t drain_ms;              /* how long clients may take to move away, at the end */
        const char *config;             /* the configuration file; NULL: none */
        int socket_mode;                /* of nbd+unix:// sockets; -1: as umask says */
        const char *control;            /* path of the control socket; NULL: none */
        const char *resume;             /* the file of leases that outlive memnode; NULL: none do */
        const char *drain;              /* end the memnode of this control socket; NULL: serve */
        bool check;                     /* tell what this host offers, and end */
};
/* Fixed from the start on, except max_per_client and the times, which SIGHUP may change: other
 * threads read these as relaxed atomics. */
extern struct memnode_options opt;

/* Clients of both protocols have an account: what they hold, and the memory itself.  (account.c)
 * Any thread. */
struct account;
/* name: for the log and the statistics; NULL if there are too many */
struct account *account_open(const char *name);
/* what it still holds goes back to the pool, zeroed */
void account_close(struct account *a);
/* Zeroed memory for a client: 0; -ENOSPC: not free; -EDQUOT: more than a client may have. */
int account_take(struct account *a, uint64_t bytes, char **at);
void account_give(struct account *a, char *at, uint64_t bytes);
/* bytes it may hold in all, as things stand */
uint64_t account_limit(const struct account *a);
/* For the statistics. */
void account_count(struct account *a, uint64_t reads, uint64_t writes, uint64_t read_bytes,
                   uint64_t written_bytes);
void account_print(FILE *to);

/* Listeners.  url: what follows rdma:// or nbd:// (nbd+unix://).  Each has threads of its own from
 * here on; 0, or -errno with a sentence in why that names the thing, the cause and the cure,
 * without the URL. */
/* librdmacm has an rdma_listen() */
int rdma_server_listen(const char *url, char *why, size_t n);
int nbd_listen(const char *url, bool is_unix, char *why, size_t n);
/* Clients are admitted from here on; until then they wait in the queues of listeners. */
void rdma_server_begin(void);
void nbd_begin(void);
/* Before listeners: take over a lease that outlived its memnode (resume_take). */
int rdma_server_take_over(struct resume_lease *l, char *why, size_t n);
int nbd_take_over(struct resume_lease *l, char *why, size_t n);
/* After rdma_server_stop() or nbd_stop() was true: add to list what is still leased to members.
 * 0 or -ENOMEM. */
int rdma_server_kept(struct resume_list *list);
int nbd_kept(struct resume_list *list);
/* Draining: clients are asked to move away, and no lease is made any more.  Then, any number of
 * times: how many processes of clients are waited for; say: one log line for each.  Clients that
 * nobody is connected for are waited for a moment, since a connection may just have broken; those
 * that use no memory yet not at all. */
#define DRAIN_GONE_MS 2000
void rdma_server_drain(void);
void nbd_drain(void);
unsigned rdma_server_waits(bool say);
unsigned nbd_waits(bool say);
/* A clean end: sends GOODBYE to the clients, finishes what is under way, closes.  Returns when that
 * is done or some seconds after timeout_ms.  False: threads are still at work in the pool. */
bool rdma_server_stop(unsigned timeout_ms);
bool nbd_stop(unsigned timeout_ms);
void rdma_server_print(FILE *to);        /* statistics */

#endif
