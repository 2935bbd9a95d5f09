/*
 * A small memory node for the tests of the rdma:// driver: it speaks nodeproto.h, to one client,
 * and makes faults on demand.
 */
#ifndef TEST_RDMA_NODE_H
#define TEST_RDMA_NODE_H

#include <stddef.h>
#include <stdint.h>

struct node_config {
        const char *address;            /* IPv4 */
        uint16_t port;
        size_t bytes;                   /* to lease */
        unsigned depth;                 /* transfers a data connection may have in flight */
        /* What it does wrong from the start: "" nothing; "version" rejects with another version;
         * "stranger" is no memnode; "mute" never answers HELLO; "refuses" does so; "garbage"
         * answers HELLO with something that is no message; "deaf" never answers a request for a
         * connection; "unknown" rejects with NODE_EUNKNOWN; "shrink" allows 8 transfers in flight
         * after a reconnection; "nodata" accepts control connections only; "late" answers CUT only
         * when LEASE has come, just before it answers that; "key" wants a key; "cookies" takes none
         * of its own cookies; "impostor" accepts without a proof. */
        const char *fault;
};
/* Commands, one character each on the descriptor: */
#define NODE_CMD_GOODBYE   'g'          /* say goodbye, end */
#define NODE_CMD_DROP      'd'          /* disconnect the data connections */
#define NODE_CMD_CONTROL   'c'          /* disconnect the control connection */
/* be silent: break all queue pairs without a word, ignore requests for a second */
#define NODE_CMD_HANG      'h'
#define NODE_CMD_HANG_LONG 'H'          /* like NODE_CMD_HANG, for ever */
/* break the data connections without a word; the control connection stays */
#define NODE_CMD_STALL     's'
#define NODE_CMD_FORGET    'f'          /* drop all, and the client with its memory */
#define NODE_CMD_REVOKE    'r'          /* withdraw the memory, keep the connections */
/* Serves until `commands` ends.  Writes one byte to `ready` when it listens.  Does not return. */
_Noreturn void node_run(const struct node_config *c, int commands, int ready);

#endif
