/*
 * Threads that show that they go on, for systemd's watchdog.
 */
#ifndef MEMNODE_PULSE_H
#define MEMNODE_PULSE_H

/* The threads whose standstill would be memnode's: the one that serves signals and the control
 * socket, and those to which clients come. */
enum pulse { PULSE_MAIN, PULSE_NBD, PULSE_RDMA, PULSES };

/* From here on they show it at least each `ms`.  Before the first thread starts. */
void pulse_watch(unsigned ms);
/* This thread is about to sleep for at most `ms`, as poll() has it: returns for how long it may. */
int pulse_beat(enum pulse p, int ms);
/* One that has not shown anything for `ms`, in words; NULL: there is none. */
const char *pulse_late(unsigned ms);

#endif
