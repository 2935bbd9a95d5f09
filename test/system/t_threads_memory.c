/*
 * t_threads: memory that is unmapped, protected, moved and evicted while other threads use it.
 */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include "t_memory.h"
#include "t_threads.h"

/*
 * Runs a thread that stores a rising number to *cell without end.  Where it may not, it waits until
 * `closed` is 0 again.
 */
static volatile uint64_t *cell;
static _Atomic uint32_t closed;
static _Atomic bool stop;
static _Atomic uint64_t faults_taken;

static void waits_until_open(int sig)
{
        uint32_t c;

        (void)sig;
        faults_taken++;
        while ((c = closed) != 0)
                futex_(&closed, FUTEX_WAIT_PRIVATE, c, NULL, NULL, 0);
}

static void *stores(void *arg)
{
        for (uint64_t n = 1; !stop; n++)
                *cell = n;
        return arg;
}

static pthread_t start_storing(void)
{
        struct sigaction sa = { .sa_handler = waits_until_open };

        CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
        stop = false;
        faults_taken = 0;
        cell = map_pages(1, RW, MAP_PRIVATE);
        return start(stores, NULL);
}

static void stop_storing(pthread_t id)
{
        stop = true;
        finish(id);
        signal(SIGSEGV, SIG_DFL);
}

static void open_again(void)
{
        closed = 0;
        futex_(&closed, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static uint64_t a_later_value(uint64_t than)
{
        CHECK(BECOMES(*cell > than));
        return *cell;
}

static void spend_time(int round)
{
        if (round % 4 == 0)
                sched_yield();
        else
                for (volatile int i = 0; i < round % 64 * 50; i++) { }
}

static void protected(void)
{
        pthread_t id = start_storing();

        for (int round = 0; round < times(100); round++) {
                a_later_value(*cell);
                closed = 1;
                CHECK(mprotect((void *)cell, PG, PROT_READ) == 0);
                uint64_t v = *cell;
                for (int i = 0; i < 4; i++) {
                        spend_time(round);
                        CHECK(*cell == v);
                }
                if (round == 0) /* with one CPU, the other may not run while it is closed */
                        CHECK(BECOMES(faults_taken > 0));
                CHECK(mprotect((void *)cell, PG, RW) == 0);
                open_again();
        }
        stop_storing(id);
}

/* A page whose memory may have been the cell's: a store by a stale translation shows here. */
static void set_trap(uint64_t *page)
{
        for (unsigned i = 0; i < PG / 8; i++)
                page[i] = ~(uint64_t)i;
}

static void look_into_trap(uint64_t *page)
{
        for (unsigned i = 0; i < PG / 8; i++)
                CHECK(page[i] == ~(uint64_t)i);
        CHECK(munmap(page, PG) == 0);
}

/* The page goes away and comes back, in the three ways there are. */
static void replaced(void)
{
        pthread_t id = start_storing();

        for (int round = 0; round < times(120); round++) {
                uint64_t last = a_later_value(*cell), v;
                uint64_t *trap = map_pages(1, RW, MAP_PRIVATE); /* gets its memory afterwards */

                switch (round % 3) {
                case 0:
                        closed = 1;
                        CHECK(munmap((void *)cell, PG) == 0);
                        set_trap(trap);
                        spend_time(round);
                        CHECK(mmap((void *)cell, PG, RW, ANON | MAP_FIXED, -1, 0) == cell);
                        open_again();
                        break;
                case 1:
                        CHECK(mmap((void *)cell, PG, RW, ANON | MAP_FIXED, -1, 0) == cell);
                        set_trap(trap);
                        break;
                default:
                        CHECK(madvise((void *)cell, PG, MADV_DONTNEED) == 0);
                        set_trap(trap);
                }
                v = *cell;
                CHECK(v == 0 || v >= last);
                a_later_value(v > last ? v : last);
                look_into_trap(trap);
        }
        stop_storing(id);
}

static void moved(void)
{
        pthread_t id = start_storing();
        uint64_t *elsewhere = map_pages(1, PROT_NONE, MAP_PRIVATE);

        for (int round = 0; round < times(60); round++) {
                uint64_t last = a_later_value(*cell);
                closed = 1;
                CHECK(remap((void *)cell, PG, PG, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) ==
                      elsewhere);
                uint64_t v = *elsewhere;
                CHECK(v >= last);
                for (int i = 0; i < 4; i++) {
                        spend_time(round);
                        CHECK(*elsewhere == v);
                }
                CHECK(remap(elsewhere, PG, PG, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)cell) ==
                      cell);
                open_again();
        }
        stop_storing(id);
}

/* ---- one arena, all threads ---- */

#define CHUNK       16ul                /* pages */
#define CHUNKS      512ul               /* 32 MiB: far, with the caches of these tests */
#define WORKERS     4
static char *arena, *rooms;             /* a room of a chunk for each worker */
static pthread_mutex_t chunk_lock[CHUNKS];
static uint64_t version[CHUNKS];
static _Atomic uint64_t operations;

static uint64_t next(uint64_t *x)
{
        *x = *x * 6364136223846793005 + 1442695040888963407;
        return *x >> 33;
}

static char *chunk_at(uint64_t c) { return arena + c * CHUNK * PG; }

/*
 * @room, of a chunk's size, is the calling worker's own place for a chunk that moves away and back.
 * No thread lets mmap choose a place meanwhile; a thread that is created does, for its stack, so
 * that the workers wait for @all_created.
 */
static void change_chunk(uint64_t c, char *room, uint64_t *x)
{
        char *at = chunk_at(c);
        uint64_t size = CHUNK * PG;

        switch (next(x) % 8) {
        case 0:
                CHECK(munmap(at, size) == 0 &&
                      mmap(at, size, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == at);
                version[c] = 0;
                break;
        case 1:
                CHECK(madvise(at, size, MADV_DONTNEED) == 0);
                version[c] = 0;
                break;
        case 2:
                CHECK(mprotect(at, size, PROT_READ) == 0);
                verify("read-only", at, c * CHUNK, CHUNK, version[c]);
                CHECK(mprotect(at, size, RW) == 0);
                break;
        case 3:
                CHECK(remap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room);
                verify("moved", room, c * CHUNK, CHUNK, version[c]);
                CHECK(remap(room, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
                CHECK(mmap(room, size, PROT_NONE, ANON | MAP_FIXED_NOREPLACE, -1, 0) == room);
                break;
        default:
                version[c] = version[c] % 1000 + 1;
                fill(at, c * CHUNK, CHUNK, version[c]);
        }
}

static pthread_barrier_t all_created;

static void *uses_arena(void *number)
{
        uint64_t x = (uintptr_t)number * 77 + 1;
        char *room = rooms + (uintptr_t)number * CHUNK * PG;

        pthread_barrier_wait(&all_created);
        while (!stop) {
                uint64_t c = next(&x) % CHUNKS;
                if (pthread_mutex_trylock(&chunk_lock[c]))
                        continue;
                verify("arena", chunk_at(c), c * CHUNK, CHUNK, version[c]);
                change_chunk(c, room, &x);
                verify("arena, changed", chunk_at(c), c * CHUNK, CHUNK, version[c]);
                pthread_mutex_unlock(&chunk_lock[c]);
                operations++;
        }
        return NULL;
}

static void shared_arena(void)
{
        pthread_t id[WORKERS];

        arena = map_pages(CHUNKS * CHUNK, RW, MAP_PRIVATE);
        rooms = map_pages(WORKERS * CHUNK, PROT_NONE, MAP_PRIVATE);
        for (uint64_t c = 0; c < CHUNKS; c++)
                pthread_mutex_init(&chunk_lock[c], NULL);
        stop = false;
        pthread_barrier_init(&all_created, NULL, WORKERS + 1);
        for (uintptr_t i = 0; i < WORKERS; i++)
                id[i] = start(uses_arena, (void *)i);
        pthread_barrier_wait(&all_created);
        int64_t end = now_ns(CLOCK_MONOTONIC) + times(2000) * MS;
        while (now_ns(CLOCK_MONOTONIC) < end ||
               (operations <= 20 && now_ns(CLOCK_MONOTONIC) < end + PATIENCE))
                sleep_ms(50);
        stop = true;
        for (int i = 0; i < WORKERS; i++)
                finish(id[i]);
        CHECK(operations > 20);
        for (uint64_t c = 0; c < CHUNKS; c++)
                verify("arena, at last", chunk_at(c), c * CHUNK, CHUNK, version[c]);
        munmap(arena, CHUNKS * CHUNK * PG);
        munmap(rooms, WORKERS * CHUNK * PG);
}

/* ---- the same far pages at once ---- */

static pthread_barrier_t together;
static char *far_pages;
#define FAR 2048ul

static void *walks(void *me)
{
        for (int turn = 0; turn < 3; turn++) {
                pthread_barrier_wait(&together);
                for (uint64_t p = 0; p < FAR; p++) {
                        /*
                         * Halves of each page: one thread writes its own, and reads the whole at
                         * its place in the next turn.
                         */
                        uint64_t *w = (uint64_t *)(far_pages + p * PG) + ((uintptr_t)me ? 256 : 0);
                        CHECK(w[0] == (turn ? (uint64_t)turn * FAR + p : 0));
                        w[0] = (uint64_t)(turn + 1) * FAR + p;
                }
                pthread_barrier_wait(&together);
                for (uint64_t p = 0; p < FAR; p++)
                        CHECK(((uint64_t *)(far_pages + p * PG))[(uintptr_t)me ? 0 : 256] ==
                              (uint64_t)(turn + 1) * FAR + p);
        }
        return NULL;
}

static void same_pages(void)
{
        far_pages = map_pages(FAR, RW, MAP_PRIVATE);
        pthread_barrier_init(&together, NULL, 2);
        pthread_t id = start(walks, (void *)1);
        walks(NULL);
        finish(id);
        munmap(far_pages, FAR * PG);
}

/* Counters that all threads add to atomically, on pages that come and go. */
static void *adds(void *arg)
{
        for (int turn = 0; turn < 4; turn++)
                for (uint64_t p = 0; p < FAR; p++)
                        atomic_fetch_add((_Atomic uint64_t *)(far_pages + (p * 1237 % FAR) * PG),
                                         1);
        return arg;
}

static void atomics(void)
{
        pthread_t id[3];

        far_pages = map_pages(FAR, RW, MAP_PRIVATE);
        for (int i = 0; i < 3; i++)
                id[i] = start(adds, NULL);
        for (int i = 0; i < 3; i++)
                finish(id[i]);
        for (uint64_t p = 0; p < FAR; p++)
                CHECK(*(uint64_t *)(far_pages + p * PG) == 12);
        munmap(far_pages, FAR * PG);
}

/* brk and stack growth from several threads. */
static void *mallocs(void *seed)
{
        uint64_t x = (uintptr_t)seed;
        char *p[32] = { NULL };
        size_t size[32];

        for (int i = 0; i < times(150); i++) {
                uint64_t k = next(&x) % 32;
                if (p[k])
                        for (size_t b = 0; b < size[k]; b += 512)
                                CHECK(p[k][b] == (char)((uintptr_t)p[k] >> 4));
                free(p[k]);
                size[k] = next(&x) % 60000 + 1;
                p[k] = malloc(size[k]);
                CHECK(p[k] != NULL);
                memset(p[k], (char)((uintptr_t)p[k] >> 4), size[k]);
        }
        for (int k = 0; k < 32; k++)
                free(p[k]);
        return NULL;
}

static void heaps(void)
{
        pthread_t id[5];

        for (uintptr_t i = 0; i < 5; i++)
                id[i] = start(mallocs, (void *)(i + 9));
        for (int i = 0; i < 5; i++)
                finish(id[i]);
}

/* System calls into memory that another thread takes away: EFAULT, or the whole result. */
static char *taken;
static void *takes_away(void *arg)
{
        for (int i = 0; !stop; i++) {
                munmap(taken, 4 * PG);
                if (i % 3)
                        sched_yield();
                CHECK(mmap(taken, 4 * PG, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == taken);
                if (i % 2)
                        sched_yield();
        }
        return arg;
}

static void taken_away(void)
{
        int fd = open("/dev/zero", O_RDONLY);
        int64_t end = now_ns(CLOCK_MONOTONIC) + 700 * MS;

        taken = map_pages(4, RW, MAP_PRIVATE);
        stop = false;
        pthread_t id = start(takes_away, NULL);
        while (now_ns(CLOCK_MONOTONIC) < end) {
                ssize_t n = read(fd, taken, 4 * PG);
                CHECK((n > 0 && n <= (ssize_t)(4 * PG)) || (n == -1 && errno == EFAULT));
                struct timespec *t = (struct timespec *)(taken + PG - 8);
                long r = syscall(SYS_clock_getres, CLOCK_REALTIME, t);
                CHECK(r == 0 || errno == EFAULT);
        }
        stop = true;
        finish(id);
        close(fd);
        munmap(taken, 4 * PG);
}

/* ---- files ---- */

#define PAGES 48ul

static int new_file(char with)
{
        int fd = memfd_create("file", 0);
        char page[PG];

        memset(page, with, sizeof(page));
        for (uint64_t i = 0; i < PAGES; i++)
                CHECK(write(fd, page, sizeof(page)) == (ssize_t)sizeof(page));
        return fd;
}

/*
 * One mapping takes the place of another while threads touch it: they find the one or the other,
 * and no signal comes.
 */
static volatile char *place;
static void *looks(void *arg)
{
        while (!stop)
                for (uint64_t i = 0; i < PAGES; i++) {
                        char c = place[i * PG];
                        CHECK(c == 'a' || c == 'b' || c == 0);
                }
        return arg;
}

static void files_replaced(void)
{
        const int fd[] = { new_file('a'), new_file('b') };
        int64_t end = now_ns(CLOCK_MONOTONIC) + times(500) * MS;
        pthread_t id[2];

        place = map_pages(PAGES, RW, MAP_PRIVATE);
        stop = false;
        for (int i = 0; i < 2; i++)
                id[i] = start(looks, NULL);
        for (unsigned k = 0; k < 10 || now_ns(CLOCK_MONOTONIC) < end; k++) {
                char *p = (char *)place;
                int flags = (k % 4 == 0 ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED;
                CHECK((k % 3 == 2 ? mmap(p, PAGES * PG, RW, ANON | MAP_FIXED, -1, 0)
                                  : mmap(p, PAGES * PG, RW, flags, fd[k % 3], 0)) == p);
                sleep_ms(k % 8 == 0);
        }
        stop = true;
        for (int i = 0; i < 2; i++)
                finish(id[i]);
        munmap((void *)place, PAGES * PG);
        close(fd[0]);
        close(fd[1]);
}

/*
 * A shared file is cut short and made long again while threads touch it: they get SIGBUS now and
 * then, and continue.
 */
static __thread sigjmp_buf before_touch;
static _Atomic uint64_t buses;
static void on_bus(int sig) { (void)sig; buses++; siglongjmp(before_touch, 1); }

static void *touches(void *arg)
{
        while (!stop)
                if (sigsetjmp(before_touch, 1) == 0)
                        for (uint64_t i = 0; i < PAGES; i++)
                                place[i * PG]++;
        return arg;
}

static void files_cut(void)
{
        int fd = new_file('a');
        pthread_t id[3];
        struct sigaction sa = { .sa_handler = on_bus };

        CHECK(sigaction(SIGBUS, &sa, NULL) == 0);
        place = mmap(NULL, PAGES * PG, RW, MAP_SHARED, fd, 0);
        buses = 0;
        stop = false;
        for (int i = 0; i < 3; i++)
                id[i] = start(touches, NULL);
        int64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE;
        for (int k = 0; k < times(100) || (buses < 20 && now_ns(CLOCK_MONOTONIC) < end); k++) {
                CHECK(ftruncate(fd, (off_t)(k % 3 * 10 * PG)) == 0);
                if (k % 2)
                        sched_yield();
                CHECK(ftruncate(fd, (off_t)(PAGES * PG)) == 0);
                sleep_ms(k % 4 == 0);
        }
        stop = true;
        for (int i = 0; i < 3; i++)
                finish(id[i]);
        CHECK(buses >= 20);
        signal(SIGBUS, SIG_DFL);
        munmap((void *)place, PAGES * PG);
        close(fd);
}

const struct test memory_tests[] = {
        { "memory", "protected while another stores", protected },
        { "memory", "replaced while another stores", replaced },
        { "memory", "moved while another stores", moved },
        { "memory", "the same far pages at once", same_pages },
        { "memory", "atomic additions on far pages", atomics },
        { "memory", "an arena that all threads change", shared_arena },
        { "memory", "heaps", heaps },
        { "memory", "taken away from a system call", taken_away },
        { "memory", "files in each other's place", files_replaced },
        { "memory", "a file that is cut while others touch it", files_cut },
        { NULL, NULL, NULL }
};
