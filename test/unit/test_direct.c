/*
 * Model check of the queues that kern drives by itself (kern/far/direct/queue.c, mlx5.h), on a card
 * that forgives nothing (card_model.h), and of how the host takes them down (runtime/far/direct.c).
 * Actors as in test_pager_model.c:
 *
 *   vCPUs   ask for pages, poll, and sleep; some wait for pages of others
 *   card    ends requests, of any queue; some fail, and some bring a wrong page
 *   host    takes queues down, destroys their queue pairs, and makes new ones, with other addresses
 *           and keys; reads the pages that kern hands over
 *
 * Some episodes begin shortly before a counter begins anew.
 *
 * Environment: SEED, STEPS, VERBOSE.
 */
#include "pager_hooks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "card_model.h"
#include "base/kern.h"
#include "pager/pte.h"
#include "pager_sched.h"

/* In place of cpu.h. */
#define VMRUN_CPU_H
static void cpu_store_fence(void);
static uint64_t cpu_tsc(void) { return 1; }
/* Each actor is a vCPU. */
#define vcpu_self       (*vcpu_of_actor())
#define vcpu_self_fixed (*fixed_of_actor())
static struct vcpu *vcpu_of_actor(void);
static const struct vcpu_fixed *fixed_of_actor(void);
/* In place of good_copy.h: the second of two places is read if both have the page. */
#define VMRUN_GOOD_COPY_H
#include "allocator.h"
static uint32_t slot_good(char *units, uint64_t slot, uint32_t places);
static unsigned slot_place(uint32_t set, uint64_t slot)
{
        (void)slot;
        return set & 2 ? 1 : 0;
}
#include "far/direct/queue.c"
/* The host's side. */
#include <sched.h>
#define sched_yield() ({ point(); 0; })
#include "far/direct.c"
#include "direct_stubs.h"

#define VCPUS  6
#define FRAMES (2 * VCPUS)              /* each vCPU has two */
#define PFN0   1000
#define NODE   5
#define EPISODE_STEPS 20000
#define OWN_STEPS_MOST 400              /* of a vCPU that asks for a page */
#define NEVER 100000                    /* a page comes sooner */
#define LOST_WAKE 8000                  /* steps after which a sleeper must have been woken */

struct vcpu_stats vcpu_self_stats;
struct control control;
struct pager pager;

enum seen { SEEN_READ, SEEN_NO_QUEUE, SEEN_SLEEP, SEEN_WOKEN, SEEN_OTHER, SEEN_TAKEN_BY_OTHER,
            SEEN_STOPPED, SEEN_POSTS_WRAP, SEEN_DONES_WRAP, SEEN_DEEP, SEEN_FAILED, SEEN_WRONG,
            SEEN_TAKEN_OVER, SEEN_TAKEN, SEEN_PLACE_0, SEEN_PLACE_1, SEEN_COUNT };
static const char *const seen_name[] = {
        "page that came", "no queue for a request", "sleep", "vCPU that is woken",
        "wait for a page of another vCPU", "fetch that another vCPU ended",
        "stopped with the lock held", "posts counted anew", "completions counted anew",
        "a queue that is full", "READ that failed", "wrong page", "request that the host took over",
        "request that kern had taken when the host came", "read of the first place",
        "read of the second place",
};

static struct {
        struct cpu {
                struct vcpu vcpu;
                struct vcpu_fixed fixed;
                uint64_t steps;
                pte_slot_t *sleeps_on;
        } cpu[VCPUS];
        struct direct_queue queue[DIRECT_QUEUES];
        struct card_model card[DIRECT_QUEUES];
        struct cpu *holder[DIRECT_QUEUES];
        uint64_t page[FRAMES][512] __attribute__((aligned(4096)));
        uint64_t far[64];               /* what the node's pages hold */
        unsigned slot[FRAMES];          /* the page that was asked for */
        bool asked[FRAMES];
        struct { bool by_host, wrong; int place; } read[FRAMES];
        struct far_direct direct;
        /* Where the nodes' memory is, and under which key: not the same in the next epoch.  One
         * node has both places. */
        uint64_t at[2];                 /* by place */
        uint32_t key[2];
        unsigned good[64];              /* the places that have a page: a set */
        bool fails;                     /* the card does, in this episode */
        uint64_t version;
        bool stop;
        uint64_t until, seen[SEEN_COUNT];
} m;
static struct frame frames[FRAMES];
static pte_slot_t pte[FRAMES];
static struct slab slab;

static struct vcpu *vcpu_of_actor(void) { return &((struct cpu *)sched_arg())->vcpu; }
static const struct vcpu_fixed *fixed_of_actor(void)
{
        return &((struct cpu *)sched_arg())->fixed;
}

/* --- kern around the queues --- */

static uint32_t slot_good(char *units, uint64_t slot, uint32_t places)
{
        (void)units;
        if (slot >= 64 || places > 3)
                sched_fail("slot %lu has no such places: %#x", slot, places);
        return m.good[slot] & places;
}

void *env_frame_va(frame_t f) { return m.page[f]; }
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        sched_fail("kern_bug: %s: %#lx %#lx", what, a, b);
        abort();
}
_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b) { kern_bug(what, a, b); }

static void cpu_store_fence(void)
{
        point();
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                card_model_fence(&m.card[i], sched_arg());
        if (chance(100)) {              /* its lock is held */
                m.seen[SEEN_STOPPED]++;
                sched_delay(3000);
        }
        point();
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return vmexit5(op, a0, a1, a2, 0, 0);
}

static void outside(void)
{
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                if (m.queue[i].lock && m.holder[i] == sched_arg())
                        sched_fail("the lock of queue %u is held over an exit", i);
}

void env_wake_pte(pte_slot_t *e)
{
        outside();
        if (e < pte || e >= pte + FRAMES)
                sched_fail("no entry is woken");
        for (unsigned i = 0; i < VCPUS; i++)
                if (m.cpu[i].sleeps_on == e) {
                        m.cpu[i].sleeps_on = NULL;
                        m.seen[SEEN_WOKEN]++;
                }
}

int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        (void)a1;
        (void)a4;
        outside();
        if (op == EXIT_DIRECT_RING)
                return 0;
        if (op != EXIT_WAIT_PTE || a0 < (uint64_t)pte || a2 != 1 || a3 == 0)
                sched_fail("a sleep that has no bound");
        m.seen[SEEN_SLEEP]++;
        sched_delay(rnd(200));
        return 0;
}

/* --- what the card asks --- */

static frame_t frame_at(uint64_t va) { return (frame_t)((va - (uint64_t)m.page) / PAGE_SIZE); }

const char *model_expects(const struct nic_read *r)
{
        frame_t f = frame_at(r->to);

        if (f >= FRAMES || r->to != (uint64_t)m.page[f])
                return "no frame";
        if (!(frames[f].word & FRAME_CLAIMED) || pte_kind(pte[f]) != PTE_BUSY)
                return "the frame waits for no page";
        unsigned k = r->from - m.at[0] < 64 * PAGE_SIZE ? 0 : 1;
        if (r->from != m.at[k] + m.slot[f] * PAGE_SIZE || r->from_key != m.key[k])
                return "not the page that was asked for";
        if (!(m.good[m.slot[f]] >> k & 1))
                return "a place that lacks the page";
        m.read[f].place = (int)k;
        m.seen[SEEN_PLACE_0 + k]++;
        return NULL;
}

void model_copy(const struct card_model *c, const struct nic_read *r)
{
        static const unsigned word[CARD_WORDS] = { 0, 1, 510, 511 };
        frame_t f = frame_at(r->to);
        unsigned page = (unsigned)((r->from - m.at[m.read[f].place]) / PAGE_SIZE);

        m.read[f].wrong = m.queue[0].verify && m.fails && chance(20);
        for (unsigned i = 0, first = rnd(CARD_WORDS); i < CARD_WORDS; i++) {
                if (!(frames[f].word & FRAME_CLAIMED))
                        sched_fail("data comes into frame %u, which is given away", f);
                if (c->gone)
                        return;
                m.page[f][word[(first + i) % CARD_WORDS]] = m.far[page] + m.read[f].wrong;
                point();
        }
}

/* --- actors --- */

/* --- the host --- */

static void host_reads(uint64_t slot, frame_t f, uint32_t vcpu)
{
        if (slot != m.slot[f] || vcpu != f / 2)
                sched_fail("slot %lu is read for frame %u of vCPU %u", slot, f, vcpu);
        if (!(frames[f].word & FRAME_CLAIMED) || pte_kind(pte[f]) != PTE_BUSY)
                sched_fail("the host reads page %u, which nobody waits for", f);
        if (m.read[f].by_host)
                sched_fail("the host reads page %u twice", f);
        m.read[f].by_host = true;
}

void request_take_over(uint64_t slot, frame_t f, unsigned vcpu)
{
        m.seen[SEEN_TAKEN_OVER]++;
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                for (unsigned k = 0; k < NIC_DEPTH; k++)
                        if (m.queue[i].request[k].state == DIRECT_TAKEN)
                                m.seen[SEEN_TAKEN]++;
        host_reads(slot, f, vcpu);
}

void ring_read_for(uint64_t slot, frame_t f, uint32_t vcpu, int place)
{
        bool wrong = place >= 0;

        outside();
        if (wrong && place != m.read[f].place)
                sched_fail("page %u came wrong from place %d, not %d", f, m.read[f].place, place);
        if (wrong != m.read[f].wrong)
                sched_fail("page %u came %s", f, wrong ? "as it was sent" : "wrong");
        if (!wrong && !m.fails)
                sched_fail("no READ failed");
        m.seen[wrong ? SEEN_WRONG : SEEN_FAILED]++;
        m.read[f].wrong = false;
        host_reads(slot, f, vcpu);
}

bool ring_has_room(void) { return !chance(50); }

bool direct_sum_fits(uint64_t slot, const void *page)
{
        const uint64_t *p = page, right = slot < 64 ? m.far[slot] : 0;

        return slot < 64 && p[0] == right && p[1] == right && p[510] == right && p[511] == right;
}

static void host_ends_one(void)
{
        frame_t f = rnd(FRAMES);

        if (!m.read[f].by_host)
                return;
        for (unsigned i = 0; i < 512; i += i == 1 ? 509 : 1)
                m.page[f][i] = m.far[m.slot[f]];
        m.read[f].wrong = false;
        if (page_fetched(&frames[f], PFN0 + f, PTE_P | PTE_A, 0))
                env_wake_pte(&pte[f]);
}

static void make_card(unsigned i, uint32_t posts)
{
        const bool verify = m.queue[i].verify;

        card_model_init(&m.card[i], &m.queue[i].nic, posts);
        m.queue[i].verify = verify;
}

/* As direct_slabs(). */
static void show_slab(uint32_t epoch)
{
        for (unsigned k = 0; k < 2; k++) {
                atomic_store(&slab.place[k].from, m.at[k]);
                atomic_store(&slab.place[k].key, m.key[k]);
                atomic_store(&slab.place[k].epoch, epoch);
        }
}

/* As rdma_direct_down() and made() (runtime/far/rdma/direct.c). */
static void host_renews(void)
{
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                direct_take(&m.queue[i], 0);
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                m.card[i].gone = true;
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                m.queue[i].nic = (struct nic){ .send = NULL };
                direct_release(&m.direct, &m.queue[i]);
        }
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                while (m.card[i].works)
                        point();
        sched_delay(rnd(600));
        for (unsigned k = 0; k < 2; k++) {
                m.at[k] += rnd(1000) * PAGE_SIZE;
                m.key[k] += 2;
        }
        bool late = chance(2);
        if (!late)
                show_slab(m.queue[0].epoch + 1);
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                make_card(i, 0);
                m.queue[i].epoch++;
                direct_up(&m.queue[i]);
        }
        sched_delay(rnd(200));
        if (late)
                show_slab(m.queue[0].epoch);
}

static bool is_broken(void)
{
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                if (m.queue[i].state == DIRECT_BROKEN)
                        return true;
        return false;
}

static void host_actor(void *arg)
{
        (void)arg;
        while (!m.stop || sched_running() > 2) {
                if (m.fails && (chance(300) || (is_broken() && chance(10))))
                        host_renews();
                host_ends_one();
                sched_delay(rnd(20));
        }
}

static bool is_busy(frame_t f) { return pte_kind(pte[f]) == PTE_BUSY; }

/* As page_wait(): says that it sleeps. */
static void sleep_for(frame_t f)
{
        pte_t p = pte[f];

        if (pte_kind(p) != PTE_BUSY ||
            (!(p & PTE_WAITERS) &&
             !atomic_compare_exchange_strong(&pte[f], &p, p | PTE_WAITERS)))
                return;
        struct cpu *c = sched_arg();
        if (direct_wait(&pte[f], 0, f))
                return;
        if (f / 2 == c->fixed.number && is_busy(f) && !m.read[f].by_host)
                sched_fail("page %u is under way, and its vCPU sleeps for ever", f);
        /* In an exit, which looks at the entry first. */
        if (pte[f] != (p | PTE_WAITERS))
                return;
        c->sleeps_on = &pte[f];
        for (uint64_t begun = sched_steps; c->sleeps_on; point())
                if (pte[f] == (p | PTE_WAITERS))
                        begun = sched_steps;
                else if (sched_steps - begun > LOST_WAKE)
                        sched_fail("no vCPU woke the sleeper on page %u", f);
}

static void wait_for(frame_t f)
{
        for (uint64_t begun = sched_steps; is_busy(f);) {
                if (sched_steps - begun > NEVER)
                        sched_fail("page %u does not come", f);
                if (chance(8))
                        sleep_for(f);
                else
                        direct_poll();
                point();
        }
}

static void check_page(frame_t f, uint64_t want)
{
        for (unsigned i = 0; i < 2; i++)
                if (m.page[f][i] != want || m.page[f][510 + i] != want)
                        sched_fail("frame %u is there, and not what was asked for", f);
        if ((pte[f] & (PTE_P | PTE_A)) != (PTE_P | PTE_A) || pte_num(pte[f]) != PFN0 + f ||
            (frames[f].word & FRAME_CLAIMED))
                sched_fail("the entry of frame %u is %#lx", f, (unsigned long)pte[f]);
}

static void fetch(struct cpu *c, frame_t f)
{
        unsigned page = 4 * f + rnd(4);         /* no other frame's */

        frames[f].word = FRAME_RESIDENT | FRAME_CLAIMED;
        memset(m.page[f], 0, sizeof(m.page[f]));
        m.far[page] = ++m.version;
        m.good[page] = chance(8) ? 0 : 1 + rnd(3);
        m.slot[f] = page;
        m.asked[f] = true;
        pte[f] = pte_make_busy(PFN0 + f, pte_prot(true, true, false));
        uint64_t before = c->steps;
        const struct direct_queue *q = direct_read(&slab, page, f);
        if (c->steps - before > OWN_STEPS_MOST)
                sched_fail("a vCPU waited for a lock for %lu steps", c->steps - before);
        if (q && !m.good[page])
                sched_fail("page %u is read, though no place has it", page);
        if (!q) {
                m.seen[SEEN_NO_QUEUE]++;
                m.asked[f] = false;
                if (atomic_exchange(&pte[f], 0) & PTE_WAITERS)
                        env_wake_pte(&pte[f]);
                return;
        }
        m.seen[SEEN_READ]++;
}

static void vcpu_actor(void *arg)
{
        struct cpu *c = arg;
        frame_t mine = 2 * c->fixed.number;

        while (!m.stop) {
                /* A demand read, and sometimes one more, of a guide's fault. */
                unsigned n = 1 + chance(4);
                for (unsigned i = 0; i < n; i++)
                        fetch(c, mine + i);
                for (unsigned i = 0; i < n; i++) {
                        if (!m.asked[mine + i])
                                continue;
                        wait_for(mine + i);
                        while (frames[mine + i].word & FRAME_CLAIMED)   /* as the hand would */
                                point();
                        m.asked[mine + i] = false;
                }
                if (chance(8)) {
                        frame_t other = rnd(FRAMES);
                        m.seen[SEEN_OTHER]++;
                        wait_for(other);
                }
                sched_delay(rnd(chance(4) ? 200 : 4));
        }
}

static void card_actor(void *arg)
{
        (void)arg;
        while (!m.stop || sched_running() > 2) {
                card_model_step(&m.card[rnd(DIRECT_QUEUES)], m.fails && chance(100));
                sched_delay(rnd(chance(8) ? 400 : 8));
        }
}

static bool is_full(const struct direct_queue *q)
{
        for (unsigned i = 0; i < NIC_DEPTH; i++)
                if (q->request[i].state == DIRECT_FREE)
                        return false;
        return true;
}

/* At each step: the card sees each store, and the page of a fetch that is over is looked at before
 * anyone changes it. */
static void tick(void)
{
        static bool was_busy[FRAMES];
        struct cpu *me = sched_arg();

        if (me)
                me->steps++;
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                struct direct_queue *q = &m.queue[i];
                m.holder[i] = !q->lock ? NULL : m.holder[i] ? m.holder[i] : me;
                if (!m.card[i].gone && m.card[i].failed && !q->lock && q->state == DIRECT_UP &&
                    (int32_t)(q->seen - m.card[i].failed_at) > 0)
                        sched_fail("a READ of queue %u has failed, and it goes on", i);
                if (!m.card[i].gone)
                        card_model_look(&m.card[i], me, q->lock);
                m.seen[SEEN_DEEP] += is_full(q);
                m.seen[SEEN_POSTS_WRAP] += q->posted == 0 && q->lock;
                m.seen[SEEN_DONES_WRAP] += q->seen == 0 && q->lock;
        }
        for (frame_t f = 0; f < FRAMES; f++) {
                if (was_busy[f] && !is_busy(f) && m.asked[f]) {
                        m.seen[SEEN_TAKEN_BY_OTHER] += f / 2 != me->fixed.number;
                        /* page_fetched() drops the claim a step later */
                        if (pte[f] & PTE_P) {
                                frames[f].word &= ~FRAME_CLAIMED;
                                check_page(f, m.far[m.slot[f]]);
                                frames[f].word |= FRAME_CLAIMED;
                        }
                }
                was_busy[f] = is_busy(f);
                m.read[f].by_host &= is_busy(f);
        }
        if (sched_steps >= m.until)
                m.stop = true;
}

static void episode_begin(uint64_t seed)
{
        static const uint32_t switch_in[] = { 1, 2, 4, 16 };
        static const uint32_t begins[] = { 0, 0xffff, 0xffffff, ~0u };
        struct direct_queue *queue[DIRECT_QUEUES];
        uint64_t seen[SEEN_COUNT];
        bool verify, one;

        sched_seed(seed);
        verify = chance(2);
        one = chance(4);
        memcpy(seen, m.seen, sizeof(seen));
        memset(&m, 0, sizeof(m));
        memcpy(m.seen, seen, sizeof(seen));
        memset(frames, 0, sizeof(frames));
        memset((void *)pte, 0, sizeof(pte));
        pager = (struct pager){ .frames = frames, .nframes = FRAMES, .pfn0 = PFN0,
                                .notices = { .frames = frames, .pfn0 = PFN0 } };
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                uint32_t posts = begins[rnd(4)] - rnd(20);
                queue[i] = m.direct.queue[i] = &m.queue[i];
                m.queue[i].verify = verify;
                make_card(i, posts);
                m.queue[i].posted = m.queue[i].seen = posts;
                m.queue[i].epoch = 1;
                /* where one queue has all requests, it fills */
                m.queue[i].state = one && i ? DIRECT_DOWN : DIRECT_UP;
        }
        m.at[0] = 0x7700000000;
        m.at[1] = 0x7800000000;
        m.key[0] = 0xfeed;
        m.key[1] = 0xfeee;
        slab = (struct slab){ .direct = 3, .node_at = { NODE, NODE } };
        show_slab(1);
        m.fails = chance(2);
        direct_add(NODE, queue);
        sched_reset(switch_in[rnd(4)], tick);
        for (unsigned i = 0; i < VCPUS; i++) {
                m.cpu[i].fixed.number = i;
                frames[2 * i].pte = &pte[2 * i];
                frames[2 * i + 1].pte = &pte[2 * i + 1];
                sched_spawn(i == 0 ? card_actor : i == 1 ? host_actor : vcpu_actor, &m.cpu[i]);
        }
        m.until = sched_steps + EPISODE_STEPS;
}

static void test_model(void **state)
{
        uint64_t seed = sched_setting("SEED", (uint64_t)time(NULL) << 20),
                 steps = sched_setting("STEPS", 20000000 / sched_slow), first = seed;

        (void)state;
        fprintf(stderr, "# SEED=%lu STEPS=%lu\n", (unsigned long)seed, (unsigned long)steps);
        for (sched_steps = 0; sched_steps < steps; seed++) {
                episode_begin(seed);
                sched_run();
                if (sched_failed())
                        fail_msg("a rule was broken; again with SEED=%lu STEPS=1",
                                 (unsigned long)seed);
                for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                        for (unsigned k = 0; k < NIC_DEPTH; k++)
                                assert_int_equal(m.queue[i].request[k].state, DIRECT_FREE);
        }
        fprintf(stderr, "# %lu steps in %lu episodes\n", (unsigned long)sched_steps,
                (unsigned long)(seed - first));
        for (unsigned i = 0; i < SEEN_COUNT; i++) {
                if (getenv("VERBOSE"))
                        fprintf(stderr, "# %s: %lu\n", seen_name[i], (unsigned long)m.seen[i]);
                if (!m.seen[i] && sched_steps >= 2000000)
                        fail_msg("the run never saw: %s", seen_name[i]);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
