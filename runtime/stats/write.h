/*
 * A snapshot with its verdicts, printed in the format that is asked for.
 */
#ifndef VMRUN_STATS_WRITE_H
#define VMRUN_STATS_WRITE_H

#include <stdio.h>
#include "stats/model.h"

/* stats_count_up(), with the verdicts. */
int stats_collect(struct stats *s);
void stats_print(const struct stats *s, FILE *f, enum stats_format format);
/* A snapshot of now.  0 or -ENOMEM. */
int stats_put(FILE *f, enum stats_format format);

#endif
