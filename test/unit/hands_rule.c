/*
 * The rule of the two hands: see hands_rule.h.
 */
#include <string.h>
#include "hands_rule.h"

void rule_init(struct rule *r, uint32_t nframes, uint32_t usable, uint32_t batch,
               struct rule_stamp *stamp, bool clock)
{
        memset(r, 0, sizeof(*r));
        r->nframes = nframes;
        r->usable = usable;
        r->batch = batch;
        r->stamp = stamp;
        r->clock = clock;
        r->piece = nframes / 64 < 8 ? 8 : nframes / 64 > 512 ? 512 : nframes / 64;
        r->hot_piece = r->piece < 64 ? r->piece : 64;
        r->target = usable - usable / 8;
        r->tick = RULE_TICKS;
        for (uint32_t f = 0; f < nframes; f++)
                r->frame[f].page = RULE_NONE;
}

void rule_came(struct rule *r, uint32_t n, uint32_t page)
{
        struct rule_stamp *s = &r->stamp[page];
        bool soon = s->tick != 0 && r->tick - s->tick < RULE_LAGS &&
                    r->tick / RULE_TICKS == s->tick / RULE_TICKS;

        if (soon)
                r->returned[s->was][r->tick - s->tick]++;
        r->frame[n] = (struct rule_frame){ .page = page, .used = true, .back = soon };
}

/* Frames in the order of a hand that takes whole pieces, of which the last may be short. */
static struct rule_frame *next(struct rule *r, uint64_t *at, uint32_t piece)
{
        uint32_t pieces = (r->nframes + piece - 1) / piece;
        uint32_t n = (uint32_t)(*at / piece % pieces * piece + *at % piece);

        ++*at;
        if (n + 1 == r->nframes)
                *at = (*at + piece - 1) / piece * piece;
        return &r->frame[n];
}

static void clear(struct rule *r, struct rule_frame *f, uint64_t *cleared)
{
        f->used = false;
        f->epoch = r->flushes + 1;
        ++*cleared;
}

static bool hot_step(struct rule *r, uint64_t *cleared)
{
        struct rule_frame *f = next(r, &r->hot_hand, r->hot_piece);

        if (f->page == RULE_NONE || !f->hot)
                return false;
        if (f->used) {
                clear(r, f, cleared);
                return false;
        }
        f->hot = false;
        f->was = f->old = true;
        r->nhot--;
        r->hot_known--;
        r->over++;
        return true;
}

static bool grants(struct rule *r, uint64_t *cleared)
{
        if (r->over > 0)
                return true;
        return ++r->requests % 4 == 0 && hot_step(r, cleared);
}

static uint32_t rate(struct rule *r, bool hot)
{
        uint64_t all = 0;

        for (uint32_t k = 0; k < RULE_LAGS; k++) {
                uint32_t *e = &r->sum_gone[hot][k], *b = &r->sum_back[hot][k];
                *e = *e / 4 * 3 + 16 * (uint32_t)r->gone[hot][(r->tick - k) % RULE_LAGS];
                *b = *b / 4 * 3 + 16 * (uint32_t)r->returned[hot][k];
                r->returned[hot][k] = 0;
                all += (8 - k) * 256ull * (*b + (k == 0 ? 16 : 0)) / (*e + 64);
        }
        return (uint32_t)all;
}

static void tick(struct rule *r)
{
        uint32_t cold = rate(r, false), hot = rate(r, true), n = r->usable;
        int64_t target = r->target;

        if (cold > hot + hot / 4)
                target += n / 8;
        else if (hot > 409)
                target -= n / 32;
        target = target > n - n / 8 ? n - n / 8 : target < n / 8 ? n / 8 : target;
        r->target = (uint32_t)target;
        r->tick++;
        r->gone[0][r->tick % RULE_LAGS] = r->gone[1][r->tick % RULE_LAGS] = 0;
        r->ticked = r->evicted;
}

uint32_t rule_pass(struct rule *r, uint32_t n, uint32_t most, uint32_t nfree, uint32_t stocked,
                   uint32_t *gone)
{
        uint32_t freed = 0;
        uint64_t cleared = 0;
        bool unbegun = false;

        for (r->met = 0; r->met < n && freed < most; ) {
                if (r->look == 0) {
                        uint32_t there = nfree + freed / r->batch * r->batch + stocked;
                        r->look = 4 * r->batch;
                        r->hot_known = (int32_t)r->nhot;
                        r->over = (int32_t)(r->nframes - there - r->nhot - r->target);
                }
                for (int i = 0; i < 8 && r->over < 0 && r->hot_known > 0; i++)
                        hot_step(r, &cleared);
                if (r->vain > r->nframes)
                        hot_step(r, &cleared);
                struct rule_frame *f;
                do {
                        f = next(r, &r->cold_hand, r->piece);
                        r->vain++;
                        r->met++;
                        r->look -= r->look > 0;
                } while (f->hot && r->met < n);
                if (f->page == RULE_NONE || f->hot)
                        continue;
                if (f->used) {
                        bool hot = !r->clock && (f->old || f->back) && grants(r, &cleared);
                        clear(r, f, &cleared);
                        f->back = false;
                        f->old = !hot;
                        f->hot = hot;
                        if (hot) {
                                f->was = false;
                                r->nhot++;
                                r->hot_known++;
                                r->over--;
                        }
                } else if (f->epoch > r->flushes) {
                        unbegun = true;
                } else {
                        r->stamp[f->page] = (struct rule_stamp){ r->tick, f->was };
                        r->gone[f->was][r->tick % RULE_LAGS]++;
                        gone[freed++] = f->page;
                        f->page = RULE_NONE;
                        r->vain = 0;
                        r->over--;
                }
        }
        r->cleared += cleared;
        uint32_t half = r->target / 2, quarter = r->nframes / 4;
        if ((unbegun && freed == 0) || r->cleared >= (half < quarter ? half : quarter)) {
                r->flushes++;
                r->cleared = 0;
        }
        r->evicted += freed;
        if (r->evicted - r->told >= r->batch) {
                r->told = r->evicted;
                if (r->evicted - r->ticked >= r->nframes / 8)
                        tick(r);
        }
        return freed;
}
