#!/bin/bash
# Words that vCPUs share without need, planted in kern's pager, flushes and fault path: test_lines
# must find each. See mutants.sh.
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

objects=$WORK/objects
mkdir "$objects"

# shellcheck disable=SC2317 # called by mutant
build_test() {
    local flags=(-std=gnu11 -O2 -w -D_GNU_SOURCE -iquote "$unit" -iquote "$tree"
        -iquote "$tree/kern" -I"$tree/include")
    (cd "$objects" && "$CC" "${flags[@]}" -fsanitize=thread -include "$unit/lines_cpu.h" -c \
        "$tree"/kern/base/{charge,exit,flush,lock,pool,returns,tables}.c \
        "$tree"/kern/far/{rings,slotmap,slots,timed,wire}.c "$tree"/kern/far/direct/*.c \
        "$tree"/kern/pager/{balance,clock,evict,frames,transition}.c \
        "$tree"/kern/paging/{cleaner,fault,stuck}.c "$unit/lines_guest.c") &&
        "$CC" "${flags[@]}" -o "$WORK/test" "$unit"/{lines_names,lines_sim,test_lines}.c \
            "$objects"/*.o -lcmocka
}

mutant kern/paging/fault.c "a count of all vCPUs' fetches" '
    /^static .*begun\(struct fault/i static _Atomic uint64_t planted;
    s/^( *)count\(CNT_FETCHED\);/&\n\1atomic_fetch_add(\&planted, 1);/'
mutant "kern/pager/cache.h kern/pager/pager.h" "a count in struct pager of frames taken" '
    s/^( *)struct notices_of notices;.*/&\n\1_Atomic uint64_t planted[16];/
    s/^( *)frame_t n = l->free\.first;/&\n\1atomic_fetch_add(\&pg->planted[8], 1);/'
mutant kern/pager/transition.c "the last page fetched, for all to see" '
    /^int page_fetch\(/i static _Atomic uint64_t planted;
    s/^( *)f->slot = pte_slot\(p\);.*page is clean.*/&\n\1atomic_store(\&planted, f->slot);/'
mutant kern/base/tables.h "the address published last" '
    s/^(static inline void pt_publish.*\{) (.*)$/\1 control.mmap_top = addr; \2/'
mutant kern/far/slots.c "the slot read last, for readahead" '
    /^int env_slot_read\(/i static volatile uint64_t planted;
    /^int env_slot_read\(/,/^\}/s/^( *)const struct slab \*s = .*/&\n\1planted = slot;/'
mutant kern/paging/cleaner.h "a count of looks at the free frames" '
    /^static inline void cleaner_poke/i static uint64_t planted;
    /^static inline void cleaner_poke/,/^\}/s/^\{/{ planted++;/'
mutant kern/paging/cleaner.c "one piece of the frames for all vCPUs that evict" '
    /^int frames_wait/i static struct sweeper planted;
    /^int frames_wait/,/^\}/s/&vcpu_self\.sweeper/\&planted/'
mutant kern/pager/frames.c "each frame that the cleaner frees is given by itself" \
    '/^void frame_collect/,/^}/s/>= batch_size\(pg\)/>= 1/'
totals
