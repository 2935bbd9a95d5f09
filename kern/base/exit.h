/*
 * Exits to the host.
 */
#ifndef VMRUN_EXIT_H
#define VMRUN_EXIT_H

#include <stdint.h>
#include "abi_exits.h"

/* Makes an exit with an op and its arguments, serves upcalls until the answer is there, and returns
 * exit.ret. */
int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2);
int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4);

#endif
