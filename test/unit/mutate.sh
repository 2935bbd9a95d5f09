#!/bin/sh
# Plants one bug after another in a copy of the pager core and expects the model check to find each, or, where it is a matter of
# memory order, the race test under ThreadSanitizer.
# Usage: mutate.sh [NUMBER...]    CC, SEED and STEPS come from the environment.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
src=$here/../..
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
: "${CC:=gcc}" "${SEED:=1}" "${STEPS:=100000000}"
export SEED STEPS

count=0 survived=0
wanted=" $* "

tools=          # the race test's sanitizer, or empty for the model check
sources()
{
        if [ -z "$tools" ]; then
                echo "$here/test_pager_model.c $here/pager_sched.c"
        else
                echo "$here/test_pager_race.c $tmp/pager/frames.c $tmp/pager/transition.c $tmp/pager/clock.c"
        fi
}

# mutant FILE WHAT SED-SCRIPT: the script must change the file.
mutant() {
        count=$((count + 1))
        case $wanted in "  " | *" $count "*) ;; *) return 0 ;; esac
        rm -rf "$tmp/pager"
        cp -r "$src/kern/pager" "$tmp/pager"
        sed -i -E "$3" "$tmp/pager/$1"
        if cmp -s "$src/kern/pager/$1" "$tmp/pager/$1"; then
                echo "mutant $count ($2): the script changes nothing in $1" >&2
                exit 2
        fi
        $CC -std=gnu11 -O2 -w -D_GNU_SOURCE -pthread -iquote "$here" -iquote "$tmp" -I"$src/include" $tools \
                $(sources) "$here/pager_env.c" -lcmocka -o "$tmp/test"
        status=0
        timeout 20 "$tmp/test" >"$tmp/out" 2>&1 || status=$?
        if [ $status -eq 0 ]; then
                echo "SURVIVED $count: $2"
                survived=$((survived + 1))
        else
                printf 'caught %2d: %-62s %s\n' "$count" "$2" \
                        "$(grep -m1 -E '^step|^WARNING|^thread' "$tmp/out" || grep -m1 -i error "$tmp/out" || echo "status $status")"
        fi
}

# Eviction and flushes
mutant clock.c "evicts without waiting for the flush" 's/^(.*return ).*age < 0.*$/\1true || next || age;/'
mutant clock.c "stamps before it clears A" '/^static void second_chance/,/^}/{s/^(        pte_slot_t \*pte = entry_of.*)$/\1\n        frame_stamp(f, env_flush_next());/;s/frame_stamp\(f, env_flush_next\(\)\);$/&/;/^                frame_stamp/d;/^        if \(cleared\)/d}'
mutant clock.c "evicts a page whose A is set" 's/^(static bool is_cold.*return ).*/\1p | 1; }/'
mutant clock.c "taking off does not look at the epoch" '/^static bool take_off/,/^}/s/ && epoch_done\(w\)//'
mutant clock.c "taking off does not look at D" '/^static bool take_off/,/^}/s/ && !\(p & PTE_D\)//'
mutant clock.c "direct reclaim ignores the software-dirty bit" '/^static bool take_off/,/^}/s/\(FRAME_DIRTY \| FRAME_LOCKED\)/FRAME_LOCKED/;/^bool clock_take_clean/,/^}/s/\(FRAME_DIRTY \| FRAME_LOCKED\)/FRAME_LOCKED/'
mutant clock.c "eviction ignores D" '/^static bool evict/,/^}/s/\(\(p & PTE_D\) \|\| \(w & FRAME_DIRTY\)\)/(w \& FRAME_DIRTY)/;/^static bool take_off/,/^}/s/ && !\(p & PTE_D\)//'
mutant clock.c "eviction ignores the software-dirty bit" '/^static bool evict/,/^}/s/\(\(p & PTE_D\) \|\| \(w & FRAME_DIRTY\)\)/(p \& PTE_D)/;/^static bool take_off/,/^}/s/\(FRAME_DIRTY \| FRAME_LOCKED\)/FRAME_LOCKED/'
mutant clock.c "clears D without looking at A" '/^static int write_back/,/^}/s/\(p & PTE_D\) && !atomic_compare_exchange_strong\(.*\)\) \{/(p \& PTE_D) \&\& !atomic_fetch_and(pte, ~PTE_D)) {/'
mutant clock.c "clearing USED overwrites the word" '/^static void second_chance/,/^}/s/atomic_fetch_and\(&f->word, .*$/atomic_store(\&f->word, w \& ~FRAME_USED);/'
mutant clock.c "a failed write leaves the page clean" '/env_slot_write/,/^        }/s/^.*fetch_or.*$//'
mutant clock.c "a lost race for D leaves the page clean (new slot)" '/^static int write_back/,/^}/{/p & PTE_D\) && !atomic/,/^        }/s/atomic_fetch_or.*$/atomic_fetch_and(pte, ~PTE_D);/}'
mutant clock.c "eviction does not claim" '/^static bool evict/,/^}/s/if \(!frame_claim\(.*\)\)/if (0)/'
mutant clock.c "the hand evicts locked pages" 's/ \&\& !\(w & FRAME_LOCKED\) \&\& epoch_done/ \&\& epoch_done/;s/\(FRAME_DIRTY \| FRAME_LOCKED\)/FRAME_DIRTY/;s/ \|\| \(w & FRAME_LOCKED\) \|\|/ ||/'
mutant clock.c "a slot taken back leaves its page clean" '/^static uint64_t slot_take_back/,/^}/s/atomic_fetch_or.*/;/'
mutant clock.c "a slot is taken back without a claim" '/^static uint64_t slot_take_back/,/^}/{s/if \(!frame_claim.*/if (!(f->word \& FRAME_RESIDENT))/;s/atomic_fetch_and.*/;/}'
mutant clock.c "the evicted frame keeps its slot" '/^static bool unmap_clean/,/^}/s/^.*f->slot = SLOT_NONE;.*$//'
mutant clock.c "an evicted page drops CHARGED" '/^static bool unmap_clean/,/^}/s/p & PTE_KEEP/p \& PTE_PROT/'
mutant clock.c "orphans are reaped while held" '/^static bool reap_orphan/,/^}/s/frame_word_held\(w\) \|\| //'

# Range operations
mutant transition.c "PROT_NONE loses D" 's/^.*if \(p & PTE_D\) +\/\* D has no place.*$/                if (0)/'
mutant transition.c "PROT_NONE is not stamped" '/^static bool protect_resident/,/^}/s/frame_stamp\(f, env_flush_next\(\)\)/(void)0/'
mutant transition.c "protection changes lose D" '/^static bool protect_resident/,/^}/s/PTE_A \| \(p & PTE_D\)/PTE_A/'
mutant transition.c "protection changes do not hold the frame" '/^static bool protect_resident/,/^}/{s/if \(!hold\(f\)\)/if (0)/;s/frame_unpin\(f, false\);/;/}'
mutant transition.c "lost rights ask for no flush" '/^static bool loses_rights/,/^}/s/return .*/return p \&\& !prot \&\& 0;/'
mutant transition.c "a moved page has A=0" '/^bool page_move/,/^}/s/p \|= PTE_A;/p \&= ~PTE_A;/'
mutant transition.c "a moved page asks for no flush" '/^bool page_move/,/^}/s/return p & PTE_P;/return false;/'
mutant transition.c "a moved frame keeps its old entry" '/^bool page_move/,/^}/s/atomic_store\(&pg->frames.*/;/'
mutant transition.c "detach takes BUSY entries" '/^frame_t page_detach/,/^}/s/if \(pte_kind\(p\) == PTE_BUSY\)/if (0)/'
mutant transition.c "detach gives the frame back before the flush" '/^frame_t page_detach/,/^}/s/return frame_of\(pg, p\);/static struct frame_list gone; frame_discard(pg, \&gone, frame_of(pg, p)); frame_list_drain(pg, \&gone); return FRAME_NONE;/'
mutant transition.c "detach keeps the slot" '/^frame_t page_detach/,/^}/s/env_slot_free.*/;/'
mutant transition.c "cooling does not stamp" '/^void page_cool/,/^}/s/frame_stamp\(f, env_flush_next\(\)\)/(void)0/'
mutant transition.c "cooling stamps before it clears A" '/^void page_cool/,/^}/{s/^        if \(atomic_compare_exchange_strong.*$/        frame_stamp(f, env_flush_next());\n        atomic_compare_exchange_strong(pte, \&p, p \& ~PTE_A);/;/^                frame_stamp/d}'

# Faults and frames
mutant frame.h "waiters are not woken" '/^static inline bool page_fetched/,/^}/s/ & PTE_WAITERS;/ \& 0;/'
mutant transition.c "the sleeper does not say that it waits" '/^void page_wait/,/^}/{s/if \(!atomic_compare_exchange_strong\(pte, &seen, seen \| PTE_WAITERS\)\)/if (0)/;s/seen \|= PTE_WAITERS;/;/}'
mutant frame.h "a failed fetch leaves a present entry" '/^static inline bool page_fetched/,/^}/s/err \? pte_make_remote\(f->slot, keep\) : //'
mutant transition.c "a fetched frame does not own its slot" '/^int page_fetch/,/^}/s/f->slot = pte_num\(p\);.*/;/'
mutant transition.c "fetch takes any entry" '/^int page_fetch/,/^}/s/if \(!atomic_compare_exchange_strong\((.*)\)\) \{$/atomic_store(pte, pte_make_busy(pg->pfn0 + n, p \& PTE_KEEP)); if (0) {/'
mutant frames.c "discard frees a held frame" '/^void frame_discard/,/^}/s/if \(frame_claim\(f, w\)\)/if (1)/'
mutant frames.c "a freed frame keeps its slot" '/^static void frame_reset/,/^}/s/env_slot_free.*/;/'
mutant frame.h "unpinning forgets the dirty bit" '/^static inline void frame_unpin/,/^}/s/if \(wrote\)/if (0 \&\& wrote)/'
mutant frame.h "unpinning sets the dirty bit too late" '/^static inline void frame_unpin/,/^}/{s/^        atomic_fetch_sub.*$//;s/^        if \(wrote\)/        atomic_fetch_sub(\&f->word, 1);\n        if (wrote)/}'
mutant frame.h "a pin does not look at the entry again" '/^static inline frame_t frame_pin/,/^}/s/if \(pte_kind\(p\) == PTE_PRESENT && pte_num.*/if (1)/'
mutant frame.h "a pin ignores the claim" '/^static inline frame_t frame_pin/,/^}/s/!frame_word_open\(w\) \|\| \(w & FRAME_ORPHAN\)/!(w \& FRAME_RESIDENT) || (w \& FRAME_ORPHAN)/'
mutant frame.h "a pin sees no difference between claims" '/^static inline bool frame_word_closed/,/^}/s/return .*/return w \& FRAME_CLAIMED;/'
mutant clock.c "the end of a write does not look at pins" '/^static bool write_over/,/^}/s/w & FRAME_PINS \? FRAME_WRITING \| FRAME_CLAIMED : FRAME_WRITING/FRAME_WRITING/'
mutant clock.c "the end of a write leaves WRITING" '/^static bool write_over/,/^}/s/w & FRAME_PINS \? FRAME_WRITING \| FRAME_CLAIMED : FRAME_WRITING/w \& FRAME_PINS ? FRAME_CLAIMED : 0/'
mutant frame.h "a claim ignores pins" '/^static inline bool frame_claim/,/^}/s/frame_word_held\(w\)/(w \& FRAME_CLAIMED)/'
mutant pte.h "a stray A makes an entry unknown" 's/if \(\(p & ~\(PTE_A \| PTE_D\)\) == 0\)/if (p == 0)/'

# Memory order
tools=-fsanitize=thread
export TSAN_OPTIONS=halt_on_error=1
mutant frames.c "the pool has no lock" 's/^        while \(atomic_exchange_explicit\(&pg->lock.*$/        while (0)/'
mutant frames.c "the pool is unlocked without release" '/^static void pool_unlock/,/^}/s/memory_order_release/memory_order_relaxed/'
mutant clock.c "eviction does not claim" '/^static bool evict/,/^}/s/if \(!frame_claim\(.*\)\)/if (0)/'

echo "$survived of the mutants survived"
[ $survived -eq 0 ]
