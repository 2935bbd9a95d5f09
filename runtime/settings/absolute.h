/*
 * Paths of options, made absolute.
 */
#ifndef VMRUN_SETTINGS_ABSOLUTE_H
#define VMRUN_SETTINGS_ABSOLUTE_H

#include "base/options.h"

/* Makes the paths in o absolute.  They are relative to the folder `in`; NULL: to the working
 * directory. */
void options_make_absolute(struct options *o, const char *in);

#endif
