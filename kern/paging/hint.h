/*
 * The calls of libvmguest (hints.h): what a program says of its memory.
 */
#ifndef VMRUN_HINT_H
#define VMRUN_HINT_H

#include <stdint.h>

/* nr: HINTS_FIRST and above.  a: as of a system call.  What the call returns; -ENOSYS: there is no
 * such call. */
long hint_call(uint64_t nr, const uint64_t a[6]);

#endif
