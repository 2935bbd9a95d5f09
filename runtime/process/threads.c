/*
 * Threads of the program (threads.h): their vCPUs, their start and end.
 */
#include <errno.h>
#include <limits.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "abi_control.h"
#include "common/clock.h"
#include "base/message.h"
#include "base/own_thread.h"
#include "base/word.h"
#include "marshal/call.h"
#include "memory/gmem.h"
#include "process/robust.h"
#include "process/threads.h"
#include "signal/signals.h"
#include "vm/time.h"
#include "vm/vcpu_setup.h"
#include "vm/watch.h"

#define FIRST_VCPU   2                  /* 0 is the first thread's, 1 the cleaner's */
/* When another host thread takes over a vCPU, that costs milliseconds: KVM_RUN records the new
 * thread and waits until no CPU of the host can still see the old one (synchronize_rcu in
 * kvm_vcpu_ioctl, Linux 6.1).  A new vCPU only costs some of KVM's memory, so new ones are made up
 * to this number. */
#define VCPUS_FRESH  256

/* guards the next six, and thread.next_idle */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vm *vm;
static struct thread *idle;             /* vCPUs without a thread */
/* threads whose end the program may have seen, but whose vCPUs are not idle yet */
static unsigned leaving;
static uint32_t next_vcpu = FIRST_VCPU;
static unsigned live = 1;
static pid_t leader;
static pthread_cond_t one_idle = PTHREAD_COND_INITIALIZER;      /* a vCPU became idle */

void threads_init(struct thread *first)
{
        vm = first->vm;
        threads_enter(first);
        leader = first->tid;
        signals_thread_start(first);
        signals_process_start(first);
        signals_expect_kicks(first);
}

/* The records of the other threads are not freed: a few hundred bytes each. */
void threads_forked(struct thread *t)
{
        pthread_mutex_init(&lock, NULL);
        pthread_cond_init(&one_idle, NULL);
        idle = NULL;
        leaving = 0;
        next_vcpu = FIRST_VCPU;
        live = 1;
        leader = t->tid;
        threads_list_forked();
}

/* Locks that threads hold when the program ends; other processes use those in shared memory too. */
void threads_end_robust_lists(struct thread *t)
{
        for (uint32_t i = 0; i < next_vcpu; i++)
                if (vm->thread[i] && vm->thread[i]->alive &&
                    vcpu_fixed(vm->thread[i]->v)->robust_list)
                        robust_list_end(t, vcpu_fixed(vm->thread[i]->v)->robust_list,
                                        (uint32_t)vm->thread[i]->tid);
}

void threads_count_cpus(void)
{
        bool one = own_cpus_are_one();

        for (uint32_t i = 0, n = atomic_load(&CONTROL->nvcpus); one && i < n; i++)
                if (vm->thread[i] && vm->thread[i]->alive)
                        one = own_cpus_hold(vm->thread[i]->tid);
        atomic_store_explicit(&CONTROL->one_cpu, one, memory_order_relaxed);    /* a hint */
}

/* ---- vCPUs ---- */

/* Reports once why clone returns EAGAIN, which the program itself seldom does.  Under lock. */
static void __attribute__((format(printf, 1, 2))) say_no_vcpu(const char *fmt, ...)
{
        static bool said;
        char text[256];
        va_list ap;

        if (said)
                return;
        said = true;
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        warnx_("no more threads: %s", text);
}

/* A program that has joined a thread expects to be able to make another, so this waits for vCPUs
 * that will be idle in a moment.  Under lock.  The wait is bounded because an ending thread may be
 * delayed while all threads are being stopped, and that stop waits for us. */
static void wait_for_idle(void)
{
        const struct timespec end = deadline_in_ms(1000);

        while (!idle && leaving &&
               pthread_cond_clockwait(&one_idle, &lock, CLOCK_MONOTONIC, &end) == 0)
                ;
}

bool threads_single(void)
{
        const struct timespec end = deadline_in_ms(1000);

        pthread_mutex_lock(&lock);
        while (live == 1 && leaving &&
               pthread_cond_clockwait(&one_idle, &lock, CLOCK_MONOTONIC, &end) == 0)
                ;
        bool single = live == 1 && !leaving;
        pthread_mutex_unlock(&lock);
        return single;
}

/* Takes an idle vCPU, or makes a new one; NULL: there can be no more. */
struct thread *threads_take_vcpu(void)
{
        struct thread *t;
        char why[256];

        pthread_mutex_lock(&lock);
        bool room = next_vcpu < vm->vcpus_max &&
                    (uint64_t)FRAMES_EACH * (next_vcpu + 1) <= CONTROL->nframes;
        if (!room)
                wait_for_idle();
        t = room && next_vcpu < VCPUS_FRESH ? NULL : idle;
        if (t) {
                idle = t->next_idle;
        } else if (next_vcpu >= vm->vcpus_max) {
                say_no_vcpu(
                        "all %u vCPUs of this VM are in use (EAGAIN): use fewer threads at a time",
                        vm->vcpus_max);
        } else if (!room) {
                say_no_vcpu("a cache of %llu pages is too small for %u threads (EAGAIN): use a "
                            "larger --cache, of 256K for each thread and 256K more",
                            (unsigned long long)CONTROL->nframes, next_vcpu);
        } else if ((t = calloc(1, sizeof(*t))) != NULL) {
                int err = vcpu_create(vm, t, next_vcpu, ROLE_PROGRAM, why, sizeof(why));
                /* KVM keeps the number of a vCPU whose making failed half-way; vm->thread[] has a
                 * hole there. */
                while (err == -EEXIST && next_vcpu + 1 < vm->vcpus_max)
                        err = vcpu_create(vm, t, ++next_vcpu, ROLE_PROGRAM, why, sizeof(why));
                if (err == 0) {
                        time_join(t, vm->thread[0]);
                        next_vcpu++;
                } else {
                        vcpu_destroy(t);
                        free(t);
                        t = idle;
                        if (t)
                                idle = t->next_idle;
                        else
                                say_no_vcpu("%s", why);
                }
        }
        if (t) {
                live++;
                threads_enter(t);
        }
        pthread_mutex_unlock(&lock);
        return t;
}

/* The thread could not be started. */
void threads_return_vcpu(struct thread *t)
{
        pthread_mutex_lock(&lock);
        live--;
        threads_left(t);
        t->next_idle = idle;
        idle = t;
        pthread_mutex_unlock(&lock);
}

/* ---- the end of a thread ---- */

void threads_let_go(struct thread *t)
{
        const uint32_t zero = 0;

        robust_list_end(t, vcpu_fixed(t->v)->robust_list, (uint32_t)t->tid);
        if (t->clear_tid && gmem_write(t, t->clear_tid, &zero, sizeof(zero)) == 0)
                futex_wake(t, t->clear_tid, 1);
}

long threads_end(struct thread *t, int status)
{
        uint64_t mask = signals_hold(t);
        /* another thread may take the signal: it must not be lost with this thread */
        if (sys_put_off) {
                signals_release(t, mask);
                return -SYS_PUT_OFF;
        }
        pthread_mutex_lock(&lock);
        leaving++;
        bool last = live == 1;
        if (!last)
                /* under the lock of the check: of two threads that end, one is the last */
                live--;
        pthread_mutex_unlock(&lock);
        /* Only now, as in Linux's do_exit(): a thread that learns of this end is then the last. */
        threads_let_go(t);
        thread_upcall(t, UPCALL_THREAD_END, 0, 0, 0);
        /* The last thread's status is the program's, since Linux 6.0. */
        t->end = (struct thread_end){ .how = last ? END_PROGRAM : END_THREAD, .status = status };
        return 0;
}

void threads_gone(struct thread *t)
{
        bool is_leader = t->tid == leader;

        vcpu_retire(t);
        pthread_mutex_lock(&lock);
        threads_left(t);
        t->next_idle = idle;
        idle = t;                       /* from here on t may belong to another thread */
        leaving--;
        pthread_cond_signal(&one_idle);
        pthread_mutex_unlock(&lock);
        if (atomic_load(&threads_stopping))
                threads_tell_stopper();
        /* The leader stays as a zombie until the last thread ends, as on Linux; returning from
         * main() would end the process. */
        if (is_leader)
                syscall(SYS_exit, 0);
}
