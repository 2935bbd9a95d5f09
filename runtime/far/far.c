/*
 * All far tiers together: opening and closing them, execve, fork, and the end of the program.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/host.h"
#include "base/message.h"
#include "common/size.h"
#include "far/drain.h"
#include "far/far.h"
#include "far/fewer.h"
#include "far/grow.h"
#include "far/held.h"
#include "far/io.h"
#include "far/key.h"
#include "far/lease.h"
#include "far/memfd.h"
#include "far/moves.h"
#include "far/nodes.h"
#include "far/outage.h"
#include "far/placement.h"
#include "far/rebuild.h"
#include "far/scrub.h"
#include "far/sequence.h"
#include "far/timing.h"
#include "far/tree.h"

/* the longest wait for other threads at the end of the program */
#define END_MS 500

/* The nodes of opt, or the default one. */
static const struct node_option *wanted(unsigned *count)
{
        *count = opt.nnodes ? opt.nnodes : 1;
        return opt.nnodes ? opt.nodes : &far_default_node;
}

/* The nodes that the program before execve kept, by far_adopt(). */
static struct { bool any; struct far_kept kept; } inherited;

/* Node i as that program kept it; NULL: it did not. */
static const struct far_kept_node *inherited_node(unsigned i)
{
        return inherited.any && inherited.kept.node[i].kept ? &inherited.kept.node[i] : NULL;
}

void far_adopt(const struct far_kept *k)
{
        inherited.kept = *k;
        inherited.any = true;
        memfd_init(k->proc);
        if (k->tree >= 0)
                slabs_adopt(k->tree, &k->next);
}

/* True: all nodes can be inherited. */
static bool keep_nodes(struct far_kept *k)
{
        bool all = true;

        for (unsigned i = 0; i < NODES_MAX; i++) {
                k->node[i].kept = false;
                k->node[i].fd = -1;
                if (i < far_nodes())
                        all &= k->node[i].kept =
                                far_node_at(i)->driver->keep &&
                                far_node_at(i)->driver->keep(far_node_at(i), &k->node[i]);
        }
        return all;
}

int far_expect_program(void)
{
        struct far_kept *k = malloc(sizeof(*k));
        int number = k && keep_nodes(k) ? slabs_expect() : -ENOMEM;

        free(k);
        return number;
}

void far_expect_end(int number) { slabs_expect_end(number); }
void far_unkeep(const struct far_kept *k) { tree_child_left(&k->next); }
void far_leaves(bool leaves)
{
        slabs_leaves(leaves && held_stop());
        if (!leaves)
                held_go_on();
}

static bool is_local(const struct far_node *n)
{
        return n->driver->kind == SLAB_MEMORY || n->driver->local;
}

/* Of a process that is alone: far_end() closes all nodes that are no memory. */
static bool stays(const struct far_node *n, bool all)
{
        return n->driver->kind == SLAB_MEMORY || (all && is_local(n));
}

bool far_keep(struct far_kept *k, const int *expected)
{
        bool all = keep_nodes(k), alone = false;
        int tree = slabs_tree_fd(expected ? NULL : &alone);

        /* No other process needs the pages on a remote node: give them back, rather than keep them
         * until none of our writes can arrive any more. */
        for (unsigned i = 0; alone && i < far_nodes(); i++)
                all &= is_local(far_node_at(i));
        k->proc = memfd_proc();
        k->tree = tree >= 0 && all ? tree : -1;
        k->next = k->tree < 0 ? (struct tree_child){ .life = -1 }
                  : expected  ? slabs_expected(*expected)
                              : slabs_successor();
        /* In a tree that this process leaves, or that other processes make when they need it,
         * another process uses the node too. */
        for (unsigned i = 0; i < far_nodes(); i++) {
                const struct far_node *n = far_node_at(i);
                k->node[i].drained = is_set(&n->is_drained);
                k->node[i].up = is_set(&n->up) || far_expected(n);
                if (k->tree < 0 && !k->node[i].drained && !(alone && stays(far_node_at(i), all))) {
                        k->node[i].kept = false;
                        k->node[i].fd = -1;
                }
        }
        return !all && !expected;
}

static struct {
        /* Set by the first thread that ends the program: no other thread releases the leases, and
         * the loss of a node no longer matters. */
        atomic_flag begun;
        bool still;                     /* by far_still(), for its thread's far_end() */
} ending = { .begun = ATOMIC_FLAG_INIT };

/* Releases the leases of all remote nodes except the lost one.  No other thread is in a driver.
 * Nodes that are memory stay mapped: other vCPUs may still run on them. */
static void say_goodbye(const struct far_node *lost)
{
        for (unsigned i = 0; i < far_nodes(); i++)
                if (far_node_at(i) != lost && far_node_at(i)->driver->kind == SLAB_REMOTE)
                        far_node_at(i)->driver->close(far_node_at(i));
}

/* Copies under way are writes too: then other processes have the nodes cut this process off. */
void far_still(void) { ending.still = held_stop(); }

void far_end(void)
{
        if (!atomic_flag_test_and_set(&ending.begun) && slabs_stop(END_MS) &&
            slabs_last(ending.still, END_MS) && io_stop(END_MS))
                say_goodbye(NULL);
}

/* A node is lost, with pages of the program that no other node has. */
static void end_lost(const struct far_node *n)
{
        while (atomic_flag_test_and_set(&ending.begun))
                pause();                /* the process is about to end */
        warnx_("%s: %s; pages of the program are lost with it, so the program ends",
               n->option->origin, n->why);
        /* This is the thread that calls drivers. */
        if (slabs_stop(END_MS) && slabs_last(false, END_MS))
                say_goodbye(n);
        end_(EXIT_VMRUN_FAILED);
}

static void describe(const struct far_node *n, char text[FAR_WHY])
{
        n->driver->describe(n, text, FAR_WHY);
        timing_text(n->option, text + strlen(text), FAR_WHY - strlen(text));
}

/* With too few nodes there are as many copies as possible. */
static void check_replicas(void)
{
        unsigned domains = placement_domains(far_node_list(), far_nodes());
        char text[64];

        if (domains >= opt.replicas || (opt.replicas == 1 && !opt.replicas_required))
                return;
        if (domains)
                snprintf(text, sizeof(text), "remote nodes of %u domain%s", domains,
                         domains == 1 ? "" : "s");
        else
                strcpy(text, "no remote node");
        if (opt.replicas_required)
                die_(EXIT_VMRUN_FAILED,
                     "replicas: %s for %u copies of a page, which are required: name more with "
                     "--node, of different domains, or leave out --replicas-required",
                     text, opt.replicas);
        if (!inherited.any)             /* else the program before has said so */
                warnx_("replicas: %s for %u copies of a page: so there %s "
                       "%u: name more with --node", text, opt.replicas,
                       domains > 1 ? "are" : "is", domains ? domains : 1);
}

/* Memory of this host that the cache and the nodes mem: take together. */
static void check_memory(void)
{
        const uint64_t available = host_memory_available();
        const char *limit = host_memory_limit();
        uint64_t wanted = 0;
        char a[32], b[32];

        for (unsigned i = 0; i < opt.nnodes; i++)
                /* one without a size fills what is left */
                if (strcmp(far_node_at(i)->driver->scheme, "mem") == 0 &&
                    (strcmp(far_node_at(i)->url, "mem:") != 0 || far_node_at(i)->option->size))
                        wanted += far_node_at(i)->pages * PAGE_SIZE;
        if (!wanted || wanted + opt.cache <= available)
                return;
        size_text(wanted + opt.cache, a);
        size_text(available, b);
        if (limit)
                warnx_("mem: is memory of this host, which counts against its control group, too: "
                       "with the cache %s, of which %s is left (%s), and beyond it the kernel ends "
                       "the program: name a smaller one, file:PATH or a remote node, or raise that "
                       "limit", a, b, limit);
        else
                info_("mem: and the cache are %s of this host's memory, of which only %s is "
                      "available now: it may run out", a, b);
}

/* Before the program runs: it may change its root, and its user. */
static void read_keys(void)
{
        char why[FAR_WHY];

        for (unsigned i = 0; i < opt.nnodes; i++)
                if (key_read(&opt.nodes[i], why) != 0)
                        die_(EXIT_VMRUN_FAILED, "%s: %s", opt.nodes[i].origin, why);
}

static struct far_node *named[NODES_MAX];      /* from far_name() to far_init() */

void far_name(void)
{
        unsigned count;
        const struct node_option *o = wanted(&count);
        char why[FAR_WHY];

        for (unsigned i = 0; i < count; i++) {
                named[i] = far_node_name(&o[i], why);
                if (!named[i])
                        die_(EXIT_VMRUN_FAILED, "%s: %s", o[i].origin, why);
        }
        read_keys();
}

/* After each look for moves, by the same thread. */
static void look_further(struct vm *vm)
{
        far_return(vm);
        if (opt.replicas > 1)
                fewer_look();
}

void far_init(uint64_t room)
{
        unsigned count;
        const struct node_option *o = wanted(&count);
        char why[FAR_WHY], text[FAR_WHY];

        for (unsigned i = 0; i < count; i++) {
                const struct far_kept_node *kept = inherited_node(i);
                struct far_node *n = far_node_begin(named[i], kept, kept ? 0 : FAR_FIRST_MEMBER,
                                                    why);
                if (!n)
                        die_(EXIT_VMRUN_FAILED, "%s: %s", o[i].origin, why);
                if (kept && kept->drained) {
                        n->pages = 0;   /* its slabs are in the tree, if there is one */
                        drain_is_over(n);
                }
                far_node_add(n);
        }
        check_replicas();
        if (!inherited.any)
                check_memory();
        slabs_init(far_node_list(), far_nodes(), room);
        outage_on_loss(end_lost);
        moves_then(look_further);
        for (unsigned i = 0; opt.verbose && i < far_nodes(); i++) {
                describe(far_node_at(i), text);
                info_("node %u: %s", i, text);
        }
}

/* What a driver says of a node, without the name before it. */
static const char *behind(const char *name, const char *text)
{
        size_t n = strlen(name);

        return strncmp(text, name, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

int far_check(FILE *f)
{
        unsigned count;
        const struct node_option *o = wanted(&count);
        struct far_node *open[NODES_MAX];
        char why[FAR_WHY], text[FAR_WHY];
        int err = 0;

        for (unsigned i = 0; i < count; i++) {
                bool ready = !opt.nnodes || key_read(&opt.nodes[i], why) == 0;
                open[i] = ready ? far_node_open(&o[i], NULL, FAR_FIRST_MEMBER, why) : NULL;
                if (open[i])
                        describe(open[i], text);
                else
                        err = -EIO;
                fprintf(f, "%-16s%s %s: %s\n", i ? "" : "nodes", o[i].name,
                        open[i] ? "works" : "fails", open[i] ? behind(o[i].name, text) : why);
                fflush(f);              /* the next node may take a while to answer */
        }
        for (unsigned i = count; i-- > 0; )
                if (open[i])
                        far_node_close(open[i]);
        return err;
}

/*
 * ---- standing still ----
 *
 * The order of the parts, for fork and for a process that must have one thread:
 *
 *   1. the threads of rebuild.c and scrub_start.c, since they may wait for the I/O side
 *   2. for fork alone, copies that the I/O side makes by itself: fork writes pages to their slots,
 *      and a write waits as long as its slot is being copied
 *   3. the I/O side, which has moved pages until then
 *
 * They continue in the opposite order.
 */

/* Waits for copies and for reads of scrub.c that are under way, as long as nodes take to answer or
 * to break.  Undone by held_go_on(). */
static void stop_copies(void)
{
        const void *word;
        unsigned n;

        held_stop();
        while ((n = held_under_way(&word)) > 0)
                if (opt.io == IO_INLINE)
                        io_wait(word, n);
                else
                        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

void far_hold_background(void)
{
        rebuild_hold();
        scrub_hold();
        stop_copies();
}

void far_hold(void) { io_hold(); }

void far_release(void)
{
        io_release();
        held_go_on();
        scrub_release();
        rebuild_release();
}

void far_rest(void)
{
        rebuild_rest();
        scrub_rest();
        io_hold();
        io_end();
}

void far_go_on(void)
{
        io_again();
        io_release();
        scrub_go_on();
        rebuild_go_on();
}

const struct far_node *far_needs_thread(void)
{
        for (unsigned i = 0; i < far_nodes(); i++)
                if (far_node_at(i)->driver->own_thread)
                        return far_node_at(i);
        return NULL;
}

const struct far_node *far_cannot_fork(void)
{
        for (unsigned i = 0; i < far_nodes(); i++)
                if (far_node_at(i)->driver->kind == SLAB_REMOTE &&
                    (!far_node_at(i)->driver->forked || far_node_at(i)->alone))
                        return far_node_at(i);
        return NULL;
}

int far_expect_child(struct vm *vm, struct tree_child *c)
{
        struct tree *tree = slabs_tree();

        if (!tree)
                return -ENOMEM;
        slabs_cut(vm, false);
        int err = tree_child(tree, c);
        if (err == -EAGAIN) {
                slabs_cut(vm, true);
                err = tree_child(tree, c);
        }
        return err && err != -ENOSYS ? -EAGAIN : err;
}

void far_forked(const struct tree_child *c)
{
        const void *module = NULL;      /* only the rdma module asks for this */

        slabs_forked(c);
        io_forked();
        rebuild_forked();
        drain_forked();
        scrub_thread_forked();
        for (unsigned i = 0; i < far_nodes(); i++)
                if (far_node_at(i)->driver->forked &&
                    far_node_at(i)->driver->forked(far_node_at(i)))
                        module = far_node_at(i)->module;
        if (module)
                far_reload(module);
}

