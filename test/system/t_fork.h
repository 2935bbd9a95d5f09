/*
 * For t_fork.
 */
#ifndef T_FORK_H
#define T_FORK_H

#include "t_child.h"

/* How much the tests do, in per cent (t_fork.c). */
extern unsigned effort;
static inline unsigned times(unsigned n) { return n * effort / 100; }

/* t_fork_threads.c */
void thread_tests(void);
/* t_fork_process.c */
void process_tests(void);

#endif
