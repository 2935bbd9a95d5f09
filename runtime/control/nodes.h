/*
 * Nodes, listed and added while the program runs.
 */
#ifndef VMRUN_CONTROL_NODES_H
#define VMRUN_CONTROL_NODES_H

#include <stdio.h>
#include "control/session.h"

int nodes_print(enum form form, FILE *f, char why[CTL_WHY]);
int nodes_add(const struct session *s, const char *url, FILE *f, char why[CTL_WHY]);

#endif
