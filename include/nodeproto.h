/*
 * The protocol between vmrun and memnode over RDMA.
 *
 * A client makes one control connection and any number of data connections, all to one port.  Each
 * is an RC queue pair set up by rdma_cm.  The private data of a connection request says which kind
 * of connection it is for.  On the control connection both sides SEND messages of the form below; a
 * data connection carries one-sided READs and WRITEs only.
 *
 *   client                                      memnode
 *   connect: NEW, mark of a key            ->
 *                                          <-   reject ECOOKIE, with a cookie
 *   the same with the cookie, proof        ->
 *                                          <-   accept, proof
 *   HELLO nonce, name                      ->
 *                                          <-   WELCOME id, nonce, limits or REFUSED, and the
 *                                               connection ends
 *   connect: DATA, id, cookie, proof       -> once a data connection
 *                                          <-   accept, proof
 *   LEASE bytes                            ->
 *                                          <-   GRANT address, rkey                  or REFUSED
 *   FIND slab                              ->   after memnode was restarted
 *                                          <-   GRANT address, rkey                  or REFUSED
 *   RELEASE slab                           ->
 *                                          <-   DONE                                 or REFUSED
 *   CUT ranges of members                  ->   their connections are ended, for good
 *                                          <-   DONE                                 or REFUSED
 *                                          <-   DRAIN, at any time: move your pages elsewhere
 *   MOVED, or cannot                       -> of this member: memnode need not wait for it
 *                                          <-   DONE
 *   GOODBYE                                -> all its leases are free from here on
 *
 * Each request shows two things (common/proof.h).  A cookie shows that the client gets what is sent
 * to it: memnode keeps nothing of a request before, and says nothing of it in its log.  A cookie is
 * for the address and for some 10 s.  A proof shows that the client knows a secret: a NEW one its
 * key, which may be none; CONTROL and DATA the secret of the client.  The proof covers the
 * request, the address and the queue pair.  So nobody can change it, or use it for another
 * connection, and memnode takes it once.  The acceptance has a proof too: by it the client knows
 * that memnode knows the secret, and has read this request.
 *
 * Neither a key nor a client's secret is ever sent.  Both sides derive the secret from the key, the
 * id, and the nonces of HELLO and WELCOME.  Messages on a connection, and pages, have no proofs.
 *
 * After a broken connection: connect again with private data CONTROL and the id of WELCOME.  If
 * memnode still knows the client (it keeps one for a grace time), it accepts, and all grants stay
 * as they were; the data connections are made again.  HELLO is not repeated.
 *
 * A memnode that keeps leases over its restart (--resume, WELCOME's `keeps`) knows its clients
 * again.  Slabs have other addresses and keys then.  So the acceptance of a connection says, in
 * `generation`, how many restarts its client has outlived.  A grant is good as long as `generation`
 * is the number at the time of the grant; after that the client asks for the grant by FIND, before
 * it uses the slab.  When such a memnode ends, it says GOODBYE only to clients whose memory it does
 * not keep.
 *
 * A client may be several processes, which share its leases: the children of a program that forked.
 * Each has a control connection and data connections of its own, told apart by the `member` in the
 * private data.  A control connection is admitted if its `generation` is above all that its member
 * had before; it ends the older connections of that member, control and data.  A data connection
 * names the generation of the control connection that it belongs to, and is admitted as long as
 * that connection is the newest.  A member that was CUT is admitted never again.  docs/protocol.md
 * has the reason.  A client is gone when its last member is; GOODBYE from any member ends the whole
 * client.
 *
 * The client has one request under way at a time.  memnode may SEND GOODBYE at any time: it is
 * about to end.  DRAIN says that memnode will end once all members have answered or --drain-timeout
 * is over.  memnode also sends DRAIN to a member that connects meanwhile, and refuses LEASE and
 * HELLO.  A connection request that cannot be accepted is rejected by rdma_cm, also with private
 * data, because rdma_cm itself carries only a number.  The rejection of a request of another
 * version says the length that the request said, so that older clients read which version this is.
 *
 * Integers are little-endian.  rdma_cm pads private data with zeros, and both sides may find more
 * bytes than were sent: only `length` says how much there is.
 */
#ifndef VMRUN_NODEPROTO_H
#define VMRUN_NODEPROTO_H

#include <stdint.h>

#define NODE_MAGIC      0x4e4d4d56u     /* "VMMN" */
#define NODE_VERSION    6
#define NODE_PORT       7471
#define NODE_SECRET     16
#define NODE_PROOF      16
#define NODE_NONCE      16
#define NODE_NAME_MAX   64
#define NODE_TEXT_MAX   160
#define NODE_MESSAGE_MAX 512            /* receive buffers are that large */

/* Private data of a connection request, its acceptance or its rejection.  In all versions it begins
 * with magic, version and length. */
struct node_private {
        uint32_t magic;
        uint16_t version;
        uint16_t length;                /* sizeof(struct node_private) */
        uint16_t kind;                  /* enum node_kind; in a rejection enum node_error */
        /* DATA: the most transfers that the client keeps in flight; in the acceptance: the most
         * that memnode allows */
        uint16_t depth;
        /* from 1 on; in the acceptance: restarts of memnode that the client has outlived */
        uint32_t generation;
        /* the process of the client: a number from 1 on that no other process of this client ever
         * has */
        uint64_t member;
        uint64_t id;                    /* of the client; NEW: the mark of a key, 0: none */
        uint8_t  proof[NODE_PROOF];     /* of a rejection zero, as nobody may have a secret then */
        /* 0: none yet; in a rejection as ECOOKIE, and in the acceptance: one to ask with */
        uint64_t cookie;
};
enum node_kind { NODE_CONTROL = 1, NODE_DATA = 2, NODE_NEW = 3 };

/* The header of every message. */
struct node_header {
        uint32_t magic;
        uint16_t version;
        uint16_t type;                  /* enum node_type */
        /* of the whole message, header included: exactly the size of its struct */
        uint32_t length;
        /* The client counts its requests, from 1 on.  An answer has the number of its request, any
         * other message 0.  So the client knows an answer for which it no longer waits. */
        uint32_t request;
};
enum node_type {
        NODE_HELLO = 1,
        NODE_WELCOME,
        NODE_REFUSED,
        NODE_LEASE,
        NODE_GRANT,
        NODE_RELEASE,
        NODE_DONE,
        NODE_GOODBYE,
        NODE_CUT,
        NODE_DRAIN,
        NODE_MOVED,
        NODE_FIND,
};

/* Why a request was refused; the text is for people. */
enum node_error {
        NODE_EPROTO = 1,                /* a message that makes no sense; the connection ends */
        NODE_EVERSION,                  /* another version of this protocol */
        NODE_EKEY,                      /* no key, one that memnode does not know, or no proof */
        NODE_ENOSPC,                    /* more than is free */
        NODE_ELIMIT,                    /* more than one client may have */
        /* no such client (any more), or no proof of its secret; no such slab */
        NODE_EUNKNOWN,
        NODE_EBUSY,                     /* too many clients or connections */
        /* an error of memnode's own, as a failed memory registration */
        NODE_EINTERNAL,
        NODE_ECLOSING,                  /* memnode is about to end, or is being drained */
        NODE_ESTALE,                    /* a connection of a newer generation was here before */
        NODE_ECUT,                      /* the member was cut */
        NODE_ECOOKIE,                   /* ask again, with this cookie */
        NODE_ENOKEYS,                   /* a key, and memnode has none */
};

struct node_hello {
        struct node_header h;
        /* bytes the client would like to lease in all, 0: as much as there is; not a promise */
        uint64_t want;
        uint8_t  nonce[NODE_NONCE];     /* random */
        char     name[NODE_NAME_MAX];   /* host and program, for memnode's log; NUL-terminated */
};
struct node_welcome {
        struct node_header h;
        uint64_t id;
        uint8_t  nonce[NODE_NONCE];     /* random */
        uint64_t limit;                 /* bytes this client may lease in all, as things stand */
        uint64_t free;                  /* bytes not leased */
        uint32_t grace_ms;              /* how long a client that vanished keeps its leases */
        /* transfers in flight that a data connection may have at most */
        uint32_t depth;
        uint32_t keeps, pad;            /* NODE_KEEPS or 0 */
        char     name[NODE_NAME_MAX];   /* of this node */
};
struct node_refused {
        struct node_header h;
        uint32_t error, pad;            /* enum node_error */
        char     text[NODE_TEXT_MAX];
};
struct node_lease {
        struct node_header h;
        uint64_t bytes;                 /* a multiple of 4 KiB, at most 1 GiB */
};
struct node_grant {
        struct node_header h;
        uint64_t slab;                  /* its name in RELEASE */
        uint64_t address;               /* for READ and WRITE */
        uint64_t bytes;
        uint32_t rkey, pad;
};
struct node_release {
        struct node_header h;
        uint64_t slab;
};
struct node_find {
        struct node_header h;
        uint64_t slab;
};
#define NODE_RANGES 30
struct node_cut {
        struct node_header h;
        uint32_t count, pad;            /* ranges that are used, at least one */
        struct node_range { uint64_t first, last; } range[NODE_RANGES];
};
struct node_moved {
        struct node_header h;
        /* 1: this member needs nothing of this node any more; 0: it cannot move */
        uint32_t moved, pad;
};
struct node_plain { struct node_header h; };    /* DONE, DRAIN, GOODBYE */

/*
 * Over NBD memnode cannot send anything unasked.  A lease with members (memnode/nbd/name.h) has a
 * status behind its last byte instead, which a member READs now and then, from its beginning: a
 * byte of enum node_status, a byte that is NODE_KEEPS or 0, then zeros.  By a WRITE there a member
 * says that it cannot move its pages, by NBD_CMD_DISC that it has moved them.
 */
#define NODE_STATUS_BYTES 512
enum node_status { NODE_SERVES, NODE_DRAINS };
/* Also in WELCOME, over RDMA: at an orderly end memnode writes the lease to a file, and serves it
 * again when it is started.  So the pages of the lease may still exist while no memnode listens. */
#define NODE_KEEPS 1

_Static_assert(sizeof(struct node_private) == 56, "rdma_cm carries 56 bytes of private data");
_Static_assert(sizeof(struct node_refused) <= NODE_MESSAGE_MAX &&
                       sizeof(struct node_hello) <= NODE_MESSAGE_MAX &&
                       sizeof(struct node_cut) <= NODE_MESSAGE_MAX &&
                       sizeof(struct node_moved) <= NODE_MESSAGE_MAX &&
                       sizeof(struct node_welcome) <= NODE_MESSAGE_MAX,
               "every message fits a receive buffer");

#endif
