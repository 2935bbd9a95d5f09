/*
 * The place of the RDMA server.
 */
#include <errno.h>
#include <stdio.h>
#include "memnode.h"

int rdma_listen(const char *url, char *why, size_t n)
{
        (void)url;
        snprintf(why, n, "RDMA is not built in: listen at nbd:// instead");
        return -ENOTSUP;
}

void rdma_stop(unsigned timeout_ms) { (void)timeout_ms; }
