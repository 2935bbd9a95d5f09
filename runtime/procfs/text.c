/*
 * Text buffers, and the lines of maps.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include "memory/files_read.h"
#include "procfs/text.h"

void text_add(struct text *x, const char *fmt, ...)
{
        va_list ap;

        for (;;) {
                va_start(ap, fmt);
                int n = vsnprintf(x->p ? x->p + x->n : NULL, x->p ? x->room - x->n : 0, fmt, ap);
                va_end(ap);
                if (n < 0)
                        return;
                if (x->p && (size_t)n < x->room - x->n) {
                        x->n += (size_t)n;
                        return;
                }
                size_t room = (x->room + (size_t)n + 4096) * 2;
                char *p = realloc(x->p, room);
                if (!p)
                        return;
                x->p = p;
                x->room = room;
        }
}

const struct map_entry procfs_vsyscall = {
        .start = VSYSCALL, .end = VSYSCALL + PAGE_SIZE, .prot = PROT_EXEC, .flags = MAP_PRIVATE,
};

/* A line as fs/proc/task_mmu.c writes it: names start at column 74. */
void procfs_map_line(const struct map_entry *e, struct text *x)
{
        char path[PATH_MAX] = "";
        dev_t dev = 0;
        ino_t ino = 0;
        size_t start = x->n;

        if (e->file != FILE_NONE && file_describe(e->file, path, sizeof(path), &dev, &ino))
                path[0] = 0;
        if (e->file == FILE_NONE && (e->flags & MAP_ENTRY_STACK))
                snprintf(path, sizeof(path), "[stack]");
        else if (e->file == FILE_NONE && (e->flags & MAP_ENTRY_HEAP))
                snprintf(path, sizeof(path), "[heap]");
        else if (e->start == VSYSCALL)
                snprintf(path, sizeof(path), "[vsyscall]");
        text_add(x, "%08lx-%08lx %c%c%c%c %08lx %02x:%02x %lu ", (unsigned long)e->start,
                 (unsigned long)e->end, e->prot & PROT_READ ? 'r' : '-',
                 e->prot & PROT_WRITE ? 'w' : '-', e->prot & PROT_EXEC ? 'x' : '-',
                 e->flags & MAP_SHARED ? 's' : 'p', (unsigned long)e->off, major(dev), minor(dev),
                 (unsigned long)ino);
        if (path[0]) {
                int pad = 73 - (int)(x->n - start);
                text_add(x, "%*s", pad > 0 ? pad : 0, "");
                for (const char *s = path; *s; s++)
                        if (*s == '\n')
                                text_add(x, "\\012");
                        else
                                text_add(x, "%c", *s);
        }
        text_add(x, "\n");
}
