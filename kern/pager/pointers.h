/*
 * Pages that a page points to (`pointers`): content-directed prefetching, after Cooksey, Jourdan
 * and Grunwald, "A stateless, content-directed data prefetching mechanism", ASPLOS 2002.
 *
 * Pure logic.  When a page comes that the program waited for, the words around the touched word are
 * looked at: words that are addresses of far pages are likely to be next, in a list, a tree or a
 * table of objects.  Such a page comes as a marker, so its first use leads on to the pages that it
 * points to.
 *
 * Which of the words lead on depends on the program's structures, so it is learnt: each place,
 * counted in words from the one touched, is looked at only while the pages that it led to were
 * used.  Places that lead on are looked at in each page, the other places in one of POINTERS_ALL.
 */
#ifndef VMRUN_POINTERS_H
#define VMRUN_POINTERS_H

#include <stdbool.h>
#include <stdint.h>

#define POINTERS_BEFORE 16              /* words looked at: before the one touched, */
#define POINTERS_AFTER  48              /* and from it on */
#define POINTERS_PLACES (POINTERS_BEFORE + POINTERS_AFTER)
#define POINTERS_MOST   16              /* pages asked for at a time */
#define POINTERS_ASKED  64              /* pages whose use is waited for */
#define POINTERS_PATIENCE 16            /* pages that lead nowhere before some are passed over, */
#define POINTERS_REST   64              /* and how many at most */
#define POINTERS_ALL    8               /* one of this many pages is looked at in all places */

/* The places that one vCPU has learnt.  Zeroed memory is the initial state. */
struct pointers {
        /* By place: how well it led on; looked at from 0 on. */
        int8_t trust[POINTERS_PLACES];
        /* Pages that were asked for, page + 1, and by which place: a ring. */
        uint64_t page1[POINTERS_ASKED];
        uint8_t place[POINTERS_ASKED];
        uint32_t asked;                 /* ever: modulo the ring's size the next to be replaced */
        uint64_t lead;                  /* a bit a place: it has led on, and is trusted */
        uint32_t rest;                  /* pages to pass over now */
        uint32_t nowhere;               /* pages that led nowhere, one after the other */
        uint32_t turn;                  /* pages looked at */
        uint32_t next;                  /* the place that is tried again next */
};

_Static_assert(POINTERS_PLACES == 64, "a bit each");

enum pointers_answer {
        POINTERS_NO,                    /* it is no address of a far page */
        POINTERS_YES,                   /* it was asked for */
        POINTERS_FULL,                  /* there is no room for it, nor for any other */
};

/* The environment: asks for the page at addr; says whether a page asked for before was used. */
struct pointers_env {
        enum pointers_answer (*ask)(void *arg, uint64_t addr);
        bool (*used)(void *arg, uint64_t page);
        void *arg;
};

/* A page has come, whose word `touched` (0 to 511) the program needs; words: the page's content,
 * which other threads may change meanwhile.  Returns how many pages were asked for. */
uint32_t pointers_follow(struct pointers *p, const uint64_t *words, uint32_t touched,
                         const struct pointers_env *env);

#endif
