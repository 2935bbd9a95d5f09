/*
 * Finds the row of each forwarded system call, and counts calls.
 */
#include <errno.h>
#include "base/message.h"
#include "far/io.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
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
        if ((row->flags & RF_RIGHTS) && !t->vforked)    /* its parent works as the I/O side */
                io_keep_rights();
        ret = row->fn ? row->fn(t, row, args) : sys_generic(t, row, args);
        if (ret != -EINTR || !sys_put_off)
                t->signal.waits = false;
        sys_scratch_reset();
        return ret;
}

void syscall_stats(struct stats *s)
{
        static const struct stats_kind all = {
                .key = "syscalls.total", .type = STATS_COUNTER, .help = "Forwarded system calls",
        }, one = {
                .key = "syscalls.%", .type = STATS_COUNTER, .metric = "syscalls", .label = "name",
                .help = "Forwarded system calls by name",
        };
        uint64_t now[COUNTS], total = 0;

        for (unsigned i = 0; i < COUNTS; i++) {
                now[i] = __atomic_load_n(&counts[i], __ATOMIC_RELAXED);
                total += now[i];
        }
        stats_count(s, &all, NULL, total);
        for (unsigned i = 0; i < COUNTS; i++)
                if (now[i] && (i == COUNTS - 1 || (i < SYS_ROWS && sys_rows[i].name)))
                        stats_count(s, &one, i == COUNTS - 1 ? "other" : sys_rows[i].name, now[i]);
                else if (now[i])
                        stats_numbered(s, &one, i, now[i]);
}
