/*
 * A node that is added while the program runs.
 *
 * The node is opened like those of the start, becomes the last of the table, and counts from then
 * on: for placement, for the commit limit, for forks and executed programs.  Slabs name nodes by
 * number, so all processes of a tree must have one table of nodes: a node can be added only while
 * one process has the tree to itself (slabs_may_add()).  A node that returns is different: it was
 * drained, or lost with copies elsewhere, and is served again.  All processes know its URL, so they
 * can add it themselves once the tree's memory says that it is back.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/privfd.h"
#include "common/clock.h"
#include "far/grow.h"
#include "far/key.h"
#include "far/nodes.h"
#include "far/slabs_more.h"
#include "vm/vm.h"

#define RETURN_MS 1000                  /* between two looks for nodes that are served again */

/* The place in opt for one node more; NULL: there is none. */
static struct node_option *place_in_options(unsigned *n)
{
        *n = opt.nnodes;
        if (!*n)                        /* the table of nodes has it; for the next program */
                opt.nodes[(*n)++] = far_default_node;
        return *n < NODES_MAX ? &opt.nodes[*n] : NULL;
}

static int open_and_add(struct vm *vm, const struct node_option *o, char why[FAR_WHY])
{
        uint64_t member;
        int err = slabs_may_add(vm, &member, why);
        struct far_node *n = err ? NULL : far_node_open(o, NULL, member, why);

        if (!n)
                return err ? err : -EIO;
        err = slabs_add(vm, n, why);
        if (err) {
                far_node_close(n);
                return err;
        }
        /* One thread adds at a time; others only read. */
        atomic_fetch_add_explicit(&CONTROL->far_pages, n->pages, memory_order_relaxed);
        return 0;
}

int far_add(struct vm *vm, const struct node_option *o, char why[FAR_WHY])
{
        unsigned at;
        struct node_option *mine = place_in_options(&at);

        if (!mine) {
                snprintf(why, FAR_WHY, "there are %u nodes already, and no room for more",
                         NODES_MAX);
                return -ENOSPC;
        }
        *mine = *o;
        int err = key_read(mine, why);
        if (!err)
                err = open_and_add(vm, mine, why);
        if (err && mine->key_fd > 0)
                privfd_close(mine->key_fd);
        if (err)
                return err;
        /* Release: a child of vfork, which shares this memory, may hand the options over. */
        __atomic_store_n(&opt.nnodes, at + 1, __ATOMIC_RELEASE);
        /* Release: kern's next EXIT_LEASE finds the node. */
        atomic_fetch_add_explicit(&CONTROL->nodes_added, 1, memory_order_release);
        vm->calls->wake_service();
        return 0;
}

/* ---- nodes that return ---- */

/* The node was drained, or was lost while other nodes had its pages, and is not in the table under
 * another number.  A node that cannot fence stays away: older writes may still arrive there. */
static bool is_away(unsigned i)
{
        const struct far_node *n = far_node_at(i);

        bool has_copies = n->hands_back && n->fences;

        if (!n->lost || !(has_copies || is_set(&n->is_drained)))
                return false;
        for (unsigned k = i + 1; k < far_nodes(); k++)
                if (strcmp(far_node_at(k)->url, far_node_at(i)->url) == 0)
                        return false;
        return true;
}

static void look_for(struct vm *vm, struct far_node *was)
{
        char why[FAR_WHY];
        const struct node_option *o = far_returned_option(was);
        uint64_t member = slabs_member();
        struct far_node *n = o && member ? far_node_open(o, NULL, member, why) : NULL;

        if (n && slabs_return(vm, n, was->index, why) == 0) {
                warnx_("%s: the node is served again: its memory is used as that of node %u",
                       n->option->origin, n->index);
                return;
        }
        if (n)
                far_node_close(n);
        free((void *)o);
}

void far_return(struct vm *vm)
{
        static int64_t next;            /* ms; of the one thread that calls this */

        if (now_ms() < next)
                return;
        for (unsigned i = 0; i < far_nodes() && far_nodes() < NODES_MAX; i++)
                if (is_away(i))
                        look_for(vm, far_node_at(i));
        next = now_ms() + RETURN_MS;
}
