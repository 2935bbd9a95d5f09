/*
 * The first stack: as the ABI wants it for every parity of argc and envc, and Linux's limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "layout.h"
#include "load/stack.h"

static struct why why;
static char *const no_env[] = { NULL };
static struct stack_image st;
static uint64_t word(uint64_t at)
{
        uint64_t w;
        assert_true(at >= st.sp && at + 8 <= st.top);
        memcpy(&w, st.bytes + (at - st.sp), 8);
        return w;
}
static const char *text(uint64_t at)
{
        assert_true(at >= st.sp && at < st.top);
        return (const char *)st.bytes + (at - st.sp);
}

static uint64_t check_strings(uint64_t at, char *const *v, uint64_t from, uint64_t to)
{
        for (; *v; v++, at += 8) {
                assert_int_equal(word(at), from);               /* one behind the other */
                assert_string_equal(text(from), *v);
                from += strlen(*v) + 1;
        }
        assert_int_equal(from, to);
        assert_int_equal(word(at), 0);
        return at + 8;
}

static void stack_layout(void **state)
{
        (void)state;
        char *words[] = {
                (char *)"a", (char *)"", (char *)"three", (char *)"x=y", (char *)"0123456789abcdef",
                NULL
        };
        for (int argc = 0; argc <= 5; argc++) {
                for (int envc = 0; envc <= 5; envc++) {
                        struct stack_input in = { .top = TASK_SIZE,
                                                  .rlimit = 8 << 20,
                                                  .argv = words + 5 - argc,
                                                  .envp = words + 5 - envc,
                                                  .execfn = "./prog",
                                                  .random = "0123456789abcde",
                                                  .naux = 4,
                                                  .aux = { { AT_PAGESZ, 4096 },
                                                           { AT_RANDOM, 0 },
                                                           { AT_EXECFN, 0 },
                                                           { AT_PLATFORM, 0 } } };
                        assert_int_equal(stack_build(&st, &in, &why), 0);
                        assert_int_equal(st.sp % 16, 0);
                        assert_int_equal(word(st.sp), argc);
                        uint64_t at = check_strings(st.sp + 8, in.argv, st.arg_start, st.arg_end);
                        assert_int_equal(st.env_start, st.arg_end);
                        at = check_strings(at, in.envp, st.env_start, st.env_end);
                        assert_int_equal(word(at), AT_PAGESZ);
                        assert_int_equal(word(at + 8), 4096);
                        assert_int_equal(word(at + 16), AT_RANDOM);
                        assert_memory_equal(text(word(at + 24)), in.random, 16);
                        assert_string_equal(text(word(at + 40)), "./prog");
                        assert_string_equal(text(word(at + 56)), "x86_64");
                        assert_int_equal(word(at + 64), AT_NULL);
                        assert_true(at + 80 <= word(at + 24));  /* nothing lies over the vector */
                        assert_memory_equal(text(at), st.aux, 5 * 16);
                        assert_int_equal(word(st.top - 8), 0);
                        free(st.bytes);
                }
        }
}

static int stack_of(char *const *argv, char *const *envp, uint64_t rlimit)
{
        struct stack_input in = {
                .top = TASK_SIZE, .rlimit = rlimit, .argv = argv, .envp = envp, .execfn = "p"
        };
        int err = stack_build(&st, &in, &why);
        free(st.bytes);
        return err;
}

static void stack_limits(void **state)
{
        (void)state;
        static char big[131073], *many[300000 + 1];
        char *const one[] = { big, NULL };
        memset(big, 'b', 131072);
        assert_int_equal(stack_of(one, no_env, 8 << 20), -E2BIG);
        assert_non_null(strstr(why.text, "argument 0 is too long: 131073 bytes"));
        assert_int_equal(stack_of(no_env, one, 8 << 20), -E2BIG);
        assert_non_null(strstr(why.text, "environment string 0"));
        big[131071] = '\0';                     /* 128 KiB with the NUL: allowed */
        assert_int_equal(stack_of(one, no_env, 8 << 20), 0);
        assert_int_equal(stack_of(one, one, 8 << 20), 0);
        assert_int_equal(stack_of(one, one, 512 << 10), -E2BIG);
        assert_non_null(strstr(why.text, "ulimit -s"));
        for (int i = 0; i < 200000; i++) /* pointers count: 200,000 * (2 + 8) bytes < 2 MiB */
                many[i] = (char *)"x";
        assert_int_equal(stack_of(many, no_env, 8 << 20), 0);
        for (int i = 200000; i < 300000; i++)
                many[i] = (char *)"x";
        assert_int_equal(stack_of(many, no_env, 8 << 20), -E2BIG);
        assert_int_equal(stack_of(many, no_env, 16 << 20), 0);
        assert_int_equal(stack_of(many, no_env, UINT64_MAX), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(stack_layout),
                                            cmocka_unit_test(stack_limits) };
        return cmocka_run_group_tests_name("stack", tests, NULL, NULL);
}
