/*
 * CONTROL->time: the data from which kern computes the time without an exit.
 *
 * kern computes ns = base + (tsc - tsc0) * mult and asks for a refresh once the page is older than
 * REFRESH_NS.  Between two refreshes a clock must neither jump nor go back, so a refresh continues
 * from the value that kern would have computed, and changes mult so that the error is gone by the
 * next refresh.  A step of the real clock (settimeofday) is applied at once.
 */
#include <linux/kvm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <x86intrin.h>
#include "abi_control.h"
#include "base/message.h"
#include "vm/time.h"

#define REFRESH_NS   200000000ll
#define STEP_NS      10000000ll         /* a larger error is a step of the clock, not drift */
#define MSR_TSC      0x10

/* one writer of CONTROL->time */
static pthread_mutex_t refresh_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t tsc_offset;              /* guest's TSC - host's */
static uint64_t tsc_hz;

static int64_t now(clockid_t id)
{
        struct timespec ts;
        clock_gettime(id, &ts);
        return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static int64_t elapsed(const struct time_page *t, uint64_t tsc, uint64_t mult)
{
        return (int64_t)((unsigned __int128)(tsc - t->tsc0) * mult >> 32);
}

/* The clock's new base: the value of kern's own clock, if that is near the truth. */
static int64_t continued(int64_t old_base, int64_t dt, int64_t truth)
{
        int64_t ours = old_base + dt;
        return llabs(truth - ours) < STEP_NS ? ours : truth;
}

/* The rate at which the clock will be right at the next refresh. */
static uint64_t bent(uint64_t nominal, int64_t base, int64_t truth)
{
        int64_t error = truth - base;           /* none after a step */

        return nominal + (uint64_t)((__int128)nominal * error / REFRESH_NS);
}

struct clocks { int64_t monotonic, realtime, boottime, tai, raw; };

/* Reads all clocks at one time, which it returns as the guest's TSC.  Repeats if that took long
 * because another thread had the CPU. */
static uint64_t read_clocks(struct clocks *c)
{
        uint64_t before, after;
        int turns = 0;

        do {
                before = __rdtsc();
                *c = (struct clocks){ now(CLOCK_MONOTONIC), now(CLOCK_REALTIME),
                                      now(CLOCK_BOOTTIME), now(CLOCK_TAI),
                                      now(CLOCK_MONOTONIC_RAW) };
                after = __rdtsc();
        } while (after - before > tsc_hz / 10000 && ++turns < 20);
        return after + (uint64_t)tsc_offset;
}

void time_refresh(void)
{
        struct time_page *t = &CONTROL->time;
        uint64_t nominal = ((unsigned __int128)1000000000 << 32) / tsc_hz;

        pthread_mutex_lock(&refresh_lock);
        struct clocks c;
        uint64_t tsc = read_clocks(&c);

        uint32_t seq = atomic_load_explicit(&t->seq, memory_order_relaxed);
        atomic_store_explicit(&t->seq, seq + 1, memory_order_relaxed);
        /* release: seq is odd before the fields change (kern/entry/time.c is the reader) */
        atomic_thread_fence(memory_order_release);
        if (t->mult) {
                int64_t dt = elapsed(t, tsc, t->mult);
                t->monotonic = continued(t->monotonic, dt, c.monotonic);
                t->realtime = continued(t->realtime, dt, c.realtime);
                t->boottime = continued(t->boottime, dt, c.boottime);
                t->tai = continued(t->tai, dt, c.tai);
                t->monotonic_raw = continued(t->monotonic_raw, elapsed(t, tsc, t->raw_mult), c.raw);
        } else {
                t->monotonic = c.monotonic;
                t->realtime = c.realtime;
                t->boottime = c.boottime;
                t->tai = c.tai;
                t->monotonic_raw = c.raw;
        }
        t->mult = bent(nominal, t->monotonic, c.monotonic);
        t->raw_mult = bent(nominal, t->monotonic_raw, c.raw);
        t->tsc0 = tsc;
        t->refresh_tsc = tsc + (uint64_t)((unsigned __int128)tsc_hz * REFRESH_NS / 1000000000);
        atomic_store_explicit(&t->seq, seq + 2, memory_order_release);
        pthread_mutex_unlock(&refresh_lock);
}

static bool close_to(int64_t a, int64_t b) { return llabs(a - b) < (int64_t)(tsc_hz / 100); }

static struct kvm_device_attr offset_attr(uint64_t *offset)
{
        return (struct kvm_device_attr){ .group = KVM_VCPU_TSC_CTRL,
                                         .attr = KVM_VCPU_TSC_OFFSET,
                                         .addr = (uint64_t)(uintptr_t)offset };
}

bool time_keep(const struct thread *t, uint64_t *offset)
{
        struct kvm_device_attr a = offset_attr(offset);

        return ioctl(t->vcpu_fd, KVM_GET_DEVICE_ATTR, &a) == 0;
}

void time_bring_back(struct thread *t, bool known, uint64_t offset)
{
        struct kvm_device_attr a = offset_attr(&offset);

        if (known && ioctl(t->vcpu_fd, KVM_SET_DEVICE_ATTR, &a) == 0)
                return;
        if (CONTROL->time.valid)
                info_("clocks: this KVM does not set the offset of a TSC: reading the time exits");
        CONTROL->time.valid = 0;
}

void time_join(struct thread *t, const struct thread *first)
{
        uint64_t offset;
        struct kvm_device_attr a = offset_attr(&offset);
        union {
                struct kvm_msrs m;
                char room[sizeof(struct kvm_msrs) + sizeof(struct kvm_msr_entry)];
        } u = { .m.nmsrs = 1 };

        if (ioctl(first->vcpu_fd, KVM_GET_DEVICE_ATTR, &a) == 0 &&
            ioctl(t->vcpu_fd, KVM_SET_DEVICE_ATTR, &a) == 0)
                return;
        /* An older KVM: the written value is near enough that KVM treats both TSCs as
         * synchronous. */
        u.m.entries[0].index = MSR_TSC;
        if (tsc_offset && ioctl(first->vcpu_fd, KVM_GET_MSRS, &u.m) == 1)
                ioctl(t->vcpu_fd, KVM_SET_MSRS, &u.m);
}

void time_check(const struct thread *t)
{
        int64_t guest = (int64_t)t->v->exit.a[0], host = (int64_t)__rdtsc();

        if (!CONTROL->time.valid || close_to(guest, host + tsc_offset))
                return;
        info_("clocks: the vCPUs' TSCs differ (by %lld): reading the time exits",
              (long long)(guest - host - tsc_offset));
        CONTROL->time.valid = 0;
}

void time_init(struct thread *t)
{
        union {
                struct kvm_msrs m;
                char room[sizeof(struct kvm_msrs) + sizeof(struct kvm_msr_entry)];
        } u = { .m.nmsrs = 1 };
        u.m.entries[0].index = MSR_TSC;
        int khz = ioctl(t->vcpu_fd, KVM_GET_TSC_KHZ, 0);
        /* EXIT_READY carries kern's TSC */
        int64_t guest = (int64_t)t->v->exit.a[0], host = (int64_t)__rdtsc();

        if (khz <= 0)
                return;                 /* CONTROL->time stays invalid: each clock call exits */
        tsc_hz = (uint64_t)khz * 1000;
        CONTROL->tsc_khz = (uint64_t)khz;
        int64_t before = (int64_t)__rdtsc();
        int64_t by_kvm = ioctl(t->vcpu_fd, KVM_GET_MSRS, &u.m) == 1
                                 ? (int64_t)u.m.entries[0].data - before
                                 : 0;
        /* If KVM does not virtualise RDTSC (p = 3), its MSR is meaningless. */
        if (close_to(guest, host + by_kvm))
                tsc_offset = by_kvm;
        else if (close_to(guest, host))
                tsc_offset = 0;
        else {
                info_("clocks: the guest's TSC is not the host's nor what KVM says (%lld, %lld, "
                      "%lld): reading the time exits",
                      (long long)guest, (long long)host, (long long)by_kvm);
                return;
        }
        CONTROL->tsc_offset = tsc_offset;
        CONTROL->time.valid = 1;
        time_refresh();
}
