/*
 * --record and --replay: what this run waits for is written to a file; what a recorded run waited
 * for is fetched ahead.  Of the program that was started alone: neither a child nor a program that
 * it executes takes part.
 *
 * order.h is the file, table.h what kern makes of it.
 */
#ifndef VMRUN_REPLAY_HOST_H
#define VMRUN_REPLAY_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Opens the files that the options name; a mistake ends vmrun with a message. */
void replay_init(void);
/* Pages of the cache.  A program that is recorded has half of it.  Which pages leave the cache is
 * never quite the same in two runs; what a cache of half the size lacks are nearly all pages that
 * the whole one may lack. */
uint64_t replay_frames(void);
/* Bytes of guest RAM that are needed behind the cache; 0: neither option was given. */
uint64_t replay_room(void);
/* The VM has its memory, but no vCPU yet.  exe: the program's file; heap: where its heap starts. */
void replay_start(const char *exe, uint64_t heap);
/* EXIT_FILE_MAPPED.  Lengths in bytes. */
void replay_file_mapped(uint32_t id, uint64_t off, uint64_t len, uint64_t addr);
/* A mapping of a file goes, and with the last one the file's number. */
void replay_file_goes(uint32_t id);
/* The program is over, or about to be replaced: writes the record.  Its threads are stopped. */
void replay_end(void);
/* In a child of fork, which has one thread. */
void replay_forked(void);

#endif
