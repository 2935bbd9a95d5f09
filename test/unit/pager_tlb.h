/*
 * The model check's hardware and memory: vCPUs with TLBs, what pages must hold, and the invariants.
 * For test_pager_model.c.
 *
 * The TLB is as nasty as x86 allows. A walk sets A, and D for a write, in one locked step if the
 * entry is present and allows the access; it may be cached, and a cached translation may be used
 * until it is flushed, or be lost at any moment. A write needs an entry that was cached with D set,
 * else a locked walk. At any moment a vCPU may walk speculatively. In some episodes a walk that
 * began before an entry changed sets A or D in whatever is there now (pte.h).
 */
#ifndef TEST_PAGER_TLB_H
#define TEST_PAGER_TLB_H

#define EPISODE_STEPS 40000
#define PAGES_MAX     16
#define CPUS_MAX      8
#define OBJECTS       (1u << 16)        /* more than an episode makes */
#define LOST_WAKE     8000              /* steps after which a sleeper must have been woken */

enum seen {
        SEEN_FETCH, SEEN_FETCH_RACE, SEEN_READ_ERROR, SEEN_WRITE_ERROR, SEEN_WAIT, SEEN_SLEEP,
        SEEN_DIRECT, SEEN_DIRECT_DIRTY, SEEN_CLEARED, SEEN_UNFLUSHED, SEEN_PIN, SEEN_UNMAP,
        SEEN_UNMAP_COLD, SEEN_PROTECT, SEEN_MOVE, SEEN_LOCK, SEEN_EVICT_CLEAN, SEEN_EVICT_DIRTY,
        SEEN_READ, SEEN_WRITE, SEEN_ORPHAN,
        SEEN_STRAY, SEEN_POSTED, SEEN_PIN_WRITING, SEEN_PREFETCH, SEEN_PREFETCH_RACE,
        SEEN_MARKER, SEEN_AHEAD, SEEN_WASTED, SEEN_ABANDONED, SEEN_PASSED,
        SEEN_PART, SEEN_PART_RACE, SEEN_PART_WAIT, SEEN_PART_AWAITED, SEEN_PART_LOST,
        SEEN_PART_WANTED, SEEN_WANTED,
        SEEN_STAMPED, SEEN_WAS, SEEN_BACK, SEEN_WRAP, SEEN_TAKEN_OVER, SEEN_COUNT
};
static const char *const seen_name[] = {
        "fetch", "fetch lost a race", "read error", "write error", "wait for a busy page",
        "sleep for a busy page", "direct reclaim", "direct reclaim of a dirty page", "A cleared",
        "unflushed", "pin", "unmap", "unmap without a flush", "protect", "move", "lock",
        "clean eviction", "dirty eviction", "read", "write", "orphan",
        "stray A or D", "posted fetch", "pin of a page that is being written",
        "prefetch", "prefetch lost a race", "marker", "use of a prefetched page", "wasted prefetch",
        "page unmapped while it was prefetched", "prefetched page that a stream passed",
        "part of a page", "part lost a race", "wait for a part", "part that was waited for",
        "part that came wrong", "part of a page that was wanted",
        "page that stays wanted",
        "eviction with a stamp", "eviction of a page that was hot", "page that came back soon",
        "tick whose number begins anew", "tick taken over from an evictor that is stopped",
};

struct tlb { bool valid, w, d; frame_t frame; uint64_t obj; };
struct cpu {
        bool program;                   /* published mode: flushes wait for it */
        bool usable;                    /* has looked for flushes since then: may use its TLB */
        uint64_t flushed;
        unsigned published;             /* page + 1 */
        struct tlb tlb[PAGES_MAX];
        struct { pte_slot_t *pte; pte_t bits; } stray;  /* a walk on its way */
        struct frame_list list;
        struct sweeper sweeper;
        uint64_t cnt[CNT_COUNT];
};
struct vma { bool mapped; pte_t prot; uint64_t obj; };

static struct {
        struct cpu cpu[CPUS_MAX];
        unsigned ncpus;
        struct vma vma[PAGES_MAX];
        uint64_t alt[PAGES_MAX];        /* the object a page held before the operation under way */
        unsigned operations[PAGES_MAX]; /* under way: some without mm_lock */
        uint64_t gen[PAGES_MAX];        /* odd: there is one */
        uint64_t want[OBJECTS], nobjects;
        int locked;                     /* the one page that is mlocked, or -1 */
        uint32_t io_errors;             /* one transfer in io_errors fails; 0: none */
        /* steps from one act to the next: of the adversary, a vCPU, an mm actor, the far tier */
        uint32_t busy, cpu_pause, mm_pause, io_pause;
        uint32_t lazy;                  /* how seldom a vCPU in the program notices a kick */
        uint64_t flush_done;            /* what the looker has seen, and is there one? */
        bool looking;
        bool stop, stray, prefetches, cooling;
        /* as they were one step ago */
        pte_t entry[PAGES_MAX];
        uint32_t tick;
        unsigned balancing;             /* evictors that do so now */
        uint64_t until;
        uint64_t seen[SEEN_COUNT];
} m;

/* --- memory --- */

static uint64_t new_object(void)
{
        m.want[++m.nobjects % OBJECTS] = 0;
        return m.nobjects;
}

/* Word 0 is the object; all others depend on object and version, so that a torn page shows. */
static uint64_t page_word(uint64_t obj, uint64_t version, unsigned i)
{
        return i == 0 ? obj : obj * 1000003 + version * 16 + i;
}

static void page_check(const char *how, frame_t n, uint64_t obj)
{
        for (unsigned i = 0; i < ENV_WORDS; i++) {
                uint64_t want = page_word(obj, m.want[obj % OBJECTS], i);
                if (env.content[n][i] != want) {
                        sched_fail("%s: frame %u word %u holds %lu, object %lu at version %lu "
                                   "wants %lu",
                                   how, n, i, (unsigned long)env.content[n][i], (unsigned long)obj,
                                   (unsigned long)m.want[obj % OBJECTS], (unsigned long)want);
                        return;
                }
        }
}

static void page_write(frame_t n, uint64_t obj)
{
        page_check("write", n, obj);
        uint64_t version = ++m.want[obj % OBJECTS];
        for (unsigned i = 0; i < ENV_WORDS; i++)
                env.content[n][i] = page_word(obj, version, i);
}

static bool vma_allows(unsigned v, bool write)
{
        return m.vma[v].mapped && pte_allows(m.vma[v].prot, write, false);
}

static pte_t random_prot(void)
{
        return chance(5)   ? pte_prot(false, false, false)
               : chance(4) ? pte_prot(true, false, false)
                           : pte_prot(true, true, false);
}

/* mlock as kern does it: a flag on the frame, set under a pin. */
static void lock_page(unsigned v)
{
        frame_t n = m.locked < 0 ? frame_pin(env.frames, ENV_PFN0, &env.pte[v], false) : FRAME_NONE;
        if (n == FRAME_NONE)
                return;
        atomic_fetch_or(&env.frames[n].word, FRAME_LOCKED);
        frame_unpin(&env.frames[n], false);
        m.locked = (int)v;
        m.seen[SEEN_LOCK]++;
}

static void unlock_page(unsigned v)
{
        if (m.locked != (int)v)
                return;
        m.locked = -1;
        atomic_fetch_and(&env.frames[pte_num(env.pte[v]) - ENV_PFN0].word, ~FRAME_LOCKED);
}

/* --- the vCPU --- */

static void stray_walk_ends(struct cpu *c)
{
        if (c->stray.pte) {
                *c->stray.pte |= c->stray.bits;
                m.seen[SEEN_STRAY]++;
        }
        c->stray.pte = NULL;
}

static void cpu_flush(struct cpu *c)
{
        stray_walk_ends(c);
        memset(c->tlb, 0, sizeof(c->tlb));
        c->flushed = env.flush_epoch;
}

/* A kick may have come: in the program, or on the way there. */
static void cpu_look(struct cpu *c)
{
        if (c->flushed != env.flush_epoch)
                cpu_flush(c);
        c->usable = true;
}

static void cpu_enter_program(struct cpu *c)
{
        c->program = true;
        point();
        cpu_look(c);
}

static void cpu_leave_program(struct cpu *c) { c->usable = c->program = false; }

/* One locked step: sets A, and D for a write, in a present entry that allows the access. */
static bool walk(unsigned v, bool write, struct tlb *t)
{
        pte_t p = env.pte[v];

        if (pte_kind(p) != PTE_PRESENT || !pte_allows(p, write, false))
                return false;
        env.pte[v] = p |= PTE_A | (write ? PTE_D : 0);
        *t = (struct tlb){ true, p & PTE_W, p & PTE_D, (frame_t)(pte_num(p) - ENV_PFN0), 0 };
        t->obj = env.content[t->frame][0];
        if (t->obj != m.vma[v].obj && t->obj != m.alt[v])
                sched_fail("page %u maps frame %u with object %lu instead of %lu", v, t->frame,
                           (unsigned long)t->obj, (unsigned long)m.vma[v].obj);
        return true;
}

/* A load or store of the program.  False: it faults. */
static bool cpu_access(struct cpu *c, unsigned v, bool write)
{
        struct tlb t = c->tlb[v];

        if (!t.valid || (write && !(t.w && t.d))) {
                c->tlb[v].valid = false;
                if (!walk(v, write, &t))
                        return false;
                if (!chance(4))
                        c->tlb[v] = t;
        }
        if (chance(8))
                point();                /* within the instruction: no kick gets in between */
        if (!(m.gen[v] & 1) && !vma_allows(v, write))
                sched_fail("the program reached page %u, which its VMA does not allow", v);
        if (!(m.gen[v] & 1) && t.obj != m.vma[v].obj)
                sched_fail("the program uses object %lu of page %u, which has gone",
                           (unsigned long)t.obj, v);
        page_check("program", t.frame, t.obj);
        if (write)
                page_write(t.frame, t.obj);
        m.seen[write ? SEEN_WRITE : SEEN_READ]++;
        return true;
}

static bool model_flush_done(uint64_t epoch) { return epoch <= m.flush_done; }

/* As in kern/base/flush.c: other actors run while one looks. */
static void model_flush_look(void)
{
        uint64_t reached = env.flush_epoch;

        if (m.looking)
                return;
        m.looking = true;
        for (unsigned i = 0; i < m.ncpus; i++) {
                point();
                if (m.cpu[i].program && m.cpu[i].flushed < reached)
                        reached = m.cpu[i].flushed;
        }
        point();
        if (m.flush_done < reached)
                m.flush_done = reached;
        m.looking = false;
}

/* What a CPU may do unasked. */
static void adversary(void)
{
        struct cpu *c = &m.cpu[rnd(3)];
        unsigned v = rnd(env.npages);
        struct tlb t;

        switch (rnd(m.stray ? 6 : 4)) {
        case 0:
        case 1:
                if (walk(v, chance(3), &t))
                        c->tlb[v] = t;
                break;
        case 2:
                c->tlb[v].valid = false;
                break;
        case 4:
                stray_walk_ends(c);
                break;
        case 5:
                if (!c->stray.pte && pte_kind(env.pte[v]) == PTE_PRESENT) {
                        c->stray.pte = &env.pte[v];
                        c->stray.bits = PTE_A | (env.pte[v] & PTE_W && chance(2) ? PTE_D : 0);
                }
        }
}

/* --- environment hooks --- */

static int model_io(bool write, uint64_t slot)
{
        (void)slot;
        /* So transfers overtake each other. */
        sched_delay(chance(4) ? rnd(60) : chance(16) ? rnd(4000) : 0);
        if (!m.io_errors || !chance(m.io_errors))
                return 0;
        m.seen[SEEN_WRITE_ERROR] += write;
        return -EIO;
}

/* The epoch that an actor has read is often an old one by the time it is used. */
static void model_late(void)
{
        if (m.cooling && chance(2))
                sched_delay(rnd(300));
}

static struct { pte_slot_t *pte; uint64_t since; } sleeper[CPUS_MAX];

/* Sleeps until it is woken. The real wait has a bound, which must not be what wakes the vCPU. */
static void model_wait(pte_slot_t *pte, pte_t seen)
{
        unsigned i = 0;
        if (pte_word_seen(*pte) != pte_word_seen(seen))
                return;                 /* the host compares what it puts to sleep on */
        while (sleeper[i].pte)
                i++;
        sleeper[i].pte = pte;
        sleeper[i].since = 0;
        m.seen[SEEN_SLEEP]++;
        while (sleeper[i].pte) {
                pte_t p = *pte;
                if ((pte_kind(p) == PTE_BUSY || pte_kind(p) == PTE_PART) && (p & PTE_WAITERS))
                        sleeper[i].since = sched_steps;
                else if (sched_steps - sleeper[i].since > LOST_WAKE)
                        sched_fail("no vCPU woke the sleeper on page %ld", (long)(pte - env.pte));
                point();
        }
}

static void model_wake(pte_slot_t *pte)
{
        for (unsigned i = 0; i < CPUS_MAX; i++)
                if (sleeper[i].pte == pte)
                        sleeper[i].pte = NULL;
}

static void model_bug(const char *what, uint64_t a, uint64_t b)
{
        sched_fail("env_bug: %s: %#lx %#lx", what, (unsigned long)a, (unsigned long)b);
        abort();
}

/* --- invariants that hold at every step --- */

static void check_entries(void)
{
        uint32_t frames = 0, slots = 0;

        for (unsigned v = 0; v < env.npages; v++) {
                pte_t p = env.pte[v];
                uint64_t n = pte_num(p);
                if (pte_has_frame(p)) {
                        if (frames & 1u << (n - ENV_PFN0))
                                sched_fail("frame %lu is on two entries",
                                           (unsigned long)(n - ENV_PFN0));
                        frames |= 1u << (n - ENV_PFN0);
                        if (!(env.frames[n - ENV_PFN0].word & FRAME_RESIDENT))
                                sched_fail("entry %u names a free frame", v);
                } else if (pte_kind(p) == PTE_REMOTE || pte_kind(p) == PTE_PART) {
                        n = pte_slot(p);
                        if (slots & 1u << n || !env.slot_used[n])
                                sched_fail("slot %lu is on two entries, or free", (unsigned long)n);
                        slots |= 1u << n;
                }
        }
        for (uint32_t f = 0; f < env.nframes; f++) {
                uint64_t w = env.frames[f].word, s = env.frames[f].slot;
                m.seen[SEEN_ORPHAN] += (w & FRAME_ORPHAN) != 0;
                if (!(w & FRAME_RESIDENT) || (w & FRAME_CLAIMED) || s == SLOT_NONE)
                        continue;
                if (slots & 1u << s || !env.slot_used[s])
                        sched_fail("the slot %lu of frame %u has another owner, or is free",
                                   (unsigned long)s, f);
                slots |= 1u << s;
        }
        if (m.locked >= 0 && !(m.gen[m.locked] & 1) && !pte_has_frame(env.pte[m.locked]))
                sched_fail("locked page %d was evicted", m.locked);
}

/* The stamp of an entry that was `old` until the last step, and is p now. */
static void check_stamp(unsigned v, pte_t old, pte_t p)
{
        enum pte_kind was = pte_kind(old), kind = pte_kind(p);
        pte_t stamp = p & PTE_STAMP;
        uint64_t now = env.pg.now;

        if ((was == PTE_REMOTE || was == PTE_PART) && kind == PTE_BUSY) {
                bool back = env.frames[pte_num(p) - ENV_PFN0].word & FRAME_BACK;
                m.seen[SEEN_BACK] += back;
                if (back && pte_tick(old) == 0)
                        sched_fail("page %u came back soon, though nothing was known of it", v);
        }
        if (pte_has_frame(p) && (pte_num(p) - ENV_PFN0 >= env.nframes || (p & PTE_WAS)))
                sched_fail("the entry %#lx of page %u has a stamp beside a frame",
                           (unsigned long)p, v);
        if (kind != PTE_REMOTE && kind != PTE_PART)
                return;
        if ((was == PTE_REMOTE || was == PTE_PART) && stamp != (old & PTE_STAMP))
                sched_fail("page %u is far, and its stamp changed from %#lx to %#lx", v,
                           (unsigned long)old, (unsigned long)p);
        if (was != PTE_PRESENT && was != PTE_HELD)
                return;
        uint64_t w = env.frames[pte_num(old) - ENV_PFN0].word;
        m.seen[SEEN_STAMPED] += stamp != 0;
        m.seen[SEEN_WAS] += (stamp & PTE_WAS) != 0;
        if (stamp && ((p & PTE_LOW) || (w & FRAME_PASSED)))
                sched_fail("page %u says nothing, and has a stamp", v);
        /* The evictor read the time some steps ago. */
        if (stamp && (pte_tick(p) < TICK_FIRST ||
                      (pte_lag(now, p) > TICKS / 2 && pte_lag(now, p) < TICKS - 16)))
                sched_fail("page %u was evicted in tick %u, and now is %u", v, pte_tick(p),
                           pte_tick(now));
        if (stamp && !(stamp & PTE_WAS) != !(w & FRAME_WAS))
                sched_fail("page %u: its stamp does not say whether it was hot", v);
        if (w & FRAME_HOT)
                sched_fail("page %u went, hot as it was", v);
}

/* Runs at each step, so it sees each entry that a step changed. */
static void check_hands(void)
{
        uint32_t target = env.pg.target, tick = pte_tick(env.pg.now);

        for (unsigned v = 0; v < env.npages; v++) {
                pte_t p = env.pte[v];
                if (p != m.entry[v])
                        check_stamp(v, m.entry[v], p);
                m.entry[v] = p;
        }
        if (target > env.nframes - env.nframes / 8)
                sched_fail("%u of %u frames are to be cold", target, env.nframes);
        m.seen[SEEN_WRAP] += tick < m.tick && tick == TICK_FIRST;
        m.tick = tick;
}

/* What the hands counted.  Its evictor may be stopped then. */
static void model_returns(struct returns *sum)
{
        m.seen[SEEN_TAKEN_OVER] += m.balancing++ > 0;
        for (const struct cpu *c = m.cpu; c < m.cpu + m.ncpus; c++)
                for (unsigned hot = 0; hot < 2; hot++) {
                        sum->gone[hot] += c->cnt[hot ? CNT_GONE_HOT : CNT_GONE_COLD];
                        for (unsigned lag = 0; lag < LAGS; lag++)
                                sum->back[hot][lag] += c->cnt[CNT_BACK_COLD + hot * LAGS + lag];
                }
        if (chance(4))
                sched_delay(rnd(1000));
        m.balancing--;
}

/* The page of a translation that a TLB may still use is in memory. */
static void check_tlbs(void)
{
        for (struct cpu *c = m.cpu; c < m.cpu + m.ncpus; c++) {
                if (!c->usable && c->flushed != env.flush_epoch)
                        continue;       /* it flushes before it uses it */
                for (unsigned v = 0; v < env.npages; v++) {
                        const struct tlb *t = &c->tlb[v];
                        if (t->valid && (!(env.frames[t->frame].word & FRAME_RESIDENT) ||
                                         env.content[t->frame][0] != t->obj))
                                sched_fail("a TLB holds page %u in frame %u, which has gone", v,
                                           t->frame);
                }
        }
}

static void model_tick(void)
{
        if (chance(m.busy))
                adversary();
        if (chance(16)) {
                check_entries();
                check_tlbs();
        }
        check_hands();
        if (sched_steps >= m.until)
                m.stop = true;
}

static void model_reset(uint32_t nframes, uint32_t nslots, uint32_t npages, uint64_t first_epoch)
{
        uint64_t seen[SEEN_COUNT];
        memcpy(seen, m.seen, sizeof(seen));
        memset(&m, 0, sizeof(m));
        memcpy(m.seen, seen, sizeof(seen));
        memset(sleeper, 0, sizeof(sleeper));
        m.locked = -1;
        env_setup(nframes, nslots, npages, first_epoch);
        for (unsigned i = 0; i < CPUS_MAX; i++)
                m.cpu[i].flushed = first_epoch;
        env.step = point;
        env.late = model_late;
        env.io = model_io;
        env.flush_done = model_flush_done;
        env.flush_look = model_flush_look;
        m.flush_done = first_epoch;
        env.wait = model_wait;
        env.wake = model_wake;
        env.bug = model_bug;
        env.returns = model_returns;
}

#endif
