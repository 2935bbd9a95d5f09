/*
 * A guest on simulated CPUs: kern's pager, flushes, slots, fault path and cleaner, as they are, and
 * around them what a processor and vmrun do.
 */
#ifndef TEST_LINES_GUEST_H
#define TEST_LINES_GUEST_H

#include "abi_stats.h"
#include "lines_sim.h"

/* What no access to memory shows, in ns. */
struct lines_cost {
        uint32_t touch;                 /* an access of the program to a page that is there */
        uint32_t trap;                  /* a page fault's way into kern, and back */
        uint32_t copy;                  /* of a page */
        uint32_t flush;                 /* of a TLB, and its filling */
        uint32_t pause;                 /* of a CPU that spins */
        /* From kern to vmrun, what vmrun does there, and back.  A CPU that sleeps there goes on
         * when another has paid this for the wake-up. */
        uint32_t exit;
        struct sim_cost line;
};

/* vcpus threads touch pages at random. */
struct lines_load {
        unsigned vcpus;
        uint32_t frames, pages;
        uint32_t writes;                /* of 100 touches */
        uint64_t before, touches;       /* of all vCPUs: before anything is counted, and counted */
        struct lines_cost cost;
};

struct lines_result {
        uint64_t ns;                    /* for all touches that were counted */
        uint64_t counter[CNT_COUNT];    /* of all vCPUs */
        uint64_t flushes;               /* begun */
        uint64_t p50, p99;              /* ns of a touch */
        uint64_t spent[2][SPENT_KINDS]; /* by the vCPUs of the program; by the cleaner */
};

/* Once in a process.  False: the vCPUs stood still. */
bool lines_run(const struct lines_load *load, struct lines_result *result);

/* What a page's own line holds there; NULL: it is not a page's own. */
const char *lines_page_part(uint64_t addr);
/* What is at an address, in text.  True: it is a page's own. */
bool lines_name(uint64_t addr, char *text, size_t size);

#endif
