/*
 * A model check of docs/protocol.md, in the manner of test_tree_model: processes of a tree, memory
 * nodes, and a network that delays, loses and repeats; all of them stopped, killed and restarted at
 * any atomic operation or lock of the real code.
 *
 * Real are the names, leases, members and fences of memnode (memnode/members.c, nbd/name.c,
 * export.c, fence.c), and on vmrun's side the processes that live, the owners of slots, and how
 * dead processes are cut off and buried (kern/far/slotmap.c, runtime/far/tree_hold.c, tree_life.c,
 * cut.c).  Modelled are the network, the I/O side of a process, the threads that serve connections,
 * pages and time.  The nodes are leases of one memnode.
 *
 * A run has three phases.  In the first there are faults, while programs write, read, free, fork,
 * execute and end.  Then there are none, and within a bounded number of steps each process that
 * lives must have read all that it holds, and have written if there is room.  At last all are
 * killed, and a process that comes then must be able to bury them.
 *
 * What must hold: a process reads what it, or a process that shares the slot, has written; no page
 * arrives at a node over a newer one; a slot that is given has no holder; no process that lives
 * counts as dead, is buried, or loses memory that is there; in the end all slots are free, and no
 * connection uses a lease.
 *
 *   SEED=n STEPS=n RULE=n test_fence_model
 *
 * RULE leaves out one of the rules that the model's own parts follow (fence_model.h).  The test
 * must fail then: mutate_fence.sh checks that for each, and for bugs planted in the real code.
 *
 * Not planted, since other rules cover it: that a CREATE of a lease that exists is refused (the
 * generation is known), that a connection which is cut serves nothing more, and that one which is
 * stale itself is not answered (its successor waits until it has left, and it looks at `cut`).
 * Planted, but too rare to be found in a minute: OLD_ANSWERS, ANY_CUT_ANSWER; and that memnode
 * answers a CUT of which a connection has not left in time, since the process that asks waits for
 * less time.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fence_model.h"

enum rule bug;
enum phase phase;
struct counts met;

/* Steps of a phase without faults, at most. */
#define LIMIT 400000

static uint64_t phase_until, ticks;
static struct { uint32_t kill, stop, go, restart, cable, jump; } one_in;

static void set_phase(enum phase next)
{
        phase = next;
        phase_until = sched_steps + LIMIT;
}

static void fault(void)
{
        struct process *p = process_at(rnd(SEATS));

        if (chance(one_in.kill) && p->alive) {
                met.kills++;
                process_kill(p);
        } else if (chance(one_in.stop)) {
                p->life.stopped = p->alive;
        } else if (chance(one_in.cable)) {
                unreachable_until[rnd(NODES)] = sched_steps + rnd(chance(4) ? 20000 : 4000);
        } else if (chance(one_in.restart)) {
                met.restarts++;
                node_restart(chance(2));
                if (chance(2))
                        net_remake();
        }
        if (chance(one_in.go))
                p->life.stopped = false;
}

static unsigned alive(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < SEATS; i++)
                n += process_at(i)->alive;
        return n;
}

static bool all_content(void)
{
        for (unsigned i = 0; i < SEATS; i++)
                if (process_at(i)->alive && !process_at(i)->content)
                        return false;
        return true;
}

static void kill_all(void)
{
        for (unsigned i = 0; i < SEATS; i++)
                process_kill(process_at(i));
}

static bool all_home(void)
{
        for (unsigned i = 0; i < SEATS; i++)
                if (process_at(i)->life.doomed)
                        return false;
        return true;
}

static bool agent_came;
static void end_phase(void)
{
        if (!agent_came && all_home())
                agent_came = process_start_agent();
        if (process_agent_done())
                unreachable_until[NODES - 1] = 0;
        if ((agent_came && process_agent_done() && node_is_quiet()) ||
            (!agent_came && all_home() && !process_has_tree())) {
                set_phase(OVER);
                kill_all();
                node_restart(false);
        }
}

static void change_phase(void)
{
        if (phase == CHAOS && (sched_steps > phase_until || !alive())) {
                for (unsigned i = 0; i < SEATS; i++)
                        process_at(i)->life.stopped = false;
                for (unsigned k = 0; k < NODES; k++)
                        unreachable_until[k] = 0;
                if (process_has_tree() && chance(4))    /* no process has a page there */
                        unreachable_until[NODES - 1] = UINT64_MAX;
                set_phase(CALM);
        } else if (sched_steps > phase_until) {
                sched_fail(phase == CALM ? "a process that lives gets no further"
                                         : "the dead cannot be buried");
        } else if (phase == CALM && all_content()) {
                kill_all();
                set_phase(END);
        } else if (phase == END) {
                end_phase();
        }
}

/* At every step. */
static void tick(void)
{
        if (phase == OVER)
                return;
        clock_ms += ++ticks % 16 == 0;
        if (phase == CHAOS ? chance(one_in.jump) : chance(process_waits() ? 300 : 10000))
                clock_ms += rnd(4000);
        for (unsigned i = 0; i < 4; i++)
                net_step();
        for (unsigned i = 0; i < 2; i++)
                client_step(process_at(rnd(SEATS)));
        if (phase == CHAOS)
                fault();
        change_phase();
}

static void begin(uint64_t seed)
{
        sched_seed(seed);
        sched_reset(1 + rnd(6), tick);
        clock_ms = 0;
        ticks = 0;
        net_reset();
        process_reset();
        node_reset(chance(8) ? 3000 : 1000000);
        one_in.kill = 1000 + rnd(chance(2) ? 2000 : 8000);
        one_in.stop = 2000 + rnd(10000);
        one_in.go = chance(3) ? 3000 : 200;
        one_in.cable = chance(2) ? 10000 : 60000;
        one_in.restart = chance(6) ? 20000 : UINT32_MAX;
        one_in.jump = chance(2) ? 2000 : 20000;
        trouble = chance(3) ? STALLS : (enum trouble)rnd(TROUBLES);
        pipelines = trouble == STALLS || chance(2);
        agent_came = false;
        set_phase(CHAOS);
        phase_until = sched_steps + 5000 + rnd(30000);
        met.runs++;
}

static int run(void)
{
        node_spawn();
        process_spawn();
        int err = sched_run();
        const char *left = err ? NULL : process_left_over();
        if (left)
                sched_fail("%s", left);
        run_free_all();
        return err || sched_failed() ? -1 : 0;
}

static void model(void **state)
{
        uint64_t seed = sched_setting("SEED", 1);
        uint64_t steps = sched_setting("STEPS", 5000000 / sched_slow);

        (void)state;
        for (; sched_steps < steps; seed++) {
                begin(seed);
                if (run() != 0)
                        fail_msg("SEED=%lu fails", (unsigned long)seed);
        }
        /* The run met what it is for. */
        if (steps >= 5000000)
                assert_true(met.reads > 300 && met.rejoins > 300 && met.cuts > 300 &&
                            met.cuts_late > 30 && met.cuts_blind > 30 && met.forks > 100 &&
                            met.execs > 50 && met.kills > 100 && met.restarts > 3 && met.kept > 3 &&
                            met.expired > 3 && met.repeated > 100 && met.late > 100);
        print_message("# %lu runs, %lu reads, %lu writes, %lu rejoins, %lu cuts, %lu of them late, "
                      "%lu without all nodes, %lu forks, %lu programs, %lu kills, %lu restarts, "
                      "%lu leases kept, %lu ended, %lu connections repeated, "
                      "%lu closed with messages under way\n",
                      (unsigned long)met.runs, (unsigned long)met.reads,
                      (unsigned long)met.writes, (unsigned long)met.rejoins,
                      (unsigned long)met.cuts, (unsigned long)met.cuts_late,
                      (unsigned long)met.cuts_blind, (unsigned long)met.forks,
                      (unsigned long)met.execs, (unsigned long)met.kills,
                      (unsigned long)met.restarts,
                      (unsigned long)met.kept, (unsigned long)met.expired,
                      (unsigned long)met.repeated, (unsigned long)met.late);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(model) };

        bug = (enum rule)sched_setting("RULE", NO_BUG);
        return cmocka_run_group_tests_name("fence model", tests, NULL, NULL);
}
