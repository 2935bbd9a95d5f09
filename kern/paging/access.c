/*
 * kern's own accesses to the program's memory: through the window, never at the program's address.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "pager/pager.h"
#include "paging/access.h"
#include "paging/fault.h"
#include "paging/guide.h"

/* Between a buffer in the window and the program's memory at addr.  here: only pages that are
 * resident. */
struct copy { uint64_t addr; char *buffer; bool out, here; };

/* A marker counts as used now.  The program may not access a HELD page that is no marker. */
static bool became_present(uint64_t addr, bool write)
{
        pt_publish(addr);
        pte_slot_t *pte = pt_find(addr);
        pte_t p = pte ? atomic_load_explicit(pte, memory_order_acquire) : 0;
        bool is = pte_kind(p) == PTE_HELD && pte_allows(p, write, false) && page_use_marker(pte, p);
        pt_unpublish();
        if (is)
                count(CNT_PREFETCH_HITS);
        return is;
}

static int copy_page_part(const struct copy *c, size_t len)
{
        uint64_t off = c->addr & (PAGE_SIZE - 1);

        /* The program has nothing there.  fault_in() cannot report that for the last byte of the
         * address space, since no address follows it. */
        if (c->addr >= TASK_SIZE || (c->addr >= RESERVED_START && c->addr < RESERVED_END))
                return -EFAULT;
        for (;;) {
                pt_publish(c->addr);
                pte_slot_t *pte = pt_find(c->addr);
                frame_t n = pte ? frame_pin(pager.frames, pager.pfn0, pte, c->out) : FRAME_NONE;
                pte_t p = pte ? atomic_load(pte) : 0;
                pt_unpublish();
                if (n != FRAME_NONE) {
                        char *at = (char *)env_frame_va(n) + off;
                        memcpy(c->out ? at : c->buffer, c->out ? c->buffer : at, len);
                        frame_unpin(&pager.frames[n], c->out);
                        return 0;
                }
                if (pte_kind(p) == PTE_ARENA && pte_allows(p, c->out, false))
                        return (int)vmexit5(EXIT_ARENA_COPY, pte_num(p) * PAGE_SIZE + off,
                                            (uint64_t)c->buffer, len, c->out, 0);
                if (c->here && !became_present(c->addr, c->out))
                        return -EAGAIN;
                if (!c->here && fault_in(c->addr, c->addr + 1, c->out) != 0)
                        return -EFAULT;
        }
}

static int copy(struct copy c, size_t len)
{
        int err;

        /* A guide's own stack is kern's memory (paging/guide.h), and a guide may wait for nothing
         * else: the read of its fault is under way. */
        if (guide_runs() && guide_stack_has(c.addr, len)) {
                memcpy(c.out ? (char *)c.addr : c.buffer, c.out ? c.buffer : (char *)c.addr, len);
                return 0;
        }
        c.here |= guide_runs();
        while (len > 0) {
                size_t n = PAGE_SIZE - (c.addr & (PAGE_SIZE - 1));
                if (n > len)
                        n = len;
                err = copy_page_part(&c, n);
                if (err)
                        return err;
                c.addr += n;
                c.buffer += n;
                len -= n;
        }
        return 0;
}

int kern_copy_out(uint64_t dst, const void *src, size_t len)
{
        return copy((struct copy){ .addr = dst, .buffer = (char *)src, .out = true }, len);
}

int kern_peek(void *dst, uint64_t src, size_t len)
{
        return copy((struct copy){ .addr = src, .buffer = dst, .here = true }, len);
}

int kern_copy_in(void *dst, uint64_t src, size_t len)
{
        return copy((struct copy){ .addr = src, .buffer = dst, .out = false }, len);
}
