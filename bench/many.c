/*
 * What many threads do at once, and how often a second: one program natively, under Linux swap and
 * under vmrun.
 *
 *   many [-m MIB] [-t MILLISECONDS] [-n COUNT] SHAPE THREADS
 *
 * What a thread does in a shape:
 *   random       a page of an array of MIB (64) that all threads share, in random order
 *   sequential   the pages of its part of that array, in order
 *   fair         as random; thread 0 only reads, all others only write
 *   page_fault1  4 MiB are mapped, each page is written to, and unmapped; a page is counted
 *   page_fault2  the same with a private mapping of a file
 *   page_fault3  the same with a shared mapping of a file
 *   mmap1        128 MiB are mapped and unmapped, untouched
 *   malloc1      128 MiB are allocated and freed, untouched
 *   futex1       a word on which nobody waits is woken
 *   pingpong     a word goes to a thread of its own and comes back: two waits, two wake-ups
 *   munmap       it computes; the main thread maps, touches and unmaps 16 pages COUNT (0) times
 *
 * The shapes with a digit are those of will-it-scale; files are in memory, so that no disk has a
 * part in them. Half of the accesses of random and sequential are writes; a read looks whether the
 * page is the right one. All threads start together, after a turn over the array that they share.
 * They stop after MILLISECONDS (1000), but those of munmap when the main thread is done. Prints
 * operations a second: `rate` of all threads, `slowest` and `fastest` of one, `first` of thread 0.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "pattern.h"

#define BATCH 32
#define WRITES 50                       /* percent of accesses */
#define MIB(n) ((size_t)(n) << 20)

static struct worker {
        pthread_t id;
        unsigned index;
        int fd;
        uint64_t key, at;               /* of its random numbers; of the pages of its part */
        uint64_t ops, began, ended;
        _Atomic uint32_t word;
} __attribute__((aligned(128))) workers[256];   /* CPUs fetch lines by two */

static const struct shape {
        const char *name;
        uint64_t (*step)(struct worker *w);     /* some operations: how many */
        size_t map, touch;              /* bytes to map, and how many apart to touch (0: none) */
        int flags;
} *shape;

static unsigned threads;
static uint64_t mib = 64, milliseconds = 1000, count;
static size_t pages;
static char *array;
static pthread_barrier_t start;
static _Atomic bool stop;

/* Word 0 is the page's number, word 8 is written to by anybody. */
static void access_page(size_t page, bool write)
{
        _Atomic uint64_t *p = (_Atomic uint64_t *)(array + page * PAGE);

        if (write) {
                atomic_store_explicit(&p[8], page, memory_order_relaxed);
        } else if (atomic_load_explicit(&p[0], memory_order_relaxed) != page) {
                fprintf(stderr, "many: page %zu does not hold what was written to it\n", page);
                exit(1);
        }
}

static uint64_t random_pages(struct worker *w, uint64_t percent)
{
        for (unsigned i = 0; i < BATCH; i++) {
                uint64_t r = mix64(w->key++);
                access_page((r >> 20) % pages, r % 100 < percent);
        }
        return BATCH;
}

static uint64_t random_(struct worker *w) { return random_pages(w, WRITES); }
static uint64_t fair(struct worker *w) { return random_pages(w, w->index ? 100 : 0); }

static uint64_t sequential(struct worker *w)
{
        size_t part = pages / threads;

        for (unsigned i = 0; i < BATCH; i++, w->at = (w->at + 1) % part)
                access_page(w->index * part + w->at, mix64(w->key++) % 100 < WRITES);
        return BATCH;
}

static void touch(char *p, size_t size, size_t step)
{
        for (size_t i = 0; step && i < size; i += step)
                p[i] = 1;
}

static uint64_t mapping(struct worker *w)
{
        char *p = w->fd < 0 ? map_anonymous(shape->map) :
                  mmap(NULL, shape->map, PROT_READ | PROT_WRITE, shape->flags, w->fd, 0);

        if (p == MAP_FAILED)
                fail("mmap");
        touch(p, shape->map, shape->touch);
        munmap(p, shape->map);
        return shape->touch ? shape->map / shape->touch : 1;
}

static uint64_t malloc1(struct worker *w)
{
        void *p = malloc(MIB(128));

        if (!p)
                fail("malloc");
        __asm__ volatile("" : "+r"(p) : "r"(w) : "memory");     /* or there is no malloc at all */
        free(p);
        return 1;
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
        syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static uint64_t futex1(struct worker *w)
{
        for (unsigned i = 0; i < BATCH; i++)
                futex(&w->word, FUTEX_WAKE, 1);
        return BATCH;
}

static void await(struct worker *w, uint32_t mine)
{
        while (atomic_load(&w->word) != mine)
                futex(&w->word, FUTEX_WAIT, !mine);
}

static void pass(struct worker *w, uint32_t mine)
{
        atomic_store(&w->word, !mine);
        futex(&w->word, FUTEX_WAKE, 1);
        await(w, mine);
}

static uint64_t pingpong(struct worker *w)
{
        for (unsigned i = 0; i < BATCH; i++)
                pass(w, 0);
        return BATCH;
}

static void *partner(void *w)
{
        await(w, 1);
        while (true)                    /* the process ends it */
                pass(w, 1);
        return NULL;
}

static uint64_t compute(struct worker *w)
{
        for (unsigned i = 0; i < BATCH; i++)
                w->key = mix64(w->key);
        return BATCH;
}

static void munmaps(void)
{
        uint64_t longest = 0;

        for (uint64_t i = 0; i < count; i++) {
                char *p = map_anonymous(16 * PAGE);
                touch(p, 16 * PAGE, PAGE);
                uint64_t begin = now_ns();
                munmap(p, 16 * PAGE);
                uint64_t took = now_ns() - begin;
                longest = took > longest ? took : longest;
        }
        printf("munmap_max %lu\n", longest);
}

static const struct shape shapes[] = {
        { "random", random_, 0, 0, 0 },
        { "sequential", sequential, 0, 0, 0 },
        { "fair", fair, 0, 0, 0 },
        { "page_fault1", mapping, MIB(4), PAGE, 0 },
        { "page_fault2", mapping, MIB(4), PAGE, MAP_PRIVATE },
        { "page_fault3", mapping, MIB(4), PAGE, MAP_SHARED },
        { "mmap1", mapping, MIB(128), 0, 0 },
        { "malloc1", malloc1, 0, 0, 0 },
        { "futex1", futex1, 0, 0, 0 },
        { "pingpong", pingpong, 0, 0, 0 },
        { "munmap", compute, 0, 0, 0 },
        { 0 },
};

static void *work(void *arg)
{
        struct worker *w = arg;

        for (uint64_t done = 0; done < (array ? pages / threads : 1);)
                done += shape->step(w);
        pthread_barrier_wait(&start);
        w->began = now_ns();
        do
                w->ops += shape->step(w);
        while (!atomic_load_explicit(&stop, memory_order_relaxed));
        w->ended = now_ns();
        return NULL;
}

static void begin(struct worker *w)
{
        pthread_t id;

        w->index = (unsigned)(w - workers);
        w->key = (uint64_t)w->index << 40;
        w->fd = shape->flags ? memfd_create("many", 0) : -1;
        if (shape->flags && ftruncate(w->fd, (off_t)shape->map) != 0)
                fail("a file in memory");
        if ((shape->step == pingpong && pthread_create(&id, NULL, partner, w) != 0) ||
            pthread_create(&w->id, NULL, work, w) != 0)
                fail("pthread_create");
}

static void report(void)
{
        uint64_t began = UINT64_MAX, ended = 0, ops = 0;
        double rate = 0, slowest = 1e99, fastest = 0;

        for (const struct worker *w = workers + threads; w-- > workers;) {
                rate = (double)w->ops * 1e9 / (double)(w->ended - w->began);
                slowest = rate < slowest ? rate : slowest;
                fastest = rate > fastest ? rate : fastest;
                began = w->began < began ? w->began : began;
                ended = w->ended > ended ? w->ended : ended;
                ops += w->ops;
        }
        printf("rate %.2f\nslowest %.2f\nfastest %.2f\nfirst %.2f\n",
               (double)ops * 1e9 / (double)(ended - began), slowest, fastest, rate);
}

static bool arguments(int argc, char **argv)
{
        for (int c; (c = getopt(argc, argv, "m:t:n:")) != -1;) {
                uint64_t *value = c == 'm' ? &mib : c == 't' ? &milliseconds :
                                  c == 'n' ? &count : NULL;
                if (!value)
                        return false;
                *value = strtoul(optarg, NULL, 10);
        }
        if (argc != optind + 2)
                return false;
        for (const struct shape *s = shapes; s->name; s++)
                shape = strcmp(argv[optind], s->name) == 0 ? s : shape;
        threads = (unsigned)strtoul(argv[optind + 1], NULL, 10);
        pages = mib << 8;
        return shape && threads > 0 && threads <= 256 && threads <= pages;
}

int main(int argc, char **argv)
{
        if (!arguments(argc, argv)) {
                fputs("usage: many [-m MIB] [-t MILLISECONDS] [-n COUNT] SHAPE THREADS\n"
                      "(256 threads at most, no more than pages; -n is for the shape munmap; "
                      "shapes: many.c)\n", stderr);
                return 2;
        }
        if (shape->step == random_ || shape->step == sequential || shape->step == fair) {
                array = map_anonymous(MIB(mib));
                for (size_t i = 0; i < pages; i++)
                        *(uint64_t *)(array + i * PAGE) = i;
        }
        pthread_barrier_init(&start, NULL, threads + 1);
        for (unsigned i = 0; i < threads; i++)
                begin(&workers[i]);
        pthread_barrier_wait(&start);
        if (shape->step == compute)
                munmaps();
        else
                usleep((useconds_t)milliseconds * 1000);
        atomic_store_explicit(&stop, true, memory_order_relaxed);
        for (unsigned i = 0; i < threads; i++)
                pthread_join(workers[i].id, NULL);
        report();
        return 0;
}
