/*
 * Exits to the host, and the upcalls it makes while one is pending (abi.h has the protocol).
 */
#include <asm-generic/errno.h>
#include "cpu.h"
#include "fork.h"
#include "kern.h"
#include "mm.h"
#include "pt.h"

static void out(void)
{
        struct vcpu *v = &vcpu_self;

        /* OUT tells kickers that this vCPU uses no translation of the program; it looks for flushes before it next becomes
         * PROGRAM (entry.S).  Release: what kern did before is visible to who sees the mode. */
        atomic_store_explicit(&v->mode, MODE_OUT, memory_order_release);
        cpu_exit();
        atomic_store_explicit(&v->mode, MODE_KERN, memory_order_relaxed);
}

/* A system call cannot say why it fails, which the program's own access would (fault.c). */
static int64_t populate(uint64_t start, uint64_t end, bool write)
{
        int err = fault_in(start, end, write);
        if (err == -ENOMEM)
                kern_log(0, "a system call on address 0x%lx fails, because cache and far memory are full (%lu of %lu pages charged): "
                         "give it a larger --cache or a larger --node", start, mm_charged(), mm_limit());
        return err;
}

static int64_t upcall_serve(const struct upcall *u)
{
        switch (u->op) {
        case UPCALL_POPULATE:
                return populate(u->a[0], u->a[0] + u->a[1], u->a[2]);
        case UPCALL_MM:
                return mm_batch((struct mm_op *)vcpu_self_xfer, u->a[0]);
        case UPCALL_MAPS:
                return mm_maps(u->a[0], (struct map_entry *)vcpu_self_xfer, PAGE_SIZE / sizeof(struct map_entry));
        case UPCALL_OBJECT_CUT:
                return object_cut(u->a[0], u->a[1]);
        case UPCALL_FORK_STATE:
                return fork_state((struct fork_state *)vcpu_self_xfer);
        case UPCALL_FORK_VMAS:
                return fork_vmas(u->a[0], (struct fork_vma *)vcpu_self_xfer);
        case UPCALL_FORK_PAGES:
                return fork_pages(u->a[0], (struct fork_page *)vcpu_self_xfer, u->a[1], u->a[2]);
        case UPCALL_ADOPT_STATE:
                return adopt_state((struct fork_state *)vcpu_self_xfer);
        case UPCALL_ADOPT_VMAS:
                return adopt_vmas((struct fork_vma *)vcpu_self_xfer, u->a[0]);
        case UPCALL_ADOPT_PAGES:
                return adopt_pages((struct fork_page *)vcpu_self_xfer, u->a[0]);
        case UPCALL_LEAKCHECK:
                return leak_check(u->a[0]);
        case UPCALL_USAGE:
                memory_usage((struct mm_usage *)vcpu_self_xfer);
                return 0;
        case UPCALL_THREAD_END:
                frame_list_drain(&pager, &vcpu_self.frames);
                return 0;
        default:
                return -ENOSYS;
        }
}

int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        struct vcpu *v = &vcpu_self;

        stats()->exits[op]++;
        count(CNT_EXITS);
        v->exit.op = op;
        v->exit.a[0] = a0;
        v->exit.a[1] = a1;
        v->exit.a[2] = a2;
        v->exit.a[3] = a3;
        v->exit.a[4] = a4;
        out();
        while (v->upcall.op != UPCALL_NONE) {
                /* Taken off first: what serves it may exit and meet another. */
                const struct upcall u = v->upcall;
                v->upcall.op = UPCALL_NONE;
                v->upcall.ret = upcall_serve(&u);
                stats()->exits[EXIT_UPCALL_DONE]++;
                v->exit.op = EXIT_UPCALL_DONE;
                out();
        }
        return v->exit.ret;
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return vmexit5(op, a0, a1, a2, 0, 0);
}
