/*
 * The registry of mapped file objects: what kern's VMAs mean by a file id.
 *
 * An id stands for one object (device, inode, open mode).  Private mappings read their pages
 * through it on demand; each of kern's VMAs holds a reference.  Shared ones are mapped by the host
 * (arena.h), and the id, which lives as long as a page of it is mapped there, serves to name the
 * object and to know where it ends.  All functions may be called by any thread.
 */
#ifndef VMRUN_FILES_H
#define VMRUN_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "memory/arena.h"
#include "vm/thread.h"

/* Until this is called the loader may map private fds; afterwards they are EBADF, since the program
 * must not see them. */
void files_program_starts(void);

/* The registry without exits, for the tests.  0, or the errors of Linux's mmap.  Sets m->unit, and
 * rounds m->len up to it if the file is of huge pages. */
int files_map_private(struct file_mapping *m);
int files_map_shared(struct vm *vm, struct file_mapping *m);
/* Registers an attachment of a System V segment of size bytes, which takes that many pages of the
 * arena.  An id, or FILE_NONE: no memory. */
uint32_t files_segment(int shmid, uint32_t key, uint64_t size, uint64_t pages);
/* Adds or drops a reference of a private mapping.  0, or -EBADF for an id that does not exist or is
 * shared. */
int files_ref(uint32_t id, int change);
/* That many pages of a shared object left the arena (arena.h). */
void files_unmapped(uint32_t id, uint64_t pages);
/* The next id after `id` that is mapped shared, FILE_NONE after the last: to find a truncated
 * file. */
uint32_t files_next_shared(uint32_t id);
/* The next id after `id` that is a private mapping of that file; FILE_NONE after the last. */
uint32_t files_next_private(uint32_t id, dev_t dev, ino_t ino);

/* How many ids are alive: 0 at the end, when nothing is mapped. */
unsigned files_live(void);

/* EXIT_FILE_MAP, EXIT_ANON_SHARED, EXIT_SHARED_AGAIN, EXIT_SHARED_UNMAP, EXIT_FILE_REF */
int64_t files_exit_map(struct thread *t, struct exit_req *rq);
int64_t files_exit_anon_shared(struct thread *t, struct exit_req *rq);
int64_t files_exit_again(struct thread *t, struct exit_req *rq);
int64_t files_exit_unmap(struct thread *t, struct exit_req *rq);
int64_t files_exit_ref(struct thread *t, struct exit_req *rq);

#endif
