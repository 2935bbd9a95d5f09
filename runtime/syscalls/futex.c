/*
 * futex: uses the host's futex on the word's memory, which keeps its host address while a thread
 * waits there (gmem_word).
 *
 * Two threads that use one word use one host address: a page has one frame, and the frame of a page
 * with waiters is pinned.  So a waker need not make the page resident: if the page is not, no
 * thread waits.  In the arena of MAP_SHARED mappings the host address is in the shared page itself,
 * so futexes work across processes.
 *
 * Requeueing is done by waking: if the kernel moved a sleeper to another word, that word's frame
 * would not be pinned.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include "base/message.h"
#include "marshal/call.h"
#include "marshal/row.h"
#include "process/robust.h"
#include "syscalls/handlers.h"

#define LOCK_PI2 13                     /* FUTEX_LOCK_PI2, Linux 5.14 */

/* Copies the timeout at addr to *ts.  0, or -errno; *p NULL: no timeout. */
static long read_timeout(struct thread *t, uint64_t addr, struct timespec *ts, struct timespec **p)
{
        *p = addr ? ts : NULL;
        if (addr && gmem_read(t, ts, addr, sizeof(*ts)))
                return -EFAULT;
        return addr && (ts->tv_sec < 0 || (uint64_t)ts->tv_nsec >= 1000000000) ? -EINVAL : 0;
}

static long on_word(struct thread *t, const uint64_t a[6], int op, bool write,
                    const struct timespec *ts)
{
        struct gmem_word w;
        long ret = futex_bad_word(a[0]);

        if (ret || (ret = gmem_word(t, a[0], write, &w)) != 0)
                return ret;
        if (futex_cannot_be_shared(t, a[0], a[1], &w))
                ret = -EFAULT;
        else
                ret = sys_raw(__NR_futex, P(w.host), (uint64_t)op | futex_flags(&w, a[1]), a[2],
                              P(ts), 0, a[5]);
        gmem_word_drop(t, &w, write);
        return ret;
}

static long futex_wait(struct thread *t, const uint64_t a[6], int op)
{
        struct timespec ts, *p;
        long ret;

        if (op == FUTEX_WAIT_BITSET && !(uint32_t)a[5])
                return -EINVAL;
        ret = read_timeout(t, a[3], &ts, &p);
        return ret ? ret : on_word(t, a, op, false, p);
}

/* Changes the word as FUTEX_WAKE_OP's code says, and compares its old value.  1 or 0: the
 * comparison; -ENOSYS: an unknown one. */
static long operate(_Atomic uint32_t *word, uint32_t code)
{
        int32_t arg = (int32_t)(code << 8) >> 20, compared = (int32_t)(code << 20) >> 20;
        uint32_t old = atomic_load(word), new;

        if (code >> 31)
                arg = (int32_t)(1u << (arg & 31));
        do {
                switch (code >> 28 & 7) {
                case FUTEX_OP_SET:  new = (uint32_t)arg; break;
                case FUTEX_OP_ADD:  new = old + (uint32_t)arg; break;
                case FUTEX_OP_OR:   new = old | (uint32_t)arg; break;
                case FUTEX_OP_ANDN: new = old & ~(uint32_t)arg; break;
                case FUTEX_OP_XOR:  new = old ^ (uint32_t)arg; break;
                default: return -ENOSYS;
                }
        } while (!atomic_compare_exchange_weak(word, &old, new));
        switch (code >> 24 & 15) {
        case FUTEX_OP_CMP_EQ: return (int32_t)old == compared;
        case FUTEX_OP_CMP_NE: return (int32_t)old != compared;
        case FUTEX_OP_CMP_LT: return (int32_t)old < compared;
        case FUTEX_OP_CMP_GE: return (int32_t)old >= compared;
        case FUTEX_OP_CMP_LE: return (int32_t)old <= compared;
        case FUTEX_OP_CMP_GT: return (int32_t)old > compared;
        default: return -ENOSYS;
        }
}

static long wake_op(struct thread *t, const uint64_t a[6])
{
        struct gmem_word w;
        long woken, more, ret = futex_bad_word(a[0]);

        if (ret || (ret = futex_bad_word(a[4])) != 0 || (ret = gmem_word(t, a[4], true, &w)) != 0)
                return ret;
        ret = operate((_Atomic uint32_t *)w.host, (uint32_t)a[5]);
        gmem_word_drop(t, &w, ret >= 0);
        if (ret < 0)
                return ret;
        woken = futex_wake_as(t, a[0], (a[1] & FUTEX_PRIVATE_FLAG) | FUTEX_WAKE, a[2], 0);
        if (woken < 0 || !ret)
                return woken;
        more = futex_wake_as(t, a[4], (a[1] & FUTEX_PRIVATE_FLAG) | FUTEX_WAKE, a[3], 0);
        return more < 0 ? more : woken + more;
}

static long requeue(struct thread *t, const uint64_t a[6], bool compare)
{
        uint32_t word;
        long ret;

        if ((int32_t)a[2] < 0 || (int32_t)a[3] < 0)
                return -EINVAL;
        if ((ret = futex_bad_key(t, a[0], a[1])) != 0 || (ret = futex_bad_key(t, a[4], a[1])) != 0)
                return ret;
        if (compare && gmem_read(t, &word, a[0], 4))
                return -EFAULT;
        if (compare && word != (uint32_t)a[5])
                return -EAGAIN;
        uint64_t n = (uint64_t)(uint32_t)a[2] + (uint32_t)a[3];
        return futex_wake_as(t, a[0], (a[1] & FUTEX_PRIVATE_FLAG) | FUTEX_WAKE,
                             n > INT_MAX ? INT_MAX : n, 0);
}

static long lock_pi(struct thread *t, const uint64_t a[6], int op)
{
        struct timespec ts, *p;
        long ret = read_timeout(t, a[3], &ts, &p);

        return ret ? ret : on_word(t, a, op, true, p);
}

/* Both words are held until the call is over, so a requeued sleeper keeps its frame: the kernel
 * only moves threads that wait by WAIT_REQUEUE_PI. */
static long on_two_words(struct thread *t, const uint64_t a[6], int op, uint64_t arg3)
{
        struct gmem_word w, v;
        long ret = futex_bad_word(a[0]);

        if (ret || (ret = futex_bad_word(a[4])) != 0 || (ret = gmem_word(t, a[0], false, &w)) != 0)
                return ret;
        ret = gmem_word(t, a[4], true, &v);
        if (ret == 0) {
                if (gmem_word_shared(&w) != gmem_word_shared(&v))
                        ret = -EINVAL;
                else
                        ret = sys_raw(__NR_futex, P(w.host), (uint64_t)op | futex_flags(&w, a[1]),
                                      a[2], arg3, P(v.host), a[5]);
                gmem_word_drop(t, &v, true);
        }
        gmem_word_drop(t, &w, false);
        return ret;
}

long sys_futex(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int op = (int)a[1] & FUTEX_CMD_MASK;
        struct timespec ts, *p;
        long ret;

        (void)row;
        if ((a[1] & FUTEX_CLOCK_REALTIME) && op != FUTEX_WAIT_BITSET &&
            op != FUTEX_WAIT_REQUEUE_PI && op != LOCK_PI2)
                return -ENOSYS;
        switch (op) {
        case FUTEX_WAIT: case FUTEX_WAIT_BITSET:
                return futex_wait(t, a, op);
        case FUTEX_WAKE:
                return futex_wake_as(t, a[0], a[1], a[2], 0);
        case FUTEX_WAKE_BITSET:
                return (uint32_t)a[5] ? futex_wake_as(t, a[0], a[1], a[2], (uint32_t)a[5])
                                      : -EINVAL;
        case FUTEX_WAKE_OP:
                return wake_op(t, a);
        case FUTEX_REQUEUE: case FUTEX_CMP_REQUEUE:
                return requeue(t, a, op == FUTEX_CMP_REQUEUE);
        case FUTEX_LOCK_PI: case LOCK_PI2:
                return lock_pi(t, a, op);
        case FUTEX_TRYLOCK_PI: case FUTEX_UNLOCK_PI:
                return on_word(t, a, op, true, NULL);
        case FUTEX_WAIT_REQUEUE_PI:
                ret = read_timeout(t, a[3], &ts, &p);
                return ret ? ret : on_two_words(t, a, op, P(p));
        case FUTEX_CMP_REQUEUE_PI:
                return on_two_words(t, a, op, a[3]);
        }
        info_once(0x50000 + (unsigned)op, "futex operation %d is not supported: ENOSYS", op);
        return -ENOSYS;
}

/* ---- robust lists: the kernel's duty for a thread that ends and holds locks
 * (Documentation/locking/robust-futexes.rst) ---- */
