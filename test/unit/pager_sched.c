/*
 * Coroutines for the model check (pager_sched.h), on ucontext.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include "pager_sched.h"

#if defined __has_feature               /* clang's way to say what gcc says by macros */
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#elif __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#elif defined __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#define ACTORS     64
#define TRIES      64                   /* to find an actor that is awake */
#define STACK_SIZE (256 * 1024)

struct actor {
        ucontext_t ctx;
        void *stack, *fiber;
        void (*run)(void *);
        void *arg;
        bool done;
        uint64_t asleep_until;          /* in steps: some actors are slow for a while */
        bool (*ready)(void *);          /* sched_wait() */
        void *waits_for;
};

static struct actor actors[ACTORS], *current;
static unsigned nactors, nrunning;
static ucontext_t home;
#if defined __SANITIZE_THREAD__
static void *home_fiber;
#elif defined __SANITIZE_ADDRESS__
static const void *home_stack;
static size_t home_size;
#endif
static uint32_t switch_in;
static void (*on_tick)(void);
static bool failed, in_tick;
static uint64_t random_state;
uint64_t sched_steps;
#ifdef __SANITIZE_THREAD__
const unsigned sched_slow = 10;
#elif defined __SANITIZE_ADDRESS__
const unsigned sched_slow = 4;
#else
const unsigned sched_slow = 1;
#endif

uint64_t sched_setting(const char *name, uint64_t otherwise)
{
        const char *text = getenv(name);
        return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

void sched_seed(uint64_t seed)
{
        /* splitmix64: neighbouring seeds have nothing in common. xorshift must not start at 0. */
        seed += 0x9e3779b97f4a7c15ull;
        seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9ull;
        seed = (seed ^ seed >> 27) * 0x94d049bb133111ebull;
        random_state = (seed ^ seed >> 31) | 1;
}

uint32_t rnd(uint32_t n)
{
        random_state ^= random_state >> 12;
        random_state ^= random_state << 25;
        random_state ^= random_state >> 27;
        return (uint32_t)((random_state * 0x2545f4914f6cdd1dull >> 32) * n >> 32);
}

bool spurious(void) { return chance(16); }
bool sched_failed(void) { return failed; }
unsigned sched_running(void) { return nrunning; }
void *sched_arg(void) { return current ? current->arg : NULL; }

/* Sanitizers must know when the stack changes. */
static void switch_to(ucontext_t *from, ucontext_t *to, const struct actor *a)
{
#if defined __SANITIZE_THREAD__
        __tsan_switch_to_fiber(a ? a->fiber : home_fiber, 0);
        swapcontext(from, to);
#elif defined __SANITIZE_ADDRESS__
        void *fake;
        __sanitizer_start_switch_fiber(&fake, a ? a->stack : home_stack,
                                       a ? STACK_SIZE : home_size);
        swapcontext(from, to);
        __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#else
        (void)a;
        swapcontext(from, to);
#endif
}

static void go(struct actor *to)
{
        struct actor *from = current;
        current = to;
        switch_to(from ? &from->ctx : &home, to ? &to->ctx : &home, to);
}

static struct actor *choose(void)
{
        struct actor *a = NULL;
        for (unsigned tries = 0; tries < TRIES; tries++) {
                a = &actors[rnd(nactors)];
                if (!a->done && a->asleep_until <= sched_steps &&
                    (!a->ready || a->ready(a->waits_for)))
                        return a;
        }
        while (a->done)                 /* all actors sleep: wake one */
                a = a + 1 == actors + nactors ? actors : a + 1;
        return a;
}

static void pass(void)
{
        sched_steps++;
        in_tick = true;
        on_tick();
        in_tick = false;
        if (failed)
                go(NULL);               /* never comes back */
}

/* Or NULL.  Many may wait, so it is not left to chance that one is found. */
static struct actor *choose_ready(void)
{
        unsigned first = rnd(nactors);

        for (unsigned i = 0; i < nactors; i++) {
                struct actor *a = &actors[(first + i) % nactors];
                if (!a->done && a->asleep_until <= sched_steps &&
                    (!a->ready || a->ready(a->waits_for)))
                        return a;
        }
        return NULL;
}

void sched_wait(bool (*ready)(void *), void *arg)
{
        struct actor *me = current, *next;

        me->ready = ready;
        me->waits_for = arg;
        do
                pass();
        while (!(next = choose_ready()));
        if (next != me)
                go(next);
        me->ready = NULL;
}

void point(void)
{
        if (!current || in_tick)
                return;
        pass();
        if (!chance(switch_in))
                return;
        if (chance(64))
                current->asleep_until = sched_steps + rnd(chance(8) ? 4000 : 200);
        struct actor *next = choose();
        if (next != current)
                go(next);
}

void sched_delay(uint32_t steps)
{
        if (!current || in_tick)
                return;
        pass();
        current->asleep_until = sched_steps + steps;
        struct actor *next = choose();
        if (next != current)
                go(next);
}

static void actor_main(void)
{
#if defined __SANITIZE_ADDRESS__
        const void *stack;
        size_t size;
        __sanitizer_finish_switch_fiber(NULL, &stack, &size);
        if (!home_stack) {              /* the very first actor comes from there */
                home_stack = stack;
                home_size = size;
        }
#endif
        current->run(current->arg);
        current->done = true;
        if (--nrunning == 0)
                go(NULL);
        go(choose());
        abort();                        /* no actor continues here */
}

void sched_reset(uint32_t in, void (*tick)(void))
{
        for (unsigned i = 0; i < nactors; i++) {
                free(actors[i].stack);
#if defined __SANITIZE_THREAD__
                __tsan_destroy_fiber(actors[i].fiber);
#endif
                actors[i] = (struct actor){ 0 };
        }
        nactors = nrunning = 0;
        switch_in = in;
        on_tick = tick;
        failed = false;
}

void sched_spawn(void (*run)(void *), void *arg)
{
        struct actor *a = &actors[nactors++];
        *a = (struct actor){ .run = run, .arg = arg, .stack = malloc(STACK_SIZE) };
        if (!a->stack || nactors > ACTORS || getcontext(&a->ctx) != 0)
                abort();
        a->ctx.uc_stack.ss_sp = a->stack;
        a->ctx.uc_stack.ss_size = STACK_SIZE;
        makecontext(&a->ctx, actor_main, 0);
#if defined __SANITIZE_THREAD__
        a->fiber = __tsan_create_fiber(0);
#endif
        nrunning++;
}

int sched_run(void)
{
#if defined __SANITIZE_THREAD__
        home_fiber = __tsan_get_current_fiber();
#endif
        go(choose());
        current = NULL;
        return failed ? -1 : 0;
}

void sched_fail(const char *fmt, ...)
{
        va_list ap;

        if (!failed) {
                fprintf(stderr, "step %lu: ", (unsigned long)sched_steps);
                va_start(ap, fmt);
                vfprintf(stderr, fmt, ap);
                va_end(ap);
                fputc('\n', stderr);
        }
        failed = true;
        if (current && !in_tick)
                go(NULL);
}
