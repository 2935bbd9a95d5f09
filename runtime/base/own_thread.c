/*
 * Makes vmrun's own threads: with signals blocked, and with the CPUs of main().
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/own_thread.h"

/* Less than a huge page: some hosts make one of any memory that is large enough, and a thread that
 * touches a page of its stack would add 2 MiB to what --cache allows. */
#define OWN_STACK (512u << 10)
#define LIBC_SIGNAL 33                  /* SIGSETXID */

struct cpus { unsigned long bits[128]; size_t bytes; };         /* as many as Linux can have */

/* CPUs, policy and nice value of main(); not changed after own_threads_init(). */
static struct {
        struct cpus cpus;               /* bytes is 0: unknown */
        struct sched_param param;
        int policy;                     /* negative: unknown, or not for threads that it makes */
        int nice;
} base = { .policy = -1 };

/* Guards the variables below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* The thread that makes the others. */
static struct { bool exists, to_end; pthread_t id; } maker;
static struct request {
        pthread_t *id;
        void *(*thread_main)(void *);
        void *arg;
        int err;
        bool over;
} *asked;

static struct cpus cpus_of(pid_t tid)
{
        struct cpus c = { .bytes = 0 };
        long n = syscall(SYS_sched_getaffinity, tid, sizeof(c.bits), c.bits);

        c.bytes = n > 0 ? (size_t)n : 0;
        return c;
}

bool own_cpus_are_one(void)
{
        int n = 0;

        for (size_t i = 0; i < sizeof(base.cpus.bits) / sizeof(base.cpus.bits[0]); i++)
                n += __builtin_popcountl(base.cpus.bits[i]);
        return n == 1;
}

bool own_cpus_hold(pid_t tid)
{
        const struct cpus c = cpus_of(tid);

        for (size_t i = 0; i < sizeof(c.bits) / sizeof(c.bits[0]); i++)
                if (c.bits[i] & ~base.cpus.bits[i])
                        return false;
        return true;
}

/* Blocks libc's own two signals, too: pthread_sigmask() would leave them open, and a thread that
 * libc makes begins with one of them open. */
static uint64_t block_all(void)
{
        uint64_t all = ~0ull, old;

        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof(all));
        return old;
}

/* The thread that made this thread may have other CPUs, policy or nice value than main().  The CPUs
 * can always be set; policy and nice value only downwards, or with CAP_SYS_NICE. */
void own_thread_begins(const char *name)
{
        block_all();
        prctl(PR_SET_NAME, name);
        if (base.cpus.bytes)
                syscall(SYS_sched_setaffinity, 0, base.cpus.bytes, base.cpus.bits);
        if (base.policy < 0)
                return;
        if (sched_getscheduler(0) != base.policy)
                sched_setscheduler(0, base.policy, &base.param);
        if (getpriority(PRIO_PROCESS, 0) != base.nice)
                setpriority(PRIO_PROCESS, 0, base.nice);
}

static int make(pthread_t *id, void *(*thread_main)(void *), void *arg)
{
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, OWN_STACK);
        uint64_t old = block_all();
        int err = pthread_create(id, &a, thread_main, arg);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
        pthread_attr_destroy(&a);
        return err;
}

static void *nothing(void *arg) { return arg; }

/* As it makes its first thread, libc takes signal 33 for its own setuid(): it sets a handler, and
 * opens the signal in the thread that makes the other one.  vmrun never calls that function, and
 * the signal is the program's.  So the first thread is made before there is a program, and the
 * signal's action is set again; make() restores the mask. */
static void take_back_signal(void)
{
        struct { uint64_t handler, flags, restorer, mask; } action;
        pthread_t id;

        syscall(SYS_rt_sigaction, LIBC_SIGNAL, NULL, &action, sizeof(action.mask));
        if (make(&id, nothing, NULL) == 0)
                pthread_join(id, NULL);
        syscall(SYS_rt_sigaction, LIBC_SIGNAL, &action, NULL, sizeof(action.mask));
}

void own_threads_init(void)
{
        take_back_signal();
        base.cpus = cpus_of(0);
        base.policy = sched_getscheduler(0);
        if (base.policy >= 0 && base.policy & SCHED_RESET_ON_FORK)
                base.policy = -1;
        sched_getparam(0, &base.param);
        base.nice = getpriority(PRIO_PROCESS, 0);
}

static void *maker_main(void *arg)
{
        block_all();
        prctl(PR_SET_NAME, "vmrun-maker");      /* CPUs, policy and nice value it has inherited */
        pthread_mutex_lock(&lock);
        while (!maker.to_end) {
                if (asked) {
                        asked->err = make(asked->id, asked->thread_main, asked->arg);
                        asked->over = true;
                        asked = NULL;
                        pthread_cond_broadcast(&changed);
                }
                pthread_cond_wait(&changed, &lock);     /* until a thread asks */
        }
        pthread_mutex_unlock(&lock);
        return arg;
}

/* With the lock held.  Waits for the maker, which waits for no thread while it serves a request. */
static int have_made(struct request *rq)
{
        while (asked)
                pthread_cond_wait(&changed, &lock);
        asked = rq;
        pthread_cond_broadcast(&changed);
        while (!rq->over)
                pthread_cond_wait(&changed, &lock);
        return rq->err;
}

int own_thread_once(pthread_t *id, void *(*thread_main)(void *), void *arg)
{
        struct request rq = { .id = id, .thread_main = thread_main, .arg = arg };

        pthread_mutex_lock(&lock);
        int err = maker.exists ? have_made(&rq) : make(id, thread_main, arg);
        pthread_mutex_unlock(&lock);
        return err;
}

int own_thread(pthread_t *id, void *(*thread_main)(void *), void *arg)
{
        int err;

        for (long ms = 1; (err = own_thread_once(id, thread_main, arg)) == EAGAIN && ms <= 20; ms++)
                nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
        return err;
}

void own_threads_set_apart(void)
{
        pthread_mutex_lock(&lock);
        if (!maker.exists)
                maker.exists = make(&maker.id, maker_main, NULL) == 0;
        pthread_mutex_unlock(&lock);
}

void own_threads_rest(void)
{
        if (!maker.exists)
                return;
        pthread_mutex_lock(&lock);
        maker.to_end = true;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        pthread_join(maker.id, NULL);
        maker.exists = maker.to_end = false;
}

void own_threads_forked(void)
{
        maker.exists = false;
        asked = NULL;
        pthread_mutex_init(&lock, NULL);
        pthread_cond_init(&changed, NULL);
}
