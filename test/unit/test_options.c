/*
 * The command line and the node URLs: sizes, what is accepted, and that every mistake ends with
 * status 125 and one sentence that names the value.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "abi_control.h"
#include "abi_direct.h"
#include "base/host.h"
#include "far/drain.h"
#include "far/far.h"
#include "far/grow.h"
#include "far/io.h"
#include "far/lease.h"
#include "far/memfd.h"
#include "far/nodes.h"
#include "far/scrub.h"
#include "far/sequence.h"
#include "far/timing.h"
#include "far/tree.h"
#include "settings/command_line.h"
#include "settings/node_draft.h"
#include "settings/settings.h"
#include "vm/kvm.h"
#include "vm/level.h"
#include "vm/vcpu.h"
#include "base/message.h"
#include "base/options.h"
#include "common/size.h"
#include "base/privfd.h"

/* --- what the runtime's files need from elsewhere --- */

int vm_probe_level(char *why, size_t n) { snprintf(why, n, "not here"); return -ENODEV; }
/* No node here is remote. */
void io_start(struct vm *vm, struct slot_pieces *pieces)
{
        (void)vm;
        (void)pieces;
}
void io_wait_attached(void) {}
void io_keep(void) {}
void io_turn(void) {}
uint64_t scrub_total(unsigned what) { (void)what; return 0; }
void scrub_thread_forked(void) {}
void request_forked(void) {}
bool outage_waits(void) { return false; }
bool drain_is_asked(void) { return false; }
void drain_is_over(struct far_node *n) { (void)n; }
void drain_forked(void) {}
const char *drain_state(const struct far_node *n) { (void)n; return NULL; }
bool io_is_attached(void) { return true; }
void io_forked(void) {}
void io_hold(void) {}
void io_release(void) {}
void io_end(void) {}
void io_again(void) {}
void io_wait(const void *word, uint32_t seen) { (void)word, (void)seen; }
void scrub_hold(void) {}
void scrub_release(void) {}
void scrub_rest(void) {}
void scrub_go_on(void) {}
void outage_on_loss(void (*owner)(const struct far_node *n)) { (void)owner; }
int io_add(struct far_node *n, char *why)
{
        (void)why;
        far_node_add(n);
        return 0;
}
bool io_stop(unsigned limit_ms) { (void)limit_ms; return true; }
static uint64_t far_room = 1ull << 40;
uint64_t vm_far_room(const struct vm *vm) { (void)vm; return far_room; }
static uint64_t next_gpa = 1ull << 32;
static int slots_left = 1000;
static uint64_t slot_host[64], slot_size[64];
static unsigned nslots;
uint64_t vm_take_gpa(struct vm *vm, uint64_t size)
{
        (void)vm;
        next_gpa += size;
        return next_gpa - size;
}
int vm_add_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size)
{
        (void)vm, (void)gpa;
        if (slots_left-- <= 0)
                return -EINVAL;
        if ((uint64_t)host >= TREE_WINDOW && (uint64_t)host < TREE_WINDOW_END)
                return 0;               /* which slots are whose: no far memory */
        slot_host[nslots % 64] = (uint64_t)host;
        slot_size[nslots++ % 64] = size;
        return 0;
}

void *kern_pointer(struct thread *t, uint64_t va, uint64_t len)
{
        (void)t, (void)len;
        return (void *)va;
}

/* --- running the parser in a child --- */

/* A folder with an empty vmrun.conf: the user's own may have settings. */
static char quiet[] = "/tmp/vmrun-test.XXXXXX";

struct run { int status; char out[4096], err[4096]; };

static void drain(int fd, char *text, size_t n)
{
        size_t at = 0;
        ssize_t r;
        while (at < n - 1 && (r = read(fd, text + at, n - 1 - at)) > 0)
                at += (size_t)r;
        text[at] = 0;
        close(fd);
}

/* vmrun ARG... up to the point where it would start; prints what it understood. */
static struct run vmrun(const char *const args[])
{
        struct run r;
        int out[2], err[2], argc = 1, status;
        char *argv[32] = { (char *)"vmrun" };

        for (; args[argc - 1]; argc++)
                argv[argc] = (char *)args[argc - 1];
        assert_int_equal(pipe(out) | pipe(err), 0);
        pid_t pid = fork();
        if (pid == 0) {
                dup2(out[1], 1);
                dup2(err[1], 2);
                optind = 0;
                message_prefix("vmrun: ");
                options_parse(argc, argv);
                far_name();
                far_init(1ull << 40);
                printf("cache=%llu nodes=%u verbose=%d stats=%s program=%s far=%llu placement=%d "
                       "timeout=%u connect=%u io=%d overcommit=%d follow=%d "
                       "prefetch=%u window=%u history=%u",
                       (unsigned long long)opt.cache, opt.nnodes, opt.verbose,
                       !opt.stats       ? "no"
                       : opt.stats_file ? opt.stats_file
                                        : "yes",
                       opt.argv[0] ? opt.argv[0] : "-", (unsigned long long)far_total_pages(),
                       opt.placement, opt.timeout_ms, opt.connect_timeout_ms, opt.io,
                       opt.overcommit, opt.follow, opt.prefetch, opt.prefetch_window,
                       opt.prefetch_history);
                for (char **a = opt.argv; *a; a++)
                        printf(" [%s]", *a);
                fflush(stdout);
                _exit(0);
        }
        close(out[1]);
        close(err[1]);
        drain(out[0], r.out, sizeof(r.out));
        drain(err[0], r.err, sizeof(r.err));
        waitpid(pid, &status, 0);
        r.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        return r;
}
#define VMRUN(...) vmrun((const char *const[]){ __VA_ARGS__, NULL })

/* Refused, in one line that begins with vmrun: and contains all the words. */
static void refused(struct run r, const char *word, const char *cure)
{
        print_message("%s", r.err);
        assert_int_equal(r.status, 125);
        assert_string_equal(r.out, "");
        assert_memory_equal(r.err, "vmrun: ", 7);
        assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
        assert_non_null(strstr(r.err, word));
        assert_non_null(strstr(r.err, cure));
}

static void accepted(struct run r, const char *words)
{
        if (r.status || !strstr(r.out, words))
                print_message("status %d, out: %s\nerr: %s\nexpected: %s\n", r.status, r.out, r.err,
                              words);
        assert_int_equal(r.status, 0);
        assert_string_equal(r.err, "");
        assert_non_null(strstr(r.out, words));
}

/* A command line, or a node's URL. A line is cut at its spaces; '' is an empty word. words: what it
 * is understood as, if cure is NULL; else it is refused, in one line with words and cure. */
struct line { const char *text, *words, *cure; };
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static void check(const struct line *l, struct run r)
{
        print_message("%s\n", l->text);
        if (l->cure)
                refused(r, l->words, l->cure);
        else
                accepted(r, l->words);
}

static void check_lines(const struct line lines[], size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const char *args[32] = { NULL };
                char text[128];
                unsigned nargs = 0;

                assert_true(strlen(lines[i].text) < sizeof(text));
                strcpy(text, lines[i].text);
                for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
                        args[nargs++] = strcmp(word, "''") == 0 ? "" : word;
                check(&lines[i], vmrun(args));
        }
}

static void check_urls(const struct line urls[], size_t n)
{
        for (size_t i = 0; i < n; i++)
                check(&urls[i], VMRUN("--cache=1M", "--node", urls[i].text, "ls"));
}

static void sizes(void **state)
{
        static const struct { const char *text; int ret; uint64_t bytes; } cases[] = {
                { "0", 0, 0 }, { "1", 0, 1 }, { "4096", 0, 4096 }, { "1k", 0, 1024 },
                { "1K", 0, 1024 }, { "1KiB", 0, 1024 }, { "3MiB", 0, 3 << 20 },
                { "3m", 0, 3 << 20 }, { "4G", 0, 4ull << 30 }, { "4gib", 0, 4ull << 30 },
                { "2T", 0, 2ull << 40 }, { "007K", 0, 7 << 10 },
                { "9223372036854775807", 0, INT64_MAX }, { "9223372036854775808", -ERANGE, 0 },
                { "18446744073709551616", -ERANGE, 0 }, { "18446744073709551617K", -ERANGE, 0 },
                { "8388607T", 0, 8388607ull << 40 }, { "8388608T", -ERANGE, 0 },
                { "99999999999999999999999999G", -ERANGE, 0 }, { "", -EINVAL, 0 },
                { "K", -EINVAL, 0 }, { "-1", -EINVAL, 0 }, { "+1", -EINVAL, 0 },
                { " 1", -EINVAL, 0 }, { "1 ", -EINVAL, 0 }, { "1.5G", -EINVAL, 0 },
                { "1KB", -EINVAL, 0 }, { "1Ki", -EINVAL, 0 }, { "1KiBs", -EINVAL, 0 },
                { "1P", -EINVAL, 0 }, { "0x10", -EINVAL, 0 }, { "1e3", -EINVAL, 0 },
                { "1B", -EINVAL, 0 }, { "99999999999999999999x", -EINVAL, 0 },
        };
        (void)state;
        for (size_t i = 0; i < COUNT(cases); i++) {
                uint64_t bytes = 0;
                int ret = size_parse(cases[i].text, &bytes);
                if (ret != cases[i].ret || bytes != cases[i].bytes)
                        fail_msg("'%s': %d, %llu", cases[i].text, ret, (unsigned long long)bytes);
        }
        char buf[32];
        assert_string_equal(size_text(0, buf), "0");
        assert_string_equal(size_text(1023, buf), "1023");
        assert_string_equal(size_text(4096, buf), "4K");
        assert_string_equal(size_text(3ull << 29, buf), "1.5G");
        assert_string_equal(size_text(1ull << 50, buf), "1024T");
}

static const struct line accepted_lines[] = {
        { "--cache 1M ls", "cache=1048576 nodes=0 verbose=0 stats=no program=ls", NULL },
        { "--cache=256K ls", "cache=262144 ", NULL },
        { "--cache 300000 ls", "cache=299008 ", NULL },               /* whole pages */
        { "--cache 1M --cache 2M ls", "cache=2097152 ", NULL },
        { "--cache=1M ls -l --cache 0", "[ls] [-l] [--cache] [0]", NULL },
        { "--cache=1M -- --odd", "program=--odd", NULL },
        { "--cache=1M ls -- -v", "verbose=0 stats=no program=ls", NULL },
        { "--cache=1M --stats ls", "stats=yes program=ls", NULL },
        { "--cache=1M --stats=f ls", "stats=./f program=ls", NULL },
        { "--cache=1M --stats=/f ls", "stats=/f program=ls", NULL },
        { "--cache=1M --stats=yes ls", "stats=yes program=ls", NULL },
        { "--cache=1M --node mem:1M --node=mem:2M ls",
          "nodes=2 verbose=0 stats=no program=ls far=768", NULL },
        { "ls", "nodes=0 ", NULL },
};

static void good_lines(void **state)
{
        (void)state;
        check_lines(accepted_lines, COUNT(accepted_lines));

        struct run r = VMRUN("-v", "--cache=1M", "ls");
        assert_int_equal(r.status, 0);
        assert_non_null(strstr(r.out, "verbose=1"));
        assert_non_null(strstr(r.err, "vmrun: node 0: mem:"));
        assert_non_null(strstr(r.err, "vmrun: settings: /tmp/vmrun-test."));
}

static const struct line refused_lines[] = {
        { "--cache 0 ls", "--cache 0", "256K or more" },
        { "--cache 1K ls", "--cache 1K", "256K or more" },
        { "--cache 262143 ls", "--cache 262143", "256K or more" },
        { "--cache 1000T ls", "--cache 1000T: larger than this host's memory", "give less" },
        { "--cache 99999999999999999999 ls", "99999999999999999999: larger", "give less" },
        { "--cache much ls", "--cache much", "as in 4G" },
        { "--cache '' ls", "--cache : this is no size", "as in 4G" },
        { "--cache", "--cache: a value is missing", "--help" },
        { "--stats= ls", "--stats=", "--stats=FILE" },
        { "--stats=on ls", "--stats on: ",
          "yes, no, table, or the path of a file with a / in it, as in ./on" },
        { "--stats=True ls", "--stats True: ", "./True" },
        { "--verbose=1 ls", "--verbose=1", "leave out" },
        { "--nosuch ls", "--nosuch", "--help" },
        { "--cahce=1M ls", "--cahce=1M: no such option", "did you mean --cache?" },
        { "--cache-mb 512 ls", "--cache-mb: no such option", "did you mean --cache?" },
        { "--c=1M ls", "--c=1M: no such option, or an abbreviation", "--help" },
        { "-x ls", "-x", "--help" },
        { "--check ls", "ls", "leave it out" },
        { "-v", "no program", "--help" },
        { "--cache 1M --", "no program", "--help" },
        { "--cache=1M ''", "no program", "--help" },
        { "--cache=1M", "no program", "--help" },
        { "--cache=1M --node mem:1M --node mem:x ls", "mem:x", "mem:8G" },
};

static void bad_lines(void **state)
{
        (void)state;
        check_lines(refused_lines, COUNT(refused_lines));
}

/* Settings that are also keys of the configuration file. */
static const struct line setting_lines[] = {
        { "--cache=1M ls",
          "placement=0 timeout=10000 connect=5000 io=2 overcommit=0 follow=1", NULL },
        { "--cache=1M --no-follow ls", "follow=0", NULL },
        { "--cache=1M --no-follow --follow ls", "follow=1", NULL },
        { "--cache=1M --placement=linear --timeout 0.5 "
          "--connect-timeout=12.25 --io inline --overcommit ls",
          "placement=1 timeout=500 connect=12250 io=1 overcommit=1", NULL },
        { "--cache=1M --placement=free --io=thread --prefetch=none --timeout=3600 ls",
          "placement=2 timeout=3600000 connect=5000 io=0", NULL },
        { "--placement best ls", "--placement best: give ", "weighted, linear or free" },
        { "--io '' ls", "--io : give ", "thread, inline or auto" },
        { "--cache=1M ls", "prefetch=3 window=0 history=32", NULL },
        { "--cache=1M --prefetch=trend --prefetch-window 64 --prefetch-history=4 ls",
          "prefetch=2 window=64 history=4", NULL },
        { "--cache=1M --prefetch readahead ls", "prefetch=1", NULL },
        { "--cache=1M --prefetch none ls", "prefetch=0", NULL },
        { "--prefetch all ls", "--prefetch all: give ",
          "none, readahead, trend, auto or pointers" },
        { "--prefetch-window 0 ls", "--prefetch-window 0: give ", "1 to 64" },
        { "--prefetch-window 65 ls", "--prefetch-window 65: give ", "1 to 64" },
        { "--prefetch-history 3 ls", "--prefetch-history 3: give ", "4 to 64" },
};

static void settings(void **state)
{
        static const char *const bad[] = { "",   "0",  "0.09",   "3601",       "-1",  "1s",
                                           "1.", ".5", "1.2345", "9999999999", "1e3", " 1" };

        (void)state;
        check_lines(setting_lines, COUNT(setting_lines));
        for (size_t i = 0; i < COUNT(bad); i++) {
                refused(VMRUN("--timeout", bad[i], "ls"), "--timeout ", "seconds from 0.1 to 3600");
                refused(VMRUN("--connect-timeout", bad[i], "ls"), "--connect-timeout ",
                        "seconds from 0.1 to 3600");
        }
}

/* The configuration file is found, and the command line goes over it. */
static void config_and_line(void **state)
{
        char folder[] = "/tmp/vmrun-test.XXXXXX", path[64], other[64];
        FILE *f;

        (void)state;
        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof(path), "%s/vmrun.conf", folder);
        snprintf(other, sizeof(other), "%s/other", folder);
        assert_non_null(f = fopen(path, "w"));
        fputs("[vmrun]\ncache = 1M\nverbose = no\nstats = ./f\nplacement = free\novercommit = yes\n"
              "[node a]\nurl = mem:1M\n[node b]\nurl = mem:2M\n", f);
        fclose(f);
        assert_non_null(f = fopen(other, "w"));
        fputs("[vmrun]\ncache = 2M\n", f);
        fclose(f);

        setenv("XDG_CONFIG_HOME", folder, 1);
        accepted(VMRUN("ls"), "cache=1048576 nodes=2 verbose=0 stats=./f program=ls far=768 "
                              "placement=2 timeout=10000 connect=5000 io=2 overcommit=1");
        accepted(VMRUN("--no-stats", "--no-overcommit", "--cache=3M", "ls"),
                 "cache=3145728 nodes=2 verbose=0 stats=no ");
        accepted(VMRUN("--no-overcommit", "ls"), "overcommit=0");
        accepted(VMRUN("--stats", "ls"), "stats=yes ");
        accepted(VMRUN("--placement=linear", "ls"), "placement=1");
        accepted(VMRUN("--node", "mem:4M", "ls"),
                 "nodes=1 verbose=0 stats=./f program=ls far=1024");
        accepted(VMRUN("--config", other, "ls"), "cache=2097152 nodes=0 verbose=0 stats=no ");
        accepted(VMRUN("--config", other, "--no-config", "--cache=1M", "ls"), "nodes=0 ");
        accepted(VMRUN("--no-config", "--config", other, "ls"), "cache=2097152 ");
        unsetenv("XDG_CONFIG_HOME");
        refused(VMRUN("--config", "/no/such/file", "ls"),
                "/no/such/file: cannot be read: No such file", "check the name after --config");
        refused(VMRUN("--config", folder, "ls"), ": cannot be read: Is a directory", folder);

        /* ~/.config, where XDG_CONFIG_HOME is not set. */
        char home[80];
        const char *old = getenv("HOME");
        snprintf(home, sizeof(home), "%s/.config", folder);
        assert_int_equal(mkdir(home, 0700), 0);
        snprintf(home, sizeof(home), "%s/.config/vmrun.conf", folder);
        assert_int_equal(rename(other, home), 0);
        setenv("HOME", folder, 1);
        accepted(VMRUN("ls"), "cache=2097152 ");
        old ? setenv("HOME", old, 1) : unsetenv("HOME");
        setenv("XDG_CONFIG_HOME", folder, 1);
        assert_non_null(f = fopen(path, "w"));
        fputs("[vmrun]\ncache = 1K\n", f);
        fclose(f);
        refused(VMRUN("--cache=1M", "ls"), "/vmrun.conf:2: cache = 1K: too small", "give 256K");
        accepted(VMRUN("--no-config", "--cache=1M", "ls"), "cache=1048576 ");
        setenv("XDG_CONFIG_HOME", quiet, 1);

        unlink(path);
        unlink(home);
        *strrchr(home, '/') = 0;
        rmdir(home);
        assert_int_equal(rmdir(folder), 0);
}

static const struct line refused_urls[] = {
        { "ftp://x", "unknown scheme 'ftp'", "mem:SIZE" },
        { "memory:1G", "unknown scheme 'memory'", "mem:SIZE" },
        { "4G", "--node 4G", "mem:SIZE" },
        { "", "--node : the value is missing", "give one" },
        { ":4G", "URL", "mem:SIZE" },
        { "mem:lots", "'lots' is no size", "mem:8G" },
        { "mem:0", "0 is too small", "at least" },
        { "mem:4095", "too small", "at least" },
        { "mem:5T", "5T is too large", "at most 4T" },
        { "mem:99999999999999999999", "too large", "at most 4T" },
        { "mem:?size=5T", "5T is too large", "at most 4T" },
};

static void bad_urls(void **state)
{
        (void)state;
        check_urls(refused_urls, COUNT(refused_urls));
}

/* Options of a node after its URL. */
static const struct line node_urls[] = {
        { "mem:4M?size=1M&weight=3", "far=256 ", NULL },
        { "mem:?size=2M", "far=512 ", NULL },
        { "mem:4M?size=%32M", "far=512 ", NULL },
        { "mem:4M?size=5M", "--node mem:4M?size=5M: it has 4M, not the size=5M", "give less" },
        { "mem:4M?size=1K", "size=1K: too small", "one page of 4K" },
        { "mem:4M?size=", "size=: this is no size", "as in 4G" },
        { "mem:4M?weight=0", "weight=0: ", "from 1 to 1000" },
        { "mem:4M?weight=1001", "weight=1001: ", "from 1 to 1000" },
        { "mem:4M?priority=-1", "priority=-1: ", "from 0 to 1000" },
        { "mem:4M?priority=1001", "priority=1001: ", "from 0 to 1000" },
        { "mem:4M?weight=1&weight=1", "weight=1: given twice", "leave one out" },
        { "mem:4M?url=mem:1M", "unknown option 'url'", "give size, weight" },
        { "mem:4M?color=red", "unknown option 'color'", "give size, weight" },
        { "mem:4M?", "'' after the ? has no value", "give size=" },
        { "mem:4M?weight", "'weight' after the ? has no value", "give size=" },
        { "mem:4M?weight=1&", "'' after the ? has no value", "give size=" },
        { "mem:4M?weight=%3", "two hexadecimal digits", "%25" },
        { "mem:4M?weight=%00", "two hexadecimal digits", "%25" },
        { "mem:4M?keys=/t", "keys= is for nbds:// and rdma:// only", "leave it out" },
        { "nbd://m1?keys=/t", "keys= is for nbds://", "give nbds://" },
        { "nbds://m1", "nbds:// needs keys=FILE", "or nbd://" },
        { "rdma://m1?client=a", "which key of keys=", "give keys=FILE" },
        { "mem:4M?device=mlx5_0", "for rdma:// only", "leave them out" },
        { "nbd://m1?gid-index=0", "for rdma:// only", "leave them out" },
        { "mem:4M?overwrite=yes", "overwrite is for dax: and file: only", "leave it out" },
        { "dax:/x?overwrite=1", "overwrite=1: ", "give no or yes" },
        { "rdma://m1?latency=100", "for mem: and dax: only", "leave them out" },
        { "nbd://m1?size=1M&bandwidth=1G", "for mem: and dax: only", "leave them out" },
        { "mem:4M?latency=2.4us", "latency=2.4us: ", "to 500000000" },
        { "mem:4M?latency=500000001", "latency=", "to 500000000" },
        { "mem:4M?latency=1&nic=mlx4", "nic=mlx4: unknown", "mlx5 only" },
        { "mem:4M?nic=mlx5", "nic is for mem: and dax: with a latency", "give latency= as well" },
        { "rdma://m1?nic=mlx5", "nic is for mem: and dax:", "leave it out" },
        { "rdma://m1?gid-index=-1", "gid-index=-1: ", "from 0 to 65535" },
        { "mem:4M?socket=/s", "unknown option 'socket'", "give size, weight" },
        { "nbd://m1?socket=/s", "unknown option 'socket'", "give size, weight" },
};

static void node_options(void **state)
{
        static char *const rates[] = { "0",     "1",   "999K", "1G5",   "1.G", "1.2345G", ".5G",
                                       "1001T", "-1G", "1GB",  "1.5.5", "",    "999999999999999T" };

        (void)state;
        check_urls(node_urls, COUNT(node_urls));
        for (size_t i = 0; i < COUNT(rates); i++) {
                char node[64];
                snprintf(node, sizeof(node), "mem:4M?bandwidth=%s", rates[i]);
                refused(VMRUN("--node", node, "ls"), "bandwidth=", "as in 12.5G");
        }

        memset(&opt, 0, sizeof(opt));
        opt.replicas = 1;
        optind = 0;
        char *line[] = { (char *)"vmrun",
                         (char *)"--cache=1M",
                         (char *)"--node",
                         (char *)"rdma://m1:7471?size=4097K&weight=2&keys=/etc/a%26b&"
                                 "gid-index=1&device=mlx5_0",
                         (char *)"--node",
                         (char *)"nbd+unix:///e?weight=7&socket=/run/s&size=8G",
                         (char *)"--node",
                         (char *)"dax:/x?overwrite=yes",
                         (char *)"--node",
                         (char *)"mem:1G?latency=2400&bandwidth=12.5G&priority=3",
                         (char *)"--node",
                         (char *)"mem:?bandwidth=1000000&nic=mlx5",
                         (char *)"ls",
                         NULL };
        options_parse(13, line);
        const struct node_option *n = opt.nodes;
        assert_int_equal(opt.nnodes, 5);
        assert_string_equal(n->url, "rdma://m1:7471");
        assert_string_equal(n->name, "rdma://m1:7471");
        assert_string_equal(n->keys, "/etc/a&b");
        assert_string_equal(n->device, "mlx5_0");
        assert_int_equal(n->size, 4097 << 10 & ~4095);
        assert_int_equal(n->weight, 2);
        assert_int_equal(n->gid_index, 1);
        n++;
        assert_string_equal(n->url, "nbd+unix:///e?socket=/run/s");
        assert_string_equal(n->origin, "--node nbd+unix:///e?weight=7&socket=/run/s&size=8G");
        assert_int_equal(n->weight, 7);
        assert_int_equal(n->size, 8ull << 30);
        assert_int_equal(n->gid_index, -1);
        assert_null(n->keys);
        assert_false(n->overwrite);
        n++;
        assert_string_equal(n->url, "dax:/x");
        assert_true(n->overwrite);
        assert_int_equal(n->latency | n->bandwidth, 0);
        n++;
        assert_string_equal(n->url, "mem:1G");
        assert_int_equal(n->latency, 2400);
        assert_int_equal(n->bandwidth, 12500000000);
        assert_int_equal(n->priority, 3);
        assert_false(n->card);
        n++;
        assert_int_equal(n->latency, 0);
        assert_int_equal(n->bandwidth, 1000000);
        assert_int_equal(n->priority, 0);
        assert_true(n->card);
        for (unsigned i = 0; i < opt.nnodes; i++)
                node_option_free(&opt.nodes[i]);
}

static void help_and_version(void **state)
{
        (void)state;
        struct run r = VMRUN("--help");
        assert_int_equal(r.status, 0);
        assert_non_null(strstr(r.out, "--overcommit"));
        assert_string_equal(r.err, "");
        r = VMRUN("--version");
        assert_int_equal(r.status, 0);
        assert_memory_equal(r.out, "vmrun ", 6);
}

/* A child takes its parent's next slab before it leases its own. Both see what is in the slab. */
static void leases_of_a_tree(void)
{
        struct tree_child c;
        int status;

        memset(&opt, 0, sizeof(opt));
        opt.replicas = 1;
        opt.nodes[opt.nnodes++] =
                (struct node_option){ .url = "mem:64M", .origin = "--node mem:64M", .weight = 1 };
        far_name();
        far_init(8ull << 40);
        assert_int_equal(far_lease(NULL, 0), 0);
        struct tree *t = slabs_tree();
        assert_int_equal(tree_child(t, &c), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                /* Its own CONTROL, as a process with a VM of its own has one. */
                bool good = true;
                tree_be_child(t, &c);
                mmap((void *)CONTROL, sizeof(struct control), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                CONTROL->nslabs = 1;
                while (t->head->nslabs < 2)
                        usleep(1000);
                good = good && far_lease(NULL, 1) == 0 && CONTROL->nslabs == 2 &&
                       t->head->nslabs == 2 && CONTROL->tree_number == c.number;
                good = good && CONTROL->slabs[1].pages == 32 << 8 &&
                       ((volatile char *)CONTROL->slabs[1].va)[100] == 42;
                /* The third is leased by the child, and the parent's as well. */
                good = good && far_lease(NULL, 2) == 0 && t->head->nslabs == 3;
                if (good)
                        ((volatile char *)CONTROL->slabs[2].va)[200] = 43;
                good = good && far_lease(NULL, 3) == -EBUSY;
                _exit(good ? 0 : 1);
        }
        assert_int_equal(far_lease(NULL, 1), 0);
        ((volatile char *)CONTROL->slabs[1].va)[100] = 42;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        tree_child_left(&c);
        assert_int_equal(CONTROL->nslabs, 2);
        assert_int_equal(far_lease(NULL, 2), 0);
        assert_int_equal(((volatile char *)CONTROL->slabs[2].va)[200], 43);
        assert_int_equal(far_lease(NULL, 3), -ENOSPC);
}

/* The times that kern is told for a node that is to be as slow as a node behind a network. */
static void timing(void **state)
{
        struct slab s = { .kind = SLAB_MEMORY };
        struct node_option o = { 0 };
        char text[128];

        (void)state;
        timing_slab(&s, &o, 1000000);
        timing_text(&o, text, sizeof(text));
        assert_int_equal(s.kind, SLAB_MEMORY);
        assert_string_equal(text, "");
        o = (struct node_option){ .latency = 2400, .bandwidth = 12500000000 };
        timing_slab(&s, &o, 1000000);
        timing_text(&o, text, sizeof(text));
        assert_int_equal(s.kind, SLAB_TIMED);
        assert_int_equal(s.latency, 2400);
        assert_int_equal(s.page_ticks, 32768 * (1ull << SLAB_TICK_SHIFT) / 100);
        assert_string_equal(text, ", as if behind a network of 2400 ns and 12.5 GB/s");
        assert_false(s.queues || s.direct);
        o = (struct node_option){ .latency = 500000000, .card = true };
        timing_slab(&s, &o, 2999999);
        timing_text(&o, text, sizeof(text));
        assert_string_equal(text, ", as if behind a network of 500000000 ns and a ConnectX card");
        assert_true(s.queues == 1 && s.direct == 1 && s.place[0].epoch == CARD_EPOCH);
        assert_int_equal(s.latency, 1499999500);
        assert_int_equal(s.page_ticks, 0);
        o = (struct node_option){ .bandwidth = 1000000 };
        timing_slab(&s, &o, 5000000);
        assert_int_equal(s.latency, 0);
        assert_int_equal(s.page_ticks >> SLAB_TICK_SHIFT, 20480000);
}

static void no_wake(void) {}
static const struct vm_calls no_calls = { .wake_service = no_wake };

static int add(struct vm *vm, const char *url, char why[FAR_WHY])
{
        const struct node_option o = { .url = url, .name = url, .origin = url, .weight = 1 };
        return far_add(vm, &o, why);
}

/* A node more, before there is a slab. */
static void a_node_more_at_first(void)
{
        struct vm vm = { .calls = &no_calls };
        char why[FAR_WHY] = "";

        memset(&opt, 0, sizeof(opt));
        opt.replicas = 1;
        far_name();
        far_init(8ull << 40);
        assert_int_equal(far_nodes(), 1);
        uint64_t first = far_total_pages();
        assert_int_equal(add(&vm, "mem:8M", why), 0);
        /* The node that no option named is named now, for programs that this one executes. */
        assert_int_equal(opt.nnodes, 2);
        assert_string_equal(opt.nodes[0].url, "mem:");
        assert_string_equal(opt.nodes[1].url, "mem:8M");
        assert_int_equal(far_total_pages(), first + 2048);
        assert_int_equal(CONTROL->far_pages, 2048);
}

/* A node more, when all are used up. */
static void a_node_more(void)
{
        struct vm vm = { .calls = &no_calls };
        uint64_t used[NODES_MAX];
        char why[FAR_WHY] = "";

        memset(&opt, 0, sizeof(opt));
        opt.replicas = 1;
        opt.nodes[opt.nnodes++] =
                (struct node_option){ .url = "mem:8M", .origin = "--node mem:8M", .weight = 1 };
        far_name();
        far_init(8ull << 40);
        assert_int_equal(far_lease(NULL, 0), 0);
        assert_int_equal(far_lease(NULL, 1), -ENOSPC);
        uint32_t before = CONTROL->nodes_added;
        assert_int_equal(add(&vm, "mem:24M", why), 0);
        assert_int_equal(CONTROL->nodes_added, before + 1);
        assert_int_equal(far_lease(NULL, 1), 0);
        assert_int_equal(CONTROL->slabs[1].node, 1);
        assert_int_equal(CONTROL->slabs[1].pages, 16 << 8);
        assert_int_equal(far_lease(NULL, 2), 0);
        assert_int_equal(CONTROL->slabs[2].pages, 8 << 8);
        assert_int_equal(far_lease(NULL, 3), -ENOSPC);
        /* The tree has the added node, too, for a program that this process executes. */
        assert_int_equal(slabs_tree()->head->nnodes, 2);
        assert_int_equal(slabs_tree()->head->node[1].leased, 24 << 8);

        /* The leases of a child that has ended count. */
        assert_int_equal(add(&vm, "mem:48M", why), 0);
        slabs_tree()->head->node[2].leased = 16 << 8;
        slabs_tree()->head->node[2].slabs = 1;
        assert_int_equal(add(&vm, "mem:1M", why), 0);
        assert_int_equal(slabs_tree()->head->node[2].leased, 16 << 8);
        assert_int_equal(slabs_tree()->head->nnodes, 4);

        /* The pages that are held of each. */
        struct tree *t = slabs_tree();
        chunk_touch(tree_map(t->units, 0), t->self, 0);
        chunk_touch(tree_map(t->units, 1), t->self, 3);
        atomic_store(slot_word(t->units, 5), (uint16_t)(SLOT_OWNED | t->self));
        for (unsigned i = 0; i < 7; i++)
                atomic_store(slot_word(t->units, (1ull << SLAB_SHIFT) + 3 * CHUNK_PAGES + i),
                             (uint16_t)(SLOT_OWNED | SLOT_DUE | t->self));
        slabs_used(used);
        assert_int_equal(used[0], 1);
        assert_int_equal(used[1], 7);
}

/* No node is added while others share the tree, nor a node that does not exist, or does not fit. */
static void no_node_more(void)
{
        struct vm vm = { .calls = &no_calls };
        struct tree_child c;
        char why[FAR_WHY] = "";

        memset(&opt, 0, sizeof(opt));
        opt.replicas = 1;
        opt.nodes[opt.nnodes++] =
                (struct node_option){ .url = "mem:8M", .origin = "--node mem:8M", .weight = 1 };
        far_name();
        far_init(8ull << 40);
        assert_int_equal(far_lease(NULL, 0), 0);
        uint64_t pages = CONTROL->far_pages;
        assert_int_equal(tree_child(slabs_tree(), &c), 0);
        assert_int_equal(add(&vm, "mem:8M", why), -EBUSY);
        assert_non_null(strstr(why, "share its far memory"));
        tree_child_left(&c);
        assert_int_equal(add(&vm, "tape:8M", why), -EIO);
        assert_non_null(strstr(why, "unknown scheme 'tape'"));
        far_room = 0;
        assert_int_equal(add(&vm, "mem:8M", why), -ENOSPC);
        far_room = 1024;                /* pages: it is cut to them */
        assert_int_equal(far_nodes(), 1);
        assert_int_equal(CONTROL->far_pages, pages);
        assert_int_equal(opt.nnodes, 1);
        assert_int_equal(add(&vm, "mem:8M", why), 0);
        assert_int_equal(CONTROL->far_pages, pages + 1024);
        far_room = 1ull << 40;
        for (unsigned i = 2; i < NODES_MAX; i++)
                assert_int_equal(add(&vm, "mem:64K", why), 0);
        assert_int_equal(add(&vm, "mem:64K", why), -ENOSPC);
        assert_non_null(strstr(why, "there are 64 nodes already"));
}

/* Two memory nodes filled in order: slabs double from 16 MiB to 1 GiB node by node, do not overlap,
 * and end with the nodes; a sparse 1 TiB costs nothing. */
static void leases(void)
{
        memset(&opt, 0, sizeof(opt));
        opt.replicas = 1;
        opt.placement = PLACE_LINEAR;
        opt.nodes[opt.nnodes++] =
                (struct node_option){ .url = "mem:40M", .origin = "--node mem:40M", .weight = 1 };
        opt.nodes[opt.nnodes++] =
                (struct node_option){ .url = "mem:1T", .origin = "--node mem:1T", .weight = 1,
                                      .latency = 1 };
        far_name();
        far_init(8ull << 40);
        assert_int_equal(far_total_pages(), (40ull << 20 | 1ull << 40) / PAGE_SIZE);

        static const uint64_t mib[] = { 16, 24, 16, 32, 64, 128, 256, 512, 1024, 1024 };
        for (size_t i = 0; i < COUNT(mib); i++) {
                assert_int_equal(far_lease(NULL, (uint32_t)i), 0);
                /* kern could not make use of it the first time */
                assert_int_equal(far_lease(NULL, (uint32_t)i), 0);
                const struct slab *s = &CONTROL->slabs[i];
                assert_int_equal(CONTROL->nslabs, i + 1);
                assert_int_equal(s->kind, s->node ? SLAB_TIMED : SLAB_MEMORY);
                assert_int_equal(s->pages, mib[i] << 8);
                assert_int_equal(s->node, i < 2 ? 0 : 1);
                assert_int_equal(s->va % (2 << 20), 0);
                assert_true(s->va == slot_host[i] && s->pages * 4096ull == slot_size[i]);
                if (i)
                        assert_true(s->va >= s[-1].va + s[-1].pages * 4096ull &&
                                    s->gpa >= s[-1].gpa + s[-1].pages * 4096ull);
                /* mapped, shared, and apart from its neighbours */
                ((volatile char *)s->va)[0] = (char)i;
                ((volatile char *)s->va)[s->pages * 4096ull - 1] = (char)i;
        }
        for (size_t i = 0; i < COUNT(mib); i++)
                assert_int_equal(*(char *)CONTROL->slabs[i].va, i);

        /* A VM that gives no further memory slot: the node counts as full, and the VM continues. */
        slots_left = 0;
        assert_int_equal(far_lease(NULL, 10), -ENOSPC);
        slots_left = 1000;
        assert_int_equal(far_lease(NULL, 10), -ENOSPC);
        assert_int_equal(far_total_pages(), far_leased_pages());
}

/* Where they begin: above the soft limit with room between, if the hard limit has that room and the
 * kernel's table does not become too long. */
static void private_base(void **state)
{
        static const struct { uint64_t soft, hard, base; } of[] = {
                { 128, 1 << 20, 128 + 960 },
                { 1024, 1 << 20, 1024 + 960 },
                { 1024, 4096, 1024 + 960 },
                { 4096 - 256 - 960, 4096, 4096 - 256 },
                { 4096 - 256 - 959, 4096, 4096 - 256 },
                { 4096, 4096, 4096 - 256 },
                { 1024, 1024, 1024 - 64 },
                { 65536, 1 << 20, 65536 + 960 },
                { 65537, 1 << 20, 65536 },
                { 1 << 20, 1 << 20, 65536 },
        };

        (void)state;
        for (size_t i = 0; i < COUNT(of); i++) {
                privfd_init_seen(of[i].soft, of[i].hard);
                assert_int_equal(privfd_base(), of[i].base);
        }
        privfd_init();          /* the limits that there are */
}

/* Private fds: above what the program sees, gone when closed. */
static void private_fds(void **state)
{
        (void)state;
        pid_t pid = fork();
        if (pid == 0) {
                struct rlimit r = { 128, 4096 };
                if (setrlimit(RLIMIT_NOFILE, &r) != 0)
                        _exit(20);
                privfd_init();
                if (privfd_nofile_soft() != 128 || privfd_nofile_hard() != 4096)
                        _exit(21);
                int a = privfd_dup(1), b = privfd_move(dup(1));
                if (a != 1088 || b != 1089 || !privfd_is(a) || !privfd_is(b) || privfd_is(1) ||
                    privfd_is(127) || privfd_is(-1))
                        _exit(22);
                if (privfd_set_nofile(4096, 4096) != 0 || privfd_set_nofile(10, 5) != -EINVAL)
                        _exit(23);
                /* The program may now use numbers around ours. */
                if (dup2(1, 1087) != 1087 || dup2(1, 1090) != 1090 || dup2(1, 4095) != 4095)
                        _exit(24);
                if (fcntl(a, F_GETFD) != FD_CLOEXEC || fcntl(b, F_GETFD) != FD_CLOEXEC)
                        _exit(25);
                if (privfd_next(0) != a || privfd_next(a + 1) != b || privfd_next(b + 1) != -1)
                        _exit(26);
                privfd_close(a);
                if (privfd_is(a) || fcntl(a, F_GETFD) >= 0 || privfd_next(0) != b)
                        _exit(27);
                if (privfd_move(-1) != -EBADF)
                        _exit(28);
                _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);

        /* No room above the limit: the program still sees it unchanged. */
        pid = fork();
        if (pid == 0) {
                struct rlimit r = { 1024, 1024 };
                if (setrlimit(RLIMIT_NOFILE, &r) != 0)
                        _exit(20);
                privfd_init();
                int a = privfd_dup(1), last = a;
                if (privfd_nofile_soft() != 1024 || privfd_nofile_hard() != 1024 || a != 1024 - 64)
                        _exit(21);
                while ((a = privfd_dup(1)) >= 0)
                        last = a;
                if (a != -EMFILE || last != 1023)
                        _exit(22);
                _exit(privfd_set_nofile(100, 1024) != 0 || privfd_nofile_soft() != 100 ||
                      privfd_set_nofile(1024, 1024) != 0);
        }
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
}

/* Runs a case in a process of its own: the nodes that it opens stay until its process ends. */
static void apart(void **state)
{
        void (*const run)(void) = *(void (**)(void))*state;
        int status;

        fflush(stdout);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                setenv("CMOCKA_TEST_ABORT", "1", 1);    /* an assertion must not return to main() */
                run();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}
#define APART(run) { #run, apart, NULL, NULL, &(void (*)(void)){ run } }

int main(void)
{
        memfd_init(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
        /* Only the control page of the window is needed. */
        void *control = mmap(CONTROL, VCPUS_OFF - CONTROL_OFF, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (control != (void *)CONTROL) {
                perror("the window is taken");
                return 99;
        }
        unsetenv("VMRUN_DEBUG");
        char empty[64];
        if (!mkdtemp(quiet) || snprintf(empty, sizeof(empty), "%s/vmrun.conf", quiet) < 0 ||
            close(creat(empty, 0600)) != 0) {
                perror("no folder for an empty configuration file");
                return 99;
        }
        setenv("XDG_CONFIG_HOME", quiet, 1);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(sizes), cmocka_unit_test(good_lines), cmocka_unit_test(bad_lines),
                cmocka_unit_test(bad_urls), cmocka_unit_test(settings),
                cmocka_unit_test(config_and_line), cmocka_unit_test(node_options),
                cmocka_unit_test(help_and_version), cmocka_unit_test(private_base),
                cmocka_unit_test(private_fds), cmocka_unit_test(timing),
                APART(leases), APART(a_node_more_at_first), APART(a_node_more),
                APART(no_node_more), APART(leases_of_a_tree),
        };
        int failed = cmocka_run_group_tests_name("options", tests, NULL, NULL);
        unlink(empty);
        rmdir(quiet);
        return failed;
}
