/*
 * A program, a cache and a wire, for the prefetch policies.
 *
 * Time is in nanoseconds.  The wire carries a page after another, and each arrives a latency after
 * it was sent.  Pages are remote until they are asked for.  The cache evicts by CLOCK.
 */
#ifndef VMRUN_LOOKAHEAD_SIM_H
#define VMRUN_LOOKAHEAD_SIM_H

#include "pager/lookahead.h"

struct sim_wire { uint64_t latency, page; };

struct sim_page {
        uint64_t page1;                 /* page + 1; 0: this entry is free */
        uint64_t arrives;
        bool resident;                  /* or under way */
        bool a, pref, marker, spared;
        bool touched;                   /* since it was fetched */
};

#define SIM_TABLE (1u << 17)            /* at least twice the pages that are ever named */

struct sim {
        struct lookahead look;
        struct lookahead_rule rule;
        struct sim_wire wire;
        uint64_t step;                  /* of the program, from page to page */
        bool shadow;                    /* use cannot be known */
        bool spare;                     /* the hand spares unused prefetched pages once */

        uint64_t now, wire_free;
        uint32_t frames, used, hand;
        struct sim_page **frame;
        struct sim_page *table;
        uint32_t under_way, sent, first_under_way;      /* of prefetches */
        uint64_t *due;                  /* when each prefetch arrives, in order */

        uint64_t accesses, misses, late, markers, fetched, prefetched, wasted, faults;
};

void sim_begin(struct sim *s, const struct lookahead_rule *rule, struct sim_wire wire,
               uint64_t step, uint32_t frames);
void sim_end(struct sim *s);
void sim_access(struct sim *s, uint64_t page);
/* Makes the page resident as if the program had used it long ago. */
void sim_preload(struct sim *s, uint64_t page);
/* Forgets the counts, not the state. */
void sim_count_anew(struct sim *s);
/* Prefetched pages that were evicted unused, or are resident and unused. */
uint64_t sim_wasted(const struct sim *s);

#endif
