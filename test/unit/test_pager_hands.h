/*
 * Part of test_pager.c: what the two hands do with one page.
 */

/* As many frames are cold beyond the target, as far as the cleaner knows. */
static void set_over(int32_t over)
{
        env.pg.cleaner.look = 1000;
        env.pg.cleaner.over = over;
        env.pg.cleaner.vain = 0;
}

/* The hot hand moves only when everything was in vain. */
static void hot_turn(void)
{
        env.pg.cleaner.vain = env.nframes + 1;
        env_pass(env.nframes, cnt);
        env.pg.cleaner.vain = 0;
}

static uint32_t tick_now(void) { return pte_tick(env.pg.now); }

static uint64_t hands(unsigned v)
{
        return frame_at(v)->word & (FRAME_HOT | FRAME_OLD | FRAME_BACK | FRAME_WAS | FRAME_PASSED);
}

static void use(unsigned v)
{
        env.pte[v] |= PTE_A;
        flush();
}

/* The second use that the cold hand sees makes a page hot, if there is room. */
static void test_asks(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A, 1);
        set_over(8);
        env_pass(FRAMES, cnt);
        assert_int_equal(hands(0), FRAME_OLD);
        use(0);
        set_over(8);
        env_pass(FRAMES, cnt);
        assert_int_equal(hands(0), FRAME_HOT);
        assert_int_equal(env.pg.nhot, 1);
        /* the cold hand passes it by, unused as it is */
        flush();
        set_over(8);
        assert_int_equal(env_pass(FRAMES, cnt).freed, 0);
        assert_int_equal(hands(0), FRAME_HOT);
        /* the hot hand gives it a chance, and then makes it cold */
        use(0);
        set_over(-1);                                   /* it would not be hot again */
        env.pg.cleaner.hot = 0;
        hot_turn();
        assert_int_equal(hands(0), FRAME_HOT);
        assert_false(env.pte[0] & PTE_A);
        flush();
        hot_turn();
        hot_turn();
        assert_int_equal(kind(0), PTE_NONE);
        assert_int_equal(env.pg.nhot, 0);
        assert_int_equal(cnt[CNT_GONE_HOT], 0);         /* it has no place in far memory */
        /* what was hot, and is again, is as any */
        make_present(0, rw, PTE_A, 1);
        atomic_fetch_or(&frame_at(0)->word, FRAME_OLD | FRAME_WAS);
        set_over(8);
        env_pass(FRAMES, cnt);
        assert_int_equal(hands(0), FRAME_HOT);
}

/* Where too few are cold, each fourth request moves the hot hand, and an unused hot page makes
 * room. */
static void test_exchange(void **state)
{
        (void)state;
        make_remote(0, rw, 1);
        make_remote(1, rw, 1);
        frame_t f = fetch(0), g = fetch(1);
        atomic_fetch_or(&env.frames[f].word, FRAME_HOT);
        env.pg.nhot = 1;
        env.pte[0] &= ~PTE_A;
        atomic_fetch_or(&env.frames[g].word, FRAME_OLD);
        env.pg.hot_hand = 0;
        env.pg.cleaner.hot_hand = (struct piece){ f, FRAMES, 0, tick_now() };
        for (unsigned i = 1; i <= 4; i++) {
                set_over(0);
                env.pg.cleaner.hot = 0;                 /* only requests move the hot hand */
                use(1);
                env_pass(FRAMES, cnt);
                assert_int_equal(hands(0), i < 4 ? FRAME_HOT : FRAME_OLD | FRAME_WAS);
                assert_int_equal(hands(1), i < 4 ? FRAME_OLD : FRAME_HOT);
        }
        /* what was hot says so when it goes */
        flush();
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
        assert_true(pte_was_hot(env.pte[0]));
        assert_int_equal(cnt[CNT_GONE_HOT], 1);
        assert_int_equal(cnt[CNT_GONE_COLD], 0);
        fetch(0);
        assert_int_equal(cnt[CNT_BACK_HOT], 1);
}

/* Fewer than the target are cold: the hot hand moves up to eight frames for each of the cold
 * hand. */
static void test_too_few_cold(void **state)
{
        (void)state;
        make_present(0, rw, 0, 1);
        atomic_fetch_or(&frame_at(0)->word, FRAME_HOT);
        env.pg.nhot = 1;
        set_over(-1);
        env.pg.cleaner.hot = 1;
        struct clock_result r = env_pass(1, cnt);
        assert_in_range(r.shown, 1, 8);
        assert_int_equal(r.passed, 1);
        assert_int_equal(env.pg.nhot, 0);
        assert_int_equal(env.pg.cleaner.over, r.freed ? -1 : 0);
}

static void evict_unused(unsigned v)
{
        env.pte[v] &= ~(PTE_A | PTE_PREF);
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
}

/* A page that comes back soon says so, once; how soon is counted by what it was. */
static void test_comes_back(void **state)
{
        (void)state;
        env.pg.batch = 1000;                            /* no tick by itself */
        uint64_t slot = make_remote(0, rw, 1);
        fetch(0);
        assert_int_equal(hands(0), 0);                  /* nothing is known of it */
        for (unsigned lag = 0; lag <= LAGS; lag++) {
                evict_unused(0);
                assert_int_equal(pte_tick(env.pte[0]), tick_now());
                assert_int_equal(pte_slot(env.pte[0]), slot);
                /* bytes of it are read meanwhile */
                pte_t far = env.pte[0];
                assert_true(page_part(&env.pte[0], far));
                page_part_over(&env.pte[0], 0);
                assert_int_equal(env.pte[0], far);
                page_protect(&env.pg, &env.pte[0], rw);
                for (unsigned i = 0; i < lag; i++)
                        env.pg.now = pte_now(tick_next(tick_now()));
                uint64_t before = lag < LAGS ? cnt[CNT_BACK_COLD + lag] : 0;
                if (lag % 2) {
                        fetch(0);
                } else {
                        frame_t f = frame_take(&env.pg, &list, cnt);
                        pte_t before_it = far ^ PTE_CHARGED;
                        assert_false(page_prefetch(&env.pg, &env.pte[0], before_it, f, false, cnt));
                        assert_true(page_prefetch(&env.pg, &env.pte[0], far, f, false, cnt));
                        assert_int_equal(kind(0), PTE_BUSY);
                        assert_false(env.pte[0] & PTE_WAS);
                        assert_true(env_io_step(0));
                }
                assert_int_equal(hands(0), lag < LAGS ? FRAME_BACK : 0);
                if (lag < LAGS)
                        assert_int_equal(cnt[CNT_BACK_COLD + lag], before + 1);
        }
        uint64_t all = 0;
        for (unsigned i = 0; i < LAGS; i++)
                all += cnt[CNT_BACK_COLD + i];
        assert_int_equal(all, LAGS);
        /* a page that came back asks at its first use */
        evict_unused(0);
        fetch(0);
        set_over(8);
        env_pass(FRAMES, cnt);
        assert_int_equal(hands(0), FRAME_HOT);
}

/* Ticks are numbered from TICK_FIRST on, again and again.  0 is never near, nor is anything across
 * the end. */
static void test_ticks(void **state)
{
        uint32_t now = TICK_FIRST, was[2 * TICKS];

        (void)state;
        for (unsigned i = 0; i < 2 * TICKS; i++, now = tick_next(now)) {
                was[i] = now;
                assert_int_equal(pte_tick(pte_now(now)), now);
                assert_true(pte_lag(pte_now(now), pte_make_remote(1, PTE_KEEP)) >= LAGS);
                for (unsigned k = 0; k <= LAGS && k <= i; k++) {
                        pte_t far = pte_make_remote(~0u >> 2, PTE_KEEP | PTE_WAS |
                                                    (pte_now(was[i - k]) & PTE_TICK));
                        uint32_t lag = pte_lag(pte_now(now), far);
                        if (was[i - k] <= now)
                                assert_int_equal(lag, k);
                        else
                                assert_true(lag >= LAGS);
                }
        }
}

/* A page of low priority is never hot, and a page that streams have passed says nothing. */
static void test_says_nothing(void **state)
{
        (void)state;
        make_remote(0, rw | PTE_LOW, 1);
        make_remote(1, rw, 1);
        fetch(0);
        fetch(1);
        atomic_fetch_or(&frame_at(0)->word, FRAME_OLD);
        atomic_fetch_or(&frame_at(1)->word, FRAME_HOT);
        env.pg.nhot = 1;
        assert_false(page_pass(&env.pg, &list, &env.pte[1]));
        frames_hot_told(&env.pg, &list);
        assert_int_equal(env.pg.nhot, 0);
        assert_int_equal(hands(1), FRAME_PASSED);
        set_over(8);
        env_pass(FRAMES, cnt);
        assert_int_equal(hands(0), FRAME_OLD | FRAME_PASSED);
        flush();
        assert_int_equal(env_pass(0, cnt).freed, 2);
        for (unsigned v = 0; v < 2; v++)
                assert_int_equal(env.pte[v] & PTE_STAMP, 0);
        assert_int_equal(cnt[CNT_EVICTED_PASSED], 2);
        assert_int_equal(cnt[CNT_GONE_COLD] + cnt[CNT_GONE_HOT], 0);
        fetch(0);                                       /* never used while it was here */
        evict_unused(0);
        assert_int_equal(env.pte[0] & PTE_STAMP, 0);
        /* unless it is used again */
        fetch(1);
        page_pass(&env.pg, &list, &env.pte[1]);
        use(1);
        set_over(8);
        env_pass(FRAMES, cnt);
        assert_int_equal(hands(1), FRAME_OLD);
}

/* A hint that streams have passed a page is about the page that had the frame then. */
static void test_late_hint(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A, 1);
        page_pass(&env.pg, &list, &env.pte[0]);
        atomic_fetch_or(&frame_at(0)->word, FRAME_HOT);
        env.pg.nhot = 1;
        flush();
        assert_int_equal(env_pass(0, cnt).freed, 0);
        assert_int_equal(kind(0), PTE_PRESENT);
}

/* A page that was brought in ahead, and always looks used, asks nothing. */
static void test_blind_hand(void **state)
{
        (void)state;
        env.pg.blind = true;
        make_present(0, rw, PTE_A | PTE_PREF, 1);
        atomic_fetch_or(&frame_at(0)->word, FRAME_BACK);
        set_over(8);
        env_pass(FRAMES, cnt);
        assert_int_equal(hands(0), FRAME_OLD);
        use(0);
        set_over(8);
        env_pass(FRAMES, cnt);
        assert_int_equal(hands(0), FRAME_HOT);
}

/* Whoever takes a hot page away counts it. */
static void test_hot_count(void **state)
{
        pte_t old;

        (void)state;
        for (unsigned v = 0; v < 4; v++) {
                make_present(v, rw, PTE_A, 1);
                atomic_fetch_or(&frame_at(v)->word, FRAME_HOT);
        }
        env.pg.nhot = 4;
        page_cool(&env.pg, &list, &env.pte[0]);
        page_cool(&env.pg, &list, &env.pte[0]);         /* it is not hot any more */
        assert_int_equal(hands(0), 0);
        assert_true(page_set_locked(&env.pg, &list, &env.pte[1], true));
        assert_int_equal(hands(1), 0);
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[2], &old));
        audit();
        frame_list_drain(&env.pg, &list);
        assert_int_equal(env.pg.nhot, 1);
        frame_t f = frame_pin(env.frames, ENV_PFN0, &env.pte[3], false);
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[3], &old));
        frame_unpin(&env.frames[f], false);
        flush();
        env_pass(FRAMES, cnt);                          /* an orphan, hot as it is */
        assert_int_equal(env.pg.nhot, 0);
        assert_true(page_set_locked(&env.pg, &list, &env.pte[1], false));
}

/* A pass ends when as many frames are free as are asked for, those that are written included. */
static void test_mark(void **state)
{
        (void)state;
        for (unsigned v = 0; v < FRAMES; v++)
                make_present(v, rw, v % 2 ? PTE_D : 0, 1);
        assert_int_equal(clock_pass(&env.pg, FRAMES, 3, cnt).freed, 3);
        env.post = posts;
        struct clock_result r = clock_pass(&env.pg, FRAMES, 2, cnt);
        assert_int_equal(r.freed + env.pg.writing, 2);
        assert_int_equal(clock_pass(&env.pg, FRAMES, 0, cnt).passed, 0);
        end_writes();
        env.post = NULL;
}

/* An evictor is stopped while it balances: others do not wait, and one takes its place. */
static unsigned others;

static void evict_one(unsigned v)
{
        uint64_t slot = make_remote(v, rw, 1);

        fetch(v);
        evict_unused(v);
        env_slot_free(slot);
        env.pte[v] = 0;
}

static void stopped(struct returns *sum)
{
        *sum = (struct returns){ .gone = { 0 } };
        env.returns = NULL;
        uint32_t after = tick_next(tick_next(tick_now()));
        for (others = 0; others < 100 && tick_now() != after; others++)
                evict_one(1);
}

static void test_stopped_while_balancing(void **state)
{
        uint32_t tick = tick_now();

        (void)state;
        env.pg.batch = 1;
        while (tick_now() == tick) {
                env.returns = others ? NULL : stopped;
                evict_one(0);
        }
        assert_in_range(others, 1, 6);
        tick = tick_next(tick);                         /* what the first counted is dropped */
        assert_int_equal(tick_now(), tick_next(tick));
        assert_int_equal(env.pg.ticking, 0);
        for (unsigned i = 0; i < 4; i++)                /* and ticks go on */
                evict_one(0);
        assert_int_not_equal(tick_now(), tick_next(tick));
}
