/*
 * The NBD side of memnode: the protocol's numbers (fixed newstyle, structured replies), and the
 * interfaces of its parts.
 *
 *   listen.c     listening sockets, the end
 *   serve.c      a thread for each connection
 *   fence.c      the list of connections, and how those end that others replace
 *   thread.c     how threads are made
 *   handshake.c  the protocol before the first command: a state machine on bytes, without sockets
 *   export.c     named exports and leases: which client uses which memory
 *   kept.c       leases that outlive memnode
 *   name.c       the names of leases
 *   transmit.c   the commands
 *
 * All integers of the protocol are big-endian.
 */
#ifndef MEMNODE_NBD_H
#define MEMNODE_NBD_H

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "memnode/members.h"

/* ---- The protocol's numbers ---- */

#define NBD_PORT                "10809"
#define NBD_MAGIC               0x4e42444d41474943ull   /* "NBDMAGIC" */
#define NBD_OPTION_MAGIC        0x49484156454f5054ull   /* "IHAVEOPT" */
#define NBD_OPTION_REPLY_MAGIC  0x0003e889045565a9ull
#define NBD_REQUEST_MAGIC       0x25609513u
#define NBD_SIMPLE_MAGIC        0x67446698u
#define NBD_CHUNK_MAGIC         0x668e33efu

/* both the server's and the client's first flags */
enum { NBD_FIXED_NEWSTYLE = 1, NBD_NO_ZEROES = 2 };

enum nbd_option {
        NBD_OPT_EXPORT_NAME = 1,
        NBD_OPT_ABORT,
        NBD_OPT_LIST,
        NBD_OPT_STARTTLS = 5,
        NBD_OPT_INFO,
        NBD_OPT_GO,
        NBD_OPT_STRUCTURED_REPLY,
        NBD_OPT_LIST_META_CONTEXT,
        NBD_OPT_SET_META_CONTEXT,
};
enum nbd_option_reply {
        NBD_REP_ACK = 1, NBD_REP_SERVER, NBD_REP_INFO,
};
#define NBD_REP_ERR_UNSUP       0x80000001u     /* an option we do not know */
#define NBD_REP_ERR_POLICY      0x80000002u     /* known, but not for you or not now */
#define NBD_REP_ERR_INVALID     0x80000003u     /* makes no sense */
#define NBD_REP_ERR_UNKNOWN     0x80000006u     /* no such export */
#define NBD_REP_ERR_SHUTDOWN    0x80000007u
#define NBD_REP_ERR_TOO_BIG     0x80000009u

enum nbd_info { NBD_INFO_EXPORT, NBD_INFO_NAME, NBD_INFO_DESCRIPTION, NBD_INFO_BLOCK_SIZE };

enum { /* transmission flags */
       NBD_FLAG_HAS_FLAGS = 1,
       NBD_FLAG_SEND_FLUSH = 4,
       NBD_FLAG_SEND_FUA = 8,
       NBD_FLAG_SEND_TRIM = 0x20,
       NBD_FLAG_SEND_WRITE_ZEROES = 0x40,
       NBD_FLAG_SEND_DF = 0x80,
       NBD_FLAG_CAN_MULTI_CONN = 0x100,
       NBD_FLAG_SEND_CACHE = 0x400,
       NBD_FLAG_SEND_FAST_ZERO = 0x800,
};
enum nbd_command {
        NBD_CMD_READ,
        NBD_CMD_WRITE,
        NBD_CMD_DISC,
        NBD_CMD_FLUSH,
        NBD_CMD_TRIM,
        NBD_CMD_CACHE,
        NBD_CMD_WRITE_ZEROES,
};
enum { NBD_CMD_FUA = 1, NBD_CMD_NO_HOLE = 2, NBD_CMD_DF = 4, NBD_CMD_FAST_ZERO = 0x10 };
enum nbd_error { NBD_EINVAL = 22, NBD_ENOSPC = 28, NBD_ESHUTDOWN = 108 };
enum { NBD_CHUNK_DONE = 1 };
enum nbd_chunk { NBD_CHUNK_NONE = 0, NBD_CHUNK_DATA = 1, NBD_CHUNK_ERROR = 0x8001 };

#define NBD_NAME_MAX    4096                    /* of an export, by the protocol */
#define NBD_BLOCK_MIN   1u
#define NBD_BLOCK_WANT  4096u
#define NBD_PAYLOAD_MAX (32u << 20)             /* of one READ or WRITE */

struct nbd_request {
        uint32_t magic;
        uint16_t flags, type;
        uint64_t cookie, offset;
        uint32_t length;
} __attribute__((packed));
struct nbd_simple_reply {
        uint32_t magic, error;
        uint64_t cookie;
} __attribute__((packed));
struct nbd_chunk_header {
        uint32_t magic;
        uint16_t flags, type;
        uint64_t cookie;
        uint32_t length;                        /* of what follows */
} __attribute__((packed));
struct nbd_option_header {
        uint64_t magic;
        uint32_t option, length;
} __attribute__((packed));
struct nbd_option_reply_header {
        uint64_t magic;
        uint32_t option, type, length;
} __attribute__((packed));
_Static_assert(sizeof(struct nbd_request) == 28 && sizeof(struct nbd_simple_reply) == 16 &&
                       sizeof(struct nbd_chunk_header) == 20 &&
                       sizeof(struct nbd_option_header) == 16 &&
                       sizeof(struct nbd_option_reply_header) == 20,
               "as they travel");

/* ---- Names of leases (name.c) ---- */

#define NBD_LEASE_HEX   32
/* Which connection this is: see members.h.  Member 0: the client tells its connections not
 * apart. */
struct nbd_who {
        uint64_t member;
        unsigned link;
        uint32_t generation;
};
struct nbd_lease_name {
        enum nbd_verb {
                NBD_LEASE,                      /* made if it is not there: for any NBD client */
                NBD_CREATE,                     /* made, must not be there: by its first member */
                NBD_JOIN,                       /* by further connections of members */
                NBD_CUT,                        /* ends members, with INFO: see members_cut() */
                NBD_VERBS,
        } verb;
        /* the secret: a client that knows it has the lease */
        char hex[NBD_LEASE_HEX];
        uint64_t size;                          /* LEASE, CREATE */
        uint64_t incarnation;                   /* JOIN, CUT: what CREATE was answered */
        struct nbd_who who;                     /* CREATE, JOIN */
        /* CUT: within the name; nbd_lease_range() takes from it */
        const char *ranges;
        size_t ranges_len;
        const char *token;                      /* within the name; NULL: none */
        size_t token_len;
};
/*
 *   lease-HEX-BYTES
 *   create-HEX-BYTES-MEMBER-LINK-GENERATION
 *   join-HEX-INCARNATION-MEMBER-LINK-GENERATION
 *   cut-HEX-INCARNATION-FIRST.LAST[,FIRST.LAST]...
 *
 * each with -TOKEN behind it or not.  INCARNATION has 16 hexadecimal digits, LINK counts from 1.
 * 0; -ENOENT: no lease name at all; -EINVAL: it begins as one, but is none.
 */
int nbd_lease_parse(const char *name, size_t len, struct nbd_lease_name *l);
/* Takes the next range of members to cut.  False: there is none. */
bool nbd_lease_range(struct nbd_lease_name *l, uint64_t *first, uint64_t *last);

/* ---- Exports (export.c).  Any thread. ---- */

struct account;
struct nbd_export {
        char *base;                             /* constant while a client is attached */
        uint64_t size;
        struct account *account;
        /* Something was written there, or its status was read: by a client that has pages there, or
         * will.  Relaxed, as what follows: it publishes no other data. */
        _Atomic bool used;
};

/* Takes memory for the named exports and starts the thread that frees leases.  More than once is
 * fine.  0, or -errno with a sentence. */
int nbd_exports_open(char *why, size_t n);
/* Ends that thread.  Memory stays where it is: the process is about to end. */
void nbd_exports_close(void);
/* The export of that name, attached: to be detached once.  who: the connection that asks for it;
 * the caller must end stale ones before it answers (nbd_export_current()).  0, or NBD_REP_ERR_...
 * with a sentence in *text. */
uint32_t nbd_export_attach(const char *name, size_t len, struct nbd_export **e, struct nbd_who *who,
                           const char **text);
/* No newer connection of that member and link was admitted, and the member was not cut. */
bool nbd_export_current(struct nbd_export *e, const struct nbd_who *who);
/* What the answer to CREATE says of the export: "incarnation ..."; "" for one without. */
#define NBD_DESCRIPTION 40
void nbd_export_describe(const struct nbd_export *e, char text[NBD_DESCRIPTION]);
/* With --resume: its member's connection breaks because memnode ends (kept.c). */
void nbd_export_await(struct nbd_export *e, const struct nbd_who *who);
/* The grace time of leases that were taken over begins. */
void nbd_begin_grace(void);
/* after the last one, a lease stays for the grace time */
void nbd_export_detach(struct nbd_export *e);
/* the same for a client that ends properly (DISC): after the last one, the lease ends, unless
 * members are awaited */
void nbd_export_leave(struct nbd_export *e);
/* Only the export's size; takes no memory, so a GO may still fail.  *e: NULL, or the lease of
 * which members were cut, attached: the caller must end their connections before it answers. */
uint32_t nbd_export_look(const char *name, size_t len, uint64_t *size, struct nbd_export **e,
                         const char **text);
/* The i-th name of the list; NULL: no more. */
const char *nbd_export_listed(unsigned i);
/* Its clients are members of a process tree: it has a status behind its last byte (nodeproto.h). */
bool nbd_export_has_status(const struct nbd_export *e);
/* No lease is made from here on. */
void nbd_export_drain(void);
/* Leases with members' pages that nobody uses since a moment. */
unsigned nbd_export_just_gone(void);

/* ---- Connections as far as others end them (fence.c).  Any thread. ---- */

#define NBD_CONNECTIONS_MAX 288                 /* at one time */
struct nbd_fenced {
        int fd;                                 /* its socket */
        struct nbd_export *e;                   /* NULL: it uses none */
        struct nbd_who who;                     /* guarded by fence.c's lock once e is set */
        /* Set under that lock.  Relaxed: the thread that sets it waits until this connection's
         * thread has left, under the same lock. */
        _Atomic bool cut;
        /* Its member has said that it cannot move away.  Relaxed. */
        _Atomic bool stays;
        struct nbd_fenced *next;
};
/* Into the list, with fd.  False: there are too many. */
bool nbd_fence_enter(struct nbd_fenced *c);
/* Leaves the export, closes the socket, and takes the connection out of the list.  Its thread's
 * last call. */
void nbd_fence_exit(struct nbd_fenced *c);
/* nbd_export_attach(), and the end of the connections that this one replaces. */
uint32_t nbd_fence_attach(struct nbd_fenced *c, const char *name, size_t len, const char **text);
/* The connection uses its export no longer.  goodbye: it ends properly. */
void nbd_fence_leave(struct nbd_fenced *c, bool goodbye);
/* After nbd_export_look() cut members of this lease: ends their connections, and detaches it. */
uint32_t nbd_fence_cut(struct nbd_export *e, const char **text);
bool nbd_fence_is_cut(const struct nbd_fenced *c);
/* Waits up to ms for all connections to end; how many are left. */
unsigned nbd_fence_wait(unsigned ms);
/* Members of leases with pages that have neither moved nor said that they cannot; say: is called
 * with a connection of each. */
unsigned nbd_fence_members(void (*say)(const struct nbd_fenced *c));
/* shutdown() of the sockets of members. */
void nbd_fence_break(void);
/* shutdown() of all sockets. */
void nbd_fence_shut(int how);

/* ---- The handshake (handshake.c).  One thread a handshake. ---- */

struct nbd_handshake_ops {
        /* Called with a name as the client sent it (no NUL at its end).  0, with a description of
         * the export or "", or NBD_REP_ERR_... with a sentence. */
        uint32_t (*attach)(void *ctx, const char *name, size_t len, uint64_t *size,
                           const char **text);
        uint32_t (*look)(void *ctx, const char *name, size_t len, uint64_t *size,
                         const char **text);
        /* the client could not be told that it is attached */
        void (*detach)(void *ctx);
        const char *(*listed)(void *ctx, unsigned i);
        /* 0 or -errno; the handshake ends if it fails */
        int (*send)(void *ctx, const void *data, size_t len);
};
enum nbd_handshake_end {
        NBD_HS_GOING,                           /* more bytes, please */
        NBD_HS_ATTACHED,                        /* commands follow */
        NBD_HS_GOODBYE,                         /* the client has ended the handshake */
        NBD_HS_BROKEN,                          /* not the protocol, or send failed */
};

/* of an option's data: a name and a list of information requests; more is skipped and refused */
#define NBD_OPTION_MAX  8192
struct nbd_handshake {
        const struct nbd_handshake_ops *ops;
        void *ctx;
        enum nbd_handshake_end end;
        const char *broken;                     /* why, with NBD_HS_BROKEN */
        bool structured;                        /* agreed on */
        /* its own */
        enum { NBD_HS_FLAGS, NBD_HS_HEADER, NBD_HS_DATA, NBD_HS_SKIP } state;
        /* the option under way, and how many of its bytes are still to be skipped */
        uint32_t client_flags, option, length;
        /* bytes in buf, and how many the state wants there */
        size_t have, need;
        unsigned options;                       /* so far */
        uint8_t buf[NBD_OPTION_MAX];
};
/* Sends the greeting. */
void nbd_handshake_start(struct nbd_handshake *h, const struct nbd_handshake_ops *ops, void *ctx);
/* Takes bytes of the client until they or the handshake end; returns how many it took. */
size_t nbd_handshake_input(struct nbd_handshake *h, const uint8_t *in, size_t len);

/* ---- Commands (transmit.c).  One thread a connection. ---- */

struct nbd_link {
        int fd;
        struct nbd_export *e;
        bool structured;
        /* the lease outlives memnode: when that ends, the connection breaks without a word */
        bool kept;
        const _Atomic bool *stopping;           /* new requests are answered with NBD_ESHUTDOWN */
        /* no request is served any more, not even one that was received before */
        const _Atomic bool *cut;
        /* of an export with a status: clients are asked to move; this one has said that it
         * cannot */
        const _Atomic bool *draining;
        _Atomic bool *stays;
};
/* Serves until the client ends; `ahead`: bytes that came after the handshake.  0: it ended properly
 * (DISC); -errno; -EPROTO: not the protocol. */
int nbd_transmit(const struct nbd_link *l, const uint8_t *ahead, size_t len);
/* bytes a connection reads ahead at most, and so the most that ahead may be */
#define NBD_RECEIVE (64u << 10)

/* ---- Threads (thread.c) ---- */

/* Starts a thread that takes no signals: they are for the main thread.  0 or -errno. */
int nbd_thread(pthread_t *id, void *(*main_)(void *), void *arg, bool detached);

/* ---- Connections (serve.c) ---- */

struct sockaddr_storage;
/* Takes over a new connection.  Any thread. */
void nbd_welcome(int fd, const struct sockaddr_storage *from, unsigned len);
/* New connections are refused from here on, and requests answered with NBD_ESHUTDOWN. */
void nbd_refuse(void);
/* Then: ends all connections.  False: threads are still at work some seconds after timeout_ms. */
bool nbd_end_connections(unsigned timeout_ms);

/* ---- Big-endian numbers at any address ---- */

static inline uint16_t nbd_get16(const void *p)
{
        uint16_t v;
        memcpy(&v, p, sizeof(v));
        return be16toh(v);
}
static inline uint32_t nbd_get32(const void *p)
{
        uint32_t v;
        memcpy(&v, p, sizeof(v));
        return be32toh(v);
}
static inline uint64_t nbd_get64(const void *p)
{
        uint64_t v;
        memcpy(&v, p, sizeof(v));
        return be64toh(v);
}
static inline void nbd_put16(void *p, uint16_t v) { v = htobe16(v); memcpy(p, &v, sizeof(v)); }
static inline void nbd_put32(void *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, sizeof(v)); }
static inline void nbd_put64(void *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, sizeof(v)); }

#endif
