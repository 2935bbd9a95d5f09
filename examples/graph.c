/*
 * graph: page rank and betweenness centrality on a generated graph, with OpenMP.
 *
 * The graph is undirected and has 2^scale vertices. Its edges come from a recursive matrix (R-MAT;
 * Chakrabarti, Zhan, Faloutsos, SDM 2004) with Graph500's probabilities, so degrees follow a power
 * law; labels are permuted. Loops and double edges are dropped. The neighbours of all vertices lie
 * sorted in one array (compressed sparse rows).
 *
 * Page rank is computed by power iteration until it moves by less than TOLERANCE. Betweenness is
 * Brandes' ("A faster algorithm for betweenness centrality", 2001) from some sources, not all.
 *
 * Sums are added in an order of their own, so standard output depends on the arguments only, and
 * not on the number of threads. The checks are the program's own:
 *   - The rows hold the generated edges (by a sum of hashes) before double ones are dropped, and
 *     are sorted and symmetric afterwards.
 *   - Page ranks sum to 1. Each iteration moves them by at most DAMPING times the one before.
 *   - The dependencies on one source sum to the interior vertices of a shortest path to each vertex
 *     that it reaches: distance - 1.
 * Exit status: 0 all is right, 1 wrong result, 2 usage or no memory.
 */
#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <omp.h>

#define PROGRAM "graph"
#include "example.h"
#include "../guides/graph.h"

#define DAMPING         0.85
#define TOLERANCE       1e-7            /* sum over all vertices of the change of their ranks */
#define ROUNDING        1e-9            /* relative error of a sum of doubles that is no error */
#define PART            (1u << 20)      /* neighbours stored by one pass over all edges */
#define BLOCK           1024            /* vertices that one thread does in a row */
#define TOP             5
#define ERRORS_SHOWN    10

/* The neighbours of v are targets[offsets[v]] to targets[offsets[v + 1] - 1]. */
static uint64_t *offsets;               /* [nvertices + 1] */
static uint32_t *targets;
static uint64_t scale = 16, nvertices, nedges, seed = 1;
static unsigned nthreads = 4;
static uint64_t errors;

static void wrong(const char *what, double got, double want)
{
        if (errors++ < ERRORS_SHOWN)
                fprintf(stderr, "graph: %s: %.17g, expected %.17g\n", what, got, want);
}

static void check_near(const char *what, double got, double want)
{
        if (!(fabs(got - want) <= ROUNDING * fmax(1, fabs(want))))
                wrong(what, got, want);
}

/* A permutation of the vertices: each step is one. */
static uint32_t relabel(uint64_t v)
{
        uint64_t mask = nvertices - 1;
        unsigned half = (unsigned)(scale + 1) / 2;
        for (int round = 0; round < 3; round++) {
                v = (v * 0x9e3779b97f4a7c15 + seed) & mask;
                v ^= v >> half;
        }
        return (uint32_t)v;
}

struct edge { uint32_t u, v; };

/* Edge i of those generated. Each 16 random bits choose a quarter of the adjacency matrix. */
static struct edge edge_of(uint64_t i)
{
        const uint64_t a = 0.57 * 65536, b = a + 0.19 * 65536, c = b + 0.19 * 65536;
        uint64_t state = random_at(seed, i), u = 0, v = 0, bits = 0;
        for (unsigned level = 0; level < scale; level++, bits >>= 16) {
                if (level % 4 == 0)
                        bits = next_random(&state);
                uint64_t r = bits & 0xffff;
                u = u << 1 | (r >= b);
                v = v << 1 | ((r >= a && r < b) || r >= c);
        }
        return (struct edge){ relabel(u), relabel(v) };
}

static uint64_t hash_of(uint32_t u, uint32_t v) { return scramble((uint64_t)u << 32 | v); }

static int by_number(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
        return x < y ? -1 : x > y;
}

/* Sums of hashes of all edges in the rows, forwards and backwards. */
static void hash_rows(uint64_t *forwards, uint64_t *backwards)
{
        uint64_t f = 0, b = 0;
        #pragma omp parallel for reduction(+:f, b) schedule(dynamic, BLOCK)
        for (uint64_t v = 0; v < nvertices; v++)
                for (uint64_t i = offsets[v]; i < offsets[v + 1]; i++) {
                        f += hash_of((uint32_t)v, targets[i]);
                        b += hash_of(targets[i], (uint32_t)v);
                }
        *forwards = f;
        *backwards = b;
}

/* Sorts each row and drops what it has twice; moves the rows together. */
static void sort_rows(void)
{
        #pragma omp parallel for schedule(dynamic, BLOCK)
        for (uint64_t v = 0; v < nvertices; v++)
                qsort(targets + offsets[v], offsets[v + 1] - offsets[v], sizeof(*targets),
                      by_number);
        uint64_t n = 0, start = 0;
        for (uint64_t v = 0; v < nvertices; v++) {
                uint64_t end = offsets[v + 1], row = n;
                for (uint64_t i = start; i < end; i++)
                        if (n == row || targets[n - 1] != targets[i])
                                targets[n++] = targets[i];
                start = end;
                offsets[v + 1] = n;
        }
}

static void check_rows(void)
{
        uint64_t unsorted = 0, forwards, backwards;
        #pragma omp parallel for reduction(+:unsorted) schedule(dynamic, BLOCK)
        for (uint64_t v = 0; v < nvertices; v++)
                for (uint64_t i = offsets[v]; i < offsets[v + 1]; i++)
                        unsorted += targets[i] >= nvertices || targets[i] == v ||
                                    (i > offsets[v] && targets[i - 1] >= targets[i]);
        hash_rows(&forwards, &backwards);
        if (unsorted)
                wrong("neighbours out of order", (double)unsorted, 0);
        if (forwards != backwards)
                wrong("edges without their counterpart", 1, 0);
}

static void store(uint32_t u, uint32_t v)
{
        uint64_t at;
        #pragma omp atomic capture
        at = offsets[u + 1ul]++;
        targets[at] = v;
}

/*
 * Generates the edges once to count them, and once for each PART of the rows to store what is in
 * it, so that stores at random do not go all over a graph that is larger than the memory at hand.
 * While rows are filled, offsets[v + 1] is where the next neighbour of v goes: at last the end of
 * its row.
 */
static void make_graph(uint64_t degree)
{
        uint64_t generated = nvertices * degree, want = 0, forwards, backwards;
        uint64_t *counts = reserve(nvertices + 2, sizeof(*counts)); /* counts[v + 2] is v's */
        offsets = counts;
        #pragma omp parallel for reduction(+:want)
        for (uint64_t i = 0; i < generated; i++) {
                struct edge e = edge_of(i);
                if (e.u == e.v)
                        continue;
                #pragma omp atomic
                counts[e.u + 2ul]++;
                #pragma omp atomic
                counts[e.v + 2ul]++;
                want += hash_of(e.u, e.v) + hash_of(e.v, e.u);
        }
        for (uint64_t v = 0; v < nvertices; v++)
                counts[v + 2] += counts[v + 1];
        uint64_t stored = counts[nvertices + 1];
        targets = reserve(stored ? stored : 1, sizeof(*targets));
        for (uint64_t from = 0, to = 0; from < nvertices; from = to) {
                while (to < nvertices && (to == from || offsets[to + 1] < offsets[from + 1] + PART))
                        to++;
                #pragma omp parallel for
                for (uint64_t i = 0; i < generated; i++) {
                        struct edge e = edge_of(i);
                        if (e.u == e.v)
                                continue;
                        if (from <= e.u && e.u < to)
                                store(e.u, e.v);
                        if (from <= e.v && e.v < to)
                                store(e.v, e.u);
                }
        }
        if (offsets[nvertices] != stored)
                wrong("stored edges", (double)offsets[nvertices], (double)stored);
        hash_rows(&forwards, &backwards);
        if (forwards != want)
                wrong("edges that differ from those generated", 1, 0);
        sort_rows();
        check_rows();
        nedges = offsets[nvertices] / 2;
}

static uint64_t degree_of(uint64_t v) { return offsets[v + 1] - offsets[v]; }

struct sums { double total, change, lost; };

/*
 * One iteration: each vertex pulls from its neighbours, in their order, what they pass on; ranks of
 * vertices without neighbours are lost to these, and shared by all. lost is their sum before.
 * Sums over all vertices are sums of the blocks' sums, in the order of the blocks. passed and
 * blocks are scratch memory.
 */
static struct sums pull_ranks(double *rank, double lost, double *passed, struct sums *blocks)
{
        uint64_t nblocks = (nvertices + BLOCK - 1) / BLOCK;
        double base = (1 - DAMPING + DAMPING * lost) / (double)nvertices;
        struct sums all = { 0, 0, 0 };
        #pragma omp parallel
        {
                #pragma omp for schedule(dynamic, BLOCK)
                for (uint64_t v = 0; v < nvertices; v++)
                        passed[v] = degree_of(v) ? rank[v] / (double)degree_of(v) : 0;
                #pragma omp for schedule(dynamic)
                for (uint64_t b = 0; b < nblocks; b++) {
                        struct sums s = { 0, 0, 0 };
                        for (uint64_t v = b * BLOCK; v < nvertices && v < (b + 1) * BLOCK; v++) {
                                double r = 0;
                                for (uint64_t i = offsets[v]; i < offsets[v + 1]; i++)
                                        r += passed[targets[i]];
                                r = base + DAMPING * r;
                                s.total += r;
                                s.change += fabs(r - rank[v]);
                                s.lost += degree_of(v) ? 0 : r;
                                rank[v] = r;
                        }
                        blocks[b] = s;
                }
        }
        for (uint64_t b = 0; b < nblocks; b++) {
                all.total += blocks[b].total;
                all.change += blocks[b].change;
                all.lost += blocks[b].lost;
        }
        return all;
}

/* To vmrun --guide graph, if it is there: each iteration goes through all rows in order. */
static void tell_guide(const double *values)
{
        void (*tell)(const struct graph_rows *);

        *(void **)&tell = dlsym(RTLD_DEFAULT, "graph_rows");
        if (tell)
                tell(&(struct graph_rows){ targets, offsets[nvertices], values, nvertices,
                                           sizeof(*values) });
}

/*
 * Fills rank, and returns the number of iterations. In the norm that is the sum of all changes,
 * iterations contract by DAMPING; so their number is bounded too.
 */
static unsigned page_rank(double *rank)
{
        double *passed = reserve(nvertices, sizeof(*passed));
        tell_guide(passed);
        struct sums *blocks = reserve((nvertices + BLOCK - 1) / BLOCK, sizeof(*blocks));
        struct sums last = { 1, 2, 0 };
        for (uint64_t v = 0; v < nvertices; v++) {
                rank[v] = 1 / (double)nvertices;
                last.lost += degree_of(v) ? 0 : rank[v];
        }
        unsigned iterations = 0, limit = (unsigned)(log(TOLERANCE / 2) / log(DAMPING)) + 2;
        while (last.change > TOLERANCE && iterations < limit) {
                struct sums now = pull_ranks(rank, last.lost, passed, blocks);
                iterations++;
                check_near("sum of page ranks", now.total, 1);
                if (!(now.change <= DAMPING * last.change + ROUNDING))
                        wrong("change of page ranks", now.change, DAMPING * last.change);
                last = now;
        }
        if (!(last.change <= TOLERANCE))
                wrong("change of page ranks at the end", last.change, TOLERANCE);
        munmap(passed, nvertices * sizeof(*passed));
        return iterations;
}

/* What a search from one source needs. */
struct search {
        uint32_t *queue, *distance;     /* [nvertices]; distance is 0 at vertices not reached */
        double *paths, *dependency;     /* [nvertices] */
        uint64_t source, reached;
        double interior;                /* sum of distance - 1 over the reached vertices */
        double dependencies;            /* sum of all but the source's */
};

/* One vertex with neighbours, or 0 if no vertex has any. */
static uint64_t source_of(uint64_t k)
{
        uint64_t v = below(random_at(~seed, k), nvertices);
        for (uint64_t i = 0; i < nvertices && !degree_of(v); i++)
                v = (v + 1) % nvertices;
        return v;
}

/* Breadth first; then back, from the most distant vertex to the source. Distances count from 1. */
static void search(struct search *s)
{
        memset(s->distance, 0, nvertices * sizeof(*s->distance));
        memset(s->dependency, 0, nvertices * sizeof(*s->dependency));
        s->interior = s->dependencies = 0;
        s->reached = 1;
        s->queue[0] = (uint32_t)s->source;
        s->distance[s->source] = 1;
        s->paths[s->source] = 1;
        for (uint64_t head = 0; head < s->reached; head++) {
                uint32_t v = s->queue[head];
                for (uint64_t i = offsets[v]; i < offsets[v + 1]; i++) {
                        uint32_t w = targets[i];
                        if (!s->distance[w]) {
                                s->distance[w] = s->distance[v] + 1;
                                s->paths[w] = 0;
                                s->queue[s->reached++] = w;
                        }
                        if (s->distance[w] == s->distance[v] + 1)
                                s->paths[w] += s->paths[v];
                }
        }
        for (uint64_t head = s->reached; head-- > 1;) {
                uint32_t w = s->queue[head];
                double each = (1 + s->dependency[w]) / s->paths[w];
                for (uint64_t i = offsets[w]; i < offsets[w + 1]; i++) {
                        uint32_t v = targets[i];
                        if (s->distance[v] + 1 == s->distance[w])
                                s->dependency[v] += s->paths[v] * each;
                }
                s->interior += s->distance[w] - 2;
                s->dependencies += s->dependency[w];
        }
        s->dependency[s->source] = 0;
}

/*
 * Fills centrality from nsources sources: as many searches at once as there are threads, their
 * results added in the order of the sources. Returns how many vertices they reached together.
 */
static uint64_t betweenness(double *centrality, uint64_t nsources)
{
        uint64_t reached = 0;
        struct search *searches = reserve(nthreads, sizeof(*searches));
        for (uint64_t t = 0; t < nthreads && t < nsources; t++)
                searches[t] = (struct search){
                        .queue = reserve(nvertices, sizeof(*searches->queue)),
                        .distance = reserve(nvertices, sizeof(*searches->distance)),
                        .paths = reserve(nvertices, sizeof(*searches->paths)),
                        .dependency = reserve(nvertices, sizeof(*searches->dependency)),
                };
        for (uint64_t done = 0; done < nsources;) {
                uint64_t n = nsources - done < nthreads ? nsources - done : nthreads;
                #pragma omp parallel for schedule(dynamic)
                for (uint64_t t = 0; t < n; t++) {
                        searches[t].source = source_of(done + t);
                        search(&searches[t]);
                }
                #pragma omp parallel for schedule(static, BLOCK)
                for (uint64_t v = 0; v < nvertices; v++)
                        for (uint64_t t = 0; t < n; t++)
                                centrality[v] += searches[t].dependency[v];
                for (uint64_t t = 0; t < n; t++) {
                        reached += searches[t].reached;
                        check_near("sum of dependencies", searches[t].dependencies,
                                   searches[t].interior);
                }
                done += n;
        }
        return reached;
}

/* Prints the vertices with the highest scores, of equals the first, and a checksum of all. */
static void print_top(const char *what, const double *score)
{
        uint64_t top[TOP], n = 0, checksum = 0;
        for (uint64_t v = 0; v < nvertices; v++) {
                uint64_t bits, place;
                memcpy(&bits, &score[v], sizeof(bits));
                checksum = scramble(checksum ^ bits);
                if (n == TOP && !(score[v] > score[top[TOP - 1]]))
                        continue;
                n += n < TOP;
                for (place = n - 1; place > 0 && score[v] > score[top[place - 1]]; place--)
                        top[place] = top[place - 1];
                top[place] = v;
        }
        printf("%s: checksum %016" PRIx64 "; highest:\n", what, checksum);
        for (uint64_t i = 0; i < n; i++)
                printf("%12" PRIu64 "  degree %8" PRIu64 "  %.9g\n", top[i], degree_of(top[i]),
                       score[top[i]]);
}

static void usage(FILE *f)
{
        fputs("usage: graph [OPTION...]\n"
              "  --scale N    2^N vertices (default 16)\n"
              "  --degree N   edges to a vertex that are generated (default 16)\n"
              "  --sources N  for betweenness (default 16)\n"
              "  --threads N  (default 4)\n"
              "  --seed N     (default 1)\n"
              "  --time       how long it took, on standard error\n",
              f);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "degree", required_argument, NULL, 'd' },
                { "help", no_argument, NULL, 'h' },
                { "scale", required_argument, NULL, 'c' },
                { "seed", required_argument, NULL, 's' },
                { "sources", required_argument, NULL, 'b' },
                { "threads", required_argument, NULL, 'n' },
                { "time", no_argument, NULL, 't' },
                { NULL, 0, NULL, 0 }
        };
        uint64_t degree = 16, nsources = 16;
        bool show_time = false;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'b': nsources = parse_number("--sources", optarg, false, 0, 1 << 20); break;
                case 'c': scale = parse_number("--scale", optarg, false, 1, 31); break;
                case 'd': degree = parse_number("--degree", optarg, false, 1, 1 << 16); break;
                case 'h': usage(stdout); return RIGHT;
                case 'n': nthreads = parse_threads(optarg); break;
                case 's': seed = parse_number("--seed", optarg, false, 0, UINT64_MAX); break;
                case 't': show_time = true; break;
                default: usage(stderr); return CANNOT;
                }
        if (optind != argc) {
                usage(stderr);
                return CANNOT;
        }
        omp_set_num_threads((int)nthreads);
        nvertices = 1ul << scale;

        double t0 = seconds();
        make_graph(degree);
        double t1 = seconds();
        double *rank = reserve(nvertices, sizeof(*rank));
        unsigned iterations = page_rank(rank);
        double t2 = seconds();
        double *centrality = reserve(nvertices, sizeof(*centrality));
        uint64_t reached = betweenness(centrality, nsources);
        double t3 = seconds();

        printf("graph: %" PRIu64 " vertices, %" PRIu64 " edges, seed %" PRIu64 ": %u iterations, %"
               PRIu64 " sources reached %" PRIu64 ", %" PRIu64 " errors\n",
               nvertices, nedges, seed, iterations, nsources, reached, errors);
        print_top("page rank", rank);
        print_top("betweenness", centrality);
        if (show_time)
                fprintf(stderr,
                        "graph: generation %.3f s, page rank %.3f s, betweenness %.3f s\n",
                        t1 - t0, t2 - t1, t3 - t2);
        return errors ? WRONG : RIGHT;
}
