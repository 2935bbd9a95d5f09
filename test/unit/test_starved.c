/*
 * Model check of when a program gives up (kern/paging/cleaner.c, over the pager's own sources): the
 * cleaner finds that no frame can be freed, and a vCPU that waits for one ends in SIGBUS.
 *
 * vCPUs use pages of a world that either has room for all of them, or not.  Where it has, no vCPU
 * may give up, whatever others do: keep pages hot, hold locked pages, keep free frames in stock
 * while they rest or compute.  Where it has not, a vCPU must give up in time, and not before
 * everything is in use; and where the first that does so leaves its pages, the others must not.  A
 * wake-up that is lost is a wait without an end.
 *
 *   SEED=n STEPS=n test_starved
 */
static unsigned self;                   /* the vCPU that runs */
static void vcpu_point(void);
#include "pager_hooks.h"
#include "pager_sched.h"
#define point() vcpu_point()            /* in inline functions of the headers, too */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <errno.h>
#include <cmocka.h>
#include "base/exit.h"
#include "base/flush.h"
#include "base/kern.h"
#include "base/state.h"
#include "far/slots.h"
#include "far/timed.h"
#include "pager_env.h"
#include "pager/frames.c"
#include "pager/transition.c"
#include "pager/balance.c"
#include "pager/clock.c"
#include "pager/evict.c"

#define VCPUS      4                    /* of the program; the cleaner's is the last */
#define TOUCHES    80                   /* of a vCPU in a run */
#define MOST_STEPS 1000000              /* until some vCPU has got on */
/* Frames that are in no page while all vCPUs get on: each may hold one that it fills, and one may
 * be claimed. */
#define SLACK      (VCPUS + 1)

static struct vcpu blocks[VCPUS + 1];
static uint64_t counts[VCPUS + 1][CNT_COUNT];
struct control control;
struct vcpu_stats vcpu_self_stats;

/* What a run is about. */
enum kind {
        ROOM,                           /* for all pages, which vCPUs write to */
        CLEAN,                          /* pages that nobody writes to need no slots */
        HOT,                            /* room, but others use as many pages as there are frames */
        HOARD,                          /* room, but vCPUs that compute have all free frames */
        EXHAUSTED,                      /* more pages than room */
        EXHAUSTED_HOT,                  /* and others use a few pages all the time */
        LEAVES,                         /* the first that gives up unmaps pages: then there is */
        KINDS
};

static struct {
        enum kind kind;
        bool room, leaving;             /* there is room for all pages; a vCPU unmaps some */
        bool writes;
        uint32_t pages;                 /* that are used */
        uint32_t hot;                   /* of them, by vCPUs that use few, all the time */
        unsigned working, cool;         /* vCPUs that are not done; of these: that are not hot */
        bool stop, lock;
        bool asleep[VCPUS], cleaner_sleeps, out[VCPUS], kicked[VCPUS];
        jmp_buf end;                    /* of the cleaner */
        uint64_t last;                  /* step: when a vCPU got on */
        unsigned kick;                  /* steps until the host runs a vCPU that is kicked */
        uint32_t found;                 /* the last value of control.starved */
} m;
static struct { uint64_t waits, gave_up, left, taken, given, locked, hot; } seen;

static void vcpu_point(void)
{
        unsigned me = self;

        (point)();                      /* others may run meanwhile */
        self = me;
}

#define pager           env.pg
#define vcpu_self       blocks[self]
#define counters()      counts[self]
#include "paging/cleaner.c"

/* ---- what the sources call ---- */

void flush_wait(uint64_t epoch)
{
        while (!env_flush_done(epoch))
                vcpu_point();
}
void timed_poll(void) {}
void slots_lease_ahead(void) {}
void slots_write_wait(void)
{
        if (!env_io_step(rnd(ENV_TRANSFERS)))
                vcpu_point();
}

static bool awake(void *arg) { return !*(bool *)arg || m.stop; }

static void sleep_on(bool *asleep, const _Atomic uint32_t *word, uint32_t is)
{
        unsigned me = self;

        if (*word != is)                /* one moment, as a futex */
                return;
        *asleep = true;
        while (!awake(asleep))
                sched_wait(awake, asleep);
        *asleep = false;
        self = me;
}

/* The host, as in runtime/vm/stocks.c. */
static void take_from_all(struct exit_stocks *s)
{
        s->n = s->left = 0;
        for (unsigned i = 0; i < VCPUS; i++) {
                struct frame_chain *free = &blocks[i].frames.free;
                if (!free->n)
                        continue;
                if (m.out[i]) {
                        s->chain[s->n++] = *free;
                        free->n = 0;
                        seen.taken++;
                } else {
                        s->left = 1;
                        m.kicked[i] = true;
                }
        }
}

int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        const unsigned me = self;

        (void)a1, (void)a2, (void)a3, (void)a4;
        if (me == VCPUS && m.stop)
                longjmp(m.end, 1);
        if (me < VCPUS)
                m.out[me] = true;
        vcpu_point();
        switch (op) {
        case EXIT_WAIT_FRAMES:
                seen.waits++;
                sleep_on(&m.asleep[me], &control.frames_seq, (uint32_t)a0);
                sched_delay(rnd(chance(4) ? 4000 : 40));        /* until the host runs it */
                break;
        case EXIT_WAKE_FRAMES:
                memset(m.asleep, 0, sizeof(m.asleep));
                break;
        case EXIT_SERVICE_SLEEP:
                sleep_on(&m.cleaner_sleeps, &control.service_seq, (uint32_t)a0);
                break;
        case EXIT_SERVICE_WAKE:
                m.cleaner_sleeps = false;
                break;
        case EXIT_STOCKS:
                take_from_all((struct exit_stocks *)a0);
                break;
        case EXIT_YIELD:
                sched_delay(rnd(40));
                break;
        default:
                sched_delay(rnd(200));
        }
        self = me;
        vcpu_point();
        if (me < VCPUS)
                m.out[me] = false;
        if (me == VCPUS && m.stop)
                longjmp(m.end, 1);
        return 0;
}
int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return vmexit5(op, a0, a1, a2, 0, 0);
}

/* ---- a vCPU ---- */

/* On the way back to the program. */
static void look_at_events(void)
{
        if (!m.kicked[self])
                return;
        m.kicked[self] = false;
        seen.given += vcpu_self.frames.free.n;
        frame_list_drain(&env.pg, &vcpu_self.frames);
}

static bool is_used(pte_slot_t *pte, pte_t p, bool write)
{
        pte_t next = p | PTE_A | (write ? PTE_D : 0);

        return next == p || atomic_compare_exchange_strong(pte, &p, next);
}

/* A frame for page v.  False: there is none. */
static bool bring(unsigned v, pte_t p)
{
        struct frame_list *l = &vcpu_self.frames;
        frame_t n = frame_take(&env.pg, l, counters());

        if (n == FRAME_NONE)
                return false;
        int err = pte_kind(p) == PTE_REMOTE
                          ? page_fetch(&env.pg, &env.pte[v], p, n, counters())
                          : page_install(&env.pg, &env.pte[v], n, PTE_ACCESS | PTE_W, PTE_A);
        if (err < 0)
                frame_free(&env.pg, l, n);
        return true;
}

static uint32_t in_use(void)
{
        uint32_t n = 0;

        for (unsigned v = 0; v < env.npages; v++)
                n += pte_kind(env.pte[v]) != PTE_NONE;
        return n;
}

/* had: there was room when it began to wait. */
static void gave_up(bool had)
{
        seen.gave_up++;
        if (had)
                sched_fail("a vCPU gave up, %u of %u pages in use, %u frames, %u slots", in_use(),
                           m.pages, env.nframes, env.nslots);
        if (!m.room && !m.leaving && m.writes && in_use() + SLACK < env.nframes + env.nslots)
                sched_fail("a vCPU gave up too early: %u pages in use, %u frames, %u slots",
                           in_use(), env.nframes, env.nslots);
}

/* Unmaps pages, so that there is room for those that are left. */
static void leave(void)
{
        const uint32_t before = m.pages;
        pte_t old;

        m.leaving = true;
        m.pages = env.nframes + env.nslots - 2 * SLACK;
        for (unsigned v = m.pages; v < before; v++) {
                frame_t n = page_detach(&env.pg, &env.pte[v], &old);
                env_flush_begin();
                flush_wait(env.flush_epoch);
                if (n != FRAME_NONE)
                        frame_discard(&env.pg, &vcpu_self.frames, n);
        }
        m.room = true;
        seen.left++;
}

/* False: the program got SIGBUS. */
static bool touch(unsigned v, bool write)
{
        for (;;) {
                look_at_events();
                pte_t p = atomic_load(&env.pte[v]);
                bool room = m.room;
                switch (pte_kind(p)) {
                case PTE_PRESENT:
                        if (is_used(&env.pte[v], p, write))
                                return true;
                        break;
                case PTE_NONE: case PTE_REMOTE:
                        if (!bring(v, p) && frames_wait() != 0) {
                                gave_up(room);
                                return false;
                        }
                        cleaner_poke();
                        break;
                default:
                        page_wait(&env.pte[v], p);
                        vcpu_point();
                }
        }
}

/* Touches no page for a while: sleeps in a call, or computes.  It may be kicked meanwhile, but the
 * host does not run it at once. */
static void rest(unsigned steps, bool computes)
{
        const unsigned me = self;

        m.out[me] = !computes;
        while (steps-- && !m.stop && m.working > 1) {
                if (computes && m.kicked[me] && chance(m.kick))
                        look_at_events();
                vcpu_point();
        }
        m.out[me] = false;
        m.last = sched_steps;
        look_at_events();
}

static void hoard(void)
{
        if (vcpu_self.frames.free.n == 0)
                frame_list_refill(&env.pg, &vcpu_self.frames, counters());
        rest(20000, true);
}

/* A page that is there stays.  As page_set_locked(), at most half of the frames. */
static void lock(unsigned v)
{
        frame_t n = frame_pin(env.frames, ENV_PFN0, &env.pte[v], false);

        if (n == FRAME_NONE)
                return;
        if (env.pg.locked < env.nframes / 2 &&
            !(atomic_fetch_or(&env.frames[n].word, FRAME_LOCKED) & FRAME_LOCKED)) {
                env.pg.locked++;
                seen.locked++;
        }
        frame_unpin(&env.frames[n], false);
}

/* The first vCPU is never hot. */
static bool is_hot(unsigned n) { return m.hot && n > 0; }

static void vcpu(void *arg)
{
        const unsigned me = self = (unsigned)(uintptr_t)arg;
        const bool hot = is_hot(me);
        unsigned next = hot ? 0 : rnd(m.pages);

        for (unsigned i = 0; hot ? m.cool > 0 : i < TOUCHES; i++) {
                unsigned v = hot ? (me - 1) * m.hot + next++ % m.hot
                             : chance(2) ? next++ : rnd(m.pages);
                if (!touch(v % m.pages, m.writes)) {
                        if (m.kind == LEAVES && !m.leaving)
                                leave();
                        break;
                }
                seen.hot += hot;
                if (!hot)
                        m.last = sched_steps;
                if (m.lock && chance(2))
                        lock(v % m.pages);
                if (m.kind == HOARD && me > 0 && chance(2))
                        hoard();
                if (hot ? m.kind == HOT && chance(2000) : chance(8))
                        rest(rnd(chance(4) ? 20000 : 100), chance(2));
        }
        /* Its stock is its own until the end. */
        m.out[me] = true;
        m.working--;
        m.cool -= !hot;
        m.last = sched_steps;
}

static void cleaner(void *arg)
{
        self = (unsigned)(uintptr_t)arg;
        if (setjmp(m.end) == 0)
                cleaner_main();
}

static void io(void *arg)
{
        (void)arg;
        while (m.working) {
                unsigned me = self;
                env_io_step(rnd(ENV_TRANSFERS));
                sched_delay(rnd(60));
                self = me;
        }
        m.stop = true;
        m.cleaner_sleeps = false;
        atomic_store(&control.service_hold, 1);
        while (sched_running() > 1)
                if (!env_io_step(0))
                        (point)();
}

static bool post_some(void) { return chance(2); }

/* The cleaner finds that no frame can be freed: then none is free, nor has been for some turns. */
static void check_finding(void)
{
        uint32_t found = control.starved;

        if (found && found != m.found && m.room && frames_there(&env.pg))
                sched_fail("the cleaner gave up, %u frames free", env.pg.nfree);
        m.found = found;
}

static void tick(void)
{
        check_finding();
        if (chance(30))
                env.flushed = env.flush_epoch;
        if (m.working && sched_steps - m.last > MOST_STEPS)
                sched_fail("nothing goes on: %u pages in use, %u free frames, %u waiters", in_use(),
                           env.pg.nfree, control.frames_waiters);
}

static void run_begins(void)
{
        uint32_t frames = 3 * (14 + rnd(9)), slots = chance(4) ? 0 : rnd(60);

        memset(&m, 0, sizeof(m));
        memset(blocks, 0, sizeof(blocks));
        memset(counts, 0, sizeof(counts));
        memset(&control, 0, sizeof(control));
        m.kind = rnd(KINDS);
        m.room = m.kind < EXHAUSTED;
        m.writes = m.kind != CLEAN;
        m.kick = chance(2) ? 1000 : 20000;
        m.lock = (m.kind == ROOM || m.kind == CLEAN) && chance(2);
        if (m.kind == HOARD) {
                slots = rnd(4);         /* so that most pages cannot leave */
        } else if (m.kind == HOT) {
                slots = frames;
                m.hot = frames / (VCPUS - 1);
        } else if (m.kind == EXHAUSTED_HOT) {
                m.hot = 1 + rnd(3);
        }
        m.pages = m.kind == CLEAN ? frames * 2
                  : m.room        ? frames + slots - SLACK
                                  : frames + slots + 20 + rnd(20);
        env_setup(frames, slots, m.pages, 0);
        env.step = vcpu_point;
        if (chance(2))
                env.post = post_some;
        env.pg.batch = m.kind == HOARD ? 8 : m.kind == HOT ? 1 : 1 + rnd(8);
        control.one_cpu = chance(4);
        sched_reset(1 + rnd(8), tick);
        m.last = sched_steps;
        m.working = VCPUS;
        m.cool = m.hot ? 1 : VCPUS;
        for (unsigned i = 0; i < VCPUS; i++)
                sched_spawn(vcpu, (void *)(uintptr_t)i);
        sched_spawn(cleaner, (void *)(uintptr_t)VCPUS);
        sched_spawn(io, NULL);
}

static void test_model(void **state)
{
        const uint64_t steps = sched_setting("STEPS", 20000000 / sched_slow);
        uint64_t seed = sched_setting("SEED", (uint64_t)time(NULL) << 20), first = seed;

        (void)state;
        printf("# SEED=%lu STEPS=%lu\n", (unsigned long)seed, (unsigned long)steps);
        for (; sched_steps < steps; seed++) {
                sched_seed(seed);
                run_begins();
                if (sched_run() != 0)
                        fail_msg("an invariant broke: SEED=%lu STEPS=1 shows it again",
                                 (unsigned long)seed);
                env_teardown();
        }
        printf("# %lu runs: %lu waits, %lu gave up, %lu left their pages; %lu stocks taken, %lu "
               "frames given back, %lu locked, %lu hot touches\n", (unsigned long)(seed - first),
               (unsigned long)seen.waits, (unsigned long)seen.gave_up, (unsigned long)seen.left,
               (unsigned long)seen.taken, (unsigned long)seen.given, (unsigned long)seen.locked,
               (unsigned long)seen.hot);
        if (steps >= 10000000)
                assert_true(seen.waits && seen.gave_up && seen.left && seen.taken && seen.given &&
                            seen.locked && seen.hot);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
