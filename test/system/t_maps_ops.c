/*
 * t_maps: the actions of a step in one process.
 *
 * Linux and vmrun may cut and merge VMAs differently, which a program sees only by mremap, and by
 * calls that fail half way. So each piece of the window that was mapped or changed by one call has
 * a number, and these calls keep to one piece.
 */
#include <setjmp.h>
#include "t_maps.h"

#define FILE_PAGES 1024ul               /* files are at most that long, by truncation */
#define LOOKS      24ul                 /* pages that are looked at in one step */

static struct page { uint32_t piece; uint8_t object; } page[WINDOW_PAGES];
static uint32_t pieces;

static char *at(uint64_t p) { return WINDOW_AT + p * PG; }
static bool is_huge(enum object o)
{
        return o == HUGE_SHARED || o == HUGE_READ || o == HUGE_CONSTANT;
}
static int fd_of(enum object o) { return o >= SHARED_ANONYMOUS ? -1 : FD_AT + (int)o; }

void forget_window(void) { memset(page, 0, sizeof(page)); }

/* --- ranges --- */

struct range { uint64_t start, n; };

/* A page; often at the border of a huge one. */
static uint64_t some_page(void)
{
        uint64_t p = draw(WINDOW_PAGES);
        if (draw(3) == 0)
                return p;
        p -= p % HUGE_PAGES;
        return draw(3) ? p : (p + draw(5) + WINDOW_PAGES - 2) % WINDOW_PAGES;
}

static uint64_t some_length(void)
{
        switch (draw(4)) {
        case 0:  return 1 + draw(4);
        case 1:  return 1 + draw(64);
        case 2:  return HUGE_PAGES * (1 + draw(3));
        default: return HUGE_PAGES * (1 + draw(2)) - 2 + draw(5);
        }
}

static struct range some_range(void)
{
        struct range r = { some_page(), some_length() };
        if (r.n > WINDOW_PAGES - r.start)
                r.n = WINDOW_PAGES - r.start;
        return r;
}

/* The piece that page p belongs to; the page alone if it is not mapped. */
static struct range piece_at(uint64_t p)
{
        struct range r = { p, 1 };
        if (!page[p].piece)
                return r;
        while (r.start && page[r.start - 1].piece == page[p].piece)
                r.start--, r.n++;
        while (r.start + r.n < WINDOW_PAGES && page[r.start + r.n].piece == page[p].piece)
                r.n++;
        return r;
}

/* A part of one piece, often all of it. */
static struct range part_of_piece(void)
{
        struct range whole = piece_at(some_page()), r = whole;
        switch (draw(4)) {
        case 0:
                r.start += draw(whole.n);
                r.n = 1 + draw(whole.start + whole.n - r.start);
                break;
        case 1:
                r.n = 1 + draw(whole.n);
                break;
        }
        return r;
}

/* Several pieces, none of which is cut. */
static struct range some_pieces(void)
{
        struct range r = some_range(), first = piece_at(r.start),
                     last = piece_at(r.start + r.n - 1);
        return (struct range){ first.start, last.start + last.n - first.start };
}

static void mark(struct range r, enum object o)
{
        pieces++;
        for (uint64_t p = r.start; p < r.start + r.n && p < WINDOW_PAGES; p++)
                page[p] = (struct page){ o ? pieces : 0, (uint8_t)o };
}

/* The pieces in r have been changed: their parts outside r are other pieces now. That is also so
 * after a call that failed at the end of r: Linux has cut a VMA at the start by then. */
static void cut(struct range r)
{
        for (uint64_t p = r.start, old = 0; p < r.start + r.n; p++) {
                if (page[p].piece != old)
                        old = page[p].piece, pieces++;
                if (old)
                        page[p].piece = pieces;
        }
}

static void say_range(const char *what, struct range r)
{
        say(" %s %lu+%lu", what, r.start, r.n);
}

/* --- accesses --- */

static sigjmp_buf back;
static siginfo_t seen;

static void on_fault(int signo, siginfo_t *info, void *context)
{
        (void)context;
        seen = *info;
        siglongjmp(back, signo);
}

void catch_faults(void)
{
        struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
        CHECK(sigaction(SIGBUS, &a, NULL) == 0 && sigaction(SIGSEGV, &a, NULL) == 0);
}

/* Loads the word, or stores it, and says the result: the value, or signal, code and whether
 * the address is the word's. */
static void touch(volatile uint64_t *word, const uint64_t *value)
{
        int signo = sigsetjmp(back, 0);
        if (signo) {
                say(" %c%d%s", signo == SIGBUS ? 'B' : 'S', seen.si_code,
                    seen.si_addr == (void *)word ? "" : "?");
                return;
        }
        if (value)
                *word = *value;
        uint64_t got = *word;
        if (!value)
                say(" %lx", got);
}

/* Up to LOOKS pages of the range: both ends and some between. */
static uint64_t nth_look(struct range r, uint64_t i)
{
        return r.n <= LOOKS ? r.start + i : r.start + i * (r.n - 1) / (LOOKS - 1);
}

static uint64_t looks(struct range r) { return r.n < LOOKS ? r.n : LOOKS; }

static void look(struct range r)
{
        say(":");
        for (uint64_t i = 0; i < looks(r); i++)
                touch((uint64_t *)at(nth_look(r, i)) + draw(2) * (PG / 8 - 1), NULL);
}

static void op_look(void)
{
        struct range r = some_range();
        say_range("look", r);
        look(r);
}

static void op_store(uint64_t step)
{
        struct range r = some_range();
        uint64_t value = step << 16;

        say_range("store", r);
        for (uint64_t i = 0; i < looks(r); i++, value++)
                touch((uint64_t *)at(nth_look(r, i)) + draw(2) * (PG / 8 - 1), &value);
}

/* --- calls that change the window --- */

static enum object some_object(void)
{
        static const enum object all[] = { MEMORY, ON_DISK, CONSTANT, SHARED_ANONYMOUS, ANONYMOUS,
                                           HUGE_SHARED, HUGE_SHARED, HUGE_READ, HUGE_CONSTANT,
                                           HUGE_CONSTANT };
        return all[draw(set.huge ? 10 : 5)];
}

static int some_prot(void)
{
        static const int prots[] = { RW, RW, RW, RW, PROT_READ, PROT_NONE };
        return prots[draw(6)];
}

/* Private mappings of huge pages reserve none: Linux 6.18 loses the reservation of a mapping that
 * mremap moves for ever. */
static int flags_of(enum object o)
{
        int flags = draw(4) && o != HUGE_CONSTANT ? 0 : MAP_NORESERVE;
        if (o == ANONYMOUS || o == CONSTANT || o == HUGE_CONSTANT)
                flags |= MAP_PRIVATE;
        else
                flags |= draw(4) ? MAP_SHARED : o == SHARED_ANONYMOUS ? MAP_SHARED
                                                                      : MAP_SHARED_VALIDATE;
        if (o >= SHARED_ANONYMOUS)
                return flags | MAP_ANONYMOUS;
        return draw(is_huge(o) ? 2 : 20) ? flags : flags | MAP_HUGETLB;
}

/* Where in its object a mapping begins. */
static uint64_t some_offset(enum object o)
{
        return o >= SHARED_ANONYMOUS ? 0 : is_huge(o) ? draw(3) * HUGE_PAGES : draw(FILE_PAGES);
}

static void op_map(void)
{
        enum object o = some_object();
        struct range r = some_range();
        int prot = some_prot(), flags = flags_of(o);
        uint64_t off = some_offset(o);

        if (is_huge(o) && draw(8)) {
                r.start -= r.start % HUGE_PAGES;
                r.n = r.n > 4 * HUGE_PAGES ? 4 * HUGE_PAGES : r.n;
        }
        if (draw(8) == 0)
                flags |= MAP_POPULATE;
        say_range("map", r);
        say(" object %d prot %d flags %x off %lu:", o, prot, flags, off);
        if (mmap(at(r.start), r.n * PG, prot, flags | MAP_FIXED, fd_of(o), (off_t)(off * PG)) ==
            MAP_FAILED) {
                /* ENOMEM before Linux 6.12, if a huge page would be cut */
                say(" %s", errno == ENOMEM ? "EINVAL" : strerrorname_np(errno));
                cut(r);
                return;
        }
        if (is_huge(o))
                r.n = (r.n + HUGE_PAGES - 1) / HUGE_PAGES * HUGE_PAGES;
        mark(r, o);
        if (draw(2))
                look(r);
}

/* Where the system puts it: only how it is aligned can be told. Here the offset may be wrong, too:
 * with MAP_FIXED Linux would first unmap the mapping there. */
static void op_map_anywhere(uint64_t step)
{
        enum object o = some_object();
        int flags = flags_of(o) & ~MAP_HUGETLB;
        uint64_t n = 1 + draw(20), off = is_huge(o) && draw(4) == 0 ? draw(1024) : some_offset(o);
        uint64_t unit = is_huge(o) ? HUGE : PG, length = (n * PG + unit - 1) & ~(unit - 1);
        char *p = mmap(NULL, n * PG, o == HUGE_READ ? PROT_READ : RW, flags, fd_of(o),
                       (off_t)(off * PG));

        say(" anywhere %lu object %d:", n, o);
        if (p == MAP_FAILED) {
                say_result(-1);
                return;
        }
        say(" %lu", (uintptr_t)p % unit);
        if (o != HUGE_READ)
                touch((uint64_t *)p, &step);
        touch((uint64_t *)(p + (n - 1) * PG), NULL);
        say_result(munmap(p, length));
}

static void op_unmap(void)
{
        struct range r = draw(3) ? some_range() : part_of_piece();
        long got = munmap(at(r.start), r.n * PG);
        say_range("unmap", r);
        say_result(got);
        if (got == 0)
                mark(r, NOTHING);
        else
                cut(r);
}

static void op_protect(void)
{
        struct range r = draw(2) ? part_of_piece() : some_pieces();
        int prot = some_prot();
        say_range("protect", r);
        say(" %d:", prot);
        say_result(mprotect(at(r.start), r.n * PG, prot));
        cut(r);
        if (draw(2))
                look(r);
}

static void op_advise(void)
{
        static const int some[] = { MADV_DONTNEED, MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK,
                                    MADV_SEQUENTIAL, MADV_RANDOM, MADV_NORMAL, MADV_COLD,
                                    MADV_WILLNEED, MADV_WIPEONFORK, MADV_KEEPONFORK };
        struct range r = part_of_piece();
        int advice = some[draw(11)];
        say_range("advise", r);
        say(" %d:", advice);
        say_result(madvise(at(r.start), r.n * PG, advice));
        cut(r);
        if (draw(2))
                look(r);
}

/* Part of a piece, to elsewhere or longer. */
static void op_remap(void)
{
        struct range r = part_of_piece(), to = { some_page(), r.n };
        bool shared = page[r.start].object != ANONYMOUS && page[r.start].object != CONSTANT;
        int flags = draw(4) ? MREMAP_MAYMOVE | MREMAP_FIXED : 0;

        if (draw(3) == 0)
                to.n = 1 + draw(2 * r.n);
        if (flags && !shared && draw(4) == 0)
                flags |= MREMAP_DONTUNMAP, to.n = r.n;
        if (draw(2))
                to.start -= to.start % HUGE_PAGES;
        if (!flags)
                to.start = r.start;
        if (to.n > WINDOW_PAGES - to.start)
                to.n = WINDOW_PAGES - to.start;
        /* Since Linux 6.17 other errors come before EFAULT. */
        bool overlap = to.start < r.start + r.n && r.start < to.start + to.n;
        if (!page[r.start].object || (flags && overlap))
                return;
        say_range("remap", r);
        say_range("to", to);
        say(" flags %d:", flags);
        char *got = mremap(at(r.start), r.n * PG, to.n * PG, flags,
                           flags & MREMAP_FIXED ? at(to.start) : NULL);
        say_result(got == MAP_FAILED ? -1 : 0);
        if (got == MAP_FAILED) {
                cut(r);
                cut(to);
                return;
        }
        enum object o = page[r.start].object;
        if (is_huge(o)) {
                r.n = (r.n + HUGE_PAGES - 1) / HUGE_PAGES * HUGE_PAGES;
                to.n = (to.n + HUGE_PAGES - 1) / HUGE_PAGES * HUGE_PAGES;
        }
        if (flags & MREMAP_DONTUNMAP)
                cut(r);
        else
                mark(r, NOTHING);
        mark(to, o);
        if (draw(2))
                look(to);
}

/* --- calls that change files, or read and write the window --- */

static enum object some_file(void)
{
        static const enum object files[] = { MEMORY, ON_DISK, HUGE_SHARED };
        return files[draw(set.huge ? 3 : 2)];
}

static void op_truncate(void)
{
        enum object o = some_file();
        uint64_t n = o == HUGE_SHARED && draw(8) ? draw(5) * HUGE_PAGES : draw(FILE_PAGES);
        say(" truncate %d to %lu:", o, n);
        say_result(ftruncate(fd_of(o), (off_t)(n * PG)));
}

static void op_write_file(uint64_t step)
{
        enum object o = some_file();
        uint64_t p = draw(FILE_PAGES), words[2] = { step << 16 | 0xf, p };
        say(" pwrite %d at %lu:", o, p);
        say_result(pwrite(fd_of(o), words, sizeof(words), (off_t)(p * PG)));
}

static uint64_t sum_of(const uint64_t *word, size_t n)
{
        uint64_t sum = n;
        for (size_t i = 0; i < n; i++)
                sum = (sum ^ word[i]) * 0x9e3779b97f4a7c15ull, sum ^= sum >> 29;
        return sum;
}

static void op_read_file(void)
{
        static uint64_t buffer[4 * PG / 8];
        enum object o = 1 + draw(set.huge ? (uint64_t)HUGE_CONSTANT : (uint64_t)ON_DISK);
        uint64_t p = draw(FILE_PAGES);
        ssize_t n = pread(fd_of(o), buffer, sizeof(buffer), (off_t)(p * PG));
        say(" pread %d at %lu:", o, p);
        say_result(n);
        if (n > 0)
                say(" %lx", sum_of(buffer, (size_t)n / 8));
}

/* The window is the buffer: written out and read back, or filled from a file that does not
 * change. */
static void op_call(void)
{
        static uint64_t buffer[8 * PG / 8];
        struct range r = { some_page(), 1 + draw(8) };
        uint64_t skip = draw(PG / 8) * 8;
        ssize_t n;

        if (r.n > WINDOW_PAGES - r.start)
                r.n = WINDOW_PAGES - r.start;
        if (draw(2)) {
                say_range("call reads into", r);
                say_result(pread(FD_AT + CONSTANT, at(r.start) + skip, r.n * PG - skip,
                                 (off_t)(draw(FILE_PAGES / 2) * PG)));
                return;
        }
        n = pwrite(FD_OTHER, at(r.start) + skip, r.n * PG - skip, 0);
        say_range("call writes", r);
        say_result(n);
        if (n > 0) {
                CHECK(pread(FD_OTHER, buffer, (size_t)n, 0) == n);
                say(" %lx", sum_of(buffer, (size_t)n / 8));
        }
}

void look_at_all(void)
{
        uint64_t all = 0;
        static uint64_t buffer[PG / 8];

        for (uint64_t h = 0; h < WINDOW_HUGE; h++)
                look((struct range){ h * HUGE_PAGES, HUGE_PAGES });
        for (enum object o = MEMORY; o <= (set.huge ? HUGE_CONSTANT : ON_DISK); o++)
                for (off_t p = 0; pread(fd_of(o), buffer, PG, p * (off_t)PG) == (ssize_t)PG; p++)
                        all = all * 31 + sum_of(buffer, PG / 8);
        say(" files %lx", all);
}

void step_here(uint64_t step)
{
        draw_start(~step);
        uint64_t w = draw(100);
        if (w < 20)
                op_map();
        else if (w < 25)
                op_map_anywhere(step);
        else if (w < 32)
                op_unmap();
        else if (w < 41)
                op_protect();
        else if (w < 48)
                op_advise();
        else if (w < 58)
                op_remap();
        else if (w < 62)
                op_truncate();
        else if (w < 66)
                op_write_file(step);
        else if (w < 70)
                op_read_file();
        else if (w < 76)
                op_call();
        else if (w < 88)
                op_store(step);
        else
                op_look();
        if (step % 500 == 499)
                look_at_all();
}
