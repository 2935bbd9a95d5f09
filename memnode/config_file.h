/*
 * The configuration file.
 */
#ifndef MEMNODE_CONFIG_FILE_H
#define MEMNODE_CONFIG_FILE_H

#include "options.h"

/* Adds to o what the file at path says.  0, or -errno with one sentence in why. */
int config_read(struct memnode_options *o, const char *path, char why[WHY_MAX]);

#endif
