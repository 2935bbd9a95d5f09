/*
 * What the copy of a 4 KiB page costs by itself, by the instruction that kern uses: what is left of
 * a fault is paging.
 */
#include "pattern.h"

int main(void)
{
        enum { RUNS = 101 };
        static uint64_t from[WORDS] __attribute__((aligned(PAGE))),
                to[WORDS] __attribute__((aligned(PAGE)));
        uint32_t copy[RUNS], nothing[RUNS];

        memset(from, 1, sizeof(from));
        memset(to, 2, sizeof(to));
        for (unsigned i = 0; i < RUNS; i++) {
                uint64_t begin = ticks();
                nothing[i] = (uint32_t)(ticks() - begin);

                void *d = to, *s = from;
                size_t n = WORDS;
                begin = ticks();
                __asm__ volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(n) :: "memory");
                copy[i] = (uint32_t)(ticks() - begin);
        }
        qsort(copy, RUNS, sizeof(copy[0]), by_value);
        qsort(nothing, RUNS, sizeof(nothing[0]), by_value);
        printf("copy_min %u\ncopy_p50 %u\n", copy[0] - nothing[0],
               copy[RUNS / 2] - nothing[RUNS / 2]);
        return 0;
}
