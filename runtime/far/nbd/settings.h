/*
 * The user's settings for a node.
 */
#ifndef VMRUN_FAR_NBD_SETTINGS_H
#define VMRUN_FAR_NBD_SETTINGS_H

#include "far/nbd/nbd.h"

struct nbd_settings nbd_settings(const struct far_node *n);

#endif
