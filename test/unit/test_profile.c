/*
 * The texts of a fault profile (runtime/profile/): names of functions, calls, stacks, both files.
 * The program that is profiled is the test itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "profile/code.h"
#include "profile/stacks.h"
#include "profile/symbols.h"
#include "profile/texts.h"

/* ---- a program ---- */

/* Under its own name, also where the compiler knows all calls. */
#ifdef __clang__
#define FUNCTION __attribute__((noinline))
#else
#define FUNCTION __attribute__((noinline, noclone))
#endif

static uint64_t returns_to;

FUNCTION int callee(int n)
{
        returns_to = (uint64_t)__builtin_return_address(0);
        return n + 1;
}

FUNCTION int other(int n) { return n * 3; }

FUNCTION int caller(int n) { return callee(n) + other(n); }

#define IN(function) ((uint64_t)(function) + 1)

static struct code code;
static int self = -1;

/* Maps this program as it is, beside a heap, and memory with code that no file has. */
static void map_all(const char *file)
{
        FILE *f = fopen("/proc/self/maps", "re");
        char line[512], exe[256];
        unsigned long start, end, off;

        assert_non_null(f);
        self = open(file, O_RDONLY | O_CLOEXEC);
        assert_true(self >= 0);
        ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
        assert_true(n > 0);
        exe[n] = 0;
        code_add(&code, &(struct map_entry){ .start = 0x10000, .end = 0x20000, .prot = 7 }, NULL,
                 -1);
        while (fgets(line, sizeof(line), f))
                if (strstr(line, exe) && sscanf(line, "%lx-%lx %*s %lx", &start, &end, &off) == 3)
                        code_add(&code, &(struct map_entry){ .start = start, .end = end, .off = off,
                                                             .prot = 5, .file = 3 },
                                 "/usr/bin/it;self", self);
        fclose(f);
        const uint64_t heap = 0x7e0000000000, gib = 1 << 30;
        code_add(&code, &(struct map_entry){ .start = heap, .end = heap + gib,
                                             .flags = MAP_ENTRY_HEAP }, NULL, -1);
        code_add(&code, &(struct map_entry){ .start = heap + gib, .end = heap + 65 * gib }, NULL,
                 -1);
        assert_false(code.failed);
}

static int setup(void **state)
{
        (void)state;
        map_all("/proc/self/exe");
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        code_free(&code);
        close(self);
        return 0;
}

/* ---- names ---- */

static void test_places(void **state)
{
        struct place p;

        (void)state;
        code_place(&code, IN(callee), &p);
        assert_string_equal(p.symbol, "callee");
        assert_int_equal(p.into, 1);
        assert_string_equal(p.object, "/usr/bin/it;self");
        code_place(&code, (uint64_t)caller, &p);
        assert_string_equal(p.symbol, "caller");
        assert_int_equal(p.into, 0);
        code_place(&code, 0x10010, &p);
        assert_null(p.symbol);
        assert_string_equal(p.object, "[anon]");
        assert_int_equal(p.address, 0x10010);
        const uint64_t nowhere[] = { 0, 0xffff, 0x20000, ~0ull, 1ull << 63 };
        for (unsigned i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
                code_place(&code, nowhere[i], &p);
                assert_null(p.symbol);
                assert_string_equal(p.object, "[unmapped]");
        }
}

/* Without .symtab a function that is not exported has no name, and an address of its file. */
static void test_stripped(void **state)
{
        char command[256], file[] = "/tmp/test_profile.XXXXXX";
        struct place whole, p;

        (void)state;
        int fd = mkstemp(file);
        assert_true(fd >= 0);
        close(fd);
        snprintf(command, sizeof(command), "objcopy --strip-all /proc/%d/exe %s", getpid(), file);
        assert_int_equal(system(command), 0);
        map_all("/proc/self/exe");
        code_place(&code, IN(callee), &whole);
        teardown(NULL);
        map_all(file);
        unlink(file);
        code_place(&code, IN(callee), &p);
        assert_null(p.symbol);
        assert_string_equal(p.object, "/usr/bin/it;self");
        assert_int_equal(p.address, whole.address);
}

/* Any file may be mapped. */
static void test_no_elf(void **state)
{
        char head[4096] = "\x7f" "ELF\2\1\1";
        struct place p;

        (void)state;
        for (unsigned i = 0; i < 64; i++) {
                int fd = memfd_create("bad", MFD_CLOEXEC);
                for (unsigned b = 16; i && b < sizeof(head); b++)
                        head[b] = (char)(i == 1 ? 0xff : rand());
                assert_int_equal(write(fd, head, i == 2 ? 5 : sizeof(head)),
                                 i == 2 ? 5 : sizeof(head));
                struct code c = { .map = NULL };
                code_add(&c, &(struct map_entry){ .start = 0x1000, .end = 0x9000, .file = 1 },
                         "bad", fd);
                code_place(&c, 0x1234, &p);
                assert_string_equal(p.object, "bad");
                code_calls(&c, 0x1234, 0x1240);
                code_free(&c);
                close(fd);
        }
        struct code c = { .map = NULL };
        code_add(&c, &(struct map_entry){ .start = 0x1000, .end = 0x9000, .off = 0x3000,
                                          .file = 1 }, "gone", -1);
        code_place(&c, 0x1234, &p);
        assert_int_equal(p.address, 0x3234);
        assert_false(code_calls(&c, 0x1234, 0x1240));
        code_free(&c);
}

static void test_regions(void **state)
{
        char text[CODE_REGION];
        const uint64_t heap = 0x7e0000000000;

        (void)state;
        assert_string_equal(code_region(&code, heap + 5, text), "[heap]");
        assert_string_equal(code_region(&code, heap + (1 << 30), text), "anon 64G");
        assert_string_equal(code_region(&code, 0x10000, text), "anon 64K");
        assert_string_equal(code_region(&code, (uint64_t)&callee, text), "it;self");
        assert_string_equal(code_region(&code, 0x666, text), "[unmapped]");
}

/* ---- calls ---- */

static void test_calls(void **state)
{
        (void)state;
        assert_int_equal(caller(1), 2 + 3);
        assert_true(code_calls(&code, returns_to, IN(callee)));
        assert_false(code_calls(&code, returns_to, IN(other)));
        assert_false(code_calls(&code, returns_to + 1, IN(callee)));
        assert_false(code_calls(&code, returns_to, 0x10010));   /* not by a direct call */
        assert_false(code_calls(&code, 0x10010, IN(callee)));
        assert_false(code_calls(&code, 0, IN(callee)));
        assert_false(code_calls(&code, 3, IN(callee)));
}

/* ---- stacks ---- */

static struct profile table;

static void put(unsigned at, uint64_t faults, uint32_t part, uint64_t top, const uint64_t *addr)
{
        struct profile_stack *s = &table.stack[at];

        *s = (struct profile_stack){ .key = at + 1, .faults = faults, .late = faults / 2,
                                     .ticks = 3000 * faults, .touched = 0x7e0000000000,
                                     .part = part, .top = top };
        for (; addr[s->depth]; s->depth++)
                s->at[s->depth] = addr[s->depth];
}
#define PUT(at, faults, part, top, ...) \
        put(at, faults, part, top, (const uint64_t[]){ __VA_ARGS__, 0 })

static char *text_of(int (*fn)(const struct profile_of *of, FILE *f), struct profile_of of)
{
        static char *text;
        size_t size;
        struct stacks s;

        free(text);
        text = NULL;
        FILE *f = open_memstream(&text, &size);
        assert_int_equal(stacks_read(&s, &table, &code), 0);
        of.stacks = &s;
        of.code = &code;
        assert_int_equal(fn(&of, f), 0);
        fclose(f);
        free(s.s);
        return text;
}

static void test_folded(void **state)
{
        (void)state;
        memset(&table, 0, sizeof(table));
        PUT(0, 3, 0, 0, IN(other), IN(caller) + 1);
        PUT(7, 4, 0, 0, IN(other) + 1, IN(caller) + 2);
        PUT(9, 20, 0, 0, IN(callee), IN(caller) + 1, 0x10010);
        PUT(16383, 1, 0, 0, 0x10010);
        PUT(80, 0, 0, 0, 0x10010);              /* not yet counted */
        assert_string_equal(text_of(profile_folded, (struct profile_of){ .lost = 2 }),
                            "[anon];caller;callee 20\ncaller;other 7\n[anon] 1\n[other] 2\n");
}

/* The word on top of the stack is a caller if a call stands there that leads to the function. */
static void test_frameless(void **state)
{
        (void)state;
        caller(1);
        memset(&table, 0, sizeof(table));
        PUT(0, 1, 0, returns_to, IN(callee), 0x10010);
        PUT(1, 2, 0, returns_to, IN(other), 0x10010);
        PUT(2, 3, 0, returns_to, IN(callee), returns_to, 0x10010, 0x10010);
        assert_string_equal(text_of(profile_folded, (struct profile_of){ .pid = 1 }),
                            "[anon];[anon];caller;callee 3\n[anon];other 2\n"
                            "[anon];caller;callee 1\n");
}

/* A stack of which kern saw only the top is continued as the whole ones are that begin with it, as
 * far as they agree. */
static void test_part(void **state)
{
        const uint64_t a = IN(callee), b = IN(caller) + 1, c = 0x10010, d = IN(other) + 1;

        (void)state;
        memset(&table, 0, sizeof(table));
        PUT(0, 1, 1, 0, a);
        PUT(1, 2, 0, 0, a, b, c, d);
        PUT(2, 4, 0, 0, a, b, d);
        PUT(3, 8, 1, 0, a, b, c);
        PUT(4, 16, 1, 0, a, b, d, c);           /* no whole one begins so */
        assert_string_equal(text_of(profile_folded, (struct profile_of){ .pid = 1 }),
                            "[anon];other;caller;callee 16\nother;[anon];caller;callee 10\n"
                            "other;caller;callee 4\ncaller;callee 1\n");
}

/* A table that the program has written over is no reason to crash. */
static void test_garbage(void **state)
{
        struct stacks s;

        (void)state;
        memset(&table, 0xff, sizeof(table));
        assert_int_equal(stacks_read(&s, &table, &code), 0);
        free(s.s);
        uint64_t *w = (uint64_t *)&table;
        for (size_t i = 0; i < sizeof(table) / 8; i++)
                w[i] = (uint64_t)rand() << 33 ^ (uint64_t)rand();
        for (unsigned i = 0; i < PROFILE_STACKS; i++)
                table.stack[i].depth %= PROFILE_DEPTH + 2;
        assert_non_null(strstr(text_of(profile_folded, (struct profile_of){ .pid = 1 }),
                               "[unmapped]"));
        text_of(profile_table, (struct profile_of){ .program = "x" });
}

static void test_table(void **state)
{
        (void)state;
        memset(&table, 0, sizeof(table));
        PUT(0, 60, 0, 0, IN(callee), IN(caller) + 1);
        PUT(1, 10, 0, 0, IN(callee), 0x10010);
        PUT(2, 30, 0, 0, 0x10020);
        const char *text = text_of(profile_table, (struct profile_of){
                .program = "it\n;", .pid = 77, .tsc_khz = 1000000, .cut = 5, .lost = 100 });
        print_message("%s", text);
        assert_non_null(strstr(text, "memory: it?:, process 77\n"));
        assert_non_null(strstr(text, "\n200 faults, "));
        assert_non_null(strstr(text, " 50 of them for a page that was under way already\n"));
        assert_non_null(strstr(text, "\n5 of them had a stack that found no room"));
        assert_non_null(strstr(text, "\n 35.0 %         70      35   3.00 us  [heap]  "));
        assert_non_null(strstr(text, " callee+0x1 (it:self)\n"));
        assert_non_null(strstr(text, "  from caller+0x2 (it:self)\n"));
        assert_non_null(strstr(text, "0x10020      [anon]\n"));
        assert_non_null(strstr(text, "\n 50.0 % [other]"));
        assert_non_null(strstr(text, "\n  /usr/bin/it:self\n"));
        assert_true(strstr(text, "callee") < strstr(text, "0x10020"));
}

/* An empty profile is one, too. */
static void test_nothing(void **state)
{
        (void)state;
        memset(&table, 0, sizeof(table));
        assert_string_equal(text_of(profile_folded, (struct profile_of){ .pid = 1 }), "");
        assert_non_null(strstr(text_of(profile_table, (struct profile_of){ .program = "x" }),
                               "\n0 faults, - each"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_places, setup, teardown),
                cmocka_unit_test_teardown(test_stripped, teardown),
                cmocka_unit_test(test_no_elf),
                cmocka_unit_test_setup_teardown(test_regions, setup, teardown),
                cmocka_unit_test_setup_teardown(test_calls, setup, teardown),
                cmocka_unit_test_setup_teardown(test_folded, setup, teardown),
                cmocka_unit_test_setup_teardown(test_frameless, setup, teardown),
                cmocka_unit_test_setup_teardown(test_part, setup, teardown),
                cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
                cmocka_unit_test_setup_teardown(test_table, setup, teardown),
                cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
