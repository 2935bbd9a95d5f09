/*
 * The first stack of a program: arguments, environment, auxiliary vector.
 */
#ifndef VMRUN_STACK_H
#define VMRUN_STACK_H

#include <stdint.h>
#include "load/script.h"

#define IMAGE_AUX_MAX  24

struct stack_input {
        uint64_t top;                   /* page-aligned end of the stack */
        uint64_t rlimit;                /* soft RLIMIT_STACK in bytes */
        char *const *argv, *const *envp;
        const char *execfn;
        uint8_t random[16];
        unsigned naux;                  /* without AT_NULL, which stack_build adds */
        /* AT_RANDOM, AT_EXECFN, AT_PLATFORM: value filled in */
        struct aux { uint64_t key, value; } aux[IMAGE_AUX_MAX];
};
struct stack_image {
        uint8_t *bytes;                 /* the content of [sp, top) */
        uint64_t sp, top;               /* sp: where argc is, 16-byte aligned */
        uint64_t arg_start, arg_end, env_start, env_end;
        unsigned naux;
        /* as stored, with AT_NULL: the content of /proc/self/auxv */
        struct aux aux[IMAGE_AUX_MAX + 1];
};
/* 0 (free bytes), -E2BIG as execve, -ENOMEM.  A pure function. */
int stack_build(struct stack_image *s, const struct stack_input *in, struct why *why);

#endif
