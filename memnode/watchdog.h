/*
 * systemd's watchdog (WatchdogSec=): fed as long as the threads that serve go on.
 */
#ifndef MEMNODE_WATCHDOG_H
#define MEMNODE_WATCHDOG_H

/* Before the first thread starts; nothing if systemd does not ask for it. */
void watchdog_open(void);
/* memnode serves: the feeding begins.  watchdog_end(): no thread is watched any more. */
void watchdog_begin(void);
void watchdog_end(void);

#endif
