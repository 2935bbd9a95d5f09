/*
 * stat, statm, status, limits and sched: the host's own text, in which vmrun's values are replaced
 * by the program's.
 *
 * Its memory is the cache frames that it uses (resident) and its slots in the far tiers (VmSwap).
 * A page that has both counts in both, as in Linux's swap cache.  All resident memory counts as
 * anonymous.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "base/privfd.h"
#include "load/image.h"
#include "marshal/proc_path.h"
#include "process/rlimits.h"
#include "procfs/numbers.h"
#include "procfs/text.h"
#include "signal/signals.h"
#include "vm/stop.h"

/* Addresses of the parts of the program, as in stat's fields of these names. */
static struct {
        uint64_t start_code, end_code, start_stack, start_data, end_data, start_brk, arg_start,
                arg_end, env_start, env_end;
} place;

void procfs_numbers_set(const struct image *im)
{
        place.start_code = im->code_start;
        place.end_code = im->code_end;
        place.start_stack = im->stack.sp;
        place.start_data = im->data_start;
        place.end_data = im->data_end;
        place.start_brk = im->brk;
        place.arg_start = im->stack.arg_start;
        place.arg_end = im->stack.arg_end;
        place.env_start = im->stack.env_start;
        place.env_end = im->stack.env_end;
}

_Atomic bool procfs_no_huge_pages;

/* In pages. */
struct sizes { struct mm_usage use; uint64_t stack, exec, text; };

static void add_map(const struct map_entry *e, void *arg)
{
        struct sizes *s = arg;
        uint64_t pages = (e->end - e->start) >> PAGE_SHIFT;

        if (e->flags & MAP_ENTRY_STACK)
                s->stack += pages;
        else if ((e->prot & (PROT_EXEC | PROT_WRITE)) == PROT_EXEC)
                s->exec += pages;
}

static void measure(struct thread *t, struct sizes *s)
{
        *s = (struct sizes){ 0 };
        if (thread_upcall(t, UPCALL_USAGE, 0, 0, 0) == 0)
                memcpy(&s->use, vcpu_xfer(t->v), sizeof(s->use));
        procfs_each_map(t, add_map, s);
        s->text = (((place.end_code + PAGE_SIZE - 1) & ~(uint64_t)(PAGE_SIZE - 1)) -
                   (place.start_code & ~(uint64_t)(PAGE_SIZE - 1))) >>
                  PAGE_SHIFT;
        if (s->exec < s->text)
                s->exec = s->text;
}

static void statm(const struct sizes *s, struct text *x)
{
        text_add(x, "%llu %llu 0 %llu 0 %llu 0\n", (unsigned long long)s->use.mapped,
                 (unsigned long long)s->use.resident, (unsigned long long)s->text,
                 (unsigned long long)(s->use.data + s->stack));
}

/* The set of caught or of ignored signals, as the program set them: vmrun has handlers of its
 * own. */
static uint64_t seen_actions(bool caught)
{
        uint64_t mask = 0;

        for (int sig = 1; sig <= SIGNALS_MAX; sig++) {
                struct ksigaction k = { 0 };
                if (signals_action(thread_self, sig, NULL, &k) == 0)
                        mask |= (uint64_t)(caught ? k.handler > 1 : k.handler == 1) << (sig - 1);
        }
        return mask;
}

/* Fields are counted from 1, as in proc(5).  False: the field stays unchanged. */
static bool stat_field(int field, uint64_t old, const struct sizes *s, uint64_t *new)
{
        switch (field) {
        case 20: *new = threads_count(thread_self); return true;
        case 23: *new = s->use.mapped * PAGE_SIZE; return true;
        case 24: *new = s->use.resident; return true;
        case 26: *new = place.start_code; return true;
        case 27: *new = place.end_code; return true;
        case 28: *new = place.start_stack; return true;
        case 31: case 32: *new = old; return true;
        case 33: case 34: *new = seen_actions(field == 34) & INT32_MAX; return true;
        case 43: case 44: *new = 0; return true;                /* time as a guest */
        case 45: *new = place.start_data; return true;
        case 46: *new = place.end_data; return true;
        case 47: *new = place.start_brk; return true;
        case 48: *new = place.arg_start; return true;
        case 49: *new = place.arg_end; return true;
        case 50: *new = place.env_start; return true;
        case 51: *new = place.env_end; return true;
        }
        return false;
}

static void stat_line(const char *line, const struct sizes *s, struct text *x)
{
        const char *p = strrchr(line, ')');     /* a name may have blanks and brackets */
        uint64_t new;

        if (!p)
                return;
        text_add(x, "%.*s", (int)(p + 1 - line), line);
        p++;
        for (int field = 3; *p == ' '; field++) {
                size_t n = strcspn(++p, " \n");
                if (stat_field(field, strtoull(p, NULL, 10), s, &new))
                        text_add(x, " %llu", (unsigned long long)new);
                else
                        text_add(x, " %.*s", (int)n, p);
                p += n;
        }
        text_add(x, "\n");
}

/* The size that the kernel's descriptor table would have for the descriptors that the program has
 * open now. */
static unsigned fd_table(void)
{
        unsigned last = 0, size = 128;
        DIR *d = opendir("/proc/thread-self/fd");

        for (struct dirent *e; d && (e = readdir(d));) {
                unsigned fd = (unsigned)atoi(e->d_name);
                if ((int)fd != dirfd(d) && !privfd_is((int)fd) && fd > last)
                        last = fd;
        }
        if (d)
                closedir(d);
        while (size <= last)
                size *= 2;
        return last < 64 ? 64 : size;
}

static void status_line(const char *line, const struct sizes *s, struct text *x)
{
        const struct { const char *name; uint64_t pages;
        } sizes[] = {
                { "VmPeak:", s->use.mapped_peak },
                { "VmSize:", s->use.mapped },
                { "VmLck:", s->use.locked },
                { "VmPin:", 0 },
                { "VmHWM:", s->use.resident_peak },
                { "VmRSS:", s->use.resident },
                { "RssAnon:", s->use.resident },
                { "RssFile:", 0 },
                { "RssShmem:", 0 },
                { "VmData:", s->use.data },
                { "VmStk:", s->stack },
                { "VmExe:", s->text },
                { "VmLib:", s->exec - s->text },
                { "VmPTE:", (s->use.resident + s->use.far) / 512 + 4 },
                { "VmSwap:", s->use.far },
        };
        static const char *const masks[] = { "SigIgn:", "SigCgt:", "SigPnd:", "ShdPnd:",
                                             "SigBlk:" };
        size_t n = strcspn(line, ":") + 1;

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                if (!strncmp(line, sizes[i].name, n)) {
                        text_add(x, "%s\t%8llu kB\n", sizes[i].name,
                                 (unsigned long long)sizes[i].pages * (PAGE_SIZE / 1024));
                        return;
                }
        for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
                if (!strncmp(line, masks[i], n)) {
                        uint64_t mask = strtoull(line + n, NULL, 16);
                        mask = i < 2 ? seen_actions(i == 1) : mask;
                        text_add(x, "%s\t%016llx\n", masks[i], (unsigned long long)mask);
                        return;
                }
        if (!strncmp(line, "Threads:", n))
                text_add(x, "Threads:\t%u\n", threads_count(thread_self));
        else if (!strncmp(line, "THP_enabled:", n) && procfs_no_huge_pages)
                text_add(x, "THP_enabled:\t0\n");
        else if (!strncmp(line, "FDSize:", n))
                text_add(x, "FDSize:\t%u\n", fd_table());
        else
                text_add(x, "%s", line);
}

/* Columns of a line of limits: its name, the soft and the hard limit, the unit. */
enum { SOFT_AT = 26, HARD_AT = SOFT_AT + 21, UNIT_AT = HARD_AT + 21 };

static void add_limit(struct text *x, uint64_t limit)
{
        if (limit == UINT64_MAX)
                text_add(x, "%-20s ", "unlimited");
        else
                text_add(x, "%-20llu ", (unsigned long long)limit);
}

static void limits_line(const char *line, const struct sizes *s, struct text *x)
{
        static const struct { const char *name; int res; } ours[] = {
                { "Max data size ", RLIMIT_DATA },
                { "Max stack size ", RLIMIT_STACK },
                { "Max locked memory ", RLIMIT_MEMLOCK },
                { "Max address space ", RLIMIT_AS },
                { "Max open files ", RLIMIT_NOFILE },
        };
        uint64_t limit[2];

        (void)s;
        for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
                if (!strncmp(line, ours[i].name, strlen(ours[i].name)) &&
                    strlen(line) > UNIT_AT && limits_own(ours[i].res, NULL, limit) == 0) {
                        text_add(x, "%.*s", SOFT_AT, line);
                        add_limit(x, limit[0]);
                        add_limit(x, limit[1]);
                        text_add(x, "%s", line + UNIT_AT);
                        return;
                }
        text_add(x, "%s", line);
}

static void sched_line(const char *line, const struct sizes *s, struct text *x)
{
        static const char threads[] = ", #threads: ";
        const char *at = strstr(line, threads);

        (void)s;
        if (at)
                text_add(x, "%.*s%s%u)\n", (int)(at - line), line, threads,
                         threads_count(thread_self));
        else
                text_add(x, "%s", line);
}

typedef void write_line(const char *line, const struct sizes *s, struct text *x);

static const struct numbers_file { const char *name; write_line *line; bool sizes; } files[] = {
        { "stat", stat_line, true },
        { "statm", NULL, true },
        { "status", status_line, true },
        { "limits", limits_line, false },
        { "sched", sched_line, false },
};

static const struct numbers_file *find(const char *name)
{
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
                if (!strcmp(files[i].name, name))
                        return &files[i];
        return NULL;
}

bool procfs_is_numbers(const char *name) { return find(name) != NULL; }

void procfs_numbers(struct thread *t, const char *path, const char *name, struct text *x)
{
        const struct numbers_file *file = find(name);
        struct sizes s = { 0 };
        char line[1024];
        FILE *f;

        if (file->sizes)
                measure(t, &s);
        if (!file->line) {
                statm(&s, x);
                return;
        }
        f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f))
                file->line(line, &s, x);
        if (f)
                fclose(f);
}
