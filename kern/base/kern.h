/*
 * What every part of kern may use: this vCPU, exits, logging, the pool, locks.
 */
#ifndef VMRUN_KERN_H
#define VMRUN_KERN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "abi.h"
#include "pager/pager.h"

/* All of kern is one image: data of other files is reached directly, not through a table of addresses. */
#pragma GCC visibility push(hidden)

/* This vCPU's block, at the same address on each vCPU, and the page all share with the host (kern.ld). */
extern struct vcpu vcpu_self;
extern struct vcpu_stats vcpu_self_stats;
extern const struct vcpu_fixed vcpu_self_fixed;
extern uint64_t vcpu_self_xfer[PAGE_SIZE / 8];
extern struct control control;

extern struct pager pager;              /* the cache (state.c) */

/* Exits with an op and its arguments; serves upcalls until the answer is there; returns exit.ret. (exit.c) */
int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2);
int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4);

/* Serves one upcall, which may exit and meet others.  Its answer. (upcall.c) */
int64_t upcall_serve(const struct upcall *u);

/* Stops the VM with a text and two numbers. (print.c) */
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b);
/* level 0: always shown; 1: with -v.  fmt knows %s %u %lu %lx %d %ld. (print.c) */
void kern_log(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A lock whose taker spins, then yields, since the holder may be a thread that does not run, then sleeps. (lock.c) */
struct lock { _Atomic uint32_t v; };    /* enum of lock.c; 0: free */
void lock_take(struct lock *l);
void lock_drop(struct lock *l);
extern struct lock mm_lock;             /* (state.c) guards the VMA tree against other writers, and all range operations */

/* The pool: zeroed 4 KiB pages outside the cache, for page tables and other metadata.  NULL when it cannot grow.
 * A page freed here is reused only for the same purpose (kind), which makes it type-stable. (pool.c) */
enum pool_kind { POOL_PT, POOL_VMA, POOL_KINDS };
void *pool_page(enum pool_kind kind);
void pool_page_free(enum pool_kind kind, void *page);

/* TLB (flush.c).  After flush_all returns, no TLB holds a program translation made before the call. */
void flush_all(void);
/* Flushes this vCPU's own TLB and notes the epoch it has reached. */
void flush_self(void);
/* Waits until every vCPU has flushed since env_flush_begin() gave this epoch; kicks those that run program code. */
void flush_wait(uint64_t epoch);

/* Copies to the program's memory as it would store itself.  0, or -EFAULT. (access.c) */
int kern_copy_out(uint64_t dst, const void *src, size_t len);

/* The far tiers' slots (slots.c). */
uint64_t slots_in_use(void);            /* those that this process holds */
void slots_lease_ahead(void);           /* service vCPU: lease the next slab before the last one is used up */
void slots_fork(void);                  /* before slots are shared with a child: from then on others may free some, too */
bool slots_reach(uint64_t slot);        /* in the child: makes the slab of an inherited slot usable.  False: no memory */

/* The rings to the nodes (rings.c).  A read is over when the entry is no longer BUSY; of a write env_slot_written() tells. */
void ring_read(uint64_t slot, frame_t f, pte_slot_t *pte);
void ring_write(uint64_t slot, frame_t f);      /* who has the pager's writes (pager.h), with env_slot_write_room() */
void ring_write_wait(void);             /* the same: waits, bounded, for the oldest write under way */

/* The service vCPU (cleaner.c). */
_Noreturn void cleaner_main(void);
void cleaner_poke(void);                /* wakes it if it sleeps and free frames are short */
/* Makes a frame available to this vCPU; may sleep, so no fault is published.  0, or -ENOMEM: nothing can be freed. */
int frames_wait(void);

/* Upcalls of fork (fork.c, include/fork.h).  They have the pager to themselves: no other vCPU runs the program, and the cleaner keeps still. */
struct fork_state;
struct fork_vma;
struct fork_page;
int64_t fork_state(struct fork_state *out);
int64_t fork_vmas(uint64_t above, struct fork_vma *out);
int64_t fork_pages(uint64_t from, struct fork_page *out, uint64_t copies, uint64_t copies_most);
int64_t adopt_state(const struct fork_state *in);
int64_t adopt_vmas(const struct fork_vma *in, uint64_t n);
int64_t adopt_pages(struct fork_page *page, uint64_t n);

/* System calls that need no exit (time.c). */
long sys_clock_gettime(const uint64_t a[6]);
long sys_gettimeofday(const uint64_t a[6]);
long sys_time(const uint64_t a[6]);

#pragma GCC visibility pop

static inline struct vcpu_stats *stats(void) { return &vcpu_self_stats; }
static inline uint64_t *counters(void) { return stats()->counter; }
static inline void count(enum vcpu_counter c) { counters()[c]++; }

static inline void *window_va(uint64_t gpa) { return (void *)(gpa - RAM_GPA + WINDOW); }
static inline uint64_t window_gpa(const void *va) { return (uint64_t)va - WINDOW + RAM_GPA; }

/* The corner of libc that compilers may call (string.c). */
void *memcpy(void *restrict d, const void *restrict s, size_t n);
void *memmove(void *d, const void *s, size_t n);
void *memset(void *d, int c, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *s);
void copy_page(void *restrict d, const void *restrict s);
void zero_page(void *d);

#endif
