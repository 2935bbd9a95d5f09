/*
 * Touches the pages of a region in random order, as any program would: the far memory, if any, is
 * the system's business.
 */
#include "pattern.h"

int main(int argc, char **argv)
{
        struct pattern pt;

        pattern_default(&pt);
        for (int i = 1; i < argc; i++) {
                if (!pattern_option(&pt, argc, argv, &i)) {
                        fprintf(stderr,
                                "usage: touch " PATTERN_OPTIONS "; N MiB: a power of two\n");
                        return 2;
                }
        }
        /* For a node that moves nothing (null.c): all other pages stay here. */
        if (pt.same && mlockall(MCL_CURRENT) != 0)
                fail("mlockall");
        pt.data = map_anonymous((size_t)PAGE << pt.log2_pages);
        fill(&pt, pt.data);
        measure(&pt);
        return 0;
}
