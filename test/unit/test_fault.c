/*
 * The fault path (kern/paging/fault.c) without a guest: what it asks of the host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>
#include <linux/mman.h>
#include "base/cpu.h"
#include "base/exit.h"
#include "base/kern.h"
#include "base/print.h"
#include "base/signal.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "common/buckets.h"
#include "far/timed.h"
#include "paging/cleaner.h"
#include "paging/fault.h"
#include "paging/guide.h"
#include "paging/prefetch.h"
#include "paging/profile.h"
#include "paging/record.h"
#include "space/account.h"
#include "space/grow.h"
#include "pager_env.h"

#define START  0x10000000ull            /* of the one VMA there is */
#define PAGES  32

struct vcpu vcpu_self;
struct vcpu_stats vcpu_self_stats;
uint64_t vcpu_self_xfer[PAGE_SIZE / 8];
struct control control;
struct pager pager;

static const struct vma file_vma = { .start = START,
                                     .end = START + PAGES * PAGE_SIZE,
                                     .prot = 1,
                                     .flags = MAP_PRIVATE,
                                     .file = 7,
                                     .off = 0x5000 };
static unsigned refusals;               /* so often the host does not know the file */
static const struct vma *mapped = &file_vma;
static unsigned reads;
static uint64_t host_ticks;             /* how long an exit takes, at least */
static uint32_t charge_left = UINT32_MAX;

/* --- the rest of kern --- */

pte_slot_t *pt_find(uint64_t addr) { return &env.pte[(addr - START) / PAGE_SIZE]; }
pte_slot_t *pt_make(uint64_t addr) { return pt_find(addr); }
int mm_grow_stack(uint64_t addr) { (void)addr; return -EFAULT; }
int mm_charge_page(void) { return charge_left && charge_left-- ? 0 : -ENOMEM; }
void mm_uncharge(uint64_t pages) { (void)pages; }
uint64_t mm_charged(void) { return 0; }
uint64_t mm_limit(void) { return 0; }
/* If set, frames_wait() evicts a page, and meets `unwritable` ones; after so many calls in vain. */
static bool pages_leave;
static unsigned unwritable, waits, in_vain;
int frames_wait(void)
{
        static unsigned calls;

        if (!pages_leave)
                return -ENOMEM;
        if (++calls <= in_vain)
                return 0;
        calls = 0;
        waits++;
        pager.unwritable += unwritable;
        while (!clock_pass(&pager, env.nframes, 1, counters()).freed)
                env.flushed = env.flush_epoch;
        return 0;
}
void cleaner_wake(void) {}
/* What the fault path asks of the policy. */
static struct { unsigned calls, ranges; uint64_t addr; enum lookahead_cause cause; } asked;
void prefetch(uint64_t addr, enum lookahead_cause cause)
{
        asked.calls++;
        asked.addr = addr;
        asked.cause = cause;
}
static frame_t promoted = FRAME_NONE;
void slots_promote(frame_t f) { promoted = f; }
void direct_ring_bell(void) {}
uint32_t prefetch_range(uint64_t start, uint64_t end, bool mark)
{
        assert_false(mark);
        assert_true(start < end);
        asked.ranges++;
        return 0;
}
void prefetch_pointed(uint64_t addr, frame_t n)
{
        (void)addr;
        (void)n;
        fail_msg("the policy is not pointers");
}
/* Guides: `guide` says whether there is one. */
static struct {
        bool is, again;
        unsigned begun, over;
        struct guided kept;
        enum guide_end how;
} guide;
bool guide_begin(const struct fault *f, enum outcome awaits, enum hint_event event, uint64_t exits)
{
        if (!guide.is)
                return false;
        assert_false(guide_runs());     /* never nested */
        assert_int_equal(vcpu_self.faulting, 0);
        guide.kept = (struct guided){ *f, awaits, event, exits };
        guide.begun++;
        vcpu_self.guided = PF_RESERVED;
        return true;
}
bool guide_finish(enum guide_end how, struct guided *fault)
{
        assert_true(guide_runs());
        vcpu_self.guided = 0;
        guide.over++;
        guide.how = how;
        *fault = guide.kept;
        vcpu_self.cr2 = fault->f.addr + 8;
        return guide.again && how == GUIDE_RETURNED;
}
/* the fault profile */
static struct { unsigned calls; struct profile_wait last; uint64_t ticks; } profiled;
void profile_add(const struct profile_wait *w)
{
        assert_int_equal(vcpu_self.faulting, 0);
        profiled.calls++;
        profiled.last = *w;
        profiled.ticks += w->ticks;
}
static unsigned noted;
void record_wait(uint64_t addr)
{
        assert_true(addr != 0);
        noted++;
}
/* timed tiers */
static bool wire_is_slow, wire_brings;
static unsigned stays;
bool timed_poll_slow(void)
{
        while (wire_brings && env_io_step(0))
                ;
        return wire_is_slow;
}
void timed_stay(void) { stays++; }
void kern_log(int level, const char *fmt, ...) { (void)level; (void)fmt; }
void zero_page(void *d) { memset(d, 0, sizeof(env_page)); }
_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b) { env_bug(what, a, b); }
static struct { int signo, code; uint64_t addr; } raised;
void program_signal(uint64_t vector, int signo, int code, uint64_t addr)
{
        (void)vector;
        raised.signo = signo;
        raised.code = code;
        raised.addr = addr;
}

int mm_lookup(uint64_t addr, struct vma *out)
{
        *out = *mapped;
        return addr >= mapped->start && addr < mapped->end ? 0 : -EFAULT;
}

/* --- the host --- */

int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        const uint32_t *frame = (const uint32_t *)a3;

        (void)a4;
        for (uint64_t begin = cpu_tsc(); cpu_tsc() - begin < host_ticks;)
                cpu_relax();
        if (op == EXIT_NO_MEMORY)
                return 0;
        assert_int_equal(op, EXIT_FILE_READ);
        if (refusals) {
                refusals--;
                return -EBADF;
        }
        assert_int_equal(a0, file_vma.file);
        for (uint64_t i = 0; i < a2; i++) {
                assert_true(frame[i] < env.nframes);
                assert_true(env.frames[frame[i]].word & FRAME_CLAIMED);
                env.content[frame[i]][0] = a1 + i * PAGE_SIZE;
        }
        reads++;
        return (int64_t)a2;
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return vmexit5(op, a0, a1, a2, 0, 0);
}

/* An upcall has its arguments in xfer, as mm_batch() the operations of the loader, and answers
 * there. The upcall may fault pages of a file in (a locked VMA, MAP_POPULATE; no operation of
 * today's loader does): the operations still to come stay as they are. */
static void test_file_fault_leaves_xfer_alone(void **state)
{
        uint64_t before[PAGE_SIZE / 8];

        (void)state;
        env_setup(256, 4, PAGES, 0);
        pager_init(&pager, env.frames, env.nframes, ENV_PFN0);
        memset(vcpu_self_xfer, 0x5a, sizeof(vcpu_self_xfer));
        memcpy(before, vcpu_self_xfer, sizeof(before));
        assert_int_equal(fault_in(START, START + PAGES * PAGE_SIZE, false), 0);
        assert_int_equal(reads, PAGES / FAULT_AROUND);
        for (unsigned v = 0; v < PAGES; v++) {
                assert_int_equal(pte_kind(env.pte[v]), PTE_PRESENT);
                assert_int_equal(env.content[pte_num(env.pte[v]) - ENV_PFN0][0],
                                 file_vma.off + v * PAGE_SIZE);
        }
        assert_memory_equal(vcpu_self_xfer, before, sizeof(before));
        env_teardown();
}

/* A file that the host does not know: released and mapped again meanwhile, or lost for good. */
static void test_file_is_lost(void **state)
{
        (void)state;
        env_setup(256, 4, PAGES, 0);
        pager_init(&pager, env.frames, env.nframes, ENV_PFN0);
        refusals = 100;
        assert_int_equal(fault_in(START, START + PAGE_SIZE, false), 0);
        assert_int_equal(refusals, 0);
        refusals = 1000000;
        assert_int_equal(
                fault_in(START + FAULT_AROUND * PAGE_SIZE, START + PAGES * PAGE_SIZE, false),
                -EFAULT);
        assert_true(refusals > 0);
        refusals = 0;
        env_teardown();
}

static uint32_t word_of(unsigned v)
{
        return (uint32_t)env.frames[pte_num(env.pte[v]) - ENV_PFN0].word;
}

static void begin_with(const struct vma *vma, uint64_t slots)
{
        env_setup(256, slots, PAGES, 0);
        pager_init(&pager, env.frames, env.nframes, ENV_PFN0);
        memset(&vcpu_self_stats, 0, sizeof(vcpu_self_stats));
        memset(&vcpu_self.frames, 0, sizeof(vcpu_self.frames));
        memset(&profiled, 0, sizeof(profiled));
        control.fetch_mask = FETCH_SAMPLE - 1;
        mapped = vma;
}

static void begin(const struct vma *vma) { begin_with(vma, 4); }

/* Pages of a locked mapping are locked at first touch, as are the pages of a file that come with
 * them. Pages of other mappings are not. */
static void test_first_touch_locks(void **state)
{
        struct vma vma = file_vma;

        (void)state;
        for (unsigned file = 0; file < 2; file++)
                for (unsigned locked = 0; locked < 2; locked++) {
                        vma.file = file ? file_vma.file : FILE_NONE;
                        vma.prot = 3;
                        vma.flags = MAP_PRIVATE | (locked ? VMA_LOCKED : 0) | VMA_TOUCH;
                        begin(&vma);
                        assert_int_equal(fault_in(START, START + 2 * PAGE_SIZE, false), 0);
                        for (unsigned v = 0; v < 2; v++) {
                                assert_int_equal(pte_kind(env.pte[v]), PTE_PRESENT);
                                assert_int_equal(!!(word_of(v) & FRAME_LOCKED), locked);
                                assert_true(env.pte[v] & PTE_CHARGED);
                        }
                        env_teardown();
                }
}

/* A page that cannot be charged is not installed, and its frame is not lost. */
static void test_charge_fails(void **state)
{
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        vma.prot = 3;
        vma.flags = MAP_PRIVATE | VMA_TOUCH;
        begin(&vma);
        charge_left = 1;
        assert_int_equal(fault_in(START, START + 2 * PAGE_SIZE, true), -ENOMEM);
        charge_left = UINT32_MAX;
        assert_int_equal(pte_kind(env.pte[0]), PTE_PRESENT);
        assert_int_equal(pte_kind(env.pte[1]), PTE_NONE);
        assert_int_equal(vcpu_self_stats.faults[FAULT_ZERO], 1);
        env_teardown();
}

static void test_rights(void **state)
{
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        vma.prot = 1;
        vma.flags = MAP_PRIVATE;
        vma.end -= PAGE_SIZE;
        begin(&vma);
        assert_int_equal(fault_in(START, START + PAGE_SIZE, true), -EFAULT);
        assert_int_equal(pte_kind(env.pte[0]), PTE_NONE);
        assert_int_equal(fault_in(START, START + PAGE_SIZE, false), 0);
        assert_int_equal(fault_in(START, START + PAGE_SIZE, true), -EFAULT);
        assert_int_equal(fault_in(vma.end, vma.end + PAGE_SIZE, false), -EFAULT);
        env_teardown();
}

static bool yes(void) { return true; }
static int no_page(bool write, uint64_t slot)
{
        (void)slot;
        return write ? 0 : -EIO;
}
static void node_answers(pte_slot_t *pte, pte_t seen)
{
        (void)pte;
        (void)seen;
        assert_true(env_io_step(0));
}

/* A node's page that cannot be had: the fault fails, its frame is free again, and the page stays
 * lost, without another read, until it is unmapped. */
static void test_page_is_lost(void **state)
{
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        vma.prot = 3;
        begin(&vma);
        env.post = yes;
        env.wait = node_answers;
        for (unsigned v = 0; v < 2; v++) {
                env.slot_used[v] = 1;
                env.pte[v] = pte_make_remote(v, pte_prot(true, true, false));
        }
        env.fail_posted = -EIO;
        vcpu_self.cr2 = START + 8;
        vcpu_self.regs.err = 0;
        page_fault();
        assert_int_equal(raised.signo, SIGBUS);
        assert_int_equal(raised.code, BUS_MCEERR_AR);
        assert_int_equal(raised.addr, START + 8);
        assert_int_equal(pte_kind(env.pte[0]), PTE_REMOTE);
        assert_true(env.pte[0] & PTE_LOST);
        assert_int_equal(pte_num(env.pte[0]), 0);
        assert_int_equal(env.reads, 1);
        env.fail_posted = 0;
        raised.code = 0;
        page_fault();
        assert_int_equal(raised.code, BUS_MCEERR_AR);
        assert_int_equal(fault_in(START, START + PAGE_SIZE, true), -EFAULT);
        assert_int_equal(env.reads, 1);
        /* Its neighbour is as it was, and protection does not bring it back. */
        uint64_t fetches = stats()->faults[FAULT_FETCH];
        assert_int_equal(fault_in(START + PAGE_SIZE, START + 2 * PAGE_SIZE, false), 0);
        assert_int_equal(stats()->faults[FAULT_FETCH], fetches + 1);
        page_protect(&pager, &env.pte[0], pte_prot(true, false, false));
        assert_int_equal(fault_in(START, START + PAGE_SIZE, false), -EFAULT);
        assert_int_equal(fault_in(START, START + PAGE_SIZE, true), -EFAULT);
        assert_int_equal(pager.nfree + vcpu_self.frames.free.n, env.nframes - 1);
        pte_t old;
        assert_int_equal(page_detach(&pager, &env.pte[0], &old), FRAME_NONE);
        assert_int_equal(env.slot_used[0], 0);
        env_teardown();
}

static void touch(unsigned v, bool write)
{
        memset(&asked, 0, sizeof(asked));
        memset(&raised, 0, sizeof(raised));
        vcpu_self.cr2 = START + v * PAGE_SIZE;
        vcpu_self.regs.err = write ? 1 << 1 : 0;
        page_fault();
}

static void end_by_fault(uint64_t addr, uint64_t rip)
{
        vcpu_self.cr2 = addr;
        vcpu_self.regs.rip = rip;
        vcpu_self.regs.err = 0;
        page_fault();
        vcpu_self.regs.rip = 0;
}

/* A guide runs while the page is under way; the fault is over when it is, however it ends. */
static void test_guided(void **state)
{
        const pte_t rw = pte_prot(true, true, false);
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        vma.prot = 3;
        begin_with(&vma, PAGES);
        env.post = yes;
        env.wait = node_answers;
        memset(&guide, 0, sizeof(guide));
        guide.is = true;
        for (unsigned v = 0; v < PAGES; v++) {
                env.slot_used[v] = 1;
                env.pte[v] = pte_make_remote(v, rw);
        }
        /* It returns. */
        touch(0, false);
        assert_int_equal(guide.begun, 1);
        assert_int_equal(guide.kept.event, HINT_MISSED);
        assert_int_equal(pte_kind(env.pte[0]), PTE_BUSY);
        assert_int_equal(stats()->faults[FAULT_FETCH], 0);
        end_by_fault(GUIDE_RETURN, GUIDE_RETURN);
        assert_int_equal(guide.how, GUIDE_RETURNED);
        assert_int_equal(pte_kind(env.pte[0]), PTE_PRESENT);
        assert_int_equal(stats()->faults[FAULT_FETCH], 1);
        assert_int_equal(guide.begun, 1);
        /* It is called again when the page is there, and then no more. */
        guide.again = true;
        touch(1, false);
        end_by_fault(GUIDE_RETURN, GUIDE_RETURN);
        assert_int_equal(guide.begun, 3);
        assert_int_equal(guide.kept.event, HINT_CAME);
        assert_int_equal(pte_kind(env.pte[1]), PTE_PRESENT);
        assert_int_equal(stats()->faults[FAULT_FETCH], 1);
        end_by_fault(GUIDE_RETURN, GUIDE_RETURN);
        assert_int_equal(guide.begun, 3);
        assert_int_equal(stats()->faults[FAULT_FETCH], 2);
        /* The guide touches a far page: that ends it, and the page is not asked for. */
        touch(2, false);
        end_by_fault(START + 9 * PAGE_SIZE, 0x1234);
        assert_int_equal(guide.how, GUIDE_TOUCHED);
        assert_int_equal(pte_kind(env.pte[9]), PTE_REMOTE);
        assert_int_equal(pte_kind(env.pte[2]), PTE_PRESENT);
        assert_false(guide_runs());
        /* Pages that are here, or not the program's. */
        touch(3, false);
        end_by_fault(START, 0x1234);
        assert_true(guide_runs());
        end_by_fault(RESERVED_START + 8, 0x1234);
        assert_int_equal(guide.how, GUIDE_TOUCHED);
        /* A page that cannot be had is the thread's signal, not the guide's. */
        env.fail_posted = -EIO;
        touch(4, false);
        assert_int_equal(raised.signo, 0);
        fault_guide_over(GUIDE_CALLED);
        assert_int_equal(raised.signo, SIGBUS);
        assert_int_equal(raised.addr, START + 4 * PAGE_SIZE + 8);
        env.fail_posted = 0;
        /* After a signal no other guide begins, although the page has gone again. */
        env.pte[5] = pte_make_busy(ENV_PFN0 + 200, rw) | PTE_PREF;
        unsigned begun = guide.begun;
        touch(5, false);
        assert_int_equal(guide.begun, begun + 1);
        assert_int_equal(guide.kept.awaits, WAIT_PTE);
        env.pte[5] = pte_make_remote(5, rw);
        fault_guide_over(GUIDE_INTERRUPTED);
        assert_int_equal(guide.begun, begun + 1);
        assert_false(guide_runs());
        assert_int_equal(pte_kind(env.pte[5]), PTE_PRESENT);
        /* A call that faults a range in begins no guide. */
        assert_int_equal(fault_in(START + 6 * PAGE_SIZE, START + 8 * PAGE_SIZE, false), 0);
        assert_int_equal(guide.begun, begun + 1);
        guide.is = false;
        env_teardown();
}

/* While the program is recorded, each page that it waits for is noted, also in a range; others are
 * not. */
static void test_recorded(void **state)
{
        const pte_t rw = pte_prot(true, true, false);
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        vma.prot = 3;
        begin(&vma);
        env.wait = node_answers;
        for (unsigned v = 0; v < 4; v++) {
                env.slot_used[v] = 1;
                env.pte[v] = pte_make_remote(v, rw);
        }
        noted = 0;
        env.post = yes;
        touch(0, false);
        assert_int_equal(noted, 0);
        control.record = 1;
        touch(1, false);
        assert_int_equal(noted, 1);
        assert_int_equal(fault_in(START + 2 * PAGE_SIZE, START + 3 * PAGE_SIZE, false), 0);
        assert_int_equal(noted, 2);
        touch(1, false);                /* it is here */
        env.post = NULL;
        touch(3, false);                /* a node that is memory: no wait */
        assert_int_equal(noted, 2);
        control.record = 0;
        env_teardown();
}

/* The policy is asked once a fault, with the fault's cause, while the program's own read is under
 * way; not where the access is denied, and not for a page of a range. */
static void test_ahead(void **state)
{
        const pte_t rw = pte_prot(true, true, false), r = pte_prot(true, false, false);
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        vma.prot = 3;
        begin(&vma);
        env.post = yes;
        env.wait = node_answers;
        for (unsigned v = 0; v < 5; v++) {
                env.slot_used[v % 4] = 1;
                env.pte[v] = pte_make_remote(v % 4, v == 3 ? r : rw);
        }
        touch(0, false);
        assert_int_equal(asked.calls, 1);
        assert_int_equal(asked.cause, LOOKAHEAD_MISS);
        assert_int_equal(asked.addr, START);
        assert_int_equal(pte_kind(env.pte[0]), PTE_PRESENT);
        assert_true(env.pte[0] & PTE_A);

        /* late: touched before it arrives */
        frame_t n = frame_take(&pager, &vcpu_self.frames, counters());
        assert_true(page_prefetch(&pager, &env.pte[1], env.pte[1], n, false, counters()));
        assert_int_equal(pte_kind(env.pte[1]), PTE_BUSY);
        touch(1, true);
        assert_int_equal(asked.calls, 1);
        assert_int_equal(asked.cause, LOOKAHEAD_LATE);
        assert_int_equal(promoted, n);
        assert_int_equal(pte_kind(env.pte[1]), PTE_PRESENT);
        assert_int_equal(counters()[CNT_PREFETCH_LATE], 1);
        assert_int_equal(stats()->faults[FAULT_WAIT], 1);

        /* a marker, and a page that may not be written */
        for (unsigned v = 2; v < 4; v++) {
                n = frame_take(&pager, &vcpu_self.frames, counters());
                assert_true(page_prefetch(&pager, &env.pte[v], env.pte[v], n, true, counters()));
                assert_true(env_io_step(0));
                assert_int_equal(pte_kind(env.pte[v]), PTE_HELD);
        }
        touch(2, true);
        assert_int_equal(asked.calls, 1);
        assert_int_equal(asked.cause, LOOKAHEAD_MARKER);
        assert_int_equal(env.pte[2] & (PTE_A | PTE_PREF), PTE_A);
        assert_int_equal(stats()->faults[FAULT_MARKER], 1);
        touch(3, true);
        assert_int_equal(asked.calls, 0);
        assert_int_equal(raised.code, SEGV_ACCERR);
        assert_int_equal(pte_kind(env.pte[3]), PTE_HELD);
        touch(3, false);
        assert_int_equal(asked.cause, LOOKAHEAD_MARKER);
        assert_int_equal(raised.signo, 0);

        memset(&asked, 0, sizeof(asked));
        assert_int_equal(fault_in(START, START + 5 * PAGE_SIZE, false), 0);
        assert_int_equal(asked.ranges, 1);
        assert_int_equal(asked.calls, 0);
        env_teardown();
}

/* A page of a timed tier that was due, but not delivered, when it was touched is a marker.  If the
 * wire is hardly faster than the program, the fault counts as a wait. */
static void test_due(void **state)
{
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        begin(&vma);
        env.post = yes;
        env.wait = node_answers;
        wire_brings = true;
        control.profile = 1;
        for (unsigned v = 0; v < 3; v++) {
                env.slot_used[v] = 1;
                env.pte[v] = pte_make_remote(v, pte_prot(true, true, false));
                frame_t n = frame_take(&pager, &vcpu_self.frames, counters());
                assert_true(page_prefetch(&pager, &env.pte[v], env.pte[v], n, v == 2, counters()));
                wire_is_slow = v == 1;
                stays = 0;
                touch(v, false);
                assert_int_equal(asked.calls, 1);
                assert_int_equal(asked.cause, v == 1 ? LOOKAHEAD_LATE : LOOKAHEAD_MARKER);
                assert_int_equal(stays, v == 1);
                assert_int_equal(counters()[CNT_PREFETCH_LATE], v >= 1);
                assert_int_equal(pte_kind(env.pte[v]), PTE_PRESENT);
        }
        wire_brings = wire_is_slow = false;
        control.profile = 0;
        assert_int_equal(profiled.calls, 1);    /* of the fault that waited */
        assert_int_equal(stats()->faults[FAULT_WAIT], 1);
        assert_int_equal(stats()->faults[FAULT_MARKER], 2);
        env_teardown();
}

/* A prefetch that fails leaves the page as it was, and its frame to the hand. */
static void test_ahead_fails(void **state)
{
        struct vma vma = file_vma;
        pte_t remote = pte_make_remote(0, pte_prot(true, true, false));

        (void)state;
        vma.file = FILE_NONE;
        begin(&vma);
        env.post = yes;
        env.slot_used[0] = 1;
        env.pte[0] = remote;
        frame_t n = frame_take(&pager, &vcpu_self.frames, counters());
        assert_true(page_prefetch(&pager, &env.pte[0], remote, n, false, counters()));
        env.io = no_page;
        assert_true(env_io_step(0));
        assert_int_equal(env.pte[0], remote);
        assert_int_equal(env.frames[n].slot, SLOT_NONE);
        assert_int_equal(clock_pass(&pager, env.nframes, env.nframes, counters()).freed, 1);
        assert_int_equal(pager.nfree + vcpu_self.frames.free.n, env.nframes);
        assert_int_equal(env.slot_used[0], 1);
        env_teardown();
}

/* A page is unmapped while it is being prefetched: the unmapping vCPU does not wait.  The frame
 * goes to the hand once the node has answered, and a vCPU that waited for the page learns of it. */
static void test_ahead_is_abandoned(void **state)
{
        pte_t remote = pte_make_remote(0, pte_prot(true, true, false)), old;
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        begin(&vma);
        env.post = yes;
        for (unsigned i = 0; i < 3; i++) {
                bool marker = i == 1, fails = i == 2;
                env.slot_used[0] = 1;
                env.pte[0] = remote;
                env.io = fails ? no_page : NULL;
                frame_t n = frame_take(&pager, &vcpu_self.frames, counters());
                assert_true(page_prefetch(&pager, &env.pte[0], remote, n, marker, counters()));
                env.pte[0] |= PTE_WAITERS;
                assert_int_equal(page_detach(&pager, &env.pte[0], &old), n);
                assert_int_equal(env.pte[0], 0);
                frame_discard(&pager, &vcpu_self.frames, n);
                assert_int_equal(clock_pass(&pager, env.nframes, env.nframes, counters()).freed, 0);
                assert_int_equal(env.slot_used[0], 1);  /* the node may still read from it */
                /* another page comes to this address meanwhile */
                env.pte[0] = pte_make_remote(1, 0);
                assert_true(env_io_step(0));
                assert_int_equal(env.pte[0], pte_make_remote(1, 0));
                assert_int_equal(clock_pass(&pager, env.nframes, env.nframes, counters()).freed, 1);
                assert_int_equal(env.slot_used[0], 0);
                assert_int_equal(pager.nfree + vcpu_self.frames.free.n, env.nframes);
        }
        env_teardown();
}

/* An unused prefetched page is spared once, then evicted and counted.  A used one counts once,
 * be it page_use() or the hand that sees it first. */
static void test_ahead_is_spared(void **state)
{
        const pte_t rw = pte_prot(true, true, false);
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        begin(&vma);
        env.post = yes;
        for (unsigned v = 0; v < 3; v++) {
                env.slot_used[v] = 1;
                env.pte[v] = pte_make_remote(v, rw);
                frame_t n = frame_take(&pager, &vcpu_self.frames, counters());
                assert_true(page_prefetch(&pager, &env.pte[v], env.pte[v], n, false, counters()));
                assert_true(env_io_step(0));
                assert_int_equal(env.pte[v] & (PTE_PREF | PTE_A), PTE_PREF);
        }
        assert_int_equal(page_use(&pager, &env.pte[1]), LOOKAHEAD_UNUSED);
        atomic_fetch_or(&env.pte[1], PTE_A);
        atomic_fetch_or(&env.pte[2], PTE_A);
        assert_int_equal(page_use(&pager, &env.pte[1]), LOOKAHEAD_USED);
        assert_int_equal(page_use(&pager, &env.pte[1]), LOOKAHEAD_OTHER);
        assert_int_equal(clock_pass(&pager, env.nframes, env.nframes, counters()).freed, 0);
        assert_int_equal(counters()[CNT_PREFETCH_HITS], 1);     /* of the third; we did not count */
        assert_int_equal(pte_kind(env.pte[0]), PTE_PRESENT);
        clock_pass(&pager, env.nframes, env.nframes, counters());
        assert_int_equal(pte_kind(env.pte[0]), PTE_REMOTE);
        assert_int_equal(counters()[CNT_PREFETCH_WASTED], 1);
        env_teardown();
}

/* The statistics count a fault in the bucket of its time: no less than its exit took, and no more
 * than the whole fault took. */
static void test_latency(void **state)
{
        const unsigned faults = PAGES / FAULT_AROUND;
        uint64_t seen = 0;

        (void)state;
        begin(&file_vma);
        control.stats_on = 1;
        host_ticks = 1 << 20;
        uint64_t before = cpu_tsc();
        assert_int_equal(fault_in(START, START + PAGES * PAGE_SIZE, false), 0);
        uint64_t all = cpu_tsc() - before;
        for (unsigned b = 0; b < HIST_BUCKETS; b++) {
                uint32_t n = vcpu_self_stats.hist[FAULT_FILE][b];
                if (n) {
                        assert_true(b + 1 == HIST_BUCKETS || hist_low(b + 1) > host_ticks);
                        assert_true(hist_low(b) <= all);
                }
                seen += n;
        }
        assert_int_equal(seen, faults);
        assert_int_equal(vcpu_self_stats.faults[FAULT_FILE], faults);
        /* The other pages of the run were there when they were asked for. */
        assert_int_equal(vcpu_self_stats.faults[FAULT_SPURIOUS], PAGES - faults);
        host_ticks = 0;
        control.stats_on = 0;
        env_teardown();
}

/* The page comes the second time that the vCPU looks. */
static void node_answers_late(pte_slot_t *pte, pte_t seen)
{
        static unsigned turn;

        if (turn++ % 2)
                node_answers(pte, seen);
}

/* The profile gets each fault that waited for far memory, once, with all of its wait, also without
 * statistics. */
static void test_profile(void **state)
{
        const pte_t rw = pte_prot(true, true, false);
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        begin(&vma);
        for (unsigned v = 0; v < 6; v++) {
                env.slot_used[v % 4] = 1;
                env.pte[v] = pte_make_remote(v % 4, rw);
        }
        touch(0, false);
        assert_int_equal(profiled.calls, 0);
        control.profile = 1;
        control.fetch_mask = 0;
        touch(1, false);                        /* this vCPU copies the page */
        assert_int_equal(profiled.calls, 1);
        assert_int_equal(profiled.last.addr, START + PAGE_SIZE);
        assert_false(profiled.last.late || profiled.last.again || profiled.last.in_call);
        assert_int_equal(stats()->ticks[LAT_HANDLER], 0);
        touch(1, false);                        /* it is there */
        assert_int_equal(profiled.calls, 1);
        env.post = yes;
        env.wait = node_answers_late;
        touch(2, false);                        /* a node sends it */
        assert_int_equal(profiled.calls, 2);
        assert_false(profiled.last.late || profiled.last.again);
        assert_in_range(profiled.ticks, 1, 1ull << 40);
        for (unsigned v = 3; v < 5; v++) {
                frame_t n = frame_take(&pager, &vcpu_self.frames, counters());
                assert_true(page_prefetch(&pager, &env.pte[v], env.pte[v], n, v == 4, counters()));
        }
        touch(3, false);                        /* late: two looks */
        assert_int_equal(profiled.calls, 4);
        assert_true(profiled.last.late && profiled.last.again);
        env_io_step(0);
        touch(4, false);                        /* a marker: no wait */
        assert_int_equal(profiled.calls, 4);
        assert_int_equal(fault_in(START + 5 * PAGE_SIZE, START + 6 * PAGE_SIZE, false), 0);
        assert_int_equal(profiled.calls, 5);
        assert_true(profiled.last.in_call && !profiled.last.late);
        control.profile = 0;
        env_teardown();
}

/* An instruction that needs two pages at once, of which one fits in: faults on either, n times.
 * Returns the waits for frames before a fault failed; 0: none did. */
static unsigned alternate(unsigned n)
{
        waits = 0;
        for (unsigned i = 0; i < n; i++) {
                touch(i % 2 * FAULT_AROUND, i % 2);
                if (raised.signo) {
                        assert_int_equal(raised.signo, SIGBUS);
                        return waits;
                }
        }
        return 0;
}

/* An instruction that can never end, for pages that cannot be written fill the cache, fails.  One
 * that only takes long does not, however many faults it takes, and however many come after it. */
static void test_stuck(void **state)
{
        struct vma vma = file_vma;

        (void)state;
        vma.file = FILE_NONE;
        vma.prot = 3;
        begin(&vma);
        for (unsigned i = 1; i < env.nframes; i++)
                assert_true(frame_take(&pager, &vcpu_self.frames, counters()) != FRAME_NONE);
        pages_leave = true;
        unwritable = 1;
        unsigned most = alternate(2000);
        assert_in_range(most, 64, 1024);
        assert_int_equal(alternate(2000), most);        /* the count begins anew */
        uint64_t *reg[] = { &vcpu_self.regs.rip, &vcpu_self.regs.rsp, &vcpu_self.regs.rcx,
                            &vcpu_self.regs.r15, &vcpu_self.regs.rax };
        for (unsigned i = 0; i < 5; i++) {
                for (unsigned step = 0; step < 10; step++) {
                        *reg[i] += step % 2 ? 1 : 0x1000;
                        assert_int_equal(alternate(most - 2), 0);
                }
        }
        vcpu_self.regs.rip++;
        for (unsigned i = 0; i < 3000; i++)             /* one system call */
                assert_int_equal(fault_in(START + i % 2 * PAGE_SIZE,
                                          START + (i % 2 + 1) * PAGE_SIZE, false), 0);
        assert_int_equal(alternate(most - 2), 0);
        in_vain = 300;                                  /* others take the frame first */
        vcpu_self.regs.rip++;
        assert_int_equal(alternate(most - 2), 0);
        in_vain = 0;
        unwritable = 0;                                 /* others have the frames */
        vcpu_self.regs.rip++;
        assert_int_equal(alternate(3000), 0);
        unwritable = 1;
        assert_in_range(alternate(3000), 1, most);
        pages_leave = false;
        memset(&vcpu_self.regs, 0, sizeof(vcpu_self.regs));
        env_teardown();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_file_fault_leaves_xfer_alone),
                cmocka_unit_test(test_file_is_lost),
                cmocka_unit_test(test_first_touch_locks),
                cmocka_unit_test(test_charge_fails),
                cmocka_unit_test(test_rights),
                cmocka_unit_test(test_page_is_lost),
                cmocka_unit_test(test_guided),
                cmocka_unit_test(test_recorded),
                cmocka_unit_test(test_ahead),
                cmocka_unit_test(test_due),
                cmocka_unit_test(test_ahead_fails),
                cmocka_unit_test(test_ahead_is_abandoned),
                cmocka_unit_test(test_ahead_is_spared),
                cmocka_unit_test(test_latency),
                cmocka_unit_test(test_profile),
                cmocka_unit_test(test_stuck),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
