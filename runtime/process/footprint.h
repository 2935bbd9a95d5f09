/*
 * How much of the host's memory vmrun and its program use.
 */
#ifndef VMRUN_FOOTPRINT_H
#define VMRUN_FOOTPRINT_H

#include <stdio.h>

/* The lines of --stats. */
void footprint_stats(FILE *f);

#endif
