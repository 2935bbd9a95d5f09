/*
 * A guide holds up the thread that it works for, so it has a limit.  The limit is of processor
 * time, since on a busy host the guide may not get a CPU.
 *
 * One thread looks at all vCPUs every few milliseconds.  When it first sees a guide run, it notes
 * the run and the processor time of the vCPU's thread.  When the run has used up the limit since,
 * EVENT_GUIDE and a kick tell kern.  So a guide has at least the limit, and at most the limit and
 * the time between two looks.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "abi_control.h"
#include "abi_guide.h"
#include "base/ticker.h"
#include "stats/stats.h"
#include "vm/guides.h"
#include "vm/vcpu.h"

#define LOOK_MS 5

static struct vm *watched;              /* NULL: never asked for */

/* The thread's own. */
static struct look { uint32_t run; int64_t cpu_ns; } look[VCPUS_MAX];

/* Processor time of a thread of this process; -1: it has ended. */
static int64_t cpu_ns_of(pid_t tid)
{
        clockid_t clock = (clockid_t)(~(uint32_t)tid << 3 | 6);  /* as Linux numbers them */
        struct timespec t;

        if (clock_gettime(clock, &t) != 0)
                return -1;
        return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void look_at(struct thread *t, struct look *l)
{
        /* Relaxed: a run that is over by the time the event comes is not ended by it. */
        uint32_t run = atomic_load_explicit(&t->v->guide_run, memory_order_relaxed);
        int64_t cpu = run & 1 ? cpu_ns_of(atomic_load(&t->kick_tid)) : -1;

        if (cpu < 0)
                return;
        if (l->run != run) {
                *l = (struct look){ run, cpu };
        } else if (cpu - l->cpu_ns > GUIDE_LIMIT_MS * 1000000ll) {
                atomic_store_explicit(&t->v->guide_late, run, memory_order_relaxed);
                atomic_fetch_or(&t->v->event, EVENT_GUIDE);
                vcpu_kick(t);
        }
}

static void watch(void)
{
        for (uint32_t i = 0; i < atomic_load(&CONTROL->nvcpus); i++)
                if (watched->thread[i])
                        look_at(watched->thread[i], &look[i]);
}

static struct ticker watcher = {
        .name = "vmrun-guides", .ms = LOOK_MS, .tick = watch, TICKER_INIT
};

int guide_watch_start(struct vm *vm)
{
        watched = vm;
        return ticker_start(&watcher) ? -EAGAIN : 0;
}

void guide_watch_rest(void) { ticker_rest(&watcher); }

/* Without a thread a guide that never ends holds up its own thread, until a signal comes. */
void guide_watch_go_on(void)
{
        if (watched)
                guide_watch_start(watched);
}

void guide_watch_forked(void)
{
        ticker_forked(&watcher);
        watched = NULL;
        memset(look, 0, sizeof(look));
}

/* --- statistics --- */

static const struct stats_kind calls_kind = {
        .key = "guide.%.calls", .type = STATS_COUNTER, .metric = "guide_calls", .label = "guide",
        .title = "calls", .help = "Calls of a guide of the program",
};
static const struct stats_kind name_kind = {
        .key = "guide.%.name", .type = STATS_TEXT, .label = "guide", .title = "guide %",
};
static const struct stats_kind state_kind = {
        .key = "guide.%.state", .type = STATS_TEXT, .label = "guide", .title = "state",
        .help = "Guides: on; off: taken back, or its code is gone; removed: stopped three times",
};
#define ENDED(name, shown, what)                                                                 \
        { .key = "guide.%." name, .type = STATS_COUNTER, .metric = "guide_" name,                \
          .label = "guide", .title = shown, .help = what }
static const struct stats_kind ended_kinds[GUIDE_ENDS] = {
        [GUIDE_TOUCHED] = ENDED("touched", "ended: touched far memory",
                                "Calls ended since the guide touched far memory"),
        [GUIDE_TRAPPED] = ENDED("trapped", "ended: raised an exception",
                                "Calls ended since the guide raised an exception"),
        [GUIDE_CALLED] = ENDED("called", "ended: made a system call",
                                "Calls ended by a system call that guides may not make"),
        [GUIDE_LATE] = ENDED("late", "ended: took too long",
                                "Calls ended since the guide took too long"),
        [GUIDE_INTERRUPTED] = ENDED("interrupted", "ended: a signal came",
                                "Calls ended since a signal came"),
};

static void one(struct stats *s, int number, const struct guide *g, enum guide_state state)
{
        static const char *const shown[] = { [GUIDE_ON] = "on", [GUIDE_OFF] = "off",
                                             [GUIDE_REMOVED] = "removed" };
        char name[GUIDE_NAME], at[16];
        uint64_t n[GUIDE_ENDS], calls = 0;

        memcpy(name, g->name, sizeof(name));
        name[sizeof(name) - 1] = '\0';
        for (int i = 0; i < GUIDE_ENDS; i++)
                calls += n[i] = atomic_load_explicit(&g->ended[i], memory_order_relaxed);
        snprintf(at, sizeof(at), "%d", number);
        stats_text(s, &name_kind, at, name, false);
        stats_text(s, &state_kind, at, shown[state], false);
        stats_count(s, &calls_kind, at, calls);
        for (int i = GUIDE_TOUCHED; i < GUIDE_ENDS; i++)
                stats_count(s, &ended_kinds[i], at, n[i]);
}

void guides_stats(struct stats *s)
{
        const struct guide *table = (const struct guide *)CONTROL->guides;

        for (int i = 0; table && i < GUIDES_MAX; i++) {
                /* Acquire: with set_state() in kern, the rest is complete. */
                uint32_t state = atomic_load_explicit(&table[i].state, memory_order_acquire);
                if (state > GUIDE_FREE && state <= GUIDE_REMOVED)
                        one(s, i, &table[i], (enum guide_state)state);
        }
}
