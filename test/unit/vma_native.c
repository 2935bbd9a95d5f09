/*
 * Random calls, well-formed and not, each to kern's code and to the kernel underneath: results and
 * maps must agree. Runs in a child, over addresses that nothing else uses. Calls that differ on
 * purpose (kern/mm/remap.c, kern/mm/advise.c) are left out, and mremap over several VMAs, which
 * Linux allows since 6.17.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "vma_env.h"

#define PAGES 48        /* calls start in these; lengths stay below the rest of ENV_PAGES */

static long native(long nr, const uint64_t a[6])
{
        long r = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        return r == -1 ? -errno : r;
}

static uint64_t one_of(const uint64_t *list, size_t n) { return list[env_random(n)]; }
#define ONE_OF(...)                                                                              \
        one_of((const uint64_t[]){ __VA_ARGS__ }, sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8)

static uint64_t some_addr(void)
{
        return ENV_ADDR(env_random(PAGES)) + (env_random(24) ? 0 : env_random(PAGE_SIZE));
}

/* wild: also lengths that no range has. */
static uint64_t some_len(bool wild)
{
        if (env_random(24) == 0)
                return ONE_OF(0, 1, PAGE_SIZE - 1, PAGE_SIZE + 1, ~0ull, -4096ull);
        if (wild && env_random(40) == 0)
                return ONE_OF(1ull << 47, 1ull << 62, TASK_SIZE);
        return (1 + env_random(env_random(3) ? 5 : 20)) * PAGE_SIZE;
}

static bool make_mmap(uint64_t a[6])
{
        a[0] = some_addr();
        a[1] = some_len(true);
        a[2] = env_random(20) ? env_random(8) : env_random(1 << 30);
        a[3] = ONE_OF(MAP_PRIVATE, MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, 0);
        a[3] |= ONE_OF(MAP_FIXED, MAP_FIXED, MAP_FIXED, MAP_FIXED_NOREPLACE);
        a[4] = ONE_OF(FD_RW, FD_RO, ~0ull, 77);
        if (env_random(2))
                a[3] |= MAP_ANONYMOUS;
        a[3] |= ONE_OF(0, 0, 0, 0, MAP_NORESERVE, MAP_POPULATE, MAP_STACK, MAP_DENYWRITE,
                       MAP_GROWSDOWN, MAP_LOCKED, MAP_SYNC, MAP_32BIT);
        a[5] = env_random(20) ? env_random(16) * PAGE_SIZE : ONE_OF(1, ~0ull, -4096ull, 1ull << 62);
        /* Where several things are wrong, vmrun may report another one first than Linux: it checks
         * the place after all that the host checks. */
        bool file = !(a[3] & MAP_ANONYMOUS);
        bool odd = !(a[3] & MAP_TYPE) || (a[3] & MAP_TYPE) == MAP_SHARED_VALIDATE ||
                   (a[3] & MAP_GROWSDOWN);
        if (odd && ((a[3] & MAP_FIXED_NOREPLACE) || (file && a[4] == 77)))
                return false;
        return !(file && (a[1] == 0 || a[1] > 1ull << 40 || page_off(a[0]) ||
                          (a[3] & (MAP_GROWSDOWN | MAP_FIXED_NOREPLACE | MAP_SYNC)) || a[5] >> 40));
}

/* The end of the kernel's VMA at addr.  The kernel may keep VMAs apart that kern merges (anonymous
 * memory that was moved), and the reverse. */
static uint64_t kernel_vma_end(uint64_t addr)
{
        char line[512];
        unsigned long start, end, found = 0;
        FILE *f = fopen("/proc/self/maps", "r");
        CHECK(f);
        while (fgets(line, sizeof(line), f))
                if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= addr && addr < end)
                        found = end;
        fclose(f);
        return found;
}

static bool make_mremap(uint64_t a[6])
{
        struct vma v;
        a[0] = some_addr();
        a[1] = some_len(true);
        a[2] = some_len(false);
        a[3] = ONE_OF(0, 0, 0, MREMAP_MAYMOVE | MREMAP_FIXED, MREMAP_MAYMOVE | MREMAP_FIXED,
                      MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, MREMAP_FIXED,
                      MREMAP_DONTUNMAP, 64);
        a[4] = some_addr();
        if (a[3] & MREMAP_DONTUNMAP)
                a[2] = a[1];
        if (a[1] > ENV_END || a[2] > ENV_END)   /* checked earlier since Linux 6.17 than before */
                return false;
        if (mm_lookup(a[0], &v))
                return !(a[3] & MREMAP_FIXED);
        if ((v.flags & MAP_SHARED) && (a[3] & MREMAP_DONTUNMAP))
                return false;
        if (v.file == ANON_SHARED && page_align(a[2]) > page_align(a[1]))
                return false;   /* it ends where it ended, which the fake page faults do not know */
        if ((v.flags & VMA_LOCKED) && (a[3] & MREMAP_DONTUNMAP))
                return false;   /* Linux unlocks the whole VMA, kern the part that lost its pages */
        uint64_t end = a[0] + page_align(a[1]);
        if ((end <= v.end) != (end <= kernel_vma_end(a[0])))
                return false;
        return end <= v.end || !(a[3] & MREMAP_FIXED);
}

/* A random call; false: one of those left out. */
static bool make_call(long *nr, uint64_t a[6], long (**ours)(const uint64_t a[6]))
{
        static uint8_t vec[1 << 16];
        memset(a, 0, 6 * sizeof(a[0]));
        a[0] = some_addr();
        switch (env_random(12)) {
        case 0: case 1: case 2:
                *nr = SYS_mmap, *ours = sys_mmap;
                return make_mmap(a);
        case 3:
                *nr = SYS_munmap, *ours = sys_munmap;
                a[1] = some_len(true);
                return a[1] != TASK_SIZE;
        case 4: case 5: case 6:
                *nr = SYS_mprotect, *ours = sys_mprotect;
                a[1] = some_len(true);
                a[2] = env_random(10) ? env_random(8)
                                      : ONE_OF(8, 16, PROT_GROWSUP, PROT_GROWSDOWN | PROT_GROWSUP,
                                               1ull << 40);
                return true;
        case 7:
                *nr = SYS_madvise, *ours = sys_madvise;
                a[1] = some_len(false);
                a[2] = ONE_OF(MADV_NORMAL, MADV_DONTNEED, MADV_DONTNEED, MADV_FREE, MADV_COLD,
                              MADV_PAGEOUT, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK,
                              MADV_KEEPONFORK, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
                              MADV_DONTDUMP, MADV_WILLNEED, 99, ~0ull);
                return true;
        case 8:
                *nr = SYS_mincore, *ours = sys_mincore;
                a[1] = some_len(true);
                a[2] = env_random(16) ? (uint64_t)vec : 0;
                return a[1] < sizeof(vec) * PAGE_SIZE || a[1] > TASK_SIZE;
        case 9:
                *nr = env_random(2) ? SYS_mlock : SYS_munlock;
                *ours = *nr == SYS_mlock ? sys_mlock : sys_munlock;
                a[1] = some_len(false);
                return true;
        case 10:
                *nr = SYS_msync, *ours = sys_msync;
                a[1] = some_len(false);
                a[2] = ONE_OF(MS_ASYNC, MS_SYNC, MS_INVALIDATE, MS_SYNC | MS_ASYNC, 0, 8);
                return true;
        default:
                *nr = SYS_mremap, *ours = sys_mremap;
                return make_mremap(a);
        }
}

/* The kernel's view: 0 for no page, else PROT_* + 1, +8 if shared. */
static void read_maps(uint8_t map[ENV_PAGES])
{
        char line[512], perm[5];
        unsigned long start, end;
        FILE *f = fopen("/proc/self/maps", "r");
        CHECK(f);
        memset(map, 0, ENV_PAGES);
        while (fgets(line, sizeof(line), f)) {
                CHECK(sscanf(line, "%lx-%lx %4s", &start, &end, perm) == 3);
                for (uint64_t a = higher(start, ENV_BASE); a < lower(end, ENV_END); a += PAGE_SIZE)
                        map[page_count(a - ENV_BASE)] =
                                (uint8_t)(1 + (perm[0] == 'r') * PROT_READ +
                                          (perm[1] == 'w') * PROT_WRITE +
                                          (perm[2] == 'x') * PROT_EXEC + (perm[3] == 's') * 8);
        }
        fclose(f);
}

static void compare_maps(void)
{
        uint8_t map[ENV_PAGES];
        struct vma v;
        read_maps(map);
        for (int i = 0; i < ENV_PAGES; i++) {
                unsigned want =
                        mm_lookup(ENV_ADDR(i), &v) ? 0 : 1 + v.prot + (v.flags & MAP_SHARED) * 8;
                if (map[i] != want)
                        fprintf(stderr, "page %d: the kernel has %u, ours is %u\n", i, map[i],
                                want);
                CHECK(map[i] == want);
        }
}

static void open_files(void)
{
        char path[64];
        int fd = (int)syscall(SYS_memfd_create, "vma-test", 0);
        CHECK(fd >= 0 && ftruncate(fd, 4 << 20) == 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int ro = open(path, O_RDONLY);
        CHECK(ro >= 0 && dup2(fd, 20) == 20 && dup2(ro, 21) == 21);
        CHECK(dup2(20, FD_RW) == FD_RW && dup2(21, FD_RO) == FD_RO);
}

/* With a protection key for PROT_EXEC mappings Linux makes them unreadable, so mlock of one gives
 * ENOMEM. Ours have none, as where the CPU has none, and Linux does without where all are taken. */
static void take_protection_keys(void)
{
        while (syscall(SYS_pkey_alloc, 0, 0) >= 0)
                ;
}

/* Older kernels (6.1) also populate pages behind a hole, and return an error from there. */
static bool older(long nr, const uint64_t a[6], long got, long want)
{
        bool populate = a[2] == MADV_POPULATE_READ || a[2] == MADV_POPULATE_WRITE;

        return nr == SYS_madvise && populate && got == -ENOMEM && want == -EINVAL;
}

static void child(uint64_t steps)
{
        open_files();
        take_protection_keys();
        for (uint64_t i = 0; i < steps; i++) {
                uint64_t a[6];
                long nr, (*ours)(const uint64_t a[6]);
                if (!make_call(&nr, a, &ours))
                        continue;
                long want = native(nr, a), got = ours(a);
                if (want == -EAGAIN || want == -EINTR)
                        want = native(nr, a);
                bool same = got == want || older(nr, a, got, want);
                if (!same || getenv("VERBOSE"))
                        fprintf(stderr,
                                "step %lu: system call %ld(%#lx, %#lx, %#lx, %#lx, %#lx, %#lx): "
                                "%ld, the kernel says %ld\n",
                                i, nr, a[0], a[1], a[2], a[3], a[4], a[5], got, want);
                CHECK(same);
                compare_maps();
        }
        _exit(0);
}

void test_native(void **state)
{
        const char *steps = getenv("NATIVE_STEPS");
        int status;
        (void)state;
        if (ENV_TSAN)
                skip();                 /* its shadow lies where the calls go */
        env_reset();
        control.mmap_min = ENV_BASE;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                alarm(120);
                child(steps ? strtoull(steps, NULL, 0) : 20000);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
