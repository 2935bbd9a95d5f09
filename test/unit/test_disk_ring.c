/*
 * file: on a disk that is simulated: its ring holds commands back, carries out parts of them, fails
 * them and completes them late, by chance; and vmrun is stopped now and then.  The test is the
 * owner of the requests, as request.c is: it uses a frame again as soon as it has it back, and
 * writes no other page to a place where a write was handed back or has failed.
 *
 * SEED, ROUNDS
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/options.h"
#include "common/clock.h"
#include "far/file/disk.h"

#define PAGES   1024u
#define FRAMES  192u
#define WORDS   (PAGE_SIZE / 8)
#define TIMEOUT 3000
#define PAUSE   1000                    /* of vmrun, ms */

struct options opt = { .timeout_ms = TIMEOUT };

/* ---- chance and time ---- */

static uint64_t seed = 1;
static unsigned rnd(unsigned n)
{
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return (unsigned)(seed >> 20) % n;
}

static int64_t now = 1000000;
int64_t now_ms(void) { return now; }

/* ---- the disk and its ring ---- */

static uint64_t disk[PAGES][WORDS];

/* A command that the kernel has.  Its places in memory are taken when it is submitted, as by the
 * kernel. */
static struct flight {
        enum { UNUSED, QUEUED, HELD, OVER } state;
        struct disk_command *c;
        bool write;
        unsigned first, pages, offset, len;     /* of the first page, in bytes */
        char *at[DISK_RUN];
        int result;
} flights[DISK_DEPTH];

/* The ring's present behaviour. */
static struct {
        bool holds;                     /* nothing is carried out */
        unsigned slow;                  /* a command is carried out at one step of `slow` */
        unsigned fails, splits;         /* of 1000 commands */
        bool passes;                    /* some are not carried out, and would be if asked again */
        bool writes_fail;               /* all of them, with EIO */
} way;
static unsigned handed_back, refused, late_reads, splits_seen;

static unsigned count_of(int state)
{
        unsigned n = 0;

        for (unsigned i = 0; i < DISK_DEPTH; i++)
                n += flights[i].state == (unsigned)state;
        return n;
}

bool disk_ring_pending(const struct disk_node *d)
{
        (void)d;
        return count_of(QUEUED) > 0;
}

void disk_ring_queue(struct disk_node *d, struct disk_command *c)
{
        struct flight *f = flights;

        (void)d;
        assert_non_null(c->r);
        while (f < flights + DISK_DEPTH && f->state != UNUSED)
                f++;
        assert_true(f < flights + DISK_DEPTH);
        *f = (struct flight){ .state = QUEUED, .c = c, .write = c->op == FAR_WRITE,
                              .first = (unsigned)c->r->place->first + c->r->page,
                              .pages = c->pages, .offset = c->r->offset,
                              .len = (unsigned)c->piece[0].iov_len };
        for (unsigned i = 0; i < c->pages; i++)
                f->at[i] = c->piece[i].iov_base;
}

void disk_ring_submit(struct disk_node *d)
{
        (void)d;
        for (struct flight *f = flights; f < flights + DISK_DEPTH; f++)
                if (f->state == QUEUED && (way.slow < 2 || rnd(4)))
                        f->state = HELD;
}

/* Moves the first of its pages.  A page of which half was moved is torn, so it is filled up with a
 * content that no page has. */
static void move(const struct flight *f, unsigned pages, bool torn)
{
        for (unsigned i = 0; i < pages + torn && i < f->pages; i++) {
                char *there = (char *)disk[f->first + i] + f->offset;
                if (f->write)
                        memcpy(there, f->at[i], f->len);
                else
                        memcpy(f->at[i], there, f->len);
                if (i == pages && f->write)
                        memset(there, 0xdd, f->len / 2);
                else if (i == pages)
                        memset(f->at[i], 0xdd, f->len / 2);
        }
}

static void carry_out(struct flight *f)
{
        bool fails = rnd(1000) < way.fails || (way.writes_fail && f->write);
        unsigned good = f->pages;

        f->state = OVER;
        if (way.passes && !rnd(4)) {
                f->result = rnd(2) ? -EAGAIN : -ECANCELED;
                return;
        }
        if (fails || rnd(1000) < way.splits)
                good = rnd(f->pages);
        splits_seen += good && good < f->pages;
        late_reads += !f->write && f->c->given_up;
        move(f, good, good < f->pages && rnd(2));
        f->result = fails ? -EIO : (int)(good * f->len);
}

static void ring_step(void)
{
        for (unsigned n = rnd(8); n > 0 && !way.holds; n--) {
                struct flight *f = &flights[rnd(DISK_DEPTH)];
                for (unsigned i = 0; i < DISK_DEPTH && f->state != HELD; i++)
                        f = f + 1 < flights + DISK_DEPTH ? f + 1 : flights;
                if (f->state == HELD && (way.slow < 2 || !rnd(way.slow)))
                        carry_out(f);
        }
}

unsigned disk_ring_reap(struct disk_node *d,
                        unsigned (*over)(struct disk_node *d, struct disk_command *c, int result))
{
        unsigned sum = 0;

        for (struct flight *f = flights; f < flights + DISK_DEPTH; f++)
                if (f->state == OVER) {
                        struct disk_command *c = f->c;
                        f->state = UNUSED;
                        sum += over(d, c, f->result);
                }
        return sum;
}

/* ---- the owner ---- */

static struct frame {
        struct far_request r;
        bool busy;
        bool again;                     /* a write that was handed back, to be sent once more */
        uint32_t version;               /* of the page that is written */
} frames[FRAMES];
static char (*memory)[PAGE_SIZE];       /* of the frames */
static uint32_t version[PAGES];         /* on the disk */
static bool dead[PAGES];                /* DUE for good */
static bool writing[PAGES];
static struct far_place place;
static struct far_node node;
static struct disk_node *d;
static unsigned done, ups, downs;
static char why[FAR_WHY];

static uint64_t word_of(unsigned page, uint32_t v, unsigned i)
{
        return ((uint64_t)page << 40 ^ (uint64_t)v << 12 ^ i) * 0x9e3779b97f4a7c15ull + i;
}
static void fill(char *at, unsigned page, uint32_t v)
{
        for (unsigned i = 0; i < WORDS; i++)
                ((uint64_t *)at)[i] = word_of(page, v, i);
}
static void expect(const char *at, unsigned page, uint32_t v, unsigned offset, unsigned len)
{
        for (unsigned i = offset / 8; i < (offset + len) / 8; i++)
                if (((const uint64_t *)at)[i] != word_of(page, v, i))
                        fail_msg("page %u: word %u is not of version %u", page, i, v);
}

/* A frame without a request belongs to another page: the driver may not change it. */
#define OTHER PAGES
static void use_otherwise(struct frame *f)
{
        f->busy = false;
        f->version++;
        fill(memory[f - frames], OTHER + (unsigned)(f - frames), f->version);
}
static void check_others(void)
{
        for (unsigned i = 0; i < FRAMES; i++)
                if (!frames[i].busy)
                        expect(memory[i], OTHER + i, frames[i].version, 0, PAGE_SIZE);
}

void far_done(struct far_request *r)
{
        struct frame *f = (struct frame *)r;

        assert_true(f->busy);
        assert_false(disk_is_down(&node));
        if (r->op == FAR_WRITE) {
                writing[r->page] = false;
                dead[r->page] = r->error;
                if (!r->error)
                        expect((char *)disk[r->page], r->page, version[r->page], 0, PAGE_SIZE);
                refused += r->error != 0;
        } else if (!r->error && !dead[r->page]) {
                expect(r->frame, r->page, version[r->page], r->offset, r->len);
        }
        done++;
        use_otherwise(f);
}

void far_failed(struct far_request *r)
{
        struct frame *f = (struct frame *)r;

        assert_true(f->busy);
        assert_true(node.lost || disk_is_down(&node));
        handed_back++;
        if (r->op == FAR_WRITE && node.hands_back && !node.lost && rnd(2)) {
                f->again = true;        /* of a slab that has no other place */
                return;
        }
        if (!node.hands_back)
                return;                 /* the program ends */
        if (r->op == FAR_WRITE) {
                writing[r->page] = false;
                dead[r->page] = true;
        }
        use_otherwise(f);
}

void far_up(struct far_node *n)
{
        assert_false(atomic_load(&n->up));
        atomic_store(&n->up, true);
        ups++;
}

void far_down(struct far_node *n, const char *text)
{
        assert_true(atomic_load(&n->up));
        atomic_store(&n->up, false);
        snprintf(why, sizeof(why), "%s", text);
        downs++;
}

void far_lost(struct far_node *n, bool pages, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(why, sizeof(why), fmt, ap);
        va_end(ap);
        n->lost = true;
        n->lost_pages = pages;
}

static void begin(bool copies)
{
        memset(flights, 0, sizeof(flights));
        memset(&way, 0, sizeof(way));
        memset(dead, 0, sizeof(dead));
        memset(writing, 0, sizeof(writing));
        memset(frames, 0, sizeof(frames));
        d = calloc(1, sizeof(*d));
        assert_non_null(d);
        node = (struct far_node){ .hands_back = copies, .data = d, .up = !copies };
        place = (struct far_place){ .node = &node };
        d->far = &node;
        disk_reset(d);
        if (copies) {
                assert_int_equal(disk_room_make(d), 0);
                far_up(&node);
        }
        for (unsigned i = 0; i < FRAMES; i++)
                use_otherwise(&frames[i]);
        for (unsigned p = 0; p < PAGES; p++)
                fill((char *)disk[p], p, version[p]);
        handed_back = refused = late_reads = splits_seen = done = ups = downs = 0;
}

static void end(void)
{
        disk_room_drop(d);
        free(d);
}

static bool is_asked(unsigned page)
{
        for (unsigned i = 0; i < FRAMES; i++)
                if (frames[i].busy && frames[i].r.page == page)
                        return true;
        return false;
}

static struct far_request *prepare(struct frame *f, enum far_op op, unsigned page)
{
        bool part = op == FAR_READ && !rnd(8);

        f->busy = true;
        f->again = false;
        f->r = (struct far_request){ .op = op, .page = page, .place = &place,
                                     .frame = memory[f - frames],
                                     .offset = part ? 1024 : 0, .len = part ? 512 : PAGE_SIZE };
        if (op == FAR_WRITE) {
                writing[page] = true;
                fill(f->r.frame, page, ++version[page]);
        } else {
                memset(f->r.frame, 0xee, PAGE_SIZE);
        }
        return &f->r;
}

/* Posts count of r; a request that is not taken is as if it had never been made. */
static void post(struct far_request **r, unsigned count)
{
        unsigned took = disk_post(&node, r, count);

        assert_true(took <= count);
        for (unsigned i = took; i < count; i++) {
                if (r[i]->op == FAR_WRITE) {
                        writing[r[i]->page] = false;
                        version[r[i]->page]--;
                }
                use_otherwise((struct frame *)r[i]);
        }
}

static void ask(void)
{
        struct far_request *r[DISK_RUN];
        unsigned count = 0, most = rnd(3) ? rnd(DISK_RUN) + 1 : 1, page = rnd(PAGES);
        enum far_op op = (enum far_op)rnd(3);
        bool backward = rnd(2);

        for (unsigned i = 0; i < FRAMES && count < most; i++) {
                unsigned p = backward ? page - count : page + count;
                if (frames[i].busy)
                        continue;
                if (p >= PAGES || dead[p] || writing[p] || is_asked(p))
                        break;
                r[count++] = prepare(&frames[i], op, p);
        }
        if (count)
                post(r, count);
}

/* Asks again for the requests that were handed back and have no other place. */
static void ask_again(void)
{
        for (unsigned i = 0; i < FRAMES; i++) {
                struct frame *f = &frames[i];
                struct far_request *r = &f->r;
                if (!f->busy || !f->again || disk_is_down(&node))
                        continue;
                f->again = false;
                r->error = 0;
                if (disk_post(&node, &r, 1) == 0)
                        f->again = true;
        }
}

static void step(unsigned ms)
{
        now += ms;
        for (struct flight *f = flights; ms > PAUSE && !way.holds && f < flights + DISK_DEPTH; f++)
                if (f->state == HELD)
                        carry_out(f);   /* the disk went on */
        ring_step();
        disk_poll(&node);
        check_others();
}

static void settle(void)
{
        bool busy = true;

        memset(&way, 0, sizeof(way));
        for (unsigned i = 0; busy && i < 100000; i++) {
                step(5);
                ask_again();
                busy = count_of(UNUSED) < DISK_DEPTH || d->used || disk_is_down(&node);
                for (unsigned k = 0; k < FRAMES; k++)
                        busy |= frames[k].busy;
        }
        assert_false(busy);
        assert_int_equal(d->given_up + d->failed + d->background, 0);
        if (d->room)
                assert_int_equal(d->spares, DISK_ROOM);
        for (unsigned p = 0; p < PAGES; p++)
                if (!dead[p])
                        expect((char *)disk[p], p, version[p], 0, PAGE_SIZE);
}

/* ---- tests ---- */

static unsigned rounds = 100;

/* A way for some steps, then another one.  Never so bad that the node is lost. */
static void by_chance(bool copies)
{
        begin(copies);
        for (unsigned round = 0; round < rounds; round++) {
                memset(&way, 0, sizeof(way));
                way.slow = rnd(3) ? rnd(20) : 0;
                way.fails = rnd(3) ? 0 : rnd(200);
                way.splits = rnd(3) ? 0 : rnd(200);
                way.passes = !rnd(4);
                way.holds = !rnd(6);
                way.writes_fail = !way.holds && !rnd(4);
                unsigned ms = way.writes_fail || (way.holds && copies) ? 5 + rnd(15) : rnd(4);
                bool stops = copies || !(way.holds || way.writes_fail);
                for (unsigned i = rnd(120); i > 0 && !node.lost; i--) {
                        if (rnd(2))
                                ask();
                        ask_again();
                        step(!stops || rnd(300) ? ms : PAUSE + rnd(100000));    /* it was stopped */
                }
                if (node.lost)
                        fail_msg("round %u: %s", round, why);
                settle();
                for (unsigned p = 0; p < PAGES; p++)
                        if (dead[p]) {
                                dead[p] = false;
                                fill((char *)disk[p], p, version[p]);
                        }
        }
        print_message("# %u done, %u handed back, %u writes failed, %u split, %u late reads, %u "
                      "downs\n", done, handed_back, refused, splits_seen, late_reads, downs);
        assert_true(done > rounds * 10 && refused && splits_seen);
        assert_int_equal(copies, downs > 0);
        assert_int_equal(copies, late_reads > 0);
        end();
}

static void one_copy(void **state)
{
        (void)state;
        by_chance(false);
}
static void two_copies(void **state)
{
        (void)state;
        by_chance(true);
}

/* One of each kind, while the disk is silent. */
static void ask_each(void)
{
        for (unsigned op = FAR_READ; op <= FAR_WRITE; op++) {
                struct far_request *r = prepare(&frames[op], (enum far_op)op, 10 + 2 * op);
                assert_int_equal(disk_post(&node, &r, 1), 1);
        }
}

/* With copies all requests are back after a second, also those that the kernel had not been given.
 * The node is up once the kernel's last command has ended, and takes nothing before. */
static void silence(void **state)
{
        struct far_request *r;
        unsigned ms = 0;

        (void)state;
        begin(true);
        way.holds = true;
        ask_each();
        for (; !downs && ms < 3000; ms += 10)
                step(10);
        assert_in_range(ms, DISK_SILENT_MS, DISK_SILENT_MS + 200);
        assert_non_null(strstr(why, "it has not answered for 1.0 s while 3 transfers wait"));
        assert_int_equal(handed_back, 3);
        assert_int_equal(d->given_up, 3);
        r = prepare(&frames[20], FAR_READ, 99);
        assert_int_equal(disk_post(&node, &r, 1), 0);
        use_otherwise(&frames[20]);
        for (unsigned i = 0; i < 2000; i++)
                step(50);               /* far longer than --timeout */
        assert_false(node.lost);
        assert_true(disk_is_down(&node));
        for (struct flight *f = flights; f < flights + DISK_DEPTH; f++)
                if (f->state == HELD) {
                        assert_true(disk_is_down(&node));
                        carry_out(f);
                        if (d->given_up == 3)
                                f->result = -ECANCELED;         /* it is not retried */
                        step(1);
                }
        assert_false(disk_is_down(&node));
        assert_int_equal(ups, 1);
        settle();
        end();
}

/* One command that does not end, while others do, or fail. */
static void stuck(void **state)
{
        struct flight *f;
        unsigned ms = 0;

        (void)state;
        begin(true);
        way.holds = true;
        ask_each();
        step(0);
        for (f = flights; f->state != HELD; f++)
                ;
        f->state = UNUSED;              /* hidden */
        struct flight hidden = *f;
        way.holds = false;
        way.writes_fail = true;
        for (; !downs && ms < 2 * TIMEOUT; ms += 10) {
                struct far_request *r;
                if (!frames[51].busy) {
                        r = prepare(&frames[51], FAR_WRITE, 600 + ms / 10);
                        assert_int_equal(disk_post(&node, &r, 1), 1);
                }
                if (!frames[50].busy) {
                        r = prepare(&frames[50], FAR_READ, 500);
                        assert_int_equal(disk_post(&node, &r, 1), 1);
                }
                step(10);
        }
        assert_in_range(ms, TIMEOUT, TIMEOUT + 200);
        for (f = flights; f->state != UNUSED; f++)
                ;
        *f = hidden;
        f->state = HELD;
        /* The commands that the kernel has; it has no write that has failed. */
        assert_int_equal(d->given_up, DISK_DEPTH - count_of(UNUSED));
        settle();
        assert_int_equal(ups, 1);
        end();
}

/* This process did not run, so the silence was its own: it first takes the commands that were over
 * meanwhile. */
static void pauses(void **state)
{
        (void)state;
        for (unsigned copies = 0; copies < 2; copies++) {
                begin(copies);
                way.holds = true;
                ask_each();
                step(0);
                for (unsigned i = 0; i < 2; i++)
                        step(100000);
                assert_int_equal(downs, 0);
                assert_false(node.lost);
                way.holds = false;
                settle();
                end();
        }
}

/* With one copy pages go to and from their frames, and silence of --timeout is the end. */
static void silence_one_copy(void **state)
{
        unsigned ms = 0;

        (void)state;
        begin(false);
        way.holds = true;
        ask_each();
        for (struct flight *f = flights; f < flights + DISK_DEPTH; f++)
                if (f->state != UNUSED)
                        assert_ptr_equal(f->at[0], f->c->r->frame + f->c->r->offset);
        for (; !node.lost && ms < 3 * TIMEOUT; ms += 100)
                step(100);
        assert_in_range(ms, TIMEOUT, TIMEOUT + 500);
        assert_true(node.lost_pages);
        assert_non_null(strstr(why, "raise --timeout"));
        assert_int_equal(handed_back, 3);
        end();
}

/* A place that cannot be written: its pages end with an error, others do not; the node stays.  If
 * none can be, it is lost after --timeout. */
static void bad_places(void **state)
{
        (void)state;
        for (unsigned copies = 0; copies < 2; copies++) {
                struct far_request *r[4];
                unsigned ms = 0;

                begin(copies);
                for (unsigned i = 0; i < 4; i++)
                        r[i] = prepare(&frames[i], FAR_WRITE, 40 + i);
                assert_int_equal(disk_post(&node, r, 4), 4);
                disk_poll(&node);
                way.writes_fail = true;
                for (; d->used && ms < 3000; ms += 20)
                        step(20);
                assert_in_range(ms, DISK_AGAIN_MS, DISK_AGAIN_MS + 400);
                assert_int_equal(done, 4);
                assert_in_range(refused, 1, 4);
                way.writes_fail = false;
                r[0] = prepare(&frames[0], FAR_WRITE, 50);
                assert_int_equal(disk_post(&node, r, 1), 1);
                settle();

                unsigned before = refused;
                way.writes_fail = true;
                for (ms = 0; !node.lost && ms < 10 * TIMEOUT; ms += 20) {
                        unsigned page = 100 + ms / 20 % 800;
                        if (!frames[7].busy && !dead[page]) {
                                r[0] = prepare(&frames[7], FAR_WRITE, page);
                                assert_int_equal(disk_post(&node, r, 1), 1);
                        }
                        step(20);
                }
                assert_in_range(ms, TIMEOUT, 2 * TIMEOUT);
                assert_non_null(strstr(why, "writing to it has failed for 3 s"));
                assert_true(node.lost_pages);
                /* Each attempt cost a slot. */
                assert_in_range(refused - before, 1, TIMEOUT / DISK_AGAIN_MS + 1);
                end();
        }
}

/* Prefetches do not take the pages that demand reads need. */
static void room(void **state)
{
        struct far_request *r[16], *one;
        unsigned page = 0, i;

        (void)state;
        begin(true);
        way.holds = true;
        for (;;) {
                for (i = 0; i < 16; i++) {
                        struct frame *f = &frames[i];
                        r[i] = prepare(f, FAR_PREFETCH, page + i);
                }
                if (disk_post(&node, r, 16) < 16)
                        break;
                page += 16;
                assert_true(page < PAGES);
        }
        assert_true(d->spares >= DISK_DEPTH);
        for (i = 0; d->free; i++) {
                one = prepare(&frames[20], FAR_READ, 1);
                assert_int_equal(disk_post(&node, &one, 1), 1);
        }
        assert_int_equal(i, DISK_DEPTH - page / 16);
        end();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(silence), cmocka_unit_test(stuck), cmocka_unit_test(pauses),
                cmocka_unit_test(silence_one_copy), cmocka_unit_test(bad_places),
                cmocka_unit_test(room), cmocka_unit_test(one_copy), cmocka_unit_test(two_copies)
        };

        if (getenv("SEED"))
                seed = strtoull(getenv("SEED"), NULL, 0) * 0x9e3779b97f4a7c15ull | 1;
        if (getenv("ROUNDS"))
                rounds = (unsigned)strtoul(getenv("ROUNDS"), NULL, 0);
        memory = aligned_alloc(PAGE_SIZE, FRAMES * (size_t)PAGE_SIZE);
        if (!memory)
                return 1;
        int status = cmocka_run_group_tests(tests, NULL, NULL);
        free(memory);
        return status;
}
