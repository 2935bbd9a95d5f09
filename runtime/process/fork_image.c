/*
 * The image of a program for its child: taken in the parent, put into the new VM.
 * See fork_image.h.
 *
 * A page whose content does not follow from its VMA is passed to the child in one of two ways.  By
 * its slot: it is in a slot already, or is written to one now, and parent and child share the slot.
 * By its content, in a buffer that the host's fork() copies: the first few dirty pages, because a
 * small program then needs no far memory at all; and pages that cannot be written, because they are
 * pinned or the far tiers are full.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "far/tree.h"
#include "guest_ram.h"
#include "memory/arena.h"
#include "memory/files.h"
#include "pager/pte.h"
#include "process/fork_image.h"
#include "vm/xstate.h"

/* Dirty pages that are passed by content instead of being written: 2 MiB, or a quarter of the
 * cache. */
#define COPIES 512

static uint64_t lower(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The content of the frame that an entry names. */
static void *content_of(pte_t pte) { return window_va(pte & PTE_NUM); }

static bool by_content(const struct fork_page *p) { return pte_kind(p->pte) != PTE_REMOTE; }

/* ---- the parent ---- */

static int take_state(struct fork_image *im, struct thread *t)
{
        im->control = malloc(offsetof(struct control, slabs));
        im->xstate = xstate_keep(t);
        if (!im->control || !im->xstate)
                return -ENOMEM;
        memcpy(im->control, CONTROL, offsetof(struct control, slabs));
        im->regs = t->v->regs;
        int64_t err = thread_upcall(t, UPCALL_FORK_STATE, 0, 0, 0);
        if (!err)
                memcpy(&im->state, vcpu_xfer(t->v), sizeof(im->state));
        return (int)err;
}

static int take_vmas(struct fork_image *im, struct thread *t)
{
        uint64_t above = 0;
        int64_t n;

        do {
                n = thread_upcall(t, UPCALL_FORK_VMAS, above, 0, 0);
                if (n <= 0)
                        break;
                struct fork_vma *more = realloc(im->vma, (im->nvmas + (size_t)n) * sizeof(*more));
                if (!more)
                        return -ENOMEM;
                im->vma = more;
                memcpy(im->vma + im->nvmas, vcpu_xfer(t->v), (size_t)n * sizeof(*more));
                im->nvmas += (size_t)n;
                above = im->vma[im->nvmas - 1].end;
        } while (n == FORK_VMAS_MAX);
        return (int)n < 0 ? (int)n : 0;
}

static int share(struct tree *tree, const struct tree_child *child, const struct fork_page *p,
                 size_t n)
{
        uint64_t slot[FORK_PAGES_MAX];
        size_t k = 0;

        for (size_t i = 0; i < n; i++)
                if (!by_content(&p[i]))
                        slot[k++] = pte_slot(p[i].pte);
        return tree_share(tree, child->number, slot, k);
}

static void take_content(struct fork_image *im, const struct fork_page *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (by_content(&p[i]))
                        memcpy(im->content + PAGE_SIZE * im->ncontent++, content_of(p[i].pte),
                               PAGE_SIZE);
}

static bool make_room(struct fork_image *im)
{
        if (im->page_room - im->npages >= FORK_PAGES_MAX)
                return true;
        size_t room = im->page_room ? 2 * im->page_room : 2 * FORK_PAGES_MAX;
        struct fork_page *p = realloc(im->page, room * sizeof(*p));
        if (!p)
                return false;
        im->page = p;
        im->page_room = room;
        return true;
}

static int take_pages(struct fork_image *im, struct thread *t, struct tree *tree,
                      const struct tree_child *child)
{
        uint64_t few = lower(COPIES, CONTROL->nframes / 4), from = 0;
        int64_t n;

        /* The child needs a frame for each of these pages before it can write any out. */
        im->content_max = CONTROL->nframes / 2;
        im->content = mmap(NULL, im->content_max * PAGE_SIZE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (im->content == MAP_FAILED)
                return im->content = NULL, -ENOMEM;
        /* normally few: a huge page takes longer to clear */
        madvise(im->content, im->content_max * PAGE_SIZE, MADV_NOHUGEPAGE);
        do {
                if (!make_room(im))
                        return -ENOMEM;
                n = thread_upcall(t, UPCALL_FORK_PAGES, from,
                                  few > im->ncontent ? few - im->ncontent : 0,
                                  im->content_max - im->ncontent);
                if (n < 0 || n > (int64_t)FORK_PAGES_MAX)
                        return n < 0 ? (int)n : -EIO;
                struct fork_page *p = im->page + im->npages;
                memcpy(p, vcpu_xfer(t->v), (size_t)n * sizeof(*p));
                take_content(im, p, (size_t)n);
                int err = share(tree, child, p, (size_t)n);
                if (err)
                        return err;
                im->npages += (size_t)n;
                from = n ? p[n - 1].addr + PAGE_SIZE : 0;
        } while (n == FORK_PAGES_MAX);
        return 0;
}

int fork_image_take(struct fork_image *im, struct thread *t, struct tree *tree,
                    const struct tree_child *child)
{
        *im = (struct fork_image){ 0 };
        int err = take_state(im, t);
        if (!err)
                err = take_vmas(im, t);
        if (!err)
                err = take_pages(im, t, tree, child);
        return err;
}

/* ---- the child ---- */

/* Drops a VMA with MADV_DONTFORK: its references came along with the registry of files, and its
 * mappings with the host's fork(). */
static int drop(const struct fork_vma *v)
{
        if (v->flags & MAP_SHARED)
                return arena_unmap(v->gpa, v->end - v->start, files_unmapped);
        return v->file != FILE_NONE ? files_ref(v->file, -1) : 0;
}

static int put_vmas(const struct fork_image *im, struct thread *t)
{
        struct fork_vma *xfer = vcpu_xfer(t->v);
        int64_t err = 0;

        for (size_t i = 0; !err && i < im->nvmas; ) {
                uint64_t n = 0;
                for (; !err && i < im->nvmas && n < FORK_VMAS_MAX; i++)
                        if (im->vma[i].dropped)
                                err = drop(&im->vma[i]);
                        else
                                xfer[n++] = im->vma[i];
                if (!err && n)
                        err = thread_upcall(t, UPCALL_ADOPT_VMAS, n, 0, 0);
        }
        return (int)err;
}

static int put_pages(const struct fork_image *im, struct thread *t)
{
        struct fork_page *xfer = vcpu_xfer(t->v);
        const char *content = im->content;

        for (size_t i = 0; i < im->npages; ) {
                size_t n = lower(im->npages - i, FORK_PAGES_MAX);
                memcpy(xfer, im->page + i, n * sizeof(*xfer));
                int64_t err = thread_upcall(t, UPCALL_ADOPT_PAGES, n, 0, 0);
                if (err)
                        return (int)err;
                for (size_t k = 0; k < n; k++)
                        if (by_content(&xfer[k])) {
                                memcpy(content_of(xfer[k].pte), content, PAGE_SIZE);
                                content += PAGE_SIZE;
                        }
                i += n;
        }
        return 0;
}

int fork_image_put(struct fork_image *im, struct thread *t)
{
        memcpy(vcpu_xfer(t->v), &im->state, sizeof(im->state));
        int err = (int)thread_upcall(t, UPCALL_ADOPT_STATE, 0, 0, 0);
        if (!err)
                err = put_vmas(im, t);
        if (!err)
                err = put_pages(im, t);
        xstate_bring_back(t, im->xstate);
        im->xstate = NULL;
        t->v->regs = im->regs;
        return err;
}

void fork_image_free(struct fork_image *im)
{
        if (im->content)
                munmap(im->content, im->content_max * PAGE_SIZE);
        free(im->page);
        free(im->vma);
        free(im->xstate);
        free(im->control);
        *im = (struct fork_image){ 0 };
}
