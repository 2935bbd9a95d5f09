/*
 * The settings of a node, from vmrun's options.
 */
#ifndef VMRUN_RDMA_SETTINGS_H
#define VMRUN_RDMA_SETTINGS_H

#include "far/rdma/rdma.h"

int rdma_settings(const struct far_node *n, struct rdma_settings *s, char why[FAR_WHY]);

#endif
