/*
 * nbd://, nbds:// and nbd+unix://: limits and types that the parts of the driver share.
 *
 *   driver.c     the driver's functions: open, lease, close, poll, arm
 *   data.c       transfers
 *   link.c       one connection, from the socket to the first transfer, as a state machine that
 *                never waits
 *   export.c     whether an export can be used, and by how large commands
 *   tls.c        how TLS begins on one
 *   target.c     the URL: host and its addresses, port, socket, export
 *   node.c       the links of a node together: made, brought up, freed
 *   trouble.c    when links fail: time-outs, the loss of the node
 *   claim.c      how an export that is no lease becomes this vmrun's alone
 *   lease.c      leases of memnode, by the names of docs/protocol.md
 *   lease_cut.c  how dead processes of the tree are cut off from a lease
 *   status.c     memnode's status: whether it is draining
 *   settings.c   the user's settings for a node
 */
#ifndef VMRUN_FAR_NBD_H
#define VMRUN_FAR_NBD_H

#include <errno.h>
#include <libnbd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "common/hostport.h"
#include "far/node.h"
#include "nodeproto.h"

/* one each for FAR_READ, FAR_PREFETCH and FAR_WRITE, if the server can share an export */
#define NBD_LINKS     3
#define NBD_DEPTH     128       /* transfers in flight on a link */
/* on a link that demand reads share a prefetch or a write is posted only while fewer commands are
 * under way: demand reads would wait behind it */
#define NBD_BACKGROUND 16
#define NBD_RUN       32        /* pages of neighbouring slots that are written by one command */
/* pages that are read ahead by one command: fewer, since the first page arrives with the last */
#define NBD_AHEAD     16
#define NBD_COPIES    8         /* commands under way on a link that need a copy of their pages */
#define NBD_LOOK_MS   2         /* between two looks whether TLS is up */
#define NBD_TICK_MS   250       /* how often time-outs are looked at; see nbd_clock() */
/* between two looks at the clock; more than this is our own pause, not the server's silence */
#define NBD_GAP_MS    1000
/* Tick and gap of a node that hands back.  The tick is shorter, so that time is not lost. */
#define NBD_SOON_MS   40
#define NBD_STEP_MS   50
/* without an answer, while transfers are under way: the node is down */
#define NBD_SILENT_MS 1000
/* how long attach() of a node that hands back waits for its connections */
#define NBD_JOIN_MS   1000
/* between two attempts to connect again, or to repeat a transfer that the server failed */
#define NBD_PAUSE_MS  100
/* refusals in a row: no server listens any more, so memnode has ended, and its leases with it if it
 * does not keep them */
#define NBD_REFUSALS  8
/* the longest that the end of the program waits until the server has read NBD_CMD_DISC */
#define NBD_GOODBYE_MS 500
#define NBD_ADDRESSES 8         /* of one host name, tried at most */
#define NBD_MARK      64        /* bytes of the mark that count */

/* The user's settings for a node. */
struct nbd_settings {
        uint64_t size;                  /* bytes; 0: not said */
        bool tls;                       /* with a key: nbd_settings_key() */
        unsigned connect_timeout_ms, timeout_ms;
};

union nbd_address {
        struct sockaddr any;
        struct sockaddr_in6 in6;
        struct sockaddr_in in;
        struct sockaddr_un un;
        struct sockaddr_storage room;
};
struct nbd_target {
        char *text;                     /* the URL's parts point into it */
        struct hostport at;             /* TCP */
        const char *socket;             /* path of a unix socket; NULL: TCP */
        /* as the server knows it; NULL: a lease (lease.c) */
        const char *export;
        union nbd_address address[NBD_ADDRESSES];
        socklen_t length[NBD_ADDRESSES];
        unsigned addresses;
        char name[128];                 /* for messages: "m1 port 10809", "socket /run/m1" */
};

/* A process tree's lease. */
struct nbd_lease {
        char secret[33];                /* hexadecimal digits; until it is made, new at each try */
        uint64_t incarnation;           /* 0: it is not made yet */
};
#define NBD_NAME 4096                   /* of an export, with its NUL: the protocol's limit */

struct nbd_slot {                       /* a command under way */
        /* the requests that it carries out, `pages` of them, linked; a demand read is alone */
        struct far_request *r;
        unsigned pages;
        char *copy;                     /* of frames that are not contiguous, else NULL */
        struct nbd_link *link;
        bool sent;                      /* on this connection, or on one before it */
        uint64_t since;                 /* when it was posted, by nbd_clock() */
        int error;                      /* errno of its failure; 0: none yet */
        struct nbd_slot *next;          /* while it is free */
};

/* The thread that begins TLS (tls.c).  Its own until `over`, but for id and runs. */
struct nbd_tls {
        pthread_t id;
        bool runs;
        _Atomic bool over;
        bool apart;                     /* it had a table of descriptors of its own */
        int err;                        /* it could not begin: -errno, and why */
        char says[160];                 /* libnbd's last error in that thread */
};

struct nbd_link {
        struct nbd_node *node;
        enum nbd_state {
                LINK_DOWN,              /* no socket; to be tried at `until` */
                LINK_CONNECTING,        /* the socket waits for its peer */
                LINK_GREETING,          /* libnbd's handshake, up to the choice of an export */
                LINK_PROBING,           /* does the server refuse an export that cannot exist? */
                LINK_CHOOSING,          /* the server looks for the export */
                LINK_CUTTING,           /* memnode ends dead members; LINK_UP when it has */
                /* the mark is written (first link of a node) or read (all others) */
                LINK_MARKING,
                LINK_UP,
        } state;
        struct nbd_handle *h;           /* from LINK_GREETING on */
        /* private; libnbd's from LINK_GREETING on: see nbd_link_close() */
        int fd;
        unsigned address;               /* index of the address that is tried */
        uint64_t tried;                 /* when the last attempt began; nbd_clock() */
        uint64_t until;                 /* nbd_clock() */
        /* since when it has not worked, by nbd_clock(); 0: it works.  Not used if the node hands
         * back. */
        uint64_t trouble;
        int err;                        /* why the last attempt failed, -errno */
        unsigned refused;               /* attempts in a row that found no listener */
        uint64_t shown_out;             /* since when the server closes them; nbd_clock(); 0: not */
        char why[FAR_WHY];
        char words[128];                /* the text of a refusal: the server's own, else libnbd's */
        struct nbd_tls tls;             /* with nbd_settings.tls */
        int answer;                     /* of the step under way: WAITING, 0 or an errno */
        uint32_t generation;            /* of a lease: how often this link has asked for it */
        const char *cut;                /* a link that only has members cut: the name to say */
        char *page;                     /* PAGE_SIZE bytes for the mark */
        bool doubted;                   /* the mark was wrong once, and is read again */
        struct nbd_slot slot[NBD_DEPTH], *free;
        unsigned used;                  /* slots that are not free */
        /* the last answer, or when the first command under way was posted; nbd_clock() */
        uint64_t heard;
        /* NBD_COPIES * NBD_RUN pages: memory beside --cache, and so not one piece for each slot */
        char *room;
        char *spare[NBD_COPIES];        /* pieces of room, of NBD_RUN pages, that no slot has */
        unsigned spares;
        unsigned failed;                /* slots with an error */
        struct far_request *done;       /* over, but not yet given back */
};
#define NBD_WAITING (-1)
/* The last attempt was refused for good: the data there is gone, or this process is not let in. */
static inline bool nbd_link_is_over(const struct nbd_link *l)
{
        return l->state == LINK_DOWN && (l->err == -ESTALE || l->err == -ECANCELED);
}

/* Of link 0. */
struct nbd_status {
        int64_t next;                   /* now_ms(): of the next look */
        unsigned under_way;             /* commands */
        bool stays;                     /* this process cannot move away */
        bool keeps;                     /* the lease outlives an orderly end of memnode */
        char page[NODE_STATUS_BYTES];
};

struct nbd_node {
        struct far_node *far;
        struct nbd_settings set;
        struct nbd_target target;
        char *export;                   /* NULL: a lease */
        bool lease;
        struct nbd_lease given;
        uint64_t asked;                 /* bytes of the lease */
        int lock;                       /* of an export that is not a lease, or -1 */
        bool found;                     /* address[0] is the address that answered */
        bool marked;                    /* the mark has been written; no lease */
        atomic_bool leased, lost;       /* see lost() in trouble.c */
        bool armed;                     /* arm() was called since the last poll() */
        unsigned passes;                /* polls that were not preceded by arm() */
        char mark[NBD_MARK];
        uint64_t bytes;                 /* that can be used; the mark's page is behind them */
        struct nbd_status status;
        /* pages in one command; constant once the first link is up, as commands under way are sent
         * again unchanged */
        unsigned most;
        bool multi;                     /* the server said multi-conn */
        unsigned nlinks;
        struct nbd_link link[NBD_LINKS];
        /* ms, see nbd_clock(); CLOCK_MONOTONIC_COARSE in ms at its last look */
        uint64_t clock, looked;
        uint64_t judged;                /* clock of the last look at time-outs */
};

static inline bool nbd_is_down(const struct far_node *n)
{
        return n->hands_back && !atomic_load_explicit(&n->up, memory_order_relaxed);
}

#endif
