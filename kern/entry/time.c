/*
 * The time of day without an exit: TSC and a page that the host refreshes (abi_control.h, struct
 * time_page).
 */
#include <asm-generic/errno.h>
#include <linux/time.h>
#include "base/cpu.h"
#include "base/exit.h"
#include "base/kern.h"
#include "entry/time.h"
#include "paging/access.h"

#define NS 1000000000ll

/* Nanoseconds since a base of the time page; false: this clock, or the TSC, needs the host. */
static bool read_clock(uint64_t id, int64_t *ns)
{
        const struct time_page *t = &control.time;
        uint32_t seq;
        int64_t base;
        uint64_t tsc, mult;

        do {
                for (;;) {
                        /* Pairs with the host's release. */
                        seq = atomic_load_explicit(&control.time.seq, memory_order_acquire);
                        if (seq & 1) {
                                cpu_relax();
                                continue;
                        }
                        if (!t->valid)
                                return false;
                        tsc = cpu_tsc();
                        if (tsc <= t->refresh_tsc)
                                break;
                        vmexit(EXIT_TIME, 0, 0, 0);
                }
                mult = t->mult;
                switch (id) {
                case CLOCK_REALTIME: case CLOCK_REALTIME_COARSE: base = t->realtime; break;
                case CLOCK_MONOTONIC: case CLOCK_MONOTONIC_COARSE: base = t->monotonic; break;
                case CLOCK_MONOTONIC_RAW: base = t->monotonic_raw, mult = t->raw_mult; break;
                case CLOCK_BOOTTIME: base = t->boottime; break;
                case CLOCK_TAI: base = t->tai; break;
                default: return false;
                }
                unsigned __int128 ticks = tsc > t->tsc0 ? tsc - t->tsc0 : 0;
                *ns = base + (int64_t)(ticks * mult >> 32);
                /* The fields were read before seq is read again. */
                atomic_thread_fence(memory_order_acquire);
        } while (atomic_load_explicit(&control.time.seq, memory_order_relaxed) != seq);
        return true;
}

static long forward(void) { return vmexit(EXIT_SYSCALL, 0, 0, 0); }

long sys_clock_gettime(const uint64_t a[6])
{
        int64_t ns;
        if (!read_clock((uint32_t)a[0], &ns))
                return forward();
        int64_t ts[2] = { ns / NS, ns % NS };
        return kern_copy_out(a[1], ts, sizeof(ts));
}

long sys_gettimeofday(const uint64_t a[6])
{
        int64_t ns;
        if (a[1] || !read_clock(CLOCK_REALTIME, &ns))
                return forward();
        int64_t tv[2] = { ns / NS, ns % NS / 1000 };
        return a[0] ? kern_copy_out(a[0], tv, sizeof(tv)) : 0;
}

long sys_time(const uint64_t a[6])
{
        int64_t ns;
        if (!read_clock(CLOCK_REALTIME, &ns))
                return forward();
        int64_t s = ns / NS;
        if (a[0] && kern_copy_out(a[0], &s, sizeof(s)) != 0)
                return -EFAULT;
        return s;
}
