/*
 * The worker of memnode's RDMA server (memnode/rdma/worker.c): jobs that take as long as the test
 * likes, beside a thread that must not wait for them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "memnode/rdma/worker.h"

#define MS 10000

/* What became of a job, and in which order. */
static atomic_uint count;
struct work {
        struct job job;
        sem_t *begun, *go;              /* run() says that it began, and waits */
        unsigned again;                 /* times that run() puts it off */
        unsigned ran, done, undone;     /* when; 0: not */
};

static void run(struct job *j)
{
        struct work *w = (struct work *)j;

        if (w->begun)
                sem_post(w->begun);
        if (w->go)
                sem_wait(w->go);
        if (w->again) {
                w->again--;
                j->again = true;
        } else {
                w->ran = ++count;
        }
}
static void done(struct job *j) { ((struct work *)j)->done = ++count; }
static void undo(struct job *j) { ((struct work *)j)->undone = ++count; }

static struct work work(const void *owner)
{
        return (struct work){ .job = { .run = run, .done = done, .undo = undo, .owner = owner } };
}

static sem_t begun, go;
static int a, b, c;                     /* owners */

static int begin(void **state)
{
        (void)state;
        count = 0;
        sem_init(&begun, 0, 0);
        sem_init(&go, 0, 0);
        return worker_start();
}

static void wait_for_result(void)
{
        struct pollfd f = { .fd = worker_fd(), .events = POLLIN };

        assert_int_equal(poll(&f, 1, MS), 1);
        worker_results();
}

/* While the worker is at work, which nobody waits for. */
static void start_slow(struct work *w)
{
        *w = work(&a);
        w->begun = &begun;
        w->go = &go;
        worker_add(&w->job);
        sem_wait(&begun);
}

static void a_job_is_done(void **state)
{
        struct work w = work(&a);

        (void)state;
        worker_add(&w.job);
        wait_for_result();
        assert_int_equal(w.ran, 1);
        assert_int_equal(w.done, 2);
        assert_int_equal(w.undone, 0);
        worker_stop();
}

static void nobody_waits(void **state)
{
        struct work slow, other = work(&b);

        (void)state;
        start_slow(&slow);
        worker_add(&other.job);
        worker_results();               /* returns, and there are none */
        assert_int_equal(count, 0);
        sem_post(&go);
        worker_wait();
        assert_true(slow.done && other.done);
        worker_stop();
}

/* Behind a slow job, which is the first. */
static void run_as(struct work *w, unsigned n, const unsigned *order)
{
        for (unsigned i = 0; i < n; i++)
                worker_add(&w[i].job);
        sem_post(&go);
        worker_wait();
        for (unsigned i = 0; i < n; i++)
                assert_int_equal(w[i].ran, order[i]);
        worker_stop();
}

/* a's jobs are many, and those of others come soon; each owner's in their order. */
static void owners_take_turns(void **state)
{
        struct work slow, w[6] = { work(&a), work(&a), work(&a), work(&b), work(&b), work(&c) };
        static const unsigned order[] = { 2, 5, 7, 3, 6, 4 };

        (void)state;
        start_slow(&slow);
        run_as(w, 6, order);
}

/* A job that is put off makes those of other owners not wait, and its owner's do. */
static void put_off(void **state)
{
        struct work slow, w[4] = { work(&a), work(&a), work(&b), work(&c) };
        static const unsigned order[] = { 4, 5, 2, 3 };

        (void)state;
        start_slow(&slow);
        w[0].again = 5;
        run_as(w, 4, order);
}

/* However many are put off, a newcomer has its turn at once, and those have theirs together. */
static void many_put_off(void **state)
{
        enum { MANY = 300 };
        static int owner[MANY];
        static struct work w[MANY];
        struct work new = work(&a);
        struct timespec begun_at, now;

        (void)state;
        for (unsigned i = 0; i < MANY; i++) {
                w[i] = work(&owner[i]);
                w[i].again = 20;
                worker_add(&w[i].job);
        }
        clock_gettime(CLOCK_MONOTONIC, &begun_at);
        worker_add(&new.job);
        worker_wait();
        clock_gettime(CLOCK_MONOTONIC, &now);
        assert_int_equal(new.ran, 1);
        for (unsigned i = 0; i < MANY; i++)
                assert_true(w[i].done);
        /* 20 times 10 ms, not 300 times that */
        assert_true(now.tv_sec - begun_at.tv_sec < 20);
        worker_stop();
}

/* It holds nothing meanwhile: who drops it has it back, or it is undone where it runs just now. */
static void dropped_while_put_off(void **state)
{
        struct work w = work(&a), other = work(&b), slow;

        (void)state;
        start_slow(&slow);
        slow.again = 1;
        assert_false(worker_drop(&slow.job));
        sem_post(&go);
        worker_wait();
        assert_true(slow.undone && !slow.ran);

        w.again = 300;                  /* 3 s */
        worker_add(&w.job);
        worker_add(&other.job);
        wait_for_result();
        assert_true(other.done);
        bool never = worker_drop(&w.job);
        worker_stop();
        assert_true(!w.ran && !w.done && (w.undone != 0) != never);
}

static void dropped_before_it_begins(void **state)
{
        struct work slow, w = work(&b), last = work(&b);

        (void)state;
        start_slow(&slow);
        worker_add(&w.job);
        assert_true(worker_drop(&w.job));
        worker_add(&last.job);          /* the queue is whole */
        sem_post(&go);
        worker_stop();
        assert_true(!w.ran && !w.done && !w.undone && last.done);
}

static void dropped_while_it_runs(void **state)
{
        struct work slow;

        (void)state;
        start_slow(&slow);
        assert_false(worker_drop(&slow.job));
        sem_post(&go);
        worker_stop();
        assert_true(slow.ran && slow.undone > slow.ran && !slow.done);
}

/* Undone before what its owner asked for later: the end of the owner, say. */
static void dropped_when_it_has_run(void **state)
{
        struct pollfd f = { .fd = worker_fd(), .events = POLLIN };
        struct work w = work(&a), end = work(&a);

        (void)state;
        worker_add(&w.job);
        assert_int_equal(poll(&f, 1, MS), 1);
        assert_false(worker_drop(&w.job));
        worker_add(&end.job);
        worker_stop();
        assert_int_equal(w.ran, 1);
        assert_true(w.undone && !w.done && end.ran > w.undone && end.done);
}

static void drop_it(struct job *j)
{
        struct work *w = (struct work *)j;

        assert_int_equal(w->done, 0);   /* once */
        done(j);
        assert_false(worker_drop(j));
}

static void dropped_by_done(void **state)
{
        struct work w = work(&a);

        (void)state;
        w.job.done = drop_it;
        worker_add(&w.job);
        wait_for_result();
        worker_stop();
        assert_true(w.ran && w.undone > w.ran);
}

static void what_must_run_runs(void **state)
{
        struct work slow, w = work(&b);

        (void)state;
        start_slow(&slow);
        w.job.must = true;
        worker_add(&w.job);
        assert_false(worker_drop(&w.job));
        sem_post(&go);
        worker_stop();
        assert_true(w.ran && w.undone > w.ran && !w.done);
}

static bool puts_off(unsigned i) { return i % 1009 == 0; }

/* Many jobs, dropped at any time: each is done, undone, or never begun; and in the order of its
 * owner. */
static void at_random(void **state)
{
        enum { JOBS = 20000, OWNERS = 5 };
        struct work *w = calloc(JOBS, sizeof(*w));
        bool *never = calloc(JOBS, sizeof(*never));
        unsigned last[OWNERS] = { 0 };
        static int owner[OWNERS];

        (void)state;
        srand(1);
        for (unsigned i = 0; i < JOBS; i++) {
                w[i] = work(&owner[i % OWNERS]);
                w[i].again = puts_off(i) ? i % 4 : 0;
                w[i].job.must = i % 7 == 0 && !puts_off(i);
                worker_add(&w[i].job);
                unsigned k = i - (unsigned)rand() % 20;
                if (rand() % 3 == 0)
                        worker_results();
                if (k <= i && !w[k].done && !w[k].job.dropped && !never[k] && rand() % 2)
                        never[k] = worker_drop(&w[k].job);
        }
        worker_stop();
        for (unsigned i = 0; i < JOBS; i++) {
                assert_int_equal((w[i].done != 0) + (w[i].undone != 0) + never[i], 1);
                assert_true(!never[i] || (!w[i].ran && !w[i].job.must));
                /* else it was dropped before it began, or while it was put off */
                bool ran = !never[i] && w[i].ran;
                assert_true(ran || never[i] || puts_off(i));
                assert_true(!ran || w[i].ran > last[i % OWNERS]);
                last[i % OWNERS] = ran ? w[i].ran : last[i % OWNERS];
        }
        free(w);
        free(never);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_job_is_done, begin),
                cmocka_unit_test_setup(nobody_waits, begin),
                cmocka_unit_test_setup(owners_take_turns, begin),
                cmocka_unit_test_setup(put_off, begin),
                cmocka_unit_test_setup(many_put_off, begin),
                cmocka_unit_test_setup(dropped_while_put_off, begin),
                cmocka_unit_test_setup(dropped_before_it_begins, begin),
                cmocka_unit_test_setup(dropped_while_it_runs, begin),
                cmocka_unit_test_setup(dropped_when_it_has_run, begin),
                cmocka_unit_test_setup(dropped_by_done, begin),
                cmocka_unit_test_setup(what_must_run_runs, begin),
                cmocka_unit_test_setup(at_random, begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
