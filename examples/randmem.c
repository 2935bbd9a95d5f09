/*
 * randmem: reads and writes memory at random and verifies every word it reads.
 *
 * Each page has a count k of the writes it has had. The k-th write to page p goes to its word k mod
 * 512, with the value mix(p, word, k). So the value that any word must have follows from its
 * address and its page's count alone, and a stale page, a lost write or a page in the wrong place
 * all show, at the cost of four bytes a page beside the memory itself.
 *
 * Pages are chosen uniformly, by Zipf's law (exponent 0.99 unless told; popular pages are spread
 * over all of the memory) or in turn. SIGTERM ends the accesses early; what they left is verified
 * as ever. Apart from that, standard output depends on the arguments only. Exit status: 0 no error,
 * 1 wrong values read, 2 usage or no memory.
 */
#include <getopt.h>
#include <math.h>
#include <signal.h>
#define PROGRAM "randmem"
#include "example.h"

#define PAGE            4096
#define WORDS           (PAGE / sizeof(uint64_t))
#define ERRORS_SHOWN    10

enum pattern { UNIFORM, ZIPF, SEQUENTIAL };

static uint64_t (*memory)[WORDS];       /* [npages] */
static uint32_t *writes;                /* [npages]: k above */
static uint64_t npages, errors;
static volatile sig_atomic_t enough;    /* SIGTERM came */

static void on_term(int signo)
{
        (void)signo;
        enough = 1;
}

/* --timeline: every so often a line with the time, the accesses so far, and the longest that one
 * has taken since the line before. */
static double interval, line_due, last_access, slowest;

static void note_access(uint64_t accesses)
{
        double now = seconds();

        if (last_access && now - last_access > slowest)
                slowest = now - last_access;
        last_access = now;
        if (now < line_due)
                return;
        fprintf(stderr, "randmem: at %.4f s %" PRIu64 " accesses, one took %.1f ms\n", now,
                accesses, slowest * 1000);
        slowest = 0;
        line_due = now + interval;
        last_access = seconds();        /* without the time of the line */
}

static uint64_t mix(uint64_t page, uint64_t word, uint64_t k)
{
        return scramble((page * WORDS + word) * 0x9e3779b97f4a7c15 + k * 0xd1342543de82ef95);
}

/*
 * What this word must hold: written last by the newest write k to its page with k mod 512 = word; 0
 * stands for the fill.
 */
static uint64_t expected(uint64_t page, uint64_t word)
{
        uint64_t k = writes[page], age = (k - word) % WORDS;
        return mix(page, word, age < k ? k - age : 0);
}

static uint64_t verify(uint64_t page, uint64_t word)
{
        uint64_t got = memory[page][word], want = expected(page, word);
        if (got != want && errors++ < ERRORS_SHOWN)
                fprintf(stderr,
                        "randmem: page %" PRIu64 " word %" PRIu64 " at %p: %016" PRIx64
                        ", expected %016" PRIx64 "\n",
                        page, word, (void *)&memory[page][word], got, want);
        return got;
}

static void write_page(uint64_t page)
{
        uint64_t k = ++writes[page], word = k % WORDS;
        memory[page][word] = mix(page, word, k);
}

/*
 * Zipf's law over ranks [0, n), as in Gray et al., "Quickly generating billion-record synthetic
 * databases", SIGMOD 1994.
 */
struct zipf { double theta, alpha, zetan, eta, half; uint64_t n, stride; };

static void zipf_init(struct zipf *z, uint64_t n, double theta)
{
        double zeta2 = 1 + pow(0.5, theta);
        z->n = n;
        z->theta = theta;
        z->alpha = 1 / (1 - theta);
        z->zetan = 0;
        for (uint64_t i = 1; i <= n; i++)
                z->zetan += pow((double)i, -theta);
        z->half = zeta2;
        z->eta = (1 - pow(2.0 / (double)n, 1 - theta)) / (1 - zeta2 / z->zetan);

        /* Rank r is page r * stride mod n, a permutation where the two have no common divisor. */
        z->stride = (uint64_t)((double)n * 0.6180339887498949) | 1;
        for (;; z->stride += 2) {
                uint64_t a = z->stride, b = n;
                while (b) {
                        uint64_t r = a % b;
                        a = b;
                        b = r;
                }
                if (a == 1)
                        break;
        }
}

static uint64_t zipf_page(const struct zipf *z, uint64_t *state)
{
        double u = next_real(state), uz = u * z->zetan;
        uint64_t rank;
        if (uz < 1)
                rank = 0;
        else if (uz < z->half)
                rank = 1;
        else
                rank = (uint64_t)((double)z->n * pow(z->eta * u - z->eta + 1, z->alpha));
        if (rank >= z->n)
                rank = z->n - 1;
        return (uint64_t)((unsigned __int128)rank * z->stride % z->n);
}

static void usage(FILE *f)
{
        fputs("usage: randmem [OPTION...]\n"
              "  --size SIZE          memory, with a suffix K, M or G (default 64M)\n"
              "  --accesses N         how many (default 1000000)\n"
              "  --write-percent N    how many of 100 accesses write (default 50)\n"
              "  --zipf[=EXPONENT]    some pages are popular; exponent in (0, 1), default 0.99\n"
              "  --sequential         one page after the other, one access each\n"
              "  --seed N             (default 1)\n"
              "  --time               how long it took, on standard error\n"
              "  --timeline MS        each MS ms, a line on standard error: CLOCK_MONOTONIC,\n"
              "                       accesses so far, the longest since the line before\n",
              f);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "accesses", required_argument, NULL, 'a' },
                { "help", no_argument, NULL, 'h' },
                { "seed", required_argument, NULL, 'r' },
                { "sequential", no_argument, NULL, 'q' },
                { "size", required_argument, NULL, 's' },
                { "time", no_argument, NULL, 't' },
                { "timeline", required_argument, NULL, 'l' },
                { "write-percent", required_argument, NULL, 'w' },
                { "zipf", optional_argument, NULL, 'z' },
                { NULL, 0, NULL, 0 }
        };
        uint64_t size = 64 << 20, accesses = 1000000, write_percent = 50, seed = 1;
        enum pattern pattern = UNIFORM;
        double theta = 0.99;
        bool show_time = false;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'a': accesses = parse_number("--accesses", optarg, true, 0, UINT64_MAX); break;
                case 'h': usage(stdout); return RIGHT;
                case 'l':
                        interval = 1e-3 * (double)parse_number("--timeline", optarg, false, 1,
                                                               1000000);
                        break;
                case 'q': pattern = SEQUENTIAL; break;
                case 'r': seed = parse_number("--seed", optarg, false, 0, UINT64_MAX); break;
                case 's': size = parse_number("--size", optarg, true, 2 * PAGE, UINT64_MAX); break;
                case 't': show_time = true; break;
                case 'w':
                        write_percent = parse_number("--write-percent", optarg, false, 0, 100);
                        break;
                case 'z':
                        pattern = ZIPF;
                        if (optarg)
                                theta = parse_real("--zipf", optarg, 0.001, 0.999);
                        break;
                default: usage(stderr); return CANNOT;
                }
        npages = size / PAGE;
        if (optind != argc) {
                usage(stderr);
                return CANNOT;
        }

        memory = reserve(npages, PAGE);
        writes = reserve(npages, sizeof(*writes));

        signal(SIGTERM, on_term);
        double t0 = seconds();
        for (uint64_t page = 0; page < npages; page++)
                for (uint64_t word = 0; word < WORDS; word++)
                        memory[page][word] = mix(page, word, 0);

        struct zipf z = { 0 };
        if (pattern == ZIPF)
                zipf_init(&z, npages, theta);
        double t1 = seconds();
        if (show_time)
                fprintf(stderr, "randmem: fill %.3f s\n", t1 - t0);
        uint64_t state = seed, nwrites = 0, checksum = 0;
        for (uint64_t i = 0; i < accesses; i++) {
                if (enough)
                        accesses = i + 1;       /* this one is the last */
                uint64_t page = pattern == UNIFORM ? below(next_random(&state), npages)
                                : pattern == ZIPF  ? zipf_page(&z, &state)
                                                   : i % npages;
                uint64_t r = next_random(&state);
                if ((r >> 32) % 100 < write_percent) {
                        write_page(page);
                        nwrites++;
                } else {
                        checksum = (checksum << 1 | checksum >> 63) ^ verify(page, r % WORDS);
                }
                if (interval)
                        note_access(i + 1);
        }
        double t2 = seconds();

        /* At last every word, among them those never read above. */
        for (uint64_t page = 0; page < npages; page++)
                for (uint64_t word = 0; word < WORDS; word++)
                        verify(page, word);
        double t3 = seconds();

        static const char *const names[] = { "uniform", "zipf", "sequential" };
        printf("randmem: %" PRIu64 " pages, %" PRIu64 " accesses (%s, %" PRIu64
               " writes), seed %" PRIu64 ": checksum %016" PRIx64 ", %" PRIu64 " errors\n",
               npages, accesses, names[pattern], nwrites, seed, checksum, errors);
        if (show_time)
                fprintf(stderr, "randmem: accesses %.3f s (%.1f ns each), verify %.3f s\n", t2 - t1,
                        accesses ? (t2 - t1) * 1e9 / (double)accesses : 0.0, t3 - t2);
        return errors ? WRONG : RIGHT;
}
