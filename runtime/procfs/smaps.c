/*
 * smaps and smaps_rollup: how much of each mapping is in the cache and in the far tiers, from its
 * page tables.
 *
 * Other processes that have a page of a shared mapping are not counted, so all pages count as
 * private (Pss = Rss).  Pages that are only in a far tier count as swap.  Huge pages belong to
 * their file: the program's entries are of 4 KiB, and count as small pages.
 */
#include <string.h>
#include <sys/mman.h>
#include "marshal/proc_path.h"
#include "memory/gmem.h"
#include "procfs/smaps.h"
#include "procfs/text.h"

struct rollup {
        struct text *x;
        struct thread *t;
        struct gmem_count sum;
        uint64_t start, end, locked;
        bool each;
};

static void line(struct text *x, const char *name, uint64_t pages)
{
        text_add(x, "%-15s%9llu kB\n", name, (unsigned long long)pages * (PAGE_SIZE / 1024));
}

static void figures(struct text *x, const struct gmem_count *c, uint64_t locked, bool rollup)
{
        static const char *const none[] = {
                "LazyFree:",      "AnonHugePages:",  "ShmemPmdMapped:",
                "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"
        };

        line(x, "Rss:", c->resident);
        line(x, "Pss:", c->resident);
        line(x, "Pss_Dirty:", c->dirty);
        if (rollup) {
                line(x, "Pss_Anon:", c->anonymous);
                line(x, "Pss_File:", c->resident - c->anonymous - c->shared);
                line(x, "Pss_Shmem:", c->shared);
        }
        line(x, "Shared_Clean:", 0);
        line(x, "Shared_Dirty:", 0);
        line(x, "Private_Clean:", c->resident - c->dirty);
        line(x, "Private_Dirty:", c->dirty);
        line(x, "Referenced:", c->referenced);
        line(x, "Anonymous:", c->anonymous);
        for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
                line(x, none[i], 0);
        line(x, "Swap:", c->far);
        line(x, "SwapPss:", c->far);
        line(x, "Locked:", locked);
}

static void flags(struct text *x, const struct map_entry *e)
{
        bool shared = e->flags & MAP_SHARED;

        if (e->start == VSYSCALL) {
                text_add(x, "THPeligible:    0\nVmFlags: ex \n");
                return;
        }
        text_add(x, "THPeligible:    0\nVmFlags:%s%s%s%s mr mw me%s%s%s%s \n",
                 e->prot & PROT_READ ? " rd" : "", e->prot & PROT_WRITE ? " wr" : "",
                 e->prot & PROT_EXEC ? " ex" : "", shared ? " sh" : "", shared ? " ms" : "",
                 e->flags & MAP_ENTRY_STACK ? " gd" : "", e->flags & MAP_ENTRY_LOCKED ? " lo" : "",
                 !shared && (e->prot & PROT_WRITE) ? " ac" : "");
}

static void add_map(const struct map_entry *e, void *arg)
{
        struct rollup *r = arg;
        struct gmem_count c = { 0 };
        bool shared = e->flags & MAP_SHARED;

        if (e->start != VSYSCALL)
                gmem_count(r->t, e->start, e->end, !shared && e->file == FILE_NONE, &c);
        uint64_t locked = e->flags & MAP_ENTRY_LOCKED ? c.resident : 0;
        if (r->each) {
                procfs_map_line(e, r->x);
                line(r->x, "Size:", (e->end - e->start) >> PAGE_SHIFT);
                line(r->x, "KernelPageSize:", 1ull << e->order);
                line(r->x, "MMUPageSize:", 1);
                figures(r->x, &c, locked, false);
                flags(r->x, e);
        }
        r->start = r->end ? r->start : e->start;
        r->end = e->end;
        r->locked += locked;
        r->sum.resident += c.resident;
        r->sum.dirty += c.dirty;
        r->sum.referenced += c.referenced;
        r->sum.anonymous += c.anonymous;
        r->sum.shared += c.shared;
        r->sum.far += c.far;
}

void procfs_smaps(struct thread *t, bool rollup, struct text *x)
{
        struct rollup r = { .x = x, .t = t, .each = !rollup };

        procfs_each_map(t, add_map, &r);
        if (!rollup) {
                add_map(&procfs_vsyscall, &r);
                return;
        }
        text_add(x, "%08lx-%08lx ---p 00000000 00:00 0 %*s[rollup]\n", (unsigned long)r.start,
                 (unsigned long)r.end, r.end >> 44 ? 25 : 33, "");
        figures(x, &r.sum, r.locked, true);
}
