/*
 * Settings by name and value, for both the command line and the configuration file.
 *
 * Functions return 0 or -errno; if there is a `why`, it then receives the cause and the cure,
 * without the name and the value, which the caller shows.  Texts are copied, and the copies belong
 * to the options or to the node.
 */
#ifndef VMRUN_SETTINGS_H
#define VMRUN_SETTINGS_H

#include <stddef.h>
#include "base/options.h"

#define SETTING_WHY 320
#define SETTING_TEXT 256
#define SETTINGS_MAX 32

/* The number, below SETTINGS_MAX, of a setting of the section [vmrun]; -ENOENT.  Most settings are
 * options of the command line, too. */
int setting_find(const char *name);
/* For a key that is not a setting: what to write instead.  what: as in "unknown key". */
void setting_unknown(const char *key, const char *value, const char *what, char why[SETTING_WHY]);
int setting_set(struct options *o, int number, const char *value, char why[SETTING_WHY]);
/* Its name; NULL: there is no setting of that number. */
const char *setting_name(int number);
/* Its value, as text that would set it.  True: the text is a number. */
bool setting_show(const struct options *o, int number, char text[SETTING_TEXT]);
/* What its number counts, "bytes" or "seconds", for people; NULL: nothing has to be said. */
const char *setting_unit(int number);
/* Fills in the defaults; the cache is chosen later. */
void settings_default(struct options *o);
/* The default size of the cache in bytes: a quarter of the memory that is available now. */
uint64_t cache_default(void);
/* Pages a prefetch may ask for, as set or by default. */
uint32_t prefetch_window(const struct options *o);

#endif
