/*
 * System calls that read a clock, without an exit.
 */
#ifndef VMRUN_TIME_H
#define VMRUN_TIME_H

#include <stdint.h>

long sys_clock_gettime(const uint64_t a[6]);
long sys_gettimeofday(const uint64_t a[6]);
long sys_time(const uint64_t a[6]);

#endif
