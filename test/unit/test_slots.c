/*
 * kern's slots (kern/far/slots.c) against a host that has no more slabs, and a pool that has no
 * more page tables: the program gets ENOMEM, and a leased slab is used when there are tables again.
 */
#include <asm-generic/errno-base.h>
#include <asm-generic/errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "base/exit.h"
#include "base/kern.h"
#include "base/lock.h"
#include "base/print.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "far/rings.h"
#include "far/slotmap.h"
#include "far/slots.h"
#include "far/timed.h"
#include "pager/env.h"

#define PAGES 700                       /* of a slab */
#define SLABS 3

/* ---- what is around it ---- */

struct control control;
struct vcpu_stats vcpu_self_stats;
struct pager pager;
struct vcpu vcpu_self;
const struct vcpu_fixed vcpu_self_fixed;
/* to EXIT_LEASE, if it is an error; 0: slab after slab, SLABS of them, then -ENOSPC */
static int64_t answer;
static unsigned asked, tables, let_go_exits;
static uint64_t let_go[256], nlet_go;

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        (void)a2;
        if (op == EXIT_SLOTS_RELEASE) {
                let_go_exits++;
                memcpy(&let_go[nlet_go], (void *)a0, a1 * sizeof(uint64_t));
                nlet_go += a1;
                struct tree_common *c = (struct tree_common *)TREE_WINDOW;
                c->process[control.tree_number].shared -= a1;
                return 0;
        }
        assert_int_equal(op, EXIT_LEASE);
        asked++;
        if (answer == -EAGAIN) {        /* a dead process's slot was freed */
                *slot_word((char *)TREE_WINDOW, 0) = SLOT_FREE;
                tree_map((char *)TREE_WINDOW, 0)->chunk[0] = CHUNK_OPEN;
                answer = -EBUSY;
                return -EAGAIN;
        }
        if (answer)
                return answer;
        if (a0 < control.nslabs)
                return 0;
        assert_int_equal(a0, control.nslabs);
        if (a0 == SLABS)
                return -ENOSPC;
        control.slabs[a0] = (struct slab){
                .kind = SLAB_MEMORY, .pages = PAGES, .va = 4096 * (a0 + 1), .map_gpa = 1
        };
        control.nslabs++;
        return 0;
}

bool pt_map_window(uint64_t va, uint64_t gpa, uint64_t len)
{
        (void)va;
        (void)gpa;
        (void)len;
        return tables > 0 && tables--;
}

void lock_take(struct lock *l) { assert_int_equal(l->v, 0); l->v = 1; }
void lock_drop(struct lock *l) { l->v = 0; }
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        fail_msg("kern_bug: %s: %#lx %#lx", what, a, b);
        __builtin_unreachable();
}
_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b) { kern_bug(what, a, b); }
void *env_frame_va(frame_t f) { (void)f; return NULL; }
void copy_page(void *restrict d, const void *restrict s) { (void)d; (void)s; }
void ring_read(uint64_t slot, frame_t f, pte_slot_t *pte) { (void)slot; (void)f; (void)pte; }
void ring_write(uint64_t slot, frame_t f) { (void)slot; (void)f; }
void ring_prefetch(uint64_t slot, frame_t f, bool marker) { (void)slot; (void)f; (void)marker; }
uint32_t ring_prefetches(void) { return 0; }
void ring_promote(frame_t f) { (void)f; }
void env_relax(unsigned spins) { (void)spins; }
frame_t ring_written(int *err) { (void)err; return FRAME_NONE; }
void ring_write_wait(void) {}
bool timed_add(const struct slab *s) { (void)s; return true; }
void timed_rung(struct direct_queue *q) { (void)q; }
struct direct_queue *direct_read(const struct slab *s, uint64_t slot, frame_t f)
{
        (void)s;
        (void)slot;
        (void)f;
        return NULL;
}
bool direct_poll_queue(void) { return false; }
void direct_ring_bell(void) {}
bool direct_has(unsigned node) { return node > 0; }
void direct_make(uint64_t nodes) { (void)nodes; }
bool direct_wait(const void *word, uint64_t seen, frame_t f)
{
        (void)f;
        (void)word;
        (void)seen;
        return false;
}
void timed_read(const struct slab *s, const void *slot, frame_t f, enum io_op op)
{
        (void)s;
        (void)slot;
        (void)f;
        (void)op;
}
uint64_t timed_part(const struct slab *s, size_t len) { (void)s; return len; }
void timed_part_wait(uint64_t due) { (void)due; }
struct io_entry *ring_part(uint64_t slot, uint32_t offset, uint32_t len, bool raw)
{
        (void)slot;
        (void)offset;
        (void)len;
        (void)raw;
        return NULL;
}
bool ring_part_over(const struct io_entry *e) { (void)e; return true; }
int ring_part_wait(struct io_entry *e) { (void)e; return 0; }
uint32_t timed_ahead(void) { return 0; }
void timed_write(const struct slab *s, void *slot, frame_t f) { (void)s; (void)slot; (void)f; }
frame_t timed_written(void) { return FRAME_NONE; }
bool timed_write_wait(void) { return false; }
void timed_poll(void) {}
bool timed_wait(const void *word, uint64_t seen, frame_t f)
{
        (void)word;
        (void)seen;
        (void)f;
        return false;
}

/* ---- in order: kern/far/slots.c keeps what it has ---- */

static void no_tables(void **state)
{
        (void)state;
        assert_true(env_slot_take() == SLOT_NONE);      /* no slab yet */
        /* No tables; then enough for the common part alone; then for the slab's map, but not for
         * the slab. */
        for (unsigned n = 0; n < 3; n++) {
                tables = n ? 1 : 0;
                assert_true(env_slot_alloc() == SLOT_NONE);
                assert_int_equal(control.nslabs, 1);
                assert_int_equal(asked, n + 1);
                assert_int_equal(slots_in_use(), 0);
        }
        tables = 2;
        assert_int_equal(env_slot_alloc(), 0);
        assert_int_equal(asked, 4);
        tables = 1000;
        assert_int_equal(env_slot_alloc(), 1);
        assert_int_equal(asked, 4);
}

static void ahead(void **state)
{
        (void)state;
        slots_lease_ahead();
        assert_int_equal(asked, 4);
        for (unsigned i = 2; i <= PAGES / 4 * 3; i++)
                assert_int_equal(env_slot_alloc(), i);
        slots_lease_ahead();
        assert_int_equal(asked, 5);
        slots_lease_ahead();
        assert_int_equal(asked, 5);
        assert_int_equal(control.nslabs, 2);
}

/* A vCPU that evicts by itself asks the host for nothing, and takes no slot that is posted. */
static void taken(void **state)
{
        (void)state;
        uint64_t n = slots_in_use(), slot = env_slot_take();
        unsigned before = asked;
        assert_true(env_slot_writable(slot));
        assert_false(env_slot_posted(slot));
        assert_int_equal(slots_in_use(), n + 1);
        control.slabs[0].kind = control.slabs[1].kind = SLAB_REMOTE;
        assert_true(env_slot_posted(slot));
        assert_true(env_slot_take() == SLOT_NONE);
        assert_int_equal(slots_in_use(), n + 1);
        control.slabs[0].kind = control.slabs[1].kind = SLAB_MEMORY;
        /* no search before this process frees a slot, or has a new slab */
        assert_true(env_slot_take() == SLOT_NONE);
        env_slot_free(slot);
        slot = env_slot_take();
        assert_true(slot != SLOT_NONE);
        env_slot_free(slot);
        assert_int_equal(slots_in_use(), n);
        assert_int_equal(asked, before);
}

static void to_the_end(void **state)
{
        (void)state;
        uint64_t n = slots_in_use();
        answer = -EBUSY;                /* other processes have slots, and may free some */
        while (env_slot_alloc() != SLOT_NONE)
                n++;
        assert_int_equal(n, 2 * PAGES);
        unsigned before = asked;
        assert_true(env_slot_alloc() == SLOT_NONE);
        assert_int_equal(asked, before + 1);
        /* Not at once again. */
        control.tsc_khz = 1ull << 50;
        assert_true(env_slot_alloc() == SLOT_NONE);
        assert_true(env_slot_alloc() == SLOT_NONE);
        slots_lease_ahead();
        assert_int_equal(asked, before + 2);
        control.tsc_khz = 0;
        slots_fork();
        answer = -EAGAIN;
        assert_int_equal(env_slot_alloc(), 0);
        struct tree_common *c = (struct tree_common *)TREE_WINDOW;
        c->process[0].owned--;          /* it was freed behind our back */
        answer = 0;
        while (env_slot_alloc() != SLOT_NONE)
                n++;
        assert_int_equal(n, 3 * PAGES);
        assert_int_equal(slots_in_use(), 3 * PAGES);
        before = asked;
        assert_true(env_slot_alloc() == SLOT_NONE);
        assert_int_equal(asked, before);        /* it said that this is final */
        assert_true(env_slot_take() == SLOT_NONE);
        env_slot_free(1ull << SLAB_SHIFT | 17);
        assert_int_equal(env_slot_take(), 1ull << SLAB_SHIFT | 17);
        env_slot_free(1ull << SLAB_SHIFT | 17);
        assert_int_equal(env_slot_alloc(), 1ull << SLAB_SHIFT | 17);
}

/* Shared slots are released in batches, at the latest when they are counted. */
static void batches(void **state)
{
        (void)state;
        struct tree_common *c = (struct tree_common *)TREE_WINDOW;
        for (uint64_t s = 0; s < 70; s++)
                *slot_word((char *)TREE_WINDOW, s) = SLOT_SHARED;
        c->process[0].owned -= 70;
        c->process[0].shared += 70;
        for (uint64_t s = 0; s < 70; s++) {
                assert_false(env_slot_writable(s));
                env_slot_free(s);
        }
        assert_int_equal(let_go_exits, 1);
        assert_int_equal(nlet_go, 64);
        assert_int_equal(slots_in_use(), 3 * PAGES - 70);
        assert_int_equal(let_go_exits, 2);
        for (uint64_t s = 0; s < 70; s++)
                assert_int_equal(let_go[s], s);
        assert_true(env_slot_writable(70));
}

static int setup(void **state)
{
        (void)state;
        void *p = mmap((void *)TREE_WINDOW, (1 + SLABS) * SLAB_MAP_SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != (void *)TREE_WINDOW)
                return -1;
        ((struct tree_common *)p)->numbers = 1;
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(no_tables), cmocka_unit_test(ahead), cmocka_unit_test(taken),
                cmocka_unit_test(to_the_end), cmocka_unit_test(batches),
        };
        return cmocka_run_group_tests_name("slots", tests, setup, NULL);
}
