/*
 * For guides/malloc: threads that allocate and free in all the ways there are, give blocks to each
 * other and look at each word; children of fork while they do so; the fate of a dead page.
 *
 * To be preloaded: the guide, then jemalloc.  Its output is the same natively, where the
 * guide does nothing, and under vmrun.
 */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include "t_memory.h"
#include "vmguest.h"

#define THREADS 4
#define SHARED  96                      /* blocks that any thread may take */
#define OWN     16                      /* blocks of one thread */

/* Of jemalloc and of C++: there if it is preloaded. */
void *mallocx(size_t, int) __attribute__((weak));
void *rallocx(void *, size_t, int) __attribute__((weak));
size_t xallocx(void *, size_t, size_t, int) __attribute__((weak));
void dallocx(void *, int) __attribute__((weak));
void sdallocx(void *, size_t, int) __attribute__((weak));
void *_Znwm(size_t) __attribute__((weak));
void _ZdlPvm(void *, size_t) __attribute__((weak));
#define MALLOCX_ZERO 0x40

/* Starts each block.  The bytes behind it are a function of size and tag. */
struct head { size_t size; uint64_t tag; };
static struct head *_Atomic shared[SHARED];

struct random { uint64_t state; };
static uint64_t draw(struct random *r, uint64_t below)
{
        r->state = r->state * 6364136223846793005ull + 1442695040888963407ull;
        return (r->state >> 33) % below;
}

/* The sizes of a phase are between half of one of these and this one.  Of all kinds; two in a page,
 * where most pages die with one block; more than a page, whose first and last may be shared. */
static const size_t sizes[3][4] = {
        { 64, 1000, 6000, 70000 }, { 2048, 2048, 2048, 2048 }, { 5120, 14336, 70000, 70000 }
};
static int phase;

static size_t draw_size(struct random *r)
{
        size_t most = sizes[phase][draw(r, 4)];

        return most - draw(r, most / 2);
}

static uint8_t byte_at(const struct head *h, size_t i)
{
        return (uint8_t)(h->tag >> (i % 7 * 8)) ^ (uint8_t)(i >> 3) ^ 1;
}

static struct head *fill_block(struct head *h, size_t size, struct random *r)
{
        *h = (struct head){ size, draw(r, 1ul << 31) << 31 | draw(r, 1ul << 31) };
        for (size_t i = sizeof(*h); i < size; i++)
                ((uint8_t *)h)[i] = byte_at(h, i);
        return h;
}

static void look(const struct head *h, size_t size)
{
        for (size_t i = sizeof(*h); i < size; i++)
                if (((const uint8_t *)h)[i] != byte_at(h, i)) {
                        printf("FAILED: byte %zu of %zu at %p: %x instead of %x\n", i, h->size, h,
                               ((const uint8_t *)h)[i], byte_at(h, i));
                        fflush(stdout);
                        _exit(1);
                }
}

static void *zeroes(void *at, size_t size)
{
        for (size_t i = 0; i < size; i++)
                CHECK(((uint8_t *)at)[i] == 0);
        return at;
}

static struct head *allocate(struct random *r)
{
        size_t size = draw_size(r), align = 16ul << draw(r, 9);
        void *at = NULL;

        switch (draw(r, 9)) {
        case 0: at = zeroes(calloc(1, size), size); break;
        case 1: CHECK(posix_memalign(&at, align, size) == 0); break;
        case 2: at = memalign(align, size); break;
        case 3: at = aligned_alloc(align, (size + align - 1) & -align); break;
        case 4: at = valloc(size); align = PG; break;
        case 5: at = _Znwm ? _Znwm(size) : malloc(size); break;
        case 6: at = mallocx ? zeroes(mallocx(size, MALLOCX_ZERO), size) : malloc(size); break;
        case 7: at = realloc(NULL, size); break;
        default: at = malloc(size);
        }
        CHECK(at && malloc_usable_size(at) >= size);
        return fill_block(at, size, r);
}

static struct head *change(struct head *h, struct random *r)
{
        size_t before = h->size, size = draw_size(r);

        look(h, before);
        if (xallocx && before > 20000)
                CHECK(xallocx(h, before + draw(r, 9000), 0, 0) >= before);
        h = rallocx && draw(r, 2) ? rallocx(h, size, 0) : realloc(h, size);
        CHECK(h);
        look(h, before < size ? before : size);
        return fill_block(h, size, r);
}

static void give_back(struct head *h, struct random *r)
{
        if (!h)
                return;
        look(h, h->size);
        switch (draw(r, 4)) {
        case 0: dallocx ? dallocx(h, 0) : free(h); break;
        case 1: sdallocx ? sdallocx(h, h->size, 0) : free(h); break;
        case 2: _ZdlPvm ? _ZdlPvm(h, h->size) : free(h); break;
        default: free(h);
        }
}

static void hammer(struct random *r, int rounds)
{
        struct head *own[OWN] = { NULL };

        for (int i = 0; i < rounds; i++) {
                struct head **h = &own[draw(r, OWN)];
                switch (draw(r, 4)) {
                case 0:
                        *h = atomic_exchange(&shared[draw(r, SHARED)], *h);
                        break;
                case 1:
                        if (*h)
                                *h = change(*h, r);
                        break;
                default:
                        give_back(*h, r);
                        *h = draw(r, 3) ? allocate(r) : NULL;
                }
        }
        for (int i = 0; i < OWN; i++)
                give_back(own[i], r);
}

static int rounds;

static void *thread(void *arg)
{
        struct random r = { (uintptr_t)arg * 7919 };

        hammer(&r, rounds);
        return NULL;
}

/* Threads end and begin: jemalloc makes room for the caches of new ones. */
static void threads(int generations, bool forks)
{
        pthread_t t[THREADS];
        int status;

        for (int g = 0; g < generations; g++) {
                for (uintptr_t i = 0; i < THREADS; i++)
                        CHECK(!pthread_create(&t[i], NULL, thread,
                                              (void *)(i + 1 + (uintptr_t)g * THREADS)));
                for (int i = 0; forks && i < 3; i++) {
                        pid_t child = fork();
                        CHECK(child >= 0);
                        if (child == 0) {
                                /* It loses only blocks with which other threads were busy. */
                                struct random r = { (uintptr_t)i };
                                hammer(&r, rounds / 2);
                                _exit(0);
                        }
                        CHECK(waitpid(child, &status, 0) == child && status == 0);
                }
                for (int i = 0; i < THREADS; i++)
                        CHECK(!pthread_join(t[i], NULL));
        }
}

/* --- dead pages --- */

static bool guided;

/* Natively the guide leaves them as they are. */
static void is_dead(const void *page, size_t len, bool dead)
{
        ssize_t resident = vmg_resident(page, len);

        if (resident != (guided && dead ? 0 : (ssize_t)(len / PG))) {
                printf("FAILED: %zd pages of %zu are there, but they are %s\n", resident, len / PG,
                       dead ? "dead" : "alive");
                exit(1);
        }
}

static void *touched(size_t size)
{
        return memset(aligned_alloc(PG, size), 1, size);
}

/* Blocks of which more pages die than the guide keeps anchors of; at first they live. */
static void *others[256];
static void others_live(void)
{
        for (int i = 0; i < 256; i++)
                others[i] = memset(malloc(PG / 2), 1, PG / 2);
}

static void others_die(void)
{
        for (int i = 0; i < 256; i++)
                free(others[i]);
}

/* Eight blocks share a page.  All die, and then a second time. */
static void shared_pages(void)
{
        for (int round = 0; round < 2; round++) {
                void *volatile block[1024];
                for (int i = 0; i < 1024; i++)
                        block[i] = memset(malloc(512), 1, 512);
                others_live();
                for (int i = 0; i < 1024; i++)
                        free(block[i]);
                others_die();
                int resident = 0;
                for (int i = 0; i < 1024; i++)
                        resident += vmg_resident((void *)((uintptr_t)block[i] & -PG), 1) > 0;
                CHECK(guided ? resident < 100 : resident == 1024);
        }
}

static void dead_pages(void)
{
        char *one = touched(64 * PG), *keep[16];
        void *volatile gone = one;

        is_dead(one, 64 * PG, false);
        free(one);
        is_dead(gone, 64 * PG, true);

        /* Blocks that share pages: a slab of 16 has them side by side. */
        for (int i = 0; i < 16; i++)
                keep[i] = memset(malloc(320), 1, 320);
        char *page = (char *)((uintptr_t)keep[8] & -PG);
        others_live();
        for (int i = 0; i < 16; i++)
                if (i != 8)
                        free(keep[i]);
        others_die();
        for (int i = 0; i < 320; i++)
                CHECK(keep[8][i] == 1);
        is_dead(page, PG, false);

        /* A child's pages are its own. */
        pid_t child = fork();
        if (child == 0) {
                others_live();
                free(keep[8]);
                others_die();
                _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        for (int i = 0; i < 320; i++)
                CHECK(keep[8][i] == 1);
        free(keep[8]);
}

/* t_malloc [ROUNDS [guided]]: of each thread, some times; `guided`: the guide works natively. */
int main(int argc, char **argv)
{
        guided = vmg_version() > 0 || argc > 2;
        rounds = argc > 1 ? atoi(argv[1]) : 1000;
        dead_pages();
        shared_pages();
        for (phase = 0; phase < 3; phase++) {
                threads(4, false);
                threads(1, true);
        }
        phase = 0;
        struct random r = { 1 };
        for (int i = 0; i < SHARED; i++)
                give_back(shared[i], &r);
        CHECK(realloc(malloc(100), 0) == NULL);
        CHECK(malloc(SIZE_MAX / 2) == NULL && realloc(NULL, SIZE_MAX / 2) == NULL);
        free(NULL);
        puts("malloc: ok");
        return 0;
}
