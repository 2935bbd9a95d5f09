/*
 * Reads kern's table, sorts its stacks, and completes stacks that were cut off.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "profile/stacks.h"

static uint64_t number(const _Atomic uint64_t *n)
{
        return atomic_load_explicit(n, memory_order_relaxed);
}

/* ---- out of the table ---- */

static void read_addresses(struct stack *to, const struct profile_stack *from, struct code *c)
{
        uint32_t depth = atomic_load_explicit(&from->depth, memory_order_acquire);

        if (depth > PROFILE_DEPTH)
                return;
        for (uint32_t i = 0; i < depth; i++) {
                to->at[to->n++] = from->at[i];
                if (i == 0 && from->top && !(depth > 1 && from->top == from->at[1]) &&
                    code_calls(c, from->top, from->at[0]))
                        to->at[to->n++] = from->top;
        }
        to->part = from->part;
}

/* ---- callers that kern could not see ---- */

/* Address by address; a stack comes before all longer stacks that begin with it. */
static int compare(const void *a, const void *b)
{
        const struct stack *x = a, *y = b;

        for (unsigned i = 0; i < x->n && i < y->n; i++)
                if (x->at[i] != y->at[i])
                        return x->at[i] < y->at[i] ? -1 : 1;
        return (x->n > y->n) - (x->n < y->n);
}

static bool begins_with(const struct stack *s, const struct stack *with)
{
        return s->n >= with->n && memcmp(s->at, with->at, with->n * sizeof(with->at[0])) == 0;
}

/* The whole stacks that begin with the stack `at` come behind it.  Adds their further callers to
 * it, as far as all of them agree. */
static void complete(struct stack *at, const struct stack *end)
{
        const struct stack *first = NULL;
        unsigned common = 0;

        for (const struct stack *s = at + 1; s < end && begins_with(s, at); s++) {
                if (s->part)
                        continue;
                if (!first) {
                        first = s;
                        common = s->n;
                }
                for (unsigned i = at->n; i < common; i++)
                        if (s->n <= i || s->at[i] != first->at[i])
                                common = i;
        }
        for (unsigned i = at->n; i < common; i++)
                at->at[i] = first->at[i];
        if (common > at->n)
                at->n = common;
}

int stacks_read(struct stacks *s, const struct profile *p, struct code *c)
{
        s->n = 0;
        s->s = calloc(PROFILE_STACKS, sizeof(*s->s));
        if (!s->s)
                return -ENOMEM;
        for (size_t i = 0; i < PROFILE_STACKS; i++) {
                const struct profile_stack *from = &p->stack[i];
                if (!number(&from->key) || !number(&from->faults))
                        continue;
                struct stack *to = &s->s[s->n++];
                *to = (struct stack){ .faults = number(&from->faults), .late = number(&from->late),
                                      .ticks = number(&from->ticks),
                                      .touched = number(&from->touched) };
                read_addresses(to, from, c);
        }
        qsort(s->s, s->n, sizeof(*s->s), compare);
        for (size_t i = 0; i < s->n; i++)
                if (s->s[i].part && s->s[i].n)
                        complete(&s->s[i], s->s + s->n);
        return 0;
}
