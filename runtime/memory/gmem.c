/*
 * The program's memory as forwarded system calls see it (gmem.h): walks of the guest's page tables
 * through the window.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/walk.h"
#include "guest_ram.h"
#include "memory/arena.h"
#include "memory/gmem.h"
#include "pager/frame.h"

static bool is_program_address(uint64_t a)
{
        return a < TASK_SIZE && (a < RESERVED_START || a >= RESERVED_END);
}

/* One page pinned for host access: a pinned frame, or a page of the arena (frame == FRAME_NONE). */
struct pinned { char *host; frame_t frame; };

static struct frame *frame_table(void) { return (struct frame *)CONTROL->frame_table; }

/* The page is published as a fault of t's own vCPU, which is waiting in an exit: so kern reuses no
 * table on our walk (kern/base/tables.h). */
static bool try_pin_published(struct thread *t, uint64_t page, bool write, struct pinned *h)
{
        pte_slot_t *pte = pt_walk(page);
        if (!pte)
                return false;
        pte_t p = atomic_load(pte);
        if (pte_kind(p) == PTE_ARENA && pte_allows(p, write, false)) {
                h->frame = FRAME_NONE;
                h->host = arena_host(pte_num(p) << PAGE_SHIFT);
                return h->host != NULL;
        }
        h->frame = frame_pin(frame_table(), frame_pfn0(), pte, write);
        if (h->frame == FRAME_NONE)
                return false;
        t->pins++;
        h->host = frame_host(h->frame);
        return true;
}

static bool try_pin(struct thread *t, uint64_t page, bool write, struct pinned *h)
{
        atomic_exchange(&t->v->faulting, page + 1);
        bool held = try_pin_published(t, page, write, h);
        atomic_store_explicit(&t->v->faulting, 0, memory_order_release);
        return held;
}

/* A call may pin at most an eighth of the cache, so that its own faults find frames. */
static int pin_limit(void)
{
        uint64_t share = CONTROL->nframes / 8;
        return share < GMEM_PIN_MAX ? (int)share : GMEM_PIN_MAX;
}

/* Pins the page of addr.  If need be kern makes it resident, together with what the caller will
 * want next: len bytes from addr on, as far as they may be pinned at once.  (The upcall, two exits,
 * costs several times as much as a fault.)  If populating the range fails, retry with the first
 * page alone: only its failure is this call's.  If a pin fails after an upcall, the page was
 * evicted between the upcall and the pin, or an evictor has just claimed it.  The loop ends: kern
 * sets A on what it populates, so the hand skips the page once, and a claim that pins cannot join
 * is short (kern/pager/frame.h). */
static int pin_page(struct thread *t, uint64_t addr, size_t len, bool write, struct pinned *h)
{
        uint64_t page = addr & ~(uint64_t)(PAGE_SIZE - 1);
        uint64_t most = (uint64_t)pin_limit() << PAGE_SHIFT;

        if (!is_program_address(addr))
                return -EFAULT;
        while (!try_pin(t, page, write, h)) {
                uint64_t range = len < most ? (addr + len + PAGE_SIZE - 1 - page) &
                                                      ~(uint64_t)(PAGE_SIZE - 1)
                                            : most;
                if (range > PAGE_SIZE && is_program_address(page + range - 1) &&
                    thread_upcall(t, UPCALL_POPULATE, page, range, write) == 0)
                        continue;
                if (thread_upcall(t, UPCALL_POPULATE, page, PAGE_SIZE, write) != 0)
                        return -EFAULT;
        }
        return 0;
}

static void unpin_page(struct thread *t, const struct pinned *h, bool wrote)
{
        if (h->frame == FRAME_NONE)
                return;
        t->pins--;
        frame_unpin(&frame_table()[h->frame], wrote);
}

/* A copy that survives an arena page whose file was truncated.  (The process is named by this
 * thread: the first thread may have ended, and then has no memory.) */
static int careful_copy(void *dst, const void *src, size_t len)
{
        struct iovec d = { dst, len }, s = { (void *)src, len };
        return process_vm_readv(gettid(), &d, 1, &s, 1, 0) == (ssize_t)len ? 0 : -EFAULT;
}

static size_t in_page(uint64_t addr, size_t len)
{
        size_t n = PAGE_SIZE - (addr & (PAGE_SIZE - 1));
        return n < len ? n : len;
}

static int copy(struct thread *t, char *host, uint64_t addr, size_t len, bool write)
{
        while (len > 0) {
                size_t n = in_page(addr, len);
                struct pinned h;
                int err = pin_page(t, addr, len, write, &h);
                if (err)
                        return err;
                char *page = h.host + (addr & (PAGE_SIZE - 1));
                if (h.frame == FRAME_NONE)
                        err = write ? careful_copy(page, host, n) : careful_copy(host, page, n);
                else if (write)
                        memcpy(page, host, n);
                else
                        memcpy(host, page, n);
                unpin_page(t, &h, write);
                if (err)
                        return err;
                addr += n;
                host += n;
                len -= n;
        }
        return 0;
}

int gmem_read(struct thread *t, void *dst, uint64_t src, size_t len)
{
        return copy(t, dst, src, len, false);
}

int gmem_write(struct thread *t, uint64_t dst, const void *src, size_t len)
{
        return copy(t, (char *)src, dst, len, true);
}

int gmem_check(struct thread *t, uint64_t addr, size_t len, bool write)
{
        while (len > 0) {
                size_t n = in_page(addr, len);
                struct pinned h;
                int err = pin_page(t, addr, len, write, &h);
                if (err)
                        return err;
                unpin_page(t, &h, false);
                addr += n;
                len -= n;
        }
        return 0;
}

static void count_page(pte_t p, bool anonymous, struct gmem_count *c)
{
        enum pte_kind kind = pte_kind(p);
        uint64_t n = frame_of_gpa(p & PTE_NUM);

        if (kind == PTE_PRESENT && n < CONTROL->nframes &&
            page_is_fresh(p, &frame_table()[n], CONTROL->shadow_paging))
                return;
        c->far += kind == PTE_REMOTE;
        if (kind == PTE_NONE || kind == PTE_REMOTE || kind == PTE_BAD)
                return;
        c->resident++;
        c->referenced += (p & PTE_A) != 0;
        if (kind == PTE_ARENA) {
                c->shared++;
                c->dirty += (p & PTE_D) != 0;
                return;
        }
        if (n >= CONTROL->nframes)
                return;
        const struct frame *f = &frame_table()[n];
        bool dirty =
                (p & PTE_D) || (atomic_load_explicit(&f->word, memory_order_relaxed) & FRAME_DIRTY);
        c->dirty += dirty;
        /* A changed page of a private file mapping is anonymous, too. */
        c->anonymous +=
                anonymous || dirty || __atomic_load_n(&f->slot, __ATOMIC_RELAXED) != SLOT_NONE;
}

/* Table by table, each with one of its addresses published, so that kern does not reuse the
 * table. */
void gmem_count(struct thread *t, uint64_t start, uint64_t end, bool anonymous,
                struct gmem_count *c)
{
        const uint64_t table = 512 * PAGE_SIZE;

        for (uint64_t next, at = start; at < end; at = next) {
                next = (at & ~(table - 1)) + table;
                next = next < end ? next : end;
                atomic_exchange(&t->v->faulting, at + 1);
                pte_slot_t *pte = pt_walk(at);
                for (uint64_t i = 0; pte && i < (next - at) >> PAGE_SHIFT; i++)
                        count_page(atomic_load_explicit(&pte[i], memory_order_relaxed), anonymous,
                                   c);
                atomic_store_explicit(&t->v->faulting, 0, memory_order_release);
        }
}

long gmem_string(struct thread *t, char *dst, uint64_t src, size_t max)
{
        for (size_t got = 0; got < max; ) {
                size_t n = in_page(src + got, max - got);
                int err = copy(t, dst + got, src + got, n, false);
                if (err)
                        return err;
                char *nul = memchr(dst + got, 0, n);
                if (nul)
                        return nul - dst;
                got += n;
        }
        return -ENAMETOOLONG;
}

long gmem_pin(struct thread *t, struct gmem_pins *p, uint64_t addr, size_t len, bool write)
{
        size_t done = 0;
        int max = pin_limit();

        p->n = 0;
        p->write = write;
        while (done < len && p->n < max) {
                struct pinned h;
                if (pin_page(t, addr + done, len - done, write, &h) != 0)
                        break;
                size_t n = in_page(addr + done, len - done);
                p->iov[p->n] = (struct iovec){ h.host + ((addr + done) & (PAGE_SIZE - 1)), n };
                p->frame[p->n++] = h.frame;
                done += n;
        }
        return done > 0 || len == 0 ? (long)done : -EFAULT;
}

void gmem_unpin(struct thread *t, struct gmem_pins *p, size_t used)
{
        for (int i = 0; i < p->n; i++) {
                struct pinned h = { .frame = p->frame[i] };
                unpin_page(t, &h, p->write && used > 0);
                used -= used < p->iov[i].iov_len ? used : p->iov[i].iov_len;
        }
        p->n = 0;
}

bool gmem_word_here(struct thread *t, uint64_t addr, struct gmem_word *w)
{
        struct pinned h;

        if (!is_program_address(addr) || !try_pin(t, addr & ~(uint64_t)(PAGE_SIZE - 1), false, &h))
                return false;
        *w = (struct gmem_word){ .host = (uint32_t *)(h.host + (addr & (PAGE_SIZE - 1))),
                                 .frame = h.frame };
        return true;
}

int gmem_word(struct thread *t, uint64_t addr, bool write, struct gmem_word *w)
{
        struct pinned h;
        int err = pin_page(t, addr, sizeof(uint32_t), write, &h);

        if (err)
                return err;
        *w = (struct gmem_word){ .host = (uint32_t *)(h.host + (addr & (PAGE_SIZE - 1))),
                                 .frame = h.frame };
        return 0;
}

int gmem_peek(struct thread *t, uint64_t addr)
{
        struct gmem_word w;

        if (!gmem_word_here(t, addr & ~3ull, &w))
                return -1;
        int byte = ((volatile uint8_t *)w.host)[addr & 3];
        gmem_word_drop(t, &w, false);
        return byte;
}

bool gmem_word_shared(const struct gmem_word *w) { return w->frame == FRAME_NONE; }

void gmem_word_drop(struct thread *t, const struct gmem_word *w, bool wrote)
{
        const struct pinned h = { .frame = w->frame };
        unpin_page(t, &h, wrote);
}
