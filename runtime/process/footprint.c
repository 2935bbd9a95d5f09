/*
 * How much of the host's memory vmrun and its program use: the part of --stats.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "abi_control.h"
#include "far/sequence.h"
#include "memory/arena.h"
#include "memory/files.h"
#include "process/footprint.h"
#include "stats/stats.h"
#include "vm/counters.h"

/* The resident part of guest RAM outside the cache (most of its pool is only address space, which
 * costs nothing), and of the file in which the processes of a tree record which process has which
 * slots. */
static uint64_t metadata_bytes(void)
{
        static unsigned char here[65536];       /* a thread's stack is small */
        uint64_t bytes = 0, step = sizeof(here) * PAGE_SIZE;
        struct stat st;

        for (uint64_t off = 0; off < CONTROL->pool_end; off += step) {
                uint64_t n = CONTROL->pool_end - off < step ? CONTROL->pool_end - off : step;
                if (mincore((void *)(WINDOW + off), n, here) != 0)
                        break;
                for (uint64_t i = 0; i < n / PAGE_SIZE; i++)
                        bytes += (here[i] & 1) * PAGE_SIZE;
        }
        int tree = slabs_tree_fd(NULL);
        if (tree >= 0 && fstat(tree, &st) == 0)
                bytes += (uint64_t)st.st_blocks * 512;
        return bytes;
}

/* VmHWM, and the parts of the current resident set, which is near the peak: frames and far pages
 * are never given back. */
static void add_resident(struct stats *s)
{
        static const struct stats_kind rss = {
                .key = "rss_bytes.%", .type = STATS_GAUGE, .unit = STATS_BYTES, .metric = "rss",
                .label = "kind", .help = "Resident memory of the process: its peak, and its parts",
        };
        static const char *const fields[][2] = {
                { "VmHWM:", "peak" },
                { "RssAnon:", "anon" },
                { "RssFile:", "file" },
                { "RssShmem:", "shmem" },
        };
        char text[256];
        unsigned long long kib;

        FILE *st = fopen("/proc/self/status", "re");
        while (st && fgets(text, sizeof(text), st))
                for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
                        size_t n = strlen(fields[i][0]);
                        if (strncmp(text, fields[i][0], n) == 0 &&
                            sscanf(text + n, "%llu kB", &kib) == 1)
                                stats_count(s, &rss, fields[i][1], kib << 10);
                }
        if (st)
                fclose(st);
}

#define BYTES(name, shown, what)                                                                 \
        { .key = #name "_bytes", .type = STATS_GAUGE, .unit = STATS_BYTES, .metric = #name,      \
          .title = shown, .help = what }

void footprint_stats(struct stats *s)
{
        static const struct stats_kind
                cache = BYTES(cache, NULL, "Size of the cache"),
                filled = BYTES(cache_used, "cache in use", "Frames of the cache in use"),
                hot = BYTES(cache_hot, "of it hot", "Frames of the cache with pages that are hot"),
                cold = BYTES(cache_to_be_cold, "to be cold",
                             "Frames of the cache that are to have pages that are not hot, at "
                             "least"),
                metadata = BYTES(metadata, "bookkeeping of the VM",
                                 "Bookkeeping of the virtual machine that is in memory"),
                far = BYTES(far, NULL, "What all nodes together can hold"),
                leased = BYTES(far_leased, NULL, "Far memory that was leased"),
                in_use = BYTES(far_used, NULL, "Far memory that this process uses"),
                shared = BYTES(shared, "shared mappings", "Shared mappings of the program");
        static const struct stats_kind share = {
                .key = "local_share_percent", .type = STATS_GAUGE, .metric = "local_share_percent",
                .help = "The cache in proportion to the far memory in use, at most 100",
        }, files = {
                .key = "mapped_files", .type = STATS_GAUGE, .metric = "mapped_files",
                .help = "Files that are mapped",
        };
        uint64_t used, backed, cached = CONTROL->nframes * PAGE_SIZE,
                               far_used = far_used_pages() * PAGE_SIZE;

        if (stats_only_counters(s))
                return;
        add_resident(s);
        arena_usage(&used, &backed);
        stats_count(s, &cache, NULL, cached);
        stats_count(s, &filled, NULL, counters_cache_used() * PAGE_SIZE);
        stats_count(s, &hot, NULL, counters_frames_hot() * PAGE_SIZE);
        stats_count(s, &cold, NULL, counters_frames_to_be_cold() * PAGE_SIZE);
        stats_count(s, &metadata, NULL, metadata_bytes());
        stats_count(s, &far, NULL, CONTROL->far_pages * PAGE_SIZE);
        stats_count(s, &leased, NULL, far_leased_pages() * PAGE_SIZE);
        stats_count(s, &in_use, NULL, far_used);
        stats_count(s, &share, NULL, far_used > cached ? cached * 100 / far_used : 100);
        stats_count(s, &shared, NULL, used);
        stats_count(s, &files, NULL, files_live());
}
