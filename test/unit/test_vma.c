/*
 * VMA tree and memory system calls: corner cases, a random walk against a model, random calls
 * against the kernel underneath, readers against a writer.
 *
 * Environment: SEED, STEPS, NATIVE_STEPS.
 */
#include <pthread.h>
#include <string.h>
#include "vma_env.h"

#define P PAGE_SIZE
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define FIXED (ANON | MAP_FIXED)
#define RW (PROT_READ | PROT_WRITE)

static long map(uint64_t page, uint64_t pages, uint64_t prot, uint64_t flags)
{
        return call_mmap(ENV_ADDR(page), pages * P, prot, flags, -1, 0);
}
static bool mapped(uint64_t addr) { struct vma v; return mm_lookup(addr, &v) == 0; }

static void test_mmap_errors(void **state)
{
        (void)state;
        env_reset();
        static const struct {
                uint64_t addr, len, prot, flags;
                int fd;
                uint64_t off;
                long want;
        } table[] = {
                { 0, 0, RW, ANON, -1, 0, -EINVAL },
                { 0, P, RW, ANON, -1, 1, -EINVAL },
                { 0, P, RW, MAP_ANONYMOUS, -1, 0, -EINVAL },
                { 0, P, RW, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0, -EINVAL },
                { 0, P, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0, -EINVAL },
                { 0, -1ull, RW, ANON, -1, 0, -ENOMEM },
                { 0, TASK_SIZE + P, RW, ANON, -1, 0, -ENOMEM },
                { TASK_SIZE, P, RW, FIXED, -1, 0, -ENOMEM },
                { ENV_BASE + 1, P, RW, FIXED, -1, 0, -EINVAL },
                { 0, P, RW, FIXED, -1, 0, -EPERM },
                { 0xf000, P, RW, FIXED, -1, 0, -EPERM },
                { 0, P, RW, ANON | MAP_HUGETLB, -1, 0, -ENOMEM },
                { 0, P, RW, MAP_SHARED | MAP_HUGETLB, -1, 0, -EBADF },
                { 0, P, RW, MAP_SHARED | MAP_HUGETLB, 77, 0, -EBADF },
                { 0, P, RW, MAP_SHARED | MAP_HUGETLB, FD_RW, 0, -EINVAL },
                { 0, -2 * P, RW, MAP_SHARED | MAP_HUGETLB, FD_RW, 0, -EINVAL },
                { 0, -2 * P, RW, MAP_SHARED | MAP_HUGETLB, FD_HUGE, 0, -ENOMEM },
                { 0, P, RW, MAP_SHARED, FD_HUGE, P, -EINVAL },
                { ENV_BASE + P, P, RW, MAP_SHARED | MAP_FIXED, FD_HUGE, 0, -EINVAL },
                { TASK_SIZE - P, P, RW, MAP_SHARED | MAP_FIXED, FD_HUGE, 0, -EINVAL },
                { TASK_SIZE - 3 * P, P, RW, MAP_SHARED | MAP_FIXED, FD_HUGE, 0, -ENOMEM },
                { 0, P, PROT_READ, MAP_PRIVATE, 77, 0, -EBADF },
                { 0, P, PROT_READ, MAP_PRIVATE, -1, 0, -EBADF },
                { 0, P, RW, MAP_SHARED, FD_RO, 0, -EACCES },
                { 0, P, RW, MAP_PRIVATE, FD_RW, 1ull << 63, -EOVERFLOW },
                { 0, P, RW, MAP_SHARED_VALIDATE | MAP_SYNC, FD_RW, 0, -EOPNOTSUPP },
                { WINDOW, P, RW, FIXED, -1, 0, -ENOMEM },
                { WINDOW, P, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0, -ENOMEM },
                { RESERVED_START - P, 2 * P, PROT_READ, FIXED, -1, 0, -ENOMEM },
        };
        for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
                assert_int_equal(call_mmap(table[i].addr, table[i].len, table[i].prot,
                                           table[i].flags, table[i].fd, table[i].off),
                                 table[i].want);
        assert_int_equal(vma_counts.nodes, 0);
        assert_int_equal(env_refs(), 0);
        control.rlimit_memlock = 0;
        assert_int_equal(map(0, 1, RW, FIXED | MAP_LOCKED), -EPERM);
        control.rlimit_memlock = P;
        assert_int_equal(map(0, 2, RW, FIXED | MAP_LOCKED), -EAGAIN);
}

static void test_placement(void **state)
{
        (void)state;
        env_reset();
        long top = call_mmap(0, P, RW, ANON, -1, 0);
        assert_int_equal(top, (long)(control.mmap_top - P));
        assert_int_equal(call_mmap(P, P, RW, ANON, -1, 0), 0x10000); /* hints go up to mmap_min */
        assert_int_equal(map(3, 1, RW, ANON), (long)ENV_ADDR(3));    /* a free hint is taken */
        assert_true(map(3, 1, RW, ANON) > (long)ENV_END);            /* one in use is not */
        assert_true(call_mmap(WINDOW, P, RW, ANON, -1, 0) >= (long)RESERVED_END);
        long low = call_mmap(0, P, RW, ANON | MAP_32BIT, -1, 0);
        assert_true(low >= 0x40000000 && low < 0x80000000);
        assert_int_equal(map(3, 1, RW, ANON | MAP_FIXED_NOREPLACE), -EEXIST);
        assert_int_equal(map(4, 1, RW, ANON | MAP_FIXED_NOREPLACE), (long)ENV_ADDR(4));

        /* A mapping that does not fit above vmrun's range goes below it; never inside. */
        long big = call_mmap(0, 0x200000000000, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
        assert_true(big > 0 && (uint64_t)big + 0x200000000000 <= RESERVED_START);
        assert_int_equal(call_mmap(0, 0x700000000000, PROT_NONE, ANON | MAP_NORESERVE, -1, 0),
                         -ENOMEM);
}

static void test_reservation(void **state)
{
        uint64_t start = RESERVED_START - 16 * P, len = RESERVED_END - RESERVED_START + 32 * P;
        (void)state;
        env_reset();
        assert_int_equal(call_mmap(start, len, PROT_NONE, FIXED | MAP_NORESERVE, -1, 0),
                         (long)start);
        assert_true(mapped(WINDOW));
        assert_int_equal(CALL(mprotect, start, len, RW), -ENOMEM);
        assert_int_equal(CALL(mprotect, start, 16 * P, RW), 0);
        assert_int_equal(CALL(mprotect, RESERVED_START, P, PROT_READ), -ENOMEM);
        assert_int_equal(CALL(madvise, start, len, MADV_DONTNEED), 0);
        assert_int_equal(CALL(mremap, start + 16 * P, len - 16 * P, len - 16 * P,
                              MREMAP_MAYMOVE | MREMAP_DONTUNMAP),
                         -ENOMEM);
        assert_int_equal(CALL(munmap, start, len), 0);
        assert_int_equal(vma_counts.nodes, 0);
        assert_int_equal(mm_charged(), 0);
}

static void test_stack(void **state)
{
        struct mm_op op = {
                .op = MM_STACK, .addr = ENV_ADDR(100), .len = 4 * P, .prot = RW, .off = 8 << 20
        };
        struct map_entry e[4];
        (void)state;
        env_reset();
        control.mmap_top = ENV_ADDR(100);
        assert_int_equal(mm_batch(&op, 1), 0);
        assert_int_equal(mm_maps(0, e, 4), 1);
        assert_int_equal(e[0].flags, MAP_PRIVATE | MAP_ENTRY_STACK);
        assert_int_equal(mm_charged(), 4);
        /* not into the guard gap */
        assert_int_equal(call_mmap(0, P, RW, ANON, -1, 0), (long)(ENV_ADDR(100) - STACK_GUARD - P));
        assert_int_equal(mm_grow_stack(ENV_ADDR(104)), -EFAULT);
        assert_int_equal(mm_grow_stack(ENV_ADDR(100) - STACK_GUARD - P - 1), -EFAULT);
        assert_int_equal(mm_grow_stack(ENV_ADDR(99) + 5), -ENOMEM);             /* guard gap */
        assert_int_equal(CALL(mprotect, ENV_ADDR(100) - STACK_GUARD - P, P, PROT_NONE), 0);
        assert_int_equal(mm_grow_stack(ENV_ADDR(99) + 5), 0); /* which PROT_NONE does not ask for */
        assert_int_equal(mm_charged(), 4 + 1 + 1);
        assert_true(mapped(ENV_ADDR(99)));
        control.rlimit_stack = 6 * P;
        assert_int_equal(mm_grow_stack(ENV_ADDR(97)), -ENOMEM);
        assert_int_equal(mm_grow_stack(ENV_ADDR(98)), 0);
        assert_int_equal(CALL(mprotect, ENV_ADDR(102), P, PROT_READ | PROT_GROWSDOWN), 0);
        assert_int_equal(mm_maps(0, e, 4), 3);
        assert_int_equal(e[1].start, ENV_ADDR(98));
        assert_int_equal(e[1].prot, PROT_READ);
}

/* Pages of a file that are locked as a whole take frames: from then on they are paid for. */
static void test_locked_files(void **state)
{
        (void)state;
        env_reset();
        control.nframes = 80;           /* limit: 80 + 20 - 5 - 64 */
        control.far_pages = 20;
        env_init();
        assert_int_equal(mm_limit(), 31);
        assert_int_equal(call_mmap(ENV_ADDR(0), 20 * P, PROT_READ, MAP_PRIVATE | MAP_FIXED, FD_RO,
                                   0), (long)ENV_ADDR(0));
        assert_int_equal(mm_charged(), 0);
        assert_int_equal(CALL(mlock2, ENV_ADDR(0), 20 * P, MLOCK_ONFAULT), 0);
        assert_int_equal(mm_charged(), 0);
        assert_int_equal(CALL(mlock, ENV_ADDR(2), 8 * P), 0);
        assert_int_equal(mm_charged(), 8);
        assert_int_equal(CALL(munlock, ENV_ADDR(0), 20 * P), 0);
        assert_int_equal(mm_charged(), 8);
        assert_int_equal(CALL(mlock, ENV_ADDR(2), 8 * P), 0);
        assert_int_equal(mm_charged(), 8);
        /* What is writable has been paid for. */
        assert_int_equal(map(40, 20, RW, FIXED), (long)ENV_ADDR(40));
        assert_int_equal(CALL(mlock, ENV_ADDR(40), 20 * P), 0);
        assert_int_equal(mm_charged(), 28);
        assert_int_equal(CALL(mlock, ENV_ADDR(10), 4 * P), -ENOMEM);
        assert_int_equal(mm_charged(), 28);
        assert_int_equal(CALL(munlock, ENV_ADDR(40), 20 * P), 0);
        assert_int_equal(CALL(mlock, ENV_ADDR(10), 3 * P), 0);
        assert_int_equal(mm_charged(), 31);
        assert_int_equal(CALL(munmap, ENV_ADDR(0), 20 * P), 0);
        assert_int_equal(mm_charged(), 20);
        /* A mapping that is locked from its beginning; and shared pages, which take no frames. */
        assert_int_equal(call_mmap(ENV_ADDR(0), 12 * P, PROT_READ,
                                   MAP_PRIVATE | MAP_FIXED | MAP_LOCKED, FD_RO, 0), -ENOMEM);
        assert_int_equal(call_mmap(ENV_ADDR(0), 11 * P, PROT_READ,
                                   MAP_PRIVATE | MAP_FIXED | MAP_LOCKED, FD_RO, 0),
                         (long)ENV_ADDR(0));
        assert_int_equal(mm_charged(), 31);
        assert_int_equal(call_mmap(ENV_ADDR(20), 4 * P, PROT_READ, MAP_SHARED | MAP_FIXED, FD_RO,
                                   0), (long)ENV_ADDR(20));
        assert_int_equal(CALL(mlock, ENV_ADDR(20), 4 * P), 0);
        assert_int_equal(mm_charged(), 31);
}

static void test_limits(void **state)
{
        (void)state;
        env_reset();
        control.rlimit_as = 10 * P;
        assert_int_equal(map(0, 11, PROT_NONE, FIXED), -ENOMEM);
        assert_int_equal(map(0, 10, PROT_NONE, FIXED), (long)ENV_ADDR(0));
        /* it replaces as many pages as it needs */
        assert_int_equal(map(0, 10, PROT_READ, FIXED), (long)ENV_ADDR(0));
        assert_int_equal(CALL(mremap, ENV_ADDR(0), 10 * P, 11 * P, 0), -ENOMEM);
        control.rlimit_as = ~0ull;
        control.rlimit_data = 4 * P;
        assert_int_equal(map(20, 5, RW, FIXED), -ENOMEM);
        assert_int_equal(CALL(mprotect, ENV_ADDR(0), 5 * P, RW), -ENOMEM);
        assert_int_equal(CALL(mprotect, ENV_ADDR(0), 4 * P, RW), 0);

        env_reset();
        control.nframes = 80;           /* limit: 80 + 20 - 5 - 64 */
        control.far_pages = 20;
        env_init();
        assert_int_equal(mm_limit(), 31);
        assert_int_equal(map(0, 32, RW, FIXED), -ENOMEM);
        assert_int_equal(map(0, 32, PROT_NONE, FIXED), (long)ENV_ADDR(0));
        assert_int_equal(CALL(mprotect, ENV_ADDR(0), 32 * P, RW), -ENOMEM);
        assert_int_equal(map(0, 32, RW, FIXED | MAP_NORESERVE), (long)ENV_ADDR(0));
        assert_int_equal(fault_in(ENV_ADDR(0), ENV_ADDR(32), true), -ENOMEM);
        assert_int_equal(mm_charged(), 31);
        assert_int_equal(CALL(madvise, ENV_ADDR(0), 32 * P, MADV_DONTNEED), 0);
        assert_int_equal(mm_charged(), 0);
        /* More than half of the cache: as a whole never, by the page at any length.  Pages that
         * were touched and locked so count. */
        assert_int_equal(map(0, 70, RW, FIXED | MAP_NORESERVE), (long)ENV_ADDR(0));
        assert_int_equal(CALL(mlock, ENV_ADDR(0), 41 * P), -ENOMEM);
        assert_int_equal(CALL(mlock2, ENV_ADDR(0), 60 * P, MLOCK_ONFAULT), 0);
        assert_int_equal(vma_counts.locked, 60);
        assert_int_equal(vma_counts.whole, 0);
        assert_int_equal(CALL(mlock, ENV_ADDR(50), 12 * P), 0);
        assert_int_equal(vma_counts.locked, 62);
        assert_int_equal(vma_counts.whole, 12);
        assert_int_equal(CALL(mlock, ENV_ADDR(0), 29 * P), -ENOMEM);
        pager.locked = 39;
        assert_int_equal(CALL(mlock, ENV_ADDR(0), 2 * P), -ENOMEM);
        assert_int_equal(CALL(mlock, ENV_ADDR(0), P), 0);
        pager.locked = 0;
        assert_int_equal(CALL(mlock2, ENV_ADDR(50), 12 * P, MLOCK_ONFAULT), 0);
        assert_int_equal(vma_counts.whole, 1);
        control.rlimit_memlock = 62 * P;
        assert_int_equal(CALL(mlock2, ENV_ADDR(60), 4 * P, MLOCK_ONFAULT), -ENOMEM);
        assert_int_equal(CALL(mlock2, ENV_ADDR(60), 2 * P, MLOCK_ONFAULT), 0);
        assert_int_equal(CALL(munlock, ENV_ADDR(0), 70 * P), 0);
        assert_int_equal(vma_counts.locked + vma_counts.whole, 0);
        /* all, and all that comes */
        control.rlimit_memlock = ~0ull;
        assert_int_equal(CALL(mlockall, MCL_CURRENT), -ENOMEM);
        assert_int_equal(CALL(mlockall, MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT), 0);
        assert_int_equal(vma_counts.locked, 70);
        assert_int_equal(map(100, 60, RW, FIXED | MAP_NORESERVE), (long)ENV_ADDR(100));
        assert_int_equal(vma_counts.locked, 130);
        assert_int_equal(vma_counts.whole, 0);
        assert_int_equal(CALL(munlockall), 0);
        assert_int_equal(vma_counts.locked, 0);
        control.overcommit = 1;
        assert_int_equal(map(0, 100, RW, FIXED), (long)ENV_ADDR(0));
        assert_int_equal(mm_charged(), 0);
}

static void test_many(void **state)
{
        uint64_t base = 0x300000000000;
        (void)state;
        env_reset();
        for (uint64_t i = 0; i <= VMA_MAX; i++)
                assert_int_equal(call_mmap(base + 2 * i * P, P, RW, FIXED, -1, 0),
                                 (long)(base + 2 * i * P));
        assert_null(vma_check());
        assert_int_equal(call_mmap(base - 2 * P, P, RW, FIXED, -1, 0), -ENOMEM);
        assert_int_equal(CALL(munmap, base + 2 * P, P), 0);
        assert_int_equal(CALL(munmap, base + 4 * P, P), 0);
        /* joins its neighbours */
        assert_int_equal(call_mmap(base + P, 4 * P, RW, FIXED, -1, 0), (long)(base + P));
        assert_int_equal(vma_counts.nodes, VMA_MAX - 1);
        for (uint64_t i = 0; i < 2; i++)
                assert_int_equal(call_mmap(base - (2 * i + 2) * P, P, RW, FIXED, -1, 0),
                                 (long)(base - (2 * i + 2) * P));
        assert_int_equal(CALL(munmap, base + 2 * P, P), -ENOMEM); /* a hole would make one more */
        assert_true(mapped(base + 2 * P));
        assert_int_equal(CALL(munmap, base - P * P, 0x10000000000), 0);
        assert_int_equal(vma_counts.nodes, 0);
        assert_int_equal(mm_charged(), 0);
}

static void test_shared(void **state)
{
        struct vma v;
        (void)state;
        env_reset();
        assert_int_equal(call_mmap(ENV_ADDR(0), 8 * P, PROT_READ, MAP_SHARED | MAP_FIXED, FD_RO, 0),
                         (long)ENV_ADDR(0));
        assert_int_equal(CALL(mprotect, ENV_ADDR(0), 8 * P, RW), -EACCES);
        assert_int_equal(mm_lookup(ENV_ADDR(0), &v), 0);
        uint64_t gpa = v.gpa;
        assert_int_equal(CALL(munmap, ENV_ADDR(2), P), 0);
        assert_int_equal(env_refs(), 7);
        assert_int_equal(CALL(mremap, ENV_ADDR(3), 5 * P, 4 * P, MREMAP_MAYMOVE | MREMAP_FIXED,
                              ENV_ADDR(40)),
                         (long)ENV_ADDR(40));
        assert_int_equal(mm_lookup(ENV_ADDR(41), &v), 0);
        assert_int_equal(v.gpa, gpa + 3 * P);
        assert_int_equal(CALL(msync, ENV_ADDR(40), 4 * P, MS_SYNC), 0);

        /* Longer, in place and elsewhere, its object lies elsewhere in the arena; pages that were
         * not mapped twice were given back. */
        assert_int_equal(CALL(mremap, ENV_ADDR(40), 4 * P, 5 * P, 0), (long)ENV_ADDR(40));
        assert_int_equal(mm_lookup(ENV_ADDR(44), &v), 0);
        assert_true(v.start == ENV_ADDR(40) && v.off == 3 * P && v.gpa != gpa + 3 * P);
        assert_int_equal(env_refs(), 2 + 5);
        assert_int_equal(map(45, 1, RW, FIXED), (long)ENV_ADDR(45));
        assert_int_equal(CALL(mremap, ENV_ADDR(41), 4 * P, 6 * P, 0), -ENOMEM);
        assert_int_equal(env_refs(), 2 + 5);
        assert_int_equal(CALL(mremap, ENV_ADDR(41), 4 * P, 6 * P, MREMAP_MAYMOVE | MREMAP_FIXED,
                              ENV_ADDR(60)),
                         (long)ENV_ADDR(60));
        assert_int_equal(mm_lookup(ENV_ADDR(60), &v), 0);
        assert_int_equal(v.off, 4 * P);
        assert_true(mapped(ENV_ADDR(40)) && !mapped(ENV_ADDR(41)));
        assert_int_equal(
                CALL(mremap, ENV_ADDR(61), 0, 2 * P, MREMAP_MAYMOVE | MREMAP_FIXED, ENV_ADDR(70)),
                (long)ENV_ADDR(70));
        assert_int_equal(mm_lookup(ENV_ADDR(70), &v), 0);
        assert_int_equal(v.off, 5 * P);
        assert_int_equal(CALL(mremap, ENV_ADDR(61), 0, 2 * P, 0), -ENOMEM);
        assert_int_equal(env_refs(), 2 + 1 + 6 + 2);
        assert_int_equal(CALL(munmap, ENV_BASE, 100 * P), 0);
        assert_int_equal(env_refs(), 0);
}

static void test_cut(void **state)
{
        (void)state;
        env_reset();
        assert_int_equal(call_mmap(ENV_ADDR(0), 8 * P, RW, MAP_PRIVATE | MAP_FIXED, FD_RW, 2 * P),
                         (long)ENV_ADDR(0));
        assert_int_equal(call_mmap(ENV_ADDR(10), 4 * P, PROT_READ,
                                   MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, FD_RO, 0),
                         (long)ENV_ADDR(10));
        assert_int_equal(call_mmap(ENV_ADDR(20), 4 * P, RW, MAP_SHARED | MAP_FIXED, FD_RW, 3 * P),
                         (long)ENV_ADDR(20));
        assert_int_equal(fault_in(ENV_ADDR(0), ENV_ADDR(8), true) |
                                 fault_in(ENV_ADDR(10), ENV_ADDR(14), false) |
                                 fault_in(ENV_ADDR(20), ENV_ADDR(24), true),
                         0);
        uint64_t charged = mm_charged();
        assert_int_equal(object_cut(FD_RW, 10), 0);
        assert_int_equal(env_pages_there(), 16);
        assert_int_equal(object_cut(FD_RW, 5), 2);      /* how many of the shared ones */
        assert_true(env_page[2].there && !env_page[3].there && env_page[13].there &&
                    env_page[21].there && !env_page[22].there);
        assert_int_equal(env_pages_there(), 3 + 4 + 2);
        assert_true(mapped(ENV_ADDR(7)) && mapped(ENV_ADDR(23)));
        assert_int_equal(object_cut(FD_RW, 0), 2);
        assert_int_equal(env_pages_there(), 4);
        assert_int_equal(object_cut(99, 0), 0);
        assert_int_equal(mm_charged(), charged);
        assert_int_equal(CALL(munmap, ENV_BASE, 100 * P), 0);
        assert_true(mm_charged() == 0 && env_refs() == 0);
}

/* SHM_RDONLY 01, SHM_RND 02, SHM_REMAP 04: <sys/shm.h> wants the C library's page size. */
#define SHM(flag) (flag##0000ul)

static void test_shm(void **state)
{
        struct vma v;
        (void)state;
        env_reset();
        assert_int_equal(CALL(shmat, SHMID, ENV_ADDR(0) + 1, 0), -EINVAL);
        assert_int_equal(CALL(shmat, SHMID, 0, SHM(04)), -EINVAL);
        assert_int_equal(CALL(shmat, SHMID, 100, SHM(02) | SHM(04)), -EINVAL);
        assert_int_equal(CALL(shmat, SHMID, 100, SHM(02)), -EPERM);     /* there is no page at 0 */
        assert_int_equal(CALL(shmat, SHMID + 1, ENV_ADDR(0), 0), -EINVAL);
        assert_int_equal(CALL(shmat, SHMID, TASK_SIZE - 5 * P, 0), -ENOMEM);
        assert_int_equal(CALL(shmat, SHMID, -1ull << 12, 0), -EINVAL);
        assert_int_equal(CALL(shmat, SHMID, -1ull << 12, SHM(04)), -ENOMEM);
        assert_int_equal(CALL(shmat, SHMID, WINDOW, 0), -ENOMEM);
        assert_int_equal(env_refs(), 0);
        assert_int_equal(map(5, 1, RW, FIXED), (long)ENV_ADDR(5));
        assert_int_equal(CALL(shmat, SHMID, ENV_ADDR(0), 0), -EINVAL);
        assert_int_equal(env_refs(), 0);
        assert_int_equal(CALL(shmat, SHMID, ENV_ADDR(0), SHM(01) | SHM(04)), (long)ENV_ADDR(0));
        assert_int_equal(mm_lookup(ENV_ADDR(5), &v), 0);
        assert_true(v.start == ENV_ADDR(0) && v.prot == PROT_READ && (v.flags & VMA_SYSV) &&
                    v.file == FD_SEGMENT);
        assert_int_equal(CALL(mprotect, ENV_ADDR(0), SEGMENT_PAGES * P, RW), -EACCES);
        assert_int_equal(CALL(shmat, SHMID, ENV_ADDR(10) + 7, SHM(02)), (long)ENV_ADDR(10));

        /* In pieces: one is unmapped, one was moved, one is another mapping by now. */
        assert_int_equal(CALL(mprotect, ENV_ADDR(11), P, PROT_READ), 0);
        assert_int_equal(CALL(munmap, ENV_ADDR(10), P), 0);
        assert_int_equal(
                CALL(mremap, ENV_ADDR(13), P, P, MREMAP_MAYMOVE | MREMAP_FIXED, ENV_ADDR(20)),
                (long)ENV_ADDR(20));
        assert_int_equal(map(14, 1, RW, FIXED), (long)ENV_ADDR(14));
        assert_int_equal(CALL(shmdt, ENV_ADDR(11)), -EINVAL);
        assert_int_equal(CALL(shmdt, ENV_ADDR(10) + 1), -EINVAL);
        assert_int_equal(CALL(shmdt, ENV_ADDR(9)), -EINVAL);
        assert_int_equal(CALL(shmdt, ENV_ADDR(10)), 0);
        assert_true(!mapped(ENV_ADDR(11)) && !mapped(ENV_ADDR(12)) && mapped(ENV_ADDR(14)) &&
                    !mapped(ENV_ADDR(15)) && mapped(ENV_ADDR(20)));
        assert_int_equal(CALL(shmdt, ENV_ADDR(10)), -EINVAL);
        /* the piece that was moved is 3 pages from its start */
        assert_int_equal(CALL(shmdt, ENV_ADDR(17)), 0);
        assert_int_equal(env_refs(), SEGMENT_PAGES);
        assert_int_equal(CALL(shmdt, ENV_ADDR(0)), 0);
        assert_int_equal(env_refs(), 0);
        assert_int_equal(CALL(munmap, ENV_BASE, 100 * P), 0);
}

static void test_mlock(void **state)
{
        (void)state;
        env_reset();
        assert_int_equal(map(0, 9, RW, FIXED), (long)ENV_ADDR(0));
        assert_int_equal(CALL(mprotect, ENV_ADDR(4), P, PROT_NONE), 0);
        assert_int_equal(CALL(mlock, ENV_ADDR(1) + 5, 2 * P), 0);       /* touches three pages */
        assert_true(!env_page[0].there && env_page[1].locked && env_page[3].locked);
        assert_int_equal(vma_counts.locked, 3);
        assert_int_equal(CALL(mlock, ENV_ADDR(4), P), -ENOMEM); /* locked, but cannot come */
        assert_int_equal(vma_counts.locked, 4);
        assert_int_equal(CALL(madvise, ENV_ADDR(1), P, MADV_DONTNEED), -EINVAL);
        assert_int_equal(CALL(mlock2, ENV_ADDR(5), P, MLOCK_ONFAULT), 0);
        assert_false(env_page[5].there);
        assert_int_equal(CALL(mlock2, ENV_ADDR(5), P, 2), -EINVAL);
        assert_int_equal(CALL(munlockall, 0), 0);
        assert_int_equal(vma_counts.locked, 0);
        assert_false(env_page[1].locked);
        assert_int_equal(CALL(mlockall, MCL_ONFAULT), -EINVAL);
        assert_int_equal(CALL(mlockall, MCL_CURRENT | MCL_FUTURE), 0);
        assert_true(env_page[0].locked && env_page[8].locked);
        assert_int_equal(map(20, 2, RW, FIXED), (long)ENV_ADDR(20));
        assert_true(env_page[21].locked);
        control.rlimit_memlock = 12 * P;
        assert_int_equal(map(30, 2, RW, FIXED), -EAGAIN);
        /* locked pages do not count twice */
        assert_int_equal(CALL(mlock, ENV_ADDR(20), 2 * P), 0);
}

static void test_hidden(void **state)
{
        struct vma v;
        (void)state;
        env_reset();
        assert_int_equal(call_mmap(ENV_ADDR(0), 10 * P, RW, MAP_PRIVATE | MAP_FIXED, FD_RW, 0),
                         (long)ENV_ADDR(0));
        lock_take(&mm_lock);
        mm_hide(ENV_ADDR(4), ENV_ADDR(6));
        CHECK(mm_lookup(ENV_ADDR(3), &v) == 0 && v.start == ENV_ADDR(0) && v.end == ENV_ADDR(4) &&
              v.off == 0);
        CHECK(mm_lookup(ENV_ADDR(4), &v) == -EFAULT && mm_lookup(ENV_ADDR(5), &v) == -EFAULT);
        CHECK(mm_lookup(ENV_ADDR(6), &v) == 0 && v.start == ENV_ADDR(6) && v.end == ENV_ADDR(10) &&
              v.off == 6 * P);
        mm_show();
        CHECK(mm_lookup(ENV_ADDR(5), &v) == 0 && v.start == ENV_ADDR(0) && v.end == ENV_ADDR(10));
        lock_drop(&mm_lock);
        assert_int_equal(CALL(munmap, ENV_ADDR(0), 10 * P), 0);
        assert_int_equal(env_refs(), 0);
}

/* A VMA that grows down keeps a gap free below it; the search must see it at any depth of the
 * tree. */
static void test_guard_gaps(void **state)
{
        uint64_t at = 0x300000000000;
        (void)state;
        env_reset();
        for (int i = 0; i < 400; i++) {
                uint64_t flags = FIXED | (env_random(3) ? 0 : MAP_GROWSDOWN);
                CHECK(call_mmap(at, P, RW, flags, -1, 0) == (long)at);
                at += (1 + env_random(600)) * P;
        }
        CHECK(!vma_check());
        for (int i = 0; i < 2000; i++) {
                uint64_t low = 0x300000000000 + env_random(120000) * P,
                         high = low + env_random(3000) * P, len = (1 + env_random(500)) * P,
                         want = 0;
                for (uint64_t from = low; from + len <= high;) { /* lowest to highest free run */
                        struct vma_node *n = vma_find(from);
                        uint64_t stop = n && vma_floor(&n->v) < high ? vma_floor(&n->v) : high;
                        if (stop >= from + len)
                                want = stop - len;
                        if (!n || n->v.start >= high)
                                break;
                        from = n->v.end;
                }
                CHECK(vma_gap(low, high, len) == want);
        }
}

/* --- readers against a writer --- */

#define RACE_BASE  0x400000000000ull
#define RACE_SLOTS 64                   /* of 8 pages; every eighth holds a VMA that stays */
#define RACE_READS (ENV_TSAN ? 20000 : 200000)
static _Atomic bool race_over;
static _Atomic uint64_t race_found[2];

static uint64_t mix(uint64_t x) { return (x ^ x >> 29) * 0x9e3779b97f4a7c15; }

/* A VMA with a checksum of its own: shows whether a reader copied a VMA that existed. */
static struct vma signed_vma(uint64_t start, uint64_t end, uint64_t generation)
{
        struct vma v = { .start = start,
                         .end = end,
                         .prot = (uint32_t)generation & PROT_ALL,
                         .flags = MAP_PRIVATE,
                         .file = 1,
                         .off = generation };
        v.gpa = mix(start + mix(end + mix(generation)));
        return v;
}

static void *reader(void *arg)
{
        _Atomic uint64_t *found = arg;
        uint64_t x = (uint64_t)(found - race_found) + 7;
        struct vma v;
        while (!atomic_load(&race_over)) {
                x = mix(x + 1);
                uint64_t slot = x % RACE_SLOTS, addr = RACE_BASE + (slot * 8 + (x >> 32) % 8) * P;
                int err = mm_lookup(addr, &v);
                CHECK(!err || slot % 8);
                if (err)
                        continue;
                atomic_fetch_add_explicit(found, 1, memory_order_relaxed);
                CHECK(v.start <= addr && addr < v.end);
                CHECK(memcmp(&v, &(struct vma[]){ signed_vma(v.start, v.end, v.off) }, sizeof(v)) ==
                      0);
        }
        return NULL;
}

static void test_race(void **state)
{
        pthread_t thread[2];
        struct vma_node *slot[RACE_SLOTS] = { 0 };
        (void)state;
        env_reset();
        atomic_store(&race_over, false);
        lock_take(&mm_lock);
        for (uint64_t i = 0; i < RACE_SLOTS; i += 8) {
                struct vma v = signed_vma(RACE_BASE + i * 8 * P, RACE_BASE + (i + 1) * 8 * P, i);
                CHECK(vma_reserve(1) == 0);
                vma_begin();
                slot[i] = vma_insert(&v);
                vma_end();
        }
        for (uint64_t i = 0; i < 2; i++)
                pthread_create(&thread[i], NULL, reader, &race_found[i]);
        /* On a busy machine the readers may start late: they, too, must have done something. */
        for (uint64_t step = 1;
             step < 100000 || race_found[0] < RACE_READS || race_found[1] < RACE_READS; step++) {
                uint64_t i = env_random(RACE_SLOTS), from = env_random(8),
                         to = from + 1 + env_random(8 - from);
                if (i % 8 == 0)
                        from = 0, to = 8;
                struct vma v = signed_vma(RACE_BASE + (i * 8 + from) * P,
                                          RACE_BASE + (i * 8 + to) * P, step);
                CHECK(vma_reserve(1) == 0);
                vma_begin();
                if (!slot[i]) {
                        slot[i] = vma_insert(&v);
                } else if (i % 8 && env_random(2)) {
                        vma_remove(slot[i]);
                        vma_free(slot[i]);
                        slot[i] = NULL;
                } else {
                        vma_change(slot[i], &v);
                }
                vma_end();
        }
        atomic_store(&race_over, true);
        for (int i = 0; i < 2; i++)
                pthread_join(thread[i], NULL);
        CHECK(!vma_check());
        lock_drop(&mm_lock);
}

int main(void)
{
        const char *seed = getenv("SEED");
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_mmap_errors),
                cmocka_unit_test(test_placement),
                cmocka_unit_test(test_reservation),
                cmocka_unit_test(test_stack),
                cmocka_unit_test(test_locked_files),
                cmocka_unit_test(test_limits),
                cmocka_unit_test(test_many),
                cmocka_unit_test(test_shared),
                cmocka_unit_test(test_cut),
                cmocka_unit_test(test_shm),
                cmocka_unit_test(test_mlock),
                cmocka_unit_test(test_hidden),
                cmocka_unit_test(test_guard_gaps),
                cmocka_unit_test(test_race),
                cmocka_unit_test(test_native),
                cmocka_unit_test(test_model),
        };
        env_seed = seed ? strtoull(seed, NULL, 0) : 1;
        printf("# SEED=%lu\n", env_seed);
        fflush(stdout);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
