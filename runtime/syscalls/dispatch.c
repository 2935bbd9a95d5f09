/*
 * Finds the row of each forwarded system call, and counts calls.
 */
#include <stdio.h>
#include "base/message.h"
#include "marshal/sys.h"
#include "stats/stats.h"
#include "syscalls/dispatch.h"
#include "syscalls/handlers.h"

#define COUNTS 512
/* Calls of all threads, by number. The last element counts numbers beyond the array. */
static uint64_t counts[COUNTS];

long syscall_forward(struct thread *t, long nr, const uint64_t args[6])
{
        const struct sys_row *row;
        uint64_t count = nr >= 0 && nr < COUNTS - 1 ? (uint64_t)nr : COUNTS - 1;
        long ret;

        __atomic_fetch_add(&counts[count], 1, __ATOMIC_RELAXED);
        if (nr < 0 || nr >= SYS_ROWS) {
                info_once(0x10000 + count, "system call %ld is unknown: ENOSYS", nr);
                return -ENOSYS;
        }
        row = &sys_rows[nr];
        if (row->refuse) {
                info_once((unsigned long)nr, "system call %ld (%s) is refused: %s%s%s", nr,
                          row->name ? row->name : "unknown",
                          row->refuse == EPERM   ? "EPERM"
                          : row->refuse == EINTR ? "EINTR"
                                                 : "ENOSYS",
                          row->why ? ": " : "", row->why ? row->why : "");
                return -row->refuse;
        }
        t->signal.waits = false;
        ret = row->fn ? row->fn(t, row, args) : sys_generic(t, row, args);
        if (ret != -EINTR || !sys_put_off)
                t->signal.waits = false;
        sys_scratch_reset();
        return ret;
}

void syscall_stats(FILE *f)
{
        uint64_t total = 0;

        for (unsigned i = 0; i < COUNTS; i++)
                total += counts[i];
        stats_line(f, "syscalls", "total", total);
        for (unsigned i = 0; i < COUNTS; i++)
                if (counts[i])
                        stats_numbered(f, "syscalls",
                                       i == COUNTS - 1 ? "other"
                                       : i < SYS_ROWS  ? sys_rows[i].name
                                                       : NULL,
                                       i, counts[i]);
}
