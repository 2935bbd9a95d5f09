/*
 * Threads of vmrun's own.  They take no signals: signals are for the program.  Their policy, nice
 * value and CPUs are main()'s, even if a thread of the program with others makes them: a cleaner
 * that gets no CPU stops all threads of the program.
 */
#ifndef VMRUN_OWN_THREAD_H
#define VMRUN_OWN_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* main(), before there is any other thread. */
void own_threads_init(void);

/* Makes a thread; 0 or an error number.  EAGAIN may be a shortage that is over in a moment:
 * own_thread(), for threads without which the program cannot go on, tries again for a fifth of a
 * second.  Not for a child of vfork, with which the new thread would end. */
int own_thread(pthread_t *id, void *(*thread_main)(void *), void *arg);
int own_thread_once(pthread_t *id, void *(*thread_main)(void *), void *arg);
/* thread_main calls this first.  name: 15 characters at most. */
void own_thread_begins(const char *name);

/* A thread of the program is about to change a policy or a nice value.  A new thread inherits both
 * from its maker, and without CAP_SYS_NICE it may not raise them again.  So from here on one
 * thread, the maker, makes all of vmrun's threads: it has the policy and nice value that the
 * calling thread has at the first such call.  If the maker cannot be made, new threads keep what
 * they inherit. */
void own_threads_set_apart(void);
/* Ends the maker, for a process that must have one thread; no other thread calls own_thread(). */
void own_threads_rest(void);
/* In a forked child the maker does not exist. */
void own_threads_forked(void);

/* main() could run on one CPU only. */
bool own_cpus_are_one(void);
/* May thread tid run on no CPU but main()'s?  True also if no such thread exists. */
bool own_cpus_hold(pid_t tid);

#endif
