/*
 * The octree of barnes, and the forces that it gives.
 *
 * Units: the constant of gravity is 1, and so is the mass of all bodies together. Each body has the
 * same share of it.
 */
#ifndef BARNES_TREE_H
#define BARNES_TREE_H

#include <math.h>
#include <stdint.h>

#define BODIES_MAX      0x7fffffff
#define SOFTENING       0.05            /* bodies attract each other like spheres of this radius */

struct body {
        double x[3], v[3], a[3], potential;
        uint32_t next;                  /* the next body in this place, with BODY; or 0 */
        uint32_t attracted_by;          /* how many bodies are in its force, itself among them */
};

struct cell {
        double centre[3];               /* of mass */
        float radius;                   /* no body of the cell is farther from there */
        uint32_t count;                 /* of bodies */
        uint32_t child[8];
};
_Static_assert(sizeof(struct cell) == 64, "a cell is one cache line");

/*
 * The force of `bodies` bodies on one, added up in `terms` terms. scale: the sum of the terms'
 * lengths, which is the acceleration if all bodies are on one side.
 */
struct force { double a[3], potential, scale; uint64_t bodies, terms; };

extern struct body *bodies;             /* [nbodies] */
extern struct cell *cells;              /* [nbodies], more than a tree needs */
extern uint64_t nbodies, ncells;
extern double theta;

static inline double pow2(double x) { return x * x; }

/*
 * Adds the pull of n bodies at this distance; square is its softened square. In all of f, the mass
 * of one body is 1, until in_units().
 */
static inline void add_pull(struct force *f, const double distance[3], double square, double n)
{
        double inverse = 1 / sqrt(square), pull = n * inverse;
        f->potential -= pull;
        f->scale += pull * inverse;
        pull *= inverse * inverse;
        for (int d = 0; d < 3; d++)
                f->a[d] += pull * distance[d];
        f->bodies += (uint64_t)n;
        f->terms++;
}

/* Also takes back that the body attracted itself, which shows in the potential alone. */
static inline void in_units(struct force *f)
{
        f->potential = (f->potential + 1 / SOFTENING) / (double)nbodies;
        f->scale /= (double)nbodies;
        for (int d = 0; d < 3; d++)
                f->a[d] /= (double)nbodies;
}

/* The softened square of the distance between two places. OUT: distance, as a vector. */
static inline double softened(const double from[3], const double to[3], double distance[3])
{
        double square = SOFTENING * SOFTENING;
        for (int d = 0; d < 3; d++)
                square += pow2(distance[d] = to[d] - from[d]);
        return square;
}

/* Makes the tree of all bodies where they are now. Ends the program if it needs too many cells. */
void tree_build(void);

/*
 * The force at x, by the tree. A cell counts as one if its radius is less than theta times its
 * softened distance. Several threads may call this at once.
 */
struct force tree_force(const double x[3]);

#endif
