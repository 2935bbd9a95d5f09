/*
 * What the sums of a page cost: the median of many, in ticks of the clock (lab --icount:
 * ticks_per_ns of them are an instruction).
 *
 *   sum     of a page that came
 *   store   of a page that is sent
 *   pieces  of a page that is sent, and the sums of its pieces
 *   part    to believe the sum of a piece, and to compare the piece
 */
#include <sys/mman.h>
#include "far/sums.h"
#include "pattern.h"

enum { PAGES = 256, ROUNDS = 16, SAMPLES = PAGES * ROUNDS };

static struct sums s = { .sum = far_sum };
static uint32_t took[SAMPLES];
static volatile bool right;

static void sum(uint64_t i, const char *page)
{
        right = sums_fit(&s, i % PAGES, page);
}

static void store(uint64_t i, const char *page) { sums_store(&s, i % PAGES, page, false); }
static void pieces(uint64_t i, const char *page) { sums_store(&s, i % PAGES, page, true); }

static void part(uint64_t i, const char *page)
{
        struct sum_of_part e;

        right = sums_of_part(&s, i % PAGES, 1000, 20, &e) && sums_part_fits(&s, &e, page);
}

static void measure_one(const char *name, void (*what)(uint64_t i, const char *page),
                        const char *data)
{
        uint64_t begin_ns = now_ns(), begin = ticks();

        for (unsigned i = 0; i < SAMPLES; i++) {
                uint64_t at = ticks();
                what(i, data + i % PAGES * PAGE);
                took[i] = (uint32_t)(ticks() - at);
        }
        double per_ns = (double)(ticks() - begin) / (double)(now_ns() - begin_ns);
        qsort(took, SAMPLES, sizeof(took[0]), by_value);
        printf("%s_min %.0f\n%s_p50 %.0f\n", name, took[0] / per_ns, name,
               took[SAMPLES / 2] / per_ns);
}

int main(void)
{
        static const struct {
                const char *name;
                void (*run)(uint64_t i, const char *page);
        } all[] = { { "store", store }, { "sum", sum }, { "pieces", pieces }, { "part", part } };
        struct pattern pt;

        pattern_default(&pt);
        pt.log2_pages = 8;
        pt.data = map_anonymous(PAGES * PAGE);
        fill(&pt, pt.data);
        s.units = map_anonymous(tree_units_size(1));
        s.pieces = map_anonymous(SLAB_PIECES_SIZE);
        for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
                measure_one(all[i].name, all[i].run, (const char *)pt.data);
        return 0;
}
