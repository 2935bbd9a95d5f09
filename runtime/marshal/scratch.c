/*
 * Host buffers for the arguments of one call, and the small copies made through them.
 *
 * A thread's scratch is a short list of chunks, newest first.  Pointers into it stay valid until
 * the call ends; then only the largest chunk of at most KEEP_CHUNK is kept, so one big transfer
 * does not keep its memory for ever.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/privfd.h"
#include "marshal/call.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"

#define FIRST_CHUNK (256ul << 10)
#define KEEP_CHUNK  (2 * SYS_CHUNK)

/* With the address sanitizer, bytes that were not allocated cannot be touched either. */
#if defined __has_feature
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define ADDRESS_SANITIZER
#endif
#ifdef ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#define FENCE 16                        /* between two buffers */
#else
#define FENCE 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

struct chunk {
        struct chunk *next;
        size_t size, used;
        bool edge;                      /* one buffer of sys_scratch_edge() */
};
static _Thread_local struct chunk *chunks;

static struct chunk *map_chunk(size_t size)
{
        struct chunk *c =
                mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (c == MAP_FAILED)
                return NULL;
        *c = (struct chunk){ .size = size, .used = sizeof(*c) };
        return c;
}

static void unmap_chunk(struct chunk *c)
{
        ASAN_UNPOISON_MEMORY_REGION(c, c->size);
        munmap(c, c->size);
}

static struct chunk *new_chunk(size_t n)
{
        size_t size = n + 2 * PAGE_SIZE > FIRST_CHUNK ? n + 2 * PAGE_SIZE : FIRST_CHUNK;
        struct chunk *c = map_chunk((size + PAGE_SIZE - 1) & ~(size_t)(PAGE_SIZE - 1));

        if (!c)
                return NULL;
        ASAN_POISON_MEMORY_REGION(c + 1, c->size - sizeof(*c));
        c->next = chunks;
        return chunks = c;
}

/* n bytes of chunk c at an address that is offset modulo align, or NULL. */
static void *carve(struct chunk *c, size_t n, size_t align, size_t offset)
{
        size_t at = c ? ((c->used + FENCE + align - 1) & ~(align - 1)) + offset : 0;

        if (!c || at > c->size || n > c->size - at)
                return NULL;
        c->used = at + n;
        ASAN_UNPOISON_MEMORY_REGION((char *)c + at, n);
        return (char *)c + at;
}

static void *take(size_t n, size_t align, size_t offset)
{
        void *p = carve(chunks, n, align, offset);

        return p ? p : carve(new_chunk(n + align), n, align, offset);
}

void *sys_scratch(size_t n) { return take(n, 16, 0); }

void *sys_scratch_like(uint64_t addr, size_t n)
{
        size_t align = n < PAGE_SIZE ? 512 : PAGE_SIZE;

        return take(n, align, addr & (align - 1));
}

void *sys_scratch_edge(size_t reach, size_t n)
{
        size_t pages = (reach + PAGE_SIZE - 1) & ~(size_t)(PAGE_SIZE - 1);
        /* at least a page */
        size_t beyond = (n - reach + PAGE_SIZE) & ~(size_t)(PAGE_SIZE - 1);
        struct chunk *c = map_chunk(PAGE_SIZE + pages + beyond);
        char *end = (char *)c + PAGE_SIZE + pages;

        if (!c)
                return NULL;
        c->edge = true;
        c->used = c->size;
        if (mprotect(end, beyond, PROT_NONE)) {
                unmap_chunk(c);
                return NULL;
        }
        /* Behind the first chunk, which still has room. */
        c->next = chunks ? chunks->next : NULL;
        *(chunks ? &chunks->next : &chunks) = c;
        return end - reach;
}

void sys_scratch_reset(void)
{
        struct chunk *keep = NULL;

        for (struct chunk *c = chunks, *next; c; c = next) {
                next = c->next;
                if (!c->edge && c->size <= KEEP_CHUNK && (!keep || c->size > keep->size)) {
                        if (keep)
                                unmap_chunk(keep);
                        keep = c;
                } else {
                        unmap_chunk(c);
                }
        }
        chunks = keep;
        if (keep) {
                keep->next = NULL;
                keep->used = sizeof(*keep);
                ASAN_POISON_MEMORY_REGION(keep + 1, keep->size - sizeof(*keep));
        }
}

void sys_scratch_end(void)
{
        sys_scratch_reset();
        if (chunks)
                unmap_chunk(chunks);
        chunks = NULL;
}

void *sys_bad(void)
{
        static _Atomic(void *) bad;
        void *p = bad;

        if (!p) {
                p = mmap(NULL, SYS_CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1, 0);
                if (p == MAP_FAILED)
                        p = (void *)~0xfffull;          /* beyond user space: bad as well */
                bad = p;
        }
        return p;
}

/* A page of a file that another process has cut short is still mapped: only a read finds out. */
size_t sys_reach(struct thread *t, uint64_t addr, size_t n, bool write)
{
        char byte;

        for (size_t done = 0, part; done < n; done += part) {
                part = PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1));
                if (gmem_check(t, addr + done, 1, write) || gmem_read(t, &byte, addr + done, 1))
                        return done;
                if (part > n - done)
                        break;
        }
        return n;
}

void *sys_in_edge(struct thread *t, uint64_t addr, size_t n)
{
        size_t reach = sys_reach(t, addr, n, false);
        void *p = reach ? sys_scratch_edge(reach, n) : NULL;

        return p && !gmem_read(t, p, addr, reach) ? p : sys_bad();
}

void *sys_in(struct thread *t, uint64_t addr, size_t n, size_t max)
{
        void *p;

        if (n > max)
                return sys_bad();
        p = sys_scratch(n ? n : 1);
        if (!p || (n && gmem_read(t, p, addr, n)))
                return sys_bad();
        return p;
}

void *sys_in_null(struct thread *t, uint64_t addr, size_t n)
{
        return addr ? sys_in(t, addr, n, SYS_ARG_MAX) : NULL;
}

char *sys_string(struct thread *t, uint64_t addr)
{
        char *s = sys_scratch(PAGE_SIZE + 1);
        long n;

        if (!s)
                return sys_bad();
        n = gmem_string(t, s, addr, PAGE_SIZE);
        if (n == -ENAMETOOLONG) {
                /* Pass a string that the kernel itself finds too long, so that it chooses
                 * ENAMETOOLONG or ERANGE. */
                if (gmem_read(t, s, addr, PAGE_SIZE))
                        return sys_bad();
                s[PAGE_SIZE] = 0;
                return s;
        }
        return n < 0 ? sys_bad() : s;
}

void *sys_out(struct thread *t, uint64_t addr, size_t n)
{
        void *p = sys_scratch(n ? n : 1);

        if (!p || (n && gmem_check(t, addr, n, true)))
                return sys_bad();
        if (n && gmem_read(t, p, addr, n))
                memset(p, 0, n);
        return p;
}

long sys_deliver(struct thread *t, uint64_t addr, const void *host, size_t n, long ret)
{
        /* The bad address: the kernel wrote nothing there, or the call would have failed. */
        if (!host || host == sys_bad() || !addr || !n)
                return ret;
        return gmem_write(t, addr, host, n) ? -EFAULT : ret;
}

long sys_newfd(long ret)
{
        if (ret >= 0 && (uint64_t)ret >= privfd_nofile_soft()) {
                sys_own(__NR_close, (uint64_t)ret, 0, 0, 0, 0, 0);
                return -EMFILE;
        }
        return ret;
}

bool sys_no_fd_left(void)
{
        uint64_t soft = privfd_nofile_soft();
        long lowest;

        /* The cheap check settles most cases: the kernel uses the lowest free number. */
        if (!soft || sys_own(__NR_fcntl, soft - 1, F_GETFD, 0, 0, 0, 0) < 0)
                return !soft;
        lowest = sys_own(__NR_fcntl, soft - 1, F_DUPFD_CLOEXEC, 0, 0, 0, 0);
        if (lowest >= 0)
                sys_own(__NR_close, (uint64_t)lowest, 0, 0, 0, 0, 0);
        return lowest < 0 || (uint64_t)lowest >= soft;
}
