/*
 * How much of the host's memory vmrun and its program use: the part of --stats.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "far/far.h"
#include "memory/arena.h"
#include "memory/files.h"
#include "process/footprint.h"
#include "stats/stats.h"

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
void footprint_stats(FILE *f)
{
        static const char *const fields[][2] = {
                { "VmHWM:", "peak" },
                { "RssAnon:", "anon" },
                { "RssFile:", "file" },
                { "RssShmem:", "shmem" },
        };
        char text[256];
        unsigned long long kib;
        uint64_t used, backed;

        FILE *st = fopen("/proc/self/status", "re");
        while (st && fgets(text, sizeof(text), st))
                for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
                        size_t n = strlen(fields[i][0]);
                        if (strncmp(text, fields[i][0], n) == 0 &&
                            sscanf(text + n, "%llu kB", &kib) == 1)
                                stats_line(f, "rss_bytes", fields[i][1], kib << 10);
                }
        if (st)
                fclose(st);
        arena_usage(&used, &backed);
        stats_line(f, "", "cache_bytes", CONTROL->nframes * PAGE_SIZE);
        stats_line(f, "", "metadata_bytes", metadata_bytes());
        stats_line(f, "", "far_bytes", CONTROL->far_pages * PAGE_SIZE);
        stats_line(f, "", "far_leased_bytes", far_leased_pages() * PAGE_SIZE);
        stats_line(f, "", "shared_bytes", used);
        stats_line(f, "", "mapped_files", files_live());
}
