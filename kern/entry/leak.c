/*
 * The leak check at exit: compares frames, slots, pins and charges with the page tables and the
 * VMAs.  Nothing else runs meanwhile.
 */
#include "base/charge.h"
#include "base/exit.h"
#include "base/print.h"
#include "base/state.h"
#include "base/tables.h"
#include "entry/upcall.h"
#include "far/slots.h"
#include "far/timed.h"
#include "pager/pager.h"
#include "paging/notice.h"
#include "space/range.h"

/* Waits until all prefetches have completed. */
static void await_prefetches(void)
{
        for (uint32_t i = 0; i < pager.fresh; i++) {
                _Atomic uint64_t *word = &pager.frames[i].word;
                uint64_t w;
                /* An orphan of a page that was unmapped meanwhile (page_detach).  Each sleep is
                 * bounded, since no thread wakes this vCPU. */
                while (((w = atomic_load(word)) & (FRAME_ORPHAN | FRAME_CLAIMED | FRAME_WRITING)) ==
                       (FRAME_ORPHAN | FRAME_CLAIMED)) {
                        if (!timed_wait(word, w, i))
                                vmexit(EXIT_WAIT_PTE, (uint64_t)word, w, 0);
                        timed_poll();
                }
        }
}

/* How many frames, slots and charges the page tables of the program's mappings name. */
struct tally { uint64_t frames, remote, charged, busy; };

static void tally_range(struct tally *t, uint64_t start, uint64_t end)
{
        for (uint64_t a = start; a < end; ) {
                pte_slot_t *pte = pt_find(a);
                if (!pte) {
                        a = (a | ((1 << 21) - 1)) + 1;
                        continue;
                }
                pte_t p = atomic_load(pte);
                /* a prefetch that no vCPU waits for */
                for (; pte_kind(p) == PTE_BUSY && (p & PTE_PREF); p = atomic_load(pte))
                        page_wait(pte, p);
                t->frames += pte_kind(p) == PTE_PRESENT || pte_kind(p) == PTE_HELD;
                t->remote += pte_kind(p) == PTE_REMOTE;
                t->busy += pte_kind(p) == PTE_BUSY || pte_kind(p) == PTE_PART;
                t->charged += (p & PTE_CHARGED) != 0;
                a += PAGE_SIZE;
        }
}

static int64_t expect(const char *what, uint64_t have, uint64_t want)
{
        if (have == want)
                return 0;
        kern_log(0, "leak check: %s: %lu, but %lu expected", what, have, want);
        return 1;
}

int64_t leak_check(uint64_t pins)
{
        struct vma v;
        struct vma_hidden hidden;
        struct tally t = { 0 };
        uint64_t resident = 0, orphans = 0, held = 0, frame_slots = 0, listed = 0;
        uint64_t locked = 0, hot = 0;
        int64_t bad = 0;

        for (uint64_t above = 0; vma_read(above, &v, &hidden); above = v.end) {
                for (uint64_t s = v.start, e; mm_part(&s, v.end, &e); s = e)
                        tally_range(&t, s, e);
                if (v.flags & VMA_CHARGED)
                        t.charged += page_count(v.end - v.start);
        }
        await_prefetches();
        notices_settle();
        for (uint32_t i = 0; i < pager.fresh; i++) {
                uint64_t w = pager.frames[i].word;
                resident += (w & FRAME_RESIDENT) != 0 && !(w & FRAME_ORPHAN);
                /* The hand frees them when it next passes. */
                orphans += (w & FRAME_ORPHAN) != 0;
                held += (w & FRAME_PINS) + ((w & FRAME_CLAIMED) != 0);
                locked += (w & FRAME_LOCKED) != 0;
                hot += (w & FRAME_HOT) != 0;
                frame_slots += (w & FRAME_RESIDENT) && pager.frames[i].slot != SLOT_NONE;
        }
        uint32_t counted = pager.nhot + (uint32_t)pager.freed.hot;
        for (uint32_t i = 0; i < control.nvcpus; i++) {
                listed += vcpu_block(i)->frames.free.n;
                counted += (uint32_t)vcpu_block(i)->frames.hot;
        }
        bad += expect("resident frames", resident, t.frames);
        bad += expect("pins and claims", held, pins);
        bad += expect("locked frames", pager.locked, locked);
        bad += expect("hot frames", counted, hot);
        bad += expect("busy pages", t.busy, 0);
        bad += expect("free, resident and orphaned frames",
                      pager.nfree + listed + resident + orphans, pager.nframes);
        bad += expect("slots in use", slots_in_use(), t.remote + frame_slots);
        bad += expect("charged pages", mm_charged(), t.charged);
        return bad;
}
