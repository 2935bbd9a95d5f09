/*
 * Host buffers for the arguments of one call, and the small copies made through them.
 *
 * A thread's scratch is a short list of chunks, newest first.  Pointers into it stay valid until the call ends; then
 * only the first chunk is kept (grow-only up to SYS_CHUNK), so one big transfer does not cost memory for ever.
 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include "sys.h"

#define FIRST_CHUNK (256ul << 10)
#define KEEP_CHUNK  (2 * SYS_CHUNK)

struct chunk {
        struct chunk *next;
        size_t size, used;
};
static _Thread_local struct chunk *chunks;

static struct chunk *new_chunk(size_t n)
{
        size_t size = n + 2 * PAGE_SIZE > FIRST_CHUNK ? n + 2 * PAGE_SIZE : FIRST_CHUNK;
        void *p;

        size = (size + PAGE_SIZE - 1) & ~(size_t)(PAGE_SIZE - 1);
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
                return NULL;
        *(struct chunk *)p = (struct chunk){ .next = chunks, .size = size, .used = sizeof(struct chunk) };
        chunks = p;
        return p;
}

/* n bytes of chunk c at an address that is offset modulo align, or NULL. */
static void *carve(struct chunk *c, size_t n, size_t align, size_t offset)
{
        size_t at = c ? ((c->used + align - 1) & ~(align - 1)) + offset : 0;

        if (!c || at > c->size || n > c->size - at)
                return NULL;
        c->used = at + n;
        return (char *)c + at;
}

static void *take(size_t n, size_t align, size_t offset)
{
        void *p = carve(chunks, n, align, offset);

        return p ? p : carve(new_chunk(n + align), n, align, offset);
}

void *sys_scratch(size_t n) { return take(n, 16, 0); }

void *sys_scratch_like(uint64_t addr, size_t n) { return take(n, 512, addr & 511); }

void sys_scratch_reset(void)
{
        struct chunk *keep = NULL;

        for (struct chunk *c = chunks, *next; c; c = next) {
                next = c->next;
                if (c->size <= KEEP_CHUNK && (!keep || c->size > keep->size)) {
                        if (keep)
                                munmap(keep, keep->size);
                        keep = c;
                } else {
                        munmap(c, c->size);
                }
        }
        chunks = keep;
        if (keep) {
                keep->next = NULL;
                keep->used = sizeof *keep;
        }
}

void syscall_thread_end(void)
{
        sys_scratch_reset();
        if (chunks)
                munmap(chunks, chunks->size);
        chunks = NULL;
}

void *sys_bad(void)
{
        static _Atomic(void *) bad;
        void *p = bad;

        if (!p) {
                p = mmap(NULL, SYS_CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                if (p == MAP_FAILED)
                        p = (void *)~0xfffull;          /* beyond user space: bad as well */
                bad = p;
        }
        return p;
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
                /* Hand over something the kernel finds too long by itself: ENAMETOOLONG or ERANGE is its choice. */
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
        if (!host || !addr || !n)
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

void sys_say_once(unsigned long key, const char *fmt, ...)
{
        static _Atomic unsigned long said[256];
        char text[200];
        va_list ap;

        for (unsigned i = 0; i < 256; i++) {
                unsigned long none = 0;
                if (said[i] == key + 1)
                        return;
                if (!said[i] && __atomic_compare_exchange_n((unsigned long *)&said[i], &none, key + 1, false,
                                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                        break;
                if (none == key + 1)
                        return;
                if (i == 255)
                        return;
        }
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        info_("%s", text);
}
