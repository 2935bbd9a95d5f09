/* Included by test_lookahead.c: `auto`, fault by fault, and all policies at random. */

/* Three faults at a distance, and the batch after the third. */
static void open_stream(uint64_t page, int64_t stride)
{
        for (unsigned i = 0; i < 2; i++) {
                at(page, LOOKAHEAD_MISS);
                assert_no_batch();
                page += (uint64_t)stride;
        }
        at(page, LOOKAHEAD_MISS);
        assert_batch(page + (uint64_t)stride, stride, 4);
        assert_int_equal(batch.marker, 2);
}

/* The window doubles at each marker, and a batch starts where the one before ended. */
static void test_auto_opens(void **state)
{
        uint64_t first = 103, marker = 105;
        unsigned w = 4;

        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        open_stream(100, 1);
        for (unsigned i = 0; i < 7; i++) {
                touch(first, marker);
                at(marker, LOOKAHEAD_MARKER);
                first += w;
                w = w < 64 ? 2 * w : 64;
                assert_batch(first, 1, w);
                assert_int_equal(batch.marker, 2 * w / 3);
                marker = first + batch.marker;
                touch(first - w / 2, first);
        }
        begin(LOOKAHEAD_AUTO, 3);       /* a narrow window */
        at(10, LOOKAHEAD_MISS);
        at(8, LOOKAHEAD_MISS);
        at(6, LOOKAHEAD_MISS);
        assert_batch(4, -2, 3);
        begin(LOOKAHEAD_AUTO, 1);
        for (uint64_t p = 20; p < 22; p++)
                at(p, LOOKAHEAD_MISS);
        for (uint64_t p = 22; p < 40; p++) {
                at(p, p == 22 ? LOOKAHEAD_MISS : LOOKAHEAD_MARKER);
                assert_batch(p + 1, 1, 1);
                assert_int_equal(batch.marker, 0);
        }
}

/* Once a stream has used as many pages as the rule says, it passes on the pages that lie a window
 * behind it, each once. */
static void test_auto_passed(void **state)
{
        static const int64_t strides[] = { 1, -3 };

        (void)state;
        for (unsigned n = 0; n < 2; n++) {
                int64_t stride = strides[n];
                uint64_t page = 50000, next_passed = 0;
                int64_t gone;
                begin(LOOKAHEAD_AUTO, 16);
                rule.forget = 200;
                all = LOOKAHEAD_USED;
                for (unsigned i = 0; i < 3; i++, page += (uint64_t)stride)
                        at(page, LOOKAHEAD_MISS);
                for (unsigned i = 0; i < 60; i++) {
                        assert_true(batch.count);
                        uint64_t marker = batch.first + batch.marker * (uint64_t)stride;
                        gone = (int64_t)(marker - 50000) / stride;
                        at(marker, LOOKAHEAD_MARKER);
                        if (!batch.npassed) {
                                assert_true(gone < 240);
                                assert_int_equal(next_passed, 0);
                                continue;
                        }
                        assert_true(gone > 180);
                        if (next_passed)
                                assert_int_equal(batch.passed, next_passed);
                        next_passed = batch.passed + batch.npassed * (uint64_t)stride;
                        assert_int_equal(next_passed, marker - 16 * (uint64_t)stride);
                }
                assert_true(next_passed);
        }
}

/* A page that is late asks for more at once, but only once a batch. */
static void test_auto_late(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        open_stream(100, 5);
        at(115, LOOKAHEAD_LATE);
        assert_batch(135, 5, 8);
        at(120, LOOKAHEAD_LATE);
        assert_no_batch();
        touch(121, 129);
        at(130, LOOKAHEAD_MARKER);      /* of the older batch */
        assert_no_batch();
        at(135, LOOKAHEAD_LATE);
        assert_batch(175, 5, 16);
}

/* Opens a stream from 100 up to a batch of 64, of which the first page is returned. */
static uint64_t open_wide(void)
{
        uint64_t first = 103;

        open_stream(100, 1);
        while (batch.count < 64) {
                touch(first, batch.first + batch.marker);
                first = batch.first;
                at(first + batch.marker, LOOKAHEAD_MARKER);
        }
        touch(first, batch.first - 1);
        return batch.first;
}

/* Answers for the page before the fault, then for a sample of four. */
static enum lookahead_use used_of_five(void *arg, uint64_t page)
{
        unsigned *n = arg;

        (void)page;
        bool yes = n[0] == 0 || n[0] <= n[1];
        n[0]++;
        return yes ? LOOKAHEAD_USED : LOOKAHEAD_UNUSED;
}

/* The window follows the share of pages that was used: it grows from 3/4 on, is kept from 1/2 on,
 * halved from 1/4 on; below the stream is closed. */
static void test_auto_unused(void **state)
{
        static const unsigned next[] = { 0, 8, 16, 32, 32 };

        (void)state;
        for (unsigned i = 0; i <= 4; i++) {
                unsigned n[] = { 0, i };
                begin(LOOKAHEAD_AUTO, 32);
                open_stream(100, 1);
                touch(103, 130);
                at(105, LOOKAHEAD_MARKER);
                at(112, LOOKAHEAD_MARKER);
                assert_batch(115, 1, 16);
                lookahead_fault(&look, &rule, 125, LOOKAHEAD_MARKER, used_of_five, n, &batch);
                assert_int_equal(n[0], 5);
                assert_int_equal(batch.count, next[i]);
                if (batch.count)
                        assert_int_equal(batch.first, 131);
        }
}

/* The sample is another each time: to use a page of each quarter is not to use all. */
static void test_auto_sample(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        open_wide();
        for (unsigned i = 0; i < 4 && batch.count; i++) {
                uint64_t last = look.stream[look.recent].last, next = batch.first + batch.marker;
                uint64_t quarter = (next - last - 1) / 4;
                for (uint64_t k = 1; last + k < next; k++)
                        touched[last + k] = k % quarter == 1 || last + k == next - 1;
                at(next, LOOKAHEAD_MARKER);
        }
        assert_in_range(look.stream[look.recent].window, 0, 32);
}

/* A batch whose pages are all here already is not worth as many the next time. */
static void test_auto_resident(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        open_stream(100, 1);
        all = LOOKAHEAD_OTHER;
        at(107, LOOKAHEAD_MISS);
        assert_batch(108, 1, 2);
        at(111, LOOKAHEAD_MISS);
        assert_batch(112, 1, 1);
        at(113, LOOKAHEAD_MISS);
        assert_no_batch();
}

/* An access within the range whose neighbour was not used is another's. */
static void test_auto_foreign(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        uint64_t first = open_wide();
        at(first + 30, LOOKAHEAD_LATE);
        assert_no_batch();
        touch(first, first + 41);
        at(first + 42, LOOKAHEAD_MARKER);
        assert_batch(first + 64, 1, 64);
        touch(first + 42, first + 150);         /* resident pages are passed */
        at(first + 151, LOOKAHEAD_MISS);
        assert_batch(first + 152, 1, 64);
        at(first + 160 + 7 * 64, LOOKAHEAD_MISS);       /* beyond all that is predicted */
        assert_no_batch();
}

/* A closed stream is tried again after 64 faults. */
static void test_auto_again(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        open_stream(100, 1);
        for (uint64_t p = 103; p < 105; p++) {
                at(p, LOOKAHEAD_MISS);  /* asked for, and gone again */
                assert_no_batch();
        }
        for (uint64_t p = 105; p < 107; p++)
                at(p, LOOKAHEAD_MISS);
        assert_int_equal(look.stream[look.recent].window, 0);
        uint64_t p = 107;
        for (; p < 300 && !batch.count; p++)
                at(p, LOOKAHEAD_MISS);
        assert_in_range(p, 107 + 58, 107 + 66);
        assert_batch(p, 1, 4);
        touch(p, p + 1);
        at(p + 2, LOOKAHEAD_MARKER);
        assert_batch(p + 4, 1, 8);
}

/* Where use cannot be known: markers and late pages open the window, misses within the pages that
 * were asked for close it. */
static void test_auto_unknown(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        all = LOOKAHEAD_HIDDEN;
        open_stream(100, 1);
        at(105, LOOKAHEAD_MARKER);
        assert_batch(107, 1, 8);
        at(112, LOOKAHEAD_MARKER);
        assert_batch(115, 1, 16);
        at(130, LOOKAHEAD_MISS);        /* the last, and it is not there: nor was the marker used */
        assert_no_batch();
        assert_int_equal(look.stream[look.recent].window, 0);
        at(131, LOOKAHEAD_MISS);
        assert_no_batch();
}

/* Pages for which there was no room are asked for next time. */
static void test_auto_cut(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        open_stream(100, 1);
        lookahead_cut(&look, &rule, &batch, 4);
        assert_batch(103, 1, 4);
        lookahead_cut(&look, &rule, &batch, 1);
        assert_batch(103, 1, 1);
        assert_int_equal(batch.marker, 0);
        at(103, LOOKAHEAD_MARKER);
        assert_batch(104, 1, 8);
        lookahead_cut(&look, &rule, &batch, 0);
        assert_no_batch();
        assert_int_equal(batch.marker, LOOKAHEAD_NO_MARKER);
        at(104, LOOKAHEAD_MISS);
        assert_batch(105, 1, 8);
        touch(105, 109);
        at(110, LOOKAHEAD_MARKER);
        assert_batch(113, 1, 16);
        lookahead_cut(&look, &rule, &batch, 0);
        at(111, LOOKAHEAD_LATE);
        assert_batch(113, 1, 32);
}

static void test_auto_bounds(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        at(5, LOOKAHEAD_MISS);
        at(4, LOOKAHEAD_MISS);
        at(3, LOOKAHEAD_MISS);
        assert_batch(2, -1, 3);
        assert_int_equal(batch.marker, 2);
        touch(0, 2);
        at(0, LOOKAHEAD_MARKER);
        assert_no_batch();
        assert_int_equal(batch.marker, LOOKAHEAD_NO_MARKER);
        begin(LOOKAHEAD_AUTO, 64);
        at(LIMIT - 5, LOOKAHEAD_MISS);
        at(LIMIT - 4, LOOKAHEAD_MISS);
        at(LIMIT - 3, LOOKAHEAD_MISS);
        assert_batch(LIMIT - 2, 1, 2);
        begin(LOOKAHEAD_AUTO, 64);
        at(0, LOOKAHEAD_MISS);
        at(LIMIT / 8, LOOKAHEAD_MISS);
        at(LIMIT / 4, LOOKAHEAD_MISS);
        assert_batch(LIMIT / 8 * 3, (int64_t)(LIMIT / 8), 4);
        at(LIMIT / 8 * 3, LOOKAHEAD_LATE);
        assert_batch(LIMIT / 8 * 7, (int64_t)(LIMIT / 8), 1);
        at(LIMIT, LOOKAHEAD_MISS);
        assert_no_batch();
        begin(LOOKAHEAD_AUTO, 64);
        at(1000, LOOKAHEAD_MISS);
        for (unsigned i = 0; i < 10; i++) {
                at(77, LOOKAHEAD_MISS); /* page 77 again is no stream, and no other access */
                assert_no_batch();
        }
        at(1001, LOOKAHEAD_MISS);
        at(1002, LOOKAHEAD_MISS);
        assert_batch(1003, 1, 4);
}

/* A stream that ends at once. */
static void false_stream(uint64_t page)
{
        for (unsigned i = 0; i < 3 + look.doubt; i++)
                at(page + 3 * i, LOOKAHEAD_MISS);
        for (uint64_t i = 0; i < 40; i++)
                at(page + 50000 + i * i * i, LOOKAHEAD_MISS);
}

/* Streams that end at once make later streams wait for more faults that agree.  Streams that last
 * make them wait for fewer. */
static void test_auto_doubt(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        for (unsigned n = 1; n < 14; n++) {
                false_stream(LIMIT / 16 * n);
                assert_int_equal(look.doubt, n <= 6 ? n - 1 : 5);
        }
        uint64_t p = 1000;
        for (; p < 1000 + 2 + 5; p++) {
                at(p, LOOKAHEAD_MISS);
                assert_no_batch();
        }
        at(p, LOOKAHEAD_MISS);
        assert_batch(p + 1, 1, 4);
        while (p < 1200) {
                p = batch.first + batch.marker;
                touch(1000, p - 1);
                at(p, LOOKAHEAD_MARKER);
        }
        assert_int_equal(look.doubt, 4);
}

/* A ninth stream takes the place of the stream that was not seen for longest. */
static void test_auto_least_recent(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        for (uint64_t i = 0; i < LOOKAHEAD_STREAMS; i++)
                open_stream(1000 * i + i * i, 1);
        touch(3, 4);
        at(5, LOOKAHEAD_MARKER);        /* the first: now the second is the oldest */
        assert_batch(7, 1, 8);
        open_stream(100000, 1);
        touch(2007, 2008);
        at(2009, LOOKAHEAD_MARKER);
        assert_batch(2011, 1, 8);
        touch(1004, 1005);
        at(1006, LOOKAHEAD_MARKER);
        assert_no_batch();
        touch(6, 11);
        at(12, LOOKAHEAD_MARKER);
        assert_batch(15, 1, 16);
}

/* --- at random, all policies --- */

static enum lookahead_use used_at_random(void *arg, uint64_t page)
{
        (void)arg;
        assert_true(page < LIMIT);
        return (enum lookahead_use)((int)draw(4) - 1);
}

/* A page near the streams that are known, or anywhere. */
static uint64_t any_page(void)
{
        const struct lookahead_stream *s = &look.stream[draw(LOOKAHEAD_STREAMS)];

        switch (draw(8)) {
        case 0: return draw(LIMIT);
        case 1: return draw(64);
        case 2: return LIMIT - 1 - draw(64);
        case 3: return look.lone[draw(LOOKAHEAD_STREAMS)].page1 % LIMIT;
        default: break;
        }
        uint64_t n = draw(4) ? 1 + draw(3) : draw(200);
        return (s->last + (uint64_t)s->stride * n) % LIMIT;
}

static void check_batch(void)
{
        assert_true(batch.count <= LOOKAHEAD_MOST);
        assert_true(batch.count <= rule.window);
        if (batch.count == 0) {
                assert_int_equal(batch.marker, LOOKAHEAD_NO_MARKER);
                return;
        }
        assert_true(batch.stride != 0);
        for (uint32_t i = 0; i < batch.count; i++)
                assert_true(batch.first + (uint64_t)batch.stride * i < LIMIT);
        if (lookahead_has_streams(rule.policy))
                assert_true(batch.marker < batch.count);
        else
                assert_int_equal(batch.marker, LOOKAHEAD_NO_MARKER);
}

static void check_state(void)
{
        for (unsigned i = 0; i < LOOKAHEAD_STREAMS; i++) {
                assert_true(look.stream[i].last < LIMIT);
                assert_true(look.stream[i].ahead < 2 * LOOKAHEAD_MOST);
                assert_true(look.stream[i].window <= LOOKAHEAD_MOST);
                assert_true(look.stream[i].good + look.stream[i].bad <= 64 * LOOKAHEAD_MOST);
        }
        assert_true(look.recent < LOOKAHEAD_STREAMS && look.next_lone < LOOKAHEAD_STREAMS);
        assert_true(look.doubt <= 3);
        assert_true(look.window <= LOOKAHEAD_MOST && look.hits <= LOOKAHEAD_MOST);
        assert_true(look.ndelta < 2 * LOOKAHEAD_HISTORY);
}

/* With any faults batches stay within bounds, a stream asks for no page twice in a row, and the
 * state does not grow. */
static void test_random_faults(void **state)
{
        unsigned continued = 0, made_finer = 0;

        (void)state;
        for (unsigned run = 0; run < 60; run++) {
                begin(1 + run % 3, 1 + (uint32_t)draw(80));
                rule.history = (uint32_t)draw(80);
                for (unsigned i = 0; i < 4000; i++) {
                        struct lookahead before = look;
                        uint64_t page = any_page();
                        lookahead_fault(&look, &rule, page, (enum lookahead_cause)draw(3),
                                        used_at_random, NULL, &batch);
                        check_batch();
                        check_state();
                        const struct lookahead_stream *old = &before.stream[look.recent];
                        /* A new stream takes its page from the lone ones. */
                        bool same = memcmp(before.lone, look.lone, sizeof(look.lone)) == 0;
                        int64_t stride = look.stream[look.recent].stride;
                        if (rule.policy == LOOKAHEAD_AUTO && batch.count && same &&
                            stride != old->stride) {    /* made finer */
                                assert_int_equal(old->stride % stride, 0);
                                assert_int_equal(batch.stride, stride);
                                made_finer++;
                        } else if (rule.policy == LOOKAHEAD_AUTO && batch.count && same) {
                                uint64_t end = old->last + (uint64_t)old->stride * old->ahead;
                                int64_t on = (int64_t)(batch.first - end);
                                assert_int_equal(batch.stride, old->stride);
                                assert_true(batch.stride < 0 ? on < 0 : on > 0);
                                continued++;
                        }
                        if (draw(8) == 0)
                                lookahead_cut(&look, &rule, &batch, (uint32_t)draw(70));
                        check_state();
                }
        }
        assert_true(continued > 1000 && made_finer > 0);
}

/* Policy, window and history change while the program runs. */
static void test_settings_change(void **state)
{
        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        for (unsigned i = 0; i < 100000; i++) {
                if (draw(50) == 0)
                        rule = (struct lookahead_rule){ (uint32_t)draw(5), (uint32_t)draw(80),
                                                        (uint32_t)draw(80),
                                                        (uint32_t)draw(80) };
                lookahead_fault(&look, &rule, any_page(), (enum lookahead_cause)draw(3),
                                used_at_random, NULL, &batch);
                check_batch();
                check_state();
        }
}

/* A stream that was found at a multiple of its stride learns the stride from the misses between its
 * pages. */
static void finer(int64_t stride)
{
        uint64_t page = 60000;
        unsigned misses = 0;

        begin(LOOKAHEAD_AUTO, 16);
        all = LOOKAHEAD_USED;
        for (unsigned i = 0; i < 3; i++, page += 3 * (uint64_t)stride)
                at(page, LOOKAHEAD_MISS);
        assert_batch(page, 3 * stride, 4);
        page -= 3 * (uint64_t)stride;
        for (unsigned i = 1; batch.stride != stride; i++) {
                assert_true(misses < 8);
                if (i % 3 == 0)         /* prefetched: no fault */
                        continue;
                at(page + i * (uint64_t)stride, LOOKAHEAD_MISS);
                misses++;
        }
        assert_int_equal(misses, 6);
        assert_batch(page + 9 * (uint64_t)stride, stride, 4);
}

/* Misses between the stream's pages were another stream's if it continues after them. */
static void not_finer(void)
{
        begin(LOOKAHEAD_AUTO, 16);
        all = LOOKAHEAD_USED;
        for (unsigned i = 0; i < 3; i++)
                at(60000 + 90 * i, LOOKAHEAD_MISS);
        for (unsigned turn = 0; turn < 8; turn++) {
                uint64_t marker = batch.first + 90ull * batch.marker;
                assert_int_equal(batch.stride, 90);
                /* At distances that no lone access confirms. */
                for (unsigned i = 0; i < 3; i++)
                        at(batch.first + 90 * (i * i % 4) + 30, LOOKAHEAD_MISS);
                at(marker, LOOKAHEAD_MARKER);
        }
        assert_int_equal(batch.stride, 90);
}

static void test_auto_finer(void **state)
{
        (void)state;
        not_finer();
        finer(7);
        finer(-7);
        finer(1);
}

/* Short streams, one after the other: a window does not pass the end that they all have. */
static void test_auto_usual(void **state)
{
        uint64_t start = 1000, asked = 0, used_pages = 0;

        (void)state;
        begin(LOOKAHEAD_AUTO, 64);
        all = LOOKAHEAD_USED;
        for (unsigned n = 0; n < 40; n++, start += 100000 + 777 * n * n) {
                uint64_t end = start + 26, next = start;
                for (uint64_t page = start; page < end; page++) {
                        bool here = page < next, marker = here && page == batch.first +
                                                                          batch.marker;
                        if (here && !marker)
                                continue;
                        at(page, here ? LOOKAHEAD_MARKER : LOOKAHEAD_MISS);
                        if (!here)
                                next = page + 1;
                        if (batch.count)
                                next = batch.first + batch.count;
                        asked += n >= 20 ? batch.count : 0;
                }
                used_pages += n >= 20 ? 26 : 0;
        }
        /* Without the learnt length, the last window of each is 32. */
        assert_in_range(asked, used_pages / 2, used_pages + used_pages / 2);
        assert_in_range(look.usual, 12, 40);
}

/* A range that the program says it will use: asked for from its first page on, in full windows, and
 * nothing beyond its end, where an access may be any stream's. */
static void said(int64_t stride)
{
        uint64_t page = 50000, asked = 0, marker;

        begin(LOOKAHEAD_AUTO, 16);
        all = LOOKAHEAD_USED;
        lookahead_stream(&look, &rule, page, stride, 100, used, NULL, &batch);
        assert_batch(page, stride, 16);
        while (batch.count) {
                assert_true(batch.first == page + asked * (uint64_t)stride);
                asked += batch.count;
                assert_true(asked <= 100);
                marker = batch.first + batch.marker * (uint64_t)stride;
                at(marker, LOOKAHEAD_MARKER);
        }
        assert_int_equal(asked, 100);
        at(page + 100 * (uint64_t)stride, LOOKAHEAD_MISS);
        assert_no_batch();
        at(page + 101 * (uint64_t)stride, LOOKAHEAD_MISS);
        assert_no_batch();
        at(page + 102 * (uint64_t)stride, LOOKAHEAD_MISS);
        assert_batch(page + 103 * (uint64_t)stride, stride, 4);
}

static void test_auto_said(void **state)
{
        (void)state;
        said(1);
        said(-1);
        said(-6);
        /* Pages for which there was no room are asked for later. */
        begin(LOOKAHEAD_AUTO, 16);
        all = LOOKAHEAD_USED;
        lookahead_stream(&look, &rule, 700, 2, 20, used, NULL, &batch);
        assert_batch(700, 2, 16);
        lookahead_cut(&look, &rule, &batch, 5);
        assert_batch(700, 2, 5);
        at(700 + 2 * batch.marker, LOOKAHEAD_MARKER);
        assert_batch(710, 2, 15);
        lookahead_stream(&look, &rule, (1ull << LOOKAHEAD_PAGE_BITS) - 2, 1, 100, used, NULL,
                         &batch);
        assert_int_equal(batch.count, 2);
        lookahead_stream(&look, &rule, 1, -1, UINT64_MAX, used, NULL, &batch);
        assert_int_equal(batch.count, 2);
        /* Other policies know no streams: a window of it, and no more. */
        begin(LOOKAHEAD_TREND, 8);
        lookahead_stream(&look, &rule, 100, 3, 1000, used, NULL, &batch);
        assert_batch(100, 3, 8);
        lookahead_stream(&look, &rule, 100, 3, 5, used, NULL, &batch);
        assert_batch(100, 3, 5);
}
