/*
 * A model check of copies (runtime/far/copies.h), in the manner of test_fence_model: processes of a
 * tree, memory nodes, and a network that holds back messages; all of them stopped, killed,
 * restarted or cut off from each other at any atomic operation of the real code.
 *
 * Real are the state of copies, the way of requests, and repair (runtime/far/copies.c, request.c,
 * outage.c, held.c, repair.c), draining (drain.c, moves.c), the owners of slots, the processes that
 * live, and how dead ones are cut off and buried (kern/far/slotmap.c, runtime/far/tree_hold.c,
 * tree_life.c, cut.c).  Modelled are nodes, drivers, programs and time.
 *
 * A run has three phases.  In the first there are faults.  Then there are none, and within a
 * bounded number of steps each process that lives must have read all that it holds, and have
 * written it.  At last all but one are killed, and that one must be able to bury them, to write
 * every slot, to make up for every copy, and to leave nodes that drain.  Every second run has the
 * first phase only.
 *
 * What must hold, looked at all the time: a copy that counts as good is the page that was last
 * written and called over; one copy of each page is good; no page arrives at a node over a
 * newer one; a process reads what it, or a process that shares the slot, has written.  A program
 * ends only if no node has its page.  One process copies a shared slot, and no process copies while
 * it forks.  When a node is drained for a process, each slab has a place elsewhere, and so has each
 * write that is over from then on.  A process that answers a draining node has all its pages
 * elsewhere, and the node waits for the processes that have not.  In the end no slot is lost, and
 * no copy is missing.
 *
 *   SEED=n STEPS=n RULE=n test_copies_model
 *
 * RULE leaves out one of the rules that the model's own parts follow (copies_model.h).  The test
 * must fail then: mutate_copies.sh checks that for each, and for bugs planted in the real code.
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
#include "base/options.h"
#include "copies_model.h"

enum rule bug;
enum phase phase;
struct counts met;

/* Steps of a phase without faults, at most. */
#define LIMIT 300000

static uint64_t phase_until, ticks;
static bool restarted;
static struct { uint32_t kill, stop, go, away, cable, reset, restart, lose, drain; } one_in;
/* Kills hit processes that write, and leave one process. */
static bool murders;
static bool brief;                      /* a run of the first phase only */

static void set_phase(enum phase next)
{
        phase = next;
        phase_until = sched_steps + LIMIT;
}

/* So that one stays. */
static bool may_go(void)
{
        unsigned going = 0;

        for (unsigned k = 0; k < NODES; k++)
                going += nodes[k].drained || nodes[k].gone;
        return going + 1 < NODES;
}

static void drain(unsigned k)
{
        if (!may_go() || nodes[k].gone || nodes[k].drained)
                return;
        met.drains++;
        nodes[k].drained = true;
}

static unsigned alive(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < SEATS; i++)
                n += seats[i].alive;
        return n;
}

static bool writes(const struct seat *s)
{
        for (const struct page *g = s->page; g < s->page + HELD; g++)
                if (g->state == WRITES)
                        return true;
        return false;
}

static void kill_one(struct seat *s)
{
        if (!s->alive || (murders && (alive() == 1 || !writes(s))))
                return;
        met.kills++;
        process_kill(s);
}

static void fault(void)
{
        struct seat *s = &seats[rnd(SEATS)];
        struct view *v = &s->view[rnd(NODES)];

        if (chance(one_in.kill)) {
                kill_one(s);
        } else if (chance(one_in.stop)) {
                s->stopped = s->alive;
        } else if (chance(one_in.reset)) {
                v->broken = true;
        } else if (chance(one_in.away)) {       /* other processes may reach it */
                v->broken = true;
                v->unreachable_until = sched_steps + rnd(chance(4) ? 8000 : 1500);
        } else if (chance(one_in.cable)) {
                unsigned node = rnd(NODES);
                nodes[node].unreachable_until = sched_steps + rnd(chance(4) ? 8000 : 1500);
                for (s = seats; s < seats + SEATS; s++)
                        s->view[node].broken |= chance(2);
        } else if (chance(one_in.lose)) {
                v->lose = true;
        } else if (chance(one_in.restart) && !restarted && may_go()) {
                met.restarts++;
                restarted = true;
                node_restart(rnd(NODES));
        }
        if (chance(one_in.drain))
                drain(rnd(NODES));
        if (chance(one_in.go))
                seats[rnd(SEATS)].stopped = false;
}

static bool all_content(void)
{
        for (unsigned i = 0; i < SEATS; i++)
                if (seats[i].alive && !seats[i].content)
                        return false;
        return true;
}

static void leave_one(void)
{
        unsigned left = alive();

        for (unsigned i = 0; i < SEATS; i++)
                if (seats[i].alive && left-- > 1)
                        process_kill(&seats[i]);
}

/* A process that has lost a node which is there would threaten the others' copies for good. */
static void be_calm(void)
{
        for (struct seat *s = seats; s < seats + SEATS; s++) {
                s->stopped = false;
                for (unsigned k = 0; k < NODES; k++)
                        if ((s->node[k].lost || s->view[k].lose) && !nodes[k].gone &&
                            !*(const bool *)&s->node[k].is_drained)
                                process_kill(s);
        }
}

static void end_run(void)
{
        phase = OVER;
        for (unsigned i = 0; i < SEATS; i++)
                process_kill(&seats[i]);
}

static void change_phase(void)
{
        if (phase == CHAOS && (sched_steps > phase_until || !alive())) {
                if (brief) {
                        end_run();
                        return;
                }
                be_calm();
                set_phase(CALM);
        } else if (sched_steps > phase_until) {
                sched_fail(phase == CALM ? "a process that lives gets no further"
                                         : "the last process gets no further");
        } else if (phase == CALM && all_content()) {
                leave_one();
                set_phase(END);
        } else if (phase == END && agent_done) {
                end_run();
        } else if (phase == END && !alive()) {
                process_start(AGENT);
        }
}

static void tick(void)
{
        if (phase == OVER)
                return;
        clock_ms += ++ticks % 16 == 0;
        if (chance(1000))
                clock_ms += rnd(6000);
        for (unsigned i = 0; i < 3; i++)
                net_step();
        if (phase == CHAOS)
                fault();
        node_ends();
        if (ticks % 4 == 0)
                check_copies();
        change_phase();
}

/* Some runs are of a kind, so that what is rare elsewhere comes together there. */
static void choose_world(void)
{
        murders = chance(3);
        brief = chance(2);
        if (murders) {                  /* and nodes that hear of it late */
                one_in.kill = 100 + rnd(500);
                one_in.lose = chance(2) ? 4000 : UINT32_MAX;
                deaf_in = 2;
                slow_in = 2;
        } else if (chance(2)) {         /* nodes drain while others break */
                one_in.drain = 200 + rnd(2000);
                one_in.reset = 50 + rnd(200);
                one_in.kill = 500 + rnd(3000);
                first_after = 1000;
        } else if (chance(2)) {         /* nodes that some processes reach, and others do not */
                one_in.away = 30 + rnd(200);
                one_in.cable = one_in.drain = one_in.restart = UINT32_MAX;
                one_in.kill = 4000;
                slow_in = 2;
        }
}

static void begin(uint64_t seed)
{
        sched_seed(seed);
        sched_reset(1 + rnd(6), tick);
        ticks = 0;
        restarted = false;
        process_reset();
        node_reset();
        opt.replicas = chance(4) ? 1 : 2;
        tree_reset(opt.replicas == 1 ? 1 : 2 + rnd(2));
        opt.verify = chance(2);         /* sums would hide that a copy was read that is not good */
        for (unsigned k = 0; k < NODES; k++)
                nodes[k].fences = !chance(10);
        /* With a rate, copies are begun one by one, while others are under way. */
        opt.rebuild_rate = chance(2) ? 0 : (50 + rnd(500)) * PAGE_SIZE;
        one_in.kill = 1000 + rnd(chance(2) ? 2000 : 20000);
        one_in.stop = chance(3) ? 20000 : 2000 + rnd(10000);
        one_in.go = chance(3) ? 4000 : 300;
        one_in.away = 200 + rnd(chance(2) ? 500 : 4000);
        one_in.cable = 1000 + rnd(10000);
        one_in.reset = chance(2) ? 100 + rnd(600) : 5000;
        one_in.restart = opt.replicas > 1 && chance(6) ? 10000 : UINT32_MAX;
        first_after = chance(3) ? 300 : 8;
        one_in.drain = chance(2) ? 500 + rnd(8000) : UINT32_MAX;
        one_in.lose = chance(4) ? 1000 : UINT32_MAX;
        deaf_in = 8;
        slow_in = 4;
        choose_world();
        set_phase(CHAOS);
        phase_until = sched_steps + 5000 + rnd(30000);
        met.runs++;
}

static int run(void)
{
        process_spawn();
        process_start(FIRST);
        int err = sched_run();
        memory_free_all();
        return err || sched_failed() ? -1 : 0;
}

static void model(void **state)
{
        uint64_t seed = sched_setting("SEED", 1);
        uint64_t steps = sched_setting("STEPS", 6000000 / sched_slow);

        (void)state;
        for (; sched_steps < steps; seed++) {
                begin(seed);
                if (run() != 0)
                        fail_msg("SEED=%lu fails", (unsigned long)seed);
        }
        print_message("# %lu runs, %lu reads, %lu writes, %lu of them to one copy, %lu breaks, "
                      "%lu pages came late, %lu forks, %lu programs, %lu kills, %lu ends, "
                      "%lu cuts, %lu restarts, %lu losses, %lu programs without a page, "
                      "%lu slots due, %lu copies made up for, %lu places added, %lu drains, "
                      "%lu drained nodes ended, %lu answers that one cannot be drained, "
                      "%lu times all whole, %lu writes refused\n",
                      met.runs, met.reads, met.writes, met.one_copy, met.downs, met.late, met.forks,
                      met.execs, met.kills, met.ends, met.cuts, met.restarts, met.lost, met.gone,
                      met.due, met.copied, met.places, met.drains, met.drained, met.unanswered,
                      met.whole, met.refused);
        /* The run met what it is for. */
        if (steps >= 6000000)
                assert_true(met.reads > 1000 && met.writes > 1000 && met.one_copy > 300 &&
                            met.downs > 500 && met.late > 100 && met.forks > 100 &&
                            met.execs > 50 && met.kills > 50 && met.ends > 20 && met.cuts > 300 &&
                            met.restarts > 3 && met.lost > 20 && met.gone > 3 && met.due > 0 &&
                            met.copied > 30 && met.places > 3 && met.drains > 20 &&
                            met.drained > 20 && met.unanswered > 0 && met.whole > 20 &&
                            met.refused > 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(model) };

        bug = (enum rule)sched_setting("RULE", NO_BUG);
        return cmocka_run_group_tests_name("copies model", tests, NULL, NULL);
}
