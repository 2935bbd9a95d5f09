/*
 * Mistakes that getopt_long() finds.
 */
#ifndef COMMON_BAD_OPTION_H
#define COMMON_BAD_OPTION_H

#include <getopt.h>
#include <stddef.h>

/* Why getopt_long() has returned c, '?' or ':', and the cure: its own messages do not name one.
 * opterr is 0, and the short options begin with a colon.  help: what tells all options, as in
 * "vmrun --help". */
void bad_option(char **argv, int c, const struct option *options, const char *help, char *why,
                size_t n);

#endif
