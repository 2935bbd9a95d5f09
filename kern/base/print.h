/*
 * Messages of kern: formatted here, shown by the host.
 */
#ifndef VMRUN_PRINT_H
#define VMRUN_PRINT_H

#include <stdint.h>

/* Stops the VM with a text and two numbers. */
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b);

/* level 0: always shown; 1: with -v.  fmt knows %s %u %lu %lx %d %ld. */
void kern_log(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
