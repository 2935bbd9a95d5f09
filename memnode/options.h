/*
 * The command line, and the settings by name that it shares with the configuration file.
 *
 * Functions return 0 or -errno with one sentence in why, which names the option or file and line,
 * the value, the cause and the cure.
 */
#ifndef MEMNODE_OPTIONS_H
#define MEMNODE_OPTIONS_H

#include "memnode.h"

#define WHY_MAX 512

/* One setting by its name, "size" as in --size and in the file.  (options.c) */
struct setting {
        const char *name;
        /* Stores the value in o; a copy of it where o keeps a string.  The sentence begins with the
         * cause. */
        int (*set)(struct memnode_options *o, const char *value, char why[WHY_MAX]);
        /* without a value on the command line; yes or no in the file */
        bool flag;
        bool list;                      /* may be given several times */
        bool typed;                     /* on the command line only */
};
const struct setting *setting_find(const char *name);
/* The setting that a file probably meant; NULL: none. */
const char *setting_near(const char *name);
int setting_export(struct memnode_options *o, const char *name, const char *size,
                   char why[WHY_MAX]);
/* One of the settings of a key: quota, reserve, connections. */
int setting_client(struct memnode_options *o, const char *client, const char *name,
                   const char *value, char why[WHY_MAX]);

/* What the command line says, over what the configuration file says, over the defaults.  --help and
 * --version print and end here.  argv must stay valid.  The caller owns o and frees it. */
int options_parse(struct memnode_options *o, int argc, char **argv, char why[WHY_MAX]);
void options_free(struct memnode_options *o);
/* Is there a --listen URL that begins so? */
bool options_listen(const struct memnode_options *o, const char *protocol);
/* A URL of --listen at which other hosts would be served without keys, which must not be; or
 * NULL. */
const char *options_lack_keys(const struct memnode_options *o);
/* Checks that need all settings together. */
int options_check(const struct memnode_options *o, char why[WHY_MAX]);

#endif
