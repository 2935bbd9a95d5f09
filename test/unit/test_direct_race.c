/*
 * Queues that kern drives by itself, with real threads and a card that is a thread, for the memory
 * orders that test_direct.c cannot see, and for TSan.  Each vCPU fetches pages into frames of its
 * own, in which it finds what the node's page held when it asked; whichever thread takes the
 * completion ends the fetch.  A host takes the queues down, and makes them anew.
 *
 * Environment: RACE_SECONDS (default 2).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pthread.h>
#include <sched.h>
#include <cmocka.h>
#define NIC_DEPTH 4u                    /* so that queues are full at times */
#include "base/kern.h"

/* Each thread is a vCPU. */
static _Thread_local struct vcpu this_vcpu;
static _Thread_local struct vcpu_fixed this_fixed;
#define vcpu_self       this_vcpu
#define vcpu_self_fixed this_fixed
#include "far/direct/card.c"
#include "far/direct/queue.c"
#include "far/direct.c"
#include "direct_stubs.h"

#define VCPUS  4
#define DEPTH  3                        /* fetches of a vCPU at one time */
#define FRAMES (VCPUS * DEPTH)
#define PFN0   1000
#define NODE   3

struct vcpu_stats vcpu_self_stats;
struct control control;
struct pager pager;

static struct frame frames[FRAMES];
static pte_slot_t pte[FRAMES];
static uint64_t page[FRAMES][512] __attribute__((aligned(4096)));
static uint64_t far[FRAMES][512] __attribute__((aligned(4096)));
static struct card cards[DIRECT_QUEUES];
static char rings[DIRECT_QUEUES][2][NIC_DEPTH * NIC_BLOCK] __attribute__((aligned(64)));
/* The card works on a queue; the host destroys its queue pair. */
static pthread_mutex_t works[DIRECT_QUEUES];
static struct far_direct direct;
static struct slab slab;
static frame_t taken[DIRECT_QUEUES * NIC_DEPTH];        /* over by the host */
static unsigned ntaken;
static _Atomic bool stop, stop_card;     /* vCPUs wait for the card */
static _Atomic uint64_t wrong, fetched, woken, taken_over;

void *env_frame_va(frame_t f) { return page[f]; }
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        fprintf(stderr, "kern_bug: %s: %#lx %#lx\n", what, a, b);
        abort();
}
_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b) { kern_bug(what, a, b); }
void env_wake_pte(pte_slot_t *e) { (void)e; woken++; }
int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        (void)op, (void)a0, (void)a1, (void)a2, (void)a3, (void)a4;
        sched_yield();
        return 0;
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return vmexit5(op, a0, a1, a2, 0, 0);
}
void request_take_over(uint64_t slot, frame_t f, unsigned vcpu)
{
        wrong += slot != f || vcpu != 2 * (f / DEPTH);
        taken[ntaken++] = f;
        taken_over++;
}

/* No READ fails, and none is wrong. */
void ring_read_for(uint64_t slot, frame_t f, uint32_t vcpu, int bad)
{
        (void)slot, (void)f, (void)vcpu, (void)bad;
        abort();
}
bool ring_has_room(void) { return true; }
bool direct_sum_fits(uint64_t slot, const void *at)
{
        (void)slot, (void)at;
        return true;
}

/* The cards of all queues; each ends its requests in order. */
static void *card_thread(void *arg)
{
        struct card_read r;

        (void)arg;
        while (!stop_card)
                for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                        pthread_mutex_lock(&works[i]);
                        if (card_next(&cards[i], &r)) {
                                card_began(&cards[i]);
                                memcpy(r.to, r.from, PAGE_SIZE);
                                card_end(&cards[i], r.at);
                        }
                        pthread_mutex_unlock(&works[i]);
                        sched_yield();
                }
        return NULL;
}

static void make_card(unsigned i)
{
        struct card *c = &cards[i];

        memset(rings[i], 0, sizeof(rings[i]));
        c->begun = c->over = 0;
        c->send_record = c->done_record = 0;
        card_init(c, NODE, rings[i][0], rings[i][1]);
}

static void *host_thread(void *arg)
{
        const struct timespec pause = { .tv_nsec = 3000000 };

        (void)arg;
        while (!stop_card) {
                for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                        direct_take(&cards[i].queue, 0);
                        pthread_mutex_lock(&works[i]);
                        direct_release(&direct, &cards[i].queue);
                        make_card(i);
                        pthread_mutex_unlock(&works[i]);
                }
                while (ntaken) {
                        frame_t f = taken[--ntaken];
                        memcpy(page[f], far[f], PAGE_SIZE);
                        page_fetched(&frames[f], PFN0 + f, PTE_P | PTE_A, 0);
                }
                nanosleep(&pause, NULL);
        }
        return NULL;
}

/* True: it was asked for. */
static bool ask(frame_t f, uint64_t version)
{
        for (unsigned i = 0; i < 512; i++)
                far[f][i] = version + i;
        frames[f].slot = f;
        atomic_store(&frames[f].pte, &pte[f]);
        atomic_store(&frames[f].word, FRAME_RESIDENT | FRAME_CLAIMED);
        atomic_store(&pte[f], pte_make_busy(PFN0 + f, pte_prot(true, true, false)));
        if (direct_read(&slab, f, f))
                return true;
        atomic_store(&pte[f], 0);
        return false;
}

static void await(frame_t f)
{
        pte_t p;

        for (unsigned n = 1; pte_kind(p = atomic_load_explicit(&pte[f], memory_order_acquire)) ==
                             PTE_BUSY; n++) {
                direct_poll();
                if (n % 64 == 0 && atomic_compare_exchange_strong(&pte[f], &p, p | PTE_WAITERS))
                        direct_wait(&pte[f], 0, f);
        }
        /* Whoever ended the fetch drops the claim last. */
        while (atomic_load(&frames[f].word) & FRAME_CLAIMED)
                sched_yield();
}

static void *vcpu_thread(void *arg)
{
        frame_t first = (frame_t)(uintptr_t)arg * DEPTH;

        this_fixed.number = 2 * (uint32_t)(uintptr_t)arg;       /* two share a queue */
        bool asked[DEPTH];

        for (uint64_t version = 1; !stop; version += 1000) {
                for (unsigned i = 0; i < DEPTH; i++)
                        asked[i] = ask(first + i, version);
                for (unsigned i = 0; i < DEPTH; i++) {
                        if (!asked[i])
                                continue;
                        await(first + i);
                        for (unsigned k = 0; k < 512; k++)
                                wrong += page[first + i][k] != version + k;
                        fetched++;
                }
        }
        return NULL;
}

static void test_race(void **state)
{
        pthread_t thread[VCPUS], card, host;
        struct direct_queue *queue[DIRECT_QUEUES];
        const char *seconds = getenv("RACE_SECONDS");

        (void)state;
        /* No fetch is sampled: statistics are a vCPU's own, and here are one. */
        control.fetch_mask = 1;
        vcpu_self_stats.counter[CNT_FETCHED] = 1;
        pager = (struct pager){ .frames = frames, .nframes = FRAMES, .pfn0 = PFN0,
                                .notices = { .frames = frames, .pfn0 = PFN0 } };
        slab = (struct slab){
                .kind = SLAB_TIMED, .direct = 1, .node_at = { NODE },
                .place[0] = { .from = (uint64_t)far, .epoch = CARD_EPOCH }
        };
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                pthread_mutex_init(&works[i], NULL);
                make_card(i);
                queue[i] = direct.queue[i] = &cards[i].queue;
        }
        direct_add(NODE, queue);
        assert_int_equal(0, pthread_create(&card, NULL, card_thread, NULL));
        assert_int_equal(0, pthread_create(&host, NULL, host_thread, NULL));
        for (uintptr_t i = 0; i < VCPUS; i++)
                assert_int_equal(0, pthread_create(&thread[i], NULL, vcpu_thread, (void *)i));
        struct timespec t = { .tv_sec = seconds ? atoi(seconds) : 2 };
        nanosleep(&t, NULL);
        stop = true;
        for (unsigned i = 0; i < VCPUS; i++)
                pthread_join(thread[i], NULL);
        stop_card = true;
        pthread_join(card, NULL);
        pthread_join(host, NULL);
        fprintf(stderr, "# %lu pages, %lu wakes, %lu taken over\n", (unsigned long)fetched,
                (unsigned long)woken, (unsigned long)taken_over);
        assert_int_equal(wrong, 0);
        assert_true(fetched > 100);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_race) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
