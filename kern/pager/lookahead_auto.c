/*
 * `auto`: streams, each a sequence of accesses with one stride.
 *
 * An access belongs to the stream whose predicted range it meets, no matter which accesses came
 * between: so interleaved loops and threads do not look random.  An access that no stream predicted
 * is lone.  The distance to the nearest lone access is taken for a stride; another access at that
 * distance confirms the stride, and they become a stream.  Lone accesses have a table of their own:
 * however many there are, they push no stream out.
 *
 * A stream asks for a batch when the program is within the latest one: at its marker, two thirds
 * in, or as soon as it waits for a page of it.  So a stream of any length waits only at its
 * beginning.  A batch starts where the one before ended.
 *
 * Where many short streams follow each other, as where objects of some pages each are read one
 * after the other, a wide window at the end of each would bring in pages that the program never
 * uses.  So a stream that has come as far as streams lately went starts with a small window again.
 *
 * A stream may have been found at a multiple of its stride, where pages between were here already.
 * Later they are not: then misses lie between the stream's pages, at distances that no lone access
 * confirms, since each next one is prefetched.  Enough of them make the stream's stride finer.
 */
#include <stddef.h>
#include "pager/lookahead_policy.h"

#define START  4        /* pages of a stream's first batch */
#define REST   64       /* faults until a closed stream is tried again */
#define DOUBT  5        /* at most */
#define STALE  32       /* faults after which a stream that was not met has ended */
#define LONG   64       /* pages used that make a stream a success */
#define SAMPLE 4        /* pages looked at to judge those between two faults */
#define FINER  6        /* misses between a stream's pages that make its stride finer */
#define LONGEST 1024    /* pages from which on a stream is long enough for any window */

static uint64_t size_of(int64_t stride)
{
        return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

/* How far an access lies beyond the stream's latest, in pages. */
static uint64_t beyond(const struct lookahead_stream *s, uint64_t page)
{
        return s->stride < 0 ? s->last - page : page - s->last;
}

/* The predicted range: the pages that were asked for and a window more, since pages that are here
 * already are passed without a fault; but nothing beyond the stream's end. */
static void set_range(struct lookahead *h, const struct lookahead_stream *s)
{
        unsigned n = (unsigned)(s - h->stream);
        uint64_t more = s->window ? s->window : 1u;
        uint64_t len = size_of(s->stride) * (s->ahead + (more < s->left ? more : s->left));

        h->len[n] = len;
        h->low[n] = s->stride < 0 ? s->last - len : s->last + 1;
}

/* Steps of the stream to the page; 0: the page is not the stream's next access.  A page more than
 * one step ahead is so only if the program used the page before it. */
static uint32_t steps_to(const struct lookahead_stream *s, const struct lookahead_access *a)
{
        uint64_t far = beyond(s, a->page), size = size_of(s->stride), n = far;

        if (far == size)
                return 1;
        if (size != 1) {
                n = far / size;
                if (n * size != far)
                        return 0;
        }
        enum lookahead_use use = a->used(a->arg, a->page - (uint64_t)s->stride);
        if (use == LOOKAHEAD_UNUSED || (use == LOOKAHEAD_HIDDEN && n > s->ahead + 1u))
                return 0;
        return (uint32_t)n;
}

/* The stream that predicted the access, or NULL. */
static struct lookahead_stream *find_stream(struct lookahead *h, const struct lookahead_access *a,
                                            uint32_t *steps)
{
        for (unsigned i = 0; i < LOOKAHEAD_STREAMS; i++) {
                if (a->page - h->low[i] >= h->len[i])
                        continue;
                *steps = steps_to(&h->stream[i], a);
                if (*steps) {
                        h->recent = i;
                        return &h->stream[i];
                }
        }
        return NULL;
}

/* How many of the pages prefetched were used. */
struct use { uint32_t used, unused; bool hidden; };

/* Judges the n pages that follow s->last by a sample of them: a page of each quarter, at another
 * place each time: else a program that uses every second page would look like a program that uses
 * all. */
static struct use sample(const struct lookahead *h, const struct lookahead_stream *s,
                         const struct lookahead_access *a, uint32_t n)
{
        uint32_t looks = n, every = 1, from = 1;
        uint64_t sum = 0;               /* a byte for each lookahead_use */

        if (n > SAMPLE) {
                looks = SAMPLE;
                every = n / SAMPLE;
                from += ((uint32_t)h->time * 40503u % 65536) * (n - (SAMPLE - 1) * every) / 65536;
        }
        uint64_t page = s->last + (uint64_t)s->stride * from;
        uint64_t step = (uint64_t)s->stride * every;
        for (uint32_t i = 0; i < looks; i++, page += step)
                sum += 1ull << 8 * (a->used(a->arg, page) - LOOKAHEAD_HIDDEN);
        uint32_t unused = sum >> 8 & 0xff, used = sum >> 16 & 0xff;
        bool some = n > SAMPLE;
        return (struct use){
                .used = some ? used * n / SAMPLE : used,
                .unused = some ? unused * n / SAMPLE : unused,
                .hidden = sum & 0xff,
        };
}

/* The stream moves on to this access, which is `steps` steps away.  Judges the pages that were
 * asked for before it, and its own page.  Where use cannot be known, the fault decides: at a page
 * that was prefetched, all pages count as used; at any other page, none does. */
static void advance(struct lookahead *h, struct lookahead_stream *s,
                    const struct lookahead_access *a, uint32_t steps)
{
        bool inside = steps <= s->ahead, miss = a->cause == LOOKAHEAD_MISS;
        uint32_t between = inside ? steps - 1 : s->ahead;
        struct use u = { 0 };

        if (between)
                u = sample(h, s, a, between);
        if (u.hidden) {
                bool well = !miss || (!inside && !s->marked);
                u.used = well ? between : 0;
                u.unused = well ? 0 : between;
        }
        u.used += !miss;
        u.unused += miss && inside;
        s->good += u.used;
        s->bad += u.unused;
        s->used += u.used;
        s->unused += u.unused;
        if (a->cause == LOOKAHEAD_MARKER || !inside)
                s->marked = false;
        s->steps = s->steps + steps < s->steps ? UINT32_MAX : s->steps + steps;
        s->missed = 0;
        s->last = a->page;
        s->ahead = inside ? s->ahead - steps : 0;
        s->time = h->time;
}

/* Tells the vCPU, once, whether it was right to see a stream here. */
static void judge(struct lookahead *h, struct lookahead_stream *s, bool success)
{
        if (s->judged)
                return;
        s->judged = true;
        if (success)
                h->doubt -= h->doubt > 0;
        else
                h->doubt += h->doubt < DOUBT;
}

/* Keeps the mean length of the streams that ended last; a long one counts as LONGEST. */
static void count_length(struct lookahead *h, struct lookahead_stream *s)
{
        uint32_t length = s->steps < LONGEST ? s->steps : LONGEST;

        if (s->counted || s->stride == 0 || length == 0)
                return;
        s->counted = true;
        h->usual = h->usual ? (3 * h->usual + length + 3) / 4 : length;
}

/* The stream has ended: it was a mistake if less than a third of its pages were used. */
static void judge_ended(struct lookahead *h, struct lookahead_stream *s,
                        const struct lookahead_access *a)
{
        count_length(h, s);
        if (s->judged)
                return;
        struct use rest = sample(h, s, a, s->ahead);
        if (rest.hidden) {              /* half of them, if any page was used */
                rest.used = s->used ? s->ahead / 2 : 0;
                rest.unused = s->ahead - rest.used;
        }
        rest.used += s->used;
        rest.unused += s->unused;
        if (rest.used + rest.unused)
                judge(h, s, 2 * rest.used >= rest.unused);
}

/* A window that would pass the place where streams usually end stops there; but it is never less
 * than a new stream's. */
static void usual_end(const struct lookahead *h, struct lookahead_stream *s)
{
        uint32_t asked = s->steps + s->ahead, usual = h->usual + h->usual / 4;

        if (h->usual == 0 || asked > usual || asked + s->window <= usual || s->window <= START)
                return;
        s->window = (uint16_t)(usual - asked > START ? usual - asked : START);
}

/* The next window, from the fate of the last window's pages. */
static void set_window(struct lookahead *h, struct lookahead_stream *s,
                       const struct lookahead_access *a)
{
        uint32_t total = s->good + s->bad, w = s->window;

        if (total == 0)                 /* all were here already, or there was no room for any */
                w = s->newest ? w / 2 : w;
        else if (4 * s->good >= 3 * total || (2 * s->good >= total && a->cause == LOOKAHEAD_LATE))
                w *= 2;
        else if (4 * s->good < total)
                w = 0;
        else if (2 * s->good < total)
                w /= 2;
        if (s->used >= LONG)
                judge(h, s, true);
        s->window = (uint16_t)(w < a->most ? w : a->most);
        usual_end(h, s);
        s->closed = 0;
        s->good = s->bad = 0;
}

/* Two thirds in.  At least one page follows, if there is another. */
static uint32_t marker_of(uint32_t count) { return count < 3 ? 0 : 2 * count / 3; }

static void ask(struct lookahead_stream *s, struct lookahead_batch *b)
{
        b->first = s->last + (uint64_t)s->stride * (s->ahead + 1u);
        b->stride = s->stride;
        b->count = s->window < s->left ? s->window : (uint32_t)s->left;
        lookahead_clip(b);
        s->left -= b->count;
        if (b->count)
                b->marker = marker_of(b->count);
        s->newest = b->count;
        s->ahead += b->count;
        s->marked = b->count != 0;
}

/* For a stream that is longer than the cache: names as many pages to evict as the stream just
 * advanced, one window behind its latest access. */
static void pass(const struct lookahead_stream *s, const struct lookahead_access *a, uint32_t steps,
                 struct lookahead_batch *batch)
{
        uint64_t size = (uint64_t)s->stride, first = s->last - size * (s->window + steps);

        if (s->used < a->forget || !lookahead_page_valid(first) ||
            !lookahead_page_valid(first + size * (steps - 1)))
                return;
        batch->passed = first;
        batch->npassed = steps;
}

static void on_predicted(struct lookahead *h, struct lookahead_stream *s,
                         const struct lookahead_access *a, uint32_t steps,
                         struct lookahead_batch *batch)
{
        advance(h, s, a, steps);
        if (s->window == 0) {
                if (++s->closed >= REST) {
                        s->window = (uint16_t)(START < a->most ? START : a->most);
                        s->good = s->bad = 0;
                        ask(s, batch);
                }
        } else if (s->ahead == 0 || (s->ahead < s->newest && (a->cause != LOOKAHEAD_MISS ||
                                                              2 * s->ahead <= s->window))) {
                set_window(h, s, a);
                ask(s, batch);
                if (a->forget)
                        pass(s, a, steps, batch);
        }
        set_range(h, s);
}

/* A free entry, or the entry whose latest fault is the longest ago.  Streams that have ended are
 * judged here: the more mistakes there are, the more accesses must agree. */
static struct lookahead_stream *new_stream(struct lookahead *h, const struct lookahead_access *a)
{
        uint32_t oldest = 0;

        for (uint32_t n = 0; n < LOOKAHEAD_STREAMS; n++) {
                struct lookahead_stream *s = &h->stream[n];
                if (h->time - s->time > STALE)
                        judge_ended(h, s, a);
                if (s->time < h->stream[oldest].time)
                        oldest = n;
        }
        judge_ended(h, &h->stream[oldest], a);
        h->recent = oldest;
        return &h->stream[oldest];
}

/* The access follows a lone access: makes a stream of them if enough accesses agree. */
static void confirm(struct lookahead *h, struct lookahead_lone *l, const struct lookahead_access *a,
                    struct lookahead_batch *batch)
{
        l->page1 = a->page + 1;
        if (l->agreed++ < h->doubt)
                return;
        struct lookahead_stream *s = new_stream(h, a);
        *s = (struct lookahead_stream){
                .last = a->page,
                .stride = l->stride,
                .time = h->time,
                .window = (uint16_t)(START < a->most ? START : a->most),
                .left = UINT64_MAX,
        };
        *l = (struct lookahead_lone){ 0 };
        ask(s, batch);
        set_range(h, s);
}

/* A miss that no stream predicted: does it lie between the pages of a stream, as earlier misses
 * did?  True: the miss belongs to that stream now. */
static bool between(struct lookahead *h, const struct lookahead_access *a,
                    struct lookahead_batch *batch)
{
        for (unsigned i = 0; i < LOOKAHEAD_STREAMS; i++) {
                struct lookahead_stream *s = &h->stream[i];
                uint64_t size = size_of(s->stride);
                if (a->page - h->low[i] >= h->len[i] || size < 2)
                        continue;
                uint64_t rest = beyond(s, a->page) % size;
                uint64_t finer = rest < size - rest ? rest : size - rest;
                if (finer == 0 || size % finer != 0)
                        continue;
                s->missed = s->finer == finer ? s->missed + 1 : 1;
                s->finer = finer;
                if (s->missed < FINER)
                        continue;
                s->stride = s->stride < 0 ? -(int64_t)finer : (int64_t)finer;
                s->last = a->page;
                s->time = h->time;
                s->ahead = s->missed = 0;
                s->window = (uint16_t)(START < a->most ? START : a->most);
                s->good = s->bad = 0;
                h->recent = i;
                ask(s, batch);
                set_range(h, s);
                return true;
        }
        return false;
}

static void on_lone(struct lookahead *h, const struct lookahead_access *a,
                    struct lookahead_batch *batch)
{
        uint64_t page1 = a->page + 1, nearest = UINT64_MAX;
        int64_t stride = 0;

        for (unsigned i = 0; i < LOOKAHEAD_STREAMS; i++) {
                struct lookahead_lone *l = &h->lone[i];
                int64_t d = (int64_t)(page1 - l->page1);
                if (l->page1 == 0)
                        continue;
                if (d == l->stride && d) {
                        confirm(h, l, a, batch);
                        return;
                }
                if (size_of(d) < nearest) {
                        nearest = size_of(d);
                        stride = d;
                }
        }
        if (nearest == 0)               /* an access to the latest page again says nothing */
                return;
        h->lone[h->next_lone] = (struct lookahead_lone){ .page1 = page1, .stride = stride };
        h->next_lone = (h->next_lone + 1) % LOOKAHEAD_STREAMS;
}

void auto_fault(struct lookahead *h, const struct lookahead_access *a,
                struct lookahead_batch *batch)
{
        uint32_t steps;

        h->time++;
        struct lookahead_stream *s = find_stream(h, a, &steps);
        if (s)
                on_predicted(h, s, a, steps, batch);
        else if (!between(h, a, batch))
                on_lone(h, a, batch);
}

/* The program announced the stream, so no access has to confirm it, and the window is open at
 * once. */
void auto_begin(struct lookahead *h, const struct lookahead_access *a, int64_t stride,
                uint64_t count, struct lookahead_batch *batch)
{
        h->time++;
        struct lookahead_stream *s = new_stream(h, a);
        *s = (struct lookahead_stream){
                .last = a->page - (uint64_t)stride,
                .stride = stride,
                .time = h->time,
                .window = (uint16_t)a->most,
                .left = count,
                .judged = true,         /* no guess of the policy */
                .counted = true,
        };
        ask(s, batch);
        set_range(h, s);
}

void auto_cut(struct lookahead *h, struct lookahead_batch *batch, uint32_t n)
{
        struct lookahead_stream *s = &h->stream[h->recent];

        s->left += batch->count - n;
        s->ahead -= batch->count - n;
        batch->marker = n ? marker_of(n) : LOOKAHEAD_NO_MARKER;
        s->newest = n ? n : s->ahead;
        s->marked = n != 0;
        set_range(h, s);
}
