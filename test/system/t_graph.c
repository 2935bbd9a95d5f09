/*
 * The use of guides/graph, without the graph: values of vertices, looked at in the order of an
 * array of neighbours that lie anywhere.  Its output is the same with the guide, without
 * it, and natively.
 */
#include <dlfcn.h>
#include "t_memory.h"
#include "../../guides/graph.h"

#define VERTICES (1u << 20)             /* 8 MiB of values */
#define EDGES    60000u

static uint32_t *targets;
static uint64_t *values;

/* As the inner loop of page rank: the compiler chooses its registers. */
static uint64_t sum_of(uint64_t from, uint64_t to)
{
        uint64_t sum = 0;

        for (uint64_t i = from; i < to; i++)
                sum += values[targets[i]] ^ i;
        return sum;
}

int main(void)
{
        void (*tell)(const struct graph_rows *);
        uint64_t x = 1, want = 0, sum = 0;

        targets = mmap(NULL, EDGES * sizeof(*targets), RW, ANON, -1, 0);
        values = mmap(NULL, VERTICES * sizeof(*values), RW, ANON, -1, 0);
        CHECK(targets != MAP_FAILED && values != MAP_FAILED);
        for (uint64_t v = 0; v < VERTICES; v++)
                values[v] = v * 0x9e3779b97f4a7c15ul;
        for (uint64_t i = 0; i < EDGES; i++) {
                x = x * 6364136223846793005ul + 1442695040888963407ul;
                targets[i] = (uint32_t)(x >> 33) % VERTICES;
                want += targets[i] * 0x9e3779b97f4a7c15ul ^ i;
        }
        *(void **)&tell = dlsym(RTLD_DEFAULT, "graph_rows");
        if (tell)
                tell(&(struct graph_rows){ targets, EDGES, values, VERTICES, sizeof(*values) });
        for (uint64_t i = 0; i < EDGES; i += 100)
                sum += sum_of(i, i + 100);
        CHECK(sum == want);
        printf("sum %llx\n", (unsigned long long)sum);
        return 0;
}
