/*
 * What vmrun's options say about an rdma:// node: the only place of the driver that knows them.
 */
#include <string.h>
#include "../vmrun.h"
#include "rdma.h"

int rdma_settings(const struct far_node *n, struct rdma_settings *s, char why[FAR_WHY])
{
        (void)n;
        (void)why;
        memset(s, 0, sizeof(*s));
        s->timeout_ms = 10000;
        s->connect_timeout_ms = 5000;
        s->gid_index = -1;
        s->program = opt.argv && opt.argv[0] ? opt.argv[0] : "vmrun";
        return 0;
}
