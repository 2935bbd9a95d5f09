/*
 * The thread of --stats-interval, and its part in a fork.
 */
#ifndef VMRUN_STATS_INTERVAL_H
#define VMRUN_STATS_INTERVAL_H

/* --stats-interval: starts the thread that reports while the program runs; nothing without.
 * stats_interval_rest() ends it, for a process that must have one thread. */
void stats_interval_start(void);
void stats_interval_rest(void);
/* For fork: no other thread collects or prints, or uses malloc for it, from stats_hold() to
 * stats_release().  In the child stats_forked() takes the place of stats_release(), once all owners
 * are up: its counts begin at 0. */
void stats_hold(void);
void stats_release(void);
void stats_forked(void);

#endif
