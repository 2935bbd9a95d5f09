/*
 * Two memory nodes, of which one answers reads late: whether a thread that waits for a page there
 * delays a thread that reads pages of the other node.
 *
 * usage: t_silent MIB
 *
 * MIB of memory are more than the first node and the cache hold.  Says "silent: ok" if the latter
 * thread does not wait.
 *
 * Prints its measurements on standard error.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "t_memory.h"

#define LATE  1.0                       /* seconds; a page of the late node takes twice that */
#define EARLY 20                        /* pages of the other node */
#define MORE  1024                      /* pages: twice the cache */

static volatile char *memory;
static uint64_t early[EARLY], late;
static atomic_bool begun, has_come;     /* the late page: asked for; here */

static double now(void)
{
        struct timespec t;

        CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double touch(uint64_t page)
{
        double begin = now();

        (void)memory[page * PG];
        return now() - begin;
}

static bool is_far(uint64_t page)
{
        unsigned char in;

        CHECK(mincore((char *)memory + page * PG, PG, &in) == 0);
        return !(in & 1);
}

/* A page that has come keeps its place at the node.  Pages leave the cache in no strict order, so
 * only a page that has come tells where it was. */
static void find(uint64_t pages)
{
        uint64_t page = 0;

        for (unsigned n = 0; n < EARLY; page++) {
                CHECK(page < pages);
                if (is_far(page) && touch(page) < LATE)
                        early[n++] = page;
        }
        for (late = pages - 1; !is_far(late) || touch(late) < LATE; late--)
                CHECK(late > page);
}

static bool are_far(void)
{
        bool all = is_far(late);

        for (unsigned i = 0; i < EARLY; i++)
                all &= is_far(early[i]);
        return all;
}

/* Pages that came back may be hot. */
static void cool(uint64_t page)
{
        CHECK(madvise((char *)memory + page * PG, PG, MADV_COLD) == 0);
}

/* They leave the cache again, for pages that are new. */
static void push_out(void)
{
        cool(late);
        for (unsigned i = 0; i < EARLY; i++)
                cool(early[i]);
        for (unsigned turn = 0; !are_far(); turn++) {
                CHECK(turn < 4);
                char *more = map_pages(MORE, RW, MAP_PRIVATE);
                for (uint64_t i = 0; i < MORE; i++)
                        more[i * PG] = 1;
        }
}

static void *waits(void *arg)
{
        atomic_store(&begun, true);
        fprintf(stderr, "a late page: %.3f s\n", touch(late));
        atomic_store(&has_come, true);
        return arg;
}

int main(int argc, char **argv)
{
        const uint64_t pages = (argc == 2 ? strtoul(argv[1], NULL, 0) : 0) * MiB / PG;
        pthread_t id;

        CHECK(pages > 0);
        memory = map_pages(pages, RW, MAP_PRIVATE);
        for (uint64_t i = 0; i < pages; i++)
                memory[i * PG] = 1;
        find(pages);
        push_out();
        CHECK(pthread_create(&id, NULL, waits, NULL) == 0);
        while (!atomic_load(&begun))
                ;
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        double begin = now();
        for (unsigned i = 0; i < EARLY; i++)
                touch(early[i]);
        bool first = !atomic_load(&has_come);
        double took = now() - begin;
        CHECK(pthread_join(id, NULL) == 0);
        fprintf(stderr, "%u pages of the other node: %.3f s\n", EARLY, took);
        printf("silent: %s\n", first ? "ok" : "one waits for the other");
        return 0;
}
