/*
 * OpenMP: loops, reductions, tasks, critical sections and locks over memory that need not fit into
 * the cache. Argument: words of the array. Its output is the same with any number of
 * threads.
 */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t value(uint64_t i) { return (i * 0x9e3779b97f4a7c15 ^ i >> 7) >> 40; }

static int by_value(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return x < y ? -1 : x > y;
}

/* Halves sorted by tasks, then merged. */
static void sort(uint32_t *p, uint32_t *spare, size_t n)
{
        if (n < 4096) {
                qsort(p, n, sizeof(*p), by_value);
                return;
        }
        size_t half = n / 2, a = 0, b = half;
        #pragma omp task
        sort(p, spare, half);
        #pragma omp task
        sort(p + half, spare + half, n - half);
        #pragma omp taskwait
        for (size_t i = 0; i < n; i++)
                spare[i] = b == n || (a < half && p[a] <= p[b]) ? p[a++] : p[b++];
        for (size_t i = 0; i < n; i++)
                p[i] = spare[i];
}

int main(int argc, char **argv)
{
        size_t n = argc > 1 ? strtoul(argv[1], NULL, 0) : 1 << 18, wrong = 0;
        uint32_t *p = malloc(n * sizeof(*p)), *spare = malloc(n * sizeof(*p));
        uint64_t sum = 0, after = 0, ordered = 0;
        int visits = 0, locked = 0;
        omp_lock_t lock;

        if (!p || !spare)
                return 2;
        omp_set_num_threads(4);
        #pragma omp parallel for reduction(+:sum) schedule(dynamic, 4096)
        for (size_t i = 0; i < n; i++) {
                p[i] = (uint32_t)value(i);
                sum += p[i];
        }
        #pragma omp parallel
        #pragma omp single
        sort(p, spare, n);
        #pragma omp parallel for reduction(+:after, wrong)
        for (size_t i = 0; i < n; i++) {
                after += p[i];
                wrong += i && p[i - 1] > p[i];
        }
        omp_init_lock(&lock);
        #pragma omp parallel
        for (int i = 0; i < 200; i++) {
                #pragma omp critical
                visits++;
                omp_set_lock(&lock);
                locked++;
                omp_unset_lock(&lock);
                #pragma omp barrier
        }
        #pragma omp parallel for ordered
        for (int i = 0; i < 100; i++) {
                #pragma omp ordered
                ordered = ordered * 31 + (uint64_t)i;
        }
        printf("%zu words, sum %lu, after sorting %lu, wrong %zu, visits %d, locked %d, ordered "
               "%lx\n",
               n, sum, after, wrong, visits, locked, ordered);
        return sum != after || wrong || visits != 800 || locked != 800;
}
