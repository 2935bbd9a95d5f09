/*
 * Facts that stand beside the numbers (facts.c).
 */
#ifndef VMRUN_STATS_FACTS_H
#define VMRUN_STATS_FACTS_H

/* Finds them out, if there are to be statistics, and registers them. */
void facts_register(void);

#endif
