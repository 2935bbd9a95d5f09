/*
 * Serves kern's exits: one function or line per EXIT_*.
 */
#include <errno.h>
#include <limits.h>
#include <linux/kvm.h>
#include <sched.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "base/word.h"
#include "common/clock.h"
#include "exits.h"
#include "far/direct.h"
#include "far/io.h"
#include "far/lease.h"
#include "marshal/call.h"
#include "memory/arena.h"
#include "memory/files.h"
#include "memory/files_read.h"
#include "memory/shm.h"
#include "process/service.h"
#include "process/vfork.h"
#include "procfs/mem.h"
#include "replay/replay.h"
#include "signal/signals.h"
#include "signal/trapped.h"
#include "syscalls/dispatch.h"
#include "vm/dump.h"
#include "vm/guides.h"
#include "vm/kvm.h"
#include "vm/stocks.h"
#include "vm/time.h"
#include "vm/vcpu.h"
#include "x86.h"

static const char *kern_text(struct thread *t, uint64_t va)
{
        const char *s = kern_pointer(t, va, 1);
        return s ? s : "(a text that is not in the window)";
}

#define WAIT_MOST_NS 100000000

static int64_t wait_pte(struct thread *t, uint64_t at, uint32_t seen, bool for_vcpu, uint64_t ns)
{
        const struct timespec limit = {
                .tv_nsec = ns && ns < WAIT_MOST_NS ? (long)ns : WAIT_MOST_NS
        };
        const void *word = kern_pointer(t, at, sizeof(seen));
        /* Never io_wait() for another vCPU: it may itself wait for far memory, whose work is done
         * by one thread at a time. */
        if (word && opt.io == IO_INLINE && !for_vcpu)
                io_wait(word, seen);
        else if (word)
                word_sleep(word, seen, &limit);
        return 0;
}

static int64_t ring(const struct exit_req *rq)
{
        int64_t err = direct_exit_ring(rq);

        io_turn();                      /* with --io inline no other exit may come for long */
        if (err || rq->a[2])
                io_wake();
        return err;
}

#define SYSCALL_LEN 2                   /* bytes of the instruction */

static int64_t forward(struct thread *t)
{
        struct regs *r = &t->v->regs;
        const uint64_t args[6] = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 };
        /* As Linux: the number is EAX, signed. */
        long ret = syscall_forward(t, (int)r->rax, args);

        if (ret != -SYS_PUT_OFF)
                return ret;
        /* after the signal handler the program makes the call again */
        r->rip -= SYSCALL_LEN;
        return (int64_t)r->rax;
}

/* Has kern drop the entries that lead behind the end of a shared object; all: to any of its pages.
 * Returns how many entries were dropped. */
static int64_t cut_shared(struct thread *t, bool all)
{
        int64_t dropped = 0;

        for (uint32_t id = files_next_shared(FILE_NONE); id != FILE_NONE;
             id = files_next_shared(id)) {
                int64_t left = all ? 0 : files_pages_left(id, 0);
                int64_t n =
                        thread_upcall(t, UPCALL_OBJECT_CUT, id, left > 0 ? (uint64_t)left : 0, 0);
                dropped += n > 0 ? n : 0;
        }
        return dropped;
}

/*
 * KVM_RUN met a page of the arena that has no memory, and does not say which.  Either a shared file
 * was cut short: kern drops the entries past its end, so that the program's next touch faults and
 * kern can report the address.  Or there is no memory for the page: kern drops all entries, and
 * from now on each page is looked at before it is mapped (arena_distrust()).  Either way the
 * program's touch is repeated: it may succeed, because the file has grown again.
 *
 * If KVM cannot reach memory that is no object's, nothing of this helps.
 */
#define STUCK_MOST_MS 5000
static void arena_check(struct thread *t)
{
        int64_t now = now_ms();

        if (cut_shared(t, false) > 0 || !t->stuck_since || t->stuck_at != t->v->regs.rip) {
                t->stuck_at = t->v->regs.rip;
                t->stuck_since = now;
        } else if (now - t->stuck_since > STUCK_MOST_MS) {
                vcpu_dump(t);
                die_(EXIT_VMRUN_FAILED,
                     "KVM cannot reach some guest memory (EFAULT), and it belongs to no shared "
                     "file: is the host out of memory?");
        } else {
                arena_distrust();
                cut_shared(t, true);
        }
}

/* The program executed an instruction that made KVM exit.  guided: a guide executed it, and kern
 * has ended the guide. */
static void refuse(struct thread *t, bool guided)
{
        const uint32_t reason = t->privileged;

        t->privileged = 0;
        if (reason == KVM_EXIT_EXCEPTION)
                signals_drop_forced(t);
        if (guided)
                return;
        if (reason == KVM_EXIT_IO)
                trapped_io(t);
        t->v->regs.err = 0;
        if (reason == KVM_EXIT_EXCEPTION)
                signals_fault(t, SIGBUS, BUS_ADRALN, 0, VEC_AC);
        else
                signals_fault(t, SIGSEGV, SI_KERNEL, 0, VEC_GP);
}

/* Handles the reasons for which the host made kern exit before it returned to the program. */
static void event(struct thread *t)
{
        bool guided = t->v->exit.a[0];

        threads_pause(t);
        if (t->arena_fault) {
                t->arena_fault = false;
                arena_check(t);
        }
        if (t->privileged)
                refuse(t, guided);
        if (!t->end.how)
                signals_deliver(t);
}

static int64_t kick(struct thread *t, uint64_t at)
{
        const struct exit_kick *in = kern_pointer(t, at, sizeof(*in));

        if (!in)
                return -EFAULT;
        for (unsigned n = 0; n < CONTROL->nvcpus && n < VCPUS_MAX; n++)
                if (in->vcpus[n / 64] >> n % 64 & 1)
                        vcpu_kick(t->vm->thread[n]);
        return 0;
}

static int64_t take_stocks(struct thread *t, uint64_t at)
{
        struct exit_stocks *s = kern_pointer(t, at, sizeof(*s));

        if (!s)
                return -EFAULT;
        stocks_take(t->vm, s);
        return 0;
}

static _Noreturn void bug(struct thread *t, const struct exit_req *rq)
{
        warnx_("kern: %s (0x%llx, 0x%llx); " VM_BLAME, kern_text(t, rq->a[0]),
               (unsigned long long)rq->a[1], (unsigned long long)rq->a[2]);
        vcpu_dump(t);
        die_(EXIT_VMRUN_FAILED, "the virtual machine was stopped");
}

static int64_t serve(struct thread *t, enum exit_op op)
{
        struct exit_req *rq = &t->v->exit;

        switch (op) {
        case EXIT_NONE:           return rq->ret;       /* kern has its answer: see vfork.c */
        case EXIT_SYSCALL:
                t->stuck_since = 0;
                return forward(t);
        case EXIT_SIGNAL:
                t->stuck_since = 0;
                signals_fault(t, (int)rq->a[0], (int)rq->a[1], rq->a[2], (int)rq->a[3]);
                return 0;
        case EXIT_BUG:            bug(t, rq);
        case EXIT_LOG:
                if (rq->a[1] == 0)
                        warnx_("%s", kern_text(t, rq->a[0]));
                else
                        info_("%s", kern_text(t, rq->a[0]));
                return 0;
        case EXIT_FILE_READ:      return files_exit_read(t, rq);
        case EXIT_FILE_MAP:
                if (!privfd_is((int)rq->a[0]) && procfs_mem_is((int)rq->a[0]))
                        return procfs_mem_map((int)rq->a[0]);
                return files_exit_map(t, rq);
        case EXIT_ANON_SHARED:    return files_exit_anon_shared(t, rq);
        case EXIT_SHM_ATTACH:     return shm_exit_attach(t, rq);
        case EXIT_SHARED_AGAIN:   return files_exit_again(t, rq);
        case EXIT_FILE_REF:
                if ((int)rq->a[1] < 0)
                        replay_file_goes((uint32_t)rq->a[0]);
                return files_exit_ref(t, rq);
        case EXIT_SHARED_UNMAP:   return files_exit_unmap(t, rq);
        case EXIT_SHARED_CHECK:   return files_exit_shared_check(t, rq);
        case EXIT_MSYNC:          return arena_exit_msync(t, rq);
        case EXIT_MINCORE:        return files_exit_mincore(t, rq);
        case EXIT_FILE_MAPPED:
                replay_file_mapped((uint32_t)rq->a[0], rq->a[1], rq->a[2], rq->a[3]);
                return 0;
        case EXIT_ARENA_COPY:     return arena_exit_copy(t, rq);
        case EXIT_GROW_POOL:      return vm_grow_pool(t->vm, rq->a[0]);
        case EXIT_LEASE:          return far_exit_lease(t, rq);
        case EXIT_NO_MEMORY:      return far_exit_no_memory();
        case EXIT_SLOTS_RELEASE:  return far_exit_release(t, rq);
        case EXIT_DIRECT:         return direct_exit_make(t, rq);
        case EXIT_DIRECT_RING:    return ring(rq);
        case EXIT_WAIT_FRAMES: word_sleep(&CONTROL->frames_seq, (uint32_t)rq->a[0], NULL); return 0;
        case EXIT_STOCKS:         return take_stocks(t, rq->a[0]);
        case EXIT_WAKE_FRAMES:    word_wake(&CONTROL->frames_seq, INT_MAX); return 0;
        case EXIT_SERVICE_SLEEP:  service_sleep((uint32_t)rq->a[0]); return 0;
        case EXIT_SERVICE_WAKE:
                service_ensure(t->vm);
                word_wake(&CONTROL->service_seq, 1);
                return 0;
        case EXIT_WAIT_PTE:       return wait_pte(t, rq->a[0], (uint32_t)rq->a[1], rq->a[2],
                                                   rq->a[3]);
        case EXIT_WAKE_PTE:
                word_wake(kern_pointer(t, rq->a[0], 4), rq->a[1] ? (int)rq->a[1] : INT_MAX);
                return 0;
        case EXIT_KICK:           return kick(t, rq->a[0]);
        case EXIT_YIELD:          sched_yield(); return 0;
        case EXIT_TIME:           time_refresh(); return 0;
        case EXIT_EVENT:          event(t); return 0;
        case EXIT_PAUSE:          threads_pause(t); return 0;
        case EXIT_GUIDES:         return guide_watch_start(t->vm);
        default:
                vcpu_dump(t);
                die_(EXIT_VMRUN_FAILED, "kern asked for something unknown (%u); " VM_BLAME, op);
        }
}

/*
 * Exits that a child of vfork does not serve itself, as it may be killed in the middle: they change
 * state that the VM and its owner keep, or take a lock of theirs.  (Not EXIT_FILE_MAP and
 * EXIT_SHM_ATTACH, which need the child's descriptors, and its rights.)
 */
static bool is_for_lender(enum exit_op op)
{
        switch (op) {
        case EXIT_FILE_READ: case EXIT_ANON_SHARED: case EXIT_SHARED_AGAIN: case EXIT_FILE_REF:
        case EXIT_SHARED_UNMAP: case EXIT_SHARED_CHECK: case EXIT_MINCORE: case EXIT_FILE_MAPPED:
        case EXIT_ARENA_COPY: case EXIT_GROW_POOL: case EXIT_LEASE: case EXIT_NO_MEMORY:
        case EXIT_SLOTS_RELEASE: case EXIT_DIRECT: case EXIT_DIRECT_RING: case EXIT_SERVICE_WAKE:
        case EXIT_TIME: case EXIT_GUIDES:
                return true;
        case EXIT_WAIT_PTE:
                return opt.io == IO_INLINE;
        default:
                return false;
        }
}

int64_t exit_serve(struct thread *t)
{
        const enum exit_op op = t->v->exit.op;

        /* EBADF: a file that the child has mapped, with a descriptor in its own table */
        if (t->vforked && is_for_lender(op) && vfork_ask(t) && t->v->exit.ret != -EBADF)
                return t->v->exit.ret;
        return serve(t, op);
}
