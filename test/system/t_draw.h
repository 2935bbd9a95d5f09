/*
 * Random numbers of tests: they depend on the seed alone.
 */
#ifndef T_DRAW_H
#define T_DRAW_H

#include <stdint.h>

static inline uint64_t draw_from(uint64_t *state, uint64_t below)       /* splitmix64 */
{
        uint64_t z = *state += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return (z ^ z >> 31) % below;
}

#endif
