/*
 * The order in which vCPUs waited for pages: the log that kern writes while a program is recorded,
 * and the table by which kern asks for pages ahead in a later run.  Both lie behind the cache in
 * guest RAM, in room that exists only with --record or --replay, and are read and written through
 * the window by both sides.
 */
#ifndef VMRUN_RECORDED_H
#define VMRUN_RECORDED_H

#include <stdint.h>
#include "layout.h"

/* Events beyond this number are only counted. */
#define RECORD_EVENTS_MAX (4u << 20)

/* --- recording --- */

/* A page for which a vCPU waited.  From bit 0 on its page number, below 2^36: of the program's
 * address or, in a private mapping of a file, of the file.  From bit 36 on the id of that file,
 * below 2^18, or 0.  Above them the number of the vCPU.  Page number 0 with file 0: no event. */
#define RECORD_PAGE_BITS 36
#define RECORD_FILE_BITS 18
#define RECORD_VCPU_AT   (RECORD_PAGE_BITS + RECORD_FILE_BITS)
_Static_assert(VCPUS_MAX <= 1 << (64 - RECORD_VCPU_AT), "a vCPU's number fits");

struct record_log {
        /* Events ever noted.  Each vCPU takes a number (relaxed: it orders nothing), then stores
         * its event; the host ignores an event that is still 0. */
        _Atomic uint64_t tail;
        uint64_t pad[7];
        _Atomic uint64_t event[RECORD_EVENTS_MAX];
};

/* --- replay --- */

#define REPLAY_NONE UINT32_MAX

/* The events of one vCPU: [begin, end).  The other fields belong to kern on that vCPU. */
struct replay_stream {
        uint32_t begin, end;
        uint32_t cursor;                /* the event that the vCPU will come to next */
        uint32_t ahead;                 /* kern has looked at all events before this one */
        /* astray: the event to which faults far from the cursor lead, or NONE.  agreed: how many
         * led there, less those that led elsewhere. */
        uint32_t astray, agreed;
};

/*
 * events: how many events the order has; each is the number of a known page.  pages: how many pages
 * are known.
 *
 * The host fills all in before the program starts.  Later it changes only addr and hash, as files
 * are mapped.  These words order nothing, since they lead to hints.
 */
struct replay {
        uint32_t events, pages, streams;
        uint32_t hash_bits;             /* 2^hash_bits entries */
        uint32_t *order;                /* by event: its page */
        uint32_t *where;                /* events, grouped by page, in their order */
        uint32_t *first;                /* by page: its first place in where; pages + 1 entries */
        _Atomic uint64_t *addr;         /* by page: page number of its address; 0: not mapped */
        /* Open addressing: page number << 28 | page + 1; 0: free.  An entry is valid if its page
         * has that address. */
        _Atomic uint64_t *hash;
        struct replay_stream *stream;   /* by number of the vCPU */
};
#define REPLAY_PAGE_BITS 28

static inline uint64_t replay_hash(const struct replay *r, uint64_t page)
{
        return page * 0x9e3779b97f4a7c15ull >> (64 - r->hash_bits);
}

#endif
