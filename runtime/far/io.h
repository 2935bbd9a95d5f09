/*
 * The I/O thread (io.c).
 */
#ifndef VMRUN_FAR_IO_H
#define VMRUN_FAR_IO_H

#include <stdbool.h>
#include <stdint.h>

struct far_node;
struct slot_pieces;
struct vm;

/* Attaches the remote nodes and starts the thread, once: before the first slab of one of them is
 * used.  pieces: of the tree (far/tree.h). */
void io_start(struct vm *vm, struct slot_pieces *pieces);
/* Adds a node to the table; if the other nodes are attached, attaches it first.  Under the lease
 * lock (slabs.c), by one thread at a time, which is not within io_hold().  why: FAR_WHY bytes. */
int io_add(struct far_node *n, char *why);
/* Waits until the nodes are attached: for a thread that asks a node for more than pages.  In a
 * forked child the I/O thread attaches them, which takes as long as they take to answer. */
void io_wait_attached(void);
bool io_is_attached(void);
/* --io inline: does the I/O thread's work until the word is no longer `seen`.  Any thread. */
void io_wait(const void *word, uint32_t seen);
/* --io inline: looks after connections, and repairs, while no vCPU waits for a page.  Any
 * thread. */
void io_keep(void);
/* With --io inline: one turn, if no other thread is at it. */
void io_turn(void);
/* Called before this thread gets other credentials, where a node's driver wants those with which
 * the node was opened: threads of vmrun's own that are made from now on have them; and with --io
 * inline an I/O thread, which has them, moves pages.  Not by a child of vfork. */
void io_keep_rights(void);
/* Wakes the I/O thread, if it sleeps, for work that is on no ring.  Any thread, not during fork. */
void io_wake(void);
/* The I/O thread is quiesced, outside of any driver, from io_hold() to io_release(). */
void io_hold(void);
void io_release(void);
/* Between io_hold() and io_release(): io_end() ends the thread, and io_again() starts another, for
 * another VM if need be.  Nodes stay connected. */
void io_end(void);
void io_again(void);
/* In a forked child: there is no I/O thread and no transfer under way. */
void io_forked(void);
/* At the end of the program, after slabs_stop(): makes sure that no thread calls a driver any more.
 * False: not within limit_ms.  A thread that waits for a page from here on waits for ever.  The I/O
 * thread itself must not call this. */
bool io_stop(unsigned limit_ms);

#endif
