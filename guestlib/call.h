/*
 * How the library's files call kern.
 */
#ifndef VMGUEST_CALL_H
#define VMGUEST_CALL_H

#include <stdint.h>

/* A function that programs call has a name outside; all other functions are the library's own. */
#define PUBLIC __attribute__((visibility("default")))

/* As a system call returns: 0 or more, or -errno.  Without errno, which a signal handler that makes
 * a call would have to save. */
static inline long call6(long number, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d,
                         uintptr_t e, uintptr_t f)
{
        register uintptr_t r10 __asm__("r10") = d;
        register uintptr_t r8 __asm__("r8") = e;
        register uintptr_t r9 __asm__("r9") = f;
        long ret;

        __asm__ volatile("syscall"
                         : "=a"(ret)
                         : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
        return ret;
}

static inline long call(long number, uintptr_t a, uintptr_t b, uintptr_t c)
{
        long ret;

        __asm__ volatile("syscall"
                         : "=a"(ret)
                         : "a"(number), "D"(a), "S"(b), "d"(c)
                         : "rcx", "r11", "memory");
        return ret;
}

#endif
