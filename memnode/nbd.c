/*
 * The place of the NBD server.
 */
#include <errno.h>
#include <stdio.h>
#include "memnode.h"

int nbd_listen(const char *url, bool is_unix, char *why, size_t n)
{
        (void)url, (void)is_unix;
        snprintf(why, n, "NBD is not built in: listen at rdma:// instead");
        return -ENOTSUP;
}

void nbd_stop(unsigned timeout_ms) { (void)timeout_ms; }
