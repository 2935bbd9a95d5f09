/*
 * The arena: where MAP_SHARED mappings live.
 *
 * A shared mapping is not far memory: the host maps the real object inside one range of its own
 * address space, which the guest sees at the top of its physical space, and kern points the
 * program's PTEs there.  This file hands out ranges and knows nothing of what is in them (files.c
 * does).  Ranges are multiples of a page and named by guest-physical address. All functions may be
 * called by any thread.
 */
#ifndef VMRUN_ARENA_H
#define VMRUN_ARENA_H

#include <stdbool.h>
#include <stdint.h>
#include "vm/thread.h"

/* Host address of an arena page, NULL if gpa is not in the part in use.  gmem: reading there may
 * raise SIGBUS (truncation). */
void *arena_host(uint64_t gpa);

/* Maps [off, off+len) of fd, shared, at a free range, *gpa, in the name of file `owner` (files.h).
 * prot, flags: the program's. refused: the PROT_* that the program may never turn on there.  0, or
 * what mmap says (-ENOMEM also when the arena or the memory slots are used up); the owner's pages
 * are then the caller's to give back. */
int arena_map_fd(struct vm *vm, uint32_t owner, int fd, int prot, int flags, uint64_t off,
                 uint64_t len, uint64_t *gpa, int *refused);
/* Same for memory that no file names (MAP_SHARED|MAP_ANONYMOUS). */
int arena_map_anonymous(struct vm *vm, uint32_t owner, uint64_t len, uint64_t *gpa);
/* Maps once more, at a free range, the object that lies at `from`, from there on: len bytes of it,
 * whole pages, also beyond what is mapped there.  Errors as above, and what mremap says. */
int arena_map_again(struct vm *vm, uint32_t owner, uint64_t from, uint64_t len, uint64_t *gpa);
/* Attaches a segment of System V's, of len bytes; flags: SHM_RDONLY, SHM_EXEC.  On success the
 * owner has one page less than the len bytes and a page that were taken for it.  Errors as above,
 * and what shmat says. */
int arena_attach(struct vm *vm, uint32_t owner, int shmid, int flags, uint64_t len, uint64_t *gpa);
/* Told under the arena's lock: so many pages of the owner's are gone. */
typedef void arena_gone_fn(uint32_t owner, uint64_t pages);
/* Gives a range back; any part of what was mapped, also of several mappings. The guest has no
 * translation of it left. `gone` hears how much of whose it was. 0, or -EINVAL, and nothing
 * changed, if some of it is not in use. */
int arena_unmap(uint64_t gpa, uint64_t len, arena_gone_fn *gone);

/* In a forked child, where all mappings are as in the parent: makes them known to its new VM.  0 or
 * -errno. */
int arena_forked(struct vm *vm);

/* Bytes in use, and bytes for which KVM has memory slots. */
void arena_usage(uint64_t *used, uint64_t *backed);

/* Stores there; -EFAULT where the object is truncated or read-only.  0, or -errno; a failure may
 * have stored a part. */
int arena_copy(uint64_t gpa, const void *from, uint64_t len);

/* EXIT_MSYNC, EXIT_ARENA_COPY */
int64_t arena_exit_msync(struct thread *t, struct exit_req *rq);
int64_t arena_exit_copy(struct thread *t, struct exit_req *rq);

#endif
