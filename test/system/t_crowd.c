/*
 * All the memory there is, in use by many threads: nothing may be lost, and no access may fail.
 * Meanwhile some of the cache is locked, a half of that by pages of a file; some is pinned by calls
 * that wait; and threads that touch no page keep free frames in stock: resters sleep, computers do
 * not.
 *
 *   t_crowd CACHE WORKERS RESTERS COMPUTERS ROUNDS      CACHE: in pages
 *
 * Only of use under vmrun.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "t_memory.h"

#define STEP     16                     /* pages of a chunk */
#define CHUNKS   65536
#define PINNERS  4
/* Of the cache. */
#define LOCKED   2                      /* a half */
#define PINNED   16                     /* a sixteenth */

static char *chunk[CHUNKS];
static uint64_t chunks, workers, rounds;
static pthread_barrier_t begin, end;
static atomic_bool over;

static uint64_t next(uint64_t *x)
{
        *x = *x * 6364136223846793005ull + 1442695040888963407ull;
        return *x >> 33;
}

/* Writes its chunks, reads them, then pages of them at random. */
static void *worker(void *arg)
{
        const uint64_t me = (uint64_t)arg;
        uint64_t x = me + 1;

        pthread_barrier_wait(&begin);
        const uint64_t mine = (chunks - me + workers - 1) / workers;
        for (uint64_t i = 0; i < mine; i++)
                fill(chunk[me + i * workers], i * STEP, STEP, me + 1);
        for (uint64_t i = 0; i < mine; i++)
                verify("filled", chunk[me + i * workers], i * STEP, STEP, me + 1);
        for (uint64_t n = 0; n < rounds; n++) {
                uint64_t i = next(&x) % mine, p = next(&x) % STEP;
                char *page = chunk[me + i * workers] + p * PG;
                verify("at random", page, i * STEP + p, 1, me + 1);
                if (n % 2)
                        fill(page, i * STEP + p, 1, me + 1);
        }
        for (uint64_t i = 0; i < mine; i++)
                verify("at the end", chunk[me + i * workers], i * STEP, STEP, me + 1);
        pthread_barrier_wait(&end);
        return NULL;
}

#define STACK (64ul << 10)

/* Has had frames, which are free again. */
static void fill_stock(void)
{
        volatile char used[STACK - (12 << 10)];         /* the stack is charged, so it is used */
        char *p = map_pages(STEP, RW, MAP_PRIVATE);

        for (size_t i = 0; i < sizeof(used); i += PG)
                used[i] = 1;
        for (unsigned i = 0; i < 8; i++) {
                fill(p, 0, STEP, i + 1);
                CHECK(madvise(p, STEP * PG, MADV_DONTNEED) == 0);
        }
        CHECK(munmap(p, STEP * PG) == 0);
}

static void *rester(void *arg)
{
        fill_stock();
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        return arg;
}

static void *computer(void *arg)
{
        fill_stock();
        pthread_barrier_wait(&begin);
        while (!atomic_load(&over))
                ;
        return arg;
}

struct pinner { int pipe[2]; char *buffer; uint64_t size; };

/* Waits in a call for bytes that come when all else is over. */
static void *pinner(void *arg)
{
        struct pinner *p = arg;

        memset(p->buffer, 1, p->size);
        pthread_barrier_wait(&begin);
        CHECK(read(p->pipe[0], p->buffer, p->size) == 1 && p->buffer[0] == 2);
        return NULL;
}

/* Of a file that holds version 2 of them. */
static char *map_file(uint64_t pages)
{
        char *page = map_pages(1, RW, MAP_PRIVATE);
        int fd = memfd_create("t_crowd", 0);

        CHECK(fd >= 0);
        for (uint64_t i = 0; i < pages; i++) {
                fill(page, i, 1, 2);
                CHECK(write(fd, page, PG) == PG);
        }
        CHECK(munmap(page, PG) == 0);
        char *p = mmap(NULL, pages * PG, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(p != MAP_FAILED && close(fd) == 0);
        return p;
}

static pthread_t start(void *(*f)(void *), void *arg)
{
        pthread_attr_t attr;
        pthread_t t;

        CHECK(pthread_attr_init(&attr) == 0);
        CHECK(pthread_attr_setstacksize(&attr, STACK) == 0);
        CHECK(pthread_create(&t, &attr, f, arg) == 0);
        return t;
}

int main(int argc, char **argv)
{
        static struct pinner pinners[PINNERS];
        static pthread_t threads[1024];
        unsigned n = 0;

        CHECK(argc == 6);
        const uint64_t cache = strtoul(argv[1], NULL, 0), resters = strtoul(argv[3], NULL, 0),
                       computers = strtoul(argv[4], NULL, 0);
        workers = strtoul(argv[2], NULL, 0);
        rounds = strtoul(argv[5], NULL, 0);
        const uint64_t all = workers + resters + computers + PINNERS;
        CHECK(all <= 1024);
        CHECK(pthread_barrier_init(&begin, NULL, (unsigned)all + 1) == 0);
        CHECK(pthread_barrier_init(&end, NULL, (unsigned)(workers + resters + 1)) == 0);

        const uint64_t locked = cache / LOCKED / 2;
        char *anonymous = map_pages(locked, RW, MAP_PRIVATE), *file = map_file(locked);
        fill(anonymous, 0, locked, 1);
        CHECK(mlock(anonymous, locked * PG) == 0 && mlock(file, locked * PG) == 0);
        for (unsigned i = 0; i < PINNERS; i++) {
                CHECK(pipe(pinners[i].pipe) == 0);
                pinners[i].size = cache / PINNED / PINNERS * PG;
                pinners[i].buffer = map_pages(pinners[i].size / PG, RW, MAP_PRIVATE);
                threads[n++] = start(pinner, &pinners[i]);
        }
        for (uint64_t i = 0; i < computers; i++)
                threads[n++] = start(computer, NULL);
        for (uint64_t i = 0; i < resters; i++)
                threads[n++] = start(rester, NULL);
        for (uint64_t i = 0; i < workers; i++)
                threads[n++] = start(worker, (void *)i);

        while (chunks < CHUNKS &&
               (chunk[chunks] = mmap(NULL, STEP * PG, RW, ANON, -1, 0)) != MAP_FAILED)
                chunks++;
        CHECK(errno == ENOMEM && chunks > 2 * workers + resters);
        /* a little for the stack and for standard output */
        for (unsigned i = 0; i < 2; i++) {
                chunks--;
                CHECK(munmap(chunk[chunks], STEP * PG) == 0);
        }
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        atomic_store(&over, true);
        for (unsigned i = 0; i < PINNERS; i++)
                CHECK(write(pinners[i].pipe[1], "\2", 1) == 1);
        for (unsigned i = 0; i < n; i++)
                CHECK(pthread_join(threads[i], NULL) == 0);
        verify("locked", anonymous, 0, locked, 1);
        verify("locked, of a file", file, 0, locked, 2);
        printf("crowd: ok\n");
        return 0;
}
