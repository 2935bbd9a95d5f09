/*
 * The end of a thread or of the program, attributes of threads, prctl, capabilities.
 */
#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include "abi_control.h"
#include "abi_image.h"
#include "base/message.h"
#include "base/own_thread.h"
#include "far/io.h"
#include "marshal/call.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "process/alone.h"
#include "process/rlimits.h"
#include "process/service.h"
#include "process/threads.h"
#include "procfs/numbers.h"
#include "syscalls/handlers.h"

long sys_exit(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int status = (int)(a[0] & 0xff);

        if (!t->vforked && row->nr != __NR_exit_group)
                return threads_end(t, status);
        t->end = (struct thread_end){ .how = t->vforked ? END_CHILD : END_PROGRAM,
                                      .status = status };
        return 0;
}

long sys_set_tid_address(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        (void)row;
        t->clear_tid = a[0];
        return t->tid;
}

long sys_set_robust_list(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        (void)row;
        if (a[1] != 24)
                return -EINVAL;
        vcpu_fixed(t->v)->robust_list = a[0];
        return 0;
}

static bool peek(pid_t tid, void *to, const volatile void *from, size_t n)
{
        struct iovec l = { to, n }, r = { (void *)(uintptr_t)from, n };

        return sys_own(__NR_process_vm_readv, (uint64_t)tid, P(&l), 1, P(&r), 1, 0) == (long)n;
}

/* The robust list of a thread of any process under vmrun, this process or another: it is in the
 * thread's vCPU block, whose address is equal in all processes. */
static bool find_robust_list(pid_t tid, uint64_t *head)
{
        uint32_t version, n;
        struct vcpu_fixed v;

        if (!peek(tid, &version, &CONTROL->abi_version, 4) || version != ABI_VERSION ||
            !peek(tid, &n, &CONTROL->nvcpus, 4))
                return false;
        for (uint32_t i = 0;
             i < n && i < VCPUS_MAX && peek(tid, &v, vcpu_fixed(vcpu_block(i)), sizeof(v)); i++)
                if (v.role == ROLE_PROGRAM && v.tid == (uint32_t)tid) {
                        *head = v.robust_list;
                        return true;
                }
        return false;
}

/* The host kernel checks the caller's rights, and knows the lists of native threads.  For a thread
 * under vmrun, the host kernel has the list of vmrun's libc. */
long sys_get_robust_list(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t head = 0, len = 0;
        long ret = sys_raw(row->nr, a[0], P(&head), P(&len), 0, 0, 0);

        if (ret)
                return ret;
        if (!(pid_t)a[0] || (pid_t)a[0] == t->tid)
                head = vcpu_fixed(t->v)->robust_list;
        else
                find_robust_list((pid_t)a[0], &head);
        return gmem_write(t, a[2], &len, 8) || gmem_write(t, a[1], &head, 8) ? -EFAULT : 0;
}

/* Linux allows these flags only to a process with one thread. */
#define OF_ONE_THREAD (CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)
/* After these Linux makes children in the new namespace, but no threads in this process. */
#define NO_THREADS_AFTER (CLONE_NEWPID | 0x80ull /* CLONE_NEWTIME */)

/* Repeats a refused call without vmrun's own threads. */
static long call_alone(struct thread *t, long nr, uint64_t a0, uint64_t a1, long refused)
{
        int err = alone_begin(t);
        if (err)
                return err == -EINVAL ? refused : err;
        long ret = sys_own(nr, a0, a1, 0, 0, 0, 0);
        alone_end(t);
        return ret;
}

static long unshare_some(struct thread *t, uint64_t flags)
{
        long ret = sys_raw(__NR_unshare, flags, 0, 0, 0, 0, 0);
        if (ret == -EINVAL && (flags & OF_ONE_THREAD))
                ret = call_alone(t, __NR_unshare, flags, 0, ret);
        return ret;
}

/* This thread will make no more threads.  The maker can: it does not follow. */
static void before_no_threads(struct thread *t)
{
        own_threads_set_apart();
        service_ensure(t->vm);
}

/* A descriptor table of its own would separate this thread from vmrun's other threads, so that flag
 * is ignored.  Flags that make new threads impossible come last: after the threads that vmrun has
 * to make again, or may need, exist. */
long sys_unshare(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t flags = a[0] & ~(uint64_t)CLONE_FILES, last = flags & NO_THREADS_AFTER;

        if (t->vforked)                 /* already alone; vmrun's threads are in its parent */
                return sys_raw(row->nr, flags, 0, 0, 0, 0, 0);
        if (!last)
                return unshare_some(t, flags);
        if (flags & CLONE_NEWUSER) {
                long ret = unshare_some(t, flags & ~last);
                if (ret)
                        return ret;
        }
        before_no_threads(t);
        /* After one half of the call, no signal may put off the other. */
        return sys_own(row->nr, flags & CLONE_NEWUSER ? last : flags, 0, 0, 0, 0, 0);
}

/* The kinds of namespaces that a[0] stands for: for a namespace the kernel reports its kind; for a
 * pidfd the caller names them. */
static uint64_t kinds_of(const uint64_t a[6])
{
        long kind = (long)a[1];

        if (!kind)
                kind = sys_own(__NR_ioctl, a[0], 0xb703 /* NS_GET_NSTYPE */, 0, 0, 0, 0);
        return kind > 0 ? (uint64_t)kind : 0;
}

long sys_setns(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t kinds = t->vforked ? 0 : kinds_of(a);

        if (kinds & NO_THREADS_AFTER)
                before_no_threads(t);
        long ret = sys_generic(t, row, a);
        if (ret != -EINVAL && ret != -EUSERS)
                return ret;
        /* A thread that changes its mount namespace must not share root and working directory, as
         * vmrun's threads do. */
        if ((kinds & CLONE_NEWNS) && threads_single() &&
            sys_own(__NR_unshare, CLONE_FS, 0, 0, 0, 0, 0) == 0)
                ret = sys_generic(t, row, a);
        if ((ret != -EINVAL && ret != -EUSERS) || !(kinds & (CLONE_NEWUSER | 0x80)))
                return ret;
        /* As above: the kind that makes new threads impossible comes last. */
        ret = call_alone(t, row->nr, a[0], a[1] & ~(uint64_t)CLONE_NEWPID, ret);
        if (ret == 0 && (kinds & CLONE_NEWPID)) {
                own_threads_set_apart();
                ret = sys_own(row->nr, a[0], CLONE_NEWPID, 0, 0, 0, 0);
        }
        return ret;
}

enum prctl_kind { PC_VALUE, PC_IN, PC_OUT, PC_REFUSE };
static const struct prctl_row {
        int op;
        uint8_t kind;
        uint8_t err;
        uint16_t size;
} prctl_rows[] = {
        /* a string, of which at most 16 bytes count */
        { PR_SET_NAME, PC_IN, 0, 0 },
        { PR_GET_NAME, PC_OUT, 0, 16 },
        { PR_GET_PDEATHSIG, PC_OUT, 0, 4 },
        { PR_GET_UNALIGN, PC_OUT, 0, 4 },
        { PR_GET_FPEMU, PC_OUT, 0, 4 },
        { PR_GET_FPEXC, PC_OUT, 0, 4 },
        { PR_GET_ENDIAN, PC_OUT, 0, 4 },
        { PR_GET_CHILD_SUBREAPER, PC_OUT, 0, 4 },
        { PR_GET_TSC, PC_OUT, 0, 4 },
        { PR_SET_TSC, PC_REFUSE, EINVAL, 0 },           /* vmrun's clock reads it */
        { PR_SET_MM, PC_REFUSE, EPERM, 0 },
        /* would filter vmrun's calls, not the program's */
        { PR_SET_SECCOMP, PC_REFUSE, EINVAL, 0 },
        { 59 /* PR_SET_SYSCALL_USER_DISPATCH */, PC_REFUSE, EINVAL, 0 },
        { 40 /* PR_GET_TID_ADDRESS */, PC_OUT, 0, 8 },
        { 62 /* PR_SCHED_CORE */, PC_REFUSE, EINVAL, 0 },
        { PR_MPX_ENABLE_MANAGEMENT, PC_REFUSE, EINVAL, 0 },
};

/* Options whose arguments are plain numbers. */
static bool prctl_plain(int op)
{
        switch (op) {
        case PR_SET_PDEATHSIG:
        case PR_GET_DUMPABLE:
        case PR_SET_DUMPABLE:
        case PR_GET_KEEPCAPS:
        case PR_SET_KEEPCAPS:
        case PR_GET_TIMING:
        case PR_SET_TIMING:
        case PR_GET_SECCOMP:
        case PR_CAPBSET_READ:
        case PR_CAPBSET_DROP:
        case PR_GET_SECUREBITS:
        case PR_SET_SECUREBITS:
        case PR_SET_TIMERSLACK:
        case PR_GET_TIMERSLACK:
        case PR_TASK_PERF_EVENTS_DISABLE:
        case PR_TASK_PERF_EVENTS_ENABLE:
        case PR_MCE_KILL:
        case PR_MCE_KILL_GET:
        case PR_SET_PTRACER:
        case PR_SET_CHILD_SUBREAPER:
        case PR_SET_NO_NEW_PRIVS:
        case PR_GET_NO_NEW_PRIVS:
        case PR_CAP_AMBIENT: case PR_GET_SPECULATION_CTRL:
        case PR_SET_SPECULATION_CTRL: case 57: case 58: /* PR_SET_IO_FLUSHER, PR_GET_IO_FLUSHER */
                return true;
        }
        return false;
}

long sys_prctl(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int op = (int)a[0];

        if (op == PR_SET_NAME) {
                char *name = sys_scratch(17);
                long n = name ? gmem_string(t, name, a[1], 16) : -ENOMEM;
                if (n == -ENAMETOOLONG)
                        n = gmem_read(t, name, a[1], 15) ? -EFAULT : (name[15] = 0);
                return n < 0 ? n : sys_raw(row->nr, a[0], P(name), 0, 0, 0, 0);
        }
        if (op == 0x53564d41 /* PR_SET_VMA: names for /proc/self/maps, which need not be kept */)
                return a[1] == 0 ? 0 : -EINVAL;
        /* About the program's memory, which has no huge pages; on the host it would affect
         * vmrun's. */
        if (op == PR_SET_THP_DISABLE || op == PR_GET_THP_DISABLE) {
                if (a[2] || a[3] || a[4] || (op == PR_GET_THP_DISABLE && a[1]))
                        return -EINVAL;
                if (op == PR_GET_THP_DISABLE)
                        return procfs_no_huge_pages;
                procfs_no_huge_pages = a[1] != 0;
                return 0;
        }
        if (op == 40)
                return sys_deliver(t, a[1], &t->clear_tid, 8, 0);
        for (size_t i = 0; i < sizeof(prctl_rows) / sizeof(prctl_rows[0]); i++) {
                const struct prctl_row *r = &prctl_rows[i];

                if (r->op != op)
                        continue;
                if (r->kind == PC_REFUSE)
                        return -r->err;
                void *p = sys_out(t, a[1], r->size);
                long ret = sys_raw(row->nr, a[0], P(p), a[2], a[3], a[4], 0);
                return ret >= 0 ? sys_deliver(t, a[1], p, r->size, ret) : ret;
        }
        if ((op == PR_SET_KEEPCAPS || op == PR_SET_SECUREBITS || op == PR_CAPBSET_DROP ||
             op == PR_CAP_AMBIENT) && !t->vforked)
                io_keep_rights();
        if (prctl_plain(op))
                return sys_raw(row->nr, a[0], a[1], a[2], a[3], a[4], 0);
        info_once(0x400000000 + (unsigned)op, "prctl option %d is unknown: EINVAL", op);
        return -EINVAL;
}

/* capget and capset: the header says how much data follows; if its version is wrong, the right one
 * is written to it. */
long sys_capability(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint32_t *head = sys_in(t, a[0], 8, 8);
        size_t n = 0;
        void *data;
        uint32_t version;
        long ret;

        if ((void *)head == sys_bad())
                return -EFAULT;
        version = head[0];
        n = version == 0x19980330 ? 12 : version == 0x20071026 || version == 0x20080522 ? 24 : 0;
        data = !a[1] || !n              ? NULL
               : row->nr == __NR_capget ? sys_out(t, a[1], n)
                                        : sys_in(t, a[1], n, n);
        if (a[1] && !n)
                data = sys_bad();
        ret = sys_raw(row->nr, P(head), P(data), 0, 0, 0, 0);
        if (ret == 0 && row->nr == __NR_capset && !t->vforked)
                limits_look_at_rights();
        if (head[0] != version && gmem_write(t, a[0], head, 4))
                return -EFAULT;
        return ret == 0 && row->nr == __NR_capget ? sys_deliver(t, a[1], data, n, 0) : ret;
}

/* setuid and its like: capabilities may go, or come back. */
long sys_set_user(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        long ret = sys_generic(t, row, a);

        if (ret == 0 && !t->vforked)
                limits_look_at_rights();
        return ret;
}

/* Calls that may lower the policy or nice value of a thread of this process: threads that vmrun
 * makes later must not inherit them.  A child of vfork lowers no values but its own. */
static void before_lowering(const struct thread *t)
{
        if (!t->vforked)
                own_threads_set_apart();
}

long sys_sched_lower(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        before_lowering(t);
        return sys_generic(t, row, a);
}

/* sched_setaffinity. */
long sys_sched_cpus(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        long ret = sys_generic(t, row, a);

        if (ret >= 0)
                threads_count_cpus();
        return ret;
}

/* sched_setattr: the first word of the struct is its size; the kernel corrects an unknown size. */
long sys_sched_attr(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint32_t size = 0, *attr;
        long ret;

        if (!a[1] || (int)a[0] < 0 || a[2])
                return -EINVAL;
        if (gmem_read(t, &size, a[1], 4))
                return -EFAULT;
        if (size > PAGE_SIZE)
                return -E2BIG;
        attr = sys_in(t, a[1], size < 48 ? 48 : size, PAGE_SIZE);
        if ((void *)attr == sys_bad())
                return -EFAULT;
        before_lowering(t);
        ret = sys_raw(row->nr, a[0], P(attr), 0, 0, 0, 0);
        if (ret == -E2BIG && gmem_write(t, a[1], attr, 4))
                return -EFAULT;
        return ret;
}
