/*
 * futex (runtime/syscalls/futex.c) and robust lists without a host: the program's memory is an
 * array, of which the second half is shared with other processes, and the host's futex notes its
 * calls.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "base/message.h"
#include "marshal/call.h"
#include "marshal/row.h"
#include "process/robust.h"
#include "syscalls/handlers.h"

#define BASE   0x10000000ull            /* of the program's memory */
#define WORDS  8192
#define SHARED (WORDS / 2)              /* the first shared word */
#define AT(i)  (BASE + (i) * 4ull)
#define TID    77

static _Alignas(4096) uint32_t memory[WORDS];
static bool absent;                     /* no page is resident until it is asked for */
static bool read_only;
static int held, wrote;                 /* words that are held; how many were dropped as written */

/* A call of the host's futex. */
static struct call {
        uint64_t word, op, n, bits, ts, second;
        struct timespec timeout;
} calls[16];
static unsigned ncalls;
static uint32_t waiters[WORDS];         /* at each word */
static long answer;                     /* to a call that is no wake-up */

_Thread_local _Atomic uint32_t sys_put_off;
static struct thread self;
_Thread_local struct thread *thread_self = &self;
_Atomic uint32_t threads_stopping;
void threads_tell_stopper(void) {}
void threads_wait_to_go(struct thread *t) { (void)t; }

void info_once(unsigned long key, const char *fmt, ...) { (void)key; (void)fmt; }

static bool is_there(uint64_t a, size_t n) { return a >= BASE && a + n <= AT(WORDS); }

int gmem_read(struct thread *t, void *dst, uint64_t src, size_t n)
{
        (void)t;
        if (!is_there(src, n))
                return -EFAULT;
        memcpy(dst, (char *)memory + (src - BASE), n);
        return 0;
}

int gmem_check(struct thread *t, uint64_t addr, size_t n, bool write)
{
        (void)t;
        return is_there(addr, n) && !(write && read_only) ? 0 : -EFAULT;
}

int gmem_word(struct thread *t, uint64_t addr, bool write, struct gmem_word *w)
{
        if (gmem_check(t, addr, 4, write))
                return -EFAULT;
        *w = (struct gmem_word){ .host = &memory[(addr - BASE) / 4] };
        held++;
        return 0;
}

bool gmem_word_here(struct thread *t, uint64_t addr, struct gmem_word *w)
{
        return !absent && gmem_word(t, addr, false, w) == 0;
}

bool gmem_word_shared(const struct gmem_word *w) { return w->host >= memory + SHARED; }

void gmem_word_drop(struct thread *t, const struct gmem_word *w, bool did_write)
{
        (void)t;
        assert_non_null(w->host);
        held--;
        wrote += did_write;
}

static long host_futex(const uint64_t a[6])
{
        struct call *c = &calls[ncalls++];
        uint64_t op = a[1] & FUTEX_CMD_MASK;
        uint32_t *word = (uint32_t *)(uintptr_t)a[0];

        assert_true(ncalls <= 16 && held > 0);
        assert_true(word >= memory && word < memory + WORDS);
        *c = (struct call){ (uint64_t)(word - memory), a[1], a[2], a[5], a[3], a[4], { 0 } };
        if (op == FUTEX_WAKE || op == FUTEX_WAKE_BITSET) {
                uint32_t n = a[2] < waiters[c->word] ? (uint32_t)a[2] : waiters[c->word];
                waiters[c->word] -= n;
                return n;
        }
        if (a[3] > INT_MAX)
                memcpy(&c->timeout, (void *)(uintptr_t)a[3], sizeof(c->timeout));
        return answer;
}

long sys_own(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
        assert_int_equal(nr, __NR_futex);
        return host_futex((const uint64_t[6]){ a0, a1, a2, a3, a4, a5 });
}

long sys_enter(const _Atomic uint32_t *word, long nr, const uint64_t a[6])
{
        assert_ptr_equal(word, &sys_put_off);
        assert_int_equal(nr, __NR_futex);
        return host_futex(a);
}

static int setup(void **state)
{
        (void)state;
        memset(memory, 0, sizeof(memory));
        memset(waiters, 0, sizeof(waiters));
        memset(calls, 0, sizeof(calls));
        ncalls = 0;
        absent = read_only = false;
        held = wrote = 0;
        answer = 0;
        return 0;
}

/* Nothing stays held, whatever happened. */
static int teardown(void **state)
{
        (void)state;
        return held;
}

static long futex(uint64_t addr, uint64_t op, uint64_t n, uint64_t ts, uint64_t second,
                  uint64_t last)
{
        static const struct sys_row row = { .nr = __NR_futex };
        return sys_futex(NULL, &row, (const uint64_t[6]){ addr, op, n, ts, second, last });
}
#define OWN(op) ((op) | FUTEX_PRIVATE_FLAG)

static void set_time(unsigned i, time_t s, long ns)
{
        struct timespec t = { s, ns };
        memcpy(&memory[i], &t, sizeof(t));
}

static void test_wait(void **state)
{
        (void)state;
        set_time(8, 5, 999999999);
        answer = -ETIMEDOUT;
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAIT), 3, AT(8), 0, 0), -ETIMEDOUT);
        assert_int_equal(ncalls, 1);
        assert_int_equal(calls[0].word, 1);
        assert_int_equal(calls[0].op, OWN(FUTEX_WAIT));
        assert_int_equal(calls[0].n, 3);
        assert_int_equal(calls[0].timeout.tv_sec, 5);
        assert_int_equal(calls[0].timeout.tv_nsec, 999999999);
        answer = 0;
        assert_int_equal(futex(AT(1), FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 3, 0, 0, 6), 0);
        /* The host need not look for other processes at memory that is ours alone. */
        assert_int_equal(calls[1].op, OWN(FUTEX_WAIT_BITSET) | FUTEX_CLOCK_REALTIME);
        assert_int_equal(calls[1].bits, 6);
        assert_int_equal(calls[1].ts, 0);
        assert_int_equal(futex(AT(SHARED), OWN(FUTEX_WAIT), 3, 0, 0, 0), 0);
        assert_int_equal(calls[2].op, FUTEX_WAIT);
        assert_int_equal(wrote, 0);
}

static void test_wait_refused(void **state)
{
        (void)state;
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAIT_BITSET), 0, 0, 0, 0), -EINVAL);
        assert_int_equal(futex(AT(1) + 2, OWN(FUTEX_WAIT), 0, 0, 0, 0), -EINVAL);
        assert_int_equal(futex(BASE - 4, OWN(FUTEX_WAIT), 0, 0, 0, 0), -EFAULT);
        assert_int_equal(futex(TASK_SIZE, OWN(FUTEX_WAIT), 0, 0, 0, 0), -EFAULT);
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAIT), 0, 4, 0, 0), -EFAULT);
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAIT) | FUTEX_CLOCK_REALTIME, 0, 0, 0, 0), -ENOSYS);
        set_time(8, 0, 1000000000);
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAIT), 0, AT(8), 0, 0), -EINVAL);
        set_time(8, -1, 0);
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAIT), 0, AT(8), 0, 0), -EINVAL);
        assert_int_equal(futex(AT(1), OWN(99), 0, 0, 0, 0), -ENOSYS);
        /* A word that shall be shared but is not: its page must be writable to be named. */
        read_only = true;
        assert_int_equal(futex(AT(1), FUTEX_WAIT, 0, 0, 0, 0), -EFAULT);
        assert_int_equal(ncalls, 0);
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAIT), 0, 0, 0, 0), 0);
        assert_int_equal(ncalls, 1);
}

static void test_wake(void **state)
{
        (void)state;
        waiters[1] = waiters[SHARED] = 3;
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAKE), 2, 0, 0, 0), 2);
        assert_int_equal(calls[0].op, OWN(FUTEX_WAKE));
        assert_int_equal(futex(AT(SHARED), FUTEX_WAKE_BITSET, INT_MAX, 0, 0, 5), 3);
        assert_int_equal(calls[1].op, FUTEX_WAKE_BITSET);
        assert_int_equal(calls[1].bits, 5);
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAKE_BITSET), 1, 0, 0, 0), -EINVAL);
        assert_int_equal(futex(AT(1) + 1, OWN(FUTEX_WAKE), 1, 0, 0, 0), -EINVAL);
        /* No thread waits at a page that is not resident, nor at a page that is not mapped. */
        assert_int_equal(futex(BASE - 4, OWN(FUTEX_WAKE), 1, 0, 0, 0), 0);
        assert_int_equal(futex(BASE - 4, FUTEX_WAKE, 1, 0, 0, 0), -EFAULT);
        absent = true;
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAKE), 1, 0, 0, 0), 0);
        assert_int_equal(ncalls, 2);
}

static void test_wake_op(void **state)
{
        static const struct { uint32_t op, arg, cmp, with, old, new; bool holds; } row[] = {
                { FUTEX_OP_SET, 7, FUTEX_OP_CMP_EQ, 5, 5, 7, true },
                { FUTEX_OP_ADD, 0xfff, FUTEX_OP_CMP_EQ, 4, 5, 4, false },       /* minus 1 */
                { FUTEX_OP_OR, 6, FUTEX_OP_CMP_NE, 4, 5, 7, true },
                { FUTEX_OP_ANDN, 4, FUTEX_OP_CMP_NE, 5, 5, 1, false },
                { FUTEX_OP_XOR, 6, FUTEX_OP_CMP_LT, 6, 5, 3, true },
                { FUTEX_OP_SET, 0, FUTEX_OP_CMP_LT, 5, 5, 0, false },
                { FUTEX_OP_SET, 0, FUTEX_OP_CMP_LE, 5, 5, 0, true },
                { FUTEX_OP_SET, 0, FUTEX_OP_CMP_LE, 4, 5, 0, false },
                { FUTEX_OP_SET, 0, FUTEX_OP_CMP_GT, 4, 5, 0, true },
                { FUTEX_OP_SET, 0, FUTEX_OP_CMP_GT, 5, 5, 0, false },
                { FUTEX_OP_SET, 0, FUTEX_OP_CMP_GE, 5, 5, 0, true },
                { FUTEX_OP_SET, 0, FUTEX_OP_CMP_GE, 6, 5, 0, false },
                /* Signed, with the operands' own signs. */
                { FUTEX_OP_SET, 0, FUTEX_OP_CMP_LT, 0xfff, 0xfffffffe, 0, true },
                /* A bit instead of a number. */
                { FUTEX_OP_OR | 8, 4, FUTEX_OP_CMP_EQ, 5, 5, 21, true },
        };

        (void)state;
        for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
                uint32_t code = row[i].op << 28 | row[i].cmp << 24 | row[i].arg << 12 | row[i].with;
                setup(NULL);
                memory[2] = row[i].old;
                waiters[1] = 2, waiters[2] = 3;
                assert_int_equal(futex(AT(1), OWN(FUTEX_WAKE_OP), 1, 2, AT(2), code),
                                 row[i].holds ? 3 : 1);
                assert_int_equal(memory[2], row[i].new);
                assert_int_equal(waiters[1], 1);
                assert_int_equal(waiters[2], row[i].holds ? 1 : 3);
                assert_int_equal(wrote, 1);
        }
        setup(NULL);
        memory[2] = 5;
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAKE_OP), 1, 2, AT(2), 5u << 28), -ENOSYS);
        assert_int_equal(memory[2], 5);
        assert_int_equal(futex(AT(1) + 1, OWN(FUTEX_WAKE_OP), 1, 2, AT(2), 0), -EINVAL);
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAKE_OP), 1, 2, AT(2) + 1, 0), -EINVAL);
        assert_int_equal(ncalls, 0);
}

/* By waking: a woken thread looks at the word again. */
static void test_requeue(void **state)
{
        (void)state;
        waiters[1] = 9;
        memory[1] = 4;
        assert_int_equal(futex(AT(1), OWN(FUTEX_REQUEUE), 1, 2, AT(2), 0), 3);
        assert_int_equal(calls[0].word, 1);
        assert_int_equal(futex(AT(1), OWN(FUTEX_CMP_REQUEUE), 1, 3, AT(2), 4), 4);
        assert_int_equal(futex(AT(1), OWN(FUTEX_CMP_REQUEUE), 1, 1, AT(2), 5), -EAGAIN);
        assert_int_equal(futex(AT(1), OWN(FUTEX_REQUEUE), UINT32_MAX, 1, AT(2), 0), -EINVAL);
        assert_int_equal(futex(AT(1), OWN(FUTEX_REQUEUE), 1, UINT32_MAX, AT(2), 0), -EINVAL);
        assert_int_equal(futex(AT(1), OWN(FUTEX_REQUEUE), 1, 1, AT(2) + 1, 0), -EINVAL);
        assert_int_equal(ncalls, 2);
        assert_int_equal(futex(AT(1), OWN(FUTEX_REQUEUE), INT_MAX, INT_MAX, AT(2), 0), 2);
        assert_int_equal(calls[2].n, INT_MAX);
        assert_int_equal(futex(BASE - 4, OWN(FUTEX_CMP_REQUEUE), 1, 1, AT(2), 0), -EFAULT);
}

static void test_pi(void **state)
{
        (void)state;
        set_time(8, 1, 1);
        assert_int_equal(futex(AT(1), OWN(FUTEX_LOCK_PI), 0, AT(8), 0, 0), 0);
        assert_int_equal(calls[0].op, OWN(FUTEX_LOCK_PI));
        assert_int_equal(calls[0].timeout.tv_nsec, 1);
        assert_int_equal(futex(AT(1), OWN(FUTEX_UNLOCK_PI), 0, 0, 0, 0), 0);
        assert_int_equal(wrote, 2);
        assert_int_equal(futex(AT(1), OWN(FUTEX_WAIT_REQUEUE_PI), 7, AT(8), AT(2), 0), 0);
        assert_int_equal(calls[2].timeout.tv_sec, 1);
        assert_int_equal(calls[2].second, (uintptr_t)&memory[2]);
        assert_int_equal(futex(AT(1), OWN(FUTEX_CMP_REQUEUE_PI), 1, 5, AT(2), 7), 0);
        assert_int_equal(calls[3].ts, 5);       /* a number here */
        assert_int_equal(futex(AT(1), FUTEX_CMP_REQUEUE_PI, 1, 5, AT(SHARED), 7), -EINVAL);
        assert_int_equal(ncalls, 4);
        read_only = true;
        assert_int_equal(futex(AT(1), OWN(FUTEX_LOCK_PI), 0, 0, 0, 0), -EFAULT);
}

/* --- robust lists --- */

#define HEAD 100                        /* of the list: next, offset, pending; and its entries */
static void set64(unsigned i, uint64_t v) { memcpy(&memory[i], &v, 8); }

/* A list of the locks at 200, 210 and so on, each of which has its word 8 bytes after its entry. */
static void make_list(unsigned n, uint64_t pending)
{
        set64(HEAD, n ? AT(200) : AT(HEAD));
        set64(HEAD + 2, 8);
        set64(HEAD + 4, pending);
        for (unsigned i = 0; i < n; i++)
                set64(200 + 10 * i, i + 1 < n ? AT(210 + 10 * i) : AT(HEAD));
}

static void test_robust_list(void **state)
{
        (void)state;
        make_list(4, 0);
        memory[202] = TID;
        memory[212] = TID | FUTEX_WAITERS;
        memory[222] = TID + 1;
        memory[232] = TID | FUTEX_WAITERS;
        waiters[212] = waiters[222] = waiters[232] = 3;
        robust_list_end(NULL, AT(HEAD), TID);
        assert_int_equal(memory[202], FUTEX_OWNER_DIED);
        assert_int_equal(memory[212], FUTEX_OWNER_DIED | FUTEX_WAITERS);
        assert_int_equal(memory[222], TID + 1);
        assert_int_equal(memory[232], FUTEX_OWNER_DIED | FUTEX_WAITERS);
        assert_int_equal(waiters[212], 2);
        assert_int_equal(waiters[222], 3);
        assert_int_equal(waiters[232], 2);
        assert_int_equal(wrote, 3);
        robust_list_end(NULL, 0, TID);
        robust_list_end(NULL, BASE - 4096, TID);
}

/* The lock that was being taken or released: it may be in the list, or not. */
static void test_robust_pending(void **state)
{
        (void)state;
        make_list(2, AT(210));
        memory[202] = TID;
        memory[212] = 0;                /* released, but no waiter was told yet */
        waiters[212] = 2;
        robust_list_end(NULL, AT(HEAD), TID);
        assert_int_equal(memory[212], 0);
        assert_int_equal(waiters[212], 1);
        assert_int_equal(ncalls, 1);
        setup(NULL);
        make_list(0, AT(300));
        memory[302] = TID | FUTEX_WAITERS;
        waiters[302] = 2;
        robust_list_end(NULL, AT(HEAD), TID);
        assert_int_equal(memory[302], FUTEX_OWNER_DIED | FUTEX_WAITERS);
        assert_int_equal(waiters[302], 1);
        /* Only for the pending lock: no thread is woken at a free lock of the list. */
        setup(NULL);
        make_list(1, 0);
        waiters[202] = 1;
        robust_list_end(NULL, AT(HEAD), TID);
        assert_int_equal(ncalls, 0);
}

/* The kernel wakes those itself. */
static void test_robust_pi(void **state)
{
        (void)state;
        make_list(1, 0);
        set64(HEAD, AT(200) | 1);
        memory[202] = TID | FUTEX_WAITERS;
        waiters[202] = 1;
        robust_list_end(NULL, AT(HEAD), TID);
        assert_int_equal(memory[202], FUTEX_OWNER_DIED | FUTEX_WAITERS);
        assert_int_equal(waiters[202], 1);
}

static void test_robust_garbage(void **state)
{
        (void)state;
        make_list(1, 0);
        set64(200, AT(200));            /* a ring without its head */
        memory[202] = TID;
        robust_list_end(NULL, AT(HEAD), TID);
        assert_int_equal(memory[202], FUTEX_OWNER_DIED);
        /* An entry that cannot be read is the last; the pending lock is not looked at either. */
        setup(NULL);
        make_list(2, AT(300));
        set64(200, BASE - 4096);
        memory[202] = memory[302] = TID;
        robust_list_end(NULL, AT(HEAD), TID);
        assert_int_equal(memory[202], FUTEX_OWNER_DIED);
        assert_int_equal(memory[302], TID);
        /* Not aligned. */
        setup(NULL);
        make_list(1, 0);
        set64(HEAD + 2, 9);
        memory[202] = TID, memory[203] = TID;
        robust_list_end(NULL, AT(HEAD), TID);
        assert_int_equal(memory[202], TID);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        const struct CMUnitTest tests[] = {
                TEST(test_wait), TEST(test_wait_refused), TEST(test_wake), TEST(test_wake_op),
                TEST(test_requeue), TEST(test_pi),
                TEST(test_robust_list), TEST(test_robust_pending), TEST(test_robust_pi),
                TEST(test_robust_garbage),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
