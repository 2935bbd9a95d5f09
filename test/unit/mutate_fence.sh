#!/bin/bash
# Mutants of the code that keeps late messages out (docs/protocol.md), and the rules of the model's
# own parts, left out one by one: see mutants.sh.
: "${STEPS:=200000000}"
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# shellcheck disable=SC2317 # called by mutant
build_test() {
    compile -iquote "$tree/memnode" "$unit"/test_fence_model.c "$unit"/fence_*.c \
        "$unit/pager_sched.c" "$tree"/common/{secret,size}.c
}

members=members.c lease=export.c fence=fence.c life=tree_life.c cut=far/cut.c

mutant $members "a generation is admitted twice" 's/generation <= known->/generation < known->/'
mutant $members "an older generation is admitted" 's/known && generation <= /0 \&\& generation <= /'
mutant $members "generations are one for all links" \
    's/generation\[link\]/generation[0]/'
mutant $members "a member that was cut is admitted" \
    '/^int members_may_admit/,/^}/s/if \(members_is_cut.*/if (0)/'
mutant $members "only members that came before are cut" '
    /^int members_cut/,/^}/s/^        struct members_range whole/        if (!find(m, first)) \
                return 0; \
&/'

mutant $lease "any incarnation will do" 's/\|\| l->incarnation != n->incarnation/|| 0/'
mutant $lease "joining makes a lease" \
    '/^static uint32_t agrees/,/^}/s/else if \(!l \|\|/else if (l \&\&/'
mutant $lease "a lease has the incarnation of the one before" \
    's/l && n->verb == NBD_CREATE && !l->incarnation/l \&\& !(l->incarnation = 1)/'
mutant $lease "a connection gets a lease without admit()" \
    '/^static uint32_t attach_lease/,/^}/s/error = admit\(.*/;/'
mutant $lease "a connection that is refused stays a user" \
    '/^static uint32_t attach_lease/,/^}/s/if \(--l->users == 0 && l->error\)/if (0)/'
mutant $lease "CUT is not noted" '/^static uint32_t cut/,/^}/s/members_cut\(.*\) != 0/0/'
mutant $lease "CUT notes the first range only" \
    '/^static uint32_t cut/,/^}/s/while \(nbd/if (nbd/'
mutant $lease "one goodbye ends the lease of all" \
    '/^void nbd_export_leave/,/^}/s/l->users == 1 && //'

mutant $fence "the older connection is not ended" \
    '/^static bool end_stale/,/^}/s/if \(c->e != e \|\|/if ((self \&\& c != self) || c->e != e ||/'
mutant $fence "the answer does not wait for the older one" \
    '/^static bool end_stale/,/^}/s/waits \|= c != self/waits = false/'
mutant $fence "an older connection that does not leave is given up" \
    '/^static bool end_stale/,/^}/s/bool ok = !late &&/bool ok =/'
mutant $fence "a connection looks for others before they can see it" '
    /^uint32_t nbd_fence_attach/,/^}/{
        s/^        pthread_mutex_lock.*/        bool current = end_stale(e, c); \
&/
        s/^        bool current = end_stale\(e, c\);$/;/
    }'
mutant $fence "a connection counts as gone when it is cut" \
    '/^static bool end_stale/,/^}/s/(atomic_store_explicit.*)/\1 c->e = c != self ? NULL : c->e;/'
mutant $fence "CUT ends no connection" \
    '/^uint32_t nbd_fence_cut/,/^}/s/= end_stale\(e, NULL\)/= true/'
mutant $life "the dead are buried uncut" '/^static bool is_harmless/,/^}/s/r->cut/1/'
mutant $life "the dead are all cut, also those that no node was told of" \
    '/^void tree_cut_locked/,/^}/s/ && is_in\(.*\)\)$/)/'
mutant $life "processes that live are cut" \
    '/^void tree_dead_locked/,/^}/s/state == RECORD_USED/state == RECORD_DEAD/'
mutant $life "births are given again" 's/\.birth = \+\+h->births/.birth = h->births = p + 1/'
mutant $life "a child does not say that it is up" \
    '/^void tree_be_child/,/^}/s/pid = getpid\(\)/pid = 0/'
mutant $life "a child closes its own description" \
    '/^void tree_be_child/,/^}/s/t->life = c->life/privfd_close(c->life)/'
mutant $life "a child keeps its parent alive" \
    '/^void tree_be_child/,/^}/s/if \(t->life >= 0\)/if (0)/'
mutant $life "a child's number is not locked" \
    '/^static int take_free_number/,/^}/s/int err = life < 0 .*/int err = 0;/'
mutant $life "the lock is on the description that is mapped" \
    '/^int tree_child/,/^}/s/number_of_child\(t, life\)/number_of_child(t, t->fd)/'
mutant $life "the program of a child of vfork is not locked" \
    '/^struct tree_child tree_expected/,/^}/s/lock_byte\(.*\) != 0/0/'
mutant $life "the program of a child of vfork is not expected" \
    '/^int tree_expect/,/^}/s/number_of_child\(t, t->life\)/number_of_child(t, -1)/'
mutant $life "a process whose execve failed counts as still" \
    '/^void tree_leaves/,/^}/s/: LEAVE_NOT/: LEAVE_STILL/'
mutant $life "a process that ends counts as still" \
    '/^bool tree_leave\(/,/^}/s/still \&\& .* \? LEAVE_STILL : LEAVE_SOON/LEAVE_STILL/'
mutant $life "others that live do not count at the end" \
    '/^bool tree_leave\(/,/^}/s/last &= .*/last |= p == t->self ||/'
mutant $life "the dead are not noticed" \
    '/^uint64_t tree_mend_locked/,/^}/s/ && !is_alive\(t, p\)/ \&\& 0/'

mutant $cut "one node's answer is enough" \
    's/(if \(err && err != -ESTALE)\)/\1 \&\& i + 1 == known)/'
mutant $cut "nodes of the tree need not answer" 's/left \|= used/left |= 0/'
mutant $cut "nodes without a slab must answer" 's/left \|= used & /left |= /'
mutant $cut "a node whose memory is gone must answer" 's/ && err != -ESTALE//'
mutant $cut "a node that this process does not know has cut the dead off" \
    's/= known < NODES_MAX .*;/= 0;/'
mutant $cut "pages without copies need no answer" 's/opt\.replicas > 1/opt.replicas > 0/'
mutant $cut "the dead are counted after the answers" '
    s/^( *)tree_cut_locked\(t, &d, left\);/\1tree_dead_locked(t, \&d); \
&/'
mutant $cut "the dead are not marked as cut" 's/tree_cut_locked\(t, &d, left\);/;/'
mutant $cut "the lock is kept after a failure" \
    '/^bool cut_dead/,/^}/s/pthread_mutex_unlock\(&c->lock\)/if (!c->next) &/'
mutant $cut "it is never tried again" 's/now_ms\(\) \+ CUT_AGAIN_MS/INT64_MAX/'

# What fence_model.h numbers.
rule 1 "a connection is made again with its old generation"
rule 2 "what was not answered is not sent again"
rule 4 "a slot is freed before its write was answered"
rule 5 "a slot is shared before its write was answered"
rule 6 "a process says still while writes are under way"
rule 8 "a CUT without an answer counts"
rule 9 "a child connects as its parent"
rule 10 "a program connects as the one before it"
rule 11 "a node whose memory is gone is asked further"

# The ranges that a tree sends only grow. One that begins in another is an older CUT that comes
# late, and does harm if a connection comes later still: that is too rare for the model.
# shellcheck disable=SC2317 # called by mutant
build_test() { compile "$unit/test_members.c" "$tree/memnode/members.c"; }
mutant $members "a range that grows forgets its beginning" \
    '/^int members_cut/,/^}/s/whole.first = .*/;/'
totals
