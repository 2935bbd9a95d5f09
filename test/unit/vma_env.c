/*
 * Fakes for the VMA tests (vma_env.h).
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include "vma_env.h"

#define ARENA_PAGES (16u << 20)

struct control control;
struct vcpu vcpu_self;
const struct vcpu_fixed vcpu_self_fixed;
uint64_t vcpu_self_xfer[PAGE_SIZE / 8];
struct lock mm_lock;
_Atomic uint32_t object_cuts;
struct env_page env_page[ENV_PAGES];
uint64_t env_seed;
bool env_move_fails;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool locked;                     /* guarded by mutex */
static struct { uint64_t start, end; } waited[64];      /* pt_wait_faults since mm_lock was taken */
static unsigned nwaited;
static int64_t refs[FD_LAST];
static uint8_t *arena;                  /* one byte a page: handed out */
static uint64_t arena_next, arena_out, tags;
static void *pages[65536];              /* the pool, for the leak checker */
static unsigned npages;

_Noreturn void env_fail(const char *file, int line, const char *what)
{
        fprintf(stderr, "%s:%d: %s (SEED=%lu)\n", file, line, what, env_seed);
        abort();
}

uint64_t env_random(uint64_t below)
{
        static _Thread_local uint64_t s;
        if (!s)
                s = env_seed * 2 + 1;
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        return s % below;
}

/* As kern's boot does. */
void env_init(void)
{
        mm_account_init();
        vma_init();
        mm_brk_init();
}

void env_reset(void)
{
        memset(&control, 0, sizeof(control));
        memset(env_page, 0, sizeof(env_page));
        memset(refs, 0, sizeof(refs));
        if (!arena)
                arena = calloc(1, ARENA_PAGES);
        arena_out = 0;
        control.nframes = 1 << 20;
        control.far_pages = 1ull << 40;
        control.rlimit_as = control.rlimit_data = control.rlimit_memlock = ~0ull;
        control.rlimit_stack = 8 << 20;
        control.mmap_min = 0x10000;
        control.mmap_top = 0x7ffff0000000;
        env_init();
}

int64_t env_refs(void)
{
        int64_t n = (int64_t)arena_out;
        for (int i = 0; i < FD_LAST; i++)
                n += refs[i];
        return n;
}

uint64_t env_pages_there(void)
{
        uint64_t n = 0;
        for (int i = 0; i < ENV_PAGES; i++)
                n += env_page[i].there;
        return n;
}

__attribute__((destructor)) static void end(void)
{
        for (unsigned i = 0; i < npages; i++)
                free(pages[i]);
        free(arena);
}

/* --- locks and waiting --- */

/* The address of a page that a TLB may reach, or reach with more rights, though a call took them
 * away.  0: there is none.  Has its flush begun? */
static uint64_t unflushed;
static bool flush_begun;

void lock_take(struct lock *l)
{
        CHECK(l == &mm_lock);
        pthread_mutex_lock(&mutex);
        CHECK(!unflushed);              /* the call before is over */
        locked = true;
        nwaited = 0;
}

void lock_drop(struct lock *l)
{
        struct vma v;
        CHECK(l == &mm_lock && locked);
        /* the address cannot be mapped again before the flush */
        CHECK(!unflushed ||
              (flush_begun && vma_read(unflushed, &v, &(struct vma_hidden){ 0 }) &&
               v.start <= unflushed));
        locked = false;
        pthread_mutex_unlock(&mutex);
}

/* A reader that spins in its writer's thread would spin for ever: the sequence was left odd. */
static _Thread_local bool must_not_spin;

void env_relax(unsigned spins)
{
        (void)spins;
        CHECK(!must_not_spin);
        sched_yield();
}

/* Nothing that may wait or exit is called while the tree changes. */
static void check_even(void)
{
        struct vma v;
        must_not_spin = true;
        mm_lookup(0, &v);
        must_not_spin = false;
}

_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        fprintf(stderr, "kern_bug: %s %lu %lu\n", what, a, b);
        env_fail(__FILE__, __LINE__, "kern_bug");
}

void *pool_page(enum pool_kind kind)
{
        CHECK(kind == POOL_VMA && locked && npages < 65536);
        check_even();
        if (posix_memalign(&pages[npages], PAGE_SIZE, PAGE_SIZE))
                return NULL;
        return memset(pages[npages++], 0, PAGE_SIZE);
}

/* --- the host --- */

static int64_t map_object(bool shared, uint64_t len)
{
        vcpu_self.exit.out[1] = 0;
        if (!shared)
                return 0;
        uint64_t n = page_count(len);
        CHECK(!page_off(len));
        if (arena_next + n > ARENA_PAGES)
                arena_next = 0;
        memset(arena + arena_next, 1, n);
        vcpu_self.exit.out[1] = (arena_next + 1) * PAGE_SIZE;
        arena_next += n + 1;            /* so that no two objects touch */
        arena_out += n;
        return 0;
}

/* prot: with the address of MAP_FIXED. */
static int64_t file_map(int fd, uint64_t prot, uint64_t flags, uint64_t off, uint64_t len)
{
        bool shared = (flags & MAP_TYPE) != MAP_PRIVATE, huge = fd == FD_HUGE;
        uint64_t rest = huge ? HUGE_PAGES * PAGE_SIZE - 1 : PAGE_SIZE - 1;
        CHECK(!locked && (len == 0 || (flags & MAP_FIXED) || !(prot & PAGE_MASK)));
        if (fd != FD_RW && fd != FD_RO && !huge)
                return -EBADF;
        if (((flags & MAP_HUGETLB) && !huge) || ((off | (prot & PAGE_MASK)) & rest))
                return -EINVAL;
        if (shared && (prot & PROT_WRITE) && fd == FD_RO)
                return -EACCES;
        if (!len)
                return 0;
        refs[fd] += !shared;
        vcpu_self.exit.out[0] = object_word((uint32_t)fd, shared && fd == FD_RO ? PROT_WRITE : 0,
                                            huge ? HUGE_ORDER : 0);
        return map_object(shared, (len + rest) & ~rest);
}

/* Only a mapped object is mapped once more.  Linux refuses it for huge pages. */
static int64_t shared_again(uint64_t file, uint64_t gpa, uint64_t len)
{
        CHECK(locked && len && gpa && !page_off(gpa) && arena[gpa / PAGE_SIZE - 1]);
        CHECK(file == ANON_SHARED || file == FD_SEGMENT || file == FD_RW || file == FD_RO);
        return map_object(true, len);
}

/* One segment, whose attachments have one file id here. */
static int64_t shm_attach(uint64_t shmid, uint64_t flags)
{
        CHECK(!locked);
        if (shmid != SHMID)
                return -EINVAL;
        vcpu_self.exit.out[0] = object_word(FD_SEGMENT, flags & 010000 ? PROT_WRITE : 0, 0);
        map_object(true, SEGMENT_PAGES * PAGE_SIZE);
        return SEGMENT_PAGES * PAGE_SIZE;
}

static int64_t shared_unmap(uint64_t gpa, uint64_t len)
{
        uint64_t first = gpa / PAGE_SIZE - 1;
        CHECK(!unflushed);
        CHECK(gpa && !page_off(gpa) && len && !page_off(len));
        for (uint64_t i = 0; i < page_count(len); i++) {
                CHECK(arena[first + i]);
                arena[first + i] = 0;
                arena_out--;
        }
        return 0;
}

int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        check_even();
        switch (op) {
        case EXIT_FILE_MAP:
                return file_map((int)a0, a1, a2, a3, a4);
        case EXIT_ANON_SHARED:
                vcpu_self.exit.out[0] = ANON_SHARED;
                return map_object(true, a0);
        case EXIT_FILE_REF:
                CHECK(locked || a1 == (uint64_t)-1);
                CHECK(a0 < FD_LAST && refs[a0] > 0);
                refs[a0] += (int64_t)a1;
                return 0;
        case EXIT_SHARED_UNMAP:
                return shared_unmap(a0, a1);
        case EXIT_SHARED_AGAIN:
                return shared_again(a0, a1, a2);
        case EXIT_SHM_ATTACH:
                return shm_attach(a0, a1);
        case EXIT_MSYNC:
                CHECK(!locked);
                return 0;
        case EXIT_MINCORE:
                /* the page cache holds mapped pages only; shared pages are in the arena; private
                 * ones of huge pages are in no page cache */
                CHECK(!locked && a2 && a2 <= PAGE_SIZE && a0 != FD_HUGE &&
                      (a0 == FILE_NONE ? a1 && arena[a1 / PAGE_SIZE - 1] : a0 < FD_LAST));
                return -EBADF;
        default:
                env_fail(__FILE__, __LINE__, "an exit the tests do not know");
        }
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return vmexit5(op, a0, a1, a2, 0, 0);
}

int kern_copy_out(uint64_t dst, const void *src, size_t len)
{
        CHECK(!locked);
        if (!dst)
                return -EFAULT;
        memcpy((void *)dst, src, len);
        return 0;
}

/* --- page tables --- */

void pt_wait_faults(uint64_t start, uint64_t end)
{
        CHECK(locked && nwaited < 64);
        check_even();
        waited[nwaited].start = start;
        waited[nwaited++].end = end;
}

/* The caller has changed the tree and waited for the faults in this range. */
static void check_waited(uint64_t start, uint64_t end)
{
        bool found = false;
        CHECK(locked && !page_off(start) && !page_off(end) && start <= end &&
              !mm_reserved(start, end));
        check_even();
        for (unsigned i = 0; i < nwaited; i++)
                found |= waited[i].start <= start && end <= waited[i].end;
        CHECK(found);
}

/* No fault finds a VMA there until the operation is done. */
static void check_gone(uint64_t start, uint64_t end)
{
        struct vma v;
        check_waited(start, end);
        for (uint64_t a = start; a < end; a += PAGE_SIZE * (1 + (end - start) / (PAGE_SIZE * 8)))
                CHECK(mm_lookup(a, &v) == -EFAULT);
}

#define for_each_page(p, start, end)                                                            \
        for (struct env_page *p = env_page; p < env_page + ENV_PAGES; p++)                      \
                if (ENV_ADDR(p - env_page) >= (start) && ENV_ADDR(p - env_page) < (end))

static void will_flush(const struct env_page *p, struct pt_gone *gone)
{
        unflushed = ENV_ADDR(p - env_page);
        flush_begun = false;
        gone->pages.flush = true;
}

void pt_gone_flush(struct pt_gone *gone)
{
        CHECK(locked);
        flush_begun = gone->pages.flush;
}

void pt_gone_end(struct pt_gone *gone)
{
        CHECK(locked || !gone->pages.flush || flush_begun);
        if (gone->pages.flush)
                unflushed = 0;
        *gone = PT_GONE_NONE;
}

uint64_t pt_zap(uint64_t start, uint64_t end, struct pt_gone *gone)
{
        uint64_t charged = 0;
        check_gone(start, end);
        for_each_page(p, start, end) {
                if (p->there)
                        will_flush(p, gone);
                charged += p->charged;
                *p = (struct env_page){ 0 };
        }
        return charged;
}

void pt_protect(uint64_t start, uint64_t end, pte_t prot, struct pt_gone *gone)
{
        check_gone(start, end);
        for_each_page(p, start, end)
                if (p->there) {
                        p->prot = prot;
                        will_flush(p, gone);
                }
}

int pt_move(uint64_t from, uint64_t to, uint64_t len)
{
        struct vma v;
        check_gone(from, from + len);
        CHECK(mm_lookup(to, &v) == -EFAULT && mm_lookup(to + len - 1, &v) == -EFAULT);
        if (env_move_fails && env_random(16) == 0)
                return -ENOMEM;
        for_each_page(p, from, from + len) {
                uint64_t i = page_count(ENV_ADDR(p - env_page) - from + to - ENV_BASE);
                CHECK(i < ENV_PAGES && !env_page[i].there);
                env_page[i] = *p;
                *p = (struct env_page){ 0 };
        }
        return 0;
}

void pt_resident(uint64_t start, uint64_t end, uint8_t *vec)
{
        CHECK(locked);
        for_each_page(p, start, end)
                vec[page_count(ENV_ADDR(p - env_page) - start)] = p->there;
}

uint64_t pt_count_arena(uint64_t start, uint64_t end)
{
        struct vma v;
        uint64_t n = 0;
        check_gone(start, end);
        for_each_page(p, start, end)
                n += p->there &&
                     vma_read(ENV_ADDR(p - env_page), &v, &(struct vma_hidden){ 0 }) &&
                     (v.flags & MAP_SHARED);
        return n;
}

void pt_cool(uint64_t start, uint64_t end) { CHECK(locked && start < end); }
pte_slot_t *pt_find(uint64_t addr) { (void)addr; return NULL; }

struct pager pager;                     /* locked: see the tests */
void kern_log(int level, const char *fmt, ...) { CHECK(!locked && level <= 1 && fmt); }

uint64_t pt_set_locked(uint64_t start, uint64_t end, bool lock)
{
        check_waited(start, end);
        for_each_page(p, start, end)
                if (p->there)
                        p->locked = lock;
        return 0;
}

/* Does the fault handler's work. */
static int fault(uint64_t addr, bool write)
{
        struct vma v;
        struct env_page *p = &env_page[page_count(addr - ENV_BASE)];
        while (mm_lookup(addr, &v))
                if (mm_grow_stack(addr))
                        return -EFAULT;
        CHECK(v.start <= addr && addr < v.end);
        if (!vma_accessible(&v) || (write && !(v.prot & PROT_WRITE)))
                return -EFAULT;
        if (p->there)
                return 0;
        if (v.flags & VMA_TOUCH) {
                if (mm_charge_page())
                        return -ENOMEM;
                p->charged = true;
        }
        p->there = true;
        p->locked = v.flags & VMA_LOCKED;
        p->prot = pte_prot(v.prot & PROT_READ, v.prot & PROT_WRITE, v.prot & PROT_EXEC);
        p->tag = ++tags;
        return 0;
}

int fault_in(uint64_t start, uint64_t end, bool write)
{
        CHECK(!locked && start < end);
        for (; start < end; start += PAGE_SIZE) {
                if (start < ENV_BASE || start >= ENV_END)
                        continue;       /* nothing there is looked at */
                int err = fault(start, write);
                if (err)
                        return err;
        }
        return 0;
}

uint32_t prefetch_range(uint64_t start, uint64_t end, bool mark)
{
        assert_false(mark);
        (void)start;
        (void)end;
        return 0;
}
int fault_in_all(uint64_t start, uint64_t end, bool write) { return fault_in(start, end, write); }
