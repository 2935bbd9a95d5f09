/*
 * Bytes of far pages that stay far (vmg_read).
 *
 * While the bytes are read, the page's entry is PART: so the slot is not freed or written to, and a
 * vCPU that wants the page itself waits.  The bytes go straight to their destination, if its page
 * is here.  Else they go by way of this vCPU's bounce page, and the destination is touched when the
 * entry is REMOTE again: so nothing is held while a page is faulted in.
 *
 * A page that is here stays as cold as it is.  All other kinds of pages take the ordinary path.
 *
 * A guide cannot wait for bytes: the fault that it runs for has this vCPU's place for demand reads,
 * and PART would keep other vCPUs from the page until the guide is over.  So a guide gets bytes
 * that are here, and far pages are asked for ahead, like any page.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "far/slots.h"
#include "pager/pager.h"
#include "paging/access.h"
#include "paging/guide.h"
#include "paging/part.h"
#include "paging/prefetch.h"
#include "space/vma.h"

/* Bytes of one page.  bounce: their place in the bounce page.  frame: of the destination, pinned;
 * or FRAME_NONE. */
struct part { uint64_t dst, src; uint32_t offset, len; bool raw; char *bounce; frame_t frame; };

static bool is_program(uint64_t addr)
{
        return addr < TASK_SIZE && (addr < RESERVED_START || addr >= RESERVED_END);
}

/* Where the bytes go. */
static char *open_destination(struct part *c)
{
        uint64_t offset = c->dst % PAGE_SIZE;

        c->frame = FRAME_NONE;
        if (offset + c->len > PAGE_SIZE || !is_program(c->dst))
                return c->bounce;
        pt_publish(c->dst);
        pte_slot_t *pte = pt_find(c->dst);
        if (pte)
                c->frame = frame_pin(pager.frames, pager.pfn0, pte, true);
        pt_unpublish();
        return c->frame == FRAME_NONE ? c->bounce : (char *)env_frame_va(c->frame) + offset;
}

/* The bytes have come, unless err. */
static int close_destination(const struct part *c, int err)
{
        if (c->frame != FRAME_NONE)
                frame_unpin(&pager.frames[c->frame], true);
        else if (!err)
                err = kern_copy_out(c->dst, c->bounce, c->len);
        /* the destination of a guide, which is not here and is not asked for */
        return err == -EAGAIN ? -EFAULT : err;
}

/* Does an entry that is NONE stand for zeroes that the program may read? */
static bool is_zero(uint64_t addr)
{
        const uint32_t any = PROT_READ | PROT_WRITE | PROT_EXEC;
        struct vma m;

        return mm_lookup(addr & ~(uint64_t)(PAGE_SIZE - 1), &m) == 0 && m.file == FILE_NONE &&
               (m.flags & MAP_TYPE) != MAP_SHARED && (m.prot & any);
}

/* The entry is PART. */
static int read_far(struct part *c, pte_slot_t *pte, uint64_t slot)
{
        struct slot_part bytes = {
                .slot = slot, .offset = c->offset, .len = c->len, .raw = c->raw
        };

        slot_part_ask(&bytes);
        count(CNT_READ_PARTS);
        char *to = open_destination(c);         /* while they are on their way */
        int err = slot_part_take(&bytes, to);
        page_part_over(pte, err);
        return close_destination(c, err);
}

/* The frame is pinned. */
static int read_here(struct part *c, frame_t n)
{
        memcpy(open_destination(c), (char *)env_frame_va(n) + c->offset, c->len);
        frame_unpin(&pager.frames[n], false);
        return close_destination(c, 0);
}

static int read_zeroes(struct part *c)
{
        memset(open_destination(c), 0, c->len);
        return close_destination(c, 0);
}

static int read_ordinarily(struct part *c)
{
        c->frame = FRAME_NONE;
        int err = kern_copy_in(c->bounce, c->src, c->len);
        return err ? err : close_destination(c, 0);
}

/* May the page of an entry that is NONE come, if it is touched? */
static bool is_mapped(uint64_t addr)
{
        struct vma m;

        return mm_lookup(addr & ~(uint64_t)(PAGE_SIZE - 1), &m) == 0 && vma_accessible(&m);
}

/* One look at the page.  -EAGAIN: look again. */
static int try_part(struct part *c)
{
        pt_publish(c->src);
        pte_slot_t *pte = pt_find(c->src);
        pte_t p = pte ? atomic_load_explicit(pte, memory_order_acquire) : 0;
        enum pte_kind k = pte_kind(p);
        bool may = pte_allows(p, false, false), lost = k == PTE_REMOTE && (p & PTE_LOST);
        bool far = k == PTE_REMOTE && !lost && !(p & PTE_WANTED);
        bool guided = guide_runs(), taken = far && may && !guided && page_part(pte, p);
        bool zero = k == PTE_NONE && is_zero(c->src);
        bool none = k == PTE_NONE ? guided && !is_mapped(c->src) : guided && !may;
        frame_t n = k == PTE_PRESENT && may
                            ? frame_pin_as(pager.frames, pager.pfn0, pte, false, 0)
                            : FRAME_NONE;
        pt_unpublish();

        if (taken)
                return read_far(c, pte, pte_slot(p));
        if (n != FRAME_NONE)
                return read_here(c, n);
        if (zero)
                return read_zeroes(c);
        if (lost && may)
                return -EIO;
        if (none)
                return -EFAULT;
        if (guided)
                return read_ordinarily(c);
        if (k == PTE_PART)
                page_wait_part(pte, p);
        else if (!may || (!far && k != PTE_PRESENT))
                return read_ordinarily(c);
        /* the entry has changed, or will at once: its frame is claimed */
        return -EAGAIN;
}

/* Looks once, for a guide.  Asks for the pages that are not here, also in the rest of the range. */
static int read_for_guide(struct part *c, uint64_t end)
{
        int err = try_part(c);

        if (err == -EAGAIN)
                counters()[CNT_HINTED] += prefetch_range(c->src, end, true);
        return err;
}

/* For a thread: waits as a fault does, and the threads may be stopped meanwhile. */
static int read_for_thread(struct part *c)
{
        int err;

        if (atomic_load_explicit(&control.stopping, memory_order_relaxed))
                vmexit(EXIT_PAUSE, 0, 0, 0);
        for (unsigned spins = 0; (err = try_part(c)) == -EAGAIN; )
                env_relax(spins++);
        return err;
}

int64_t part_read(uint64_t dst, uint64_t src, uint64_t len, bool raw)
{
        char *bounce = slot_bounce();

        if (!bounce)
                return -ENOMEM;
        if (!raw && !atomic_load_explicit(&control.parts_read, memory_order_relaxed))
                atomic_store_explicit(&control.parts_read, 1, memory_order_relaxed);
        for (uint64_t done = 0; done < len; ) {
                struct part c = { .dst = dst + done, .src = src + done, .raw = raw };
                c.offset = (uint32_t)(c.src % PAGE_SIZE);
                c.bounce = bounce + c.offset;
                c.len = PAGE_SIZE - c.offset;
                if (c.len > len - done)
                        c.len = (uint32_t)(len - done);
                int err = !is_program(c.src) ? -EFAULT
                          : guide_runs()     ? read_for_guide(&c, src + len)
                                             : read_for_thread(&c);
                if (err)
                        return err;
                done += c.len;
        }
        return (int64_t)len;
}
