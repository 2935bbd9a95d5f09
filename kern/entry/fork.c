/*
 * fork, kern's part: takes an address space out of the parent's guest, and puts it into the child's
 * (include/fork_state.h has the structs, docs/architecture.md the whole of fork).
 *
 * The caller's host thread has stopped everything else that could change pages: all other program
 * threads, and the cleaner.  So this vCPU has the pager and the pager's writes to itself.  [I]
 * Entries lose D here while they have A, so all TLBs are flushed before the program continues: no
 * vCPU is in PROGRAM now, and each looks at the flush epoch before it enters PROGRAM
 * (base/flush.c).
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/cpu.h"
#include "base/print.h"
#include "base/state.h"
#include "base/tables.h"
#include "entry/upcall.h"
#include "far/slots.h"
#include "fork_state.h"
#include "mm/brk.h"
#include "pager/pager.h"
#include "paging/notice.h"
#include "space/range.h"

/* ---- the parent ---- */

int64_t fork_state(struct fork_state *out)
{
        notices_settle();
        slots_fork();
        *out = (struct fork_state){ .fs = cpu_fs(), .gs = cpu_gs() };
        mm_get_brk(&out->brk_start, &out->brk_now);
        return 0;
}

int64_t fork_vmas(uint64_t above, struct fork_vma *out)
{
        struct vma v;
        struct vma_hidden hidden;
        int64_t n = 0;

        for (; n < (int64_t)FORK_VMAS_MAX && vma_read(above, &v, &hidden); above = v.end)
                out[n++] = (struct fork_vma){
                        .start = v.start, .end = v.end, .off = v.off, .gpa = v.gpa,
                        .prot = v.prot, .flags = v.flags & ~VMA_LOCK, .file = v.file,
                        .order = (uint16_t)v.order,
                        .dropped = !!(v.flags & VMA_DONTFORK),
                };
        return n;
}

/* A batch of pages for the child. */
struct batch {
        struct fork_page *out;
        uint32_t n;
        /* How many more pages may be copied to the child; how many if no slot can be allocated. */
        uint64_t copies, copies_most;
        bool wrote;
};

/* Completes writes, and evicts nothing: a slot in the batch is not shared yet, and a page that this
 * vCPU looks at must stay. */
static void complete_writes(void)
{
        slots_write_wait();
        clock_complete(&pager, counters());
}

/* Writes this dirty page to a slot.  True: the child finds the content there. */
static bool write_out(struct batch *b, pte_slot_t *pte)
{
        while (!env_slot_write_room())
                complete_writes();
        bool done = page_write_back(&pager, pte, counters()) >= 0;
        b->wrote |= done;
        return done;
}

/* A resident page.  A page that equals its origin is left out: the child's VMA produces it
 * again. */
static int take_resident(struct batch *b, uint64_t addr, pte_slot_t *pte, pte_t p)
{
        struct frame *f = &pager.frames[pte_num(p) - pager.pfn0];
        bool dirty = (p & PTE_D) || (atomic_load(&f->word) & FRAME_DIRTY);

        if (!dirty && f->slot == SLOT_NONE)
                return 0;
        if (dirty && (b->copies > 0 || !write_out(b, pte))) {
                if (b->copies_most == 0)
                        return -ENOMEM;
                b->copies -= b->copies > 0;
                b->copies_most--;
                b->out[b->n++] = (struct fork_page){ addr, p };
                return 0;
        }
        b->out[b->n++] = (struct fork_page){ addr, pte_make_remote(f->slot, p & PTE_KEEP) };
        return 0;
}

static int take_page(struct batch *b, uint64_t addr, pte_slot_t *pte)
{
        for (;;) {
                pte_t p = atomic_load(pte);
                switch (pte_kind(p)) {
                case PTE_NONE:
                case PTE_ARENA:
                        return 0;
                case PTE_REMOTE:
                        /* the child has ticks of its own */
                        b->out[b->n++] = (struct fork_page){ addr, p & ~PTE_STAMP };
                        return 0;
                case PTE_PRESENT:
                case PTE_HELD:
                        return take_resident(b, addr, pte, p);
                case PTE_BUSY:
                case PTE_PART:          /* the fetch of a thread that was stopped */
                        page_wait(pte, p);
                        continue;
                default:
                        kern_bug("a page-table entry in no known state", p, addr);
                }
        }
}

/* Pages of [*at, end) until the batch is full; *at: where to continue. */
static int take_range(struct batch *b, uint64_t *at, uint64_t end)
{
        pte_slot_t *pte;
        int err = 0;

        for (; !err && b->n < FORK_PAGES_MAX && *at < end && (pte = pt_next(at, end));
             *at += PAGE_SIZE)
                err = take_page(b, *at, pte);
        return err;
}

static bool pages_travel(const struct vma *v)
{
        return !(v->flags & (MAP_SHARED | VMA_DONTFORK | VMA_WIPEONFORK));
}

int64_t fork_pages(uint64_t from, struct fork_page *out, uint64_t copies, uint64_t copies_most)
{
        struct batch b = { .out = out, .copies = copies, .copies_most = copies_most };
        struct vma v;
        struct vma_hidden hidden;
        int err = 0;

        while (!err && b.n < FORK_PAGES_MAX && vma_read(from, &v, &hidden)) {
                from = higher(from, v.start);
                if (!pages_travel(&v))
                        from = v.end;
                for (uint64_t e; !err && b.n < FORK_PAGES_MAX && mm_part(&from, v.end, &e); )
                        err = take_range(&b, &from, e);
        }
        while (pager.writing > 0)       /* a child that reads a slot finds the content there */
                complete_writes();
        if (b.wrote) {
                env_flush_begin();
                count(CNT_BEGUN_FORK);
        }
        return err ? err : (int64_t)b.n;
}

/* ---- the child: kern has just started, and has no VMA and no page ---- */

int64_t adopt_state(const struct fork_state *in)
{
        cpu_set_fs(in->fs);
        cpu_set_gs(in->gs);
        mm_restore_brk(in->brk_start, in->brk_now);
        return 0;
}

static int adopt_vma(const struct fork_vma *in)
{
        const struct vma v = {
                .start = in->start, .end = in->end, .off = in->off, .gpa = in->gpa,
                .prot = in->prot, .flags = in->flags, .file = in->file, .order = in->order,
        };

        int err = vma_reserve(1);
        if (!err && (v.flags & VMA_CHARGED) && !mm_charge(page_count(v.end - v.start)))
                err = -ENOMEM;
        if (err)
                return err;
        vma_begin();
        vma_insert(&v);
        vma_end();
        return 0;
}

int64_t adopt_vmas(const struct fork_vma *in, uint64_t n)
{
        int err = 0;

        lock_take(&mm_lock);
        for (uint64_t i = 0; !err && i < n && i < FORK_VMAS_MAX; i++)
                err = adopt_vma(&in[i]);
        lock_drop(&mm_lock);
        return err;
}

/* A page that was copied gets a frame.  It is in no slot, hence dirty. */
static int adopt_content(pte_slot_t *pte, struct fork_page *page)
{
        pte_t keep = page->pte & PTE_KEEP;
        frame_t n = frame_take(&pager, &vcpu_self.frames, counters());

        if (n == FRAME_NONE)
                return -ENOMEM;
        struct frame *f = &pager.frames[n];
        atomic_fetch_or(&f->word, FRAME_DIRTY);
        if (keep & PTE_ACCESS) {
                page_install(&pager, pte, n, keep, PTE_A);
        } else {
                atomic_store(&f->pte, pte);
                atomic_store(pte, pte_make_held(pager.pfn0 + n, keep));
                frame_drop_claim(f);
        }
        page->pte = atomic_load(pte);
        return 0;
}

static int adopt_page(struct fork_page *page)
{
        pte_slot_t *pte = pt_make(page->addr);

        if (!pte || ((page->pte & PTE_CHARGED) && mm_charge_page() != 0))
                return -ENOMEM;
        if (pte_kind(page->pte) != PTE_REMOTE)
                return adopt_content(pte, page);
        if (page->pte & PTE_STAMP)
                kern_bug("a page has a stamp of its parent's", page->pte, page->addr);
        if (!slots_reach(pte_slot(page->pte)))
                return -EIO;
        atomic_store(pte, page->pte);
        return 0;
}

int64_t adopt_pages(struct fork_page *page, uint64_t n)
{
        int err = 0;

        for (uint64_t i = 0; !err && i < n && i < FORK_PAGES_MAX; i++)
                err = adopt_page(&page[i]);
        return err;
}
