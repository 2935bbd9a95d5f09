/*
 * A random walk through the memory system calls, checked after each step against the plainest model
 * there is: one record a page. SEED and STEPS come from the environment.
 */
#include <string.h>
#include "vma_env.h"

#define N ENV_PAGES
#define BRK_PAGE 100                    /* where the heap starts */
#define SPECIAL (VMA_DENY(PROT_ALL) | VMA_DONTFORK | VMA_WIPEONFORK | VMA_LOCK | VMA_HEAP)

/* v: as if it were a VMA of one page; piece: which VMA, where those alike are not merged */
struct page { bool mapped, there, charged; struct vma v; uint64_t tag; int piece; };
static struct page model[N];
static uint64_t model_brk;
static int pieces;

/* Does a huge page lie across the border before page i? */
static bool cuts(int i)
{
        return i < N && i % HUGE_PAGES && model[i].mapped && model[i].v.order;
}

static int whole(int pages) { return (pages + HUGE_PAGES - 1) & ~(HUGE_PAGES - 1); }

static bool alike(const struct page *a, const struct page *b)   /* neighbours of one VMA? */
{
        return a->mapped && b->mapped && a->v.prot == b->v.prot && a->v.flags == b->v.flags &&
               a->v.file == b->v.file && a->piece == b->piece &&
               (a->v.file == FILE_NONE || a->v.off + PAGE_SIZE == b->v.off) &&
               (!(a->v.flags & MAP_SHARED) || a->v.gpa + PAGE_SIZE == b->v.gpa);
}

static int vma_end_of(int i)
{
        for (i++; i < N && alike(&model[i - 1], &model[i]); i++)
                ;
        return i;
}

/* mm_isolate(): VMAs of huge pages stay split. */
static bool split(int i)
{
        if (cuts(i))
                return false;
        if (i > 0 && i < N && model[i].piece && model[i].piece == model[i - 1].piece) {
                pieces++;
                for (int k = i, end = vma_end_of(i); k < end; k++)
                        model[k].piece = pieces;
        }
        return true;
}

static bool isolate(int from, int to) { return split(from) && split(to); }

static uint64_t count_charged(void)
{
        uint64_t n = 0;
        for (int i = 0; i < N; i++)
                n += (model[i].mapped && (model[i].v.flags & VMA_CHARGED)) + model[i].charged;
        return n;
}

static bool afford(uint64_t pages) { return count_charged() + pages <= mm_limit(); }

static void drop(int i) { model[i].there = model[i].charged = false; model[i].tag = 0; }

static void unmap(int from, int to)
{
        for (int i = from; i < to; i++)
                model[i] = (struct page){ 0 };
}

static uint32_t payment(const struct vma *v)
{
        if (v->flags & MAP_SHARED)
                return 0;
        if (v->prot & PROT_WRITE)
                return control.overcommit || (v->flags & MAP_NORESERVE) ? VMA_TOUCH : VMA_CHARGED;
        return v->file ? 0 : VMA_TOUCH;
}

/* Pages the fakes instantiated since the last step are those the model may now have; none may be
 * lost or changed. */
static void adopt(void)
{
        for (int i = 0; i < N; i++) {
                struct page *m = &model[i];
                if (!env_page[i].there || m->there)
                        continue;
                CHECK(m->mapped && m->v.prot);
                m->there = true;
                m->tag = env_page[i].tag;
                m->charged = m->v.flags & VMA_TOUCH;
        }
}

static void compare(void)
{
        struct vma v, last = { 0 };
        int vmas = 0;
        const char *wrong = vma_check();
        if (wrong)
                fprintf(stderr, "%s\n", wrong);
        CHECK(!wrong);
        adopt();
        for (int i = 0; i < N; i++) {
                struct page *m = &model[i];
                bool mapped = mm_lookup(ENV_ADDR(i), &v) == 0;
                CHECK(mapped == m->mapped);
                CHECK(m->there == env_page[i].there && m->charged == env_page[i].charged &&
                      m->tag == env_page[i].tag);
                if (!mapped) {
                        CHECK(!m->there);
                        continue;
                }
                v = vma_part(v, ENV_ADDR(i), ENV_ADDR(i + 1));
                CHECK(v.order == m->v.order);
                if (v.prot != m->v.prot || v.flags != m->v.flags || v.file != m->v.file)
                        fprintf(stderr, "page %d: prot %x flags %x file %u, expected %x %x %u\n", i,
                                v.prot, v.flags, v.file, m->v.prot, m->v.flags, m->v.file);
                CHECK(v.prot == m->v.prot && v.flags == m->v.flags && v.file == m->v.file);
                CHECK(!v.file || v.off == m->v.off);
                CHECK(!(v.flags & MAP_SHARED) || v.gpa == m->v.gpa);
                CHECK(!m->there ||
                      env_page[i].prot == pte_prot(v.prot & PROT_READ, v.prot & PROT_WRITE,
                                                   v.prot & PROT_EXEC));
                CHECK(!m->there || (v.flags & MAP_SHARED) ||
                      env_page[i].locked == !!(v.flags & VMA_LOCKED));
                if (i == 0 || !alike(m - 1, m))
                        vmas++;
                last = v;
        }
        (void)last;
        CHECK(vma_counts.nodes == (uint32_t)vmas);      /* so all that can be merged is */
        CHECK(mm_charged() == count_charged());
}

/* --- operations: what the model expects, then what the code does --- */

static int some_range(int *len)
{
        int i = (int)env_random(N);
        int most = N - i < 40 ? N - i : 40;
        *len = 1 + (int)env_random(env_random(4) ? (most < 6 ? most : 6) : most);
        return i;
}

static uint32_t some_prot(void)
{
        return env_random(3) ? (uint32_t)env_random(8) : PROT_READ | PROT_WRITE;
}

static int highest_room(int len)
{
        for (int i = N - len, run = 0; i >= 0; i--) {
                for (run = 0; run < len && !model[i + run].mapped; run++)
                        ;
                if (run == len)
                        return i;
        }
        return -1;
}

static void op_mmap(void)
{
        int len, i = some_range(&len), fd = -1;
        uint32_t prot = some_prot(), flags = env_random(4) ? MAP_PRIVATE : MAP_SHARED;
        uint64_t off = env_random(16) * PAGE_SIZE;
        bool fixed = env_random(4);
        if (env_random(2))
                fd = (int[]){ FD_RW, FD_RO, FD_HUGE, FD_HUGE }[env_random(4)];
        else
                flags |= MAP_ANONYMOUS;
        int align = fd == FD_HUGE ? HUGE_PAGES : 1;
        if (align > 1 && env_random(4))
                i -= i % align, off -= off % (align * PAGE_SIZE), flags |= MAP_HUGETLB;
        if (env_random(3) == 0)
                flags |= MAP_NORESERVE;
        if (env_random(20) == 0)
                flags |= MAP_POPULATE;
        if (align > 1 && !fixed && whole(i) + whole(len) > N)
                i -= i % align;         /* the hint is rounded up, to where the model looks */
        long r = call_mmap(ENV_ADDR(i), (uint64_t)len * PAGE_SIZE, prot,
                           flags | (fixed ? MAP_FIXED : 0), fd, off);
        if ((fixed && i % align) || page_count(off) % (unsigned)align) {
                CHECK(r == -EINVAL);
                return;
        }
        if (align > 1)
                len = whole(len), i = whole(i);

        struct vma v = { .prot = prot,
                         .flags = flags & (MAP_PRIVATE | MAP_SHARED | MAP_NORESERVE) };
        v.file = fd >= 0 ? (uint32_t)fd : flags & MAP_SHARED ? ANON_SHARED : FILE_NONE;
        v.order = align > 1 ? HUGE_ORDER : 0;
        v.flags |= payment(&v);
        if (fd == FD_RO && (flags & MAP_SHARED)) {
                v.flags |= VMA_DENY(PROT_WRITE);
                if (prot & PROT_WRITE) {
                        CHECK(r == -EACCES);
                        return;
                }
        }
        if (!fixed) {
                int run = 0;
                while (run < len && !model[i + run].mapped)
                        run++;
                if (run < len)
                        i = highest_room(len + align - 1);
                i = i < 0 ? i : (i + align - 1) / align * align;
        }
        if (fixed && !isolate(i, i + len)) {
                CHECK(r == -EINVAL);
                return;
        }
        if (i >= 0 && fixed)
                unmap(i, i + len);
        if ((v.flags & VMA_CHARGED) && !afford((uint64_t)len)) {
                CHECK(r == -ENOMEM);
                return;
        }
        CHECK(r >= 0);
        if (i < 0) {    /* it went above the region, where the model does not look */
                CHECK((uint64_t)r >= ENV_END &&
                      CALL(munmap, (uint64_t)r, (uint64_t)len * PAGE_SIZE) == 0);
                return;
        }
        CHECK((uint64_t)r == ENV_ADDR(i));
        struct vma got;
        CHECK(mm_lookup((uint64_t)r, &got) == 0);
        got = vma_part(got, (uint64_t)r, ENV_END);
        pieces++;
        for (int k = i; k < i + len; k++) {
                model[k] = (struct page){ .mapped = true, .v = v };
                model[k].v.off = (fd >= 0 ? off : 0) + (uint64_t)(k - i) * PAGE_SIZE;
                model[k].v.gpa = got.gpa + (uint64_t)(k - i) * PAGE_SIZE;
                model[k].piece = v.order ? pieces : 0;
        }
}

static void op_munmap(void)
{
        int len, i = some_range(&len);
        long want = isolate(i, i + len) ? 0 : -EINVAL;
        CHECK(CALL(munmap, ENV_ADDR(i), (uint64_t)len * PAGE_SIZE - env_random(PAGE_SIZE)) == want);
        if (!want)
                unmap(i, i + len);
}

static long protect_piece(int from, int to, uint32_t prot)
{
        struct vma v = model[from].v;
        uint32_t was = v.flags & (VMA_CHARGED | VMA_TOUCH), pay = was;
        if (prot & v.flags >> 24 & PROT_ALL)
                return -EACCES;
        v.prot = prot;
        if ((prot & PROT_WRITE) && model[from].v.prot != prot && !(was & VMA_CHARGED))
                pay = payment(&v);
        if (pay == VMA_CHARGED && was != pay && !afford((uint64_t)(to - from)))
                return -ENOMEM;
        if (model[from].v.prot != prot && !isolate(from, to))
                return -EINVAL;
        for (int i = from; i < to; i++) {
                model[i].v.prot = prot;
                model[i].v.flags = (v.flags & ~(VMA_CHARGED | VMA_TOUCH)) | pay;
                if (!was && pay == VMA_TOUCH)
                        drop(i);
        }
        return 0;
}

static void op_mprotect(void)
{
        int len, i = some_range(&len), end = i + len;
        uint32_t prot = some_prot();
        long r = CALL(mprotect, ENV_ADDR(i), (uint64_t)len * PAGE_SIZE, prot), want = 0;
        while (i < end && !want) {
                int stop = vma_end_of(i) < end ? vma_end_of(i) : end;
                want = model[i].mapped ? protect_piece(i, stop, prot) : -ENOMEM;
                i = stop;
        }
        CHECK(r == want);
}

/* The result of advice for [from, to), which lies in one mapping of huge pages.  *end: up to where
 * MADV_DONTNEED drops pages. */
static long advise_huge(int from, int to, int advice, int *end)
{
        uint32_t flags = model[from].v.flags, now = flags;
        *end = to - to % HUGE_PAGES;
        if (advice == MADV_DONTNEED)
                return cuts(from) ? -EINVAL : 0;
        if (advice == MADV_COLD)
                return -EINVAL;
        if (advice == MADV_DONTFORK)
                now |= VMA_DONTFORK;
        if (advice == MADV_DOFORK)
                now &= ~VMA_DONTFORK;
        return now != flags && !isolate(from, to) ? -EINVAL : 0;
}

static void op_madvise(void)
{
        static const int some[] = { MADV_DONTNEED, MADV_DONTNEED,   MADV_FREE,       MADV_DONTFORK,
                                    MADV_DOFORK,   MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_COLD };
        int len, i = some_range(&len), end = i + len, advice = some[env_random(8)];
        long r = CALL(madvise, ENV_ADDR(i), (uint64_t)len * PAGE_SIZE, (uint64_t)advice), err = 0,
             hole = 0;
        for (int stop = 0, dropped = N; i < end && !err; i++) {
                struct page *m = &model[i];
                if (i >= stop) {
                        dropped = stop = vma_end_of(i) < end ? vma_end_of(i) : end;
                        if (m->mapped && m->v.order)
                                err = advise_huge(i, stop, advice, &dropped);
                }
                if (err)
                        break;
                bool anonymous = !m->v.file && (m->v.flags & MAP_PRIVATE),
                     locked = m->v.flags & VMA_LOCKED;
                if (!m->mapped) {
                        hole = -ENOMEM;
                        continue;
                }
                if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_COLD)
                        err = locked ? -EINVAL : 0;
                if ((advice == MADV_FREE || advice == MADV_WIPEONFORK) && !anonymous)
                        err = -EINVAL;
                if (!err && (advice == MADV_DONTNEED || advice == MADV_FREE) && i < dropped)
                        drop(i);
                if (!err && advice == MADV_DONTFORK)
                        m->v.flags |= VMA_DONTFORK;
                if (!err && advice == MADV_WIPEONFORK)
                        m->v.flags |= VMA_WIPEONFORK;
                if (advice == MADV_DOFORK)
                        m->v.flags &= ~VMA_DONTFORK;
                if (advice == MADV_KEEPONFORK)
                        m->v.flags &= ~VMA_WIPEONFORK;
        }
        CHECK(r == (err ? err : hole));
}

static void op_lock(void)
{
        int len, i = some_range(&len), end = i + len;
        bool lock = env_random(3) == 0;
        uint64_t bytes = (uint64_t)len * PAGE_SIZE;
        long r = lock ? CALL(mlock2, ENV_ADDR(i), bytes, MLOCK_ONFAULT)
                      : CALL(munlock, ENV_ADDR(i), bytes);
        for (; i < end && model[i].mapped; i++)
                if (!model[i].v.order)
                        model[i].v.flags = lock ? model[i].v.flags | VMA_LOCK
                                                : model[i].v.flags & ~VMA_LOCK;
        CHECK(r == (i < end ? -ENOMEM : 0));
        for (int k = 0; k < N; k++)
                CHECK(!env_page[k].there || (model[k].v.flags & MAP_SHARED) ||
                      env_page[k].locked == !!(model[k].v.flags & VMA_LOCKED));
}

static void op_touch(void)
{
        int len, i = some_range(&len);
        fault_in(ENV_ADDR(i), ENV_ADDR(i + len), env_random(2));
}

/* A shared VMA has grown: it is now elsewhere in the arena, and faults bring its pages back. */
static void lies_elsewhere(int start, int end)
{
        struct vma now;
        CHECK(mm_lookup(ENV_ADDR(start), &now) == 0);
        now = vma_part(now, ENV_ADDR(start), ENV_ADDR(end));
        for (int k = start; k < end; k++) {
                model[k].v.gpa = now.gpa + (uint64_t)(k - start) * PAGE_SIZE;
                drop(k);
        }
}

/* mremap, all in the region or to where the model does not look. */
static void op_mremap(void)
{
        int n, m, i = some_range(&n), to = some_range(&m);
        static const int kinds[] = { 0, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED,
                                     MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED };
        int flags = kinds[env_random(4)];
        if (env_random(30) == 0)
                n = 0;
        if (flags & MREMAP_DONTUNMAP && env_random(8))
                m = n;
        if (to + m > N)
                to = N - m;
        bool fixed = flags & MREMAP_FIXED, keep = flags & MREMAP_DONTUNMAP;
        if (!fixed && (highest_room(m) < 0 || i + m > N))
                return;                 /* it might go where neither model nor fakes look */
        long r = CALL(mremap, ENV_ADDR(i), (uint64_t)n * PAGE_SIZE, (uint64_t)m * PAGE_SIZE,
                      (uint64_t)flags, ENV_ADDR(to));
        int at;

        if (m == 0 || (keep && n != m)) {
                CHECK(r == -EINVAL);
                return;
        }
        if (!model[i].mapped) {
                CHECK(r == -EFAULT);
                return;
        }
        if (n == 0 && !(model[i].v.flags & MAP_SHARED)) {
                CHECK(r == -EINVAL);
                return;
        }
        if (model[i].v.order) {
                n = whole(n), m = whole(m);
                if (i % HUGE_PAGES || to % HUGE_PAGES || m > n || keep) {
                        CHECK(r == -EINVAL);
                        return;
                }
        }
        if (fixed) {
                if ((i + n > to && to + m > i) || !isolate(to, to + m)) {
                        CHECK(r == -EINVAL);
                        return;
                }
                unmap(to, to + m);
        }
        if (n > m && !isolate(i + m, i + n)) {
                CHECK(r == -EINVAL);
                return;
        }
        if (n > m || (!fixed && n == m)) {
                unmap(i + m, i + n > N ? N : i + n);
                n = m;
                if (!fixed) {
                        CHECK((uint64_t)r == ENV_ADDR(i));
                        return;
                }
        }
        struct vma v = model[i].v;
        bool shared = v.flags & MAP_SHARED;
        if (!model[i].mapped || (!(shared && keep) && i + n > vma_end_of(i))) {
                CHECK(r == -EFAULT);
                return;
        }
        if (shared && keep) {
                CHECK(r == -EINVAL);
                return;
        }
        uint64_t cost = v.flags & VMA_CHARGED ? (uint64_t)(keep ? m : m - n) : 0;
        at = fixed ? to : -1;
        if (!fixed && vma_end_of(i) == i + n) {         /* in place? */
                int k = i + n;
                while (k < N && k < i + m && !model[k].mapped)
                        k++;
                if (k == i + m && afford(cost))
                        at = i;
        }
        if (at < 0) {
                if (!(flags & MREMAP_MAYMOVE)) {
                        CHECK(r == -ENOMEM);
                        return;
                }
                at = highest_room(m);
        }
        if (!afford(cost)) {
                CHECK(r == -ENOMEM);
                return;
        }
        if (at != i)
                isolate(i, i + n);
        if (r == -ENOMEM && at != i)
                return; /* pt_move found no memory: nothing changed, compare() looks */
        struct page old[N];
        memcpy(old, model, sizeof(old));
        int first = at;                 /* of the VMA */
        while (at == i && first > 0 && alike(&model[first - 1], &model[first]))
                first--;
        CHECK((uint64_t)r == ENV_ADDR(at));
        if (at != i && !keep)
                unmap(i, i + n);
        for (int k = 0; keep && k < n; k++) {
                drop(i + k);
                model[i + k].v.flags &= ~VMA_LOCK;
        }
        for (int k = 0; k < m; k++) {
                struct page *p = &model[at + k];
                *p = k < n ? old[i + k] : (struct page){ .mapped = true, .v = v };
                p->v.off = v.off + (uint64_t)k * PAGE_SIZE;
                if (at != i)
                        p->v.flags &= ~(VMA_HEAP | VMA_STACK);
                if (at != i && shared)
                        drop(at + k);
        }
        if (shared && m > n)
                lies_elsewhere(first, at + m);
}

static void op_brk(void)
{
        uint64_t want = ENV_ADDR(BRK_PAGE) + env_random(12 * PAGE_SIZE);
        int from = (int)page_count(page_align(model_brk) - ENV_BASE),
            to = (int)page_count(page_align(want) - ENV_BASE);
        uint64_t r = (uint64_t)CALL(brk, want);
        bool ok = to >= from || isolate(to, from);
        if (to < from && ok)
                unmap(to, from);
        for (int i = from; to > from && i < to + 1; i++)
                ok &= !model[i].mapped;
        struct vma v = { .prot = PROT_READ | PROT_WRITE, .flags = MAP_PRIVATE | VMA_HEAP };
        v.flags |= payment(&v);
        if (to > from && (v.flags & VMA_CHARGED))
                ok &= afford((uint64_t)(to - from));
        for (int i = from; ok && i < to; i++)
                model[i] = (struct page){ .mapped = true, .v = v };
        if (ok)
                model_brk = want;
        CHECK(r == model_brk);
}

static void op_mincore(void)
{
        int len, i = some_range(&len);
        uint8_t vec[N];
        long r = CALL(mincore, ENV_ADDR(i), (uint64_t)len * PAGE_SIZE, (uint64_t)vec);
        for (int k = 0; k < len; k++) {
                if (!model[i + k].mapped) {
                        CHECK(r == -ENOMEM);
                        return;
                }
                CHECK(r != 0 || vec[k] == model[i + k].there);
        }
        CHECK(r == 0);
}

static void op_gap(void)
{
        uint64_t low = (uint64_t)env_random(N), high = low + 1 + env_random(N - low),
                 len = 1 + env_random(20), want = 0;
        for (uint64_t i = low; i + len <= high; i++) {
                uint64_t run = 0;
                while (run < len && !model[i + run].mapped)
                        run++;
                if (run == len)
                        want = ENV_ADDR(i);
        }
        CHECK(vma_gap(ENV_ADDR(low), ENV_ADDR(high), len * PAGE_SIZE) == want);
}

static void walk(uint64_t steps)
{
        static void (*const op[])(void) = { op_mmap,     op_mmap,    op_munmap, op_mprotect,
                                            op_mprotect, op_madvise, op_lock,   op_touch,
                                            op_touch,    op_mremap,  op_brk,    op_mincore,
                                            op_gap };
        for (uint64_t i = 0; i < steps; i++) {
                op[env_random(sizeof(op) / sizeof(*op))]();
                compare();
        }
        CHECK(CALL(munmap, ENV_BASE, ENV_PAGES * PAGE_SIZE) == 0);
        unmap(0, N);
        compare();
        CHECK(mm_charged() == 0 && env_refs() == 0 && env_pages_there() == 0);
        CHECK(vma_counts.nodes == 0 && vma_counts.total == 0 && vma_counts.data == 0 &&
              vma_counts.locked == 0);
}

void test_model(void **state)
{
        const char *steps = getenv("STEPS");
        uint64_t all = steps ? strtoull(steps, NULL, 0) : ENV_TSAN ? 20000 : 200000;
        uint64_t rounds = 20, each = all / rounds;
        (void)state;
        env_move_fails = true;
        for (uint64_t i = 0; i < rounds; i++) {
                env_reset();
                control.overcommit = i % 4 == 3;
                control.nframes = 128;          /* so that 64 pages may be locked */
                control.far_pages = i % 3 ? 90 : 1 << 20;
                control.mmap_min = ENV_BASE;
                control.mmap_top = ENV_END;
                env_init();
                model_brk = ENV_ADDR(BRK_PAGE);
                struct mm_op brk = { .op = MM_BRK, .addr = model_brk };
                CHECK(mm_batch(&brk, 1) == 0);
                unmap(0, N);
                walk(each);
        }
        env_move_fails = false;
}
