/*
 * t_threads: futex() itself.
 */
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include "t_threads.h"

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

/* A thread that calls futex() once. */
struct sleeper {
        _Atomic uint32_t *word;
        int op;
        uint32_t val, bits;
        const struct timespec *timeout;
        _Atomic pid_t tid;
        _Atomic bool done;
        long result;
        pthread_t id;
};

static void *sleeps(void *arg)
{
        struct sleeper *s = arg;

        s->tid = my_tid();
        s->result = futex_(s->word, s->op, s->val, s->timeout, NULL, s->bits);
        s->done = true;
        return NULL;
}

/* Returns when it sleeps. */
static void put_to_sleep(struct sleeper *s, _Atomic uint32_t *word, int op, uint32_t bits)
{
        *s = (struct sleeper){ .word = word, .op = op, .val = *word, .bits = bits };
        s->id = start(sleeps, s);
        CHECK(BECOMES(s->tid != 0) && falls_asleep(s->tid));
}

static int awake(const struct sleeper *s, int n)
{
        int k = 0;

        for (int i = 0; i < n; i++)
                k += s[i].done;
        return k;
}

static void errors(void)
{
        static _Atomic uint32_t w[3] = { 5, 6, 7 };
        const struct timespec negative = { -1, 0 }, large = { 0, 1000 * MS }, minus = { 0, -1 },
                              zero = { 0, 0 };
        _Atomic uint32_t *odd = (void *)((char *)w + 1), *none = (void *)16,
                         *high = (void *)0xffff800000000000;
        char *page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        _Atomic uint32_t *readable = (void *)page, *gone = (void *)(page + 4096);
        int p = FUTEX_PRIVATE_FLAG;

        munmap(page + 4096, 4096);
        for (int i = 0; i < 2; i++, p = 0) {
                CHECK(futex_(w, FUTEX_WAIT | p, 4, NULL, NULL, 0) == -EAGAIN);
                CHECK(futex_(w, FUTEX_WAIT_BITSET | p, 4, NULL, NULL, 1) == -EAGAIN);
                CHECK(futex_(w, FUTEX_WAIT_BITSET | p, 5, NULL, NULL, 0) == -EINVAL);
                CHECK(futex_(w, FUTEX_WAKE_BITSET | p, 5, NULL, NULL, 0) == -EINVAL);
                CHECK(futex_(w, FUTEX_WAIT | p, 4, &negative, NULL, 0) == -EINVAL);
                CHECK(futex_(w, FUTEX_WAIT | p, 4, &large, NULL, 0) == -EINVAL);
                CHECK(futex_(w, FUTEX_WAIT | p, 4, &minus, NULL, 0) == -EINVAL);
                CHECK(futex_(w, FUTEX_WAIT | p, 5, (void *)16, NULL, 0) == -EFAULT);
                CHECK(futex_(w, FUTEX_WAIT | p, 5, &zero, NULL, 0) == -ETIMEDOUT);
                CHECK(futex_(odd, FUTEX_WAIT | p, 5, &zero, NULL, 0) == -EINVAL);
                CHECK(futex_(odd, FUTEX_WAKE | p, 1, NULL, NULL, 0) == -EINVAL);
                CHECK(futex_(w, FUTEX_REQUEUE | p, 1, (void *)1, odd, 0) == -EINVAL);
                CHECK(futex_(none, FUTEX_WAIT | p, 0, &zero, NULL, 0) == -EFAULT);
                CHECK(futex_(high, FUTEX_WAIT | p, 0, &zero, NULL, 0) == -EFAULT);
                CHECK(futex_(high, FUTEX_WAKE | p, 1, NULL, NULL, 0) == -EFAULT);
                CHECK(futex_(gone, FUTEX_WAIT | p, 0, &zero, NULL, 0) == -EFAULT);
                CHECK(futex_(gone, FUTEX_WAKE | p, 1, NULL, NULL, 0) == (p ? 0 : -EFAULT));
                CHECK(futex_(w, FUTEX_WAKE_OP | p, 1, (void *)1, gone,
                             FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)) == -EFAULT);
                CHECK(futex_(w, FUTEX_WAKE_OP | p, 1, (void *)1, readable,
                             FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)) == -EFAULT);
                CHECK(futex_(w, FUTEX_WAKE_OP | p, 1, (void *)1, w + 1,
                             FUTEX_OP(9, 1, FUTEX_OP_CMP_EQ, 0)) == 0); /* 9: ADD of 1 << 1 */
                CHECK(w[1] == 8);
                w[1] = 6;
                CHECK(futex_(w, FUTEX_WAKE_OP | p, 1, (void *)1, w + 1,
                             FUTEX_OP(5, 1, FUTEX_OP_CMP_EQ, 0)) == -ENOSYS);
                CHECK(futex_(w, FUTEX_CMP_REQUEUE | p, 1, (void *)1, w + 1, 4) == -EAGAIN);
                CHECK(futex_(w, FUTEX_CMP_REQUEUE | p, 1, (void *)1, w + 1, 5) == 0);
                CHECK(futex_(w, FUTEX_CMP_REQUEUE | p, (uint32_t)-1, (void *)1, w + 1, 5) ==
                      -EINVAL);
                if (p)          /* a shared one needs a page that is there */
                        CHECK(futex_(readable, FUTEX_WAIT | p, 1, NULL, NULL, 0) == -EAGAIN);
                CHECK(futex_(readable, FUTEX_LOCK_PI | p, 0, NULL, NULL, 0) == -EFAULT);
                CHECK(futex_(w, FUTEX_UNLOCK_PI | p, 0, NULL, NULL, 0) == -EPERM);
        }
        CHECK(futex_(w, 77, 0, NULL, NULL, 0) == -ENOSYS);
        CHECK(futex_(w, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 0, NULL, NULL, 0) == -ENOSYS);
        CHECK(w[0] == 5 && w[1] == 6 && w[2] == 7);
        munmap(page, 4096);
}

static void timeouts(void)
{
        static _Atomic uint32_t w;
        struct timespec t = { 0, 30 * MS };
        int64_t from = now_ns(CLOCK_MONOTONIC);

        CHECK(futex_(&w, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0) == -ETIMEDOUT);
        CHECK(now_ns(CLOCK_MONOTONIC) - from >= 29 * MS);
        t = ms_from_now(CLOCK_MONOTONIC, 30);
        CHECK(futex_(&w, FUTEX_WAIT_BITSET_PRIVATE, 0, &t, NULL, 1) == -ETIMEDOUT);
        CHECK(now_ns(CLOCK_MONOTONIC) - from >= 59 * MS);
        t = ms_from_now(CLOCK_REALTIME, 30);
        CHECK(futex_(&w, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &t, NULL, 1) ==
              -ETIMEDOUT);
        CHECK(now_ns(CLOCK_MONOTONIC) - from >= 88 * MS &&
              now_ns(CLOCK_MONOTONIC) - from < 88 * MS + PATIENCE);
        t = (struct timespec){ 1, 0 };          /* long ago */
        CHECK(futex_(&w, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &t, NULL, 1) == -ETIMEDOUT);
        CHECK(futex_(&w, FUTEX_WAIT_BITSET, 0, &t, NULL, 1) == -ETIMEDOUT);
}

static void wake_counts(void)
{
        static _Atomic uint32_t w;
        struct sleeper s[6];

        for (int i = 0; i < 6; i++)
                put_to_sleep(&s[i], &w, FUTEX_WAIT_PRIVATE, 0);
        CHECK(futex_(&w, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0) == 2);
        CHECK(BECOMES(awake(s, 6) == 2));
        sleep_ms(5);
        CHECK(awake(s, 6) == 2);
        CHECK(futex_(&w, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
        CHECK(futex_(&w, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0) == 3);
        CHECK(futex_(&w, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0) == 0);
        for (int i = 0; i < 6; i++) {
                finish(s[i].id);
                CHECK(s[i].result == 0);
        }
}

static void bits(void)
{
        static _Atomic uint32_t w;
        struct sleeper s[4];

        for (int i = 0; i < 4; i++)
                put_to_sleep(&s[i], &w, i == 3 ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT_BITSET_PRIVATE,
                             1u << i);
        CHECK(futex_(&w, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, 1u << 2) ==
              2); /* FUTEX_WAIT has all bits */
        CHECK(BECOMES(s[2].done && s[3].done));
        CHECK(!s[0].done && !s[1].done);
        CHECK(futex_(&w, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, 1u << 31) == 0);
        CHECK(futex_(&w, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, 3) == 1);
        CHECK(futex_(&w, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0) == 1);
        for (int i = 0; i < 4; i++)
                finish(s[i].id);
}

/* What FUTEX_WAKE_OP does to a word. */
static uint32_t operated(uint32_t old, int op, uint32_t arg)
{
        switch (op) {
        case FUTEX_OP_SET: return arg;
        case FUTEX_OP_ADD: return old + arg;
        case FUTEX_OP_OR: return old | arg;
        case FUTEX_OP_ANDN: return old & ~arg;
        default: return old ^ arg;
        }
}

static bool compared(int32_t old, int cmp, int32_t with)
{
        switch (cmp) {
        case FUTEX_OP_CMP_EQ: return old == with;
        case FUTEX_OP_CMP_NE: return old != with;
        case FUTEX_OP_CMP_LT: return old < with;
        case FUTEX_OP_CMP_LE: return old <= with;
        case FUTEX_OP_CMP_GT: return old > with;
        default: return old >= with;
        }
}

/*
 * All operations and comparisons, with positive and negative numbers: is the word right, is a
 * sleeper there woken just then?
 */
static void wake_op(void)
{
        static const uint32_t olds[] = { 0, 6, (uint32_t)-3, 0x80000000 };
        static _Atomic uint32_t first, second;
        struct sleeper s;
        bool asleep = false;
        int step = effort < 100 ? 3 : 1;

        for (int op = 0; op < 10; op++)
                for (int cmp = op % step; cmp < 6; cmp += step)
                        for (size_t i = 0; i < sizeof(olds) / sizeof(olds[0]); i++) {
                                int32_t arg = i & 1 ? 5 : op < 5 ? -2 : 31, with = i < 2 ? 6 : -3;
                                int code =
                                        (int)((uint32_t)op % 5 << 28 | (op >= 5) * 0x80000000u |
                                              (uint32_t)cmp << 24 | ((uint32_t)arg & 0xfff) << 12 |
                                              ((uint32_t)with & 0xfff));
                                bool wakes = compared((int32_t)olds[i], cmp, with);
                                if (!asleep)
                                        put_to_sleep(&s, &second, FUTEX_WAIT_PRIVATE, 0);
                                second = olds[i];
                                long n = futex_(&first, FUTEX_WAKE_OP_PRIVATE, 1, (void *)5,
                                                &second, (uint32_t)code);
                                CHECK(n == wakes);
                                CHECK(second == operated(olds[i], op % 5,
                                                         op >= 5 ? 1u << arg : (uint32_t)arg));
                                if (wakes)
                                        finish(s.id);
                                asleep = !wakes;
                        }
        if (asleep) {
                CHECK(futex_(&second, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
                finish(s.id);
        }
        struct sleeper both[4];
        for (int i = 0; i < 4; i++)
                put_to_sleep(&both[i], i < 2 ? &first : &second, FUTEX_WAIT_PRIVATE, 0);
        second = 0;
        CHECK(futex_(&first, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second,
                     FUTEX_OP(FUTEX_OP_SET, 0, FUTEX_OP_CMP_EQ, 0)) == 2);
        CHECK(futex_(&first, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second,
                     FUTEX_OP(FUTEX_OP_SET, 0, FUTEX_OP_CMP_NE, 0)) == 1);
        CHECK(futex_(&second, FUTEX_WAKE_PRIVATE, 9, NULL, NULL, 0) == 1);
        for (int i = 0; i < 4; i++)
                finish(both[i].id);
}

/* No waiter is lost. More than on Linux may be woken at once: waiters must expect that anyway. */
static void requeue(void)
{
        static _Atomic uint32_t w[2] = { 1, 1 };
        struct sleeper s[5];

        for (int op = FUTEX_REQUEUE; op <= FUTEX_CMP_REQUEUE; op++) {
                for (int i = 0; i < 5; i++)
                        put_to_sleep(&s[i], &w[0], FUTEX_WAIT_PRIVATE, 0);
                long n = futex_(&w[0], op | FUTEX_PRIVATE_FLAG, 1, (void *)2, &w[1], 1);
                CHECK(n >= 1 && n <= 3);
                CHECK(BECOMES(awake(s, 5) >= 1));
                CHECK(awake(s, 5) <= 3);
                CHECK(futex_(&w[0], FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0) == 2);
                futex_(&w[1], FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
                for (int i = 0; i < 5; i++) {
                        finish(s[i].id);
                        CHECK(s[i].result == 0);
                }
        }
}

/* Through memory that is mapped twice only a shared futex is found. */
static void shared_words(void)
{
        FILE *f = tmpfile();
        _Atomic uint32_t *a, *b, *c;
        struct sleeper s;

        CHECK(f && ftruncate(fileno(f), 4096) == 0);
        a = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
        b = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
        c = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        put_to_sleep(&s, a, FUTEX_WAIT, 0);
        CHECK(futex_(b, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
        finish(s.id);
        put_to_sleep(&s, c, FUTEX_WAIT, 0);
        CHECK(futex_(c, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
        finish(s.id);
        put_to_sleep(&s, c, FUTEX_WAIT_PRIVATE, 0);
        CHECK(futex_(c, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
        finish(s.id);
        static _Atomic uint32_t own;
        put_to_sleep(&s, &own, FUTEX_WAIT, 0);          /* private memory, but not said so */
        CHECK(futex_(&own, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
        finish(s.id);
        munmap(a, 4096);
        munmap(b, 4096);
        munmap(c, 4096);
        fclose(f);
}

static _Atomic int handled;
static void handler(int sig) { (void)sig; handled++; }

static void interrupted(void)
{
        static _Atomic uint32_t w;
        struct sigaction sa = { .sa_handler = handler };
        struct timespec late = { 30, 0 };
        struct sleeper s;

        /* without and with SA_RESTART; with it and a timeout, which Linux does not restart */
        for (int way = 0; way < 3; way++) {
                sa.sa_flags = way ? SA_RESTART : 0;
                sigaction(SIGUSR1, &sa, NULL);
                handled = 0;
                s = (struct sleeper){ .word = &w,
                                      .op = FUTEX_WAIT_PRIVATE,
                                      .timeout = way == 2 ? &late : NULL };
                s.id = start(sleeps, &s);
                CHECK(BECOMES(s.tid != 0) && falls_asleep(s.tid));
                pthread_kill(s.id, SIGUSR1);
                CHECK(BECOMES(handled == 1));
                if (way == 1) {
                        CHECK(falls_asleep(s.tid) && !s.done);
                        CHECK(futex_(&w, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
                }
                finish(s.id);
                CHECK(s.result == (way == 1 ? 0 : -EINTR));
        }
        signal(SIGUSR1, SIG_DFL);
}

/* A word on a page that is evicted while no thread waits, and must stay while a thread does. */
static void among_far_pages(void)
{
        enum { SIZE = 16 << 20 };
        char *big = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct sleeper s[4];

        CHECK(big != MAP_FAILED);
        for (int turn = 0; turn < 5; turn++) {
                _Atomic uint32_t *w = (void *)(big + turn * (1 << 20));
                for (int i = 0; i < 4; i++)
                        put_to_sleep(&s[i], w + i * 1024, FUTEX_WAIT_PRIVATE, 0);
                for (int i = 0; i < SIZE; i += 4096)
                        big[i + 2048] = (char)turn;
                for (int i = 0; i < 4; i++)
                        CHECK(futex_(w + i * 1024, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
                for (int i = 0; i < 4; i++)
                        finish(s[i].id);
        }
        munmap(big, SIZE);
}

const struct test futex_tests[] = {
        { "futex", "errors", errors },
        { "futex", "timeouts", timeouts },
        { "futex", "numbers to wake", wake_counts },
        { "futex", "bits", bits },
        { "futex", "WAKE_OP", wake_op },
        { "futex", "REQUEUE", requeue },
        { "futex", "shared memory", shared_words },
        { "futex", "signals", interrupted },
        { "futex", "words among far pages", among_far_pages },
        { NULL, NULL, NULL }
};
