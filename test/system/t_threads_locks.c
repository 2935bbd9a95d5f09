/*
 * t_threads: robust mutexes and those that inherit priority; cancellation.
 */
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include "t_threads.h"

enum { ROBUST = 1, INHERIT = 2, SHARED = 4 };

/* In memory that may be shared, for SHARED. */
static pthread_mutex_t *make(int kind)
{
        pthread_mutex_t *m =
                mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                     (kind & SHARED ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
        pthread_mutexattr_t a;

        pthread_mutexattr_init(&a);
        if (kind & ROBUST)
                CHECK(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST) == 0);
        if (kind & INHERIT)
                CHECK(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT) == 0);
        if (kind & SHARED)
                CHECK(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED) == 0);
        CHECK(m != MAP_FAILED && pthread_mutex_init(m, &a) == 0);
        return m;
}

static void unmake(pthread_mutex_t *m)
{
        CHECK(pthread_mutex_destroy(m) == 0);
        munmap(m, 4096);
}

static void *locks_and_ends(void *m) { return (void *)(intptr_t)pthread_mutex_lock(m); }

/* An owner that keeps its lock until it is told to release it. No test depends on how long that
 * takes. (A trylock and unlock of a robust mutex after its owner has ended makes the mutex
 * unrecoverable, and then a bug of glibc 2.36 shows: its trylock keeps the lock of such a mutex,
 * and unlock crashes.) */
static _Atomic bool held, told;

static void hold(pthread_mutex_t *m)
{
        CHECK(pthread_mutex_lock(m) == 0);
        held = true;
        CHECK(BECOMES(told));
}

static pthread_t start_owner(void *(*owner)(void *), pthread_mutex_t *m)
{
        held = told = false;
        pthread_t id = start(owner, m);
        CHECK(BECOMES(held));
        return id;
}

static void *holds_and_exits(void *m)
{
        hold(m);
        pthread_exit(NULL);
}

struct waiter { pthread_mutex_t *m; int ret; _Atomic pid_t tid; };
static void *waits_for(void *arg)
{
        struct waiter *w = arg;

        w->tid = my_tid();
        w->ret = pthread_mutex_lock(w->m);
        if (w->ret == EOWNERDEAD)
                CHECK(pthread_mutex_consistent(w->m) == 0);
        CHECK(pthread_mutex_unlock(w->m) == 0);
        return NULL;
}

static void robust_of(int kind)
{
        pthread_mutex_t *m = make(kind);

        for (int i = 0; i < 20; i++) {
                CHECK(finish(start(locks_and_ends, m)) == NULL);
                CHECK(pthread_mutex_lock(m) == EOWNERDEAD);
                CHECK(pthread_mutex_consistent(m) == 0 && pthread_mutex_unlock(m) == 0);
                CHECK(pthread_mutex_lock(m) == 0 && pthread_mutex_unlock(m) == 0);
        }
        /* With threads that wait already: one gets EOWNERDEAD, the others find a consistent
         * mutex. */
        pthread_t owner = start_owner(holds_and_exits, m), id[3];
        struct waiter w[3];
        CHECK(pthread_mutex_trylock(m) == EBUSY);
        for (int i = 0; i < 3; i++) {
                w[i] = (struct waiter){ .m = m };
                id[i] = start(waits_for, &w[i]);
                CHECK(BECOMES(w[i].tid != 0) && falls_asleep(w[i].tid));
        }
        int dead = 0;
        told = true;
        finish(owner);
        for (int i = 0; i < 3; i++) {
                finish(id[i]);
                dead += w[i].ret == EOWNERDEAD;
                CHECK(w[i].ret == 0 || w[i].ret == EOWNERDEAD);
        }
        CHECK(dead == 1);
        unmake(m);
        /* It was not made consistent: it is of no use any more. */
        m = make(kind);
        finish(start(locks_and_ends, m));
        CHECK(pthread_mutex_lock(m) == EOWNERDEAD && pthread_mutex_unlock(m) == 0);
        CHECK(pthread_mutex_lock(m) == ENOTRECOVERABLE);
        munmap(m, 4096);
}

static void robust(void) { robust_of(ROBUST); }
static void robust_shared(void) { robust_of(ROBUST | SHARED); }
static void robust_inherit(void) { robust_of(ROBUST | INHERIT); }

/* Several locks held at once, on pages that are far by then. */
#define LOCKS 100
static void *locks_all_and_touches_much(void *locks)
{
        const size_t size = 8 << 20;
        char *big = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        for (int i = 0; i < LOCKS; i++)
                pthread_mutex_lock(((pthread_mutex_t **)locks)[i]);
        for (size_t i = 0; i < size; i += 4096)
                big[i] = 1;
        munmap(big, size);
        return NULL;
}

static void robust_many(void)
{
        pthread_mutex_t *m[LOCKS];

        for (int i = 0; i < LOCKS; i++)
                m[i] = make(ROBUST | (i & 1 ? INHERIT : 0));
        finish(start(locks_all_and_touches_much, m));
        for (int i = 0; i < LOCKS; i++) {
                CHECK(pthread_mutex_lock(m[i]) == EOWNERDEAD);
                CHECK(pthread_mutex_consistent(m[i]) == 0 && pthread_mutex_unlock(m[i]) == 0);
                unmake(m[i]);
        }
}

static uint64_t counter;
static void *counts(void *m)
{
        for (int i = 0; i < times(400); i++) {
                pthread_mutex_lock(m);
                counter++;
                if (i % 50 == 0)
                        sched_yield();
                pthread_mutex_unlock(m);
        }
        return NULL;
}

static void contended(void)
{
        for (int kind = 0; kind < 8; kind++) {
                pthread_mutex_t *m = make(kind);
                pthread_t id[4];

                counter = 0;
                for (int i = 0; i < 4; i++)
                        id[i] = start(counts, m);
                for (int i = 0; i < 4; i++)
                        finish(id[i]);
                CHECK(counter == 4u * (unsigned)times(400));
                unmake(m);
        }
}

static void *holds_a_while(void *m)
{
        hold(m);
        sleep_ms(50);
        pthread_mutex_unlock(m);
        return NULL;
}

static void inherit_timeouts(void)
{
        pthread_mutex_t *m = make(INHERIT);
        pthread_t id = start_owner(holds_a_while, m);
        struct timespec t;

        CHECK(pthread_mutex_trylock(m) == EBUSY);
        t = ms_from_now(CLOCK_REALTIME, 20);
        CHECK(pthread_mutex_timedlock(m, &t) == ETIMEDOUT);
        told = true;
        t = ms_from_now(CLOCK_REALTIME, 20000);
        CHECK(pthread_mutex_timedlock(m, &t) == 0);
        CHECK(pthread_mutex_unlock(m) == 0);
        finish(id);
        unmake(m);
}

/* pthread_cond_wait with such a mutex. */
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;
static struct { pthread_mutex_t *m; } table;
static void *plays(void *me)
{
        for (int i = 0; i < 300; i++) {
                pthread_mutex_lock(table.m);
                while (turn % 2 != (int)(intptr_t)me)
                        pthread_cond_wait(&cond, table.m);
                turn++;
                pthread_cond_broadcast(&cond);
                pthread_mutex_unlock(table.m);
        }
        return NULL;
}

static void inherit_cond(void)
{
        table.m = make(INHERIT);
        turn = 0;
        pthread_t id = start(plays, (void *)1);
        plays((void *)0);
        finish(id);
        CHECK(turn == 600);
        unmake(table.m);
}

/* ---- cancellation ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipe_fd[2];
static _Atomic int cleanups;
static _Atomic pid_t victim;
static volatile uint64_t spins;

static void cleanup(void *arg)
{
        cleanups++;
        if (arg)
                pthread_mutex_unlock(arg);
}

static void *cancelled(void *way)
{
        char c;
        int old;

        pthread_cleanup_push(cleanup, (intptr_t)way == 0 ? &mutex : NULL);
        victim = my_tid();
        switch ((intptr_t)way) {
        case 0:
                pthread_mutex_lock(&mutex);
                for (;;)
                        pthread_cond_wait(&cond, &mutex);
        case 1:
                CHECK(read(pipe_fd[0], &c, 1) == 1);
                break;
        case 2:
                pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
                for (;;)
                        spins++;
        case 3:
                sleep(1000);
                break;
        case 4:
                pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
                while (victim != 0)
                        sched_yield();
                pthread_setcancelstate(old, NULL);
                pthread_testcancel();
                break;
        case 5: {
                sem_t s;
                sem_init(&s, 0, 0);
                sem_wait(&s);
        }
        }
        pthread_cleanup_pop(1);
        return NULL;
}

static void cancel(void)
{
        CHECK(pipe(pipe_fd) == 0);
        for (intptr_t way = 0; way < 6; way++)
                for (int i = 0; i < 5; i++) {
                        cleanups = 0;
                        victim = 0;
                        uint64_t before = spins;
                        pthread_t id = start(cancelled, (void *)way);
                        CHECK(BECOMES(victim != 0));
                        if (way == 2)
                                CHECK(BECOMES(spins != before));
                        else if (way != 4 && i < 4) /* once without waiting for it to sleep */
                                CHECK(falls_asleep(victim));
                        CHECK(pthread_cancel(id) == 0);
                        if (way == 4)
                                victim = 0;
                        CHECK(finish(id) == PTHREAD_CANCELED && cleanups == 1);
                }
        CHECK(pthread_mutex_trylock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
}

/* Tests of other groups fork in the same process (t_threads long), so the handlers must bear it. */
static void at_fork(void) {}
static void atfork_registered(void) { CHECK(pthread_atfork(at_fork, at_fork, at_fork) == 0); }

const struct test lock_tests[] = {
        { "lock", "robust mutex", robust },
        { "lock", "robust mutex in shared memory", robust_shared },
        { "lock", "robust mutex that inherits priority", robust_inherit },
        { "lock", "many robust mutexes at once", robust_many },
        { "lock", "all kinds, contended", contended },
        { "lock", "inheriting priority, with timeouts", inherit_timeouts },
        { "lock", "inheriting priority, with a condition", inherit_cond },
        { "lock", "cancellation", cancel },
        { "lock", "handlers of forks", atfork_registered },
        { NULL, NULL, NULL }
};
