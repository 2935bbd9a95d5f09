/*
 * The settings of an rdma:// node, from vmrun's options.  Only this file of the driver knows these
 * options.
 */
#include <stdio.h>
#include <string.h>
#include "base/options.h"
#include "common/token.h"
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
        if (!o->token_file)
                return 0;
        char token[NODE_TOKEN_MAX + 1], text[FAR_WHY - 116];
        int err = token_read(o->token_file, token, text, sizeof(text));
        if (err)
                snprintf(why, FAR_WHY, "token file %.100s: %s", o->token_file, text);
        else
                memcpy(s->token, token, sizeof(s->token));
        return err;
}
