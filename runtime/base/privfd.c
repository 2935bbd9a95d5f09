/*
 * vmrun's own file descriptors, out of the program's sight and reach.
 *
 * They are allocated from a base upwards.  Where possible the base is FD_ABOVE beyond the program's
 * soft RLIMIT_NOFILE: no descriptor of the program can be there.  A program that raises its soft
 * limit to have numbers of its own just above it, as valgrind does, finds them free.  For that the
 * host's soft limit is raised to the hard limit.  In two cases the base is lower, and the program's
 * numbers may have to skip vmrun's:
 *
 *   soft too near to hard    there is no room above; the base is below the hard limit by a reserve
 *   soft > FD_BASE_MAX       (containers: a million) the kernel's table of descriptors reaches up
 *                            to the highest number, and 8 MiB of it at every start is too much
 *
 * So the private descriptors are an exact set, not a range, and the program sees the limits that it
 * would see natively.  If the program raises its own limit later, existing private descriptors stay
 * where they are.  All functions may be called by any thread; privfd_init comes first, with one
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/message.h"
#include "base/privfd.h"
#include "common/clock.h"

#define FD_BASE_MAX  65536u
#define FD_END       (2 * FD_BASE_MAX)
/* Not more: with a soft limit of 1024 the kernel's table of descriptors still has 2048 places, as
 * with the first number above the limit. */
#define FD_ABOVE     960u
#define RESERVE_MIN  64u        /* VM, vCPU, message and far-tier descriptors of a small program */
#define RESERVE_MAX  4096u      /* one more for each thread and each mapped file */

struct privfd_marks { _Atomic uint64_t set[FD_END / 64]; };

/* Marks for the process's table of descriptors, and for this thread's table where it has its own:
 * the child of a vfork runs in its parent's memory with a descriptor table of its own.  room:
 * memory for the marks of that table. */
static struct privfd_marks of_process;
static _Thread_local struct privfd_marks *own, *room;
static uint64_t seen_soft, seen_hard;   /* RLIMIT_NOFILE as the program sees it */
static uint64_t base;                   /* lowest private number */
static struct rlimit host;              /* the limits in the host kernel */

static _Atomic uint64_t *marks(void) { return own ? own->set : of_process.set; }

bool has_capability(int cap)
{
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = { { 0 } };
        return syscall(SYS_capget, &head, data) == 0 && (data[cap / 32].effective >> cap % 32 & 1);
}

static bool set_host(uint64_t hard)
{
        struct rlimit r = { .rlim_cur = hard, .rlim_max = hard };
        if (setrlimit(RLIMIT_NOFILE, &r) != 0)
                return false;
        host = r;
        return true;
}

static uint64_t reserve_of(uint64_t hard)
{
        uint64_t r = hard / 16;
        return r < RESERVE_MIN ? RESERVE_MIN : r > RESERVE_MAX ? RESERVE_MAX : r;
}

static void read_host(void)
{
        if (getrlimit(RLIMIT_NOFILE, &host) != 0 || host.rlim_max < 2 * RESERVE_MIN)
                die_(EXIT_VMRUN_FAILED,
                     "the limit of open files (ulimit -Hn) is %llu, vmrun needs at least %u: raise "
                     "it",
                     (unsigned long long)host.rlim_max, 2 * RESERVE_MIN);
}

static void start(uint64_t soft, uint64_t hard)
{
        seen_soft = soft;
        seen_hard = hard;

        uint64_t room_below = seen_hard - reserve_of(seen_hard);
        base = seen_soft <= FD_BASE_MAX ? seen_soft + FD_ABOVE : FD_BASE_MAX;
        base = base < room_below ? base : room_below;
        if (host.rlim_cur != host.rlim_max && !set_host(host.rlim_max))
                die_(EXIT_VMRUN_FAILED,
                     "cannot raise the limit of open files to its hard limit: errno %d", errno);
}

void privfd_init(void)
{
        read_host();
        start(host.rlim_cur, host.rlim_max);
}

void privfd_init_seen(uint64_t soft, uint64_t hard)
{
        read_host();
        start(soft, hard);
}

int privfd_adopt(int fd)
{
        if (fd < 0 || (unsigned)fd >= FD_END || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
                return -EBADF;
        atomic_fetch_or(&marks()[fd / 64], 1ull << (fd % 64));
        return 0;
}

int privfd_base(void) { return (int)base; }

static int dup_up(int fd)
{
        if (!seen_hard)
                privfd_init();
        int n = fcntl(fd, F_DUPFD_CLOEXEC, (int)base);
        if (n < 0)
                return -errno;
        if ((unsigned)n >= FD_END) {
                close(n);
                return -EMFILE;
        }
        atomic_fetch_or(&marks()[n / 64], 1ull << (n % 64));
        return n;
}

/* Held for reading while a system call of the program checks which numbers are private and closes
 * or replaces others; held for writing while a private descriptor has a number that is not marked
 * yet.  Taken with a time limit: a close may take long, as when it waits for a server or for
 * SO_LINGER, and a child of vfork may have been killed in one.  A thread that is alone on its table
 * needs no lock. */
static pthread_rwlock_t low_numbers = PTHREAD_RWLOCK_INITIALIZER;
#define MAKING_WAITS_MS 100

bool privfd_making(void)
{
        if (own)
                return false;
        const struct timespec end = deadline_in_ms(MAKING_WAITS_MS);

        return pthread_rwlock_clockwrlock(&low_numbers, CLOCK_MONOTONIC, &end) == 0;
}

void privfd_made(bool held)
{
        if (held)
                pthread_rwlock_unlock(&low_numbers);
}

void privfd_numbers_lock(void)
{
        if (!own)
                pthread_rwlock_rdlock(&low_numbers);
}

void privfd_numbers_unlock(void)
{
        if (!own)
                pthread_rwlock_unlock(&low_numbers);
}

static void copy_marks(struct privfd_marks *to, const struct privfd_marks *from)
{
        for (unsigned i = 0; i < FD_END / 64; i++)
                atomic_store_explicit(&to->set[i], atomic_load(&from->set[i]),
                                      memory_order_relaxed);
}

void privfd_forked(void)
{
        if (own)        /* by the child of a vfork: the table is the process's now */
                copy_marks(&of_process, own);
        own = room = NULL;
        pthread_rwlock_init(&low_numbers, NULL);
}

bool privfd_vfork(struct privfd_lent *was)
{
        *was = (struct privfd_lent){ own, room, malloc(sizeof(*room)) };
        if (!was->made)
                return false;
        room = was->made;
        privfd_parting();
        return true;
}

void privfd_vforked(const struct privfd_lent *was)
{
        own = was->own;
        room = was->room;
        free(was->made);
}

void privfd_parting(void)
{
        if (room && own != room)
                copy_marks(room, own ? own : &of_process);
}

/* Other threads still use the old table: a descriptor that was private before the call, or is after
 * it, may be in the new one. */
void privfd_parted(void)
{
        if (!room || own == room)
                return;
        for (unsigned i = 0; i < FD_END / 64; i++)
                atomic_fetch_or_explicit(&room->set[i], atomic_load(&marks()[i]),
                                         memory_order_relaxed);
        own = room;
}

bool privfd_apart(void) { return own != NULL; }

int privfd_dup(int fd)
{
        bool held = privfd_making();
        int n = dup_up(fd);
        privfd_made(held);
        return n;
}

int privfd_move(int fd)
{
        if (privfd_is(fd))
                return fd;
        int n = dup_up(fd);
        close(fd);
        return n;
}

/* Clear the mark first: once closed, the number may be the program's. */
void privfd_close(int fd)
{
        privfd_forget(fd);
        close(fd);
}

/* Takes the number for a moment, to see whether another descriptor has got it since.  If so, the
 * mark belongs to the other descriptor. */
void privfd_closed(int fd)
{
        int any = open("/", O_PATH | O_CLOEXEC), n = any < 0 ? -1 : fcntl(any, F_DUPFD_CLOEXEC, fd);
        if (n == fd)
                privfd_close(n);
        else if (n >= 0)
                close(n);
        if (any >= 0)
                close(any);
}

void privfd_forget(int fd)
{
        if (privfd_is(fd))
                atomic_fetch_and(&marks()[fd / 64], ~(1ull << (fd % 64)));
}

bool privfd_is(int fd)
{
        return fd >= 0 && (unsigned)fd < FD_END &&
               (atomic_load(&marks()[fd / 64]) >> (fd % 64) & 1);
}

int privfd_next(int from)
{
        for (unsigned i = from < 0 ? 0 : (unsigned)from; i < FD_END; i = (i / 64 + 1) * 64) {
                uint64_t w = atomic_load(&marks()[i / 64]) >> (i % 64);
                if (w)
                        return (int)(i + (unsigned)__builtin_ctzll(w));
        }
        return -1;
}

uint64_t privfd_nofile_soft(void) { return seen_soft; }
uint64_t privfd_nofile_hard(void) { return seen_hard; }

/* setrlimit with Linux's checks, on the limits that the program sees.  The host's own limit only
 * ever grows. */
int privfd_set_nofile(uint64_t soft, uint64_t hard)
{
        if (soft > hard)
                return -EINVAL;
        if (hard > seen_hard) {
                if (!has_capability(CAP_SYS_RESOURCE))
                        return -EPERM;
                uint64_t want = hard + reserve_of(hard);
                if (hard == RLIM_INFINITY || (want > host.rlim_max && !set_host(want) &&
                                              hard > host.rlim_max && !set_host(hard)))
                        return -EPERM;          /* above fs.nr_open */
        }
        seen_soft = soft;
        seen_hard = hard;
        return 0;
}
