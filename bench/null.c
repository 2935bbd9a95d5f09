/*
 * A node that moves nothing: each transfer is over as soon as the driver is asked for news.  What a
 * page fetch costs beside it is vmrun's own.  The module takes the place of far-nbd.so, with the
 * scheme nbd+unix; the pages of a program must all be alike (touch --same), so that a read finds
 * its page in the frame.  Where that is not so (a frame that was a page table before, a page that
 * left while it was being filled), the page is copied.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "far/node.h"
#include "far/sum.h"

#define NULL_PAGES (1ull << 20)
#define WORDS      (PAGE_SIZE / sizeof(uint64_t))

static struct far_request *posted;      /* of the one node; the I/O thread's */
static uint64_t same[WORDS];            /* what all pages hold: the first whole one written */
static char *unlike;                    /* NULL_PAGES of them, for those that hold something else */
static bool is_unlike[NULL_PAGES];

static bool looks_same(const uint64_t *page)
{
        return page[0] == same[0] && page[WORDS - 1] == same[WORDS - 1];
}

static int null_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        (void)rest;
        (void)why;
        n->pages = NULL_PAGES;
        n->unit = 1;
        n->fences = true;
        unlike = mmap(NULL, NULL_PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return unlike == MAP_FAILED ? -errno : 0;
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

static void write_page(uint64_t page, const uint64_t *frame)
{
        if (!same[WORDS - 1])
                memcpy(same, frame, PAGE_SIZE);
        is_unlike[page] = !looks_same(frame);
        if (is_unlike[page])
                memcpy(unlike + page * PAGE_SIZE, frame, PAGE_SIZE);
}

static void read_page(uint64_t page, uint64_t *frame)
{
        if (is_unlike[page])
                memcpy(frame, unlike + page * PAGE_SIZE, PAGE_SIZE);
        else if (!looks_same(frame))
                memcpy(frame, same, PAGE_SIZE);
}

static unsigned null_post(struct far_node *n, struct far_request **r, unsigned count)
{
        (void)n;
        for (unsigned i = 0; i < count; i++) {
                uint64_t page = r[i]->place->first + r[i]->page;
                if (r[i]->op == FAR_WRITE)
                        write_page(page, (const uint64_t *)r[i]->frame);
                else
                        read_page(page, (uint64_t *)r[i]->frame);
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
