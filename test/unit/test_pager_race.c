/*
 * The pager core under real threads, for the memory orders that the model check
 * (test_pager_model.c) cannot see, and for TSan.
 *
 * Three vCPU threads have software TLBs; a cleaner moves the hand; one thread unmaps, protects and
 * moves pages; one pins pages and writes to them; one asks for pages ahead, and has a word of other
 * pages count them; one ends the transfers that run by themselves.
 * Each writer owns one word of every page and knows what it last wrote to which object (word 0 of a
 * page; a page gets a new object at each first touch), so a lost write shows without a lock that
 * would hide races.
 *
 * Environment: RACE_SECONDS (default 4).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <cmocka.h>
#include "abi_stats.h"
#include "pager_env.h"

#define VCPUS   3
#define THREADS (VCPUS + 4)             /* and cleaner, mm, gmem, asker */
#define FRAMES  20
#define SLOTS   24                      /* less than PAGES: second copies have to be taken back */
#define PAGES   32
#define OBJECTS (1u << 20)

struct tlb { bool valid, w, d; frame_t frame; };
struct cpu {
        _Atomic bool program;
        _Atomic uint64_t flushed;
        _Atomic unsigned published;
        unsigned id;
        uint64_t random;
        struct tlb tlb[PAGES];
        struct frame_list list;
        struct sweeper sweeper;
        uint64_t cnt[CNT_COUNT];
        uint32_t *wrote;                /* per object: what this thread last wrote to its word */
        uint64_t accesses, faults;
};

static struct cpu cpus[THREADS];
static _Atomic uint64_t vma[PAGES];     /* 0: not mapped, else PTE_PROT bits | 1 */
static _Atomic uint64_t objects;
/* Raised one after the other: the cleaner and the far tier run as long as another thread may wait
 * for one of their frames or pages. */
static _Atomic bool stop, stop_cleaner, stop_io;

static uint32_t rnd(struct cpu *c, uint32_t n)
{
        c->random ^= c->random << 13;
        c->random ^= c->random >> 7;
        c->random ^= c->random << 17;
        return (uint32_t)((c->random >> 32) * n >> 32);
}

#define CHECK(ok, ...) do {                                      \
        if (!(ok)) {                                             \
                fprintf(stderr, __VA_ARGS__);                    \
                fputc('\n', stderr);                             \
                abort();                                         \
        } } while (0)

/* --- pages --- */

static uint64_t get(frame_t f, unsigned word)
{
        return atomic_load_explicit(&env.content[f][word], memory_order_relaxed);
}
static void put(frame_t f, unsigned word, uint64_t x)
{
        atomic_store_explicit(&env.content[f][word], x, memory_order_relaxed);
}

/* The caller may use the frame: by a translation or a pin. */
static void use_page(struct cpu *c, frame_t f, bool write)
{
        uint64_t obj = get(f, 0), mine = get(f, 1 + c->id);

        CHECK(obj > 0 && obj <= objects, "frame %u holds no page: %#lx", f, (unsigned long)obj);
        CHECK(mine == c->wrote[obj % OBJECTS],
              "thread %u, frame %u, object %lu: wrote %u, finds %lu", c->id, f, (unsigned long)obj,
              c->wrote[obj % OBJECTS], (unsigned long)mine);
        if (write)
                put(f, 1 + c->id, ++c->wrote[obj % OBJECTS]);
        CHECK(get(f, 0) == obj, "frame %u changed its page in use", f);
        c->accesses++;
}

/* --- the software MMU --- */

static void look(struct cpu *c)
{
        uint64_t e = atomic_load(&env.flush_epoch);
        if (c->flushed == e)
                return;
        memset(c->tlb, 0, sizeof(c->tlb));
        atomic_store(&c->flushed, e);
}

static void enter_program(struct cpu *c)
{
        atomic_store(&c->program, true);        /* seq_cst: before the look */
        look(c);
}

static void leave_program(struct cpu *c) { atomic_store(&c->program, false); }

static bool walk(unsigned v, bool write, struct tlb *t)
{
        pte_t p = atomic_load(&env.pte[v]), ad = PTE_A | (write ? PTE_D : 0);

        do {
                if (pte_kind(p) != PTE_PRESENT || !pte_allows(p, write, false))
                        return false;
        } while (!atomic_compare_exchange_weak(&env.pte[v], &p, p | ad));
        *t = (struct tlb){ true, p & PTE_W, (p | ad) & PTE_D, (frame_t)(pte_num(p) - ENV_PFN0) };
        return true;
}

static bool access_page(struct cpu *c, unsigned v, bool write)
{
        struct tlb *t = &c->tlb[v];

        if ((!t->valid || (write && !(t->w && t->d))) && !walk(v, write, t)) {
                t->valid = false;
                return false;
        }
        use_page(c, t->frame, write);
        if (rnd(c, 8) == 0)
                t->valid = false;
        return true;
}

static bool flush_done(uint64_t epoch)
{
        if (epoch > atomic_load(&env.flush_epoch))
                return false;
        for (unsigned i = 0; i < VCPUS; i++)
                if (atomic_load(&cpus[i].program) && atomic_load(&cpus[i].flushed) < epoch)
                        return false;
        return true;
}

static void flush_all(void)
{
        uint64_t e = env_flush_begin();
        while (!flush_done(e))
                sched_yield();
}

/* --- kern's part --- */

static int first_touch(struct cpu *c, unsigned v, bool write)
{
        uint64_t m = atomic_load(&vma[v]);
        if (!m || !pte_allows(m, write, false))
                return -EFAULT;
        frame_t f = frame_take(&env.pg, &c->list, c->cnt);
        if (f == FRAME_NONE)
                return -ENOMEM;
        put(f, 0, atomic_fetch_add(&objects, 1) + 1);
        for (unsigned i = 1; i < ENV_WORDS; i++)
                put(f, i, 0);
        /* D: an evicted clean page would come back as another object, which is more than the arrays
         * have room for */
        if (page_install(&env.pg, &env.pte[v], f, m & PTE_PROT,
                         rnd(c, 4) ? PTE_A | PTE_D : PTE_D) != 0)
                frame_free(&env.pg, &c->list, f);
        return 0;
}

static int fetch(struct cpu *c, unsigned v, pte_t p, bool write)
{
        if (!pte_allows(p, write, false))
                return -EFAULT;
        frame_t f = frame_take(&env.pg, &c->list, c->cnt);
        if (f == FRAME_NONE)
                return -ENOMEM;
        int err = page_fetch(&env.pg, &env.pte[v], p, f, c->cnt);
        if (err == ENV_POSTED) {
                pte_t busy = pte_make_busy(ENV_PFN0 + f, p & PTE_KEEP), now = busy;
                atomic_store(&c->published, 0);
                do {
                        page_wait(&env.pte[v], now);
                        now = atomic_load(&env.pte[v]);
                } while ((now & ~PTE_WAITERS) == busy);
        } else if (err) {
                frame_free(&env.pg, &c->list, f);
        }
        return 0;
}

static void need_frame(struct cpu *c)
{
        if (!clock_reclaim(&env.pg, &c->sweeper, &c->list, c->cnt))
                sched_yield();
}

static int fault(struct cpu *c, unsigned v, bool write)
{
        int err = 0;

        c->faults++;
        atomic_store(&c->published, v + 1);
        pte_t p = atomic_load(&env.pte[v]);
        switch (pte_kind(p)) {
        case PTE_NONE:
                err = first_touch(c, v, write);
                break;
        case PTE_REMOTE:
                err = fetch(c, v, p, write);
                break;
        case PTE_BUSY:
                atomic_store(&c->published, 0);
                page_wait(&env.pte[v], p);
                break;
        default:
                err = pte_allows(p, write, false) ? 0 : -EFAULT;
        }
        atomic_store(&c->published, 0);
        if (err == -ENOMEM)
                need_frame(c);
        return err == -EFAULT ? err : 0;
}

static void wait_faults(unsigned v)
{
        for (unsigned i = 0; i < THREADS; i++)
                while (atomic_load(&cpus[i].published) == v + 1)
                        sched_yield();
}

/* --- threads --- */

static void *vcpu_thread(void *arg)
{
        struct cpu *c = arg;

        while (!stop) {
                unsigned v = rnd(c, rnd(c, 2) ? PAGES : 8);
                bool write = rnd(c, 3) == 0;
                enter_program(c);
                for (unsigned tries = 0; tries < 8; tries++) {
                        look(c);
                        if (access_page(c, v, write))
                                break;
                        leave_program(c);
                        int err = fault(c, v, write);
                        enter_program(c);
                        if (err)
                                break;
                }
                leave_program(c);
        }
        frame_list_drain(&env.pg, &c->list);
        return NULL;
}

static void *cleaner_thread(void *arg)
{
        struct cpu *c = arg;

        while (!stop_cleaner || env.pg.writing > 0) {
                struct clock_result r = env_pass(FRAMES / 2, c->cnt);
                if (r.unflushed && !r.freed)
                        sched_yield();
        }
        return NULL;
}

static void *io_thread(void *arg)
{
        (void)arg;
        while (!stop_io)
                if (!env_io_step(0))
                        sched_yield();
        while (env_io_step(0))
                ;
        return NULL;
}

static void *gmem_thread(void *arg)
{
        struct cpu *c = arg;

        while (!stop) {
                unsigned v = rnd(c, PAGES);
                bool write = rnd(c, 2);
                frame_t f = frame_pin(env.frames, ENV_PFN0, &env.pte[v], write);
                if (f == FRAME_NONE) {
                        fault(c, v, write);
                        continue;
                }
                use_page(c, f, write);
                if (rnd(c, 16) == 0)
                        sched_yield();
                use_page(c, f, write);
                frame_unpin(&env.frames[f], write);
        }
        frame_list_drain(&env.pg, &c->list);
        return NULL;
}

/* The word of each page that counts is this thread's own. */
static _Atomic uint32_t *counting(frame_t f)
{
        return (_Atomic uint32_t *)&env.content[f][THREADS];
}

static void *ask_thread(void *arg)
{
        struct cpu *c = arg;

        while (!stop) {
                unsigned v = rnd(c, PAGES), w = rnd(c, PAGES);
                frame_t f = frame_pin(env.frames, ENV_PFN0, &env.pte[w], true);
                if (f == FRAME_NONE) {
                        fault(c, w, true);
                        continue;
                }
                pte_t p = atomic_load(&env.pte[v]);
                frame_t n = pte_kind(p) == PTE_REMOTE && (p & PTE_ACCESS) && !(p & PTE_LOST)
                                    ? frame_take(&env.pg, &c->list, c->cnt)
                                    : FRAME_NONE;
                bool marker = rnd(c, 4) == 0;
                if (n != FRAME_NONE &&
                    !page_prefetch(&env.pg, &env.pte[v], p, n, marker, c->cnt))
                        frame_free(&env.pg, &c->list, n);
                if (notice_add(&env.pg.notices, &env.pte[v], counting(f), f, 8))
                        c->accesses++;
                frame_unpin(&env.frames[f], true);
        }
        frame_list_drain(&env.pg, &c->list);
        return NULL;
}

/* When all pages have come. */
static void check_counts(const struct notices *notices)
{
        CHECK(notices->count == 0, "notices are left: %u", notices->count);
        for (unsigned v = 0; v < PAGES; v++) {
                pte_t p = env.pte[v];
                uint64_t left = 0;
                if (pte_has_frame(p))
                        left = get((frame_t)(pte_num(p) - ENV_PFN0), THREADS);
                else if (pte_kind(p) == PTE_REMOTE)
                        left = env.far[pte_slot(p)][THREADS];
                CHECK(left == 0, "page %u still counts %#lx", v, (unsigned long)left);
        }
}

static void drop_page(struct cpu *c, unsigned v)
{
        struct dropped d = DROPPED_NONE;

        atomic_store(&vma[v], 0);
        wait_faults(v);
        page_drop(&env.pg, &c->list, &env.pte[v], &d);
        if (d.flush)
                flush_all();
        dropped_free(&env.pg, &c->list, &d);
}

static void move_page(unsigned from, unsigned to)
{
        uint64_t m = atomic_exchange(&vma[from], 0);
        wait_faults(from);
        if (page_move(&env.pg, &env.pte[from], &env.pte[to]))
                flush_all();
        atomic_store(&vma[to], m);
}

static void *mm_thread(void *arg)
{
        struct cpu *c = arg;
        pte_t rw = pte_prot(true, true, false),
              prot[] = { rw, rw, pte_prot(true, false, false), pte_prot(false, false, false) };

        while (!stop) {
                unsigned v = rnd(c, PAGES), w = rnd(c, PAGES);
                pte_t p = prot[rnd(c, 4)];
                if (!vma[v]) {
                        atomic_store(&vma[v], rw | 1);
                } else if (rnd(c, 8) == 0 && objects < OBJECTS - 1000) {
                        drop_page(c, v);
                } else if (rnd(c, 3) == 0 && v != w && !vma[w]) {
                        move_page(v, w);
                } else if (rnd(c, 3) == 0) {
                        static const pte_t some[] = { 0, PTE_HIGH, PTE_LOW };
                        pte_t seen;
                        page_cool(&env.pg, &c->list, &env.pte[v]);
                        page_set_priority(&env.pte[w], some[rnd(c, 3)], &seen);
                } else {
                        atomic_store(&vma[v], p | 1);
                        wait_faults(v);
                        if (page_protect(&env.pg, &env.pte[v], p))
                                flush_all();
                }
                if (rnd(c, 4) == 0)
                        usleep(rnd(c, 200));
        }
        frame_list_drain(&env.pg, &c->list);
        return NULL;
}

/* --- environment --- */

static void race_step(void)
{
        static _Thread_local unsigned n;
        if (++n % 64 == 0)
                sched_yield();
}

static int race_io(bool write, uint64_t slot)
{
        static _Atomic unsigned n;
        unsigned k = atomic_fetch_add(&n, 1);
        (void)write;
        (void)slot;
        if (k % 50 == 0)
                usleep(300);            /* long enough for others to sleep */
        return k % 37 == 0 ? -EIO : 0;
}

static bool race_post(void)
{
        static _Atomic unsigned n;
        return atomic_fetch_add_explicit(&n, 1, memory_order_relaxed) % 4 != 0;
}

static void race_wait(pte_slot_t *pte, pte_t seen)
{
        for (unsigned i = 0; i < 100 && atomic_load(pte) == seen; i++)
                usleep(50);
}

static void give_back(void)
{
        uint64_t cnt[CNT_COUNT] = { 0 };
        struct frame_list list = { 0 };
        pte_t old;

        for (unsigned v = 0; v < PAGES; v++) {
                frame_t f = page_detach(&env.pg, &env.pte[v], &old);
                if (f != FRAME_NONE)
                        frame_discard(&env.pg, &list, f);
        }
        frame_list_drain(&env.pg, &list);
        env_pass(FRAMES, cnt);
}

static void test_race(void **state)
{
        static void *(*const run[])(void *) = { vcpu_thread,    vcpu_thread, vcpu_thread,
                                                cleaner_thread, mm_thread,   gmem_thread,
                                                ask_thread };
        static struct notices notices;
        const char *seconds = getenv("RACE_SECONDS");
        pthread_t thread[THREADS], io;

        (void)state;
        env_setup(FRAMES, SLOTS, PAGES, 0);
        env.pg.notices.table = &notices;
        env.step = race_step;
        env.io = race_io;
        env.post = race_post;
        env.wait = race_wait;
        env.flush_done = flush_done;
        for (unsigned i = 0; i < THREADS; i++) {
                cpus[i] = (struct cpu){ .id = i,
                                        .random = 88172645463325252ull * (i + 1),
                                        .wrote = calloc(OBJECTS, sizeof(uint32_t)) };
                assert_non_null(cpus[i].wrote);
        }
        for (unsigned i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&thread[i], NULL, run[i], &cpus[i]), 0);
        assert_int_equal(pthread_create(&io, NULL, io_thread, NULL), 0);
        usleep((useconds_t)((seconds ? atof(seconds) : 4) * 1e6));
        stop = true;
        for (unsigned i = 0; i < THREADS; i++)
                if (run[i] != cleaner_thread)
                        pthread_join(thread[i], NULL);
        stop_cleaner = true;
        pthread_join(thread[VCPUS], NULL);
        stop_io = true;
        pthread_join(io, NULL);
        check_counts(&notices);

        uint64_t evicted = cpus[VCPUS].cnt[CNT_EVICTED_CLEAN] + cpus[VCPUS].cnt[CNT_EVICTED_DIRTY],
                 accesses = 0;
        for (unsigned i = 0; i < THREADS; i++)
                accesses += cpus[i].accesses;
        fprintf(stderr,
                "# %lu accesses, %lu objects, %lu evictions, %lu flushes, %lu waits, %lu wakes\n",
                (unsigned long)accesses, (unsigned long)objects, (unsigned long)evicted,
                (unsigned long)env.flush_epoch, (unsigned long)env.waits, (unsigned long)env.wakes);
        const char *bad = env_audit(NULL, 0);
        give_back();
        if (!bad)
                bad = env_audit_empty();
        if (bad)
                fail_msg("%s", bad);
        assert_true(evicted > 0 && objects > 0 && cpus[THREADS - 1].accesses > 0);
        for (unsigned i = 0; i < THREADS; i++)
                free(cpus[i].wrote);
        env_teardown();
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_race) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
