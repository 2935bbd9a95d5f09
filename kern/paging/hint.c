/*
 * The calls of libvmguest (hints.h): hints of a program about its memory.
 *
 * Except for vmg_read and vmg_wait, no call waits for a node or makes an exit, unless its own
 * arguments are far, or it adds or drops guides.  A hint changes no content: at worst a page comes
 * for nothing.
 */
#include <asm-generic/errno.h>
#include <stdatomic.h>
#include "base/exit.h"
#include "base/kern.h"
#include "base/page.h"
#include "base/state.h"
#include "hints.h"
#include "paging/access.h"
#include "paging/counted.h"
#include "paging/guide.h"
#include "paging/hint.h"
#include "paging/part.h"
#include "paging/prefetch.h"
#include "paging/priority.h"
#include "space/vma.h"

/* Pages of a range that one call looks at: at most some hundred of them can be asked for, and
 * meanwhile this vCPU does nothing else. */
#define LOOK_MOST 16384ul

struct iovec { uint64_t base, len; };

/* As Linux: -EFAULT for a range that no program can have mapped. */
static int check_range(uint64_t start, uint64_t len)
{
        return len > TASK_SIZE || start > TASK_SIZE - len ? -EFAULT : 0;
}

static uint32_t hinted(uint32_t asked)
{
        counters()[CNT_HINTED] += asked;
        return asked;
}

/* A call about several ranges.  look: pages that may still be looked at.  c: the word that counts
 * pages on their way; NULL: there is none.  counted: how many it counts. */
struct asking { uint64_t look; const struct counted *c; uint32_t counted; };

/* mark: see prefetch_range(). */
static long ask_range(struct asking *a, uint64_t start, uint64_t len, bool mark)
{
        uint64_t end = page_align(start + len), pages;

        if (len == 0)
                return 0;
        start &= ~(uint64_t)(PAGE_SIZE - 1);
        pages = (end - start) / PAGE_SIZE;
        if (pages > a->look)
                pages = a->look;
        a->look -= pages;
        end = start + pages * PAGE_SIZE;
        return hinted(a->c ? prefetch_counted(start, end, mark, a->c, &a->counted)
                           : prefetch_range(start, end, mark));
}

static long hint_prefetch(const uint64_t a[6])
{
        struct asking ask = { .look = LOOK_MOST };
        int err = check_range(a[0], a[1]);

        return err ? err : ask_range(&ask, a[0], a[1], guide_runs());
}

/* As many ranges as fit a vCPU's stack at a time. */
#define SOME 16

/* A guide is called again half-way through the pages that it asks for: then there is time for the
 * next pages, and the first uses of the other pages cost no fault. */
static long ask_ranges(const uint64_t a[6], struct asking *ask)
{
        struct iovec range[SOME];
        uint64_t at = a[0], left = a[1];
        bool mark = guide_runs();
        long asked = 0;

        if (left > HINTS_RANGES)
                return -EINVAL;
        while (left) {
                uint64_t n = left < SOME ? left : SOME;
                int err = kern_copy_in(range, at, n * sizeof(range[0]));
                if (err)
                        return err;
                for (uint64_t i = 0; i < n; i++) {
                        if (check_range(range[i].base, range[i].len) != 0)
                                return -EFAULT;
                        bool half = mark && left - i <= a[1] - a[1] / 2;
                        long n_asked = ask_range(ask, range[i].base, range[i].len, half);
                        mark &= !(half && n_asked);
                        asked += n_asked;
                }
                at += n * sizeof(range[0]);
                left -= n;
        }
        return asked;
}

static long hint_prefetchv(const uint64_t a[6])
{
        struct asking ask = { .look = LOOK_MOST };

        return ask_ranges(a, &ask);
}

static long hint_counted(const uint64_t a[6])
{
        struct counted c;
        struct asking ask = { .look = LOOK_MOST, .c = &c };
        long ret = a[1] > HINTS_RANGES ? -EINVAL : counted_open(a[2], &c);

        if (ret)
                return ret;
        ret = ask_ranges(a, &ask);
        counted_close(&c, ask.counted > 0);
        return ret < 0 ? ret : ask.counted;
}

static long hint_wait(const uint64_t a[6])
{
        if (a[1] & ~(uint64_t)HINT_WAIT_LOOK)
                return -EINVAL;
        return a[1] ? counted_look(a[0]) : counted_wait(a[0]);
}

static uint64_t size_of(int64_t stride)
{
        return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

static long hint_stream(const uint64_t a[6])
{
        uint64_t start = a[0], len = a[1], first, last;
        int64_t stride = (int64_t)a[2], pages;
        int err = check_range(start, len);

        if (err)
                return err;
        if (stride == 0)
                return -EINVAL;
        if (len == 0)
                return 0;
        first = stride < 0 ? start + len - 1 : start;
        last = stride < 0 ? start : start + len - 1;
        /* In pages; a stride that is no multiple of a page is taken for the next smaller one. */
        pages = (int64_t)(size_of(stride) / PAGE_SIZE);
        if (pages == 0)
                pages = 1;
        first /= PAGE_SIZE;
        last /= PAGE_SIZE;
        uint64_t steps = (stride < 0 ? first - last : last - first) / (uint64_t)pages + 1;
        return hinted(prefetch_stream(first * PAGE_SIZE, stride < 0 ? -pages : pages, steps));
}

static uint64_t sum(enum vcpu_counter c)
{
        uint64_t total = 0;
        uint32_t n = atomic_load_explicit(&control.nvcpus, memory_order_acquire);

        for (uint32_t i = 0; i < n; i++)
                total += vcpu_stats(vcpu_block(i))->counter[c];
        return total;
}

static long hint_stats(const uint64_t a[6])
{
        uint64_t number[HINT_NUMBERS] = {
                [HINT_CACHE] = pager.nframes,
                [HINT_CACHE_FREE] = atomic_load_explicit(&pager.nfree, memory_order_relaxed),
                [HINT_FETCHED] = sum(CNT_FETCHED),
                [HINT_PREFETCHED] = sum(CNT_PREFETCHED),
                [HINT_PREFETCH_USED] = sum(CNT_PREFETCH_HITS),
                [HINT_PREFETCH_LATE] = sum(CNT_PREFETCH_LATE),
                [HINT_PREFETCH_WASTED] = sum(CNT_PREFETCH_WASTED),
                [HINT_HINTED] = sum(CNT_HINTED),
                [HINT_EVICTED] = sum(CNT_EVICTED_CLEAN) + sum(CNT_EVICTED_DIRTY),
                [HINT_WRITTEN_BACK] = sum(CNT_WRITEBACK),
        };
        uint64_t n = a[1] < HINT_NUMBERS ? a[1] : HINT_NUMBERS;
        int err = kern_copy_out(a[0], number, n * sizeof(number[0]));

        return err ? err : HINT_NUMBERS;
}

static long hint_peek(const uint64_t a[6])
{
        char some[256];
        int err = a[2] > HINTS_PEEK ? -EINVAL : check_range(a[1], a[2]);

        if (!err && guide_runs() && guide_stack_has(a[0], a[2]))
                return kern_peek((void *)a[0], a[1], a[2]);
        for (uint64_t n, done = 0; !err && done < a[2]; done += n) {
                n = a[2] - done < sizeof(some) ? a[2] - done : sizeof(some);
                err = kern_peek(some, a[1] + done, n);
                if (!err)
                        err = kern_copy_out(a[0] + done, some, n);
        }
        return err;
}

static bool is_mapped(uint64_t start, uint64_t end)
{
        while (start < end) {
                const struct vma_node *n = vma_find(start);
                if (!n || n->v.start > start)
                        return false;
                start = n->v.end;
        }
        return true;
}

/* mm_lock: nothing of the range is unmapped between the look and guides_forget(). */
static int add_guide(struct guide *g)
{
        lock_take(&mm_lock);
        g->mapped = is_mapped(g->start, g->end);
        int err = guides_add(g);
        lock_drop(&mm_lock);
        return err;
}

static long hint_guide(const uint64_t a[6])
{
        struct guide g = { .start = a[0], .end = a[0] + a[1], .fn = a[2], .arg = a[3] };
        int err = check_range(a[0], a[1]);

        _Static_assert(sizeof(g.name) == HINTS_NAME, "abi_guide.h and hints.h agree");
        if (err)
                return err;
        if (a[1] == 0)
                return -EINVAL;
        if (check_range(a[2], 1) != 0)
                return -EFAULT;
        err = kern_copy_in(g.name, a[4], sizeof(g.name));
        if (err)
                return err;
        g.name[sizeof(g.name) - 1] = '\0';
        if (!control.guides && vmexit(EXIT_GUIDES, 0, 0, 0) != 0)
                return -EAGAIN;
        return add_guide(&g);
}

static long hint_guides(const uint64_t a[6])
{
        struct hint_guide g;
        int err = kern_copy_in(&g, a[0], sizeof(g));

        if (err || !guides_next(g.order, &g))
                return err;
        err = kern_copy_out(a[0], &g, sizeof(g));
        return err ? err : 1;
}

static long hint_unguide(const uint64_t a[6])
{
        int err = check_range(a[0], a[1]);

        return err ? err : (long)guides_drop(a[0], a[0] + a[1]);
}

static long hint_read(const uint64_t a[6])
{
        if ((a[3] & ~(uint64_t)HINT_READ_RAW) || a[0] + a[2] < a[0] || a[1] + a[2] < a[1])
                return -EINVAL;
        if (guide_runs() && a[2] > HINTS_PEEK)
                return -EINVAL;
        if (check_range(a[0], a[2]) != 0 || check_range(a[1], a[2]) != 0)
                return -EFAULT;
        return part_read(a[0], a[1], a[2], a[3] & HINT_READ_RAW);
}

static long hint_priority(const uint64_t a[6])
{
        static const pte_t bits[] = {
                [HINT_NORMAL] = 0, [HINT_HIGH] = PTE_HIGH, [HINT_LOW] = PTE_LOW
        };
        int err = a[2] > HINT_LOW ? -EINVAL : check_range(a[0], a[1]);

        if (err || a[1] == 0)
                return err;
        return priority_set(a[0] & ~(uint64_t)(PAGE_SIZE - 1), page_align(a[0] + a[1]), bits[a[2]]);
}

typedef long hint_fn(const uint64_t a[6]);

static hint_fn *const calls[HINTS_END - HINTS_FIRST] = {
        [HINT_PREFETCH - HINTS_FIRST] = hint_prefetch,
        [HINT_PREFETCHV - HINTS_FIRST] = hint_prefetchv,
        [HINT_STREAM - HINTS_FIRST] = hint_stream,
        [HINT_STATS - HINTS_FIRST] = hint_stats,
        [HINT_PEEK - HINTS_FIRST] = hint_peek,
        [HINT_GUIDE - HINTS_FIRST] = hint_guide,
        [HINT_UNGUIDE - HINTS_FIRST] = hint_unguide,
        [HINT_READ - HINTS_FIRST] = hint_read,
        [HINT_COUNTED - HINTS_FIRST] = hint_counted,
        [HINT_WAIT - HINTS_FIRST] = hint_wait,
        [HINT_PRIORITY - HINTS_FIRST] = hint_priority,
        [HINT_GUIDES - HINTS_FIRST] = hint_guides,
};

bool hint_for_guides(uint64_t nr)
{
        return nr <= HINT_PEEK || nr == HINT_READ || nr == HINT_COUNTED;
}

long hint_call(uint64_t nr, const uint64_t a[6])
{
        return calls[nr - HINTS_FIRST](a);
}
