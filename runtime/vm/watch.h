/*
 * A bound for kern: it has so long to let the program have a signal (watch.c).
 */
#ifndef VMRUN_WATCH_H
#define VMRUN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct thread;

/* Longer than anything kern does for one system call or fault: a silent node's --timeout, and a
 * minute. */
uint64_t watch_limit_ms(void);

/* From now on KVM_RUN of this thread is interrupted once a second.  No effect if that is so
 * already. */
void watch_begin(struct thread *t);
/* Has it been so for longer than the limit?  Only between watch_begin and watch_end. */
bool watch_is_over(const struct thread *t);
void watch_end(struct thread *t);

#endif
