/*
 * A bound for kern: it has so long to let the program have a signal (watch.c).
 */
#ifndef VMRUN_WATCH_H
#define VMRUN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct thread;

/* Longer than anything kern does without bringing a page: a silent node's --timeout, and a
 * minute. */
uint64_t watch_limit_ms(void);

/* Pages that kern has brought for t's program so far.  It may be at one call for hours (mlock), but
 * this grows meanwhile; not so where it finds a page resident again and again. */
uint64_t watch_work(const struct thread *t);

/* From now on KVM_RUN of this thread is interrupted once a second.  No effect if that is so
 * already. */
void watch_begin(struct thread *t);
/* A look: has the thread waited for longer than the limit, without any work done? Only between
 * watch_begin and watch_end. */
bool watch_is_over(struct thread *t);
void watch_end(struct thread *t);

#endif
