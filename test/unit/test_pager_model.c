/*
 * Model check of the pager core: several actors, an adversarial TLB, and a plain array that knows
 * what each page must hold.
 *
 * The pager's own sources are compiled here with a scheduling point around each atomic operation.
 * Every actor is a coroutine, and at each point a seed decides which actor continues. So races are
 * explored step by step, and each run can be repeated.
 *
 *   vCPUs     read and write pages as the hardware does (pager_tlb.h), and fault
 *   cleaner   moves the CLOCK hand
 *   mm        unmap, discard, protect, move, cool and lock pages under mm_lock, as kern's range
 *             operations do
 *   gmem      pins pages, reads and writes them through the window; reads far ones where they are
 *   io        ends the transfers that were posted, in any order
 *
 * A page carries a version and the number of the object it belongs to: a piece of program memory
 * from its mapping to its unmapping; mremap moves it. want[] has the version each object must have.
 * A translation stays bound to the object it was walked for.
 *
 * Environment: SEED, STEPS (scheduling points in all), VERBOSE. mutate.sh shows that planted bugs
 * are found.
 */
/* before any header of the pager: its inline functions have scheduling points, too */
#include "pager_hooks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <errno.h>
#include <cmocka.h>
#include "pager/frames.c"
#include "pager/transition.c"
#include "pager/balance.c"
#include "pager/clock.c"
#include "pager/evict.c"
#include "pager_env.h"
#include "pager_sched.h"
#include "pager_tlb.h"

/* --- what kern does around the pager --- */

static struct { bool held; } mm_lock;

static void mm_take(void)
{
        while (mm_lock.held)
                point();
        mm_lock.held = true;
}

static void mm_drop(void) { mm_lock.held = false; }

/* The last flush of a range operation; guarded by mm_lock. */
static uint64_t last_flush;

/* Under mm_lock: begins a flush if one is needed; the operation waits for the last in any case. */
static uint64_t flush_begin(bool needed)
{
        if (needed)
                last_flush = env_flush_begin();
        return last_flush;
}

static void flush_wait(uint64_t epoch)
{
        while (!env_flush_done(epoch)) {
                env_flush_look();
                point();
        }
}

/* A fault that saw a page's old VMA has installed the page when this returns, or never will. */
static void wait_faults(unsigned v)
{
        for (unsigned i = 0; i < m.ncpus; i++)
                while (m.cpu[i].published == v + 1)
                        point();
}

static void need_frame(struct cpu *c)
{
        uint64_t dirty = c->cnt[CNT_EVICTED_DIRTY];
        uint32_t freed = clock_reclaim(&env.pg, &c->sweeper, &c->list, c->cnt);

        m.seen[SEEN_DIRECT] += freed;
        m.seen[SEEN_DIRECT_DIRTY] += c->cnt[CNT_EVICTED_DIRTY] - dirty;
        if (freed > 0)
                return;
        frame_list_drain(&env.pg, &c->list);
        point();
}

static void fill_origin(frame_t n, uint64_t obj)
{
        for (unsigned i = 0; i < ENV_WORDS; i++)
                env.content[n][i] = page_word(obj, 0, i);
}

/* First touch; c has published v. */
static int first_touch(struct cpu *c, unsigned v, bool write)
{
        struct vma vma = m.vma[v];      /* one moment: kern's mm_lookup() copies a VMA whole */
        if (!vma.mapped || !pte_allows(vma.prot, write, false))
                return -EFAULT;
        frame_t n = frame_take(&env.pg, &c->list, c->cnt);
        if (n == FRAME_NONE)
                return -ENOMEM;
        fill_origin(n, vma.obj);
        pte_t charge = chance(2) ? PTE_CHARGED : 0;
        env.charged += charge != 0;
        if (page_install(&env.pg, &env.pte[v], n, vma.prot | charge, chance(4) ? 0 : PTE_A) != 0) {
                env.charged -= charge != 0;
                frame_free(&env.pg, &c->list, n);
        }
        return 0;
}

static int fetch(struct cpu *c, unsigned v, pte_t p, bool write)
{
        if (!pte_allows(p, write, false))
                return -EFAULT;
        frame_t n = frame_take(&env.pg, &c->list, c->cnt);
        if (n == FRAME_NONE)
                return -ENOMEM;
        int err = page_fetch(&env.pg, &env.pte[v], p, n, c->cnt);
        if (err == ENV_POSTED) {
                pte_t busy = pte_make_busy(ENV_PFN0 + n, p & PTE_KEEP), now = busy;
                c->published = 0;
                do {
                        page_wait(&env.pte[v], now);
                        now = atomic_load(&env.pte[v]);
                } while ((now & ~PTE_WAITERS) == busy);
                m.seen[SEEN_POSTED]++;
                return 0;
        }
        if (err)
                frame_free(&env.pg, &c->list, n);
        m.seen[err == 0 ? SEEN_FETCH : err == -EAGAIN ? SEEN_FETCH_RACE : SEEN_READ_ERROR]++;
        return 0;
}

/* Asks for a page that no vCPU needs yet; nothing is published. */
static void prefetch(struct cpu *c)
{
        unsigned v = rnd(env.npages);
        pte_t p = atomic_load(&env.pte[v]);

        if (pte_kind(p) != PTE_REMOTE || (p & PTE_LOST) || !(p & PTE_ACCESS))
                return;
        frame_t n = frame_take(&env.pg, &c->list, c->cnt);
        if (n == FRAME_NONE)
                return;
        bool marker = chance(3), asked = page_prefetch(&env.pg, &env.pte[v], p, n, marker, c->cnt);
        if (!asked)
                frame_free(&env.pg, &c->list, n);
        m.seen[asked ? SEEN_PREFETCH : SEEN_PREFETCH_RACE]++;
}

/* While an entry is PART the slot is this page's, and no vCPU writes to it. */
static void check_part(uint64_t slot, uint64_t obj)
{
        for (unsigned i = 0; i < ENV_WORDS; i++) {
                uint64_t want = page_word(obj, m.want[obj % OBJECTS], i), have = env.far[slot][i];
                if (!env.slot_used[slot] || have != want)
                        sched_fail("part: slot %lu word %u holds %lu, object %lu wants %lu",
                                   (unsigned long)slot, i, (unsigned long)have, (unsigned long)obj,
                                   (unsigned long)want);
                point();
        }
}

/* Reads a page that is far where it is (kern/paging/part.c). */
static void read_part(struct cpu *c, unsigned v)
{
        c->published = v + 1;
        point();
        pte_t p = atomic_load(&env.pte[v]);
        bool far = pte_kind(p) == PTE_REMOTE && !(p & (PTE_LOST | PTE_WANTED)) &&
                   pte_allows(p, false, false);
        bool taken = far && page_part(&env.pte[v], p);
        c->published = 0;
        m.seen[SEEN_WANTED] += pte_kind(p) == PTE_REMOTE && (p & PTE_WANTED);
        if (pte_kind(p) == PTE_PART) {
                m.seen[SEEN_PART_WAIT]++;
                page_wait_part(&env.pte[v], p);
        }
        m.seen[SEEN_PART_RACE] += far && !taken;
        if (!taken)
                return;
        uint64_t slot = pte_slot(p), obj = env.far[slot][0], gen = m.gen[v];
        if (!(gen & 1) && obj != m.vma[v].obj)
                sched_fail("part: page %u holds object %lu", v, (unsigned long)obj);
        check_part(slot, obj);
        sched_delay(rnd(chance(4) ? m.io_pause : 4));
        check_part(slot, obj);
        bool lost = m.io_errors && chance(m.io_errors);
        m.seen[SEEN_PART]++;
        m.seen[SEEN_PART_AWAITED] += (env.pte[v] & PTE_WAITERS) != 0;
        m.seen[SEEN_PART_WANTED] += (env.pte[v] & PTE_WANTED) != 0;
        m.seen[SEEN_PART_LOST] += lost;
        page_part_over(&env.pte[v], lost ? -EIO : 0);
}

/* One after the other, so that a sleeper of the first may meet the next. */
static void read_parts(struct cpu *c, unsigned v)
{
        do
                read_part(c, v);
        while (!chance(3));
}

/* Of a working set, so that several actors meet at it. */
static unsigned hot_page(void) { return rnd(chance(64) ? env.npages : 3); }

/* Behind a stream; nothing is published. */
static void pass_some(struct cpu *c)
{
        for (unsigned k = 1 + rnd(8); k > 0; k--)
                m.seen[SEEN_PASSED] += page_pass(&env.pg, &c->list, &env.pte[hot_page()]);
}

/* kern's page fault.  0: try again; -EFAULT: the program may not do that. */
static int fault(struct cpu *c, unsigned v, bool write)
{
        uint64_t gen = m.gen[v];
        int err = 0;

        c->published = v + 1;
        point();
        pte_t p = atomic_load(&env.pte[v]);
        switch (pte_kind(p)) {
        case PTE_NONE:
                err = first_touch(c, v, write);
                break;
        case PTE_REMOTE:
                if (chance(2))          /* a page that comes back needs no VMA */
                        c->published = 0;
                err = fetch(c, v, p, write);
                break;
        case PTE_BUSY:
        case PTE_PART:
                c->published = 0;       /* a fault that sleeps is not published */
                page_wait(&env.pte[v], p);
                m.seen[SEEN_WAIT]++;
                break;
        case PTE_HELD:
                err = pte_allows(p, write, false) ? 0 : -EFAULT;
                if (!err && page_use_marker(&env.pte[v], p))
                        m.seen[SEEN_MARKER]++;
                break;
        case PTE_PRESENT:
                err = pte_allows(p, write, false) ? 0 : -EFAULT;
                break;
        default:
                sched_fail("entry %u in no known state: %#lx", v, (unsigned long)p);
        }
        c->published = 0;
        for (unsigned k = rnd(3); m.prefetches && k > 0; k--)
                prefetch(c);
        if (m.prefetches && chance(2))
                m.seen[SEEN_AHEAD] +=
                        page_use(&env.pg, &env.pte[rnd(env.npages)]) == LOOKAHEAD_USED;
        if (m.cooling || chance(4))
                pass_some(c);
        if (err == -ENOMEM)
                need_frame(c);
        if (err == -EFAULT && gen == m.gen[v] && !(gen & 1) && vma_allows(v, write))
                sched_fail("page %u: an access was denied that its VMA allows (entry %#lx)", v,
                           (unsigned long)p);
        return err == -ENOMEM ? 0 : err;
}

/* --- actors --- */

static void vcpu_actor(void *arg)
{
        struct cpu *c = arg;

        while (!m.stop) {
                unsigned v = chance(3) ? rnd(3) : rnd(env.npages), burst = rnd(4);
                bool write = chance(3);
                cpu_enter_program(c);
                for (unsigned tries = 0; tries < 12 && !m.stop; tries++) {
                        point();
                        if (chance(1 + m.lazy))
                                cpu_look(c);
                        if (cpu_access(c, v, write)) {
                                if (burst-- == 0)
                                        break;
                                continue;
                        }
                        cpu_leave_program(c);
                        if (chance(8))
                                read_parts(c, v);
                        int err = fault(c, v, write);
                        cpu_enter_program(c);
                        if (err)
                                break;
                }
                bool inside = chance(2);        /* idle in the program, or in a system call */
                if (!inside)
                        cpu_leave_program(c);
                for (unsigned k = rnd(m.cpu_pause); k > 0; k--) {
                        point();
                        if (inside && chance(m.lazy))
                                cpu_look(c);
                }
                cpu_leave_program(c);
        }
}

/* Runs, as the far tier does, until no other actor can wait for a frame that is being written. */
static void cleaner_actor(void *arg)
{
        struct cpu *c = arg;

        while (!m.stop || sched_running() > 2 || env.pg.writing > 0) {
                struct clock_result r = env_pass(1 + rnd(env.nframes), c->cnt);
                m.seen[SEEN_CLEARED] += r.cleared;
                m.seen[SEEN_UNFLUSHED] += r.unflushed;
                point();
        }
}

static void gmem_actor(void *arg)
{
        struct cpu *c = arg;

        while (!m.stop) {
                unsigned v = rnd(env.npages);
                bool write = chance(2);
                uint64_t gen = m.gen[v];
                frame_t n = frame_pin(env.frames, ENV_PFN0, &env.pte[v], write);
                if (n == FRAME_NONE) {
                        if (chance(4))
                                read_parts(c, v);
                        else
                                fault(c, v, write);
                        continue;
                }
                m.seen[SEEN_PIN]++;
                m.seen[SEEN_PIN_WRITING] += (env.frames[n].word & FRAME_WRITING) != 0;
                uint64_t obj = env.content[n][0];
                if (gen == m.gen[v] && !(gen & 1) && (obj != m.vma[v].obj || !vma_allows(v, write)))
                        sched_fail("page %u pinned, but frame %u holds object %lu or access is not "
                                   "allowed",
                                   v, n, (unsigned long)obj);
                for (unsigned k = rnd(4); k > 0; k--) {
                        page_check("pinned", n, obj);
                        if (write)
                                page_write(n, obj);
                        point();
                }
                page_check("pinned", n, obj);
                frame_unpin(&env.frames[n], write);
        }
}

static bool post_some(void) { return !chance(4); }
static bool odd(uint64_t slot) { return slot & 1; }

/* The last to stop: other actors wait for the transfers that it ends. */
static void io_actor(void *arg)
{
        (void)arg;
        while (!m.stop || sched_running() > 1) {
                if (!env_io_step(rnd(ENV_TRANSFERS)))
                        point();
                sched_delay(rnd(m.io_pause));
        }
        while (env_io_step(0))          /* prefetches, for which no vCPU waits */
                ;
}

/* --- mm: each operation on one page; the caller holds mm_lock --- */

static void mm_begin(unsigned v)
{
        if (m.operations[v]++ == 0)
                m.gen[v]++;
}

static void mm_end(unsigned v)
{
        if (--m.operations[v] == 0) {
                m.gen[v]++;
                m.alt[v] = 0;
        }
}

/* munmap; or, if stay, MADV_DONTNEED, which drops mm_lock before the flush. */
static void mm_drop_pages(struct cpu *c, unsigned v, unsigned n, bool stay)
{
        struct dropped dropped = DROPPED_NONE;

        for (unsigned i = v; i < v + n; i++) {
                mm_begin(i);
                unlock_page(i);
                /* hidden, as kern hides a VMA, until its pages are off their entries */
                m.vma[i].mapped = false;
                m.alt[i] = m.vma[i].obj;
                m.vma[i].obj = new_object();
                wait_faults(i);
        }
        for (unsigned i = v; i < v + n; i++) {
                pte_t old = page_drop(&env.pg, &c->list, &env.pte[i], &dropped);
                env.charged -= (old & PTE_CHARGED) != 0;
                m.seen[SEEN_ABANDONED] += pte_kind(old) == PTE_BUSY;
                m.seen[SEEN_UNMAP_COLD] += (old & PTE_P) && !dropped.flush;
                m.vma[i].mapped = stay;
        }
        uint64_t epoch = flush_begin(dropped.flush);
        if (stay)
                mm_drop();
        flush_wait(epoch);
        dropped_free(&env.pg, &c->list, &dropped);
        for (unsigned i = v; i < v + n; i++)
                mm_end(i);
        m.seen[SEEN_UNMAP]++;
        if (!stay)
                mm_drop();
}

static void mm_protect(unsigned v, unsigned n, pte_t prot)
{
        bool flush = false;

        for (unsigned i = v; i < v + n; i++) {
                mm_begin(i);
                m.vma[i].prot = prot;
                wait_faults(i);
        }
        for (unsigned i = v; i < v + n; i++)
                flush |= page_protect(&env.pg, &env.pte[i], prot);
        uint64_t epoch = flush_begin(flush);
        mm_drop();
        flush_wait(epoch);
        for (unsigned i = v; i < v + n; i++)
                mm_end(i);
        m.seen[SEEN_PROTECT]++;
}

static void mm_move(unsigned from, unsigned to)
{
        struct vma vma = m.vma[from];

        mm_begin(from);
        mm_begin(to);
        unlock_page(from);
        m.vma[from].mapped = false;
        wait_faults(from);
        if (pte_kind(env.pte[to]) != PTE_NONE)
                sched_fail("page %u is not mapped and has an entry: %#lx", to,
                           (unsigned long)env.pte[to]);
        m.vma[to].obj = vma.obj;
        flush_wait(flush_begin(page_move(&env.pg, &env.pte[from], &env.pte[to])));
        m.vma[from].obj = new_object();
        m.vma[to] = vma;
        mm_end(from);
        mm_end(to);
        m.seen[SEEN_MOVE]++;
}

static void set_priority(unsigned v)
{
        static const pte_t some[] = { 0, PTE_HIGH, PTE_LOW };
        pte_t seen;

        page_set_priority(&env.pte[v], some[rnd(3)], &seen);
}

/* mm_lock is held; the operation drops it. */
static void mm_operation(struct cpu *c, unsigned v, unsigned n, unsigned w)
{
        if (m.vma[v].mapped && chance(6)) {
                mm_drop_pages(c, v, n, chance(2));
                return;
        }
        if (m.vma[v].mapped && chance(2)) {
                mm_protect(v, n, random_prot());
                return;
        }
        if (!m.vma[v].mapped) {
                mm_begin(v);
                m.vma[v].prot = random_prot();
                m.vma[v].mapped = true;
                mm_end(v);
        } else if (chance(2) && !m.vma[w].mapped) {
                mm_move(v, w);
        } else if (chance(2)) {
                page_cool(&env.pg, &c->list, &env.pte[hot_page()]);
                set_priority(v);
        } else {
                lock_page(v);
        }
        for (unsigned k = m.cooling ? rnd(16) : 0; k > 0; k--)
                page_cool(&env.pg, &c->list, &env.pte[hot_page()]);
        mm_drop();
}

static void mm_actor(void *arg)
{
        struct cpu *c = arg;

        while (!m.stop) {
                unsigned v = rnd(env.npages - 3), n = 1 + rnd(3), w = rnd(env.npages);
                mm_take();
                mm_operation(c, v, n, w);
                sched_delay(rnd(m.mm_pause));
        }
}

/* --- episodes --- */

static void (*const role[])(void *) = { vcpu_actor, vcpu_actor, vcpu_actor, cleaner_actor,
                                        mm_actor,   mm_actor,   gmem_actor, io_actor };
#define ROLES (sizeof(role) / sizeof(role[0]))

static const uint64_t first_epochs[] = { 0, 3, 0x7ffffff0, 0xfffffff0, 0x17ffffff0, 0xfffffffff0 };

/* With any target (the steps in which it moves are 0 in a cache so small), and ticks that may be
 * about to begin anew. */
static void begin_hands(void)
{
        struct balance b;

        balance_init(&b, env.nframes);
        b.target = rnd(b.target + 1);
        if (chance(2))
                b.tick = TICKS - 1 - rnd(8);
        for (size_t i = 0; i < BALANCE_WORDS; i++)
                env.pg.balance[i] = ((uint32_t *)&b)[i];
        env.pg.target = b.target;
        env.pg.now = pte_now(b.tick);
        m.tick = b.tick;
}

static void episode_begin(uint64_t seed)
{
        static const uint32_t switch_in[] = { 1, 2, 4, 16, 64 };

        sched_seed(seed);
        model_reset(3 + rnd(10), rnd(6) ? 4 + rnd(16) : 1, 6 + rnd(10), first_epochs[rnd(6)]);
        sched_reset(switch_in[rnd(5)], model_tick);
        last_flush = 0;
        m.io_errors = chance(2) ? 0 : 2 + rnd(30);
        if (chance(2))
                env.post = post_some;
        if (chance(2))
                env.at_once = odd;
        m.prefetches = !chance(4);
        env.pg.blind = chance(4);
        if (chance(2))
                env.pg.batch = 1 + rnd(3);
        begin_hands();
        m.io_pause = 1u << rnd(9);
        m.busy = 4u << 2 * rnd(5);
        m.cpu_pause = 1u << rnd(9);
        m.mm_pause = 1u << (3 + rnd(10));
        m.stray = chance(4);
        m.cooling = !chance(4);
        m.lazy = 1u << rnd(7);
        m.ncpus = ROLES;
        for (unsigned i = 0; i < ROLES; i++)
                sched_spawn(role[i], &m.cpu[i]);
        for (unsigned v = 0; v < env.npages; v++)
                m.vma[v] = (struct vma){ .mapped = chance(4) ? false : true,
                                         .prot = random_prot(),
                                         .obj = new_object() };
}

/* Gives everything back, outside the scheduler, and looks for leaks. */
static const char *episode_end(void)
{
        struct frame_list *lists[ROLES];
        uint64_t cnt[CNT_COUNT] = { 0 };
        pte_t old;

        for (unsigned i = 0; i < ROLES; i++) {
                lists[i] = &m.cpu[i].list;
                cpu_flush(&m.cpu[i]);
                for (unsigned k = 0; k < CNT_COUNT; k++)
                        cnt[k] += m.cpu[i].cnt[k];
        }
        m.seen[SEEN_EVICT_CLEAN] += cnt[CNT_EVICTED_CLEAN];
        m.seen[SEEN_EVICT_DIRTY] += cnt[CNT_EVICTED_DIRTY];
        m.seen[SEEN_WASTED] += cnt[CNT_PREFETCH_WASTED];
        const char *bad = env_audit(lists, ROLES);
        for (unsigned v = 0; v < env.npages; v++) {
                frame_t f = page_detach(&env.pg, &env.pte[v], &old);
                env.charged -= (old & PTE_CHARGED) != 0;
                if (f != FRAME_NONE)
                        frame_discard(&env.pg, lists[0], f);
        }
        env_flush_begin();
        /* Orphans.  The cleaner has begun a piece: a pass over as many frames as there are would
         * meet a part of it twice, and a part of another piece not at all. */
        env.pg.cleaner = (struct sweeper){ 0 };
        env_pass(env.nframes, cnt);
        for (unsigned i = 0; i < ROLES; i++)
                frame_list_drain(&env.pg, lists[i]);
        return bad ? bad : env_audit_empty();
}

static void test_model(void **state)
{
        uint64_t seed = sched_setting("SEED", (uint64_t)time(NULL) << 20),
                 steps = sched_setting("STEPS", 100000000), first = seed;
        /* sanitizers make it slow */
        time_t end = time(NULL) + (getenv("STEPS") ? 3600 : 20 / (time_t)sched_slow);

        (void)state;
        fprintf(stderr, "# SEED=%lu STEPS=%lu\n", (unsigned long)seed, (unsigned long)steps);
        for (sched_steps = 0; sched_steps < steps && time(NULL) < end; seed++) {
                episode_begin(seed);
                m.until = sched_steps + EPISODE_STEPS;
                sched_run();
                const char *bad = sched_failed() ? NULL : episode_end();
                if (sched_failed() || bad)
                        fail_msg("%s; again with SEED=%lu STEPS=1",
                                 bad ? bad : "an invariant broke", (unsigned long)seed);
                env_teardown();
        }
        fprintf(stderr, "# %lu steps in %lu episodes\n", (unsigned long)sched_steps,
                (unsigned long)(seed - first));
        for (unsigned i = 0; i < SEEN_COUNT; i++) {
                if (getenv("VERBOSE"))
                        fprintf(stderr, "# %s: %lu\n", seen_name[i], (unsigned long)m.seen[i]);
                if (!m.seen[i] && sched_steps >= 40000000)
                        fail_msg("the run never saw: %s", seen_name[i]);
        }
}

/* --- the lists of free frames alone, with batches of one or two frames --- */

#define LIST_ACTORS 4
#define LIST_FRAMES 6
static bool owned[LIST_FRAMES];

static void no_tick(void) {}

static void list_free(struct cpu *c, frame_t n)
{
        owned[n] = false;
        if (c == m.cpu)                 /* the cleaner */
                frame_collect(&env.pg, n);
        else
                frame_free(&env.pg, &c->list, n);
}

static void list_actor(void *arg)
{
        struct cpu *c = arg;
        frame_t have[2], n;

        for (unsigned i = 0, held = 0; i < 100 || held > 0; i++) {
                bool take = i < 100 && held < 2 && chance(2);
                if (take && (n = frame_take(&env.pg, &c->list, c->cnt)) != FRAME_NONE) {
                        if (owned[n])
                                sched_fail("frame %u was taken twice", n);
                        owned[n] = true;
                        have[held++] = n;
                } else if (held > 0) {
                        list_free(c, have[--held]);
                }
                if (chance(2))
                        frame_list_drain(&env.pg, &c->list);
        }
        frame_list_drain(&env.pg, &c->list);
        if (c == m.cpu)
                frames_give(&env.pg);
}

static void test_lists(void **state)
{
        uint64_t seed = sched_setting("SEED", (uint64_t)time(NULL) << 20);

        (void)state;
        for (unsigned i = 0; i < 500 / sched_slow; i++, seed++) {
                sched_seed(seed);
                env_setup(LIST_FRAMES, 1, 1, 0);
                env.pg.batch = 1 + rnd(2);
                memset(&m, 0, sizeof(m));
                memset(owned, 0, sizeof(owned));
                sched_reset(1 + rnd(4), no_tick);
                for (unsigned k = 0; k < LIST_ACTORS; k++)
                        sched_spawn(list_actor, &m.cpu[k]);
                sched_run();
                const char *bad = sched_failed() ? "an invariant broke" : env_audit_empty();
                if (bad)
                        fail_msg("%s; again with SEED=%lu", bad, (unsigned long)seed);
                env_teardown();
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_lists),
                                            cmocka_unit_test(test_model) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
