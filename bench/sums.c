/*
 * What the sum of a page costs: the median of many, in ticks of the clock (lab --icount:
 * ticks_per_ns of them are an instruction).
 */
#include "far/sum.h"
#include "pattern.h"

enum { PAGES = 256, ROUNDS = 16 };

int main(void)
{
        static uint32_t took[PAGES * ROUNDS];
        struct pattern pt;
        volatile uint32_t sum;

        pattern_default(&pt);
        pt.log2_pages = 8;
        pt.data = map_anonymous(PAGES * PAGE);
        fill(&pt, pt.data);
        uint64_t begin_ns = now_ns(), begin = ticks();
        for (unsigned i = 0; i < PAGES * ROUNDS; i++) {
                uint64_t at = ticks();
                sum = far_sum(i, (const char *)pt.data + i % PAGES * PAGE);
                took[i] = (uint32_t)(ticks() - at);
        }
        double per_ns = (double)(ticks() - begin) / (double)(now_ns() - begin_ns);
        (void)sum;
        qsort(took, PAGES * ROUNDS, sizeof(took[0]), by_value);
        printf("sum_min %.0f\nsum_p50 %.0f\n", took[0] / per_ns, took[PAGES * ROUNDS / 2] / per_ns);
        return 0;
}
