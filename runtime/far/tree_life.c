/*
 * See tree.h: the lives of the processes of a tree, and the burial of the dead.
 *
 * A process is alive as long as its byte of the file is locked (F_OFD_SETLK, F_RDLCK).  The lock
 * belongs to a file description that only this process has: the description was opened before the
 * process existed, and passed to it by fork or execve.  So the process is alive from its first
 * instruction on.  The kernel drops the lock when the last thread has ended, and none of its code
 * runs any more when others notice.
 *
 * [I] The description of a process is never mapped, for a mapping is inherited and keeps it open.
 * Its descriptor closes at execve, unless it is the next program's; a forked child closes its
 * parent's.  A child that shares this memory has the descriptor as well, so a process is alive as
 * long as some process runs in its memory.
 *
 * Unlike a process's own locks (F_SETLK), these locks stay when a program opens and closes the
 * file, as it does if it reads all of /proc/PID/fd.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/privfd.h"
#include "common/clock.h"
#include "far/memfd.h"
#include "far/tree.h"

/* The longest time for burying, as other processes may wait for the lock. */
#define BURY_MS 10

static struct flock byte(short type, uint32_t p)
{
        return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = p, .l_len = 1 };
}

static int lock_byte(int life, short type, uint32_t p)
{
        struct flock l = byte(type, p);

        return fcntl(life, F_OFD_SETLK, &l) == 0 ? 0 : -errno;
}

/* Asks through the description that is mapped: locks of one description do not conflict.  If the
 * kernel reports an error, the process counts as alive: that guess may cost space, the opposite
 * could cost data. */
static bool is_alive(const struct tree *t, uint32_t p)
{
        struct flock l = byte(F_WRLCK, p);

        return p == t->self || fcntl(t->fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

/* life: the descriptor that keeps the process alive.  drained: nodes that are drained for it
 * (far/drain.h). */
static int take_free_number(struct tree *t, int life, uint64_t drained)
{
        struct tree_head *h = t->head;
        uint32_t p = 0;

        while (p < TREE_PROCESSES && h->record[p].state != RECORD_FREE)
                p++;
        if (p == TREE_PROCESSES)
                return -EAGAIN;
        /* First the lock, then the record: if a number is in use and its byte is not locked, the
         * process is dead. */
        int err = life < 0 ? 0 : lock_byte(life, F_RDLCK, p);
        if (err)
                return err;
        if (p >= atomic_load(&tree_common(t->units)->numbers))
                atomic_store(&tree_common(t->units)->numbers, p + 1);
        atomic_store(&tree_common(t->units)->process[p].asked, 0);
        atomic_store(&tree_common(t->units)->process[p].drained, drained);
        h->record[p] = (struct tree_record){ .state = RECORD_USED, .birth = ++h->births };
        return (int)p;
}

/* Buries all processes that can be, and lets others have the lock in between. */
static void mend_all(struct tree *t)
{
        while (tree_mend_locked(t), tree_unburied_locked(t))
                tree_yield(t);
}

/* Buries some of the dead on the way; all of them only if their numbers are needed. */
static int take_number(struct tree *t, int life, uint64_t drained)
{
        tree_mend_locked(t);
        int p = take_free_number(t, life, drained);
        if (p != -EAGAIN)
                return p;
        mend_all(t);
        return take_free_number(t, life, drained);
}

/* Without /proc the first process goes without a lock: it can have no children that would ask. */
int tree_join(struct tree *t)
{
        int life = memfd_again(t->fd);

        if (life < 0 && (life != -ENOSYS || t->head->births))
                return life;
        tree_lock(t);
        int p = take_number(t, life, 0);
        if (p >= 0) {
                t->self = (uint32_t)p;
                t->life = life;
                t->head->record[p].pid = getpid();
        }
        tree_unlock(t);
        if (p < 0 && life >= 0)
                privfd_close(life);
        return p < 0 ? p : 0;
}

/* For the child, too, the nodes are drained that are drained for this process. */
static int number_of_child(struct tree *t, int life)
{
        tree_lock(t);
        int p = take_number(t, life, atomic_load(&tree_common(t->units)->process[t->self].drained));
        tree_unlock(t);
        return p;
}

int tree_child(struct tree *t, struct tree_child *c)
{
        int life = memfd_again(t->fd);
        int p = life < 0 ? life : number_of_child(t, life);

        if (p >= 0)
                *c = (struct tree_child){ (uint32_t)p, life };
        else if (life >= 0)
                privfd_close(life);
        return p < 0 ? p : 0;
}

void tree_be_child(struct tree *t, const struct tree_child *c)
{
        if (t->life >= 0)
                privfd_close(t->life);
        t->life = c->life;
        t->self = c->number;
        tree_lock(t);
        t->head->record[c->number].pid = getpid();
        tree_unlock(t);
}

void tree_child_left(const struct tree_child *c)
{
        if (c->life >= 0)
                privfd_close(c->life);
}

int tree_expect(struct tree *t) { return t->life < 0 ? -ENOSYS : number_of_child(t, t->life); }

struct tree_child tree_expected(const struct tree *t, int number)
{
        struct tree_child c = { (uint32_t)number, memfd_again(t->fd) };

        if (c.life >= 0 && lock_byte(c.life, F_RDLCK, c.number) != 0) {
                privfd_close(c.life);
                c.life = -1;
        }
        return c;
}

void tree_expect_end(const struct tree *t, int number)
{
        lock_byte(t->life, F_UNLCK, (uint32_t)number);
}

static bool any_remote(const struct tree_head *h)
{
        for (uint32_t i = 0; i < h->nslabs; i++)
                if (h->slab[i].kind == SLAB_REMOTE)
                        return true;
        return false;
}

/* No write of the process can arrive any more, but in slots that are DUE. */
static bool is_harmless(const struct tree_record *r)
{
        return r->leaving >= LEAVE_STILL || r->cut || r->pid == 0;
}

static bool can_be_buried(const struct tree *t, uint32_t p)
{
        const struct tree_record *r = &t->head->record[p];

        return r->state == RECORD_DEAD && (!any_remote(t->head) || is_harmless(r));
}

bool tree_unburied_locked(const struct tree *t)
{
        for (uint32_t p = 0, n = atomic_load(&tree_common(t->units)->numbers); p < n; p++)
                if (can_be_buried(t, p))
                        return true;
        return false;
}

/* A process that has no number yet buries p as p itself would: if it dies meanwhile, p is buried
 * again. */
static bool bury(struct tree *t, uint32_t p, int64_t until, uint64_t *freed)
{
        struct tree as = *t;

        if (as.self == TREE_PROCESSES)
                as.self = p;
        return tree_bury(&as, p, until, freed);
}

uint64_t tree_mend_locked(struct tree *t)
{
        const uint32_t n = atomic_load(&tree_common(t->units)->numbers);
        const int64_t until = now_ms() + BURY_MS;
        struct tree_record *record = t->head->record;
        uint64_t freed = 0;

        for (uint32_t p = 0; p < n; p++)
                if (record[p].state == RECORD_USED && !is_alive(t, p))
                        record[p].state = RECORD_DEAD;
        for (uint32_t p = 0; p < n; p++) {
                if (!can_be_buried(t, p))
                        continue;
                if (!bury(t, p, until, &freed))
                        break;
                record[p].state = RECORD_FREE;
                if (now_ms() >= until)
                        break;
        }
        return freed;
}

/* Births since nodes were last told of the dead: they remember each member until then. */
#define UNTOLD_MOST 1024
/* Dead processes that are not cut off, while no process needs their slots: they hold numbers. */
#define UNCUT_MOST  64

bool tree_uncut_locked(struct tree *t, bool wanted)
{
        const struct tree_head *h = t->head;
        unsigned uncut = 0;

        if (!any_remote(h))
                return false;
        for (uint32_t p = 0, n = atomic_load(&tree_common(t->units)->numbers); p < n; p++)
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

        for (uint32_t p = 0, most = atomic_load(&tree_common(t->units)->numbers); p < most; p++)
                if (h->record[p].state == RECORD_USED)
                        alive[n++] = h->record[p].birth;
        alive[n++] = h->births + 1;     /* of no process yet: the end */
        qsort(alive, n, sizeof(alive[0]), by_birth);
        d->silences = h->silences;
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

/* Notes which nodes have answered the list of the dead.  silences: h->silences when the list was
 * made. */
static void note_silent(struct tree *t, uint64_t silences, uint64_t silent)
{
        struct tree_head *h = t->head;

        h->silences += silent != 0;
        for (unsigned n = 0; n < NODES_MAX; n++) {
                uint64_t bit = 1ull << n;
                if (silent & bit) {
                        atomic_fetch_or(&tree_common(t->units)->uncut, bit);
                        h->untold[n] = h->silences;
                } else if (silences >= h->untold[n]) {
                        atomic_fetch_and(&tree_common(t->units)->uncut, ~bit);
                }
        }
}

void tree_cut_locked(struct tree *t, const struct tree_dead *d, uint64_t silent)
{
        struct tree_head *h = t->head;

        /* Before any process is buried. */
        if (d->n)
                note_silent(t, d->silences, silent);
        for (uint32_t p = 0, n = atomic_load(&tree_common(t->units)->numbers); p < n; p++)
                if (h->record[p].state == RECORD_DEAD && is_in(d, h->record[p].birth))
                        h->record[p].cut = true;
        if (d->n && d->range[d->n - 1].last > h->told)
                h->told = d->range[d->n - 1].last;
}

/* Writes of this process may still arrive at nodes that missed them (copies.h). */
static bool gave_up_writes(const struct tree *t)
{
        return atomic_load(&tree_common(t->units)->process[t->self].unfenced) != 0;
}

void tree_leaves(struct tree *t, bool leaves)
{
        tree_lock(t);
        t->head->record[t->self].leaving = leaves && !gave_up_writes(t) ? LEAVE_EXEC : LEAVE_NOT;
        tree_unlock(t);
}

static bool ends(const struct tree_record *r)
{
        return r->leaving == LEAVE_SOON || r->leaving == LEAVE_STILL;
}

/* A process that dies after this check without having set `leaving` is not checked again: the nodes
 * notice its end themselves. */
bool tree_leave(struct tree *t, bool still, unsigned limit_ms)
{
        struct tree_head *h = t->head;

        if (!tree_lock_within(t, limit_ms))
                return false;
        bool last = true;
        h->record[t->self].leaving = still && !gave_up_writes(t) ? LEAVE_STILL : LEAVE_SOON;
        for (uint32_t p = 0, n = atomic_load(&tree_common(t->units)->numbers); p < n; p++)
                last &= p == t->self || h->record[p].state != RECORD_USED || ends(&h->record[p]) ||
                        !is_alive(t, p);
        tree_unlock(t);
        return last;
}

bool tree_alone(struct tree *t)
{
        tree_lock(t);
        mend_all(t);
        bool alone = tree_alone_locked(t);
        tree_unlock(t);
        return alone;
}

bool tree_alone_locked(const struct tree *t)
{
        for (uint32_t p = 0, n = atomic_load(&tree_common(t->units)->numbers); p < n; p++)
                if (p != t->self && t->head->record[p].state != RECORD_FREE)
                        return false;
        return true;
}
