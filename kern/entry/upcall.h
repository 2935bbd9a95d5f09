/*
 * Serving upcalls: upcall.c, and files of their own for some (fork.c, leak.c).
 */
#ifndef VMRUN_UPCALL_H
#define VMRUN_UPCALL_H

#include <stdint.h>
#include "abi_exits.h"

/* Serves one upcall, which may exit and bring further upcalls.  Returns its answer.  base/exit.c
 * calls it by its address in the image's header (entry.S). */
int64_t upcall_serve(const struct upcall *u);

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

/* UPCALL_LEAKCHECK: compares frames, slots and pins with the page tables; pins: the right number of
 * pins.  Returns the number of inconsistencies. */
int64_t leak_check(uint64_t pins);

#endif
