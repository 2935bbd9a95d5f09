/*
 * First touches of mapped files and shared memory, for the fault path (fault.c).
 */
#ifndef VMRUN_FILE_H
#define VMRUN_FILE_H

#include "paging/attempt.h"

/* How many times a file was truncated (mm/cut.c).  [I] Incremented before the truncation waits for
 * published faults.  A fault on a file looks at it again once it has published, so content read
 * before a truncation is not installed after it. */
extern _Atomic uint32_t object_cuts __attribute__((visibility("hidden")));

/* Reads pages of a private file mapping into frames, by an exit, and installs them.  The fault is
 * not published on entry.  [I] It does not use xfer, which may hold the arguments of an upcall, as
 * those of mm_batch(). */
enum outcome file_fill(struct fault *f);

/* Maps pages of the arena, as far as the object behind it reaches.  The fault is not published on
 * entry. */
enum outcome shared_map(struct fault *f);

#endif
