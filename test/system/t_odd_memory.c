/*
 * t_odd: calls of memory.
 *
 * Before each case the window has the mappings of `layout` again, each of its pages with a number
 * as its first byte. After it, a line tells the mappings there, and the numbers. So one call is
 * all that may cut or merge mappings: how far Linux merges them is not the subject.
 *
 * Not drawn, because the answer depends on the kernel's configuration or version, or because vmrun
 * is known to differ:
 *   MAP_HUGETLB without a file     the system's pool of huge pages
 *   MAP_DROPPABLE                  since Linux 6.11
 *   MAP_FIXED of what only the file's own code refuses (sockets, MAP_SYNC)     Linux has then
 *                                  unmapped what was there, vmrun has not
 *   MAP_FIXED below vm.mmap_min_addr       vmrun: EPERM for root too
 *   MAP_FIXED at -1                Linux takes the address for an error, in some files
 *   MADV_HUGEPAGE, MADV_MERGEABLE and their opposites      CONFIG_TRANSPARENT_HUGEPAGE, CONFIG_KSM
 *   MADV_REMOVE                    of a shared mapping vmrun has EOPNOTSUPP
 *   MADV_COLLAPSE, MADV_GUARD_*    since Linux 6.1 and 6.13; vmrun has EINVAL
 *   MADV_POPULATE_*                over holes, other before Linux 6.8
 *   MADV_HWPOISON, MADV_SOFT_OFFLINE       harm the machine
 *   MREMAP_DONTUNMAP of a shared mapping   vmrun has EINVAL, as before Linux 5.13
 *   mremap of several mappings, or to a length beyond user space       other before Linux 6.17
 *   mlockall of what is mapped     vmrun locks half of the cache at most
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "t_odd.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define PG 4096ul
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define LOW_END (16 * PG + PAGES * PG)  /* below, only this program maps, where it may */

enum { FD_FILE = 10, FD_READ, FD_WRITE, FD_PATH, FD_DIR, FD_PIPE, FD_SOCKET, FD_ZERO, FD_NONE };
#define FILE_PAGES 6ul

static const struct { uint8_t first, n; int prot, flags, fd; uint8_t off; } layout[] = {
        { 0, 4, RW, ANON, -1, 0 },
        { 6, 3, PROT_READ, ANON, -1, 0 },
        { 9, 3, PROT_NONE, ANON, -1, 0 },
        { 12, 4, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0 },
        { 16, 4, RW, MAP_PRIVATE, FD_FILE, 1 },
        { 20, 2, PROT_READ, MAP_PRIVATE, FD_READ, 5 },  /* one page behind its end */
        { 22, 4, RW, MAP_SHARED, FD_FILE, 0 },
        { 26, 2, PROT_READ, MAP_SHARED, FD_READ, 2 },
        { 28, 3, PROT_READ | PROT_EXEC, ANON, -1, 0 },
        { 34, 2, RW, ANON | MAP_GROWSDOWN, -1, 0 },
        { 36, 3, RW, ANON | MAP_NORESERVE, -1, 0 },
};

static uint8_t vector[PAGES + 1];       /* mincore's answer */
static uint64_t heap;                   /* where the break was */

/* --- the window --- */

static void lay_out(void)
{
        munmap(WINDOW, PAGES * PG);
        for (size_t i = 0; i < COUNT(layout); i++) {
                char *at = WINDOW + layout[i].first * PG;
                if (mmap(at, layout[i].n * PG, layout[i].prot, layout[i].flags | MAP_FIXED,
                         layout[i].fd, (off_t)(layout[i].off * PG)) != at) {
                        perror("the mappings before a case");
                        exit(2);
                }
                for (unsigned p = 0; layout[i].prot & PROT_WRITE && p < layout[i].n; p++)
                        at[p * PG] = (char)(layout[i].first + p + 1);
        }
}

static sigjmp_buf beyond;
static void no_page(int sig) { siglongjmp(beyond, sig); }

/* The first byte of each page that may be read; nothing behind the end of a file. */
static void say_content(uint64_t from, uint64_t to)
{
        for (volatile uint64_t at = from; at < to; at += PG)
                if (sigsetjmp(beyond, 1) == 0)
                        printf(",%u", *(volatile uint8_t *)at);
                else
                        printf(",-");
}

/* The mappings from `from` to `to`. Neighbours that are alike are one: see above. */
static void say_mappings(uint64_t from, uint64_t to, bool content)
{
        static char text[1 << 16];
        int fd = open("/proc/self/maps", O_RDONLY);
        ssize_t n = 0, got;
        uint64_t start, end;
        char prot[5];

        while ((got = read(fd, text + n, sizeof(text) - 1 - (size_t)n)) > 0)
                n += got;
        close(fd);
        text[n] = 0;
        for (char *p = text; p && sscanf(p, "%lx-%lx %4s", &start, &end, prot) == 3;) {
                if (start < to && end > from)
                        for (uint64_t at = start > from ? start : from; at < end && at < to;
                             at += PG) {
                                printf(" %lu%s", (at - from) / PG, prot);
                                if (content && prot[0] == 'r')
                                        say_content(at, at + PG);
                        }
                p = strchr(p, '\n');
                p = p ? p + 1 : NULL;
        }
}

/* --- arguments --- */

static uint64_t some_address(void)
{
        /* Just below the end of user space may be the stack. */
        static const uint64_t odd[] = { 0, 1, PG, 16 * PG, USER_END, USER_END + PG, 1ul << 47,
                                        1ul << 63, -PG, -1ul, 0x1234567812345678,
                                        0xffff888000000000 };
        static const uint64_t within[] = { 1, 0x800, PG - 1 };
        uint64_t page = (uint64_t)WINDOW + draw(PAGES) * PG;

        switch (draw(8)) {
        case 0:  return ONE_OF(odd);
        case 1:  return page + ONE_OF(within);
        case 2:  return (uint64_t)WINDOW + layout[draw(COUNT(layout))].first * PG;
        default: return page;
        }
}

/* Of a range at addr. A length that is valid, but longer than the window, is not drawn. */
static uint64_t some_length(uint64_t addr)
{
        static const uint64_t odd[] = { 0, 1, PG - 1, PG + 1, 3 * PG + 1, PAGES * PG, -1ul, -PG,
                                        -PG + 1, 1ul << 63, (1ul << 63) - PG, USER_END,
                                        USER_END + 1, 1ul << 47, 1ul << 32 };
        uint64_t len = 1 + draw(8);

        switch (draw(6)) {
        case 0:  len = ONE_OF(odd); break;
        case 1:  len = -addr + draw(3) * PG - PG; break;        /* wraps, or nearly */
        default: len *= PG;
        }
        return len > PAGES * PG && len <= USER_END ? PAGES * PG : len;
}

/* Each bit of an int, now and then; the upper half of the register does not count. */
static uint64_t some_flags(const uint32_t *bits, size_t n)
{
        uint64_t flags = 0;

        for (size_t i = 0; i < n; i++)
                flags |= draw(5) == 0 ? bits[i] : 0;
        return flags | (draw(16) == 0 ? 1ul << 32 : 0);
}

static uint64_t some_prot(void)
{
        static const uint64_t odd[] = { 8, 0x10, 0x100, PROT_GROWSDOWN, PROT_GROWSUP,
                                        PROT_GROWSDOWN | PROT_GROWSUP, 1ul << 31, 1ul << 32 };
        return draw(8) | (draw(5) ? 0 : ONE_OF(odd));
}

/* --- calls --- */

struct memory_call {
        const char *name;
        int nr, args;
        void (*arguments)(uint64_t a[6]);
};

static void a_mmap(uint64_t a[6])
{
        static const uint32_t bits[] = { MAP_FIXED, MAP_GROWSDOWN, MAP_DENYWRITE, MAP_EXECUTABLE,
                                         MAP_LOCKED, MAP_NORESERVE, MAP_POPULATE, MAP_NONBLOCK,
                                         MAP_STACK, MAP_SYNC, MAP_FIXED_NOREPLACE, 0x4000000,
                                         MAP_32BIT, 0x400, 1u << 31 };
        static const uint64_t offsets[] = { 0, PG, 1, 3 * PG, -PG, 1ul << 63, (1ul << 63) - PG,
                                            (1ul << 62) + PG, 0x7fffffffff000 };

        a[3] = draw(4) ? 1 + draw(2) : draw(8);
        a[3] |= draw(3) ? MAP_FIXED : 0;
        a[3] |= draw(3) ? some_flags(bits, COUNT(bits)) : 0;
        a[3] |= draw(2) ? MAP_ANONYMOUS : draw(12) ? 0 : MAP_HUGETLB;
        a[4] = draw(8) ? FD_FILE + draw(FD_NONE + 1 - FD_FILE) : draw(2) ? -1ul : 1000000;
        a[5] = draw(3) ? draw(4) * PG : ONE_OF(offsets);
        a[2] = some_prot();
        if ((!(a[3] & MAP_ANONYMOUS) && (a[4] == FD_SOCKET || (a[3] & MAP_SYNC))) ||
            a[0] < LOW_END || a[0] == -1ul)
                a[3] &= ~(uint64_t)(MAP_FIXED | MAP_FIXED_NOREPLACE);
}

/* Linux before 6.17 has other answers to a move of several mappings, and to several errors at once.
 * So the old range of a move lies in one mapping. */
static void a_mremap(uint64_t a[6])
{
        static const uint32_t bits[] = { MREMAP_FIXED, MREMAP_DONTUNMAP, 8, 1u << 31 };
        size_t i = draw(COUNT(layout)), page = draw(layout[i].n);

        a[2] = draw(4) ? (1 + draw(8)) * PG : some_length(a[0]);
        if (a[2] > USER_END)
                a[2] = 0;
        a[3] = (draw(4) ? MREMAP_MAYMOVE : 0) | some_flags(bits, COUNT(bits));
        a[4] = some_address();
        if (a[4] < LOW_END)
                a[4] = (uint64_t)WINDOW;
        if (layout[i].flags & MAP_SHARED)
                a[3] &= ~(uint64_t)MREMAP_DONTUNMAP;
        if (a[3] & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
                a[0] = (uint64_t)WINDOW + (layout[i].first + page) * PG;
                a[1] = (1 + draw(layout[i].n - page)) * PG;
                if (draw(3) == 0)
                        a[2] = a[1];
        }
}

static void a_madvise(uint64_t a[6])
{
        static const uint64_t advices[] = { 0, 1, 2, 3, 4, 8, 10, 11, 16, 17, 18, 19, 20, 21, 24, 5,
                                            6, 7, 26, 99, 104, 1000, -1ul, (1ul << 32) + 4 };
        a[2] = ONE_OF(advices);
        /* Holes do not stop it: it would give the stack away. */
        if (a[1] > PAGES * PG && a[0] + a[1] >= a[0])
                a[1] = PAGES * PG;
}

static void a_mprotect(uint64_t a[6]) { a[2] = some_prot(); }

static void a_msync(uint64_t a[6])
{
        static const uint32_t bits[] = { MS_ASYNC, MS_INVALIDATE, MS_SYNC, 8, 1u << 31 };
        a[2] = some_flags(bits, COUNT(bits));
}

static void a_mincore(uint64_t a[6])
{
        const uint64_t to[] = { (uint64_t)vector, (uint64_t)vector, 0, USER_END, -1ul, 1ul << 63,
                                (uint64_t)WINDOW + 4 * PG - 1, (uint64_t)WINDOW + 6 * PG,
                                (uint64_t)WINDOW + 5 * PG };
        a[2] = ONE_OF(to);
}

static void a_mlock2(uint64_t a[6])
{
        static const uint32_t bits[] = { 1 /* MLOCK_ONFAULT */, 2, 1u << 31 };
        a[2] = some_flags(bits, COUNT(bits));
}

static void a_mlockall(uint64_t a[6])
{
        static const uint64_t flags[] = { 0, MCL_ONFAULT, 8, 16, MCL_CURRENT | 8, -1ul, 1ul << 32,
                                          MCL_FUTURE | 8, (1ul << 32) | MCL_ONFAULT };
        a[0] = ONE_OF(flags);
}

static void a_brk(uint64_t a[6])
{
        if (draw(3) == 0)
                a[0] = heap + draw(3 * PG);
}

static void no_more(uint64_t a[6]) { (void)a; }

static const struct memory_call calls[] = {
        { "mmap", SYS_mmap, 6, a_mmap },
        { "mmap", SYS_mmap, 6, a_mmap },
        { "mremap", SYS_mremap, 5, a_mremap },
        { "mremap", SYS_mremap, 5, a_mremap },
        { "madvise", SYS_madvise, 3, a_madvise },
        { "mprotect", SYS_mprotect, 3, a_mprotect },
        { "munmap", SYS_munmap, 2, no_more },
        { "msync", SYS_msync, 3, a_msync },
        { "mincore", SYS_mincore, 3, a_mincore },
        { "mlock", SYS_mlock, 2, no_more },
        { "mlock2", SYS_mlock2, 3, a_mlock2 },
        { "munlock", SYS_munlock, 2, no_more },
        { "mlockall", SYS_mlockall, 1, a_mlockall },
        { "brk", SYS_brk, 1, a_brk },
        { "shmdt", SYS_shmdt, 1, no_more },
};

/* An address that does not depend on where the system put this program. */
static void say_address(uint64_t at)
{
        if (at - (uint64_t)vector < sizeof(vector))
                printf("vector");
        else if (heap && at - heap < 4 * PG)
                printf("heap+%#lx", at - heap);
        else if (at - (uint64_t)WINDOW < 2 * PAGES * PG)
                printf("%lu:%lx", (at - (uint64_t)WINDOW) / PG, at % PG);
        else
                printf("%#lx", at);
}

/* Describes a mapping at an address that mmap or mremap chose, and removes it. */
static void say_elsewhere(uint64_t at, uint64_t len)
{
        printf(" elsewhere%s:", at < 1ul << 32 ? " below 4G" : "");
        say_mappings(at, at + ((len + PG - 1) & -PG), false);
        munmap((void *)at, len);
}

void memory_case(void)
{
        const struct memory_call *c = &ONE_OF(calls);
        uint64_t a[6] = { some_address() };

        lay_out();
        a[1] = some_length(a[0]);
        c->arguments(a);
        printf("%s(", c->name);
        for (int i = 0; i < c->args; i++) {
                printf("%s", i ? ", " : "");
                say_address(a[i]);
        }
        printf(") = ");
        fflush(stdout);                 /* for a call that ends the process */
        errno = 0;
        uint64_t result = (uint64_t)syscall(c->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        uint64_t len = c->nr == SYS_mmap ? a[1] : a[2];
        bool places = c->nr == SYS_mmap || c->nr == SYS_mremap;
        if (result == -1ul && errno)
                printf("%s", strerrorname_np(errno));
        else if (places && result >= LOW_END && result - (uint64_t)WINDOW >= PAGES * PG)
                say_elsewhere(result, len);
        else
                say_address(result);
        printf(";");
        /* Of pages that MADV_FREE has given up, Linux takes the content when it needs memory. */
        bool content = c->nr != SYS_madvise || (int)a[2] != MADV_FREE;
        say_mappings((uint64_t)WINDOW, (uint64_t)WINDOW + PAGES * PG, content);
        say_mappings(0, LOW_END, false);
        munmap(NULL, LOW_END);
        if (c->nr == SYS_brk)
                syscall(SYS_brk, heap);
        printf("\n");
}

static void keep(int fd, int number)
{
        if (fd != number && (dup2(fd, number) != number || close(fd) != 0)) {
                perror("t_odd: a descriptor");
                exit(2);
        }
}

void memory_begin(void)
{
        static char page[PG];
        const char *name = "t_odd.tmp";
        int ends[2];

        heap = (uint64_t)syscall(SYS_brk, 0);
        keep(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), FD_FILE);
        for (uint64_t p = 0; p < FILE_PAGES; p++) {
                page[0] = (char)(100 + p);
                if (write(FD_FILE, page, PG) != (ssize_t)PG)
                        exit(2);
        }
        keep(open(name, O_RDONLY), FD_READ);
        keep(open(name, O_WRONLY), FD_WRITE);
        keep(open(name, O_PATH), FD_PATH);
        keep(open(".", O_RDONLY | O_DIRECTORY), FD_DIR);
        unlink(name);
        if (pipe(ends) != 0)
                exit(2);
        keep(ends[0], FD_PIPE);
        keep(socket(AF_UNIX, SOCK_STREAM, 0), FD_SOCKET);
        keep(open("/dev/zero", O_RDWR), FD_ZERO);
        close(ends[1]);
        signal(SIGBUS, no_page);
}
