/*
 * What the program uses, as /proc/self/status wants to know it.
 */
#include "kern.h"
#include "vma.h"

void memory_usage(struct mm_usage *u)
{
        uint64_t stocks = 0, nfree = atomic_load_explicit(&pager.nfree, memory_order_relaxed);

        for (uint32_t i = 0; i < control.nvcpus; i++)
                stocks += vcpu_block(i)->frames.n;
        *u = (struct mm_usage){
                .mapped = vma_counts.total,
                .mapped_peak = vma_counts.peak,
                .data = vma_counts.data,
                .locked = vma_counts.locked,
                .resident = nfree + stocks < pager.nframes ? pager.nframes - nfree - stocks : 0,
                /* A fresh frame is taken only when no used one is free. */
                .resident_peak = pager.fresh,
                .far = slots_in_use(),
        };
}
