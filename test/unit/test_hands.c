/*
 * Which pages the pager evicts: beside an oracle, to the page, and beside CLOCK, by how many are
 * fetched.
 *
 *   test_hands                      loads that attack the policy, each with a limit
 *   test_hands NFRAMES FILE         prints the fetches of a trace, and those of CLOCK: words of 32
 *                                   bits, the number of a page, and 1 << 30 if it is written
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "abi_stats.h"
#include "hands_rule.h"
#include "pager_env.h"

#define FRAMES RULE_FRAMES
#define WRITE  (1u << 30)

static struct {
        struct frame_list list;
        uint64_t cnt[CNT_COUNT], fetches;
        /* That take turns to reclaim, instead of the cleaner.  The one that is stopped has its
         * first turns only. */
        struct sweeper sweeper[16];
        uint64_t counts[16][CNT_COUNT];
        uint32_t sweepers, turn, stopped;
        struct rule *rule;              /* NULL: no oracle */
        uint32_t *gone;                 /* of a pass, as the oracle has it */
} w;

/* --- the world: one vCPU, whose flushes are over at once --- */

static void sum_returns(struct returns *sum)
{
        uint32_t *to = (uint32_t *)sum;

        for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++) {
                to[i] = (uint32_t)w.cnt[CNT_GONE + i];
                for (unsigned k = 0; k < w.sweepers; k++)
                        to[i] += (uint32_t)w.counts[k][CNT_GONE + i];
        }
}

static void world_begin(uint32_t nframes, uint32_t pages, bool oracle)
{
        memset(&w, 0, sizeof(w));
        env_setup(nframes, pages, pages, 0);
        env.returns = sum_returns;
        if (!oracle)
                return;
        w.rule = malloc(sizeof(*w.rule));
        w.gone = calloc(nframes, sizeof(*w.gone));
        assert_non_null(w.rule);
        rule_init(w.rule, nframes, frames_for_hands(&env.pg), env.pg.batch,
                  calloc(pages, sizeof(struct rule_stamp)), false);
}

static void world_end(void)
{
        if (w.rule)
                free(w.rule->stamp);
        free(w.rule);
        free(w.gone);
        env_teardown();
}

/* The pages that the oracle names are gone, and as many as it names. */
static void compare(uint32_t freed, uint32_t expected)
{
        for (uint32_t i = 0; i < expected; i++)
                if (pte_kind(env.pte[w.gone[i]]) != PTE_REMOTE)
                        fail_msg("after %lu fetches: page %u is not evicted",
                                 (unsigned long)w.fetches, w.gone[i]);
        assert_int_equal(freed, expected);
        assert_int_equal(env.pg.nhot, w.rule->nhot);
        assert_int_equal(env.pg.target, w.rule->target);
}

/* As the cleaner does. */
static void stock_up(void)
{
        while (env.pg.nfree < env.pg.high) {
                uint32_t most = env.pg.high - env.pg.nfree, nfree = env.pg.nfree;
                uint32_t freed = clock_pass(&env.pg, 256, most, w.cnt).freed;
                env.flushed = env.flush_epoch;
                if (w.rule)
                        compare(freed, rule_pass(w.rule, 256, most, nfree, env.pg.stocked, w.gone));
        }
}

/* As vCPUs that are out of frames. */
static void reclaim(void)
{
        uint32_t i = w.turn++ % w.sweepers;

        if (w.turn > w.stopped && i == 0 && w.stopped)
                i = w.turn++ % w.sweepers;
        clock_reclaim(&env.pg, &w.sweeper[i], &w.list, w.counts[i]);
        env.flushed = env.flush_epoch;
}

static void use(uint32_t page, bool write)
{
        pte_slot_t *pte = &env.pte[page];
        pte_t p = *pte;

        if (pte_kind(p) == PTE_PRESENT) {
                *pte = p | PTE_A | (write ? PTE_D : 0);
                if (w.rule)
                        rule_used(w.rule, (uint32_t)(pte_num(p) - ENV_PFN0));
                return;
        }
        frame_t n;
        while ((n = frame_take(&env.pg, &w.list, w.cnt)) == FRAME_NONE)
                w.sweepers ? reclaim() : stock_up();
        if (p == 0) {
                page_install(&env.pg, pte, n, pte_prot(true, true, false), PTE_A | PTE_D);
        } else {
                page_fetch(&env.pg, pte, p, n, w.cnt);
                *pte |= write ? PTE_D : 0;
                w.fetches++;
        }
        if (w.rule)
                rule_came(w.rule, n, page);
        if (!w.sweepers && env.pg.nfree < env.pg.low)
                stock_up();
}

/* How often CLOCK fetches, for the same words: the rule, where no frame becomes hot. */
static uint64_t clock_fetches(const uint32_t *word, uint64_t n, uint32_t nframes, uint32_t pages)
{
        struct rule *r = malloc(sizeof(*r));
        uint32_t *frame_of = malloc(pages * sizeof(*frame_of)), *gone, *unused;
        uint32_t nfree = nframes, high = nframes / 32 < 128 ? 128 : nframes / 32;
        uint64_t fetches = 0;
        bool *far = calloc(pages, sizeof(*far));

        assert_non_null(r);
        rule_init(r, nframes, nframes, 32, calloc(pages, sizeof(struct rule_stamp)), true);
        gone = calloc(nframes, sizeof(*gone));
        unused = calloc(nframes, sizeof(*unused));
        for (uint32_t f = 0; f < nframes; f++)
                unused[f] = nframes - 1 - f;
        memset(frame_of, 0xff, pages * sizeof(*frame_of));
        for (uint64_t i = 0; i < n; i++) {
                uint32_t page = word[i] & ~WRITE;
                if (frame_of[page] != RULE_NONE) {
                        rule_used(r, frame_of[page]);
                        continue;
                }
                fetches += far[page];
                frame_of[page] = unused[--nfree];
                rule_came(r, frame_of[page], page);
                while (nfree < high / 2) {
                        uint32_t freed = 0;
                        while (nfree + freed < high)
                                freed += rule_pass(r, 256, high - nfree - freed, nfree, 0,
                                                   gone + freed);
                        for (uint32_t k = 0; k < freed; k++) {
                                unused[nfree++] = frame_of[gone[k]];
                                frame_of[gone[k]] = RULE_NONE;
                                far[gone[k]] = true;
                        }
                }
        }
        free(r->stamp);
        free(r);
        free(frame_of);
        free(gone);
        free(unused);
        free(far);
        return fetches;
}

/* --- loads --- */

static uint64_t seed;

static uint64_t draw(void)
{
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        return seed >> 20;
}

/* A number below n, small ones more often: Zipf, by the sum of 1 / (i + 1)^0.99. */
struct zipf { uint32_t n; double *sum; };

static struct zipf zipf_make(uint32_t n)
{
        struct zipf z = { n, malloc(n * sizeof(double)) };
        double sum = 0;

        assert_non_null(z.sum);
        for (uint32_t i = 0; i < n; i++)
                z.sum[i] = sum += 1 / pow(i + 1, 0.99);
        return z;
}

static uint32_t zipf_draw(const struct zipf *z)
{
        double x = (double)(draw() & 0xffffffff) / 4294967296.0 * z->sum[z->n - 1];
        uint32_t low = 0, high = z->n - 1;

        while (low < high) {
                uint32_t mid = (low + high) / 2;
                if (z->sum[mid] < x)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

enum load { LOOP, ZIPF, PHASES, TWICE, MOVING, HOT_GONE, LOOPS_IN_TURNS };
#define ACCESSES (244ull * FRAMES)

static uint32_t *make_load(enum load kind, uint32_t pages, uint64_t n)
{
        uint32_t *word = malloc(n * sizeof(*word)), half = pages / 2, gap = pages / 16;
        struct zipf z = zipf_make(kind == PHASES ? half : pages);

        assert_non_null(word);
        seed = 1;
        for (uint64_t i = 0; i < n; i++) {
                uint32_t p = 0;
                switch (kind) {
                case LOOP:
                        p = (uint32_t)(i % pages);
                        break;
                case ZIPF:              /* popular pages lie apart */
                        p = (uint32_t)((uint64_t)zipf_draw(&z) * 7919 % pages);
                        break;
                case PHASES:            /* one half, then the other */
                        p = (uint32_t)(i / (20 * pages) & 1) * half + zipf_draw(&z);
                        break;
                case TWICE:             /* each page twice, a gap apart, and then for long not */
                        p = (uint32_t)((i / (2 * gap) * gap + i % gap) % pages);
                        break;
                case MOVING:            /* what is used was used lately */
                        p = (uint32_t)((i / 8 + draw() % (pages / 4)) % pages);
                        break;
                case HOT_GONE:          /* half of the uses have a hot half, which then rests */
                        p = (i < n / 3 || i > n / 3 * 2) && draw() % 2
                                    ? (uint32_t)(draw() % half)
                                    : half + (uint32_t)((i / 16 + draw() % (pages / 3)) % half);
                        break;
                case LOOPS_IN_TURNS:
                        p = (uint32_t)(i % (pages * 3 / 4)) +
                            (i / (20 * pages) & 1 ? pages / 4 : 0);
                        break;
                }
                word[i] = p | (draw() % 4 == 0 ? WRITE : 0);
        }
        free(z.sum);
        return word;
}

/* limit: of the pager's fetches beside CLOCK's. */
static void attack(const char *name, enum load kind, double size, double limit)
{
        uint32_t pages = (uint32_t)(FRAMES * size);
        uint32_t *word = make_load(kind, pages, ACCESSES);

        world_begin(FRAMES, pages, true);
        for (uint64_t i = 0; i < ACCESSES; i++)
                use(word[i] & ~WRITE, word[i] & WRITE);
        uint64_t clock = clock_fetches(word, ACCESSES, FRAMES, pages);
        double share = (double)w.fetches / (double)clock;
        print_message("# %s, %.2f times the cache: %lu fetches, CLOCK %lu: %.3f (at most %.2f); "
                      "%.1f frames met an eviction\n",
                      name, size, (unsigned long)w.fetches, (unsigned long)clock, share, limit,
                      (double)(w.cnt[CNT_SCANNED] + w.cnt[CNT_SHOWN]) /
                              (double)(w.cnt[CNT_EVICTED_CLEAN] + w.cnt[CNT_EVICTED_DIRTY]));
        world_end();
        free(word);
        assert_true(share <= limit);
}

static void test_loops(void **state)
{
        (void)state;
        attack("a loop", LOOP, 1.1, 0.35);
        attack("a loop", LOOP, 1.3, 0.55);
        attack("a loop", LOOP, 2, 0.75);
        attack("two loops in turns", LOOPS_IN_TURNS, 1.5, 0.60);
}

static void test_popular(void **state)
{
        (void)state;
        attack("Zipf", ZIPF, 4, 0.90);
        attack("Zipf, one half and then the other", PHASES, 2, 1.15);
        attack("a hot half that rests", HOT_GONE, 2, 1.10);
}

static void test_lru_friendly(void **state)
{
        (void)state;
        attack("used twice and then never", TWICE, 4, 1.03);
        attack("a moving window", MOVING, 5, 1.04);
}

/* Fetches, beside those of one evictor, as the mean of three sizes. */
static double beside_one(enum load kind, uint32_t sweepers, uint32_t stopped)
{
        static const double size[] = { 1.25, 2, 4 };
        static uint64_t alone[LOOPS_IN_TURNS + 1][3];
        double sum = 0;

        for (unsigned s = 0; s < 3; s++) {
                uint32_t pages = (uint32_t)(FRAMES * size[s]);
                uint32_t *word = make_load(kind, pages, ACCESSES / 2);
                world_begin(FRAMES, pages, false);
                pager_share(&env.pg, sweepers);
                w.sweepers = sweepers;
                w.stopped = stopped;
                for (uint64_t i = 0; i < ACCESSES / 2; i++)
                        use(word[i] & ~WRITE, word[i] & WRITE);
                if (sweepers == 1)
                        alone[kind][s] = w.fetches;
                sum += (double)w.fetches / (double)alone[kind][s];
                world_end();
                free(word);
        }
        return sum / 3;
}

/* However many evict, and where one of them stops for ever, about as many pages are fetched. */
static void test_many_evictors(void **state)
{
        static const enum load kinds[] = { LOOP, ZIPF, MOVING, HOT_GONE };

        (void)state;
        for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                beside_one(kinds[i], 1, 0);
                double four = beside_one(kinds[i], 4, 0), many = beside_one(kinds[i], 16, 0);
                double stopped = beside_one(kinds[i], 4, 100);
                print_message("# load %u: 4 evictors %.3f, 16 %.3f, one of 4 stopped %.3f\n",
                              kinds[i], four, many, stopped);
                assert_true(four < 1.02 && many < 1.02 && stopped < 1.03);
        }
}

static int print_trace(uint32_t nframes, const char *path)
{
        FILE *f = fopen(path, "r");
        uint32_t pages = 0, *word;
        long size;

        if (!f || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) <= 0 ||
            !(word = malloc((size_t)size))) {
                perror(path);
                return 2;
        }
        rewind(f);
        uint64_t n = fread(word, sizeof(*word), (size_t)size / sizeof(*word), f);
        fclose(f);
        for (uint64_t i = 0; i < n; i++)
                if ((word[i] & ~WRITE) >= pages)
                        pages = (word[i] & ~WRITE) + 1;
        world_begin(nframes, pages, false);
        for (uint64_t i = 0; i < n; i++)
                use(word[i] & ~WRITE, word[i] & WRITE);
        uint64_t clock = clock_fetches(word, n, nframes, pages);
        printf("%s %u: %lu fetches, %lu writes, CLOCK %lu fetches\n", path, nframes,
               (unsigned long)w.fetches, (unsigned long)w.cnt[CNT_WRITEBACK],
               (unsigned long)clock);
        world_end();
        free(word);
        return 0;
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_loops),
                cmocka_unit_test(test_popular),
                cmocka_unit_test(test_lru_friendly),
                cmocka_unit_test(test_many_evictors),
        };

        if (argc == 3)
                return print_trace((uint32_t)atoi(argv[1]), argv[2]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
