/*
 * Watching over guides of the program (kern/space/guides.h), and telling of them.
 */
#ifndef VMRUN_VM_GUIDES_H
#define VMRUN_VM_GUIDES_H

struct stats;
struct vm;

/* Processor time after which a guide is ended.  Much more than it needs: in a virtual machine, time
 * for which the host runs something else counts. */
#define GUIDE_LIMIT_MS 100

/* EXIT_GUIDES: from now on a thread looks for guides that take too long.  0, or -EAGAIN. */
int guide_watch_start(struct vm *vm);
/* No thread until guide_watch_go_on(), as while the process must be alone. */
void guide_watch_rest(void);
void guide_watch_go_on(void);
/* In the child of a fork, which has no guides yet. */
void guide_watch_forked(void);

void guides_stats(struct stats *s);

#endif
