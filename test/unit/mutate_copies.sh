#!/bin/bash
# Mutants of the code that says which copies of a page are right, and the rules of the model's own
# parts, left out one by one: see mutants.sh.
: "${STEPS:=300000000}" "${MUTANT_LIMIT:=240}"
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# shellcheck disable=SC2317 # called by mutant
build_test() {
    compile "$unit"/test_copies_model.c "$unit"/copies_*.c "$unit/pager_sched.c" \
        "$tree/runtime/far/sums.c"
}

copies=far/copies.c request=far/request.c outage=far/outage.c hold=tree_hold.c life=tree_life.c
held=far/held.c repair=far/repair.c whole=far/whole.c slotmap=far/slotmap.c drain=far/drain.c
moves=far/moves.c

mutant $copies "a missed write is not noted" \
    '/^static void set_good/,/^}/s/^        set_bit/        if (!good) return; &/'
mutant $copies "a copy is never good" \
    '/^static void set_good/,/^}/s/^        set_bit/        if (good) return; &/'
mutant $copies "stale copies are read" \
    '/^static unsigned readable/,/^}/s/ \|\| !is_good\(.*\)\)$/)/'
mutant $copies "stale copies are written although they are threatened" \
    '/^static bool is_threatened/,/^}/s/return true/return false/'
mutant $copies "only what this process gave up counts as a threat" \
    '/^static bool is_threatened/,/^}/s/if \((atomic_load_explicit\(&t->process)/if (p == c->self \&\& \1/'
mutant $copies "a threat is looked for at another node" \
    '/^static bool is_threatened/,/^}/{s/n->index & 1/(n->index + 1) % 3 \& 1/}'
mutant $copies "threatened copies are never written again" \
    '/^void copies_fenced/,/^}/s/~\(1ull << n->index\)/~0ull/'
mutant $copies "stale copies are never written" \
    '/^unsigned copies_to_write/,/^}/s/ \|\| !is_threatened\(c, n\)//'
mutant $copies "what is given up threatens another node" \
    '/^void copies_unfenced/,/^}/s/1ull << n->index/1ull << (n->index + 1) % 3/'
mutant $copies "one node is fenced, so all are" \
    '/^void copies_fenced/,/^}/s/~\(1ull << n->index\)/0ull/'
mutant $copies "only those that live are a threat" \
    '/^static bool is_threatened/,/^}/s/n->index & 1\)$/n->index \& 0)/'
mutant $copies "two slots have one bit" 's/1ull << slot % 64/1ull << slot % 2/'
mutant $copies "two places have one bit" 's/->good\[k\]/->good[k \& 1]/'
mutant $copies "nodes that are lost have their pages" \
    '/^bool copies_gone/,/^}/s/!s->place\[k\]\.node->lost && //'
mutant $copies "a page is gone if one node is" \
    '/^bool copies_gone/,/^}/s/!s->place\[k\]\.node->lost && .*\)\)/!s->place[0].node->lost)/'
mutant $copies "a page is there if it is stale there" \
    '/^bool copies_gone/,/^}/s/ && is_good\(.*\)\)$/)/'
mutant $copies "a slab has no node if it has lost one" \
    '/^bool copies_all_lost/,/^}/s/if \(!s->place\[k\]\.node->lost/if (k == 0 \&\& !s->place[k].node->lost/'

mutant $request "a write is over before the places that missed it are noted" '
    /^static void copy_over/,/^}/{
        s/^ *copies_written\(.*/entry_over(q, IO_OVER);/
        s/^ *entry_over\(q, IO_OVER\);$/copies_written(\&c, q->slot, q->good);/
    }'
mutant $request "what a node could not write is there" \
    's/copy_over\(r, !r->error\)/copy_over(r, true)/'
mutant $request "a page that is nowhere is called written" \
    '/^static void write_lost/,/^}/s/IO_LOST/IO_OVER/'
mutant $request "a place that could not be written is used again" '
    /^static void write_lost/,/^}/s/^        forget_write.*/& \
        slot_write_ends(slot_word((char *)TREE_WINDOW, q->slot));/'
mutant "$request $outage" "the stale bit is set before that of the process" '
    /^void far_down/,/^}/s/^        if \(n->writing.*/        if (0)/
    /^static void copy_over/,/^}/s/^ *copies_written\(.*/& \
        for (unsigned k = 0; k < q->slab->places; k++) \
                if (q->late >> k \& 1) \
                        copies_unfenced(\&c, q->slab->place[k].node);/'
mutant $outage "what is given up is not noted" \
    '/^void far_down/,/^}/s/if \(n->writing\)/if (0)/'
mutant $outage "what is given up is noted only if nothing is under way" \
    '/^void far_down/,/^}/s/if \(n->writing\)/if (!n->writing)/'
mutant $outage "a node that is up again still threatens" \
    '/^void far_up/,/^}/s/copies_fenced\(&c, n\)/;/'
mutant $outage "a node is up as soon as it is down" \
    '/^void far_down/,/^}/s/\&n->up, false/\&n->up, true/'
mutant $request "a write is over when one copy is there" \
    '/^static void copy_over/,/^}/s/if \(q->waits\)/if (q->waits \&\& !q->good)/'
mutant $request "a write is over when no copy is there" \
    '/^static void copy_over/,/^}/s/else if \(!q->good\)/else if (0)/'
mutant $request "a copy that failed is there" \
    '/^void request_go_without/,/^}/s/copy_over\(r, false\)/copy_over(r, true)/'
mutant $request "an attempt that failed at all nodes is forgotten" \
    '/^static void send_write/,/^}/s/q->good = 0/q->good = q->late = 0/'
mutant $request "late writes at a node that cannot fence are forgotten" \
    '/^static bool count_retired/,/^}/s/due = true/due = false/'
mutant $request "slots at nodes that cannot fence are not due" \
    '/^static bool any_unfencing/,/^}/s/return true/return false/'
mutant $outage "what was not posted is forgotten when the node breaks" \
    '/^void far_down/,/^}/s/request_hand_back\(n\);/;/'
mutant $outage "what no node took is not tried again" \
    '/^static unsigned retry_stranded/,/^}/s/retry\(q\)/q->stranded = 0/'
mutant $request "a read that failed is not asked of another node" \
    '/^void request_go_without/,/^}/s/^( *)send_read\(q\)/\1;/'

mutant $hold "the dead threaten for ever" \
    '/^bool tree_bury/,/^}/s/^( *)atomic_store\(.*unfenced, 0\)/\1/'
mutant $life "the dead do not threaten before they are cut" '
    /^uint64_t tree_mend_locked/,/^}/{
        s/^( *)record\[p\]\.state = RECORD_DEAD;/{ \1record[p].state = RECORD_DEAD; \
                        atomic_store(\&tree_common(t->units)->process[p].unfenced, 0); }/
    }'
mutant $life "the dead are buried uncut" '/^static bool is_harmless/,/^}/s/r->cut/1/'
mutant $life "a process that ends is still although it gave up writes" \
    '/^bool tree_leave\(/,/^}/s/ && !gave_up_writes\(t\)//'
mutant $life "a process that executes is still although it gave up writes" \
    '/^void tree_leaves\(/,/^}/s/ && !gave_up_writes\(t\)//'

mutant $life "a node that was silent at the cut has cut the dead off" \
    '/^static void note_silent/,/^}/s/if \(silent & bit\)/if (0)/'
mutant $moves "no process asks whether a silent node answers" \
    '/^void moves_look/,/^}/s/atomic_load\(&slabs_common\(\)->uncut\)/0/'
mutant $hold "a silent node has good copies of the dead" \
    '/^static uint64_t bury_owned/,/^}/s/spoil_copies\(t, first \+ i\)/;/'
mutant far/cut.c "a node that one process does not know has cut the dead off" \
    's/= known < NODES_MAX .*;/= 0;/'
mutant $request "only places of when a write began can make its slot due" '
    /^static void send_write/,/^}/s/if \(any_unfencing\(.*/if (0)/
    /^static void begin_write/,/^}/s/^( *)send_write\(q\)/\1if (any_unfencing(q->slab, ~0u)) slot_write_begins(slot_word((char *)TREE_WINDOW, q->slot)); send_write(q)/'

mutant $request "a slot is copied while it is written" \
    '/^void request_repair/,/^}/s/request_written\(slot\)/0/'
mutant $request "a slot is written while it is copied" \
    '/^void request_begin/,/^}/s/if \(held_has\(q->slot\)\)/if (0)/'
mutant $request "a copy that could not be made up for is good" \
    '/^static void copy_over/,/^}/s/repaired\(&c, q->slot, q->good\)/repaired(\&c, q->slot, q->good | q->late)/'
mutant $copies "copies are made up for although a write may arrive there" \
    '/^unsigned copies_to_repair/,/^}/s/ & copies_to_write\(c, s, slot\)//'
mutant $held "a slot that is copied may be taken when it is freed" \
    '/^static bool take\(/,/^}/s/\(uint16_t\)\(mine \| SLOT_DUE\)/mine/'
mutant $held "two processes copy shared slots" \
    '/^static bool take\(/,/^}/s/be_repairer\(\)/true/'
mutant $held "a shared slot is released while it is copied" \
    '/^static bool defer_release/,/^}/s/!h->owned/0/'
mutant $held "copies begin while the process forks" \
    '/^bool held_begin/,/^}/s/!atomic_load\(&held\.stopped\)/true/'
mutant $repair "a page is copied by a frame that is in use" \
    '/^static bool is_over/,/^}/s/return false/return true/'
mutant $repair "no repair is wanted when a node is back, or new" \
    '/^void repair_wanted/s/true/false/'
mutant $held "a slot stays due when its copy is over" \
    '/^void held_let_go/,/^}/s/slot_write_ends\(.*/;/'
mutant $hold "a dead process stays the repairer of shared slots" \
    '/^bool tree_bury/,/^}/s/^( *)atomic_compare_exchange_strong\(.*repairer.*/\1;/'
mutant $slotmap "a slot cannot be freed when its copy is over just now" \
    '/^bool slotmap_put/,/^}/s/\(seen & ~SLOT_DUE\) != mine/seen != (mine | SLOT_DUE)/'
mutant $copies "places that a process does not know keep their copies" \
    '/^void copies_written/,/^}/s/places_with_bits\(c, slot\)/far_slab(slot_slab(slot))->places/'
mutant $copies "a page is gone before all its places are known" \
    '/^static bool knows_all/,/^}/s/return .*/return true;/'

mutant $drain "a node is drained before a pass has found nothing" \
    '/^static bool may_end/,/^}/s/repair_has_drained\(\)/true/'
mutant $drain "a node is drained before its slabs have other places" \
    '/^static bool may_end/,/^}/s/all_have_places\(\)/true/'
mutant $drain "a node is drained before its slabs are looked at" \
    '/^static bool may_end/,/^}/s/&n->noted/\&n->asked/'
mutant $drain "a node is answered though others need it" \
    '/^static unsigned drain_node/,/^}/s/has_unasked\(n\)/0/'
mutant $drain "a child that was not asked yet counts for nothing" \
    '/^static bool holds_slots/,/^}/s/atomic_load_explicit\(&o->shared.* \|\|/false ||/'
mutant $drain "a child answers for its parent" \
    '/^void drain_forked/,/^}/s/atomic_store_explicit\(&n->(asked|noted), false.*/;/'
mutant $request "a write is over at a drained node, and nowhere else" \
    '/^static unsigned not_drained/,/^}/s/ && !is_set\(.*\)\)$/)/'
mutant $request "a write is over at a node that was drained since, and nowhere else" \
    '/^static void copy_over/,/^}/{s/good \? set : 0/not_drained(q, good ? set : 0)/; s/q->good = not_drained.*/;/}'
mutant $request "a write that only a draining node has asks for no pass" \
    '/^static void copy_over/,/^}/s/if \(!copies_staying\(.*/if (0)/'
mutant $copies "nothing needs a draining node" \
    '/^bool copies_only_draining/,/^}/s/needed = true/needed = false/'
mutant $repair "a pass from before a node drained counts" \
    '/^bool repair_has_drained/,/^}/s/drained && draining\(\) == repair\.pass\.draining/drained/'
mutant $repair "a pass counts for a node that drains only since it began" \
    '/^static void begin_pass/,/^}/s/repair\.drained &= .*/;/'
mutant $repair "a pass counts before its copies are over" \
    '/^bool repair_next/,/^}/s/!repair\.pass\.runs && !held_writes\(\)/!repair.pass.runs/'
mutant $moves "slabs of a draining node get no bits" \
    '/^static void give_bits/,/^}/s/if \(places_have_bits\(i\)\)/if (1)/'
mutant $moves "slabs get bits that say that nothing is there" \
    '/^static void give_bits/,/^}/s/0xff/0/'
mutant $moves "a node is noted for another one" \
    '/^static void note_asked/,/^}/s/draining, 1ull << n->index/draining, 1ull << (n->index + 1) % 3/'

# What copies_model.h numbers.
rule 1 "a node is up before it has ended the older connection"
rule 2 "a node is lost without being down before"
rule 3 "a CUT cuts nothing off"
rule 4 "a CUT without an answer counts"
rule 5 "a node says that it fences, and does not"
rule 6 "a slot is freed before its write is over"
rule 7 "a process says still while writes are under way"
rule 8 "a child notes what it gave up as its parent"

mutant $whole "all copies are there, without a look" \
    '/^static bool is_whole/,/^}/s/!copies_any_wanting/true \|\| &/'
mutant $whole "all copies are there if those of the last slab are" \
    '/^static bool is_whole/,/^}/s/!copies_any_wanting/i == 0 || &/'
mutant $whole "it is not for this process to say" \
    '/^static void say_all_whole/,/^}/s/atomic_exchange_explicit\(.*\) &&/false \&\&/'
mutant $copies "of others no copy is wanting" \
    '/^static bool is_copied/,/^}/s/return w/return (w \& SLOT_NUMBER) == 0 \&\& w/'
mutant $copies "one copy is enough" \
    '/^static uint64_t not_at/,/^}/s/missing \|= .*/missing = ~there;/'

# The choice among several right copies shows in no content.
# shellcheck disable=SC2317 # called by mutant
build_test() { compile "$unit/test_copies.c" "$tree/runtime/far/copies.c"; }
mutant $copies "reads go to all nodes, whatever their priority" \
    '/^static unsigned readable/,/^}/s/priority = n->option->priority/priority = 0/'
mutant $copies "a node of higher priority is not read alone" \
    '/^static unsigned readable/,/^}/s/priority > highest \? 0 : set/set/'
mutant $copies "a node of high priority is read although it does not answer" \
    '/^static unsigned readable/,/^}/s/!far_answers\(n\) \|\| //'
mutant $copies "the last process is no threat" \
    '/^static bool is_threatened/,/^}/s/p < processes/p + 1 < processes/'
mutant good_copy.h "one of several equal nodes has all reads" \
    '/^static inline unsigned slot_place/,/^}/s/slot_chunk\(slot\)/0/'
totals
