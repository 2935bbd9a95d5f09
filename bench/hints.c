/*
 * What each call of libvmguest costs.
 *
 *   hints [--mib N]         memory to work on (default 32)
 *
 * Prints NAME_p50 and NAME_p99 of single calls, in ticks of the TSC, the reading of it taken off:
 * instructions, under `lab --icount`. far: the pages asked for are far; here: none is; in a batch
 * of 16 it is the cost of all. first: of pages that left before any vmg_read. fetch: no call, but a
 * load from a far page. Pages are far if the cache is much smaller than the memory and the node can
 * be asked ahead: rdma://, nbd://, or mem: with a latency.
 */
#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>
#include "samples.h"
#include "vmguest.h"

#define CALLS 200
#define BATCH 16

static struct samples s;
static char *memory;
static uint64_t pages, overhead, turn;

static uint64_t now(void)
{
        _mm_lfence();
        return __rdtsc();
}

static void add(uint64_t begin)
{
        uint64_t ticks = now() - begin;
        samples_add(&s, ticks > overhead ? ticks - overhead : 0);
}

/* A page that hardly was used lately, and that no policy expects. */
static char *far_page(void)
{
        turn = turn * 6364136223846793005 + 1442695040888963407;
        return memory + (turn >> 33) % pages * VMG_PAGE;
}

static void nothing(void)
{
        for (unsigned i = 0; i < CALLS; i++)
                add(now());
        qsort(s.ns, s.n, sizeof(*s.ns), samples_compare);
        overhead = s.ns[s.n / 2];
        s.n = 0;
}

static void version(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                uint64_t begin = now();
                (void)vmg_version();
                add(begin);
        }
}

static void prefetch_far(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                char *p = far_page();
                uint64_t begin = now();
                ssize_t asked = vmg_prefetch(p, 1);
                uint64_t ticks = now() - begin;
                if (asked == 1)
                        samples_add(&s, ticks - overhead);
                *(volatile char *)p += 1;       /* it comes, and makes room again */
        }
}

static void prefetch_here(void)
{
        *(volatile char *)memory = 1;
        for (unsigned i = 0; i < CALLS; i++) {
                uint64_t begin = now();
                vmg_prefetch(memory, 1);
                add(begin);
        }
}

static void prefetchv_far(void)
{
        struct iovec range[BATCH];

        for (unsigned i = 0; i < CALLS; i++) {
                for (unsigned k = 0; k < BATCH; k++)
                        range[k] = (struct iovec){ far_page(), 1 };
                uint64_t begin = now();
                ssize_t asked = vmg_prefetchv(range, BATCH);
                uint64_t ticks = now() - begin;
                if (asked == BATCH)
                        samples_add(&s, ticks - overhead);
                for (unsigned k = 0; k < BATCH; k++)
                        *(volatile char *)range[k].iov_base += 1;
        }
}

/* looks: vmg_arrived() of a word that is not 0 is measured, else the call that counts. */
static void counted(bool looks)
{
        struct iovec range[BATCH];
        uint32_t left = 0;

        for (unsigned i = 0; i < CALLS; i++) {
                for (unsigned k = 0; k < BATCH; k++)
                        range[k] = (struct iovec){ far_page(), 1 };
                uint64_t begin = now();
                ssize_t n = vmg_prefetchv_counted(range, BATCH, &left);
                uint64_t ticks = now() - begin;
                if (looks) {
                        begin = now();
                        bool here = vmg_arrived(&left);
                        ticks = now() - begin;
                        n = here ? 0 : BATCH;
                }
                if (n == BATCH)
                        samples_add(&s, ticks - overhead);
                vmg_wait(&left);
                for (unsigned k = 0; k < BATCH; k++)
                        *(volatile char *)range[k].iov_base += 1;
        }
}

static void counted_far(void) { counted(false); }
static void arrived_not(void) { counted(true); }

static void arrived(void)
{
        uint32_t left = 0;

        for (unsigned i = 0; i < CALLS; i++) {
                uint64_t begin = now();
                vmg_arrived(&left);
                add(begin);
        }
}

static void stream_far(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                char *p = far_page();
                if (p > memory + (pages - BATCH) * VMG_PAGE)
                        continue;
                uint64_t begin = now();
                ssize_t asked = vmg_stream(p, BATCH * VMG_PAGE, VMG_PAGE);
                uint64_t ticks = now() - begin;
                if (asked == BATCH)
                        samples_add(&s, ticks - overhead);
                for (unsigned k = 0; k < BATCH; k++)
                        *(volatile char *)(p + k * VMG_PAGE) += 1;
        }
}

/* For comparison: a load. */
static void fetch(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                volatile char *p = far_page();
                if (vmg_resident((char *)p, 1))
                        continue;
                uint64_t begin = now();
                (void)*p;
                add(begin);
        }
}

static void read_far(unsigned flags)
{
        char to[64];

        for (unsigned i = 0; i < CALLS; i++) {
                char *p = far_page() + i % 60 * sizeof(to);
                if (vmg_resident(p, 1))
                        continue;
                uint64_t begin = now();
                vmg_read(to, p, sizeof(to), flags);
                add(begin);
        }
}

static void read_verified(void) { read_far(0); }
/* Parts of pages that were sent away before the first vmg_read.  Afterwards all pages are written
 * again. */
static void read_first(void)
{
        read_far(0);
        memset(memory, 1, pages * VMG_PAGE);
}
static void read_unverified(void) { read_far(VMG_UNVERIFIED); }

static void read_here(void)
{
        char to[64];

        *(volatile char *)memory = 1;
        for (unsigned i = 0; i < CALLS; i++) {
                uint64_t begin = now();
                vmg_read(to, memory, sizeof(to), 0);
                add(begin);
        }
}

static void resident(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                uint64_t begin = now();
                vmg_resident(memory, BATCH * VMG_PAGE);
                add(begin);
        }
}

static void cool(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                memset(memory, 1, VMG_PAGE);
                uint64_t begin = now();
                vmg_cool(memory, VMG_PAGE);
                add(begin);
        }
}

static void priority(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                memset(memory, 1, VMG_PAGE);
                uint64_t begin = now();
                vmg_priority(memory, VMG_PAGE, i % 2 ? VMG_HIGH : VMG_NORMAL);
                add(begin);
        }
}

static void drop(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                memset(memory, 1, VMG_PAGE);
                uint64_t begin = now();
                vmg_drop(memory, VMG_PAGE);
                add(begin);
        }
}

static void pin(void)
{
        for (unsigned i = 0; i < CALLS; i++) {
                memset(memory, 1, VMG_PAGE);
                uint64_t begin = now();
                vmg_pin(memory, VMG_PAGE);
                add(begin);
                vmg_unpin(memory, VMG_PAGE);
        }
}

static void peek(void)
{
        char some[64];

        for (unsigned i = 0; i < CALLS; i++) {
                *(volatile char *)memory = 1;
                uint64_t begin = now();
                vmg_peek(some, memory, sizeof(some));
                add(begin);
        }
}

static long no_guide(const struct vmg_fault *f, void *arg)
{
        (void)f;
        (void)arg;
        return 0;
}

/* With a wire that is faster than kern, the difference from fetch is what a guide costs. */
static void fetch_guided(void)
{
        if (vmg_guide(memory, pages * VMG_PAGE, no_guide, NULL) == 0)
                fetch();
        vmg_unguide(memory, pages * VMG_PAGE);
}

static void statistics(void)
{
        struct vmg_stats st;

        for (unsigned i = 0; i < CALLS; i++) {
                uint64_t begin = now();
                vmg_stats(&st, sizeof(st));
                add(begin);
        }
}

int main(int argc, char **argv)
{
        static const struct { const char *name; void (*run)(void); } all[] = {
                { "version", version },             { "read_64_far_first", read_first },
                { "prefetch_far", prefetch_far },
                { "prefetch_here", prefetch_here }, { "prefetchv_16_far", prefetchv_far },
                { "counted_16_far", counted_far },  { "arrived_not", arrived_not },
                { "arrived", arrived },
                { "stream_16_far", stream_far },    { "resident_16", resident },
                { "fetch", fetch },                 { "read_64_far", read_verified },
                { "read_64_far_unverified", read_unverified },
                { "read_64_here", read_here },
                { "priority", priority },
                { "cool", cool },                   { "drop", drop },
                { "pin", pin },                     { "peek_64", peek },
                { "fetch_guided", fetch_guided },
                { "stats", statistics },
        };
        unsigned long mib = argc == 3 && strcmp(argv[1], "--mib") == 0 ? strtoul(argv[2], NULL, 0)
                                                                        : 32;

        pages = mib * 256;
        if ((argc != 1 && argc != 3) || mib == 0 || !samples_init(&s, CALLS)) {
                fputs("usage: hints [--mib N]\n", stderr);
                return 2;
        }
        memory = mmap(NULL, pages * VMG_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
        if (memory == MAP_FAILED) {
                perror("hints: mmap");
                return 1;
        }
        memset(memory, 1, pages * VMG_PAGE);
        nothing();
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
                all[i].run();
                samples_print(&s, all[i].name);
                fflush(stdout);
        }
        return 0;
}
