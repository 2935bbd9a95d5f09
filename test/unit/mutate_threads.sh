#!/bin/bash
# Mutants of vmrun's own threads, of the turn to poll where there is no I/O thread, of requests on
# their way to the I/O side, of stocks that are taken back, and of vCPUs that find guides: see
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

# shellcheck disable=SC2317 # called by mutant
build_test() { compile "$unit/test_polled.c" "$unit/pager_sched.c"; }

polled=runtime/far/polled.c
mutant $polled "a vCPU is dropped without a look at its tails" \
    '/^static bool keep/,/^}/s/!has_entries\(r\)/1/'
mutant $polled "a dropped vCPU is kept, but not said to be polled" \
    '/^static bool keep/,/^}/s/say_polled\(r\);/;/'
mutant $polled "the word is cleared after the look" \
    '/^static bool keep/,/^}/{
        s/atomic_exchange\(&r->polled, 0\)/bool has = has_entries(r); &/
        s/!has_entries\(r\)\)/!has)/
    }'
mutant $polled "news of one vCPU wipe out another's" \
    's/= atomic_exchange(\(&CONTROL.*\[w\]), 0\)/= atomic_load\1), o = (atomic_store\1, 0), 0)/'
mutant $polled "news are of the first 64 vCPUs" \
    '/^static unsigned words/,/^}/s/return .*/return 1;/'
mutant $polled "a vCPU that has news is not polled" \
    '/^static void add\(/,/^}/s/polled\.vcpu\[polled\.n\+\+\] = .*/;/'
mutant $polled "a vCPU is polled twice" \
    '/^static void add\(/,/^}/s/if \(polled\.listed\[vcpu\]\)/if (0)/'
mutant $polled "the I/O thread falls asleep beside news" \
    '/^bool polled_have_news/,/^}/s/return true;/continue;/'
mutant $polled "it falls asleep beside tails that have moved" \
    '/^bool polled_have_news/,/^}/s/has_entries\(.*\)\)$/0)/'
mutant far/rings.c "a vCPU's news wipe out another's" \
    's/atomic_fetch_or(\(&control\.io_news.*), (1.*)\);/atomic_store\1, atomic_load\1) | \2);/'
mutant far/rings.c "a vCPU has news before it has moved the tail" \
    '/^static void submit/,/^}/{
        s/ring_doorbell\(\);/;/
        s/atomic_exchange\(&r->tail, tail \+ 1\);/ring_doorbell(); &/
    }'
mutant far/rings.c "prefetches are no news" '/^void ring_prefetch_ring/,/^}/s/ring_doorbell\(\);/;/'

# shellcheck disable=SC2317 # called by mutant
build_test() { compile "$unit/test_stocks.c" "$unit/pager_sched.c"; }

stocks=runtime/vm/stocks.c
mutant $stocks "a stock is taken from a vCPU in kern" \
    's/!atomic_compare_exchange_strong\(&v->mode, &out, MODE_T.*$/atomic_load(\&v->mode) == 2)/'
mutant $stocks "a stock that was taken stays with its vCPU, too" 's/v->frames\.free\.n = 0;/;/'
mutant $stocks "the vCPU goes on before its stock is taken" \
    '/^static bool take/,/^}/{
        s/^.*MODE_OUT, memory_order_release.*$//
        s/\*taken = .*/atomic_store(\&v->mode, MODE_OUT); point(); &/
    }'
mutant $stocks "a vCPU in the program is not asked" \
    '/^static void ask/,/^}/s/^.*atomic_fetch_or.*$//'
mutant $stocks "a vCPU in the program is not kicked" 's/vcpu_kick\(t\)/(void)t/'
mutant base/exit.c "kern goes on while its stock is taken" \
    '/^static void out/,/^}/{
        s/!atomic_compare_exchange_weak_explicit\($/(atomic_store(\&v->mode, MODE_KERN), 0);/
        s/^ +&v->mode, &m, MODE_KERN.*$//
    }'

# shellcheck disable=SC2317 # called by mutant
build_test() { compile "$unit/test_guides_model.c" "$unit/pager_sched.c"; }

guides=space/guides.c
mutant $guides "a vCPU does not look again once it is counted" \
    '/^struct guide \*guides_find/,/^}/s/if \(is_on\(g\) && is_for\(g, addr\)\)/if (1)/'
mutant $guides "a vCPU looks for the range only once" \
    '/^struct guide \*guides_find/,/^}/s/is_on\(g\) && is_for\(g, addr\)/is_on(g)/'
mutant $guides "a vCPU looks at the range, then whether the guide is on" \
    '/^struct guide \*guides_find/,/^}/s/is_on\(g\) && is_for\(g, addr\)/is_for(g, addr) \&\& is_on(g)/'
mutant $guides "a vCPU is counted after its second look" \
    '/^struct guide \*guides_find/,/^}/{
        s/atomic_fetch_add\(&g->running, 1\);/;/
        s/\*fn = g->fn;/atomic_fetch_add(\&g->running, 1); &/
        s/guides_leave\(g\)/(void)0/
    }'
mutant $guides "a vCPU that looked in vain stays counted" \
    '/^struct guide \*guides_find/,/^}/s/guides_leave\(g\)/(void)0/'
mutant $guides "a vCPU gives up when a guide was taken off" \
    '/^struct guide \*guides_find/,/^}/s/if \((is_on\(g\) && is_for\(g, addr\))\)/if (!(\1))\n return guides_leave(g), NULL;\n else/'
mutant $guides "an entry that a vCPU is in is used again" \
    '/^static bool is_unused/,/^}/s/ && atomic_load\(&g->running\) == 0//'
mutant $guides "a guide is on before it is complete" \
    '/^int guides_add/,/^}/s/set_state\(g, GUIDE_FREE\);/set_state(g, GUIDE_ON);/'
mutant $guides "a drop does not wait" \
    '/^uint32_t guides_drop/,/^}/s/atomic_load\(&table\[i\]\.running\)/0/'
mutant $guides "the last entry is not looked at" \
    '/^static struct guide \*newest/,/^}/s/g < end/g + 1 < end/'
totals
