/*
 * First touches of mapped files and shared memory, for the fault path (fault.c).
 */
#ifndef VMRUN_FILE_H
#define VMRUN_FILE_H

#include "paging/attempt.h"

/* How often a file was cut short (mm_cut.c).  [I] Counted before that waits for the faults.  A
 * fault on a file looks again once it has published: what was read before a cut is not installed
 * after it. */
extern _Atomic uint32_t object_cuts __attribute__((visibility("hidden")));

/* Reads pages of a private file mapping into frames, by an exit, and installs them.  Not published
 * on entry.  [I] It leaves xfer alone: the arguments of an upcall may be there, as those of
 * mm_batch(). */
enum outcome file_fill(struct fault *f);

/* Maps pages of the arena, as far as the object behind it reaches.  Not published on entry. */
enum outcome shared_map(struct fault *f);

#endif
