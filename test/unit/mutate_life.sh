#!/bin/bash
# Mutants of what keeps processes of a tree alive, and of how it is handed over: see mutants.sh.
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# shellcheck disable=SC2317 # called by mutant
build_test() {
    export ROUNDS=3000
    compile "$unit/test_tree_life.c" \
        "$tree"/runtime/far/{tree,tree_hold,memfd}.c "$tree"/kern/far/slotmap.c \
        "$tree"/runtime/base/privfd.c "$tree"/common/{clock,size}.c
}

life=tree_life.c
mutant $life "the lock is on the description that is mapped" \
    '/^int tree_child/,/^}/s/number_of_child\(t, life\)/number_of_child(t, t->fd)/'
mutant $life "a child does not close its parent's" \
    '/^void tree_be_child/,/^}/s/if \(t->life >= 0\)/if (0)/'
mutant $life "a parent does not close its child's" \
    '/^void tree_child_left/,/^}/s/if \(c->life >= 0\)/if (0)/'
mutant $life "a child closes its own" '/^void tree_be_child/,/^}/s/t->life = c->life/;/'
mutant $life "a child has no lock" \
    '/^static int take_free_number/,/^}/s/int err = life < 0 .*/int err = 0;/'
mutant $life "a program of a child of vfork has no lock" \
    '/^struct tree_child tree_expected/,/^}/s/lock_byte\(.*\) != 0/0/'
mutant $life "a program of a child of vfork is kept by its grandparent" \
    '/^void tree_expect_end/,/^}/s/lock_byte.*/;/'
mutant $life "a lock belongs to the process" 's/F_OFD_/F_/'
mutant $life "the process that asks has the lock itself" \
    '/^static bool is_alive/,/^}/s/fcntl\(t->fd/fcntl(t->life/'
mutant memfd.c "a new life shares its file description" \
    's/PRIVFD_NEW\(openat\(proc_fd, link, O_RDONLY \| O_CLOEXEC\)\)/privfd_dup(fd)/'
mutant privfd.c "native programs inherit it" \
    '/^static int dup_up/,/^}/s/F_DUPFD_CLOEXEC/F_DUPFD/'

# shellcheck disable=SC2317 # called by mutant
build_test() {
    compile "$unit/test_handover.c" "$tree"/runtime/{process/handover,settings/absolute}.c \
        "$tree"/runtime/far/memfd.c "$tree"/runtime/base/{privfd,message}.c \
        "$tree"/common/[!p]*.c "$tree"/common/put.c
}

mutant handover.c "it is not handed over" 's/h->far\.next\.life, //'
mutant handover.c "the way to it is not handed over" 's/h->far\.proc,$/-1,/'
totals
