/*
 * Free frames: batches, stocks and the low mark.  For test_pager.c.
 */
#ifndef TEST_PAGER_FREE_H
#define TEST_PAGER_FREE_H

#include "abi_control.h"

#define MANY 15                         /* vCPUs, with as few frames as so many may have */

static void other_cache(uint32_t nframes)
{
        env_teardown();
        begin(nframes, SLOTS, 10);
}

static uint32_t stocked(const struct frame_list *l)
{
        uint32_t n = 0;

        for (unsigned i = 0; i < MANY; i++)
                n += l[i].free.n;
        return n;
}

/* What idle vCPUs keep is at most an eighth of the cache, also where batches were given back when
 * there were fewer vCPUs; and another vCPU gets all the rest. */
static void test_stocks(void **state)
{
        struct frame_list l[MANY] = { 0 };
        frame_t f[MANY * FRAMES_EACH + 1];
        uint32_t n = 0;

        (void)state;
        other_cache(MANY * FRAMES_EACH);
        while ((f[n] = frame_take(&env.pg, &list, cnt)) != FRAME_NONE)
                n++;
        assert_int_equal(n, env.nframes);
        while (n > env.nframes / 2)     /* by a vCPU that frees, and by the cleaner */
                frame_free(&env.pg, &list, f[--n]);
        while (n > 0)
                frame_collect(&env.pg, f[--n]);
        frames_give(&env.pg);
        pager_share(&env.pg, MANY);
        for (unsigned round = 0; round < 3; round++)
                for (unsigned i = 0; i < MANY; i++) {
                        for (n = 0; n < 1 + round * 9; n++)
                                f[n] = frame_take(&env.pg, &l[i], cnt);
                        assert_true(l[i].free.n <= 2 * env.pg.batch);
                        while (n > 0)
                                frame_free(&env.pg, &l[i], f[--n]);
                        assert_true(l[i].free.n > 0);
                        assert_true(stocked(l) <= env.nframes / 8);
                }
        for (n = 0; (f[n] = frame_take(&env.pg, &list, cnt)) != FRAME_NONE; n++)
                ;
        assert_int_equal(n + stocked(l), env.nframes);
        assert_false(frames_there(&env.pg));
        while (n > 0)
                frame_free(&env.pg, &list, f[--n]);
        for (unsigned i = 0; i < MANY; i++)
                frame_list_drain(&env.pg, &l[i]);
        assert_int_equal(env.pg.nfree + list.free.n, env.nframes);
}

/* The cleaner gives what it frees by the batch, here of two frames. */
static void test_collected(void **state)
{
        frame_t f[4];

        (void)state;
        other_cache(4);
        for (unsigned i = 0; i < 4; i++)
                f[i] = frame_take(&env.pg, &list, cnt);
        assert_false(frames_there(&env.pg));
        frame_collect(&env.pg, f[0]);
        assert_false(frames_there(&env.pg));
        frame_collect(&env.pg, f[1]);
        assert_int_equal(env.pg.nfree, 2);
        frame_collect(&env.pg, f[2]);
        assert_int_equal(env.pg.nfree, 2);
        frames_give(&env.pg);
        frames_give(&env.pg);
        assert_int_equal(env.pg.nfree, 3);
        frame_free(&env.pg, &list, f[3]);
        assert_true(frames_there(&env.pg));
}

/* A refill that leaves less than the low mark says so. */
static void test_low(void **state)
{
        (void)state;
        other_cache(256);
        uint32_t low = env.pg.low, n = 0;
        frame_t f[256];

        assert_true(low > 8);           /* more than a batch */
        for (; n < 256; n++) {
                f[n] = frame_take(&env.pg, &list, cnt);
                assert_int_equal(list.low, env.pg.nfree < low);
        }
        assert_int_equal(cnt[CNT_REFILLS], 256 / 8);
        while (n > 0)
                frame_free(&env.pg, &list, f[--n]);
        frame_list_drain(&env.pg, &list);
        f[0] = frame_take(&env.pg, &list, cnt);
        assert_false(list.low);
        frame_free(&env.pg, &list, f[0]);
}

#endif
