/*
 * The settings of this run, as a part of --stats.
 */
#ifndef VMRUN_SETTINGS_STATS_H
#define VMRUN_SETTINGS_STATS_H

struct stats;

/* For stats_register(). */
void settings_stats(struct stats *s);

#endif
