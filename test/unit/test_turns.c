/*
 * The turn to poll where there is no I/O thread (runtime/far/turns.c): threads that wait for pages,
 * which any of them brings.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "far/turns.h"

#define THREADS 4
#define ROUNDS  4000

/* A thread's word moves on when the page that it asked for has come. */
static struct { _Atomic uint32_t word, asked; } page[THREADS + 1];
static atomic_int pollers, most, ready;
static atomic_uint rounds;              /* of all threads that are not slow */
static unsigned brought;                /* by the thread that polls: nothing else guards it */

static void moment(void) { nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL); }

/* Brings pages that were asked for, but the last page only when all others are there. */
static void step(unsigned *seed)
{
        for (unsigned i = 0; i <= THREADS; i++)
                if (atomic_load(&page[i].asked) && rand_r(seed) % 2 &&
                    (i < THREADS || atomic_load(&rounds) == THREADS * ROUNDS)) {
                        atomic_store(&page[i].asked, 0);
                        atomic_fetch_add(&page[i].word, 1);
                        brought++;
                }
}

static void wait_for(unsigned i, unsigned *seed)
{
        uint32_t seen = atomic_load(&page[i].word);

        atomic_store(&page[i].asked, 1);
        while (atomic_load(&page[i].word) == seen) {
                if (!turn_begin(&page[i].word, seen))
                        continue;
                int n = atomic_fetch_add(&pollers, 1) + 1;
                if (n > atomic_load(&most))
                        atomic_store(&most, n);
                atomic_store(&ready, 1);
                for (; atomic_load(&page[i].word) == seen; turn_tell())
                        step(seed);
                atomic_fetch_sub(&pollers, 1);
                turn_over();
        }
}

static void *reads(void *arg)
{
        unsigned i = (unsigned)(uintptr_t)arg, seed = i + 1;

        for (unsigned n = 0; n < ROUNDS; n++) {
                wait_for(i, &seed);
                atomic_fetch_add(&rounds, 1);
        }
        return NULL;
}

static void *reads_slowly(void *arg)
{
        unsigned seed = 77;

        wait_for(THREADS, &seed);
        return arg;
}

static void start(pthread_t *id, void *(*f)(void *), unsigned i)
{
        assert_int_equal(pthread_create(id, NULL, f, (void *)(uintptr_t)i), 0);
}

static void run(bool slow)
{
        pthread_t id[THREADS + 1];

        atomic_store(&ready, 0);
        atomic_store(&rounds, 0);
        brought = 0;
        if (slow) {
                start(&id[THREADS], reads_slowly, THREADS);
                while (!atomic_load(&ready))
                        moment();
        }
        for (unsigned i = 0; i < THREADS; i++)
                start(&id[i], reads, i);
        for (unsigned i = 0; i < THREADS + (unsigned)slow; i++)
                pthread_join(id[i], NULL);
        assert_int_equal(atomic_load(&most), 1);
        assert_int_equal(brought, THREADS * ROUNDS + (unsigned)slow);
}

/* A thread that polls hands over when its own wait is over. */
static void test_all_go_on(void **state) { (void)state; run(false); }
/* A thread whose page does not come polls for all others. */
static void test_one_is_silent(void **state) { (void)state; run(true); }

/* A thread that polls waits for `never`, a thread that sleeps for `later`; no word changes. */
static _Atomic uint32_t never, later;
static atomic_bool to_end;

static void *polls(void *arg)
{
        if (!turn_begin(&never, 0))
                abort();
        atomic_store(&ready, 1);
        while (!atomic_load(&to_end)) {
                turn_tell();
                moment();
        }
        turn_over();
        return arg;
}

static pthread_t begin_to_poll(void)
{
        pthread_t id;

        atomic_store(&ready, 0);
        atomic_store(&to_end, false);
        start(&id, polls, 0);
        while (!atomic_load(&ready))
                moment();
        return id;
}

static void end_polling(pthread_t id)
{
        atomic_store(&to_end, true);
        pthread_join(id, NULL);
}

/* The thread that was given the turn polls: no other one does. */
static void test_handed_over(void **state)
{
        pthread_t id;

        (void)state;
        atomic_store(&ready, 0);
        atomic_store(&to_end, false);
        assert_true(turn_begin(&never, 0));
        start(&id, polls, 0);
        for (int i = 0; i < 300; i++)   /* it sleeps by then */
                moment();
        turn_over();
        while (!atomic_load(&ready))
                moment();
        assert_false(turn_begin(&never, 1));
        end_polling(id);
}

static void test_over_already(void **state)
{
        (void)state;
        pthread_t id = begin_to_poll();
        assert_false(turn_begin(&never, 1));
        end_polling(id);
        assert_true(turn_begin(&never, 1));     /* no other thread polls: it gets the turn */
        turn_over();
}

static void test_forked(void **state)
{
        int status;

        (void)state;
        pthread_t id = begin_to_poll();
        pid_t pid = fork();
        if (pid == 0) {
                alarm(10);
                turns_forked();
                _exit(!turn_begin(&never, 0));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        end_polling(id);
}

static _Atomic pid_t child;

static void *kills(void *arg)
{
        while (!atomic_load(&child))
                moment();
        for (int i = 0; i < 300; i++)   /* it sleeps by then */
                moment();
        if (arg)
                atomic_store(&to_end, true);    /* and has got the turn by then */
        for (int i = 0; arg && i < 300; i++)
                moment();
        kill(atomic_load(&child), SIGKILL);
        return NULL;
}

/* A child of vfork is killed while it sleeps; with_turn: or just after it was its turn. */
static void child_is_killed(bool with_turn)
{
#ifdef __SANITIZE_THREAD__
        (void)with_turn;
        skip();                         /* its vfork is a fork */
#endif
        pthread_t killer, id = begin_to_poll();

        atomic_store(&child, 0);
        start(&killer, kills, with_turn);
        pid_t pid = vfork();
        if (pid == 0) {
                atomic_store(&child, getpid());
                turn_begin(&later, atomic_load(&later));
                for (;;)
                        pause();
        }
        pthread_join(killer, NULL);
        waitpid(pid, NULL, 0);
        if (!with_turn) {
                assert_false(turn_begin(&never, 1));
                end_polling(id);
                assert_true(turn_begin(&never, 0));
        } else {
                pthread_join(id, NULL);
                assert_true(turn_begin(&never, 0));
        }
        turn_over();
}

static void test_child_is_killed(void **state) { (void)state; child_is_killed(false); }
static void test_child_with_turn_is_killed(void **state) { (void)state; child_is_killed(true); }

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_all_go_on),
                cmocka_unit_test(test_one_is_silent),
                cmocka_unit_test(test_handed_over),
                cmocka_unit_test(test_over_already),
                cmocka_unit_test(test_forked),
                cmocka_unit_test(test_child_is_killed),
                cmocka_unit_test(test_child_with_turn_is_killed),
        };

        alarm(30);                      /* a thread that waits for ever has failed */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
