/*
 * Delays of a node that is made slow, by the latency and bandwidth of its options.  See timing.h.
 */
#include <stdio.h>
#include "far/timing.h"
#include "abi_direct.h"
#include "layout.h"

void timing_slab(struct slab *s, const struct node_option *o, uint64_t tsc_khz)
{
        const unsigned __int128 second = (unsigned __int128)tsc_khz * 1000;

        if (!timing_given(o))
                return;
        s->kind = SLAB_TIMED;
        if (o->card) {                  /* far/direct/card.h, in kern */
                s->queues = 1ull << s->node;
                s->direct = 1;
                s->node_at[0] = (uint8_t)s->node;
                s->place[0].epoch = CARD_EPOCH;
                s->place[0].from = s->va;
        }
        s->latency = (uint64_t)(second * o->latency / 1000000000);
        s->page_ticks = o->bandwidth
                                ? (uint64_t)((second * PAGE_SIZE << SLAB_TICK_SHIFT) / o->bandwidth)
                                : 0;
}

void timing_text(const struct node_option *o, char *text, size_t n)
{
        char speed[48] = "";

        *text = '\0';
        if (o->bandwidth)
                snprintf(speed, sizeof(speed), " and %.10g GB/s", (double)o->bandwidth / 1e9);
        if (timing_given(o))
                snprintf(text, n, ", as if behind a network of %llu ns%s%s",
                         (unsigned long long)o->latency, speed,
                         o->card ? " and a ConnectX card" : "");
}
