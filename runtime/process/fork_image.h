/*
 * The part of a process that lies in its VM, taken out of the parent's VM and put into the child's.
 * The host's fork() copies it with the rest.
 */
#ifndef VMRUN_FORK_IMAGE_H
#define VMRUN_FORK_IMAGE_H

#include <stddef.h>
#include "include/fork_state.h"
#include "signal/sigframe.h"
#include "vm/thread.h"

struct tree;
struct tree_child;

struct fork_image {
        struct control *control;        /* a copy, without its slabs */
        struct regs regs;
        void *xstate;                   /* xstate_keep() */
        struct fork_state state;
        struct fork_vma *vma;
        size_t nvmas;
        struct fork_page *page;
        size_t npages, page_room;
        char *content;                  /* of the pages passed by content, in their order */
        size_t ncontent, content_max;   /* pages */
};

/* In the parent: takes the whole image, and shares all slots with the child.  t's other threads,
 * the cleaner and the guest are quiesced.  0, or -ENOMEM: too many pages can neither be written to
 * a slot nor be copied. */
int fork_image_take(struct fork_image *im, struct thread *t, struct tree *tree,
                    const struct tree_child *child);
/* In the child, whose kern waits in EXIT_READY: puts VMAs, pages and registers in place.  0 or
 * -errno. */
int fork_image_put(struct fork_image *im, struct thread *t);
void fork_image_free(struct fork_image *im);

#endif
