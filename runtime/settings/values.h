/*
 * Kinds of values that settings and nodes have, from the text that a person wrote.
 *
 * Functions return 0, or -errno with the cure in `why`.
 */
#ifndef VMRUN_SETTINGS_VALUES_H
#define VMRUN_SETTINGS_VALUES_H

#include <stdbool.h>
#include <stdint.h>
#include "settings/settings.h"

/* A decimal number from least to most, without sign or blanks. */
int number_parse(const char *text, unsigned least, unsigned most, unsigned *number,
                 char why[SETTING_WHY]);
/* Seconds, "10" or "0.5", to milliseconds. */
int seconds_parse(const char *text, unsigned *ms, char why[SETTING_WHY]);
/* One of `words`, which end with NULL: its number. */
int word_parse(const char *text, const char *const words[], int *number, char why[SETTING_WHY]);
/* "yes" or "no". */
int flag_parse(const char *text, bool *flag, char why[SETTING_WHY]);
/* Any text but an empty one: a copy of it, for the caller to free. */
int text_parse(const char *text, const char **copy, char why[SETTING_WHY]);
/* Bytes a second, "12.5G", with the powers of 1000 that networks have. */
int bandwidth_parse(const char *text, uint64_t *rate, char why[SETTING_WHY]);

#endif
