/*
 * hints: each call of libvmguest once, in the place where a program has a use for it.
 *
 * A table of rows of a page each is read in an order that no pager can guess. The program knows the
 * order, so it asks for the row that it needs some steps later. Then it reads all rows in sequence,
 * pins an index, and gives up what it no longer needs. Each row is checked; standard output depends
 * on the arguments only. --verbose tells what it gained, on standard error. Exit status: 0 all was
 * right, 1 not, 2 usage or no memory.
 */
#include <getopt.h>
#define PROGRAM "hints"
#include "example.h"
#include "vmguest.h"

#define ROW_WORDS (VMG_PAGE / sizeof(uint64_t))

typedef uint64_t row[ROW_WORDS];

static row *table;                      /* [rows] */
static uint32_t *order;                 /* [rows]: an index, in which rows are looked up */
static uint64_t rows, wrong;
static bool verbose;

static uint64_t word_of(uint64_t r, uint64_t w) { return scramble(r * ROW_WORDS + w); }

static void fill(void)
{
        for (uint64_t r = 0; r < rows; r++)
                for (uint64_t w = 0; w < ROW_WORDS; w++)
                        table[r][w] = word_of(r, w);
        uint64_t state = 1;
        for (uint64_t i = 0; i < rows; i++) {   /* Fisher and Yates, from the inside out */
                uint64_t j = below(next_random(&state), i + 1);
                order[i] = order[j];
                order[j] = (uint32_t)i;
        }
}

static void check_row(uint64_t r)
{
        for (uint64_t w = 0; w < ROW_WORDS; w++)
                wrong += table[r][w] != word_of(r, w);
}

/* A call says -errno where it cannot; natively a kernel may not know an advice. */
static void check(const char *call, long ret, bool good)
{
        if (good)
                return;
        wrong++;
        fprintf(stderr, "hints: %s: %ld (%s)\n", call, ret, ret < 0 ? strerror((int)-ret) : "");
}

static void look_up(unsigned ahead)
{
        for (uint64_t i = 0; i < rows; i++) {
                if (ahead && i + ahead < rows) {
                        ssize_t n = vmg_prefetch(table[order[i + ahead]], VMG_PAGE);
                        check("vmg_prefetch", n, n >= 0 && n <= 1);
                }
                check_row(order[i]);
        }
}

/* look_up() by ranges: a group of rows at a time, the next while the last is looked at. */
static void look_up_groups(unsigned ahead)
{
        struct iovec group[64];

        for (uint64_t i = 0; i + ahead <= rows; i += ahead) {
                int n = 0;
                for (uint64_t j = i + ahead; j < i + 2 * ahead && j < rows; j++)
                        group[n++] = (struct iovec){ table[order[j]], VMG_PAGE };
                ssize_t asked = vmg_prefetchv(group, n);
                check("vmg_prefetchv", asked, asked >= 0 && asked <= n);
                for (uint64_t j = i; j < i + ahead; j++)
                        check_row(order[j]);
        }
}

/* look_up_groups() that waits until a group has come, and then looks at it. */
static void look_up_when_here(unsigned ahead)
{
        struct iovec group[64];
        uint32_t left = 0;

        for (uint64_t i = 0; i + ahead <= rows; i += ahead) {
                for (unsigned j = 0; j < ahead; j++)
                        group[j] = (struct iovec){ table[order[i + j]], VMG_PAGE };
                ssize_t n = vmg_prefetchv_counted(group, (int)ahead, &left);
                check("vmg_prefetchv_counted", n, n >= 0 && n <= (ssize_t)ahead);
                int here = vmg_arrived(&left);
                check("vmg_arrived", here, here == 0 || here == 1);
                int err = vmg_wait(&left);
                check("vmg_wait", err, err == 0 && left == 0);
                for (unsigned j = 0; j < ahead; j++)
                        check_row(order[i + j]);
        }
}

static void read_all(void)
{
        ssize_t n = vmg_stream(table, rows * VMG_PAGE, VMG_PAGE);
        check("vmg_stream", n, n >= 0);
        for (uint64_t r = 0; r < rows; r++)
                check_row(r);
}

/* The index stays, the first half of the table goes, the second is not needed soon. */
static void keep_and_give_up(void)
{
        size_t some = rows * sizeof(*order) < 32768 ? rows * sizeof(*order) : 32768;
        ssize_t pages = (ssize_t)((some + VMG_PAGE - 1) / VMG_PAGE);
        uint64_t half = rows / 2;
        int err = vmg_pin(order, some);

        check("vmg_pin", err, err == 0);
        ssize_t here = vmg_resident(order, some);
        check("vmg_resident", here, here == pages);
        err = vmg_unpin(order, some);
        check("vmg_unpin", err, err == 0);
        ssize_t kept = vmg_priority(order, some, VMG_HIGH);
        check("vmg_priority", kept, kept == (vmg_version() ? pages : 0));
        err = vmg_cool(table[half], (rows - half) * VMG_PAGE);
        check("vmg_cool", err, err == 0);
        err = vmg_drop(table, half * VMG_PAGE);
        check("vmg_drop", err, err == 0);
        for (uint64_t r = 0; r < half; r++)
                wrong += table[r][r % ROW_WORDS] != 0;
        for (uint64_t r = half; r < rows; r++)
                check_row(r);
}

static void tell(const char *what, double begun)
{
        struct vmg_stats s;

        if (!verbose)
                return;
        vmg_stats(&s, sizeof(s));
        fprintf(stderr, "%-28s %8.3f s, so far %" PRIu64 " fetched, %" PRIu64 " by hints\n", what,
                seconds() - begun, s.fetched, s.hinted);
}

static void usage(FILE *to)
{
        fputs("usage: hints [--size BYTES] [--ahead ROWS] [--verbose]\n"
              "  --size     of the table (16M); K, M and G may follow\n"
              "  --ahead    rows that are asked for before they are needed (8)\n"
              "  --verbose  times, and what was fetched, on standard error\n", to);
}

int main(int argc, char **argv)
{
        static const struct option options[] = { { "ahead", required_argument, NULL, 'a' },
                                                 { "help", no_argument, NULL, 'h' },
                                                 { "size", required_argument, NULL, 's' },
                                                 { "verbose", no_argument, NULL, 'v' },
                                                 { NULL, 0, NULL, 0 } };
        uint64_t size = 16 << 20;
        unsigned ahead = 8;
        int o;

        while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
                switch (o) {
                case 'a': ahead = (unsigned)parse_number("--ahead", optarg, false, 1, 64); break;
                case 's': size = parse_number("--size", optarg, true, 64 * VMG_PAGE, 1ull << 40);
                          break;
                case 'v': verbose = true; break;
                case 'h': usage(stdout); return RIGHT;
                default: usage(stderr); return CANNOT;
                }
        }
        if (optind != argc) {
                usage(stderr);
                return CANNOT;
        }
        rows = size / VMG_PAGE;
        table = reserve(rows, sizeof(*table));
        order = reserve(rows, sizeof(*order));
        fill();
        if (verbose)
                fprintf(stderr, "hints: interface %d of vmrun\n", vmg_version());
        double t = seconds();
        look_up(0);
        tell("looked up without hints", t);
        t = seconds();
        look_up(ahead);
        tell("with vmg_prefetch", t);
        t = seconds();
        look_up_groups(ahead);
        tell("with vmg_prefetchv", t);
        t = seconds();
        look_up_when_here(ahead);
        tell("with vmg_wait", t);
        t = seconds();
        read_all();
        tell("in sequence, vmg_stream", t);
        keep_and_give_up();
        printf("rows %" PRIu64 ", words wrong %" PRIu64 "\n", rows, wrong);
        return wrong ? WRONG : RIGHT;
}
