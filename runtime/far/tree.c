/*
 * See tree.h: the memory file that the processes of a tree share, and its lock.
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
#include "abi_image.h"
#include "base/message.h"
#include "base/privfd.h"
#include "common/clock.h"
#include "far/memfd.h"
#include "far/tree.h"

#define MAGIC 0x736d656e72746d76ull

/* ---- the file ---- */

static void *map(int fd, void *at, uint64_t off, uint64_t size)
{
        void *p = mmap(at, size, PROT_READ | PROT_WRITE,
                       MAP_SHARED | (at ? MAP_FIXED_NOREPLACE : 0), fd, (off_t)off);
        if (p != MAP_FAILED && at && p != at) { /* an old kernel: the address is a hint */
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
static uint64_t pieces_size(const struct tree *t) { return t->max_slabs * SLAB_PIECES_SIZE; }

/* On success t owns the descriptor. */
static int map_all(struct tree *t, int fd, uint32_t max_slabs, void *units, char *why, size_t n)
{
        uint64_t units_size = tree_units_size(max_slabs);

        *t = (struct tree){
                .fd = fd, .life = -1, .self = TREE_PROCESSES, .max_slabs = max_slabs
        };
        t->head = map(fd, NULL, 0, TREE_HEAD_SIZE);
        if (t->head)
                t->units = map(fd, units, TREE_HEAD_SIZE, units_size);
        if (t->units)
                t->bits = map(fd, NULL, TREE_HEAD_SIZE + units_size, bits_size(t));
        if (t->bits)
                t->pieces = map(fd, NULL, TREE_HEAD_SIZE + units_size + bits_size(t),
                                pieces_size(t));
        if (t->pieces)
                return 0;
        int err = -errno;
        snprintf(why, n, "the slots of far memory cannot be mapped: %s%s", strerror(-err),
                 err == -ENOMEM ? ": raise `ulimit -v`" : "");
        unmap((void *)t->bits, bits_size(t));
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
                         "program again",
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
                         "the program was started by another version of vmrun: start it again");
                return -EPROTO;
        }
        return map_all(t, fd, max_slabs, units, why, n);
}

void tree_close(struct tree *t)
{
        unmap(t->pieces, pieces_size(t));
        unmap((void *)t->bits, bits_size(t));
        unmap(t->units, tree_units_size(t->max_slabs));
        unmap(t->head, TREE_HEAD_SIZE);
        privfd_close(t->fd);
        if (t->life >= 0)
                privfd_close(t->life);
}

/* ---- the lock ---- */

/* A process died while it changed data under the lock.  Leases: the slabs and places in the list
 * count.  A place that has bits and is not listed is known to no process (places.c), so its bits
 * go.  Records: a new record that is half written belongs to a process that never came up; marks of
 * death and burying can be repeated. */
static void mend_head(struct tree *t)
{
        struct tree_head *h = t->head;

        for (uint32_t i = 0; i < h->nnodes; i++)
                h->node[i].leased = h->node[i].slabs = 0;
        for (uint32_t i = 0; i < h->nslabs; i++) {
                _Atomic uint32_t *with_bits = &tree_map(t->units, i)->places;
                uint32_t places = h->slab[i].places;
                for (uint32_t k = 0; k < places; k++) {
                        struct tree_node *n = &h->node[h->slab[i].place[k].node];
                        n->leased += h->slab[i].pages;
                        n->slabs++;
                }
                if (atomic_load(with_bits) > places)
                        atomic_store(with_bits, places);
        }
}

/* err: the result of an attempt to lock.  False: another process has the lock. */
static bool locked(struct tree *t, int err)
{
        if (err == EOWNERDEAD) {
                mend_head(t);
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
bool tree_lock_within(struct tree *t, unsigned limit_ms)
{
        const struct timespec ms = { .tv_nsec = 1000000 };

        for (int64_t end = now_ms() + limit_ms; !locked(t, pthread_mutex_trylock(&t->head->lock));
             nanosleep(&ms, NULL))
                if (now_ms() >= end)
                        return false;
        return true;
}

#ifdef __SANITIZE_THREAD__
/* If timedlock returns EOWNERDEAD, the sanitizer does not know that it has locked; with trylock it
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
 * Sleeps in bounds.  When the owner of a robust mutex is killed, the kernel wakes one waiter.  If
 * that waiter is killed too before it runs, as with a whole group of processes, the others sleep on
 * although no process owns the mutex.  The bound is of the wall clock: if the clock is set, one
 * wait is longer or shorter.
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

void tree_yield(struct tree *t)
{
        tree_unlock(t);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        tree_lock(t);
}
