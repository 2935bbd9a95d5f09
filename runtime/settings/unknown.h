/*
 * Keys that do not exist: what was probably meant.
 */
#ifndef VMRUN_SETTINGS_UNKNOWN_H
#define VMRUN_SETTINGS_UNKNOWN_H

#include <stddef.h>
#include "settings/settings.h"

/* The one of n words that `text` probably misspells, such as cahce or Cache_MB; NULL: none. */
const char *near_word(const char *text, const char *const words[], size_t n);
/* Why a key that is none of the words is refused; `where`: its place. */
void unknown_say(const char *key, const char *value, const char *const words[], size_t n,
                 const char *where, char why[SETTING_WHY]);

#endif
