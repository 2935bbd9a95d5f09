/*
 * The sequence of slabs: how each one is leased, and where it is.  Which node gives it is decided in placement.c.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include "io.h"
#include "placement.h"

static struct far_slab slabs[SLABS_MAX];        /* entry i is written before CONTROL->nslabs says that it exists */
static struct far_node *const *nodes;
static unsigned nnodes;
static pthread_mutex_t lease_lock = PTHREAD_MUTEX_INITIALIZER;  /* guards CONTROL->slabs, nslabs and what every node has leased */

/* The most pages, of at most n->pages, that `count` slabs can hold. */
static uint64_t pages_of(const struct far_node *n, uint32_t count)
{
        struct far_node trial = *n;

        for (trial.slabs = 0, trial.leased = 0; trial.slabs < count; trial.slabs++) {
                uint32_t got = placement_slab(&trial);
                if (!got)
                        break;
                trial.leased += got;
        }
        return trial.leased;
}

void slabs_init(struct far_node *const all[], unsigned n, uint64_t room)
{
        uint32_t names = SLABS_MAX;
        char a[32], b[32];

        nodes = all;
        nnodes = n;
        if (room > FAR_WINDOW_END - FAR_WINDOW)
                room = FAR_WINDOW_END - FAR_WINDOW;
        room /= PAGE_SIZE;
        placement_sizes(opt.placement, nodes, nnodes);
        for (unsigned i = 0; i < nnodes; i++) {
                struct far_node *node = nodes[i];
                bool memory = node->driver->kind == SLAB_MEMORY;
                uint64_t had = node->pages;
                /* A slab's place is aligned to 2 MiB or the granule: that much may be lost at each node's first and last. */
                uint64_t lost = 2ull * (node->granule > 512 ? node->granule : 512);
                if (memory && node->pages > (room > lost ? room - lost : 0))
                        node->pages = room > lost ? room - lost : 0;
                node->pages = pages_of(node, names);
                names -= placement_count(node, node->pages, names);
                if (memory)
                        room -= room > node->pages + lost ? node->pages + lost : room;
                if (node->pages < had)
                        info_("%s: only %s of %s can be used: the guest-physical space of this CPU (or the table of slabs) holds no more",
                              node->option->origin, size_text(node->pages * PAGE_SIZE, a), size_text(had * PAGE_SIZE, b));
        }
}

uint64_t far_leased_pages(void)
{
        uint64_t sum = 0;
        pthread_mutex_lock(&lease_lock);
        for (unsigned i = 0; i < nnodes; i++)
                sum += nodes[i]->leased;
        pthread_mutex_unlock(&lease_lock);
        return sum;
}

static int64_t lease_locked(struct vm *vm)
{
        uint32_t i = CONTROL->nslabs;
        int k;

        if (i == SLABS_MAX)
                return -ENOSPC;
        while ((k = placement_next(opt.placement, nodes, nnodes)) >= 0) {
                struct far_node *n = nodes[k];
                struct slab s = { .kind = n->driver->kind, .node = (uint32_t)k, .pages = placement_slab(n) };
                struct far_place *place = &slabs[i].place[0];
                if (s.kind == SLAB_REMOTE)
                        io_start(vm);
                *place = (struct far_place){ .node = n, .first = n->leased };
                int err = n->driver->lease(n, vm, n->leased, s.pages, &s, place);
                if (err) {
                        warnx_("%s: no more space can be leased after %llu MiB (%s): the program has %llu MiB less than it was told",
                               n->option->origin, (unsigned long long)(n->leased * PAGE_SIZE >> 20), strerror(-err),
                               (unsigned long long)((n->pages - n->leased) * PAGE_SIZE >> 20));
                        n->pages = n->leased;
                        continue;
                }
                n->leased += s.pages;
                n->slabs++;
                CONTROL->slabs[i] = s;
                /* kern on other vCPUs reads the slab of a slot number; none of this slab exists before the count says so. */
                __atomic_store_n(&CONTROL->nslabs, i + 1, __ATOMIC_RELEASE);
                return i;
        }
        return -ENOSPC;
}

const struct far_slab *far_slab(uint32_t i) { return &slabs[i]; }

int64_t far_lease(struct vm *vm)
{
        pthread_mutex_lock(&lease_lock);
        int64_t i = lease_locked(vm);
        pthread_mutex_unlock(&lease_lock);
        return i;
}

bool slabs_stop(unsigned limit_ms) { return far_lock_within(&lease_lock, limit_ms); }

int64_t far_exit_lease(struct thread *t, struct exit_req *rq)
{
        int64_t i = far_lease(t->vm);
        if (i < 0)
                return i;
        rq->out[0] = (uint64_t)i;
        return 0;
}
