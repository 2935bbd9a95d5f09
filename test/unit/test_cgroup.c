/*
 * The limits of memory of control groups, of both versions, from files as Linux shows them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "base/cgroup.h"

#define MIB  (1ull << 20)
#define NONE UINT64_MAX

static char root[] = "/tmp/vmrun-test.XXXXXX";

/* Makes the folders, too. */
static void put(const char *path, const char *text)
{
        char whole[512];

        snprintf(whole, sizeof(whole), "%s%s", root, path);
        for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
                *at = 0;
                mkdir(whole, 0700);
        }
        FILE *f = fopen(whole, "w");
        assert_non_null(f);
        fputs(text, f);
        assert_int_equal(fclose(f), 0);
}

/* The files of a group, by version. */
static const struct files { const char *limit, *used, *stat; } v2 = {
        "memory.max", "memory.current", "anon 1\nfile 99\ninactive_file"
}, v1 = {
        "memory.limit_in_bytes", "memory.usage_in_bytes", "inactive_file 7\ntotal_inactive_file"
};

/* A group: what it may use, uses, and could drop of that. */
static void put_files(const struct files *v, const char *folder, const char *limit, uint64_t used,
                      uint64_t droppable)
{
        char path[512], text[256];

        snprintf(path, sizeof(path), "%s/%s", folder, v->limit);
        put(path, limit);
        snprintf(path, sizeof(path), "%s/%s", folder, v->used);
        snprintf(text, sizeof(text), "%llu\n", (unsigned long long)used);
        put(path, text);
        snprintf(path, sizeof(path), "%s/memory.stat", folder);
        snprintf(text, sizeof(text), "%s %llu\n", v->stat, (unsigned long long)droppable);
        put(path, text);
}

static void expect(uint64_t limit, uint64_t left, const char *file)
{
        struct cgroup_memory m;
        char whole[512] = "";

        if (*file)
                snprintf(whole, sizeof(whole), "%s%s", root, file);
        cgroup_memory(root, &m);
        assert_int_equal(m.limit, limit);
        assert_int_equal(m.left, left);
        assert_string_equal(m.file, whole);
}

static int begin(void **state)
{
        (void)state;
        strcpy(root + strlen(root) - 6, "XXXXXX");
        return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
        char command[64];

        (void)state;
        snprintf(command, sizeof(command), "rm -r %s", root);
        return system(command);
}

static const char unified[] =
        "24 1 0:22 / /proc rw,nosuid - proc proc rw\n"
        "31 24 0:28 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

static void no_groups(void **state)
{
        (void)state;
        expect(NONE, NONE, "");
        put("/proc/self/cgroup", "0::/\n");
        expect(NONE, NONE, "");
        put("/proc/self/mountinfo", unified);
        expect(NONE, NONE, "");
}

/* The lowest limit counts, of the group itself or of any above it; and the group with the least
 * left need not be the same. */
static void all_above(void **state)
{
        (void)state;
        put("/proc/self/cgroup", "0::/a/b/c\n");
        put("/proc/self/mountinfo", unified);
        put_files(&v2, "/sys/fs/cgroup/a/b/c", "max\n", 5 * MIB, 0);
        expect(NONE, NONE, "");
        put_files(&v2, "/sys/fs/cgroup/a", "104857600\n", 90 * MIB, 0);
        expect(100 * MIB, 10 * MIB, "/sys/fs/cgroup/a/memory.max");
        put_files(&v2, "/sys/fs/cgroup/a/b", "52428800\n", 6 * MIB, 0);
        expect(50 * MIB, 10 * MIB, "/sys/fs/cgroup/a/b/memory.max");
        put_files(&v2, "/sys/fs/cgroup/a/b/c", "209715200\n", 5 * MIB, 0);
        expect(50 * MIB, 10 * MIB, "/sys/fs/cgroup/a/b/memory.max");
        /* In a container its own group is the root. */
        put("/proc/self/cgroup", "0::/\n");
        put_files(&v2, "/sys/fs/cgroup", "31457280\n", 1 * MIB, 0);
        expect(30 * MIB, 29 * MIB, "/sys/fs/cgroup/memory.max");
}

/* The kernel drops pages of files before it refuses memory. */
static void files_pages(void **state)
{
        (void)state;
        put("/proc/self/cgroup", "0::/a\n");
        put("/proc/self/mountinfo", unified);
        put_files(&v2, "/sys/fs/cgroup/a", "104857600\n", 100 * MIB, 70 * MIB);
        expect(100 * MIB, 70 * MIB, "/sys/fs/cgroup/a/memory.max");
        put_files(&v2, "/sys/fs/cgroup/a", "104857600\n", 120 * MIB, 0);     /* it was lowered */
        expect(100 * MIB, 0, "/sys/fs/cgroup/a/memory.max");
}

static void version_1(void **state)
{
        (void)state;
        put("/proc/self/cgroup", "9:name=systemd:/\n5:cpu,memory:/docker/x\n1:cpu:/y\n0::/\n");
        put("/proc/self/mountinfo",
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
            "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct\n"
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n"
            "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        put_files(&v1, "/sys/fs/cgroup/memory", "9223372036854771712\n", 90 * MIB, 0);
        put_files(&v1, "/sys/fs/cgroup/memory/docker/x", "9223372036854771712\n", 9 * MIB, 0);
        expect(NONE, NONE, "");
        put_files(&v1, "/sys/fs/cgroup/memory/docker", "104857600\n", 90 * MIB, 20 * MIB);
        expect(100 * MIB, 30 * MIB, "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes");
        /* A container that sees its own group only, under the path that the host has for it. */
        put("/proc/self/mountinfo",
            "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n");
        put_files(&v1, "/sys/fs/cgroup/memory", "31457280\n", 1 * MIB, 0);
        expect(30 * MIB, 29 * MIB, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(no_groups, begin, end),
                cmocka_unit_test_setup_teardown(all_above, begin, end),
                cmocka_unit_test_setup_teardown(files_pages, begin, end),
                cmocka_unit_test_setup_teardown(version_1, begin, end),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
