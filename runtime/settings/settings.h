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

/* The number, below SETTINGS_MAX, of a setting of the section [vmrun], most of which are options of
 * the same name; -ENOENT. */
int setting_find(const char *name);
/* For a key that is not a setting: what to write instead. */
void setting_unknown(const char *key, const char *value, char why[SETTING_WHY]);
int setting_set(struct options *o, int number, const char *value, char why[SETTING_WHY]);
/* Its name; NULL: there are not so many. */
const char *setting_name(int number);
/* What it is set to, as text that would set it.  True: that is a number. */
bool setting_show(const struct options *o, int number, char text[SETTING_TEXT]);
struct stats;
/* For stats_register().  (stats.c) */
void settings_stats(struct stats *s);
/* Fills in the defaults; the cache is chosen later. */
void settings_default(struct options *o);
/* The default size of the cache in bytes: a quarter of the memory that is available now. */
uint64_t cache_default(void);

/* Fills opt.  --help, --version and mistakes end the process here; afterwards opt.cache is chosen.
 * (options.c) */
void options_parse(int argc, char **argv);
/* Text to append to the message about a program that cannot be run, if its name may have been meant
 * for something else. */
const char *options_hint(void);

/* A node under construction: the keys of a section, or of the query that follows a URL on the
 * command line.  (node.c) */
struct node_draft {
        struct node_option node;
        unsigned given;                 /* bit n: key number n was given */
};
void node_draft_init(struct node_draft *d);
/* -ENOENT: no such key; -EEXIST: given twice.  "url" also takes the options in the URL's query,
 * rdma://m1?size=4G&weight=2. */
int node_draft_set(struct node_draft *d, const char *key, const char *value, char why[SETTING_WHY]);
/* Checks that need all keys together. */
int node_draft_check(const struct node_draft *d, char why[SETTING_WHY]);
/* Frees what a node holds. */
void node_option_free(struct node_option *n);

/* Makes paths in o absolute, which are meant in the folder `in`; NULL: in the working directory.
 * (absolute.c) */
void options_make_absolute(struct options *o, const char *in);

/* Reads a configuration file into o: [vmrun] over what o holds, each [node NAME] as a node (o has
 * none yet).  why: one sentence that begins with file and line.  (config.c) */
int config_read(struct options *o, const char *path, char *why, size_t n);
/* The file that is read if none is named: the first that exists; NULL: none.  Static storage.
 * (config.c) */
const char *config_default(void);

/* Pages a prefetch may ask for, as set or by default. */
uint32_t prefetch_window(const struct options *o);

#endif
