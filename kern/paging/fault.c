/*
 * The fault path: from a faulting address to a present page.
 *
 *   page_fault() called by entry/entry.S for #PF; returns to the program, or to its signal handler
 *     resolve()             repeats attempt() until the page is there or cannot be
 *       attempt()           one look at the entry, with the fault published:
 *         REMOTE            fetch(): a frame from this vCPU's reserve, then page_fetch()
 *         NONE              first_touch(): the VMA decides: zeroes, page of a file or of the arena
 *       settle()            what an attempt may not do while published: wait, sleep, exit
 *         FETCHING          fetch_wait(): a node sends the page; the host ends it by page_fetched()
 *         NEED_FILE         file_fill(), NEED_SHARED: shared_map() (file.c)
 *
 * [I] A fault publishes its address (full barrier) before it reads the VMA tree, and unpublishes it
 * after its last change of an entry.  It changes entries only in the aligned run around that
 * address (FAULT_AROUND).  A range operation changes the tree, waits until no fault is published
 * inside its range, then edits entries (pt_wait_faults).  So what a fault installs always agrees
 * with the tree.  A published fault does not sleep.  It exits only to let the holder of a lock run,
 * or to wake a vCPU that waits for its page: neither exit makes an upcall.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/cpu.h"
#include "base/print.h"
#include "base/signal.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "common/histogram.h"
#include "paging/cleaner.h"
#include "paging/fault.h"
#include "paging/file.h"
#include "space/account.h"
#include "space/grow.h"
#include "x86.h"

/* Error code of #PF (Intel SDM vol. 3A 4.7). */
enum { PF_WRITE = 1 << 1, PF_RESERVED = 1 << 3, PF_EXEC = 1 << 4 };

/* Leaves vma, pte and seen unset: clearing them would cost more than the rest of the entry path. */
static inline void fault_begin(struct fault *f, uint64_t addr, bool write, bool exec)
{
        f->addr = addr & ~(uint64_t)(PAGE_SIZE - 1);
        f->write = write;
        f->exec = exec;
        f->kind = FAULT_SPURIOUS;
        f->refused = 0;
}

static bool vma_allows(const struct vma *m, const struct fault *f)
{
        if (f->write)
                return m->prot & PROT_WRITE;
        if (f->exec)
                return m->prot & PROT_EXEC;
        return m->prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
}

static bool is_shared(const struct vma *m) { return (m->flags & MAP_TYPE) == MAP_SHARED; }

static __attribute__((cold, noinline)) enum outcome lost(struct fault *f)
{
        f->kind = FAULT_FETCH;
        return FAR_FAILED;
}

static enum outcome fetch(struct fault *f, pte_slot_t *pte, pte_t p)
{
        frame_t n = p & PTE_LOST ? FRAME_NONE
                                 : frame_take(&pager, &vcpu_self.frames, counters());
        if (n == FRAME_NONE)
                return p & PTE_LOST ? lost(f) : NEED_FRAME;
        int err = page_fetch(&pager, pte, p, n);
        if (err < 0) {
                frame_free(&pager, &vcpu_self.frames, n);
                return err == -EAGAIN ? RETRY : lost(f);
        }
        f->kind = FAULT_FETCH;
        count(CNT_FETCHED);
        if (err == 0)
                return DONE;
        f->pte = pte;
        f->seen = pte_make_busy(pager.pfn0 + n, p & PTE_KEEP);
        return FETCHING;
}

static enum outcome zero_fill(struct fault *f, pte_slot_t *pte)
{
        frame_t n = frame_take(&pager, &vcpu_self.frames, counters());

        if (n == FRAME_NONE)
                return NEED_FRAME;
        zero_page(env_frame_va(n));
        enum outcome o = install(f, pte, n, PTE_A);
        if (o != DONE) {
                frame_free(&pager, &vcpu_self.frames, n);
                return o;
        }
        f->kind = FAULT_ZERO;
        return DONE;
}

static enum outcome first_touch(struct fault *f, pte_slot_t *pte)
{
        if (mm_lookup(f->addr, &f->vma) != 0)
                return NEED_VMA;
        if (!vma_allows(&f->vma, f))
                return DENIED;
        if (!pte)
                return NEED_TABLE;
        if (is_shared(&f->vma))
                return NEED_SHARED;
        if (f->vma.file != FILE_NONE)
                return NEED_FILE;
        return zero_fill(f, pte);
}

static enum outcome attempt(struct fault *f)
{
        pte_slot_t *pte = pt_find(f->addr);
        pte_t p = pte ? atomic_load_explicit(pte, memory_order_acquire) : 0;

        switch (pte_kind(p)) {
        case PTE_REMOTE:
                return pte_allows(p, f->write, f->exec) ? fetch(f, pte, p) : DENIED;
        case PTE_NONE:
                return first_touch(f, pte);
        case PTE_PRESENT:
        case PTE_ARENA:
                /* Another vCPU was first, unless the access is denied. */
                return pte_allows(p, f->write, f->exec) ? DONE : DENIED;
        case PTE_HELD:
                return DENIED;
        case PTE_BUSY:
                f->pte = pte;
                f->seen = p;
                return WAIT_PTE;
        default:
                kern_bug("a page-table entry in no known state", p, f->addr);
        }
}

/* Waits for the page that this vCPU asked for.  No fault is published: a range operation waits by
 * itself while an entry is BUSY, and only the end of the fetch changes the entry.  If the page is
 * evicted again before we look, the program's access faults again.  If it cannot be had, the entry
 * is LOST, and the frame is still ours. */
static enum outcome fetch_wait(const struct fault *f)
{
        pte_t now = f->seen;

        do {
                page_wait(f->pte, now);
                now = atomic_load_explicit(f->pte, memory_order_acquire);
        } while ((now & ~PTE_WAITERS) == f->seen);
        if (!env_fetch_failed())
                return DONE;
        frame_free(&pager, &vcpu_self.frames, (frame_t)(pte_num(f->seen) - pager.pfn0));
        return FAR_FAILED;
}

/* Does what an attempt asked for; no fault is published.  RETRY: attempt again. */
static enum outcome settle(struct fault *f, enum outcome o)
{
        switch (o) {
        case RETRY:
                return RETRY;
        case WAIT_PTE:
                page_wait(f->pte, f->seen);
                f->kind = FAULT_WAIT;
                return RETRY;
        case FETCHING:
                return fetch_wait(f);
        case NEED_FRAME:
                return frames_wait() == 0 ? RETRY : NO_MEMORY;
        case NEED_TABLE:
                return pt_make(f->addr) ? RETRY : NO_MEMORY;
        case NEED_VMA:
                return mm_grow_stack(f->addr) == 0 ? RETRY : UNMAPPED;
        case NEED_FILE:
                o = file_fill(f);
                return o == NEED_FRAME ? settle(f, o) : o;
        case NEED_SHARED:
                return shared_map(f);
        default:
                return o;
        }
}

static enum outcome resolve(struct fault *f)
{
        enum outcome o;

        if (f->addr >= TASK_SIZE || (f->addr >= RESERVED_START && f->addr < RESERVED_END))
                return UNMAPPED;
        do {
                pt_publish(f->addr);
                o = attempt(f);
                pt_unpublish();
                if (o != DONE)
                        o = settle(f, o);
        } while (o == RETRY);
        cleaner_poke();                 /* here, because it may exit */
        return o;
}

static void record(const struct fault *f, uint64_t tsc, uint64_t exits)
{
        struct vcpu_stats *s = stats();

        s->faults[f->kind]++;
        s->fault_exits[f->kind] += counters()[CNT_EXITS] - exits;
        if (control.stats_on && f->kind < FAULT_SPURIOUS)
                s->hist[f->kind][hist_bucket(cpu_tsc() - tsc)]++;
}

/* The page is not available: raises a signal, with a message if the program is not to blame. */
static __attribute__((cold, noinline)) void fail(const struct fault *f, uint64_t addr,
                                                 enum outcome o)
{
        switch (o) {
        case NO_MEMORY:
                vmexit(EXIT_NO_MEMORY, 0, 0, 0);
                kern_log(0, "the program touched address 0x%lx, but cache and far memory are full "
                         "(%lu of %lu pages charged): give it a larger --cache or a larger --node",
                         addr, mm_charged(), mm_limit());
                break;
        case FAR_FAILED:
                kern_log(0, "the page at 0x%lx cannot be read back (%s)",
                         addr, f->kind == FAULT_FILE || f->kind == FAULT_SHARED ?
                         "file" : "far memory");
                break;
        default:
                break;
        }
        switch (o) {
        case FAR_FAILED:
                program_signal(VEC_PF, SIGBUS,
                               f->kind == FAULT_FETCH ? BUS_MCEERR_AR : BUS_ADRERR, addr);
                break;
        case BEYOND_END:
        case NO_MEMORY:
                program_signal(VEC_PF, SIGBUS, BUS_ADRERR, addr);
                break;
        case DENIED:
                program_signal(VEC_PF, SIGSEGV, SEGV_ACCERR, addr);
                break;
        default:
                program_signal(VEC_PF, SIGSEGV, SEGV_MAPERR, addr);
        }
}

void page_fault(void)
{
        struct vcpu *v = &vcpu_self;
        uint64_t err = v->regs.err, addr = v->cr2;
        struct fault f;

        fault_begin(&f, addr, err & PF_WRITE, err & PF_EXEC);
        v->entry_tsc = control.stats_on ? cpu_tsc() : 0;
        if (v->regs.rip - WINDOW < CONTROL_OFF)
                kern_bug("page fault in kern", addr, v->regs.rip);
        /* A pagetable-based KVM sets this bit for its own half of the address space. */
        if ((err & PF_RESERVED) && f.addr < TASK_SIZE)
                kern_bug("a page-table entry has reserved bits set", addr,
                         pt_find(addr) ? *pt_find(addr) : 0);

        uint64_t exits = counters()[CNT_EXITS];
        enum outcome o = resolve(&f);
        if (o == DONE)
                record(&f, v->entry_tsc, exits);
        else
                fail(&f, addr, o);
}

int fault_in(uint64_t start, uint64_t end, bool write)
{
        for (uint64_t a = start & ~(uint64_t)(PAGE_SIZE - 1); a < end; a += PAGE_SIZE) {
                struct fault f;
                fault_begin(&f, a, write, false);
                uint64_t tsc = control.stats_on ? cpu_tsc() : 0, exits = counters()[CNT_EXITS];

                switch (resolve(&f)) {
                case DONE:
                        record(&f, tsc, exits);
                        break;
                case NO_MEMORY:
                        return -ENOMEM;
                default:
                        return -EFAULT;
                }
        }
        return 0;
}

/* Not for an upcall: the host thread that made it may hold locks. */
int fault_in_all(uint64_t start, uint64_t end, bool write)
{
        int err = 0;

        for (uint64_t a = start; a < end && !err; a += PAGE_SIZE) {
                if (atomic_load_explicit(&control.stopping, memory_order_relaxed))
                        vmexit(EXIT_PAUSE, 0, 0, 0);
                err = fault_in(a, a + PAGE_SIZE, write);
        }
        return err;
}
