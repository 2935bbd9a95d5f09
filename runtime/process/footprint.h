/*
 * How much of the host's memory vmrun and its program use.
 */
#ifndef VMRUN_FOOTPRINT_H
#define VMRUN_FOOTPRINT_H

struct stats;

/* For stats_register(). */
void footprint_stats(struct stats *s);

#endif
