/*
 * The registry (files.h): its entries, and mapping.  files_read.c reads through them.
 *
 * What an entry keeps open.  A private mapping needs an fd to read from: a private dup, shared by
 * all mappings of the object that were opened alike.  A shared mapping needs none for its data,
 * only for fstat and the name: an O_PATH handle, because closing an ordinary fd makes the kernel
 * drop every POSIX lock this process has on the file, and databases hold locks on what they map
 * shared.  (Known gap: a program that takes POSIX locks on a file it also maps private loses them
 * when the last such mapping is unmapped.)
 *
 * The host kernel decides whether mmap is allowed: a mapping of one page is made and dropped, and
 * its error is passed on.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/map_unit.h"
#include "base/message.h"
#include "base/privfd.h"
#include "memory/arena.h"
#include "memory/files.h"
#include "memory/files_entry.h"

#define HASH 256
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by files_lock */
static struct file *table;              /* entry 0 is FILE_NONE; may move when it grows */
static uint32_t table_size, free_ids, live;
static uint32_t chain[HASH];
static uint64_t anonymous_made;

/* An entry was made by the child of a vfork, whose descriptors are in its own table only. */
static _Atomic bool made_apart;

static bool program_runs;               /* set once, with one thread */

void files_program_starts(void) { program_runs = true; }

static uint32_t hash_of(dev_t dev, ino_t ino)
{
        return (uint32_t)((ino * 0x9e3779b97f4a7c15ull + dev) >> 32) % HASH;
}

static struct file *entry(uint32_t id)
{
        return id != FILE_NONE && id < table_size && table[id].kind != FILE_FREE ? &table[id]
                                                                                 : NULL;
}

static bool grow_table(void)
{
        uint32_t n = table_size ? 2 * table_size : 64;
        struct file *t = realloc(table, n * sizeof(*t));
        if (!t)
                return false;
        table = t;
        for (uint32_t i = n - 1; i >= (table_size ? table_size : 1); i--) {
                table[i] = (struct file){ .fd = -1, .next = free_ids };
                free_ids = i;
        }
        table_size = n;
        return true;
}

/* Is its descriptor open, and does it refer to that file?  For threads whose descriptor tables may
 * differ. */
static bool is_here(const struct file *f)
{
        struct stat st;

        if (f->fd < 0 || !(atomic_load(&made_apart) || privfd_apart()))
                return true;
        return fstat(f->fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

/* A new entry, with the references of *like, in the hash chain of its object.  FILE_NONE: no
 * memory. */
static uint32_t add(const struct file *like)
{
        if (!free_ids && !grow_table())
                return FILE_NONE;
        uint32_t id = free_ids, *head = &chain[hash_of(like->dev, like->ino)];
        free_ids = table[id].next;
        table[id] = *like;
        table[id].next = *head;
        *head = id;
        live++;
        if (like->fd >= 0 && privfd_apart())
                atomic_store(&made_apart, true);
        return id;
}

/* Frees an unused entry; returns its fd, which the caller closes without the lock. */
static int drop_if_unused(uint32_t id)
{
        struct file *f = &table[id];
        if (f->refs || f->readers)
                return -1;
        uint32_t *p = &chain[hash_of(f->dev, f->ino)];
        while (*p != id)
                p = &table[*p].next;
        *p = f->next;
        int fd = is_here(f) ? f->fd : -1;
        *f = (struct file){ .fd = -1, .next = free_ids };
        free_ids = id;
        live--;
        return fd;
}

static void close_fd(int fd)
{
        if (fd >= 0)
                privfd_close(fd);
}

static bool same_description(int a, int b)
{
        pid_t self = gettid();          /* the first thread may have ended, and then has no files */
        return syscall(SYS_kcmp, self, self, KCMP_FILE, a, b) == 0;
}

/* The entry that may stand for fd, too, or FILE_NONE. */
static uint32_t find(const struct file *like, int fd)
{
        for (uint32_t id = chain[hash_of(like->dev, like->ino)]; id; id = table[id].next) {
                struct file *f = &table[id];
                if (f->kind == like->kind && f->dev == like->dev && f->ino == like->ino &&
                    f->mode == like->mode &&
                    (!f->copied_up || same_description(f->fd, fd)) && is_here(f))
                        return id;
        }
        return FILE_NONE;
}

/* --- mapping --- */

static bool is_device(const struct stat *st)
{
        return S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);
}

static bool is_dev_zero(const struct stat *st)
{
        return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 5);
}

/* Rounds and checks the range as Linux does for a file of large pages; `rounds`: it is one of
 * hugetlbfs.  0 or -EINVAL. */
static int check_range(struct file_mapping *m, bool rounds)
{
        if ((m->flags & MAP_HUGETLB) && !rounds)
                return -EINVAL;
        if (rounds)
                m->len = (m->len + m->unit - 1) & ~(m->unit - 1);
        return m->unit > PAGE_SIZE && (m->addr | m->off | m->len) % m->unit ? -EINVAL : 0;
}

/* Fills in the entry that the mapping would have, except its fd, and m->unit; rounds m->len.  0, or
 * an error of mmap. */
static int identify(struct file_mapping *m, enum file_kind kind, struct file *f)
{
        struct stat st;
        struct statfs fs = { 0 };
        uint64_t size, align;

        if (program_runs && privfd_is(m->fd))
                return -EBADF;
        int mode = fcntl(m->fd, F_GETFL);
        if (mode < 0 || (mode & O_PATH) || fstat(m->fd, &st) != 0)
                return -EBADF;
        if (S_ISREG(st.st_mode))
                fstatfs(m->fd, &fs);
        m->unit = map_unit(&st, &fs);
        *f = (struct file){ .kind = kind,
                            .fd = -1,
                            .dev = st.st_dev,
                            .ino = st.st_ino,
                            .mode = mode & (O_ACCMODE | O_DIRECT) };
        f->endless = !S_ISREG(st.st_mode);
        f->copied_up = fs.f_type == OVERLAYFS_SUPER_MAGIC;
        /* A private mapping of /dev/zero has the content that read() returns.  Other devices map
         * memory that read() does not return; Linux allows it for no DAX device. */
        if (kind == FILE_PRIVATE && is_device(&st) && !is_dev_zero(&st)) {
                if (dax_device(st.st_rdev, &size, &align))
                        return -EINVAL;
                info_("private mapping of device %u:%u: not supported, the program gets ENODEV",
                      major(st.st_rdev), minor(st.st_rdev));
                return -ENODEV;
        }
        return check_range(m, !f->endless && m->unit > PAGE_SIZE);
}

/* Must a mapping of it end at 2^63, rather than at 2^64?  (Linux's file_mmap_size_max().) */
static bool has_end(int fd)
{
        struct stat st;

        return fstat(fd, &st) != 0 || S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) ||
               S_ISSOCK(st.st_mode);
}

/* Asks the host kernel.  The last page stands for the whole range: only an end that is too far
 * depends on the offset.  A file of huge pages must see that the mapping may be written: then it
 * grows to its end. */
static int probe(const struct file_mapping *m, bool *no_exec)
{
        int write = m->unit > PAGE_SIZE ? m->prot & PROT_WRITE : 0;
        uint64_t end;
        if (m->off % PAGE_SIZE || m->len == 0)
                return -EINVAL;
        if (__builtin_add_overflow(m->off, (m->len + m->unit - 1) & ~(m->unit - 1), &end) ||
            end <= m->off || (end > 1ull << 63 && has_end(m->fd)))
                return -EOVERFLOW;
        for (int exec = PROT_EXEC; ; exec = 0) {
                void *p = mmap(NULL, m->unit, PROT_READ | write | exec,
                               MAP_PRIVATE | MAP_NORESERVE |
                                       (m->flags & (MAP_GROWSDOWN | MAP_SYNC)),
                               m->fd, (off_t)(end - m->unit));
                if (p != MAP_FAILED) {
                        munmap(p, m->unit);
                        *no_exec = !exec;
                        return 0;
                }
                if (!exec || (m->prot & PROT_EXEC) || (errno != EPERM && errno != EACCES))
                        return -errno;
        }
}

/* Has a probe of the file said already that m is allowed?  A library is mapped in five pieces, and
 * the second and later ones need none. */
static bool is_probed(const struct file *f, const struct file_mapping *m)
{
        return m->unit == PAGE_SIZE && m->off % PAGE_SIZE == 0 && m->len &&
               m->len <= f->probed_end && m->off <= f->probed_end - m->len &&
               !(m->flags & (MAP_GROWSDOWN | MAP_SYNC)) && !(f->no_exec && (m->prot & PROT_EXEC));
}

int files_map_private(struct file_mapping *m)
{
        struct file want;
        int err = identify(m, FILE_PRIVATE, &want);
        if (err)
                return err;

        pthread_mutex_lock(&files_lock);
        uint32_t have = find(&want, m->fd);
        struct file *f = have ? &table[have] : NULL;
        if (f && is_probed(f, m)) {
                f->refs++;
                m->id = have;
                m->refused = f->no_exec ? PROT_EXEC : 0;
                pthread_mutex_unlock(&files_lock);
                return 0;
        }
        pthread_mutex_unlock(&files_lock);

        err = probe(m, &want.no_exec);
        if (err)
                return err;
        /* The host would map the socket's ring, which is not what read() returns. */
        if (want.endless && lseek(m->fd, 0, SEEK_CUR) < 0) {
                info_("private mapping of a socket or another object that is no file: not "
                      "supported, the program gets ENODEV");
                return -ENODEV;
        }
        want.refs = 1;
        want.probed_end = m->off + m->len;

        pthread_mutex_lock(&files_lock);
        have = find(&want, m->fd);
        if (have) {
                f = &table[have];
                f->refs++;
                f->no_exec = want.no_exec;
                f->probed_end = want.probed_end > f->probed_end ? want.probed_end : f->probed_end;
        } else {
                want.fd = privfd_dup(m->fd);
                if (want.fd >= 0)
                        have = add(&want);
        }
        pthread_mutex_unlock(&files_lock);
        if (!have) {
                close_fd(want.fd);
                return want.fd < 0 ? -ENFILE : -ENOMEM;
        }
        m->id = have;
        m->refused = want.no_exec ? PROT_EXEC : 0;
        return 0;
}

/* A handle that fstat and readlink accept and whose closing touches no lock; a dup if /proc is not
 * available. */
static int path_handle(int fd)
{
        char name[40];
        snprintf(name, sizeof(name), "/proc/thread-self/fd/%d", fd);
        int h = PRIVFD_NEW(open(name, O_PATH | O_CLOEXEC));
        return h >= 0 ? h : privfd_dup(fd);
}

static uint64_t pages_of(uint64_t len) { return len / PAGE_SIZE + (len % PAGE_SIZE != 0); }

int files_map_shared(struct vm *vm, struct file_mapping *m)
{
        struct file want;
        int err = identify(m, FILE_SHARED, &want);
        if (err)
                return err;
        want.refs = pages_of(m->len);
        if (!want.refs)
                return -EINVAL;

        /* The id comes first, so that the range has its owner from the start. */
        pthread_mutex_lock(&files_lock);
        /* kcmp cannot judge an O_PATH handle */
        uint32_t have = want.copied_up ? FILE_NONE : find(&want, m->fd);
        if (have) {
                table[have].refs += want.refs;
        } else {
                want.fd = path_handle(m->fd);
                if (want.fd >= 0)
                        have = add(&want);
        }
        pthread_mutex_unlock(&files_lock);
        if (!have) {
                close_fd(want.fd);
                return want.fd < 0 ? -ENFILE : -ENOMEM;
        }
        m->id = have;
        err = arena_map_fd(vm, have, m);
        if (err)
                files_unmapped(have, want.refs);
        return err;
}

/* Adds an object without a descriptor, of the kernel's own file system.  FILE_NONE: no memory. */
static uint32_t add_memory(struct file *f)
{
        f->fd = -1;
        f->dev = makedev(0, 1);
        pthread_mutex_lock(&files_lock);
        if (f->kind == FILE_ANONYMOUS)
                f->ino = ++anonymous_made;
        uint32_t id = add(f);
        pthread_mutex_unlock(&files_lock);
        return id;
}

uint32_t files_segment(int shmid, uint32_t key, uint64_t size, uint64_t pages)
{
        return add_memory(&(struct file){ .kind = FILE_SEGMENT,
                                          .refs = pages,
                                          .ino = (ino_t)shmid,
                                          .size = size,
                                          .key = key });
}

/* Adds to and subtracts from the references of an entry, whose kind must match `private`. */
static int change_refs(uint32_t id, bool private, uint64_t add, uint64_t sub)
{
        int fd = -1, err = 0;
        pthread_mutex_lock(&files_lock);
        struct file *f = entry(id);
        if (!f || (f->kind == FILE_PRIVATE) != private || f->refs < sub) {
                err = -EBADF;
        } else {
                f->refs += add - sub;
                fd = drop_if_unused(id);
        }
        pthread_mutex_unlock(&files_lock);
        close_fd(fd);
        return err;
}

int files_ref(uint32_t id, int change)
{
        return change_refs(id, true, change == 1, change == -1);
}

void files_unmapped(uint32_t id, uint64_t pages)
{
        if (change_refs(id, false, 0, pages))
                warnx_("shared mappings: file %u has fewer than the %llu pages that were unmapped: "
                       "this is a bug of vmrun",
                       id, (unsigned long long)pages);
}

uint32_t files_next_shared(uint32_t id)
{
        pthread_mutex_lock(&files_lock);
        while (++id < table_size && table[id].kind != FILE_SHARED)
                ;
        if (id >= table_size)
                id = FILE_NONE;
        pthread_mutex_unlock(&files_lock);
        return id;
}

uint32_t files_next_private(uint32_t id, dev_t dev, ino_t ino)
{
        pthread_mutex_lock(&files_lock);
        while (++id < table_size &&
               !(table[id].kind == FILE_PRIVATE && table[id].dev == dev && table[id].ino == ino))
                ;
        if (id >= table_size)
                id = FILE_NONE;
        pthread_mutex_unlock(&files_lock);
        return id;
}

int files_pin(uint32_t id, struct file *copy)
{
        pthread_mutex_lock(&files_lock);
        struct file *f = entry(id);
        bool good = f && is_here(f);
        if (good) {
                f->readers++;
                *copy = *f;
        }
        pthread_mutex_unlock(&files_lock);
        return good ? 0 : -EBADF;
}

void files_unpin(uint32_t id)
{
        pthread_mutex_lock(&files_lock);
        table[id].readers--;
        int fd = drop_if_unused(id);
        pthread_mutex_unlock(&files_lock);
        close_fd(fd);
}

unsigned files_live(void)
{
        pthread_mutex_lock(&files_lock);
        unsigned n = live;
        pthread_mutex_unlock(&files_lock);
        return n;
}

/* --- exits --- */

int64_t files_exit_map(struct thread *t, struct exit_req *rq)
{
        struct file_mapping m = {
                .fd = (int)rq->a[0], .flags = (int)rq->a[2],
                .prot = (int)(rq->a[1] % PAGE_SIZE), .addr = rq->a[1] / PAGE_SIZE * PAGE_SIZE,
                .off = rq->a[3], .len = rq->a[4],
        };
        struct file f;
        int err;

        if (!m.len) {
                err = identify(&m, FILE_SHARED, &f);
                return err || has_end(m.fd) ? err : -ENODEV;
        }
        switch (m.flags & MAP_TYPE) {
        case MAP_PRIVATE:
                err = files_map_private(&m);
                break;
        case MAP_SHARED:
        case MAP_SHARED_VALIDATE:
                err = files_map_shared(t->vm, &m);
                break;
        default:
                return -EINVAL;
        }
        if (err)
                return err;
        rq->out[0] = object_word(m.id, m.refused, __builtin_ctzll(m.unit / PAGE_SIZE));
        rq->out[1] = m.gpa;
        return 0;
}

int64_t files_exit_anon_shared(struct thread *t, struct exit_req *rq)
{
        uint64_t gpa, pages = pages_of(rq->a[0]);
        if (!pages)
                return -EINVAL;
        uint32_t id = add_memory(
                &(struct file){ .kind = FILE_ANONYMOUS, .refs = pages, .size = pages * PAGE_SIZE });
        if (!id)
                return -ENOMEM;
        int err = arena_map_anonymous(t->vm, id, rq->a[0], &gpa);
        if (err) {
                files_unmapped(id, pages);
                return err;
        }
        rq->out[0] = id;
        rq->out[1] = gpa;
        return 0;
}

int64_t files_exit_again(struct thread *t, struct exit_req *rq)
{
        uint64_t gpa, pages = pages_of(rq->a[2]);
        int err = rq->a[0] > UINT32_MAX ? -EBADF : change_refs((uint32_t)rq->a[0], false, pages, 0);
        if (err)
                return err;
        err = arena_map_again(t->vm, (uint32_t)rq->a[0], rq->a[1], rq->a[2], &gpa);
        if (err)
                files_unmapped((uint32_t)rq->a[0], pages);
        else
                rq->out[1] = gpa;
        return err;
}

int64_t files_exit_unmap(struct thread *t, struct exit_req *rq)
{
        (void)t;
        return arena_unmap(rq->a[0], pages_of(rq->a[1]) * PAGE_SIZE, files_unmapped);
}

int64_t files_exit_ref(struct thread *t, struct exit_req *rq)
{
        (void)t;
        return rq->a[0] > UINT32_MAX ? -EBADF : files_ref((uint32_t)rq->a[0], (int)rq->a[1]);
}
