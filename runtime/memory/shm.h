/*
 * System V shared memory: the host's part of the program's shmat.  shmget and shmctl are forwarded
 * (syscalls/sysv.c).
 */
#ifndef VMRUN_SHM_H
#define VMRUN_SHM_H

#include <stdint.h>
#include "vm/thread.h"

/* EXIT_SHM_ATTACH */
int64_t shm_exit_attach(struct thread *t, struct exit_req *rq);

#endif
