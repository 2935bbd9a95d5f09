#!/bin/bash
# Mutants of kern's memory calls about huge pages, and of the arena and the registry of files that
# lie behind them: see mutants.sh.  Those of the registry need four huge pages, and are skipped
# without them.
# shellcheck disable=SC2317,SC2046 # called by mutant; paths
: "${STEPS:=100000}"
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# Calls that would cut a huge page
build_test() {
    compile "$unit/test_vma.c" "$unit/vma_env.c" "$unit/vma_model.c" "$unit/vma_native.c" \
        $(part 'kern/mm/*.c' space/account.c space/grow.c space/guides.c space/range.c space/vma.c \
            paging/populate.c)
}
mutant space/range.c "a huge page is cut" '/^static int split/,/^}/s/if \(addr & .*/if (0)/'
mutant space/range.c "a half split stays" '/^int mm_isolate/,/^}/s/mm_merge\(start, end\);//'
mutant space/range.c "any address does" '/^static uint64_t gap/,/^}/s/ & ~\(page - 1\)//'
mutant space/range.c "a gap of the length is enough" \
    '/^static uint64_t gap/,/^}/s/len \+ spare\);/len);/'
mutant space/range.c "a hint is not rounded" 's/^ *hint \+= -hint & .*//'
mutant space/vma.h "parts have small pages" \
    '/^static inline struct vma vma_part/,/^}/s/v\.end = end;/v.end = end, v.order = 0;/'
mutant mm/map.c "a length is not rounded" 's/^ *r->len = \(r->len \+ vma_page.*//'
mutant mm/map.c "the place is not passed on" 's/r->flags & MAP_FIXED \? r->addr : 0\)/0)/'
mutant mm/map.c "the rounded length is not checked" \
    '/^static long map\(/,/^}/s/err = r->flags & MAP_FIXED \? .*/err = 0;/'
mutant mm/map.c "the order is lost" 's/^ *r->v\.order = .*//'
mutant mm/map.c "MAP_HUGETLB fits any descriptor" 's/ \| \(r->flags & MAP_HUGETLB\)//'
mutant mm/map.c "only EBADF comes first" \
    's/ \|\| wrong == -EINVAL//'
mutant mm/lock.c "huge pages are locked" 's/ == lock \|\| n->v\.order/ == lock/'
mutant mm/advise.c "a part of a huge page is dropped, at the start" \
    '/^static int zap/,/^}/s/if \(start & .*/if (0)/'
mutant mm/advise.c "a part of a huge page is dropped, at the end" \
    '/^static int zap/,/^}/s/end &= .*//'
mutant mm/advise.c "huge pages may be cold" \
    's/locked \|\| v->order \? -EINVAL : cool/locked ? -EINVAL : cool/'
mutant mm/remap.c "huge pages move as others" 's/if \(n->v\.order && \(err = /if (0 \&\& (err = /'
mutant mm/remap.c "a mapping of huge pages grows" 's/ \|\| r->new_len > r->old_len \|\|/ ||/'
mutant mm/remap.c "huge pages move to anywhere" \
    's/\(r->addr \| r->new_addr\) & rest/r->addr \& rest/'
mutant mm/remap.c "lengths are not rounded" '/^static int align_huge/,/^}/s/\+ rest\) & ~rest/+ 0)/'
mutant mm/query.c "the page cache is asked about private huge pages" \
    '/^static void ask_host/,/^}/s/if \(v->order && !shared\)/if (shared)/'

# The arena, the registry, and what Linux makes of their mappings
build_test() {
    compile "$unit/test_files.c" \
        $(part memory/arena.c memory/files.c memory/files_read.c memory/shm.c \
            base/host.c base/map_unit.c base/message.c base/options.c base/privfd.c \
            common/clock.c common/line.c common/message.c common/put.c)
}
mutant memory/arena.c "a claim is not aligned" \
    '/^static int claim/,/^}/s/round_up\(e->start, w->unit\)/e->start/'
mutant memory/arena.c "a claim is not rounded" \
    's/round_up\(len, unit\), unit, owner/len, unit, owner/'
mutant memory/arena.c "growing forgets the alignment" \
    '/^static int grow/,/^}/s/round_up\((last && .*), w->unit\)/(\1)/'
mutant memory/arena.c "the piece before the claim is lost" \
    '/^static int claim/,/^}/s/e = e->start == at \? e : e->next;//'
mutant memory/arena.c "mmap may write at once" \
    '/^int arena_map_fd/,/^}/s/PROT_READ \| have/PROT_READ | PROT_WRITE/'
mutant memory/arena.c "nothing is widened" '/^static int widen/,/^}/s/mprotect\(.*\) == 0/0/'
mutant memory/arena.c "all pages are trusted" '/^int64_t arena_there/,/^}/s/return 1;/return left;/'
mutant memory/arena.c "no page is trusted" 's/ \|\| !atomic_load_explicit\(&distrusted.*relaxed\)//'
mutant memory/arena.c "a page without memory is there" \
    '/^int64_t arena_there/,/^}/s/return errno != EFAULT .*/return 1;/'
mutant memory/files.c "offset and place may cut a huge page" \
    '/^static int check_range/,/^}/s/return m->unit > .*/return 0;/'
mutant memory/files.c "a socket ends where fstat says" 's/!S_ISREG\(st.st_mode\);/false;/'
mutant memory/files.c "a socket is mapped private" 's/want.endless && lseek.*\{/false) {/'
mutant memory/files.c "the length is not rounded" 's/m->len = \(m->len \+ m->unit - 1\).*;/;/'
mutant memory/files.c "MAP_HUGETLB fits any file" \
    's/if \(\(m->flags & MAP_HUGETLB\) && !rounds\)/if (0)/'
mutant memory/files.c "a file does not grow by a private mapping" \
    '/^static int probe/,/^}/s/m->unit > PAGE_SIZE \? m->prot & PROT_WRITE : 0/0/'
mutant memory/files.c "a private mapping is probed by small pages" \
    '/^static int probe/,/^}/s/m->unit/PAGE_SIZE/g'
mutant memory/files.c "a probe of one huge page is one of all" \
    '/^static bool is_probed/,/^}/s/m->unit == PAGE_SIZE && //'
mutant memory/files.c "the order is not told" 's/__builtin_ctzll\(m\.unit \/ PAGE_SIZE\)/0/'
mutant base/map_unit.c "no file has huge pages" \
    's/return \(uint64_t\)fs->f_bsize;/return PAGE_SIZE;/'
totals
