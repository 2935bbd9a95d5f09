/*
 * kern's own accesses to the program's memory: through the window, never at the program's address.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "paging/access.h"
#include "paging/fault.h"

static int copy_out_page(uint64_t dst, const void *src, size_t len)
{
        /* The program has nothing there.  fault_in() cannot report that for the last byte of the
         * address space, since no address follows it. */
        if (dst >= TASK_SIZE || (dst >= RESERVED_START && dst < RESERVED_END))
                return -EFAULT;
        for (;;) {
                pt_publish(dst);
                pte_slot_t *pte = pt_find(dst);
                frame_t n = pte ? frame_pin(pager.frames, pager.pfn0, pte, true) : FRAME_NONE;
                pte_t p = pte ? atomic_load(pte) : 0;
                pt_unpublish();
                if (n != FRAME_NONE) {
                        memcpy((char *)env_frame_va(n) + (dst & (PAGE_SIZE - 1)), src, len);
                        frame_unpin(&pager.frames[n], true);
                        return 0;
                }
                if (pte_kind(p) == PTE_ARENA && pte_allows(p, true, false))
                        return (int)vmexit5(EXIT_ARENA_COPY,
                                            pte_num(p) * PAGE_SIZE + (dst & (PAGE_SIZE - 1)),
                                            (uint64_t)src, len, 0, 0);
                if (fault_in(dst, dst + 1, true) != 0)
                        return -EFAULT;
        }
}

int kern_copy_out(uint64_t dst, const void *src, size_t len)
{
        while (len > 0) {
                size_t n = PAGE_SIZE - (dst & (PAGE_SIZE - 1));
                if (n > len)
                        n = len;
                if (copy_out_page(dst, src, n) != 0)
                        return -EFAULT;
                dst += n;
                src = (const char *)src + n;
                len -= n;
        }
        return 0;
}
