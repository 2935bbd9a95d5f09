/*
 * The user's settings for a node.
 */
#ifndef VMRUN_FAR_NBD_SETTINGS_H
#define VMRUN_FAR_NBD_SETTINGS_H

#include "common/keys.h"
#include "far/nbd/nbd.h"

struct nbd_settings nbd_settings(const struct far_node *n);
/* With nbd_settings.tls: the name of our key, and a file that has it, by a name that is good for
 * the calling thread as long as it has the descriptor (-1: for ever).  The thread is vmrun's own,
 * and may get another working folder by this.  0, or -errno with why. */
struct nbd_key { char client[KEY_NAME_MAX + 1]; char file[64]; int fd; };
int nbd_settings_key(const struct far_node *n, struct nbd_key *k, char why[FAR_WHY]);

#endif
