/*
 * neighbours: builds an index of nearest neighbours (HNSW, of the package libhnswlib-dev), then
 * looks up some of its own points, each of which must find itself.
 *
 *   g++ -O2 -pthread -o neighbours examples/neighbours.cc
 *
 * usage: neighbours POINTS       of 32 dimensions
 */
#include <cstdio>
#include <cstdlib>
#include <random>
#include <hnswlib/hnswlib.h>

static const size_t dimensions = 32;

/* The same each time it is asked for: the index alone is kept. */
static void point(size_t number, float *out)
{
        std::minstd_rand random((unsigned)number + 1);
        for (size_t i = 0; i < dimensions; i++)
                out[i] = (float)random() / std::minstd_rand::max();
}

int main(int argc, char **argv)
{
        size_t points = argc == 2 ? strtoul(argv[1], nullptr, 10) : 0, found = 0;
        if (!points) {
                fprintf(stderr, "usage: neighbours POINTS\n");
                return 2;
        }
        hnswlib::L2Space space(dimensions);
        hnswlib::HierarchicalNSW<float> index(&space, points, 16, 60);
        float x[dimensions];
        for (size_t n = 0; n < points; n++) {
                point(n, x);
                index.addPoint(x, n);
        }
        size_t asked = 0;
        for (size_t n = 0; n < points; n += 7, asked++) {
                point(n, x);
                found += index.searchKnn(x, 1).top().second == n;
        }
        printf("%zu points, %zu looked up, %zu found\n", points, asked, found);
        return found * 100 < asked * 95;        /* an index of this kind may miss some */
}
