/*
 * The list of NBD connections, which of them use an export, and how a connection ends that a newer
 * one replaces, or whose process is dead (docs/protocol.md, rules 3 and 5).
 *
 * A connection belongs to its thread, which closes it.  Other threads find it in the list, under
 * the lock, only to shut its socket down.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include "admission/party.h"
#include "common/clock.h"
#include "nbd/export.h"
#include "nbd/fence.h"
#include "nbd/proto.h"

/* A connection that is cut leaves at its next receive, or between two requests. */
#define CUT_MS       10000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by lock: */
static struct nbd_fenced *connections;
static unsigned nconnections;
/* a connection has ended, uses its export no longer, or is cut */
static pthread_cond_t fewer = PTHREAD_COND_INITIALIZER;

bool nbd_fence_is_cut(const struct nbd_fenced *c)
{
        return atomic_load_explicit(&c->cut, memory_order_relaxed);
}

void nbd_fence_enter(struct nbd_fenced *c)
{
        pthread_mutex_lock(&lock);
        c->next = connections;
        connections = c;
        nconnections++;
        pthread_mutex_unlock(&lock);
}

void nbd_fence_exit(struct nbd_fenced *c)
{
        nbd_fence_leave(c, false);
        pthread_mutex_lock(&lock);
        struct nbd_fenced **p = &connections;
        while (*p != c)
                p = &(*p)->next;
        *p = c->next;
        /* under the lock, so that no other socket that gets this number is shut down */
        close(c->fd);
        nconnections--;
        /* this thread's last access to what nbd_fence_wait() waits for */
        pthread_cond_broadcast(&fewer);
        pthread_mutex_unlock(&lock);
}

void nbd_fence_leave(struct nbd_fenced *c, bool goodbye)
{
        pthread_mutex_lock(&lock);
        struct nbd_export *e = c->e;
        c->e = NULL;
        pthread_cond_broadcast(&fewer);
        pthread_mutex_unlock(&lock);
        if (e && goodbye)
                nbd_export_leave(e);
        else if (e)
                nbd_export_detach(e);
}

/*
 * Ends the connections to an export that are stale, and waits until their threads have left.  self:
 * the caller's own, NULL if it has none.  False: the caller's own is stale, or another has not left
 * in time.
 *
 * [I] A connection is in the list with its `who` before it looks whether it is stale.  A newer
 * connection is admitted before it looks for stale ones.  So one of the two sees the other.  No
 * connection waits for a newer one, so these waits end.
 */
static bool end_stale(struct nbd_export *e, const struct nbd_fenced *self)
{
        const struct timespec until = deadline_in_ms(CUT_MS);
        bool waits = true, late = false;

        pthread_mutex_lock(&lock);
        while (waits && !late && !(self && nbd_fence_is_cut(self))) {
                waits = false;
                for (struct nbd_fenced *c = connections; c; c = c->next) {
                        if (c->e != e || nbd_export_current(e, &c->who))
                                continue;
                        if (!nbd_fence_is_cut(c)) {
                                shutdown(c->fd, SHUT_RDWR);
                                atomic_store_explicit(&c->cut, true, memory_order_relaxed);
                                pthread_cond_broadcast(&fewer); /* it may wait in here itself */
                        }
                        waits |= c != self;
                }
                late = waits && !(self && nbd_fence_is_cut(self)) &&
                       pthread_cond_clockwait(&fewer, &lock, CLOCK_MONOTONIC, &until) != 0;
        }
        bool ok = !late && !(self && nbd_fence_is_cut(self));
        pthread_mutex_unlock(&lock);
        return ok;
}

uint32_t nbd_fence_attach(struct nbd_fenced *c, struct party *party, const char *name, size_t len,
                          const char **text)
{
        struct nbd_export *e;
        struct nbd_who who;
        uint32_t error = nbd_export_attach(name, len, party, &e, &who, text);

        if (error)
                return error;
        pthread_mutex_lock(&lock);
        c->who = who;
        c->e = e;
        pthread_mutex_unlock(&lock);
        bool current = end_stale(e, c);
        /* Only now, as the connections that this one replaces have left. */
        if (current && (who.fresh || !party_crowded(party, false)))
                return 0;
        nbd_fence_leave(c, false);
        *text = current ? "you have as many connections as you may have, or memnode has"
                        : "an older connection of this process has not ended, or a newer one is "
                          "here";
        return NBD_REP_ERR_POLICY;
}

uint32_t nbd_fence_cut(struct nbd_export *e, const char **text)
{
        bool ended = end_stale(e, NULL);

        nbd_export_detach(e);
        if (ended)
                return 0;
        *text = "a connection of a member that was cut has not ended yet";
        return NBD_REP_ERR_POLICY;
}

unsigned nbd_fence_count(void)
{
        pthread_mutex_lock(&lock);
        unsigned n = nconnections;
        pthread_mutex_unlock(&lock);
        return n;
}

unsigned nbd_fence_wait(unsigned ms)
{
        const struct timespec until = deadline_in_ms(ms);

        pthread_mutex_lock(&lock);
        while (nconnections && pthread_cond_clockwait(&fewer, &lock, CLOCK_MONOTONIC, &until) == 0)
                ;
        unsigned left = nconnections;
        pthread_mutex_unlock(&lock);
        return left;
}

static bool same_member(const struct nbd_fenced *a, const struct nbd_fenced *b)
{
        return a->e == b->e && a->who.member == b->who.member;
}

/* With the lock: true for the first connection of a member, if no connection of that member has
 * said that it stays. */
static bool is_waited_for(const struct nbd_fenced *c)
{
        const struct nbd_fenced *o = connections;

        if (!c->e || !c->who.member || nbd_fence_is_cut(c) ||
            !atomic_load_explicit(&c->e->used, memory_order_relaxed))
                return false;
        while (!same_member(o, c))
                o = o->next;
        if (o != c)
                return false;
        for (; o; o = o->next)
                if (same_member(o, c) && atomic_load_explicit(&o->stays, memory_order_relaxed))
                        return false;
        return true;
}

unsigned nbd_fence_members(void (*say)(const struct nbd_fenced *c))
{
        unsigned n = 0;

        pthread_mutex_lock(&lock);
        for (struct nbd_fenced *c = connections; c; c = c->next)
                if (is_waited_for(c)) {
                        n++;
                        if (say)
                                say(c);
                }
        pthread_mutex_unlock(&lock);
        return n;
}

void nbd_fence_break(void)
{
        pthread_mutex_lock(&lock);
        for (struct nbd_fenced *c = connections; c; c = c->next)
                if (c->e && c->who.member)
                        shutdown(c->fd, SHUT_RDWR);
        pthread_mutex_unlock(&lock);
}

void nbd_fence_shut(int how)
{
        pthread_mutex_lock(&lock);
        for (struct nbd_fenced *c = connections; c; c = c->next)
                shutdown(c->fd, how);
        pthread_mutex_unlock(&lock);
}
