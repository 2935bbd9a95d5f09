/*
 * Threads of vmrun's own.  They take no signals: those are for the program.  Their policy, nice
 * value and CPUs are those that main() had, whatever the thread of the program has that needs them
 * first: a cleaner that gets no CPU stops all threads of the program.
 */
#ifndef VMRUN_OWN_THREAD_H
#define VMRUN_OWN_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* main(), before there is any other thread. */
void own_threads_init(void);

/* Makes one; 0 or an error number.  EAGAIN may be a shortage that is over in a moment:
 * own_thread(), for threads without which the program cannot go on, tries again for a fifth of a
 * second.  Not for a child of vfork, with which the new thread would end. */
int own_thread(pthread_t *id, void *(*thread_main)(void *), void *arg);
int own_thread_once(pthread_t *id, void *(*thread_main)(void *), void *arg);
/* What thread_main calls first.  name: 15 characters at most. */
void own_thread_begins(const char *name);

/* A thread of the program is about to change a policy or a nice value.  A thread has what the one
 * has that makes it, and without CAP_SYS_NICE nobody may raise it again.  So from here on a thread
 * that has what this process began with makes all others.  If there can be none, they have what
 * they get. */
void own_threads_set_apart(void);
/* That thread ends, for a process that must have one thread; no other thread calls own_thread(). */
void own_threads_rest(void);
/* In a forked child that thread does not exist. */
void own_threads_forked(void);

/* main() could run on one CPU only. */
bool own_cpus_are_one(void);
/* May this thread run on no CPU but main()'s?  True also if there is no such thread. */
bool own_cpus_hold(pid_t tid);

#endif
