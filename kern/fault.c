/*
 * The fault path: from a faulting address to a present page.
 *
 *   page_fault()            entry.S calls it for #PF; ends in the program's next instruction, or in its death by signal
 *     resolve()             repeats attempt() until the page is there or cannot be
 *       attempt()           one look at the entry, with the fault published:
 *         REMOTE            fetch(): a frame from this vCPU's stock, then page_fetch() (pager/transition.c)
 *         NONE              first_touch(): the VMA decides: a zeroed frame, a page of a file, a page of the arena
 *       settle()            what an attempt may not do while published: wait, sleep, exit
 *         FETCHING          fetch_wait(): the page is on its way from a node (rings.c); the host ends it by page_fetched()
 *
 * [I] A fault publishes its address (full barrier) before it reads the VMA tree, and takes it back after its last change of an
 * entry; it changes entries only in the aligned run around that address (FAULT_AROUND).  A range operation changes the tree, waits until nobody is published inside its range, then edits entries
 * (pt_wait_faults): so what a fault installs always agrees with the tree.  A published fault does not sleep, and exits only to
 * let the holder of a lock run or to wake who waits for its page: neither makes an upcall.
 */
#include <asm-generic/errno-base.h>
#include <asm-generic/mman-common.h>
#include <linux/mman.h>
#include "cpu.h"
#include "kern.h"
#include "mm.h"
#include "pt.h"

struct fault {
        uint64_t addr;                  /* of the page */
        bool write, exec;
        enum fault_kind kind;           /* how it was resolved, for the statistics */
        struct vma vma;                 /* as found by first_touch */
        pte_slot_t *pte;                /* entry to wait for, and the value seen */
        pte_t seen;
        uint32_t refused;               /* times that the host did not know the file */
};

/* Error code of #PF (Intel SDM vol. 3A 4.7). */
enum { PF_WRITE = 1 << 1, PF_RESERVED = 1 << 3, PF_EXEC = 1 << 4 };

/* Leaves vma, pte and seen unset: clearing them would cost more than the rest of the way in. */
static inline void fault_begin(struct fault *f, uint64_t addr, bool write, bool exec)
{
        f->addr = addr & ~(uint64_t)(PAGE_SIZE - 1);
        f->write = write;
        f->exec = exec;
        f->kind = FAULT_SPURIOUS;
        f->refused = 0;
}

/* What an attempt comes to. */
enum outcome {
        DONE,
        RETRY,                          /* the entry changed under us */
        WAIT_PTE,                       /* BUSY: another vCPU fetches it */
        FETCHING,                       /* BUSY: this one does */
        NEED_FRAME, NEED_TABLE, NEED_CHARGE, NEED_VMA, NEED_FILE, NEED_SHARED,
        DENIED,                         /* SIGSEGV: a page is mapped, but not for this access */
        UNMAPPED,                       /* SIGSEGV: nothing is mapped */
        BEYOND_END,                     /* SIGBUS: past the end of the mapped file */
        NO_MEMORY,                      /* SIGBUS with a message: cache and far tiers are full */
        FAR_FAILED,                     /* SIGBUS with a message: the far tier could not give the page back */
};

static bool vma_allows(const struct vma *m, const struct fault *f)
{
        if (f->write)
                return m->prot & PROT_WRITE;
        if (f->exec)
                return m->prot & PROT_EXEC;
        return m->prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
}

static pte_t vma_keep(const struct vma *m)
{
        return pte_prot(m->prot & PROT_READ, m->prot & PROT_WRITE, m->prot & PROT_EXEC);
}

static bool is_shared(const struct vma *m) { return (m->flags & MAP_TYPE) == MAP_SHARED; }

static enum outcome fetch(struct fault *f, pte_slot_t *pte, pte_t p)
{
        frame_t n = frame_take(&pager, &vcpu_self.frames, counters());
        if (n == FRAME_NONE)
                return NEED_FRAME;
        int err = page_fetch(&pager, pte, p, n);
        if (err < 0) {
                frame_free(&pager, &vcpu_self.frames, n);
                return err == -EAGAIN ? RETRY : FAR_FAILED;
        }
        f->kind = FAULT_FETCH;
        count(CNT_FETCHED);
        if (err == 0)
                return DONE;
        f->pte = pte;
        f->seen = pte_make_busy(pager.pfn0 + n, p & PTE_KEEP);
        return FETCHING;
}

/* What every first touch ends with: a page of a locked VMA stays. */
static void touched(const struct fault *f, pte_slot_t *pte)
{
        if (f->vma.flags & VMA_LOCKED)
                page_set_locked(&pager, pte, true);
}

static enum outcome zero_fill(struct fault *f, pte_slot_t *pte)
{
        pte_t keep = vma_keep(&f->vma);
        bool charge = f->vma.flags & VMA_TOUCH;
        frame_t n = frame_take(&pager, &vcpu_self.frames, counters());

        if (n == FRAME_NONE)
                return NEED_FRAME;
        if (charge && mm_charge_page() != 0) {
                frame_free(&pager, &vcpu_self.frames, n);
                return NO_MEMORY;
        }
        zero_page(env_frame_va(n));
        if (page_install(&pager, pte, n, keep | (charge ? PTE_CHARGED : 0), PTE_A) != 0) {
                if (charge)
                        mm_uncharge(1);
                frame_free(&pager, &vcpu_self.frames, n);
                return RETRY;
        }
        touched(f, pte);
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
                return pte_allows(p, f->write, f->exec) ? DONE : DENIED;        /* else another vCPU was first */
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

/* Is the page still mapped as it was when we last looked?  Then f->vma gets its bounds of now.  The fault is published. */
static bool still_mapped(struct fault *f)
{
        struct vma now;
        bool same = mm_lookup(f->addr, &now) == 0 && now.file == f->vma.file && now.prot == f->vma.prot &&
               now.flags == f->vma.flags && now.off - now.start == f->vma.off - f->vma.start &&
               now.gpa - now.start == f->vma.gpa - f->vma.start;
        if (same)
                f->vma = now;
        return same;
}

static bool in_vma(const struct vma *m, uint64_t a) { return a >= m->start && a < m->end; }

static bool untouched(pte_slot_t *pte) { return pte_kind(atomic_load_explicit(pte, memory_order_relaxed)) == PTE_NONE; }

/* EBADF is an old answer as a rule, for what is mapped is held: the file was let go meanwhile, also
 * where it is mapped again by now.  Not this often: a descriptor is gone, as one that only a child
 * of vfork had. */
#define REFUSED_MAX 1000

static bool is_lost(struct fault *f, int64_t got, bool same)
{
        return got == -EBADF && same && ++f->refused > REFUSED_MAX;
}

/* The run of untouched pages around f->addr, inside its VMA, its page table and an aligned window.  Returns its start. */
static uint64_t file_run(const struct fault *f, uint32_t *npages)
{
        uint64_t lo = f->addr & ~(uint64_t)(FAULT_AROUND * PAGE_SIZE - 1), hi = lo + FAULT_AROUND * PAGE_SIZE;
        uint64_t start = f->addr, end = f->addr + PAGE_SIZE;
        pte_slot_t *pte = pt_find(f->addr);

        if (lo < f->vma.start)
                lo = f->vma.start;
        if (hi > f->vma.end)
                hi = f->vma.end;
        bool plenty = pte && atomic_load_explicit(&pager.nfree, memory_order_relaxed) > pager.high + FAULT_AROUND;
        while (plenty && start > lo && untouched(pte - (f->addr - start) / PAGE_SIZE - 1))
                start -= PAGE_SIZE;
        while (plenty && end < hi && untouched(pte + (end - f->addr) / PAGE_SIZE))
                end += PAGE_SIZE;
        *npages = (uint32_t)((end - start) / PAGE_SIZE);
        return start;
}

/* Reads pages of a private file mapping into frames, by an exit, and installs them.  Not published on entry.
 * [I] It leaves xfer alone: an upcall whose arguments are there, as those of mm_batch(), may come by here. */
static enum outcome file_fill(struct fault *f)
{
        uint32_t npages, have = 0;
        frame_t taken[FAULT_AROUND];
        uint64_t start = file_run(f, &npages);
        uint64_t off = start - f->vma.start + f->vma.off;
        enum outcome result = RETRY;

        while (have < npages && (taken[have] = frame_take(&pager, &vcpu_self.frames, counters())) != FRAME_NONE)
                have++;
        if (have <= (f->addr - start) / PAGE_SIZE) {    /* not even the page asked for: read that one alone */
                while (have > 1)
                        frame_free(&pager, &vcpu_self.frames, taken[--have]);
                if (have == 0)
                        return NEED_FRAME;
                start = f->addr;
                off = start - f->vma.start + f->vma.off;
        }
        uint32_t cuts = atomic_load(&object_cuts);
        int64_t got = vmexit5(EXIT_FILE_READ, f->vma.file, off, have, (uint64_t)taken, 0);
        uint32_t wanted = (uint32_t)((f->addr - start) / PAGE_SIZE);

        pt_publish(f->addr);
        /*
         * The answer counts for what is mapped here: another thread may have put something else
         * in its place.
         */
        bool same = atomic_load(&object_cuts) == cuts && still_mapped(f);
        bool mapped = same && got != -EBADF;
        if ((mapped && got < 0) || is_lost(f, got, same))
                result = FAR_FAILED;
        else if (mapped && (uint64_t)got <= wanted)
                result = BEYOND_END;
        pte_t keep = vma_keep(&f->vma);
        bool charge = f->vma.flags & VMA_TOUCH;
        for (uint32_t i = 0; i < have; i++) {
                uint64_t a = start + i * PAGE_SIZE;
                pte_slot_t *pte = mapped && (int64_t)i < got && in_vma(&f->vma, a) ? pt_find(a) : NULL;
                bool charged = pte && charge && mm_charge_page() == 0;
                /* Pages nobody asked for enter with A=0, as prefetched ones do. */
                if (pte && charged == charge &&
                    page_install(&pager, pte, taken[i], keep | (charged ? PTE_CHARGED : 0), i == wanted ? PTE_A : 0) == 0) {
                        touched(f, pte);
                        if (i == wanted)
                                result = DONE;
                        continue;
                }
                if (charged)
                        mm_uncharge(1);
                else if (pte && charge && i == wanted)
                        result = NO_MEMORY;
                frame_free(&pager, &vcpu_self.frames, taken[i]);
        }
        pt_unpublish();
        f->kind = FAULT_FILE;
        return result;
}

/* Maps pages of the arena, as far as the object behind it reaches.  Not published on entry. */
static enum outcome shared_map(struct fault *f)
{
        int64_t left = vmexit(EXIT_SHARED_CHECK, f->vma.file, f->vma.off + (f->addr - f->vma.start), 0);

        pt_publish(f->addr);
        bool same = still_mapped(f), mapped = left != -EBADF && same;   /* as above */
        pte_slot_t *pte = mapped && left > 0 ? pt_find(f->addr) : NULL;
        uint64_t run_end = (f->addr | (FAULT_AROUND * PAGE_SIZE - 1)) + 1;
        for (uint64_t i = 0; pte && (int64_t)i < left; i++) {
                uint64_t a = f->addr + i * PAGE_SIZE;
                if (a >= f->vma.end || a >= run_end)
                        break;
                pte_t p = atomic_load(pte + i);         /* NONE may carry a stray A or D (pte.h) */
                if (pte_kind(p) == PTE_NONE)
                        atomic_compare_exchange_strong(pte + i, &p,
                                pte_make_arena((f->vma.gpa + (a - f->vma.start)) / PAGE_SIZE, vma_keep(&f->vma)));
        }
        pt_unpublish();
        f->kind = FAULT_SHARED;
        return pte ? DONE : mapped && left <= 0 ? BEYOND_END : is_lost(f, left, same) ? FAR_FAILED : RETRY;
}

/* Waits for the page that we asked for.  Nothing is published: a range operation waits itself for an entry that is BUSY, and nobody but
 * the end of the fetch changes it.  If the page is gone again before we look, the program's access faults anew. */
static void fetch_wait(const struct fault *f)
{
        pte_t now = f->seen;

        do {
                page_wait(f->pte, now);
                now = atomic_load_explicit(f->pte, memory_order_acquire);
        } while ((now & ~PTE_WAITERS) == f->seen);
}

/* Does what an attempt asked for; nothing is published.  RETRY: attempt again. */
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
                fetch_wait(f);
                return DONE;
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
        cleaner_poke();                 /* here, for it may exit */
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

static _Noreturn __attribute__((cold, noinline)) void fail(const struct fault *f, uint64_t addr, enum outcome o)
{
        switch (o) {
        case BEYOND_END:
                program_signal(7, 2, addr);     /* SIGBUS, BUS_ADRERR */
        case NO_MEMORY:
                kern_log(0, "the program touched address 0x%lx, but cache and far memory are full (%lu of %lu pages charged): "
                         "give it a larger --cache or a larger --node", addr, mm_charged(), mm_limit());
                program_signal(7, 2, addr);
        case FAR_FAILED:
                kern_log(0, "the page at 0x%lx cannot be read back (%s)", addr, f->kind == FAULT_FILE || f->kind == FAULT_SHARED ? "file" : "far memory");
                program_signal(7, 2, addr);
        case DENIED:
                program_signal(11, 2, addr);    /* SIGSEGV, SEGV_ACCERR */
        default:
                program_signal(11, 1, addr);    /* SIGSEGV, SEGV_MAPERR */
        }
}

void page_fault(void);
void page_fault(void)
{
        struct vcpu *v = &vcpu_self;
        uint64_t err = v->regs.err, addr = v->cr2;
        struct fault f;

        fault_begin(&f, addr, err & PF_WRITE, err & PF_EXEC);
        v->entry_tsc = control.stats_on ? cpu_tsc() : 0;
        if (v->regs.rip - WINDOW < CONTROL_OFF)
                kern_bug("page fault in kern", addr, v->regs.rip);
        if ((err & PF_RESERVED) && f.addr < TASK_SIZE)  /* a pagetable-based KVM sets it for its own half */
                kern_bug("a page-table entry has reserved bits set", addr, pt_find(addr) ? *pt_find(addr) : 0);

        uint64_t exits = counters()[CNT_EXITS];
        enum outcome o = resolve(&f);
        if (o != DONE)
                fail(&f, addr, o);
        record(&f, v->entry_tsc, exits);
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
                case FAR_FAILED:
                        return -EIO;
                default:
                        return -EFAULT;
                }
        }
        return 0;
}

/* Not in an upcall, which serves a host that may hold locks of its own. */
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
