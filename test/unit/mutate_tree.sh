#!/bin/sh
# Plants one bug after another in a copy of what decides whose a slot is, and expects test_tree_model to find each.
# Usage: mutate_tree.sh [NUMBER...]    CC, SEED and STEPS come from the environment.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
src=$(cd "$here/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
: "${CC:=gcc}" "${SEED:=1}" "${STEPS:=60000000}"
export SEED STEPS

count=0 survived=0
wanted=" $* "

# mutant FILE WHAT SED-SCRIPT: the script must change the file.
mutant() {
        count=$((count + 1))
        case $wanted in "  " | *" $count "*) ;; *) return 0 ;; esac
        rm -rf "$tmp/kern" "$tmp/runtime" "$tmp/include" "$tmp/common"
        mkdir "$tmp/kern" "$tmp/runtime" "$tmp/runtime/far"
        cp -r "$src/kern/pager" "$src/kern/far" "$tmp/kern"
        cp -r "$src/include" "$src/common" "$tmp"
        cp "$src/runtime/vmrun.h" "$tmp/runtime"
        cp "$src"/runtime/far/tree* "$tmp/runtime/far"
        sed -i -E "$3" "$tmp/$1"
        if cmp -s "$src/$1" "$tmp/$1"; then
                echo "mutant $count ($2): the script changes nothing in $1" >&2
                exit 2
        fi
        $CC -std=gnu11 -O2 -w -D_GNU_SOURCE -pthread -iquote "$here" -iquote "$tmp" -iquote "$tmp/kern" -iquote "$tmp/runtime" -I"$tmp/include" \
                "$here/test_tree_model.c" "$here/pager_sched.c" -lcmocka -o "$tmp/test"
        status=0
        timeout 60 "$tmp/test" >"$tmp/out" 2>&1 || status=$?
        if [ $status -eq 0 ]; then
                echo "SURVIVED $count: $2"
                survived=$((survived + 1))
        else
                printf 'caught %2d: %-62s %s\n' "$count" "$2" "$(grep -m1 -E '^step' "$tmp/out" || echo "status $status")"
        fi
}

hold=runtime/far/tree_hold.c map=kern/far/slotmap.c
mutant $hold "sharing does not disturb who looks for holders" 's/^                disturb_check\(word\);/                ;/'
mutant $hold "who lets go does not say AGAIN" '/^static bool check/,/^}/s/\(uint16_t\)\(seen \| SLOT_AGAIN\)/seen/'
mutant $hold "AGAIN is ignored at the end of the look" '/^static bool finish_check/,/^}/s/if \(atomic_compare_exchange_strong\(word, &mine, (.*)\)\) \{/if (atomic_store(word, \1), 1) {/'
mutant $hold "who lets go frees without a look" '/^static bool finish_check/,/^}/s/bool held = .*/bool held = false;/'
mutant $hold "who lets go looks before it clears its bit" '/^int tree_release/,/^}/{s/^                if \(slot_slab/                check(t, s);\n                if (slot_slab/;s/^                check\(t, s\);$/                ;/}'
mutant $hold "a dead process's own slots stay" '/^static uint64_t bury_word/,/^}/s/if \(seen == \(SLOT_OWNED \| p\)\)/if (0)/'
mutant $hold "a look that its owner died in stays" '/^static uint64_t bury_word/,/^}/s/while \(\(seen.*/while (0)/'
mutant $hold "a slot whose last holder died before its look stays" '/^static uint64_t bury_word/,/^}/s/return seen == SLOT_SHARED.*/return 0;/'
mutant $hold "a dead process's bits stay" '/^static uint64_t bury_chunk/,/^}/s/atomic_fetch_and\(bits_of.*/;/'
mutant $hold "burying opens no chunk" '/^static uint64_t bury_chunk/,/^}/s/chunk_reopen.*/;/'
mutant $hold "who buries leaves no trace of where" '/^static uint64_t bury_chunk/,/^}/s/^        chunk_touch.*//;/^static bool check/,/^}/s/^        chunk_touch.*//'
mutant $hold "the child's chunk is not noted" '/^static int share_one/,/^}/s/^        chunk_touch.*//'
mutant $hold "the parent gets no bit of its own" '/^static int share_one/,/^}/s/atomic_fetch_or\(bits_of\(t, t->self, slot\).*/;/'
mutant $hold "the word is shared before the child has its bit" '/^static int share_one/,/^}/s/^        chunk_touch\(map, child.*/&\n        if (owned) { atomic_fetch_or(bits_of(t, t->self, slot), bit_of(slot)); atomic_store(word, SLOT_SHARED); }/;/^static bool anybody_holds/,/^}/s/p < n/p < n \&\& p != 3/'
mutant $map "a slot is taken without compare-and-swap" 's/if \(!atomic_compare_exchange_strong\(&map->word\[at\], &seen, (.*)\)\)$/if (atomic_store(\&map->word[at], \1), 0)/'
mutant $map "a full chunk is not looked at again" '/^static bool leave_chunk/,/^}/s/if \(!take_in_chunk/if (1 || !take_in_chunk/'
mutant $map "a freed slot does not open its chunk" '/^bool slotmap_put/,/^}/s/chunk_reopen.*/;/'
mutant $map "the chunk is not noted before slots are taken" '/^static bool try_chunk/,/^}/s/^        chunk_touch.*//'
mutant $map "shared slots are writable" '/^bool slotmap_writable/,/^}/s/== \(SLOT_OWNED.*/!= SLOT_FREE;/'
mutant $map "shared slots are freed at once" '/^bool slotmap_put/,/^}/s/^(.*)if \(!\(seen & SLOT_SHARED\)\)/\1if (seen \& SLOT_SHARED) { atomic_store(\&map->word[slot_page(slot)], SLOT_FREE); return true; }\n\1if (1)/'

echo "$survived of the mutants survived"
[ $survived -eq 0 ]
