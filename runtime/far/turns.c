/*
 * The turns of threads that wait without an I/O thread.  See turns.h.
 *
 * [I] A thread is in the list only while another thread polls.  After each step the polling thread
 * looks at the words of all threads in the list; when it ends, the first in the list polls.  So the
 * word of a thread is looked at for as long as that thread waits, however long others wait.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include "base/word.h"
#include "far/turns.h"

struct turn {
        const _Atomic uint32_t *word;
        uint32_t seen;
        /* Futex, on which the thread sleeps.  Stored with release by the thread that polls, so that
         * the thread that polls next sees its work. */
        _Atomic uint32_t state;
        struct turn *next;
};
enum { TURN_NONE, TURN_LISTED, TURN_OVER, TURN_POLLS };

static struct {
        pthread_mutex_t lock;           /* guards the rest; held for a look at the words */
        bool polling;                   /* a thread does the I/O side's work */
        struct turn *first;             /* the list: the thread that has waited longest */
        _Atomic bool listed;            /* the list is not empty; read without the lock as a hint */
} turns = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A child of vfork uses its parent's.  If the child is killed in its wait, the parent's next wait
 * finds the state that the child had. */
static _Thread_local struct turn my_turn;

static void take_off(struct turn **at, uint32_t state)
{
        struct turn *t = *at;

        *at = t->next;
        atomic_store(&turns.listed, turns.first != NULL);
        /* From here on the record may be in use for another wait: at worst, that thread looks once
         * more. */
        atomic_store_explicit(&t->state, state, memory_order_release);
        word_wake(&t->state, 1);
}

static struct turn **place_of(const struct turn *t)
{
        struct turn **at = &turns.first;

        while (*at && *at != t)
                at = &(*at)->next;
        return at;
}

bool turn_begin(const void *word, uint32_t seen)
{
        uint32_t state;

        pthread_mutex_lock(&turns.lock);
        if (atomic_load(&my_turn.state) == TURN_LISTED)
                take_off(place_of(&my_turn), TURN_NONE);
        bool polls = !turns.polling || atomic_load(&my_turn.state) == TURN_POLLS;
        my_turn.word = word;
        my_turn.seen = seen;
        my_turn.next = NULL;
        state = polls ? TURN_POLLS : atomic_load(my_turn.word) == seen ? TURN_LISTED : TURN_OVER;
        atomic_store(&my_turn.state, state);
        if (polls)
                turns.polling = true;
        if (state == TURN_LISTED) {
                *place_of(NULL) = &my_turn;
                atomic_store(&turns.listed, true);
        }
        pthread_mutex_unlock(&turns.lock);
        /* The thread that polls ends this sleep, as it ends waits for pages. */
        while ((state = atomic_load_explicit(&my_turn.state, memory_order_acquire)) == TURN_LISTED)
                word_sleep(&my_turn.state, TURN_LISTED, NULL);
        return state == TURN_POLLS;
}

/* With the lock held. */
static void tell(void)
{
        for (struct turn **at = &turns.first; *at; )
                if (atomic_load((*at)->word) != (*at)->seen)
                        take_off(at, TURN_OVER);
                else
                        at = &(*at)->next;
}

void turn_tell(void)
{
        /* Relaxed: a thread that comes just now is met after the next step. */
        if (!atomic_load_explicit(&turns.listed, memory_order_relaxed))
                return;
        pthread_mutex_lock(&turns.lock);
        tell();
        pthread_mutex_unlock(&turns.lock);
}

void turn_over(void)
{
        pthread_mutex_lock(&turns.lock);
        atomic_store(&my_turn.state, TURN_NONE);
        tell();
        turns.polling = turns.first != NULL;
        if (turns.first)
                take_off(&turns.first, TURN_POLLS);
        pthread_mutex_unlock(&turns.lock);
}

void turns_forked(void)
{
        pthread_mutex_init(&turns.lock, NULL);
        turns.polling = false;
        turns.first = NULL;
        atomic_store(&turns.listed, false);
        atomic_store(&my_turn.state, TURN_NONE);
}
