/*
 * The target of the two hands, as balance.h says.
 */
#include "pager/balance.h"

#define SCALE 16u                       /* of counts that decay */
#define ONE   1024u                     /* a rate of 1: as many come back as left */

static uint32_t most_cold(uint32_t nframes) { return nframes - nframes / 8; }

void balance_init(struct balance *b, uint32_t nframes)
{
        *b = (struct balance){ .tick = TICK_FIRST, .target = most_cold(nframes) };
}

/* Decays, and adds what came in the tick. */
static uint32_t decay(uint32_t sum, uint32_t came) { return sum / 4 * 3 + SCALE * came; }

/* Of the pages that left so, how many come back soon: a sum over the lags, of which early ones
 * weigh more.  Four pages that left are added, and one that came back at once: so without any
 * evidence it is half of ONE. */
static uint32_t rate(const uint32_t back[LAGS], const uint32_t left[LAGS])
{
        uint64_t sum = 0;

        for (uint32_t lag = 0; lag < LAGS; lag++) {
                uint64_t weight = (LAGS - lag) * ONE / (LAGS / 2);
                uint64_t seen = back[lag] + (lag == 0 ? SCALE : 0);
                sum += weight * seen / (left[lag] + 4 * SCALE);
        }
        return (uint32_t)sum;
}

/* Twice a burst at least are cold: else one could evict a page that has just come. */
static uint32_t next_target(uint32_t target, uint32_t cold, uint32_t hot, uint32_t nframes,
                            uint32_t burst)
{
        uint32_t least = nframes / 8 > 2 * burst ? nframes / 8 : 2 * burst;
        uint32_t most = most_cold(nframes);

        if (cold > hot + hot / 4)
                target += nframes / 8;
        else if (hot > ONE * 2 / 5)
                target -= target > nframes / 32 ? nframes / 32 : target;
        if (target < least)
                target = least;
        return target < most ? target : most;
}

void balance_tick(struct balance *b, const struct returns *now, uint32_t nframes,
                  uint32_t burst)
{
        uint32_t rates[2];

        for (uint32_t hot = 0; hot < 2; hot++) {
                uint32_t *gone = b->gone[hot];
                gone[b->tick % LAGS] = now->gone[hot] - b->counted.gone[hot];
                for (uint32_t lag = 0; lag < LAGS; lag++) {
                        uint32_t back = now->back[hot][lag] - b->counted.back[hot][lag];
                        b->left[hot][lag] = decay(b->left[hot][lag], gone[(b->tick - lag) % LAGS]);
                        b->back[hot][lag] = decay(b->back[hot][lag], back);
                }
                rates[hot] = rate(b->back[hot], b->left[hot]);
        }
        b->counted = *now;
        b->target = next_target(b->target, rates[0], rates[1], nframes, burst);
        b->tick = tick_next(b->tick);
}
