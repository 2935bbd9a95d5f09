/*
 * Notices (pager/notices.h): part of test_pager.c.
 */
static struct notices notices;
static frame_t word_frame;
static _Atomic uint32_t *words;         /* two of them, in page 7 */

static int read_fails(bool write, uint64_t slot) { (void)slot; return write ? 0 : -EIO; }

static void begin_notices(void)
{
        memset(&notices, 0, sizeof(notices));
        env.pg.notices.table = &notices;
        env.post = posts;
        word_frame = make_present(7, rw, PTE_A, 0);
        words = (_Atomic uint32_t *)&env.content[word_frame][1];
}

static bool add(unsigned v, unsigned word)
{
        return notice_add(&env.pg.notices, &env.pte[v], &words[word], word_frame, 3);
}

static void ahead(unsigned v)
{
        frame_t f = frame_take(&env.pg, &list, cnt);
        assert_true(page_prefetch(&env.pg, &env.pte[v], env.pte[v], f, false, cnt));
}

/* No notice counts, no frame is pinned, and an eviction does not lose the words' new values. */
static void none_left(void)
{
        assert_int_equal(words[0] | words[1], 0);
        assert_int_equal(notices.count, 0);
        assert_int_equal(env.frames[word_frame].word & FRAME_PINS, 0);
        for (unsigned i = 0; i < NOTICES; i++)
                assert_int_equal(notices.notice[i].used, 0);
        for (frame_t f = 0; f < FRAMES; f++)
                assert_int_equal(env.frames[f].notices, 0);
        assert_true(env.frames[word_frame].word & FRAME_DIRTY);
}

static void test_notice_comes(void **state)
{
        (void)state;
        begin_notices();
        make_remote(0, rw, 1);
        make_remote(1, rw, 2);
        ahead(0);
        ahead(1);
        assert_true(add(0, 0) && add(1, 0) && add(0, 1));
        assert_int_equal(words[0], 2);
        assert_int_equal(words[1], 1);
        assert_int_equal(env.frames[word_frame].word & FRAME_PINS, 3);
        assert_true(env_io_step(0));
        assert_int_equal(words[0], 1);
        assert_int_equal(words[1], 0);
        assert_int_equal(env.wakes, 0);         /* no vCPU sleeps */
        assert_true(env_io_step(0));
        none_left();
}

static void test_notice_of_nothing(void **state)
{
        (void)state;
        begin_notices();
        make_present(0, rw, PTE_A, 1);
        make_remote(1, rw, 1);
        assert_false(add(0, 0) || add(1, 0) || add(2, 0));
        assert_int_equal(words[0], 0);
        frame_unpin(&env.frames[frame_pin(env.frames, ENV_PFN0, &env.pte[7], true)], true);
        none_left();
}

static void test_notice_of_failure(void **state)
{
        (void)state;
        begin_notices();
        make_remote(0, rw, 1);
        ahead(0);
        assert_true(add(0, 0));
        env.io = read_fails;
        assert_true(env_io_step(0));
        env.io = NULL;
        assert_int_equal(kind(0), PTE_REMOTE);
        none_left();
        env_pass(FRAMES, cnt);       /* frees the orphan */
}

static void test_notice_of_unmapped(void **state)
{
        pte_t old;

        (void)state;
        begin_notices();
        make_remote(0, rw, 1);
        ahead(0);
        assert_true(add(0, 0));
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[0], &old));
        none_left();
        assert_true(env_io_step(0));
        none_left();
        env_pass(FRAMES, cnt);
}

/* The end of a demand read looks for waiters alone, so there is one. */
static void test_notice_of_demand(void **state)
{
        (void)state;
        begin_notices();
        make_remote(0, rw, 1);
        frame_t f = frame_take(&env.pg, &list, cnt);
        assert_int_equal(page_fetch(&env.pg, &env.pte[0], env.pte[0], f, cnt), ENV_POSTED);
        assert_true(add(0, 0));
        bool awaited = env.pte[0] & PTE_WAITERS;
        assert_true(env_io_step(0));
        assert_true(awaited);
        none_left();
}

static int add_during_read(bool write, uint64_t slot)
{
        (void)slot;
        assert_true(!write && add(0, 0));
        return 0;
}

/* The same for a page that the vCPU copies itself. */
static void test_notice_of_copy(void **state)
{
        (void)state;
        begin_notices();
        env.post = NULL;
        make_remote(0, rw, 1);
        frame_t f = frame_take(&env.pg, &list, cnt);
        env.io = add_during_read;
        assert_int_equal(page_fetch(&env.pg, &env.pte[0], env.pte[0], f, cnt), 0);
        env.io = NULL;
        none_left();
}

static void test_notice_limit(void **state)
{
        (void)state;
        begin_notices();
        make_remote(0, rw, 1);
        ahead(0);
        assert_true(add(0, 0) && add(0, 0) && add(0, 1));
        assert_false(add(0, 1));
        assert_int_equal(words[1], 1);
        assert_true(env_io_step(0));
        none_left();
}

/* A vCPU that looks at the list too late finds notices of another page, and leaves them. */
static void test_notice_late_look(void **state)
{
        (void)state;
        begin_notices();
        make_remote(0, rw, 1);
        ahead(0);
        assert_true(add(0, 0) && add(0, 1));
        notices_over(&env.pg.notices, (frame_t)(pte_num(env.pte[0]) - ENV_PFN0));
        assert_int_equal(words[0] + words[1], 2);
        assert_true(env_io_step(0));
        none_left();
}

/* The page comes while the notice is being put on the list. */
static void test_notice_comes_early(void **state)
{
        (void)state;
        begin_notices();
        make_remote(0, rw, 1);
        ahead(0);
        assert_true(add(0, 0));
        struct notice *n = &notices.notice[0];
        env.frames[n->frame].notices = 0;       /* it is not on it yet */
        assert_true(env_io_step(0));
        assert_int_equal(words[0], 1);
        assert_false(notice_hang(&env.pg.notices, n));
        notices_look(&env.pg.notices, n->frame);
        none_left();
}

/* The word's page is unmapped: the word is still reached, and its frame is free then. */
static void test_notice_word_unmapped(void **state)
{
        pte_t old;

        (void)state;
        begin_notices();
        make_remote(0, rw, 1);
        ahead(0);
        assert_true(add(0, 0));
        frame_discard(&env.pg, &list, page_detach(&env.pg, &env.pte[7], &old));
        env_pass(FRAMES, cnt);
        assert_true(env.frames[word_frame].word & FRAME_ORPHAN);
        assert_int_equal(words[0], 1);
        assert_true(env_io_step(0));
        none_left();
        env_pass(FRAMES, cnt);
}
