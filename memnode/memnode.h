/*
 * What all parts of memnode use: its settings, and messages.
 */
#ifndef MEMNODE_MEMNODE_H
#define MEMNODE_MEMNODE_H

#include <stdbool.h>
#include <stdint.h>
#include "common/message.h"
#include "memnode/admission/party.h"

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
        bool verbose;
        const char *keys;               /* the file of keys; NULL: clients prove nothing */
        bool insecure;                  /* and may come from other hosts all the same */
        struct party_limits client[64]; /* [client NAME] */
        unsigned nclients;
        uint32_t grace_ms;              /* how long a vanished client keeps its memory */
        uint32_t drain_ms;              /* how long clients may take to move away, at the end */
        const char *config;             /* the configuration file; NULL: none */
        int socket_mode;                /* of nbd+unix:// sockets; -1: as umask says */
        const char *control;            /* path of the control socket; NULL: none */
        const char *resume;             /* the file of leases that outlive memnode; NULL: none do */
        const char *pidfile;            /* the file with memnode's number; NULL: none */
        const char *run;                /* a command that memnode serves; NULL: none */
        const char *stats;              /* the file of figures; NULL: none */
        uint32_t stats_ms;              /* and how often it is written */
        const char *drain;              /* end the memnode of this control socket; NULL: serve */
        bool check;                     /* tell what this host offers, and end */
};
/* Fixed from the start on, except max_per_client and the times, which SIGHUP may change: other
 * threads read these as relaxed atomics.  SIGHUP also has the keys and the limits of clients read
 * again: see keyring.h and party.h. */
extern struct memnode_options opt;

/* Draining waits so long for a client without connections: the last one may just have broken. */
#define DRAIN_GONE_MS 2000

#endif
