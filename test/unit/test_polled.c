/*
 * Model check of requests on their way from vCPUs to the I/O side (kern/far/rings.c,
 * runtime/far/polled.c): simulated vCPUs ask and rest, beside an I/O side that drops vCPUs which
 * rest, and sleeps.  Each may be interrupted before and after each atomic operation.
 *
 * Each request must be begun, once, in the order of its ring.  A vCPU waits for its requests, and
 * nobody else wakes the I/O side: so a request that is missed is a wait without an end.
 *
 *   SEED=n STEPS=n test_polled
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "base/cpu.h"
#include "base/exit.h"
#include "base/kern.h"
#include "base/latency.h"
#include "base/print.h"
#include "base/state.h"
#include "base/message.h"
#include "far/request.h"
#include "pager/env.h"
#include "pager_sched.h"

/* Numbers of vCPUs: in one word of the sets, in two, and at the ends of words. */
static const unsigned number[] = { 0, 1, 63, 64, 130 };
#define VCPUS      (sizeof(number) / sizeof(number[0]))
#define NUMBERS    131
#define REQUESTS   12                   /* of a vCPU in a run */
#define MOST_STEPS 200000               /* without a request that is begun: it was missed */

static struct vcpu_fixed fixed[NUMBERS];
static struct vcpu blocks[NUMBERS];
static struct io_rings all_rings[NUMBERS];
static unsigned self;                   /* the number of the vCPU that runs */
struct control control;
struct pager pager;
struct vcpu_stats vcpu_self_stats;

static void vcpu_point(void);
#define point vcpu_point
#include "pager_hooks.h"
#undef point

#define point()          vcpu_point()
#define vcpu_self_fixed  fixed[self]
#define vcpu_self        blocks[self]
#define vcpu_rings(n)    (&all_rings[n])
#undef CONTROL
#define CONTROL          (&control)
#define cpu_ring_doorbell() ring_the_bell()
static void ring_the_bell(void);
#include "far/rings.c"
#include "far/polled.c"
#undef point

static struct { uint64_t asked, begun; } demand[NUMBERS], prefetch[NUMBERS], bulk[NUMBERS];
static bool bell;
static unsigned working;                /* vCPUs that are not done */
static uint64_t last_begun;             /* step */
static uint64_t begun_all, drops, news, sleeps, bells;

static void vcpu_point(void)
{
        unsigned me = self;

        (point)();                      /* others may run meanwhile */
        self = me;
}

/* ---- what rings.c and polled.c call ---- */

static void ring_the_bell(void)
{
        bells++;
        bell = true;
}
int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        (void)op, (void)a0, (void)a1, (void)a2;
        sched_fail("nothing here sleeps in an exit");
        return 0;
}
void env_relax(unsigned spins) { (void)spins; }
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        sched_fail("kern_bug: %s: %#lx %#lx", what, (unsigned long)a, (unsigned long)b);
        abort();
}
_Noreturn void die_(int status, const char *fmt, ...)
{
        sched_fail("die_: %d: %s", status, fmt);
        abort();
}

void request_begin(struct io_entry *e, unsigned vcpu)
{
        uint64_t *begun = e->op == IO_READ ? &demand[vcpu].begun
                          : e->op == IO_WRITE ? &bulk[vcpu].begun
                                              : &prefetch[vcpu].begun;

        if (e->slot != (*begun)++)
                sched_fail("vCPU %u: request %lu of kind %u is begun as number %lu", vcpu,
                           (unsigned long)e->slot, e->op, (unsigned long)*begun - 1);
        last_begun = sched_steps;
        begun_all++;
}

/* ---- actors ---- */

static bool is_begun(void *arg)
{
        unsigned me = (unsigned)(uintptr_t)arg;

        return demand[me].begun == demand[me].asked && bulk[me].begun == bulk[me].asked &&
               prefetch[me].begun == prefetch[me].asked;
}

static void rest(unsigned steps)
{
        unsigned me = self;

        sched_delay(steps);
        self = me;
}

static void vcpu(void *arg)
{
        const unsigned me = (unsigned)(uintptr_t)arg;

        self = me;
        for (unsigned i = 0; i < REQUESTS; i++) {
                switch (rnd(4)) {
                case 0:
                        for (unsigned n = 1 + rnd(4); n; n--)
                                ring_prefetch(prefetch[me].asked++, 0, chance(2));
                        ring_prefetch_ring();
                        break;
                case 1:
                        ring_write(bulk[me].asked++, 0);
                        break;
                default:
                        ring_read(demand[me].asked++, 0, NULL);
                }
                if (chance(2))
                        continue;
                while (!is_begun(arg))
                        sched_wait(is_begun, arg);
                self = me;
                if (chance(2))
                        rest(rnd(400));
        }
        while (!is_begun(arg))
                sched_wait(is_begun, arg);
        working--;
}

/* Between calls of polled.c: `polled` is 1 for the vCPUs on the list, which are there once. */
static void check_list(void)
{
        unsigned listed[NUMBERS] = { 0 };

        for (unsigned i = 0; i < polled.n; i++)
                listed[polled.vcpu[i]]++;
        for (unsigned i = 0; i < NUMBERS; i++)
                if (listed[i] != all_rings[i].polled)
                        sched_fail("vCPU %u: on the list, and polled: not both", i);
}

static bool is_rung(void *arg)
{
        (void)arg;
        return bell || !working;
}

static void io_side(void *arg)
{
        (void)arg;
        while (working) {
                const unsigned before = polled.n;

                if (chance(3))
                        polled.turns = QUIET_TURNS - 1;
                unsigned n = polled_take();
                check_list();
                drops += polled.n < before;
                news += polled.n > before;
                if (n || chance(2))
                        continue;
                /* as sleep_for_news() in io.c */
                atomic_exchange(&control.io_asleep, 1);
                if (!polled_have_news()) {
                        sleeps++;
                        while (!is_rung(NULL))
                                sched_wait(is_rung, NULL);
                }
                bell = false;
                atomic_store(&control.io_asleep, 0);
        }
}

static void tick(void)
{
        if (sched_steps - last_begun > MOST_STEPS)
                sched_fail("a request was missed");
}

static void run_once(void)
{
        memset(all_rings, 0, sizeof(all_rings));
        memset(&control, 0, sizeof(control));
        memset(demand, 0, sizeof(demand));
        memset(prefetch, 0, sizeof(prefetch));
        memset(bulk, 0, sizeof(bulk));
        polled_forked();
        bell = false;
        last_begun = sched_steps;
        control.nvcpus = NUMBERS;
        sched_reset(2 + rnd(10), tick);
        working = 1 + rnd(VCPUS);
        for (unsigned i = 0, first = rnd(VCPUS); i < working; i++)
                sched_spawn(vcpu, (void *)(uintptr_t)number[(first + i) % VCPUS]);
        sched_spawn(io_side, NULL);
}

static void test_model(void **state)
{
        const uint64_t steps = sched_setting("STEPS", 4000000 / sched_slow);
        uint64_t seed = sched_setting("SEED", (uint64_t)time(NULL));

        (void)state;
        for (unsigned i = 0; i < NUMBERS; i++)
                fixed[i].number = i;
        printf("# SEED=%lu STEPS=%lu\n", (unsigned long)seed, (unsigned long)steps);
        for (; sched_steps < steps; seed++) {
                sched_seed(seed);
                run_once();
                if (sched_run() != 0)
                        fail_msg("SEED=%lu STEPS=1 shows it again", (unsigned long)seed);
        }
        printf("# %lu requests begun; %lu times vCPUs were dropped, %lu heard of again; "
               "%lu sleeps, %lu bells\n",
               (unsigned long)begun_all, (unsigned long)drops, (unsigned long)news,
               (unsigned long)sleeps, (unsigned long)bells);
        assert_true(drops > 0 && news > 0 && sleeps > 0 && bells > 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
