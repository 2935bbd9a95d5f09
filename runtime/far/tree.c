/*
 * See tree.h: the memory file, and which processes that share it are alive.
 *
 * A process is alive as long as its byte of the file is locked (fcntl, F_RDLCK): by itself, and by
 * its parent until the child is up.  The kernel drops such locks when the last thread of the
 * process has ended, so none of its code runs any more when others notice.  The locks belong to the
 * process, not to the descriptor: a child does not inherit them, and closing any descriptor of the
 * file would drop them.  So there is only one descriptor, which the program cannot reach.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/message.h"
#include "base/privfd.h"
#include "common/clock.h"
#include "far/memfd.h"
#include "far/tree.h"

#define MAGIC 0x736d656e72746d76ull

static struct tree_common *common(const struct tree *t) { return (struct tree_common *)t->units; }

/* ---- the file ---- */

static void *map(int fd, void *at, uint64_t off, uint64_t size)
{
        void *p = mmap(at, size, PROT_READ | PROT_WRITE,
                       MAP_SHARED | (at ? MAP_FIXED_NOREPLACE : 0), fd, (off_t)off);
        if (p != MAP_FAILED && at && p != at) { /* a kernel that takes the address as a hint */
                munmap(p, size);
                errno = EEXIST;
                p = MAP_FAILED;
        }
        if (p == MAP_FAILED)
                return NULL;
        madvise(p, size, MADV_DONTDUMP);
        return p;
}

static void unmap(void *p, uint64_t size)
{
        if (p)
                munmap(p, size);
}

static uint64_t bits_size(const struct tree *t) { return t->max_slabs * SLAB_BITS_SIZE; }

/* On success t owns the descriptor. */
static int map_all(struct tree *t, int fd, uint32_t max_slabs, void *units, char *why, size_t n)
{
        uint64_t units_size = tree_units_size(max_slabs);

        *t = (struct tree){ .fd = fd, .max_slabs = max_slabs };
        t->head = map(fd, NULL, 0, TREE_HEAD_SIZE);
        if (t->head)
                t->units = map(fd, units, TREE_HEAD_SIZE, units_size);
        if (t->units)
                t->bits = map(fd, NULL, TREE_HEAD_SIZE + units_size, bits_size(t));
        if (t->bits)
                return 0;
        int err = -errno;
        snprintf(why, n, "the slots of the far tiers cannot be mapped: %s%s", strerror(-err),
                 err == -ENOMEM ? ": raise `ulimit -v`" : "");
        unmap(t->units, units_size);
        unmap(t->head, TREE_HEAD_SIZE);
        return err;
}

static void make_head(struct tree_head *h, uint32_t max_slabs)
{
        pthread_mutexattr_t a;

        pthread_mutexattr_init(&a);
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&h->lock, &a);
        pthread_mutexattr_destroy(&a);
        h->version = ABI_VERSION;
        h->max_slabs = max_slabs;
        h->magic = MAGIC;
}

int tree_make(struct tree *t, uint32_t max_slabs, void *units, char *why, size_t n)
{
        int fd = memfd_make("vmrun-slots", tree_size(max_slabs), why, n);
        if (fd < 0)
                return fd;
        int err = map_all(t, fd, max_slabs, units, why, n);
        if (err)
                privfd_close(fd);
        else
                make_head(t->head, max_slabs);
        return err;
}

int tree_attach(struct tree *t, int fd, void *units, char *why, size_t n)
{
        struct { uint64_t magic; uint32_t version; } is = { 0 };
        uint32_t max_slabs = 0;
        struct stat st;

        if (fstat(fd, &st) != 0 || pread(fd, &is, sizeof(is), 0) != sizeof(is) ||
            is.magic != MAGIC) {
                snprintf(why, n,
                         "descriptor %d is not the one of a process tree's slots: start the "
                         "program anew",
                         fd);
                return -EINVAL;
        }
        int seals = fcntl(fd, F_GET_SEALS);
        bool known = is.version == ABI_VERSION &&
                     pread(fd, &max_slabs, sizeof(max_slabs),
                           offsetof(struct tree_head, max_slabs)) == sizeof(max_slabs);
        if (!known || max_slabs > SLABS_MAX || (uint64_t)st.st_size != tree_size(max_slabs) ||
            seals < 0 || !(seals & F_SEAL_SHRINK)) {
                snprintf(why, n,
                         "the program was started by another version of vmrun: start it anew");
                return -EPROTO;
        }
        return map_all(t, fd, max_slabs, units, why, n);
}

void tree_close(struct tree *t)
{
        unmap((void *)t->bits, bits_size(t));
        unmap(t->units, tree_units_size(t->max_slabs));
        unmap(t->head, TREE_HEAD_SIZE);
        privfd_close(t->fd);
}

/* ---- the lock ---- */

/* A process died while it changed data under the lock.  Leases: slabs published in the list count.
 * Records: a new one that is half written belongs to a process that never came up, and marks of
 * death and burying can be repeated. */
static void mend_head(struct tree_head *h)
{
        for (uint32_t i = 0; i < h->nnodes; i++)
                h->node[i].leased = h->node[i].slabs = 0;
        for (uint32_t i = 0; i < h->nslabs; i++) {
                h->node[h->slab[i].node].leased += h->slab[i].pages;
                h->node[h->slab[i].node].slabs++;
        }
}

/* err: the result of an attempt to lock.  False: another process has it. */
static bool locked(struct tree *t, int err)
{
        if (err == EOWNERDEAD) {
                mend_head(t->head);
                pthread_mutex_consistent(&t->head->lock);
        } else if (err && err != EBUSY) {
                die_(EXIT_VMRUN_FAILED,
                     "the list of slabs of this process tree cannot be locked: %s: a bug in vmrun",
                     strerror(err));
        }
        return err != EBUSY;
}

/* Polls, because the thread sanitizer does not know pthread_mutex_clocklock(), and a time-out must
 * not follow the wall clock. */
static bool tree_lock_within(struct tree *t, unsigned limit_ms)
{
        const struct timespec ms = { .tv_nsec = 1000000 };

        for (int64_t end = now_ms() + limit_ms; !locked(t, pthread_mutex_trylock(&t->head->lock));
             nanosleep(&ms, NULL))
                if (now_ms() >= end)
                        return false;
        return true;
}

#ifdef __SANITIZE_THREAD__
/* The sanitizer does not know that a timedlock that returns EOWNERDEAD has locked; of a trylock it
 * does. */
static int timed_lock(pthread_mutex_t *m, const struct timespec *until)
{
        const struct timespec ms = { .tv_nsec = 1000000 };
        int err = pthread_mutex_trylock(m);

        (void)until;
        if (err != EBUSY)
                return err;
        nanosleep(&ms, NULL);
        return ETIMEDOUT;
}
#else
#define timed_lock pthread_mutex_timedlock
#endif

/*
 * Sleeps in bounds. When the owner of a robust mutex is killed the kernel wakes one waiter; if that
 * one is killed too before it runs, as with a whole group of processes, the others sleep on over a
 * mutex that nobody owns. The bound is of the wall clock: if that is set, one wait is longer or
 * shorter.
 */
void tree_lock(struct tree *t)
{
        struct timespec until;
        int err;

        do {
                clock_gettime(CLOCK_REALTIME, &until);
                until.tv_nsec += 100 * 1000000;
                until.tv_sec += until.tv_nsec / 1000000000;
                until.tv_nsec %= 1000000000;
                err = timed_lock(&t->head->lock, &until);
        } while (err == ETIMEDOUT);
        locked(t, err);
}

void tree_unlock(struct tree *t) { pthread_mutex_unlock(&t->head->lock); }

/* ---- lives ---- */

static struct flock byte(short type, uint32_t p)
{
        return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = p, .l_len = 1 };
}

static int keep_alive(struct tree *t, uint32_t p)
{
        struct flock l = byte(F_RDLCK, p);
        if (fcntl(t->fd, F_SETLK, &l) != 0)
                return -errno;
        t->keeping[p / 64] |= 1ull << p % 64;
        return 0;
}

/* If the kernel reports an error, it counts as alive: a wrong guess then costs space, the opposite
 * would cost data. */
static bool is_alive(const struct tree *t, uint32_t p)
{
        struct flock l = byte(F_WRLCK, p);
        return (t->keeping[p / 64] >> p % 64 & 1) || fcntl(t->fd, F_GETLK, &l) != 0 ||
               l.l_type != F_UNLCK;
}

static int take_number(struct tree *t)
{
        struct tree_head *h = t->head;
        uint32_t p = 0;

        tree_mend_locked(t);
        while (p < TREE_PROCESSES && h->record[p].state != RECORD_FREE)
                p++;
        if (p == TREE_PROCESSES)
                return -EAGAIN;
        /* First the lock, then the record: a number in use whose byte is not locked means a dead
         * process. */
        int err = keep_alive(t, p);
        if (err)
                return err;
        if (p >= atomic_load(&common(t)->numbers))
                atomic_store(&common(t)->numbers, p + 1);
        h->record[p] = (struct tree_record){ .state = RECORD_USED, .birth = ++h->births };
        return (int)p;
}

int tree_join(struct tree *t)
{
        tree_lock(t);
        int p = take_number(t);
        if (p >= 0) {
                t->self = (uint32_t)p;
                t->head->record[p].pid = getpid();
        }
        tree_unlock(t);
        return p < 0 ? p : 0;
}

int tree_child(struct tree *t, struct tree_child *c)
{
        tree_lock(t);
        int p = take_number(t);
        if (p >= 0)
                *c = (struct tree_child){ (uint32_t)p, t->head->record[p].birth };
        tree_unlock(t);
        return p < 0 ? p : 0;
}

static void stop_keeping(struct tree *t, uint32_t p)
{
        struct flock l = byte(F_UNLCK, p);
        fcntl(t->fd, F_SETLK, &l);
        t->keeping[p / 64] &= ~(1ull << p % 64);
}

int tree_be_child(struct tree *t, const struct tree_child *c)
{
        struct tree_record *r = &t->head->record[c->number];

        memset(t->keeping, 0, sizeof(t->keeping));
        int err = keep_alive(t, c->number);
        if (err)
                return err;
        t->self = c->number;
        /* If the parent died before that, the number may have been buried, and belong to another
         * process now. */
        tree_lock(t);
        if (r->state == RECORD_USED && r->birth == c->birth)
                r->pid = getpid();
        else
                err = -ESRCH;
        tree_unlock(t);
        if (err)
                stop_keeping(t, c->number);
        return err;
}

int tree_keep_child(const struct tree *t, const struct tree_child *c)
{
        struct flock l = byte(F_RDLCK, c->number);
        return fcntl(t->fd, F_SETLK, &l) == 0 ? 0 : -errno;
}

void tree_child_left(struct tree *t, const struct tree_child *c) { stop_keeping(t, c->number); }

static bool any_remote(const struct tree_head *h)
{
        for (uint32_t i = 0; i < h->nslabs; i++)
                if (h->slab[i].kind == SLAB_REMOTE)
                        return true;
        return false;
}

/* None of its writes can arrive any more, but for slots that are DUE. */
static bool is_harmless(const struct tree_record *r)
{
        return r->leaving == LEAVE_STILL || r->cut || r->pid == 0;
}

uint64_t tree_mend_locked(struct tree *t)
{
        struct tree_head *h = t->head;
        uint64_t freed = 0;

        for (uint32_t p = 0, n = atomic_load(&common(t)->numbers); p < n; p++) {
                struct tree_record *r = &h->record[p];
                if (r->state == RECORD_USED && !is_alive(t, p))
                        r->state = RECORD_DEAD;
                if (r->state != RECORD_DEAD || (any_remote(h) && !is_harmless(r)))
                        continue;
                freed += tree_bury(t, p);
                r->state = RECORD_FREE;
        }
        return freed;
}

/* Nodes remember who connected until they are told of the end, so they are told now and then. */
#define UNTOLD_MOST 1024
/* Dead processes whose slots nobody wants yet: they also hold numbers. */
#define UNCUT_MOST  64

bool tree_uncut_locked(struct tree *t, bool wanted)
{
        const struct tree_head *h = t->head;
        unsigned uncut = 0;

        if (!any_remote(h))
                return false;
        for (uint32_t p = 0, n = atomic_load(&common(t)->numbers); p < n; p++)
                uncut += h->record[p].state == RECORD_DEAD && !h->record[p].cut;
        return uncut > (wanted ? 0 : UNCUT_MOST) || h->births - h->told > UNTOLD_MOST;
}

static int by_birth(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return (x > y) - (x < y);
}

void tree_dead_locked(const struct tree *t, struct tree_dead *d)
{
        const struct tree_head *h = t->head;
        uint64_t alive[TREE_PROCESSES + 1], before = 0;
        unsigned n = 0;

        for (uint32_t p = 0, most = atomic_load(&common(t)->numbers); p < most; p++)
                if (h->record[p].state == RECORD_USED)
                        alive[n++] = h->record[p].birth;
        alive[n++] = h->births + 1;     /* nobody yet: the end */
        qsort(alive, n, sizeof(alive[0]), by_birth);
        d->n = 0;
        for (unsigned i = 0; i < n; before = alive[i++])
                if (alive[i] - before > 1)
                        d->range[d->n++] = (struct far_range){ before + 1, alive[i] - 1 };
}

static bool is_in(const struct tree_dead *d, uint64_t birth)
{
        for (unsigned i = 0; i < d->n; i++)
                if (birth >= d->range[i].first && birth <= d->range[i].last)
                        return true;
        return false;
}

void tree_cut_locked(struct tree *t, const struct tree_dead *d)
{
        struct tree_head *h = t->head;

        for (uint32_t p = 0, n = atomic_load(&common(t)->numbers); p < n; p++)
                if (h->record[p].state == RECORD_DEAD && is_in(d, h->record[p].birth))
                        h->record[p].cut = true;
        if (d->n && d->range[d->n - 1].last > h->told)
                h->told = d->range[d->n - 1].last;
}

void tree_leaves(struct tree *t, bool leaves)
{
        tree_lock(t);
        t->head->record[t->self].leaving = leaves ? LEAVE_STILL : LEAVE_NOT;
        tree_unlock(t);
}

/* A process that dies after this check without having set `leaving` is not checked again: the nodes
 * notice its end themselves. */
bool tree_leave(struct tree *t, bool still, unsigned limit_ms)
{
        struct tree_head *h = t->head;

        if (!tree_lock_within(t, limit_ms))
                return false;
        bool last = true;
        h->record[t->self].leaving = still ? LEAVE_STILL : LEAVE_SOON;
        for (uint32_t p = 0, n = atomic_load(&common(t)->numbers); p < n; p++)
                last &= p == t->self || h->record[p].state != RECORD_USED || h->record[p].leaving ||
                        !is_alive(t, p);
        tree_unlock(t);
        return last;
}

bool tree_alone_locked(const struct tree *t)
{
        for (uint32_t p = 0, n = atomic_load(&common(t)->numbers); p < n; p++)
                if (p != t->self && t->head->record[p].state != RECORD_FREE)
                        return false;
        return true;
}
