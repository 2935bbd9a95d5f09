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

/* [I] A slab that has, or had, a second place is never read by kern, which does not know where the
 * page is.  Whoever adds the place takes the slab from kern before that place counts, with the
 * lease lock (places.c, not_direct()). */
bool direct_slabs(struct far_node *n, uint32_t epoch, direct_where *where)
{
        struct far_direct *d = n->direct;
        uint32_t slabs = __atomic_load_n(&CONTROL->nslabs, __ATOMIC_ACQUIRE);

        if (d->slabs == slabs)
                return true;
        /* Tried: lease() may hold it, and wait for the I/O side. */
        if (pthread_mutex_trylock(&leases.lock) != 0)
                return false;
        for (; d->slabs < slabs; d->slabs++) {
                const struct far_slab *f = far_slab(d->slabs);
                struct slab *s = &CONTROL->slabs[d->slabs];
                uint64_t from;
                uint32_t key;
                if (f->places != 1 || f->place[0].node != n || !where(&f->place[0], &from, &key))
                        continue;
                atomic_store_explicit(&s->from, from, memory_order_relaxed);
                atomic_store_explicit(&s->key, key, memory_order_relaxed);
                /* Release: kern sees both. */
                atomic_store_explicit(&s->direct, epoch, memory_order_release);
        }
        pthread_mutex_unlock(&leases.lock);
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
