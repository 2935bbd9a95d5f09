/*
 * The formats in which a snapshot is printed, each by the file of its name.
 */
#ifndef VMRUN_STATS_FORMATS_H
#define VMRUN_STATS_FORMATS_H

#include <stdio.h>
#include "stats/model.h"

void stats_print_flat(const struct stats *s, FILE *f);
void stats_print_json(const struct stats *s, FILE *f);
void stats_print_prom(const struct stats *s, FILE *f);
void stats_print_table(const struct stats *s, FILE *f);

/* Of table.c, for people: "1.23 us", "12.3 ms"; "1,234,567". */
const char *stats_ns_text(uint64_t ns, char to[32]);
const char *stats_number_text(uint64_t n, char to[32]);

#endif
