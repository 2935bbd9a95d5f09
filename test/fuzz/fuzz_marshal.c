/*
 * Fuzzer of the marshalling of system calls: runtime/marshal, the table and the handlers, from
 * the six registers of a program to the call that is made on the host, and back.
 *
 * Threat model. The program is trusted as far as a shell trusts it: it may make any call that its
 * user may make. But it may be wrong, and its mistakes must stay its own. Whatever the registers
 * and the memory they point to,
 *   - no address of the program's reaches the host kernel, which would read or write vmrun's memory
 *     there instead;
 *   - only buffers of vmrun's reach it, large enough for all that the kernel may read and write
 *     there, by the call's arguments and not by vmrun's belief;
 *   - vmrun's own descriptors are in no call, and its kick signal stays blocked in every mask that
 *     a call waits with;
 *   - nothing of the program's is written where it could not write itself;
 *   - the result is a value or an errno, and nothing is left over: memory, or pins.
 * The kernel is trusted: it keeps to its interface, and may fail at any time. Out of scope: what
 * the calls do; futex, clone and execve, whose words are threads and processes more than arguments.
 *
 * So the host kernel is played here (sys_enter, sys_own): it reads and writes whatever the real one
 * might, and makes no call. Scratch memory is fenced for the address sanitizer (scratch.c). The
 * program has 16 pages, which can be read, written, both or neither.
 *
 * An input is a list of calls (number, arguments, the kernel's answer) and the content of the
 * program's memory.
 */
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sanitizer/asan_interface.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../../runtime/base/message.h"
#include "../../runtime/base/options.h"
#include "../../runtime/base/own_thread.h"
#include "../../runtime/base/privfd.h"
#include "../../runtime/exits.h"
#include "../../runtime/procfs/maps.h"
#include "../../runtime/procfs/mem.h"
#include "../../runtime/procfs/procfs.h"
#include "../../runtime/signal/signals.h"
#include "../../runtime/stats/stats.h"
#include "../../runtime/syscalls/dispatch.h"
#include "../../runtime/syscalls/handlers.h"
#include "../../runtime/marshal/call.h"
#include "../../runtime/marshal/iov.h"
#include "../../runtime/marshal/row.h"
#include "../../runtime/marshal/scratch.h"
#include "../../runtime/memory/gmem.h"
#include "../../runtime/process/threads.h"
#include "../../runtime/process/vfork.h"
#include "abi_control.h"

#define FAIL(what) do { fprintf(stderr, "fuzz: call %ld: %s\n", current, what); abort(); } while (0)
static long current;

/* ---- the input ---- */

static const uint8_t *input, *input_end;

static uint64_t take(unsigned n)
{
        uint64_t v = 0;

        for (unsigned i = 0; i < n && input < input_end; i++)
                v |= (uint64_t)*input++ << (8 * i);
        return v;
}

/* ---- the program's memory ---- */

#define BASE   0x10000ul
#define PAGES  16
static uint8_t memory[PAGES * PAGE_SIZE];
static uint16_t readable, writable;
static unsigned pinned;

static uint8_t *page_at(uint64_t addr, bool write)
{
        uint64_t page = (addr - BASE) >> PAGE_SHIFT;

        if (addr < BASE || page >= PAGES || !((write ? writable : readable) >> page & 1))
                return NULL;
        return memory + (addr - BASE);
}

static int copy(uint64_t addr, void *host, size_t len, bool write)
{
        for (size_t done = 0, n; done < len; done += n) {
                uint8_t *p = page_at(addr + done, write);
                n = PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1));
                if (n > len - done)
                        n = len - done;
                if (!p)
                        return -EFAULT;
                if (write)
                        memcpy(p, (char *)host + done, n);
                else
                        memcpy((char *)host + done, p, n);
        }
        return 0;
}

int gmem_read(struct thread *t, void *dst, uint64_t src, size_t len)
{
        (void)t;
        return copy(src, dst, len, false);
}
int gmem_write(struct thread *t, uint64_t dst, const void *src, size_t len)
{
        (void)t;
        return copy(dst, (void *)(uintptr_t)src, len, true);
}

int gmem_check(struct thread *t, uint64_t addr, size_t len, bool write)
{
        (void)t;
        for (size_t done = 0; done < len; done += PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1)))
                if (!page_at(addr + done, write))
                        return -EFAULT;
        return 0;
}

long gmem_string(struct thread *t, char *dst, uint64_t src, size_t max)
{
        for (size_t i = 0; i < max; i++)
                if (gmem_read(t, dst + i, src + i, 1))
                        return -EFAULT;
                else if (!dst[i])
                        return (long)i;
        return -ENAMETOOLONG;
}

long gmem_pin(struct thread *t, struct gmem_pins *p, uint64_t addr, size_t len, bool write)
{
        size_t done = 0;

        (void)t;
        p->n = 0;
        p->write = write;
        while (done < len && p->n < 3 && page_at(addr + done, write)) {
                size_t n = PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1));
                if (n > len - done)
                        n = len - done;
                p->iov[p->n++] = (struct iovec){ page_at(addr + done, write), n };
                done += n;
        }
        pinned += (unsigned)p->n;
        return done ? (long)done : -EFAULT;
}

void gmem_unpin(struct thread *t, struct gmem_pins *p, size_t used)
{
        (void)t, (void)used;
        pinned -= (unsigned)p->n;
        p->n = 0;
}

/* ---- the rest of vmrun ---- */

#define OWN_FIRST 1000          /* vmrun's descriptors */
#define OWN_END   1016
struct options opt;
bool privfd_is(int fd) { return fd >= OWN_FIRST && fd < OWN_END; }
void privfd_numbers_lock(void) { }
void privfd_numbers_unlock(void) { }
int privfd_next(int from) { return from < OWN_FIRST ? OWN_FIRST : from < OWN_END ? from : -1; }
uint64_t privfd_nofile_soft(void) { return 1100; }
uint64_t privfd_nofile_hard(void) { return 1200; }
int privfd_set_nofile(uint64_t soft, uint64_t hard) { return soft > hard ? -EINVAL : 0; }
void info_(const char *fmt, ...) { (void)fmt; }

void procfs_set_exe(const char *path) { (void)path; }
const char *procfs_follow(int dirfd, const char *path)
{
        (void)dirfd;
        return strlen(path) % 7 ? path : "/an/other/path";
}
const char *procfs_itself(int dirfd, const char *path) { return procfs_follow(dirfd, path); }
long procfs_list_maps(struct thread *t, int fd, bool is64, char *buf, size_t room)
{
        (void)t, (void)fd, (void)is64;
        memset(buf, 'x', room);
        return (long)room;
}
long procfs_readlink(int dirfd, const char *path, char *buf, size_t n)
{
        (void)dirfd;
        if (strlen(path) % 5)
                return -1;
        memset(buf, 'x', n < 10 ? n : 10);
        return n < 10 ? (long)n : 10;
}
bool procfs_open(struct thread *t, int dirfd, const char *path, int flags, long *ret)
{
        (void)t, (void)dirfd, (void)flags;
        *ret = 50;
        return strlen(path) % 11 == 1;
}
enum procfs_dir procfs_dir(int fd) { return fd & 1 ? PROCFS_FDS : PROCFS_OTHER; }
bool procfs_hides(enum procfs_dir dir, const char *name) { (void)dir; return name[0] & 1; }
_Atomic bool procfs_mem_exists;
_Atomic bool procfs_no_huge_pages;
bool procfs_mem_is_(int fd) { (void)fd; return false; }
long procfs_mem_seek(int fd, int64_t off, unsigned whence)
{
        (void)fd, (void)off, (void)whence;
        return -ENOSYS;
}
long procfs_mem_rw(struct thread *t, int fd, const struct sys_iov *v, const int64_t *pos,
                   bool write)
{
        (void)t, (void)fd, (void)v, (void)pos, (void)write;
        return -EIO;
}
/* There are no descriptors of vmrun's own. */
bool privfd_making(void) { return false; }
void privfd_made(bool held) { (void)held; }
int privfd_move(int fd) { return fd; }
void privfd_close(int fd) { close(fd); }
uint64_t procfs_mem_total(void) { return 1 << 30; }
uint64_t procfs_mem_free(struct thread *t) { (void)t; return 1 << 20; }

long signals_action(struct thread *t, int sig, const struct ksigaction *new, struct ksigaction *old)
{
        (void)t, (void)new;
        if (sig < 1 || sig > SIGNALS_MAX)
                FAIL("no such signal, but its action is asked for");
        if (old)
                memset(old, 0, sizeof(*old));
        return 0;
}
uint64_t signals_hold(struct thread *t) { (void)t; return 0; }
void signals_release(struct thread *t, uint64_t mask) { (void)t, (void)mask; }
void signals_fault(struct thread *t, int signo, int code, uint64_t addr, int vector)
{
        (void)t, (void)signo, (void)code, (void)addr, (void)vector;
}
int sigframe_pop(struct thread *t, uint64_t *mask) { (void)t; *mask = 0; return -EFAULT; }
int sigframe_altstack(struct thread *t, const struct altstack *new, struct altstack *old)
{
        (void)t, (void)new;
        memset(old, 0, sizeof(*old));
        return 0;
}
/* One thread, which is never stopped. Calls for threads and processes are not reached. */
_Thread_local struct thread *thread_self;
_Atomic uint32_t threads_stopping;
void threads_tell_stopper(void) { FAIL("no thread stops it"); }
void threads_wait_to_go(struct thread *t) { (void)t; FAIL("no thread stops it"); }
long threads_end(struct thread *t, int status) { (void)t, (void)status; FAIL("it ends"); return 0; }
bool has_capability(int cap) { (void)cap; return false; }
void procfs_links(struct thread *t, long nr, const uint64_t h[6]) { (void)t, (void)nr, (void)h; }
struct thread *threads_find(struct thread *t, pid_t tid) { return tid & 1 ? t : NULL; }
int alone_begin(struct thread *t) { (void)t; return -EINVAL; }
void alone_end(struct thread *t) { (void)t; }
void io_keep_rights(void) { }
void service_ensure(struct vm *vm) { (void)vm; }
void own_threads_set_apart(void) { }
bool threads_single(void) { return false; }
void threads_count_cpus(void) { }
void info_once(unsigned long key, const char *fmt, ...) { (void)key, (void)fmt; }
void stats_count(struct stats *s, const struct stats_kind *k, const char *instance, uint64_t v)
{
        (void)s, (void)k, (void)instance, (void)v;
}
void stats_numbered(struct stats *s, const struct stats_kind *k, unsigned instance, uint64_t v)
{
        (void)s, (void)k, (void)instance, (void)v;
}
#define NOT_HERE(fn)                                                                     \
        long fn(struct thread *t, const struct sys_row *row, const uint64_t a[6])        \
        {                                                                                \
                (void)t, (void)row, (void)a;                                             \
                return -ENOSYS;                                                          \
        }
NOT_HERE(sys_clone)
NOT_HERE(sys_clone3)
NOT_HERE(sys_fork)
NOT_HERE(sys_vfork)
NOT_HERE(sys_execve)
NOT_HERE(sys_execveat)
NOT_HERE(sys_futex)

uint32_t files_next_private(uint32_t id, dev_t dev, ino_t ino)
{
        (void)id, (void)dev, (void)ino;
        return FILE_NONE;
}
int64_t files_pages_left(uint32_t id, uint64_t off) { (void)id, (void)off; return -EBADF; }

int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        (void)t, (void)op, (void)a0, (void)a1, (void)a2;
        return 0;
}

/* ---- the host kernel's own access to memory ---- */

/* vmrun's memory begins here. A lower address is the program's, or maps nothing. */
#define NOT_VMRUN (1ul << 32)

static bool bad(uint64_t p, size_t n)
{
        if (p >= TASK_SIZE || p + n > TASK_SIZE || p < PAGE_SIZE)
                return true;
        if (p < NOT_VMRUN)
                FAIL("the kernel is given an address of the program's");
        if (p >= P(sys_bad()) && p < P(sys_bad()) + SYS_CHUNK)
                return true;
        if (n && __asan_region_is_poisoned((void *)(uintptr_t)p, n))
                FAIL("the kernel is given a buffer that is too short");
        return false;
}

/* As copy_from_user: the real kernel finds out whether the memory is there. */
static bool from(uint64_t p, void *dst, size_t n)
{
        struct iovec l = { dst, n }, r = { (void *)(uintptr_t)p, n };

        return !bad(p, n) && (!n || process_vm_readv(getpid(), &l, 1, &r, 1, 0) == (ssize_t)n);
}

static bool to(uint64_t p, const void *src, size_t n)
{
        struct iovec l = { (void *)(uintptr_t)src, n }, r = { (void *)(uintptr_t)p, n };

        return !bad(p, n) && (!n || process_vm_writev(getpid(), &l, 1, &r, 1, 0) == (ssize_t)n);
}

/* Moves only the beginning of a long buffer, but the sanitizer checks all of it. */
static uint8_t noise[1 << 16];
static bool read_some(uint64_t p, size_t n)
{
        static uint8_t sink[1 << 16];
        return !bad(p, n) && from(p, sink, n < sizeof(sink) ? n : sizeof(sink));
}
static bool write_some(uint64_t p, size_t n)
{
        return !bad(p, n) && to(p, noise, n < sizeof(noise) ? n : sizeof(noise));
}

/* The string must not leave its buffer: the sanitizer checks each byte up to the NUL. */
static bool string_at(uint64_t p)
{
        return !bad(p, 1) && strnlen((char *)(uintptr_t)p, 4097) < 4097;
}

static void no_own(uint64_t fd)
{
        if (privfd_is((int)fd))
                FAIL("the kernel is given a descriptor of vmrun's");
}

/* ---- the host kernel's calls ---- */

/* Moves bytes through a list of buffers, up to the first that is not mapped. */
static long through(uint64_t iov, uint64_t n, uint64_t max, bool write)
{
        uint64_t done = 0;

        if (n > 1024)
                return -EINVAL;
        for (uint64_t i = 0; i < n; i++) {
                struct iovec v;
                if (!from(iov + i * sizeof(v), &v, sizeof(v)))
                        return -EFAULT;
                if ((ssize_t)v.iov_len < 0)
                        return -EINVAL;
        }
        for (uint64_t i = 0; i < n; i++) {
                struct iovec v;
                if (!from(iov + i * sizeof(v), &v, sizeof(v)))
                        return -EFAULT;
                for (size_t at = 0, part; at < v.iov_len && done < max; at += part, done += part) {
                        part = PAGE_SIZE - ((P(v.iov_base) + at) & (PAGE_SIZE - 1));
                        if (part > v.iov_len - at)
                                part = v.iov_len - at;
                        if (part > max - done)
                                part = max - done;
                        if (!(write ? write_some : read_some)(P(v.iov_base) + at, part))
                                return done ? (long)done : -EFAULT;
                }
        }
        return (long)done;
}

static long plain(uint64_t p, uint64_t n, uint64_t max, bool write)
{
        struct iovec v = { (void *)(uintptr_t)p, n };
        uint64_t done = 0;

        for (size_t at = 0, part; at < v.iov_len && done < max; at += part, done += part) {
                part = PAGE_SIZE - ((p + at) & (PAGE_SIZE - 1));
                if (part > n - at)
                        part = n - at;
                if (part > max - done)
                        part = max - done;
                if (!(write ? write_some : read_some)(p + at, part))
                        return done ? (long)done : -EFAULT;
        }
        return (long)done;
}

static long message(uint64_t at, bool receive, uint64_t want)
{
        struct msghdr m;
        long ret;

        if (!from(at, &m, sizeof(m)))
                return -EFAULT;
        if ((int)m.msg_namelen < 0)
                return -EINVAL;
        if (!receive && m.msg_name && m.msg_namelen &&
            !read_some(P(m.msg_name), m.msg_namelen < 128 ? m.msg_namelen : 128))
                return -EFAULT;
        if (!receive && m.msg_controllen &&
            (m.msg_controllen > 20480 || !read_some(P(m.msg_control), m.msg_controllen)))
                return m.msg_controllen > 20480 ? -ENOBUFS : -EFAULT;
        ret = through(P(m.msg_iov), m.msg_iovlen, want, receive);
        if (ret < 0 || !receive)
                return ret;
        if (m.msg_name) {
                unsigned came = (unsigned)(want % 140);
                if (!write_some(P(m.msg_name), m.msg_namelen < came ? m.msg_namelen : came))
                        return -EFAULT;
                m.msg_namelen = came;
        }
        /* Descriptors. There may be more than the program may have. */
        size_t room = m.msg_control ? m.msg_controllen : 0, used = 0;
        while (room - used >= CMSG_SPACE(8) && used < CMSG_SPACE(8) * (want % 4)) {
                struct {
                        size_t len;
                        int level, type, fd[2];
                } c = { CMSG_LEN(8), SOL_SOCKET, SCM_RIGHTS, { 60, 1150 } };
                if (!to(P(m.msg_control) + used, &c, sizeof(c)))
                        return -EFAULT;
                used += sizeof(c);
        }
        m.msg_controllen = used;
        m.msg_flags = 0;
        return to(at, &m, sizeof(m)) ? ret : -EFAULT;
}

static long many_messages(const uint64_t a[6], uint64_t want)
{
        unsigned n = (unsigned)a[2] < 1024 ? (unsigned)a[2] : 1024, i;

        for (i = 0; i < n && i <= want % 5; i++) {
                uint64_t at = a[1] + i * sizeof(struct mmsghdr);
                long ret = message(at, true, want);
                if (ret < 0)
                        return i ? (long)i : ret;
                if (!to(at + offsetof(struct mmsghdr, msg_len), &(unsigned){ (unsigned)ret }, 4))
                        return i ? (long)i : -EFAULT;
        }
        return (long)i;
}

static long poll_fds(const uint64_t a[6])
{
        for (uint64_t i = 0; i < (uint32_t)a[1]; i++) {
                struct pollfd f;
                if (!from(a[0] + i * sizeof(f), &f, sizeof(f)) ||
                    !write_some(a[0] + i * sizeof(f) + 6, 2))
                        return -EFAULT;
                no_own((uint64_t)f.fd);
        }
        return (uint32_t)a[1];
}

static long select_fds(const uint64_t a[6])
{
        int n = (int)a[0];

        if (n < 0)
                return -EINVAL;
        for (int i = 1; i <= 3; i++)
                for (int word = 0; a[i] && word < (n + 63) / 64; word++) {
                        uint64_t set;
                        if (!from(a[i] + (unsigned)word * 8, &set, 8) ||
                            !write_some(a[i] + (unsigned)word * 8, 8))
                                return -EFAULT;
                        for (int bit = 0; bit < 64; bit++)
                                if (word * 64 + bit < n && set >> bit & 1)
                                        no_own((uint64_t)(word * 64 + bit));
                }
        return 1;
}

/* A mask that the call waits with. */
static bool mask_at(uint64_t p)
{
        uint64_t mask;

        return !p || from(p, &mask, 8);
}

static long listing(uint64_t buf, uint64_t n, uint64_t want)
{
        uint8_t d[64] = { 0 };
        uint64_t done = 0;

        for (; n - done >= 32 && done < want % 300; done += 32) {
                *(uint16_t *)(d + 16) = 32;
                d[18] = d[19] = (uint8_t)('0' + want % 10);
                if (!to(buf + done, d, 32))
                        return done ? (long)done : -EFAULT;
        }
        return (long)done;
}

static long own_struct(uint64_t p, size_t n, bool in, bool out)
{
        return (!in || read_some(p, n)) && (!out || write_some(p, n)) ? 0 : -EFAULT;
}

/* Commands whose number has the size, and those of the tables in ioctl.c. Both are trusted here. */
static long control_device(const uint64_t a[6])
{
        uint32_t cmd = (uint32_t)a[1];
        struct { int32_t len, pad; uint64_t buf; } c;

        if (cmd == 0x8912) {
                if (!from(a[2], &c, sizeof(c)))
                        return -EFAULT;
                c.len = c.len > 0 ? c.len & ~7 : 0;
                return (!c.buf || write_some(c.buf, (size_t)c.len)) && to(a[2], &c, sizeof(c))
                               ? 0
                               : -EFAULT;
        }
        if (cmd == 0x40045436)          /* TIOCSIG: a number, although there is a size */
                return 0;
        if (_IOC_DIR(cmd) && (_IOC_TYPE(cmd) == 'T' ? _IOC_NR(cmd) < 0x60 : _IOC_TYPE(cmd) == 'X'))
                return own_struct(a[2], _IOC_SIZE(cmd), _IOC_DIR(cmd) & _IOC_WRITE,
                                  _IOC_DIR(cmd) & _IOC_READ);
        return cmd == 0x5401   ? own_struct(a[2], 36, false, true)
               : cmd == 0x5413 ? own_struct(a[2], 8, false, true)
                               : 0;
}

static long control_file(const uint64_t a[6])
{
        switch ((int)a[1]) {
        case F_GETLK: case F_OFD_GETLK: return own_struct(a[2], 32, true, true);
        case F_SETLK:
        case F_SETLKW:
        case F_OFD_SETLK:
        case F_OFD_SETLKW: return own_struct(a[2], 32, true, false);
        case F_SETOWN_EX: return own_struct(a[2], 8, true, false);
        case F_GETOWN_EX: case 17: case 1035: case 1037: return own_struct(a[2], 8, false, true);
        case 1036: case 1038: return own_struct(a[2], 8, true, false);
        }
        return 0;
}

static long semaphores(const uint64_t a[6])
{
        struct semid_ds ds = { .sem_nsems = 1 + a[0] % 300 };       /* for good */

        switch ((int)a[2] & ~0x100) {
        case IPC_STAT:
        case SEM_STAT:
        case SEM_STAT_ANY: return to(a[3], &ds, sizeof(ds)) ? 0 : -EFAULT;
        case IPC_SET: return own_struct(a[3], sizeof(ds), true, false);
        case IPC_INFO: case SEM_INFO: return own_struct(a[3], sizeof(struct seminfo), false, true);
        case GETALL: return own_struct(a[3], ds.sem_nsems * 2, false, true);
        case SETALL: return own_struct(a[3], ds.sem_nsems * 2, true, false);
        }
        return 0;
}

static long file_handle(const uint64_t a[6], uint64_t want)
{
        uint32_t h[2];

        if (!string_at(a[1]) || !from(a[2], h, 8))
                return -EFAULT;
        if (h[0] > 128)
                return -EINVAL;
        if (!write_some(a[3], 4) || (want % 2 && !write_some(a[2] + 8, h[0])))
                return -EFAULT;
        return want % 2 && to(a[2], h, 8) ? 0 : -EOVERFLOW;
}

/* The size of argument i as the kernel sees it: the row gives the shape, and the call's own
 * arguments the lengths. */
static size_t size_for(const struct sys_arg *d, const uint64_t a[6])
{
        uint64_t n;

        if (d->len < 0)
                return d->size;
        n = a[d->len];
        if (d->flags & AF_INT)
                n = (int32_t)n > 0 ? (uint32_t)n : 0;
        else if (d->flags & AF_UINT)
                n = (uint32_t)n;
        /* The kernel refuses a longer one after a look at its beginning. */
        n = n > SYS_ARG_MAX ? SYS_ARG_MAX + 1 : n * d->size + d->add;
        return n > SYS_ARG_MAX ? SYS_ARG_MAX : n;
}

static long by_row(const struct sys_row *row, const uint64_t a[6], uint64_t want)
{
        long ret = (long)(want % 50);

        for (int i = 0; i < 6; i++) {
                const struct sys_arg *d = &row->arg[i];
                size_t n = size_for(d, a);
                int32_t room;
                bool good = true;

                if (d->kind == K_VAL || (!a[i] && (d->flags & AF_NULL)))
                        continue;
                switch (d->kind) {
                case K_FD:      no_own(a[i]); break;
                case K_PATH: case K_PATHL: good = string_at(a[i]); break;
                case K_IN:      good = read_some(a[i], n); break;
                case K_INOUT:
                        good = read_some(a[i], n) && (row->arg[i].len >= 0 || write_some(a[i], n));
                        break;
                case K_PRE:     good = write_some(a[i], n / 2); break;
                case K_BLOCKED: good = mask_at(a[i]); break;
                case K_VOUT:
                        if (!from(a[d->len], &room, 4) || room < 0)
                                return room < 0 ? -EINVAL : -EFAULT;
                        good = write_some(a[i],
                                          (size_t)room < want % 200 ? (size_t)room : want % 200) &&
                               to(a[d->len], &(int){ (int)(want % 200) }, 4);
                        break;
                case K_OUT:
                        if (d->flags & AF_RET) {
                                size_t room_n = n > d->add ? (n - d->add) / d->size : 0;
                                ret = (size_t)ret < room_n ? ret : (long)room_n;
                                n = (size_t)ret * d->size + (n ? d->add : 0);
                        }
                        good = write_some(a[i], n);
                        break;
                }
                if (!good)
                        return -EFAULT;
        }
        return ret;
}

/* The kernel's answers, from the input. A call may fail before it looks at anything, or after. */
static uint64_t answers;

/* capget(2): three versions of one struct, and the newest version as answer to any other. */
static long capabilities(long nr, const uint64_t a[6])
{
        const uint32_t newest = 0x20080522;
        struct { uint32_t version; int32_t pid; } head;

        if (!from(a[0], &head, sizeof(head)))
                return -EFAULT;
        size_t n = head.version == 0x19980330                             ? 12
                   : head.version == 0x20071026 || head.version == newest ? 24
                                                                          : 0;
        if (!n)
                return to(a[0], &newest, sizeof(newest)) ? (a[1] || nr == __NR_capset ? -EINVAL : 0)
                                                         : -EFAULT;
        if (nr == __NR_capget)
                return !a[1] || write_some(a[1], n) ? 0 : -EFAULT;
        return read_some(a[1], n) ? 0 : -EFAULT;
}

static long kernel(long nr, const uint64_t a[6])
{
        uint64_t want = (answers = answers * 6364136223846793005ull + 1442695040888963407ull) >> 40;
        long ret;

        if (want % 16 == 0)
                return -(long)(1 + want / 16 % 130);
        switch (nr) {
        case __NR_read: case __NR_pread64: no_own(a[0]); return plain(a[1], a[2], want, true);
        case __NR_write: case __NR_pwrite64: no_own(a[0]); return plain(a[1], a[2], want, false);
        case __NR_readv:
        case __NR_preadv:
        case __NR_preadv2: no_own(a[0]); return through(a[1], a[2], want, true);
        case __NR_writev:
        case __NR_pwritev:
        case __NR_pwritev2: no_own(a[0]); return through(a[1], a[2], want, false);
        case __NR_getrandom: return plain(a[0], a[1], a[1], true);
        case __NR_sendto:
                no_own(a[0]);
                if (a[4] && (uint32_t)a[5] > 128)
                        return -EINVAL;
                if (a[4] && !read_some(a[4], (uint32_t)a[5]))
                        return -EFAULT;
                return plain(a[1], a[2], want, false);
        case __NR_recvfrom: {
                int32_t room = 0;
                no_own(a[0]);
                if (a[4] && (!from(a[5], &room, 4) || room < 0))
                        return -EFAULT;
                ret = plain(a[1], a[2], want, true);
                if (ret >= 0 && a[4] &&
                    !(write_some(a[4], (size_t)room < want % 150 ? (size_t)room : want % 150) &&
                      to(a[5], &(int){ (int)(want % 150) }, 4)))
                        return -EFAULT;
                return ret;
        }
        case __NR_sendmsg: no_own(a[0]); return message(a[1], false, want);
        case __NR_recvmsg: no_own(a[0]); return message(a[1], true, want);
        case __NR_recvmmsg: no_own(a[0]); return many_messages(a, want);
        case __NR_poll: return poll_fds(a);
        case __NR_ppoll:
                return (!a[2] || read_some(a[2], 16)) && mask_at(a[3]) ? poll_fds(a) : -EFAULT;
        case __NR_select:
                if (a[4] && !(read_some(a[4], 16) && write_some(a[4], 16)))
                        return -EFAULT;
                return select_fds(a);
        case __NR_pselect6: {
                uint64_t sig[2] = { 0, 0 };
                if ((a[5] && !from(a[5], sig, 16)) || !mask_at(sig[0]) ||
                    (a[4] && !read_some(a[4], 16)))
                        return -EFAULT;
                return select_fds(a);
        }
        case __NR_ioctl: no_own(a[0]); return control_device(a);
        case __NR_fcntl:
                no_own(a[0]);
                ret = control_file(a);
                return (int)a[1] == 3 && !ret ? (long)(want % 3) : ret;
        case __NR_dup2: case __NR_dup3: no_own(a[0]); no_own(a[1]); return (long)(uint32_t)a[1];
        case __NR_close: return 0;
        case __NR_close_range:
                for (int fd = OWN_FIRST; fd < OWN_END; fd++)
                        if ((uint32_t)a[0] <= (uint32_t)fd && (uint32_t)fd <= (uint32_t)a[1])
                                FAIL("vmrun's descriptors are closed");
                return 0;
        case __NR_getdents:
        case __NR_getdents64: no_own(a[0]); return listing(a[1], (uint32_t)a[2], want);
        case __NR_name_to_handle_at: no_own(a[0]); return file_handle(a, want);
        case __NR_open_by_handle_at: no_own(a[0]); return read_some(a[1], 8) ? 70 : -EFAULT;
        case __NR_openat2:
                no_own(a[0]);
                return string_at(a[1]) && read_some(a[2], a[3] < 4096 ? a[3] : 4096) ? 70 : -EFAULT;
        case __NR_kcmp: return (int)a[2] == 7 ? own_struct(a[4], 12, true, false) : 0;
        case __NR_semctl: return semaphores(a);
        case __NR_msgctl:
                return ((int)a[1] & ~0x100) == IPC_STAT
                               ? own_struct(a[2], sizeof(struct msqid_ds), false, true)
                       : (int)a[1] == IPC_SET
                               ? own_struct(a[2], sizeof(struct msqid_ds), true, false)
                               : 0;
        case __NR_shmctl:
                return ((int)a[1] & ~0x100) == IPC_STAT
                               ? own_struct(a[2], sizeof(struct shmid_ds), false, true)
                       : (int)a[1] == SHM_INFO
                               ? own_struct(a[2], sizeof(struct shm_info), false, true)
                               : 0;
        case __NR_fstat: {
                static const unsigned types[] = { S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFDIR };
                struct stat st = { .st_mode = types[want % 5] };
                return to(a[1], &st, sizeof(st)) ? 0 : -EFAULT;
        }
        case __NR_prlimit64:
                if ((a[2] && !read_some(a[2], 16)) || (a[3] && !write_some(a[3], 16)))
                        return -EFAULT;
                return 0;
        case __NR_capget: case __NR_capset: return capabilities(nr, a);
        case __NR_sysinfo: return own_struct(a[0], 112, false, true);
        case __NR_sched_setattr: return own_struct(a[1], 48, true, false);
        case __NR_rt_sigprocmask:
                if ((a[1] && !read_some(a[1], 8)) || (a[2] && !write_some(a[2], 8)))
                        return -EFAULT;
                return 0;
        case __NR_rt_sigpending: return own_struct(a[0], 8, false, true);
        case __NR_mq_notify: {
                struct sigevent ev;
                no_own(a[0]);
                if (!a[1])
                        return 0;
                if (!from(a[1], &ev, sizeof(ev)))
                        return -EFAULT;
                return ev.sigev_notify != SIGEV_THREAD || read_some(P(ev.sigev_value.sival_ptr), 32)
                               ? 0
                               : -EFAULT;
        }
        case __NR_prctl:
                return (int)a[0] == PR_GET_NAME   ? own_struct(a[1], 16, false, true)
                       : (int)a[0] == PR_SET_NAME ? (string_at(a[1]) ? 0 : -EFAULT)
                                                  : 0;
        case __NR_setsockopt:
                if ((int)a[1] == SOL_SOCKET && ((int)a[2] == SO_ATTACH_FILTER || (int)a[2] == 51)) {
                        struct { uint16_t len, pad[3]; uint64_t filter; } f;
                        no_own(a[0]);
                        return from(a[3], &f, sizeof(f)) && read_some(f.filter, (size_t)f.len * 8)
                                       ? 0
                                       : -EFAULT;
                }
                break;
        case __NR_getsockopt:
                break;
        }
        return nr >= 0 && nr < SYS_ROWS ? by_row(&sys_rows[nr], a, want) : 0;
}

_Thread_local _Atomic uint32_t sys_put_off;
long sys_enter(const _Atomic uint32_t *word, long nr, const uint64_t a[6])
{
        (void)word;
        return kernel(nr, a);
}
long sys_own(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
        const uint64_t a[6] = { a0, a1, a2, a3, a4, a5 };

        return nr == __NR_getpid || nr == __NR_gettid ? 1 : kernel(nr, a);
}
uint64_t sys_interrupted(uint64_t rip) { return rip; }
int fuzz_getsockopt(int fd, int level, int opt, void *value, socklen_t *len);
int fuzz_getsockopt(int fd, int level, int opt, void *value, socklen_t *len)
{
        (void)fd, (void)level, (void)opt, (void)len;
        *(int *)value = answers & 1 ? SOCK_STREAM : SOCK_DGRAM;
        return 0;
}

/* ---- a run ---- */

/* Half of the arguments are addresses, mostly near the end of a page; others are small numbers. */
static uint64_t argument(void)
{
        uint64_t kind = take(1), v = take(2);

        switch (kind % 8) {
        case 0: case 1: case 2: return BASE + (v & (sizeof(memory) - 1));
        case 3:         return BASE + ((v % PAGES + 1) << PAGE_SHIFT) - (v >> 8);
        case 4:         return v % 64;
        case 5:         return v;
        case 6:         return (uint64_t)(int64_t)(int16_t)v;
        default:        return take(8);
        }
}

static bool ends_the_program(long nr)
{
        return nr == __NR_exit || nr == __NR_exit_group || nr == __NR_rt_sigreturn;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static char block[VCPU_BLOCK] __attribute__((aligned(PAGE_SIZE)));
        static struct thread t;

        if (!t.v) {
                if (mmap(CONTROL, sizeof(*CONTROL), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1,
                         0) != CONTROL)
                        FAIL("no room for control");
                t.v = (struct vcpu *)block;
                thread_self = &t;
                for (size_t i = 0; i < sizeof(noise); i++)
                        noise[i] = (uint8_t)(i * 37 + (i >> 8));
        }
        input = data;
        input_end = data + size;
        readable = (uint16_t)take(2);
        writable = (uint16_t)take(2);
        answers = take(4);
        unsigned calls = 1 + take(1) % 4;
        const uint8_t *content = input + 20 * calls < input_end ? input + 20 * calls : input;
        size_t n = (size_t)(input_end - content), first = n < sizeof(memory) ? n : sizeof(memory);
        memset(memory, 0, sizeof(memory));
        memcpy(memory, content, first);
        for (size_t have = first; have && have < sizeof(memory); have *= 2)
                memcpy(memory + have, memory,
                       have < sizeof(memory) - have ? have : sizeof(memory) - have);
        for (unsigned i = 0; i < calls && input < input_end; i++) {
                uint64_t a[6];
                current = (long)(take(2) % SYS_ROWS);
                for (int k = 0; k < 6; k++)
                        a[k] = argument();
                if (ends_the_program(current))
                        continue;
                long ret = syscall_forward(&t, current, a);
                if (ret < -4095)
                        FAIL("neither a result nor an errno");
                if (pinned)
                        FAIL("a page stays pinned");
        }
        return 0;
}
