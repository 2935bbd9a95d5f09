/*
 * Touches the pages of a region in random order, as any program would: the far memory, if any, is the system's business.
 */
#include "pattern.h"

int main(int argc, char **argv)
{
        struct pattern pt;

        if (pattern_options(&pt, argc, argv) != argc) {
                fprintf(stderr, "usage: touch [--mib N] [--passes N] [--write] [--seed N]\n");
                return 2;
        }
        pt.data = map_anonymous((size_t)PAGE << pt.log2_pages);
        fill(&pt, pt.data);
        measure(&pt);
        return 0;
}
