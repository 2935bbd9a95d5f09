/*
 * liar: changes the memory of a memnode behind its back, as a node with bad memory would, or a
 * memnode with a bug that answers with the wrong page.  Works from outside, by /proc/PID/mem, so
 * for all of memnode's protocols.
 *
 *   flip       one bit of a page is changed
 *   swap       two pages have each other's bytes
 *   stale      a page has the bytes that it had some time ago
 *   torn       half of a page has the bytes that it had some time ago
 *   misdirect  a page has the bytes of another
 *
 * The seed determines pages and kinds, but not the bytes of the pages at that time.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE     4096ul
#define POOL     "/memfd:memnode"       /* the name of memnode's pool in maps */
#define COPIES   256                    /* old pages that are kept, the oldest go first */
#define LEARNED  16                     /* pages that are copied before each lie */
#define TRIES    64                     /* to find a page by chance that has something in it */
#define SCANNED  65536                  /* then pages in turn: RDMA maps the whole pool */

enum kind { FLIP, SWAP, STALE, TORN, MISDIRECT, KINDS };
static const char *const names[KINDS] = { "flip", "swap", "stale", "torn", "misdirect" };

static int mem, pagemap;                /* of the process */
static uint64_t pool, npages;           /* its address there, its size */
static uint64_t *used, nused;           /* [npages]: the pages that are there now */
static struct { uint64_t page; unsigned char bytes[PAGE]; } copy[COPIES];
static unsigned copies;                 /* so far */
static unsigned short chance[3];
static struct timespec began;
static FILE *out;

static _Noreturn void die(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        fputs("liar: ", stderr);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
        va_end(ap);
        exit(1);
}

static uint64_t below(uint64_t n)
{
        return ((uint64_t)nrand48(chance) << 31 | (uint64_t)nrand48(chance)) % n;
}

static void say(enum kind kind, uint64_t page, uint64_t other)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        fprintf(out, "%.3f %s page %" PRIu64,
                (double)(t.tv_sec - began.tv_sec) + (double)(t.tv_nsec - began.tv_nsec) * 1e-9,
                names[kind], page);
        if (other != page)
                fprintf(out, " and %" PRIu64, other);
        fputc('\n', out);
        fflush(out);
}

/* --- the process's memory --- */

static void find_pool(const char *pid)
{
        char path[64], line[512];
        uint64_t from, to;

        snprintf(path, sizeof(path), "/proc/%s/maps", pid);
        FILE *f = fopen(path, "re");
        if (!f)
                die("%s: %s", path, strerror(errno));
        while (fgets(line, sizeof(line), f))
                if (strstr(line, POOL) &&
                    sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2 &&
                    (to - from) / PAGE > npages) {
                        pool = from;
                        npages = (to - from) / PAGE;
                }
        fclose(f);
        if (!npages)
                die("process %s maps no %s: it is no memnode that serves", pid, POOL);
        used = calloc(npages, sizeof(*used));
        if (!used)
                die("no memory");
}

static int open_of(const char *pid, const char *name, int flags)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%s/%s", pid, name);
        int fd = open(path, flags | O_CLOEXEC);
        if (fd < 0)
                die("%s: %s", path, strerror(errno));
        return fd;
}

/* False: the process has ended. */
static bool get(uint64_t page, unsigned char *bytes)
{
        return pread(mem, bytes, PAGE, (off_t)(pool + page * PAGE)) == PAGE;
}
static bool put(uint64_t page, const unsigned char *bytes)
{
        return pwrite(mem, bytes, PAGE, (off_t)(pool + page * PAGE)) == PAGE;
}

/* Bit 63 of an entry of pagemap: the page is mapped.  Others were never written; to look at them
 * would make them. */
static void find_used(void)
{
        uint64_t entry[512];

        nused = 0;
        for (uint64_t page = 0; page < npages; page += 512) {
                ssize_t n = pread(pagemap, entry, sizeof(entry),
                                  (off_t)((pool / PAGE + page) * sizeof(entry[0])));
                for (uint64_t i = 0; n > 0 && i < (uint64_t)n / 8 && page + i < npages; i++)
                        if (entry[i] >> 63)
                                used[nused++] = page + i;
        }
}

static bool is_empty(const unsigned char *bytes)
{
        return bytes[0] == 0 && memcmp(bytes, bytes + 1, PAGE - 1) == 0;
}

/* A page with something in it.  False: there is none. */
static bool choose(uint64_t *page, unsigned char *bytes)
{
        for (unsigned i = 0; nused && i < TRIES; i++) {
                *page = used[below(nused)];
                if (get(*page, bytes) && !is_empty(bytes))
                        return true;
        }
        uint64_t from = nused ? below(nused) : 0;
        for (uint64_t i = 0; i < nused && i < SCANNED; i++) {
                *page = used[(from + i) % nused];
                if (get(*page, bytes) && !is_empty(bytes))
                        return true;
        }
        return false;
}

/* --- lies: false if there is no page for it now --- */

static void learn(void)
{
        for (unsigned i = 0; i < LEARNED; i++) {
                unsigned at = copies % COPIES;
                if (choose(&copy[at].page, copy[at].bytes))
                        copies++;
        }
}

static bool flip(void)
{
        unsigned char now[PAGE];
        uint64_t page;

        if (!choose(&page, now))
                return false;
        uint64_t bit = below(PAGE * 8);
        now[bit / 8] ^= (unsigned char)(1u << bit % 8);
        say(FLIP, page, page);
        return put(page, now);
}

static bool swap(bool both)
{
        unsigned char a[PAGE], b[PAGE];
        uint64_t first, second;

        if (!choose(&first, a) || !choose(&second, b) || memcmp(a, b, PAGE) == 0)
                return false;
        say(both ? SWAP : MISDIRECT, first, second);
        return put(first, b) && (!both || put(second, a));
}

static bool restore(bool half)
{
        unsigned char now[PAGE];

        for (unsigned i = 0; copies && i < TRIES; i++) {
                unsigned at = (unsigned)below(copies < COPIES ? copies : COPIES);
                uint64_t page = copy[at].page;
                if (!get(page, now) || is_empty(now) || memcmp(now, copy[at].bytes, PAGE) == 0)
                        continue;
                size_t from = half && below(2) ? PAGE / 2 : 0, n = half ? PAGE / 2 : PAGE;
                if (memcmp(now + from, copy[at].bytes + from, n) == 0)
                        continue;
                memcpy(now + from, copy[at].bytes + from, n);
                say(half ? TORN : STALE, page, page);
                return put(page, now);
        }
        return false;
}

static bool lie(enum kind kind)
{
        find_used();
        learn();
        switch (kind) {
        case FLIP: return flip();
        case SWAP: return swap(true);
        case STALE: return restore(false);
        case TORN: return restore(true);
        default: return swap(false);
        }
}

/* --- the command line --- */

static void usage(FILE *f)
{
        fputs("usage: liar [OPTION...] PID      (of a memnode)\n"
              "  --seed N       (default 1)\n"
              "  --every MS     between two lies (default 100)\n"
              "  --count N      that many, then end (default: as long as the memnode lives)\n"
              "  --kind KIND    flip, swap, stale, torn or misdirect; may be given several times\n"
              "                 (default: all)\n"
              "  --log FILE     a line for each lie (default: standard output)\n",
              f);
}

static unsigned kind_bit(const char *name)
{
        for (unsigned i = 0; i < KINDS; i++)
                if (strcmp(name, names[i]) == 0)
                        return 1u << i;
        usage(stderr);
        exit(2);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "count", required_argument, NULL, 'c' },
                { "every", required_argument, NULL, 'e' },
                { "help", no_argument, NULL, 'h' },
                { "kind", required_argument, NULL, 'k' },
                { "log", required_argument, NULL, 'l' },
                { "seed", required_argument, NULL, 's' },
                { NULL, 0, NULL, 0 }
        };
        uint64_t seed = 1, every = 100, count = UINT64_MAX;
        unsigned kinds = 0;

        out = stdout;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1; )
                switch (c) {
                case 'c': count = strtoull(optarg, NULL, 0); break;
                case 'e': every = strtoull(optarg, NULL, 0); break;
                case 'h': usage(stdout); return 0;
                case 'k': kinds |= kind_bit(optarg); break;
                case 'l':
                        out = fopen(optarg, "we");
                        if (!out)
                                die("%s: %s", optarg, strerror(errno));
                        break;
                case 's': seed = strtoull(optarg, NULL, 0); break;
                default: usage(stderr); return 2;
                }
        if (optind + 1 != argc || !every) {
                usage(stderr);
                return 2;
        }
        const char *pid = argv[optind];
        fprintf(stderr, "liar: seed %" PRIu64 "\n", seed);
        for (unsigned i = 0; i < 3; i++)
                chance[i] = (unsigned short)(seed >> 16 * i);
        clock_gettime(CLOCK_MONOTONIC, &began);
        find_pool(pid);
        mem = open_of(pid, "mem", O_RDWR);
        pagemap = open_of(pid, "pagemap", O_RDONLY);

        const struct timespec pause = { (time_t)(every / 1000), (long)(every % 1000) * 1000000 };
        unsigned char byte;
        while (count && pread(mem, &byte, 1, (off_t)pool) == 1) {
                nanosleep(&pause, NULL);
                enum kind kind = (enum kind)below(KINDS);
                if ((!kinds || kinds & 1u << kind) && lie(kind))
                        count--;
        }
        return 0;
}
