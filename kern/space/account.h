/*
 * The cost of memory: how a VMA is paid for (base/charge.h has the counter), and resource limits.
 */
#ifndef VMRUN_ACCOUNT_H
#define VMRUN_ACCOUNT_H

#include "space/vma.h"

/* Called before any other function here, and before those of base/charge.h. */
void mm_account_init(void);

/* How v is paid for: VMA_CHARGED, VMA_TOUCH or 0. */
uint32_t mm_payment(const struct vma *v);

/* RLIMIT_AS and RLIMIT_DATA: may there be `pages` more pages of v's kind, with `fewer` pages of any
 * kind less? */
bool mm_may_expand(const struct vma *v, uint64_t pages, uint64_t fewer);

/* May this many more pages be locked?  RLIMIT_MEMLOCK (over_limit if exceeded) counts all `pages`,
 * the cache's own share (-ENOMEM) the `whole` of them that are to be resident as a whole. */
int mm_may_lock(uint64_t pages, uint64_t whole, int over_limit);
/* mm_may_lock() for `pages` more pages of v, which is VMA_LOCKED. */
int mm_may_lock_more(const struct vma *v, uint64_t pages, int over_limit);
/* mm_charge() for a system call of the program's.  With mm_lock. */
bool mm_pay(uint64_t pages);
/* What was refused since the last call: a lock, for the cache's share, is said with -v; that memory
 * cannot be paid for, without -v and once a process, as the program sees ENOMEM, or EAGAIN of a new
 * thread.  Without mm_lock, since it may exit. */
void mm_report_refusals(void);
/* That a stack's growth cannot be paid for: as above. */
void mm_report_stack(void);

/* mlockall(MCL_FUTURE): the VMA_LOCK flags of VMAs that are mapped from now on. */
extern uint32_t mm_lock_future __attribute__((visibility("hidden")));

#endif
