/*
 * The VMA tree; vma.h has its contract.
 *
 * A sequence count keeps readers and the one writer apart.  A reader reads the count, walks,
 * copies, and reads the count again: any change in between makes it start over.  This is sound
 * because:
 *   - the count is odd while the tree changes;
 *   - the writer's stores to data of readers are releases and the readers' loads are acquires, so
 *     a reader that saw any part of a change also sees the odd count (or a later one) in its second
 *     look;
 *   - a walk through a half-changed tree meets only nodes, since these are type-stable, and stops
 *     after DEPTH_MAX steps.
 */
#include <asm-generic/errno.h>
#include <stddef.h>
#include "base/pool.h"
#include "base/print.h"
#include "pager/env.h"
#include "space/vma.h"

#define DEPTH_MAX 64                    /* an AVL tree of VMA_MAX nodes is at most 23 deep */

enum { LEFT, RIGHT };

static _Atomic uint64_t seq;
static _Atomic(struct vma_node *) root;
static _Atomic uint64_t hidden_start, hidden_end;
static struct vma_node *free_nodes;
static unsigned nfree;
struct vma_counts vma_counts;

/* Readers' data is stored with release and loaded with acquire (see above); the writer's own loads
 * need no order. */
static void publish(_Atomic uint64_t *p, uint64_t v)
{
        atomic_store_explicit(p, v, memory_order_release);
}

static uint64_t observe(const _Atomic uint64_t *p)
{
        return atomic_load_explicit(p, memory_order_acquire);
}

static void set_kid(struct vma_node *n, int side, struct vma_node *kid)
{
        atomic_store_explicit(&n->child[side], kid, memory_order_release);
}

static struct vma_node *kid(const struct vma_node *n, int side)
{
        return atomic_load_explicit(&n->child[side], memory_order_relaxed);
}

static struct vma_node *top(void) { return atomic_load_explicit(&root, memory_order_relaxed); }
static void set_top(struct vma_node *n) { atomic_store_explicit(&root, n, memory_order_release); }

void vma_begin(void)
{
        uint64_t s = atomic_load_explicit(&seq, memory_order_relaxed);
        if (s & 1)
                kern_bug("VMA tree: change inside a change", s, 0);
        /* Relaxed: each release store that follows orders this store before itself. */
        atomic_store_explicit(&seq, s + 1, memory_order_relaxed);
}

void vma_end(void)
{
        uint64_t s = atomic_load_explicit(&seq, memory_order_relaxed);
        /* Release: a reader that starts at the new count sees the whole change.  And a full
         * barrier, for pt_wait_faults(): the change is visible before it reads the published
         * faults, and a fault is published before it reads the tree; so one of the two sees the
         * other. */
        atomic_store_explicit(&seq, s + 1, memory_order_seq_cst);
}

/* --- nodes --- */

int vma_reserve(unsigned n)
{
        while (nfree < n) {
                struct vma_node *page = pool_page(POOL_VMA);
                if (!page)
                        return -ENOMEM;
                for (size_t i = 0; i < PAGE_SIZE / sizeof(*page); i++)
                        vma_free(&page[i]);
        }
        return 0;
}

void vma_free(struct vma_node *n)
{
        n->next = free_nodes;
        free_nodes = n;
        nfree++;
}

static struct vma_node *take_node(void)
{
        struct vma_node *n = free_nodes;
        if (!n)
                kern_bug("VMA tree: insert without vma_reserve", 0, 0);
        free_nodes = n->next;
        nfree--;
        return n;
}

static void tally(const struct vma *v, uint64_t sign)
{
        uint64_t pages = sign * ((v->end - v->start) >> PAGE_SHIFT);
        vma_counts.total += pages;
        if (vma_counts.total > vma_counts.peak)
                vma_counts.peak = vma_counts.total;
        if ((v->flags & MAP_PRIVATE) && (v->prot & PROT_WRITE) && !(v->flags & MAP_GROWSDOWN))
                vma_counts.data += pages;
        if (v->flags & VMA_LOCKED)
                vma_counts.locked += pages;
        if (vma_locked_whole(v))
                vma_counts.whole += pages;
        vma_counts.nodes += (uint32_t)sign;
        /* Atomic, because faults read it without the lock, as a hint. */
        if (v->flags & VMA_ADVICE)
                __atomic_fetch_add(&vma_counts.advised, (uint32_t)sign, __ATOMIC_RELAXED);
}

uint32_t vma_advice(uint64_t addr)
{
        struct vma v;

        if (__atomic_load_n(&vma_counts.advised, __ATOMIC_RELAXED) == 0 ||
            mm_lookup(addr, &v) != 0)
                return 0;
        return v.flags & VMA_ADVICE;
}

static void fill(struct vma_node *n, const struct vma *v)
{
        union { struct vma v; uint64_t word[sizeof(*v) / 8]; } u = { .v = *v };
        n->v = *v;
        for (unsigned i = 0; i < sizeof(*v) / 8; i++)
                publish(&n->pub[i], u.word[i]);
        tally(v, 1);
}

/* --- balance and gaps --- */

uint64_t vma_floor(const struct vma *v)
{
        uint64_t guard = v->flags & MAP_GROWSDOWN ? STACK_GUARD : 0;
        return v->start > guard ? v->start - guard : 0;
}

static uint64_t max(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t room(uint64_t from, uint64_t to) { return to > from ? to - from : 0; }
static uint32_t height(const struct vma_node *n) { return n ? n->height : 0; }

/* Recomputes the fields of n about its subtree from its children. */
static void pull(struct vma_node *n)
{
        struct vma_node *l = kid(n, LEFT), *r = kid(n, RIGHT);
        uint64_t floor = vma_floor(&n->v);
        n->height = 1 + (uint32_t)max(height(l), height(r));
        n->lo = l ? l->lo : floor;
        n->hi = r ? r->hi : n->v.end;
        n->gap = max(l ? max(l->gap, room(l->hi, floor)) : 0,
                     r ? max(r->gap, room(n->v.end, r->lo)) : 0);
}

/* Rotates the child on that side up into n's place. */
static struct vma_node *rotate(struct vma_node *n, int side)
{
        struct vma_node *up = kid(n, side);
        set_kid(n, side, kid(up, !side));
        set_kid(up, !side, n);
        pull(n);
        pull(up);
        return up;
}

static struct vma_node *balance(struct vma_node *n)
{
        int side = height(kid(n, RIGHT)) > height(kid(n, LEFT));
        struct vma_node *tall = kid(n, side);
        if (height(tall) > height(kid(n, !side)) + 1) {
                if (height(kid(tall, !side)) > height(kid(tall, side)))
                        set_kid(n, side, rotate(tall, !side));
                return rotate(n, side);
        }
        pull(n);
        return n;
}

static struct vma_node *insert_below(struct vma_node *t, struct vma_node *n)
{
        if (!t)
                return n;
        int side = n->v.start > t->v.start;
        set_kid(t, side, insert_below(kid(t, side), n));
        return balance(t);
}

static struct vma_node *take_first(struct vma_node *t, struct vma_node **first)
{
        if (!kid(t, LEFT)) {
                *first = t;
                return kid(t, RIGHT);
        }
        set_kid(t, LEFT, take_first(kid(t, LEFT), first));
        return balance(t);
}

static struct vma_node *remove_below(struct vma_node *t, struct vma_node *n)
{
        if (t != n) {
                int side = n->v.start > t->v.start;
                set_kid(t, side, remove_below(kid(t, side), n));
                return balance(t);
        }
        struct vma_node *l = kid(n, LEFT), *r = kid(n, RIGHT), *up;
        if (!r)
                return l;
        r = take_first(r, &up);
        set_kid(up, LEFT, l);
        set_kid(up, RIGHT, r);
        return balance(up);
}

/* n's own bounds changed: recomputes all its ancestors. */
static void pull_path(struct vma_node *t, struct vma_node *n)
{
        if (t != n)
                pull_path(kid(t, n->v.start > t->v.start), n);
        pull(t);
}

/* --- changes --- */

static void check_changing(void)
{
        if (!(atomic_load_explicit(&seq, memory_order_relaxed) & 1))
                kern_bug("VMA tree: change outside vma_begin", 0, 0);
}

struct vma_node *vma_insert(const struct vma *v)
{
        check_changing();
        struct vma_node *n = take_node();
        fill(n, v);
        set_kid(n, LEFT, NULL);
        set_kid(n, RIGHT, NULL);
        pull(n);
        set_top(insert_below(top(), n));
        return n;
}

void vma_remove(struct vma_node *n)
{
        check_changing();
        set_top(remove_below(top(), n));
        tally(&n->v, -1ull);
}

void vma_change(struct vma_node *n, const struct vma *v)
{
        check_changing();
        tally(&n->v, -1ull);
        fill(n, v);
        pull_path(top(), n);
}

void vma_hide(uint64_t start, uint64_t end)
{
        check_changing();
        publish(&hidden_start, start);
        publish(&hidden_end, end);
}

/* --- searches --- */

struct vma_node *vma_find(uint64_t addr)
{
        struct vma_node *best = NULL;
        for (struct vma_node *n = top(); n;) {
                if (n->v.end <= addr) {
                        n = kid(n, RIGHT);
                        continue;
                }
                best = n;
                if (n->v.start <= addr)
                        break;
                n = kid(n, LEFT);
        }
        return best;
}

struct vma_node *vma_before(uint64_t addr)
{
        struct vma_node *best = NULL;
        for (struct vma_node *n = top(); n;) {
                if (n->v.start < addr)
                        best = n;
                n = kid(n, n->v.start < addr);
        }
        return best;
}

/* The search for a run of len bytes below limit, in a subtree t whose neighbours leave it the space
 * [low, high).  t may extend below low, and above limit, where it is cut off.  For a t that does
 * not, the test of its gaps is exact, so the search descends only where it will succeed. */
static uint64_t gap_below(struct vma_node *t, uint64_t low, uint64_t high, uint64_t limit,
                          uint64_t len)
{
        if (low >= limit)
                return 0;
        if (!t || t->hi <= low)
                return room(low, high) >= len ? high - len : 0;
        if (max(t->gap, max(room(low, t->lo), room(t->hi, high))) < len)
                return 0;
        uint64_t floor = vma_floor(&t->v);
        uint64_t at = gap_below(kid(t, RIGHT), max(low, t->v.end), high, limit, len);
        return at ? at : gap_below(kid(t, LEFT), low, floor < limit ? floor : limit, limit, len);
}

uint64_t vma_gap(uint64_t low, uint64_t high, uint64_t len)
{
        return gap_below(top(), low, high, high, len);
}

/* --- readers --- */

#define WORD(field) (offsetof(struct vma, field) / 8)

static const struct vma_node *walk(uint64_t addr)
{
        const struct vma_node *best = NULL, *n = atomic_load_explicit(&root, memory_order_acquire);
        for (int i = 0; n && i < DEPTH_MAX; i++) {
                int side = RIGHT;
                if (observe(&n->pub[WORD(end)]) > addr) {
                        best = n;
                        if (observe(&n->pub[WORD(start)]) <= addr)
                                break;
                        side = LEFT;
                }
                n = atomic_load_explicit(&n->child[side], memory_order_acquire);
        }
        return best;
}

bool vma_read(uint64_t addr, struct vma *out, struct vma_hidden *hidden)
{
        union { struct vma v; uint64_t word[sizeof(*out) / 8]; } u;
        for (unsigned spins = 0;; env_relax(spins++)) {
                /* Acquire: pairs with vma_end(), for the whole of the last change. */
                uint64_t s = observe(&seq);
                if (s & 1)
                        continue;
                const struct vma_node *n = walk(addr);
                for (unsigned i = 0; n && i < sizeof(*out) / 8; i++)
                        u.word[i] = observe(&n->pub[i]);
                hidden->start = observe(&hidden_start);
                hidden->end = observe(&hidden_end);
                /* Relaxed: the acquire loads above order it after themselves. */
                if (atomic_load_explicit(&seq, memory_order_relaxed) != s)
                        continue;
                if (n)
                        *out = u.v;
                return n;
        }
}

int mm_lookup(uint64_t addr, struct vma *out)
{
        struct vma_hidden h;
        if (!vma_read(addr, out, &h) || out->start > addr || (h.start <= addr && addr < h.end))
                return -EFAULT;
        /* The hidden range is cut off as well: a fault that also brings in neighbouring pages
         * relies on these bounds. */
        if (h.start < h.end && h.start > addr)
                *out = vma_part(*out, out->start, lower(out->end, h.start));
        else if (h.start < h.end)
                *out = vma_part(*out, higher(out->start, h.end), out->end);
        return 0;
}

/* --- self-check --- */

/* Checks t; *at: end of the VMA before it, then of its last one.  sum: the right vma_counts. */
static const char *check_below(const struct vma_node *t, uint64_t *at, struct vma_counts *sum)
{
        if (!t)
                return NULL;
        const struct vma_node *l = kid(t, LEFT), *r = kid(t, RIGHT);
        const char *wrong = check_below(l, at, sum);
        if (wrong)
                return wrong;
        if (t->v.start < *at || t->v.end <= t->v.start)
                return "VMA tree: order";
        if (observe(&t->pub[WORD(start)]) != t->v.start || observe(&t->pub[WORD(end)]) != t->v.end)
                return "VMA tree: published bounds";
        *at = t->v.end;
        sum->nodes++;
        sum->advised += (t->v.flags & VMA_ADVICE) != 0;
        sum->total += (t->v.end - t->v.start) >> PAGE_SHIFT;
        wrong = check_below(r, at, sum);
        if (wrong)
                return wrong;
        struct vma_node fresh = *t;
        pull(&fresh);
        if (fresh.height != t->height || fresh.lo != t->lo || fresh.hi != t->hi ||
            fresh.gap != t->gap)
                return "VMA tree: a node's fields about its subtree are wrong";
        if (height(l) > height(r) + 1 || height(r) > height(l) + 1)
                return "VMA tree: balance";
        return NULL;
}

const char *vma_check(void)
{
        struct vma_counts sum = { 0 };
        uint64_t at = 0;
        const char *wrong = check_below(top(), &at, &sum);
        if (!wrong && (sum.nodes != vma_counts.nodes || sum.advised != vma_counts.advised ||
                       sum.total != vma_counts.total))
                wrong = "VMA tree: counts";
        return wrong;
}

void vma_init(void)
{
        vma_begin();
        set_top(NULL);
        vma_hide(0, 0);
        vma_end();
        vma_counts = (struct vma_counts){ 0 };
}
