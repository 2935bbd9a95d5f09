/*
 * Part of test_pager.c: what range operations do to a page.
 */

static void test_detach(void **state)
{
        pte_t old;

        (void)state;
        assert_int_equal(page_detach(&env.pg, &env.pte[0], &old), FRAME_NONE);
        assert_int_equal(old, 0);

        uint64_t slot = make_remote(1, rw | PTE_CHARGED, 1);
        assert_int_equal(page_detach(&env.pg, &env.pte[1], &old), FRAME_NONE);
        assert_true(old & PTE_CHARGED);
        env.charged--;
        assert_int_equal(env.slot_used[slot], 0);

        env.pte[2] = pte_make_arena(5, rw);
        assert_int_equal(page_detach(&env.pg, &env.pte[2], &old), FRAME_NONE);
        assert_int_equal(pte_kind(old), PTE_ARENA);

        for (int held = 0; held < 2; held++) {
                frame_t f = make_present(3, rw, PTE_A, 1);
                if (held)
                        page_protect(&env.pg, &env.pte[3], no_access);
                assert_int_equal(page_detach(&env.pg, &env.pte[3], &old), f);
                assert_int_equal(env.pte[3], 0);
                assert_int_equal(pte_kind(old), held ? PTE_HELD : PTE_PRESENT);
                /* not free before the caller's flush */
                assert_true(env.frames[f].word & FRAME_RESIDENT);
                env_pass(FRAMES, cnt);
                assert_true(env.frames[f].word & FRAME_RESIDENT); /* and the hand leaves it alone */
                frame_discard(&env.pg, &list, f);
                assert_int_equal(env.frames[f].word, 0);
        }
        assert_int_equal(env.charged, 0);
}

/* Ends the fetch of page 0 while a thread waits for it. */
static void finish_busy(pte_slot_t *pte, pte_t seen)
{
        assert_true(seen & PTE_WAITERS);
        assert_int_equal(*pte, seen);
        struct frame *f = &env.frames[pte_num(seen) - ENV_PFN0];
        f->pte = pte;
        *pte = pte_make_present(pte_num(seen), seen & PTE_KEEP, PTE_A);
        atomic_fetch_and(&f->word, ~FRAME_CLAIMED);
}

static frame_t make_busy(unsigned v)
{
        frame_t f = frame_take(&env.pg, &list, cnt);
        env.pte[v] = pte_make_busy(ENV_PFN0 + f, rw);
        env.wait = finish_busy;
        return f;
}

static void test_detach_waits_for_busy(void **state)
{
        pte_t old;

        (void)state;
        frame_t f = make_busy(0);
        assert_int_equal(page_detach(&env.pg, &env.pte[0], &old), f);
        assert_int_equal(env.waits, 1);
        frame_discard(&env.pg, &list, f);
}

/* States that no transition makes stop the VM. */
static void expect_bug(void (*call)(void))
{
        bug_text = NULL;
        bug_expected = true;
        if (setjmp(bug) == 0)
                call();
        bug_expected = false;
        assert_non_null(bug_text);
        env.pte[0] = 0;
}

static void bad_detach(void) { pte_t old; page_detach(&env.pg, &env.pte[0], &old); }
static void bad_protect(void) { page_protect(&env.pg, &env.pte[0], ro); }

static void test_detach_bad_entry(void **state)
{
        (void)state;
        env.pte[0] = PTE_W;
        expect_bug(bad_detach);
        env.pte[0] = PTE_W;
        expect_bug(bad_protect);
        env.pte[0] = PTE_P | 7ull << 9;
        expect_bug(bad_protect);
}

static void test_frame_outside(void **state)
{
        (void)state;
        env.pte[0] = pte_make_present(ENV_PFN0 + FRAMES, rw, PTE_A);
        expect_bug(bad_detach);
        env.pte[0] = pte_make_present(ENV_PFN0 - 1, rw, PTE_A);
        expect_bug(bad_protect);
}

static void test_discard_held(void **state)
{
        pte_t old;

        (void)state;
        frame_t f = make_present(0, rw, PTE_A, 1);
        assert_int_equal(frame_pin(env.frames, ENV_PFN0, &env.pte[0], true), f);
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[0], &old));
        assert_true(env.frames[f].word & FRAME_ORPHAN);
        assert_false(frame_claim(&env.frames[f], env.frames[f].word));
        assert_int_equal(env_pass(FRAMES, cnt).freed, 0);
        frame_unpin(&env.frames[f], true);
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
        assert_int_equal(env.frames[f].word, 0);
}

static void test_discard_claimed(void **state)
{
        pte_t old;

        (void)state;
        frame_t f = make_present(0, rw, PTE_A, 1);
        assert_true(frame_claim(&env.frames[f], env.frames[f].word));   /* the hand is at it */
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[0], &old));
        assert_int_equal(env_pass(FRAMES, cnt).freed, 0);
        atomic_fetch_and(&env.frames[f].word, ~FRAME_CLAIMED);
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
}

/* An orphan's slot goes with it, and not before its last holder. */
static void test_orphans_wait(void **state)
{
        pte_t old;

        (void)state;
        uint64_t slot = make_remote(0, rw, 1);
        frame_t f = fetch(0);
        frame_pin(env.frames, ENV_PFN0, &env.pte[0], false);
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[0], &old));
        assert_int_equal(env.slot_used[slot], 1);
        assert_int_equal(reclaim(), 0);
        frame_unpin(&env.frames[f], false);
        assert_int_equal(reclaim(), 1);
        assert_int_equal(env.slot_used[slot], 0);
}

static void test_protect_not_resident(void **state)
{
        (void)state;
        assert_false(page_protect(&env.pg, &env.pte[0], ro));
        assert_int_equal(env.pte[0], 0);
        uint64_t slot = make_remote(1, rw | PTE_CHARGED, 1);
        assert_false(page_protect(&env.pg, &env.pte[1], no_access));
        assert_int_equal(env.pte[1] & ~PTE_STAMP, pte_make_remote(slot, no_access | PTE_CHARGED));
        assert_false(page_protect(&env.pg, &env.pte[1], ro));
        frame_t f = fetch(1);
        assert_int_equal(env.pte[1], pte_make_present(ENV_PFN0 + f, ro | PTE_CHARGED, PTE_A));
}

static void test_protect_present(void **state)
{
        pte_t rx = pte_prot(true, false, true);

        (void)state;
        frame_t f = make_present(0, rw | PTE_CHARGED, PTE_A, 1);
        assert_true(page_protect(&env.pg, &env.pte[0], ro));
        assert_int_equal(env.pte[0], pte_make_present(ENV_PFN0 + f, ro | PTE_CHARGED, PTE_A));
        assert_false(page_protect(&env.pg, &env.pte[0], rw));   /* more rights need no flush */
        assert_false(page_protect(&env.pg, &env.pte[0], rw));
        assert_true(page_protect(&env.pg, &env.pte[0], rx));            /* W goes, though X comes */
        assert_true(page_protect(&env.pg, &env.pte[0], ro));            /* X goes */
        assert_int_equal(flags(0), FRAME_RESIDENT);
        assert_int_equal(frame_word_epoch(frame_at(0)->word), env.flush_epoch + 1);
}

static void test_protect_held(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw | PTE_CHARGED, PTE_A, 1);
        assert_true(page_protect(&env.pg, &env.pte[0], no_access));
        assert_int_equal(env.pte[0], pte_make_held(ENV_PFN0 + f, no_access | PTE_CHARGED));
        assert_int_equal(frame_word_epoch(frame_at(0)->word), env.flush_epoch + 1);
        assert_false(page_protect(&env.pg, &env.pte[0], no_access));
        assert_false(page_protect(&env.pg, &env.pte[0], rw));
        assert_int_equal(env.pte[0], pte_make_present(ENV_PFN0 + f, rw | PTE_CHARGED, PTE_A));
        assert_int_equal(flags(0), FRAME_RESIDENT);
}

static void test_protect_arena(void **state)
{
        (void)state;
        env.pte[0] = pte_make_arena(77, rw);
        assert_true(page_protect(&env.pg, &env.pte[0], ro));
        assert_int_equal(env.pte[0], pte_make_arena(77, ro));
        assert_true(page_protect(&env.pg, &env.pte[0], no_access));
        assert_int_equal(env.pte[0], 0);
}

/* D is never lost: it stays in PRESENT, and moves to the frame in HELD. */
static void test_protect_dirty(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A, 1);
        env.pte[0] |= PTE_D;
        page_protect(&env.pg, &env.pte[0], ro);
        assert_true(env.pte[0] & PTE_D);
        assert_false(flags(0) & FRAME_DIRTY);
        page_protect(&env.pg, &env.pte[0], no_access);
        assert_false(env.pte[0] & PTE_D);
        assert_true(flags(0) & FRAME_DIRTY);
        page_protect(&env.pg, &env.pte[0], rw);
        assert_true(flags(0) & FRAME_DIRTY);
}

static void release_claim(void)
{
        env.step = NULL;
        atomic_fetch_and(&frame_at(0)->word, ~FRAME_CLAIMED);
}

static void test_protect_waits(void **state)
{
        (void)state;
        make_busy(0);
        page_protect(&env.pg, &env.pte[0], ro);
        assert_int_equal(env.waits, 1);
        assert_int_equal(kind(0), PTE_PRESENT);
        frame_claim(frame_at(0), frame_at(0)->word);    /* an evictor: waits for its release */
        env.step = release_claim;
        page_protect(&env.pg, &env.pte[0], no_access);
        assert_null(env.step);
        assert_int_equal(kind(0), PTE_HELD);
}

static void test_move(void **state)
{
        (void)state;
        assert_false(page_move(&env.pg, &env.pte[0], &env.pte[1]));
        assert_int_equal(env.pte[1], 0);

        uint64_t slot = make_remote(0, ro | PTE_CHARGED, 1);
        assert_false(page_move(&env.pg, &env.pte[0], &env.pte[1]));
        assert_int_equal(env.pte[0], 0);
        assert_int_equal(env.pte[1] & ~PTE_STAMP, pte_make_remote(slot, ro | PTE_CHARGED));

        frame_t f = make_present(2, rw, PTE_A, 1);
        env.pte[2] |= PTE_D;
        assert_true(page_move(&env.pg, &env.pte[2], &env.pte[3]));
        assert_int_equal(env.pte[2], 0);
        assert_int_equal(env.pte[3], pte_make_present(ENV_PFN0 + f, rw, PTE_A | PTE_D));
        assert_ptr_equal(env.frames[f].pte, &env.pte[3]);

        /* until the flush is over that this asks for, a TLB may hold the page at its old place */
        page_protect(&env.pg, &env.pte[3], no_access);
        assert_true(page_move(&env.pg, &env.pte[3], &env.pte[4]));
        assert_int_equal(env.pte[4], pte_make_held(ENV_PFN0 + f, no_access));
        assert_ptr_equal(env.frames[f].pte, &env.pte[4]);
        assert_true(flags(4) & FRAME_DIRTY);

        flush();
        assert_false(page_move(&env.pg, &env.pte[4], &env.pte[3]));

        env.pte[5] = pte_make_arena(9, rw);
        assert_true(page_move(&env.pg, &env.pte[5], &env.pte[6]));
        assert_int_equal(env.pte[6], pte_make_arena(9, rw));
}

static void test_move_waits_for_busy(void **state)
{
        (void)state;
        frame_t f = make_busy(0);
        assert_true(page_move(&env.pg, &env.pte[0], &env.pte[1]));
        assert_int_equal(env.waits, 1);
        assert_ptr_equal(env.frames[f].pte, &env.pte[1]);
        assert_int_equal(kind(1), PTE_PRESENT);
}

static void test_cool(void **state)
{
        (void)state;
        frame_t f = make_present(0, rw, PTE_A | PTE_D, 1);
        page_cool(&env.pg, &list, &env.pte[0]);
        assert_int_equal(env.pte[0], pte_make_present(ENV_PFN0 + f, rw, PTE_D));
        assert_int_equal(frame_word_epoch(frame_at(0)->word), env.flush_epoch + 1);
        uint64_t word = frame_at(0)->word;
        env_flush_begin();
        page_cool(&env.pg, &list, &env.pte[0]);         /* cold already: keeps its older stamp */
        assert_int_equal(frame_at(0)->word, word);
        make_remote(1, rw, 1);
        pte_t before = env.pte[1];
        page_cool(&env.pg, &list, &env.pte[1]);
        assert_int_equal(env.pte[1], before);
        page_cool(&env.pg, &list, &env.pte[2]);
        assert_int_equal(env.pte[2], 0);
}

/* What was dropped waits for a flush if a TLB may hold it, and only then. */
static void test_drop(void **state)
{
        struct dropped d = DROPPED_NONE;

        (void)state;
        make_remote(0, rw | PTE_CHARGED, 1);
        frame_t f = fetch(0);
        uint64_t slot = env.frames[f].slot;
        assert_int_equal(page_drop(&env.pg, &list, &env.pte[0], &d) & PTE_CHARGED, PTE_CHARGED);
        env.charged--;
        assert_true(d.flush);
        assert_int_equal(d.n, 1);
        assert_true(env.frames[f].word & FRAME_CLAIMED);
        assert_int_equal(env.slot_used[slot], 0);
        dropped_free(&env.pg, &list, &d);
        assert_int_equal(env.frames[f].word, 0);
        assert_false(d.flush);

        make_present(0, rw, 0, 1);                      /* never used */
        f = make_present(1, rw, PTE_A, 1);
        page_cool(&env.pg, &list, &env.pte[1]);
        flush();                                        /* not used since */
        page_drop(&env.pg, &list, &env.pte[0], &d);
        page_drop(&env.pg, &list, &env.pte[1], &d);
        env.pte[2] = pte_make_remote(env_slot_alloc(), rw);
        page_drop(&env.pg, &list, &env.pte[2], &d);
        assert_int_equal(d.n, 0);
        assert_false(d.flush);
        assert_int_equal(env.frames[f].word, 0);

        for (unsigned begun = 0; begun < 2; begun++) {  /* its flush is not over */
                make_present(0, rw, PTE_A, 1);
                page_cool(&env.pg, &list, &env.pte[0]);
                if (begun)
                        env_flush_begin();
                page_drop(&env.pg, &list, &env.pte[0], &d);
                assert_true(d.flush);
                dropped_free(&env.pg, &list, &d);
        }
        env.pte[0] = pte_make_arena(3, rw);             /* it has no frame */
        page_drop(&env.pg, &list, &env.pte[0], &d);
        assert_true(d.flush);
        assert_int_equal(d.n, 0);
        dropped_free(&env.pg, &list, &d);

        for (unsigned v = 0; v < FRAMES; v++)           /* as many as there are */
                make_present(v, rw, PTE_A | PTE_D, v);
        for (unsigned v = 0; v < FRAMES; v++)
                page_drop(&env.pg, &list, &env.pte[v], &d);
        assert_int_equal(d.n, FRAMES);
        dropped_free(&env.pg, &list, &d);
        assert_int_equal(env.pg.nfree + list.free.n, FRAMES);
}

/* A frame that is pinned goes to the hand, which waits for the pin and for the flush. */
static void test_drop_pinned(void **state)
{
        struct dropped d = DROPPED_NONE;

        (void)state;
        for (unsigned flush_first = 0; flush_first < 2; flush_first++) {
                frame_t f = make_present(0, rw, PTE_A, 1);
                frame_pin(env.frames, ENV_PFN0, &env.pte[0], false);
                page_drop(&env.pg, &list, &env.pte[0], &d);
                assert_true(d.flush);
                assert_int_equal(d.n, 0);
                if (flush_first)
                        flush();
                else
                        frame_unpin(&env.frames[f], false);
                assert_int_equal(env_pass(FRAMES, cnt).freed, 0);
                assert_true(env.frames[f].word & FRAME_ORPHAN);
                if (flush_first)
                        frame_unpin(&env.frames[f], false);
                else
                        flush();
                assert_int_equal(env_pass(FRAMES, cnt).freed, 1);
                dropped_free(&env.pg, &list, &d);
        }
}

/* Rights that no TLB can have, and places that none can hold, ask for no flush. */
static void test_change_of_cold_pages(void **state)
{
        (void)state;
        make_present(0, rw, PTE_A, 1);
        page_cool(&env.pg, &list, &env.pte[0]);
        flush();
        assert_false(page_protect(&env.pg, &env.pte[0], no_access));
        assert_int_equal(env_pass(FRAMES, cnt).freed, 1);    /* nor does the hand wait */
        make_present(0, rw, 0, 1);
        assert_false(page_move(&env.pg, &env.pte[0], &env.pte[1]));
        assert_true(page_move(&env.pg, &env.pte[1], &env.pte[0]));      /* A=1 there */
        frame_t f = make_present(1, rw, 0, 1);
        frame_pin(env.frames, ENV_PFN0, &env.pte[1], false);            /* who may just clear A */
        assert_true(page_protect(&env.pg, &env.pte[1], ro));
        frame_unpin(&env.frames[f], false);
}
