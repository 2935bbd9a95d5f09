/*
 * Upcalls: requests of the host to kern while an exit is pending (abi_exits.h has the protocol).
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/exit.h"
#include "base/kern.h"
#include "base/print.h"
#include "base/state.h"
#include "entry/upcall.h"
#include "far/slots.h"
#include "fork_state.h"
#include "mm/cut.h"
#include "mm/map.h"
#include "pager/pager.h"
#include "paging/fault.h"

/* A system call cannot report why it fails; the program's own access would (paging/fault.c). */
static int64_t populate_for_host(uint64_t start, uint64_t end, bool write)
{
        int err = fault_in(start, end, write);
        if (err == -ENOMEM) {
                vmexit(EXIT_NO_MEMORY, 0, 0, 0);
                kern_log(0, "a system call on address 0x%lx fails, because cache and far memory "
                         "are full (%lu of %lu pages charged): "
                         "give it a larger --cache or a larger --node",
                         start, mm_charged(), mm_limit());
        }
        return err;
}

/* The memory that the program uses, as /proc/self/status reports it. */
static void memory_usage(struct mm_usage *u)
{
        uint64_t stocks = 0, nfree = atomic_load_explicit(&pager.nfree, memory_order_relaxed);

        for (uint32_t i = 0; i < control.nvcpus; i++)
                stocks += vcpu_block(i)->frames.free.n;
        *u = (struct mm_usage){
                .mapped = vma_counts.total,
                .mapped_peak = vma_counts.peak,
                .data = vma_counts.data,
                .locked = vma_counts.locked,
                .resident = nfree + stocks < pager.nframes ? pager.nframes - nfree - stocks : 0,
                /* A fresh frame is taken only if no used frame is free. */
                .resident_peak = pager.fresh,
                .far = slots_in_use(),
        };
}

int64_t upcall_serve(const struct upcall *u)
{
        switch (u->op) {
        case UPCALL_POPULATE:
                return populate_for_host(u->a[0], u->a[0] + u->a[1], u->a[2]);
        case UPCALL_MM:
                return mm_batch((struct mm_op *)vcpu_self_xfer, u->a[0]);
        case UPCALL_MAPS:
                return mm_maps(u->a[0], (struct map_entry *)vcpu_self_xfer,
                               PAGE_SIZE / sizeof(struct map_entry));
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
