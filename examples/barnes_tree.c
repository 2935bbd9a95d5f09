/* The octree of barnes: a new one is made for each step, and walked for each body. */
#define PROGRAM "barnes"
#include <math.h>

#include "barnes_tree.h"
#include "example.h"

#define DEPTH_MAX       48              /* bodies that are so near to each other are a list */
#define BODY            0x80000000u     /* with it, a child is a body, else a cell; 0 is none */

struct body *bodies;
struct cell *cells;
uint64_t nbodies, ncells;
double theta = 0.7;

static uint32_t new_cell(void)
{
        if (ncells == nbodies) {
                fprintf(stderr, PROGRAM ": the tree needs more than %" PRIu64 " cells\n", ncells);
                exit(CANNOT);
        }
        memset(&cells[ncells], 0, sizeof(cells[ncells]));
        return (uint32_t)ncells++;
}

static unsigned octant(const double x[3], const double middle[3])
{
        return (unsigned)(x[0] > middle[0]) | (unsigned)(x[1] > middle[1]) << 1 |
               (unsigned)(x[2] > middle[2]) << 2;
}

/* half: half the side of the cube that the root stands for, with its middle at 0. */
static void insert(uint32_t new, double half)
{
        double middle[3] = { 0 };
        const double *x = bodies[new].x;
        uint32_t *slot = &cells[0].child[octant(x, middle)];
        for (int depth = 0; *slot; depth++) {
                unsigned o = octant(x, middle);
                half /= 2;
                for (int d = 0; d < 3; d++)
                        middle[d] += o >> d & 1 ? half : -half;
                if (*slot & BODY) {
                        uint32_t other = *slot;
                        if (depth == DEPTH_MAX) {
                                bodies[new].next = other;
                                break;
                        }
                        *slot = new_cell();
                        cells[*slot].child[octant(bodies[other & ~BODY].x, middle)] = other;
                }
                slot = &cells[*slot].child[octant(x, middle)];
        }
        *slot = new | BODY;
}

/* A child of a cell, be it a body or a cell, and its next, if it is a body that has one. */
struct child { const double *x; double count, radius; uint32_t next; };

static struct child child_of(uint32_t child)
{
        const struct body *b = &bodies[child & ~BODY];
        const struct cell *c = &cells[child & ~BODY];
        return child & BODY ? (struct child){ b->x, 1, 0, b->next }
                            : (struct child){ c->centre, c->count, (double)c->radius, 0 };
}

/* Centre of mass and radius of a cell whose child cells have theirs. */
static void sum_up(struct cell *c)
{
        double radius = 0;
        struct child child;
        for (int o = 0; o < 8; o++)
                for (uint32_t i = c->child[o]; i; i = child.next) {
                        child = child_of(i);
                        c->count += (uint32_t)child.count;
                        for (int d = 0; d < 3; d++)
                                c->centre[d] += child.x[d] * child.count;
                }
        for (int d = 0; d < 3; d++)
                c->centre[d] /= c->count;
        for (int o = 0; o < 8; o++)
                for (uint32_t i = c->child[o]; i; i = child.next) {
                        child = child_of(i);
                        double square = 0;
                        for (int d = 0; d < 3; d++)
                                square += pow2(child.x[d] - c->centre[d]);
                        radius = fmax(radius, sqrt(square) + child.radius);
                }
        c->radius = (float)(radius * (1 + 0x1p-22));    /* not rounded down */
}

void tree_build(void)
{
        double half = 0;
        for (uint64_t i = 0; i < nbodies; i++) {
                bodies[i].next = 0;
                for (int d = 0; d < 3; d++)
                        half = fmax(half, fabs(bodies[i].x[d]));
        }
        ncells = 0;
        new_cell();
        for (uint64_t i = 0; i < nbodies; i++)
                insert((uint32_t)i, half);
        for (uint64_t c = ncells; c-- > 0;)     /* a child cell was made after its parent */
                sum_up(&cells[c]);
}

struct force tree_force(const double x[3])
{
        struct force f = { 0 };
        uint32_t stack[8 * (DEPTH_MAX + 2)], top = 0;
        stack[top++] = 0;
        while (top) {
                uint32_t i = stack[--top];
                struct child child = child_of(i);
                double distance[3], square = softened(x, child.x, distance);
                if (i & BODY || pow2(child.radius) < pow2(theta) * square) {
                        add_pull(&f, distance, square, child.count);
                        if (child.next)
                                stack[top++] = child.next;
                        continue;
                }
                for (int o = 0; o < 8; o++)
                        if (cells[i].child[o])
                                stack[top++] = cells[i].child[o];
        }
        in_units(&f);
        return f;
}
