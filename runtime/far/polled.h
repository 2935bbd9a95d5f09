/*
 * Requests of the guest are taken off the vCPUs' rings (abi_rings.h).
 *
 * A program may have a thousand threads, of which few fault at a time.  So the I/O side polls the
 * rings of those vCPUs that have used them lately, and hears of the others through
 * control.io_news.  The I/O side (io.c) calls these, one thread at a time.
 */
#ifndef VMRUN_FAR_POLLED_H
#define VMRUN_FAR_POLLED_H

#include <stdbool.h>

/* Begins the requests that are there, all demand reads first.  Returns how many. */
unsigned polled_take(void);
/* May there be requests?  Not if there were none when it was called. */
bool polled_have_news(void);
/* In a forked child, whose rings are new: none is polled. */
void polled_forked(void);

#endif
