/*
 * The list of the program's threads, and stopping all but one of them (stop.h).
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/word.h"
#include "vm/dump.h"
#include "vm/stop.h"
#include "vm/vcpu.h"
#include "vm/watch.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* guards thread.alive */

_Atomic uint32_t threads_stopping;
#define ENDED UINT32_MAX                /* a value of threads_stopping: for good */
/* futex of the thread that waits for the others to be safe */
static _Atomic uint32_t arrivals;
/* threads made so far: a thread that counts the safe ones starts over if this changed */
static _Atomic uint32_t started;

void threads_enter(struct thread *t)
{
        pthread_mutex_lock(&lock);
        t->alive = true;
        t->end = (struct thread_end){ .how = END_NOT };
        atomic_store(&t->safe, 0);
        atomic_fetch_add(&started, 1);
        pthread_mutex_unlock(&lock);
}

void threads_left(struct thread *t)
{
        pthread_mutex_lock(&lock);
        t->alive = false;
        pthread_mutex_unlock(&lock);
}

void threads_list_forked(void)
{
        pthread_mutex_init(&lock, NULL);
        atomic_store(&threads_stopping, 0);
}

void threads_tell_stopper(void)
{
        atomic_fetch_add(&arrivals, 1);
        word_wake(&arrivals, INT_MAX);
}

void threads_wait_to_go(struct thread *t)
{
        uint32_t by;

        while ((by = atomic_load(&threads_stopping)) != 0 && by != vcpu_fixed(t->v)->number + 1 &&
               !(by == ENDED && t->vforked)) {
                atomic_exchange(&t->safe, 1);
                threads_tell_stopper();
                word_sleep(&threads_stopping, by, NULL); /* as long as the stopping thread takes */
                atomic_exchange(&t->safe, 0);
        }
}

void threads_pause(struct thread *t)
{
        if (atomic_load(&threads_stopping))
                threads_wait_to_go(t);
}

/* The numbers of all vCPUs are below this; some of these may not exist any more.  (Acquire: see
 * vcpu_create.) */
static uint32_t vcpus(void) { return atomic_load_explicit(&CONTROL->nvcpus, memory_order_acquire); }

/* Is u stopped?  If not, makes it come to where it stops. */
static bool stopped(struct thread *u)
{
        if (atomic_load(&u->safe))
                return true;
        /* full barrier, then the mode is read (kern/entry/entry.S has the other half) */
        atomic_fetch_or(&u->v->event, EVENT_HOST);
        if (atomic_load(&u->v->mode) == MODE_PROGRAM)
                vcpu_kick(u);
        return false;
}

/* *work: the work that all others have done so far; it grows while one of them makes progress. */
static bool all_stopped(const struct thread *t, uint64_t *work)
{
        uint32_t made = atomic_load(&started), n = vcpus();
        struct thread *const *thread = t->vm->thread;
        bool all = true;

        *work = 0;
        pthread_mutex_lock(&lock);
        for (uint32_t i = 0; i < n; i++)
                if (thread[i] && thread[i]->alive && thread[i] != t) {
                        all &= stopped(thread[i]);
                        *work += watch_work(thread[i]);
                }
        pthread_mutex_unlock(&lock);
        return all && atomic_load(&started) == made;
}

/* The time limit is over: threads that are still in the guest will not come out of it. */
static void complain(const struct thread *t)
{
        for (uint32_t i = 0, n = vcpus(); i < n; i++) {
                struct thread *u = t->vm->thread[i];
                if (!u || !u->alive || u == t || atomic_load(&u->safe) ||
                    mode_is_out(atomic_load(&u->v->mode)))
                        continue;
                warnx_("vCPU %u (thread %d) does not stop: mode %u, last entry to kern at RIP "
                       "%#llx, exit %u",
                       i, (int)u->tid, u->v->mode, (unsigned long long)u->v->regs.rip,
                       u->v->exit.op);
                die_(EXIT_VMRUN_FAILED,
                     "the virtual machine was stopped: a thread has not come out of kern for %llu "
                     "s; " VM_BLAME,
                     (unsigned long long)watch_limit_ms() / 1000);
        }
}

void threads_stop(struct thread *t)
{
        /* a kick may come just before its vCPU becomes PROGRAM */
        const struct timespec again = { .tv_nsec = 10000000 };
        uint32_t none = 0;
        uint64_t waits = 0, work, before = 0;

        if (atomic_load(&threads_stopping) == vcpu_fixed(t->v)->number + 1)
                return;                 /* all are stopped already */
        while (!atomic_compare_exchange_strong(&threads_stopping, &none,
                                               vcpu_fixed(t->v)->number + 1)) {
                threads_wait_to_go(t);
                none = 0;
        }
        atomic_store(&CONTROL->stopping, 1);
        for (;;) {
                uint32_t seen = atomic_load(&arrivals);
                if (all_stopped(t, &work))
                        return;
                waits = work == before ? waits : 0;
                before = work;
                /* the other threads are in a fault, or in a system call in kern */
                word_sleep(&arrivals, seen, &again);
                /* each wait took 10 ms at most: arrivals end it early */
                if (++waits * 10 > watch_limit_ms())
                        complain(t);
        }
}

void threads_go(void)
{
        atomic_store(&CONTROL->stopping, 0);    /* before another thread may stop them */
        atomic_store(&threads_stopping, 0);
        word_wake(&threads_stopping, INT_MAX);
}

void threads_stop_for_good(void)
{
        atomic_store(&threads_stopping, ENDED);
        word_wake(&threads_stopping, INT_MAX);
}

uint64_t threads_pins(const struct thread *t)
{
        struct thread *const *thread = t->vm->thread;
        uint64_t pins = 0;

        pthread_mutex_lock(&lock);
        for (uint32_t i = 0, n = vcpus(); i < n; i++)
                if (thread[i] && thread[i]->alive)
                        pins += thread[i]->pins;
        pthread_mutex_unlock(&lock);
        return pins;
}

unsigned threads_count(const struct thread *t)
{
        struct thread *const *thread = t->vm->thread;
        unsigned count = 0;
        bool leader = false;

        if (t->vforked)
                return 1;
        pthread_mutex_lock(&lock);
        for (uint32_t i = 0, n = vcpus(); i < n; i++)
                if (thread[i] && thread[i]->alive) {
                        count++;
                        leader |= thread[i]->tid == t->pid;
                }
        pthread_mutex_unlock(&lock);
        return count + !leader;
}

struct thread *threads_find(struct thread *t, pid_t tid)
{
        struct thread *found = t->tid == tid ? t : NULL, *const *thread = t->vm->thread;

        pthread_mutex_lock(&lock);
        for (uint32_t i = 0, n = vcpus(); !found && i < n; i++)
                if (thread[i] && thread[i]->alive && thread[i]->tid == tid)
                        found = thread[i];
        pthread_mutex_unlock(&lock);
        return found;
}
