/*
 * The command line.
 */
#ifndef VMRUN_SETTINGS_COMMAND_LINE_H
#define VMRUN_SETTINGS_COMMAND_LINE_H

/* Fills opt, and chooses opt.cache.  --help, --version and mistakes end the process here. */
void options_parse(int argc, char **argv);
/* Text to append to the message about a program that cannot be run, if its name may have been meant
 * for something else. */
const char *options_hint(void);

#endif
