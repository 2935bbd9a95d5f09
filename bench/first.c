/*
 * What the first touch of a page costs: of fresh anonymous memory by a store, by a load and by a
 * store after the load, in order and at random. Prints ns a page, one line `KEY VALUE` each.
 *
 * usage: first [--mib N]       N MiB for each of them, a power of two
 */
#include "pattern.h"

enum how { LOAD, STORE };

static uint64_t sum;

/* Touches each page once. Returns ns a page. */
static double touch(const struct pattern *pt, enum how how, bool in_order)
{
        uint64_t n = 1ull << pt->log2_pages, began = now_ns();

        for (uint64_t k = 0; k < n; k++) {
                uint64_t page = in_order ? k : permute(k, mix64(pt->seed), pt->log2_pages);
                volatile uint64_t *word = &pt->data[page * WORDS + word_of(page)];
                if (how == STORE)
                        *word = page;
                else
                        sum += *word;
        }
        return (double)(now_ns() - began) / (double)n;
}

static void measure_order(struct pattern *pt, bool in_order, const char *name)
{
        size_t size = (size_t)PAGE << pt->log2_pages;

        pt->data = map_anonymous(size);
        printf("store_%s %.1f\n", name, touch(pt, STORE, in_order));
        munmap(pt->data, size);
        pt->data = map_anonymous(size);
        printf("load_%s %.1f\n", name, touch(pt, LOAD, in_order));
        printf("store_after_load_%s %.1f\n", name, touch(pt, STORE, in_order));
        munmap(pt->data, size);
}

int main(int argc, char **argv)
{
        struct pattern pt;

        pattern_default(&pt);
        for (int i = 1; i < argc; i++)
                if (!pattern_option(&pt, argc, argv, &i)) {
                        fprintf(stderr, "usage: first [--mib N]\n");
                        return 2;
                }
        measure_order(&pt, true, "in_order");
        measure_order(&pt, false, "at_random");
        if (sum) {                      /* fresh memory is zero */
                fprintf(stderr, "first: fresh memory was not zero\n");
                return 1;
        }
        return 0;
}
