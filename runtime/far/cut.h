/*
 * Cutting off: before slots of dead processes are used again, all nodes of the tree have ended the
 * connections of the dead (docs/protocol.md, rules 7 and 8).
 */
#ifndef VMRUN_FAR_CUT_H
#define VMRUN_FAR_CUT_H

#include "far/tree.h"

/* A process's part in it. */
struct cutter {
        struct tree *tree;
        struct far_node *const *nodes;
        _Atomic unsigned nnodes;        /* may grow during a cut; stored under the lease lock */
        pthread_mutex_t *lease_lock;    /* guards io_start() */
        /* Held by the one thread that cuts.  Never taken within other locks. */
        pthread_mutex_t lock;
        int64_t next;                   /* ms: not before, after a failure; guarded by `lock` */
};

/* Has all remote nodes cut off the processes that ended, and buries these processes.  No other
 * process, and no lease or fork of this process, waits meanwhile.  True: slots became free. */
bool cut_dead(struct cutter *c, struct vm *vm);

#endif
