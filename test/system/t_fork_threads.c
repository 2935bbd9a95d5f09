/*
 * t_fork: fork of programs with threads, and locks that processes share.
 */
#include <pthread.h>
#include <sys/wait.h>
#include "t_fork.h"

#define THREADS 3
#define PAGES   64

static volatile bool stop;

static void *churn(void *arg)
{
        uint64_t v = 1;
        char *p = arg;

        for (fill(p, 0, PAGES, v); !stop; v++) {
                verify("a thread's own", p, 0, PAGES, v);
                fill(p, 0, PAGES, v + 1);
        }
        return NULL;
}

static void *add_one(void *arg)
{
        ++*(int *)arg;
        return NULL;
}

/* The child is a program like others: it makes threads, too. */
static void be_child(const char *p, int k)
{
        int n = k;
        pthread_t t[THREADS];

        verify("of a program with threads", p, 0, PAGES, 7);
        for (int i = 0; i < THREADS; i++)
                CHECK(pthread_create(&t[i], NULL, add_one, &n) == 0 &&
                      pthread_join(t[i], NULL) == 0);
        exit(n);
}

static void *fork_in_thread(void *p)
{
        pid_t child = start_child();
        if (!child)
                be_child(p, 10);
        reap(child, (10 + THREADS) << 8);
        return p;
}

static void test_threads(void)
{
        pthread_t t[THREADS], other;
        char *p = map_pages(PAGES, RW, MAP_PRIVATE), *own[THREADS];

        stop = false;
        fill(p, 0, PAGES, 7);
        for (int i = 0; i < THREADS; i++) {
                own[i] = map_pages(PAGES, RW, MAP_PRIVATE);
                CHECK(pthread_create(&t[i], NULL, churn, own[i]) == 0);
        }
        for (int k = 0; k < 10; k++) {
                pid_t child = start_child();
                if (!child)
                        be_child(p, k);
                reap(child, (k + THREADS) << 8);
        }
        /* From another thread than the first, and from two at the same time. */
        CHECK(pthread_create(&other, NULL, fork_in_thread, p) == 0);
        fork_in_thread(p);
        CHECK(pthread_join(other, NULL) == 0);
        stop = true;
        for (int i = 0; i < THREADS; i++)
                CHECK(pthread_join(t[i], NULL) == 0 && munmap(own[i], PAGES * PG) == 0);
        CHECK(munmap(p, PAGES * PG) == 0);
}

struct shared { pthread_mutex_t lock, robust; pthread_cond_t changed; unsigned turn; };

static void take_turns(struct shared *s, unsigned first)
{
        for (unsigned n = first; n < 200; n += 2) {
                CHECK(pthread_mutex_lock(&s->lock) == 0);
                while (s->turn != n)
                        CHECK(pthread_cond_wait(&s->changed, &s->lock) == 0);
                s->turn++;
                CHECK(pthread_cond_broadcast(&s->changed) == 0 &&
                      pthread_mutex_unlock(&s->lock) == 0);
        }
}

static void test_locks(void)
{
        struct shared *s = map_pages(1, RW, MAP_SHARED);
        pthread_mutexattr_t m;
        pthread_condattr_t c;

        CHECK(pthread_mutexattr_init(&m) == 0 &&
              pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED) == 0);
        CHECK(pthread_condattr_init(&c) == 0 &&
              pthread_condattr_setpshared(&c, PTHREAD_PROCESS_SHARED) == 0);
        CHECK(pthread_mutex_init(&s->lock, &m) == 0 && pthread_cond_init(&s->changed, &c) == 0);
        CHECK(pthread_mutexattr_setrobust(&m, PTHREAD_MUTEX_ROBUST) == 0 &&
              pthread_mutex_init(&s->robust, &m) == 0);
        pid_t child = start_child();
        if (!child) {
                take_turns(s, 1);
                CHECK(pthread_mutex_lock(&s->robust) == 0);
                _exit(0);               /* with the lock held */
        }
        take_turns(s, 0);
        reap(child, 0);
        CHECK(pthread_mutex_lock(&s->robust) == EOWNERDEAD &&
              pthread_mutex_consistent(&s->robust) == 0);
        CHECK(pthread_mutex_unlock(&s->robust) == 0 && munmap(s, PG) == 0);
}

void thread_tests(void)
{
        test_threads();
        printf("threads: ok\n");
        fflush(stdout);
        test_locks();
        printf("locks: ok\n");
        fflush(stdout);
}
