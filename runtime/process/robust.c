/*
 * Robust lists: what the kernel does for a thread that ends while it holds locks
 * (Documentation/locking/robust-futexes.rst), and the wake-up of futexes that this needs.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include "marshal/call.h"
#include "process/robust.h"

/* The word must be aligned and at an address of the program. */
long futex_bad_word(uint64_t addr) { return addr & 3 ? -EINVAL : addr >= TASK_SIZE ? -EFAULT : 0; }

/* The flags for the host kernel, beside the command. */
uint64_t futex_flags(const struct gmem_word *w, uint64_t op)
{
        return (op & FUTEX_CLOCK_REALTIME) | (gmem_word_shared(w) ? 0 : FUTEX_PRIVATE_FLAG);
}

/* A futex without FUTEX_PRIVATE_FLAG whose word lies in private memory: Linux then identifies it by
 * its page, which must be writable. */
bool futex_cannot_be_shared(struct thread *t, uint64_t addr, uint64_t op, const struct gmem_word *w)
{
        return !(op & FUTEX_PRIVATE_FLAG) && !gmem_word_shared(w) && gmem_check(t, addr, 4, true);
}

/* Errors that the kernel finds in a futex word before all others.  A private word that is not
 * mapped is not an error. */
long futex_bad_key(struct thread *t, uint64_t addr, uint64_t op)
{
        struct gmem_word w;
        long ret = futex_bad_word(addr);

        if (ret || (op & FUTEX_PRIVATE_FLAG) || (ret = gmem_word(t, addr, false, &w)) != 0)
                return ret;
        if (futex_cannot_be_shared(t, addr, op, &w))
                ret = -EFAULT;
        gmem_word_drop(t, &w, false);
        return ret;
}

long futex_wake_as(struct thread *t, uint64_t addr, uint64_t op, uint64_t n, uint64_t bits)
{
        struct gmem_word w;
        /* this makes a shared word resident: another process may wait on a page that this process
         * has not touched */
        long ret = futex_bad_key(t, addr, op);

        if (ret || !gmem_word_here(t, addr, &w))
                return ret;
        ret = sys_own(__NR_futex, P(w.host), (op & FUTEX_CMD_MASK) | futex_flags(&w, 0), n, 0, 0,
                      bits);
        gmem_word_drop(t, &w, false);
        return ret;
}

long futex_wake(struct thread *t, uint64_t addr, uint32_t n)
{
        return futex_wake_as(t, addr, FUTEX_WAKE, n, 0);
}

#define ROBUST_MOST 2048        /* the kernel's bound for a list that is a ring or garbage */

/* The owner of the lock at addr has ended. */
static void owner_died(struct thread *t, uint64_t addr, uint32_t tid, bool pi, bool pending)
{
        struct gmem_word w;

        if ((addr & 3) || gmem_word(t, addr, true, &w) != 0)
                return;
        _Atomic uint32_t *word = (_Atomic uint32_t *)w.host;
        uint32_t old = atomic_load(word);
        /* the owner died between its unlock and its wake-up */
        bool mine = false, wakes = pending && !pi && old == 0;

        while (!wakes && (old & FUTEX_TID_MASK) == tid && !mine)
                mine = atomic_compare_exchange_strong(word, &old,
                                                      (old & FUTEX_WAITERS) | FUTEX_OWNER_DIED);
        gmem_word_drop(t, &w, mine);
        if (wakes || (mine && !pi && (old & FUTEX_WAITERS)))
                futex_wake(t, addr, 1);
}

void robust_list_end(struct thread *t, uint64_t head, uint32_t tid)
{
        struct { uint64_t next; int64_t offset; uint64_t pending; } h;
        uint64_t entry, next;

        if (!head || gmem_read(t, &h, head, sizeof(h)))
                return;
        /* Bit 0 of a pointer marks a lock with priority inheritance. */
        entry = h.next;
        for (int n = 0; (entry & ~1ull) != head && n < ROBUST_MOST; n++) {
                bool readable = gmem_read(t, &next, entry & ~1ull, sizeof(next)) == 0;
                if ((entry & ~1ull) != (h.pending & ~1ull))
                        owner_died(t, (entry & ~1ull) + (uint64_t)h.offset, tid, entry & 1, false);
                if (!readable)
                        return;
                entry = next;
        }
        if (h.pending & ~1ull)
                owner_died(t, (h.pending & ~1ull) + (uint64_t)h.offset, tid, h.pending & 1, true);
}
