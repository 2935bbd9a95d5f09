/*
 * The I/O thread (io.c).
 */
#ifndef VMRUN_FAR_IO_H
#define VMRUN_FAR_IO_H

#include <stdbool.h>
#include <stdint.h>

struct far_node;
struct vm;

/* Called once the TSC's rate is known, before the program runs: sets the first value of how long a
 * vCPU polls a BUSY entry before it sleeps. */
void io_first_wait(void);
/* Attaches the remote nodes and starts the thread, once: before the first slab of one of them is
 * used. */
void io_start(struct vm *vm);
/* Adds a node to the table; if the others are attached, it is attached before that.  Under the
 * lease lock (slabs.c), by one thread at a time, which is not within io_hold().  why: FAR_WHY
 * bytes. */
int io_add(struct far_node *n, char *why);
/* In a forked child the I/O thread attaches the nodes itself, which takes as long as they take to
 * answer.  A thread that wants more from a node than pages waits here. */
void io_wait_attached(void);
bool io_is_attached(void);
/* --io inline: does the I/O thread's work until the word is no longer `seen`.  Any thread. */
void io_wait(const void *word, uint32_t seen);
/* Sets the function that decides what becomes of the program when a node with its pages is lost
 * (n->why).  It is called by the thread that does the I/O, outside of all drivers. */
void io_on_loss(void (*owner)(const struct far_node *n));
/* For fork: the I/O thread is quiesced, outside of any driver, from io_hold() to io_release(). */
void io_hold(void);
void io_release(void);
/* Between those two: ends the thread, and makes it again, in another VM if need be.  Nodes stay
 * connected. */
void io_end(void);
void io_again(void);
/* In a forked child: there is no I/O thread and no transfer under way. */
void io_forked(void);
/* At the end of the program, after slabs_stop(): makes sure that no thread calls a driver any more.
 * False: not within limit_ms.  A thread that waits for a page from here on waits for ever.  The I/O
 * thread itself must not call this. */
bool io_stop(unsigned limit_ms);

#endif
