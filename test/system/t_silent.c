/*
 * Two memory nodes, of which one answers reads late: whether a thread that waits for a page there
 * delays a thread that reads pages of the other node.
 *
 * usage: t_silent BLOCKS       each of 256 pages; says "silent: ok" if the latter does not wait
 *
 * Prints its measurements on standard error.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "t_memory.h"

#define BLOCK 256ul                     /* pages that lie at one node, mostly */
#define LATE  1.0                       /* seconds; a page of the late node takes twice that */

static volatile char *memory;
static atomic_bool begun, has_come;       /* the late page: asked for; here */

static double now(void)
{
        struct timespec t;

        CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double touch(uint64_t block, uint64_t page)
{
        double begin = now();

        (void)memory[(block * BLOCK + page) * PG];
        return now() - begin;
}

/* Is none of these pages in the cache? */
static bool are_far(uint64_t block, uint64_t first, uint64_t end)
{
        unsigned char in[BLOCK];
        unsigned cached = 0;

        CHECK(mincore((char *)memory + (block * BLOCK + first) * PG, (end - first) * PG, in) == 0);
        for (uint64_t i = 0; i < end - first; i++)
                cached += in[i];
        return cached == 0;
}

/* All that is read later is far, and so are the pages before and behind it, which come at once. */
static bool is_early(uint64_t block)
{
        return are_far(block, 19, 41) && touch(block, 19) < LATE && touch(block, 40) < LATE;
}

/* The pages of two nodes mix where one ends and the other begins, but not both at the beginning and
 * at the end of a block. */
static bool is_late(uint64_t block)
{
        return are_far(block, BLOCK / 2, BLOCK / 2 + 1) && touch(block, 3) > LATE &&
               touch(block, BLOCK - 4) > LATE;
}

static void *waits(void *block)
{
        atomic_store(&begun, true);
        fprintf(stderr, "a late page: %.3f s\n", touch((uint64_t)(uintptr_t)block, BLOCK / 2));
        atomic_store(&has_come, true);
        return NULL;
}

int main(int argc, char **argv)
{
        const uint64_t blocks = argc == 2 ? strtoul(argv[1], NULL, 0) : 0;
        uint64_t late = blocks, early = blocks;
        pthread_t id;

        CHECK(blocks > 4);
        memory = mmap(NULL, blocks * BLOCK * PG, RW, ANON, -1, 0);
        CHECK(memory != MAP_FAILED);
        for (uint64_t i = 0; i < blocks * BLOCK; i++)
                memory[i * PG] = 1;
        for (uint64_t i = 0; i < blocks && (late == blocks || early == blocks); i++)
                if (early == blocks && is_early(i))
                        early = i;
                else if (late == blocks && is_late(i))
                        late = i;
        CHECK(late != blocks && early != blocks);
        CHECK(pthread_create(&id, NULL, waits, (void *)(uintptr_t)late) == 0);
        while (!atomic_load(&begun))
                ;
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        double begin = now();
        for (uint64_t i = 0; i < 20; i++)
                touch(early, 20 + i);
        bool first = !atomic_load(&has_come);
        double took = now() - begin;
        CHECK(pthread_join(id, NULL) == 0);
        fprintf(stderr, "20 pages of the other node: %.3f s\n", took);
        printf("silent: %s\n", first ? "ok" : "one waits for the other");
        return 0;
}
