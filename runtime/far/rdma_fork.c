/*
 * A forked child's part in its parent's lease, and that of a program which a process of the tree executed.
 *
 * Queue pairs, registrations and connections are of the parent's open files and address space.  The child has the descriptors, too, and a
 * call of the libraries' would act on the parent's objects; so they are cut off first, and what the libraries know in memory is left
 * alone.  The one thing that librdmacm would use again is the device that it opened, for it keeps it: therefore far.c loads this module,
 * and with it librdmacm, anew (far_driver.forked).  Its clean-up closes that device, whose descriptors lead to /dev/null by then.
 *
 * Then the child comes to memnode as another member of the same client (nodeproto.h): by id and secret, over connections of its own.
 * What its parent leased has the same addresses and keys, for all members' queue pairs are in one protection domain.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "rdma.h"
#include "base/message.h"
#include "base/privfd.h"

/* The number stays taken, as the library will close it; it is no private one from then on, since it is the library that does. */
static void cut_off(int fd)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0 || dup3(null, fd, O_CLOEXEC) < 0)
                die_(EXIT_VMRUN_FAILED, "a child cannot let go of its parent's RDMA device: %s", strerror(errno));
        close(null);
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
                return false;           /* the parent is a child itself, and never came to use the node: nothing of it is open */
        struct rdma_node *rn = calloc(1, sizeof(*rn));
        if (!rn)
                die_(EXIT_VMRUN_FAILED, "%s: no memory for a child's connections: free some on this host", n->option->origin);
        close_channel(old->control.channel);
        close_channel(old->data.channel);
        privfd_close(d->control_comp->fd);
        privfd_close(d->data_comp->fd);
        if (privfd_is(d->verbs->cmd_fd)) {      /* two nodes may be on one device */
                cut_off(d->verbs->cmd_fd);
                cut_off(d->verbs->async_fd);
        }
        rn->n = n;
        rn->set = old->set;
        memcpy(rn->host, old->host, sizeof(rn->host));
        memcpy(rn->name, old->name, sizeof(rn->name));
        rn->to = old->to;
        rn->from = old->from;
        rn->limit = old->limit;
        rn->depth = old->depth;
        rn->grace_ms = old->grace_ms;
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

/* What such a program must know of the lease.  Like a forked child, it connects when it first needs a slab. */
struct kept {
        union rdma_sockaddr to, from;
        struct ibv_device_attr attr;
        uint64_t limit, id;
        uint32_t depth, grace_ms;
        uint8_t secret[NODE_SECRET];
        char name[NODE_NAME_MAX];
};
_Static_assert(sizeof(struct kept) <= FAR_KEPT, "it fits what goes over execve");

bool rdma_keep(const struct far_node *n, struct far_kept_node *k)
{
        const struct rdma_node *rn = n->data;
        struct kept *to = (struct kept *)k->data;

        *to = (struct kept){ .to = rn->to, .from = rn->from, .attr = rn->dev.attr, .limit = rn->limit, .id = rn->control.id, .depth = rn->depth,
                             .grace_ms = rn->grace_ms };
        memcpy(to->secret, rn->control.secret, sizeof(to->secret));
        memcpy(to->name, rn->name, sizeof(to->name));
        return to->id != 0;
}

int rdma_take_over(struct rdma_node *rn, const char *rest, char why[FAR_WHY])
{
        const struct kept *k = (const struct kept *)rn->n->inherited->data;
        uint16_t port;

        rn->to = k->to;
        rn->from = k->from;
        rn->dev.attr = k->attr;
        rn->limit = k->limit;
        rn->depth = k->depth;
        rn->grace_ms = k->grace_ms;
        rn->control.id = k->id;
        memcpy(rn->control.secret, k->secret, sizeof(k->secret));
        memcpy(rn->name, k->name, sizeof(k->name));
        return rdma_parse_url(rest, rn->host, &port, why);
}

int rdma_new_member(struct rdma_node *rn, char why[FAR_WHY])
{
        do {
                if (getrandom(&rn->member, sizeof(rn->member), 0) != sizeof(rn->member)) {
                        snprintf(why, FAR_WHY, "no random numbers: %s", strerror(errno));
                        return -EIO;
                }
        } while (!rn->member);
        return 0;
}

int rdma_rejoin(struct rdma_node *rn, char why[FAR_WHY])
{
        int err = rdma_new_member(rn, why);
        if (!err)
                err = rdma_control_prepare(rn, why);
        return err ? err : rdma_data_open(rn, rdma_now() + rn->set.connect_timeout_ms, why);
}

/* place->word: what lease() left there. */
int rdma_use(struct far_node *n, struct far_place *place, uint32_t pages)
{
        struct rdma_node *rn = n->data;
        struct rdma_grant *g = atomic_load_explicit(&rn->grants, memory_order_relaxed);

        while (g && (g->slab != place->word[0] || g->address != place->word[1]))
                g = g->next;
        if (!g) {
                g = malloc(sizeof(*g));
                if (!g)
                        return -ENOMEM;
                *g = (struct rdma_grant){ .slab = place->word[0], .address = place->word[1], .rkey = (uint32_t)place->word[2],
                                          .bytes = (uint64_t)pages * PAGE_SIZE };
                /* As in lease(): under the lock, so that who finds the node lost knows of all grants. */
                pthread_mutex_lock(&rn->control.lock);
                g->next = atomic_load_explicit(&rn->grants, memory_order_relaxed);
                atomic_store_explicit(&rn->grants, g, memory_order_release);
                pthread_mutex_unlock(&rn->control.lock);
        }
        place->data = g;
        return 0;
}
