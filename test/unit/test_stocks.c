/*
 * Model check of stocks of free frames that are taken back (kern/base/exit.c, runtime/vm/stocks.c):
 * simulated vCPUs use their stocks, make exits and run the program, beside the host, which takes.
 * Each may be interrupted before and after each atomic operation, and while kern uses its stock.
 *
 * Each frame must be in one place.  A vCPU that is asked for its stock while it runs the program
 * runs on until it is kicked: so an event without a kick is a wait without an end.
 *
 *   SEED=n STEPS=n test_stocks
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
#include "abi_image.h"
#include "base/cpu.h"
#include "base/exit.h"
#include "base/kern.h"
#include "pager/pte.h"
#include "vm/stocks.h"
#include "vm/vcpu.h"
#include "pager_sched.h"

#define VCPUS      4
#define EACH       4                    /* frames for each vCPU */
#define ROUNDS     20                   /* of a vCPU in a run */
#define MOST_STEPS 100000               /* until a vCPU that is asked has looked */

static unsigned self;                   /* the vCPU that runs */
struct control control;
struct vcpu_stats vcpu_self_stats;
static struct vcpu blocks[VCPUS];

static void model_point(void);
#define point model_point
#include "pager_hooks.h"
#undef point

static void in_the_host(void);
#define point()       model_point()
#define vcpu_self     blocks[self]
#define cpu_exit()    in_the_host()
#define vcpu_block(i) (&blocks[i])
#undef CONTROL
#define CONTROL       (&control)
#include "base/exit.c"
#include "vm/stocks.c"

/* Sets of frames.  In a stock, `first` is one too, if it has frames, and no chain's first. */
static uint32_t in_use[VCPUS], pool;
static bool kicked[VCPUS];
static uint64_t asked_at[VCPUS];        /* step; 0: it is not asked */
static unsigned working;
static uint64_t taken, given, kicks;

static void model_point(void)
{
        unsigned me = self;

        (point)();                      /* others may run meanwhile */
        self = me;
}

static void in_the_host(void)
{
        for (unsigned i = rnd(6); i; i--)
                model_point();
}

void vcpu_kick(struct thread *t)
{
        kicked[(uintptr_t)t - 1] = true;
        kicks++;
}

/* ---- kern on a vCPU ---- */

/* One frame from a set to another; in two steps, as kern's own. */
static void move(uint32_t *from, uint32_t *to)
{
        uint32_t one = *from & -*from, rest = *from & ~one;

        if (*to & one)
                sched_fail("frame %#x is in two places", one);
        model_point();
        *from = rest;
        *to |= one;
}

static void give_back(struct frame_chain *stock)
{
        uint32_t all = stock->n ? stock->first : 0;

        model_point();
        *stock = (struct frame_chain){ 0, 0 };
        pool |= all;
}

static void use_stock(void)
{
        struct frame_chain *stock = &vcpu_self.frames.free;
        uint32_t *mine = &in_use[self];

        if (stock->n == 0)
                stock->first = 0;
        if (stock->n != (uint32_t)__builtin_popcount(stock->first))
                sched_fail("a stock of %u frames: %#x", stock->n, stock->first);
        if (!stock->n && pool) {        /* a refill, by one operation */
                uint32_t all = pool;
                pool = 0;
                *stock = (struct frame_chain){ all, (uint32_t)__builtin_popcount(all) };
        } else if (stock->n && chance(2)) {
                move(&stock->first, mine);
                stock->n--;
        } else if (*mine) {
                move(mine, &stock->first);
                stock->n++;
        }
}

/* As events() in kern/entry/trap.c. */
static void look_at_events(void)
{
        struct vcpu *v = &vcpu_self;

        if (atomic_exchange(&v->event, 0) & EVENT_STOCK) {
                given += v->frames.free.n;
                give_back(&v->frames.free);
        }
        asked_at[self] = 0;
}

/* As become_program in kern/entry/entry.S. */
static void run_program(void)
{
        struct vcpu *v = &vcpu_self;
        bool computes = chance(2);

        for (;;) {
                atomic_store(&v->mode, MODE_PROGRAM);
                if (!atomic_load(&v->event))
                        break;
                atomic_store(&v->mode, MODE_KERN);
                look_at_events();
        }
        while (!kicked[self] && (computes ? v->frames.free.n > 0 : !chance(8)) && working > 1)
                model_point();
        kicked[self] = false;
        atomic_store(&v->mode, MODE_KERN);
        look_at_events();
}

static void vcpu(void *arg)
{
        self = (unsigned)(uintptr_t)arg;
        for (unsigned i = 0; i < ROUNDS; i++) {
                for (unsigned n = rnd(6); n; n--)
                        use_stock();
                if (chance(2))
                        vmexit(EXIT_YIELD, 0, 0, 0);
                else
                        run_program();
        }
        atomic_store(&vcpu_self.mode, MODE_OUT);
        working--;
}

/* ---- the host, for the cleaner ---- */

static void host(void *arg)
{
        (void)arg;
        while (working) {
                static struct vm vm;
                struct exit_stocks s;

                for (unsigned i = 0; i < VCPUS; i++)
                        vm.thread[i] = (struct thread *)(uintptr_t)(i + 1);
                stocks_take(&vm, &s);
                for (unsigned i = 0; i < s.n; i++) {
                        if (pool & s.chain[i].first)
                                sched_fail("a stock was taken twice");
                        pool |= s.chain[i].first;
                        taken++;
                }
                for (unsigned i = rnd(20); i; i--)
                        (point)();
        }
}

static void tick(void)
{
        for (unsigned i = 0; i < VCPUS; i++) {
                if (!(blocks[i].event & EVENT_STOCK))
                        asked_at[i] = 0;
                else if (!asked_at[i])
                        asked_at[i] = sched_steps;
                else if (sched_steps - asked_at[i] > MOST_STEPS)
                        sched_fail("vCPU %u does not hear that its stock is needed", i);
        }
}

static const char *audit(void)
{
        uint32_t all = pool;

        for (unsigned i = 0; i < VCPUS; i++) {
                const struct frame_chain *f = &blocks[i].frames.free;
                uint32_t stock = f->n ? f->first : 0;
                if ((all & in_use[i]) || (all & stock) || (in_use[i] & stock))
                        return "a frame is in two places";
                all |= in_use[i] | stock;
        }
        return all == (1u << EACH * VCPUS) - 1 ? NULL : "a frame is lost";
}

static void test_model(void **state)
{
        const uint64_t steps = sched_setting("STEPS", 4000000 / sched_slow);
        uint64_t seed = sched_setting("SEED", (uint64_t)time(NULL));

        (void)state;
        printf("# SEED=%lu STEPS=%lu\n", (unsigned long)seed, (unsigned long)steps);
        for (; sched_steps < steps; seed++) {
                sched_seed(seed);
                memset(blocks, 0, sizeof(blocks));
                memset(in_use, 0, sizeof(in_use));
                memset(kicked, 0, sizeof(kicked));
                memset(asked_at, 0, sizeof(asked_at));
                pool = (1u << EACH * VCPUS) - 1;
                control.nvcpus = working = VCPUS;
                sched_reset(2 + rnd(10), tick);
                for (unsigned i = 0; i < VCPUS; i++)
                        blocks[i].mode = MODE_KERN;
                for (unsigned i = 0; i < VCPUS; i++)
                        sched_spawn(vcpu, (void *)(uintptr_t)i);
                sched_spawn(host, NULL);
                const char *bad = sched_run() ? "an invariant broke" : audit();
                if (bad)
                        fail_msg("%s: SEED=%lu STEPS=1 shows it again", bad, (unsigned long)seed);
        }
        printf("# %lu stocks taken, %lu frames given back, %lu kicks\n", (unsigned long)taken,
               (unsigned long)given, (unsigned long)kicks);
        assert_true(taken > 0 && given > 0 && kicks > 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
