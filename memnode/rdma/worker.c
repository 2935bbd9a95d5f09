#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "rdma/worker.h"

#define AGAIN_MS 10                     /* between two runs of a job that is to run again */

struct list { struct job *first, **end; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* Guarded by it, as are state, dropped and next of all jobs that were added: */
static struct list queue = { NULL, &queue.first }, over = { NULL, &over.first };
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

/* The oldest job; the others of its owner go behind those of all other owners. */
static struct job *next(void)
{
        struct job *first = queue.first, *rest = first->next;
        struct list its = { NULL, &its.first };

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

/* A job that is to run again, before the others of its owner: next() has put those last. */
static void put_back(struct job *j)
{
        struct job **p = &queue.first;

        j->state = JOB_QUEUED;
        while (*p && (*p)->owner != j->owner)
                p = &(*p)->next;
        j->next = *p;
        *p = j;
        if (!j->next)
                queue.end = &j->next;
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
                put_back(j);
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

/* With the lock, which it gives up meanwhile. */
static void pause_a_while(void)
{
        const struct timespec t = { .tv_nsec = AGAIN_MS * 1000000 };

        pthread_mutex_unlock(&lock);
        nanosleep(&t, NULL);
        pthread_mutex_lock(&lock);
}

static void *work(void *arg)
{
        (void)arg;
        pthread_mutex_lock(&lock);
        while (queue.first || !ending) {
                if (!queue.first) {
                        pthread_cond_wait(&changed, &lock);
                        continue;
                }
                carry_out(next());
                if (queue.first && queue.first->again)
                        pause_a_while();        /* all other owners have had their turn */
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
        bool never = j->state == JOB_QUEUED && !j->must;
        if (never) {
                take_out(&queue, j);
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
        while (queue.first || busy)
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
