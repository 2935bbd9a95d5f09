/*
 * First touches of pages whose content the host has: files, and the arena (file.h).
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/state.h"
#include "base/tables.h"
#include "pager/pager.h"
#include "paging/file.h"

_Atomic uint32_t object_cuts;

/* Is the page still mapped as it was at the last look?  If so, f->vma gets the VMA's current
 * bounds.  The fault is published. */
static bool still_mapped(struct fault *f)
{
        struct vma now;
        bool same = mm_lookup(f->addr, &now) == 0 && now.file == f->vma.file &&
                    now.prot == f->vma.prot && now.flags == f->vma.flags &&
                    now.off - now.start == f->vma.off - f->vma.start &&
                    now.gpa - now.start == f->vma.gpa - f->vma.start;
        if (same)
                f->vma = now;
        return same;
}

static bool in_vma(const struct vma *m, uint64_t a) { return a >= m->start && a < m->end; }

static bool untouched(pte_slot_t *pte)
{
        return pte_kind(atomic_load_explicit(pte, memory_order_relaxed)) == PTE_NONE;
}

/* The run of untouched pages around f->addr, inside its VMA, its page table and an aligned window.
 * Returns its start. */
static uint64_t file_run(const struct fault *f, uint32_t *npages)
{
        const uint64_t run = FAULT_AROUND * PAGE_SIZE;
        uint64_t lo = f->addr & ~(run - 1), hi = lo + run;
        uint64_t start = f->addr, end = f->addr + PAGE_SIZE;
        pte_slot_t *pte = pt_find(f->addr);
        uint32_t nfree = atomic_load_explicit(&pager.nfree, memory_order_relaxed);
        bool plenty = pte && nfree > pager.high + FAULT_AROUND;

        if (lo < f->vma.start)
                lo = f->vma.start;
        if (hi > f->vma.end)
                hi = f->vma.end;
        while (plenty && start > lo && untouched(pte - (f->addr - start) / PAGE_SIZE - 1))
                start -= PAGE_SIZE;
        while (plenty && end < hi && untouched(pte + (end - f->addr) / PAGE_SIZE))
                end += PAGE_SIZE;
        *npages = (uint32_t)((end - start) / PAGE_SIZE);
        return start;
}

/* Frames for pages of a file, from start on; page number `wanted` is the page that faulted. */
struct run {
        uint64_t start;
        uint32_t n, wanted;
        frame_t frame[FAULT_AROUND];
};

static void run_give_back(struct run *r, uint32_t keep)
{
        while (r->n > keep)
                frame_free(&pager, &vcpu_self.frames, r->frame[--r->n]);
}

/* Takes as many frames as are free, at least one for the page that faulted.  False: none is
 * free. */
static bool run_take(const struct fault *f, struct run *r)
{
        uint32_t npages;
        frame_t n;

        *r = (struct run){ .start = file_run(f, &npages) };
        r->wanted = (uint32_t)((f->addr - r->start) / PAGE_SIZE);
        for (; r->n < npages; r->frame[r->n++] = n) {
                n = frame_take(&pager, &vcpu_self.frames, counters());
                if (n == FRAME_NONE)
                        break;
        }
        /* Not enough to reach the page that faulted: read it alone. */
        if (r->n <= r->wanted) {
                run_give_back(r, 1);
                r->start = f->addr;
                r->wanted = 0;
        }
        return r->n > 0;
}

/* Installs the first `got` pages of the run, or as many as the VMA still has, and gives the other
 * frames back.  Returns the outcome for the page that faulted. */
static enum outcome run_install(const struct fault *f, struct run *r, int64_t got)
{
        enum outcome result = got < 0 ? FAR_FAILED : BEYOND_END;

        for (uint32_t i = 0; i < r->n; i++) {
                uint64_t a = r->start + i * PAGE_SIZE;
                pte_slot_t *pte = (int64_t)i < got && in_vma(&f->vma, a) ? pt_find(a) : NULL;
                /* Pages that no access asked for enter with A=0, as prefetched ones do; under
                 * shadow paging that would cost their first use a trap. */
                pte_t ad = i == r->wanted || control.shadow_paging ? PTE_A : 0;
                enum outcome o = pte ? install(f, pte, r->frame[i], ad) : RETRY;

                if (i == r->wanted && (int64_t)i < got)
                        result = o;
                if (o != DONE)
                        frame_free(&pager, &vcpu_self.frames, r->frame[i]);
        }
        return result;
}

/* EBADF is normally a stale answer: a mapped file holds a reference, so its id cannot be free.
 * After this many times the descriptor is really gone, such as a descriptor that only a child of
 * vfork had. */
#define REFUSED_MAX 1000

static bool is_lost(struct fault *f, int64_t got, bool same)
{
        return got == -EBADF && same && ++f->refused > REFUSED_MAX;
}

enum outcome file_fill(struct fault *f)
{
        enum outcome result = RETRY;
        struct run r;

        if (!run_take(f, &r))
                return NEED_FRAME;
        uint64_t off = r.start - f->vma.start + f->vma.off;
        uint32_t cuts = atomic_load(&object_cuts);
        int64_t got = vmexit5(EXIT_FILE_READ, f->vma.file, off, r.n, (uint64_t)r.frame, 0);

        /* The read ran unpublished, so the mapping may have changed.  Use its result only if the
         * VMA maps the page as before and no file was cut since. */
        pt_publish(f->addr);
        bool same = atomic_load(&object_cuts) == cuts && still_mapped(f);
        if ((same && got != -EBADF) || is_lost(f, got, same))
                result = run_install(f, &r, got);
        else
                run_give_back(&r, 0);
        pt_unpublish();
        f->kind = FAULT_FILE;
        return result;
}

enum outcome shared_map(struct fault *f)
{
        uint64_t at = f->addr - f->vma.start;
        int64_t left = vmexit(EXIT_SHARED_CHECK, f->vma.file, f->vma.off + at,
                              (f->vma.gpa + at) | !!(f->error & PF_WRITE));

        pt_publish(f->addr);
        /* As above: otherwise the answer is about another mapping. */
        bool same = still_mapped(f), mapped = left != -EBADF && same;
        pte_slot_t *pte = mapped && left > 0 ? pt_find(f->addr) : NULL;
        uint64_t run_end = (f->addr | (FAULT_AROUND * PAGE_SIZE - 1)) + 1;
        for (uint64_t i = 0; pte && (int64_t)i < left; i++) {
                uint64_t a = f->addr + i * PAGE_SIZE;
                if (a >= f->vma.end || a >= run_end)
                        break;
                uint64_t gpa = f->vma.gpa + (a - f->vma.start);
                /* NONE may carry a stray A or D (pager/pte.h) */
                pte_t p = atomic_load(pte + i);
                pte_t next = pte_make_arena(gpa / PAGE_SIZE, vma_keep(&f->vma));
                if (pte_kind(p) == PTE_NONE)
                        atomic_compare_exchange_strong(pte + i, &p, next);
        }
        pt_unpublish();
        f->kind = FAULT_SHARED;
        return pte ? DONE : mapped && left <= 0 ? BEYOND_END :
               is_lost(f, left, same) ? FAR_FAILED : RETRY;
}
