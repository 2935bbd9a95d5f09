/*
 * The configuration file: what it may say, and that every mistake is named with file and line.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "settings/check.h"
#include "settings/config_file.h"
#include "settings/node_draft.h"
#include "settings/settings.h"
#include "pager/lookahead.h"

/* A host whose memory does not depend on the machine. */
static const char *limit;
uint64_t host_memory_total(void) { return 64ull << 30; }
uint64_t host_memory_available(void) { return 48ull << 30; }
const char *host_memory_limit(void) { return limit; }

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static char path[] = "/tmp/vmrun-test.XXXXXX";
static char why[512];
static struct options o;

static void forget(void)
{
        for (unsigned i = 0; i < o.nnodes; i++)
                node_option_free(&o.nodes[i]);
        free((void *)o.stats_file);
        memset(&o, 0, sizeof(o));
        settings_default(&o);
}

static int read_bytes(const char *text, size_t n)
{
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, n, f), n);
        assert_int_equal(fclose(f), 0);
        forget();
        strcpy(why, "nothing");
        return config_read(&o, path, why, sizeof(why));
}

static int read_text(const char *text)
{
        return read_bytes(text, strlen(text));
}

/* Refused for what is in this line, with these words. */
static void refused(const char *text, unsigned line, const char *words)
{
        char begin[64];
        int err = read_text(text);

        snprintf(begin, sizeof(begin), "%s:%u: ", path, line);
        if (err != -EINVAL || strncmp(why, begin, strlen(begin)) != 0 || !strstr(why, words) ||
            strchr(why, '\n'))
                fail_msg("%d, '%s' instead of line %u, '%s', for:\n%s", err, why, line, words,
                         text);
}

static void accepted(const char *text)
{
        if (read_text(text) != 0)
                fail_msg("'%s', for:\n%s", why, text);
}

static void all_of_it(void **state)
{
        (void)state;
        accepted("# a comment\n"
                 "; another\n"
                 "\n"
                 "[vmrun]\n"
                 "cache = 4G\n"
                 "stats = /tmp/s\n"
                 "  verbose = yes  ; indented, and a remark\n"
                 "\tovercommit=yes\r\n"
                 "prefetch = trend\n"
                 "prefetch-window = 16\n"
                 "prefetch-history = 8\n"
                 "placement : free\n"
                 "timeout = 2.5\n"
                 "connect-timeout = 1\n"
                 "io = inline\n"
                 " [ node  m1 ]  # the first\n"
                 "url = rdma://m1:7471\n"
                 "size = 64G\n"
                 "weight = 2\n"
                 "priority = 1000\n"
                 "keys = /etc/vmrun keys\n"
                 "client = alice\n"
                 "device = mlx5_0\n"
                 "gid-index = 3\n"
                 "[node of two words]\n"
                 "url = nbd+unix:///e?socket=/run/s&weight=5\n"
                 "size = 1M");                           /* no newline at the end */
        assert_int_equal(o.cache, 4ull << 30);
        assert_true(o.stats && o.verbose && o.overcommit);
        assert_string_equal(o.stats_file, "/tmp/s");
        assert_int_equal(o.placement, PLACE_FREE);
        assert_int_equal(o.timeout_ms, 2500);
        assert_int_equal(o.connect_timeout_ms, 1000);
        assert_int_equal(o.io, IO_INLINE);
        assert_int_equal(o.prefetch, LOOKAHEAD_TREND);
        assert_int_equal(o.prefetch_window, 16);
        assert_int_equal(o.prefetch_history, 8);
        assert_int_equal(o.nnodes, 2);
        const struct node_option *n = o.nodes;
        char origin[64];
        snprintf(origin, sizeof(origin), "%s:16: node m1", path);
        assert_string_equal(n->origin, origin);
        assert_string_equal(n->name, "m1");
        assert_string_equal(n->url, "rdma://m1:7471");
        assert_string_equal(n->keys, "/etc/vmrun keys");
        assert_string_equal(n->client, "alice");
        assert_string_equal(n->device, "mlx5_0");
        assert_int_equal(n->size, 64ull << 30);
        assert_int_equal(n->weight, 2);
        assert_int_equal(n->priority, 1000);
        assert_int_equal(n->gid_index, 3);
        n++;
        assert_string_equal(n->name, "of two words");
        assert_string_equal(n->url, "nbd+unix:///e?socket=/run/s");
        assert_int_equal(n->size, 1 << 20);
        assert_int_equal(n->weight, 5);
        assert_int_equal(n->gid_index, -1);
        assert_null(n->keys);
        assert_null(n->device);
}

static void little(void **state)
{
        (void)state;
        accepted("");
        assert_int_equal(o.nnodes, 0);
        assert_int_equal(o.cache, 0);
        assert_int_equal(o.timeout_ms, 10000);
        accepted("\xef\xbb\xbf[vmrun]\nstats = yes\n");
        assert_true(o.stats && !o.stats_file);
        accepted("[vmrun]\nstats = no\nverbose = no\n");
        assert_true(!o.stats && !o.verbose);
        accepted("[vmrun]\n");
        accepted("\n\n\n# only\n;remarks");
        /* Sections in any order, many nodes. */
        char text[8192] = "";
        for (unsigned i = 0; i < NODES_MAX; i++)
                sprintf(text + strlen(text), "[node %u]\nurl = mem:1M\n", i);
        strcat(text, "[vmrun]\nio = thread\n");
        accepted(text);
        assert_int_equal(o.nnodes, NODES_MAX);
        strcat(text, "[node one more]\nurl = mem:1M\n");
        refused(text, 2 * NODES_MAX + 3, "[node one more]: more than 64 nodes");
        /* Long lines. */
        strcpy(text, "[vmrun]\n# ");
        memset(text + strlen(text), 'x', 4000);
        strcat(text, "\nio = inline\n");
        accepted(text);
        assert_int_equal(o.io, IO_INLINE);
        strcpy(text, "[vmrun]\nstats = ");
        memset(text + strlen(text), 'x', 400);
        strcat(text, "\nio = inline\n");
        refused(text, 2, "longer than");
}

/* What is refused, and words that say so. A line in [vmrun]. */
static const struct { const char *line, *words; } settings[] = {
        { "cache = 1K", "cache = 1K: too small" },
        { "cache = 65G", "larger than this host's memory of 64G: give less, 48G is available now" },
        { "cache =", "this is no size" },
        { "cache = %", "give a whole number from 1% to 100%" },
        { "cache = 0%", "give a whole number from 1% to 100%" },
        { "cache = 101%", "give a whole number from 1% to 100%" },
        { "cache = 2.5%", "this is no size" },
        { "cache = 25 %", "this is no size" },
        { "stats =", "the value is missing" },
        { "verbose = on", "verbose = on: give no or yes" },
        { "overcommit = 1", "give no or yes" },
        { "follow = maybe", "give no or yes" },
        { "prefetch = all", "give none, readahead, trend, auto or pointers" },
        { "prefetch-window = 1000", "1 to 64" },
        { "placement = raid", "give weighted, linear or free" },
        { "timeout = 0", "seconds from 0.1 to 3600" },
        { "connect-timeout = soon", "seconds from 0.1 to 3600" },
        { "io = polling", "give thread, inline or auto" },
        { "Cache = 4G", "Cache = 4G: unknown key in [vmrun]" },
        { "node = mem:", "unknown key" },
        { "check = yes", "unknown key" },
        { "cache-mb = 512", "cache-mb = 512: unknown key in [vmrun]: did you mean cache = 512M?" },
        { "cache_GiB = 4", "did you mean cache = 4G?" },
        { "cache-size = 4G", "did you mean cache?" },
        { "cahce = 4G", "did you mean cache?" },
        { "connect_timeout = 4", "did you mean connect-timeout?" },
        { "timeout-ms = 400", "did you mean timeout?" },
        { "url = rdma://m1", "[node NAME], and below it url = rdma://m1" },
        { "colour = red",
          "unknown key in [vmrun]: give cache, stats, stats-interval, profile, verbose, "
          "overcommit, follow, verify, prefetch, prefetch-window, prefetch-history, far, "
          "control, placement, replicas, replicas-required, rebuild-rate, timeout, "
          "connect-timeout, io or direct" },
        { "cache = 2M # local",
          "cache = 2M # local: behind a value, remarks begin with ; (# is for whole lines): write "
          "cache = 2M ; local" },
        { "cache = \"2M\"", "values stand without quotes: write cache = 2M" },
        { "cache", "neither a section nor a setting" },
        { "= 4G", "unknown key" },
};

/* A line in [node a], below its url. */
static const struct { const char *line, *words; } node_settings[] = {
        { "size-mb = 512", "size-mb = 512: unknown key: did you mean size = 512M?" },
        { "cache = 4G", "cache = 4G: unknown key: give url," },
        { "url = mem:1M", "given twice" },
        { "size = big", "size = big: this is no size" },
        { "size = 1K", "too small" },
        { "weight = 1.5", "from 1 to 1000" },
};

/* A whole file, and the number of the line that is named. */
static const struct { const char *text; unsigned line; const char *words; } files[] = {
        { "cache = 4G\n", 1, "cache = 4G: stands in no section" },
        { "[vmrun]\ncache = 4G\ncache = 4G\n", 3, "cache = 4G: given twice" },
        { "[vmrun]\n\n# x\ncache = 4Q\n", 4, "cache = 4Q: this is no size" },
        { "[node a]\nurl = mem:1M \t# here\n", 2, "write url = mem:1M ; here" },
        { "[node a]\nurl = 'mem:1M'\n", 2, "write url = mem:1M" },
        { "[vm]\n", 1, "[vm]: unknown section" },
        { "[vmrun]\nio = inline\n[]\n", 3, "[]: unknown section" },
        { "[Vmrun]\n", 1, "unknown section" },
        { "[vmrun\n", 1, "the ] is missing" },
        { "[vmrun] cache = 4G\n", 1, "something follows the ]" },
        { "[vmrun]\n[vmrun]\n", 2, "[vmrun]: this section was given before" },
        { "[nodes]\n", 1, "unknown section" },
        { "[node]\nurl = mem:1M\n", 1, "the node has no name" },
        { "[node ]\nurl = mem:1M\n", 1, "the node has no name" },
        { "[node a]\nurl = mem:1M\n[node a]\nurl = mem:2M\n", 3,
          "[node a]: this node was given before" },
        { "[node a]\nweight = 1\n", 1, "[node a]: the node has no url" },
        { "[node a]\n[node b]\nurl = mem:1M\n", 1, "[node a]: the node has no url" },
        { "[vmrun]\n[node a]\n", 2, "the node has no url" },
        { "[node a]\nurl = mem:1M\ndevice = mlx5_0\n", 1,
          "device and gid-index are for rdma:// only" },
        { "[node a]\nurl = dax:/x\nkeys = /t\n", 1,
          "keys= is for nbds:// and rdma:// only: leave it out" },
        { "[node a]\nurl = mem:1M?weight=2\nweight = 2\n", 3, "given twice" },
        { "[node a]\nweight = 2\nurl = mem:1M?weight=2\n", 3, "weight=2: given twice" },
        { "[node a]\nurl =\n", 2, "the value is missing" },
        { "[node a]\nurl = rdma://m\ngid-index = 65536\n", 3, "from 0 to 65535" },
        { "[node a]\nurl = rdma://m\ngid-index = 99999999999999999999\n", 3, "from 0 to 65535" },
};

static void bad_settings(void **state)
{
        static const char *const words[] = {
                "maybe", "true", "on", "1", "Yes", "off", "stats.txt"
        };
        char text[256];

        (void)state;
        for (size_t i = 0; i < COUNT(settings); i++) {
                snprintf(text, sizeof(text), "[vmrun]\n%s\n", settings[i].line);
                refused(text, 2, settings[i].words);
        }
        for (size_t i = 0; i < COUNT(node_settings); i++) {
                snprintf(text, sizeof(text), "[node a]\nurl = mem:1M\n%s\n", node_settings[i].line);
                refused(text, 3, node_settings[i].words);
        }
        for (size_t i = 0; i < COUNT(words); i++) {
                char cure[128];
                sprintf(text, "[vmrun]\nstats = %s\n", words[i]);
                sprintf(cure,
                        "stats = %s: give yes, no, table, or the path of a file with a / in it, as "
                        "in ./%s",
                        words[i], words[i]);
                refused(text, 2, cure);
        }
        limit = "/sys/fs/cgroup/a/memory.max";
        refused("[vmrun]\ncache = 65G\n", 2, "larger than the 64G that its control group may use "
                "(/sys/fs/cgroup/a/memory.max): give less, 48G is free now, or raise that limit");
        limit = NULL;
        accepted("[vmrun]\ncache = 25%\n");
        assert_int_equal(o.cache, 16ull << 30);
        accepted("[vmrun]\ncache = 100%\n");
        assert_true(o.cache <= 64ull << 30 && o.cache > (64ull << 30) - 2 * 4096);
        accepted("[vmrun]\ncache = 2M ; local\nstats = /tmp/a#b\n");
        assert_string_equal(o.stats_file, "/tmp/a#b");
}

static void bad_sections(void **state)
{
        (void)state;
        for (size_t i = 0; i < COUNT(files); i++)
                refused(files[i].text, files[i].line, files[i].words);
}

static void bad_files(void **state)
{
        static const char nul[] = "[vmrun]\ncache = 4G\0\nio = inline\n";
        char noise[3000];

        (void)state;
        assert_int_equal(read_bytes(nul, sizeof(nul) - 1), -EINVAL);
        assert_non_null(strstr(why, ":2: there is a NUL byte"));
        assert_int_equal(config_read(&o, "/no/such/file", why, sizeof(why)), -ENOENT);
        assert_string_equal(why, "/no/such/file: cannot be read: No such file or directory");
        assert_int_equal(config_read(&o, "/tmp", why, sizeof(why)), -EINVAL);
        assert_string_equal(why, "/tmp:1: cannot be read: Is a directory: name a file of text");

        /* Random bytes: an error or not, but no crash and no node without a URL. */
        srand(1);
        for (int round = 0; round < 3000; round++) {
                static const char letters[] = "[]=:;# \t\n\n\nvmrunode acheurl?&%\\\"\xff";
                size_t n = (size_t)rand() % sizeof(noise);
                for (size_t i = 0; i < n; i++)
                        noise[i] = round % 2 ? (char)rand()
                                             : letters[(size_t)rand() % (sizeof(letters) - 1)];
                int err = read_bytes(noise, n);
                assert_true(err == 0 || (err == -EINVAL && strncmp(why, path, strlen(path)) == 0));
                for (unsigned i = 0; i < o.nnodes; i++)
                        assert_true(o.nodes[i].url && o.nodes[i].name && o.nodes[i].weight);
        }
}

/* Where the file is looked for. /etc/vmrun.conf cannot be made here. */
static void places(void **state)
{
        char folder[] = "/tmp/vmrun-test.XXXXXX", file[64];
        const char *found;

        (void)state;
        assert_non_null(mkdtemp(folder));
        setenv("XDG_CONFIG_HOME", folder, 1);
        setenv("HOME", "/no/such/home", 1);
        found = config_default();
        assert_true(!found || strcmp(found, "/etc/vmrun.conf") == 0);
        snprintf(file, sizeof(file), "%s/vmrun.conf", folder);
        assert_int_equal(rename(path, file), 0);
        assert_string_equal(config_default(), file);
        assert_int_equal(chdir(folder), 0);
        setenv("XDG_CONFIG_HOME", ".", 1);                      /* a relative one does not count */
        found = config_default();
        assert_true(!found || strcmp(found, "/etc/vmrun.conf") == 0);
        assert_int_equal(rename(file, path), 0);
        assert_int_equal(chdir("/"), 0);
        assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
        int fd = mkstemp(path);
        if (fd < 0) {
                perror(path);
                return 99;
        }
        close(fd);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_of_it), cmocka_unit_test(little),
                cmocka_unit_test(bad_settings), cmocka_unit_test(bad_sections),
                cmocka_unit_test(bad_files), cmocka_unit_test(places),
        };
        int failed = cmocka_run_group_tests_name("config", tests, NULL, NULL);
        forget();
        unlink(path);
        return failed;
}
