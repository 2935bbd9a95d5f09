/*
 * What vmrun's options say about an nbd:// node.  Only this file of the driver knows them, so that
 * a test can have others.
 */
#include "base/options.h"
#include "far/nbd/settings.h"

struct nbd_settings nbd_settings(const struct far_node *n)
{
        return (struct nbd_settings){
                .size = n->option->size,
                .token_file = n->option->token_file,
                .connect_timeout_ms = far_connect_ms(n),
                .timeout_ms = opt.timeout_ms,
        };
}
