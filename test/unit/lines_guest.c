/*
 * A guest on simulated CPUs (lines_guest.h).  This file is compiled as the sources under test are,
 * so what it does in place of a processor costs as much.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <asm-generic/errno.h>
#include "allocator.h"
#include "base/exit.h"
#include "base/flush.h"
#include "base/kern.h"
#include "base/page.h"
#include "base/print.h"
#include "base/signal.h"
#include "base/state.h"
#include "base/string.h"
#include "base/tables.h"
#include "common/buckets.h"
#include "pager/env.h"
#include "pager/pager.h"
#include "paging/cleaner.h"
#include "paging/fault.h"
#include "paging/file.h"
#include "paging/guide.h"
#include "paging/prefetch.h"
#include "paging/profile.h"
#include "paging/record.h"
#include "space/grow.h"
#include "far/rings.h"
#include "far/slots.h"
#include "far/timed.h"
#include "lines_guest.h"

#define PROGRAM  0x10000000ull          /* where its pages begin, and its code */
#define PFN0     0x100000ull            /* of frame 0 */
#define POOL     (64ull << 20)
#define SLEEP_NS 100000000ull           /* the limit of EXIT_WAIT_PTE */
#define WAIT_NS  20000                  /* as runtime/far/wait.c has it for memory tiers */

struct vcpu *lines_self;
struct vcpu_stats *lines_self_stats;
const struct vcpu_fixed *lines_self_fixed;
struct control control;
struct pager pager;
struct lock mm_lock;
static struct notices notices;

/* What belongs to no guest. */
struct tlb { uint32_t flushes, frame; bool dirty; };
static struct {
        struct lines_load load;
        struct lines_result *result;
        struct tlb *tlb;                /* by vCPU and page: valid if no flush came since */
        uint32_t flushes[SIM_CPUS];
        bool kicked[SIM_CPUS];
        uint64_t random[SIM_CPUS];
        pte_slot_t **pte;               /* by page */
        uint64_t touched, from, epoch;
        struct lines_result first;      /* of what was before anything is counted */
        uint64_t hist[HIST_BUCKETS];
} g;

/* --- the processor --- */

static void switched(unsigned cpu)
{
        lines_self = vcpu_block(cpu);
        lines_self_stats = vcpu_stats(lines_self);
        lines_self_fixed = vcpu_fixed(lines_self);
}

void cpu_relax(void) { sim_pause(g.load.cost.pause); }
uint64_t cpu_tsc(void) { return sim_now(); }
void cpu_ring_doorbell(void) { abort(); }

void cpu_flush_tlb(int level)
{
        (void)level;
        g.flushes[sim_cpu()]++;
        sim_spend(SPENT_FLUSHES, g.load.cost.flush);
}

void copy_page(void *restrict d, const void *restrict s)
{
        (void)d;
        (void)s;
        sim_spend(SPENT_COPIES, g.load.cost.copy);
}

void zero_page(void *d) { memset(d, 0, PAGE_SIZE); }

/* A page walk sets A, and D for a write, in one locked operation.  False: a page fault. */
static bool walk(uint32_t page, bool write, struct tlb *t)
{
        const pte_t ad = PTE_A | (write ? PTE_D : 0);
        pte_slot_t *pte = pt_find(PROGRAM + (uint64_t)page * PAGE_SIZE);
        pte_t p = atomic_load(pte);

        do {
                if (pte_kind(p) != PTE_PRESENT || !pte_allows(p, write, false))
                        return false;
        } while ((p & ad) != ad && !atomic_compare_exchange_weak(pte, &p, p | ad));
        *t = (struct tlb){ g.flushes[sim_cpu()], (uint32_t)(pte_num(p) - PFN0),
                           (p | ad) & PTE_D };
        return true;
}

/* --- kern's ways in and out (entry/entry.S, events() in entry/trap.c) --- */

static void become_program(void)
{
        struct vcpu *v = lines_self;

        for (;;) {
                atomic_store(&v->mode, MODE_PROGRAM);
                if (!atomic_load(&v->event) &&
                    atomic_load(&control.flush_epoch) == atomic_load(&v->flushed))
                        return;
                atomic_store_explicit(&v->mode, MODE_KERN, memory_order_relaxed);
                atomic_exchange(&v->event, 0);
                if (atomic_load(&control.flush_epoch) != atomic_load(&v->flushed))
                        flush_self();
        }
}

static void take_fault(uint32_t page, bool write)
{
        struct vcpu *v = lines_self;

        sim_spend(SPENT_TRAPS, g.load.cost.trap);
        atomic_store_explicit(&v->mode, MODE_KERN, memory_order_relaxed);
        v->cr2 = PROGRAM + (uint64_t)page * PAGE_SIZE;
        v->regs.err = write ? 1 << 1 : 0;
        v->regs.rip = PROGRAM;
        page_fault();
        become_program();
}

/* --- the program --- */

static uint32_t rnd(unsigned cpu, uint32_t n)
{
        uint64_t *r = &g.random[cpu];

        *r ^= *r >> 12;
        *r ^= *r << 25;
        *r ^= *r >> 27;
        return (uint32_t)((*r * 0x2545f4914f6cdd1dull >> 32) * n >> 32);
}

static void touch(unsigned cpu, uint32_t page, bool write)
{
        struct tlb *t = &g.tlb[(uint64_t)cpu * g.load.pages + page];

        if (g.kicked[cpu]) {
                g.kicked[cpu] = false;
                sim_spend(SPENT_EXITS, g.load.cost.exit);
                atomic_store_explicit(&lines_self->mode, MODE_KERN, memory_order_relaxed);
                become_program();
        }
        while (t->flushes != g.flushes[cpu] || (write && !t->dirty))
                if (!walk(page, write, t))
                        take_fault(page, write);
        pte_t p = sim_look(g.pte[page]);
        if (pte_kind(p) != PTE_PRESENT || pte_num(p) != PFN0 + t->frame) {
                printf("# CPU %u reaches page %u through a stale translation\n", cpu, page);
                sim_stop();
        }
        sim_spend(SPENT_PROGRAM, g.load.cost.touch);
}

/* What was counted up to now; the CPU that runs this does not pay for it. */
__attribute__((no_sanitize("thread"))) static void count_all(struct lines_result *r)
{
        const unsigned vcpus = g.load.vcpus;

        memset(r, 0, sizeof(*r));
        for (unsigned i = 0; i <= vcpus; i++) {
                const struct vcpu_stats *s = vcpu_stats(vcpu_block(i));
                for (unsigned c = 0; c < CNT_COUNT; c++)
                        r->counter[c] += s->counter[c];
                for (unsigned k = 0; k < SPENT_KINDS; k++)
                        r->spent[i == vcpus][k] += sim_spent(i, k);
        }
}

static uint64_t percentile(uint64_t of_100)
{
        uint64_t sum = 0, all = g.load.touches;

        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                if ((sum += g.hist[b]) * 100 >= all * of_100)
                        return hist_low(b + 1);
        return 0;
}

static void finish(void)
{
        struct lines_result *r = g.result;

        count_all(r);
        for (unsigned c = 0; c < CNT_COUNT; c++)
                r->counter[c] -= g.first.counter[c];
        r->ns = sim_now() - g.from;
        r->flushes = sim_look((const void *)&control.flush_epoch) - g.epoch;
        r->p50 = percentile(50);
        r->p99 = percentile(99);
        sim_stop();
}

static void program(unsigned cpu)
{
        become_program();
        for (;;) {
                uint64_t begun = sim_now();
                touch(cpu, rnd(cpu, g.load.pages), rnd(cpu, 100) < g.load.writes);
                g.hist[hist_bucket(sim_now() - begun)]++;
                if (++g.touched == g.load.before) {
                        sim_count_anew();
                        count_all(&g.first);
                        memset(g.hist, 0, sizeof(g.hist));
                        g.from = sim_now();
                        g.epoch = sim_look((const void *)&control.flush_epoch);
                } else if (g.touched == g.load.before + g.load.touches) {
                        finish();
                }
        }
}

static void cleaner(unsigned cpu)
{
        (void)cpu;
        cleaner_main();
}

/* --- vmrun --- */

static int64_t lease(uint32_t i)
{
        if (i < control.nslabs)
                return 0;
        if ((uint64_t)i * SLAB_PAGES >= g.load.pages + g.load.frames)
                return -ENOSPC;
        control.slabs[i] = (struct slab){ .kind = SLAB_MEMORY, .pages = SLAB_PAGES,
                                          .va = FAR_WINDOW + ((uint64_t)i << (SLAB_SHIFT + 12)),
                                          .gpa = 1ull << 40, .map_gpa = 1ull << 41 };
        control.nslabs++;
        return 0;
}

static int64_t serve(const struct exit_req *rq)
{
        const uint64_t *a = rq->a;

        switch (rq->op) {
        case EXIT_LEASE:
                return lease((uint32_t)a[0]);
        case EXIT_GROW_POOL:
        case EXIT_YIELD:
                return 0;
        case EXIT_WAIT_FRAMES:
                sim_sleep(&control.frames_seq, (uint32_t)a[0], 0);
                return 0;
        case EXIT_WAKE_FRAMES:
                sim_wake(&control.frames_seq, SIM_CPUS);
                return 0;
        case EXIT_SERVICE_SLEEP:
                sim_sleep(&control.service_seq, (uint32_t)a[0], 0);
                return 0;
        case EXIT_SERVICE_WAKE:
                sim_wake(&control.service_seq, SIM_CPUS);
                return 0;
        case EXIT_WAIT_PTE:
                sim_sleep((const void *)a[0], (uint32_t)a[1],
                          a[3] && a[3] < SLEEP_NS ? a[3] : SLEEP_NS);
                return 0;
        case EXIT_WAKE_PTE:
                sim_wake((const void *)a[0], a[1] ? (uint32_t)a[1] : SIM_CPUS);
                return 0;
        case EXIT_KICK: {
                const struct exit_kick *in = (const void *)a[0];
                for (unsigned i = 0; i <= g.load.vcpus; i++)
                        g.kicked[i] |= in->vcpus[i / 64] >> i % 64 & 1;
                return 0;
        }
        case EXIT_STOCKS: {
                struct exit_stocks *s = (void *)a[0];
                s->n = s->left = 0;
                return 0;
        }
        default:
                printf("# an exit that the simulation does not know: %u\n", (unsigned)rq->op);
                abort();
        }
}

void cpu_exit(void)
{
        sim_spend(SPENT_EXITS, g.load.cost.exit);
        lines_self->exit.ret = serve(&lines_self->exit);
}

static void *map(uint64_t at, uint64_t size)
{
        void *p = mmap((void *)at, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != (void *)at)
                abort();
        return p;
}

static void *own_array(size_t count, size_t size)
{
        void *p = calloc(count, size);
        if (!p)
                abort();
        sim_exempt(p, count * size);
        return p;
}

/* All pages are far, each in a slot of its own. */
static void fill(void)
{
        g.pte = own_array(g.load.pages, sizeof(*g.pte));
        g.tlb = own_array((size_t)g.load.vcpus * g.load.pages, sizeof(*g.tlb));
        for (uint32_t i = 0; i < g.load.pages; i++) {
                g.pte[i] = pt_make(PROGRAM + (uint64_t)i * PAGE_SIZE);
                uint64_t slot = env_slot_alloc();
                if (!g.pte[i] || slot == SLOT_NONE)
                        abort();
                *g.pte[i] = pte_make_remote(slot, pte_prot(true, true, false));
        }
}

bool lines_run(const struct lines_load *load, struct lines_result *result)
{
        const unsigned vcpus = load->vcpus;

        g.load = *load;
        g.result = result;
        sim_begin(load->cost.line, switched);
        sim_exempt(&g, sizeof(g));
        sim_exempt(&lines_self, sizeof(lines_self));
        sim_exempt(&lines_self_stats, sizeof(lines_self_stats));
        sim_exempt(&lines_self_fixed, sizeof(lines_self_fixed));
        sim_exempt(result, sizeof(*result));

        map(WINDOW, POOL_OFF + POOL);
        map(TREE_WINDOW, 16 * SLAB_MAP_SIZE);
        control.pool_next = POOL_OFF + POOL_PDPTS * PAGE_SIZE;
        control.pool_end = control.pool_max = POOL_OFF + POOL;
        control.nframes = load->frames;
        control.far_pages = load->pages;
        control.tsc_khz = 1000000;
        control.wait_ticks = WAIT_NS;
        control.fetch_mask = FETCH_SAMPLE - 1;
        control.nvcpus = vcpus + 1;
        struct frame *frames = aligned_alloc(PAGE_SIZE, load->frames * sizeof(*frames));
        memset(frames, 0, load->frames * sizeof(*frames));
        pager_init(&pager, frames, load->frames, PFN0);
        pager.notices.table = &notices;
        pager_share(&pager, vcpus + 1);
        switched(vcpus);
        fill();
        for (unsigned i = 0; i <= vcpus; i++) {
                vcpu_fixed(vcpu_block(i))->number = i;
                g.random[i] = (i + 1) * 0x9e3779b97f4a7c15ull;
                g.flushes[i] = 1;
                sim_spawn(i, i < vcpus ? program : cleaner);
        }
        return sim_run() && g.touched == load->before + load->touches;
}

/* Addresses of a page's own: its entry, the word of its slot, its frame. */
const char *lines_page_part(uint64_t addr)
{
        if (addr - (uint64_t)pager.frames < (uint64_t)pager.nframes * sizeof(struct frame))
                return "a frame";
        if (addr - (WINDOW + POOL_OFF) < POOL)
                return "an entry";
        if (addr - TREE_WINDOW - SLAB_MAP_SIZE < TREE_WINDOW_END - TREE_WINDOW)
                return "a slot";
        return NULL;
}

/* --- the rest of kern, which this load does not need --- */

_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        printf("# %s: %#lx %#lx\n", what, (unsigned long)a, (unsigned long)b);
        fflush(stdout);
        abort();
}

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b) { kern_bug(what, a, b); }
void kern_log(int level, const char *fmt, ...) { (void)level; (void)fmt; }
void *env_frame_va(frame_t f) { (void)f; return NULL; }

#define NOT_NEEDED(type, name, ...) \
        type name(__VA_ARGS__) { kern_bug("the load needs more of kern: " #name, 0, 0); }
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOT_NEEDED(enum outcome, file_fill, struct fault *f)
NOT_NEEDED(enum outcome, shared_map, struct fault *f)
NOT_NEEDED(bool, guide_begin, const struct fault *f, enum outcome awaits, enum hint_event event,
           uint64_t exits)
NOT_NEEDED(bool, guide_finish, enum guide_end how, struct guided *fault)
NOT_NEEDED(int, mm_grow_stack, uint64_t addr)
NOT_NEEDED(int, mm_lookup, uint64_t addr, struct vma *vma)
NOT_NEEDED(void, prefetch, uint64_t addr, enum lookahead_cause cause)
NOT_NEEDED(void, prefetch_pointed, uint64_t addr, frame_t n)
NOT_NEEDED(uint32_t, prefetch_range, uint64_t start, uint64_t end, bool mark)
NOT_NEEDED(void, profile_add, const struct profile_wait *w)
NOT_NEEDED(void, program_signal, uint64_t vector, int signo, int code, uint64_t addr)
NOT_NEEDED(void, record_wait, uint64_t addr)
