/*
 * The table of nodes and of the slabs on them.  Finds the driver of a URL, which may be in a
 * module, and has it make the node.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/message.h"
#include "common/size.h"
#include "far/nodes.h"
#include "far/placement.h"

static const struct far_driver *const drivers[] = { &far_mem, &far_dax };
/* Drivers with libraries behind them are loaded when a URL names them (far_module in the shared
 * object): a program without such a node starts without those libraries. */
static const struct { const char *scheme, *file; } modules[] = {
        { "rdma", "far-rdma.so" }, { "nbd", "far-nbd.so" }, { "nbds", "far-nbd.so" },
        { "nbd+unix", "far-nbd.so" }, { "file", "far-file.so" },
};

const struct node_option far_default_node = {
        .url = "mem:", .name = "mem:", .origin = "--node mem:", .weight = 1, .gid_index = -1
};

#define PIECE 64                        /* slabs; a part of the table that is made at once */
static struct {
        struct far_node *node[NODES_MAX];
        /* far_node_add() raises it while the program runs: the release shows the node to threads
         * that read the number. */
        _Atomic unsigned nodes;
        /* Made when they are needed: of the whole table a huge page could make 2 MiB of memory
         * beside the cache.  Under the lease lock (slabs.h); entry i is there, and written, before
         * CONTROL->nslabs covers it. */
        struct far_slab *piece[SLABS_MAX / PIECE];
} table;

/* The folder of modules relative to the folder of vmrun, as in ../libexec/vmrun/ */
static void module_dir(char *dir, size_t size)
{
        const char *from = BIN_DIR, *to = MODULE_DIR;
        size_t same = 0, n = 0;

        for (size_t i = 0; from[i] && from[i] == to[i]; i++)
                if (from[i] == '/')
                        same = i + 1;
        for (const char *s = from + same; s; s = strchr(s + 1, '/'))
                n += (size_t)snprintf(dir + n, n < size ? size - n : 0, "../");
        snprintf(dir + n, n < size ? size - n : 0, "%s/", to + same);
}

/*
 * Modules are installed in a folder of their own; in the build tree they lie beside vmrun.  An
 * installed tree in another place, by DESTDIR or because it was moved, uses its own modules.
 */
static void *load_module(const char *file, char why[FAR_WHY])
{
        char path[2 * PATH_MAX], dir[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
        char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;

        module_dir(dir, sizeof(dir));
        const char *const places[] = { "", dir };
        for (size_t i = 0; slash && i < 2; i++) {
                snprintf(slash + 1, sizeof(path) - (size_t)(slash + 1 - path), "%s%s", places[i],
                         file);
                if (access(path, F_OK) == 0)
                        goto open;
        }
        snprintf(path, sizeof(path), "%s/%s", MODULE_DIR, file);
open:;
        void *m = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!m)
                snprintf(why, FAR_WHY, "its driver cannot be loaded: %.180s: install vmrun again",
                         dlerror());
        return m;
}

#define URLS                                                                                       \
        "rdma://HOST, nbd://HOST, nbds://HOST, nbd+unix:///EXPORT?socket=PATH, file:PATH, "        \
        "dax:PATH or mem:SIZE, as in mem:8G"

/* The driver of a scheme, and the module it is in; NULL with why. */
static const struct far_driver *find_driver(const char *scheme, void **module, char why[FAR_WHY])
{
        for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
                if (strcmp(drivers[i]->scheme, scheme) == 0)
                        return drivers[i];
        for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
                if (strcmp(modules[i].scheme, scheme) != 0)
                        continue;
                void *m = *module = load_module(modules[i].file, why);
                const struct far_driver *const *list = m ? dlsym(m, "far_module") : NULL;
                for (; list && *list; list++)
                        if (strcmp((*list)->scheme, scheme) == 0)
                                return *list;
                if (m) {
                        snprintf(why, FAR_WHY,
                                 "%s is of another version of vmrun: install vmrun again",
                                 modules[i].file);
                        dlclose(m);
                }
                return NULL;
        }
        snprintf(why, FAR_WHY, "unknown scheme '%s': give " URLS, scheme);
        return NULL;
}

/* The part of the node that the user wants. */
static int cut_to_size(struct far_node *n, char why[FAR_WHY])
{
        char a[32], b[32];
        uint64_t pages = n->option->size / PAGE_SIZE;

        if (n->granule)
                pages = pages / n->granule * n->granule;
        if (!n->option->size)
                return 0;
        if (!pages) {
                snprintf(why, FAR_WHY, "size=%s is too small: give a multiple of %s",
                         size_text(n->option->size, a),
                         size_text((uint64_t)n->granule * PAGE_SIZE, b));
                return -EINVAL;
        }
        if (pages > n->pages + n->kept) {
                snprintf(why, FAR_WHY, "it has %s, not the size=%s asked for: give less",
                         size_text((n->pages + n->kept) * PAGE_SIZE, a),
                         size_text(n->option->size, b));
                return -ENOSPC;
        }
        n->pages = pages < n->pages ? pages : n->pages;
        return 0;
}

/* [I] A module is loaded once for each node of the table that has it: far_reload() relies on it. */
static void unload(void *module)
{
        if (module)
                dlclose(module);
}

struct far_node *far_node_name(const struct node_option *o, char why[FAR_WHY])
{
        const char *colon = strchr(o->url, ':');
        size_t n = colon ? (size_t)(colon - o->url) : 0;

        if (!n) {
                snprintf(why, FAR_WHY, "a far-memory node is named by a URL: give " URLS);
                return NULL;
        }
        char scheme[16] = "";
        if (n < sizeof(scheme))
                memcpy(scheme, o->url, n);
        void *module = NULL;
        const struct far_driver *d = find_driver(scheme, &module, why);
        if (!d)
                return NULL;
        bool stuck = d->own_thread && opt.io == IO_INLINE;
        if (stuck)
                snprintf(why, FAR_WHY, "its pages are moved by a thread of vmrun's own: leave out "
                         "--io inline, or give --io thread");
        bool good = !stuck && d->check(o, colon + 1, why) == 0;
        struct far_node *node = good ? calloc(1, sizeof(*node)) : NULL;
        if (good && !node)
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
        if (!node) {
                unload(module);
                return NULL;
        }
        node->driver = d;
        node->module = module;
        node->option = o;
        node->url = o->url;
        return node;
}

struct far_node *far_node_begin(struct far_node *node, const struct far_kept_node *before,
                                uint64_t member, char why[FAR_WHY])
{
        const struct far_driver *d = node->driver;

        node->inherited = before;
        node->member = member;
        node->up = true;
        if (d->open(node, strchr(node->url, ':') + 1, why) != 0) {
                unload(node->module);
                free(node);
                return NULL;
        }
        node->hands_back = opt.replicas > 1 && d->kind == SLAB_REMOTE;
        node->expected_until = node->hands_back && before && before->up ? INT64_MAX : 0;
        node->up = !node->hands_back;
        if (cut_to_size(node, why) == 0)
                return node;
        far_node_close(node);
        return NULL;
}

struct far_node *far_node_open(const struct node_option *o, const struct far_kept_node *before,
                               uint64_t member, char why[FAR_WHY])
{
        struct far_node *node = far_node_name(o, why);

        return node ? far_node_begin(node, before, member, why) : NULL;
}

void far_node_close(struct far_node *n)
{
        n->driver->close(n);
        unload(n->module);
        free(n);
}

void far_node_add(struct far_node *n)
{
        n->index = table.nodes;
        table.node[table.nodes] = n;
        atomic_fetch_add_explicit(&table.nodes, 1, memory_order_release);
}

struct far_node *const *far_node_list(void) { return table.node; }
unsigned far_nodes(void) { return table.nodes; }
struct far_node *far_node_at(unsigned i) { return table.node[i]; }

uint64_t far_total_pages(void) { return placement_room(table.node, table.nodes, opt.replicas); }

const struct node_option *far_returned_option(const struct far_node *was)
{
        struct node_option *o = malloc(sizeof(*o));

        if (!o)
                return NULL;
        *o = *was->option;              /* its texts live as long as the program */
        o->returned = true;
        return o;
}

unsigned far_connect_ms(const struct far_node *n)
{
        return n->option->returned && opt.connect_timeout_ms > 1000 ? 1000
                                                                    : opt.connect_timeout_ms;
}

struct far_slab *far_slab(uint32_t i) { return &table.piece[i / PIECE][i % PIECE]; }

struct far_slab *far_slab_none(uint32_t i)
{
        struct far_slab **piece = &table.piece[i / PIECE];

        if (!*piece)
                *piece = calloc(PIECE, sizeof(**piece));
        if (!*piece)
                die_(EXIT_VMRUN_FAILED, "no memory for the table of slabs: free some on this host");
        (*piece)[i % PIECE].places = 0;
        return &(*piece)[i % PIECE];
}

void far_reload(const void *module)
{
        char why[FAR_WHY];
        bool reloaded[NODES_MAX];

        for (unsigned i = 0; i < table.nodes; i++) {
                reloaded[i] = table.node[i]->module == module;
                if (reloaded[i])
                        dlclose(table.node[i]->module);
        }
        for (unsigned i = 0; i < table.nodes; i++) {
                struct far_node *n = table.node[i];
                char scheme[16] = "";
                if (!reloaded[i])
                        continue;
                memcpy(scheme, n->url, (size_t)(strchr(n->url, ':') - n->url));
                n->driver = find_driver(scheme, &n->module, why);
                if (!n->driver)
                        die_(EXIT_VMRUN_FAILED, "%s: %s", n->option->origin, why);
        }
}

void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
{
        va_list ap;

        if (n->lost)
                return;                 /* the first reason is the one to report */
        va_start(ap, fmt);
        vsnprintf(n->why, sizeof(n->why), fmt, ap);
        va_end(ap);
        n->lost_pages = pages;
        n->lost = true;
}
