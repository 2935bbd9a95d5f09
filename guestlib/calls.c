/*
 * The calls of vmguest.h.
 *
 * Where Linux has a system call for the purpose, the library makes it: kern serves it.  The others
 * are kern's own calls (hints.h).  The library makes them only if the auxiliary vector says that a
 * kern serves them: natively Linux would refuse the number, and a seccomp filter might kill for it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "call.h"
#include "hints.h"
#include "vmguest.h"

#define PAGE_MASK ((uintptr_t)VMG_PAGE - 1)

/* The auxiliary vector does not change while the process lives, and a lookup in it takes half as
 * long as a call.  Relaxed: it publishes no other data, and all threads store equal values. */
PUBLIC int vmg_version(void)
{
        static _Atomic int found;       /* 0: not looked up yet; else the version + 1 */
        int version = atomic_load_explicit(&found, memory_order_relaxed);

        if (version == 0) {
                version = (int)getauxval(HINTS_AUX) + 1;
                atomic_store_explicit(&found, version, memory_order_relaxed);
        }
        return version - 1;
}

/* Whole pages: for touched() the pages that a range touches, for within() the pages that lie wholly
 * in it.  -EINVAL: the range ends beyond the address space. */
struct pages { uintptr_t start, len; };

static int touched(const void *addr, size_t len, struct pages *p)
{
        uintptr_t start = (uintptr_t)addr, end;

        *p = (struct pages){ 0 };
        if (len == 0)
                return 0;
        if (__builtin_add_overflow(start, len, &end) ||
            __builtin_add_overflow(end, PAGE_MASK, &end))
                return -EINVAL;
        p->start = start & ~PAGE_MASK;
        p->len = (end & ~PAGE_MASK) - p->start;
        return 0;
}

static int within(const void *addr, size_t len, struct pages *p)
{
        uintptr_t start, end;

        if (__builtin_add_overflow((uintptr_t)addr, len, &end) ||
            __builtin_add_overflow((uintptr_t)addr, PAGE_MASK, &start))
                return -EINVAL;
        p->start = start & ~PAGE_MASK;
        end &= ~PAGE_MASK;
        p->len = end > p->start ? end - p->start : 0;
        return 0;
}

/* The end of any program's memory; equal to kern's TASK_SIZE (four levels of page tables). */
#define PROGRAM_END 0x7ffffffff000ul

static int within_program(const void *addr, size_t len)
{
        return len > PROGRAM_END || (uintptr_t)addr > PROGRAM_END - len ? -EFAULT : 0;
}

/* madvise() of the pages; 0 without a call if there are none. */
static long advise(const struct pages *p, int advice)
{
        return p->len ? call(SYS_madvise, p->start, p->len, (uintptr_t)advice) : 0;
}

PUBLIC ssize_t vmg_prefetch(const void *addr, size_t len)
{
        struct pages p;
        int err = touched(addr, len, &p);

        if (!err)
                err = within_program(addr, len);
        if (err)
                return err;
        /* Natively nothing: a program makes this call often, and madvise() would cost it 2,000
         * instructions each time. */
        return vmg_version() ? call(HINT_PREFETCH, p.start, p.len, 0) : 0;
}

PUBLIC ssize_t vmg_prefetchv(const struct iovec *range, int n)
{
        if (n < 0 || n > HINTS_RANGES)
                return -EINVAL;
        if (vmg_version())
                return call(HINT_PREFETCHV, (uintptr_t)range, (uintptr_t)n, 0);
        ssize_t err = 0;
        for (int i = 0; i < n && err == 0; i++)
                err = vmg_prefetch(range[i].iov_base, range[i].iov_len);
        return err;
}

/* An older kern counts no pages: *left stays as it is, so the program takes all pages as come. */
PUBLIC ssize_t vmg_prefetchv_counted(const struct iovec *range, int n, uint32_t *left)
{
        if ((uintptr_t)left % sizeof(*left))
                return -EINVAL;
        if (within_program(left, sizeof(*left)) != 0)
                return -EFAULT;
        if (vmg_version() < 3) {
                ssize_t ret = vmg_prefetchv(range, n);
                return ret < 0 ? ret : 0;
        }
        if (n < 0)
                return -EINVAL;
        return call(HINT_COUNTED, (uintptr_t)range, (uintptr_t)n, (uintptr_t)left);
}

/* Acquire: a thread that sees 0 finds the pages.  A kern that counts reads the word itself, since
 * the address may be no memory of the program's. */
static long wait_for(uint32_t *left, uintptr_t flags)
{
        long ret;

        if (vmg_version() < 3)
                return __atomic_load_n(left, __ATOMIC_ACQUIRE) ? -EINVAL : 0;
        do
                ret = call(HINT_WAIT, (uintptr_t)left, flags, 0);
        while (ret == -EINTR);          /* its handler has run */
        return ret;
}

PUBLIC int vmg_wait(uint32_t *left) { return (int)wait_for(left, 0); }

PUBLIC int vmg_arrived(uint32_t *left)
{
        if (__atomic_load_n(left, __ATOMIC_ACQUIRE) == 0)
                return 1;
        long ret = wait_for(left, HINT_WAIT_LOOK);
        return ret == -EAGAIN ? 0 : ret < 0 ? (int)ret : 1;
}

PUBLIC ssize_t vmg_stream(const void *addr, size_t len, ptrdiff_t stride)
{
        struct pages p;
        int err = touched(addr, len, &p);

        if (err || stride == 0)
                return -EINVAL;
        err = within_program(addr, len);
        if (err)
                return err;
        return vmg_version() ? call(HINT_STREAM, (uintptr_t)addr, len, (uintptr_t)stride) : 0;
}

/* -EFAULT where memcpy would fault.  Where the call is forbidden (seccomp), memcpy. */
static ssize_t read_natively(char *dst, char *src, size_t len)
{
        const uintptr_t self = (uintptr_t)call(SYS_getpid, 0, 0, 0);

        for (size_t done = 0; done < len; ) {
                struct iovec to = { dst + done, len - done }, from = { src + done, len - done };
                long n = call6(SYS_process_vm_readv, self, (uintptr_t)&to, 1, (uintptr_t)&from, 1,
                               0);
                if (n == -EPERM || n == -ENOSYS) {
                        memcpy(dst + done, src + done, len - done);
                        break;
                }
                if (n <= 0)
                        return n < 0 ? n : -EFAULT;
                done += (size_t)n;
        }
        return (ssize_t)len;
}

static int check_read(const void *dst, const void *src, size_t len, unsigned flags)
{
        uintptr_t end;

        if (__builtin_add_overflow((uintptr_t)dst, len, &end) ||
            __builtin_add_overflow((uintptr_t)src, len, &end) || (flags & ~VMG_UNVERIFIED))
                return -EINVAL;
        return within_program(src, len) ? -EFAULT : within_program(dst, len);
}

/* If kern has the call it checks the arguments, else check_read() does. */
PUBLIC ssize_t vmg_read(void *dst, const void *src, size_t len, unsigned flags)
{
        if (vmg_version() >= 2)
                return call6(HINT_READ, (uintptr_t)dst, (uintptr_t)src, len, flags, 0, 0);
        int err = check_read(dst, src, len, flags);
        return err ? err : read_natively(dst, (char *)src, len);
}

PUBLIC ssize_t vmg_resident(const void *addr, size_t len)
{
        unsigned char here[256];
        struct pages p;
        ssize_t resident = 0;
        int err = touched(addr, len, &p);

        while (!err && p.len) {
                uintptr_t some = p.len < sizeof(here) * VMG_PAGE ? p.len : sizeof(here) * VMG_PAGE;
                err = (int)call(SYS_mincore, p.start, some, (uintptr_t)here);
                for (uintptr_t i = 0; !err && i < some / VMG_PAGE; i++)
                        resident += here[i] & 1;
                p.start += some;
                p.len -= some;
        }
        return err ? err : resident;
}

PUBLIC int vmg_peek(void *dst, const void *src, size_t len)
{
        if (vmg_version() >= 2)
                return (int)call(HINT_PEEK, (uintptr_t)dst, (uintptr_t)src, len);
        if (len > VMG_PAGE)
                return -EINVAL;
        if (vmg_version())
                return -ENOSYS;
        memcpy(dst, src, len);
        return 0;
}

PUBLIC int vmg_cool(const void *addr, size_t len)
{
        struct pages p;
        int err = within(addr, len, &p);

        return err ? err : (int)advise(&p, MADV_COLD);
}

PUBLIC int vmg_drop(void *addr, size_t len)
{
        struct pages p;
        int err = within(addr, len, &p);

        return err ? err : (int)advise(&p, MADV_DONTNEED);
}

PUBLIC int vmg_pin(const void *addr, size_t len)
{
        struct pages p;
        int err = touched(addr, len, &p);

        return err ? err : (int)call(SYS_mlock, p.start, p.len, 0);
}

PUBLIC int vmg_unpin(const void *addr, size_t len)
{
        struct pages p;
        int err = touched(addr, len, &p);

        return err ? err : (int)call(SYS_munlock, p.start, p.len, 0);
}

PUBLIC ssize_t vmg_priority(const void *addr, size_t len, enum vmg_level level)
{
        struct pages p;
        int err = touched(addr, len, &p);

        if (err || (unsigned)level > VMG_LOW)
                return -EINVAL;
        err = within_program(addr, len);
        if (err || vmg_version() < 3)
                return err;
        return call(HINT_PRIORITY, p.start, p.len, (uintptr_t)level);
}

_Static_assert((int)VMG_HIGH == (int)HINT_HIGH && (int)VMG_LOW == (int)HINT_LOW,
               "equal numbers on both sides");
_Static_assert(VMG_UNVERIFIED == HINT_READ_RAW, "one flag on both sides");

/* hints.h numbers the fields. */
_Static_assert(sizeof(struct vmg_stats) == HINT_NUMBERS * sizeof(uint64_t),
               "a field for each number");
_Static_assert(offsetof(struct vmg_stats, hinted) == HINT_HINTED * sizeof(uint64_t),
               "the fields stand in the order of the numbers");

PUBLIC int vmg_stats(struct vmg_stats *stats, size_t size)
{
        uint64_t number[HINT_NUMBERS] = { 0 };
        long ret = vmg_version() ? call(HINT_STATS, (uintptr_t)number, HINT_NUMBERS, 0) : -ENOSYS;

        memset(stats, 0, size);
        memcpy(stats, number, size < sizeof(number) ? size : sizeof(number));
        return ret < 0 ? (int)ret : 0;
}
