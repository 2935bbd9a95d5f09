/*
 * Random numbers of tests: they depend on the seed alone.
 */
#ifndef T_DRAW_H
#define T_DRAW_H

#include <stdint.h>

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define ONE_OF(array) ((array)[draw(COUNT(array))])

/* By the program that includes this: the next number below that. */
uint64_t draw(uint64_t below);

static inline uint64_t draw_from(uint64_t *state, uint64_t below)       /* splitmix64 */
{
        uint64_t z = *state += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return (z ^ z >> 31) % below;
}

#endif
