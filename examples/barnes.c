/*
 * barnes: gravity between many bodies by the method of Barnes and Hut, "A hierarchical O(N log N)
 * force-calculation algorithm", Nature 324, 1986.
 *
 * Each step sorts the bodies into a new octree, made in a pool, and walks it for each body: where
 * a cell is small for its distance, all its bodies count as one at their centre of mass. The walks
 * are irregular reads all over the pool, by several threads. The bodies begin as a Plummer sphere
 * in equilibrium, in units in which gravity, all mass and the sphere's radius are 1.
 *
 * The program's own check, with the bounds that check() states: each force is of all bodies; the
 * forces on a sample are those of direct summation; momentum and energy hardly drift. Additions
 * have an order of their own, so the result does not depend on the number of threads. Standard
 * output depends on the arguments only, but for --threads. Exit status: 0 right, 1 wrong result, 2
 * usage or no memory.
 */
#define PROGRAM "barnes"
#include <getopt.h>
#include <math.h>

#include "barnes_tree.h"
#include "example.h"

#define TIME_STEP       (1.0 / 64)
#define SAMPLES         64
#define SIDE            64.0            /* no body begins farther from the middle than half of it */
#define BODIES_MIN      1000            /* with fewer, the check's averages mean little */

static uint64_t seed = 1, terms[THREADS_MAX];

/* A vector of uniform direction and this length. */
static void random_vector(uint64_t *state, double length, double v[3])
{
        double square;
        do {
                for (int d = 0; d < 3; d++)
                        v[d] = 2 * next_real(state) - 1;
                square = pow2(v[0]) + pow2(v[1]) + pow2(v[2]);
        } while (square > 1 || square < 0.01);
        for (int d = 0; d < 3; d++)
                v[d] *= length / sqrt(square);
}

/*
 * A Plummer sphere, as in Aarseth, Hénon, Wielen, "A comparison of numerical methods for the study
 * of star cluster dynamics", A&A 37, 1974. With c^3 the mass inside of r, r = c / sqrt(1 - c^2);
 * the largest of three uniform numbers is distributed like c. The outermost 0.3 % are left out.
 */
static void make_body(uint64_t i, struct body *b)
{
        uint64_t state = random_at(seed, i);
        double c = 0, q, s;
        for (int n = 0; n < 3; n++)
                c = fmax(c, 0.999 * next_real(&state));
        random_vector(&state, c / sqrt(1 - c * c), b->x);
        do {    /* q: speed as a share of that of escape */
                q = next_real(&state);
                s = 1 - q * q;
        } while (0.1 * next_real(&state) > q * q * s * s * s * sqrt(s));
        random_vector(&state, q * sqrt(2 * sqrt(1 - c * c)), b->v);
}

struct place { uint64_t morton, index; };

/* The bits of the coordinates in turn, for places that are nearer than SIDE / 2. */
static uint64_t morton(const double x[3])
{
        uint64_t result = 0;
        for (int d = 0; d < 3; d++) {
                uint64_t at = (uint64_t)((x[d] / SIDE + 0.5) * 0x1p21);
                for (int bit = 0; bit < 21; bit++)
                        result |= (at >> bit & 1) << (3 * bit + d);
        }
        return result;
}

static int by_place(const void *a, const void *b)
{
        const struct place *p = a, *q = b;
        return p->morton != q->morton ? (p->morton < q->morton ? -1 : 1)
                                      : (p->index > q->index) - (p->index < q->index);
}

/*
 * In Morton order, bodies and cells that are near in space are so in memory too, as in all programs
 * of this kind that are meant for large N.
 */
static void fill(void)
{
        struct place *places = reserve(nbodies, sizeof(*places));
        double middle[3] = { 0 }, drift[3] = { 0 };
        for (uint64_t i = 0; i < nbodies; i++) {
                struct body b;
                make_body(i, &b);
                places[i] = (struct place){ morton(b.x), i };
                for (int d = 0; d < 3; d++) {
                        middle[d] += b.x[d] / (double)nbodies;
                        drift[d] += b.v[d] / (double)nbodies;
                }
        }
        qsort(places, nbodies, sizeof(*places), by_place);
        for (uint64_t i = 0; i < nbodies; i++) {
                make_body(places[i].index, &bodies[i]);
                for (int d = 0; d < 3; d++) {
                        bodies[i].x[d] -= middle[d];
                        bodies[i].v[d] -= drift[d];
                }
        }
        munmap(places, nbodies * sizeof(*places));
}

static void find_forces(const struct part *part)
{
        for (uint64_t i = part->from; i < part->to; i++) {
                struct body *b = &bodies[i];
                struct force f = tree_force(b->x);
                memcpy(b->a, f.a, sizeof(b->a));
                b->potential = f.potential;
                b->attracted_by = (uint32_t)f.bodies;
                terms[part->thread] += f.terms;
        }
}

/* A leapfrog's jump: accelerates for half of a step, then moves for all of it. */
static void advance(double half, double whole)
{
        for (uint64_t i = 0; i < nbodies; i++)
                for (int d = 0; d < 3; d++) {
                        bodies[i].v[d] += bodies[i].a[d] * half;
                        bodies[i].x[d] += bodies[i].v[d] * whole;
                }
}

/* incomplete: forces that are not of all bodies. */
struct totals { double energy, momentum; uint64_t checksum, incomplete; };

static struct totals totals(void)
{
        struct totals t = { 0 };
        double momentum[3] = { 0 };
        for (uint64_t i = 0; i < nbodies; i++) {
                const struct body *b = &bodies[i];
                t.incomplete += b->attracted_by != nbodies;
                t.energy += b->potential / 2;
                for (int d = 0; d < 3; d++) {
                        uint64_t bits;
                        memcpy(&bits, &b->x[d], sizeof(bits));
                        t.checksum += random_at(bits, i);
                        t.energy += pow2(b->v[d]) / 2;
                        momentum[d] += b->v[d] / (double)nbodies;
                }
        }
        t.energy /= (double)nbodies;
        t.momentum = sqrt(pow2(momentum[0]) + pow2(momentum[1]) + pow2(momentum[2]));
        return t;
}

/* The mean error of the forces on a sample. OUT: scale, their mean scale. */
static double force_error(double *scale)
{
        struct force exact[SAMPLES] = { 0 };
        double distance[3], error = 0;
        *scale = 0;
        for (uint64_t i = 0; i < nbodies; i++)
                for (uint64_t s = 0; s < SAMPLES; s++) {
                        const double *x = bodies[s * nbodies / SAMPLES].x;
                        double square = softened(x, bodies[i].x, distance);
                        add_pull(&exact[s], distance, square, 1);
                }
        for (uint64_t s = 0; s < SAMPLES; s++) {
                const double *a = bodies[s * nbodies / SAMPLES].a;
                in_units(&exact[s]);
                *scale += exact[s].scale / SAMPLES;
                double square = 0;
                for (int d = 0; d < 3; d++)
                        square += pow2(a[d] - exact[s].a[d]);
                error += sqrt(square) / SAMPLES;
        }
        return error;
}

/*
 * Returns how many of these rules do not hold, after `time` units of time:
 *
 * - Each force is of all bodies.
 * - The mean error of the forces on a sample is at most theta^2 / 10 of their scale. A cell of mass
 *   m and radius r at the softened distance R pulls by m / R^2. The Taylor series of its pull about
 *   the centre of mass has no first order. The second order is at most 3 (r / R)^2 of that pull,
 *   less than 3 theta^2: so much if all bodies are at the cell's ends, in line with the force.
 *   (Softening is a distance in a fourth dimension, where that holds, too.) Most cells are rounder,
 *   and errors cancel each other: a thirtieth of it is allowed. The largest mean seen in 120 runs
 *   with 1,000 bodies was 0.073 theta^2; more bodies have less, 10,000 have 0.023 theta^2.
 * - The exact forces add up to zero. So the momentum is at most their mean error times the time.
 * - The energy hardly changes: 0.006 theta^2 of it was seen in 100 steps, and 10^-5 with theta 0.
 */
static unsigned check(const struct totals *before, const struct totals *after, double time)
{
        double scale, error = force_error(&scale), tiny = 1e-12;
        double bound = (pow2(theta) / 10 + tiny) * scale;
        double change = fabs(after->energy / before->energy - 1);
        unsigned broken = (after->incomplete != 0) + !(error <= bound) +
                          !(after->momentum <= time * bound + tiny) +
                          !(change <= (pow2(theta) / 50 + 1e-4) * (1 + time));
        if (broken)
                fprintf(stderr,
                        PROGRAM ": %" PRIu64 " forces not of all bodies; mean error of forces %g, "
                                "bound %g; momentum %g; energy changed by a share of %g\n",
                        after->incomplete, error, bound, after->momentum, change);
        return broken;
}

static void usage(FILE *f)
{
        fputs("usage: barnes [OPTION...]\n"
              "  --size SIZE    memory, with a suffix K, M or G (default 16M)\n"
              "  --steps N      (default 4)\n"
              "  --theta X      a cell counts as one body if its radius is below this share of\n"
              "                 its distance; in [0, 0.9], default 0.7\n"
              "  --threads N    (default 1)\n"
              "  --seed N       (default 1)\n"
              "  --time         how long it took, on standard error\n"
              "  --help\n", f);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "help", no_argument, NULL, 'h' },
                { "seed", required_argument, NULL, 'e' },
                { "size", required_argument, NULL, 's' },
                { "steps", required_argument, NULL, 'p' },
                { "theta", required_argument, NULL, 'a' },
                { "threads", required_argument, NULL, 'n' },
                { "time", no_argument, NULL, 't' },
                { NULL, 0, NULL, 0 }
        };
        /* Half as many cells as bodies are used, of the bodies that a Plummer sphere has. */
        const uint64_t each = sizeof(*bodies) + sizeof(*cells) / 2;
        uint64_t size = 16 << 20, steps = 4;
        unsigned threads = 1;
        bool timing = false;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'a': theta = parse_real("--theta", optarg, 0, 0.9); break;
                case 'e': seed = parse_number("--seed", optarg, false, 0, UINT64_MAX); break;
                case 'h': usage(stdout); return RIGHT;
                case 'n': threads = parse_threads(optarg); break;
                case 'p': steps = parse_number("--steps", optarg, false, 1, UINT32_MAX); break;
                case 's':
                        size = parse_number("--size", optarg, true, BODIES_MIN * each,
                                            BODIES_MAX * each);
                        break;
                case 't': timing = true; break;
                default: usage(stderr); return CANNOT;
                }
        if (optind != argc) {
                usage(stderr);
                return CANNOT;
        }
        nbodies = size / each;
        bodies = reserve(nbodies, sizeof(*bodies));
        cells = reserve(nbodies, sizeof(*cells));

        double t0 = seconds(), building = 0, walking = 0;
        fill();
        double t1 = seconds();
        struct totals before = { 0 };
        for (uint64_t i = 0; i <= steps; i++) {
                if (i)
                        advance(TIME_STEP / 2, TIME_STEP);
                double start = seconds();
                tree_build();
                double built = seconds();
                in_parallel(threads, nbodies, find_forces);
                building += built - start;
                walking += seconds() - built;
                if (i)
                        advance(TIME_STEP / 2, 0);
                else
                        before = totals();
        }
        double t2 = seconds();
        struct totals after = totals();
        unsigned broken = check(&before, &after, (double)steps * TIME_STEP);
        double t3 = seconds();

        for (unsigned t = 1; t < threads; t++)
                terms[0] += terms[t];
        printf(PROGRAM ": %" PRIu64 " bodies, %" PRIu64 " steps, theta %g, seed %" PRIu64
                       ": %" PRIu64 " cells, %" PRIu64 " terms, energy %.6f, at first %.6f, "
                       "positions %016" PRIx64 ", %s\n",
               nbodies, steps, theta, seed, ncells, terms[0], after.energy, before.energy,
               after.checksum, broken ? "WRONG" : "right");
        if (timing)
                fprintf(stderr,
                        PROGRAM ": fill %.3f s, steps %.3f s (trees %.3f s, forces %.3f s), check "
                                "%.3f s\n",
                        t1 - t0, t2 - t1, building, walking, t3 - t2);
        return broken ? WRONG : RIGHT;
}
