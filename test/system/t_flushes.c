/*
 * t_flushes: work whose TLB flushes are counted (flushes.sh).
 *
 *   t_flushes random THREADS MIB ACCESSES   each thread touches random pages, half of them writes
 *   t_flushes scan THREADS MIB TURNS        each thread reads a part of its own, in order
 *   t_flushes drop MIB                      MADV_DONTNEED of touched pages, in one call
 *   t_flushes unmap THREADS TIMES           munmaps of 16 touched pages, beside computing threads
 *   t_flushes cold THREADS TIMES            likewise of pages that no TLB holds any more
 */
#include <pthread.h>
#include <stdatomic.h>
#include "t_draw.h"
#include "t_memory.h"

#define UNMAP (16 * PG)                 /* bytes a munmap */

static char *memory;
static uint64_t size, part, amount;
static atomic_bool over;

static void *touch_random(void *arg)
{
        uint64_t random = (uintptr_t)arg;

        for (uint64_t i = 0; i < amount; i++) {
                volatile char *p = memory + draw_from(&random, size / PG) * PG;
                if (draw_from(&random, 2))
                        *p = (char)i;
                else
                        (void)*p;
        }
        return NULL;
}

static void *scan(void *arg)
{
        volatile char *from = memory + (uintptr_t)arg * part;

        for (uint64_t turn = 0; turn < amount; turn++)
                for (uint64_t at = 0; at < part; at += PG)
                        (void)from[at];
        return NULL;
}

static void *compute(void *arg)
{
        while (!atomic_load_explicit(&over, memory_order_relaxed))
                ;
        return arg;
}

static void in_threads(uint64_t n, void *(*work)(void *), void (*meanwhile)(void))
{
        pthread_t id[256];

        CHECK(n <= sizeof(id) / sizeof(id[0]));
        for (uint64_t i = 0; i < n; i++)
                CHECK(pthread_create(&id[i], NULL, work, (void *)i) == 0);
        if (meanwhile)
                meanwhile();
        for (uint64_t i = 0; i < n; i++)
                pthread_join(id[i], NULL);
}

static void unmap(void)
{
        for (uint64_t i = 0; i < amount; i++) {
                char *p = map_pages(UNMAP / PG, RW, MAP_PRIVATE);
                memset(p, 1, UNMAP);
                CHECK(munmap(p, UNMAP) == 0);
        }
        atomic_store(&over, true);
}

/* Cooled pages are in no TLB once a flush has begun and is over: that of an munmap. */
static void unmap_cold(void)
{
        char *p = map_pages(amount * UNMAP / PG, RW, MAP_PRIVATE), *other;

        memset(p, 1, amount * UNMAP);
        CHECK(madvise(p, amount * UNMAP, MADV_COLD) == 0);
        other = map_pages(1, RW, MAP_PRIVATE);
        *other = 1;
        CHECK(munmap(other, PG) == 0);
        for (uint64_t i = 0; i < amount; i++)
                CHECK(munmap(p + i * UNMAP, UNMAP) == 0);
        atomic_store(&over, true);
}

int main(int argc, char **argv)
{
        const char *what = argc > 2 ? argv[1] : "";
        uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
        uint64_t threads = first, mib = argc > 4 ? strtoull(argv[3], NULL, 0) : first;

        amount = strtoull(argv[argc - 1], NULL, 0);
        size = mib * MiB;
        part = threads ? size / threads / PG * PG : 0;
        if (strcmp(what, "unmap") == 0) {
                in_threads(threads, compute, unmap);
                return 0;
        }
        if (strcmp(what, "cold") == 0) {
                in_threads(threads, compute, unmap_cold);
                return 0;
        }
        memory = map_pages(size / PG, RW, MAP_PRIVATE);
        for (uint64_t at = 0; at < size; at += PG)
                memory[at] = 1;
        if (strcmp(what, "random") == 0)
                in_threads(threads, touch_random, NULL);
        else if (strcmp(what, "scan") == 0)
                in_threads(threads, scan, NULL);
        else
                CHECK(strcmp(what, "drop") == 0 && madvise(memory, size, MADV_DONTNEED) == 0);
        return 0;
}
