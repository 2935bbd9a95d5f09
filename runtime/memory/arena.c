/*
 * See arena.h.  Host addresses [ARENA, ARENA + size) correspond to guest-physical addresses from
 * CONTROL->arena_gpa on (vm/space.h), so one constant converts between them.  The host range is
 * reserved as a whole at first use, which costs one VMA and no memory; KVM learns of it in adjacent
 * memory slots that double in size, since a slot cannot grow and deleting one drops every nested
 * entry of the VM.
 * [I] No slot is ever deleted; a range that is given back becomes PROT_NONE again and is reused.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/host.h"
#include "base/message.h"
#include "memory/arena.h"
#include "vm/kvm.h"
#include "vm/vcpu.h"

#define SLOT_MIN (64ull << 20)
#define FREE     FILE_NONE

/* A run of bytes of one owner, as offsets from ARENA.  The list is sorted and covers [0, backed)
 * without a gap; no two free extents are adjacent. */
struct extent {
        uint64_t start, end;
        uint32_t owner;                 /* file id, or FREE */
        struct extent *next;
};

static pthread_mutex_t arena_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by arena_lock */
static bool reserved;
/* [0, backed) has memory slots; only grows, so it may be read without the lock */
static _Atomic uint64_t backed;
static uint64_t in_use;
static struct extent *extents;

static uint64_t round_up(uint64_t v, uint64_t unit) { return (v + unit - 1) & ~(unit - 1); }

/* Splits the extent that covers `at`; nothing to do if `at` is already a border. */
static bool split(uint64_t at)
{
        for (struct extent *e = extents; e && e->start < at; e = e->next) {
                if (e->end <= at)
                        continue;
                struct extent *rest = malloc(sizeof(*rest));
                if (!rest)
                        return false;
                *rest = (struct extent){ at, e->end, e->owner, e->next };
                e->end = at;
                e->next = rest;
        }
        return true;
}

static void merge_free(void)
{
        for (struct extent *e = extents; e && e->next; ) {
                struct extent *n = e->next;
                if (e->owner == FREE && n->owner == FREE) {
                        e->end = n->end;
                        e->next = n->next;
                        free(n);
                } else {
                        e = n;
                }
        }
}

/* A claim: len bytes, at a multiple of unit. */
struct want { uint64_t len, unit; uint32_t owner; };

/* First fit: low addresses first, so that the arena stays short and needs few slots.  -ENOSPC: no
 * free extent is long enough. */
static int claim(const struct want *w, uint64_t *start)
{
        for (struct extent *e = extents; e; e = e->next) {
                uint64_t at = round_up(e->start, w->unit);
                if (e->owner != FREE || at > e->end || e->end - at < w->len)
                        continue;
                if (!split(at) || !split(at + w->len)) {
                        merge_free();
                        return -ENOMEM;
                }
                e = e->start == at ? e : e->next;
                e->owner = w->owner;
                *start = at;
                return 0;
        }
        return -ENOSPC;
}

/* Reports the first failure only: the program may try again and again.  Under lock. */
static int reserve(void)
{
        static bool said;
        void *want = (void *)ARENA;
        void *p = mmap(want, CONTROL->arena_size, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        int err = p == MAP_FAILED ? -errno : -EEXIST;   /* elsewhere: before Linux 4.17 */

        if (p == want) {
                reserved = true;
                return 0;
        }
        if (p != MAP_FAILED)
                munmap(p, CONTROL->arena_size);
        if (!said)
                warnx_("shared mappings: %llu GiB of host addresses from %#llx on cannot be had "
                       "(%s), and the program gets ENOMEM%s",
                       (unsigned long long)(CONTROL->arena_size >> 30), (unsigned long long)ARENA,
                       strerror(-err), host_memory_cure(err));
        said = true;
        return -ENOMEM;
}

/* Adds a memory slot after the last, so that w fits at the end. */
static int grow(struct vm *vm, const struct want *w)
{
        struct extent *last = extents;
        while (last && last->next)
                last = last->next;
        uint64_t at = round_up(last && last->owner == FREE ? last->start : backed, w->unit);
        uint64_t need = at + w->len - backed, add = backed > SLOT_MIN ? backed : SLOT_MIN,
                 room = CONTROL->arena_size - backed;

        if (need > room)
                return -ENOMEM;
        struct extent *e = malloc(sizeof(*e));
        if (!e)
                return -ENOMEM;
        add = round_up(add > need ? add : need, SLOT_MIN);
        if (add > room)
                add = room;
        int err = vm_add_memory(vm, CONTROL->arena_gpa + backed, (char *)ARENA + backed, add);
        if (err && add > need) {        /* maybe only the doubling was too much */
                add = need;
                err = vm_add_memory(vm, CONTROL->arena_gpa + backed, (char *)ARENA + backed, add);
        }
        if (err) {
                info_("shared mappings: no memory slot for another %llu MiB (error %d): the "
                      "program gets ENOMEM",
                      (unsigned long long)(add >> 20), -err);
                free(e);
                return -ENOMEM;
        }
        *e = (struct extent){ backed, backed + add, FREE, NULL };
        if (last)
                last->next = e;
        else
                extents = e;
        backed += add;
        merge_free();
        return 0;
}

static int take(struct vm *vm, const struct want *w, uint64_t *start)
{
        int err = 0;
        pthread_mutex_lock(&arena_lock);
        if (w->len == 0 || w->len > CONTROL->arena_size)
                err = -ENOMEM;
        if (!err && !reserved)
                err = reserve();
        if (!err)
                err = claim(w, start);
        if (err == -ENOSPC) {
                err = grow(vm, w);
                if (!err)
                        err = claim(w, start);
        }
        if (!err)
                in_use += w->len;
        pthread_mutex_unlock(&arena_lock);
        return err;
}

/* If all of [start, end) is in use, cuts it out at both ends and returns the extent that begins at
 * start; else NULL with *err. */
static struct extent *cut_out(uint64_t start, uint64_t end, int *err)
{
        *err = -EINVAL;
        for (struct extent *e = extents; e && e->start < end; e = e->next)
                if (e->end > start && e->owner == FREE)
                        return NULL;
        *err = -ENOMEM;
        if (!split(start) || !split(end))
                return NULL;
        struct extent *e = extents;
        while (e->start != start)
                e = e->next;
        return e;
}

/* Unmap on the host first: once the range is free, another thread may map there. */
static int give_back(uint64_t start, uint64_t len, arena_gone_fn *gone)
{
        int err;

        pthread_mutex_lock(&arena_lock);
        struct extent *e = cut_out(start, start + len, &err);
        if (!e ||
            mmap((char *)ARENA + start, len, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
                pthread_mutex_unlock(&arena_lock);
                return e ? -errno : err;
        }
        for (; e && e->start < start + len; e = e->next) {
                if (gone)
                        gone(e->owner, (e->end - e->start) / PAGE_SIZE);
                e->owner = FREE;
        }
        in_use -= len;
        merge_free();
        pthread_mutex_unlock(&arena_lock);
        return 0;
}

/* Converts [gpa, gpa+len) to offsets from ARENA; it must be within [0, backed). */
static int checked_range(uint64_t gpa, uint64_t len, uint64_t *start)
{
        *start = gpa - CONTROL->arena_gpa;
        bool bad = gpa < CONTROL->arena_gpa || gpa % PAGE_SIZE || len % PAGE_SIZE || len == 0 ||
                   *start > backed || len > backed - *start;
        return bad ? -EINVAL : 0;
}

void *arena_host(uint64_t gpa)
{
        uint64_t s = gpa - CONTROL->arena_gpa;
        return gpa >= CONTROL->arena_gpa && s < backed ? (char *)ARENA + s : NULL;
}

/* Claims a range of len bytes for owner, whole pages of unit bytes. */
static int begin_mapping(struct vm *vm, uint32_t owner, uint64_t len, uint64_t unit,
                         uint64_t *start)
{
        const struct want w = { round_up(len, unit), unit, owner };
        return w.len < len ? -ENOMEM : take(vm, &w, start);
}

/* err: why nothing is mapped there, or 0.  The range is left out of core files, which would
 * otherwise be as long as all shared mappings. */
static int end_mapping(uint64_t start, uint64_t len, int err, uint64_t *gpa)
{
        uint64_t size = round_up(len, PAGE_SIZE);
        if (err)
                give_back(start, size, NULL); /* a failed mapping may have left a hole */
        else
                madvise((char *)ARENA + start, size, MADV_DONTDUMP);
        *gpa = CONTROL->arena_gpa + start;
        return err;
}

/* Turns on all that the file allows there, where `have` is on.  Returns what it does not allow
 * (opened for reading, sealed, a noexec mount): that is refused for good. */
static int widen(void *at, uint64_t len, int have)
{
        static const int wishes[] = { PROT_WRITE | PROT_EXEC, PROT_WRITE, PROT_EXEC };

        for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++)
                if (!(have & ~wishes[i]) &&
                    (have == wishes[i] || mprotect(at, len, PROT_READ | wishes[i]) == 0))
                        return (PROT_WRITE | PROT_EXEC) & ~wishes[i];
        return (PROT_WRITE | PROT_EXEC) & ~have;
}

/*
 * The host mapping is as permissive as the file allows, because a later mprotect is done in kern
 * and must not need the host: the program's protection is in its PTEs.  But mmap itself gets the
 * program's: a file of huge pages grows to the end of a mapping that is made to be written.
 *
 * [I] The range claimed is what Linux takes for such a mapping.  MAP_FIXED has no undo: were the
 * claim shorter, or not aligned, the mapping would lie over the objects behind it.
 */
int arena_map_fd(struct vm *vm, uint32_t owner, struct file_mapping *m)
{
        const int placement = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT | MAP_LOCKED;
        int have = m->prot & (PROT_WRITE | PROT_EXEC);
        uint64_t start;

        int err = begin_mapping(vm, owner, m->len, m->unit, &start);
        if (err)
                return err;
        void *at = (char *)ARENA + start;
        if (mmap(at, m->len, PROT_READ | have, (m->flags & ~placement) | MAP_FIXED, m->fd,
                 (off_t)m->off) == MAP_FAILED)
                err = -errno;
        else
                m->refused = widen(at, m->len, have);
        return end_mapping(start, m->len, err, &m->gpa);
}

int arena_map_anonymous(struct vm *vm, uint32_t owner, uint64_t len, uint64_t *gpa)
{
        struct file_mapping m = {
                .fd = -1, .flags = MAP_SHARED | MAP_ANONYMOUS, .len = len, .unit = PAGE_SIZE
        };
        int err = arena_map_fd(vm, owner, &m);
        *gpa = m.gpa;
        return err;
}

/* mremap with an old length of 0 maps an object that is mapped already: no descriptor is needed.
 * Linux allows it for no file of huge pages, and kern asks for none. */
int arena_map_again(struct vm *vm, uint32_t owner, uint64_t from, uint64_t len, uint64_t *gpa)
{
        uint64_t start;
        void *old = arena_host(from);

        int err = begin_mapping(vm, owner, len, PAGE_SIZE, &start);
        if (err)
                return err;
        void *p = mremap(old, 0, len, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)ARENA + start);
        return end_mapping(start, len, p == MAP_FAILED ? -errno : 0, gpa);
}

#define HUGE (2ull << 20)

/* [I] Attached at an address where a huge page cannot begin: so a segment of huge pages, which only
 * another program can have made, is refused (EINVAL). */
int arena_attach(struct vm *vm, uint32_t owner, int shmid, int flags, uint64_t len, uint64_t *gpa)
{
        uint64_t start;

        int err = begin_mapping(vm, owner, len + PAGE_SIZE, PAGE_SIZE, &start);
        if (err)
                return err;
        uint64_t at = start % HUGE ? start : start + PAGE_SIZE;
        give_back(at == start ? start + round_up(len, PAGE_SIZE) : start, PAGE_SIZE, NULL);
        if (shmat(shmid, (char *)ARENA + at, flags | SHM_REMAP) == (void *)-1)
                err = -errno;
        return end_mapping(at, len, err, gpa);
}

int arena_unmap(uint64_t gpa, uint64_t len, arena_gone_fn *gone)
{
        uint64_t start;
        int err = checked_range(gpa, len, &start);
        return err ? err : give_back(start, len, gone);
}

int arena_forked(struct vm *vm)
{
        return backed ? vm_add_memory(vm, CONTROL->arena_gpa, (void *)ARENA, backed) : 0;
}

/* Relaxed: a thread that does not see it yet maps pages without a look, and KVM meets them
 * again. */
static _Atomic bool distrusted;

void arena_distrust(void)
{
        atomic_store_explicit(&distrusted, true, memory_order_relaxed);
}

int64_t arena_there(uint64_t gpa, bool write, int64_t left)
{
        void *at = arena_host(gpa);

        if (left <= 0 || !at || !atomic_load_explicit(&distrusted, memory_order_relaxed))
                return left;
        if (madvise(at, PAGE_SIZE, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
                return 1;
        /* EINVAL: before Linux 5.14 */
        return errno != EFAULT && errno != ENOMEM && errno != EHWPOISON;
}

void arena_usage(uint64_t *used, uint64_t *backed_bytes)
{
        pthread_mutex_lock(&arena_lock);
        *used = in_use;
        *backed_bytes = backed;
        pthread_mutex_unlock(&arena_lock);
}

/* Copies by a system call: where a plain store would raise SIGBUS, it returns EFAULT. */
int arena_copy(uint64_t gpa, void *buffer, uint64_t len, bool in)
{
        char *at = arena_host(gpa), *other = buffer;
        if (!at || len > backed - (gpa - CONTROL->arena_gpa))
                return -EINVAL;
        while (len > 0) {
                struct iovec local = { other, len }, remote = { at, len };
                ssize_t n = in ? process_vm_writev(gettid(), &local, 1, &remote, 1, 0)
                               : process_vm_readv(gettid(), &local, 1, &remote, 1, 0);
                if (n <= 0)
                        return n < 0 ? -errno : -EFAULT;
                other += n;
                at += n;
                len -= (uint64_t)n;
        }
        return 0;
}

int64_t arena_exit_copy(struct thread *t, struct exit_req *rq)
{
        void *buffer = kern_pointer(t, rq->a[1], rq->a[2]);
        return buffer ? arena_copy(rq->a[0], buffer, rq->a[2], rq->a[3]) : -EINVAL;
}

int64_t arena_exit_msync(struct thread *t, struct exit_req *rq)
{
        (void)t;
        uint64_t start, len = round_up(rq->a[1], PAGE_SIZE);
        int err = checked_range(rq->a[0], len, &start);
        if (err)
                return err;
        return msync((char *)ARENA + start, len, (int)rq->a[2]) == 0 ? 0 : -errno;
}
