/*
 * Nodes by the name of a service in DNS: rdma+srv://NAME, nbd+srv://NAME, nbds+srv://NAME.
 */
#ifndef VMRUN_SETTINGS_SERVICE_H
#define VMRUN_SETTINGS_SERVICE_H

#include "settings/settings.h"

/* The nodes that DNS has for node n (its SRV records), each with the options of n; the first are
 * those that are to be used first.  How many, at most `room`; or -errno with why. */
int service_find(const struct node_option *n, unsigned timeout_ms, struct node_option to[],
                 unsigned room, char why[SETTING_WHY]);
/* Puts the nodes in the place of each node by such a name. */
int service_expand(struct options *o, const char **origin, char why[SETTING_WHY]);

#endif
