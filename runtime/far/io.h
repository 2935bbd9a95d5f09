/*
 * The I/O thread (io.c).
 */
#ifndef VMRUN_FAR_IO_H
#define VMRUN_FAR_IO_H

#include <stdbool.h>
#include <stdint.h>

struct vm;

/* Attaches the remote nodes and starts the thread, once: before the first slab of one of them exists. */
int io_start(struct vm *vm);
/* --io inline: does the I/O thread's work until the word is no longer `seen`.  Any thread. */
void io_wait(const void *word, uint32_t seen);
/* The program is over: no driver's post, poll or arm is called any more.  False: the I/O thread did not let go of them within a second. */
bool io_stop(void);

#endif
