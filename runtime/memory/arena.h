/*
 * The arena: where MAP_SHARED mappings live.
 *
 * A shared mapping is not far memory.  The host maps the real object inside one range of its own
 * address space, which the guest sees at the top of its physical space, and kern points the
 * program's PTEs there.  This file allocates ranges and does not know their content (files.c does).
 * Ranges are multiples of the object's pages and named by guest-physical address.  All functions
 * may be called by any thread.
 */
#ifndef VMRUN_ARENA_H
#define VMRUN_ARENA_H

#include <stdbool.h>
#include <stdint.h>
#include "vm/thread.h"

/* Host address of an arena page, NULL if gpa is not in the part in use.  For gmem: reading there
 * may raise SIGBUS (truncation). */
void *arena_host(uint64_t gpa);

/* A mapping of [off, off + len) of fd.  prot, flags: the program's; addr: where it must lie
 * (MAP_FIXED), else 0.  unit: the size of the file's pages (base/map_unit.h), of which all three
 * are multiples. */
struct file_mapping {
        int fd, prot, flags;
        uint64_t addr, off, len, unit;
        /* OUT: file id (files.h); where it lies in the arena, if it is shared; the PROT_* that the
         * program may never turn on there. */
        uint32_t id;
        uint64_t gpa;
        int refused;
};

/* Maps m, shared, at a free range, m->gpa, for file `owner`.  0, or the error of mmap (-ENOMEM also
 * when the arena or the memory slots are used up); then the caller must give the owner's pages
 * back. */
int arena_map_fd(struct vm *vm, uint32_t owner, struct file_mapping *m);
/* Maps len bytes, shared, of memory that no file names (MAP_SHARED|MAP_ANONYMOUS).  Errors as
 * arena_map_fd(). */
int arena_map_anonymous(struct vm *vm, uint32_t owner, uint64_t len, uint64_t *gpa);
/* Maps again, at a free range, the object that is mapped at `from`, from there on: len bytes, whole
 * pages, which may extend beyond the old mapping.  Errors as above, and those of mremap. */
int arena_map_again(struct vm *vm, uint32_t owner, uint64_t from, uint64_t len, uint64_t *gpa);
/* Attaches a System V segment of len bytes; flags: SHM_RDONLY, SHM_EXEC.  len bytes and one page
 * are taken for the owner; on success the owner has one page less than that.  Errors as above, and
 * those of shmat. */
int arena_attach(struct vm *vm, uint32_t owner, int shmid, int flags, uint64_t len, uint64_t *gpa);
/* Called under the arena's lock when that many pages of the owner are gone. */
typedef void arena_gone_fn(uint32_t owner, uint64_t pages);
/* Gives a range back: any part of what was mapped, also of several mappings.  The guest has no
 * translation of it left.  Calls `gone` with the pages of each owner.  0, or -EINVAL, and nothing
 * changed, if part of it is not in use. */
int arena_unmap(uint64_t gpa, uint64_t len, arena_gone_fn *gone);

/* KVM met a page in the arena that has no memory, and no end of its object explains it: the pool of
 * huge pages is empty, a file system full.  From now on arena_there() looks at each page. */
void arena_distrust(void);
/* How many of the `left` pages of the object from gpa on may be mapped, when the program touches
 * the first: all; but after arena_distrust() only the first, which gets its memory now, or 0 if
 * there is none. */
int64_t arena_there(uint64_t gpa, bool write, int64_t left);

/* In a forked child, where all mappings are as in the parent: adds them to its new VM.  0 or
 * -errno. */
int arena_forked(struct vm *vm);

/* Bytes in use, and bytes for which KVM has memory slots. */
void arena_usage(uint64_t *used, uint64_t *backed);

/* Copies into the arena (in), or out of it; -EFAULT where the object is truncated, or read-only.
 * 0, or -errno; a failure may have copied a part. */
int arena_copy(uint64_t gpa, void *buffer, uint64_t len, bool in);

/* EXIT_MSYNC, EXIT_ARENA_COPY */
int64_t arena_exit_msync(struct thread *t, struct exit_req *rq);
int64_t arena_exit_copy(struct thread *t, struct exit_req *rq);

#endif
