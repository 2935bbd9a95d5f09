/*
 * How a line of the log begins: for journald with its level, which journald takes off; elsewhere,
 * once memnode serves, with the time.
 */
#ifndef MEMNODE_LOG_H
#define MEMNODE_LOG_H

/* main() calls it first. */
void log_begin(void);
/* From here on lines have times, and a reader that stops reading does not stop memnode. */
void log_open(void);

#endif
