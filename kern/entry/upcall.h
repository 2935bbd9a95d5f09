/*
 * Upcalls that are served in files of their own (fork.c, leak.c).
 */
#ifndef VMRUN_UPCALL_H
#define VMRUN_UPCALL_H

#include <stdint.h>

/* fork (include/fork_state.h).  The caller has the pager to itself: no other vCPU runs the program,
 * and the cleaner is quiesced. */
struct fork_state;
struct fork_vma;
struct fork_page;
int64_t fork_state(struct fork_state *out);
int64_t fork_vmas(uint64_t above, struct fork_vma *out);
int64_t fork_pages(uint64_t from, struct fork_page *out, uint64_t copies, uint64_t copies_most);
int64_t adopt_state(const struct fork_state *in);
int64_t adopt_vmas(const struct fork_vma *in, uint64_t n);
int64_t adopt_pages(struct fork_page *page, uint64_t n);

/* UPCALL_LEAKCHECK: compares frames, slots and pins with the page tables; pins: how many there
 * should be.  Returns the number of inconsistencies. */
int64_t leak_check(uint64_t pins);

#endif
