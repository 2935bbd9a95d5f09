/*
 * What all vCPUs together have counted of pages that left the cache and came back.
 */
#include "base/kern.h"
#include "pager/env.h"

/* Relaxed: each vCPU counts on, and only sums over ticks matter. */
void env_returns(struct returns *sum)
{
        uint32_t n = atomic_load_explicit(&control.nvcpus, memory_order_acquire);
        uint32_t *word = (uint32_t *)sum;

        *sum = (struct returns){ .gone = { 0 } };
        for (uint32_t i = 0; i < n; i++) {
                const uint64_t *cnt = &vcpu_stats(vcpu_block(i))->counter[CNT_GONE];
                for (size_t k = 0; k < sizeof(*sum) / sizeof(*word); k++)
                        word[k] += (uint32_t)__atomic_load_n(&cnt[k], __ATOMIC_RELAXED);
        }
}
