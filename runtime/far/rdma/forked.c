/*
 * A forked child leaves its parent's connections.
 *
 * Queue pairs, registrations and connections belong to the parent's open files and address space.
 * The child has the descriptors, too, and a call of the libraries would act on the parent's
 * objects.  So the descriptors are cut off first, and the libraries' data in memory is left alone.
 * librdmacm would only use one thing again: the device that it opened and keeps.  Therefore
 * far/nodes.c loads this module again, and librdmacm with it (far_driver.forked).  The clean-up
 * closes that device; its descriptors lead elsewhere by then.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/message.h"
#include "base/privfd.h"
#include "far/rdma/forked.h"

/* The number stays in use, because the library will close it.  It is no longer private, because the
 * library uses plain close(). */
static void cut_off(int fd)
{
        int other = eventfd(0, EFD_CLOEXEC);    /* needs no file: the child may have another root */

        if (other < 0 || dup3(other, fd, O_CLOEXEC) < 0)
                die_(EXIT_VMRUN_FAILED, "a child cannot let go of its parent's RDMA device: %s",
                     strerror(errno));
        close(other);
        privfd_forget(fd);
}

static void close_channel(const struct rdma_event_channel *ch)
{
        if (ch)
                privfd_close(ch->fd);
}

bool rdma_forked(struct far_node *n)
{
        struct rdma_node *old = n->data;
        struct rdma_device *d = &old->dev;

        if (!old->control.channel)
                /* the parent is itself a child that has never used the node: nothing of it is
                 * open */
                return false;
        struct rdma_node *rn = calloc(1, sizeof(*rn));
        if (!rn)
                die_(EXIT_VMRUN_FAILED,
                     "%s: no memory for a child's connections: free some on this host",
                     n->option->origin);
        close_channel(old->control.channel);
        close_channel(old->data.channel);
        if (d->verbs) {                 /* NULL: the parent's node was never up */
                privfd_close(d->control_comp->fd);
                privfd_close(d->data_comp->fd);
        }
        /* two nodes may be on one device */
        if (d->verbs && privfd_is(d->verbs->cmd_fd)) {
                cut_off(d->verbs->cmd_fd);
                cut_off(d->verbs->async_fd);
        }
        rn->n = n;
        rn->set = old->set;
        memcpy(rn->host, old->host, sizeof(rn->host));
        memcpy(rn->name, old->name, sizeof(rn->name));
        rn->to = old->to;
        rn->from = old->from;
        atomic_store_explicit(&rn->cookie, atomic_load_explicit(&old->cookie, memory_order_relaxed),
                              memory_order_relaxed);
        rn->limit = old->limit;
        rn->depth = old->depth;
        rn->grace_ms = old->grace_ms;
        rn->keeps = old->keeps;
        rn->direct_wanted = old->direct_wanted;
        free(old->direct.mlx5);         /* its memory and objects were not inherited */
        rn->dev.attr = d->attr;
        rn->control.id = old->control.id;
        memcpy(rn->control.secret, old->control.secret, sizeof(rn->control.secret));
        pthread_mutex_init(&rn->control.lock, NULL);
        atomic_store(&rn->grants, atomic_load(&old->grants));
        for (int k = 0; k < DATA_QUEUES; k++)
                free(old->data.q[k].spare);
        if (old->mem.pool)
                old->mem.pool = NULL;           /* it was not inherited */
        free(old->control.buffers);
        free(old);
        n->data = rn;
        return true;
}
