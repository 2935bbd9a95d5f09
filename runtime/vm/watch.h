/*
 * A time limit for kern: how long a signal may wait until kern lets it through to the program.
 */
#ifndef VMRUN_WATCH_H
#define VMRUN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct thread;

/* The limit, longer than anything kern does without bringing in a page: a silent node's --timeout,
 * and a minute. */
uint64_t watch_limit_ms(void);

/* Pages that kern has brought in for t's program so far.  One call may take hours (mlock), but this
 * count grows meanwhile.  It does not grow if kern finds one page resident again and again. */
uint64_t watch_work(const struct thread *t);

/* From now on KVM_RUN of this thread is interrupted once a second.  No effect if a watch has begun
 * already. */
void watch_begin(struct thread *t);
/* A look: has the thread waited for longer than the limit, without any work done? Only between
 * watch_begin and watch_end. */
bool watch_is_over(struct thread *t);
void watch_end(struct thread *t);

#endif
