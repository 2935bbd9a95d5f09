/*
 * The settings of an nbd:// node, from vmrun's options.  Only this file of the driver knows these
 * options, so that a test can have other settings.
 */
#include <string.h>
#include "base/options.h"
#include "far/key.h"
#include "far/nbd/settings.h"

struct nbd_settings nbd_settings(const struct far_node *n)
{
        return (struct nbd_settings){
                .size = n->option->size,
                .tls = n->option->key_fd > 0,
                .connect_timeout_ms = far_connect_ms(n),
                .timeout_ms = opt.timeout_ms,
        };
}

int nbd_settings_key(const struct far_node *n, struct nbd_key *k, char why[FAR_WHY])
{
        struct key own;
        int err = key_get(n->option, &own, why);

        if (err)
                return err;
        memcpy(k->client, own.name, sizeof(k->client));
        explicit_bzero(&own, sizeof(own));
        key_thread_apart();
        key_path(n->option, k->file);
        k->fd = n->option->key_fd;
        return 0;
}
