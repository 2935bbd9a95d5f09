/*
 * The content and the end of the objects of the registry.
 */
#ifndef VMRUN_FILES_READ_H
#define VMRUN_FILES_READ_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "vm/thread.h"

/* Fills n frames from offset off on: see EXIT_FILE_READ.  frame numbers index the cache. */
int64_t files_read(uint32_t id, uint64_t off, const uint32_t *frame, uint32_t n);
/* Pages from off up to the end of the object. */
int64_t files_pages_left(uint32_t id, uint64_t off);

/* What /proc/PID/maps shows of an object: path as the kernel writes it (" (deleted)" included),
 * device and inode.  0 or -EBADF. */
int file_describe(uint32_t id, char *path, size_t n, dev_t *dev, ino_t *ino);

/* EXIT_FILE_READ, EXIT_SHARED_CHECK, EXIT_MINCORE */
int64_t files_exit_read(struct thread *t, struct exit_req *rq);
int64_t files_exit_shared_check(struct thread *t, struct exit_req *rq);
int64_t files_exit_mincore(struct thread *t, struct exit_req *rq);

#endif
