/*
 * The configuration file.
 */
#ifndef VMRUN_SETTINGS_CONFIG_FILE_H
#define VMRUN_SETTINGS_CONFIG_FILE_H

#include <stddef.h>
#include "base/options.h"

/* Reads a configuration file into o: [vmrun] over what o holds, each [node NAME] as a node (o has
 * none yet).  why: one sentence that begins with file and line. */
int config_read(struct options *o, const char *path, char *why, size_t n);
/* The file that is read if none is named: the first that exists; NULL: none.  Static storage. */
const char *config_default(void);

#endif
