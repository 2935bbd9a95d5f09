/*
 * NBD's numbers and messages (fixed newstyle, structured replies).  All integers of the protocol
 * are big-endian.
 */
#ifndef MEMNODE_NBD_PROTO_H
#define MEMNODE_NBD_PROTO_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

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
#define NBD_REP_ERR_TLS_REQD    0x80000005u
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
/* Big-endian numbers at any address. */

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
