/*
 * The calls of libvmguest (hints.h): hints of a program about its memory.
 */
#ifndef VMRUN_HINT_H
#define VMRUN_HINT_H

#include <stdbool.h>
#include <stdint.h>

/* nr: from HINTS_FIRST to HINTS_END - 1.  a: as of a system call.  Returns the result of the
 * call. */
long hint_call(uint64_t nr, const uint64_t a[6]);

/* May a guide make this call?  Then the call does not wait. */
bool hint_for_guides(uint64_t nr);

#endif
