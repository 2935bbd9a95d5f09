/*
 * System calls: a few are served here, without an exit; all others are forwarded to the host
 * (runtime/syscalls/dispatch.c).
 */
#include <asm-generic/errno.h>
#include <asm/prctl.h>
#include <asm/unistd_64.h>
#include "base/cpu.h"
#include "base/exit.h"
#include "base/kern.h"
#include "base/latency.h"
#include "entry/time.h"
#include "hints.h"
#include "mm/calls.h"
#include "paging/access.h"
#include "paging/fault.h"
#include "paging/guide.h"
#include "paging/hint.h"

static long sys_getpid(const uint64_t a[6]) { (void)a; return vcpu_self_fixed.pid; }
static long sys_gettid(const uint64_t a[6]) { (void)a; return vcpu_self_fixed.tid; }

static long sys_arch_prctl(const uint64_t a[6])
{
        uint64_t base;

        switch (a[0]) {
        case ARCH_SET_FS:
        case ARCH_SET_GS:
                if (a[1] >= TASK_SIZE)
                        return -EPERM;
                if (a[0] == ARCH_SET_FS)
                        cpu_set_fs(a[1]);
                else
                        cpu_set_gs(a[1]);
                return 0;
        case ARCH_GET_FS:
        case ARCH_GET_GS:
                base = a[0] == ARCH_GET_FS ? cpu_fs() : cpu_gs();
                return kern_copy_out(a[1], &base, sizeof(base));
        case ARCH_GET_CPUID:
                return 1;               /* no CPUID faults, */
        case ARCH_SET_CPUID:
                /* CPUID faulting cannot be switched on: as on a CPU without it. */
                return -ENODEV;
        default:
                return -EINVAL;
        }
}

typedef long local_syscall(const uint64_t a[6]);

static local_syscall *const local[] = {
        [__NR_brk] = sys_brk,
        [__NR_mmap] = sys_mmap,
        [__NR_munmap] = sys_munmap,
        [__NR_mprotect] = sys_mprotect,
        [__NR_mremap] = sys_mremap,
        [__NR_madvise] = sys_madvise,
        [__NR_mincore] = sys_mincore,
        [__NR_msync] = sys_msync,
        [__NR_mlock] = sys_mlock,
        [__NR_mlock2] = sys_mlock2,
        [__NR_munlock] = sys_munlock,
        [__NR_mlockall] = sys_mlockall,
        [__NR_munlockall] = sys_munlockall,
        [__NR_shmat] = sys_shmat,
        [__NR_shmdt] = sys_shmdt,
        [__NR_clock_gettime] = sys_clock_gettime,
        [__NR_gettimeofday] = sys_gettimeofday,
        [__NR_time] = sys_time,
        [__NR_getpid] = sys_getpid,
        [__NR_gettid] = sys_gettid,
        [__NR_arch_prctl] = sys_arch_prctl,
};

void syscall_dispatch(void);
void syscall_dispatch(void)
{
        struct regs *r = &vcpu_self.regs;
        uint32_t nr = (uint32_t)r->rax;         /* as Linux: the bits above count for nothing */
        bool hint = nr - HINTS_FIRST < HINTS_END - HINTS_FIRST;

        if (__builtin_expect(guide_runs(), 0) && !(hint && hint_for_guides(nr))) {
                /* All registers have changed. */
                atomic_fetch_or(&vcpu_self.event, EVENT_IRET);
                fault_guide_over(GUIDE_CALLED);
                return;
        }
        if (hint || (nr < sizeof(local) / sizeof(local[0]) && local[nr])) {
                const uint64_t a[6] = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 };
                count(CNT_SYSCALLS_LOCAL);
                r->rax = (uint64_t)(hint ? hint_call(nr, a) : local[nr](a));
        } else {
                count(CNT_SYSCALLS_FORWARDED);
                uint64_t begun = control.stats_on ? cpu_tsc() : 0;
                r->rax = (uint64_t)vmexit(EXIT_SYSCALL, 0, 0, 0);
                if (begun)
                        latency_add(LAT_SYSCALL, cpu_tsc() - begun);
        }
}
