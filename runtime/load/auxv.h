/*
 * The auxiliary vector that the kernel gave this process.
 */
#ifndef VMRUN_AUXV_H
#define VMRUN_AUXV_H

#include <stdint.h>

/* Finds the vector: it lies behind the first environment (System V ABI for x86-64, "Process
 * Initialization").  Call it with `environ` before anything changes the environment. */
void auxv_take(char *const *environment);
/* The value of an AT_ key; 0 if the kernel gave none. */
uint64_t auxv_value(uint64_t key);

#endif
