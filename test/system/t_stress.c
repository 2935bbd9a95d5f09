/*
 * Everything at once: threads that write, read, unmap, protect, move and drop pages of their own,
 * fork, make children by vfork, have guides called, ask for pages ahead, and interrupt each other.
 * Each page must hold what its thread last wrote there.
 *
 *   t_stress SECONDS THREADS PAGES SEED        PAGES: of each thread
 *
 * At the end a line says how often each operation was done.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include "t_memory.h"
#include "vmguest.h"

#define THREADS 64
#define RUN     32                      /* pages of an operation, at most */
#define SHARED  256                     /* pages that all threads read */
#define STACK   (128ul << 10)           /* all of it is charged */
#define CHILD_OK 42

struct worker {
        pthread_t thread;
        uint64_t number, rnd;
        char *pages;
        uint32_t *version;              /* of each page; 0: zeroes */
        char *elsewhere;                /* RUN pages of address space */
        char *beats;                    /* a page that the signal handler writes to */
        _Atomic uint64_t beat;
};

static struct worker workers[THREADS];
static uint64_t nthreads, npages;
static char *shared;
static struct timespec end;
static pthread_barrier_t ready, over;
static __thread struct worker *self;

static uint64_t next(struct worker *w, uint64_t n)
{
        w->rnd = w->rnd * 6364136223846793005ull + 1442695040888963407ull;
        return (w->rnd >> 33) % n;
}

/* Pages [p, p + n) of a worker. */
struct run { uint64_t p, n; };

static struct run any_run(struct worker *w)
{
        struct run r = { .n = 1 + next(w, RUN) };

        r.p = next(w, npages - r.n + 1);
        return r;
}

static char *at(const struct worker *w, struct run r) { return w->pages + r.p * PG; }

/* One cell of each page, so that an operation does not take long. */
static void check(const char *what, struct worker *w, struct run r)
{
        for (uint64_t i = 0; i < r.n; i++) {
                unsigned c = (unsigned)next(w, CELLS);
                uint64_t page = w->number * npages + r.p + i;
                uint64_t tag = w->version[r.p + i] ? page_tag(page, w->version[r.p + i]) + c : 0;
                const char *cell = at(w, r) + i * PG + c * CELL;
                int wrong = cell_wrong(cell, tag);
                if (wrong >= 0)
                        fail_at(what, cell, page, tag, wrong);
        }
}

static void put(struct worker *w, struct run r)
{
        for (uint64_t i = 0; i < r.n; i++) {
                uint32_t v = ++w->version[r.p + i];
                fill(at(w, r) + i * PG, w->number * npages + r.p + i, 1, v);
        }
}

static void forget(struct worker *w, struct run r)
{
        memset(&w->version[r.p], 0, r.n * sizeof(w->version[0]));
}

static void write_run(struct worker *w) { put(w, any_run(w)); }

static void read_run(struct worker *w) { check("read", w, any_run(w)); }

static void unmap(struct worker *w)
{
        struct run r = any_run(w);

        CHECK(munmap(at(w, r), r.n * PG) == 0);
        CHECK(mmap(at(w, r), r.n * PG, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == at(w, r));
        forget(w, r);
        check("mapped again", w, r);
}

static void advise(struct worker *w)
{
        struct run r = any_run(w);

        CHECK(madvise(at(w, r), r.n * PG, MADV_DONTNEED) == 0);
        forget(w, r);
        check("dropped", w, r);
}

static void protect(struct worker *w)
{
        struct run r = any_run(w);
        int prot = next(w, 2) ? PROT_READ : PROT_NONE;

        CHECK(mprotect(at(w, r), r.n * PG, prot) == 0);
        if (prot == PROT_READ)
                check("read only", w, r);
        CHECK(mprotect(at(w, r), r.n * PG, RW) == 0);
        check("protected before", w, r);
}

static void move(struct worker *w)
{
        struct run r = any_run(w);
        const int fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
        uint64_t len = r.n * PG;

        CHECK(remap(at(w, r), len, len, fixed, w->elsewhere) == w->elsewhere);
        CHECK(remap(w->elsewhere, len, len, fixed, at(w, r)) == at(w, r));
        check("moved", w, r);
}

static void lock(struct worker *w)
{
        struct run r = any_run(w);

        if (mlock(at(w, r), r.n * PG) == 0) {
                check("locked", w, r);
                CHECK(munlock(at(w, r), r.n * PG) == 0);
        } else {
                CHECK(errno == ENOMEM);
        }
}

static void read_shared(struct worker *w)
{
        verify("shared", shared + next(w, SHARED) * PG, 0, 1, 1);
}

static void wait_for(pid_t pid)
{
        int status;

        CHECK(pid > 0);
        while (waitpid(pid, &status, 0) != pid)
                CHECK(errno == EINTR);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == CHILD_OK);
}

/* The child sees the pages as they are now, whatever its parent does meanwhile. */
static void fork_child(struct worker *w)
{
        pid_t pid = fork();

        if (pid == 0) {
                for (unsigned i = 0; i < 4; i++) {
                        check("in a child", w, any_run(w));
                        write_run(w);
                }
                check("written in a child", w, any_run(w));
                _exit(CHILD_OK);
        }
        put(w, any_run(w));
        /* Far memory may not hold all children that there are. */
        if (pid < 0)
                CHECK(errno == ENOMEM);
        else
                wait_for(pid);
}

static void vfork_child(struct worker *w)
{
        static char *const args[] = { "t_stress", "--child", NULL };
        char *const env[] = { NULL };
        volatile uint32_t *seen = &w->version[next(w, npages)];
        uint32_t before = *seen;
        pid_t pid = vfork();

        if (pid == 0) {
                if (*seen == before)
                        execve("/proc/self/exe", args, env);
                _exit(1);
        }
        wait_for(pid);
}

static _Atomic uint64_t guided;

/* The pages behind the page that is missed. */
static long guide(const struct vmg_fault *f, void *arg)
{
        (void)arg;
        vmg_prefetch((void *)((f->addr & ~(PG - 1)) + PG), 4 * PG);
        guided++;
        return 0;
}

static void with_guide(struct worker *w)
{
        struct run r = any_run(w);
        int err = vmg_guide(at(w, r), r.n * PG, guide, NULL);

        CHECK(err == 0 || err == -ENOSPC || err == -ENOMEM);
        check("guided", w, r);
        if (next(w, 2))
                CHECK(vmg_unguide(at(w, r), r.n * PG) >= 0);
}

static void prefetch(struct worker *w)
{
        static __thread uint32_t left;
        struct run r = any_run(w);
        struct iovec range = { at(w, r), r.n * PG };

        CHECK(vmg_prefetchv_counted(&range, 1, &left) >= 0);
        if (next(w, 2))
                CHECK(vmg_prefetch(at(w, any_run(w)), RUN / 2 * PG) >= 0);
        CHECK(vmg_wait(&left) == 0 && left == 0);
        check("asked for ahead", w, r);
}

static void cool(struct worker *w)
{
        struct run r = any_run(w);

        CHECK(vmg_cool(at(w, r), r.n * PG) == 0);
        CHECK(vmg_priority(at(w, r), r.n * PG, (enum vmg_level)next(w, 3)) >= 0);
        check("cool", w, any_run(w));
}

static void read_part(struct worker *w)
{
        struct run r = any_run(w);
        char cell[CELL];
        uint64_t page = w->number * npages + r.p;
        uint64_t tag = w->version[r.p] ? page_tag(page, w->version[r.p]) + 1 : 0;

        CHECK(vmg_read(cell, at(w, r) + CELL, CELL, 0) == CELL);
        int wrong = cell_wrong(cell, tag);
        if (wrong >= 0)
                fail_at("part", cell, page, tag, wrong);
}

static void on_signal(int sig)
{
        uint64_t *beats = (uint64_t *)self->beats;

        (void)sig;
        beats[atomic_fetch_add(&self->beat, 1) % (PG / 8)]++;
}

static void interrupt(struct worker *w)
{
        CHECK(pthread_kill(workers[next(w, nthreads)].thread, SIGUSR1) == 0);
}

/* How many of 2,000 operations, on average. */
static struct operation {
        const char *name;
        void (*run)(struct worker *w);
        unsigned share;
        _Atomic uint64_t done;
} operations[] = {
        { "write", write_run, 500, 0 },   { "read", read_run, 600, 0 },
        { "unmap", unmap, 100, 0 },       { "advise", advise, 60, 0 },
        { "protect", protect, 80, 0 },    { "move", move, 60, 0 },
        { "lock", lock, 20, 0 },          { "shared", read_shared, 100, 0 },
        { "fork", fork_child, 2, 0 },     { "vfork", vfork_child, 1, 0 },
        { "guide", with_guide, 60, 0 },   { "prefetch", prefetch, 100, 0 },
        { "cool", cool, 60, 0 },          { "part", read_part, 100, 0 },
        { "interrupt", interrupt, 157, 0 },
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static struct operation *any_operation(struct worker *w)
{
        unsigned n = (unsigned)next(w, 2000);
        struct operation *o = operations;

        while (n >= o->share && o < operations + OPERATIONS - 1)
                n -= (o++)->share;
        return o;
}

static bool is_over(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec);
}

/* A thread takes signals while all others are there. */
static void *work(void *arg)
{
        struct worker *w = self = arg;
        sigset_t usr1;

        sigemptyset(&usr1);
        sigaddset(&usr1, SIGUSR1);
        pthread_barrier_wait(&ready);
        CHECK(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL) == 0);
        while (!is_over()) {
                struct operation *o = any_operation(w);
                o->run(w);
                o->done++;
        }
        pthread_barrier_wait(&over);
        check("at the end", w, (struct run){ 0, npages });
        return NULL;
}

static void begin(struct worker *w, uint64_t number, uint64_t seed)
{
        w->number = number;
        w->rnd = seed * 1000 + number;
        w->pages = map_pages(npages, RW, MAP_PRIVATE);
        w->version = map_pages((npages * sizeof(w->version[0]) + PG - 1) / PG, RW, MAP_PRIVATE);
        w->elsewhere = map_pages(RUN, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE);
        w->beats = map_pages(1, RW, MAP_PRIVATE);
}

int main(int argc, char **argv)
{
        pthread_attr_t attr;
        struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
        sigset_t usr1;

        if (argc == 2 && strcmp(argv[1], "--child") == 0)
                return CHILD_OK;
        CHECK(argc == 5);
        nthreads = strtoul(argv[2], NULL, 0);
        npages = strtoul(argv[3], NULL, 0);
        CHECK(nthreads > 0 && nthreads <= THREADS && npages >= RUN);
        shared = map_pages(SHARED, RW, MAP_SHARED);
        for (unsigned i = 0; i < SHARED; i++)
                fill(shared + i * PG, 0, 1, 1);
        CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
        for (uint64_t i = 0; i < nthreads; i++)
                begin(&workers[i], i, strtoul(argv[4], NULL, 0));
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_sec += (time_t)strtoul(argv[1], NULL, 0);

        sigemptyset(&usr1);
        sigaddset(&usr1, SIGUSR1);
        CHECK(pthread_sigmask(SIG_BLOCK, &usr1, NULL) == 0);
        CHECK(pthread_barrier_init(&ready, NULL, (unsigned)nthreads + 1) == 0);
        CHECK(pthread_barrier_init(&over, NULL, (unsigned)nthreads) == 0);
        CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, STACK) == 0);
        for (uint64_t i = 0; i < nthreads; i++)
                CHECK(pthread_create(&workers[i].thread, &attr, work, &workers[i]) == 0);
        pthread_barrier_wait(&ready);
        for (uint64_t i = 0; i < nthreads; i++)
                CHECK(pthread_join(workers[i].thread, NULL) == 0);

        uint64_t beats = 0, taken = 0;
        for (uint64_t i = 0; i < nthreads; i++) {
                taken += workers[i].beat;
                for (unsigned k = 0; k < PG / 8; k++)
                        beats += ((uint64_t *)workers[i].beats)[k];
        }
        CHECK(beats == taken);
        for (struct operation *o = operations; o < operations + OPERATIONS; o++)
                printf("%s %lu, ", o->name, o->done);
        printf("guide calls %lu, signals %lu\n", guided, taken);
        printf("stress: ok\n");
        return 0;
}
