#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "common/clock.h"
#include "pulse.h"

static unsigned longest;                /* ms between two; 0: nobody watches.  Constant. */
/* now_ms() of the last one; 0: that thread does not serve yet.  Relaxed: they publish nothing. */
static _Atomic int64_t last[PULSES];

void pulse_watch(unsigned ms) { longest = ms; }

int pulse_beat(enum pulse p, int ms)
{
        if (!longest)
                return ms;
        atomic_store_explicit(&last[p], now_ms(), memory_order_relaxed);
        return ms < 0 || (unsigned)ms > longest ? (int)longest : ms;
}

const char *pulse_late(unsigned ms)
{
        static const char *const names[PULSES] = {
                [PULSE_MAIN] = "main", [PULSE_NBD] = "NBD's", [PULSE_RDMA] = "RDMA's",
        };

        for (unsigned i = 0; i < PULSES; i++) {
                int64_t at = atomic_load_explicit(&last[i], memory_order_relaxed);
                if (at && now_ms() - at > ms)
                        return names[i];
        }
        return NULL;
}
