/*
 * Verdicts on the numbers: gauges, and sentences for people.
 */
#ifndef VMRUN_STATS_VERDICT_H
#define VMRUN_STATS_VERDICT_H

#include <stdio.h>
#include "stats/model.h"

/* Adds the verdicts as gauges, 1 or 0. */
void stats_judge(struct stats *s);
/* A line for each verdict that is 1, with what to try; or one that says that none is. */
void stats_print_verdict(const struct stats *s, FILE *f);

#endif
