/*
 * What the VMA tests put in place of the rest of kern: a host that maps files, page tables of
 * ENV_PAGES pages from ENV_BASE, and the protocol checks that every fake makes of its caller.
 */
#ifndef VMA_ENV_H
#define VMA_ENV_H

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/kern.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/print.h"
#include "base/state.h"
#include "mm/brk.h"
#include "mm/calls.h"
#include "mm/cut.h"
#include "mm/map.h"
#include "paging/access.h"
#include "paging/fault.h"
#include "paging/file.h"
#include "space/account.h"
#include "space/grow.h"
#include "space/pt.h"
#include "space/range.h"

#define ENV_BASE  0x200000000000ull
#define ENV_PAGES 128
#define ENV_END   (ENV_BASE + ENV_PAGES * PAGE_SIZE)
#define ENV_ADDR(page) (ENV_BASE + (uint64_t)(page) * PAGE_SIZE)

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ENV_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define ENV_TSAN 1
#endif
#ifndef ENV_TSAN
#define ENV_TSAN 0
#endif

/* fds the fake host knows; file id = fd.  FD_HUGE has pages of HUGE_PAGES pages. */
enum { FD_RW = 5, FD_RO = 6, FD_HUGE = 8, FD_LAST };
enum { HUGE_ORDER = 2, HUGE_PAGES = 1 << HUGE_ORDER };
/* Other file ids: of anonymous shared memory, and of the segment it knows. */
enum { ANON_SHARED = 100, FD_SEGMENT };
enum { SHMID = 7, SEGMENT_PAGES = 6 };

struct env_page { bool there, charged, locked; pte_t prot; uint64_t tag; };
extern struct env_page env_page[ENV_PAGES];

void env_init(void);                    /* an empty address space under the limits of CONTROL */
void env_reset(void);                   /* an empty address space, generous limits */
int64_t env_refs(void);                 /* file references and arena pages that are out */
uint64_t env_pages_there(void);

/* Fails the test with a text, without cmocka's one-line macros hiding where. */
#define CHECK(cond) do { if (!(cond)) env_fail(__FILE__, __LINE__, #cond); } while (0)
_Noreturn void env_fail(const char *file, int line, const char *what);

extern uint64_t env_seed;
extern bool env_move_fails;             /* pt_move() finds no memory now and then */
uint64_t env_random(uint64_t below);

static inline long call_mmap(uint64_t addr, uint64_t len, uint64_t prot, uint64_t flags, int fd,
                             uint64_t off)
{
        return sys_mmap((uint64_t[6]){ addr, len, prot, flags, (uint64_t)(int64_t)fd, off });
}
#define CALL(name, ...) sys_##name((uint64_t[6]){ __VA_ARGS__ })

/* vma_model.c, vma_native.c */
void test_model(void **state);
void test_native(void **state);

#endif
