/*
 * The rule of the two hands, written down once more, without atomics, claims, tables and batches:
 * an oracle for test_hands.c.  It is told which page came into which frame, and which frames were
 * used, and says which pages a pass evicts.  docs/architecture.md, "Eviction", has the rule.
 *
 * With clock set all frames stay cold, which is CLOCK.
 */
#ifndef TEST_HANDS_RULE_H
#define TEST_HANDS_RULE_H

#include <stdbool.h>
#include <stdint.h>

#define RULE_FRAMES 4096
#define RULE_NONE   (~0u)
#define RULE_LAGS   8
#define RULE_TICKS  1016        /* then their numbers begin anew: what was before is forgotten */

struct rule_frame { uint32_t page; uint64_t epoch; bool used, hot, old, back, was; };
struct rule_stamp { uint64_t tick; bool was; };         /* tick 0: none */

struct rule {
        struct rule_frame frame[RULE_FRAMES];
        struct rule_stamp *stamp;       /* of each page */
        uint32_t nframes, usable, piece, hot_piece, batch;
        bool clock;
        uint32_t nhot, target, requests, vain, look, met;
        int32_t over, hot_known;
        uint64_t cold_hand, hot_hand;   /* frames that it has met */
        uint64_t flushes, cleared;      /* begun, and complete; A bits cleared since */
        uint64_t tick, evicted, told, ticked;
        uint64_t gone[2][RULE_LAGS];    /* by tick % RULE_LAGS */
        uint64_t returned[2][RULE_LAGS];        /* since the last tick, by lag */
        uint32_t sum_gone[2][RULE_LAGS], sum_back[2][RULE_LAGS];
};

/* usable: frames that are neither free nor in stock, about; stamp: of as many as there are
 * pages. */
void rule_init(struct rule *r, uint32_t nframes, uint32_t usable, uint32_t batch,
               struct rule_stamp *stamp, bool clock);
/* A page came into a frame, and was used. */
void rule_came(struct rule *r, uint32_t frame, uint32_t page);
static inline void rule_used(struct rule *r, uint32_t frame) { r->frame[frame].used = true; }
/* A pass over n frames of the cold hand, or until `most` are free.  nfree: free frames at its
 * begin; stocked: in stock.  OUT gone: pages.  Returns how many. */
uint32_t rule_pass(struct rule *r, uint32_t n, uint32_t most, uint32_t nfree, uint32_t stocked,
                   uint32_t *gone);

#endif
