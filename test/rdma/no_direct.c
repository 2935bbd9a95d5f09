/* For programs that have the driver alone: its node has no queues that kern drives by itself. */
#include <stdlib.h>
#include "far/direct.h"
#include "far/io.h"
#include "vm/kvm.h"

bool direct_slabs(struct far_node *n, uint32_t epoch, direct_where *where)
{
        (void)n, (void)epoch, (void)where;
        abort();
}
void direct_up(struct direct_queue *q)
{
        (void)q;
        abort();
}
bool direct_take(struct direct_queue *q, unsigned limit_ms)
{
        (void)q, (void)limit_ms;
        abort();
}
void direct_release(struct far_direct *d, struct direct_queue *q)
{
        (void)d;
        direct_up(q);
}
void direct_learn(struct far_direct *d) { direct_up(d->queue[0]); }
uint64_t direct_reads(const struct far_node *n)
{
        (void)n;
        abort();
}
int vm_replace_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size)
{
        (void)vm, (void)gpa, (void)host, (void)size;
        abort();
}
