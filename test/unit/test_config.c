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

/* A host that is always the same. */
uint64_t host_memory_total(void) { return 64ull << 30; }
uint64_t host_memory_available(void) { return 48ull << 30; }

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
                 "token-file = /etc/vmrun token\n"
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
        assert_string_equal(n->token_file, "/etc/vmrun token");
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
        assert_null(n->token_file);
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

static void bad_settings(void **state)
{
        (void)state;
        refused("cache = 4G\n", 1, "cache = 4G: stands in no section");
        refused("[vmrun]\ncache = 4G\ncache = 4G\n", 3, "cache = 4G: given twice");
        refused("[vmrun]\n\n# x\ncache = 4Q\n", 4, "cache = 4Q: this is no size");
        refused("[vmrun]\ncache = 1K\n", 2, "cache = 1K: too small");
        refused("[vmrun]\ncache = 65G\n", 2,
                "larger than this host's memory of 64G: give less, 48G is available now");
        refused("[vmrun]\ncache =\n", 2, "this is no size");
        refused("[vmrun]\nstats =\n", 2, "the value is missing");
        static const char *const words[] = {
                "maybe", "true", "on", "1", "Yes", "off", "stats.txt"
        };
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
                char text[64], cure[128];
                sprintf(text, "[vmrun]\nstats = %s\n", words[i]);
                sprintf(cure,
                        "stats = %s: give yes, no, table, or the path of a file with a / in it, as "
                        "in ./%s",
                        words[i], words[i]);
                refused(text, 2, cure);
        }
        refused("[vmrun]\nverbose = on\n", 2, "verbose = on: give no or yes");
        refused("[vmrun]\novercommit = 1\n", 2, "give no or yes");
        refused("[vmrun]\nfollow = maybe\n", 2, "give no or yes");
        refused("[vmrun]\nprefetch = all\n", 2, "give none, readahead, trend, auto or pointers");
        refused("[vmrun]\nprefetch-window = 1000\n", 2, "1 to 64");
        refused("[vmrun]\nplacement = raid\n", 2, "give weighted, linear or free");
        refused("[vmrun]\ntimeout = 0\n", 2, "seconds from 0.1 to 3600");
        refused("[vmrun]\nconnect-timeout = soon\n", 2, "seconds from 0.1 to 3600");
        refused("[vmrun]\nio = polling\n", 2, "give thread, inline or auto");
        refused("[vmrun]\nCache = 4G\n", 2, "Cache = 4G: unknown key in [vmrun]");
        refused("[vmrun]\nnode = mem:\n", 2, "unknown key");
        refused("[vmrun]\ncheck = yes\n", 2, "unknown key");
        refused("[vmrun]\ncache-mb = 512\n", 2,
                "cache-mb = 512: unknown key in [vmrun]: did you mean cache = 512M?");
        refused("[vmrun]\ncache_GiB = 4\n", 2, "did you mean cache = 4G?");
        refused("[vmrun]\ncache-size = 4G\n", 2, "did you mean cache?");
        refused("[vmrun]\ncahce = 4G\n", 2, "did you mean cache?");
        refused("[vmrun]\nconnect_timeout = 4\n", 2, "did you mean connect-timeout?");
        refused("[vmrun]\ntimeout-ms = 400\n", 2, "did you mean timeout?");
        refused("[vmrun]\nurl = rdma://m1\n", 2, "[node NAME], and below it url = rdma://m1");
        refused("[vmrun]\ncolour = red\n", 2,
                "unknown key in [vmrun]: give cache, stats, stats-interval, profile, verbose, "
                "overcommit, follow, verify, prefetch, prefetch-window, prefetch-history, far, "
                "control, placement, replicas, replicas-required, rebuild-rate, timeout, "
                "connect-timeout or io");
        refused("[node a]\nurl = mem:1M\nsize-mb = 512\n", 3,
                "size-mb = 512: unknown key: did you mean size = 512M?");
        refused("[vmrun]\ncache = 2M # local\n", 2,
                "cache = 2M # local: behind a value, remarks begin with ; (# is for whole lines): "
                "write cache = 2M ; local");
        refused("[node a]\nurl = mem:1M \t# here\n", 2, "write url = mem:1M ; here");
        refused("[vmrun]\ncache = \"2M\"\n", 2, "values stand without quotes: write cache = 2M");
        refused("[node a]\nurl = 'mem:1M'\n", 2, "write url = mem:1M");
        accepted("[vmrun]\ncache = 2M ; local\nstats = /tmp/a#b\n");
        assert_string_equal(o.stats_file, "/tmp/a#b");
        refused("[vmrun]\ncache\n", 2, "neither a section nor a setting");
        refused("[vmrun]\n= 4G\n", 2, "unknown key");
}

static void bad_sections(void **state)
{
        (void)state;
        refused("[vm]\n", 1, "[vm]: unknown section");
        refused("[vmrun]\nio = inline\n[]\n", 3, "[]: unknown section");
        refused("[Vmrun]\n", 1, "unknown section");
        refused("[vmrun\n", 1, "the ] is missing");
        refused("[vmrun] cache = 4G\n", 1, "something follows the ]");
        refused("[vmrun]\n[vmrun]\n", 2, "[vmrun]: this section was given before");
        refused("[nodes]\n", 1, "unknown section");
        refused("[node]\nurl = mem:1M\n", 1, "the node has no name");
        refused("[node ]\nurl = mem:1M\n", 1, "the node has no name");
        refused("[node a]\nurl = mem:1M\n[node a]\nurl = mem:2M\n", 3,
                "[node a]: this node was given before");
        refused("[node a]\nweight = 1\n", 1, "[node a]: the node has no url");
        refused("[node a]\n[node b]\nurl = mem:1M\n", 1, "[node a]: the node has no url");
        refused("[vmrun]\n[node a]\n", 2, "the node has no url");
        refused("[node a]\nurl = mem:1M\ndevice = mlx5_0\n", 1,
                "device and gid-index are for rdma:// only");
        refused("[node a]\nurl = dax:/x\ntoken-file = /t\n", 1,
                "memory of this host takes no token-file");
        refused("[node a]\nurl = mem:1M\ncache = 4G\n", 3, "cache = 4G: unknown key: give url,");
        refused("[node a]\nurl = mem:1M\nurl = mem:1M\n", 3, "given twice");
        refused("[node a]\nurl = mem:1M?weight=2\nweight = 2\n", 3, "given twice");
        refused("[node a]\nweight = 2\nurl = mem:1M?weight=2\n", 3, "weight=2: given twice");
        refused("[node a]\nurl =\n", 2, "the value is missing");
        refused("[node a]\nurl = mem:1M\nsize = big\n", 3, "size = big: this is no size");
        refused("[node a]\nurl = mem:1M\nsize = 1K\n", 3, "too small");
        refused("[node a]\nurl = mem:1M\nweight = 1.5\n", 3, "from 1 to 1000");
        refused("[node a]\nurl = rdma://m\ngid-index = 65536\n", 3, "from 0 to 65535");
        refused("[node a]\nurl = rdma://m\ngid-index = 99999999999999999999\n", 3,
                "from 0 to 65535");
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
        assert_string_equal(why, "/tmp:1: cannot be read: Is a directory");

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
