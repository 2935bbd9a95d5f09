/*
 * The I/O thread (io.c).
 */
#ifndef VMRUN_FAR_IO_H
#define VMRUN_FAR_IO_H

#include <stdbool.h>
#include <stdint.h>

struct far_node;
struct vm;

/* Once the TSC's rate is known, before the program runs: how long a vCPU looks at a page under way
 * before it sleeps, for a start. */
void io_first_wait(void);
/* Attaches the remote nodes and starts the thread, once: before the first slab of one of them is
 * used. */
void io_start(struct vm *vm);
/* A forked child's thread attaches by itself, which takes as long as its nodes take to answer; who
 * wants more of them than pages waits here. */
void io_wait_attached(void);
/* --io inline: does the I/O thread's work until the word is no longer `seen`.  Any thread. */
void io_wait(const void *word, uint32_t seen);
/* Who decides what becomes of the program when a node is lost that has pages of it (n->why).
 * Called by the thread that does the I/O, outside of all drivers. */
void io_on_loss(void (*owner)(const struct far_node *n));
/* For fork: the I/O thread stands still, outside of any driver, from io_hold() to io_release(). */
void io_hold(void);
void io_release(void);
/* Between the two: ends the thread, and makes it again, in another VM if need be.  Nodes stay
 * connected. */
void io_end(void);
void io_again(void);
/* In a forked child: there is none, nor any transfer under way. */
void io_forked(void);
/* At the end of the program, with the sequence of slabs stopped: no thread calls a driver any more.
 * False: not within limit_ms.  Who waits for a page from here on waits for ever.  Not for the I/O
 * thread itself. */
bool io_stop(unsigned limit_ms);

#endif
