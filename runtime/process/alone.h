/*
 * Calls that Linux refuses to a process with more than one thread, such as unshare(CLONE_NEWUSER),
 * for a program that has one thread.
 */
#ifndef VMRUN_ALONE_H
#define VMRUN_ALONE_H

#include "vm/thread.h"

/* From alone_begin() to alone_end(), t's thread is the only one of this process: the cleaner's and
 * the I/O thread are ended, and the VM is taken down, because Linux 6.14 and later have a thread
 * for each VM in its process.  0, or -EINVAL: the program has other threads, or this process can
 * make no more; or -SYS_PUT_OFF.  Only from within t's system call. */
int alone_begin(struct thread *t);
void alone_end(struct thread *t);

#endif
