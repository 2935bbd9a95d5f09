/*
 * The first stack: what a program finds at its first RSP (stack.h; System V ABI for x86-64,
 * "Process Initialization").
 *
 *   top - 8        0
 *                  path of the program (AT_EXECFN)
 *                  environment strings          env_start .. env_end
 *                  argument strings             arg_start .. arg_end
 *                  "x86_64" (AT_PLATFORM), 16 random bytes (AT_RANDOM)
 *                  auxiliary vector, up to AT_NULL
 *                  envp[], 0
 *                  argv[], 0
 *   sp             argc                         16-byte aligned
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "layout.h"
#include "load/script.h"
#include "load/stack.h"

#define STRING_MAX  131072    /* Linux's MAX_ARG_STRLEN, with the NUL */
#define ARGS_LEAST  131072    /* Linux's ARG_MAX: allowed even if a quarter of the stack is less */
#define ARGS_MOST   (6 << 20) /* three quarters of Linux's default stack */
static const char platform[] = "x86_64";

/* Number of strings and their bytes with the NULs. */
struct strings { uint64_t count, bytes; };

static int measure(struct strings *s, char *const *v, const char *what, struct why *why)
{
        *s = (struct strings) { 0 };
        for (; v && v[s->count]; s->count++) {
                uint64_t n = strlen(v[s->count]) + 1;
                if (n > STRING_MAX)
                        return refuse(why, -E2BIG, "%s %lu is too long: %lu bytes, Linux allows %d",
                                      what, s->count, n, STRING_MAX);
                s->bytes += n;
        }
        return 0;
}

/* Linux's limit: strings and pointers together may take a quarter of the stack. */
static int check_size(const struct strings *a, const struct strings *e, uint64_t execfn,
                      uint64_t rlimit, struct why *why)
{
        uint64_t limit = rlimit / 4 < ARGS_MOST ? rlimit / 4 : ARGS_MOST;
        if (limit < ARGS_LEAST)
                limit = ARGS_LEAST;
        uint64_t need = a->bytes + e->bytes + execfn + (a->count + e->count) * sizeof(uint64_t);
        if (need > limit || need + PAGE_SIZE > rlimit)
                return refuse(why, -E2BIG,
                              "arguments and environment are too long: %lu bytes, %lu allowed with "
                              "this stack limit "
                              "(raise it with `ulimit -s`; at most %d bytes)",
                              need, limit < rlimit ? limit : rlimit, ARGS_MOST);
        return 0;
}

/* Stores at a program address of the image. */
static void store(struct stack_image *s, uint64_t at, const void *src, size_t n)
{
        memcpy(s->bytes + (at - s->sp), src, n);
}

/* Stores strings from *at upwards and pointers to them, with a 0 behind, from *slot upwards. */
static void store_strings(struct stack_image *s, char *const *v, uint64_t *at, uint64_t *slot)
{
        uint64_t zero = 0;
        for (; v && *v; v++) {
                size_t n = strlen(*v) + 1;
                store(s, *at, *v, n);
                store(s, *slot, at, sizeof(*at));
                *at += n;
                *slot += sizeof(*at);
        }
        store(s, *slot, &zero, sizeof(zero));
        *slot += sizeof(zero);
}

static void fill_aux(struct stack_image *s, const struct stack_input *in, uint64_t execfn,
                     uint64_t platform_at, uint64_t random_at)
{
        for (unsigned i = 0; i < in->naux; i++) {
                s->aux[i] = in->aux[i];
                switch (in->aux[i].key) {
                case AT_EXECFN:   s->aux[i].value = execfn; break;
                case AT_PLATFORM: s->aux[i].value = platform_at; break;
                case AT_RANDOM:   s->aux[i].value = random_at; break;
                }
        }
        s->aux[in->naux] = (struct aux) { AT_NULL, 0 };
        s->naux = in->naux + 1;
}

int stack_build(struct stack_image *s, const struct stack_input *in, struct why *why)
{
        struct strings args, envs;
        uint64_t execfn_len = strlen(in->execfn) + 1;
        *s = (struct stack_image) { .top = in->top };
        int err = measure(&args, in->argv, "argument", why);
        if (!err)
                err = measure(&envs, in->envp, "environment string", why);
        if (!err)
                err = check_size(&args, &envs, execfn_len, in->rlimit, why);
        if (err)
                return err;

        uint64_t execfn = in->top - 8 - execfn_len;
        s->env_end = execfn;
        s->arg_end = s->env_start = s->env_end - envs.bytes;
        s->arg_start = s->arg_end - args.bytes;
        uint64_t platform_at = (s->arg_start & ~(uint64_t)15) - sizeof(platform),
                 random_at = platform_at - sizeof(in->random);
        fill_aux(s, in, execfn, platform_at, random_at);
        uint64_t words = 1 + args.count + 1 + envs.count + 1 + 2 * s->naux;
        s->sp = (random_at - words * sizeof(uint64_t)) & ~(uint64_t)15;

        s->bytes = calloc(1, in->top - s->sp);
        if (!s->bytes)
                return refuse(why, -ENOMEM, "no memory for %lu bytes of arguments and environment",
                              in->top - s->sp);
        uint64_t slot = s->sp + sizeof(uint64_t), arg_at = s->arg_start, env_at = s->env_start;
        store(s, s->sp, &args.count, sizeof(args.count));
        store_strings(s, in->argv, &arg_at, &slot);
        store_strings(s, in->envp, &env_at, &slot);
        store(s, slot, s->aux, s->naux * sizeof(s->aux[0]));
        store(s, random_at, in->random, sizeof(in->random));
        store(s, platform_at, platform, sizeof(platform));
        store(s, execfn, in->execfn, execfn_len);
        return 0;
}
