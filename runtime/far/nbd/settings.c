/*
 * The settings of an nbd:// node, from vmrun's options.  Only this file of the driver knows these
 * options, so that a test can have other settings.
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
