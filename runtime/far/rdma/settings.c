/*
 * The settings of an rdma:// node, from vmrun's options.  Only this file of the driver knows these
 * options.
 */
#include "base/options.h"
#include "far/key.h"
#include "far/rdma/settings.h"

int rdma_settings(const struct far_node *n, struct rdma_settings *s, char why[FAR_WHY])
{
        const struct node_option *o = n->option;

        *s = (struct rdma_settings){
                .size = o->size,
                .timeout_ms = opt.timeout_ms,
                .connect_timeout_ms = far_connect_ms(n),
                .device = o->device,
                .gid_index = o->gid_index,
                .program = opt.argv && opt.argv[0] ? opt.argv[0] : "vmrun",
        };
        /* Who joins has the client's secret instead. */
        return o->key_fd > 0 && !n->inherited ? key_get(o, &s->key, why) : 0;
}
