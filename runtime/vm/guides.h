/*
 * The time limit of the program's guides (kern/space/guides.h), and their statistics.
 */
#ifndef VMRUN_VM_GUIDES_H
#define VMRUN_VM_GUIDES_H

struct stats;
struct vm;

/* Processor time after which a guide is ended.  Much more than a guide needs: in a virtual machine,
 * processor time includes time that the host gave to other machines. */
#define GUIDE_LIMIT_MS 100

/* EXIT_GUIDES: from now on a thread looks for guides that take too long.  0, or -EAGAIN. */
int guide_watch_start(struct vm *vm);
/* Ends the thread until guide_watch_go_on(), for a process that must have one thread. */
void guide_watch_rest(void);
void guide_watch_go_on(void);
/* In the child of a fork: no guide runs there yet. */
void guide_watch_forked(void);

void guides_stats(struct stats *s);

#endif
