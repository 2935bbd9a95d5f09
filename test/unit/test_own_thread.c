/*
 * Threads of vmrun's own: their policy, nice value and CPUs do not depend on the thread that needs
 * them first.  Each test is a process of its own without CAP_SYS_NICE, as it cannot raise again
 * what it has lowered.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/capability.h>
#include <cmocka.h>
#include "base/own_thread.h"

/* libc takes it with its first thread; vmrun gives it back. */
#define LIBC_SIGNAL 33
#define IGNORED     1                   /* SIG_IGN */
struct action { uint64_t handler, flags, restorer, mask; };

static cpu_set_t all, one;

/* What a thread of vmrun's own sees. */
struct seen {
        int policy, nice, open_signals;
        cpu_set_t cpus;
        char name[16];
};

static void *look(void *arg)
{
        struct seen *s = arg;
        uint64_t mask = 0;

        own_thread_begins("vmrun-test");
        s->policy = sched_getscheduler(0);
        s->nice = getpriority(PRIO_PROCESS, 0);
        sched_getaffinity(0, sizeof(s->cpus), &s->cpus);
        prctl(PR_GET_NAME, s->name);
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof(mask));
        /* SIGKILL and SIGSTOP cannot be blocked */
        s->open_signals = __builtin_popcountl(~mask) - 2;
        return arg;
}

/* In a child; cmocka's assertions would go on with its parent's next test. */
#define CHECK(x)                                                                                 \
        do {                                                                                     \
                if (!(x)) {                                                                      \
                        fprintf(stderr, "%s:%d: error: %s\n", __FILE__, __LINE__, #x);           \
                        _exit(1);                                                                \
                }                                                                                \
        } while (0)

static struct seen make_one(void)
{
        struct seen s = { .policy = -1 };
        pthread_t id;

        CHECK(own_thread(&id, look, &s) == 0);
        pthread_join(id, NULL);
        return s;
}

static void expect(const struct seen *s, int policy, int nice)
{
        CHECK(s->policy == policy);
        CHECK(s->nice == nice);
        CHECK(CPU_EQUAL(&s->cpus, &all));
        CHECK(strcmp(s->name, "vmrun-test") == 0);
        CHECK(s->open_signals == 0);
        struct action now;
        CHECK(syscall(SYS_rt_sigaction, LIBC_SIGNAL, NULL, &now, sizeof(now.mask)) == 0);
        CHECK(now.handler == IGNORED);
}

static void give_up_nice(void)
{
        struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct d[2];
        struct rlimit none = { 0, 0 };

        CHECK(syscall(SYS_capget, &h, d) == 0);
        d[0].effective &= ~(1u << CAP_SYS_NICE);
        CHECK(syscall(SYS_capset, &h, d) == 0);
        setrlimit(RLIMIT_NICE, &none);
        setrlimit(RLIMIT_RTPRIO, &none);
}

/* In a process of its own, whose end must not be cmocka's. */
static void apart(void (*test)(void))
{
        int status;

        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
                alarm(10);              /* a thread that waits for ever has failed */
                const struct action ignore = { .handler = IGNORED };
                syscall(SYS_rt_sigaction, LIBC_SIGNAL, &ignore, NULL, sizeof(ignore.mask));
                own_threads_init();
                give_up_nice();
                test();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void lower(int policy, int nice)
{
        const struct sched_param none = { 0 };

        CHECK(sched_setscheduler(0, policy, &none) == 0);
        CHECK(setpriority(PRIO_PROCESS, 0, nice) == 0);
}

static void lowered_after(void)
{
        own_threads_set_apart();
        lower(SCHED_IDLE, 19);
        own_threads_set_apart();        /* of a thread that is low already */
        for (int i = 0; i < 3; i++) {
                struct seen s = make_one();
                expect(&s, SCHED_OTHER, 0);
        }
}

static void lowered_without(void)
{
        lower(SCHED_IDLE, 5);
        struct seen s = make_one();
        expect(&s, SCHED_IDLE, 5);
}

static void pinned(void)
{
        CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
        struct seen s = make_one();
        expect(&s, SCHED_OTHER, 0);
        CHECK(own_cpus_hold(0));
        own_threads_init();
        CHECK(own_cpus_are_one() && own_cpus_hold(0));
        CHECK(sched_setaffinity(0, sizeof(all), &all) == 0);
        CHECK(own_cpus_are_one());
        CHECK(own_cpus_hold(0) == CPU_EQUAL(&one, &all));
}

static atomic_int made;

static void *makes_some(void *arg)
{
        for (int i = 0; i < 20; i++) {
                struct seen s = make_one();
                made += s.policy == SCHED_OTHER && s.nice == 0;
        }
        return arg;
}

static void many_ask(void)
{
        pthread_t id[4];

        own_threads_set_apart();
        lower(SCHED_IDLE, 10);
        for (int i = 0; i < 4; i++)
                CHECK(pthread_create(&id[i], NULL, makes_some, NULL) == 0);
        for (int i = 0; i < 4; i++)
                pthread_join(id[i], NULL);
        CHECK(made == 80);
}

/* A child has no such thread, and one of its own again before it lowers more. */
static void forked(void)
{
        int status;

        own_threads_set_apart();
        /* So the maker is up: a sanitizer's lock of a thread that begins would stay locked in the
         * child. */
        make_one();
        lower(SCHED_OTHER, 5);
        pid_t pid = fork();
        if (pid == 0) {
                alarm(5);
                own_threads_forked();
                struct seen s = make_one();
                expect(&s, SCHED_OTHER, 5);
                own_threads_set_apart();
                lower(SCHED_IDLE, 19);
                s = make_one();
                expect(&s, SCHED_OTHER, 5);
                _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(status == 0);
        struct seen s = make_one();
        expect(&s, SCHED_OTHER, 0);
}

static unsigned threads(void)
{
        unsigned n = 0;
        char line[128];
        FILE *f = fopen("/proc/self/status", "r");

        while (f && fgets(line, sizeof(line), f))
                sscanf(line, "Threads: %u", &n);
        if (f)
                fclose(f);
        return n;
}

static void expect_threads(unsigned n)
{
        /* a thread that was joined counts until the kernel has reaped it */
        for (int i = 0; i < 5000 && threads() != n; i++)
                usleep(1000);
        CHECK(threads() == n);
}

static void rests(void)
{
        own_threads_rest();             /* there is none */
        own_threads_set_apart();
        const unsigned with = threads();        /* a sanitizer may have one, too */
        own_threads_rest();
        expect_threads(with - 1);
        own_threads_set_apart();
        own_threads_set_apart();        /* does nothing */
        expect_threads(with);
        lower(SCHED_IDLE, 0);
        struct seen s = make_one();
        expect(&s, SCHED_OTHER, 0);
}

static void test_lowered_after(void **state) { (void)state; apart(lowered_after); }
static void test_lowered_without(void **state) { (void)state; apart(lowered_without); }
static void test_pinned(void **state) { (void)state; apart(pinned); }
static void test_many_ask(void **state) { (void)state; apart(many_ask); }
static void test_forked(void **state)
{
        (void)state;
#ifdef __SANITIZE_THREAD__
        skip();                         /* it allows no threads in a child of several */
#endif
        apart(forked);
}
static void test_rests(void **state) { (void)state; apart(rests); }

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_lowered_after),
                cmocka_unit_test(test_lowered_without),
                cmocka_unit_test(test_pinned),
                cmocka_unit_test(test_many_ask),
                cmocka_unit_test(test_forked),
                cmocka_unit_test(test_rests),
        };
        int cpu = 0;

        /* A test that is niced itself; only root may raise it. */
        if (setpriority(PRIO_PROCESS, 0, 0) != 0) {
                puts("1..0 # SKIP nice value is low already");
                return 0;
        }
        sched_getaffinity(0, sizeof(all), &all);
        while (!CPU_ISSET(cpu, &all))
                cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
