#include "good_copy.h"
#include "base/cpu.h"
#include "base/exit.h"
#include "base/latency.h"
#include "base/pool.h"
#include "base/print.h"
#include "base/state.h"
#include "base/tables.h"
#include "far/direct/mlx5.h"
#include "far/direct/queue.h"
#include "far/direct/rxe.h"
#include "far/direct/sum.h"
#include "far/rings.h"
#include "pager/env.h"

/* A sleep of a vCPU whose page has not come: after it, the vCPU polls again. */
#define SLEEP_NS 50000
/* Sleeps after which the host looks whether the node is there, and rings once more. */
#define SLEEPS_MOST 200

/* By node; NULL: its requests go other ways, now. */
static struct direct_queue *queues[SLAB_NODES][DIRECT_QUEUES];
/* The nodes that have queues; only grows.  Release: the queues are there; direct_wait() is called
 * by vCPUs that have used none of them. */
static struct { _Atomic uint32_t n; uint32_t node[SLAB_NODES]; } have;

static bool try_lock(struct direct_queue *q)
{
        /* Acquire: sees the queue as the last holder left it. */
        return !atomic_exchange_explicit(&q->lock, 1, memory_order_acquire);
}

static void unlock(struct direct_queue *q)
{
        atomic_store_explicit(&q->lock, 0, memory_order_release);
}

/* With the lock held.  Acquire: sees what the host has filled in. */
static bool is_up(const struct direct_queue *q)
{
        return atomic_load_explicit(&q->state, memory_order_acquire) == DIRECT_UP;
}

bool direct_has(unsigned node) { return queues[node][0]; }

void direct_add(unsigned node, struct direct_queue *const queue[DIRECT_QUEUES])
{
        uint32_t n = atomic_load_explicit(&have.n, memory_order_relaxed);
        bool is_new = !direct_has(node);

        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                queues[node][i] = queue[i];
        if (!is_new)
                return;
        have.node[n] = node;
        atomic_store_explicit(&have.n, n + 1, memory_order_release);
}

static void make(unsigned node)
{
        struct direct_queue *q[DIRECT_QUEUES];
        uint64_t at[DIRECT_QUEUES];

        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                if (!(q[i] = pool_page(POOL_CARD)))
                        return;         /* what it has taken is left */
                q[i]->node = node;
                q[i]->number = i;
                q[i]->has_host = 1;
                at[i] = (uint64_t)q[i];
        }
        int64_t gpa = vmexit5(EXIT_DIRECT, node, at[0], at[1], at[2], at[3]);
        /* Without it the host never makes them UP. */
        if (gpa > 0 && !pt_map_window(direct_rings(node), (uint64_t)gpa, DIRECT_RINGS))
                return;
        direct_sum_init();
        direct_add(node, q);
}

void direct_make(uint64_t nodes)
{
        static uint64_t tried;

        for (nodes &= ~tried; nodes; nodes &= nodes - 1) {
                make((unsigned)__builtin_ctzll(nodes));
                tried |= nodes & -nodes;
        }
}

static inline void nic_put(struct nic *n, uint32_t at, const struct nic_read *r)
{
        if (n->format == NIC_RXE) {
                rxe_put(n, at, r);
                return;
        }
        mlx5_put(n, at, r);
        mlx5_ring(n, at);
}

static inline bool nic_take(const struct nic *n, uint32_t seen, uint32_t *at, uint32_t *status)
{
        return n->format == NIC_RXE ? rxe_take(n, at, status) : mlx5_take(n, seen, at, status);
}

/* With the lock held.  False: the queue cannot take it. */
static bool post(struct direct_queue *q, const struct slab *s, unsigned k, uint64_t slot,
                 frame_t f)
{
        const struct slab_place *p = &s->place[k];
        uint32_t at = atomic_load_explicit(&q->posted, memory_order_relaxed);
        typeof(&q->request[0]) req = &q->request[at % NIC_DEPTH];

        /* Acquire: who ended its fetch has read it; and address and key are there. */
        if (!is_up(q) ||
            q->epoch != atomic_load_explicit(&p->epoch, memory_order_acquire) ||
            atomic_load_explicit(&req->state, memory_order_acquire) != DIRECT_FREE)
                return false;
        /* Relaxed: see above; the queue is UP, so they do not change. */
        const struct nic_read r = {
                .from = atomic_load_explicit(&p->from, memory_order_relaxed) +
                        (slot & (SLAB_PAGES - 1)) * PAGE_SIZE,
                .to = (uint64_t)env_frame_va(f),
                .from_key = atomic_load_explicit(&p->key, memory_order_relaxed),
                .len = PAGE_SIZE
        };
        atomic_store_explicit(&req->frame, f, memory_order_relaxed);
        req->slot = slot;
        req->place = k;
        req->vcpu = vcpu_self_fixed.number;
        req->asked = fetch_sampled() ? cpu_tsc() : 0;
        atomic_store_explicit(&req->state, DIRECT_ASKED, memory_order_relaxed);
        nic_put(&q->nic, at, &r);
        atomic_store_explicit(&q->posted, at + 1, memory_order_relaxed);
        return true;
}

/* At place k.  NULL: none of its node's queues can take the request. */
static struct direct_queue *read_at(const struct slab *s, unsigned k, uint64_t slot, frame_t f)
{
        struct direct_queue *const *its = queues[s->node_at[k]];
        const uint32_t me = vcpu_self_fixed.number;

        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                struct direct_queue *q = its[(me + i) % DIRECT_QUEUES];
                if (!q || !try_lock(q))
                        continue;
                uint32_t at = atomic_load_explicit(&q->posted, memory_order_relaxed);
                bool posted = post(q, s, k, slot, f);
                unlock(q);
                if (posted) {
                        vcpu_self.direct = q;
                        vcpu_self.direct_at = at;
                        vcpu_self.bell = q->exit_rings ? q : NULL;
                        return q;
                }
        }
        return NULL;
}

/* Of the places that kern can read, those that have the page: a set. */
static inline uint32_t readable(const struct slab *s, uint64_t slot)
{
        /* Acquire: see struct slab. */
        const uint32_t direct = atomic_load_explicit(&s->direct, memory_order_acquire);

        /* A timed tier has no node: no copies. */
        return s->kind == SLAB_TIMED ? direct : slot_good((char *)TREE_WINDOW, slot, direct);
}

struct direct_queue *direct_read(const struct slab *s, uint64_t slot, frame_t f)
{
        struct direct_queue *q = NULL;

        if (vcpu_self.may_not_ring)
                return NULL;
        for (uint32_t set = readable(s, slot); set && !q;) {
                unsigned k = slot_place(set, slot);
                q = read_at(s, k, slot, f);
                set &= ~(1u << k);
        }
        return q;
}

/* The host may be unable to ring as this thread: then its own thread does so, now, and this vCPU
 * posts nothing more. */
static void ring(const struct direct_queue *q, bool again)
{
        if (vmexit(EXIT_DIRECT_RING, q->node, q->number, again) != 0)
                vcpu_self.may_not_ring = 1;
}

void direct_ring_bell(void)
{
        const struct direct_queue *q = vcpu_self.bell;

        vcpu_self.bell = NULL;
        ring(q, false);
}

static __attribute__((cold)) void time_fetch(struct direct_queue *q, uint64_t took)
{
        latency_add(LAT_WIRE, took);
        /* Relaxed: the host learns from it how long vCPUs should poll. */
        atomic_store_explicit(&q->took, took, memory_order_relaxed);
}

/* A request that this vCPU has taken.  status: 0: its data is there. */
static void end_fetch(struct direct_queue *q, uint32_t at, uint32_t status)
{
        typeof(&q->request[0]) req = &q->request[at % NIC_DEPTH];
        frame_t n = atomic_load_explicit(&req->frame, memory_order_relaxed);
        struct frame *f = &pager.frames[n];
        pte_slot_t *pte = atomic_load_explicit(&f->pte, memory_order_relaxed);
        bool wrong = !status && q->verify &&
                     !direct_sum_fits(req->slot, env_frame_va(n));

        if (status || wrong) {
                ring_read_for(req->slot, n, req->vcpu, wrong ? (int)req->place : -1);
                atomic_store_explicit(&req->state, DIRECT_FREE, memory_order_release);
                return;
        }
        if (req->asked)
                time_fetch(q, cpu_tsc() - req->asked);
        bool awaited = page_fetched(f, pager.pfn0 + n, PTE_P | PTE_A, 0);
        atomic_store_explicit(&req->state, DIRECT_FREE, memory_order_release);
        if (awaited) {
                notices_over(&pager.notices, n);
                env_wake_pte(pte);
        }
}

/* With the lock held.  A READ that fails breaks the queue: then the host takes what is left. */
static bool take_one(struct direct_queue *q, uint32_t *at, uint32_t *status)
{
        uint32_t up = DIRECT_UP, seen = atomic_load_explicit(&q->seen, memory_order_relaxed);

        if (!is_up(q) || !nic_take(&q->nic, seen, at, status))
                return false;
        atomic_store_explicit(&q->seen, seen + 1, memory_order_relaxed);
        atomic_store_explicit(&q->request[*at % NIC_DEPTH].state, DIRECT_TAKEN,
                              memory_order_relaxed);
        if (!*status)
                atomic_store_explicit(&q->came,
                                      atomic_load_explicit(&q->came, memory_order_relaxed) + 1,
                                      memory_order_relaxed);
        else
                /* Relaxed: the host takes the lock before it looks further. */
                atomic_compare_exchange_strong_explicit(&q->state, &up, DIRECT_BROKEN,
                                                        memory_order_relaxed,
                                                        memory_order_relaxed);
        return true;
}

/* Takes one completion.  False: none has come, or another vCPU is at it. */
static bool take(struct direct_queue *q)
{
        uint32_t at, status;

        /* A hint. */
        if (atomic_load_explicit(&q->posted, memory_order_relaxed) ==
            atomic_load_explicit(&q->seen, memory_order_relaxed))
                return false;
        if (!ring_has_room() || !try_lock(q))
                return false;
        bool taken = take_one(q, &at, &status);
        unlock(q);
        if (taken)
                end_fetch(q, at, status);
        return taken;
}

/* A hint: a fetch into frame f is under way, or another vCPU ends it. */
static bool is_for(const struct direct_queue *q, frame_t f)
{
        for (uint32_t i = 0; i < NIC_DEPTH; i++)
                if (atomic_load_explicit(&q->request[i].state, memory_order_relaxed) !=
                            DIRECT_FREE &&
                    atomic_load_explicit(&q->request[i].frame, memory_order_relaxed) == f)
                        return true;
        return false;
}

bool direct_poll_queue(void)
{
        struct direct_queue *q = vcpu_self.direct;

        direct_ring();
        take(q);
        return atomic_load_explicit(&q->request[vcpu_self.direct_at % NIC_DEPTH].state,
                                    memory_order_relaxed) != DIRECT_FREE;
}

bool direct_wait(const void *word, uint64_t seen, frame_t f)
{
        uint32_t n = atomic_load_explicit(&have.n, memory_order_acquire);
        struct direct_queue *its = NULL;
        bool taken = false;

        direct_ring();
        for (unsigned i = 0; i < n * DIRECT_QUEUES; i++) {
                struct direct_queue *q = queues[have.node[i / DIRECT_QUEUES]][i % DIRECT_QUEUES];
                if (is_for(q, f))
                        its = q;
                while (take(q))
                        taken = true;
        }
        if (!its || taken)
                return its;
        vmexit5(EXIT_WAIT_PTE, (uint64_t)word, seen, 1, SLEEP_NS, 0);
        /* Relaxed: a hint for the host. */
        atomic_fetch_add_explicit(&its->slept, 1, memory_order_relaxed);
        if (its->has_host && ++vcpu_self.direct_sleeps % SLEEPS_MOST == 0)
                ring(its, true);
        return true;
}
