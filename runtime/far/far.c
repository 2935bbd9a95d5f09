/*
 * See far.h: URLs, drivers and the list of nodes.  What a node is made of is its driver's business.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/deadline.h"
#include "far.h"
#include "io.h"

#define END_MS 500                      /* to wait for others at the end of the program */

static const struct far_driver *const drivers[] = { &far_mem, &far_dax };
/* Drivers with libraries behind them are loaded when a URL names them (far_module in the shared object): a program without such a node
 * starts without those libraries. */
static const struct { const char *scheme, *file; } modules[] = {
        { "rdma", "far-rdma.so" }, { "nbd", "far-nbd.so" }, { "nbd+unix", "far-nbd.so" },
};

static struct far_node *nodes[NODES_MAX];
static unsigned nnodes;

/* The folder of modules as the one of vmrun sees it, as in ../libexec/vmrun/ */
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
 * installed tree that lies elsewhere, by DESTDIR or because it was moved, has its own.
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
                snprintf(why, FAR_WHY, "its driver cannot be loaded: %.180s: install vmrun again", dlerror());
        return m;
}

#define URLS "rdma://HOST, nbd://HOST, nbd+unix:///EXPORT?socket=PATH, dax:PATH or mem:SIZE, as in mem:8G"

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
                if (m)
                        snprintf(why, FAR_WHY, "%s is of another version of vmrun: install vmrun again", modules[i].file);
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
                snprintf(why, FAR_WHY, "size=%s is too small: give a multiple of %s", size_text(n->option->size, a),
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

static struct far_node *open_node(const struct node_option *o, const struct far_kept_node *before, char why[FAR_WHY])
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
        struct far_node *node = calloc(1, sizeof(*node));
        if (!node) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return NULL;
        }
        node->driver = d;
        node->module = module;
        node->option = o;
        node->url = o->url;
        node->inherited = before;
        if (d->open(node, colon + 1, why) != 0) {
                free(node);
                return NULL;
        }
        if (cut_to_size(node, why) == 0)
                return node;
        far_node_close(node);
        return NULL;
}

struct far_node *far_node_open(const struct node_option *o, char why[FAR_WHY]) { return open_node(o, NULL, why); }

void far_node_close(struct far_node *n)
{
        n->driver->close(n);
        free(n);
}

/* The nodes of opt, or the default one. */
static const struct node_option *wanted(unsigned *count)
{
        static const struct node_option only = { .url = "mem:", .name = "mem:", .origin = "--node mem:", .weight = 1, .gid_index = -1 };

        *count = opt.nnodes ? opt.nnodes : 1;
        return opt.nnodes ? opt.nodes : &only;
}

/* Descriptors from before execve, by node. */
static struct far_kept inherited;
static bool has_inherited;

void far_adopt(const struct far_kept *k)
{
        inherited = *k;
        has_inherited = true;
        if (k->tree >= 0)
                slabs_adopt(k->tree);
}

/* True: all of them. */
static bool keep_nodes(struct far_kept *k)
{
        bool all = true;

        for (unsigned i = 0; i < NODES_MAX; i++) {
                k->node[i].kept = false;
                k->node[i].fd = -1;
                if (i < nnodes)
                        all &= k->node[i].kept = nodes[i]->driver->keep && nodes[i]->driver->keep(nodes[i], &k->node[i]);
        }
        return all;
}

void far_expect_program(void)
{
        struct far_kept *k = malloc(sizeof(*k));

        if (k && keep_nodes(k))
                slabs_tree();
        free(k);
}

bool far_keep(struct far_kept *k, bool shared)
{
        bool all = keep_nodes(k), alone = false;
        int tree = slabs_tree_fd(shared ? NULL : &alone);

        /* Nobody else needs what is on a remote node: that is given back, rather than kept until no write of ours can come any more. */
        for (unsigned i = 0; alone && i < nnodes; i++)
                all &= nodes[i]->driver->kind == SLAB_MEMORY;
        k->tree = tree >= 0 && all ? tree : -1;
        /* In a tree that it leaves, or that others make when they need it, a node is another's too. */
        for (unsigned i = 0; i < nnodes; i++)
                if (k->tree < 0 && !(alone && nodes[i]->driver->kind == SLAB_MEMORY)) {
                        k->node[i].kept = false;
                        k->node[i].fd = -1;
                }
        return !all && !shared;
}

void far_init(uint64_t room)
{
        unsigned count;
        const struct node_option *o = wanted(&count);
        char why[FAR_WHY], text[FAR_WHY];

        for (unsigned i = 0; i < count; i++) {
                struct far_node *n = open_node(&o[i], has_inherited && inherited.node[i].kept ? &inherited.node[i] : NULL, why);
                if (!n)
                        die_(EXIT_VMRUN_FAILED, "%s: %s", o[i].origin, why);
                n->index = i;
                nodes[nnodes++] = n;
        }
        slabs_init(nodes, nnodes, room);
        for (unsigned i = 0; opt.verbose && i < nnodes; i++) {
                nodes[i]->driver->describe(nodes[i], text, sizeof(text));
                info_("far tier %u: %s", i, text);
        }
}

int far_check(FILE *f)
{
        unsigned count;
        const struct node_option *o = wanted(&count);
        struct far_node *open[NODES_MAX];
        char why[FAR_WHY], text[FAR_WHY];
        int err = 0;

        for (unsigned i = 0; i < count; i++) {
                open[i] = far_node_open(&o[i], why);
                if (open[i])
                        open[i]->driver->describe(open[i], text, sizeof(text));
                else
                        err = -EIO;
                fprintf(f, "%-16s%s %s: %s\n", i ? "" : "nodes", o[i].name, open[i] ? "works" : "fails", open[i] ? text : why);
                fflush(f);              /* the next one may take a while to answer */
        }
        for (unsigned i = count; i-- > 0; )
                if (open[i])
                        far_node_close(open[i]);
        return err;
}

void far_close(void)
{
        slabs_close();
        while (nnodes)
                far_node_close(nodes[--nnodes]);
}

bool far_lock_within(pthread_mutex_t *m, unsigned limit_ms)
{
        const struct timespec until = deadline_in_ms(limit_ms);

        return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &until) == 0;
}

/* Set by the first who ends the program: nobody else says goodbye, nor is the loss of a node of any interest. */
static atomic_flag ending = ATOMIC_FLAG_INIT;

/* But for one that is lost.  Nobody else is in a driver.  Nodes that are memory stay mapped: other vCPUs may still run on them. */
static void say_goodbye(const struct far_node *lost)
{
        for (unsigned i = 0; i < nnodes; i++)
                if (nodes[i] != lost && nodes[i]->driver->kind == SLAB_REMOTE)
                        nodes[i]->driver->close(nodes[i]);
}

static bool still;

void far_still(void) { still = true; }

void far_end(void)
{
        if (!atomic_flag_test_and_set(&ending) && slabs_stop(END_MS) && slabs_last(still, END_MS) && io_stop(END_MS))
                say_goodbye(NULL);
}

const struct far_node *far_cannot_fork(void)
{
        for (unsigned i = 0; i < nnodes; i++)
                if (nodes[i]->driver->kind == SLAB_REMOTE && (!nodes[i]->driver->forked || nodes[i]->alone))
                        return nodes[i];
        return NULL;
}

/* What librdmacm and its like keep for ever is the parent's, and no function of theirs makes them forget it: the module, which several nodes may
 * have, is loaded anew. */
static void reload(const void *module)
{
        char why[FAR_WHY];
        bool anew[NODES_MAX];

        for (unsigned i = 0; i < nnodes; i++) {
                anew[i] = nodes[i]->module == module;
                if (anew[i])
                        dlclose(nodes[i]->module);
        }
        for (unsigned i = 0; i < nnodes; i++) {
                struct far_node *n = nodes[i];
                char scheme[16] = "";
                if (!anew[i])
                        continue;
                memcpy(scheme, n->url, (size_t)(strchr(n->url, ':') - n->url));
                n->driver = find_driver(scheme, &n->module, why);
                if (!n->driver)
                        die_(EXIT_VMRUN_FAILED, "%s: %s", n->option->origin, why);
        }
}

int far_forked(const struct tree_child *c)
{
        int err = slabs_forked(c);
        const void *module = NULL;      /* rdma's is the only one that asks for it */

        io_forked();
        for (unsigned i = 0; i < nnodes; i++)
                if (nodes[i]->driver->forked && nodes[i]->driver->forked(nodes[i]))
                        module = nodes[i]->module;
        if (module)
                reload(module);
        return err;
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

void far_lost(const struct far_node *n, const char *fmt, ...)
{
        char text[512];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        while (atomic_flag_test_and_set(&ending))
                pause();                /* the process is about to end */
        warnx_("%s: %s; pages of the program are lost with it, so the program ends", n->option->origin, text);
        /* We are the thread that calls drivers. */
        if (slabs_stop(END_MS) && slabs_last(false, END_MS))
                say_goodbye(n);
        _exit(EXIT_VMRUN_FAILED);
}
