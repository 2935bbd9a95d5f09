/*
 * t_threads: making threads, and the locks of pthreads.
 */
#include <sched.h>
#include <semaphore.h>
#include "t_threads.h"

/* ---- making threads ---- */

static void *answer(void *arg) { return (void *)((uintptr_t)arg * 3 + 1); }

static void one_after_the_other(void)
{
        for (uintptr_t i = 0; i < 300; i++)
                CHECK(finish(start(answer, (void *)i)) == (void *)(i * 3 + 1));
}

#define MANY 40
static pthread_barrier_t all_there;
static struct { pid_t tid, pid; char self[64]; } ids[MANY];

static void *tells_ids(void *arg)
{
        uintptr_t i = (uintptr_t)arg;

        ids[i].tid = my_tid();
        ids[i].pid = getpid();
        CHECK(readlink("/proc/thread-self", ids[i].self, sizeof(ids[i].self) - 1) > 0);
        pthread_barrier_wait(&all_there);
        CHECK(ids[i].tid == my_tid());
        return NULL;
}

static void many_at_once(void)
{
        pthread_t id[MANY];
        char self[64];

        pthread_barrier_init(&all_there, NULL, MANY);
        for (uintptr_t i = 0; i < MANY; i++)
                id[i] = start(tells_ids, (void *)i);
        for (int i = 0; i < MANY; i++)
                finish(id[i]);
        for (int i = 0; i < MANY; i++) {
                CHECK(ids[i].pid == getpid() && ids[i].tid != getpid());
                for (int k = 0; k < i; k++)
                        CHECK(ids[i].tid != ids[k].tid);
                snprintf(self, sizeof(self), "%d/task/%d", getpid(), ids[i].tid);
                CHECK(strcmp(self, ids[i].self) == 0);
                CHECK(BECOMES(syscall(SYS_tgkill, getpid(), ids[i].tid, 0) == -1 &&
                              errno == ESRCH));
        }
        pthread_barrier_destroy(&all_there);
}

static void *posts(void *sem) { return sem_post(sem) ? sem : NULL; }

static void detached(void)
{
        pthread_attr_t a;
        pthread_t id;
        static sem_t s;         /* the last ones may still be about it when this function returns */

        sem_init(&s, 0, 0);
        pthread_attr_init(&a);
        CHECK(pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED) == 0 &&
              pthread_attr_setstacksize(&a, 64 << 10) == 0);
        int due = 0;
        for (int i = 0; i < 100; i++) {
                int err = pthread_create(&id, &a, posts, &s);
                CHECK(err == 0);
                due += err == 0;
                if (due > 30) { /* the smallest cache of the tests has room for 80 threads */
                        CHECK(sem_wait(&s) == 0);
                        due--;
                }
        }
        for (; due > 0; due--)
                CHECK(sem_wait(&s) == 0);
        CHECK(sem_trywait(&s) == -1 && errno == EAGAIN);
        pthread_attr_destroy(&a);
}

/* Threads that make threads. */
static void *tree(void *depth)
{
        uintptr_t d = (uintptr_t)depth;
        pthread_t a, b;

        if (d == 0)
                return (void *)1;
        a = start(tree, (void *)(d - 1));
        b = start(tree, (void *)(d - 1));
        return (void *)((uintptr_t)finish(a) + (uintptr_t)finish(b));
}
static void a_tree(void) { CHECK(tree((void *)5) == (void *)32); }

static void *touches_its_stack(void *arg)
{
        volatile char frame[64 << 10];

        for (size_t i = 0; i < sizeof(frame); i++)
                frame[i] = (char)(i * 7 + (uintptr_t)arg);
        pthread_barrier_wait(&all_there);
        for (size_t i = 0; i < sizeof(frame); i++)
                if (frame[i] != (char)(i * 7 + (uintptr_t)arg))
                        return (void *)1;
        return NULL;
}

static void stacks(void)
{
        pthread_t id[64];

        pthread_barrier_init(&all_there, NULL, 64);
        for (uintptr_t i = 0; i < 64; i++)
                id[i] = start(touches_its_stack, (void *)i);
        for (int i = 0; i < 64; i++)
                CHECK(finish(id[i]) == NULL);
        pthread_barrier_destroy(&all_there);
}

/* ---- locks ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static uint64_t count, pair[2];
static unsigned turn;

static void *counts(void *n)
{
        for (uintptr_t i = 0; i < (uintptr_t)n; i++) {
                pthread_mutex_lock(&mutex);
                count++;
                pthread_mutex_unlock(&mutex);
        }
        return NULL;
}

static void mutexes(void)
{
        pthread_t id[4];

        count = 0;
        for (int i = 0; i < 4; i++)
                id[i] = start(counts, (void *)20000);
        for (int i = 0; i < 4; i++)
                finish(id[i]);
        CHECK(count == 80000);
}

static void *plays(void *me)
{
        for (int i = 0; i < times(1000); i++) {
                pthread_mutex_lock(&mutex);
                while (turn % 2 != (uintptr_t)me)
                        pthread_cond_wait(&cond, &mutex);
                turn++;
                pthread_cond_signal(&cond);
                pthread_mutex_unlock(&mutex);
        }
        return NULL;
}

static void ping_pong(void)
{
        turn = 0;
        pthread_t id = start(plays, (void *)1);
        plays((void *)0);
        finish(id);
        CHECK(turn == 2u * (unsigned)times(1000));
}

/* Not early, and not much too late. */
static bool took(int64_t since, int ms)
{
        int64_t ns = now_ns(CLOCK_MONOTONIC) - since;
        return ns >= (ms - 1) * MS && ns < ms * MS + PATIENCE / 4;
}

static void *holds(void *arg)
{
        pthread_mutex_lock(&mutex);
        pthread_rwlock_wrlock(&rwlock);
        pthread_barrier_wait(&all_there);
        pthread_barrier_wait(&all_there);
        pthread_rwlock_unlock(&rwlock);
        pthread_mutex_unlock(&mutex);
        return arg;
}

static void timed_waits(void)
{
        pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
        pthread_condattr_t ca;
        pthread_cond_t mono;
        struct timespec t;
        int64_t from;
        sem_t s;

        sem_init(&s, 0, 0);
        pthread_condattr_init(&ca);
        pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
        pthread_cond_init(&mono, &ca);
        pthread_barrier_init(&all_there, NULL, 2);
        pthread_t id = start(holds, NULL);
        pthread_barrier_wait(&all_there);
        pthread_mutex_lock(&mine);

#define EXPIRES(call, clock) do {                                        \
                from = now_ns(CLOCK_MONOTONIC);                          \
                t = ms_from_now(clock, 40);                              \
                CHECK((call) == ETIMEDOUT);                              \
                CHECK(took(from, 40));                                   \
        } while (0)
        EXPIRES(pthread_cond_timedwait(&cond, &mine, &t), CLOCK_REALTIME);
        EXPIRES(pthread_cond_timedwait(&mono, &mine, &t), CLOCK_MONOTONIC);
        EXPIRES(pthread_mutex_timedlock(&mutex, &t), CLOCK_REALTIME);
        EXPIRES(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &t), CLOCK_MONOTONIC);
        EXPIRES(pthread_rwlock_timedrdlock(&rwlock, &t), CLOCK_REALTIME);
        EXPIRES(pthread_rwlock_timedwrlock(&rwlock, &t), CLOCK_REALTIME);
        EXPIRES(sem_timedwait(&s, &t) ? errno : 0, CLOCK_REALTIME);
        EXPIRES(sem_clockwait(&s, CLOCK_MONOTONIC, &t) ? errno : 0, CLOCK_MONOTONIC);
        CHECK(pthread_mutex_trylock(&mutex) == EBUSY && pthread_rwlock_tryrdlock(&rwlock) == EBUSY);

        pthread_barrier_wait(&all_there);
        finish(id);
        t = ms_from_now(CLOCK_REALTIME, 5000);
        CHECK(pthread_mutex_timedlock(&mutex, &t) == 0);
        pthread_mutex_unlock(&mutex);
        pthread_barrier_destroy(&all_there);
}

static void *reads_or_writes(void *me)
{
        bool bad = false;

        for (int i = 0; i < times(500); i++)
                if ((uintptr_t)me == 0) {
                        pthread_rwlock_wrlock(&rwlock);
                        pair[0]++;
                        sched_yield();
                        pair[1]++;
                        pthread_rwlock_unlock(&rwlock);
                } else {
                        pthread_rwlock_rdlock(&rwlock);
                        bad |= pair[0] != pair[1];
                        pthread_rwlock_unlock(&rwlock);
                }
        return (void *)(uintptr_t)bad;
}

static void rwlocks(void)
{
        pthread_t id[5];

        for (uintptr_t i = 0; i < 5; i++)
                id[i] = start(reads_or_writes, (void *)(i / 2));
        for (int i = 0; i < 5; i++)
                CHECK(finish(id[i]) == NULL);
        CHECK(pair[0] == 2u * (unsigned)times(500) && pair[1] == pair[0]);
}

static _Atomic int serial, phase[8];

static void *meets(void *me)
{
        bool bad = false;

        for (int round = 1; round <= 50; round++) {
                phase[(uintptr_t)me] = round;
                if (pthread_barrier_wait(&all_there) == PTHREAD_BARRIER_SERIAL_THREAD)
                        serial++;
                for (int i = 0; i < 8; i++)
                        bad |= phase[i] < round;
        }
        return (void *)(uintptr_t)bad;
}

static void barriers(void)
{
        pthread_t id[8];

        pthread_barrier_init(&all_there, NULL, 8);
        for (uintptr_t i = 0; i < 8; i++)
                id[i] = start(meets, (void *)i);
        for (int i = 0; i < 8; i++)
                CHECK(finish(id[i]) == NULL);
        CHECK(serial == 50);
        pthread_barrier_destroy(&all_there);
}

static sem_t items, room;
static uint32_t queue[16];

static void *produces(void *arg)
{
        for (uint32_t i = 1; i <= 3000; i++) {
                sem_wait(&room);
                queue[i % 16] = i;
                sem_post(&items);
        }
        return arg;
}

static void semaphores(void)
{
        uint64_t sum = 0;
        int left;

        sem_init(&items, 0, 0);
        sem_init(&room, 0, 16);
        pthread_t id = start(produces, NULL);
        for (uint32_t i = 1; i <= 3000; i++) {
                sem_wait(&items);
                sum += queue[i % 16];
                sem_post(&room);
        }
        finish(id);
        CHECK(sum == 3000ull * 3001 / 2 && sem_getvalue(&room, &left) == 0 && left == 16);
}

/* The time goes from thread to thread with a token and never back. */
static _Atomic uint64_t token;
static int64_t latest;

static void *passes(void *me)
{
        int64_t t;
        bool bad = false;

        for (uint64_t i = (uintptr_t)me; i < (uint64_t)times(1500); i += 3) {
                while (atomic_load_explicit(&token, memory_order_acquire) != i)
                        sched_yield();
                t = now_ns(CLOCK_MONOTONIC);
                bad |= t < latest;
                latest = t;
                atomic_store_explicit(&token, i + 1, memory_order_release);
        }
        return (void *)(uintptr_t)bad;
}

static void clocks(void)
{
        pthread_t id[3];

        for (uintptr_t i = 0; i < 3; i++)
                id[i] = start(passes, (void *)i);
        for (int i = 0; i < 3; i++)
                CHECK(finish(id[i]) == NULL);
}

const struct test basic_tests[] = {
        { "basic", "300 threads one after the other", one_after_the_other },
        { "basic", "40 threads at once and their ids", many_at_once },
        { "basic", "detached threads", detached },
        { "basic", "threads that make threads", a_tree },
        { "basic", "64 stacks of 64 KiB", stacks },
        { "basic", "mutex", mutexes },
        { "basic", "condition variable", ping_pong },
        { "basic", "waits that expire", timed_waits },
        { "basic", "read-write lock", rwlocks },
        { "basic", "barrier", barriers },
        { "basic", "semaphores", semaphores },
        { "basic", "a clock for all", clocks },
        { NULL, NULL, NULL }
};
