/* What queue.c and runtime/far/direct.c refer to, and their tests do not call. */
#ifndef TEST_DIRECT_STUBS_H
#define TEST_DIRECT_STUBS_H

#include <stdlib.h>

struct leases leases;

void *pool_page(enum pool_kind kind)
{
        (void)kind;
        abort();
}
bool pt_map_window(uint64_t va, uint64_t gpa, uint64_t len)
{
        (void)va, (void)gpa, (void)len;
        abort();
}
void direct_sum_init(void) { abort(); }
unsigned far_nodes(void) { abort(); }
struct far_node *far_node_at(unsigned i)
{
        (void)i;
        abort();
}
struct far_slab *far_slab(uint32_t i)
{
        (void)i;
        abort();
}
uint64_t vm_take_gpa(struct vm *vm, uint64_t size)
{
        (void)vm, (void)size;
        abort();
}
void wait_learn(uint64_t took)
{
        (void)took;
        abort();
}
void vcpu_dump(struct thread *t)
{
        (void)t;
        abort();
}
void die_(int status, const char *fmt, ...)
{
        (void)status, (void)fmt;
        abort();
}

#endif
