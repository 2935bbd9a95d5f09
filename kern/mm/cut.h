/*
 * Truncated files.
 */
#ifndef VMRUN_CUT_H
#define VMRUN_CUT_H

#include <stdint.h>

/* UPCALL_OBJECT_CUT. */
int64_t object_cut(uint64_t file, uint64_t pages);

#endif
