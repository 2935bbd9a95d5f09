/*
 * tree: keys looked up in a binary search tree that is far larger than the cache.
 *
 * The nodes lie in an array, each in a place that has nothing to do with its key, so each step of a
 * look-up leads to another page.  One list of keys is looked up in three ways:
 *
 *   loads  ordinary loads: a far page is brought in for the sake of one node
 *   table  loads, but nodes near the root are copied to a table, where they lie close together
 *   reads  that table, and all nodes come by vmg_read: no page is brought in, so the cache is left
 *          to the table
 *
 * Standard output depends on the arguments only; --verbose tells the times, on standard error.
 * Exit status: 0 all was right, 1 not, 2 usage or no memory.
 */
#include <getopt.h>
#define PROGRAM "tree"
#include "example.h"
#include "vmguest.h"

#define NONE UINT64_MAX

struct node { uint64_t key, child[2], check, value[4]; };      /* 64 bytes */

static struct node *nodes;              /* [count] */
static uint64_t count, lookups, missing, wrong;
/* The nodes of the first `levels` levels as they were read, level by level: those after node i are
 * 2 * i + 1 and 2 * i + 2.  A key of 0: not read yet. */
static struct node *table;
static unsigned levels;
static unsigned flags;
static bool verbose;

/* A permutation of [0, count): four rounds of Feistel's network over the next power of 4, and again
 * until the number is below count. */
static uint64_t place_of(uint64_t i)
{
        unsigned half = 1;

        while ((uint64_t)1 << 2 * half < count)
                half++;
        uint64_t mask = ((uint64_t)1 << half) - 1;
        do {
                uint64_t left = i >> half, right = i & mask;
                for (uint64_t round = 1; round <= 4; round++) {
                        uint64_t mixed = left ^ (scramble(right + round * 0x1234567) & mask);
                        left = right;
                        right = mixed;
                }
                i = left << half | right;
        } while (i >= count);
        return i;
}

/* The root of the tree of ranks [first, last): it is the middle one.  Keys are odd. */
static uint64_t root_of(uint64_t first, uint64_t last)
{
        return first == last ? NONE : place_of(first + (last - first) / 2);
}

static uint64_t value_of(uint64_t key, unsigned i) { return scramble(key * 4 + i); }

static void build(uint64_t first, uint64_t last)
{
        if (first == last)
                return;
        uint64_t middle = first + (last - first) / 2;
        struct node *n = &nodes[place_of(middle)];
        n->key = 2 * middle + 1;
        n->child[0] = root_of(first, middle);
        n->child[1] = root_of(middle + 1, last);
        n->check = scramble(n->key);
        for (unsigned i = 0; i < 4; i++)
                n->value[i] = value_of(n->key, i);
        build(first, middle);
        build(middle + 1, last);
}

static void copy_node(struct node *to, uint64_t at, bool by_read)
{
        ssize_t n = sizeof(*to);

        if (by_read)
                n = vmg_read(to, &nodes[at], sizeof(*to), flags);
        else
                *to = nodes[at];
        if (n != (ssize_t)sizeof(*to)) {
                fprintf(stderr, "tree: vmg_read: %s\n", strerror((int)-n));
                exit(WRONG);
        }
}

enum way { LOADS, TABLE, READS };

/* Node `at`, number i of those on its level and above. */
static const struct node *get(uint64_t at, uint64_t i, enum way way, struct node *room)
{
        if (way == LOADS)
                return &nodes[at];
        if (i + 1 < (uint64_t)1 << levels) {
                if (!table[i].key)
                        copy_node(&table[i], at, way == READS);
                return &table[i];
        }
        copy_node(room, at, way == READS);
        return room;
}

/* Half of the keys are in the tree. */
static void look_up(enum way way)
{
        for (uint64_t i = 0; i < lookups; i++) {
                uint64_t key = below(random_at(1, i), 2 * count), at = root_of(0, count);
                struct node room;
                const struct node *n = NULL;
                for (uint64_t number = 0; at != NONE; ) {
                        n = get(at, number, way, &room);
                        wrong += n->check != scramble(n->key);
                        if (n->key == key)
                                break;
                        at = n->child[key > n->key];
                        number = 2 * number + 1 + (key > n->key);
                }
                if (at == NONE)
                        missing++;
                else
                        for (unsigned k = 0; k < 4; k++)
                                wrong += n->value[k] != value_of(key, k);
                wrong += (at != NONE) != (key & 1);
        }
}

static const char *const names[] = { [LOADS] = "loads", [TABLE] = "table", [READS] = "reads" };

static void run(enum way way)
{
        struct vmg_stats before, after;

        memset(table, 0, ((size_t)1 << levels) * sizeof(*table));
        vmg_stats(&before, sizeof(before));
        double begun = seconds();
        look_up(way);
        double took = seconds() - begun;
        vmg_stats(&after, sizeof(after));
        if (verbose)
                fprintf(stderr, "%s %10.1f us a look-up, %" PRIu64 " pages fetched\n", names[way],
                        took * 1e6 / (double)lookups, after.fetched - before.fetched);
}

static void usage(FILE *to)
{
        fputs("usage: tree [--size BYTES] [--lookups N] [--levels N] [--unverified]\n"
              "            [--only loads|table|reads] [--verbose]\n"
              "  --size        of the nodes (32M); K, M and G may follow\n"
              "  --lookups     keys looked up, each way (2000)\n"
              "  --levels      of the tree that the table holds (as many as take 1/32 of --size)\n"
              "  --unverified  the sums of pages are not looked at\n"
              "  --only        one of the three ways\n"
              "  --verbose     times, and what was fetched, on standard error\n", to);
}

int main(int argc, char **argv)
{
        static const struct option options[] = { { "help", no_argument, NULL, 'h' },
                                                 { "levels", required_argument, NULL, 'l' },
                                                 { "lookups", required_argument, NULL, 'n' },
                                                 { "only", required_argument, NULL, 'o' },
                                                 { "size", required_argument, NULL, 's' },
                                                 { "unverified", no_argument, NULL, 'u' },
                                                 { "verbose", no_argument, NULL, 'v' },
                                                 { NULL, 0, NULL, 0 } };
        uint64_t size = 32 << 20;
        const char *only = NULL;
        bool known = true;
        int o;

        lookups = 2000;
        levels = 64;
        while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
                switch (o) {
                case 'l': levels = (unsigned)parse_number("--levels", optarg, false, 0, 32); break;
                case 'n': lookups = parse_number("--lookups", optarg, false, 1, 1ull << 40); break;
                case 'o': only = optarg; break;
                case 's': size = parse_number("--size", optarg, true, 4096, 1ull << 40); break;
                case 'u': flags = VMG_UNVERIFIED; break;
                case 'v': verbose = true; break;
                case 'h': usage(stdout); return RIGHT;
                default: usage(stderr); return CANNOT;
                }
        }
        if (only)
                known = strcmp(only, "loads") == 0 || strcmp(only, "table") == 0 ||
                        strcmp(only, "reads") == 0;
        if (optind != argc || !known) {
                usage(stderr);
                return CANNOT;
        }
        count = size / sizeof(*nodes);
        nodes = reserve(count, sizeof(*nodes));
        if (levels == 64)
                for (levels = 0; (uint64_t)2 << levels <= count / 32; levels++)
                        ;
        table = reserve((uint64_t)1 << levels, sizeof(*table));
        /* Parts of pages are to be read: so their sums are kept from the start. */
        vmg_read(nodes, nodes, 0, flags);
        build(0, count);
        for (enum way way = LOADS; way <= READS; way++)
                if (!only || strcmp(only, names[way]) == 0)
                        run(way);
        printf("nodes %" PRIu64 ", keys missing %" PRIu64 ", wrong %" PRIu64 "\n", count, missing,
               wrong);
        return wrong ? WRONG : RIGHT;
}
