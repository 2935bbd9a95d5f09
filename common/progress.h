/*
 * How far long work is: one line on the terminal of standard error, written over and over; without
 * a terminal nothing.
 */
#ifndef COMMON_PROGRESS_H
#define COMMON_PROGRESS_H

/* By one thread.  text: one line, without its end, narrower than the terminal. */
void progress_show(const char *text);
/* Before anything else is printed there, and at the end: erases the line. */
void progress_end(void);

#endif
