/*
 * ycsb: a key-value store in memory and its clients, threads of one process.
 *
 * The workloads are A to D of the Yahoo cloud serving benchmark (Cooper et al., "Benchmarking cloud
 * serving systems with YCSB", SoCC 2010): A reads and updates alike, B mostly reads, C only reads,
 * D inserts records and reads mostly those inserted last. An update writes a whole value.
 *
 * Each word of a value follows from its key and its version, the number of writes the key has had,
 * so each word of what is read can be verified. The clients count the writes to each key before
 * they begin and after they end: a read must see a version no older than the writes that had ended
 * before it, and no newer than those begun. At last each key must have seen all its writes.
 *
 * What operation i does follows from seed and i alone. So standard output depends on the arguments
 * only, and not on the number of threads. Exit status: 0 all is right, 1 wrong values or counts, 2
 * usage or no memory.
 */
#include <getopt.h>
#include <math.h>
#include <stdatomic.h>

#define PROGRAM "ycsb"
#include "kvstore.h"
#include "example.h"

#define ERRORS_SHOWN 10

enum { READ, UPDATE, INSERT, KINDS };

static const char *const kind_names[KINDS] = { "reads", "updates", "inserts" };

/* Of 100 operations `reads` read, the rest are of the other kind. */
static const struct workload { unsigned reads; int other; } workloads[] = {
        { 50, UPDATE }, { 95, UPDATE }, { 100, UPDATE }, { 95, INSERT },
};

struct value { uint64_t key, version, words[]; };

/*
 * Latencies in a log-linear histogram: SUB buckets to a power of two, so that a bucket's width is
 * at most 1/SUB of what it counts.
 */
#define SUB_BITS 4
#define SUB      (1 << SUB_BITS)
#define BUCKETS  ((64 - SUB_BITS + 1) * SUB)

struct histogram { uint64_t count, max, buckets[BUCKETS]; };

struct client {
        uint64_t done[KINDS];
        struct value *copy;                     /* of what is read */
        struct histogram latency[KINDS];        /* ns */
};

/* The arguments. */
static const struct workload *workload = &workloads[0];
static uint64_t keys = 64 << 10, operations = 1 << 20, value_size = 1024, seed = 1;
static unsigned nclients = 4;
static double theta;                            /* Zipf's exponent; 0: uniform */
static bool show_time;

static struct store *store;
static struct client *clients;                 /* [nclients] */
static uint64_t capacity;                       /* records at the end */
static _Atomic uint32_t *begun, *ended;         /* [record]: writes to it */
static atomic_uint_fast64_t next_insert;        /* the record that the next insert makes */
static atomic_uint_fast64_t inserted;           /* all records below are in the store */
static atomic_uint_fast64_t errors;

#define ALL UINT64_MAX                          /* for a record: what is wrong concerns all */

static void wrong(uint64_t id, const char *what, uint64_t got, uint64_t low, uint64_t high)
{
        char record[32] = "all records";
        if (atomic_fetch_add(&errors, 1) >= ERRORS_SHOWN)
                return;
        if (id != ALL)
                snprintf(record, sizeof(record), "record %" PRIu64, id);
        fprintf(stderr, "ycsb: %s: %s is %" PRIx64 ", expected %" PRIx64 " to %" PRIx64 "\n",
                record, what, got, low, high);
}

static uint64_t nanoseconds(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static unsigned bucket_of(uint64_t ns)
{
        if (ns < SUB)
                return (unsigned)ns;
        unsigned shift = 63 - SUB_BITS - (unsigned)__builtin_clzll(ns);
        return (shift + 1) * SUB + ((unsigned)(ns >> shift) & (SUB - 1));
}

/* The highest value that this bucket counts. */
static uint64_t top_of(unsigned bucket)
{
        if (bucket < SUB)
                return bucket;
        unsigned shift = bucket / SUB - 1;
        return (((uint64_t)SUB + bucket % SUB + 1) << shift) - 1;
}

static void record_latency(struct histogram *h, uint64_t ns)
{
        h->count++;
        h->buckets[bucket_of(ns)]++;
        if (ns > h->max)
                h->max = ns;
}

static double percentile_us(const struct histogram *h, double p)
{
        uint64_t seen = 0;
        for (unsigned b = 0; b < BUCKETS; b++) {
                seen += h->buckets[b];
                if ((double)seen >= p / 100 * (double)h->count)
                        return (double)(top_of(b) < h->max ? top_of(b) : h->max) * 1e-3;
        }
        return (double)h->max * 1e-3;
}

/*
 * Zipf's law over ranks [0, n) by rejection and inversion (Hörmann, Derflinger: "Rejection-
 * inversion to generate variates from monotone discrete distributions", TOMACS 1996). It needs no
 * sum over the ranks, so n may change from call to call.
 */
static double zipf_integral(double x) { return (pow(x, 1 - theta) - 1) / (1 - theta); }
static double zipf_inverse(double y) { return pow(1 + y * (1 - theta), 1 / (1 - theta)); }

static uint64_t zipf_rank(uint64_t *state, uint64_t n)
{
        double low = zipf_integral(1.5) - 1, high = zipf_integral((double)n + 0.5);
        for (;;) {
                double y = high + next_real(state) * (low - high), k = round(zipf_inverse(y));
                if (k < 1)
                        k = 1;
                else if (k > (double)n)
                        k = (double)n;
                if (y >= zipf_integral(k + 0.5) - pow(k, -theta))
                        return (uint64_t)k - 1;
        }
}

static int choose_kind(uint64_t *state)
{
        return below(next_random(state), 100) < workload->reads ? READ : workload->other;
}

/* The record that an operation reads or updates. */
static uint64_t choose_record(uint64_t *state)
{
        bool latest = workload->other == INSERT;
        uint64_t n = latest ? atomic_load(&inserted) : keys;
        uint64_t rank = theta > 0 ? zipf_rank(state, n) : below(next_random(state), n);
        if (latest)
                return n - 1 - rank;
        /* As in YCSB, popular records lie apart. */
        return theta > 0 ? scramble(rank + 1) % n : rank;
}

static uint64_t key_of(uint64_t id) { return scramble(id + 1); }

static uint64_t word_of(uint64_t key, uint64_t version, uint64_t i)
{
        return scramble(key + version * 0xd1342543de82ef95 + i * 0x9e3779b97f4a7c15);
}

static void verify(uint64_t id, const struct value *v, uint64_t low, uint64_t high)
{
        if (v->key != key_of(id))
                wrong(id, "the key", v->key, key_of(id), key_of(id));
        if (v->version < low || v->version > high)
                wrong(id, "the version", v->version, low, high);
        for (uint64_t i = 0; i < (value_size - sizeof(*v)) / sizeof(v->words[0]); i++) {
                uint64_t want = word_of(v->key, v->version, i);
                if (v->words[i] != want)
                        wrong(id, "a word", v->words[i], want, want);
        }
}

/* Writes the next version of a record; in a new one the version is 0. */
static void write_record(uint64_t id, bool new)
{
        uint64_t key = key_of(id), low = atomic_load(&ended[id]);
        atomic_fetch_add(&begun[id], 1);
        struct value *v = store_lock(store, key, new);
        if (!v) {
                wrong(id, "its presence", false, true, true);
                return;
        }
        uint64_t high = atomic_load(&begun[id]) - 1;    /* without this write */
        if (v->version < low || v->version > high || (v->version == 0) != new)
                wrong(id, "the version before a write", v->version, low, high);
        v->key = key;
        v->version++;
        for (uint64_t i = 0; i < (value_size - sizeof(*v)) / sizeof(v->words[0]); i++)
                v->words[i] = word_of(key, v->version, i);
        store_unlock(store, key);
        atomic_fetch_add(&ended[id], 1);
}

/*
 * Inserts may end in another order than they began. Moves the mark, below which reads choose, over
 * all that have ended. Each client calls this after its insert, so none is left out.
 */
static void advance_inserted(void)
{
        uint64_t n = atomic_load(&inserted);
        while (n < capacity && atomic_load(&ended[n]) > 0)
                if (atomic_compare_exchange_weak(&inserted, &n, n + 1))
                        n++;
}

static bool copy_record(uint64_t id, struct value *copy)
{
        struct value *v = store_lock(store, key_of(id), false);
        if (!v) {
                wrong(id, "its presence", false, true, true);
                return false;
        }
        memcpy(copy, v, value_size);
        store_unlock(store, key_of(id));
        return true;
}

static void load(const struct part *part)
{
        for (uint64_t id = part->from; id < part->to; id++)
                write_record(id, true);
}

static void run(const struct part *part)
{
        struct client *c = &clients[part->thread];
        for (uint64_t i = part->from; i < part->to; i++) {
                uint64_t state = random_at(seed, i);
                int kind = choose_kind(&state);
                uint64_t id = kind == INSERT ? atomic_fetch_add(&next_insert, 1)
                                             : choose_record(&state);
                uint64_t low = atomic_load(&ended[id]);
                uint64_t t0 = show_time ? nanoseconds() : 0;
                bool copied = kind == READ && copy_record(id, c->copy);
                if (kind != READ)
                        write_record(id, kind == INSERT);
                if (show_time)
                        record_latency(&c->latency[kind], nanoseconds() - t0);
                if (copied)
                        verify(id, c->copy, low, atomic_load(&begun[id]));
                if (kind == INSERT)
                        advance_inserted();
                c->done[kind]++;
        }
}

/* Verifies all records, and that no write was lost; returns a checksum of their versions. */
static uint64_t verify_all(struct value *copy, uint64_t writes)
{
        uint64_t checksum = 0, versions = 0;
        for (uint64_t id = 0; id < capacity; id++) {
                if (!copy_record(id, copy))
                        continue;
                verify(id, copy, atomic_load(&ended[id]), atomic_load(&ended[id]));
                versions += copy->version;
                checksum = scramble(checksum ^ copy->key ^ copy->version);
        }
        if (versions != writes)
                wrong(ALL, "the sum of versions", versions, writes, writes);
        if (store_count(store) != capacity)
                wrong(ALL, "the count", store_count(store), capacity, capacity);
        return checksum;
}

static void print_latencies(void)
{
        for (int kind = 0; kind < KINDS; kind++) {
                struct histogram *sum = &clients[0].latency[kind];
                for (unsigned i = 1; i < nclients; i++) {
                        const struct histogram *h = &clients[i].latency[kind];
                        sum->count += h->count;
                        sum->max = h->max > sum->max ? h->max : sum->max;
                        for (unsigned b = 0; b < BUCKETS; b++)
                                sum->buckets[b] += h->buckets[b];
                }
                if (sum->count)
                        fprintf(stderr,
                                "ycsb: %s: p50 %.2f us, p99 %.2f us, p99.9 %.2f us, max %.2f us\n",
                                kind_names[kind], percentile_us(sum, 50), percentile_us(sum, 99),
                                percentile_us(sum, 99.9), (double)sum->max * 1e-3);
        }
}

static void usage(FILE *f)
{
        fputs("usage: ycsb [OPTION...]\n"
              "  --workload A|B|C|D   A (default): 50 % of all operations read, 50 % update;\n"
              "                       B: 95 % read, 5 % update; C: all read;\n"
              "                       D: 95 % read, 5 % insert\n"
              "  --zipf[=EXPONENT]    some keys are popular, in D the latest; exponent in (0, 1),\n"
              "                       default 0.99; without this option all keys are alike\n"
              "  --keys N             records at the start (default 64K)\n"
              "  --operations N       (default 1M)\n"
              "  --value-size SIZE    bytes, a multiple of 8 (default 1K)\n"
              "  --threads N          clients (default 4)\n"
              "  --seed N             (default 1)\n"
              "  --time               throughput and latencies, on standard error\n"
              "Numbers may have a suffix K, M or G, which are powers of 1024.\n",
              f);
}

static void parse(int argc, char **argv)
{
        static const struct option options[] = {
                { "help", no_argument, NULL, 'h' },
                { "keys", required_argument, NULL, 'k' },
                { "operations", required_argument, NULL, 'o' },
                { "seed", required_argument, NULL, 's' },
                { "threads", required_argument, NULL, 'n' },
                { "time", no_argument, NULL, 't' },
                { "value-size", required_argument, NULL, 'v' },
                { "workload", required_argument, NULL, 'w' },
                { "zipf", optional_argument, NULL, 'z' },
                { NULL, 0, NULL, 0 }
        };
        bool good = true;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'h': usage(stdout); exit(RIGHT);
                case 'k': keys = parse_number("--keys", optarg, true, 1, 1ul << 40); break;
                case 'n': nclients = parse_threads(optarg); break;
                case 'o':
                        operations = parse_number("--operations", optarg, true, 0, 1ul << 48);
                        break;
                case 's': seed = parse_number("--seed", optarg, false, 0, UINT64_MAX); break;
                case 't': show_time = true; break;
                case 'v':
                        value_size = parse_number("--value-size", optarg, true, 24, 1ul << 30);
                        good = good && value_size % 8 == 0;
                        break;
                case 'w':
                        good = good && *optarg >= 'A' && *optarg <= 'D' && !optarg[1];
                        workload = good ? &workloads[*optarg - 'A'] : workload;
                        break;
                case 'z':
                        theta = optarg ? parse_real("--zipf", optarg, 0, 1) : 0.99;
                        good = good && theta > 0 && theta < 1;
                        break;
                default: good = false;
                }
        if (!good || optind != argc) {
                usage(stderr);
                exit(CANNOT);
        }
}

int main(int argc, char **argv)
{
        parse(argc, argv);
        uint64_t want[KINDS] = { 0 }, done[KINDS] = { 0 };
        for (uint64_t i = 0; i < operations; i++) {
                uint64_t state = random_at(seed, i);
                want[choose_kind(&state)]++;
        }
        capacity = keys + want[INSERT];
        store = store_new(capacity, value_size);
        begun = reserve(capacity, sizeof(*begun));
        ended = reserve(capacity, sizeof(*ended));
        clients = reserve(nclients, sizeof(*clients));
        for (unsigned i = 0; i < nclients; i++)
                clients[i].copy = reserve(1, value_size);

        double t0 = seconds();
        in_parallel(nclients, keys, load);
        double t1 = seconds();
        atomic_store(&next_insert, keys);
        atomic_store(&inserted, keys);
        in_parallel(nclients, operations, run);
        double t2 = seconds();
        for (unsigned i = 0; i < nclients; i++)
                for (int kind = 0; kind < KINDS; kind++)
                        done[kind] += clients[i].done[kind];
        for (int kind = 0; kind < KINDS; kind++)
                if (done[kind] != want[kind])
                        wrong(ALL, kind_names[kind], done[kind], want[kind], want[kind]);
        uint64_t checksum = verify_all(clients[0].copy, capacity + done[UPDATE]);
        double t3 = seconds();

        printf("ycsb: workload %c, %s, %" PRIu64 " keys, values of %" PRIu64 " bytes, seed %" PRIu64
               ": %" PRIu64 " reads, %" PRIu64 " updates, %" PRIu64 " inserts, checksum %016" PRIx64
               ", %" PRIu64 " errors\n",
               (int)('A' + (workload - workloads)), theta > 0 ? "zipf" : "uniform", keys,
               value_size, seed, done[READ], done[UPDATE], done[INSERT], checksum,
               (uint64_t)atomic_load(&errors));
        if (show_time) {
                fprintf(stderr,
                        "ycsb: load %.3f s, operations %.3f s (%.0f a second), verify %.3f s\n",
                        t1 - t0, t2 - t1, (double)operations / (t2 - t1), t3 - t2);
                print_latencies();
        }
        return atomic_load(&errors) ? WRONG : RIGHT;
}
