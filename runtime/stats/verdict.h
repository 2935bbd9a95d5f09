/*
 * What the numbers say.
 */
#ifndef VMRUN_STATS_VERDICT_H
#define VMRUN_STATS_VERDICT_H

#include <stdio.h>
#include "stats/model.h"

/* Adds the verdicts as gauges, 1 or 0. */
void stats_judge(struct stats *s);
/* A sentence for each that is 1; nothing if there is nothing to say. */
void stats_print_verdict(const struct stats *s, FILE *f);

#endif
