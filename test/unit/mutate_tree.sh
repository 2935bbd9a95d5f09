#!/bin/bash
# Mutants of the code that decides which process a slot belongs to: see mutants.sh.
: "${STEPS:=300000000}"
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# shellcheck disable=SC2317 # called by mutant
build_test() { compile "$unit/test_tree_model.c" "$unit/pager_sched.c"; }

hold=tree_hold.c map=slotmap.c
mutant $hold "sharing does not disturb a process that looks for holders" \
    's/^                disturb_check\(word\);/                ;/'
mutant $hold "a process that lets go does not say AGAIN" \
    '/^static bool begin_check/,/^}/s/\(uint16_t\)\(seen \| SLOT_AGAIN\)/seen/'
mutant $hold "AGAIN is ignored at the end of the look" '
    /^static bool end_check/,/^}/{
        s/!atomic_compare_exchange_strong\(word, &seen, (.*)\)\) \{$/(atomic_store(word, \1), 0)) {/
    }'
mutant $hold "a process that was disturbed does not look again" \
    '/^static bool end_check/,/^}/s/return false/return true/'
mutant $hold "of slots that are looked at together, one holder is the holder of all" \
    '/^static uint64_t finish_checks/,/^}/s/held >> i & 1/!!held/'
mutant $hold "a process that lets go frees without a look" \
    '/^static uint64_t finish_checks/,/^}/s/const uint64_t held = .*/const uint64_t held = 0;/'
mutant $hold "a process that lets go looks before it clears its bit" '
    /^int tree_release/,/^}/{
        s/^                if \(slot_slab/                if (begin_check(t, s)) \
                        finish_checks(t, s \& ~63ull, bit_of(s)); \
                if (slot_slab/
        s/^                if \(begin_check\(t, s\)\)$/                if (0)/
    }'
mutant $hold "a dead process's own slots stay" \
    '/^static uint64_t bury_owned/,/^}/s/if \(seen == \(SLOT_OWNED \| due \| p\)\)/if (0)/'
mutant $hold "a look that its owner died in stays" \
    '/^static bool take_check_over/,/^}/s/while \(\(seen.*/while (0)/'
mutant $hold "a slot whose last holder died before its look stays" \
    '/^static uint64_t bury_64/,/^}/s/uint64_t look = had .*/uint64_t look = had;/'
mutant $hold "burying frees a slot that is due" \
    '/^static uint64_t bury_owned/,/^}/s/atomic_store\(word, due\)/atomic_store(word, SLOT_FREE)/'
mutant $hold "a slot that is due is free when its last holder lets go" \
    '/^static bool end_check/,/^}/s/due \| \(held/0 | (held/'
mutant $hold "a chunk counts as buried before its slots are free" '
    /^static uint64_t bury_chunk/,/^}/{
        s/^(        atomic_fetch_and\(&map->touched.*)/        ;/
        s/^        chunk_touch\(map, t->self, chunk\);/& \
        atomic_fetch_and(\&map->touched[p][chunk \/ 64], ~(1ull << chunk % 64));/
    }'
mutant $hold "sharing forgets that a slot is due" \
    '/^static int share_one/,/^}/s/\(SLOT_SHARED \| \(seen.*/SLOT_SHARED);/'
mutant $hold "a dead process's bits stay" \
    '/^static uint64_t bury_64/,/^}/s/atomic_fetch_and\(bits_of.*/;/'
mutant $hold "burying opens no chunk" '/^static uint64_t bury_chunk/,/^}/s/chunk_reopen.*/;/'
mutant $hold "a process that buries leaves no trace of where" '
    /^static uint64_t bury_chunk/,/^}/s/^        chunk_touch.*//
    /^static bool begin_check/,/^}/s/^        chunk_touch.*//'
mutant $hold "the child's chunk is not noted" \
    '/^static int share_one/,/^}/s/^        chunk_touch.*//'
mutant $hold "the parent gets no bit of its own" \
    '/^static int share_one/,/^}/s/atomic_fetch_or\(bits_of\(t, t->self, slot\).*/;/'
mutant $hold "the word is shared before the child has its bit" '
    /^static int share_one/,/^}/{
        s/^        chunk_touch\(map, child.*/& \
            if (owned) { \
                    atomic_fetch_or(bits_of(t, t->self, slot), bit_of(slot)); \
                    atomic_store(word, SLOT_SHARED); \
            }/
    }
    /^static uint64_t held_of/,/^}/s/p < n/p < n \&\& p != 3/'
mutant $map "a slot is taken without compare-and-swap" '
    s/!atomic_compare_exchange_strong\((&map->word.*), &seen, (.*)\)\)$/atomic_store(\1, \2), 0)/'
mutant $map "a full chunk is not looked at again" \
    '/^static bool leave_chunk/,/^}/s/if \(!take_in_chunk/if (1 || !take_in_chunk/'
mutant $map "a freed slot does not open its chunk" '/^bool slotmap_put/,/^}/s/chunk_reopen.*/;/'
mutant $map "the chunk is not noted before slots are taken" \
    '/^static bool try_chunk/,/^}/s/^        chunk_touch.*//'
mutant $map "shared slots are writable" \
    '/^bool slotmap_writable/,/^}/s/== \(SLOT_OWNED.*/!= SLOT_FREE;/'
mutant $map "shared slots are freed at once" '
    /^bool slotmap_put/,/^}/{
        s/^(.*)if \(seen & SLOT_SHARED\)/\1if (seen \& SLOT_SHARED) { \
            atomic_store(\&map->word[slot_page(slot)], SLOT_FREE); \
            return true; \
        } \
        if (0)/
    }'
mutant $map "a slot that is due is freed" \
    '/^bool slotmap_put/,/^}/s/\(uint16_t\)\(seen & SLOT_DUE\)/SLOT_FREE/'
mutant $map "a slot that is due is writable" \
    '/^bool slotmap_writable/,/^}/s/return w ==/return (w \& ~SLOT_DUE) ==/'

# With the lock held, others wait; and what the models of fences and copies meet too seldom.
# shellcheck disable=SC2317 # called by mutant
build_test() {
    compile "$unit/test_tree.c" "$tree"/runtime/far/{cut,tree,tree_hold,tree_life,memfd}.c \
        "$tree/runtime/base/privfd.c" "$tree/kern/far/slotmap.c" "$tree"/common/{clock,size}.c
}
mutant tree_life.c "the dead are buried at one go" 's/define BURY_MS 10/define BURY_MS 100000/'
mutant tree_life.c "a process that needs a number buries for a moment only" \
    '/^static int take_number/,/^}/s/mend_all\(t\)/tree_mend_locked(t)/'
mutant tree_life.c "a process without a number buries as number TREE_PROCESSES" \
    '/^static bool bury/,/^}/s/if \(as.self == TREE_PROCESSES\)/if (0)/'
mutant tree_life.c "a process without a number buries as process 0" \
    '/^static bool bury/,/^}/s/as.self = p/as.self = 0/'
mutant tree_life.c "the last birth is left out" \
    '/^void tree_dead_locked/,/^}/s/h->births \+ 1;/h->births;/'
mutant tree_life.c "a process that executes counts as ended" \
    's/(leaves .*) \? LEAVE_EXEC/\1 ? LEAVE_STILL/'
mutant $hold "a process that has no more time has buried all" \
    '/^static bool bury_slab/,/^}/s/return false/return true/'
mutant $hold "holders are looked for slot by slot" \
    '/^static uint64_t bury_64/,/^}/s/^        return freed \+.*/        for (; checks; checks \&= checks - 1) \
                freed += finish_checks(t, first, checks \& -checks); \
        return freed;/'
mutant tree_life.c "one answer is enough for all processes that were buried before" \
    '/^static void note_silent/,/^}/s/else if \(silences.*/else {/'
mutant far/cut.c "a node that is lost for one process has cut the dead off" \
    '/^static uint64_t cut_at_nodes/,/^}/s/\|\| !n->fences\)/|| !n->fences || n->lost)/'
totals
