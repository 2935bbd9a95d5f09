/*
 * The watch over a thread that waits for kern (runtime/vm/watch.c): what counts as waiting.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "abi_stats.h"
#include "base/options.h"
#include "vm/thread.h"
#include "vm/watch.h"

struct options opt;

static _Alignas(4096) char block[VCPU_BLOCK];
static struct thread thread;

static void pass(unsigned ms)
{
        const struct timespec t = { ms / 1000, ms % 1000 * 1000000l };

        nanosleep(&t, NULL);
}

static int setup(void **state)
{
        sigset_t set;

        (void)state;
        setenv("VMRUN_WATCH_MS", "1200", 1);
        sigfillset(&set);               /* as while a thread has a signal for the program */
        sigprocmask(SIG_SETMASK, &set, NULL);
        thread = (struct thread){ .v = (struct vcpu *)block, .tid = getpid() };
        watch_begin(&thread);
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        watch_end(&thread);
        return 0;
}

static void looks_count(void **state)
{
        (void)state;
        assert_false(watch_is_over(&thread));
        pass(700);
        assert_false(watch_is_over(&thread));
        pass(700);
        assert_true(watch_is_over(&thread));
}

static void a_stop_counts_little(void **state)
{
        (void)state;
        pass(1500);
        assert_false(watch_is_over(&thread));
        pass(500);
        assert_true(watch_is_over(&thread));
}

/* Fetched pages are work: with them a wait may exceed the limit. Spurious faults are not. */
static void work_counts(void **state)
{
        struct vcpu_stats *s = vcpu_stats(thread.v);

        (void)state;
        for (int i = 0; i < 4; i++) {
                pass(500);
                s->faults[FAULT_FETCH]++;
                assert_false(watch_is_over(&thread));
        }
        for (int i = 0; i < 3; i++) {
                pass(500);
                s->faults[FAULT_SPURIOUS]++;
                assert_int_equal(watch_is_over(&thread), i == 2);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(looks_count, setup, teardown),
                cmocka_unit_test_setup_teardown(a_stop_counts_little, setup, teardown),
                cmocka_unit_test_setup_teardown(work_counts, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
