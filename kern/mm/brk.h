/*
 * Where the heap is.
 */
#ifndef VMRUN_BRK_H
#define VMRUN_BRK_H

#include <stdint.h>

void mm_brk_init(void);
void mm_set_brk(uint64_t start);
/* For fork. */
void mm_get_brk(uint64_t *start, uint64_t *now);
void mm_restore_brk(uint64_t start, uint64_t now);

#endif
