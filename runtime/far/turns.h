/*
 * Turns at the I/O side's work where there is no I/O thread (--io inline, io.c): of the threads
 * that wait, one at a time polls, for all.  The others sleep until their own wait is over, or until
 * it is their turn.
 */
#ifndef VMRUN_FAR_TURNS_H
#define VMRUN_FAR_TURNS_H

#include <stdbool.h>
#include <stdint.h>

/* This thread waits until the word is no longer `seen`.  True: the thread is to poll, until then at
 * least, and calls turn_over() after that.  False: the wait is over, or another thread polls and
 * there was nothing to wait for. */
bool turn_begin(const void *word, uint32_t seen);
/* By the thread that polls, after each step: wakes threads whose wait is over. */
void turn_tell(void);
/* This thread polls no more: the thread that has waited longest polls from here on. */
void turn_over(void);
/* In a forked child no other thread waits. */
void turns_forked(void);

#endif
