#!/bin/bash
# Mutants of vmrun's own threads, and of the turn to poll where there is no I/O thread: see
# mutants.sh.
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# shellcheck disable=SC2317 # called by mutant
build_test() { compile "$unit/test_own_thread.c" "$tree/runtime/base/own_thread.c"; }

own=base/own_thread.c
mutant $own "a thread stays where its maker is pinned" 's/^.*SYS_sched_setaffinity.*$/;/'
mutant $own "the thread that asks makes the new thread" \
    '/^int own_thread_once/,/^}/s/maker\.exists \? have_made\(&rq\) : //'
mutant $own "there is no maker" '/^void own_threads_set_apart/,/^}/s/if \(!maker\.exists\)/if (0)/'
mutant $own "a second maker" '/^void own_threads_set_apart/,/^}/s/if \(!maker\.exists\)//'
mutant $own "a child thinks that it has its parent's maker" \
    '/^void own_threads_forked/,/^}/s/maker\.exists = false/;/'
mutant $own "signals stay open" 's/all = ~0ull/all = 0/'
mutant $own "a signal of libc stays open" '/^void own_thread_begins/,/^}/s/block_all\(\);//'
mutant $own "the maker stays" '/^void own_threads_rest/,/^}/s/maker\.to_end = true/return/'
mutant $own "the next maker ends at once" \
    's/maker\.exists = maker\.to_end = false/maker.exists = false/'
mutant $own "of two that ask one is forgotten" \
    '/^static int have_made/,/^}/s/while \(asked\)/while (0)/'
mutant $own "a thread that waits for its turn is not woken" \
    '/^static void \*maker_main/,/^}/s/pthread_cond_broadcast/pthread_cond_signal/'
mutant $own "any CPU is one of main()'s" '/^bool own_cpus_hold/,/^}/s/return false/;/'

# shellcheck disable=SC2317 # called by mutant
build_test() { compile "$unit/test_turns.c" "$tree/runtime/far/turns.c"; }

turns=far/turns.c
mutant $turns "two poll" '/^bool turn_begin/,/^}/s/!turns\.polling \|\|/1 ||/'
mutant $turns "a thread that polls tells no other" '/^void turn_tell/,/^}/s/tell\(\);/;/'
mutant $turns "the poller does not learn that a thread is in the list" \
    's/atomic_store\(&turns\.listed, true\)/;/'
mutant $turns "a thread that is told is not woken" '/^static void take_off/,/^}/s/word_wake.*/;/'
mutant $turns "it does not hand over" 's/take_off\(&turns\.first, TURN_POLLS\)/;/'
mutant $turns "it hands over, but says that no thread polls" \
    's/polling = turns\.first != NULL/polling = false/'
mutant $turns "a child waits for its parent's threads" \
    '/^void turns_forked/,/^}/s/turns\.polling = false/;/'
mutant $turns "a killed child's turn is lost" \
    '/^bool turn_begin/,/^}/s/ \|\| atomic_load\(&my_turn\.state\) == TURN_POLLS//'
totals
