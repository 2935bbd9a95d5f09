/*
 * See nbd.h: the settings of a node.  In a file of its own so that a test can have others.
 */
#include "nbd.h"

struct nbd_settings nbd_settings(const struct far_node *n)
{
        (void)n;
        return (struct nbd_settings){ .connect_timeout_ms = 5000, .timeout_ms = 10000 };
}
