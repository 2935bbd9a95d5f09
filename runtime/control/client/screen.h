/*
 * A screen on standard output that is refreshed in place, and how the user ends it.
 */
#ifndef VMRUN_CONTROL_SCREEN_H
#define VMRUN_CONTROL_SCREEN_H

#include <stdbool.h>

/* From here on Ctrl-C and SIGTERM end screen_wait() for good.  If a screen is wanted and standard
 * output is a terminal, there is one until screen_end(), and q does so, too. */
void screen_begin(bool wanted);
void screen_end(void);
bool screen_is_there(void);
/* Puts the text in place of the one before, cut to the size of the terminal; just prints it where
 * there is no screen.  False: nobody reads it any more. */
bool screen_show(const char *text);
/* True: it is to end. */
bool screen_wait(unsigned ms);
bool screen_is_over(void);

#endif
