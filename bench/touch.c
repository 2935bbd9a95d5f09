/*
 * Touches the pages of a region in random order, as any program would: the far memory, if any, is
 * the system's business, unless it is told that parts of pages will be read (--parts).  Beside it
 * rest so many threads (--idle).  Before each access that is timed it asks for so many pages of
 * another region of that size (--ahead).
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "pattern.h"
#include "vmguest.h"

static void *rests(void *arg)
{
        for (;;)
                pause();
        return arg;
}

static struct { char *data; size_t pages, at, n; } ahead;

static void ask_ahead(void)
{
        if (ahead.at + ahead.n > ahead.pages)
                ahead.at = 0;
        vmg_prefetch(ahead.data + ahead.at * PAGE, ahead.n * PAGE);
        ahead.at += ahead.n;
}

int main(int argc, char **argv)
{
        struct pattern pt;
        bool parts = false;
        unsigned long idle = 0;
        pthread_t t;

        pattern_default(&pt);
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--parts") == 0) {
                        parts = true;
                } else if (strcmp(argv[i], "--idle") == 0 && i + 1 < argc) {
                        idle = strtoul(argv[++i], NULL, 0);
                } else if (strcmp(argv[i], "--ahead") == 0 && i + 1 < argc) {
                        ahead.n = strtoul(argv[++i], NULL, 0);
                } else if (!pattern_option(&pt, argc, argv, &i)) {
                        fprintf(stderr, "usage: touch [--parts] [--idle THREADS] [--ahead PAGES] "
                                        PATTERN_OPTIONS "; N MiB: a power of two\n");
                        return 2;
                }
        }
        /* For a node that moves nothing (null.c): all other pages stay here. */
        if (pt.same && mlockall(MCL_CURRENT) != 0)
                fail("mlockall");
        for (; idle; idle--)
                if (pthread_create(&t, NULL, rests, NULL) != 0)
                        fail("pthread_create");
        pt.data = map_anonymous((size_t)PAGE << pt.log2_pages);
        if (parts)                      /* it might use vmg_read: so sums of pieces are kept */
                vmg_read(&pt, &pt, 0, 0);
        if (ahead.n) {
                ahead.pages = (size_t)1 << pt.log2_pages;
                ahead.data = map_anonymous(ahead.pages * PAGE);
                fill(&pt, (uint64_t *)ahead.data);
                pt.before = ask_ahead;
        }
        fill(&pt, pt.data);
        measure(&pt);
        return 0;
}
