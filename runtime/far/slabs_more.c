/*
 * See slabs.h: nodes that are added, by the user (grow.c), or since a drained or lost node is
 * served again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "abi_control.h"
#include "base/message.h"
#include "common/size.h"
#include "far/io.h"
#include "far/nodes.h"
#include "far/placement.h"
#include "far/slabs.h"
#include "far/slabs_more.h"
#include "vm/kvm.h"

/* With the lease lock held.  The next program has the node, too. */
static int slabs_append(struct far_node *n, char why[FAR_WHY])
{
        int err = io_add(n, why);

        if (err)
                return err;
        leases.nnodes = far_nodes();
        leases.cutter.nnodes = leases.nnodes;
        opt.nodes[n->index] = *n->option;
        /* Release: as in far_add(). */
        __atomic_store_n(&opt.nnodes, leases.nnodes, __ATOMIC_RELEASE);
        atomic_fetch_add_explicit(&CONTROL->nodes_added, 1, memory_order_release);
        return 0;
}

void slabs_learn(void)
{
        static bool said;

        const struct tree_head *head = leases.tree.head;

        while (leases.nnodes < head->nnodes && head->node[leases.nnodes].again) {
                const struct tree_node *t = &head->node[leases.nnodes];
                const struct node_option *o = far_returned_option(leases.nodes[t->again - 1]);
                char why[FAR_WHY] = "no memory";
                struct far_node *n = o ? far_node_open(o, &t->kept, slabs_own_member(), why) : NULL;
                if (n && slabs_append(n, why) == 0)
                        continue;
                if (n)
                        far_node_close(n);
                if (!said)
                        warnx_("%s: the node is served again, but this process cannot use it: %s",
                               leases.nodes[t->again - 1]->option->origin, why);
                said = true;
                free((void *)o);
                return;
        }
}

/* With the lease lock held.  Slots name slabs by number, and slabs name nodes: other processes of
 * the tree have a table without the new node, and cannot be told. */
static int check_alone(char why[FAR_WHY])
{
        if (!leases.in_tree)
                return 0;
        if (tree_alone(&leases.tree)) {         /* so no process changes its table of nodes */
                if (leases.nnodes == leases.tree.head->nnodes)
                        return 0;
                snprintf(why, FAR_WHY, "a process that has ended had found a node served again, "
                         "which this one does not use yet: try again");
                return -EBUSY;
        }
        snprintf(why, FAR_WHY, "the program has children, or a parent under vmrun, that share its "
                 "far memory and would not know the node: add it before the program forks, or when "
                 "the others have ended, or name it with --node at the start");
        return -EBUSY;
}

int slabs_may_add(struct vm *vm, uint64_t *member, char why[FAR_WHY])
{
        int err = 0;

        pthread_mutex_lock(&leases.lock);
        if (!leases.in_tree && leases.inherited >= 0)
                err = slabs_start();     /* it says why */
        if (err)
                snprintf(why, FAR_WHY, "the far memory of the program before cannot be joined: %s",
                         strerror(-err));
        bool others = !err && leases.in_tree && !tree_alone(&leases.tree);
        pthread_mutex_unlock(&leases.lock);
        if (others)                     /* they may have ended */
                cut_dead(&leases.cutter, vm);
        pthread_mutex_lock(&leases.lock);
        err = err ? err : check_alone(why);
        *member = slabs_own_member();
        pthread_mutex_unlock(&leases.lock);
        return err;
}

/* How many slabs a node has given and will give. */
static uint32_t slabs_of(const struct far_node *n)
{
        return n->slabs + placement_left(n);
}

/* Cuts the node to its share of addresses and names.  With the lease lock held. */
static int cut_to_room(struct vm *vm, struct far_node *n, char why[FAR_WHY])
{
        bool memory = n->driver->kind == SLAB_MEMORY;
        uint64_t had = n->pages, room = vm_far_room(vm), most = room;
        uint64_t lost = 2ull * (n->granule > 512 ? n->granule : 512);
        uint32_t names = leases.in_tree ? leases.tree.max_slabs : SLABS_MAX;
        char a[32], b[32];

        for (unsigned i = 0; i < leases.nnodes; i++)
                names -= slabs_of(leases.nodes[i]) < names ? slabs_of(leases.nodes[i]) : names;
        if (!leases.in_tree && names > SLABS_TO_ADD)
                names -= SLABS_TO_ADD;  /* for the next node */
        if (memory && most > (leases.memory_room > lost ? leases.memory_room - lost : 0))
                most = leases.memory_room > lost ? leases.memory_room - lost : 0;
        n->pages = n->pages < most ? n->pages : most;
        n->slab_most = memory || opt.placement == PLACE_LINEAR
                               ? SLAB_LAST : placement_most(n->pages, 1, names);
        n->pages = slabs_pages(n, names);
        if (!n->pages) {
                snprintf(why, FAR_WHY, "there is no room for its slabs in this run: name it with "
                         "--node at the start");
                return -ENOSPC;
        }
        if (n->pages < had)
                warnx_("%s: only %s of %s are used: more could only be named with --node at the "
                       "start", n->option->origin, size_text(n->pages * PAGE_SIZE, a),
                       size_text(had * PAGE_SIZE, b));
        if (memory)
                leases.memory_room -= n->pages + lost;
        if (!leases.in_tree)
                leases.max_slabs += slabs_of(n);
        return 0;
}

uint64_t slabs_member(void)
{
        pthread_mutex_lock(&leases.lock);
        uint64_t member = leases.in_tree ? slabs_own_member() : 0;
        pthread_mutex_unlock(&leases.lock);
        return member;
}

int slabs_return(struct vm *vm, struct far_node *n, unsigned was, char why[FAR_WHY])
{
        pthread_mutex_lock(&leases.lock);
        tree_lock(&leases.tree);
        slabs_learn();
        slabs_pull();
        struct tree_node *t = &leases.tree.head->node[leases.nnodes];
        int err = 0;

        for (unsigned i = was + 1; i < leases.nnodes && !err; i++)
                err = strcmp(leases.nodes[i]->url, n->url) == 0 ? -EEXIST : 0;
        if (!err && (leases.nnodes != leases.tree.head->nnodes || leases.nnodes == NODES_MAX))
                err = -EBUSY;           /* slabs_learn() has said why */
        if (err)
                goto out;
        err = cut_to_room(vm, n, why);
        *t = (struct tree_node){ .again = was + 1 };
        if (!err && (!n->driver->keep || !n->driver->keep(n, &t->kept)))
                err = -ENOTSUP;
        if (!err)
                err = slabs_append(n, why);
        if (!err)
                leases.tree.head->nnodes = leases.nnodes;
        slabs_push();
out:
        tree_unlock(&leases.tree);
        pthread_mutex_unlock(&leases.lock);
        return err;
}

int slabs_add(struct vm *vm, struct far_node *n, char why[FAR_WHY])
{
        pthread_mutex_lock(&leases.lock);
        int err = n->member == slabs_own_member() ? check_alone(why) : -ESTALE;
        if (err == -ESTALE)
                snprintf(why, FAR_WHY, "the program forked meanwhile: try again");
        if (!err && leases.in_tree) {   /* processes that have ended may have leased more */
                tree_lock(&leases.tree);
                slabs_pull();
                tree_unlock(&leases.tree);
        }
        if (!err)
                err = cut_to_room(vm, n, why);
        if (!err)
                err = io_add(n, why);
        if (!err) {
                /* The tree's entry comes after.  No other process reads it before a slab names the
                 * node. */
                if (leases.in_tree)
                        tree_lock(&leases.tree);
                leases.nnodes = far_nodes();
                leases.cutter.nnodes = leases.nnodes;
                if (leases.in_tree) {
                        leases.tree.head->nnodes = leases.nnodes;
                        slabs_push();
                        tree_unlock(&leases.tree);
                }
        }
        pthread_mutex_unlock(&leases.lock);
        return err;
}
