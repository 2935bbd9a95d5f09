/*
 * --record writes to a file which pages this run waits for; --replay fetches ahead the pages that a
 * recorded run waited for.  Only the program that was started takes part: neither a child nor a
 * program that it executes does.
 *
 * order.h has the file, table.h the table that kern reads.
 */
#ifndef VMRUN_REPLAY_HOST_H
#define VMRUN_REPLAY_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Opens the files that the options name; a mistake ends vmrun with a message. */
void replay_init(void);
/* Pages of the cache.  A program that is recorded has half of it.  Two runs never evict quite equal
 * sets of pages; a cache of half the size lacks nearly all pages that the whole cache may lack. */
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
