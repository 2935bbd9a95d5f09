/*
 * --stats: figures for Prometheus, in a file that the node exporter's textfile collector reads.
 */
#ifndef MEMNODE_STATS_H
#define MEMNODE_STATS_H

#include <stddef.h>

/* At the start: finds the place of the file, and takes over what the file of the memnode before
 * this one counted.  0, or -errno with a sentence in why. */
int stats_open(const char *path, char *why, size_t n);
/* So many leases were taken over from the memnode before. */
void stats_resumed(unsigned leases);
/* memnode serves: writes the file, and then each interval_ms. */
void stats_begin(unsigned interval_ms);
/* The last figures: memnode has ended.  Nothing is read from the servers any more. */
void stats_end(void);

#endif
