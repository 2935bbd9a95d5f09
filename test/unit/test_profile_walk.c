/*
 * The program's stack at a fault (kern/paging/profile.c): whatever the program keeps in RBP and on
 * its stack; and the table of stacks.
 */
#include <errno.h>
#include <linux/mman.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/kern.h"
#include "base/state.h"
#include "base/tables.h"
#include "include/fault_profile.h"
#include "paging/profile.h"
#include "space/vma.h"

#define CODE   0x400000ull
#define PAGES  300u                    /* larger than any frame may be */
#define STACK  0x7fffff000000ull        /* PAGES pages of it */
#define AT(n)  (STACK + (uint64_t)(n))
#define PFN0   0x100000ull

struct vcpu vcpu_self;
struct control control;
struct pager pager;

static struct profile table;
static struct frame frames[PAGES];
static uint64_t content[PAGES][PAGE_SIZE / 8];
static pte_slot_t entry[PAGES];

/* ---- the rest of kern ---- */

void *env_frame_va(frame_t f)
{
        assert_true(f < PAGES);
        return content[f];
}

/* The walk may ask for an address without a table, but for none that a program's tables cannot
 * hold. */
pte_slot_t *pt_find(uint64_t addr)
{
        assert_true(addr < TASK_SIZE && !(addr >= RESERVED_START && addr < RESERVED_END));
        return addr - STACK < PAGES * PAGE_SIZE ? &entry[(addr - STACK) / PAGE_SIZE] : NULL;
}

static unsigned lookups;
int mm_lookup(uint64_t addr, struct vma *out)
{
        lookups++;
        *out = (struct vma){ .start = CODE, .end = CODE + 0x100000, .prot = PROT_READ | PROT_EXEC };
        if (addr - out->start < out->end - out->start)
                return 0;
        *out = (struct vma){ .start = STACK, .end = STACK + PAGES * PAGE_SIZE,
                             .prot = PROT_READ | PROT_WRITE };
        return addr - out->start < out->end - out->start ? 0 : -EFAULT;
}

/* ---- a program ---- */

static uint64_t *word(uint64_t addr)
{
        return &content[(addr - STACK) / PAGE_SIZE][(addr - STACK) % PAGE_SIZE / 8];
}

static void put_frame(uint64_t at, uint64_t next, uint64_t ret)
{
        word(at)[0] = next;
        word(at)[1] = ret;
}

/* All pages are here, and nothing is in them.  RBP leads to three frames. */
static void begin(void)
{
        memset(&table, 0, sizeof(table));
        memset(content, 0, sizeof(content));
        control.profile = (uint64_t)&table;
        pager.frames = frames;
        pager.pfn0 = PFN0;
        for (frame_t n = 0; n < PAGES; n++) {
                frames[n] = (struct frame){ .word = FRAME_RESIDENT };
                entry[n] = pte_make_present(PFN0 + n, PTE_ACCESS | PTE_W | PTE_NX, PTE_A);
        }
        vcpu_self.regs = (struct regs){ .rip = CODE + 0x10, .rsp = AT(0x80), .rbp = AT(0x100) };
        put_frame(AT(0x100), AT(0x200), CODE + 0x20);
        put_frame(AT(0x200), AT(0x1300), CODE + 0x30);
        put_frame(AT(0x1300), 0, CODE + 0x40);
}

static void add(void) { profile_add(&(struct profile_wait){ .addr = 0x5000, .ticks = 7 }); }

/* The only stack there is. */
static struct profile_stack *only(void)
{
        struct profile_stack *found = NULL;

        for (unsigned i = 0; i < PROFILE_STACKS; i++)
                if (table.stack[i].key) {
                        assert_null(found);
                        found = &table.stack[i];
                }
        assert_non_null(found);
        assert_int_equal(table.used, 1);
        return found;
}

/* After a change: the stack has `depth` addresses, and no pin is left. */
static struct profile_stack *depth_is(unsigned depth)
{
        add();
        struct profile_stack *s = only();
        assert_int_equal(s->depth, depth);
        assert_int_equal(s->at[0], CODE + 0x10);
        for (frame_t n = 0; n < PAGES; n++)
                assert_int_equal(frames[n].word & FRAME_PINS, 0);
        assert_int_equal(vcpu_self.faulting, 0);
        return s;
}

static void test_frames(void **state)
{
        (void)state;
        begin();
        struct profile_stack *s = depth_is(4);
        assert_int_equal(s->at[1], CODE + 0x20);
        assert_int_equal(s->at[2], CODE + 0x30);
        assert_int_equal(s->at[3], CODE + 0x40);
        assert_int_equal(s->top, 0);
        assert_int_equal(s->part, 0);
        add();
        profile_add(&(struct profile_wait){ .addr = 0x6000, .ticks = 5, .late = true });
        profile_add(&(struct profile_wait){ .addr = 0x6000, .ticks = 5, .late = true,
                                            .again = true });
        s = only();
        assert_int_equal(s->faults, 3);
        assert_int_equal(s->late, 1);
        assert_int_equal(s->ticks, 7 + 7 + 5 + 5);
        assert_int_equal(s->touched, 0x6000);
}

/* Frames that could be some, in places where none is. */
static void test_frames_elsewhere(void **state)
{
        const uint64_t at[] = { AT(0x70), AT(0x60), AT(0x108), AT(0x88), AT(0x110000) };

        (void)state;
        for (unsigned i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
                begin();
                vcpu_self.regs.rbp = at[i];
                put_frame(at[i], AT(0x1300), CODE + 0x50);
                depth_is(1);
                begin();
                vcpu_self.regs.rsp = AT(0);
                put_frame(AT(0x100), at[i] < AT(0x110) || at[i] % 16 ? at[i] : AT(0x120000),
                          CODE + 0x20);
                put_frame(AT(0x120000), 0, CODE + 0x50);
                if (at[i] != AT(0x108))         /* in the frame */
                        put_frame(at[i], AT(0x1300), CODE + 0x50);
                depth_is(2);
        }
}

/* A system call's instruction is before the RIP that it leaves. */
static void test_call(void **state)
{
        (void)state;
        begin();
        profile_add(&(struct profile_wait){ .in_call = true });
        assert_int_equal(only()->at[0], CODE + 0x10 - 2);
}

static void test_top(void **state)
{
        (void)state;
        begin();
        *word(AT(0x80)) = CODE + 0x99;
        assert_int_equal(depth_is(4)->top, CODE + 0x99);
        begin();
        *word(AT(0x80)) = AT(0x90);
        assert_int_equal(depth_is(4)->top, 0);
        begin();
        vcpu_self.regs.rsp = AT(0x7c);          /* not aligned */
        *word(AT(0x78)) = *word(AT(0x80)) = CODE + 0x99;
        assert_int_equal(depth_is(4)->top, 0);
}

/* A page that is not here ends the stack, and says so; it is not fetched. */
static void test_absent(void **state)
{
        const uint64_t absent[] = {
                0, pte_make_remote(1, PTE_ACCESS), pte_make_busy(PFN0 + 1, PTE_ACCESS),
                pte_make_held(PFN0 + 1, PTE_ACCESS), pte_make_arena(PFN0 + 1, PTE_ACCESS),
                pte_make_present(PFN0 + 1, 0, PTE_A),
        };

        (void)state;
        for (unsigned i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
                begin();
                entry[1] = absent[i];
                assert_int_equal(depth_is(3)->part, 1);
                assert_int_equal(entry[1], absent[i]);
        }
        begin();
        frames[1].word |= FRAME_CLAIMED;        /* it is being evicted */
        assert_int_equal(depth_is(3)->part, 1);
}

static void test_junk_in_rbp(void **state)
{
        const uint64_t junk[] = {
                0, 1, AT(0x70), AT(0x78), AT(0x101), AT(0x108), STACK - 16, ~0ull, ~15ull,
                0xffff800000000000, 0xffffffff81000000, 0x8000000000000000, 0x0000800000000000,
                TASK_SIZE, TASK_SIZE - 16, WINDOW, WINDOW + CONTROL_OFF, RESERVED_START,
                RESERVED_END - 16, AT(PAGES * PAGE_SIZE), AT(0x800000), CODE, CODE + 0x10,
        };

        (void)state;
        for (unsigned i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
                begin();
                vcpu_self.regs.rbp = junk[i];
                depth_is(1);
                begin();
                vcpu_self.regs.rsp = vcpu_self.regs.rbp = junk[i];
                depth_is(1);
                begin();
                vcpu_self.regs.rsp = 0;
                vcpu_self.regs.rbp = junk[i];
                put_frame(AT(0x70), 0, CODE - 1);
                add();
                assert_int_equal(only()->depth, 1);
        }
}

static void test_junk_in_frames(void **state)
{
        const uint64_t next[] = {
                0, AT(0x100), AT(0x80), AT(0x208), AT(0x201), AT(0x110) - 16, STACK - 16, ~15ull,
                0xffff800000000000, WINDOW, RESERVED_START, TASK_SIZE - 16, 0x0000800000000000,
                AT(0x800000), CODE,
        };
        const uint64_t ret[] = { 0, 1, ~0ull, CODE - 1, CODE + 0x100000, AT(0x100), WINDOW,
                                 0xffffffff81000000 };

        (void)state;
        for (unsigned i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
                begin();
                put_frame(AT(0x100), next[i], CODE + 0x20);
                depth_is(2);
        }
        for (unsigned i = 0; i < sizeof(ret) / sizeof(ret[0]); i++) {
                begin();
                put_frame(AT(0x200), AT(0x1300), ret[i]);
                assert_int_equal(depth_is(2)->part, 0);
        }
}

/* A recursion is cut; and where a call returns to is looked up once for neighbours. */
static void test_deep(void **state)
{
        (void)state;
        begin();
        for (unsigned i = 0; i < 200; i++)
                put_frame(AT(0x100 + 16 * i), AT(0x110 + 16 * i), CODE + 0x20);
        lookups = 0;
        depth_is(PROFILE_DEPTH);
        assert_in_range(lookups, 1, 4);
}

/* As many call sites as the table holds, each with several stacks: none is lost before it is full,
 * and all faults are counted somewhere. */
static void test_full(void **state)
{
        uint64_t faults = 0, cut = 0;

        (void)state;
        begin();
        for (unsigned i = 0; i < 2 * PROFILE_STACKS; i++) {
                vcpu_self.regs.rip = CODE + i % 64;
                put_frame(AT(0x200), AT(0x1300), CODE + i);
                add();
        }
        for (unsigned i = 0; i < PROFILE_STACKS; i++) {
                faults += table.stack[i].faults;
                if (table.stack[i].depth == 1)
                        cut += table.stack[i].faults;
        }
        assert_int_equal(faults, 2 * PROFILE_STACKS);
        assert_int_equal(table.cut, cut);
        assert_true(cut >= PROFILE_STACKS && table.used <= PROFILE_WHOLE + 64);
        assert_int_equal(table.lost, 0);
        for (unsigned i = 0; i < 2 * PROFILE_STACKS; i++) {
                vcpu_self.regs.rip = CODE + i;
                add();
        }
        faults = table.lost;
        for (unsigned i = 0; i < PROFILE_STACKS; i++)
                faults += table.stack[i].faults;
        assert_int_equal(faults, 4 * PROFILE_STACKS);
        assert_true(table.lost > 0 && table.lost_ticks == 7 * table.lost);
}

/* Several vCPUs add one stack at once: it has one place. */
static void *adder(void *arg)
{
        (void)arg;
        for (unsigned i = 0; i < 20000; i++)
                add();
        return NULL;
}

static void test_threads(void **state)
{
        pthread_t t[4];

        (void)state;
        begin();
        vcpu_self.regs.rsp = vcpu_self.regs.rbp = 0;    /* they have this vCPU's block in common */
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&t[i], NULL, adder, NULL), 0);
        for (unsigned i = 0; i < 4; i++)
                pthread_join(t[i], NULL);
        assert_int_equal(only()->faults, 80000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_frames),
                cmocka_unit_test(test_frames_elsewhere),
                cmocka_unit_test(test_call),
                cmocka_unit_test(test_top),
                cmocka_unit_test(test_absent),
                cmocka_unit_test(test_junk_in_rbp),
                cmocka_unit_test(test_junk_in_frames),
                cmocka_unit_test(test_deep),
                cmocka_unit_test(test_full),
                cmocka_unit_test(test_threads),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
