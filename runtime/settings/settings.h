/*
 * Settings by name and value, as the command line and the configuration file both give them.
 *
 * Functions return 0 or -errno; where there is a `why`, it then receives the cause and the cure,
 * without the name and the value, which the caller knows how to show.  Texts are copied, and the
 * copies belong to the options or to the node.
 */
#ifndef VMRUN_SETTINGS_H
#define VMRUN_SETTINGS_H

#include <stddef.h>
#include "base/options.h"

#define SETTING_WHY 320
#define SETTINGS_MAX 16

/* The number, below SETTINGS_MAX, of a setting of the section [vmrun], most of which are options of
 * the same name; -ENOENT. */
int setting_find(const char *name);
/* For a key that is no setting: what to write instead. */
void setting_unknown(const char *key, const char *value, char why[SETTING_WHY]);
/* That of n words for which `text` is likely a mistake, such as cahce or Cache_MB; NULL: none. */
const char *near_word(const char *text, const char *const words[], size_t n);
int setting_set(struct options *o, int number, const char *value, char why[SETTING_WHY]);
/* What holds where nobody says anything; the cache is chosen later. */
void settings_default(struct options *o);
/* Bytes of cache where none is given: a quarter of the memory that is available now. */
uint64_t cache_default(void);

/* Fills opt.  --help, --version and mistakes end the process here; afterwards opt.cache is chosen.
 * (options.c) */
void options_parse(int argc, char **argv);
/* To follow what is said of a program that cannot be had, which may be meant for something else. */
const char *options_hint(void);

/* A node under construction: the keys of a section, or of the query that follows a URL on the
 * command line. */
struct node_draft {
        struct node_option node;
        unsigned given;                 /* bit n: key number n was */
};
void node_draft_init(struct node_draft *d);
/* -ENOENT: no such key; -EEXIST: given twice.  "url" also takes the options in the URL's query,
 * rdma://m1?size=4G&weight=2. */
int node_draft_set(struct node_draft *d, const char *key, const char *value, char why[SETTING_WHY]);
/* What only all keys together can tell. */
int node_draft_check(const struct node_draft *d, char why[SETTING_WHY]);
/* Frees what a node holds. */
void node_option_free(struct node_option *n);

/* Makes paths in o absolute by the working directory of now.  (absolute.c) */
void options_make_absolute(struct options *o);

/* Reads a configuration file into o: [vmrun] over what o holds, each [node NAME] as a node (o has
 * none yet).  why: one sentence that begins with file and line.  (config.c) */
int config_read(struct options *o, const char *path, char *why, size_t n);
/* The file that is read when none is named: the first there is; NULL: none.  Static storage.
 * (config.c) */
const char *config_default(void);

#endif
