/*
 * kmeans: Lloyd's algorithm (1982) over points around known centres.
 *
 * Each iteration reads all points in turn and writes a label for each: sequential passes by several
 * threads, each in a part of its own. All coordinates are multiples of 2^-20, and sums are taken of
 * integers. So the result does not depend on their order, nor on the number of threads.
 *
 * The program's own check: the inertia (the sum of squared distances to the nearest mean) never
 * grows; at the end all points are what they were when generated; the sizes of the clusters are
 * what the labels say; and of every 16th point no other mean is nearer than its own.
 *
 * Standard output depends on the arguments only, but for --threads. Exit status: 0 right, 1 wrong
 * result, 2 usage or no memory.
 */
#define PROGRAM "kmeans"
#include <float.h>
#include <getopt.h>

#include "example.h"

#define UNIT            0x1p-20f        /* coordinates are multiples of this, in (-2, 2) */
#define CLUSTERS_MAX    4096
#define DIMS_MAX        4096
#define SAMPLE          16              /* of SAMPLE points, one's nearest mean is verified */

/* What a thread finds in its part. sums: of coordinates, in units; inertia: in units too. */
struct tally {
        int64_t *sums;                  /* [clusters][dims] */
        uint64_t *counts;               /* [clusters] */
        uint64_t inertia, changed, misplaced, checksum;
};

static float *points;                   /* [npoints][dims] */
static uint32_t *labels;                /* [npoints]: the cluster of each */
static float *means;                    /* [clusters][dims] */
static uint64_t npoints, dims = 16, clusters = 8, seed = 1;
static struct tally tallies[THREADS_MAX];

/*
 * Coordinate d of point i: that of one of the known centres, uniform in [0, 1), and noise about it,
 * the sum of four uniform numbers, which is nearly Gaussian: below 1/8, with a deviation of 0.036.
 */
static float generate(uint64_t i, uint64_t centre, uint64_t d)
{
        uint64_t r = random_at(seed, i * dims + d);
        int64_t noise = (int64_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) +
                                  (r >> 48)) - 2 * 0xffff;
        int64_t at = (int64_t)(random_at(~seed, centre * dims + d) >> 44);
        return (float)(at + noise) * UNIT;
}

/* Which of the known centres point i is about. */
static uint64_t centre_of(uint64_t i)
{
        return below(random_at(seed ^ UINT64_MAX / 3, i), clusters);
}

static void fill(const struct part *part)
{
        for (uint64_t i = part->from; i < part->to; i++) {
                uint64_t centre = centre_of(i);
                for (uint64_t d = 0; d < dims; d++)
                        points[i * dims + d] = generate(i, centre, d);
        }
}

static float distance(const float *a, const float *b)
{
        float sum = 0;
        for (uint64_t d = 0; d < dims; d++)
                sum += (a[d] - b[d]) * (a[d] - b[d]);
        return sum;
}

/* Gives each point of the part the nearest mean's label, and adds up what the next means are of. */
static void assign(const struct part *part)
{
        struct tally *t = &tallies[part->thread];
        memset(t->sums, 0, clusters * dims * sizeof(*t->sums));
        memset(t->counts, 0, clusters * sizeof(*t->counts));
        t->inertia = 0;
        for (uint64_t i = part->from; i < part->to; i++) {
                const float *p = &points[i * dims];
                float nearest = FLT_MAX;
                uint32_t label = 0;
                for (uint32_t k = 0; k < clusters; k++) {
                        float d = distance(p, &means[k * dims]);
                        if (d < nearest) {
                                nearest = d;
                                label = k;
                        }
                }
                labels[i] = label;
                t->counts[label]++;
                t->inertia += (uint64_t)(nearest / UNIT);
                for (uint64_t d = 0; d < dims; d++)
                        t->sums[label * dims + d] += (int64_t)(p[d] / UNIT);
        }
}

/* The first tally becomes the sum of all. */
static void add_tallies(unsigned threads)
{
        struct tally *all = &tallies[0];
        for (struct tally *t = &tallies[1]; t < &tallies[threads]; t++) {
                all->inertia += t->inertia;
                all->changed += t->changed;
                all->misplaced += t->misplaced;
                all->checksum += t->checksum;
                for (uint64_t k = 0; k < clusters; k++)
                        all->counts[k] += t->counts[k];
                for (uint64_t j = 0; j < clusters * dims; j++)
                        all->sums[j] += t->sums[j];
        }
}

/* A cluster without points keeps its mean. */
static void move_means(void)
{
        const struct tally *t = &tallies[0];
        for (uint64_t k = 0; k < clusters; k++)
                for (uint64_t d = 0; d < dims && t->counts[k]; d++)
                        means[k * dims + d] = (float)((double)t->sums[k * dims + d] /
                                                      (double)t->counts[k] * (double)UNIT);
}

/*
 * A distance is a sum of dims squares. Difference, square and sums round by 2^-24 each: in all, a
 * distance is wrong by (dims + 2) 2^-24 at most, to first order. Between two of them twice that
 * may lie. The third time is for the higher orders.
 */
static double tolerance(void) { return 3 * ((double)dims + 2) * 0x1p-24; }

/* Checks the results of the last assign() against the points as generated and its means. */
static void check(const struct part *part)
{
        struct tally *t = &tallies[part->thread];
        memset(t->counts, 0, clusters * sizeof(*t->counts));
        for (uint64_t i = part->from; i < part->to; i++) {
                const float *p = &points[i * dims];
                uint64_t centre = centre_of(i), same = 0, label = labels[i];
                for (uint64_t d = 0; d < dims; d++)
                        same += p[d] == generate(i, centre, d);
                t->changed += same != dims;
                t->checksum += random_at(label, i);
                if (label >= clusters) {
                        t->misplaced++;
                        continue;
                }
                t->counts[label]++;
                double own = (double)distance(p, &means[label * dims]);
                for (uint64_t k = 0; k < clusters && i % SAMPLE == 0; k++)
                        if ((double)distance(p, &means[k * dims]) < own * (1 - tolerance())) {
                                t->misplaced++;
                                break;
                        }
        }
}

static void usage(FILE *f)
{
        fputs("usage: kmeans [OPTION...]\n"
              "  --size SIZE      memory, with a suffix K, M or G (default 64M)\n"
              "  --dims N         coordinates a point (default 16)\n"
              "  --clusters N     (default 8)\n"
              "  --iterations N   (default 10)\n"
              "  --threads N      (default 1)\n"
              "  --seed N         (default 1)\n"
              "  --time           how long it took, on standard error\n"
              "  --help\n", f);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "clusters", required_argument, NULL, 'c' },
                { "dims", required_argument, NULL, 'd' },
                { "help", no_argument, NULL, 'h' },
                { "iterations", required_argument, NULL, 'i' },
                { "seed", required_argument, NULL, 'e' },
                { "size", required_argument, NULL, 's' },
                { "threads", required_argument, NULL, 'n' },
                { "time", no_argument, NULL, 't' },
                { NULL, 0, NULL, 0 }
        };
        uint64_t size = 64 << 20, iterations = 10;
        unsigned threads = 1;
        bool timing = false;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'c':
                        clusters = parse_number("--clusters", optarg, false, 1, CLUSTERS_MAX);
                        break;
                case 'd': dims = parse_number("--dims", optarg, false, 1, DIMS_MAX); break;
                case 'e': seed = parse_number("--seed", optarg, false, 0, UINT64_MAX); break;
                case 'h': usage(stdout); return RIGHT;
                case 'i':
                        iterations = parse_number("--iterations", optarg, false, 1, UINT32_MAX);
                        break;
                case 'n': threads = parse_threads(optarg); break;
                case 's': size = parse_number("--size", optarg, true, 1, UINT64_MAX); break;
                case 't': timing = true; break;
                default: usage(stderr); return CANNOT;
                }
        if (optind != argc) {
                usage(stderr);
                return CANNOT;
        }
        npoints = size / (dims * sizeof(*points) + sizeof(*labels));
        if (npoints < clusters) {
                fputs(PROGRAM ": --size: not a point for each cluster\n", stderr);
                return CANNOT;
        }
        points = reserve(npoints * dims, sizeof(*points));
        labels = reserve(npoints, sizeof(*labels));
        means = reserve(clusters * dims, sizeof(*means));
        for (unsigned t = 0; t < threads; t++) {
                tallies[t].sums = reserve(clusters * dims, sizeof(*tallies[t].sums));
                tallies[t].counts = reserve(clusters, sizeof(*tallies[t].counts));
        }

        double t0 = seconds();
        in_parallel(threads, npoints, fill);
        double t1 = seconds();

        /* The first means are points, as far apart in the array as can be (Forgy 1965). */
        for (uint64_t k = 0; k < clusters; k++)
                memcpy(&means[k * dims], &points[npoints / clusters * k * dims],
                       dims * sizeof(*means));

        uint64_t first = 0, last = 0, growths = 0;
        double slack = (double)npoints * 2;     /* of rounding to units, in units */
        for (uint64_t i = 0; i < iterations; i++) {
                if (i)
                        move_means();
                in_parallel(threads, npoints, assign);
                add_tallies(threads);
                uint64_t inertia = tallies[0].inertia;
                growths += i && (double)inertia > (double)last * (1 + tolerance()) + slack;
                first = i ? first : inertia;
                last = inertia;
        }
        double t2 = seconds();

        uint64_t *counts = reserve(clusters, sizeof(*counts)), total = 0, differ = 0;
        memcpy(counts, tallies[0].counts, clusters * sizeof(*counts));
        in_parallel(threads, npoints, check);
        add_tallies(threads);
        for (uint64_t k = 0; k < clusters; k++) {
                total += counts[k];
                differ += counts[k] != tallies[0].counts[k];
        }
        double t3 = seconds();

        uint64_t errors = growths + differ + tallies[0].changed + tallies[0].misplaced +
                          (total != npoints);
        double each = (double)UNIT / (double)npoints;
        printf(PROGRAM ": %" PRIu64 " points of %" PRIu64 " dimensions, %" PRIu64
                       " clusters, %" PRIu64 " iterations, seed %" PRIu64
                       ": mean square distance %.6f, at first %.6f, labels %016" PRIx64 ", %s\n",
               npoints, dims, clusters, iterations, seed, (double)last * each,
               (double)first * each, tallies[0].checksum, errors ? "WRONG" : "right");
        if (errors)
                fprintf(stderr,
                        PROGRAM ": %" PRIu64 " points changed, %" PRIu64 " misplaced, %" PRIu64
                                " clusters of a wrong size, %" PRIu64 " of %" PRIu64
                                " points in clusters, inertia grew %" PRIu64 " times\n",
                        tallies[0].changed, tallies[0].misplaced, differ, total, npoints, growths);
        if (timing)
                fprintf(stderr,
                        PROGRAM ": fill %.3f s, iterations %.3f s (%.3f s each), check %.3f s\n",
                        t1 - t0, t2 - t1, (t2 - t1) / (double)iterations, t3 - t2);
        return errors ? WRONG : RIGHT;
}
