#!/bin/bash
# Mutants of kern's charges, of its memory calls about huge pages, of the arena and the registry of
# files that lie behind them, and of what the loader maps: see mutants.sh.  Those of the registry
# need four huge pages, and are skipped without them.
# shellcheck disable=SC2317,SC2046 # called by mutant; paths
: "${STEPS:=100000}"
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# Charges
build_test() { compile "$unit/test_charge.c"; }
charge=base/charge.c
mutant $charge "each page changes the counter" \
    '/^int mm_charge_page/,/^}/s/if \(limit > reserve\(\) && add/if (0 \&\& add/'
mutant $charge "each page that is uncharged changes the counter" '
    /^void env_uncharge_page/,/^}/{
        s/take\(own, BATCH, 2 \* BATCH\)/take(own, 1, 1)/
        s/mm_uncharge\(BATCH\)/mm_uncharge(1)/
    }'
mutant $charge "a batch counts as one page" \
    '/^int mm_charge_page/,/^}/s/add\(BATCH, /add(1, /'
mutant $charge "a stock has one page more than was charged" 's/BATCH - 1, mem/BATCH, mem/'
mutant $charge "what is taken stays in stock" \
    '/^static bool take/,/^}/s/while \(!atomic/while (0 \&\& !atomic/'
mutant $charge "batches are taken up to the limit" \
    's/add\(BATCH, limit - reserve\(\)\)/add(BATCH, limit)/'
mutant $charge "what is in stock is refused" 's/while \(empty_stocks\(\)\)/while (0)/'
mutant $charge "one stock is emptied" '/^static bool empty_stocks/,/^}/s/i < STOCKS/i < 2/'
mutant $charge "what is emptied stays charged" \
    '/^static bool empty_stocks/,/^}/s/mm_uncharge\(n\);//'
mutant $charge "stocks count as used" '/^uint64_t mm_charged/,/^}/s/in_use -= .*/;/'

# Calls that would cut a huge page
build_test() {
    compile "$unit/test_vma.c" "$unit/vma_env.c" "$unit/vma_model.c" "$unit/vma_native.c" \
        $(part 'kern/mm/*.c' base/charge.c space/account.c space/grow.c space/guides.c \
            space/range.c space/vma.c paging/populate.c)
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
mutant space/account.c "pages of files that are locked cost nothing" \
    's/vma_locked_whole\(v\) \? VMA_CHARGED : 0/0/'
mutant mm/lock.c "a page of a file is paid for at each lock" \
    '/^static int apply_to/,/^}/s/if \(!\(v\.flags & \(VMA_CHARGED \| VMA_TOUCH\)\)\)/if (1)/'
mutant mm/lock.c "a lock that costs too much is taken" \
    '/^static int apply_to/,/^}/s/if \(pay && !mm_charge\(.*\)\)/if (pay \&\& !mm_charge(page_count(end - start)) \&\& 0)/'
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

# Flushes: each call's is over before it returns, and before an address or arena range is given back
for call in advise protect; do
    mutant mm/$call.c "the flush begins without mm_lock ($call)" 's/^ *pt_gone_flush\(&gone\);$//'
    mutant mm/$call.c "the call does not wait for its flush ($call)" 's/^ *pt_gone_end\(&gone\);$//'
done
mutant mm/cut.c "a truncation does not wait for its flush" 's/^ *pt_gone_end\(&gone\);$//'
mutant space/range.c "munmap does not wait for its flush" 's/^ *pt_gone_end\(&pages\);$//'
mutant mm/remap.c "a shared mapping that grows does not wait for its flush" \
    '/^static int grow_shared/,/^}/s/^ *pt_gone_end\(&gone\);$//'
mutant mm/remap.c "a shared mapping that moves does not wait for its flush" \
    '/^static int move_all/,/^}/s/^ *pt_gone_end\(&gone\);$//'

# The arena, the registry, and what Linux makes of their mappings
build_test() {
    compile "$unit/test_files.c" \
        $(part memory/arena.c memory/files.c memory/files_read.c memory/shm.c \
            base/cgroup.c base/host.c base/map_unit.c base/message.c base/options.c \
            base/privfd.c common/clock.c common/line.c common/message.c common/put.c vm/space.c)
}
mutant memory/arena.c "a claim is not aligned" \
    '/^static int claim/,/^}/s/round_up\(e->start, w->unit\)/e->start/'
mutant vm/space.c "far memory has no room below the arena" \
    's/far \+ space_pool_pages\(pool\) \* PAGE_SIZE/far/'
mutant vm/space.c "the arena is an eighth" 's/if \(gpa > space_far_most\(bits\)\)/if (1)/'
mutant vm/space.c "far memory may take all" 's/if \(gpa > space_far_most\(bits\)\)/if (0)/'
mutant vm/space.c "the arena is longer than its host range" \
    's/size < ARENA_END - ARENA \?.*:/size :/; s/size : ARENA_END - ARENA/size/'
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

# ELF files that no linker makes
build_test() { compile "$unit/test_elf.c" "$unit/mkelf.c" $(part load/elf.c); }
mutant load/elf.c "the class counts" \
    's/eh->e_machine != EM_X86_64 && have/(& || eh->e_ident[EI_CLASS] != 2) \&\& have/
    s/\(eh->e_machine != EM_X86_64 && have \|\|/(eh->e_machine != EM_X86_64 ||/'
mutant load/elf.c "x32 is no other kind of program" \
    '/^static int check_table/,/^}/s/out->foreign = true;/;/'
mutant load/elf.c "an object file is another kind of program" 's/out->foreign = false;/;/'
mutant load/elf.c "the first segment with the headers counts" \
    's/if \(phoff >= s->offset/if (!out->phdr_mapped \&\& phoff >= s->offset/'
mutant load/elf.c "a bss begins in a page that is missing" \
    's/if \(bss_page_is_missing.*\)\)/if (0)/'
mutant load/elf.c "what is cut off is refused" \
    's/if \(bss_page_is_missing\(ph, size\)\)/if (ph->p_offset + ph->p_filesz > size)/'
mutant load/elf.c "a file reaches to the end of all offsets" \
    's/if \(ph->p_offset > INT64_MAX - 2 .*\)$/if (0)/'
mutant load/elf.c "an interpreter behind the end is no program" 's/-EIO,/-ENOEXEC,/'

build_test() {
    compile "$unit/test_image.c" "$unit/mkelf.c" \
        $(part load/auxv.c load/elf.c load/image.c load/script.c load/stack.c)
}
mutant load/elf.c "segments are judged before the interpreter" \
    's/out->unloadable = take_segments/return take_segments/'
mutant load/image.c "an interpreter's segments are not judged" \
    's/err = loadable\(in, &im->why\)/err = 0/'
mutant load/image.c "the lowest segment is placed" 's/- p->elf\.first\)/- p->elf.low)/'
mutant load/image.c "a replaced page is zeroed" 's/if \(op == end\)/if (1)/'
mutant load/image.c "a page's own mapping replaces it" 's/\.next_op = im->nops/.next_op = 0/'
mutant load/image.c "the interpreter leaves what was in its place" \
    '/^static void plan_interp/,/^}/s/if \(in->elf\.type == ET_EXEC\)/if (0)/'
totals
