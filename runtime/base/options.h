/*
 * The settings of this run.
 */
#ifndef VMRUN_OPTIONS_H
#define VMRUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define NODES_MAX 64
#define REPLICAS_MAX 3

/* A far-memory node as the user named it.  (settings/settings.c) */
struct node_option {
        const char *url;                /* without the options that followed it */
        const char *name;               /* of its section in the configuration file, else the url */
        /* where it was named, for messages: "--node mem:4G", "/etc/vmrun.conf:7: node m1" */
        const char *origin;
        const char *keys;               /* the file of keys (common/keys.h); NULL: none */
        const char *client;             /* the name of ours; NULL: there is only one */
        int key_fd;                     /* our key (far/key.h), private; 0: none, or not yet */
        /* rdma: name of the local RDMA device; NULL: by the route to the node */
        const char *device;
        uint64_t size;                  /* bytes of it to use, whole pages; 0: all */
        unsigned weight;                /* share of the slabs, 1 to 1000 */
        unsigned priority;              /* nodes with a higher one are filled first; 0 to 1000 */
        /* Nodes of one domain fail together, as in a rack: no two copies of a page are in it.
         * NULL: the node is its own domain. */
        const char *domain;
        /* rdma: in the local device's table; -1: by the route to the node */
        int gid_index;
        bool overwrite;                 /* dax:, file: also if it has data that is not vmrun's */
        bool returned;                  /* it was drained, and is served again: no long waits */
        /* mem:, dax: as if behind a network: ns, and bytes a second; 0: no delay, no limit */
        uint64_t latency, bandwidth;
        bool card;                      /* and read by way of a network card */
};

/* AUTO: where the card needs no exit for it. */
enum direct_mode { DIRECT_AUTO, DIRECT_ON, DIRECT_OFF };

enum placement { PLACE_WEIGHTED, PLACE_LINEAR, PLACE_FREE };

/* Settings, from the command line (settings/command_line.c) and the configuration file
 * (settings/config_file.c). */
struct options {
        uint64_t cache;                 /* bytes; 0: choose */
        struct node_option nodes[NODES_MAX];    /* in the order given */
        unsigned nnodes;
        enum placement placement;
        unsigned replicas;              /* copies of a page on remote nodes, 1 to REPLICAS_MAX */
        bool replicas_required;         /* fewer nodes than that are an error */
        uint64_t rebuild_rate;          /* of the tree, bytes a second; 0: no limit */
        unsigned timeout_ms;            /* how long a node may be silent before it counts as lost */
        unsigned connect_timeout_ms;    /* how long it may take to answer at start */
        /* which thread moves pages of remote nodes: the I/O thread, or the vCPUs' threads in an
         * exit; AUTO only until the program starts.  Atomic: see io_keep_rights(). */
        _Atomic enum io_mode { IO_THREAD, IO_INLINE, IO_AUTO } io;
        enum direct_mode direct;        /* the fault handler reads pages of nodes by itself */
        uint32_t prefetch;              /* enum lookahead_policy */
        /* pages ahead, 0: the policy chooses; accesses that are looked at */
        unsigned prefetch_window, prefetch_history;
        bool verbose, overcommit, debug;
        bool far;                       /* pages are evicted ahead of need */
        bool control;                   /* there is a control socket */
        bool verify;                    /* sums of pages on remote nodes are checked */
        /* programs that the program executes run under vmrun, too */
        bool follow;
        bool stats;
        const char *stats_file;         /* NULL: stderr */
        bool stats_table;               /* a table there, also if it is no terminal */
        unsigned stats_interval_ms;     /* 0: only at the end */
        const char *profile;            /* the file for the fault profile; NULL: none */
        /* Files; NULL: none.  Of the program that was started alone. */
        const char *record, *replay;
        const char *config;             /* the configuration file that was read; NULL: none */
        enum { CMD_RUN, CMD_CHECK, CMD_STATES } command;
        const char *states_pid;
        char **argv;                    /* PROGRAM [ARG...] */
};
extern struct options opt;

/* Is something to be written when the program ends? */
static inline bool options_report(const struct options *o)
{
        return o->stats || o->profile || o->record;
}

#endif
