/*
 * Keys that do not exist: what was probably meant.
 */
#ifndef VMRUN_SETTINGS_UNKNOWN_H
#define VMRUN_SETTINGS_UNKNOWN_H

#include <stddef.h>
#include "settings/settings.h"

/* Why a key that is none of the words is refused; what: as in "unknown key". */
void unknown_say(const char *key, const char *value, const char *const words[], size_t n,
                 const char *what, char why[SETTING_WHY]);

#endif
