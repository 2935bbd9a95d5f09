/*
 * --pidfile: memnode's number, in a file that is there while clients can connect.
 */
#ifndef MEMNODE_PIDFILE_H
#define MEMNODE_PIDFILE_H

#include <stddef.h>

/* Once memnode listens.  0, or -errno with a sentence in why. */
int pidfile_write(const char *path, char *why, size_t n);
/* At a clean end. */
void pidfile_remove(void);

#endif
