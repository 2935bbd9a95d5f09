/*
 * Part of test_pager.c: eviction.
 */

static void test_second_chance(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A, 1);
        make_present(1, rw, PTE_A, 1);
        struct clock_result r = env_pass(FRAMES, cnt);
        assert_int_equal(r.cleared, 2);
        assert_int_equal(r.freed, 0);
        assert_int_equal(env.flush_epoch, 11);          /* one flush for all */
        assert_int_equal(frame_word_epoch(frame_at(0)->word), 11);
        r = env_pass(FRAMES, cnt);
        assert_int_equal(r.unflushed, 2);
        assert_int_equal(r.freed, 0);
        env.pte[1] |= PTE_A;                            /* used again */
        flushed();
        r = env_pass(FRAMES, cnt);
        assert_int_equal(r.freed, 1);
        assert_int_equal(r.cleared, 1);
        assert_int_equal(kind(0), PTE_NONE);
        assert_int_equal(kind(1), PTE_PRESENT);
        assert_int_equal(cnt[CNT_SCANNED], 3 * FRAMES);
        assert_int_equal(cnt[CNT_SHOWN], FRAMES);       /* the first two turns were in vain */
}

/* One begins for a quarter of the cache, however small the passes are; what others begin counts
 * too. */
static void test_flush_for_a_quarter(void **state)
{
        const uint32_t nframes = 16;

        (void)state;
        env_teardown();
        begin(nframes, SLOTS, 10);
        for (unsigned v = 0; v < PAGES; v++)
                make_present(v, rw, PTE_A, 1);
        for (unsigned i = 1; i <= PAGES; i++) {
                assert_int_equal(env_pass(1, cnt).cleared, 1);
                assert_int_equal(env.flush_epoch, 10 + i / 4);
        }
        assert_int_equal(cnt[CNT_BEGUN_HAND], 2);
        /* pages that a stream passes */
        for (unsigned v = 0; v < PAGES; v++) {
                env.pte[v] |= PTE_A;
                page_pass(&env.pg, &list, &env.pte[v]);
                if (v == 1)
                        env_flush_begin();
                if (v == 1)
                        env_pass(0, cnt);    /* sees that one has begun */
        }
        uint64_t epoch = env.flush_epoch;
        env_pass(0, cnt);
        assert_int_equal(env.flush_epoch, epoch + 1);
        assert_int_equal(cnt[CNT_BEGUN_PASSED], 1);
        flushed();
        assert_int_equal(env_pass(0, cnt).freed, PAGES);
}

/* A cold page that is met again begins its flush, unless other pages are freed or will be. */
static void test_flush_for_what_is_needed(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A, 1);
        env_pass(FRAMES, cnt);
        assert_int_equal(env.flush_epoch, 10);
        make_present(1, rw, 0, 1);
        struct clock_result r = env_pass(FRAMES, cnt);
        assert_int_equal(r.freed, 1);
        assert_int_equal(r.unbegun, 1);
        assert_int_equal(env.flush_epoch, 10);
        env.pg.writing = 1;
        env_pass(FRAMES, cnt);
        assert_int_equal(env.flush_epoch, 10);
        env.pg.writing = 0;
        env_pass(FRAMES, cnt);
        assert_int_equal(env.flush_epoch, 11);
        r = env_pass(FRAMES, cnt);           /* begun once */
        assert_int_equal(r.unflushed, 1);
        assert_int_equal(r.unbegun, 0);
        assert_int_equal(env.flush_epoch, 11);
        flushed();
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
        /* likewise a page that a stream has passed */
        make_present(2, rw, PTE_A, 1);
        page_pass(&env.pg, &list, &env.pte[2]);
        env_pass(0, cnt);
        assert_int_equal(env.flush_epoch, 12);
        flushed();
        assert_int_equal(env_pass(0, cnt).freed, 1);
}

/* Never written: back to its origin, no slot, no transfer, its charge undone. */
static void test_evict_untouched(void **state)
{
        (void)state;
        make_present(0, rw | PTE_CHARGED, PTE_A, 1);
        make_present(1, rw, PTE_A, 1);
        assert_int_equal(env.charged, 1);
        assert_int_equal(evict_all(), 2);
        assert_int_equal(env.pte[0], 0);
        assert_int_equal(env.charged, 0);
        assert_int_equal(env.uncharged, 1);
        assert_int_equal(env.writes, 0);
        assert_int_equal(cnt[CNT_EVICTED_CLEAN], 2);
}

static void test_evict_clean_copy(void **state)
{
        (void)state;
        uint64_t slot = make_remote(0, ro | PTE_CHARGED, 9);
        frame_t f = fetch(0);
        assert_int_equal(evict_all(), 1);
        assert_int_equal(env.pte[0] & ~PTE_STAMP, pte_make_remote(slot, ro | PTE_CHARGED));
        assert_int_equal(env.writes, 0);
        assert_int_equal(env.charged, 1);
        assert_int_equal(env.frames[f].word, 0);
        assert_int_equal(env.slot_used[slot], 1);
}

static void test_evict_dirty(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw | PTE_CHARGED, PTE_A | PTE_D, 77);
        assert_int_equal(evict_all(), 1);
        assert_int_equal(kind(0), PTE_REMOTE);
        assert_int_equal(env.pte[0] & PTE_KEEP, rw | PTE_CHARGED);
        assert_int_equal(env.far[pte_slot(env.pte[0])][0], 77);
        assert_int_equal(cnt[CNT_EVICTED_DIRTY], 1);
        assert_int_equal(cnt[CNT_WRITEBACK], 1);
        /* A dirty page that has a slot is written there. */
        uint64_t slot = pte_slot(env.pte[0]);
        f = fetch(0);
        env.content[f][0] = 78;
        env.pte[0] |= PTE_D;
        assert_int_equal(evict_all(), 1);
        assert_int_equal(pte_slot(env.pte[0]), slot);
        assert_int_equal(env.far[slot][0], 78);
}

static void test_evict_software_dirty(void **state)
{
        (void)state;
        make_remote(0, rw, 1);
        fetch(0);
        frame_t f = frame_pin(env.frames, ENV_PFN0, &env.pte[0], true);
        env.content[f][0] = 2;
        frame_unpin(&env.frames[f], true);
        assert_int_equal(evict_all(), 1);
        assert_int_equal(env.writes, 1);
        assert_int_equal(env.far[pte_slot(env.pte[0])][0], 2);
}

/* A page that only system calls use: each use spares it one pass of the hand, without a flush. */
static void test_used_by_calls(void **state)
{
        (void)state;
        make_remote(0, rw, 1);
        frame_t f = fetch(0);
        env_pass(FRAMES, cnt);
        flush();
        for (unsigned i = 0; i < 3; i++) {
                uint64_t epoch = env.flush_epoch;
                frame_pin(env.frames, ENV_PFN0, &env.pte[0], false);
                frame_unpin(&env.frames[f], false);
                struct clock_result r = env_pass(FRAMES, cnt);
                assert_int_equal(r.used, 1);
                assert_int_equal(r.cleared, 0);
                assert_int_equal(r.freed, 0);
                assert_int_equal(env.flush_epoch, epoch);
                assert_int_equal(flags(0), FRAME_RESIDENT);
        }
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);

        /* MADV_COLD makes it cold at once; A and USED go in one visit. */
        f = fetch(0);
        frame_pin(env.frames, ENV_PFN0, &env.pte[0], false);
        frame_unpin(&env.frames[f], false);
        struct clock_result r = env_pass(FRAMES, cnt);
        assert_int_equal(r.used, 1);
        assert_int_equal(r.cleared, 1);
        flush();
        frame_pin(env.frames, ENV_PFN0, &env.pte[0], false);
        frame_unpin(&env.frames[f], false);
        page_cool(&env.pg, &list, &env.pte[0]);
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
}

static void test_evict_held(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A | PTE_D, 5);
        make_present(1, rw, PTE_A, 6);
        page_protect(&env.pg, &env.pte[0], no_access);
        page_protect(&env.pg, &env.pte[1], no_access);
        struct clock_result r = env_pass(FRAMES, cnt);
        assert_int_equal(r.freed, 0);
        /* a TLB may still write there: the caller's flush has to come first */
        assert_int_equal(r.unflushed, 2);
        flush();
        assert_int_equal(env_pass(FRAMES, cnt).freed, 2);
        assert_int_equal(kind(0), PTE_REMOTE);
        assert_int_equal(env.pte[0] & PTE_PROT, no_access);
        assert_int_equal(env.far[pte_slot(env.pte[0])][0], 5);
        assert_int_equal(env.pte[1], 0);
}

static bool posts(void) { return true; }

/* It is spared once.  It was not used, so no TLB holds it: no flush is needed. */
static void test_evict_prefetched(void **state)
{
        (void)state;
        make_present(0, ro, 0, 1);
        make_present(1, ro, PTE_PREF, 1);
        struct clock_result r = env_pass(FRAMES, cnt);
        assert_int_equal(r.freed, 1);
        assert_int_equal(r.used, 1);
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
        assert_int_equal(env.flush_epoch, 10);
        assert_int_equal(cnt[CNT_PREFETCH_WASTED], 1);
        assert_int_equal(cnt[CNT_PREFETCH_HITS], 0);
        make_present(1, ro, PTE_PREF | PTE_A, 1);
        assert_int_equal(env_pass(FRAMES, cnt).cleared, 1);
        assert_false(env.pte[1] & PTE_PREF);
        assert_int_equal(cnt[CNT_PREFETCH_HITS], 1);
}

/* How many turns of both hands it takes until a page goes. */
static unsigned turns_to_go(unsigned v)
{
        unsigned turns = 0;

        for (; kind(v) == PTE_PRESENT && turns < 100; turns++) {
                env.pg.cleaner.vain = env.nframes + 1;  /* the hot hand moves too */
                env_pass(env.nframes, cnt);
                flush();
        }
        return turns;
}

/* It is hot at the cold hand's first visit, used or not, and the hot hand leaves it for two visits
 * more, and for two again once it was used. */
static void test_evict_high(void **state)
{
        pte_t seen;

        (void)state;
        env.pg.cleaner.look = 1000;             /* enough frames are cold: the hot hand moves */
        env.pg.cleaner.over = 1000;             /* only when all was in vain */
        make_present(0, rw, 0, 1);
        make_present(1, rw, 0, 1);
        assert_int_equal(page_set_priority(&env.pte[0], PTE_HIGH, &seen), 1);
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
        assert_true(frame_at(0)->word & FRAME_HOT);
        for (int i = 0; i < 2; i++) {
                env.pg.cleaner.vain = FRAMES + 1;
                env_pass(FRAMES, cnt);
        }
        assert_true(frame_at(0)->word & FRAME_HOT);
        env.pte[0] |= PTE_A;
        assert_in_range(turns_to_go(0), 4, 5);
        /* a stream does not pass it, and it is like others when that is said */
        make_present(0, rw | PTE_HIGH, PTE_A, 1);
        page_pass(&env.pg, &list, &env.pte[0]);
        assert_true(env.pte[0] & PTE_A);
        assert_int_equal(page_set_priority(&env.pte[0], 0, &seen), 1);
        assert_int_equal(evict_all(), 1);
        /* a stream has passed it before that is said */
        make_present(0, rw, PTE_A, 1);
        page_pass(&env.pg, &list, &env.pte[0]);
        assert_int_equal(page_set_priority(&env.pte[0], PTE_HIGH, &seen), 1);
        env_flush_begin();
        flushed();
        assert_int_equal(env_pass(0, cnt).freed, 0);
}

/* Where all pages have it, none stays for ever, and the cleaner does not give up before. */
static void test_evict_all_high(void **state)
{
        unsigned turns = 0;

        (void)state;
        for (unsigned v = 0; v < FRAMES; v++)
                make_present(v, rw | PTE_HIGH, PTE_A, 1);
        for (struct clock_result r = { 0 }; !r.freed && turns < 100; turns++) {
                r = env_pass(FRAMES, cnt);
                assert_true(r.freed || r.used + r.cleared > 0);
                flushed();
        }
        assert_in_range(turns, 2, 4);
}

/* Its first visit is its last: it is gone with the flush, before the hand moves. */
static void test_evict_low(void **state)
{
        pte_t seen;

        (void)state;
        make_present(0, rw, PTE_A, 1);
        make_present(1, rw, PTE_A, 1);
        assert_int_equal(page_set_priority(&env.pte[1], PTE_LOW, &seen), 1);
        assert_int_equal(env_pass(FRAMES, cnt).cleared, 2);
        assert_int_equal(env_pass(0, cnt).freed, 0);
        flushed();
        assert_int_equal(env_pass(0, cnt).freed, 1);
        assert_int_equal(kind(1), PTE_NONE);
        /* unless it is used again meanwhile */
        make_present(1, rw | PTE_LOW, PTE_A, 1);
        env_pass(FRAMES, cnt);
        env.pte[1] |= PTE_A;
        flushed();
        env_pass(0, cnt);
        assert_int_equal(kind(1), PTE_PRESENT);
}

static void test_priority_travels(void **state)
{
        pte_t seen, old;

        (void)state;
        assert_int_equal(page_set_priority(&env.pte[0], PTE_HIGH, &seen), 0);
        env.pte[1] = pte_make_arena(3, rw);
        assert_int_equal(page_set_priority(&env.pte[1], PTE_HIGH, &seen), 0);
        env.pte[1] = 0;
        make_remote(0, rw, 1);
        assert_int_equal(page_set_priority(&env.pte[0], PTE_HIGH, &seen), 1);
        fetch(0);
        assert_int_equal(env.pte[0] & PTE_PRIORITY, PTE_HIGH);
        page_protect(&env.pg, &env.pte[0], no_access);
        page_protect(&env.pg, &env.pte[0], rw);
        page_move(&env.pg, &env.pte[0], &env.pte[2]);
        assert_int_equal(env.pte[2] & PTE_PRIORITY, PTE_HIGH);
        assert_int_equal(page_set_priority(&env.pte[2], PTE_LOW, &seen), 1);
        evict_all();
        assert_int_equal(kind(2), PTE_REMOTE);
        assert_int_equal(env.pte[2] & PTE_PRIORITY, PTE_LOW);
        /* on its way: the end of a demand read would lose it, that of a prefetch does not */
        env.post = posts;
        frame_t f = frame_take(&env.pg, &list, cnt);
        assert_int_equal(page_fetch(&env.pg, &env.pte[2], env.pte[2], f, cnt), ENV_POSTED);
        pte_t busy = env.pte[2];
        int ret = page_set_priority(&env.pte[2], 0, &seen);
        assert_true(env_io_step(0));
        assert_int_equal(ret, -EAGAIN);
        assert_int_equal(seen, busy);
        f = page_detach(&env.pg, &env.pte[2], &old);
        frame_discard(&env.pg, &list, f);
        make_remote(2, rw, 1);
        f = frame_take(&env.pg, &list, cnt);
        assert_true(page_prefetch(&env.pg, &env.pte[2], env.pte[2], f, false, cnt));
        assert_int_equal(page_set_priority(&env.pte[2], PTE_HIGH, &seen), 1);
        assert_true(env_io_step(0));
        assert_int_equal(env.pte[2] & (PTE_P | PTE_PRIORITY), PTE_P | PTE_HIGH);
}

/* Zeroes that were filled in ahead are no page of the program's until they are touched. */
static void test_touch(void **state)
{
        (void)state;
        frame_t n = make_present(0, rw, PTE_FRESH, 0);
        assert_true(page_is_fresh(env.pte[0], &env.frames[n], false));
        page_touch(&env.pte[0]);
        assert_int_equal(env.pte[0] & (PTE_P | PTE_A | PTE_FRESH), PTE_P | PTE_A);
        assert_false(page_is_fresh(env.pte[0], &env.frames[n], false));
        pte_t busy = pte_make_busy(ENV_PFN0, rw) | PTE_WAITERS;         /* FRESH's bit */
        env.pte[1] = busy;
        page_touch(&env.pte[1]);
        assert_int_equal(env.pte[1], busy);
        env.pte[1] = 0;
}

static void test_not_evicted(void **state)
{
        (void)state;
        frame_t pinned = make_present(0, rw, 0, 1), locked = make_present(1, rw, 0, 1),
                claimed = make_present(2, rw, 0, 1);
        frame_pin(env.frames, ENV_PFN0, &env.pte[0], false);
        atomic_fetch_or(&env.frames[locked].word, FRAME_LOCKED);
        frame_claim(&env.frames[claimed], env.frames[claimed].word);
        env.pte[3] = pte_make_arena(3, rw);
        assert_int_equal(evict_all(), 0);
        assert_int_equal(env_pass(FRAMES, cnt).busy, 1);
        assert_int_equal(reclaim(), 0);
        frame_unpin(&env.frames[pinned], false);
        atomic_fetch_and(&env.frames[locked].word, ~FRAME_LOCKED);
        atomic_fetch_and(&env.frames[claimed].word, ~FRAME_CLAIMED);
        assert_int_equal(evict_all(), 3);
}

static void lock_now(void)
{
        env.step = NULL;
        atomic_fetch_or(&frame_at(0)->word, FRAME_LOCKED);
}

/* mlock between the hand's look at the frame and its claim. */
static void test_locked_meanwhile(void **state)
{
        (void)state;
        make_present(0, rw, 0, 1);
        env.step = lock_now;
        assert_int_equal(env_pass(FRAMES, cnt).freed, 0);
        assert_int_equal(flags(0), FRAME_RESIDENT | FRAME_LOCKED);
        atomic_fetch_and(&frame_at(0)->word, ~FRAME_LOCKED);
}

static void test_write_fails(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw, PTE_A | PTE_D, 33);
        env.io = fail_io;
        assert_int_equal(evict_all(), 0);
        assert_int_equal(kind(0), PTE_PRESENT);
        /* D or this: it is not clean */
        assert_int_equal(flags(0), FRAME_RESIDENT | FRAME_DIRTY);
        /* keeps its slot for the next try */
        assert_int_not_equal(env.frames[f].slot, SLOT_NONE);
        audit();
        assert_int_equal(evict_all(), 0);
        assert_int_equal(reclaim(), 0);
        env.io = NULL;
        assert_int_equal(evict_all(), 1);
        assert_int_equal(env.far[pte_slot(env.pte[0])][0], 33);
}

static int write_during_io(bool write, uint64_t slot)
{
        (void)slot;
        env.io = NULL;
        assert_true(write);
        assert_false(env.pte[0] & PTE_D);
        env.content[pte_num(env.pte[0]) - ENV_PFN0][0] = 2;
        env.pte[0] |= PTE_A | PTE_D;
        return 0;
}

static void test_written_meanwhile(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A | PTE_D, 1);
        env.io = write_during_io;
        assert_int_equal(evict_all(), 0);
        assert_int_equal(kind(0), PTE_PRESENT);
        assert_true(env.pte[0] & PTE_D);
        assert_int_equal(evict_all(), 1);
        assert_int_equal(env.far[pte_slot(env.pte[0])][0], 2);
}

/* At most half of the frames: a page more is not locked, until another is not any more, or gone. */
static void test_locked_frames(void **state)
{
        pte_t old;

        (void)state;
        for (unsigned v = 0; v < 6; v++)
                make_present(v, rw, PTE_A, v);
        for (unsigned v = 0; v < 6; v++)
                assert_int_equal(page_set_locked(&env.pg, &list, &env.pte[v], true),
                                 v < FRAMES / 2);
        assert_false(page_set_locked(&env.pg, &list, &env.pte[0], true));      /* it is */
        assert_int_equal(env.pg.locked, FRAMES / 2);
        assert_true(page_set_locked(&env.pg, &list, &env.pte[0], false));
        assert_false(page_set_locked(&env.pg, &list, &env.pte[0], false));
        assert_false(page_set_locked(&env.pg, &list, &env.pte[1], true));
        assert_int_equal(env.pg.locked, FRAMES / 2 - 1);
        assert_true(page_set_locked(&env.pg, &list, &env.pte[4], true));
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[1], &old));
        assert_int_equal(env.pg.locked, FRAMES / 2 - 1);
        assert_true(page_set_locked(&env.pg, &list, &env.pte[5], true));
        for (unsigned v = 2; v < 6; v++)
                assert_true(page_set_locked(&env.pg, &list, &env.pte[v], false));
        assert_int_equal(env.pg.locked, 0);
}

static void test_no_slot(void **state)
{
        (void)state;
        for (unsigned v = 0; v < SLOTS; v++)
                make_remote(v, rw, v);
        frame_t f = make_present(6, rw, PTE_A | PTE_D, 1);
        assert_int_equal(evict_all(), 0);               /* nowhere to put it */
        assert_int_equal(env.pte[6], pte_make_present(ENV_PFN0 + f, rw, PTE_D));
        assert_int_equal(env.frames[f].slot, SLOT_NONE);
        assert_int_equal(flags(6), FRAME_RESIDENT);
}

/* A slot may come from a node that answers late: until then a system call may have the page. */
static void use_during_alloc(void)
{
        env.alloc = NULL;
        assert_false(flags(0) & FRAME_CLAIMED);
        env.pte[0] |= PTE_A;
}

static void test_no_claim_for_slot(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw, PTE_A | PTE_D, 1);
        env.alloc = use_during_alloc;
        assert_int_equal(evict_all(), 0);
        assert_null(env.alloc);
        assert_int_equal(env.frames[f].slot, SLOT_NONE);
        for (unsigned s = 0; s < SLOTS; s++)            /* the slot was for nothing */
                assert_int_equal(env.slot_used[s], 0);
        env.alloc = use_during_alloc;
        assert_int_equal(page_write_back(&env.pg, &env.pte[0], cnt), 0);
        assert_null(env.alloc);
        assert_int_equal(evict_all(), 1);
        assert_int_equal(env.far[pte_slot(env.pte[0])][0], 1);
}

/* A page that is pinned at a fork gets no slot. */
static void test_no_slot_for_pinned(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw, PTE_A | PTE_D, 1);
        frame_pin(env.frames, ENV_PFN0, &env.pte[0], false);
        assert_int_equal(page_write_back(&env.pg, &env.pte[0], cnt), -EBUSY);
        frame_unpin(&env.frames[f], false);
        for (unsigned s = 0; s < SLOTS; s++)
                assert_int_equal(env.slot_used[s], 0);
}

/* The far tier is full, but a resident page keeps a second copy there: its slot is taken, and it is
 * dirty from then on. */
static void test_slot_taken_back(void **state)
{
        (void)state;
        for (unsigned v = 0; v < SLOTS; v++)
                make_remote(v, rw, 100 + v);
        uint64_t slot = pte_slot(env.pte[0]);
        frame_t owner = fetch(0);
        atomic_fetch_or(&env.frames[owner].word, FRAME_LOCKED); /* so that it does not simply go */
        make_present(6, rw, PTE_A | PTE_D, 7);
        assert_int_equal(evict_all(), 1);
        assert_int_equal(env.pte[6] & ~PTE_STAMP, pte_make_remote(slot, rw));
        assert_int_equal(env.far[slot][0], 7);
        assert_int_equal(env.frames[owner].slot, SLOT_NONE);
        assert_int_equal(flags(0), FRAME_RESIDENT | FRAME_LOCKED | FRAME_DIRTY);
        atomic_fetch_and(&env.frames[owner].word, ~FRAME_LOCKED);
        assert_int_equal(evict_all(), 0);
        assert_int_equal(kind(0), PTE_PRESENT);
        assert_int_equal(env.content[owner][0], 100);
}

/* Another process reads the slot too: a dirty page takes another slot and releases this one. */
static void test_shared_slot(void **state)
{
        (void)state;
        uint64_t slot = make_remote(0, rw, 5);
        atomic_fetch_add(&env.slot_used[slot], 1);
        frame_t f = fetch(0);
        assert_int_equal(evict_all(), 1);               /* clean: it stays there */
        assert_int_equal(env.pte[0] & ~PTE_STAMP, pte_make_remote(slot, rw));
        f = fetch(0);
        env.content[f][0] = 6;
        env.pte[0] |= PTE_D;
        assert_int_equal(evict_all(), 1);
        uint64_t own = pte_slot(env.pte[0]);
        assert_int_not_equal(own, slot);
        assert_int_equal(env.far[slot][0], 5);
        assert_int_equal(env.far[own][0], 6);
        assert_int_equal(env.slot_used[slot], 1);       /* the other's */
        assert_int_equal(env.slot_used[own], 1);
        env_slot_free(slot);
}

/* In full far tiers a shared slot is neither taken from its page nor overwritten. */
static void test_shared_slot_kept(void **state)
{
        (void)state;
        for (unsigned v = 0; v < SLOTS; v++)
                make_remote(v, rw, 100 + v);
        uint64_t slot = pte_slot(env.pte[0]);
        atomic_fetch_add(&env.slot_used[slot], 1);
        frame_t f = fetch(0);
        env.content[f][0] = 6;
        env.pte[0] |= PTE_D;
        atomic_fetch_or(&env.frames[f].word, FRAME_LOCKED);
        make_present(6, rw, PTE_A | PTE_D, 7);
        assert_int_equal(evict_all(), 0);
        assert_int_equal(kind(6), PTE_PRESENT);
        atomic_fetch_and(&env.frames[f].word, ~FRAME_LOCKED);
        assert_int_equal(evict_all(), 0);
        assert_int_equal(env.frames[f].slot, slot);
        assert_int_equal(env.far[slot][0], 100);
        atomic_fetch_sub(&env.slot_used[slot], 1);
}

/* Far memory is full, and each resident page that has a slot shares it: the first dirty page of a
 * turn searches all frames, the others do not.  A slot that is this process's alone since then is
 * found in the next turn. */
static void test_search_in_vain(void **state)
{
        (void)state;
        for (unsigned v = 0; v < SLOTS; v++)
                atomic_fetch_add(&env.slot_used[make_remote(v, rw, 100 + v)], 1);
        for (unsigned v = 0; v < 4; v++)
                atomic_fetch_or(&env.frames[fetch(v)].word, FRAME_LOCKED);
        frame_t f = make_present(6, rw, PTE_A | PTE_D, 6);
        frame_t g = make_present(7, rw, PTE_A | PTE_D, 7);
        evict_all();
        for (unsigned turn = 0; turn < 4; turn++) {
                uint64_t before = env.looks;
                assert_int_equal(env_pass(FRAMES, cnt).freed, 0);
                assert_true(env.looks - before <= 4);
        }
        for (unsigned v = 0; v < SLOTS; v++)
                atomic_fetch_sub(&env.slot_used[v], 1);
        assert_int_equal(env_pass(2 * FRAMES, cnt).freed, 2);
        assert_false(env.frames[f].word & FRAME_RESIDENT);
        assert_false(env.frames[g].word & FRAME_RESIDENT);
}

static bool post_all(void) { return true; }

/* A page that is cold and dirty, and whose write is under way. */
static frame_t make_writing(unsigned v, uint64_t content)
{
        frame_t f = make_present(v, rw, PTE_A | PTE_D, content);
        env.post = post_all;
        evict_all();
        env.post = NULL;
        assert_int_equal(env.pg.writing, 1);
        assert_int_equal(kind(v), PTE_PRESENT);
        return f;
}

static void end_writes(void)
{
        while (env_io_step(0))
                ;
        env_pass(0, cnt);
        assert_int_equal(env.pg.writing, 0);
}

static void nobody_waits(void)
{
        static unsigned steps;
        if (++steps > 10000)
                fail_msg("a vCPU waits for the end of a write");
}

/* The node may be silent for minutes: a system call's change of the page does not wait for it. */
static void test_use_while_written(void **state)
{
        (void)state;
        frame_t f = make_writing(0, 7);
        env.step = nobody_waits;
        page_cool(&env.pg, &list, &env.pte[0]);
        assert_true(page_set_locked(&env.pg, &list, &env.pte[0], true));
        assert_true(page_set_locked(&env.pg, &list, &env.pte[0], false));
        assert_true(page_protect(&env.pg, &env.pte[0], no_access));
        assert_false(page_protect(&env.pg, &env.pte[0], rw));
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], true), f);
        env.content[f][0] = 8;
        frame_unpin(&env.frames[f], true);
        end_writes();
        assert_int_equal(env.frames[f].word & STATE, FRAME_RESIDENT | FRAME_DIRTY | FRAME_USED);
        assert_int_equal(evict_all(), 1);
        assert_int_equal(env.far[pte_slot(env.pte[0])][0], 8);
}

/* A pin that is held at the end keeps the page. */
static void test_pinned_while_written(void **state)
{
        pte_t old;

        (void)state;
        frame_t f = make_writing(0, 7);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], false), f);
        assert_false(frame_claim(&env.frames[f], env.frames[f].word));
        end_writes();
        assert_int_equal(kind(0), PTE_PRESENT);
        assert_int_equal(env.frames[f].word & STATE, FRAME_RESIDENT | FRAME_USED | 1);
        frame_unpin(&env.frames[f], false);
        uint64_t writes = env.writes;                   /* it was only read: clean */
        assert_int_equal(env_pass(FRAMES, cnt).used, 1);
        assert_int_equal(reclaim(), 1);
        assert_int_equal(env.writes, writes);

        /* Nothing is left of a page that was unmapped meanwhile, once pin and write have ended. */
        f = make_writing(1, 9);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[1], false), f);
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[1], &old));
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[1], false), FRAME_NONE);
        end_writes();
        assert_int_equal(env.frames[f].word & STATE,
                         FRAME_RESIDENT | FRAME_ORPHAN | FRAME_USED | 1);
        frame_unpin(&env.frames[f], false);
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
        assert_int_equal(env.frames[f].word, 0);
}

/* Locked while it is written: it stays. */
static void test_locked_while_written(void **state)
{
        (void)state;
        make_writing(0, 7);
        assert_true(page_set_locked(&env.pg, &list, &env.pte[0], true));
        end_writes();
        assert_int_equal(kind(0), PTE_PRESENT);
        assert_int_equal(flags(0), FRAME_RESIDENT | FRAME_LOCKED);
        assert_true(page_set_locked(&env.pg, &list, &env.pte[0], false));
}

/* fork: a page becomes clean where it is, hot as it is. */
static void test_write_back_for_fork(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw | PTE_CHARGED, PTE_A | PTE_D, 77);
        assert_int_equal(page_write_back(&env.pg, &env.pte[0], cnt), 0);
        uint64_t slot = env.frames[f].slot;
        assert_int_equal(env.pte[0], pte_make_present(ENV_PFN0 + f, rw | PTE_CHARGED, PTE_A));
        assert_int_equal(env.frames[f].word & STATE, FRAME_RESIDENT);
        assert_int_equal(env.far[slot][0], 77);
        /* Written again, while the child has the slot. */
        atomic_fetch_add(&env.slot_used[slot], 1);
        env.content[f][0] = 78;
        atomic_fetch_or(&env.frames[f].word, FRAME_DIRTY | FRAME_LOCKED);
        assert_int_equal(page_write_back(&env.pg, &env.pte[0], cnt), 0);
        assert_int_not_equal(env.frames[f].slot, slot);
        assert_int_equal(env.far[slot][0], 77);
        assert_int_equal(env.far[env.frames[f].slot][0], 78);
        assert_int_equal(env.frames[f].word & STATE, FRAME_RESIDENT | FRAME_LOCKED);
        env_slot_free(slot);
        /* A page that the program may not touch, and a page that is pinned. */
        frame_t g = make_present(1, rw, PTE_A | PTE_D, 5);
        page_protect(&env.pg, &env.pte[1], no_access);
        assert_int_equal(page_write_back(&env.pg, &env.pte[1], cnt), 0);
        assert_int_equal(kind(1), PTE_HELD);
        assert_int_equal(env.far[env.frames[g].slot][0], 5);
        frame_t h = make_present(2, rw, PTE_A | PTE_D, 6);
        frame_pin(env.frames, ENV_PFN0, &env.pte[2], false);
        assert_int_equal(page_write_back(&env.pg, &env.pte[2], cnt), -EBUSY);
        frame_unpin(&env.frames[h], false);
        assert_int_equal(env.frames[h].slot, SLOT_NONE);
        assert_true(env.pte[2] & PTE_D);
}

/* Slots of resident pages may just have been promised to the child: none is taken back, and the
 * page stays dirty. */
static void test_write_back_full(void **state)
{
        (void)state;
        for (unsigned v = 0; v < SLOTS; v++)
                make_remote(v, rw, 100 + v);
        frame_t f = fetch(0), g = make_present(6, rw, PTE_A | PTE_D, 7);
        uint64_t slot = env.frames[f].slot;
        assert_int_equal(page_write_back(&env.pg, &env.pte[6], cnt), -ENOSPC);
        assert_int_equal(env.frames[f].slot, slot);
        assert_int_equal(env.frames[g].slot, SLOT_NONE);
        assert_true(env.pte[6] & PTE_D);
        assert_false(frame_word_held(env.frames[g].word));
}

/* The vCPU that is out of frames evicts as the cleaner does, by itself. */
static void test_reclaim(void **state)
{
        (void)state;
        uint64_t slot = make_remote(0, rw, 1);
        fetch(0);
        assert_int_equal(reclaim(), 0);         /* hot: its second chance */
        assert_false(env.pte[0] & PTE_A);
        assert_int_equal(reclaim(), 0);         /* not flushed */
        env_flush_begin();
        assert_int_equal(reclaim(), 0);         /* flush not complete */
        flushed();
        env.pte[0] |= PTE_A;
        assert_int_equal(reclaim(), 0);         /* used again */
        flushed();
        uint32_t had = list.free.n;
        assert_int_equal(reclaim(), 1);
        assert_int_equal(list.free.n, had + 1);
        assert_int_equal(env.pte[0] & ~PTE_STAMP, pte_make_remote(slot, rw));
        assert_int_equal(cnt[CNT_DIRECT_RECLAIM], 1);
        /* dirty, without a slot and with one of its own */
        for (unsigned i = 0; i < 2; i++) {
                make_present(1, rw, PTE_D, 7 + i);
                assert_int_equal(reclaim(), 1);
                assert_int_equal(env.far[pte_slot(env.pte[1])][0], 7 + i);
                env_slot_free(pte_slot(env.pte[1]));
                env.pte[1] = 0;
        }
        frame_t f = fetch(0);
        env.content[f][0] = 9;
        env.pte[0] |= PTE_D;
        reclaim();
        flushed();
        assert_int_equal(reclaim(), 1);
        assert_int_equal(env.far[slot][0], 9);
}

/* A turn meets each frame once, where the last piece is short too, and whoever takes a piece. */
static void test_turn(void **state)
{
        const uint32_t n = 29;

        (void)state;
        env_teardown();
        env_setup(n, SLOTS, n, 10);
        for (unsigned v = 0; v < n; v++)
                make_present(v, rw, PTE_A, 1);
        assert_int_equal(env_pass(n, cnt).cleared, n);
        flushed();
        assert_int_equal(reclaim() + env_pass(n - 8, cnt).freed, n);
}

/* It evicts a few pages, and passes few frames. */
static void test_reclaim_bound(void **state)
{
        (void)state;
        for (unsigned v = 0; v < FRAMES; v++)
                make_present(v, rw, 0, 1);
        uint64_t scanned = cnt[CNT_SCANNED];
        assert_int_equal(reclaim(), 8);
        assert_int_equal(cnt[CNT_SCANNED] - scanned, 8);
        while (reclaim())
                ;
        assert_true(cnt[CNT_SCANNED] - scanned <= FRAMES + 128 + 1);
}

static bool odd(uint64_t slot) { return slot & 1; }

/* What has to be posted, or shares its slot, is left to the cleaner, which looks there first. */
static void test_reclaim_leaves(void **state)
{
        (void)state;
        env.post = posts;
        frame_t f = make_present(0, rw, PTE_D, 1);
        assert_int_equal(reclaim(), 0);
        assert_int_equal(env.pte[0], pte_make_present(ENV_PFN0 + f, rw, PTE_D));
        assert_int_equal(env.frames[f].slot, SLOT_NONE);
        assert_int_equal(env.writes, 0);
        assert_int_equal(env.pg.writing, 0);
        env_pass(0, cnt);
        assert_int_equal(env.pg.writing, 1);
        end_writes();
        assert_int_equal(kind(0), PTE_REMOTE);
        env.post = NULL;
        fetch(0);                               /* it has a slot of its own now */
        env.pte[0] = (env.pte[0] & ~PTE_A) | PTE_D;
        env.post = posts;
        assert_int_equal(reclaim(), 0);
        assert_int_equal(env.pg.writing, 0);
        env.post = NULL;
        assert_int_equal(reclaim(), 1);

        uint64_t slot = make_remote(1, rw, 5);
        atomic_fetch_add(&env.slot_used[slot], 1);
        f = fetch(1);
        env.pte[1] = (env.pte[1] & ~PTE_A) | PTE_D;
        assert_int_equal(reclaim(), 0);
        assert_int_equal(env.frames[f].slot, slot);
        atomic_fetch_sub(&env.slot_used[slot], 1);

        env.post = posts;
        env.at_once = odd;
        assert_int_equal(reclaim(), slot & 1);
}

/* A stamp is believed only when its flush is complete, wherever the counter stands. */
static void check_epochs(uint64_t first)
{
        env_teardown();
        begin(FRAMES, SLOTS, first);
        frame_t f = make_present(0, rw, PTE_A, 1);
        page_cool(&env.pg, &list, &env.pte[0]);
        assert_int_equal(frame_word_epoch(env.frames[f].word), (uint32_t)(first + 1));
        for (unsigned i = 0; i < 20; i++) {             /* many begin, none completes */
                assert_int_equal(env_pass(FRAMES, cnt).unflushed, 1);
                assert_int_equal(reclaim(), 0);
                env_flush_begin();
        }
        env.flushed = first + 1;
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
}

static const uint64_t turns[] = { 0,           1,           0x7ffffff5,  0x7fffffff,
                                  0x80000000,  0xfffffff5,  0xfffffffe,  0xffffffff,
                                  0x100000000, 0x17ffffffa, 0xfffffffffa };

static void test_epochs(void **state)
{
        (void)state;
        for (unsigned i = 0; i < sizeof(turns) / sizeof(turns[0]); i++)
                check_epochs(turns[i]);
}

/* A page that was never used has stamp 0. At any epoch it is evicted after at most one flush. */
static void test_epoch_wrap(void **state)
{
        (void)state;
        for (unsigned i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
                for (uint64_t later = 0; later < 1ull << 34; later = later ? later * 2 : 1) {
                        env_teardown();
                        begin(FRAMES, SLOTS, turns[i]);
                        make_present(0, rw, 0, 1);
                        frame_t f = make_present(1, rw, PTE_A, 1);
                        page_cool(&env.pg, &list, &env.pte[1]);
                        env.flush_epoch += later;
                        flushed();
                        uint32_t freed = env_pass(FRAMES, cnt).freed;
                        if (later == 0)
                                assert_true(env.frames[f].word & FRAME_RESIDENT);
                        if (freed < 2) {
                                flush();
                                freed += env_pass(FRAMES, cnt).freed;
                        }
                        assert_int_equal(freed, 2);
                }
        }
}
