/*
 * Bytes of far pages that stay far (vmg_read).
 */
#ifndef VMRUN_PART_H
#define VMRUN_PART_H

#include <stdbool.h>
#include <stdint.h>

/* Copies len bytes from src to dst, both the program's, with the rights of its own loads and
 * stores; they do not overlap.  Pages of src that are far are not brought in.  raw: without a look
 * at the sums of pages.  len; -EFAULT; -EIO: a page cannot be read back.  After an error dst may
 * hold a part.  While a guide runs: -EAGAIN: a part is not here; its far pages are asked for. */
int64_t part_read(uint64_t dst, uint64_t src, uint64_t len, bool raw);

#endif
