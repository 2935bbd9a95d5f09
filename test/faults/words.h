/*
 * For words.c: memory whose words say their place and the process that wrote them, and the checks
 * of that memory.
 */
#ifndef WORDS_H
#define WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE  4096ul
#define WORDS (PAGE / sizeof(uint64_t))

/* The counts of all processes of the tree.  They share this memory, so the counts of a process that
 * is killed are not lost. */
struct totals {
        _Atomic uint64_t reads, wrong, lost;    /* words, words, pages */
        /* Children, by their end: by themselves; by SIGKILL; by SIGBUS, since a page of theirs was
         * lost before they could lock it; by vmrun; in another way. */
        _Atomic uint64_t ended, killed, spoiled, cut_off, failed;
        _Atomic uint32_t processes;             /* so far */
};
extern struct totals *totals;

/* A thread, with pages of its own: those whose number modulo `threads` is its own. */
struct worker {
        unsigned number;
        unsigned short chance[3];               /* for nrand48() */
};
extern size_t npages;
extern unsigned threads;
extern uint16_t process;                /* of this process, in the tree */

/* Makes memory for npages pages and for their checks.  False: there is none. */
bool memory_make(void);
/* For each thread, and again in each child.  Keeps all memory of this process but the pages in the
 * cache, as far as it is allowed to, so that no fault can hit it; a child does not inherit that.
 * False: there are no descriptors. */
bool memory_begin(void);
/* Writes all pages of w. */
void memory_fill(struct worker *w);
/* Reads all pages of w, word by word. */
void memory_check(struct worker *w);
/* n accesses to pages of w: reads of a page, some of which a write of all of it follows. */
void memory_work(struct worker *w, uint64_t n);
/* Writes pages of w, and reads none, until the process is killed or `parent` has ended. */
void memory_write(struct worker *w, pid_t parent);
/* Below n, which is less than 1 << 31. */
uint64_t below(struct worker *w, uint64_t n);

#endif
