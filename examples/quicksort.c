/*
 * quicksort: fills memory with random integers, sorts it with a quicksort of its own, and checks
 * the result.
 *
 * The workload that far-memory papers have in common (HPBD, DiLOS): one big array, read and written
 * in long runs from both ends. Sorting in place, it needs the array and nothing else. The check is
 * the program's own: the order, and sum and xor of all integers before and after. Standard output
 * depends on the arguments only.
 *
 * Exit status: 0 sorted, 1 wrong result, 2 usage or no memory.
 */
#include <getopt.h>
#define PROGRAM "quicksort"
#include "example.h"

#define SMALL 16                        /* below this many, insertion sort */

/* What does not change when integers change places. */
struct sums { uint64_t sum, xor; };

/*
 * One code for both widths. sort: Hoare's partition around the median of three. Equal integers are
 * exchanged, so a large number of them does no harm. It recurses only into the smaller part, so its
 * depth is at most log2 n.
 */
#define DEFINE_SORT(bits)                                                                      \
static void insertion_sort##bits(uint##bits##_t *a, size_t n)                                  \
{                                                                                              \
        for (size_t i = 1; i < n; i++) {                                                       \
                uint##bits##_t x = a[i];                                                       \
                size_t j = i;                                                                  \
                for (; j > 0 && a[j - 1] > x; j--)                                             \
                        a[j] = a[j - 1];                                                       \
                a[j] = x;                                                                      \
        }                                                                                      \
}                                                                                              \
static void sort##bits(uint##bits##_t *a, size_t n)                                            \
{                                                                                              \
        while (n > SMALL) {                                                                    \
                uint##bits##_t lo = a[0], mid = a[n / 2], hi = a[n - 1];                       \
                uint##bits##_t pivot = lo < mid ? (mid < hi ? mid : lo < hi ? hi : lo)         \
                                                : (lo < hi ? lo : mid < hi ? hi : mid);        \
                uint##bits##_t *l = a, *r = a + n - 1;                                         \
                for (;;) {                                                                     \
                        while (*l < pivot)                                                     \
                                l++;                                                           \
                        while (*r > pivot)                                                     \
                                r--;                                                           \
                        if (l > r)                                                             \
                                break;                                                         \
                        uint##bits##_t x = *l;                                                 \
                        *l++ = *r;                                                             \
                        *r-- = x;                                                              \
                        if (l > r)                                                             \
                                break;                                                         \
                }                                                                              \
                size_t nl = (size_t)(r + 1 - a), nr = n - (size_t)(l - a);                     \
                if (nl < nr) {                                                                 \
                        sort##bits(a, nl);                                                     \
                        a = l;                                                                 \
                        n = nr;                                                                \
                } else {                                                                       \
                        sort##bits(l, nr);                                                     \
                        n = nl;                                                                \
                }                                                                              \
        }                                                                                      \
        insertion_sort##bits(a, n);                                                            \
}                                                                                              \
static struct sums fill##bits(uint##bits##_t *a, size_t n, uint64_t seed)                      \
{                                                                                              \
        struct sums s = { 0, 0 };                                                              \
        for (size_t i = 0; i < n; i++) {                                                       \
                a[i] = (uint##bits##_t)next_random(&seed);                                     \
                s.sum += a[i];                                                                 \
                s.xor ^= a[i];                                                                 \
        }                                                                                      \
        return s;                                                                              \
}                                                                                              \
/* Sums of a, and in *misplaced how many integers are smaller than the one before. */          \
static struct sums check##bits(const uint##bits##_t *a, size_t n, size_t *misplaced)           \
{                                                                                              \
        struct sums s = { 0, 0 };                                                              \
        *misplaced = 0;                                                                        \
        for (size_t i = 0; i < n; i++) {                                                       \
                *misplaced += i > 0 && a[i - 1] > a[i];                                        \
                s.sum += a[i];                                                                 \
                s.xor ^= a[i];                                                                 \
        }                                                                                      \
        return s;                                                                              \
}

DEFINE_SORT(32)
DEFINE_SORT(64)

static void usage(FILE *f)
{
        fputs("usage: quicksort [--bits 32|64] [--mmap] [--seed N] [--time] COUNT|SIZE\n"
              "COUNT: how many integers; SIZE: bytes of memory, with a suffix K, M or G.\n"
              "--mmap: memory from mmap, not malloc.  --time: how long it took, on standard "
              "error.\n",
              f);
}

/* How many integers of width bytes the argument stands for. */
static size_t parse_count(const char *s, size_t width)
{
        size_t n = strlen(s);
        bool bytes = n && strchr("KMG", s[n - 1]);
        uint64_t v = parse_number(bytes ? "SIZE" : "COUNT", s, true, 1, UINT64_MAX);
        return bytes ? v / width : v;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "bits", required_argument, NULL, 'b' },
                { "help", no_argument, NULL, 'h' },
                { "mmap", no_argument, NULL, 'm' },
                { "seed", required_argument, NULL, 's' },
                { "time", no_argument, NULL, 't' },
                { NULL, 0, NULL, 0 }
        };
        uint64_t bits = 64, seed = 1;
        bool use_mmap = false, show_time = false;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'b': bits = parse_number("--bits", optarg, false, 32, 64); break;
                case 'h': usage(stdout); return 0;
                case 'm': use_mmap = true; break;
                case 's': seed = parse_number("--seed", optarg, false, 0, UINT64_MAX); break;
                case 't': show_time = true; break;
                default: usage(stderr); return 2;
                }
        if (optind != argc - 1 || (bits != 32 && bits != 64)) {
                usage(stderr);
                return 2;
        }

        size_t width = bits / 8, n = parse_count(argv[optind], width), bytes;
        void *a = NULL;
        if (!__builtin_mul_overflow(n, width, &bytes) && bytes > 0) {
                a = use_mmap ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                             : malloc(bytes);
                if (a == MAP_FAILED)
                        a = NULL;
        }
        if (!a) {
                fprintf(stderr, "quicksort: no memory for %zu integers of %zu bytes\n", n, width);
                return 2;
        }

        double t0 = seconds();
        struct sums before = bits == 32 ? fill32(a, n, seed) : fill64(a, n, seed);
        double t1 = seconds();
        if (bits == 32)
                sort32(a, n);
        else
                sort64(a, n);
        double t2 = seconds();
        size_t misplaced;
        struct sums after = bits == 32 ? check32(a, n, &misplaced) : check64(a, n, &misplaced);
        double t3 = seconds();

        bool same = before.sum == after.sum && before.xor == after.xor;
        printf("quicksort: %zu %" PRIu64 "-bit integers, seed %" PRIu64 ": sum %016" PRIx64
               " xor %016" PRIx64 ", %zu misplaced, %s\n",
               n, bits, seed, after.sum, after.xor, misplaced,
               same && !misplaced ? "sorted"
               : same             ? "NOT SORTED"
                                  : "CHANGED");
        if (show_time)
                fprintf(stderr, "quicksort: fill %.3f s, sort %.3f s, check %.3f s\n", t1 - t0,
                        t2 - t1, t3 - t2);
        if (use_mmap)
                munmap(a, bytes);
        else
                free(a);
        return same && !misplaced ? 0 : 1;
}
