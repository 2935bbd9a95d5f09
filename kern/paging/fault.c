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
 *         MARKER            prefetch(): the page is there; the next ones are asked for
 *         NEED_FILE         file_fill(), NEED_SHARED: shared_map() (file.c)
 *     GUIDED                the program has a function that is to run while the page is under way:
 *                           page_fault() returns to it, and fault_guide_over() does the rest
 *
 * [I] A fault publishes its address (full barrier) before it reads the VMA tree, and unpublishes it
 * after its last change of an entry.  It changes entries only in the aligned run around that
 * address (FAULT_AROUND).  A range operation changes the tree, waits until no fault is published
 * inside its range, then edits entries (pt_wait_faults).  So the entry that a fault installs always
 * agrees with the tree.  A published fault does not sleep.  It exits only to let the holder of a
 * lock run, or to wake a vCPU that waits for its page: neither exit makes an upcall.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/exit.h"
#include "base/cpu.h"
#include "base/latency.h"
#include "base/print.h"
#include "base/signal.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "far/direct/queue.h"
#include "far/slots.h"
#include "far/timed.h"
#include "pager/pager.h"
#include "paging/cleaner.h"
#include "paging/fault.h"
#include "paging/file.h"
#include "paging/guide.h"
#include "paging/prefetch.h"
#include "paging/profile.h"
#include "paging/record.h"
#include "paging/stuck.h"
#include "space/grow.h"
#include "x86.h"

/* Leaves vma, pte and seen unset: clearing them would cost more than the rest of the entry path. */
static inline void fault_begin(struct fault *f, uint64_t addr, uint64_t error)
{
        f->addr = addr & ~(uint64_t)(PAGE_SIZE - 1);
        f->error = error;
        f->kind = FAULT_SPURIOUS;
        f->refused = 0;
        f->in_range = false;
}

static bool vma_allows(const struct vma *m, const struct fault *f)
{
        if (f->error & PF_WRITE)
                return m->prot & PROT_WRITE;
        if (f->error & PF_EXEC)
                return m->prot & PROT_EXEC;
        return m->prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
}

static inline bool allows(pte_t p, const struct fault *f)
{
        return pte_allows(p, f->error & PF_WRITE, f->error & PF_EXEC);
}

static bool is_shared(const struct vma *m) { return (m->flags & MAP_TYPE) == MAP_SHARED; }

static __attribute__((cold, noinline)) enum outcome lost(struct fault *f)
{
        f->kind = FAULT_FETCH;
        return FAR_FAILED;
}

/* A sampled fetch: the page is there. */
static __attribute__((cold, noinline)) void came(struct fault *f, bool copied)
{
        f->copied = copied;
        f->came = cpu_tsc();
}

/* After page_fetch() with frame n, which has returned err. */
static inline __attribute__((always_inline)) enum outcome begun(struct fault *f, pte_slot_t *pte,
                                                                pte_t p, frame_t n, int err)
{
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

static __attribute__((cold, noinline)) enum outcome fetch_timed(struct fault *f, pte_slot_t *pte,
                                                                pte_t p, frame_t n)
{
        f->asked = cpu_tsc();
        int err = page_fetch(&pager, pte, p, n, counters());
        if (err == 0)
                came(f, true);
        return begun(f, pte, p, n, err);
}

static inline __attribute__((always_inline)) enum outcome fetch(struct fault *f, pte_slot_t *pte,
                                                                pte_t p)
{
        frame_t n = p & PTE_LOST ? FRAME_NONE
                                 : frame_take(&pager, &vcpu_self.frames, counters());
        if (n == FRAME_NONE)
                return p & PTE_LOST ? lost(f) : NEED_FRAME;
        if (__builtin_expect(fetch_sampled(), 0))
                return fetch_timed(f, pte, p, n);
        f->asked = 0;
        return begun(f, pte, p, n, page_fetch(&pager, pte, p, n, counters()));
}

/* Where pages are touched for the first time one after the other, fills as many pages again with
 * zeroes at once, within the published run.  They have A=0, so the hand evicts pages that are not
 * used, and they become NONE again.  Under shadow paging A=0 would cost the first use a trap. */
static void zero_ahead(const struct fault *f, pte_slot_t *pte)
{
        unsigned at = (unsigned)((uintptr_t)pte / sizeof(*pte) % PT_ENTRIES), before = 0;
        uint64_t most = FAULT_AROUND - 1 - at % FAULT_AROUND;
        pte_t ad = control.shadow_paging ? PTE_A | PTE_FRESH : PTE_FRESH;

        if (f->vma.flags & (VMA_TOUCH | VMA_LOCKED | VMA_RANDOM))
                return;
        if (most > (f->vma.end - f->addr) / PAGE_SIZE - 1)
                most = (f->vma.end - f->addr) / PAGE_SIZE - 1;
        /* A hint: those before the run may change. */
        while (before < most && before < at &&
               pte_kind(atomic_load_explicit(pte - before - 1, memory_order_relaxed)) ==
                       PTE_PRESENT)
                before++;
        for (unsigned i = 1; i <= before; i++) {
                if (pte_kind(atomic_load_explicit(pte + i, memory_order_relaxed)) != PTE_NONE ||
                    atomic_load_explicit(&pager.nfree, memory_order_relaxed) <= pager.low)
                        return;
                frame_t n = frame_take(&pager, &vcpu_self.frames, counters());
                if (n == FRAME_NONE)
                        return;
                zero_page(env_frame_va(n));
                if (page_install(&pager, pte + i, n, vma_keep(&f->vma), ad) != 0) {
                        frame_free(&pager, &vcpu_self.frames, n);
                        return;
                }
                count(CNT_ZEROED_AHEAD);
        }
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
        zero_ahead(f, pte);
        return DONE;
}

static __attribute__((noinline)) enum outcome first_touch(struct fault *f, pte_slot_t *pte)
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

static inline __attribute__((always_inline)) enum outcome attempt(struct fault *f)
{
        pte_slot_t *pte = pt_find(f->addr);
        pte_t p = pte ? atomic_load_explicit(pte, memory_order_acquire) : 0;

        switch (pte_kind(p)) {
        case PTE_REMOTE:
                return allows(p, f) ? fetch(f, pte, p) : DENIED;
        case PTE_NONE:
                return first_touch(f, pte);
        case PTE_PRESENT:
        case PTE_ARENA:
                /* Another vCPU was first, unless the access is denied. */
                return allows(p, f) ? DONE : DENIED;
        case PTE_HELD:
                if (!allows(p, f))
                        return DENIED;
                f->seen = p;
                return page_use_marker(pte, p) ? MARKER : RETRY;
        case PTE_BUSY:
        case PTE_PART:
                f->pte = pte;
                f->seen = p;
                return WAIT_PTE;
        default:
                kern_bug("a page-table entry in no known state", p, f->addr);
        }
}

/* The frame that the entry named. */
static frame_t frame_of(const struct fault *f)
{
        return (frame_t)(pte_num(f->seen) - pager.pfn0);
}

/* Waits for the page that this vCPU asked for.  No fault is published: a range operation waits by
 * itself while an entry is BUSY, and only the end of the fetch changes the entry.  If the page is
 * evicted again before this vCPU looks, the program's access faults again.  If the page cannot be
 * read, the entry is LOST, and this vCPU still owns the frame. */
static enum outcome fetch_wait(struct fault *f)
{
        pte_t now = f->seen;

        do {
                page_wait(f->pte, now);
                now = atomic_load_explicit(f->pte, memory_order_acquire);
        } while ((now & ~PTE_WAITERS) == f->seen);
        if (f->asked)
                came(f, false);
        if (!env_fetch_failed())
                return DONE;
        frame_free(&pager, &vcpu_self.frames, frame_of(f));
        return FAR_FAILED;
}

/* Waits for the page that this vCPU asked for, and asks for the pages that it points to. */
static enum outcome fetched(struct fault *f)
{
        enum outcome o = fetch_wait(f);

        if (prefetch_follows() && o == DONE && !f->in_range)
                prefetch_pointed(vcpu_self.cr2, frame_of(f));
        return o;
}

/* Waits for a page that was asked for ahead. */
static enum outcome arrives(struct fault *f)
{
        page_wait(f->pte, f->seen);
        timed_stay();
        return RETRY;
}

/* The program touches a prefetched page that is still under way, or that was due but not delivered
 * yet (far/timed.h): then the page is a marker like any other.  Called once a fault. */
static enum outcome touched_early(struct fault *f, uint64_t exits)
{
        bool slow = timed_poll_slow();
        pte_t now = atomic_load_explicit(f->pte, memory_order_relaxed);

        if (!slow && ((now ^ f->seen) & ~PTE_WAITERS) != 0) {
                f->kind = FAULT_MARKER;
                if (!f->in_range && pte_kind(now) != PTE_HELD)
                        prefetch(f->addr, LOOKAHEAD_MARKER);
                return RETRY;
        }
        f->kind = FAULT_WAIT;
        slots_promote(frame_of(f));
        if (f->in_range)
                return arrives(f);
        count(CNT_PREFETCH_LATE);
        prefetch(f->addr, LOOKAHEAD_LATE);
        return guide_begin(f, WAIT_PTE, HINT_MISSED, exits) ? GUIDED : arrives(f);
}

static void profile_late(const struct fault *f, uint64_t began, bool again)
{
        if (began)
                profile_add(&(struct profile_wait){ .addr = f->addr,
                                                    .ticks = cpu_tsc() - began,
                                                    .again = again,
                                                    .late = true,
                                                    .in_call = f->in_range });
}

static uint64_t wait_begins(void) { return profiling() ? cpu_tsc() : 0; }

/* The page is under way already: a prefetch, or a fetch of another vCPU. */
static enum outcome wait_for_other(struct fault *f, uint64_t exits)
{
        bool again = f->kind == FAULT_WAIT;     /* page_wait() may come back early */
        uint64_t began = wait_begins();
        enum outcome o = RETRY;

        if ((f->seen & PTE_PREF) && !again) {
                o = touched_early(f, exits);
        } else {
                page_wait(f->pte, f->seen);
                f->kind = FAULT_WAIT;
        }
        if (o == RETRY && f->kind == FAULT_WAIT)
                profile_late(f, began, again);
        return o;
}

/* Does the step that an attempt asked for; no fault is published.  RETRY: attempt again. */
static enum outcome settle(struct fault *f, enum outcome o, uint64_t exits)
{
        switch (o) {
        case RETRY:
                return RETRY;
        case WAIT_PTE:
                return wait_for_other(f, exits);
        case FETCHING:
                direct_ring();
                if (recording())
                        record_wait(f->addr);
                if (!f->in_range)
                        prefetch(f->addr, LOOKAHEAD_MISS);
                if (!f->in_range && guide_begin(f, FETCHING, HINT_MISSED, exits))
                        return GUIDED;
                return fetched(f);
        case MARKER:
                count(CNT_MARKERS);
                count(CNT_PREFETCH_HITS);
                f->kind = FAULT_MARKER;
                prefetch(f->addr, LOOKAHEAD_MARKER);
                if (f->in_range)
                        return DONE;
                if (prefetch_follows())
                        prefetch_pointed(vcpu_self.cr2, frame_of(f));
                return guide_begin(f, MARKER, HINT_USED, exits) ? GUIDED : DONE;
        case NEED_FRAME:
                vcpu_self.stuck.waited = !f->in_range;
                return frames_wait() == 0 ? RETRY : NO_MEMORY;
        case NEED_TABLE:
                return pt_make(f->addr) ? RETRY : NO_MEMORY;
        case NEED_VMA:
                return mm_grow_stack(f->addr) == 0 ? RETRY : UNMAPPED;
        case NEED_FILE:
                o = file_fill(f);
                return o == NEED_FRAME ? settle(f, o, exits) : o;
        case NEED_SHARED:
                return shared_map(f);
        default:
                return o;
        }
}

static inline __attribute__((always_inline)) enum outcome attempt_published(struct fault *f)
{
        pt_publish(f->addr);
        enum outcome o = attempt(f);
        pt_unpublish();
        return o;
}

/* A fault is over: by o, unless its instruction can never end. */
static inline enum outcome over(enum outcome o)
{
        if (o != DONE || __builtin_expect(!vcpu_self.stuck.waited, 1))
                return o;
        return is_stuck() ? NO_MEMORY : DONE;
}

/* After an attempt that did not succeed: o. */
static __attribute__((noinline)) enum outcome settle_and_repeat(struct fault *f, enum outcome o,
                                                                uint64_t exits)
{
        do {
                o = settle(f, o, exits);
                if (o == RETRY)
                        o = attempt_published(f);
                else
                        break;
        } while (o != DONE);
        return over(o);
}

/* No program has memory there. */
static inline bool is_reserved(uint64_t addr)
{
        return addr >= TASK_SIZE || (addr >= RESERVED_START && addr < RESERVED_END);
}

/* exits: how many exits this vCPU had made before. */
static inline __attribute__((always_inline)) enum outcome resolve(struct fault *f, uint64_t exits)
{
        if (is_reserved(f->addr))
                return UNMAPPED;
        enum outcome o = attempt_published(f);
        if (o != DONE)
                o = settle_and_repeat(f, o, exits);
        cleaner_poke();                 /* here, because it may exit */
        return o;
}

static __attribute__((cold, noinline)) void record_parts(const struct fault *f, uint64_t began)
{
        if (began)                      /* there are statistics */
                latency_fetch(began, f->asked, f->came, cpu_tsc(), f->copied);
        if (profiling())
                profile_add(&(struct profile_wait){ .addr = f->addr,
                                                    .ticks = f->came - f->asked,
                                                    .in_call = f->in_range });
}

/* The fault that began at tsc (0: not measured), when the vCPU had made `exits` exits, is over. */
static inline __attribute__((always_inline)) void record(const struct fault *f, uint64_t tsc,
                                                         uint64_t exits)
{
        struct vcpu_stats *s = stats();

        s->faults[f->kind]++;
        if (__builtin_expect(counters()[CNT_EXITS] != exits, 0))
                s->fault_exits[f->kind] += counters()[CNT_EXITS] - exits;
        if (tsc && f->kind < FAULT_SPURIOUS)
                latency_add(f->kind, cpu_tsc() - tsc);
        if (f->kind == FAULT_FETCH && __builtin_expect(f->asked != 0, 0))
                record_parts(f, tsc);
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

static bool is_here(const struct fault *f)
{
        if (is_reserved(f->addr))
                return false;
        pt_publish(f->addr);            /* its table is not reused meanwhile */
        pte_slot_t *pte = pt_find(f->addr);
        pte_t p = pte ? atomic_load_explicit(pte, memory_order_acquire) : 0;
        pt_unpublish();
        return (pte_kind(p) == PTE_PRESENT || pte_kind(p) == PTE_ARENA) && allows(p, f);
}

/* A guide has faulted: it has returned, or touched memory that it should not, or another vCPU has
 * changed the entry meanwhile. */
static __attribute__((cold, noinline)) void guide_faulted(const struct fault *f)
{
        if (vcpu_self.regs.rip == GUIDE_RETURN)
                fault_guide_over(GUIDE_RETURNED);
        else if (!is_here(f))
                fault_guide_over(GUIDE_TOUCHED);
}

/* A pagetable-based KVM sets PF_RESERVED for its own half of the address space. */
static __attribute__((cold, noinline)) void check_reserved_bits(uint64_t addr)
{
        if (addr < TASK_SIZE)
                kern_bug("a page-table entry has reserved bits set", addr,
                         pt_find(addr) ? *pt_find(addr) : 0);
}

void page_fault(void)
{
        struct vcpu *v = &vcpu_self;
        uint64_t err = v->regs.err, addr = v->cr2;
        struct fault f;

        fault_begin(&f, addr, err);
        v->entry_tsc = control.stats_on ? cpu_tsc() : 0;
        if (v->regs.rip - WINDOW < CONTROL_OFF)
                kern_bug("page fault in kern", addr, v->regs.rip);
        /* One test for two rare cases. */
        if (__builtin_expect((err | v->guided) & PF_RESERVED, 0)) {
                if (guide_runs()) {
                        guide_faulted(&f);
                        return;
                }
                check_reserved_bits(addr);
        }

        uint64_t exits = counters()[CNT_EXITS];
        enum outcome o = resolve(&f, exits);
        if (o == DONE)
                record(&f, v->entry_tsc, exits);
        else if (o != GUIDED)
                fail(&f, addr, o);
}

void fault_guide_over(enum guide_end how)
{
        struct guided g;
        bool again = guide_finish(how, &g) && g.event == HINT_MISSED;
        enum outcome o = g.awaits == FETCHING ? fetched(&g.f) : DONE;

        if (g.awaits == WAIT_PTE) {
                uint64_t began = wait_begins();
                arrives(&g.f);
                profile_late(&g.f, began, false);
                /* [I] After any end but a return no other guide begins: a signal may wait, for
                 * which vcpu.regs must be the thread's. */
                g.f.in_range = how != GUIDE_RETURNED;
                o = attempt_published(&g.f);
                if (o != DONE)
                        o = settle_and_repeat(&g.f, o, g.exits);
        }
        o = over(o);                    /* the registers are the thread's again */
        if (o == DONE && again && guide_begin(&g.f, DONE, HINT_CAME, g.exits))
                return;
        if (o == DONE)
                record(&g.f, vcpu_self.entry_tsc, g.exits);
        else if (o != GUIDED)
                fail(&g.f, vcpu_self.cr2, o);
        cleaner_poke();
}

/* For /proc and mincore: a range that was populated is there. */
static void touch(uint64_t addr)
{
        pt_publish(addr);               /* its table is not reused meanwhile */
        pte_slot_t *pte = pt_find(addr);
        if (pte)
                page_touch(pte);
        pt_unpublish();
}

static int fault_in_page(uint64_t addr, bool write)
{
        struct fault f;

        fault_begin(&f, addr, write ? PF_WRITE : 0);
        f.in_range = true;
        uint64_t tsc = control.stats_on ? cpu_tsc() : 0, exits = counters()[CNT_EXITS];
        switch (resolve(&f, exits)) {
        case DONE:
                record(&f, tsc, exits);
                touch(f.addr);
                return 0;
        case NO_MEMORY:
                return -ENOMEM;
        default:
                return -EFAULT;
        }
}

int fault_in(uint64_t start, uint64_t end, bool write)
{
        uint64_t asked = 0;
        int err = 0;

        for (uint64_t a = start & ~(uint64_t)(PAGE_SIZE - 1); a < end && !err; a += PAGE_SIZE) {
                if (a >= asked && a + PAGE_SIZE < end) {
                        asked = end - a < RANGE_AHEAD ? end : a + RANGE_AHEAD;
                        prefetch_range(a, asked, false);
                }
                err = fault_in_page(a, write);
        }
        return err;
}

/* Not for an upcall: the host thread that made it may hold locks. */
int fault_in_all(uint64_t start, uint64_t end, bool write)
{
        int err = 0;

        for (uint64_t a = start, next; a < end && !err; a = next) {
                if (atomic_load_explicit(&control.stopping, memory_order_relaxed))
                        vmexit(EXIT_PAUSE, 0, 0, 0);
                next = end - a < RANGE_AHEAD ? end : a + RANGE_AHEAD;
                err = fault_in(a, next, write);
        }
        return err;
}
