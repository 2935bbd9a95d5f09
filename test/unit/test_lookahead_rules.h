/* Included by test_lookahead.c: the policies fault by fault. */

static struct lookahead look;
static struct lookahead_rule rule;
static struct lookahead_batch batch;
/* Pages below KNOWN are looked up; all others were not used. */
#define KNOWN 131072
static bool touched[KNOWN];
/* If not LOOKAHEAD_UNUSED: the use of all pages. */
static enum lookahead_use all;

static enum lookahead_use used(void *arg, uint64_t page)
{
        assert_ptr_equal(arg, touched);
        assert_true(page < LIMIT);
        if (all != LOOKAHEAD_UNUSED)
                return all;
        return page < KNOWN && touched[page] ? LOOKAHEAD_USED : LOOKAHEAD_UNUSED;
}

static void begin(enum lookahead_policy policy, uint32_t window)
{
        memset(&look, 0, sizeof(look));
        memset(touched, 0, sizeof(touched));
        all = LOOKAHEAD_UNUSED;
        rule = (struct lookahead_rule){ policy, window, 32, 0 };
}

static void touch(uint64_t from, uint64_t to)
{
        for (uint64_t p = from; p <= to; p++)
                touched[p] = true;
}

static void at(uint64_t page, enum lookahead_cause cause)
{
        lookahead_fault(&look, &rule, page, cause, used, touched, &batch);
        if (page < KNOWN)
                touched[page] = true;
}

#define assert_batch(FIRST, STRIDE, COUNT) do { \
                assert_int_equal(batch.count, COUNT); \
                assert_int_equal(batch.first, FIRST); \
                assert_int_equal(batch.stride, STRIDE); \
        } while (0)
#define assert_no_batch() assert_int_equal(batch.count, 0)

static void test_none(void **state)
{
        (void)state;
        begin(LOOKAHEAD_NONE, 8);
        for (uint64_t p = 10; p < 100; p++) {
                at(p, LOOKAHEAD_MISS);
                assert_no_batch();
                assert_int_equal(batch.marker, LOOKAHEAD_NO_MARKER);
        }
        static const enum lookahead_policy policies[] = { LOOKAHEAD_READAHEAD,
                                                          LOOKAHEAD_TREND, LOOKAHEAD_AUTO };
        for (unsigned i = 0; i < 3; i++) {
                begin(policies[i], 0);       /* a window of 0 is none too */
                for (uint64_t p = 10; p < 100; p++) {
                        at(p, LOOKAHEAD_MISS);
                        assert_no_batch();
                }
        }
}

/* A program whose cache has no limit and whose prefetches arrive at once. */
static unsigned misses_of(const uint64_t *reads, unsigned n)
{
        static bool cached[KNOWN];
        unsigned misses = 0;

        begin(LOOKAHEAD_TREND, 8);
        memset(cached, 0, sizeof(cached));
        for (unsigned i = 0; i < n; i++) {
                if (!cached[reads[i]]) {
                        misses++;
                        cached[reads[i]] = true;
                        at(reads[i], LOOKAHEAD_MISS);
                        for (uint32_t k = 0; k < batch.count; k++) {
                                uint64_t p = batch.first + (uint64_t)batch.stride * k;
                                if (p < KNOWN)
                                        cached[p] = true;
                        }
                }
                touched[reads[i]] = true;
        }
        return misses;
}

static unsigned run_of(uint64_t *reads, unsigned n, uint64_t first, int64_t stride, unsigned count)
{
        for (unsigned i = 0; i < count; i++)
                reads[n++] = first + (uint64_t)stride * i;
        return n;
}

/* The misses of Leap's rule as another implementation of it has them. */
static void test_trend_oracle(void **state)
{
        static const uint64_t random[] = { 1, 56, 12, 100, 124, 15550, 51, 10, 7, 4101, 23, 1, 154,
                                           1856, 15 };
        uint64_t reads[400];
        unsigned n;

        (void)state;
        assert_int_equal(misses_of(reads, run_of(reads, 0, 1, 1, 100)), 15);
        assert_int_equal(misses_of(reads, run_of(reads, 0, 100, -1, 100)), 15);
        assert_int_equal(misses_of(reads, run_of(reads, 0, 1, 2, 100)), 15);
        assert_int_equal(misses_of(reads, run_of(reads, 0, 200, -2, 100)), 15);
        assert_int_equal(misses_of(random, 15), 14);    /* one page is read twice */
        run_of(reads, 0, 1, 1, 100);
        for (unsigned i = 0; i < 100; i += 15)
                reads[i] += 116589;
        assert_int_equal(misses_of(reads, 100), 25);
        n = run_of(reads, 0, 1, 1, 100);
        n = run_of(reads, n, 101, 2, 100);
        n = run_of(reads, n, 500, -2, 100);
        n = run_of(reads, n, 600, -1, 100);
        assert_int_equal(misses_of(reads, n), 59);
}

/* 1, 2, 4, 8 while all pages are used; after that no less than half of the window before. */
static void test_trend_window(void **state)
{
        uint64_t p = 12;

        (void)state;
        begin(LOOKAHEAD_TREND, 8);
        at(10, LOOKAHEAD_MISS);
        assert_no_batch();
        at(11, LOOKAHEAD_MISS);
        assert_no_batch();
        for (unsigned w = 1; w <= 8; w *= 2) {
                at(p, LOOKAHEAD_MISS);
                assert_batch(p + 1, 1, w);
                assert_int_equal(batch.marker, LOOKAHEAD_NO_MARKER);
                touch(p + 1, p + w);
                p += w + 1;
        }
        at(p, LOOKAHEAD_MISS);
        assert_batch(p + 1, 1, 8);
        for (unsigned w = 4; w >= 1; w /= 2) {
                at(p + 1000 * w, LOOKAHEAD_MISS);
                assert_batch(p + 1000 * w + 1, 1, w);
        }
        at(60000, LOOKAHEAD_MISS);
        assert_no_batch();
        rule.history = 2;               /* the oldest deltas have no vote any more */
        at(60007, LOOKAHEAD_MISS);
        assert_no_batch();
        at(60014, LOOKAHEAD_MISS);
        assert_batch(60021, 7, 1);
}

/* Up to a batch of 8 after 22, with the trend 1 and a history of 8. */
static void begin_trend_of_8(void)
{
        begin(LOOKAHEAD_TREND, 8);
        rule.history = 8;
        for (uint64_t p = 10; p <= 22; p++) {
                if (touched[p])
                        continue;
                at(p, LOOKAHEAD_MISS);
                if (p < 22 && batch.count)
                        touch(p + 1, p + batch.count);
        }
        assert_batch(23, 1, 8);
}

/* The vote goes over two deltas, then four, then eight. */
static void test_trend_vote(void **state)
{
        (void)state;
        begin_trend_of_8();
        touched[24] = touched[26] = touched[28] = true;
        at(5000, LOOKAHEAD_MISS);       /* three of four are 2 */
        assert_batch(5002, 2, 4);
        begin_trend_of_8();
        touched[24] = touched[26] = true;
        at(5000, LOOKAHEAD_MISS);       /* two of four are 2, five of eight are 1 */
        assert_batch(5001, 1, 4);
        at(9000, LOOKAHEAD_MISS);       /* two of four, four of eight: the trend before */
        assert_batch(9001, 1, 2);
}

/* A page that is late is a hit: it asks for nothing, and the next window has it. */
static void test_trend_late(void **state)
{
        (void)state;
        begin(LOOKAHEAD_TREND, 8);
        at(10, LOOKAHEAD_MISS);
        at(11, LOOKAHEAD_MISS);
        at(12, LOOKAHEAD_MISS);
        assert_batch(13, 1, 1);
        at(13, LOOKAHEAD_LATE);
        assert_no_batch();
        at(14, LOOKAHEAD_MISS);
        assert_batch(15, 1, 2);
        lookahead_cut(&look, &rule, &batch, 1);         /* 16 was not asked for */
        assert_batch(15, 1, 1);
        assert_int_equal(batch.marker, LOOKAHEAD_NO_MARKER);
        touch(15, 16);
        at(17, LOOKAHEAD_MISS);
        assert_batch(18, 1, 2);         /* one hit */
}

/* The windows of Linux's rule include the page of the fault: 1, 2, 4, 8. */
static void test_readahead_up(void **state)
{
        (void)state;
        begin(LOOKAHEAD_READAHEAD, 8);
        at(100, LOOKAHEAD_MISS);
        assert_no_batch();
        at(101, LOOKAHEAD_MISS);
        assert_batch(102, 1, 1);
        touch(102, 102);
        at(103, LOOKAHEAD_MISS);
        assert_batch(104, 1, 3);
        touch(104, 106);
        at(107, LOOKAHEAD_MISS);
        assert_batch(108, 1, 7);
        touch(108, 114);
        at(115, LOOKAHEAD_MISS);
        assert_batch(116, 1, 7);
        assert_int_equal(batch.marker, LOOKAHEAD_NO_MARKER);
        rule.window = 16;               /* page-cluster 4 */
        touch(116, 122);
        at(123, LOOKAHEAD_MISS);
        assert_batch(124, 1, 15);
}

static void test_readahead_down(void **state)
{
        (void)state;
        begin(LOOKAHEAD_READAHEAD, 8);
        at(100, LOOKAHEAD_MISS);
        at(99, LOOKAHEAD_MISS);
        assert_batch(98, -1, 1);
        at(98, LOOKAHEAD_LATE);         /* a hit: nothing is asked for */
        assert_no_batch();
        at(97, LOOKAHEAD_MISS);
        assert_batch(96, -1, 3);
        touch(94, 96);
        at(93, LOOKAHEAD_MISS);
        assert_batch(92, -1, 7);
}

static void test_readahead_random(void **state)
{
        (void)state;
        begin(LOOKAHEAD_READAHEAD, 8);
        for (unsigned i = 0; i < 1000; i++) {
                at(draw(LIMIT / 3) * 3, LOOKAHEAD_MISS);
                assert_no_batch();
        }
}

/* Away from the stream the window lies around the page, and is halved from fault to fault. */
static void test_readahead_shrinks(void **state)
{
        (void)state;
        begin(LOOKAHEAD_READAHEAD, 8);
        at(100, LOOKAHEAD_MISS);
        at(101, LOOKAHEAD_MISS);
        touch(102, 102);
        at(103, LOOKAHEAD_MISS);
        touch(104, 106);
        at(107, LOOKAHEAD_MISS);
        assert_batch(108, 1, 7);
        touch(108, 109);
        at(5000, LOOKAHEAD_MISS);       /* 2 hits: 4 */
        assert_batch(4999, 1, 4);
        at(9000, LOOKAHEAD_MISS);
        assert_batch(9000, 1, 2);
        at(20000, LOOKAHEAD_MISS);
        assert_no_batch();
        touch(110, 110);                /* of an older batch, and still a hit */
        at(30000, LOOKAHEAD_MISS);
        assert_batch(29999, 1, 4);
}

static void test_readahead_limits(void **state)
{
        (void)state;
        begin(LOOKAHEAD_READAHEAD, 8);
        look.window = 8;
        at(0, LOOKAHEAD_MISS);
        assert_batch(0, 1, 3);
        begin(LOOKAHEAD_READAHEAD, 8);
        look.window = 8;
        at(3, LOOKAHEAD_MISS);
        look.window = 16;
        at(2, LOOKAHEAD_MISS);
        assert_batch(1, -1, 2);
        begin(LOOKAHEAD_READAHEAD, 8);
        at(LIMIT - 3, LOOKAHEAD_MISS);
        look.window = 16;
        at(LIMIT - 2, LOOKAHEAD_MISS);
        assert_batch(LIMIT - 1, 1, 1);
        at(LIMIT, LOOKAHEAD_MISS);
        assert_no_batch();
        begin(LOOKAHEAD_READAHEAD, 1);
        at(7, LOOKAHEAD_MISS);
        at(8, LOOKAHEAD_MISS);
        assert_no_batch();
}

/* Where use cannot be known, the pages that a fault has passed count as used. */
static void test_hits_unknown(void **state)
{
        (void)state;
        begin(LOOKAHEAD_READAHEAD, 8);
        all = LOOKAHEAD_HIDDEN;
        at(100, LOOKAHEAD_MISS);
        at(101, LOOKAHEAD_MISS);
        at(103, LOOKAHEAD_MISS);
        assert_batch(104, 1, 3);
        at(107, LOOKAHEAD_MISS);
        assert_batch(108, 1, 7);
        at(50000, LOOKAHEAD_MISS);      /* too far to say so: no hits, half the window */
        assert_batch(49999, 1, 4);
        begin(LOOKAHEAD_TREND, 8);
        all = LOOKAHEAD_HIDDEN;
        at(50, LOOKAHEAD_MISS);
        at(47, LOOKAHEAD_MISS);
        at(44, LOOKAHEAD_MISS);
        assert_batch(41, -3, 1);
        at(38, LOOKAHEAD_MISS);
        assert_batch(35, -3, 2);
        at(29, LOOKAHEAD_MISS);
        assert_batch(26, -3, 4);
        at(14, LOOKAHEAD_MISS);
        assert_batch(11, -3, 4);        /* 11, 8, 5, 2: four of the eight are above 0 */
}
