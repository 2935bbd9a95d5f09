/*
 * scan: goes over an array of pages in one of six orders, reading or writing, and verifies every
 * word it reads.
 *
 * The orders are those that tell prefetchers apart: sequential, reverse, a stride, several
 * sequential streams in turn, uniformly random, and by Zipf's law. In the first four, a pass visits
 * each page once; in the last two, it makes as many visits as there are pages.
 *
 * A visit touches the whole page, or one cache line of it. The n-th write to a page gives each word
 * that it touches a value that follows from seed, page, word and n alone. So a stale page, a lost
 * write and a page in the wrong place all show, at the cost of four bytes a page beside the array.
 * All written words are also verified at the end.
 *
 * Standard output depends on the arguments only. Exit status: 0 no error, 1 wrong values read, 2
 * usage or no memory.
 */
#define PROGRAM "scan"
#include <getopt.h>
#include <math.h>

#include "example.h"

#define PAGE            4096
#define LINE            64              /* a cache line */
#define LINES           (PAGE / LINE)
#define ERRORS_SHOWN    10

/* Two words: what all x86-64 machines do at once. */
typedef uint64_t pair __attribute__((vector_size(16)));
#define LINE_PAIRS      (LINE / sizeof(pair))

enum order { SEQUENTIAL, REVERSE, STRIDE, STREAMS, RANDOM, ZIPF };

static pair (*pages)[LINES * LINE_PAIRS];       /* [npages] */
static uint32_t *writes;        /* [npages]: how many times each was written, beside the fill */
static uint64_t npages, seed = 1, errors;
static bool writing, whole_pages = true;

/*
 * The words of a page hold an arithmetic progression, so that to verify them costs little beside
 * the memory's own time. It begins at random, elsewhere for each page and version.
 */
#define STEP            0x9e3779b97f4a7c15

static const pair two_steps = { 2 * STEP, 2 * STEP };

static uint64_t first_value(uint64_t page, uint32_t version)
{
        return scramble(random_at(seed, page) + version);
}

/* What pair i holds in a page whose first word has this value. */
static pair pair_at(uint64_t value, size_t i)
{
        value += 2 * i * STEP;
        return (pair){ value, value + STEP };
}

/* The line of a page that is touched, if not all are: of each page another. */
static size_t line_of(uint64_t page) { return page * 11 % LINES; }

/* Writes lines [from, to) of a page, whose first word has or would have this value. */
static void write_lines(uint64_t page, size_t from, size_t to, uint64_t value)
{
        pair content = pair_at(value, from * LINE_PAIRS);
        for (size_t i = from * LINE_PAIRS; i < to * LINE_PAIRS; i++, content += two_steps)
                pages[page][i] = content;
}

static void show_errors(uint64_t page, size_t from, size_t to, uint64_t value)
{
        for (size_t word = from * LINE_PAIRS * 2; word < to * LINE_PAIRS * 2; word++) {
                uint64_t got = pages[page][word / 2][word % 2], want = value + word * STEP;
                if (got != want && errors++ < ERRORS_SHOWN)
                        fprintf(stderr,
                                PROGRAM ": page %" PRIu64 " word %zu at %p: %016" PRIx64
                                        ", expected %016" PRIx64 "\n",
                                page, word, (void *)&pages[page][word / 2], got, want);
        }
}

/* Verifies what write_lines() would write. Returns the sum of the words as read. */
static uint64_t read_lines(uint64_t page, size_t from, size_t to, uint64_t value)
{
        pair sum = { 0, 0 }, differ = { 0, 0 }, content = pair_at(value, from * LINE_PAIRS);
        for (size_t i = from * LINE_PAIRS; i < to * LINE_PAIRS; i++, content += two_steps) {
                pair got = pages[page][i];
                sum += got;
                differ |= got ^ content;
        }
        if (differ[0] | differ[1])
                show_errors(page, from, to, value);
        return sum[0] + sum[1];
}

/* Returns the sum of the words that were read. */
static uint64_t visit(uint64_t page)
{
        size_t from = whole_pages ? 0 : line_of(page), to = whole_pages ? LINES : from + 1;
        if (!writing)
                return read_lines(page, from, to, first_value(page, 0));
        write_lines(page, from, to, first_value(page, ++writes[page]));
        return 0;
}

/* Every word, after passes that wrote. Returns the sum of them. */
static uint64_t verify(void)
{
        uint64_t sum = 0;
        for (uint64_t page = 0; page < npages; page++)
                for (size_t line = 0; line < LINES; line++) {
                        bool touched = whole_pages || line == line_of(page);
                        sum += read_lines(page, line, line + 1,
                                          first_value(page, touched ? writes[page] : 0));
                }
        return sum;
}

/*
 * Zipf's law: rank k of [1, n] has a probability in proportion to k^-theta. Exact, by rejection-
 * inversion: W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone
 * discrete distributions", ACM TOMACS 6(3), 1996. The area below the continuous h(x) = x^-theta is
 * inverted and rounded to a rank. The area of rank k, from k - 1/2 to k + 1/2, is larger than its
 * share h(k); the surplus is rejected. Where x is near enough above k, it needs no look.
 */
struct zipf { double theta, low, high, accept; uint64_t n; };

/* The integral of x^-theta from 1 to x, and its inverse; exact for theta near 1 too. */
static double area(const struct zipf *z, double x)
{
        double q = 1 - z->theta;
        return q == 0 ? log(x) : expm1(q * log(x)) / q;
}

static double inverse(const struct zipf *z, double y)
{
        double q = 1 - z->theta;
        return q == 0 ? exp(y) : exp(log1p(q * y) / q);
}

static struct zipf zipf_make(uint64_t n, double theta)
{
        struct zipf z = { .theta = theta, .n = n };
        z.low = area(&z, 1.5) - 1;      /* so that rank 1 has its share h(1) = 1, no more */
        z.high = area(&z, (double)n + 0.5);
        z.accept = 2 - inverse(&z, area(&z, 2.5) - pow(2, -theta));
        return z;
}

static uint64_t zipf_rank(const struct zipf *z, uint64_t *state)
{
        for (;;) {
                double y = z->high + next_real(state) * (z->low - z->high);
                double x = inverse(z, y), k = floor(x + 0.5);
                k = k < 1 ? 1 : k > (double)z->n ? (double)z->n : k;
                if (k - x <= z->accept || y >= area(z, k + 0.5) - pow(k, -z->theta))
                        return (uint64_t)k;
        }
}

/*
 * Spreads ranks over the pages: a permutation of [0, n). Each step of the loop is a permutation of
 * [0, 2^bits), the smallest such range with all pages; values out of range go round again.
 */
static uint64_t spread(uint64_t i, uint64_t n)
{
        unsigned bits = 64 - (unsigned)__builtin_clzll(n | 1);
        uint64_t mask = UINT64_MAX >> (64 - bits);
        do {
                for (int round = 0; round < 3; round++) {
                        i = (i * 0xd1342543de82ef95 + 0x9e3779b97f4a7c15) & mask;
                        i ^= i >> (bits + 1) / 2;
                }
        } while (i >= n);
        return i;
}

struct walk { enum order order; uint64_t param; struct zipf zipf; uint64_t state; };

/* A pass. Returns the sum of all words read. */
static uint64_t pass(struct walk *w)
{
        uint64_t sum = 0, n = w->param, longest;
        switch (w->order) {
        case SEQUENTIAL:
                for (uint64_t page = 0; page < npages; page++)
                        sum += visit(page);
                break;
        case REVERSE:
                for (uint64_t page = npages; page-- > 0;)
                        sum += visit(page);
                break;
        case STRIDE:    /* every n-th page, then the pages after these, and so on */
                for (uint64_t start = 0; start < n; start++)
                        for (uint64_t page = start; page < npages; page += n)
                                sum += visit(page);
                break;
        case STREAMS:   /* the array in n parts, a page of each in turn */
                longest = (npages + n - 1) / n;
                for (uint64_t i = 0; i < longest; i++)
                        for (uint64_t s = 0; s < n; s++) {
                                uint64_t page = s * longest + i;
                                if (page < npages)
                                        sum += visit(page);
                        }
                break;
        case RANDOM:
                for (uint64_t i = 0; i < npages; i++)
                        sum += visit(below(next_random(&w->state), npages));
                break;
        case ZIPF:
                for (uint64_t i = 0; i < npages; i++)
                        sum += visit(spread(zipf_rank(&w->zipf, &w->state) - 1, npages));
                break;
        }
        return sum;
}

static void usage(FILE *f)
{
        fputs("usage: scan [OPTION...]\n"
              "  --size SIZE      memory, with a suffix K, M or G (default 64M)\n"
              "  --sequential     page after page (default)\n"
              "  --reverse        from the last page to the first\n"
              "  --stride N       every N-th page, N times\n"
              "  --streams N      N sequential streams, a page of each in turn\n"
              "  --random         any page\n"
              "  --zipf[=THETA]   some pages are popular; THETA in [0, 10], default 0.99\n"
              "  --touch WHAT     of each page, line: one cache line, or page: all (default)\n"
              "  --write          write, and verify at the end; else read\n"
              "  --passes N       (default 1)\n"
              "  --seed N         (default 1)\n"
              "  --time           how long it took, on standard error\n"
              "  --help\n", f);
}

static void show_time(const char *what, double time, uint64_t visits)
{
        fprintf(stderr, PROGRAM ": %s %.3f s (%.1f ns a page, %.0f pages a second)\n", what, time,
                time * 1e9 / (double)visits, (double)visits / time);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "help", no_argument, NULL, 'h' },
                { "passes", required_argument, NULL, 'p' },
                { "random", no_argument, NULL, 'u' },
                { "reverse", no_argument, NULL, 'r' },
                { "seed", required_argument, NULL, 'e' },
                { "sequential", no_argument, NULL, 'q' },
                { "size", required_argument, NULL, 's' },
                { "streams", required_argument, NULL, 'm' },
                { "stride", required_argument, NULL, 'd' },
                { "time", no_argument, NULL, 't' },
                { "touch", required_argument, NULL, 'c' },
                { "write", no_argument, NULL, 'w' },
                { "zipf", optional_argument, NULL, 'z' },
                { NULL, 0, NULL, 0 }
        };
        uint64_t size = 64 << 20, passes = 1;
        struct walk walk = { .order = SEQUENTIAL };
        double theta = 0.99;
        bool timing = false;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'c':
                        whole_pages = strcmp(optarg, "page") == 0;
                        if (!whole_pages && strcmp(optarg, "line") != 0)
                                bad_value("--touch", optarg, "neither line nor page");
                        break;
                case 'd':
                        walk.order = STRIDE;
                        walk.param = parse_number("--stride", optarg, false, 1, UINT32_MAX);
                        break;
                case 'e': seed = parse_number("--seed", optarg, false, 0, UINT64_MAX); break;
                case 'h': usage(stdout); return RIGHT;
                case 'm':
                        walk.order = STREAMS;
                        walk.param = parse_number("--streams", optarg, false, 1, UINT32_MAX);
                        break;
                case 'p': passes = parse_number("--passes", optarg, false, 1, UINT32_MAX); break;
                case 'q': walk.order = SEQUENTIAL; break;
                case 'r': walk.order = REVERSE; break;
                case 's': size = parse_number("--size", optarg, true, PAGE, UINT64_MAX); break;
                case 't': timing = true; break;
                case 'u': walk.order = RANDOM; break;
                case 'w': writing = true; break;
                case 'z':
                        walk.order = ZIPF;
                        theta = optarg ? parse_real("--zipf", optarg, 0, 10) : theta;
                        break;
                default: usage(stderr); return CANNOT;
                }
        if (optind != argc) {
                usage(stderr);
                return CANNOT;
        }
        npages = size / PAGE;
        pages = reserve(npages, PAGE);
        writes = reserve(npages, sizeof(*writes));
        walk.state = seed;
        if (walk.order == ZIPF)
                walk.zipf = zipf_make(npages, theta);

        double t0 = seconds();
        for (uint64_t page = 0; page < npages; page++)
                write_lines(page, 0, LINES, first_value(page, 0));
        double t1 = seconds(), in_passes = 0;
        if (timing)
                show_time("fill", t1 - t0, npages);

        uint64_t sum = 0;
        for (uint64_t i = 1; i <= passes; i++) {
                double start = seconds();
                sum += pass(&walk);
                double took = seconds() - start;
                in_passes += took;
                char what[32];
                snprintf(what, sizeof(what), "pass %" PRIu64, i);
                if (timing)
                        show_time(what, took, npages);
        }
        if (timing)
                show_time("passes", in_passes, passes * npages);

        double t2 = seconds();
        if (writing)
                sum += verify();
        if (timing && writing)
                show_time("verify", seconds() - t2, npages);

        static const char *const names[] = { "sequential", "reverse", "stride", "streams", "random",
                                             "zipf" };
        printf(PROGRAM ": %" PRIu64 " pages, %" PRIu64 " passes, %s", npages, passes,
               names[walk.order]);
        if (walk.param && (walk.order == STRIDE || walk.order == STREAMS))
                printf(" %" PRIu64, walk.param);
        printf(", %s a %s each, seed %" PRIu64 ": sum %016" PRIx64 ", %" PRIu64 " errors\n",
               writing ? "writes" : "reads", whole_pages ? "page" : "line", seed, sum, errors);
        return errors ? WRONG : RIGHT;
}
