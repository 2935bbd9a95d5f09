/*
 * See soak.h: what is in a page, what sum it has, and whose fault it is if they do not fit.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include "far/sums.h"
#include "soak.h"

/* ---- failures ---- */

void failure(const char *fmt, ...)
{
        va_list ap;

        if (atomic_exchange(&world->saying, 1) == 0) {
                va_start(ap, fmt);
                vsnprintf(world->text, sizeof(world->text), fmt, ap);
                va_end(ap);
                atomic_store(&world->said, 1);
        }
        atomic_fetch_add(&world->failures, 1);
}

void check_end(pid_t pid, int status)
{
        /* SIGTERM: it was told to end before it knew how. */
        if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM))
                atomic_fetch_add(&world->kills, 1);
        else if (status != 0)
                failure("the process with pid %d has ended with %s %d", (int)pid,
                        WIFSIGNALED(status) ? "signal" : "status",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* ---- sums ---- */

static uint32_t unseeded(uint32_t begun, const void *bytes, size_t n)
{
        return far_sum(n == PAGE_SIZE ? ~0u : begun, bytes, n);
}

static struct sums sums_of(const struct tree *t)
{
        return (struct sums){ t->units, t->pieces,
                              world->plant == UNSEEDED ? unseeded : far_sum };
}

/* As begin_write() in runtime/far/request.c. */
void page_store_sum(const struct tree *t, uint64_t slot, const char *page, bool pieces)
{
        struct sums s = sums_of(t);

        sums_store(&s, slot, page, pieces && world->plant != UNSEEDED);
}

void page_store_some(const struct tree *t, uint64_t slot, const char *page, unsigned n)
{
        struct slot_pieces *p = slot_pieces(t->pieces, slot);

        for (unsigned i = 0; i < n; i++)
                atomic_store_explicit(&p->sum[i],
                                      far_sum(0, page + i * PIECE_SIZE, PIECE_SIZE),
                                      memory_order_relaxed);
}

/* Planted: one piece, whatever its sum is of. */
static bool believe(const struct tree *t, uint64_t slot, uint32_t offset, struct sum_of_part *e)
{
        unsigned piece = offset / PIECE_SIZE;

        e->offset = (uint16_t)(piece * PIECE_SIZE);
        e->len = PIECE_SIZE;
        e->sum = atomic_load(&slot_pieces(t->pieces, slot)->sum[piece]);
        return true;
}

/* As choose_bytes() and is_right() in runtime/far/request.c. */
static bool is_right_part(const struct tree *t, uint64_t slot, uint32_t offset, uint32_t len,
                          bool *pieces)
{
        const char *page = node_page(slot);
        struct sums s = sums_of(t);
        struct sum_of_part e;

        *pieces = world->plant == UNPROVED ? believe(t, slot, offset, &e)
                                           : sums_of_part(&s, slot, offset, len, &e);
        return *pieces ? sums_part_fits(&s, &e, page) : sums_learn(&s, slot, page);
}

/* ---- content ---- */

#define WORDS (PAGE_SIZE / sizeof(uint64_t))

typedef uint64_t __attribute__((may_alias)) word_t;

static uint64_t word_of(uint64_t stamp, uint64_t i) { return (stamp + i) * 0x9e3779b97f4a7c15ull; }

void page_make(char *page, uint64_t slot, uint64_t stamp)
{
        word_t *w = (word_t *)page;

        for (unsigned i = 2; i < WORDS; i++)
                w[i] = word_of(stamp, i);
        w[0] = stamp;
        w[1] = slot;
}

/* The header and a word of each half, which are others at each read. */
static bool has_content(const char *page, uint64_t slot, uint64_t stamp, uint64_t n)
{
        const word_t *w = (const word_t *)page;
        uint64_t i = 2 + (stamp + n) * 7 % (WORDS / 2 - 2), k = WORDS / 2 + i - 2;

        return w[0] == stamp && w[1] == slot && w[i] == word_of(stamp, i) &&
               w[k] == word_of(stamp, k);
}

/* ---- both ---- */

static const char *verdict(bool sum_was_right, bool content_is_right)
{
        if (sum_was_right) {
                atomic_fetch_add(&world->missed, 1);
                return "its content is wrong and its sum is right";
        }
        if (content_is_right) {
                atomic_fetch_add(&world->false_alarms, 1);
                return "FALSE ALARM: its content is right and its sum is wrong";
        }
        atomic_fetch_add(&world->alarms, 1);
        return "its content and its sum are wrong";
}

/* Looks once more, at the whole page.  Nothing is spoiled on the way unless that was planted, so
 * each of the verdicts is a failure. */
static void judge(const struct tree *t, uint64_t slot, uint64_t stamp, bool sum, bool content)
{
        static _Alignas(64) char is[PAGE_SIZE], expected[PAGE_SIZE];
        const word_t *w = (const word_t *)is;

        memcpy(is, node_page(slot), PAGE_SIZE);
        page_make(expected, slot, stamp);
        const char *what = verdict(sum, content && memcmp(is, expected, PAGE_SIZE) == 0);
        struct sums s = sums_of(t);
        failure("process %u (birth %llu), slot %#llx: %s; expected: version %llu of birth %llu, "
                "sum %#x; found, at a second look: version %llu of birth %llu for slot %#llx, sum "
                "%#x; the sum stored is %#x",
                t->self, (unsigned long long)t->head->record[t->self].birth,
                (unsigned long long)slot, what, STAMP_VERSION(stamp), STAMP_BIRTH(stamp),
                s.sum(~(uint32_t)slot, expected, PAGE_SIZE), STAMP_VERSION(w[0]), STAMP_BIRTH(w[0]),
                (unsigned long long)w[1], s.sum(~(uint32_t)slot, is, PAGE_SIZE),
                atomic_load(slot_sum(t->units, slot)));
}

void page_check(const struct tree *t, uint64_t slot, uint64_t stamp, uint64_t n)
{
        const char *page = node_page(slot);
        struct sums s = sums_of(t);
        bool sum = sums_fit(&s, slot, page), content = has_content(page, slot, stamp, n);

        if (!sum || !content)
                judge(t, slot, stamp, sum, content);
}

/* The header, or another word, of a piece. */
static bool has_piece(const char *page, uint64_t slot, uint64_t stamp, unsigned piece, uint64_t n)
{
        const word_t *w = (const word_t *)page;
        uint64_t i = piece * WORDS / PIECES + (stamp + n) * 7 % (WORDS / PIECES);

        if (i < 2)
                return w[0] == stamp && w[1] == slot;
        return w[i] == word_of(stamp, i);
}

bool page_check_part(const struct tree *t, uint64_t slot, uint64_t stamp, uint64_t n)
{
        uint32_t offset = (uint32_t)(word_of(stamp, n) >> 40) % PAGE_SIZE;
        uint32_t len = n % 4 ? 1 : (PAGE_SIZE - offset + 1) / 2;
        bool pieces, sum = is_right_part(t, slot, offset, len, &pieces);
        bool content = has_piece(node_page(slot), slot, stamp, offset / PIECE_SIZE, n);

        if (!sum || !content)
                judge(t, slot, stamp, sum, content);
        return pieces;
}
