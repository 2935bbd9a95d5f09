/*
 * The I/O thread: takes requests off the rings of all vCPUs (polled.h), and gives drivers of nodes
 * their turns.
 *
 * It spins while work is in flight or was a moment ago, if a driver's completions bypass the host
 * kernel.  Then it sleeps in poll(2) on the drivers' completion channels and on the guest's
 * doorbell (an ioeventfd: no exit).  With --io inline there is no such thread: the vCPUs' own
 * threads do the work while they wait (io_wait), one at a time for all (turns.c).
 *
 * The life of the I/O side in a process:
 *
 *   io_start()     started; nodes are attached by the calling thread, in a forked child by the I/O
 *                  thread: attached
 *   io_hold()      HOLD_NONE to HOLD_ASKED; the I/O thread ends its turn, and answers: HOLD_HELD
 *   io_release()   HOLD_HELD to HOLD_NONE: the I/O thread continues
 *   io_end()       HOLD_HELD to HOLD_END: the I/O thread ends
 *   io_again()     HOLD_END to HOLD_NONE, with another I/O thread
 *   io_stop()      stop_asked; the I/O thread ends its turn, and answers: stopped, for good
 *   io_forked()    in the child: not started, not attached, HOLD_NONE
 *
 * With --io inline io.lock takes the place of the states of the thread: io_hold() and io_stop()
 * lock it.  io_keep_rights() starts the thread later.
 *
 * [I] A sleeping I/O thread misses nothing.  It sets io_asleep (full barrier), then looks for news
 * once more; a vCPU moves its tail (full barrier), then looks at io_asleep.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <poll.h>
#include <pthread.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <guest_ram.h>
#include <x86intrin.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/options.h"
#include "base/own_thread.h"
#include "base/privfd.h"
#include "base/word.h"
#include "common/clock.h"
#include "far/drain.h"
#include "far/io.h"
#include "far/nodes.h"
#include "far/outage.h"
#include "far/polled.h"
#include "far/repair.h"
#include "far/request.h"
#include "far/scrub.h"
#include "far/turns.h"
#include "far/wait.h"
#include "vm/vm.h"

#define INLINE_MORE 16                  /* turns after the turn that ended the wait */
#define INLINE_MS   10                  /* longest sleep: vCPUs, too, change words, with no bell */
#define FDS_MAX    256                  /* of all drivers together */

static struct {
        struct vm *vm;                  /* by io_start(): where the doorbell is rung */
        int doorbell;                   /* eventfd, private; -1: none.  By start_thread() */
        /* Nodes are attached, or the I/O thread attaches them.  Written under the lease lock
         * (slabs.c), before the first slab exists; read by any thread. */
        bool started;
        bool forked;                    /* this process was forked; by io_forked() */
        /* Futex: 1: nodes are attached.  Stored by the thread that attached them, with release:
         * other threads then call drivers. */
        _Atomic uint32_t attached;
        /* How long the I/O thread spins without a completion before it sleeps.  Relaxed: a hint; it
         * may grow when a node is added. */
        _Atomic uint64_t spin_ticks;

        pthread_t thread;               /* by start_thread(), for io_end() */
        /* Futex, one of HOLD_*.  The I/O thread's answer, HOLD_HELD, is a release: the thread that
         * asked sees all that the I/O thread did. */
        _Atomic uint32_t hold;
        /* io_stop() stores stop_asked, and the I/O thread stopped.  Its answer is a release: it
         * calls no driver after that. */
        atomic_bool stop_asked, stopped;

        /* --io inline: guards requests and drivers, which belong to the I/O thread otherwise.
         * Always: guards `started` and opt.io from io_keep_rights(). */
        pthread_mutex_t lock;
        atomic_bool rights_changed;     /* io_keep_rights() was called */
} io = { .doorbell = -1, .lock = PTHREAD_MUTEX_INITIALIZER };
enum { HOLD_NONE, HOLD_ASKED, HOLD_HELD, HOLD_END };

static bool is_remote(const struct far_node *n) { return n->driver->kind == SLAB_REMOTE; }

/* One turn over rings, requests and drivers.  Returns how much there was to do. */
static unsigned step(void)
{
        unsigned work = requests.taken_over ? request_taken_over() : 0;
        frame_t frame;

        work += polled_take() + request_post();

        for (unsigned i = 0; i < far_nodes(); i++)
                if (far_node_at(i)->attached)
                        work += far_node_at(i)->driver->poll(far_node_at(i));
        work += outage_step();
        work += drain_step();
        for (uint64_t slot; repair_next(&slot, &frame); work++)
                request_repair(slot, frame);
        return work + scrub_step();
}

static void shorten(int *limit_ms, int other)
{
        if (other >= 0 && (*limit_ms < 0 || other < *limit_ms))
                *limit_ms = other;
}

/* Sleeps until a driver has a completion or the doorbell rings, at most limit_ms.  False: it did
 * not sleep. */
static bool wait_for_news(int limit_ms)
{
        struct pollfd fds[FDS_MAX] = { { .fd = io.doorbell, .events = POLLIN } };
        unsigned n = 1;

        shorten(&limit_ms, outage_patience());
        shorten(&limit_ms, repair_patience());
        shorten(&limit_ms, drain_patience());
        shorten(&limit_ms, scrub_patience());
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *node = far_node_at(i);
                int got = node->attached
                                  ? node->driver->arm(node, fds + n, FDS_MAX - n, &limit_ms) : 0;
                if (got < 0)
                        return false;
                n += (unsigned)got;
        }
        if (outage_patience() == 0)    /* a driver has handed a transfer back */
                return false;
        poll(fds, n, limit_ms);
        if (fds[0].revents & POLLIN) {
                uint64_t rings;
                if (read(io.doorbell, &rings, sizeof(rings)) < 0 && errno != EAGAIN)
                        die_(EXIT_VMRUN_FAILED, "the doorbell of the I/O thread cannot be read: %s",
                             strerror(errno));
        }
        return true;
}

/* Like wait_for_news(), but does not sleep if a vCPU has put an entry on its ring meanwhile. */
static bool sleep_for_news(int limit_ms)
{
        /* full barrier: before the look at the tails */
        atomic_exchange(&CONTROL->io_asleep, 1);
        bool slept = !polled_have_news() && wait_for_news(limit_ms);
        atomic_store(&CONTROL->io_asleep, 0);
        return slept;
}

/* The process is ending, and this thread ends with it. */
static _Noreturn void stay_stopped(void)
{
        atomic_store_explicit(&io.stopped, true, memory_order_release);
        for (;;)
                pause();
}

static int attach(struct far_node *n, char why[FAR_WHY])
{
        uint64_t count = CONTROL->nframes + bounce_pages(CONTROL->nframes) + REPAIR_FRAMES +
                         SCRUB_FRAMES;

        int err = n->driver->attach(n, frame_host(0), count * PAGE_SIZE, why);
        n->attached = err == 0;
        return err;
}

static void attach_all(void)
{
        char why[FAR_WHY];

        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                int err = is_remote(n) && !n->is_drained ? attach(n, why) : 0;
                outage_attached(n);
                if (err && (n->lost || n->hands_back)) {
                        far_lost(n, false, "%s", why);
                        outage_step();
                }
                if (err && !n->hands_back)
                        die_(EXIT_VMRUN_FAILED, "%s: %s", n->option->origin, why);
        }
        atomic_store(&io.attached, 1);
        word_wake(&io.attached, INT_MAX);
}

void io_wait_attached(void)
{
        while (!atomic_load(&io.attached))
                /* ends within the connect time-outs, or with the process */
                word_sleep(&io.attached, 0, NULL);
}

bool io_is_attached(void) { return atomic_load(&io.attached); }

/* By the I/O side, or with its lock. */
static void let_nodes_rest(void)
{
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                if (n->attached && n->driver->rest)
                        n->driver->rest(n);
        }
}

/* Quiesced until io_release().  False: the thread must end. */
static bool stand_still(void)
{
        uint32_t asked = HOLD_ASKED;

        let_nodes_rest();
        if (atomic_compare_exchange_strong(&io.hold, &asked, HOLD_HELD))
                word_wake(&io.hold, INT_MAX);
        while (atomic_load(&io.hold) == HOLD_HELD)
                word_sleep(&io.hold, HOLD_HELD, NULL);
        return atomic_load(&io.hold) != HOLD_END;
}

static void *io_main(void *arg)
{
        uint64_t idle_since = 0;

        (void)arg;
        own_thread_begins("vmrun-io");
        if (!atomic_load(&io.attached))
                attach_all();
        for (;;) {
                if (atomic_load_explicit(&io.stop_asked, memory_order_relaxed))
                        stay_stopped();
                if (atomic_load_explicit(&io.hold, memory_order_relaxed) != HOLD_NONE &&
                    !stand_still())
                        return NULL;
                if (step() > 0) {
                        idle_since = 0;
                        continue;
                }
                uint64_t now = __rdtsc();
                if (!idle_since)
                        idle_since = now;
                if (now - idle_since < io.spin_ticks) {
                        _mm_pause();
                        continue;
                }
                sleep_for_news(-1);
                idle_since = 0;
        }
}

void io_wait(const void *word, uint32_t seen)
{
        const _Atomic uint32_t *w = word;

        if (!turn_begin(word, seen))
                return;
        pthread_mutex_lock(&io.lock);
        const uint64_t begun = __rdtsc();
        /* io_keep_rights() comes between two waits. */
        for (uint64_t since = begun; opt.io == IO_INLINE && atomic_load(w) == seen;
             turn_tell()) {
                if (step() > 0)
                        since = __rdtsc();
                else if (__rdtsc() - since > io.spin_ticks && sleep_for_news(INLINE_MS))
                        since = __rdtsc();
        }
        /* Each transfer that is over by now saves the program an exit.  But it goes on no later
         * than after twice the time. */
        const uint64_t over = __rdtsc();
        for (unsigned i = 0; opt.io == IO_INLINE && i < INLINE_MORE &&
             __rdtsc() - over < over - begun && step() > 0; i++)
                ;
        pthread_mutex_unlock(&io.lock);
        turn_over();
}

void io_keep(void)
{
        if (!io.started || opt.io != IO_INLINE || pthread_mutex_trylock(&io.lock) != 0)
                return;
        if (opt.io == IO_INLINE && step() == 0)
                wait_for_news(0);       /* drivers look for answers where they were asked to */
        pthread_mutex_unlock(&io.lock);
}

void io_turn(void)
{
        if (opt.io != IO_INLINE || !io.started || pthread_mutex_trylock(&io.lock) != 0)
                return;
        if (opt.io == IO_INLINE)
                step();
        pthread_mutex_unlock(&io.lock);
}

void io_wake(void)
{
        const uint64_t ring = 1;

        /* the counter is far from full */
        if (io.started && opt.io == IO_THREAD && write(io.doorbell, &ring, sizeof(ring)) < 0)
                return;
}

void io_hold(void)
{
        const uint64_t ring = 1;

        if (!io.started)
                return;
        if (opt.io == IO_INLINE) {
                pthread_mutex_lock(&io.lock);
                if (opt.io == IO_INLINE) {
                        let_nodes_rest();
                        return;
                }
                pthread_mutex_unlock(&io.lock);
        }
        atomic_store(&io.hold, HOLD_ASKED);
        if (write(io.doorbell, &ring, sizeof(ring)) < 0 && errno != EAGAIN)
                die_(EXIT_VMRUN_FAILED, "the I/O thread cannot be woken: %s", strerror(errno));
        while (atomic_load(&io.hold) == HOLD_ASKED)
                word_sleep(&io.hold, HOLD_ASKED, NULL);
}

void io_release(void)
{
        if (io.started && opt.io == IO_INLINE)
                pthread_mutex_unlock(&io.lock);
        else if (io.started) {
                atomic_store(&io.hold, HOLD_NONE);
                word_wake(&io.hold, INT_MAX);
        }
}

void io_end(void)
{
        if (!io.started || opt.io == IO_INLINE)
                return;
        atomic_store(&io.hold, HOLD_END);
        word_wake(&io.hold, INT_MAX);
        pthread_join(io.thread, NULL);
}

void io_forked(void)
{
        if (io.doorbell >= 0)
                privfd_close(io.doorbell);
        io.doorbell = -1;
        io.started = false;
        io.forked = true;
        atomic_store(&io.attached, 0);
        for (unsigned i = 0; i < far_nodes(); i++) {
                far_node_at(i)->attached = false;
                far_node_at(i)->direct = NULL;  /* the child's kern makes its own */
        }
        atomic_store(&io.hold, HOLD_NONE);
        pthread_mutex_init(&io.lock, NULL);
        turns_forked();
        polled_forked();
        request_forked();
        outage_forked();
        repair_forked();
        scrub_forked();
}

static bool has_stopped(void)
{
        return atomic_load_explicit(&io.stopped, memory_order_acquire);
}

bool io_stop(unsigned limit_ms)
{
        const struct timespec ms = { .tv_nsec = 1000000 };
        const uint64_t ring = 1;

        if (!io.started)
                return true;
        if (opt.io == IO_INLINE) {
                if (!lock_within(&io.lock, limit_ms))
                        return false;
                if (opt.io == IO_INLINE)
                        return true;    /* the lock is held for good */
                pthread_mutex_unlock(&io.lock);
        }
        atomic_store_explicit(&io.stop_asked, true, memory_order_relaxed);
        if (write(io.doorbell, &ring, sizeof(ring)) < 0)
                return false;
        for (unsigned i = 0; i < limit_ms && !has_stopped(); i++)
                nanosleep(&ms, NULL);
        return has_stopped();
}

/* KVM answers OUTB to DOORBELL_PORT by adding to the eventfd. */
static int make_doorbell(void)
{
        if (io.doorbell < 0)
                io.doorbell = PRIVFD_NEW(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        if (io.doorbell < 0)
                return io.doorbell;
        struct kvm_ioeventfd e = {
                .addr = DOORBELL_PORT, .len = 1, .fd = io.doorbell, .flags = KVM_IOEVENTFD_FLAG_PIO
        };
        return ioctl(io.vm->fd, KVM_IOEVENTFD, &e) == 0 ? 0 : -errno;
}

/* Starts the thread, with its doorbell in the VM.  -EINVAL: this process has left its PID namespace
 * for its children's (unshare) and can make no more threads. */
static int start_thread(void)
{
        int err = make_doorbell();
        if (err)
                die_(EXIT_VMRUN_FAILED,
                     "KVM cannot wake the I/O thread (KVM_IOEVENTFD): %s: try --io inline",
                     strerror(-err));
        if (opt.io == IO_INLINE)
                return 0;
        err = own_thread(&io.thread, io_main, NULL);
        if (err && err != EINVAL)
                die_(EXIT_VMRUN_FAILED, "the I/O thread cannot be made: %s: try --io inline",
                     strerror(err));
        return -err;
}

static bool a_node_wants_rights(void)
{
        for (unsigned i = 0; i < far_nodes(); i++)
                if (far_node_at(i)->driver->own_rights)
                        return true;
        return false;
}

/* [I] From the start of the program on opt.io changes under io.lock, and whoever works as the I/O
 * side looks at it under that lock: so no vCPU does when the thread begins. */
void io_keep_rights(void)
{
        int err = 0;

        atomic_store(&io.rights_changed, true);
        if (!a_node_wants_rights())
                return;
        own_threads_set_apart();
        pthread_mutex_lock(&io.lock);
        if (opt.io == IO_INLINE && io.started)
                err = own_thread(&io.thread, io_main, NULL);
        if (err)
                info_("the I/O thread cannot be made: %s: the nodes over RDMA and TLS will be lost",
                      strerror(err));
        else if (opt.io == IO_INLINE) {
                opt.io = IO_THREAD;
                wait_first();
        }
        pthread_mutex_unlock(&io.lock);
}

void io_again(void)
{
        if (!io.started)
                return;
        if (opt.io == IO_THREAD)
                atomic_store(&io.hold, HOLD_NONE);
        if (start_thread() != 0)
                die_(EXIT_VMRUN_FAILED, "the I/O thread cannot be made after unshare or setns of a "
                                        "PID namespace: try --io inline");
}

static void choose_spin(void)
{
        unsigned spin_us = 0;

        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                if (is_remote(n) && n->driver->spin_us > spin_us)
                        spin_us = n->driver->spin_us;
        }
        atomic_store_explicit(&io.spin_ticks, CONTROL->tsc_khz * spin_us / 1000,
                              memory_order_relaxed);
}

int io_add(struct far_node *n, char *why)
{
        if (!io.started) {              /* io_start() attaches it */
                far_node_add(n);
                return 0;
        }
        io_hold();
        int err = is_remote(n) ? attach(n, why) : 0;
        if (!err) {
                far_node_add(n);
                choose_spin();
        }
        io_release();
        if (!err && atomic_load(&io.rights_changed))
                io_keep_rights();
        return err;
}

void io_start(struct vm *vm, struct slot_pieces *pieces)
{
        if (io.started)
                return;
        io.vm = vm;
        request_pieces(pieces);
        if (!io.forked || opt.io == IO_INLINE)
                attach_all();
        choose_spin();
        pthread_mutex_lock(&io.lock);
        if (start_thread() != 0) {
                opt.io = IO_INLINE;
                if (!atomic_load(&io.attached))
                        attach_all();
        }
        if (opt.io == IO_INLINE)        /* nothing arrives until the waiting vCPU exits */
                atomic_store_explicit(&CONTROL->wait_ticks, 0, memory_order_relaxed);
        io.started = true;
        pthread_mutex_unlock(&io.lock);
}
