/*
 * See far.h: URLs, the list of nodes, and the sequence of slabs.  What a node is made of is its driver's business.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../check.h"
#include "../vmrun.h"
#include "far.h"

#define SLAB_FIRST (16ull << 20)        /* bytes; each slab is twice the one before, up to 1 << SLAB_SHIFT pages */
#define SLAB_LAST  ((uint64_t)PAGE_SIZE << SLAB_SHIFT)

static const struct far_driver *const drivers[] = { &far_mem };
/* Known to the design, not to this version: a better answer than "unknown". */
static const char *const planned[] = { "rdma", "nbd", "nbd+unix", "dax" };

static struct far_node *nodes[sizeof(opt.nodes) / sizeof(opt.nodes[0])];
static unsigned nnodes;
static pthread_mutex_t lease_lock = PTHREAD_MUTEX_INITIALIZER;  /* guards CONTROL->slabs, nslabs and every node's leased */

struct far_node *far_node_open(const char *url, char why[FAR_WHY])
{
        const char *colon = strchr(url, ':');
        size_t n = colon ? (size_t)(colon - url) : 0;

        if (!n) {
                snprintf(why, FAR_WHY, "a far-memory node is named by a URL: give mem:SIZE, as in mem:8G");
                return NULL;
        }
        for (size_t i = 0; i < sizeof(planned) / sizeof(planned[0]); i++)
                if (strlen(planned[i]) == n && strncmp(url, planned[i], n) == 0) {
                        snprintf(why, FAR_WHY, "%s: is not built into this version of vmrun: give mem:SIZE, as in mem:8G", planned[i]);
                        return NULL;
                }
        for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
                const struct far_driver *d = drivers[i];
                if (strlen(d->scheme) != n || strncmp(url, d->scheme, n) != 0)
                        continue;
                struct far_node *node = calloc(1, sizeof(*node));
                if (!node) {
                        snprintf(why, FAR_WHY, "out of memory: free some on this host");
                        return NULL;
                }
                node->driver = d;
                node->url = url;
                if (d->open(node, colon + 1, why) == 0)
                        return node;
                free(node);
                return NULL;
        }
        snprintf(why, FAR_WHY, "unknown scheme '%.*s': give mem:SIZE, as in mem:8G", (int)(n < 64 ? n : 64), url);
        return NULL;
}

void far_node_close(struct far_node *n)
{
        n->driver->close(n);
        free(n);
}

/* Cuts memory nodes to the guest-physical space and all of them to what slot numbers can name. */
static void limit_nodes(uint64_t room)
{
        uint64_t names = (uint64_t)SLABS_MAX << SLAB_SHIFT;
        char a[32], b[32];

        /* Slabs are aligned to 2 MiB, and those before the first full-sized one are smaller: leave room for both. */
        names -= (uint64_t)nnodes << SLAB_SHIFT;
        names -= 8ull << SLAB_SHIFT;
        room = room / PAGE_SIZE > 512ull * nnodes ? room / PAGE_SIZE - 512ull * nnodes : 0;
        for (unsigned i = 0; i < nnodes; i++) {
                struct far_node *n = nodes[i];
                bool memory = n->driver->kind == SLAB_MEMORY;
                uint64_t most = memory && room < names ? room : names;
                if (n->pages > most) {
                        info_("--node %s: only %s of %s can be used: the guest-physical space of this CPU (or the table of slabs) holds no more", n->url,
                              size_text(most * PAGE_SIZE, a), size_text(n->pages * PAGE_SIZE, b));
                        n->pages = most;
                }
                names -= n->pages;
                if (memory)
                        room -= n->pages;
        }
}

void far_init(uint64_t room)
{
        static const char *const defaults[] = { "mem:" };
        const char *const *urls = opt.nnodes ? opt.nodes : defaults;
        unsigned count = opt.nnodes ? opt.nnodes : 1;
        char why[FAR_WHY], text[FAR_WHY];

        for (unsigned i = 0; i < count; i++) {
                struct far_node *n = far_node_open(urls[i], why);
                if (!n)
                        die_(EXIT_VMRUN_FAILED, "--node %s: %s", urls[i], why);
                n->index = i;
                nodes[nnodes++] = n;
        }
        limit_nodes(room);
        for (unsigned i = 0; opt.verbose && i < nnodes; i++) {
                nodes[i]->driver->describe(nodes[i], text, sizeof(text));
                info_("far tier %u: %s", i, text);
        }
}

void far_close(void)
{
        while (nnodes)
                far_node_close(nodes[--nnodes]);
}

unsigned far_nodes(void) { return nnodes; }
const struct far_node *far_node(unsigned i) { return i < nnodes ? nodes[i] : NULL; }

uint64_t far_total_pages(void)
{
        uint64_t sum = 0;
        for (unsigned i = 0; i < nnodes; i++)
                sum += nodes[i]->pages;
        return sum;
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

/* Pages of slab number i, if its node has that many left. */
static uint64_t slab_pages(uint32_t i)
{
        uint64_t bytes = i < 16 ? SLAB_FIRST << i : SLAB_LAST;
        return (bytes < SLAB_LAST ? bytes : SLAB_LAST) / PAGE_SIZE;
}

static int64_t lease_locked(struct vm *vm)
{
        uint32_t i = CONTROL->nslabs;
        if (i == SLABS_MAX)
                return -ENOSPC;
        for (unsigned k = 0; k < nnodes; k++) {
                struct far_node *n = nodes[k];
                uint64_t left = n->pages - n->leased, want = slab_pages(i);
                if (!left)
                        continue;
                struct slab s = { .kind = n->driver->kind, .node = k, .pages = (uint32_t)(want < left ? want : left) };
                int err = n->driver->lease(n, vm, n->leased, s.pages, &s);
                if (err) {
                        warnx_("--node %s: no more space can be leased after %llu MiB (%s): the program has %llu MiB less than it was told",
                               n->url, (unsigned long long)(n->leased * PAGE_SIZE >> 20), strerror(-err),
                               (unsigned long long)(left * PAGE_SIZE >> 20));
                        n->pages = n->leased;
                        continue;
                }
                n->leased += s.pages;
                CONTROL->slabs[i] = s;
                /* kern on other vCPUs reads the slab of a slot number; none of this slab exists before the count says so. */
                __atomic_store_n(&CONTROL->nslabs, i + 1, __ATOMIC_RELEASE);
                return i;
        }
        return -ENOSPC;
}

int64_t far_lease(struct vm *vm)
{
        pthread_mutex_lock(&lease_lock);
        int64_t i = lease_locked(vm);
        pthread_mutex_unlock(&lease_lock);
        return i;
}

int64_t far_exit_lease(struct thread *t, struct exit_req *rq)
{
        int64_t i = far_lease(t->vm);
        if (i < 0)
                return i;
        rq->out[0] = (uint64_t)i;
        return 0;
}
