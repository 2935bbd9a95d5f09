/*
 * See service.h.  What the thread does is kern/paging/cleaner.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/own_thread.h"
#include "base/word.h"
#include "process/service.h"
#include "vm/vcpu.h"
#include "vm/vcpu_setup.h"

static struct vm *service_vm;
static struct thread service;
static pthread_t id;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool exists;                     /* the thread was made; guarded by lock */
static _Atomic uint32_t up;             /* futex: its vCPU exists */
static _Atomic bool kicks_asked;

static void make_vcpu(void)
{
        char why[512];

        service = (struct thread){ .pid = getpid() };
        if (vcpu_create(service_vm, &service, 1, ROLE_SERVICE, why, sizeof(why)) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
}

/* Sends the kicks that a child of vfork asked for (service_kick). */
static void send_kicks(void)
{
        if (!atomic_load(&kicks_asked))
                return;
        atomic_store(&kicks_asked, false);
        for (unsigned i = 0; i < CONTROL->nvcpus; i++) {
                struct thread *u = service_vm->thread[i];
                if (u && atomic_exchange(&u->kick_asked, false))
                        vcpu_kick(u);
        }
}

static void *service_main(void *again)
{
        own_thread_begins("vmrun-cleaner");
        if (!again)
                make_vcpu();
        service.tid = (pid_t)syscall(SYS_gettid);
        atomic_store(&up, 1);
        word_wake(&up, 1);
        while (!service.end.how) {
                vcpu_run(&service);
                send_kicks();
                thread_answer(&service, service_vm->calls->serve(&service));
        }
        return NULL;
}

static void start(void *again)
{
        int err = own_thread(&id, service_main, again);

        if (err)
                die_(EXIT_VMRUN_FAILED, "the cleaner's thread cannot be made: %s", strerror(err));
        /* The program thread that rang the doorbell must not run meanwhile: the new vCPU's
         * descriptor has a low number for a moment. */
        while (!atomic_load(&up))
                word_sleep(&up, 0, NULL);
}

void service_ensure(struct vm *vm)
{
        pthread_mutex_lock(&lock);
        if (!exists) {
                service_vm = vm;
                start(NULL);
        }
        exists = true;
        pthread_mutex_unlock(&lock);
}

static void wake(void)
{
        atomic_fetch_add(&CONTROL->service_seq, 1);
        word_wake(&CONTROL->service_seq, 1);
}

/* If the vCPU does not exist yet, it looks when it is made. */
void service_wake(void)
{
        if (atomic_load(&up))
                wake();
}

void service_kick(struct thread *u)
{
        atomic_store(&u->kick_asked, true);
        /* before the sequence moves: the service thread then sees it */
        atomic_store(&kicks_asked, true);
        wake();
}

/* The doorbell is not rung meanwhile, so `exists` does not change. */
bool service_hold(unsigned limit_ms)
{
        const struct timespec tenth = { .tv_nsec = limit_ms * 100000l % 1000000000,
                                        .tv_sec = limit_ms / 10000 };

        if (!exists)
                return true;
        /* Before the sequence moves: the service vCPU that it wakes sees it
         * (kern/paging/cleaner.c). */
        atomic_store(&CONTROL->service_hold, 1);
        wake();
        /* acquire: sees what the cleaner did before it was quiesced */
        for (unsigned i = 0; !atomic_load(&CONTROL->service_held); i++) {
                if (limit_ms && i == 10)
                        return false;
                word_sleep(&CONTROL->service_held, 0, limit_ms ? &tenth : NULL);
        }
        return true;
}

void service_release(void)
{
        if (!exists)
                return;
        atomic_store(&CONTROL->service_hold, 0);
        wake();
}

void service_end(void)
{
        if (!exists)
                return;
        /* before the sequence moves, which wakes the thread */
        service.end.how = END_THREAD;
        wake();
        pthread_join(id, NULL);
        atomic_store(&up, 0);
}

void service_again(void)
{
        if (!exists)
                return;
        service.end.how = END_NOT;
        start(&service);
}

void service_sleep(uint32_t seen)
{
        if (atomic_load(&CONTROL->service_held))
                word_wake(&CONTROL->service_held, 1);
        word_sleep(&CONTROL->service_seq, seen, NULL);
}

void service_forked(void)
{
        exists = false;
        atomic_store(&up, 0);
}
