/*
 * The PTE codec: the only code that knows the bits of a page-table entry (docs/architecture.md,
 * "Page states").
 *
 *   state      bits
 *   NONE       all zero (but for stray A and D): never touched, or content equals its origin:
 *              the VMA decides
 *   PRESENT    P, hardware format; a cache frame, or (ARENA set) a page of the MAP_SHARED arena,
 *              which is not far memory
 *   HELD       frame in 12..51: resident, but the program may not touch it (PROT_NONE), or, with
 *              ACCESS, a touch is to be a fault (a marker)
 *   REMOTE     slot in 12..41: the content is in that slot of the far tiers; with LOST it could not
 *              be read back: an access is SIGBUS, as after an uncorrectable error of memory.  The
 *              stamp says when the page was evicted (TICK, 0: that is not known), and whether it
 *              WAS hot (balance.h)
 *   BUSY       frame in 12..51, WAITERS: being fetched; other vCPUs wait for the entry to change
 *   PART       slot and stamp, WAITERS: bytes of the slot are being read, and the page stays far;
 *              other vCPUs wait likewise.  A vCPU that waits for the whole page sets WANTED, which
 *              stays in REMOTE: the next vCPU that reads the page brings it in
 *
 *   63 62..59 58   57   56   55     54      53    52      51..42 41..12  11..9  8 7 6 5 4 3 2  1 0
 *   NX  0     WAS  LOW  HIGH WANTED CHARGED PREF  WAITERS TICK   slot    state  G 0 D A 0 0 U  W P
 *                                           LOST  FRESH   51..12: frame
 *
 * W, NX, ACCESS (U, the hardware's bit, set where the program may access), CHARGED (this page was
 * charged against the commit limit at its first touch, not with its VMA), HIGH and LOW (the
 * priority that the program gave the page) keep their place in all states.  So protection and
 * charge travel with the page, and a fault on REMOTE needs no VMA.  Not-present forms keep bits 5,
 * 6 and 8 clear: a page walk that began before the entry changed may still set A or D in it.
 *
 * Every transition is one compare-and-swap (Intel SDM vol. 3A 4.8: the CPU's own A/D updates are
 * locked).
 */
#ifndef VMRUN_PTE_H
#define VMRUN_PTE_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t pte_t;                 /* a value */
typedef _Atomic uint64_t pte_slot_t;    /* a place in a page table */

#define PTE_P       (1ull << 0)
#define PTE_W       (1ull << 1)
#define PTE_ACCESS  (1ull << 2)
#define PTE_A       (1ull << 5)
#define PTE_D       (1ull << 6)
#define PTE_PS      (1ull << 7)         /* in a directory: a large page */
#define PTE_G       (1ull << 8)
#define PTE_STATE   (7ull << 9)
#define PTE_NX      (1ull << 63)
#define PTE_WAITERS (1ull << 52)
#define PTE_FRESH   (1ull << 52)        /* of PRESENT: zeroes, not known to be touched */
#define PTE_PREF    (1ull << 53)        /* prefetched and not yet seen accessed */
#define PTE_LOST    (1ull << 53)        /* of REMOTE: see above */
#define PTE_CHARGED (1ull << 54)
#define PTE_WANTED  (1ull << 55)        /* of PART and REMOTE: see above */
#define PTE_HIGH    (1ull << 56)        /* the hand leaves it more often, */
#define PTE_LOW     (1ull << 57)        /* or less (clock.c) */
#define PTE_PRIORITY (PTE_HIGH | PTE_LOW)
#define PTE_WAS     (1ull << 58)        /* of REMOTE and PART: see above */
#define PTE_NUM     0x000ffffffffff000ull
#define PTE_SLOT    0x000003fffffff000ull
#define PTE_TICK_SHIFT 42
#define PTE_TICK    (0x3ffull << PTE_TICK_SHIFT)
#define PTE_STAMP   (PTE_TICK | PTE_WAS)
#define PTE_PROT    (PTE_W | PTE_ACCESS | PTE_NX)
/* Bits that travel with a page through all states. */
#define PTE_KEEP    (PTE_PROT | PTE_CHARGED | PTE_PRIORITY)

/* An entry that leads to a table; with ACCESS if the program may follow. */
#define PTE_TABLE   (PTE_P | PTE_W | PTE_A)
#define PTE_WINDOW  (PTE_P | PTE_A | PTE_D | PTE_G)     /* an entry of the window */

#define PTE_ST_FRAME  (0ull << 9)       /* with P */
#define PTE_ST_REMOTE (1ull << 9)
#define PTE_ST_BUSY   (2ull << 9)
#define PTE_ST_HELD   (3ull << 9)
#define PTE_ST_ARENA  (4ull << 9)       /* with P */
#define PTE_ST_PART   (5ull << 9)

/* The entry of a page that was prefetched, beside its frame and KEEP. */
#define PTE_AHEAD     (PTE_P | PTE_PREF)
#define PTE_MARKER    (PTE_ST_HELD | PTE_PREF)
/* blind: shadow paging, where A=0 would cost more than the fault that it saves. */
static inline pte_t pte_ahead(bool marker, bool blind)
{
        return marker ? PTE_MARKER : blind ? PTE_AHEAD | PTE_A : PTE_AHEAD;
}

enum pte_kind { PTE_NONE, PTE_PRESENT, PTE_ARENA, PTE_HELD, PTE_REMOTE, PTE_BUSY, PTE_PART,
                PTE_BAD };

/* BAD is an entry no transition makes: the caller stops the VM with a dump. */
static inline enum pte_kind pte_kind(pte_t p)
{
        if ((p & ~(PTE_A | PTE_D)) == 0)        /* a stale walk may have left them */
                return PTE_NONE;
        if ((p & PTE_P) && (p & PTE_STATE) == PTE_ST_FRAME)
                return PTE_PRESENT;
        if (p & PTE_P)
                return (p & PTE_STATE) == PTE_ST_ARENA ? PTE_ARENA : PTE_BAD;
        if ((p & PTE_STATE) == PTE_ST_REMOTE)   /* first: most faults meet it */
                return PTE_REMOTE;
        switch (p & PTE_STATE) {
        case PTE_ST_BUSY:   return PTE_BUSY;
        case PTE_ST_HELD:   return PTE_HELD;
        case PTE_ST_PART:   return PTE_PART;
        default:            return PTE_BAD;
        }
}

/* The protection bits of a Linux PROT_* set; x86 cannot write or execute without reading. */
static inline pte_t pte_prot(bool read, bool write, bool exec)
{
        return (read || write || exec ? PTE_ACCESS : 0) | (write ? PTE_W : 0) | (exec ? 0 : PTE_NX);
}

/* The page frame number, of a state that has a frame or a page of the arena; the slot, and what the
 * stamp says, of REMOTE and PART. */
static inline uint64_t pte_num(pte_t p) { return (p & PTE_NUM) >> 12; }
static inline uint64_t pte_slot(pte_t p) { return (p & PTE_SLOT) >> 12; }
static inline uint32_t pte_tick(pte_t p) { return (uint32_t)(p >> PTE_TICK_SHIFT) & 0x3ff; }
static inline bool pte_was_hot(pte_t p) { return p & PTE_WAS; }
/* A tick as far entries are compared with it: the bits below are set, so none is borrowed. */
static inline uint64_t pte_now(uint32_t tick)
{
        return (((uint64_t)tick + 1) << PTE_TICK_SHIFT) - 1;
}
/* How many ticks ago the page was evicted, modulo 1024. */
static inline uint32_t pte_lag(uint64_t now, pte_t p)
{
        return (uint32_t)((now - p) >> PTE_TICK_SHIFT) & 0x3ff;
}

/* pfn: guest-physical page frame number.  keep: PTE_KEEP bits. */
static inline pte_t pte_make_present(uint64_t pfn, pte_t keep, pte_t ad)
{
        return pfn << 12 | keep | ad | PTE_P;
}

static inline pte_t pte_make_arena(uint64_t pfn, pte_t keep)
{
        return pfn << 12 | keep | PTE_ST_ARENA | PTE_A | PTE_P;
}

/* keep: PTE_KEEP, and PTE_STAMP; so with PART. */
static inline pte_t pte_make_remote(uint64_t slot, pte_t keep)
{
        return slot << 12 | keep | PTE_ST_REMOTE;
}

static inline pte_t pte_make_busy(uint64_t pfn, pte_t keep)
{
        return pfn << 12 | keep | PTE_ST_BUSY;
}

static inline pte_t pte_make_part(uint64_t slot, pte_t keep)
{
        return slot << 12 | keep | PTE_ST_PART;
}

static inline pte_t pte_make_held(uint64_t pfn, pte_t keep)
{
        return pfn << 12 | keep | PTE_ST_HELD;
}

/* A large entry (2 MiB) of the window, for a program at privilege level `level`: never far memory,
 * never flushed. */
static inline pte_t pte_make_window(uint64_t gpa, uint32_t level)
{
        return gpa | PTE_WINDOW | PTE_W | PTE_PS | PTE_NX | (level == 3 ? PTE_ACCESS : 0);
}

/* May an access proceed under these protection bits? */
static inline bool pte_allows(pte_t p, bool write, bool exec)
{
        return (p & PTE_ACCESS) && !(write && !(p & PTE_W)) && !(exec && (p & PTE_NX));
}

/* A vCPU that waits for an entry sleeps on its half with WAITERS.  Each completion clears WAITERS.
 * If the entry is then BUSY or PART again, with an equal number, the word differs from the value
 * that the sleeper compared until a vCPU waits for the new completion: no wake-up is lost. */
static inline uint64_t pte_word(const pte_slot_t *pte) { return (uint64_t)pte + sizeof(uint32_t); }
static inline uint32_t pte_word_seen(pte_t p) { return (uint32_t)(p >> 32); }

/* States that own a cache frame named by pte_num(). */
static inline bool pte_has_frame(pte_t p)
{
        enum pte_kind k = pte_kind(p);
        return k == PTE_PRESENT || k == PTE_HELD || k == PTE_BUSY;
}

#endif
