/*
 * A fault in progress, and the outcomes of an attempt to resolve it: shared by fault.c and file.c.
 */
#ifndef VMRUN_ATTEMPT_H
#define VMRUN_ATTEMPT_H

#include "abi_stats.h"
#include "base/charge.h"
#include "base/kern.h"
#include "base/state.h"
#include "pager/pager.h"
#include "space/vma.h"

/* Error code of #PF (Intel SDM vol. 3A 4.7). */
enum { PF_WRITE = 1 << 1, PF_RESERVED = 1 << 3, PF_EXEC = 1 << 4 };

struct fault {
        uint64_t addr;                  /* of the page */
        uint64_t error;                 /* of #PF's error code: PF_WRITE, PF_EXEC */
        bool in_range;                  /* its page is one of a range that was asked for */
        enum fault_kind kind;           /* how it was resolved, for the statistics */
        struct vma vma;                 /* as found by first_touch() */
        pte_slot_t *pte;                /* the entry to wait for, and the value seen there */
        pte_t seen;
        uint32_t refused;               /* how often the host did not know the file */
        /* Of a fetch whose parts are measured (base/latency.h), by TSC; else asked is 0. */
        uint64_t asked, came;
        bool copied;
};

enum outcome {
        DONE,
        RETRY,                          /* the entry changed under us */
        WAIT_PTE,                       /* BUSY: another vCPU fetches it */
        FETCHING,                       /* BUSY: this vCPU fetches it */
        MARKER,                         /* there, and the first use of a marker */
        GUIDED,                         /* a guide runs first (paging/guide.h) */
        NEED_FRAME, NEED_TABLE, NEED_VMA, NEED_FILE, NEED_SHARED,
        DENIED,                         /* SIGSEGV: a page is mapped, but not for this access */
        UNMAPPED,                       /* SIGSEGV: nothing is mapped */
        BEYOND_END,                     /* SIGBUS: past the end of the mapped file */
        NO_MEMORY,                      /* SIGBUS with a message: cache and far tiers are full */
        /* SIGBUS with a message: the far tier could not deliver the page. */
        FAR_FAILED,
};

/* The protection bits of an entry in this VMA. */
static inline pte_t vma_keep(const struct vma *m)
{
        return pte_prot(m->prot & PROT_READ, m->prot & PROT_WRITE, m->prot & PROT_EXEC);
}

/* NONE -> PRESENT with frame n, whose content is ready, charged and locked as its VMA says.  The
 * fault is published.  ad: as for page_install().  If it is not DONE the frame is still the
 * caller's. */
static inline enum outcome install(const struct fault *f, pte_slot_t *pte, frame_t n, pte_t ad)
{
        bool charge = f->vma.flags & VMA_TOUCH;
        pte_t keep = vma_keep(&f->vma) | (charge ? PTE_CHARGED : 0);

        if (charge && mm_charge_page() != 0)
                return NO_MEMORY;
        if (page_install(&pager, pte, n, keep, ad) != 0) {
                if (charge)
                        mm_uncharge(1);
                return RETRY;
        }
        if (f->vma.flags & VMA_LOCKED)
                page_set_locked(&pager, &vcpu_self.frames, pte, true);
        return DONE;
}

#endif
