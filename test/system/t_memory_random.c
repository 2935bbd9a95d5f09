/*
 * t_memory --random: operations at random on a window of the address space, on the heap and on
 * loose chunks, against a model that is kept apart: for each cell the tag of its content. Cells
 * that are touched are verified at once, all cells now and then.
 */
#include <sys/uio.h>
#include "t_memory.h"

enum kind { UNMAPPED, ANONYMOUS, PRIVATE_FILE, SHARED_FILE, SHARED_ANONYMOUS };

/*
 * The state of a page of the window, and the content of its cells, but for SHARED_FILE: those tags
 * are kept for the file.
 */
struct page { uint8_t kind, prot, noreserve, locked; uint32_t file_page; uint64_t tag[CELLS]; };

#define FILE_PAGES 1024u
#define PRIVATE_TAG(page, cell) (1ull << 60 | (uint64_t)(page) << 4 | (cell))
#define HEAP_PAGES 1024u
#define LOOSE      32

static uint64_t rng, next_tag = 1, step, npages;
static char *window;
static struct page *model;
static uint64_t shared_tag[FILE_PAGES][CELLS];
static int private_fd, shared_fd, scratch_fd, pipes[2];
static char *heap;
static uint64_t heap_pages, heap_tag[HEAP_PAGES];
static struct { char *at; uint64_t n; uint64_t tag; } loose[LOOSE];
static uint64_t counts[64];
static const char *op_name = "start";

static uint64_t draw(uint64_t below)
{
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        return (rng * 0x2545f4914f6cdd1dull >> 20) % below;
}

static char *at(uint64_t page) { return window + page * PG; }

static uint64_t *tags(uint64_t page)
{
        return model[page].kind == SHARED_FILE ? shared_tag[model[page].file_page]
                                               : model[page].tag;
}

static _Noreturn void failed(const char *what, uint64_t page, long got, long want)
{
        printf("FAILED step %lu, %s: %s, page %lu (kind %d prot %d): %ld (%s) instead of %ld\n",
               step, op_name, what, page, page < npages ? model[page].kind : -1,
               page < npages ? model[page].prot : -1, got, strerrorname_np(errno), want);
        fflush(stdout);
        exit(1);
}

static void expect(const char *what, uint64_t page, long got, long want)
{
        if (got == -1)
                got = -errno;
        if (got != want)
                failed(what, page, got, want);
}

static void check_cell(const char *what, const void *p, uint64_t tag, uint64_t page, unsigned cell)
{
        int wrong = cell_wrong(p, tag);
        if (wrong < 0)
                return;
        printf("FAILED step %lu, %s: %s: page %lu at %p (kind %d prot %d file page %u) cell %u tag "
               "%lx word %d: %lx instead of %lx\n",
               step, op_name, what, page, (void *)at(page), model[page].kind, model[page].prot,
               model[page].file_page, cell, tag, wrong, ((const uint64_t *)p)[wrong],
               cell_word(tag, (unsigned)wrong));
        fflush(stdout);
        exit(1);
}

static bool can_read(uint64_t p) { return model[p].kind != UNMAPPED && model[p].prot; }
static bool can_write(uint64_t p)
{
        return model[p].kind != UNMAPPED && (model[p].prot & PROT_WRITE);
}

static void check_page(const char *what, uint64_t p)
{
        for (unsigned c = 0; can_read(p) && c < CELLS; c++)
                check_cell(what, at(p) + c * CELL, tags(p)[c], p, c);
}

/* A range: mostly a few pages, now and then much of the window. */
static void pick(uint64_t *start, uint64_t *n)
{
        static const uint64_t sizes[] = { 1, 4, 16, 16, 64, 512 };
        uint64_t most = sizes[draw(6)];
        if (draw(64) == 0)
                most = npages;
        *n = 1 + draw(most < npages ? most : npages);
        *start = draw(npages - *n + 1);
}

static void origin(uint64_t p)
{
        for (unsigned c = 0; c < CELLS; c++)
                model[p].tag[c] =
                        model[p].kind == PRIVATE_FILE ? PRIVATE_TAG(model[p].file_page, c) : 0;
}

static void verify_range(const char *what, uint64_t start, uint64_t n)
{
        for (uint64_t p = start; p < start + n; p++)
                check_page(what, p);
}

static void verify_all(void)
{
        op_name = "all";
        verify_range("content", 0, npages);
        for (uint64_t p = 0; p < heap_pages; p++)
                for (unsigned c = 0; c < CELLS; c++) {
                        int w = cell_wrong(heap + p * PG + c * CELL,
                                           heap_tag[p] ? heap_tag[p] + c : 0);
                        if (w >= 0)
                                fail_at("heap", heap + p * PG + c * CELL, p, heap_tag[p], w);
                }
        for (unsigned i = 0; i < LOOSE; i++)
                for (uint64_t c = 0; loose[i].at && c < loose[i].n * CELLS; c++) {
                        int w = cell_wrong(loose[i].at + c * CELL, loose[i].tag + c);
                        if (w >= 0)
                                fail_at("loose", loose[i].at + c * CELL, c / CELLS,
                                        loose[i].tag + c, w);
                }
}

/* --- operations --- */

static void op_map(void)
{
        uint64_t s, n;
        pick(&s, &n);
        static const uint8_t kinds[] = { ANONYMOUS,    ANONYMOUS,   ANONYMOUS,
                                         PRIVATE_FILE, SHARED_FILE, SHARED_ANONYMOUS };
        static const uint8_t prots[] = { RW, RW, RW, RW, PROT_READ, PROT_NONE };
        struct page like = { .kind = kinds[draw(6)],
                             .prot = prots[draw(6)],
                             .noreserve = draw(4) == 0 };
        int flags = MAP_FIXED | (like.noreserve ? MAP_NORESERVE : 0) | (draw(8) ? 0 : MAP_POPULATE),
            fd = -1;
        uint64_t off = 0;
        switch (like.kind) {
        case ANONYMOUS: flags |= ANON; break;
        case SHARED_ANONYMOUS: flags |= MAP_SHARED | MAP_ANONYMOUS; break;
        default:
                if (n > FILE_PAGES)
                        n = FILE_PAGES;
                off = draw(FILE_PAGES - n + 1);
                fd = like.kind == PRIVATE_FILE ? private_fd : shared_fd;
                flags |= like.kind == PRIVATE_FILE ? MAP_PRIVATE : MAP_SHARED;
        }
        if (mmap(at(s), n * PG, like.prot, flags, fd, (off_t)(off * PG)) != at(s))
                failed("mmap", s, -errno, 0);
        for (uint64_t p = s; p < s + n; p++) {
                model[p] = like;
                model[p].file_page = (uint32_t)(off + p - s);
                origin(p);
        }
        if (draw(2))
                verify_range("after mmap", s, n);
}

static void op_unmap(void)
{
        uint64_t s, n;
        pick(&s, &n);
        expect("munmap", s, munmap(at(s), n * PG), 0);
        for (uint64_t p = s; p < s + n; p++)
                model[p] = (struct page){ 0 };
}

static void op_protect(void)
{
        static const int prots[] = { PROT_NONE, PROT_READ, RW, RW, RW, PROT_READ | PROT_EXEC };
        uint64_t s, n;
        int prot = prots[draw(6)];
        long want = 0;
        pick(&s, &n);
        long got = mprotect(at(s), n * PG, prot);
        for (uint64_t p = s; p < s + n; p++) {
                if (model[p].kind == UNMAPPED) {
                        want = -ENOMEM;
                        break;
                }
                model[p].prot = (uint8_t)prot;
        }
        expect("mprotect", s, got, want);
        if (draw(2))
                verify_range("after mprotect", s, n);
}

static void op_write(void)
{
        uint64_t s, n;
        pick(&s, &n);
        for (uint64_t p = s; p < s + n; p++)
                for (unsigned c = (unsigned)draw(CELLS); can_write(p) && c < CELLS;
                     c += 1 + (unsigned)draw(3)) {
                        cell_fill(at(p) + c * CELL, next_tag);
                        tags(p)[c] = next_tag++;
                }
}

static void op_verify(void)
{
        uint64_t s, n;
        pick(&s, &n);
        verify_range("content", s, n);
}

/* Bytes from cell `first` on that the system may use, up to `cells`. */
static uint64_t usable(uint64_t first, uint64_t cells, bool write)
{
        uint64_t c = first;
        while (c < first + cells && (write ? can_write(c / CELLS) : can_read(c / CELLS)))
                c++;
        return (c - first) * CELL;
}

static void pick_cells(uint64_t *first, uint64_t *cells)
{
        uint64_t s, n;
        pick(&s, &n);
        *first = s * CELLS + draw(CELLS);
        *cells = 1 + draw((s + n) * CELLS - *first);
}

static void op_sys_write(void)          /* from the window into a file, compared there */
{
        static char buf[CELL];
        uint64_t first, cells;
        pick_cells(&first, &cells);
        uint64_t want = usable(first, cells, false);
        ssize_t got = pwrite(scratch_fd, window + first * CELL, cells * CELL, 0);
        expect("pwrite", first / CELLS, got, want ? (long)want : -EFAULT);
        for (uint64_t c = 0; c < want / CELL; c++) {
                expect("pread", first / CELLS, pread(scratch_fd, buf, CELL, (off_t)(c * CELL)),
                       CELL);
                check_cell("written out", buf, tags((first + c) / CELLS)[(first + c) % CELLS],
                           (first + c) / CELLS, (first + c) % CELLS);
        }
}

static void op_sys_read(void)           /* from a file into the window */
{
        uint64_t first, cells;
        pick_cells(&first, &cells);
        if (cells > FILE_PAGES * CELLS)
                cells = FILE_PAGES * CELLS;
        uint64_t want = usable(first, cells, true), from = draw(FILE_PAGES * CELLS - cells + 1);
        for (uint64_t c = 0; c < want / CELL; c++)      /* not onto itself */
                if (model[(first + c) / CELLS].kind == SHARED_FILE)
                        return;
        bool shared = draw(2);
        ssize_t got = pread(shared ? shared_fd : private_fd, window + first * CELL, cells * CELL,
                            (off_t)(from * CELL));
        expect("pread", first / CELLS, got, want ? (long)want : -EFAULT);
        for (uint64_t c = 0; c < want / CELL; c++) {
                uint64_t f = from + c;
                model[(first + c) / CELLS].tag[(first + c) % CELLS] =
                        shared ? shared_tag[f / CELLS][f % CELLS]
                               : PRIVATE_TAG(f / CELLS, f % CELLS);
        }
        if (draw(2))
                verify_range("after pread", first / CELLS, want / PG);
}

static void op_file_write(void)         /* the shared file changes under its mappings */
{
        static char buf[16 * CELL];
        uint64_t c = draw(FILE_PAGES * CELLS - 16);
        for (unsigned i = 0; i < 16; i++) {
                cell_fill(buf + i * CELL, next_tag);
                shared_tag[(c + i) / CELLS][(c + i) % CELLS] = next_tag++;
        }
        expect("pwrite to file", 0, pwrite(shared_fd, buf, sizeof(buf), (off_t)(c * CELL)),
               sizeof(buf));
}

static void op_pipe(void)               /* from the window to the window */
{
        uint64_t from, to, cells, c2;
        pick_cells(&from, &cells);
        pick_cells(&to, &c2);
        if (c2 < cells)
                cells = c2;
        if (cells > 128)
                cells = 128;
        if (usable(from, cells, false) < cells * CELL || usable(to, cells, true) < cells * CELL)
                return;
        uint64_t tag[128];
        for (uint64_t c = 0; c < cells; c++)
                tag[c] = tags((from + c) / CELLS)[(from + c) % CELLS];
        expect("write to pipe", from / CELLS, write(pipes[1], window + from * CELL, cells * CELL),
               (long)(cells * CELL));
        for (uint64_t done = 0; done < cells * CELL; ) {
                ssize_t r = read(pipes[0], window + to * CELL + done, cells * CELL - done);
                if (r <= 0)
                        failed("read from pipe", to / CELLS, r < 0 ? -errno : r,
                               (long)(cells * CELL));
                done += (uint64_t)r;
        }
        for (uint64_t c = 0; c < cells; c++)
                tags((to + c) / CELLS)[(to + c) % CELLS] = tag[c];
}

static void op_vector(void)
{
        struct iovec v[8];
        uint64_t total = 0;
        static char buf[CELL];
        uint64_t first[8], cells[8];
        for (unsigned i = 0; i < 8; i++) {
                pick_cells(&first[i], &cells[i]);
                if (cells[i] > 200)
                        cells[i] = 200;
                if (usable(first[i], cells[i], false) < cells[i] * CELL)
                        return;
                v[i] = (struct iovec){ window + first[i] * CELL, cells[i] * CELL };
                total += cells[i] * CELL;
        }
        expect("pwritev", first[0] / CELLS, pwritev(scratch_fd, v, 8, 0), (long)total);
        off_t off = 0;
        for (unsigned i = 0; i < 8; i++)
                for (uint64_t c = first[i]; c < first[i] + cells[i]; c++, off += CELL) {
                        expect("pread", c / CELLS, pread(scratch_fd, buf, CELL, off), CELL);
                        check_cell("pwritev", buf, tags(c / CELLS)[c % CELLS], c / CELLS,
                                   c % CELLS);
                }
}

static void op_advise(void)
{
        static const int advice[] = { MADV_DONTNEED, MADV_DONTNEED, MADV_COLD,  MADV_PAGEOUT,
                                      MADV_WILLNEED, MADV_FREE,     MADV_RANDOM };
        int a = advice[draw(7)];
        uint64_t s, n;
        long want = 0;
        pick(&s, &n);
        if (a == MADV_FREE) /* may or may not drop: only where it is all written again at once */
                for (uint64_t p = s; p < s + n; p++)
                        if (model[p].kind != ANONYMOUS || !can_write(p))
                                return;
        for (uint64_t p = s; p < s + n; p++)
                if (model[p].kind == UNMAPPED)
                        want = -ENOMEM;
        /*
         * Linux refuses these two where the page tables belong to a file only the kernel may write;
         * not so here.
         */
        long got = madvise(at(s), n * PG, a);
        expect("madvise", s, got, want);
        for (uint64_t p = s; p < s + n; p++) {
                if (a == MADV_DONTNEED &&
                    (model[p].kind == ANONYMOUS || model[p].kind == PRIVATE_FILE))
                        origin(p);
                if (a == MADV_FREE)
                        for (unsigned c = 0; c < CELLS; c++) {
                                cell_fill(at(p) + c * CELL, next_tag);
                                model[p].tag[c] = next_tag++;
                        }
        }
        if (draw(2))
                verify_range("after madvise", s, n);
}

static void op_populate(void)
{
        uint64_t s, n;
        bool write = draw(2);
        long want = 0;
        pick(&s, &n);
        for (uint64_t p = s; p < s + n && !want; p++)
                want = model[p].kind == UNMAPPED               ? -ENOMEM
                       : !(write ? can_write(p) : can_read(p)) ? -EINVAL
                                                               : 0;
        expect("populate", s,
               madvise(at(s), n * PG, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ), want);
}

static void op_remap(void)
{
        uint64_t s, n, to, m;
        pick(&s, &n);
        /*
         * A run that is one VMA as far as the model can tell. It may be several nevertheless
         * (EFAULT).
         */
        uint64_t len = 1;
        while (len < n && model[s + len].kind == model[s].kind &&
               model[s + len].prot == model[s].prot &&
               model[s + len].noreserve == model[s].noreserve &&
               (model[s].kind == ANONYMOUS || model[s + len].file_page == model[s].file_page + len))
                len++;
        n = len;
        if (model[s].kind == UNMAPPED)
                return;
        bool file = model[s].kind == PRIVATE_FILE || model[s].kind == SHARED_FILE,
             shared = model[s].kind >= SHARED_FILE;
        bool dontunmap = model[s].kind == ANONYMOUS && draw(4) == 0;
        m = dontunmap ? n : shared ? 1 + draw(n) : file ? 1 + draw(n) : 1 + draw(2 * n);
        if (m > npages)
                m = n;
        to = draw(npages - m + 1);
        if (to < s + n && to + m > s)
                return;                 /* overlap */
        char *r = remap(at(s), n * PG, m * PG,
                        MREMAP_MAYMOVE | MREMAP_FIXED | (dontunmap ? MREMAP_DONTUNMAP : 0), at(to));
        if (r == MAP_FAILED &&
            errno == EFAULT) { /* the target and the part to cut off have been unmapped */
                expect("munmap", to, munmap(at(to), m * PG), 0);
                for (uint64_t p = to; p < to + m; p++)
                        model[p] = (struct page){ 0 };
                for (uint64_t p = s + m; p < s + n; p++)
                        model[p] = (struct page){ 0 };
                if (m < n)
                        expect("munmap", s, munmap(at(s + m), (n - m) * PG), 0);
                counts[60]++;
                return;
        }
        if (r != at(to))
                failed("mremap", s, -errno, 0);
        counts[61]++;
        struct page like = model[s];
        for (uint64_t i = 0; i < m; i++) {
                model[to + i] = i < n ? model[s + i] : like;
                if (i >= n) {
                        model[to + i].file_page = like.file_page + (uint32_t)i;
                        origin(to + i);
                }
        }
        for (uint64_t i = 0; i < n; i++)
                if (dontunmap)
                        origin(s + i);
                else
                        model[s + i] = (struct page){ 0 };
        if (draw(2))
                verify_range("moved", to, m);
        if (draw(2))
                verify_range("left", s, n);
}

static void op_lock(void)
{
        uint64_t s = draw(npages - 8), n = 1 + draw(8);
        unsigned char vec[8];
        for (uint64_t p = s; p < s + n; p++)
                if (!can_read(p))
                        return;
        if (mlock(at(s), n * PG) == 0) {
                expect("mincore", s, mincore(at(s), n * PG, vec), 0);
                for (uint64_t i = 0; i < n; i++)
                        expect("locked and resident", s + i, vec[i] & 1, 1);
                verify_range("locked", s, n);
        } else if (errno != ENOMEM && errno != EAGAIN && errno != EPERM) {
                failed("mlock", s, -errno, 0);
        }
        expect("munlock", s, munlock(at(s), n * PG), 0);
}

static void op_mincore(void)
{
        static unsigned char vec[8192];
        uint64_t s, n;
        long want = 0;
        pick(&s, &n);
        if (n > sizeof(vec))
                n = sizeof(vec);
        for (uint64_t p = s; p < s + n; p++)
                if (model[p].kind == UNMAPPED)
                        want = -ENOMEM;
        expect("mincore", s, mincore(at(s), n * PG, vec), want);
}

static void op_brk(void)
{
        uint64_t want = draw(HEAP_PAGES);
        expect("brk", 0, brk(heap + want * PG), 0);
        for (uint64_t p = heap_pages; p < want; p++)
                heap_tag[p] = 0;
        heap_pages = want;
        for (uint64_t p = want ? draw(want) : 0; p < want; p += 1 + draw(8)) {
                for (unsigned c = 0; c < CELLS; c++) {
                        int w = cell_wrong(heap + p * PG + c * CELL,
                                           heap_tag[p] ? heap_tag[p] + c : 0);
                        if (w >= 0)
                                fail_at("heap", heap + p * PG + c * CELL, p, heap_tag[p], w);
                        cell_fill(heap + p * PG + c * CELL, next_tag + c);
                }
                heap_tag[p] = next_tag;
                next_tag += CELLS;
        }
}

static void op_loose(void)              /* where the system puts it */
{
        unsigned i = (unsigned)draw(LOOSE);
        uint64_t old = loose[i].n, n = 1 + draw(draw(8) ? 16 : 256);
        if (!loose[i].at) {
                loose[i].at = mmap(NULL, n * PG, RW, ANON, -1, 0);
                loose[i].tag = next_tag;
                old = 0;
        } else if (draw(3) == 0) {
                for (uint64_t c = 0; c < old * CELLS; c++) {
                        int w = cell_wrong(loose[i].at + c * CELL, loose[i].tag + c);
                        if (w >= 0)
                                fail_at("loose chunk", loose[i].at + c * CELL, c / CELLS,
                                        loose[i].tag + c, w);
                }
                expect("munmap", 0, munmap(loose[i].at, old * PG), 0);
                loose[i].at = NULL;
                return;
        } else {
                loose[i].at = remap(loose[i].at, old * PG, n * PG, MREMAP_MAYMOVE, NULL);
                if (n > old) { /* a new tag for all of it, after a look at the old content */
                        for (uint64_t c = 0; loose[i].at != MAP_FAILED && c < n * CELLS; c++) {
                                int w = cell_wrong(loose[i].at + c * CELL,
                                                   c < old * CELLS ? loose[i].tag + c : 0);
                                if (w >= 0)
                                        fail_at("grown chunk", loose[i].at + c * CELL, c / CELLS,
                                                loose[i].tag + c, w);
                        }
                        loose[i].tag = next_tag;
                        old = 0;
                }
        }
        if (loose[i].at == MAP_FAILED || !loose[i].at)
                failed("loose mapping", 0, -errno, 0);
        loose[i].n = n;
        for (uint64_t c = old * CELLS; c < n * CELLS; c++)
                cell_fill(loose[i].at + c * CELL, loose[i].tag + c);
        if (loose[i].tag == next_tag)
                next_tag += n * CELLS;
}

static void set_up(void)
{
        static char buf[PG];
        /*
         * Where the system puts nothing by itself, at a distance from the border of a page table,
         * between inaccessible pages.
         */
        window = (char *)0x200000000000 + 100 * PG;
        CHECK(mmap(window - 8 * PG, (npages + 16) * PG, PROT_NONE,
                   ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED);
        CHECK(munmap(window, npages * PG) == 0);
        model = mmap(NULL, npages * sizeof(*model), RW, ANON, -1, 0);
        CHECK(model != MAP_FAILED);
        int *const fds[] = { &private_fd, &shared_fd, &scratch_fd };
        for (unsigned i = 0; i < 3; i++) {
                *fds[i] = open("t_memory.tmp", O_RDWR | O_CREAT | O_EXCL, 0600);
                CHECK(*fds[i] >= 0 && unlink("t_memory.tmp") == 0);
        }
        CHECK(pipe(pipes) == 0);
        for (uint64_t p = 0; p < FILE_PAGES; p++) {
                for (unsigned c = 0; c < CELLS; c++)
                        cell_fill(buf + c * CELL, PRIVATE_TAG(p, c));
                CHECK(pwrite(private_fd, buf, PG, (off_t)(p * PG)) == (ssize_t)PG);
        }
        CHECK(ftruncate(shared_fd, (off_t)(FILE_PAGES * PG)) == 0);
        heap = (char *)(((uintptr_t)sbrk(0) + PG - 1) & ~(PG - 1));
}

int random_test(uint64_t seed, uint64_t steps, uint64_t pages)
{
        static const struct { const char *name; void (*run)(void); unsigned weight;
        } ops[] = {
                { "map", op_map, 8 },           { "unmap", op_unmap, 3 },
                { "protect", op_protect, 8 },   { "write", op_write, 16 },
                { "verify", op_verify, 8 },     { "sys_write", op_sys_write, 4 },
                { "sys_read", op_sys_read, 4 }, { "file_write", op_file_write, 2 },
                { "pipe", op_pipe, 3 },         { "vector", op_vector, 2 },
                { "advise", op_advise, 5 },     { "populate", op_populate, 2 },
                { "remap", op_remap, 8 },       { "lock", op_lock, 2 },
                { "mincore", op_mincore, 2 },   { "brk", op_brk, 3 },
                { "loose", op_loose, 4 },
        };
        unsigned sum = 0;
        for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
                sum += ops[i].weight;
        rng = seed * 0x9e3779b97f4a7c15ull | 1;
        npages = pages;
        set_up();
        for (step = 0; step < steps; step++) {
                unsigned w = (unsigned)draw(sum), i = 0;
                while (w >= ops[i].weight)
                        w -= ops[i++].weight;
                op_name = ops[i].name;
                counts[i]++;
                ops[i].run();
                if (step % 512 == 511)
                        verify_all();
        }
        verify_all();
        uint64_t mapped = 0;
        for (uint64_t p = 0; p < npages; p++)
                mapped += model[p].kind != UNMAPPED;
        printf("random: seed %lu, %lu steps, %lu tags, %lu of %lu pages mapped: ok\n", seed, steps,
               next_tag - 1, mapped, npages);
        if (getenv("T_MEMORY_COUNTS")) {
                for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
                        printf("%s %lu ", ops[i].name, counts[i]);
                printf("remaps: %lu done, %lu EFAULT\n", counts[61], counts[60]);
        }
        return 0;
}
