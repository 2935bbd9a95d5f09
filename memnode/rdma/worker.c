#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "common/clock.h"
#include "rdma/worker.h"

#define AGAIN_MS 10                     /* between two runs of a job that is put off */

struct list { struct job *first, **end; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* Guarded by it, as are state, dropped and next of all jobs that were added: */
static struct list queue = { NULL, &queue.first }, over = { NULL, &over.first };
/* Jobs that are to run again, and those of their owners behind them. */
static struct list later = { NULL, &later.first };
static bool busy;                       /* a job is in run() or undo() */
static bool ending;

static pthread_t thread;
static int over_fd = -1;                /* eventfd: `over` has something */

static void append(struct list *l, struct job *j)
{
        j->next = NULL;
        *l->end = j;
        l->end = &j->next;
}

static void take_out(struct list *l, const struct job *j)
{
        struct job **p = &l->first;

        while (*p != j)
                p = &(*p)->next;
        *p = j->next;
        if (!*p)
                l->end = p;
}

static bool is_owner_late(const void *owner)
{
        const struct job *j = later.first;

        while (j && j->owner != owner)
                j = j->next;
        return j;
}

static void put_off(struct job *j)
{
        j->state = JOB_LATER;
        append(&later, j);
}

/* The oldest job; the others of its owner go behind those of all other owners.  NULL: there is none
 * but for owners whose job was put off; those wait behind it. */
static struct job *next(void)
{
        struct list its = { NULL, &its.first };
        struct job *first = NULL, *rest;

        while ((first = queue.first) && is_owner_late(first->owner)) {
                take_out(&queue, first);
                put_off(first);
        }
        if (!first)
                return NULL;
        rest = first->next;
        queue = (struct list){ NULL, &queue.first };
        for (struct job *j = rest; j; j = rest) {
                rest = j->next;
                append(j->owner == first->owner ? &its : &queue, j);
        }
        if (its.first) {
                *queue.end = its.first;
                queue.end = its.end;
        }
        return first;
}

/* All that was put off has its turn again, before what its owners asked for later. */
static void bring_back(void)
{
        for (struct job *j = later.first; j; j = j->next)
                j->state = JOB_QUEUED;
        *later.end = queue.first;
        if (!queue.first)
                queue.end = later.end;
        queue.first = later.first;
        later = (struct list){ NULL, &later.first };
}

/* With the lock, which it gives up meanwhile. */
static void carry_out(struct job *j)
{
        j->state = JOB_RUNNING;
        busy = true;
        pthread_mutex_unlock(&lock);
        if (!j->ran) {
                j->again = false;
                j->run(j);
        }
        pthread_mutex_lock(&lock);
        if (j->again && !j->dropped) {
                put_off(j);
                busy = false;
                return;
        }
        j->ran = true;
        if (j->dropped) {
                pthread_mutex_unlock(&lock);
                j->undo(j);
                pthread_mutex_lock(&lock);
        } else {
                uint64_t one = 1;
                j->state = JOB_RAN;
                append(&over, j);
                (void)!write(over_fd, &one, sizeof(one));       /* fails only if it is set */
        }
        busy = false;
        pthread_cond_broadcast(&changed);
}

/* With the lock, which it gives up meanwhile: until there is a job, or what was put off is due. */
static void wait_for_job(int64_t due)
{
        int64_t left = due - now_ms();
        const struct timespec until = deadline_in_ms(left > 0 ? (uint64_t)left : 0);

        if (later.first)
                pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until);
        else
                pthread_cond_wait(&changed, &lock);
}

static void *work(void *arg)
{
        int64_t due = 0;                /* ms: when what was put off has its turn */

        (void)arg;
        pthread_mutex_lock(&lock);
        while (queue.first || later.first || !ending) {
                if (later.first && now_ms() >= due) {
                        bring_back();
                        due = now_ms() + AGAIN_MS;
                }
                struct job *j = next();
                if (j)
                        carry_out(j);
                else
                        wait_for_job(due);
        }
        pthread_mutex_unlock(&lock);
        return NULL;
}

int worker_start(void)
{
        ending = false;
        over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (over_fd < 0)
                return -errno;
        int err = pthread_create(&thread, NULL, work, NULL);
        if (err) {
                close(over_fd);
                over_fd = -1;
        }
        return -err;
}

int worker_fd(void) { return over_fd; }

void worker_add(struct job *j)
{
        pthread_mutex_lock(&lock);
        j->state = JOB_QUEUED;
        append(&queue, j);
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
}

bool worker_drop(struct job *j)
{
        pthread_mutex_lock(&lock);
        bool never = j->state <= JOB_LATER && !j->must;
        if (never) {
                take_out(j->state == JOB_LATER ? &later : &queue, j);
        } else {
                j->dropped = true;
                if (j->state == JOB_RAN)
                        take_out(&over, j);
                if (j->state >= JOB_RAN) {      /* once more, to be undone */
                        j->state = JOB_QUEUED;
                        append(&queue, j);
                        pthread_cond_broadcast(&changed);
                }
        }
        pthread_mutex_unlock(&lock);
        return never;
}

void worker_results(void)
{
        uint64_t count;
        struct job *j;

        (void)!read(over_fd, &count, sizeof(count));
        do {
                /* One at a time: done() may drop others. */
                pthread_mutex_lock(&lock);
                j = over.first;
                if (j) {
                        take_out(&over, j);
                        j->state = JOB_DONE;
                }
                pthread_mutex_unlock(&lock);
                if (j)
                        j->done(j);
        } while (j);
}

void worker_wait(void)
{
        pthread_mutex_lock(&lock);
        while (queue.first || later.first || busy)
                pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        worker_results();
}

void worker_stop(void)
{
        pthread_mutex_lock(&lock);
        ending = true;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        pthread_join(thread, NULL);
        worker_results();
        close(over_fd);
        over_fd = -1;
}
