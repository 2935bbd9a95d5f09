/*
 * The guide for malloc: a library that is preloaded into a program, stands before its allocator and
 * tells vmrun which pages hold no live block.  Their content is then neither written to far memory
 * nor fetched.  It works over jemalloc as a shared library, whose own data lies apart from blocks.
 * Over others, which may keep lists in dead blocks (glibc's), and natively, it passes calls on.
 *
 * For a page that blocks share, a table counts the bytes of its live blocks.  A block whose death
 * kills pages is their anchor.  It waits in a short queue before it is freed, where malloc() may
 * take it again: pages that live again meanwhile are not dropped.
 *
 * [I] A block is freed after its pages are dropped: jemalloc has not used them for data of its own,
 * or given them back to the kernel.
 * [I] A block is counted before its user or this file writes to it.  So a drop that came before it
 * was counted has lost nothing.  Hence realloc() copies here, not in jemalloc.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "vmguest.h"

#define PAGE ((uintptr_t)VMG_PAGE)

/* The functions of the allocator below.  mallocx and so on: jemalloc(3).  _Zn: operator new. */
#define ALLOCATOR(X)                                                                              \
        X(void *, malloc, (size_t)) X(void, free, (void *))                                       \
        X(void *, calloc, (size_t, size_t)) X(void *, realloc, (void *, size_t))                  \
        X(void *, memalign, (size_t, size_t)) X(int, posix_memalign, (void **, size_t, size_t))   \
        X(void *, mallocx, (size_t, int)) X(size_t, xallocx, (void *, size_t, size_t, int))       \
        X(size_t, nallocx, (size_t, int)) X(size_t, malloc_usable_size, (void *))                 \
        X(int, mallctl, (const char *, void *, size_t *, void *, size_t))                         \
        X(void *, _Znwm, (size_t)) X(void *, _ZnwmRKSt9nothrow_t, (size_t, const void *))         \
        X(void *, _ZnwmSt11align_val_t, (size_t, size_t))                                         \
        X(void *, _ZnwmSt11align_val_tRKSt9nothrow_t, (size_t, size_t, const void *))

#define POINTER(type, name, arguments) type (*name) arguments;
static struct { ALLOCATOR(POINTER) } next;
static size_t large;            /* blocks of this size and more have pages for themselves */

/* A setting of jemalloc, of `size` bytes; `otherwise` if this jemalloc does not know it. */
static int64_t setting(const char *name, size_t size, int64_t otherwise)
{
        int64_t value = 0;
        return next.mallctl(name, &value, &size, NULL, 0) ? otherwise : value;
}

/* A word for each page of a program.  NULL: the guide does nothing.
 * BYTES of the live blocks that share the page.
 * QUEUED: it has an anchor, whose turn will come.
 * DROPPING: is being dropped, by the thread that has the lock. */
#define BYTES    0x3fff
#define QUEUED   0x4000
#define DROPPING 0x8000
static _Atomic uint16_t *table;

/* Guards the queue of anchors, and is held while a page is DROPPING: also over a fork, so that a
 * child has no such page.  The allocator is never called with it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void take_lock(void) { pthread_mutex_lock(&lock); }
static void drop_lock(void) { pthread_mutex_unlock(&lock); }
static _Atomic uint16_t *word_of(uintptr_t page) { return &table[page / PAGE]; }

/* Counts a block's bytes in a page.  Acquire, with the release in dropped(): writes to the block
 * from here on come after the drop. */
static bool arrive(uintptr_t page, unsigned bytes)
{
        if (atomic_fetch_add_explicit(word_of(page), bytes, memory_order_acquire) & DROPPING) {
                take_lock();
                drop_lock();
        }
        return true;
}

/* The reverse.  Whether the page died of it and has no other anchor.  Release, with the acquire in
 * claim(): writes to the block come before the drop. */
static bool leave(uintptr_t page, unsigned bytes)
{
        uint16_t old = atomic_fetch_sub_explicit(word_of(page), bytes, memory_order_release);
        /* Relaxed: of several threads that come here for a page, one sets the bit. */
        return (old & BYTES) == bytes &&
               !(atomic_fetch_or_explicit(word_of(page), QUEUED, memory_order_relaxed) & QUEUED);
}

/* The anchor's turn has come.  Whether the page is still dead: then it is DROPPING. */
static bool claim(uintptr_t page, unsigned bytes __attribute__((unused)))
{
        uint16_t dead = QUEUED;
        bool claimed = atomic_compare_exchange_strong_explicit(
                word_of(page), &dead, DROPPING, memory_order_acquire, memory_order_relaxed);
        /* Relaxed: orders nothing.  If the page dies just now, it is not dropped this time. */
        if (!claimed)
                atomic_fetch_and_explicit(word_of(page), (uint16_t)~QUEUED, memory_order_relaxed);
        return claimed;
}

static bool dropped(uintptr_t page, unsigned bytes __attribute__((unused)))
{
        atomic_fetch_and_explicit(word_of(page), (uint16_t)~DROPPING, memory_order_release);
        return true;
}

/* A block, and pages [start, stop), first those it touches.  head, tail: its bytes in the first and
 * in the last of them, where it shares that page; else 0.  No pages where there is no table. */
struct block { void *at; size_t size; uintptr_t start, stop; unsigned head, tail; };

static struct block block_of(void *at)
{
        if (!table || !at)
                return (struct block){ .at = at };
        size_t size = next.malloc_usable_size(at);
        uintptr_t first = (uintptr_t)at, end = first + size, room = PAGE - first % PAGE;
        struct block b = { at, size, first & -PAGE, (end + PAGE - 1) & -PAGE, 0, 0 };
        if (size < large) {
                b.head = (unsigned)((room < size ? room : size) % PAGE);
                b.tail = room < size ? (unsigned)(end % PAGE) : 0;
        }
        return b;
}

/* Asks about each shared page, and leaves out those of which `holds` is false. */
static void narrow(struct block *b, bool (*holds)(uintptr_t page, unsigned bytes))
{
        if (b->head && !holds(b->start, b->head)) {
                b->start += PAGE;
                b->head = 0;
        }
        if (b->tail && !holds(b->stop - PAGE, b->tail)) {
                b->stop -= PAGE;
                b->tail = 0;
        }
}

/* The lock is held. */
static void drop(struct block b)
{
        narrow(&b, claim);
        if (b.start < b.stop)
                vmg_drop((void *)b.start, b.stop - b.start);
        narrow(&b, dropped);
}

/* Counts the block that the allocator has given; NULL: it gave none. */
static void *born(void *at)
{
        struct block b = block_of(at);
        narrow(&b, arrive);
        return at;
}

static struct block queue[64];          /* a ring of anchors, with gaps */
#define QUEUE (sizeof(queue) / sizeof(*queue))
#define LARGEST (8 * PAGE)              /* of an anchor: more could hold much of a small cache */

/* malloc(), which gives anchors again: these pages are not dropped. */
static void *get(size_t n)
{
        size_t size = table && n > PAGE / 2 && n <= LARGEST ? next.nallocx(n, 0) : 0;
        struct block b = { 0 };
        if (size) {
                take_lock();
                for (unsigned i = 0; i < QUEUE && !b.at; i++)
                        if (queue[i].size == size) {
                                b = queue[i];
                                queue[i] = (struct block){ 0 };
                        }
                narrow(&b, claim);
                narrow(&b, dropped);
                drop_lock();
        }
        return born(b.at ? b.at : next.malloc(n));
}

/* The program is done with a block. */
static void die(void *at)
{
        static unsigned turn;
        struct block b = block_of(at);
        narrow(&b, leave);
        if (b.start < b.stop) {
                take_lock();
                if (b.size <= LARGEST) {
                        struct block oldest = queue[turn];
                        queue[turn] = b;
                        turn = (turn + 1) % QUEUE;
                        b = oldest;
                }
                drop(b);
                drop_lock();
        }
        next.free(b.at);
}

/* rallocx(). */
static void *change(void *at, size_t size, int flags)
{
        size_t before = next.malloc_usable_size(at), wanted = next.nallocx(size, flags);
        uintptr_t align = (uintptr_t)1 << (flags & 63);         /* MALLOCX_LG_ALIGN */
        /* In place only large blocks change: none of their pages is counted. */
        if ((uintptr_t)at % align == 0 && next.xallocx(at, size, 0, flags) == wanted)
                return at;
        void *to = flags ? born(next.mallocx(size, flags)) : get(size);
        if (to) {
                memcpy(to, at, before < size ? before : size);
                die(at);
        }
        return to;
}

/* Begins; the text says how that ended, for the user. */
static const char *begin_work(void)
{
        Dl_info jemalloc, other;
        if (!next.mallctl || !dladdr((void *)next.mallctl, &jemalloc) ||
            (large = (size_t)setting("arenas.lextent.0.size", sizeof(size_t), 0)) == 0)
                return "the allocator is no shared jemalloc of version 5: nothing to do";
#define SAME(type, name, arguments)                                                               \
        if (next.name && (!dladdr((void *)next.name, &other) ||                                   \
                          other.dli_fbase != jemalloc.dli_fbase))                                 \
                return #name " is not jemalloc's: nothing to do";
        ALLOCATOR(SAME)
        /* Blocks of jemalloc's own, which this guide does not count, would lie among the program's
         * small ones: its profiler's, and the threads' caches, which otherwise are large. */
        if (setting("opt.prof", sizeof(bool), false) ||
            setting("opt.tcache_nslots_small_max", sizeof(unsigned), 200) < 200 ||
            setting("opt.lg_tcache_nslots_mul", sizeof(ssize_t), 1) < 1)
                return "jemalloc profiles or has small thread caches: nothing to do";
        void *room = mmap(NULL, sizeof(*table) << 35, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED || pthread_atfork(take_lock, drop_lock, drop_lock))
                return "no memory for its table: nothing to do";
        table = room;
        return "at work";
}

/* The first call may come from the dynamic linker.  dlsym() may call calloc(), and can do without
 * what it asks for.  There are no threads yet. */
__attribute__((constructor)) static void begin(void)
{
        static bool begun;
        if (begun)
                return;
        begun = true;
#define FIND(type, name, arguments) next.name = (type (*) arguments)dlsym(RTLD_NEXT, #name);
        ALLOCATOR(FIND)
        const char *what = vmg_version() ? begin_work() : NULL;
        if (what && getenv("VMRUN_GUIDE_VERBOSE"))
                dprintf(STDERR_FILENO, "guide malloc: %s\n", what);
}

#pragma GCC visibility push(default)
#define GIVES(name, as, parameters, ...)                                                          \
        void *name parameters { begin(); return next.as ? born(next.as(__VA_ARGS__)) : NULL; }
#define GIVES_NEW(nw, na, parameters, ...)                                                        \
        GIVES(nw, nw, parameters, __VA_ARGS__) GIVES(na, nw, parameters, __VA_ARGS__)
void *malloc(size_t n) { begin(); return get(n); }
GIVES(calloc, calloc, (size_t n, size_t size), n, size)
GIVES(aligned_alloc, memalign, (size_t align, size_t n), align, n)
GIVES(memalign, memalign, (size_t align, size_t n), align, n)
GIVES(valloc, memalign, (size_t n), PAGE, n)
GIVES(mallocx, mallocx, (size_t n, int flags), n, flags)
GIVES_NEW(_Znwm, _Znam, (size_t n), n)
GIVES_NEW(_ZnwmRKSt9nothrow_t, _ZnamRKSt9nothrow_t, (size_t n, const void *t), n, t)
GIVES_NEW(_ZnwmSt11align_val_t, _ZnamSt11align_val_t, (size_t n, size_t align), n, align)
GIVES_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, _ZnamSt11align_val_tRKSt9nothrow_t,
          (size_t n, size_t align, const void *t), n, align, t)

/* Sizes and the like that follow the block are not needed. */
#define TAKES(name) void name(void *at) { begin(); die(at); }
TAKES(free) TAKES(dallocx) TAKES(sdallocx) TAKES(_ZdlPv) TAKES(_ZdaPv) TAKES(_ZdlPvm)
TAKES(_ZdaPvm) TAKES(_ZdlPvRKSt9nothrow_t) TAKES(_ZdaPvRKSt9nothrow_t)
TAKES(_ZdlPvSt11align_val_t) TAKES(_ZdaPvSt11align_val_t) TAKES(_ZdlPvmSt11align_val_t)
TAKES(_ZdaPvmSt11align_val_t) TAKES(_ZdlPvSt11align_val_tRKSt9nothrow_t)
TAKES(_ZdaPvSt11align_val_tRKSt9nothrow_t)

int posix_memalign(void **at, size_t align, size_t n)
{
        begin();
        int err = next.posix_memalign(at, align, n);
        born(err ? NULL : *at);
        return err;
}

void *realloc(void *at, size_t n)
{
        begin();
        if (!table)
                return next.realloc(at, n);
        if (at && n)
                return change(at, n, 0);
        die(at);
        return at ? NULL : malloc(n);
}

void *rallocx(void *at, size_t n, int flags) { return change(at, n, flags); }
