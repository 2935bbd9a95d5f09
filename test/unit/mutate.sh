#!/bin/bash
# Mutants of the pager, its prefetch policies, kern's flushes and fault path, of the wire by the
# clock, of the futexes, and of when a program gives up: see mutants.sh.
# shellcheck disable=SC2317,SC2046 # called by mutant; paths
: "${STEPS:=400000000}"
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# The model check.
build_test() { compile "$unit/test_pager_model.c" "$unit/pager_sched.c" "$unit/pager_env.c"; }

# Eviction and flushes
mutant pager/pager.h "evicts without waiting for the flush" \
    's/^(.*return )\(int32_t\)age < 0.*$/\1next \&\& age ? 0 : 0;/'
mutant pager/pager.h "stamps the flush that has begun" \
    '/^static inline void frame_stamp/,/^}/s/next << FRAME/(next - 1) << FRAME/'
mutant pager/pager.h "an earlier stamp replaces a later one" \
    '/^static inline void frame_stamp/,/^}/s/while \(env_flush_next\(\) != next\)/while (0)/'
mutant pager/clock.c "stamps before it clears A" '
    /^INLINE bool clear_use/,/^}/{
        s/^(        pte_slot_t \*pte = entry_of.*)$/\1\n        frame_stamp(f);/
        s/frame_stamp\(f\);$/&/
        /^                frame_stamp/d
        /^        if \(cleared\)/d
    }'
mutant pager/evict.h "evicts a page whose A is set" \
    's/^(static inline bool is_cold.*return ).*/\1p | 1; }/'
mutant pager/evict.c "taking off does not look at the epoch" \
    '/bool take_off\(/,/^}/s/frame_flushed\(w\) && //'
mutant pager/evict.c "taking off does not look at D" \
    '/bool take_off\(/,/^}/s/ && !\(p & PTE_D\)//'
mutant pager/evict.c "eviction ignores D" '
    /^static .* try_evict\(/,/^}/s/\(\(p & PTE_D\) \|\| \(w & FRAME_DIRTY\)\)/(w \& FRAME_DIRTY)/
    /bool take_off\(/,/^}/s/ && !\(p & PTE_D\)//'
mutant pager/evict.c "eviction ignores the software-dirty bit" '
    /^static .* try_evict\(/,/^}/s/\(\(p & PTE_D\) \|\| \(w & FRAME_DIRTY\)\)/(p \& PTE_D)/
    /bool take_off\(/,/^}/s/\(FRAME_DIRTY \| FRAME_LOCKED\)/FRAME_LOCKED/'
mutant pager/evict.c "clears D without looking at A" '
    /^static int write_back/,/^}/{
        /\(p & PTE_D\) && !atomic/s/compare_exchange_strong\(.*\)\) \{/fetch_and(pte, ~PTE_D)) {/
    }'
mutant pager/frame.h "flags are changed without looking again" '
    /^static inline uint64_t frame_change/,/^}/{
        s/while \(!atomic_compare_exchange_weak\((&f->word), &w, (.*)\)\)/for (atomic_store(\1, \2); 0; )/
    }'
mutant pager/evict.c "a failed write leaves the page clean" \
    '/env_slot_write/,/^        }/s/^.*fetch_or.*$//'
mutant pager/evict.c "a lost race for D leaves the page clean (new slot)" '
    /^static int write_back/,/^}/{
        /p & PTE_D\) && !atomic/,/^        }/s/atomic_fetch_or.*$/atomic_fetch_and(pte, ~PTE_D);/
    }'
mutant pager/evict.c "eviction does not claim" \
    '/^static .* try_evict\(/,/^}/s/if \(!frame_claim\(.*\)\)/if (0)/'
mutant pager/evict.c "the hand evicts locked pages" '
    s/ \&\& !\(w & FRAME_LOCKED\) \&\& frame_flushed/ \&\& frame_flushed/
    s/\(FRAME_DIRTY \| FRAME_LOCKED\)/FRAME_DIRTY/'
mutant pager/evict.c "a slot taken back leaves its page clean" \
    '/^static uint64_t slot_take_back/,/^}/s/atomic_fetch_or.*/;/'
mutant pager/evict.c "a slot is taken back without a claim" '
    /^static uint64_t slot_take_back/,/^}/{
        s/if \(!frame_claim.*/if (!(f->word \& FRAME_RESIDENT))/
        s/atomic_fetch_and.*/;/
    }'
mutant pager/evict.c "the evicted frame keeps its slot" \
    '/^static bool unmap_clean/,/^}/s/^.*f->slot = SLOT_NONE;.*$//'
mutant pager/evict.c "an evicted page drops CHARGED" \
    '/^static bool unmap_clean/,/^}/s/p & PTE_KEEP/p \& PTE_PROT/'
mutant pager/clock.c "orphans are reaped while held" \
    '/^static bool reap_orphan/,/^}/s/frame_word_held\(w\) \|\| //'

# Range operations
mutant pager/transition.c "no TLB holds a page without access" \
    '/^static bool may_be_cached/,/^}/s/ && pte_kind\(p\) != PTE_HELD//'
mutant pager/transition.c "PROT_NONE loses D" \
    's/^.*if \(p & PTE_D\) +\/\* D has no place.*$/                if (0)/'
mutant pager/transition.c "PROT_NONE is not stamped" \
    '/^static bool protect_resident/,/^}/s/frame_stamp\(f\)/(void)0/'
mutant pager/transition.c "protection changes lose D" \
    '/^static bool protect_resident/,/^}/s/PTE_A \| \(p & PTE_D\)/PTE_A/'
mutant pager/transition.c "protection changes do not hold the frame" '
    /^static bool protect_resident/,/^}/{
        s/if \(!pin_wait\(f, pte, p\)\)/if (0)/
        s/frame_unpin\(f, false\);/;/
    }'
mutant pager/transition.c "lost rights ask for no flush" \
    '/^static bool loses_rights/,/^}/s/return .*/return p \&\& !prot \&\& 0;/'
mutant pager/transition.c "no TLB holds pages whose A was cleared" \
    '/^static bool may_be_cached/,/^}/s/return \(w & FRAME_HELD_MASK\).*/return w == 1 \&\& pins;/'
mutant pager/transition.c "no TLB holds pages that are held" \
    '/^static bool may_be_cached/,/^}/s/\(w & FRAME_HELD_MASK\) != pins \|\| //'
mutant pager/transition.c "the stamp is read before the entry changes" '
    /^pte_t page_drop/,/^}/{
        s/^        pte_t old;$/        pte_t old = atomic_load(pte); bool cached = may_be_cached(pg, old, 0);/
        s/^        bool cached = may_be_cached.*$/        cached |= (old \& PTE_A) \&\& (old \& PTE_P);/
    }'
mutant pager/transition.c "a dropped page that is held is not stamped" '
    /^static void drop_frame/,/^}/{
        s/ \| env_flush_next\(\) << FRAME_EPOCH_SHIFT//
        s/\(uint32_t\)w \| FRAME_ORPHAN/w | FRAME_ORPHAN/
    }'
mutant pager/transition.c "a dropped frame keeps its slot" \
    '/^static void drop_frame/,/^}/s/env_slot_free\(f->slot\);/;/'
mutant pager/transition.c "dropped frames are freed before the flush" \
    '/^pte_t page_drop/,/^}/s/&& cached\)/\&\& cached \&\& 0)/'
mutant pager/clock.c "orphans are freed before the flush" \
    '/^static bool reap_orphan/,/^}/s/is_unflushed\(w, r\) \|\|/!r ||/'
mutant pager/transition.c "a moved page has A=0" \
    '/^bool page_move/,/^}/s/p \|= PTE_A;/p \&= ~PTE_A;/'
mutant pager/transition.c "a moved page asks for no flush" \
    '/^bool page_move/,/^}/s/return cached;/return false;/'
mutant pager/transition.c "a moved frame keeps its old entry" \
    '/^bool page_move/,/^}/s/atomic_store\(&pg->frames.*/;/'
mutant pager/transition.c "detach takes BUSY entries" \
    '/^frame_t page_detach/,/^}/s/if \(is_under_way\(p\) && .*\{/if (0) {/'
mutant pager/transition.c "munmap does not wait for a part" '
    /^static bool is_under_way/s/ \|\| pte_kind.*;/;/
    /^frame_t page_detach/,/^}/s/case PTE_REMOTE:/case PTE_REMOTE: case PTE_PART:/'
mutant pager/transition.c "a part does not keep others away" \
    '/^bool page_part\(/,/^}/s/pte_make_part\(pte_slot\(p\), keep\)/p/'
mutant pager/transition.c "a part takes any entry" \
    '/^bool page_part\(/,/^}/s/return .*/return atomic_store(pte, pte_make_part(pte_slot(p), p \& PTE_KEEP)), true;/'
mutant pager/transition.c "a part drops CHARGED" \
    '/^bool page_part\(/,/^}/s/PTE_KEEP \| PTE_STAMP/PTE_PROT | PTE_STAMP/'
mutant pager/transition.c "the end of a part wakes no vCPU" \
    '/^void page_part_over/,/^}/s/if \(p & PTE_WAITERS\)/if (0)/'
mutant pager/transition.c "the end of a part looks for waiters too early" '
    /^void page_part_over/,/^}/{
        s/\} while \(!atomic_compare_exchange_weak\(pte, &p, (.*)\)\);/atomic_store(pte, \1); } while (0);/
    }'
mutant pager/transition.c "a page that is wanted stays in parts" \
    '/^void page_part_over/,/^}/s/ \| PTE_WANTED\)/)/'
mutant pager/pte.h "a vCPU that waits for an entry sleeps on its lower half" \
    '/^static inline uint32_t pte_word_seen/s/\(p >> 32\)/p/'
mutant pager/transition.c "detach gives the frame back before the flush" '
    /^frame_t page_detach/,/^}/{
        s/return frame_of\(pg, p\);/{ static struct frame_list gone; \
            frame_discard(pg, \&gone, frame_of(pg, p)); \
            frame_list_drain(pg, \&gone); \
            return FRAME_NONE; }/
    }'
mutant pager/transition.c "detach keeps the slot" '/^frame_t page_detach/,/^}/s/env_slot_free.*/;/'
mutant pager/transition.c "cooling does not stamp" \
    '/^static bool cool/,/^}/s/frame_stamp\(f\)/(void)0/'
mutant pager/transition.c "cooling stamps before it clears A" '
    /^static bool cool/,/^}/{
        s/^(        bool cooled = )/        frame_stamp(f);\n\1/
        s/^                frame_stamp.*$/                ;/
    }'
mutant pager/transition.c "what is passed is not pinned" '
    /^bool page_pass/,/^}/{
        s/!atomic_compare_exchange_strong\(&f->word, &w, w \+ 1\)\)/(atomic_fetch_add(\&f->word, 1), 0))/
    }'
mutant pager/transition.c "what is passed stays pinned" '
    /^static bool cool/,/^}/s/^        frame_unpin.*$//'

# Faults and frames
mutant pager/frame.h "waiters are not woken" \
    '/^static inline bool page_fetched/,/^}/s/ & PTE_WAITERS;/ \& 0;/'
mutant pager/frame.h "a vCPU that waits for a prefetch is not woken" \
    '/^static inline bool page_prefetched/,/^}/s/return p & PTE_WAITERS;/return false;/'
mutant pager/frame.h "a prefetch ends in the page that came after" \
    '/^static inline bool page_prefetched/,/^}/s/if \(pte_kind\(p\) != PTE_BUSY.*\{/if (0) {/'
mutant pager/frame.h "a stray A makes a prefetch an abandoned one" '
    /^static inline bool page_prefetched/,/^}/{
        s/if \(pte_kind\(p\) != PTE_BUSY.*\{/if (p \& (PTE_A | PTE_D)) {/
    }'
mutant pager/frame.h "an abandoned frame stays claimed" '
    /^static inline bool page_prefetched/,/^}/{
        0,/frame_drop_claim\(f\);/s/^                        frame_drop_claim\(f\);//
    }'
mutant pager/frame.h "a prefetch that failed leaves a present entry" \
    '/^static inline bool page_prefetched/,/^}/s/err \? pte_make_remote\(f->slot, keep\) : //'
mutant pager/frame.h "a prefetch that failed keeps the slot, too" \
    '/^static inline bool page_prefetched/,/^}/s/f->slot = SLOT_NONE;/;/'
mutant pager/transition.c "a vCPU that waits for an abandoned page is not woken" \
    '/^frame_t page_detach/,/^}/s/if \(p & PTE_WAITERS\)/if (0)/'
mutant pager/transition.c "the sleeper does not say that it waits" '
    /^static void wait_for/,/^}/{
        s/if \(!atomic_compare_exchange_strong\(pte, &seen, seen \| say\)\)/if (0)/
        s/seen \|= say;/;/
    }'
mutant pager/frame.h "a failed fetch leaves a present entry" \
    '/^static inline bool page_fetched/,/^}/s/pte_make_remote\(f->slot, keep\) \| PTE_LOST/pfn << 12 | keep | state/'
mutant pager/transition.c "a fetched frame does not own its slot" \
    '/^int page_fetch/,/^}/s/f->slot = pte_slot\(p\);.*/;/'
mutant pager/transition.c "fetch takes any entry" '
    /^int page_fetch/,/^}/{
        s/if \(!atomic_compare_exchange_strong\((.*)\)\) \{$/ \
            atomic_store(pte, pte_make_busy(pg->pfn0 + n, p \& PTE_KEEP)); \
            if (0) {/
    }'
mutant pager/frames.c "discard frees a held frame" \
    '/^void frame_discard/,/^}/s/if \(frame_claim\(f, w\)\)/if (1)/'
mutant pager/frames.c "a freed frame keeps its slot" \
    '/^static void frame_reset/,/^}/s/env_slot_free.*/;/'
mutant pager/frames.c "a list's tag does not change" \
    '/^static uint64_t list_next/,/^}/s/\(\(head >> 32\) \+ 1\)/(head >> 32)/'
mutant pager/frames.c "a batch is taken twice" \
    '/^static frame_t batch_take/,/^}/s/while \(!atomic/while (0 \&\& !atomic/'
mutant pager/frames.c "what is below a batch is forgotten" \
    '/^static frame_t batch_take/,/^}/s/list_below\(.*\]\)\),/NO_BATCH),/'
mutant pager/frames.c "a batch counts as one frame" \
    '/^static void batch_give/,/^}/s/\(&pg->nfree, c->n/(\&pg->nfree, 1/'
mutant pager/frames.c "fresh frames are taken twice" \
    '/^static void take_fresh/,/^}/s/while \(n > 0 && !/while (n > 0 \&\& 0 \&\& !/'
mutant pager/clock.c "a pass keeps what it has freed" \
    '/^struct clock_result clock_pass/,/^}/s/frames_give\(pg\);//'
mutant pager/frame.h "unpinning forgets the dirty bit" \
    '/^static inline void frame_unpin/,/^}/s/if \(wrote\)/if (0 \&\& wrote)/'
mutant pager/frame.h "unpinning sets the dirty bit too late" '
    /^static inline void frame_unpin/,/^}/{
        s/^        atomic_fetch_sub.*$//
        s/^        if \(wrote\)/        atomic_fetch_sub(\&f->word, 1);\n        if (wrote)/
    }'
mutant pager/frame.h "a pin does not look at the entry again" '
    /^static inline frame_t frame_pin/,/^}/s/if \(pte_kind\(p\) == PTE_PRESENT && pte_num.*/if (1)/'
mutant pager/frame.h "a pin ignores the claim" '
    /^static inline frame_t frame_pin/,/^}/{
        s/!frame_word_open\(w\) (\|\| \(w & FRAME_ORPHAN\))/!(w \& FRAME_RESIDENT) \1/
    }'
mutant pager/frame.h "a pin sees no difference between claims" \
    '/^static inline bool frame_word_closed/,/^}/s/return .*/return w \& FRAME_CLAIMED;/'
mutant pager/evict.c "the end of a write does not look at pins" '
    /^static bool write_over/,/^}/{
        s/w & FRAME_PINS \? FRAME_WRITING \| FRAME_CLAIMED : FRAME_WRITING/FRAME_WRITING/
    }'
mutant pager/evict.c "the end of a write leaves WRITING" '
    /^static bool write_over/,/^}/{
        s/(w & FRAME_PINS \?) FRAME_WRITING \| (FRAME_CLAIMED :) FRAME_WRITING/\1 \2 0/
    }'
mutant pager/frame.h "a claim ignores pins" \
    '/^static inline bool frame_claim/,/^}/s/frame_word_held\(w\)/(w \& FRAME_CLAIMED)/'
mutant pager/pte.h "a stray A makes an entry unknown" \
    's/if \(\(p & ~\(PTE_A \| PTE_D\)\) == 0\)/if (p == 0)/'

# Stamps and heat
mutant pager/evict.h "the hand evicts what is hot" 's/ && !\(w & FRAME_HOT\)//'
mutant pager/evict.c "WAS is swapped" \
    's/cnt\[w & FRAME_WAS \?/cnt[!(w \& FRAME_WAS) ?/; s/w & FRAME_WAS \? PTE_WAS : 0/w \& FRAME_WAS ? 0 : PTE_WAS/'
mutant pager/evict.c "what a stream has passed has a stamp" \
    's/^(static bool tells.*return ).*/\1!(p \& PTE_LOW) || w; }/'
mutant pager/evict.c "pages of low priority have a stamp" \
    's/return !\(p & PTE_LOW\) && /return (p || 1) \&\& /'
mutant pager/transition.c "BUSY keeps the stamp" \
    '/^bool page_prefetch/,/^}/s/p & PTE_KEEP\) \| PTE_PREF/p \& (PTE_KEEP | PTE_STAMP)) | PTE_PREF/'
mutant pager/transition.c "a part loses the stamp" \
    '/^void page_part_over/,/^}/s/PTE_KEEP \| PTE_STAMP/PTE_KEEP/'
mutant pager/balance.h "ticks wrap to 0" 's/\? TICK_FIRST : tick \+ 1/? 0 : tick + 1/'

# Memory order
build_test() {
    # shellcheck disable=SC2046 # paths
    compile -fsanitize=thread "$unit/test_pager_race.c" "$unit/pager_env.c" \
        $(part pager/frames.c pager/transition.c pager/clock.c pager/evict.c pager/balance.c)
}
export TSAN_OPTIONS=halt_on_error=1
mutant pager/frames.c "a batch is given without release" \
    '/^static void batch_give/,/^}/s/memory_order_release/memory_order_relaxed/'
mutant pager/frames.c "a batch is taken without acquire" \
    '/^static frame_t batch_take/,/^}/s/memory_order_acquire/memory_order_relaxed/g'
mutant pager/evict.c "eviction does not claim" \
    '/^static .* try_evict\(/,/^}/s/if \(!frame_claim\(.*\)\)/if (0)/'

# Mistakes not of order, but of cost, or in an answer.
build_test() {
    compile "$unit/test_pager.c" "$unit/pager_env.c" \
        $(part pager/frames.c pager/transition.c pager/clock.c pager/evict.c pager/balance.c)
}
mutant pager/clock.c "a flush that is needed never begins" \
    '/^static void flush_if_due/,/^}/s/needed && r->unbegun/0 \&\& r->unbegun/'
mutant pager/clock.c "a flush begins though frames are on their way" \
    '/^static void flush_if_due/,/^}/s/needed && r->unbegun && !r->freed/r->unbegun/'
mutant pager/clock.c "a flush begins for each page" 's/>= \(int32_t\)most/> 0/'
mutant pager/clock.c "flushes of others are not seen" \
    's/if \(atomic_load_explicit\(&pg->next_flush.*/if (0) {/'
mutant pager/clock.c "pages that streams pass begin no flush" \
    's/cleared \+ passed >=/cleared >=/'
mutant pager/frames.c "a stock keeps a batch that is too large" \
    's/if \(l->free.n > 2 \* want\)/if (0)/'
mutant pager/frames.c "only one list is looked at" 's/i < FREE_LISTS; i\+\+\) \{$/i < 1; i++) {/'
mutant pager/frames.c "no refill finds few frames" 's/- l->free.n < low;/- l->free.n < 0 * low;/'
mutant pager/frames.c "a chain is cut one frame too late" \
    '/^static struct frame_chain chain_cut/,/^}/s/i < keep/i <= keep/'
mutant pager/frames.c "each frame is a batch" \
    '/^void frame_collect/,/^}/s/>= batch_size\(pg\)/>= 1/'
mutant pager/evict.c "clean pages are written back too" \
    '/^static .* try_evict\(/,/^}/s/\(\(p & PTE_D\) \|\| \(w & FRAME_DIRTY\)\) && //'
mutant pager/evict.c "each dirty page searches all frames for a slot" \
    '/^static uint64_t slot_take_back/,/^}/s/^        pg->slot_pause = .*$//'
mutant pager/clock.c "a search in vain is the last" \
    '/^struct clock_result clock_pass/,/^}/s/^.*pg->slot_pause -= .*$//'
mutant pager/evict.c "a slot is looked for while the page is claimed" \
    '/^static bool get_slot\(/,/^}/s/if \(\*spare == SLOT_NONE\)/if ((*spare = env_slot_alloc()) == SLOT_NONE)/'
mutant pager/clock.c "a spare slot outlives its pass" \
    '/^struct clock_result clock_pass/,/^}/s/^ *evict_over.*$//'
mutant pager/evict.c "a pinned page keeps a slot that it does not get" \
    '/^int page_write_back/,/^}/s/^ *drop_slot.*$//'
mutant pager/evict.c "what is written is not counted" \
    '/^static int write_back/,/^}/s/cnt\[CNT_WRITEBACK\]\+\+;//'

mutant pager/transition.c "all frames may be locked" \
    '/^static bool lock_frame/,/^}/s/pg->nframes \/ 2/pg->nframes/'
mutant pager/transition.c "what is locked twice counts twice" '
    /^static bool lock_frame/,/^}/{
        s/if \(may && !\(.*/if (may)/
        s/if \(atomic_load.*/if (0)/
    }'
mutant pager/transition.c "what is no longer locked counts" \
    '/^static bool unlock_frame/,/^}/s/^ *atomic_fetch_sub_explicit.*$//'
mutant pager/frames.c "a freed frame counts as locked" \
    '/^static void frame_reset/,/^}/s/if \(w & FRAME_LOCKED\)/if (0)/'
mutant pager/transition.c "a page is unmapped without its notices" \
    '/^frame_t page_detach/,/^}/s/^ *notices_over.*$//'
mutant pager/transition.c "a page is read without its notices" \
    '/^static .* void wake\(/,/^}/s/^ *notices_over.*$//'
mutant pager/clock.c "high priority is as any" 's/^(#define HIGH_STAYS) \(2/\1 (0/'
mutant pager/clock.c "high priority keeps pages for long" \
    's/\(w & FRAME_STAYED\) < HIGH_STAYS/1/'
mutant pager/clock.c "what is left does not count as used" \
    '/^INLINE void stay\(/,/^}/s/t->r->used\+\+;/;/'
mutant pager/clock.c "once used, high priority is none" \
    's/clear_use\(t, n, w, FRAME_STAYED, 0, &seen\)/clear_use(t, n, w, 0, 0, \&seen)/'
mutant pager/evict.h "pages that a stream has passed know no priority" \
    's/\(\(w & FRAME_WAS\) \|\| !\(p & PTE_HIGH\)\)/1/'

# The two hands, page by page
mutant pager/evict.h "a page that was brought in ahead goes at once" \
    's/\(\(w & FRAME_OLD\) \|\| !\(p & PTE_PREF\)\)/1/'
mutant pager/clock.c "BACK is not cleared" \
    '/^INLINE void second_chance/,/^}/s/FRAME_BACK \| FRAME_PASSED \|/FRAME_PASSED |/'
mutant pager/clock.c "a page that is used again stays passed" \
    '/^INLINE void second_chance/,/^}/s/FRAME_BACK \| FRAME_PASSED \|/FRAME_BACK |/'
mutant pager/clock.c "WAS outlives heat" \
    '/^INLINE void second_chance/,/^}/s/FRAME_OLD \| FRAME_WAS : 0/FRAME_OLD : 0/'
mutant pager/clock.c "the use that brings a page in makes it hot" \
    's/return \(w & \(FRAME_OLD \| FRAME_BACK\)\) &&/return/'
mutant pager/clock.c "a page that comes back is as any" \
    's/w & \(FRAME_OLD \| FRAME_BACK\)/w \& FRAME_OLD/'
mutant pager/clock.c "pages of low priority become hot" \
    '/^static bool asks/,/^}/s/ && !\(p & PTE_LOW\)//'
mutant pager/clock.c "a blind hand believes what it sees" \
    '/^static bool asks/,/^}/s/!\(pg->blind && \(p & PTE_PREF\)\)/(pg || 1)/'
mutant pager/clock.c "each request moves the hot hand" 's/^(#define REQUESTS) 4/\1 1/'
mutant pager/clock.c "no request moves the hot hand" \
    '/^INLINE bool grants/,/^}/s/ == 0 && hot_step\(\*t\);/ == 0 \&\& 0;/'
mutant pager/clock.c "heat is granted always" '/^INLINE bool grants/,/^}/s/if \(t->s->over > 0\)/if (1)/'
mutant pager/clock.c "the hot hand is skipped" \
    '/^INLINE void cold_step/,/^}/s/i < HOT_PACE && s->over < 0/i < HOT_PACE \&\& 0/'
mutant pager/clock.c "the hot hand rests where all is in vain" \
    's/if \(s->vain > pg->nframes\)/if (0)/'
mutant pager/clock.c "the hot hand takes what is used" \
    '/ bool hot_step\(/,/^}/s/if \(!is_cold\(p, w\) && .*\{/if (0) {/'
mutant pager/clock.c "a pass goes on beyond its mark" \
    's/^(        return t->r->freed \+ .*) >= t->want;/\1 >= t->want + 4;/'
mutant pager/clock.c "what is written does not count for the mark" \
    's/t->r->freed \+ \(t->l \? 0 : t->pg->writing\) >=/t->r->freed >=/'
mutant pager/clock.c "an evictor that is stopped keeps others from ticks" \
    's/\(held != 0 && now - held < length\)/held != 0/'
mutant pager/clock.c "who was stopped undoes what others did" \
    's/if \(atomic_load_explicit\(&pg->ticking, memory_order_relaxed\) != now\)/if (0)/'
mutant pager/clock.c "ticks are not unlocked" \
    's/\(&pg->ticking, &now, 0, memory_order_release/(\&pg->ticking, \&now, now, memory_order_release/'
mutant pager/transition.c "a return is counted by the wrong heat" \
    's/pte_was_hot\(p\) \? LAGS : 0/pte_was_hot(p) ? 0 : LAGS/'
mutant pager/transition.c "a return is counted though the entry changed" '
    /^bool page_prefetch/,/^}/{
        s/^        count_back.*$//
        s/^(        f->slot = pte_slot\(p\);)$/\1\n        count_back(cnt, p, lag);/
    }'
mutant pager/transition.c "an early page is not marked" \
    '/^static inline uint32_t note_back/,/^}/s/ \| FRAME_BACK,/,/'
mutant pager/pte.h "the slot borrows from the tick" 's/\(uint64_t\)tick \+ 1\) << PTE_TICK_SHIFT\) - 1/(uint64_t)tick + 0) << PTE_TICK_SHIFT) - 0/'
mutant pager/transition.c "what is locked counts as hot" \
    '/^static bool lock_frame/,/^}/s/^( *)frames_hot\(pg, l, -1\);/\1;/'
mutant pager/transition.c "what is cooled stays hot" \
    '/^static bool cool/,/^}/s/FRAME_USED \| FRAME_HOT, set/FRAME_USED, set/'
mutant pager/frames.c "a freed frame counts as hot" \
    '/^static void frame_reset/,/^}/s/if \(w & FRAME_HOT\)/if (0)/'
mutant pager/frames.c "a vCPU that rests keeps its count" \
    '/^void frame_list_drain/,/^}/s/^ *frames_hot_told.*$//'
mutant pager/evict.c "direct reclaim writes to slots that others read" \
    '/^static bool get_slot_directly/,/^}/s/has_slot\(f\)/f->slot != SLOT_NONE/'
mutant pager/evict.c "direct reclaim posts writes" \
    '/^static bool get_slot_directly/,/^}/s/ && !env_slot_posted\(f->slot\)//'
mutant pager/evict.c "direct reclaim leaves what it could write" \
    '/^static bool get_slot_directly/,/^}/s/f->slot = env_slot_take\(\)/;/'
mutant pager/evict.c "direct reclaim does not say what it leaves" \
    '/^static enum evicted clean\(/,/^}/s/frame_passed\(pg, n\);/;/'
mutant pager/clock.c "direct reclaim has no bound" 's/^(#define RECLAIM_FRAMES) 8/\1 800/'
mutant pager/clock.c "direct reclaim passes all frames" 's/^(#define RECLAIM_PIECES) 4/\1 100000/'
mutant pager/clock.c "a piece has no end" \
    '/^INLINE frame_t next_frame/,/^}/s/p->end = .*/p->end = p->at + size;/'
mutant pager/clock.c "low priority is as any" \
    '/^INLINE void second_chance/,/^}/s/if \(p & PTE_LOW\)/if (0)/'
mutant pager/transition.c "a stream passes what has high priority" \
    '/^bool page_pass/,/^}/s/if \(p & PTE_HIGH\)/if (0)/'
mutant pager/transition.c "new protection is a new priority" \
    's/p & PTE_KEEP & ~PTE_PROT/p \& PTE_CHARGED/'
mutant pager/transition.c "a page that is fetched on demand takes a priority" \
    '/^int page_set_priority/,/^}/s/if \(k == PTE_BUSY.*/if (0)/'
mutant pager/notices.h "a word is not pinned" 's/atomic_fetch_add\(&o->frames\[pinned\].*/;/'
mutant pager/notices.h "a word's page stays clean" \
    '/^static inline void notice_over\(/,/^}/s/, true\);/, false);/'
mutant pager/notices.h "a late look tells of the next page" \
    '/^static inline void notices_look/,/^}/s/if \(!notice_waits\(o, n, &p\)\)/if (1)/'
mutant pager/notices.h "a vCPU that reads on demand knows of no notice" \
    's/if \(\(p & \(PTE_PREF \| PTE_WAITERS\)\) \|\|/if (1 ||/'
mutant pager/notices.h "a vCPU that adds a notice does not look at the entry again" \
    '/^static inline bool notice_hang/,/^}/s/return false;/return true;/'
mutant pager/notices.h "no end of notices" 's/ < most\)/ < NOTICES)/'
mutant pager/notices.h "a word is counted for pages that do not come" \
    's/pte_kind\(p\) == PTE_BUSY \? notice_take/1 ? notice_take/'

mutant pager/transition.c "zeroes that are touched stay fresh" '
    /^void page_touch/,/^}/s/\(p & ~PTE_FRESH\) \| PTE_A/p | PTE_A/'

# Which page goes, beside the oracle and CLOCK
build_test() {
    compile "$unit/test_hands.c" "$unit/hands_rule.c" "$unit/pager_env.c" \
        $(part pager/frames.c pager/transition.c pager/clock.c pager/evict.c pager/balance.c) -lm
}
mutant pager/balance.c "the target has no upper bound" 's/return target < most \? target : most;/return target;/'
mutant pager/balance.c "the target has no lower bound" 's/if \(target < least\)/if (0)/'
mutant pager/balance.c "nothing is forgotten" 's/return sum \/ 4 \* 3 \+/return sum +/'
mutant pager/balance.c "early returns weigh as late ones" 's/\(LAGS - lag\) \* ONE/(LAGS) * ONE/'
mutant pager/balance.c "the target grows with hot returns" 's/if \(cold > hot \+ hot \/ 4\)/if (hot > cold + cold \/ 4)/'
mutant pager/balance.c "the target never shrinks" 's/else if \(hot > ONE \* 2 \/ 5\)/else if (0)/'
mutant pager/clock.c "evictors count what others evicted" \
    's/^        s->told = mine;/        s->told = 0;/'

# Prefetch policies
build_test() {
    compile "$unit/test_lookahead.c" "$unit/lookahead_sim.c" $(part 'pager/lookahead*.c') -lm
}
mutant lookahead_policy.h "a batch leaves the address space above" \
    's/^        while \(b->count && !lookahead_page_valid.*/        while (0)/'
mutant lookahead_policy.h "a batch leaves the address space below" \
    's/if \(lookahead_page_valid\(b->first \| last\)\)/if (lookahead_page_valid(b->first))/'
mutant lookahead.c "a cut leaves the batch as it is" \
    '/^void lookahead_cut/,/^}/s/batch->count = n;//'
mutant lookahead_hits.c "a page is a hit as often as it is looked at" \
    's/if \(use == LOOKAHEAD_USED \|\| use == LOOKAHEAD_OTHER\)/if (use == LOOKAHEAD_OTHER)/'
mutant lookahead_hits.c "a page that is late is no hit" \
    '/^void lookahead_hits/,/^}/s/if \(a->cause != LOOKAHEAD_MISS\)/if (0)/'
mutant lookahead_hits.c "pages that are here already are noted" \
    's/ && a->used\(a->arg, page\) <= LOOKAHEAD_UNUSED\)/)/'
mutant lookahead_hits.c "a hit is taken for granted far away" \
    's/return far > 0 && far <= .*/return far > 0;/'
mutant lookahead_readahead.c "the window shrinks at once" 's/if \(n < h->window \/ 2\)/if (0)/'
mutant lookahead_readahead.c "hits plus one" 's/h->hits \+ 2\)/h->hits + 1)/'
mutant lookahead_readahead.c "a neighbour below is none" 's/ \|\| page \+ 2 == h->last1//'
mutant lookahead_readahead.c "the first page has a neighbour" 's/ \|\| last1 == 0\)/)/'
mutant lookahead_readahead.c "a late page asks for more" \
    '/^void readahead_fault/,/^}/s/if \(a->cause != LOOKAHEAD_MISS\)/if (0)/'
mutant lookahead_trend.c "half is a majority" 's/return 2 \* same > n;/return 2 * same >= n;/'
mutant lookahead_trend.c "the vote is not verified" \
    's/if \(votes && has_majority\(h, d, i\)\)/if (votes)/'
mutant lookahead_trend.c "the vote begins with half of the history" \
    's/history \/ 4 \? history \/ 4 : 1/history \/ 2 ? history \/ 2 : 1/'
mutant lookahead_trend.c "the vote is over a quarter alone" \
    's/i < have; n \*= 2\)/i < have \&\& i == 0; n *= 2)/'
mutant lookahead_trend.c "an access follows the trend that it makes" '
    s/^        bool follows = .*//
    s/^(        h->window = )/        bool follows = h->trend \&\& delta_at(h, 0) == h->trend;\n\1/'
mutant lookahead_trend.c "the first access has a delta" \
    's/^        if \(h->last1\) \{/        if (1) {/'
mutant lookahead_trend.c "hits are never forgotten" '/^void trend_fault/,/^}/s/h->hits = 0;//'
mutant lookahead_auto.c "two accesses make a stream" \
    's/^(        )if \(l->agreed\+\+ < h->doubt\)/\1if (0)/
     s/if \(d == l->stride && d\)/if (d \&\& (d == l->stride || l->stride == 0))/'
mutant lookahead_auto.c "nothing is doubted" 's/if \(l->agreed\+\+ < h->doubt\)/if (0)/'
mutant lookahead_auto.c "doubt has no end" 's/h->doubt < DOUBT;/1;/'
mutant lookahead_auto.c "doubt stays" 's/h->doubt -= h->doubt > 0;/;/'
mutant lookahead_auto.c "a stream is judged more than once" 's/^        s->judged = true;//'
mutant lookahead_auto.c "any lone access is the neighbour" \
    's/if \(size_of\(d\) < nearest\)/if (size_of(d))/'
mutant lookahead_auto.c "the latest page again is a lone access" \
    '/^static void on_lone/,/^}/s/if \(nearest == 0\).*/if (0)/'
mutant lookahead_auto.c "a confirmed stream's access stays lone" \
    's/^        \*l = \(struct lookahead_lone\)\{ 0 \};//'
mutant lookahead_auto.c "an access ahead is the stream's, whatever lies before it" '
    /^static uint32_t steps_to/,/^}/s/if \(use == LOOKAHEAD_UNUSED \|\| .*/if (0)/'
mutant lookahead_auto.c "a page between two steps is a step" 's/if \(n \* size != far\)/if (0)/'
mutant lookahead_auto.c "no range beyond what was asked for" \
    's/uint64_t more = .*/uint64_t more = 1;/'
mutant lookahead_auto.c "a batch begins with the page after the fault" \
    '/^static void ask/,/^}/s/\* \(s->ahead \+ 1u\)/* 1u/'
mutant lookahead_auto.c "the marker is the last page" \
    's/^(static uint32_t marker_of.*return ).*/\1count - 1; }/'
mutant lookahead_auto.c "a marker in an older batch asks again" \
    's/s->ahead < s->newest && \(a->cause/1 \&\& (a->cause/'
mutant lookahead_auto.c "the window never grows" 's/w \*= 2;/;/'
mutant lookahead_auto.c "the window grows from half on" \
    's/4 \* s->good >= 3 \* total/2 * s->good >= total/'
mutant lookahead_auto.c "a late page does not count as used" \
    's/u\.used \+= !miss;/u.used += a->cause == LOOKAHEAD_MARKER;/'
mutant lookahead_auto.c "a stream is not closed" \
    's/^                w = 0;/                w \/= 2;/'
mutant lookahead_auto.c "a closed stream stays so" 's/if \(\+\+s->closed >= REST\)/if (0)/'
mutant lookahead_auto.c "a closed stream is tried at every fault" \
    's/if \(\+\+s->closed >= REST\)/if (1)/'
mutant lookahead_auto.c "hidden use is use" 's/bool well = .*/bool well = true;/'
mutant lookahead_auto.c "hidden use is none" 's/bool well = .*/bool well = false;/'
mutant lookahead_auto.c "batches without a page of their own keep the window" \
    's/w = s->newest \? w \/ 2 : w;/;/'
mutant lookahead_auto.c "what there is no room for shrinks the window" \
    's/w = s->newest \? w \/ 2 : w;/w \/= 2;/'
mutant lookahead_auto.c "a sample does not move" 's/\(uint32_t\)h->time \* 40503u % 65536/0u/'
mutant lookahead_auto.c "any stream is replaced" \
    's/if \(s->time < h->stream\[oldest\]\.time\)/if (n == 3)/'
mutant lookahead_auto.c "a cut batch is as good as whole" \
    '/^void auto_cut/,/^}/s/s->ahead -= .*//'
mutant lookahead_auto.c "a cut batch keeps its marker" \
    '/^void auto_cut/,/^}/s/batch->marker = .*//'
mutant lookahead_auto.c "without room for a batch the one before is not its newest" \
    '/^void auto_cut/,/^}/s/n \? n : s->ahead/n/'
mutant lookahead_auto.c "misses between a stream's pages are lone" \
    's/else if \(!between\(h, a, batch\)\)/else/'
mutant lookahead_auto.c "misses of all time make a stream finer" 's/^        s->missed = 0;//'
mutant lookahead_auto.c "a window passes the usual end" 's/^        usual_end\(h, s\);//'
mutant lookahead_auto.c "what was said has no end" \
    's/b->count = s->window < s->left .*/b->count = s->window;/'
mutant lookahead_auto.c "a stream is predicted beyond its end" \
    's/more < s->left \? more : s->left/more/'
mutant lookahead_auto.c "of what was said, what is cut is never asked for" \
    '/^void auto_cut/,/^}/s/s->left \+= .*//'

# What pages point to
build_test() { compile "$unit/test_pointers.c" $(part pager/pointers.c); }
mutant pager/pointers.c "places are followed whatever becomes of their pages" \
    's/\(used \? 1 : -2\)/1/'
mutant pager/pointers.c "half of the pages used is enough" 's/\(used \? 1 : -2\)/(used ? 1 : -1)/'
mutant pager/pointers.c "no place is tried again" 's/p->trust\[p->next\]\+\+;/;/'
mutant pager/pointers.c "each page is looked at in all places" \
    's/p->turn % POINTERS_ALL == 0/true/'
mutant pager/pointers.c "only places that lead are looked at" \
    's/p->lead == 0 \|\| p->turn % POINTERS_ALL == 0/p->lead == 0/'
mutant pager/pointers.c "words after the page" 's/if \(touched \+ POINTERS_AFTER > .*/if (0)/'
mutant pager/pointers.c "words before the page" 's/if \(touched < POINTERS_BEFORE\)/if (0)/'
mutant pager/pointers.c "small numbers are addresses" 's/word < LOWEST \|\| //'
mutant pager/pointers.c "large numbers are addresses" 's/ \|\| word >> 47//'
mutant pager/pointers.c "pages that lead nowhere are all looked at" \
    's/p->rest = more .*/p->rest = 0;/'
mutant pager/pointers.c "no end to what is asked for at a time" 's/ && asked < POINTERS_MOST//'
mutant pager/pointers.c "a page asked for is judged at once" \
    's/if \(p->page1\[at\]\)/judge(p, place, env->used(env->arg, page)); if (0)/'

# Recorded orders
build_test() {
    compile "$unit/test_replay.c" $(part pager/replay.c replay/order.c replay/table.c)
}
mutant pager/replay.c "any event of a page is near" 's/e - s->cursor < near/true/'
mutant pager/replay.c "a page that was asked for is near if any is" \
    's/asked && (s->ahead - s->cursor > REPLAY_NEAR)/false \&\& \1/'
mutant pager/replay.c "what is behind is unknown" 's/e < s->cursor && .* <= REPLAY_NEAR/0/'
mutant pager/replay.c "one fault leads away" 's/if \(!agrees\(s, e\)\)/if (0)/'
mutant pager/replay.c "faults need not agree" \
    's/event > s->astray && event - s->astray <= REPLAY_NEAR/s->astray != REPLAY_NONE/'
mutant pager/replay.c "the first stray fault stays the place" \
    's/^                s->astray = event;$/;/'
mutant pager/replay.c "far away, what was asked for is not asked again" \
    's/event < s->cursor \|\| (s->ahead <= event)/\1/'
mutant pager/replay.c "each move asks again for pages that were asked for" \
    's/if \(event >= s->cursor \+ REPLAY_AHEAD.*/if (1)/'
mutant pager/replay.c "the event behind is never nearer" \
    's/\(behind != REPLAY_NONE && (s->cursor - behind).*/false/'
mutant pager/replay.c "events of the stream before" 's/ && r->where\[low - 1\] >= s->begin//'
mutant pager/replay.c "events of the next stream" 's/ && r->where\[low\] < s->end//'
mutant pager/replay.c "an entry of a page that moved counts" \
    's/atomic_load_explicit\(&r->addr\[id\], memory_order_relaxed\) == page/true/'
mutant pager/replay.c "no end to what is looked at" 's/ && s->ahead - s->cursor < REPLAY_AHEAD//'
mutant pager/replay.c "a page that is not mapped is the end" 's/^                if \(page\)$//'
mutant pager/replay.c "nonsense in the order is followed" 's/id < r->pages \? (.*)$/\1/;
    s/memory_order_relaxed\) : 0;/memory_order_relaxed);/'
mutant replay/table.c "events of a page in the wrong order" \
    's/for \(uint32_t e = r->events; e-- > 0;\)/for (uint32_t e = 0; e < r->events; e++)/'
mutant replay/table.c "pages of a file behind the mapping are mapped" 's/ \|\| in >= n//'
mutant replay/table.c "pages of the next file are mapped" \
    's/order_object\(t->page\[number\]\) != object \|\| //'
mutant replay/table.c "addresses beyond the address space" \
    's/return page < TASK_SIZE.*/return page;/'
mutant replay/order.c "the sum is not looked at" \
    's/get\(bytes \+ AT_SUM, 8\) != .* \|\| files/files/'
mutant replay/order.c "bytes behind the last event" 's/return c->at == c->end;/return true;/'
mutant replay/order.c "objects that are not there" 's/object >= ORDER_FILE \+ o->files/false/'
mutant replay/order.c "pages of any number" 's/if \(page <= -ORDER_PAGE_MAX .*/if (0)/'
mutant replay/order.c "empty texts" 's/end && end > c->at/end/'
mutant replay/order.c "threads in any order" 's/number < least \|\|//'
mutant replay/order.c "threads of any number" 's/number >= ORDER_THREADS_MAX \|\| n == 0/n == 0/'
mutant replay/order.c "more events of a thread than of all" 's/ \|\| n > events - o->events//'

# Flushes
build_test() { compile "$unit/test_flush.c"; }
mutant flush.c "every vCPU has always flushed" '/^static bool in_program/s/return .*/return !v; }/'
mutant flush.c "no vCPU in kern has flushed" '/^static bool in_program/s/return .*/return v; }/'
mutant flush.c "the next epoch is the epoch that has begun" '/env_flush_next/,/^}/s/ \+ 1;/;/'
mutant flush.c "a flush has the number of the one before" \
    '/env_flush_begin/,/^}/s/, 1\) \+ 1;/, 1);/'
mutant flush.c "an epoch that has not begun is done" \
    '/^void env_flush_look/,/^}/s/(reached = atomic_load\(.*\));/\1 + 1;/'
mutant flush.c "the last vCPU is not looked at" '/^void env_flush_look/,/^}/s/i < n;/i + 1 < n;/'
mutant flush.c "the looker believes the last vCPU" \
    '/^void env_flush_look/,/^}/s/if \(e < reached\)/if (1)/'
mutant flush.c "the looker believes the first vCPU" \
    '/^void env_flush_look/,/^}/s/if \(e < reached\)/if (i == 0)/'
mutant flush.c "what was complete is forgotten" \
    '/^void env_flush_look/,/^}/s/^        if \(!env_flush_done\(reached\)\)/        if (1)/'
mutant flush.c "the looker looks for ever" \
    '/^void env_flush_look/,/^}/s/\(&looking, 0,/(\&looking, 1,/'
mutant flush.c "a vCPU notes the epoch after its flush" '
    /flush_self\(void\)/,/^}/{
        s/vcpu_self\.flushed, e\)/vcpu_self.flushed, atomic_load(\&control.flush_epoch))/
    }'
mutant flush.c "all vCPUs are kicked" \
    '/^static bool needs_flush/,/^}/s/return .*/return n < VCPUS_MAX \&\& epoch;/'
mutant flush.c "an exit for each kick" \
    '/^static void kick/,/^}/s/any = true;/vmexit(EXIT_KICK, (uint64_t)\&out, 0, 0);/'
mutant flush.c "kicks do not wait for their effect" \
    '/^static bool is_to_be_kicked/,/^}/s/\(last && /(last \&\& 0 \&\& /'
mutant flush.c "a kick that was lost is not repeated" \
    '/^static bool is_to_be_kicked/,/^}/s/\(last && .*\) \|\|$/last ||/'
mutant flush.c "a flush leaves the mark of its kick" \
    '/^void flush_self/,/^}/s/if \(atomic_load_explicit\(mine.*/if (0)/'
mutant flush.c "one kick must do" '/^void flush_wait/,/^}/s/ \|\| spins >= SPINS_BEFORE_NAP//'
mutant flush.c "a wait spins for ever" '/^void flush_wait/,/^}/s/if \(spins < SPINS.*/if (1)/'
mutant flush.c "KVM flushes a vCPU that runs" \
    '/^static bool leave_to_kvm/,/^}/s/^                return false;/                ;/'
mutant flush.c "KVM is told nothing" \
    '/^static bool leave_to_kvm/,/^}/s/^( +STEAL_PREEMPTED) \| STEAL_FLUSH/\1/'
mutant flush.c "KVM flushes once for one waiter" \
    '/^static bool leave_to_kvm/,/^}/s/seen != \(.*/1)/'
mutant flush.c "an earlier flush replaces a later one" \
    '/^static bool leave_to_kvm/,/^}/s/while \(before < epoch \&\& /while (/'
mutant flush.c "KVM flushes vCPUs in kern" \
    '/^static void kick/,/^}/s/needs_flush\(i, epoch\) \&\& //'
mutant flush.c "a flush by KVM leaves the mark of a kick" \
    '/^static bool leave_to_kvm/,/^}/s/atomic_store_explicit\(\&kicked.*/;/'
mutant flush.c "a wait ends at once" \
    '/^void flush_wait/,/^}/s/!env_flush_done\(epoch\)/0 \&\& epoch/'

# The fault path
build_test() {
    compile "$unit/test_fault.c" "$unit/pager_env.c" \
        $(part paging/fault.c paging/file.c paging/stuck.c pager/frames.c pager/transition.c \
        pager/balance.c pager/clock.c pager/evict.c)
}
mutant attempt.h "a first touch never locks" \
    '/^static inline enum outcome install/,/^}/s/if \(f->vma\.flags & VMA_LOCKED\)/if (0)/'
mutant attempt.h "a first touch always locks" \
    '/^static inline enum outcome install/,/^}/s/if \(f->vma\.flags & VMA_LOCKED\)/if (1)/'
mutant stuck.c "an instruction may take for ever" 's/s->waits < WAITS_IN_VAIN/s->waits/'
mutant stuck.c "an instruction is held for the one before" 's/if \(s->registers != now\)/if (0)/'
mutant stuck.c "two instructions differ by rax, and are held for one" 's/p <= &r->rax/p < \&r->rax/'
mutant stuck.c "it fails though all pages can be written" 's/return s->unwritable !=.*/return true;/'
mutant stuck.c "the next instruction has less time" '/^        s->waits = 0/d'
mutant fault.c "a fault that looks for a frame many times is stuck" \
    's/^( *)return frames_wait\(\) == 0/\1return !is_stuck() \&\& frames_wait() == 0/'
mutant fault.c "a call with many pages is stuck" 's/stuck\.waited = !f->in_range/stuck.waited = 1/'
mutant fault.c "latencies are an eighth" \
    '/^static .*void record\(/,/^}/s/cpu_tsc\(\) - tsc/(cpu_tsc() - tsc) \/ 8/'
mutant fault.c "latencies are eight times as long" \
    '/^static .*void record\(/,/^}/s/cpu_tsc\(\) - tsc/(cpu_tsc() - tsc) * 8/'
mutant fault.c "latencies are of another kind of fault" \
    '/^static .*void record\(/,/^}/s/latency_add\(f->kind/latency_add(0/'
mutant fault.c "faults are not counted" \
    '/^static .*void record\(/,/^}/s/s->faults\[f->kind\]\+\+;//'
mutant fault.c "what was asked for ahead is not in the profile" \
    '/^static .*wait_for_other/,/^}/s/if \(o == RETRY && f->kind == FAULT_WAIT\)/if (0)/'
mutant fault.c "a wait counts as often as the vCPU looks" \
    '/^static void profile_late/,/^}/s/\.again = again/.again = false/'
mutant fault.c "markers are in the profile" \
    '/^static .*wait_for_other/,/^}/s/ && f->kind == FAULT_WAIT//'
mutant fault.c "a guide begins when a signal waits" \
    '/^void fault_guide_over/,/^}/s/g\.f\.in_range = .*;//'
mutant fault.c "a guide's fault brings its page in" \
    '/^void page_fault/,/^}/s/guide_faulted\(&f\);/resolve(\&f, 0);/'
mutant fault.c "whatever a guide touches ends it" \
    '/^static .*void guide_faulted/,/^}/s/else if \(!is_here\(f\)\)/else/'
mutant fault.c "a guide that returns counts as a guide that faulted" \
    '/^static .*void guide_faulted/,/^}/s/fault_guide_over\(GUIDE_RETURNED\)/fault_guide_over(GUIDE_TOUCHED)/'
mutant fault.c "a guide is called for ever" \
    '/^void fault_guide_over/,/^}/s/ && g\.event == HINT_MISSED//'
mutant fault.c "the page of a guided fault is not waited for" \
    '/^void fault_guide_over/,/^}/s/g\.awaits == FETCHING \? fetched\(&g\.f\) : DONE/DONE/'
mutant fault.c "a guided fault is not counted" \
    '/^void fault_guide_over/,/^}/s/record\(&g\.f, .*\);/;/'
mutant fault.c "a guided fault does not fail" '/^void fault_guide_over/,/^}/s/fail\(&g\.f, .*\);/;/'
mutant fault.c "ranges have guides" \
    '/^static enum outcome settle\(/,/^}/s/if \(!f->in_range && guide_begin/if (guide_begin/'
mutant fault.c "system calls are not told from faults" \
    '/^static .*void record_parts/,/^}/s/\.in_call = f->in_range/.in_call = false/'
mutant attempt.h "a page is not charged" \
    '/^static inline enum outcome install/,/^}/s/ \| \(charge \? PTE_CHARGED : 0\);/;/'
mutant attempt.h "what cannot be charged is installed" \
    '/^static inline enum outcome install/,/^}/s/mm_charge_page\(\) != 0/mm_charge_page() > 0/'
mutant fault.c "a mapping may be written that may be read" \
    '/^static bool vma_allows/,/^}/s/return m->prot & PROT_WRITE;/return m->prot;/'
mutant paging/file.c "a page of a file is read at the mapping's start" \
    '/^enum outcome file_fill/,/^}/s/r\.start - f->vma\.start \+ f->vma\.off/f->vma.off/'
mutant paging/file.c "a run of a file's pages is one page" \
    '/^static uint64_t file_run/,/^}/s/bool plenty = .*/bool plenty = false;/'

# The table of guides
build_test() { compile "$unit/test_guides.c" $(part space/guides.c); }
guides=space/guides.c
mutant "$guides" "the first guide of an address is called" \
    's/if \(at > last\)/if (!last || at < last)/'
mutant "$guides" "ranges have one byte more" 's/addr < atomic_load/addr <= atomic_load/'
mutant "$guides" "two stops are enough" 's/stops >= GUIDE_STOPS/stops >= GUIDE_STOPS - 1/'
mutant "$guides" "a signal is a stop" 's/i <= GUIDE_LATE/i <= GUIDE_INTERRUPTED/'
mutant "$guides" "a removal is said each time" \
    '/^bool guides_count/,/^}/s/&& state_of\(g\) == GUIDE_ON\)/|| 0)/; s/removed = state_of\(g\) == GUIDE_ON;/removed = true;/'
mutant "$guides" "a drop does not wait for a guide that runs" \
    's/vmexit\(EXIT_YIELD, 0, 0, 0\);/break;/'
mutant "$guides" "the place of a guide that runs is reused" \
    '/^static bool is_unused/,/^}/s/ && atomic_load\(&g->running\) == 0//'
mutant "$guides" "the next one has the stops of the last" \
    's/atomic_store_explicit\(&g->ended\[i\], 0.*\);/;/'
mutant "$guides" "a part of its range takes a guide back" \
    's/g->start >= start && g->end <= end/g->start < end \&\& start < g->end/'
mutant "$guides" "a guide of a mapping keeps what was unmapped" 's/if \(!g->mapped\)/if (1)/'
mutant "$guides" "one of no mapping loses it" 's/if \(!g->mapped\)/if (0)/'
mutant "$guides" "a hole is guided" 's/if \(g->start < start && g->end > end\)/if (0)/'
mutant "$guides" "the end of a range stays" 's/g->end = start;/;/'
mutant "$guides" "the start of a range stays" 's/g->start = end;/;/'
mutant "$guides" "the list of guides is not by age" \
    's/g->order < next->order/g->order > next->order/'
mutant "$guides" "a guide that is off is in the list" \
    '/^bool guides_next/,/^}/s/state_of\(g\) == GUIDE_ON && //'
mutant "$guides" "its function may go" 's/\(g->fn >= start && g->fn < end\) \|\|/0 ||/'
mutant "$guides" "they are not counted" 's/is \? 1 : \(uint32_t\)-1/1/'

# The program's stack at a fault, and the table of stacks
build_test() { compile "$unit/test_profile_walk.c" $(part kern/paging/profile.c); }
walk=kern/paging/profile.c
mutant "$walk" "frames may lie below the one before" \
    's/frame - low < FRAME_MOST/(int64_t)(frame - low) < FRAME_MOST/'
mutant "$walk" "frames may lie far away" 's/frame - low < FRAME_MOST/frame >= low/'
mutant "$walk" "frames need not be aligned" 's/frame % 16 == 0/true/'
mutant "$walk" "calls may return to data" '/^static bool is_code/,/^}/s/return seen.*/return true;/'
mutant "$walk" "a VMA is taken for all others" \
    's/addr - seen->start >= seen->end - seen->start/!seen->end/'
mutant "$walk" "the window is looked at" \
    's/ \|\| \(addr >= RESERVED_START && addr < RESERVED_END\)//'
mutant "$walk" "addresses beyond the program are looked at" 's/addr >= TASK_SIZE \|\| //'
mutant "$walk" "pins are left" 's/frame_unpin\(.*\);//'
mutant "$walk" "a fault stays published" 's/pt_unpublish\(\);//'
mutant "$walk" "no stack says that it is a part" 's/s->part = 1;//'
mutant "$walk" "a system call is where it returns to" \
    's/in_call \? r->rip - SYSCALL_SIZE : r->rip/r->rip/'
mutant "$walk" "any word on top is a caller" 's/is_code\(word\[0\], &seen\)/true/'
mutant "$walk" "two stacks of one hash" 's/\(h \^ s->at\[i\]\)/(h + (i == 0) * s->at[i])/'
mutant "$walk" "a full table loses call sites" 's/e = find\(&s, PROFILE_STACKS\);//'
mutant "$walk" "lost faults are not counted" 's/add_to\(&table\(\)->lost, !w->again\);//'
mutant "$walk" "a wait that continues is one more" \
    's/add_to\(&e->faults, !w->again\)/add_to(\&e->faults, 1)/'

# Sums of pages and pieces
build_test() { compile "$unit/test_sums.c" $(part far/sum.c far/sums.c) -lisal; }
mutant far/sums.c "sums of pieces are believed as they are" \
    '/^static bool load_pieces/,/^}/s/return .*/return true;/'
mutant far/sums.c "pieces of another slot are believed" \
    's/piece_sums_seed\(slot\), piece, PIECES\)/~0u, piece, PIECES)/'
mutant piece_sums.h "a page of another slot fits" 's/^(static inline uint32_t piece_sums_seed.*return ).*/\1~0u; }/'
mutant piece_sums.h "pieces may change places" \
    '/^static inline uint32_t piece_sums_join/,/^}/s/by_zeroes\[.\]\[[^]]*\]/0/g'
mutant far/sums.c "the last piece of a long part is not read" \
    's/PIECE_SIZE \+ 1 - first/PIECE_SIZE + (len < PIECE_SIZE) - first/'
mutant far/sums.c "a part ends in the next piece" 's/\(offset \+ len - 1\)/(offset + len)/'
mutant far/sums.c "a part is compared with its first piece" \
    's/piece_sums_join\(&table, 0, piece \+ first, n\)/piece[first]/'
mutant far/sums.c "a part is compared with the first pieces" \
    's/(join\(&table, 0, piece) \+ first, n\)/\1, n)/'
mutant far/sums.c "a part is compared with what is beside it" \
    '/^bool sums_part_fits/,/^}/s/ \+ e->offset//'
mutant far/sums.c "a wrong page teaches its pieces" '/^bool sums_learn/,/^}/s/if \(right\)//'
mutant far/sums.c "a page that was wrong is right" \
    '/^bool sums_learn/,/^}/s/return right/return true/'
mutant far/sums.c "nothing is learnt" '/^bool sums_learn/,/^}/s/if \(right\)/if (0)/'
mutant far/sums.c "the sum of a page is kept with its pieces only" \
    '/^void sums_store/,/^}/s/sum = s->sum.*/return;/'
mutant far/sums.c "pieces are not kept" '/^void sums_store/,/^}/s/store_pieces\(.*\);//'
mutant piece_sums.h "a sum depends on its low bytes alone" 's/begun >> 24\]/0]/'
build_test() { compile "$unit/test_disk_ring.c" $(part far/file/data.c far/file/node.c); }
data=far/file/data.c node=far/file/node.c
mutant $data "what a disk reads late goes to the frames" 's/c->own = d->room && /c->own = 0 \&\& /'
mutant $data "what was read is not handed out" 's/if \(c->own && !r->error\)/if (0)/'
mutant $data "a part is handed out to the beginning of its frame" \
    's/memcpy\(r->frame \+ r->offset/memcpy(r->frame/'
mutant $data "the pages of what was given up are used again" \
    '/^struct far_request \*disk_give_up/,/^}/s/^                if \(over\) \{/                if (!over) d->spares = DISK_ROOM;\n&/'
mutant $node "a disk is up before all that was given up has ended" \
    's/disk_is_down\(n\) && !d->given_up/disk_is_down(n)/'
mutant $node "a disk is up as soon as something has ended" \
    's/disk_is_down\(n\) && !d->given_up/disk_is_down(n) \&\& d->given_up < 2/'
mutant $data "what was given up is carried out again" \
    's/if \(c->given_up\) \{/if (c->given_up \&\& !is_passing(result)) {/'
mutant $data "what the kernel has not is waited for" \
    's/bool over = c->error != 0;/bool over = false;/'
mutant $data "a disk that is down takes transfers" \
    '/^unsigned disk_post/,/^}/s/if \(disk_is_down\(n\)\)/if (0)/'
mutant $data "vmrun's own pause is the disk's silence" 's/gap < most \? gap : most/gap/'
mutant $data "an idle disk has been silent" \
    '/^static void start/,/^}/s/^                d->heard = d->clock;/                ;/'
mutant $data "half a command is all of it" 's/if \(good == length\(c\)\) \{/if (good) {/'
mutant $data "a write that succeeds forgives nothing" \
    '/^static unsigned ended/,/^}/s/d->failing = 0;//'
mutant $data "what failed and was handed back has failed still" 's/d->failed -= c->error != 0;//'
mutant $data "prefetches take the pages of demand reads" \
    's/\(op == FAR_PREFETCH \? DISK_DEPTH : 0\)/0/'
mutant $node "silence is waited for" 's/soon && quiet >= DISK_SILENT_MS/0/'
mutant $node "one command that does not end is waited for" 's/oldest <= limit && //'
mutant $node "a silent disk is lost" 's/^        if \(soon\)$/        if (0)/'
mutant $node "a bad place is tried for ever" 's/d->clock - c->since > limit/0/'
mutant $node "a bad place is tried once" 's/d->clock - c->since > limit/1/'
mutant $node "a disk that can write nothing is kept" 's/d->failing <= limit/1/'
mutant $node "a write is sent again twice" \
    '/^static void judge/,/^}/s/^                c->error = 0;/                disk_ring_queue(d, c);\n&/'

# The wire by the clock
build_test() { compile "$unit/test_wire.c" $(part far/wire.c); }
mutant far/wire.h "parts of ticks are lost" 's/l->part \+= r->page/l->part = r->page/'
mutant far/wire.h "an idle wire keeps its time" 's/if \(now > l->free\)/if (0)/'
mutant far/wire.h "pages do not wait for each other" 's/if \(now > l->free\)/if (1)/'
mutant far/wire.c "pages come before they are due" \
    '/^bool wire_take/,/^}/s/node < 0 \|\| due > now/node < 0/'
mutant far/wire.c "the first node goes first" \
    '/^static int first_due/,/^}/s/first >= 0 && .*/first >= 0))/'
mutant far/wire.c "a page's place is not used again" \
    '/^bool wire_take/,/^}/s/append\(w, &w->unused, at\);//'
mutant far/wire.c "the next time is that of the page taken" \
    '/^bool wire_take/,/^}/s/set_next\(w\);//'
mutant far/wire.c "the lock lets all in" '/^bool wire_try_lock/,/^}/s/return !/return true || /'
build_test() {
    compile "$unit/test_timed.c" $(part far/wire.c far/direct/*.c)
}
mutant far/timed.c "copies take time of the wire" \
    '/^static void leave_out/,/^}/s/sum \+= cpu_tsc\(\) - begun/sum += 0 \* begun/'
mutant far/timed.c "a request that finds no place on the wire is forgotten" \
    's/if \(due && cards\.stalled\)/if (0)/'
mutant far/timed.c "a page of a card is there before kern has seen its completion" \
    's/^        if \(p->card\) \{/        if (0) {/'
mutant far/timed.c "each slab of a node has cards of its own" 's/ direct_has\(s->node\) \|\|//'
mutant far/direct/card.c "zeroes look like completions" \
    '/^void card_init/,/^}/s/\(char\)\(MLX5_INVALID << 4\)/0/'
mutant far/direct/queue.c "a vCPU sleeps though its page has come" 's/taken = true;/;/'
mutant far/timed.c "a part comes before it is due" \
    '/^void timed_part_wait/,/^}/s/while \(\(t = now\(\)\) < due\)/while (0)/'
mutant far/timed.c "a part takes as long as a page" \
    '/^uint64_t timed_part/,/^}/s/(node\[s->node\]\.rate), len/\1, PAGE_SIZE/'
mutant far/timed.c "a wait in the host is too long" \
    '/^static void sleep_until/,/^}/s/now\(\) \+ sleep_least\(\) \/ 2/now()/; s/\* 1000000 \/ control/* 1100000 \/ control/'
mutant far/timed.c "all pages asked for are waited for" '/^void timed_stay/,/^}/s/\* 7 \/ 16/* 0/'
mutant far/timed.c "a stay polls for pages that are far" \
    '/^void timed_stay/,/^}/s/!next \|\| next > .*/!next)/'
mutant far/timed.c "a page that is asked for is read without its notices" \
    's/p->op != IO_READ \|\| awaited/p->op != IO_READ/'
mutant far/timed.c "a page for which a vCPU waits wakes none" \
    '/^static pte_slot_t \*deliver/,/^}/s/return awaited \? pte : NULL/return NULL/'
mutant far/timed.c "writes are over at once" \
    '/^frame_t timed_written/,/^}/s/ \|\| writes\.page\[at\]\.due > now\(\)//'
mutant far/timed.c "prefetches are never over" \
    '/^static pte_slot_t \*deliver/,/^}/s/fetch_sub/fetch_add/'
mutant far/timed.c "a page that is due waits for the lock" \
    '/^void timed_poll/,/^}/s/!wire_try_lock\(&wires\)/(wires.lock = 1, 0)/'

# Futexes
build_test() { compile "$unit/test_futex.c" $(part futex.c robust.c); }
mutant futex.c "any bits may be waited for" 's/op == FUTEX_WAIT_BITSET && !\(uint32_t\)a\[5\]/0/'
mutant futex.c "a time-out is not checked" \
    's/ts->tv_sec < 0 \|\| \(uint64_t\)ts->tv_nsec >= 1000000000/0/'
mutant robust.c "words need not be aligned" 's/return addr & 3 \? -EINVAL :/return/'
mutant robust.c "a shared word is one of this process" \
    's/gmem_word_shared\(w\) \? 0 : FUTEX_PRIVATE_FLAG/FUTEX_PRIVATE_FLAG/'
mutant robust.c "a word of this process is shared" \
    's/gmem_word_shared\(w\) \? 0 : FUTEX_PRIVATE_FLAG/0/'
mutant futex.c "waiting drops nothing" \
    '/^static long on_word/,/^}/s/gmem_word_drop\(t, &w, write\);//'
mutant robust.c "a word may be shared that cannot" \
    's/(return !\(op & FUTEX_PRIVATE_FLAG\)) && .*/return false;/'
mutant futex.c "WAKE_OP compares the new value" \
    's/\(int32_t\)old ([=!<>]=?) compared/(int32_t)new \1 compared/'
mutant futex.c "WAKE_OP: less is less or equal" \
    's/\(int32_t\)old < compared/(int32_t)old <= compared/'
mutant futex.c "WAKE_OP: an operand has no sign" \
    's/\(int32_t\)\(code << 8\) >> 20/(int32_t)(code << 8 >> 20)/'
mutant futex.c "WAKE_OP: a number instead of a bit" 's/if \(code >> 31\)/if (0)/'
mutant futex.c "WAKE_OP always wakes at the second word" \
    '/^static long wake_op/,/^}/s/woken < 0 \|\| !ret/woken < 0/'
mutant futex.c "WAKE_OP forgets those at the first word" \
    '/^static long wake_op/,/^}/s/woken \+ more/more/'
mutant futex.c "a requeue wakes only whom it should" \
    's/\(uint64_t\)\(uint32_t\)a\[2\] \+ \(uint32_t\)a\[3\]/(uint64_t)(uint32_t)a[2]/'
mutant futex.c "a requeue compares nothing" \
    's/if \(compare && word != \(uint32_t\)a\[5\]\)/if (0)/'
mutant futex.c "a count of wake-ups overflows" 's/n > INT_MAX \? INT_MAX : n/n/'
mutant futex.c "words of two kinds are requeued" \
    's/gmem_word_shared\(&w\) != gmem_word_shared\(&v\)/0/'
mutant robust.c "no thread hears that an owner died" \
    '/^static void owner_died/,/^}/s/futex_wake(_as)?\(t, addr.*\);/(void)0;/'
mutant robust.c "any lock of the list has lost its owner" \
    '/^static void owner_died/,/^}/s/\(old & FUTEX_TID_MASK\) == tid && !mine/!mine/'
mutant robust.c "a dead owner's lock has no waiters" \
    '/^static void owner_died/,/^}/s/\(old & FUTEX_WAITERS\) \| FUTEX_OWNER_DIED/FUTEX_OWNER_DIED/'
mutant robust.c "an unlock without its wake-up stays so" \
    '/^static void owner_died/,/^}/s/wakes = pending && !pi && old == 0;/wakes = false;/'
mutant robust.c "a free lock's waiters are woken" \
    '/^static void owner_died/,/^}/s/wakes = pending && /wakes = /'
mutant robust.c "the owner's death wakes a thread that waits for a PI lock" \
    '/^static void owner_died/,/^}/s/mine && !pi && /mine \&\& /'
mutant robust.c "the pending lock is forgotten" \
    '/^void robust_list_end/,/^}/s/if \(h\.pending & ~1ull\)/if (0)/'
mutant robust.c "the list ends at its second lock" \
    '/^void robust_list_end/,/^}/s/n < ROBUST_MOST/n < 2/'
mutant robust.c "an entry that cannot be read is no end" \
    '/^void robust_list_end/,/^}/s/if \(!readable\)/if (0)/'

# When a program gives up.
build_test() {
    compile "$unit/test_starved.c" "$unit/pager_sched.c" "$unit/pager_env.c"
}

cleaner=paging/cleaner.c
mutant $cleaner "free frames in stock are not taken back" 's/take_stocks\(\) \|\| //'
mutant $cleaner "it gives up though frames are free" 's/has_free\(\) \|\| //'
mutant $cleaner "it gives up while others are still to give theirs" \
    's/s\.n > 0 \|\| s\.left/s.n > 0/'
mutant $cleaner "what is taken back is lost" 's/frames_take_back\(&pager.*;/;/'
mutant $cleaner "it gives up at once" \
    's/fruitless >= FRUITLESS_TURNS/fruitless + 4 >= FRUITLESS_TURNS/'
mutant $cleaner "it gives up though pages are only hot" \
    's/if \(waited_for && only_hot\)/if (0)/'
mutant $cleaner "it never gives up while pages are hot" \
    's/ && t->unwritable == unwritable\(\)//'
mutant $cleaner "a waiter does not look for frames before it gives up" \
    's/starved = newer && !frames_there\(&pager\)/starved = newer/'
mutant $cleaner "a finding is not of the next wake-up" \
    '/^static bool stock_up/,/^}/s/\(&control\.frames_seq\) \+ 1/(\&control.frames_seq)/'
mutant $cleaner "waiters do not hear that it gave up" \
    '/^static bool stock_up/,/^}/{/^ *wake_waiters\(\);$/{
        N
        s/wake_waiters\(\);(\n *return f)/;\1/
    }}'
mutant $cleaner "waiters do not hear of frames that were freed" \
    '/^static bool stock_up/,/^}/{/starved, 0/{N;s/wake_waiters\(\)//}}'
mutant $cleaner "a waiter does not wake it" '/^int frames_wait/,/^}/s/cleaner_wake\(\);/;/'
mutant $cleaner "a waiter is not counted" \
    '/^int frames_wait/,/^}/s/atomic_fetch_(add|sub)\(&control\.frames_waiters, 1\);/;/'
totals
