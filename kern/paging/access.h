/*
 * kern's own accesses to the program's memory: through the window, never at the program's address.
 */
#ifndef VMRUN_ACCESS_H
#define VMRUN_ACCESS_H

#include <stddef.h>
#include <stdint.h>

/* Copies to the program's memory, with the rights of the program's own stores.  0, or -EFAULT. */
int kern_copy_out(uint64_t dst, const void *src, size_t len);
/* Copies from it, with the rights of the program's own loads.  0, or -EFAULT: dst may hold a
 * part. */
int kern_copy_in(void *dst, uint64_t src, size_t len);

#endif
