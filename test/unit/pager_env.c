/*
 * The fake environment of the pager core (pager_env.h).  Safe to use from several threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/walk.h"
#include "pager_env.h"

struct env env;

static void *zeroed(size_t n, size_t size)
{
        void *p = calloc(n, size);
        if (!p)
                abort();
        return p;
}

/* Page tables as the hardware has them: where an entry is in its table is told by its address. */
static pte_slot_t *tables(uint32_t npages)
{
        size_t table = PT_ENTRIES * sizeof(pte_slot_t);
        size_t size = (npages + PT_ENTRIES - 1) / PT_ENTRIES * table;
        void *p = aligned_alloc(table, size);
        if (!p)
                abort();
        return memset(p, 0, size);
}

void env_setup(uint32_t nframes, uint32_t nslots, uint32_t npages, uint64_t first_epoch)
{
        env = (struct env){ .nframes = nframes, .nslots = nslots, .npages = npages };
        env.frames = zeroed(nframes, sizeof(*env.frames));
        env.content = zeroed(nframes, sizeof(*env.content));
        env.far = zeroed(nslots + 1, sizeof(*env.far));
        env.slot_used = zeroed(nslots + 1, sizeof(*env.slot_used));
        env.pte = tables(npages);
        env.flush_epoch = env.flushed = first_epoch;
        pager_init(&env.pg, env.frames, nframes, ENV_PFN0);
}

void env_teardown(void)
{
        free(env.frames);
        free(env.content);
        free(env.far);
        free((void *)env.slot_used);
        free((void *)env.pte);
        env = (struct env){ 0 };
}

static void step(void)
{
        if (env.step)
                env.step();
}

void *env_frame_va(frame_t f) { return env.content[f]; }

void env_relax(unsigned spins)
{
        (void)spins;
        step();
}

bool env_wait_on(uint64_t *begun) { return (*begun)++ < 20; }

uint64_t env_flush_begin(void)
{
        step();
        return atomic_fetch_add(&env.flush_epoch, 1) + 1;
}

uint64_t env_flush_next(void)
{
        step();
        uint64_t next = atomic_load(&env.flush_epoch) + 1;
        step();
        if (env.late)
                env.late();
        return next;
}

bool env_flush_done(uint64_t epoch)
{
        step();
        bool done = env.flush_done ? env.flush_done(epoch) : epoch <= atomic_load(&env.flushed);
        step();
        return done;
}

void env_flush_look(void)
{
        step();
        if (env.flush_look)
                env.flush_look();
}

static void check_slot(const char *who, uint64_t slot)
{
        if (slot >= env.nslots || !atomic_load(&env.slot_used[slot]))
                env_bug(who, slot, 0);
}

/* Word by word, so that any other change of page and slot can come in between. */
static void copy(env_page to, env_page from)
{
        for (unsigned i = 0; i < ENV_WORDS; i++) {
                step();
                /* Relaxed: the program may write to a page while it is written back; the pager must
                 * cope, not this copy. */
                atomic_store_explicit(&to[i], atomic_load_explicit(&from[i], memory_order_relaxed),
                                      memory_order_relaxed);
        }
        step();
}

static bool own(struct env_transfer *t, uint32_t from)
{
        return atomic_compare_exchange_strong(&t->state, &from, TRANSFER_OURS);
}

/* False: all are in use. */
static bool post(enum env_transfer_state kind, uint64_t slot, frame_t f)
{
        for (unsigned i = 0; i < ENV_TRANSFERS; i++) {
                struct env_transfer *t = &env.transfer[i];
                if (own(t, TRANSFER_FREE)) {
                        t->slot = slot;
                        t->frame = f;
                        atomic_store(&t->state, kind);
                        return true;
                }
        }
        return false;
}

static int move(bool write, uint64_t slot, frame_t f, bool may_fail)
{
        check_slot(write ? "write to a free slot" : "read of a free slot", slot);
        if (write && !env_slot_writable(slot))
                env_bug("write to a slot that others read", slot, 0);
        atomic_fetch_add(write ? &env.writes : &env.reads, 1);
        int err = env.io && may_fail ? env.io(write, slot) : 0;
        if (err && write)       /* leaves garbage, as a write that was cut off */
                atomic_store(&env.far[slot][ENV_WORDS / 2], 0xdeadull);
        else if (err)
                step();         /* fails late, too */
        else if (write)
                copy(env.far[slot], env.content[f]);
        else
                copy(env.content[f], env.far[slot]);
        check_slot(write ? "a slot was freed while it was written"
                         : "a slot was freed while it was read",
                   slot);
        return err;
}

bool env_slot_posted(uint64_t slot)
{
        return env.post && !(env.at_once && env.at_once(slot));
}

int env_slot_read(uint64_t slot, frame_t f, pte_slot_t *pte)
{
        (void)pte;
        if (env_slot_posted(slot) && env.post() && post(TRANSFER_READ, slot, f))
                return ENV_POSTED;
        return move(false, slot, f, true);
}

int env_slot_write(uint64_t slot, frame_t f)
{
        if (env_slot_posted(slot) && env.post() && post(TRANSFER_WRITE, slot, f))
                return ENV_POSTED;
        return move(true, slot, f, true);
}

static void end_prefetch(bool marker, uint64_t slot, frame_t n)
{
        struct frame *f = &env.frames[n];
        pte_slot_t *pte = atomic_load(&f->pte);

        int err = move(false, slot, n, true);
        step();
        if (page_prefetched(f, ENV_PFN0 + n, pte_ahead(marker, env.pg.blind), err))
                env_wake_pte(pte);
        notices_over(&env.pg.notices, n);
}

void env_slot_prefetch(uint64_t slot, frame_t f, pte_slot_t *pte, bool marker)
{
        (void)pte;
        if (!post(marker ? TRANSFER_MARKER : TRANSFER_PREFETCH, slot, f))
                end_prefetch(marker, slot, f);
}

bool env_fetch_failed(void) { return atomic_exchange(&env.fetch_failed, 0); }

bool env_slot_write_room(void)
{
        for (unsigned i = 0; i < ENV_TRANSFERS; i++)
                if (atomic_load(&env.transfer[i].state) == TRANSFER_FREE)
                        return true;
        return !env.post;
}

frame_t env_slot_written(int *err)
{
        for (unsigned i = 0; i < ENV_TRANSFERS; i++) {
                struct env_transfer *t = &env.transfer[i];
                if (own(t, TRANSFER_OVER)) {
                        frame_t f = t->frame;
                        *err = t->err;
                        atomic_store(&t->state, TRANSFER_FREE);
                        return f;
                }
        }
        return FRAME_NONE;
}

bool env_io_step(unsigned first)
{
        for (unsigned i = 0; i < ENV_TRANSFERS; i++) {
                struct env_transfer *t = &env.transfer[(first + i) % ENV_TRANSFERS];
                if (own(t, TRANSFER_READ)) {
                        struct frame *f = &env.frames[t->frame];
                        pte_slot_t *pte = atomic_load(&f->pte);
                        move(false, t->slot, t->frame, false);
                        int err = env.fail_posted;
                        atomic_store(&env.fetch_failed, err != 0);
                        step();
                        if (page_fetched(f, ENV_PFN0 + t->frame, PTE_P | PTE_A, err)) {
                                notices_over(&env.pg.notices, t->frame);
                                env_wake_pte(pte);
                        }
                        atomic_store(&t->state, TRANSFER_FREE);
                        return true;
                }
                bool marker = own(t, TRANSFER_MARKER);
                if (marker || own(t, TRANSFER_PREFETCH)) {
                        end_prefetch(marker, t->slot, t->frame);
                        atomic_store(&t->state, TRANSFER_FREE);
                        return true;
                }
                if (own(t, TRANSFER_WRITE)) {
                        t->err = move(true, t->slot, t->frame, true);
                        step();
                        atomic_store(&t->state, TRANSFER_OVER);
                        return true;
                }
        }
        return false;
}

uint64_t env_slot_alloc(void)
{
        step();
        if (env.alloc)
                env.alloc();
        for (uint32_t i = 0; i < env.nslots; i++) {
                uint32_t s = (uint32_t)((env.allocs + i) % env.nslots), unused = 0;
                if (atomic_compare_exchange_strong(&env.slot_used[s], &unused, 1)) {
                        atomic_fetch_add(&env.allocs, 1);
                        return s;
                }
        }
        return SLOT_NONE;
}

uint64_t env_slot_take(void)
{
        uint64_t slot = env_slot_alloc();

        if (slot != SLOT_NONE && env_slot_posted(slot)) {
                env_slot_free(slot);
                slot = SLOT_NONE;
        }
        return slot;
}

void env_slot_free(uint64_t slot)
{
        step();
        if (slot >= env.nslots || !atomic_load(&env.slot_used[slot]))
                env_bug("a slot was freed twice", slot, 0);
        /* no page may need it any more */
        for (unsigned i = 0; i < ENV_WORDS && env_slot_writable(slot); i++)
                atomic_store_explicit(&env.far[slot][i], 0xf4eeull, memory_order_relaxed);
        atomic_fetch_sub(&env.slot_used[slot], 1);
}

bool env_slot_writable(uint64_t slot)
{
        atomic_fetch_add(&env.looks, 1);
        return atomic_load(&env.slot_used[slot]) == 1;
}

void env_returns(struct returns *sum)
{
        *sum = (struct returns){ .gone = { 0 } };
        if (env.returns)
                env.returns(sum);
}

void env_uncharge_page(void)
{
        step();
        atomic_fetch_sub(&env.charged, 1);
        atomic_fetch_add(&env.uncharged, 1);
}

void env_wait_pte(pte_slot_t *pte, pte_t seen)
{
        step();
        atomic_fetch_add(&env.waits, 1);
        if (env.wait)
                env.wait(pte, seen);
}

void env_wake_pte(pte_slot_t *pte)
{
        step();
        atomic_fetch_add(&env.wakes, 1);
        if (env.wake)
                env.wake(pte);
}

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b)
{
        if (env.bug)
                env.bug(what, a, b);
        fprintf(stderr, "env_bug: %s: %#lx %#lx\n", what, (unsigned long)a, (unsigned long)b);
        abort();
}

static const char *complain(const char *what, uint64_t a, uint64_t b)
{
        static char text[128];
        snprintf(text, sizeof(text), "%s: %#lx, %#lx", what, (unsigned long)a, (unsigned long)b);
        return text;
}

/* Each frame: how often is it named by an entry, how often is it on a list? */
static const char *audit_frames(struct frame_list *const lists[], unsigned nlists, uint8_t *mapped,
                                uint8_t *listed)
{
        uint32_t nfree = 0, hot = env.pg.nhot + (uint32_t)env.pg.freed.hot;

        for (uint32_t v = 0; v < env.npages; v++)
                if (pte_has_frame(env.pte[v])) {
                        uint64_t f = pte_num(env.pte[v]) - ENV_PFN0;
                        if (mapped[f]++ == 0 && env.frames[f].pte != &env.pte[v])
                                return complain("a frame does not know its entry", f, v);
                }
        for (unsigned l = 0; l < nlists; l++)
                hot += (uint32_t)lists[l]->hot;
        for (unsigned l = 0; l < nlists; l++)
                for (uint32_t i = 0, f = lists[l]->free.first; i < lists[l]->free.n; i++) {
                        if (listed[f]++ > 1)
                                return complain("a stock has a frame twice", l, f);
                        f = (frame_t)env.frames[f].slot;
                }
        for (unsigned l = 0; l < FREE_LISTS; l++)
                for (frame_t b = (frame_t)env.pg.list[l].head; b != FRAME_NONE;
                     b = env.frames[b].below) {
                        uint32_t left = (uint32_t)(env.frames[b].slot >> 32);
                        if (left == 0)
                                return complain("a batch on a list is empty", l, b);
                        nfree += left;
                        for (frame_t f = b; left-- > 0; f = (frame_t)env.frames[f].slot)
                                if (f >= env.nframes || listed[f]++ > 1)
                                        return complain("a batch is shorter than it says", b, f);
                }
        for (uint32_t f = env.pg.fresh; f < env.nframes; f++, nfree++)
                listed[f]++;
        if (nfree != env.pg.nfree)
                return complain("nfree is wrong", env.pg.nfree, nfree);
        for (uint32_t f = 0; f < env.nframes; f++) {
                uint64_t w = env.frames[f].word;
                if (listed[f] != !(w & FRAME_RESIDENT))
                        return complain("a frame is lost, or free and in use", f, w);
                if (mapped[f] > 1 || (mapped[f] && !(w & FRAME_RESIDENT)))
                        return complain("a frame is mapped twice, or mapped and free", f, w);
                hot -= (w & FRAME_HOT) != 0;
        }
        return hot == 0 ? NULL : complain("the hot frames are counted wrong", env.pg.nhot, hot);
}

static const char *audit_slots(void)
{
        uint64_t charged = 0;

        for (uint32_t s = 0; s < env.nslots; s++) {
                uint32_t owners = 0;
                for (uint32_t v = 0; v < env.npages; v++)
                        owners += pte_kind(env.pte[v]) == PTE_REMOTE && pte_slot(env.pte[v]) == s;
                for (uint32_t f = 0; f < env.nframes; f++)
                        owners += (env.frames[f].word & FRAME_RESIDENT) && env.frames[f].slot == s;
                if (owners != env.slot_used[s])
                        return complain("a slot has not exactly one owner", s, owners);
        }
        for (uint32_t v = 0; v < env.npages; v++)
                charged += (env.pte[v] & PTE_CHARGED) != 0;
        return (int64_t)charged == env.charged
                       ? NULL
                       : complain("charged pages", charged, (uint64_t)env.charged);
}

const char *env_audit(struct frame_list *const lists[], unsigned nlists)
{
        uint8_t *mapped = zeroed(env.nframes, 1), *listed = zeroed(env.nframes, 1);
        const char *bad = audit_frames(lists, nlists, mapped, listed);

        free(mapped);
        free(listed);
        return bad ? bad : audit_slots();
}

const char *env_audit_empty(void)
{
        const char *bad = env_audit(NULL, 0);

        if (bad)
                return bad;
        if (env.pg.nfree != env.nframes)
                return complain("frames leaked", env.nframes - env.pg.nfree, 0);
        for (uint32_t s = 0; s < env.nslots; s++)
                if (env.slot_used[s])
                        return complain("a slot leaked", s, 0);
        for (uint32_t f = 0; f < env.nframes; f++)
                if (env.frames[f].word)
                        return complain("a free frame has state", f, env.frames[f].word);
        for (uint32_t v = 0; v < env.npages; v++)
                if (pte_kind(env.pte[v]) != PTE_NONE)
                        return complain("an entry is left", v, env.pte[v]);
        return NULL;
}
