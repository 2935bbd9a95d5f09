/*
 * A thread that calls a function at intervals, until the process ends.
 */
#ifndef MEMNODE_EVERY_H
#define MEMNODE_EVERY_H

/* ms: from the end of one call to the next.  Only one thread for each `fn`.  0 or -errno. */
int every(unsigned ms, void (*fn)(void));

#endif
