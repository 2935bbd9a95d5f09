/*
 * The statistics: snapshots of counters that move, resets, and what the four writers make of them.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "abi_control.h"
#include "abi_exits.h"
#include "abi_stats.h"
#include "abi_vcpu.h"
#include "base/options.h"
#include "stats/formats.h"
#include "stats/model.h"
#include "stats/report.h"
#include "stats/write.h"
#include "vm/counters.h"

#define VCPUS 3
#define NODES 100
#define KHZ   2000000                   /* 1 tick is half a nanosecond */

/* ---- owners ---- */

static struct vcpu_stats *of_vcpu(unsigned n) { return vcpu_stats(vcpu_block(n)); }

static const char *program = "p";

static void add_identity(struct stats *s)
{
        static const struct stats_kind pid = { .key = "pid", .type = STATS_GAUGE },
                execs = { .key = "execs", .type = STATS_GAUGE }, cache = {
                .key = "cache_bytes", .type = STATS_GAUGE, .unit = STATS_BYTES, .metric = "cache",
                .help = "Size",
        }, about = { .key = "about.%", .type = STATS_TEXT, .help = "About" },
           name = { .key = "name", .type = STATS_TEXT };

        stats_count(s, &pid, NULL, 77);
        stats_count(s, &execs, NULL, 3);
        stats_count(s, &cache, NULL, 3 << 19);
        stats_text(s, &about, "program", program, false);
        stats_text(s, &name, NULL, "run", false);
}

static uint64_t moved;

/* Between those of the nodes come others, as in vmrun. */
static void add_nodes(struct stats *s)
{
        static const struct stats_kind url = {
                .key = "node.%.url", .type = STATS_TEXT, .label = "node", .title = "node",
                .help = "Nodes",
        }, named = {
                .key = "node.%.name", .type = STATS_TEXT, .label = "node",
        }, pages = {
                .key = "node.%.read", .type = STATS_COUNTER, .metric = "node_pages_read",
                .label = "node", .title = "pages read", .help = "Pages",
        }, bytes = {
                .key = "node.%.leased_bytes", .type = STATS_GAUGE, .unit = STATS_BYTES,
                .metric = "node_leased", .label = "node", .title = "leased", .help = "Bytes",
        }, name = {
                .key = "setting.%", .type = STATS_TEXT, .help = "Settings",
        };
        char number[16];

        for (unsigned i = 0; i < NODES; i++) {
                snprintf(number, sizeof(number), "%u", i);
                stats_text(s, &url, number, i ? "mem:4G" : "dax:/a \"b\\c\"\n\xff\xc3\xa4", false);
        }
        for (unsigned i = 0; i < NODES; i++) {
                snprintf(number, sizeof(number), "%u", i);
                stats_text(s, &named, number, i ? "m" : "far", false);
        }
        stats_text(s, &name, "stats-interval", "0.5", true);
        stats_text(s, &name, "config", "", false);
        for (unsigned i = 0; i < NODES; i++) {
                stats_numbered(s, &pages, i, moved * i);
                stats_numbered(s, &bytes, i, i);
        }
}

static void count_fault(struct vcpu_stats *v, enum fault_kind kind, uint64_t ticks)
{
        __atomic_store_n(&v->faults[kind], v->faults[kind] + 1, __ATOMIC_RELAXED);
        uint64_t *bucket = &v->hist[kind][hist_bucket(ticks)];
        __atomic_store_n(bucket, *bucket + 1, __ATOMIC_RELAXED);
        __atomic_store_n(&v->ticks[kind], v->ticks[kind] + ticks, __ATOMIC_RELAXED);
}

static int set_up(void **state)
{
        const size_t size = VCPUS_OFF + VCPUS * VCPU_BLOCK - CONTROL_OFF;

        (void)state;
        if (mmap(CONTROL, size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != CONTROL)
                return -1;
        CONTROL->nvcpus = VCPUS;
        CONTROL->tsc_khz = KHZ;
        stats_begin();
        stats_register(add_identity);
        stats_register(counters_stats);
        stats_register(add_nodes);
        return 0;
}

static void clear(void)
{
        for (unsigned n = 0; n < VCPUS; n++)
                memset(of_vcpu(n), 0, sizeof(struct vcpu_stats));
        assert_int_equal(stats_reset(), 0);
}

/* ---- what is printed ---- */

static char *text_of(enum stats_format format)
{
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        assert_non_null(f);
        assert_int_equal(stats_write(f, format), 0);
        assert_int_equal(fclose(f), 0);
        return text;
}

static bool has_line(const char *text, const char *line)
{
        size_t n = strlen(line);

        for (const char *at = text; (at = strstr(at, line)); at++)
                if ((at == text || at[-1] == '\n') && at[n] == '\n')
                        return true;
        return false;
}

static void assert_line(enum stats_format format, const char *line)
{
        char *text = text_of(format);
        if (!has_line(text, line))
                fail_msg("\"%s\" is not in\n%s", line, text);
        free(text);
}

static void assert_no_key(const char *key)
{
        struct stats s = { 0 };
        assert_int_equal(stats_collect(&s), 0);
        char *text = text_of(STATS_FLAT);
        if (strstr(text, key))
                fail_msg("%s is there", key);
        free(text);
        stats_free(&s);
}

static void test_no_samples(void **state)
{
        (void)state;
        clear();
        assert_line(STATS_FLAT, "faults.total 0");
        assert_line(STATS_FLAT, "doorbells_per_64_evictions 0.00");
        assert_line(STATS_FLAT, "pid 77");
        assert_no_key("latency_ns");
        assert_no_key("exits.ready");
        char *table = text_of(STATS_TABLE);
        assert_null(strstr(table, "p99.9"));
        assert_null(strstr(table, "small"));
        assert_non_null(strstr(table, "does not limit this program"));
        free(table);
        assert_line(STATS_PROM, "vmrun_fault_latency_seconds_count{vmrun=\"run\","
                                "kind=\"zero\"} 0");
}

static void test_points(void **state)
{
        (void)state;
        clear();
        /* 8 and 16 octaves above the linear part: buckets of 256 and 65,536 ticks */
        for (unsigned i = 0; i < 999; i++)
                count_fault(of_vcpu(i % VCPUS), FAULT_FETCH, 2048);
        count_fault(of_vcpu(0), FAULT_FETCH, 1 << 19);
        assert_line(STATS_FLAT, "faults.fetch 1000");
        assert_line(STATS_FLAT, "faults.total 1000");
        assert_line(STATS_FLAT, "latency_ns.fetch.p50 1151");   /* [2048, 2304) */
        assert_line(STATS_FLAT, "latency_ns.fetch.p99.9 1151");
        assert_line(STATS_FLAT, "latency_ns.fetch.max 294911"); /* [2^19, 2^19 + 2^16) */
        assert_line(STATS_FLAT, "latency_ns.fetch.mean 1285");
        assert_line(STATS_FLAT, "latency_ns.fetch.count 1000");
        assert_line(STATS_TABLE,
                    "fault: fetch               1,000 1.28 us 1.15 us 1.15 us 1.15 us 1.15 us"
                    "  295 us");
        assert_line(STATS_TABLE,
                    "  1.00 us to  2.00 us          999 "
                    "|@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|");
        assert_line(STATS_TABLE,
                    "   200 us to   500 us            1 "
                    "|.                                       |");
        assert_line(STATS_PROM, "vmrun_fault_latency_seconds_bucket{vmrun=\"run\","
                                "kind=\"fetch\",le=\"+Inf\"} 1000");
        assert_line(STATS_PROM, "vmrun_fault_latency_seconds_bucket{vmrun=\"run\","
                                "kind=\"fetch\",le=\"1e-06\"} 0");
        assert_line(STATS_PROM, "vmrun_fault_latency_seconds_bucket{vmrun=\"run\","
                                "kind=\"fetch\",le=\"2e-06\"} 999");
        CONTROL->tsc_khz = KHZ + 12345;         /* another host */
        assert_line(STATS_PROM, "vmrun_fault_latency_seconds_bucket{vmrun=\"run\","
                                "kind=\"fetch\",le=\"2e-06\"} 999");
        CONTROL->tsc_khz = KHZ;
        assert_line(STATS_PROM, "vmrun_fault_latency_seconds_sum{vmrun=\"run\","
                                "kind=\"fetch\"} 0.001285120");
}

/* Counters and histograms begin again, gauges stay, ratios follow their counters. */
static void test_reset(void **state)
{
        struct vcpu_stats *v = of_vcpu(1);

        (void)state;
        clear();
        count_fault(v, FAULT_FETCH, 1 << 20);
        v->counter[CNT_DOORBELLS] = 5;
        v->counter[CNT_EVICTED_CLEAN] = 64;
        v->exits[EXIT_TIME] = 2;
        assert_line(STATS_FLAT, "doorbells_per_64_evictions 5.00");
        assert_line(STATS_FLAT, "exits.time 2");
        assert_int_equal(stats_reset(), 0);
        assert_line(STATS_FLAT, "faults.fetch 0");
        assert_line(STATS_FLAT, "evicted 0");
        assert_line(STATS_FLAT, "doorbells_per_64_evictions 0.00");
        assert_line(STATS_FLAT, "vcpus 3");
        assert_no_key("latency_ns");
        count_fault(v, FAULT_FETCH, 8);
        v->counter[CNT_DOORBELLS]++;
        v->counter[CNT_EVICTED_CLEAN] += 32;
        v->exits[EXIT_READY] = 1;       /* was not there at the reset */
        assert_line(STATS_FLAT, "latency_ns.fetch.max 4");
        assert_line(STATS_FLAT, "doorbells_per_64_evictions 2.00");
        assert_line(STATS_FLAT, "exits.ready 1");
        assert_line(STATS_FLAT, "exits.time 0");
        assert_line(STATS_FLAT, "exits.total 1");
}

static void test_texts(void **state)
{
        (void)state;
        clear();
        assert_line(STATS_FLAT, "node.0.url dax:/a \"b\\c\"??\xc3\xa4");
        assert_line(STATS_PROM, "vmrun_node_info{vmrun=\"run\",node=\"far\","
                                "url=\"dax:/a \\\"b\\\\c\\\"??\xc3\xa4\"} 1");
        assert_line(STATS_PROM, "vmrun_setting_info{vmrun=\"run\",stats_interval=\"0.5\","
                                "config=\"\"} 1");
        assert_line(STATS_PROM, "vmrun_info{vmrun=\"run\",pid=\"77\",exec=\"3\",program=\"p\"} 1");
        moved += 10;
        assert_line(STATS_FLAT, "node.99.read 990");
        assert_line(STATS_PROM, "vmrun_node_pages_read_total{vmrun=\"run\",node=\"m (99)\"} "
                                "990");
}

static void test_units(void **state)
{
        static const struct { uint64_t ns; const char *text;
        } times[] = {
                { 0, "0 ns" }, { 999, "999 ns" }, { 1000, "1.00 us" }, { 9994, "9.99 us" },
                { 9996, "10.0 us" }, { 99949, "99.9 us" }, { 99960, "100 us" },
                { 999400, "999 us" }, { 999600, "1.00 ms" }, { 1500000000, "1.50 s" },
                { 5400000000000, "5400 s" },
        };
        char text[32];

        (void)state;
        for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
                assert_string_equal(stats_ns_text(times[i].ns, text), times[i].text);
        assert_string_equal(stats_number_text(0, text), "0");
        assert_string_equal(stats_number_text(999, text), "999");
        assert_string_equal(stats_number_text(1000, text), "1,000");
        assert_string_equal(stats_number_text(UINT64_MAX, text), "18,446,744,073,709,551,615");
}

/* The verdict names each problem that the run had, and no other. */
static void test_verdict(void **state)
{
        struct vcpu_stats *v = of_vcpu(0);
        const struct timespec pause = { .tv_nsec = 20000000 };

        (void)state;
        clear();
        nanosleep(&pause, NULL);
        count_fault(v, FAULT_FETCH, 1000);
        assert_line(STATS_FLAT, "verdict.cache 0");
        for (unsigned i = 0; i < 1000; i++)
                count_fault(v, FAULT_FETCH, 10 * KHZ);  /* 10 s in all */
        assert_line(STATS_FLAT, "verdict.cache 1");
        v->counter[CNT_DIRECT_RECLAIM] = 600;   /* threads that evict do not wait */
        assert_line(STATS_FLAT, "verdict.cleaner 0");
        v->counter[CNT_FRAME_WAITS] = 60;
        assert_line(STATS_FLAT, "verdict.cleaner 1");
        assert_line(STATS_FLAT, "verdict.wire 0");
        assert_line(STATS_TABLE,
                    "The cleaner is behind, 5 % of the faults that needed a frame slept until one "
                    "was");
        assert_line(STATS_TABLE, "    free: leave it a CPU, or try --cache 3M.");
}

/* A program's name that is a long path, numbers of ten digits, nodes with long addresses. */
static void test_screen(void **state)
{
        (void)state;
        clear();
        program = "/a/path/that/is/longer/than/a/line/of/the/screen/has/columns/so/that/its/"
                  "beginning/is/cut/off/and/the/end/is/shown";
        for (unsigned i = 0; i < FAULT_SPURIOUS; i++)
                count_fault(of_vcpu(0), i, 1ull << 33);
        of_vcpu(0)->counter[CNT_FETCHED] = 12345678901;
        assert_line(STATS_TABLE, "virtual CPUs                         3    page faults           "
                                 "               6");
        moved = 1000000000;
        char *table = text_of(STATS_TABLE);
        assert_non_null(strstr(table, "12,345 M"));
        assert_non_null(strstr(table, "the/end/is/shown"));
        unsigned lines = 0;
        for (char *line = strtok(table, "\n"); line; line = strtok(NULL, "\n"), lines++)
                if (strlen(line) > 80)
                        fail_msg("more than 80 columns: \"%s\"", line);
        assert_true(lines > NODES);
        free(table);
        program = "p";
        moved = 0;
}

/* One snapshot, as three writers print it. */
static void test_formats_agree(void **state)
{
        static const struct { const char *name; enum stats_format format;
        } files[] = { { "flat", STATS_FLAT }, { "json", STATS_JSON }, { "prom", STATS_PROM } };
        char dir[] = "/tmp/test_stats.XXXXXX", path[64], command[512];
        struct stats s = { 0 };

        (void)state;
        if (system("python3 -c '' 2>&-") != 0)
                skip();
        clear();
        for (unsigned i = 0; i < 5000; i++)
                count_fault(of_vcpu(i % VCPUS), i % FAULT_SPURIOUS, (uint64_t)i * i * (i % 7 + 1));
        of_vcpu(2)->exits[EXIT_LEASE] = 9;
        assert_non_null(mkdtemp(dir));
        assert_int_equal(stats_collect(&s), 0);
        for (size_t i = 0; i < 3; i++) {
                snprintf(path, sizeof(path), "%s/%s", dir, files[i].name);
                FILE *f = fopen(path, "w");
                assert_non_null(f);
                stats_print(&s, f, files[i].format);
                assert_int_equal(fclose(f), 0);
        }
        stats_free(&s);
        snprintf(command, sizeof(command), "python3 " STATS_PY " agree %s/flat %s/json %s/prom",
                 dir, dir, dir);
        assert_int_equal(system(command), 0);
        for (size_t i = 0; i < 3; i++) {
                snprintf(path, sizeof(path), "%s/%s", dir, files[i].name);
                unlink(path);
        }
        rmdir(dir);
}

/* ---- snapshots while vCPUs run ---- */

static atomic_bool stop;

static void *vcpu_main(void *arg)
{
        struct vcpu_stats *v = arg;

        for (uint64_t i = 0; !atomic_load(&stop); i++) {
                count_fault(v, i % FAULT_SPURIOUS, i % 100000);
                __atomic_store_n(&v->counter[CNT_WRITEBACK], i, __ATOMIC_RELAXED);
                __atomic_store_n(&v->counter[CNT_EVICTED_DIRTY], i, __ATOMIC_RELAXED);
        }
        return NULL;
}

static void check_later(const struct stats *s, const struct stats *before)
{
        uint64_t faults = 0;

        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_item *i = &s->item[n], *was = &before->item[n];
                assert_ptr_equal(i->kind, was->kind);
                assert_true(i->v >= was->v);
                for (unsigned b = 0; i->h && b < HIST_BUCKETS; b++)
                        assert_true(i->h->bucket[b] >= was->h->bucket[b]);
                if (i->h)
                        assert_true(i->h->ticks >= was->h->ticks);
                if (strcmp(i->kind->key, "faults.%") == 0)
                        faults += i->v;
        }
        assert_int_equal(stats_value(s, "faults.total"), faults);
        assert_int_equal(stats_value(s, "evicted"), stats_value(s, "count.evicted_dirty"));
}

static void test_while_they_run(void **state)
{
        pthread_t id[VCPUS];
        struct stats before = { 0 };

        (void)state;
        clear();
        for (unsigned n = 0; n < VCPUS; n++)
                assert_int_equal(pthread_create(&id[n], NULL, vcpu_main, of_vcpu(n)), 0);
        for (unsigned turn = 0; turn < 300; turn++) {
                struct stats s = { 0 };
                if (turn == 150) {      /* a reset never makes a count negative */
                        assert_int_equal(stats_reset(), 0);
                        stats_free(&before);
                }
                assert_int_equal(stats_collect(&s), 0);
                assert_true(stats_value(&s, "faults.total") < 1ull << 40);
                if (before.n)
                        check_later(&s, &before);
                stats_free(&before);
                before = s;
        }
        assert_true(stats_value(&before, "faults.total") > 0);
        stats_free(&before);
        atomic_store(&stop, true);
        for (unsigned n = 0; n < VCPUS; n++)
                pthread_join(id[n], NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_no_samples),
                cmocka_unit_test(test_points),
                cmocka_unit_test(test_reset),
                cmocka_unit_test(test_texts),
                cmocka_unit_test(test_units),
                cmocka_unit_test(test_verdict),
                cmocka_unit_test(test_screen),
                cmocka_unit_test(test_formats_agree),
                cmocka_unit_test(test_while_they_run),
        };
        return cmocka_run_group_tests(tests, set_up, NULL);
}
