/*
 * See far.h: URLs, the list of nodes, and the sequence of slabs.  What a node is made of is its driver's business.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../check.h"
#include "../vmrun.h"
#include "far.h"
#include "io.h"

#define SLAB_FIRST (16ull << 20)        /* bytes; each slab is twice the one before, up to 1 << SLAB_SHIFT pages */
#define SLAB_LAST  ((uint64_t)PAGE_SIZE << SLAB_SHIFT)

static const struct far_driver *const drivers[] = { &far_mem };
/* Drivers with libraries behind them are loaded when a URL names them (far_module in the shared object): a program without such a node
 * starts without those libraries. */
static const struct { const char *scheme, *file; } modules[] = {
        { "rdma", "far-rdma.so" }, { "nbd", "far-nbd.so" }, { "nbd+unix", "far-nbd.so" },
};

static struct far_slab slabs[SLABS_MAX];        /* entry i is written before CONTROL->nslabs says that it exists */
static struct far_node *nodes[sizeof(opt.nodes) / sizeof(opt.nodes[0])];
static unsigned nnodes;
static pthread_mutex_t lease_lock = PTHREAD_MUTEX_INITIALIZER;  /* guards CONTROL->slabs, nslabs and every node's leased */

/* Modules are installed in a folder of their own; in the build tree they lie beside vmrun. */
static void *load_module(const char *file, char why[FAR_WHY])
{
        char path[PATH_MAX], *slash;
        ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

        path[n > 0 ? n : 0] = '\0';
        if ((slash = strrchr(path, '/')) != NULL) {
                strcpy(slash + 1, file);
                if (access(path, F_OK) == 0)
                        goto open;
        }
        snprintf(path, sizeof(path), "%s/%s", MODULE_DIR, file);
open:;
        void *m = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!m)
                snprintf(why, FAR_WHY, "its driver cannot be loaded: %.180s: install vmrun again", dlerror());
        return m;
}

/* The driver of a scheme; NULL with why. */
static const struct far_driver *find_driver(const char *scheme, char why[FAR_WHY])
{
        for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
                if (strcmp(drivers[i]->scheme, scheme) == 0)
                        return drivers[i];
        for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
                if (strcmp(modules[i].scheme, scheme) != 0)
                        continue;
                void *m = load_module(modules[i].file, why);
                const struct far_driver *const *list = m ? dlsym(m, "far_module") : NULL;
                for (; list && *list; list++)
                        if (strcmp((*list)->scheme, scheme) == 0)
                                return *list;
                if (m)
                        snprintf(why, FAR_WHY, "%s is of another version of vmrun: install vmrun again", modules[i].file);
                return NULL;
        }
        snprintf(why, FAR_WHY, "unknown scheme '%s': give rdma://HOST, nbd://HOST, nbd+unix:///SOCKET or mem:SIZE, as in mem:8G", scheme);
        return NULL;
}

struct far_node *far_node_open(const char *url, char why[FAR_WHY])
{
        const char *colon = strchr(url, ':');
        size_t n = colon ? (size_t)(colon - url) : 0;

        if (!n) {
                snprintf(why, FAR_WHY, "a far-memory node is named by a URL: give mem:SIZE, as in mem:8G");
                return NULL;
        }
        char scheme[16] = "";
        if (n < sizeof(scheme))
                memcpy(scheme, url, n);
        const struct far_driver *d = find_driver(scheme, why);
        if (!d)
                return NULL;
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
struct far_node *far_node_at(unsigned i) { return nodes[i]; }

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
                if (s.kind == SLAB_REMOTE)
                        io_start(vm);
                struct far_place *place = &slabs[i].place[0];
                *place = (struct far_place){ .node = n, .first = n->leased };
                int err = n->driver->lease(n, vm, n->leased, s.pages, &s, place);
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

const struct far_slab *far_slab(uint32_t i) { return &slabs[i]; }

void far_lost(const struct far_node *n, const char *fmt, ...)
{
        char text[512];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        die_(EXIT_VMRUN_FAILED, "--node %s: %s; pages of the program are lost with it, so the program ends", n->url, text);
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
