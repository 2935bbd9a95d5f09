/*
 * For t_shm: the outcome of an access to memory.
 */
#ifndef T_SHM_H
#define T_SHM_H

#include "t_child.h"

/* Loads or stores a byte, which keeps its value. 0, or the signal that came of it, whose siginfo
 * must be as Linux says it: the very address, SEGV_MAPERR or SEGV_ACCERR, BUS_ADRERR. */
int touch(void *p, bool write);

/*
 * The line of /proc/self/maps at p, which has n pages: the text behind the addresses, with one
 * number in each of two formats.
 */
void expect_maps(const void *p, uint64_t n, const char *middle, int number, const char *name,
                 unsigned key);

/* t_shm_files.c */
void shared_files_tests(void);

#endif
