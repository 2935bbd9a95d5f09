/*
 * For t_fork.
 */
#ifndef T_FORK_H
#define T_FORK_H

#include "t_child.h"

/* t_fork_threads.c */
void thread_tests(void);
/* t_fork_process.c */
void process_tests(void);

#endif
