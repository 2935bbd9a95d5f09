/*
 * A node that moves nothing: each transfer is over as soon as the driver is asked for news.  What a
 * page fetch costs beside it is vmrun's own.  The module takes the place of far-nbd.so, with the
 * scheme nbd+unix; the pages of a program must all be the same, since a read leaves in the frame
 * what was there (touch --same).
 */
#include <errno.h>
#include <stdio.h>
#include "far/far.h"
#include "far/sum.h"

static struct far_request *posted;      /* of the one node; the I/O thread's */

static int null_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        (void)rest;
        (void)why;
        n->pages = 1ull << 20;
        n->fences = true;
        return 0;
}

static int null_lease(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages,
                      struct slab *s, struct far_place *place)
{
        (void)n;
        (void)vm;
        (void)first;
        (void)pages;
        (void)s;
        (void)place;
        return 0;
}

static void null_close(struct far_node *n) { (void)n; }

static void null_describe(const struct far_node *n, char *text, size_t size)
{
        snprintf(text, size, "%s: nothing", n->url);
}

static int null_attach(struct far_node *n, char *base, size_t len, char why[FAR_WHY])
{
        (void)n;
        (void)base;
        (void)len;
        (void)why;
        return 0;
}

static unsigned null_post(struct far_node *n, struct far_request **r, unsigned count)
{
        (void)n;
        for (unsigned i = 0; i < count; i++) {
                r[i]->next = posted;
                posted = r[i];
        }
        return count;
}

static unsigned null_poll(struct far_node *n)
{
        struct far_request *r = posted, *next;
        unsigned done = 0;

        (void)n;
        for (posted = NULL; r; r = next, done++) {
                next = r->next;
                far_done(r);
        }
        return done;
}

static int null_arm(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms)
{
        (void)n;
        (void)fds;
        (void)max;
        (void)timeout_ms;
        return posted ? -EAGAIN : 0;
}

static const struct far_driver null = {
        .scheme = "nbd+unix", .kind = SLAB_REMOTE, .open = null_open, .lease = null_lease,
        .close = null_close, .describe = null_describe, .attach = null_attach, .post = null_post,
        .poll = null_poll, .arm = null_arm, .spin_us = 50, .sum = far_sum,
};

extern const struct far_driver *const far_module[];
const struct far_driver *const far_module[] = { &null, NULL };
