/*
 * Counters of the vCPUs.
 */
#ifndef VMRUN_COUNTERS_H
#define VMRUN_COUNTERS_H

#include <stdio.h>
#include "abi.h"

/* The name of an enum exit_op. */
const char *counters_exit_name(unsigned op);

/* The lines of --stats, of all vCPUs together. */
void counters_stats(FILE *f);

#endif
