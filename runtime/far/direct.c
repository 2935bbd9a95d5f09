#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include "abi_control.h"
#include "base/message.h"
#include "common/clock.h"
#include "far/direct.h"
#include "far/nodes.h"
#include "far/request.h"
#include "far/slabs.h"
#include "far/wait.h"
#include "vm/kvm.h"
#include "vm/vcpu.h"

static struct far_node *node_of(uint64_t index)
{
        return index < far_nodes() ? far_node_at((unsigned)index) : NULL;
}

int64_t direct_exit_make(struct thread *t, struct exit_req *rq)
{
        struct far_node *n = node_of(rq->a[0]);
        struct far_direct *d;

        if (!n || !n->driver->ring || n->direct)
                return -EOPNOTSUPP;
        d = calloc(1, sizeof(*d));
        if (!d)
                return -EOPNOTSUPP;
        d->vm = t->vm;
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                if (!(d->queue[i] = kern_pointer(t, rq->a[1 + i], sizeof(*d->queue[i]))))
                        die_(EXIT_VMRUN_FAILED, "kern gave a queue that is not in its memory: a "
                                                "bug in vmrun, or the program may have written "
                                                "into kern");
        d->gpa = vm_take_gpa(t->vm, DIRECT_RINGS);
        if (!d->gpa) {
                free(d);
                return -EOPNOTSUPP;
        }
        /* Release: the I/O side sees all of it. */
        atomic_store_explicit(&n->direct, d, memory_order_release);
        return (int64_t)d->gpa;
}

int64_t direct_exit_ring(const struct exit_req *rq)
{
        struct far_node *n = node_of(rq->a[0]);

        if (!n || !n->driver->ring || rq->a[1] >= DIRECT_QUEUES)
                return -EINVAL;
        return n->driver->ring(n, (unsigned)rq->a[1]);
}

/* The slab's place on a node, as an index; -1: it has none, or another node is to be read before
 * it.  kern knows no priorities. */
static int place_on(const struct far_slab *f, const struct far_node *n)
{
        int on = -1;

        for (unsigned k = 0; k < f->places; k++) {
                const struct far_node *its = f->place[k].node;
                if (its == n)
                        on = (int)k;
                else if (its->option->priority > n->option->priority && !is_set(&its->lost))
                        return -1;
        }
        return on;
}

static void tell_slab(uint32_t i, const struct far_node *n, uint32_t epoch, direct_where *where)
{
        const struct far_slab *f = far_slab(i);
        struct slab *s = &CONTROL->slabs[i];
        int k = place_on(f, n);
        uint64_t from;
        uint32_t key;

        if (k < 0 || !where(&f->place[k], &from, &key))
                return;
        atomic_store_explicit(&s->place[k].from, from, memory_order_relaxed);
        atomic_store_explicit(&s->place[k].key, key, memory_order_relaxed);
        s->node_at[k] = (uint8_t)n->index;
        /* Release: kern sees both. */
        atomic_store_explicit(&s->place[k].epoch, epoch, memory_order_release);
        /* Release: kern sees the node. */
        atomic_fetch_or_explicit(&s->direct, 1u << k, memory_order_release);
}

bool direct_slabs(struct far_node *n, uint32_t epoch, direct_where *where)
{
        struct far_direct *d = n->direct;
        uint32_t slabs = __atomic_load_n(&CONTROL->nslabs, __ATOMIC_ACQUIRE);
        uint32_t places = atomic_load_explicit(&leases.places_added, memory_order_acquire);

        if (d->slabs == slabs && d->places == places)
                return true;
        /* Tried: lease() may hold it, and wait for the I/O side. */
        if (pthread_mutex_trylock(&leases.lock) != 0)
                return false;
        for (uint32_t i = d->places == places ? d->slabs : 0; i < slabs; i++)
                tell_slab(i, n, epoch, where);
        pthread_mutex_unlock(&leases.lock);
        d->slabs = slabs;
        d->places = places;
        return true;
}

void direct_up(struct direct_queue *q)
{
        atomic_store_explicit(&q->posted, 0, memory_order_relaxed);
        atomic_store_explicit(&q->seen, 0, memory_order_relaxed);
        /* Release: kern sees what was filled in. */
        atomic_store_explicit(&q->state, DIRECT_UP, memory_order_release);
}

bool direct_take(struct direct_queue *q, unsigned limit_ms)
{
        const int64_t end = limit_ms ? now_ms() + limit_ms : INT64_MAX;

        atomic_store_explicit(&q->state, DIRECT_DOWN, memory_order_relaxed);
        /* Acquire: sees the queue as that vCPU left it. */
        while (atomic_exchange_explicit(&q->lock, 1, memory_order_acquire)) {
                if (limit_ms && now_ms() > end)
                        return false;
                sched_yield();
        }
        return true;
}

void direct_learn(struct far_direct *d)
{
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                uint64_t took = atomic_exchange_explicit(&d->queue[i]->took, 0,
                                                         memory_order_relaxed);
                if (took)
                        wait_learn(took);
        }
}

void direct_release(struct far_direct *d, struct direct_queue *q)
{
        for (unsigned i = 0; i < NIC_DEPTH; i++) {
                typeof(&q->request[0]) r = &q->request[i];
                /* Relaxed: the lock orders it.  A request that kern has taken is kern's. */
                if (atomic_load_explicit(&r->state, memory_order_relaxed) != DIRECT_ASKED)
                        continue;
                request_take_over(r->slot, atomic_load_explicit(&r->frame, memory_order_relaxed),
                                  r->vcpu);
                atomic_store_explicit(&r->state, DIRECT_FREE, memory_order_release);
        }
        atomic_store_explicit(&q->posted, 0, memory_order_relaxed);
        atomic_store_explicit(&q->seen, 0, memory_order_relaxed);
        d->slabs = 0;
        atomic_store_explicit(&q->lock, 0, memory_order_release);
}

bool direct_is_idle(const struct far_node *n)
{
        const struct far_direct *d = n->direct;

        for (unsigned i = 0; d && i < DIRECT_QUEUES; i++)
                if (atomic_load_explicit(&d->queue[i]->state, memory_order_relaxed) != DIRECT_DOWN)
                        return false;
        return true;
}

uint64_t direct_reads(const struct far_node *n)
{
        const struct far_direct *d = n->direct;
        uint64_t sum = 0;

        for (unsigned i = 0; d && i < DIRECT_QUEUES; i++)
                sum += atomic_load_explicit(&d->queue[i]->came, memory_order_relaxed);
        return sum;
}
