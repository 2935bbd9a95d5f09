/*
 * The pool: one mapping of one memory file, taken at start, and the state of each part of it.
 *
 * Parts are extents of whole 4 KiB pages.  An extent is FREE and all zero; or TAKEN; or DIRTY:
 * given back with the bytes of its last owner in it; or being SCRUBBED.  [I] Only zeroed memory is
 * ever FREE, and only FREE memory is given out.  The kernel's memory is zero at first; from then on
 * the only way back to FREE is the scrubber, a thread that zeroes 64 MiB at a time without holding
 * the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "common/message.h"
#include "common/size.h"
#include "pool.h"

#define PAGE          4096ull
#define SCRUB_BYTES   (64ull << 20)     /* zeroed in one go */
/* the most that pool_alloc() waits for the scrubber: at 1 GiB/s that is 30 GiB */
#define SCRUB_WAIT_S  30

struct extent {
        uint64_t start, end;            /* bytes from base */
        enum { FREE, TAKEN, DIRTY, SCRUBBED } state;
        struct extent *next;
};

/* Set by pool_open, constant until pool_close. */
static char *base;
static uint64_t size, page;
static int fd = -1;
static pthread_t scrubber;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* to the scrubber: there is work, or the end */
static pthread_cond_t dirtied = PTHREAD_COND_INITIALIZER;
static pthread_cond_t scrubbed = PTHREAD_COND_INITIALIZER;      /* to pool_alloc: more is FREE */
/* guarded by lock */
/* sorted, covers [0, size) without a gap; no two neighbours are both FREE or both DIRTY */
static struct extent *extents;
/* bytes FREE, DIRTY or SCRUBBED: available now or soon */
static uint64_t left;
static bool ending;                     /* to both */

/* Splits the extent that covers `at` in its middle.  0 or -ENOMEM. */
static int split(uint64_t at)
{
        for (struct extent *e = extents; e && e->start < at; e = e->next) {
                if (e->end <= at)
                        continue;
                struct extent *rest = malloc(sizeof(*rest));
                if (!rest)
                        return -ENOMEM;
                *rest = (struct extent){ at, e->end, e->state, e->next };
                e->end = at;
                e->next = rest;
        }
        return 0;
}

static void merge(void)
{
        for (struct extent *e = extents; e && e->next; ) {
                struct extent *n = e->next;
                if (e->state == n->state && (e->state == FREE || e->state == DIRTY)) {
                        e->end = n->end;
                        e->next = n->next;
                        free(n);
                } else {
                        e = n;
                }
        }
}

/* Zeroes a range that no other thread uses.  Small pages go back to the kernel, which also frees
 * memory of this host.  Huge pages would lose their reservation that way, so they are kept and
 * overwritten. */
static void zero(uint64_t start, uint64_t bytes)
{
        if (page == PAGE) {
                int r;
                do
                        r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                                      (off_t)bytes);
                while (r != 0 && errno == EINTR);
                if (r == 0)
                        return;
        }
        memset(base + start, 0, bytes);
}

static struct extent *find(int state)
{
        struct extent *e = extents;
        while (e && (int)e->state != state)
                e = e->next;
        return e;
}

static void *scrub(void *arg)
{
        (void)arg;
        pthread_mutex_lock(&lock);
        while (!ending) {
                struct extent *e = find(DIRTY);
                if (!e) {
                        /* no time limit: there is nothing to do until memory is given back */
                        pthread_cond_wait(&dirtied, &lock);
                        continue;
                }
                if (e->end - e->start > SCRUB_BYTES)
                        /* without memory for that, all of it in one go */
                        split(e->start + SCRUB_BYTES);
                /* keeps e alive: only this thread changes or merges such an extent */
                e->state = SCRUBBED;
                pthread_mutex_unlock(&lock);
                zero(e->start, e->end - e->start);
                pthread_mutex_lock(&lock);
                e->state = FREE;
                merge();
                pthread_cond_broadcast(&scrubbed);
        }
        pthread_mutex_unlock(&lock);
        return NULL;
}

/* Best fit, so that long pieces stay for large requests. */
static struct extent *fit(uint64_t bytes)
{
        struct extent *best = NULL;
        for (struct extent *e = extents; e; e = e->next)
                if (e->state == FREE && e->end - e->start >= bytes &&
                    (!best || e->end - e->start < best->end - best->start))
                        best = e;
        return best;
}

/* With the lock.  As pool_try(). */
static char *take(uint64_t bytes, bool *soon)
{
        struct extent *e = ending ? NULL : fit(bytes);

        *soon = !e && !ending && left >= bytes && (find(DIRTY) || find(SCRUBBED));
        if (!e || split(e->start + bytes) != 0)
                return NULL;
        e->state = TAKEN;
        left -= bytes;
        return base + e->start;
}

static bool is_possible(uint64_t bytes) { return bytes && bytes % PAGE == 0 && bytes <= size; }

char *pool_try(uint64_t bytes, bool *soon)
{
        char *at = NULL;

        *soon = false;
        if (!is_possible(bytes))
                return NULL;
        pthread_mutex_lock(&lock);
        at = take(bytes, soon);
        pthread_mutex_unlock(&lock);
        return at;
}

char *pool_alloc(uint64_t bytes)
{
        struct timespec until;
        bool soon;

        if (!is_possible(bytes))
                return NULL;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += SCRUB_WAIT_S;
        pthread_mutex_lock(&lock);
        char *at = take(bytes, &soon);
        while (soon && pthread_cond_timedwait(&scrubbed, &lock, &until) != ETIMEDOUT)
                at = take(bytes, &soon);
        pthread_mutex_unlock(&lock);
        return at;
}

void pool_free(char *at, uint64_t bytes)
{
        uint64_t start = (uint64_t)(at - base);
        struct extent *e;

        if (!bytes)
                return;
        pthread_mutex_lock(&lock);
        for (e = extents; e && e->start != start; e = e->next)
                ;
        if (!e || e->state != TAKEN || e->end - e->start != bytes) {
                warnx_("pool_free of what was not given out: %#llx bytes at %#llx",
                       (unsigned long long)bytes, (unsigned long long)start);
                /* memory with two owners: to continue would show one owner's bytes to the other */
                abort();
        }
        e->state = DIRTY;
        left += bytes;
        merge();
        pthread_cond_signal(&dirtied);
        pthread_mutex_unlock(&lock);
}

const char *pool_data(const char *at, const char *end, const char **stop)
{
        off_t data = lseek(fd, at - base, SEEK_DATA);

        if (data < 0 && errno == ENXIO)         /* there is none up to the end of the pool */
                return NULL;
        if (data < 0)                           /* the kernel cannot tell */
                data = at - base;
        off_t hole = lseek(fd, data, SEEK_HOLE);
        if (data >= end - base)
                return NULL;
        *stop = hole > data && hole < end - base ? base + hole : end;
        return base + data;
}

uint64_t pool_size(void) { return size; }

uint64_t pool_left(void)
{
        pthread_mutex_lock(&lock);
        uint64_t bytes = left;
        pthread_mutex_unlock(&lock);
        return bytes;
}

static int start_scrubber(void)
{
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &old);         /* signals are the main thread's */
        int err = pthread_create(&scrubber, NULL, scrub, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        return -err;
}

uint64_t pool_hugepages(uint64_t hugepage, const char *which)
{
        char path[128];
        unsigned long long count = 0;

        snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%llukB/%s",
                 (unsigned long long)hugepage >> 10, which);
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%llu", &count) != 1)
                count = 0;
        if (f)
                fclose(f);
        return count;
}

void pool_hugepages_cure(uint64_t bytes, uint64_t hugepage, char *cure, size_t n)
{
        uint64_t wanted = (bytes + hugepage - 1) / hugepage,
                 unused = pool_hugepages(hugepage, "free_hugepages");
        /* The kernel takes a total, which includes pages that others use. */
        uint64_t sum =
                pool_hugepages(hugepage, "nr_hugepages") + (wanted > unused ? wanted - unused : 0);

        if (hugepage == 2ull << 20)
                snprintf(cure, n,
                         "reserve them, `sysctl vm.nr_hugepages=%llu`, or give --hugepages none",
                         (unsigned long long)sum);
        else
                snprintf(cure, n,
                         "reserve them, `echo %llu "
                         ">/sys/kernel/mm/hugepages/hugepages-%llukB/nr_hugepages` or at boot "
                         "hugepagesz=1G hugepages=%llu, or give --hugepages 2M or none",
                         (unsigned long long)sum, (unsigned long long)hugepage >> 10,
                         (unsigned long long)sum);
}

/* Sentences for errors of the mapping. */
static int explain(int err, uint64_t bytes, uint64_t hugepage, char *why, size_t n)
{
        char a[32], b[32], cure[300];

        if (hugepage != PAGE) {
                pool_hugepages_cure(bytes, hugepage, cure, sizeof(cure));
                snprintf(why, n, "no %s in huge pages of %s can be had (%s): %s",
                         size_text(bytes, a), size_text(hugepage, b), strerror(-err), cure);
        } else {
                snprintf(why, n,
                         "no address space of %s can be had: %s: give a smaller --size, or raise "
                         "`ulimit -v`",
                         size_text(bytes, a), strerror(-err));
        }
        return err;
}

int pool_open(uint64_t bytes, uint64_t hugepage, char *why, size_t n)
{
        unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
        int err;

        bytes = (bytes + hugepage - 1) & ~(hugepage - 1);
        if (hugepage != PAGE)
                flags |= MFD_HUGETLB | (unsigned)__builtin_ctzll(hugepage) << MFD_HUGE_SHIFT;
        fd = memfd_create("memnode", flags);
        if (fd < 0)
                return explain(-errno, bytes, hugepage, why, n);
        if (ftruncate(fd, (off_t)bytes) != 0) {
                err = -errno;
                if (err == -EFBIG)
                        snprintf(why, n, "the limit of file sizes is below it: raise `ulimit -f`");
                else
                        explain(err, bytes, hugepage, why, n);
                goto out_fd;
        }
        /* The size is sealed: a page that vanished under a registered range would be lost
         * silently. */
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        /* This reserves huge pages, so that they cannot be missing later.  Small ones are allocated
         * at first use. */
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) {
                err = explain(-errno, bytes, hugepage, why, n);
                goto out_fd;
        }
        /* of no use in a core file, and not memnode's data to show */
        madvise(base, bytes, MADV_DONTDUMP);
        madvise(base, bytes, MADV_DONTFORK);
        if (hugepage == PAGE)
                /* where shmem_enabled says "advise"; no matter if it fails */
                madvise(base, bytes, MADV_HUGEPAGE);

        extents = malloc(sizeof(*extents));
        if (!extents) {
                err = -ENOMEM;
                snprintf(why, n, "no memory for its bookkeeping is left");
                goto out_map;
        }
        *extents = (struct extent){ 0, bytes, FREE, NULL };
        size = left = bytes;
        page = hugepage;
        ending = false;
        err = start_scrubber();
        if (err) {
                snprintf(why, n, "no thread can be started: %s: raise `ulimit -u`", strerror(-err));
                free(extents);
                extents = NULL;
                size = left = 0;
                goto out_map;
        }
        return 0;

out_map:
        munmap(base, bytes);
out_fd:
        close(fd);
        fd = -1;
        return err;
}

void pool_end(void)
{
        pthread_mutex_lock(&lock);
        ending = true;
        pthread_cond_signal(&dirtied);
        pthread_cond_broadcast(&scrubbed);
        pthread_mutex_unlock(&lock);
}

void pool_close(void)
{
        if (fd < 0)
                return;
        pool_end();
        pthread_join(scrubber, NULL);
        for (struct extent *e = extents, *next; e; e = next) {
                next = e->next;
                free(e);
        }
        extents = NULL;
        munmap(base, size);
        close(fd);
        fd = -1;
        size = left = 0;
}
