/*
 * Puts a scheduling point before and after every atomic operation of the code that is compiled
 * after this header, and lets weak compare-and-swaps fail for no reason. test_pager_model.c
 * includes the pager's sources below it.
 */
#ifndef TEST_PAGER_HOOKS_H
#define TEST_PAGER_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>

void point(void);               /* another actor may run here */
bool spurious(void);            /* shall this weak compare-and-swap fail? */

#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or
#undef atomic_fetch_and
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_weak_explicit

/* One thread runs everything, so the memory order does not matter (test_pager_race.c checks it). */
#define PLAIN(p) _Generic((p),                                                           \
        _Atomic uint64_t *: (uint64_t *)(p), const _Atomic uint64_t *: (uint64_t *)(p),  \
        _Atomic int64_t *: (int64_t *)(p), const _Atomic int64_t *: (int64_t *)(p),      \
        _Atomic uint32_t *: (uint32_t *)(p), const _Atomic uint32_t *: (uint32_t *)(p),  \
        _Atomic uint16_t *: (uint16_t *)(p), const _Atomic uint16_t *: (uint16_t *)(p),  \
        _Atomic uint8_t *: (uint8_t *)(p), const _Atomic uint8_t *: (uint8_t *)(p),      \
        _Atomic bool *: (bool *)(p), const _Atomic bool *: (bool *)(p),                  \
        default: (void **)(p))
#define HOOKED(op) ({ point(); __auto_type result_ = (op); point(); result_; })
#define atomic_load(p)             HOOKED(__atomic_load_n(PLAIN(p), __ATOMIC_SEQ_CST))
#define atomic_load_explicit(p, o) atomic_load(p)
#define atomic_store(p, v)                                                               \
        ({ point(); __atomic_store_n(PLAIN(p), v, __ATOMIC_SEQ_CST); point(); })
#define atomic_store_explicit(p, v, o) atomic_store(p, v)
#define atomic_exchange(p, v)      HOOKED(__atomic_exchange_n(PLAIN(p), v, __ATOMIC_SEQ_CST))
#define atomic_exchange_explicit(p, v, o) atomic_exchange(p, v)
#define atomic_fetch_add(p, v)     HOOKED(__atomic_fetch_add(PLAIN(p), v, __ATOMIC_SEQ_CST))
#define atomic_fetch_add_explicit(p, v, o) atomic_fetch_add(p, v)
#define atomic_fetch_sub(p, v)     HOOKED(__atomic_fetch_sub(PLAIN(p), v, __ATOMIC_SEQ_CST))
#define atomic_fetch_sub_explicit(p, v, o) atomic_fetch_sub(p, v)
#define atomic_fetch_or(p, v)      HOOKED(__atomic_fetch_or(PLAIN(p), v, __ATOMIC_SEQ_CST))
#define atomic_fetch_and(p, v)     HOOKED(__atomic_fetch_and(PLAIN(p), v, __ATOMIC_SEQ_CST))

#define atomic_compare_exchange_strong(p, e, v)                                          \
        HOOKED(__atomic_compare_exchange_n(PLAIN(p), e, v, false, __ATOMIC_SEQ_CST,      \
                                           __ATOMIC_SEQ_CST))
#define atomic_compare_exchange_strong_explicit(p, e, v, o, f)                           \
        atomic_compare_exchange_strong(p, e, v)
#define atomic_compare_exchange_weak(p, e, v)                                            \
        HOOKED(spurious() ? (*(e) = __atomic_load_n(PLAIN(p), __ATOMIC_SEQ_CST), false)  \
                          : __atomic_compare_exchange_n(PLAIN(p), e, v, false,           \
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
#define atomic_compare_exchange_weak_explicit(p, e, v, o, f) atomic_compare_exchange_weak(p, e, v)

#endif
