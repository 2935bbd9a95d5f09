/*
 * kern's own accesses to the program's memory: through the window, never at the program's address.
 */
#ifndef VMRUN_ACCESS_H
#define VMRUN_ACCESS_H

#include <stddef.h>
#include <stdint.h>

/* Copies to the program's memory, with the rights of the program's own stores.  0, or -EFAULT;
 * while a guide runs -EAGAIN where memory is not here. */
int kern_copy_out(uint64_t dst, const void *src, size_t len);
/* Copies from the program's memory, with the rights of the program's own loads.  0, or an error of
 * kern_copy_out(): then dst may hold a part. */
int kern_copy_in(void *dst, uint64_t src, size_t len);
/* kern_copy_in() of pages that are here: -EAGAIN if a part is not here, is not mapped, or must not
 * be read. */
int kern_peek(void *dst, uint64_t src, size_t len);

#endif
