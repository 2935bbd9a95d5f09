/*
 * What NBD clients can ask for by name, and the memory behind it.
 *
 * Named exports come from the settings, have their memory from start to end, and are listed.  A
 * lease is made by the first client that names it and shared by all connections that name it.  It
 * ends when its last connection has ended and the grace time has passed without a new one; so a
 * client that lost its connection finds its bytes again.  Its name holds 128 random bits and is
 * listed nowhere: a client that does not know it cannot find it.  Therefore the log has only its
 * first digits.
 *
 * vmrun's leases are made by CREATE and used by JOIN, whose names say which connection of which
 * process it is (members.h).  Such a lease has an incarnation, a random number that is the answer
 * to CREATE: a JOIN that was meant for another lease, of a memnode that ran here before, is refused
 * by it.
 *
 * Every lease has an account of its own: to memnode, one lease is one client.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "account.h"
#include "admission/budget.h"
#include "admission/party.h"
#include "common/clock.h"
#include "common/secret.h"
#include "common/size.h"
#include "memnode.h"
#include "nbd/lease.h"
#include "nbd/proto.h"
#include "nbd/thread.h"

#define PAGE    4096u
#define LEASE_LINES 60                  /* a minute, of the log */

pthread_mutex_t nbd_leases_lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it: */
struct lease *nbd_leases;
static bool opened, closing, draining;
static uint64_t abandoned;              /* leases that ended after their grace time */
static pthread_t sweeper;
static pthread_cond_t made = PTHREAD_COND_INITIALIZER;  /* some lease is no longer being made */
/* leases or closing changed, for the sweeper */
static pthread_cond_t due = PTHREAD_COND_INITIALIZER;
/* Constant once opened: */
static struct nbd_export named[sizeof(opt.export) / sizeof(opt.export[0])];
static unsigned nnamed;

/* ---- Names ---- */

/* Parses the name of a lease.  0, or an error with a sentence. */
static uint32_t lease_name(const char *name, size_t len, struct nbd_lease_name *l,
                           const char **text)
{
        switch (nbd_lease_parse(name, len, l)) {
        case 0: return 0;
        case -EINVAL:
                *text = "a lease is called lease-<32 hexadecimal digits, in small letters>-<bytes, "
                        "a multiple of 4096>; the names that begin with create-, join- and cut- "
                        "are vmrun's own: install the same version on both";
                return NBD_REP_ERR_INVALID;
        default:
                *text = len ? "memnode has no export of that name"
                            : "memnode has no named exports: name one, or a lease";
                return NBD_REP_ERR_UNKNOWN;
        }
}

static struct nbd_export *find_named(const char *name, size_t len)
{
        if (len == 0)
                return nnamed ? &named[0] : NULL;
        for (unsigned i = 0; i < nnamed; i++)
                if (strlen(opt.export[i].name) == len && memcmp(opt.export[i].name, name, len) == 0)
                        return &named[i];
        return NULL;
}

static bool is_named(const struct nbd_export *e) { return e >= named && e < named + nnamed; }

const char *nbd_export_listed(unsigned i) { return i < nnamed ? opt.export[i].name : NULL; }

/* ---- Leases ---- */

const char *nbd_lease_text(const struct lease *l, char text[NBD_EXPORT_TEXT])
{
        const char *party = account_party(l->e.account);
        char a[32];

        snprintf(text, NBD_EXPORT_TEXT, "NBD lease %.*s...%s%s, %s", NBD_LEASE_MARK, l->hex,
                 *party ? " of " : "", party, size_text(l->e.size, a));
        return text;
}

/* What becomes of leases, for the log: at most LEASE_LINES a minute, as a program at a socket that
 * is open to all may make leases and drop them without end. */
__attribute__((format(printf, 2, 3)))
static void say(void (*log)(const char *fmt, ...), const char *fmt, ...)
{
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static struct budget budget;    /* guarded by it */
        char text[2 * NBD_EXPORT_TEXT];
        uint64_t before;
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        pthread_mutex_lock(&lock);
        bool room = budget_take(&budget, LEASE_LINES, now_ms(), &before);
        pthread_mutex_unlock(&lock);
        if (before)
                notice_("%llu lines more about leases had no room", (unsigned long long)before);
        (room ? log : info_)("%s", text);
}

static struct lease *find_lease(const char *hex)
{
        for (struct lease *l = nbd_leases; l; l = l->next)
                if (secret_same(l->hex, hex, NBD_LEASE_HEX))
                        return l;
        return NULL;
}

static void unlink_lease(struct lease *gone)
{
        struct lease **p = &nbd_leases;
        while (*p != gone)
                p = &(*p)->next;
        *p = gone->next;
}

/* Whether what a name says of a lease agrees with it; l: NULL, there is none.  0, or an error with
 * a sentence. */
static uint32_t agrees(const struct lease *l, const struct nbd_lease_name *n, const char **text)
{
        if (n->verb == NBD_CREATE && l)
                *text = "that lease exists already";
        else if (n->verb == NBD_LEASE && l && l->incarnation)
                *text = "that lease is for its members only";
        else if (n->verb == NBD_LEASE && l && l->e.size != n->size)
                *text = "that lease exists with another size";
        else if (n->verb < NBD_JOIN)
                return 0;
        else if (!l || l->incarnation != n->incarnation) {
                *text = "memnode does not know that lease: it was restarted, or has given the "
                        "lease up";
                return NBD_REP_ERR_UNKNOWN;
        } else {
                return 0;
        }
        return NBD_REP_ERR_INVALID;
}

static uint32_t admit(struct lease *l, const struct nbd_who *who, const char **text)
{
        int err = who->member ? members_admit(&l->members, who->member, who->link, who->generation)
                              : 0;

        if (!err)
                return 0;
        *text = err == -EPERM    ? "this process counts as dead, and its connections as ended"
                : err == -ESTALE ? "a newer connection of this process was here before"
                : err == -EUSERS ? "this lease has too many members"
                                 : "memnode cannot take this connection";
        return err == -EPERM ? NBD_REP_ERR_INVALID : NBD_REP_ERR_POLICY;
}

uint32_t nbd_export_take(struct nbd_export *e, const char *owner, struct party *party,
                         const char **text)
{
        e->account = account_open(owner, party);
        if (!e->account) {
                *text = "you have as many leases as you may have, or memnode has: wait until some "
                        "end";
                return NBD_REP_ERR_POLICY;
        }
        int err = account_take(e->account, (e->size + PAGE - 1) / PAGE * PAGE, &e->base);
        if (!err)
                return 0;
        account_close(e->account);
        *text = err == -EDQUOT ? "that is more than memnode gives to one client: ask for less, or "
                                 "raise its --max-per-client"
                : err == -ENOSPC ? "memnode has not that much memory left in one piece: ask for "
                                   "less, wait, or raise its --size"
                                 : "memnode could not take the memory for it";
        return NBD_REP_ERR_POLICY;
}

/* Takes the memory of a new lease without the lock, since zeroing may take seconds.  Called and
 * returns with the lock. */
static void make(struct lease *l, struct party *party)
{
        char owner[64], lease[NBD_EXPORT_TEXT];

        l->making = true;
        pthread_mutex_unlock(&nbd_leases_lock);
        snprintf(owner, sizeof(owner), "NBD lease %.*s...", NBD_LEASE_MARK, l->hex);
        const char *text = "";
        uint32_t error = nbd_export_take(&l->e, owner, party, &text);
        if (!error)
                say(notice_, "%s: made", nbd_lease_text(l, lease));
        pthread_mutex_lock(&nbd_leases_lock);
        l->making = false;
        l->error = error;
        l->text = text;
        if (error)
                unlink_lease(l);
        pthread_cond_broadcast(&made);
}

/* The lease has no user any more: its grace time begins.  With the lock. */
void nbd_lease_let_go(struct lease *l)
{
        /* SIGHUP may change it */
        l->since = now_ms();
        l->until = l->since + __atomic_load_n(&opt.grace_ms, __ATOMIC_RELAXED);
        pthread_cond_signal(&due);
}

static struct lease *new_lease(const struct nbd_lease_name *n, const char **text)
{
        struct lease *l = calloc(1, sizeof(*l));

        *text = "memnode has no memory or no random numbers left";
        while (l && n->verb == NBD_CREATE && !l->incarnation)
                if (getrandom(&l->incarnation, sizeof(l->incarnation), 0) !=
                    sizeof(l->incarnation)) {
                        free(l);
                        return NULL;
                }
        if (!l)
                return NULL;
        l->e.size = n->size;
        memcpy(l->hex, n->hex, sizeof(l->hex));
        l->next = nbd_leases;
        nbd_leases = l;
        return l;
}

/* Before anything is made for a connection that replaces none. */
static uint32_t crowded(struct party *party, const char **text)
{
        if (!party_crowded(party, true))
                return 0;
        *text = "you have as many connections as you may have, or memnode has: wait until some end";
        return NBD_REP_ERR_POLICY;
}

/* Called and returns with the lock.  *back: the lease had no user. */
static uint32_t attach_lease(const struct nbd_lease_name *n, struct party *party,
                             struct nbd_export **e, bool *fresh, bool *back, const char **text)
{
        struct lease *l = find_lease(n->hex);
        uint32_t error = agrees(l, n, text);

        if (!error && !l && draining) {
                *text = "memnode is being drained, and makes no lease any more: name another one";
                error = NBD_REP_ERR_SHUTDOWN;
        }
        *fresh = !l;
        if (!error && !l)
                error = crowded(party, text);
        if (error)
                return error;
        *back = l && l->users == 0;
        if (l) {
                l->users++;
                while (l->making)               /* as long as account_take() takes */
                        pthread_cond_wait(&made, &nbd_leases_lock);
        } else {
                l = new_lease(n, text);
                if (!l)
                        return NBD_REP_ERR_POLICY;
                l->users = 1;
                make(l, party);
        }
        error = l->error;
        if (error)
                *text = l->text;
        else
                error = admit(l, &n->who, text);
        if (!error) {
                l->has_client = true;
                *e = &l->e;
                return 0;
        }
        if (--l->users == 0 && l->error)
                free(l);
        else if (l->users == 0 && *back)
                pthread_cond_signal(&due);      /* its grace time runs on */
        else if (l->users == 0)
                nbd_lease_let_go(l);
        return error;
}

uint32_t nbd_export_attach(const char *name, size_t len, struct party *party,
                           struct nbd_export **e, struct nbd_who *who, const char **text)
{
        struct nbd_lease_name n;
        char lease[NBD_EXPORT_TEXT];
        bool back = false;

        *who = (struct nbd_who){ 0 };
        *text = "";
        *e = find_named(name, len);
        who->fresh = *e;
        if (*e)
                return crowded(party, text);
        uint32_t error = lease_name(name, len, &n, text);
        if (!error && n.verb == NBD_CUT) {
                *text = "members are cut with INFO";
                error = NBD_REP_ERR_INVALID;
        }
        if (error)
                return error;
        *who = n.who;
        pthread_mutex_lock(&nbd_leases_lock);
        error = attach_lease(&n, party, e, &who->fresh, &back, text);
        pthread_mutex_unlock(&nbd_leases_lock);
        if (!error && back)
                say(notice_, "%s: a client is back", nbd_lease_text((struct lease *)*e, lease));
        return error;
}

bool nbd_export_current(struct nbd_export *e, const struct nbd_who *who)
{
        struct lease *l = (struct lease *)e;

        if (!who->member)
                return true;
        pthread_mutex_lock(&nbd_leases_lock);
        bool current = members_is_current(&l->members, who->member, who->link, who->generation);
        pthread_mutex_unlock(&nbd_leases_lock);
        return current;
}

void nbd_export_describe(const struct nbd_export *e, char text[NBD_DESCRIPTION])
{
        const struct lease *l = (const struct lease *)e;

        *text = '\0';
        if (!is_named(e) && l->incarnation)     /* which is constant */
                snprintf(text, NBD_DESCRIPTION, "incarnation %016llx",
                         (unsigned long long)l->incarnation);
}

const char *nbd_export_text(const struct nbd_export *e, char text[NBD_EXPORT_TEXT])
{
        if (!is_named(e))
                return nbd_lease_text((const struct lease *)e, text);
        snprintf(text, NBD_EXPORT_TEXT, "%.100s", opt.export[e - named].name);
        return text;
}

bool nbd_export_has_status(const struct nbd_export *e)
{
        return !is_named(e) && ((const struct lease *)e)->incarnation;
}

void nbd_export_drain(void)
{
        pthread_mutex_lock(&nbd_leases_lock);
        draining = true;
        pthread_mutex_unlock(&nbd_leases_lock);
}

unsigned nbd_export_leases(uint64_t *gone)
{
        unsigned n = 0;

        pthread_mutex_lock(&nbd_leases_lock);
        for (const struct lease *l = nbd_leases; l; l = l->next)
                n++;
        *gone = abandoned;
        pthread_mutex_unlock(&nbd_leases_lock);
        return n;
}

unsigned nbd_export_just_gone(void)
{
        unsigned n = 0;

        pthread_mutex_lock(&nbd_leases_lock);
        for (struct lease *l = nbd_leases; l; l = l->next)
                n += !l->users && l->incarnation &&
                     atomic_load_explicit(&l->e.used, memory_order_relaxed) &&
                     now_ms() - l->since < DRAIN_GONE_MS;
        pthread_mutex_unlock(&nbd_leases_lock);
        return n;
}

/* With the lock.  0, or an error with a sentence. */
static uint32_t cut(struct lease *l, struct nbd_lease_name *n, const char **text)
{
        uint64_t first, last;

        while (nbd_lease_range(n, &first, &last))
                if (members_cut(&l->members, first, last) != 0) {
                        *text = "memnode has no memory left to note which processes are dead";
                        return NBD_REP_ERR_POLICY;
                }
        return 0;
}

uint32_t nbd_export_look(const char *name, size_t len, uint64_t *size, struct nbd_export **e,
                         const char **text)
{
        struct nbd_lease_name n;
        const struct nbd_export *known = find_named(name, len);
        uint32_t error = known ? 0 : lease_name(name, len, &n, text);

        *e = NULL;
        if (known)
                *size = known->size;
        if (known || error)
                return error;
        pthread_mutex_lock(&nbd_leases_lock);
        struct lease *l = find_lease(n.hex);
        error = agrees(l, &n, text);
        *size = l ? l->e.size : n.size;
        if (!error && n.verb == NBD_CUT)
                error = cut(l, &n, text);
        if (!error && n.verb == NBD_CUT) {
                *e = &l->e;
                l->users++;
        }
        pthread_mutex_unlock(&nbd_leases_lock);
        return error;
}

/* It cannot be found any more. */
static void end(struct lease *l)
{
        account_close(l->e.account);
        members_free(&l->members);
        free(l);
}

/* With the lock.  True: it was the last client, and `lease` is what the log calls the lease. */
static bool lose_user(struct lease *l, char lease[NBD_EXPORT_TEXT])
{
        if (--l->users)
                return false;
        nbd_lease_text(l, lease);
        nbd_lease_let_go(l);
        bool had = l->has_client;
        l->has_client = false;
        return had && !closing;         /* else memnode itself has broken the connections */
}

static void say_gone(const char *lease)
{
        say(warnx_, "%s: its last client is gone; it may come back for %u s", lease,
            __atomic_load_n(&opt.grace_ms, __ATOMIC_RELAXED) / 1000);
}

void nbd_export_detach(struct nbd_export *e)
{
        struct lease *l = (struct lease *)e;
        char lease[NBD_EXPORT_TEXT];

        if (is_named(e))
                return;
        pthread_mutex_lock(&nbd_leases_lock);
        bool gone = lose_user(l, lease);
        pthread_mutex_unlock(&nbd_leases_lock);
        if (gone)
                say_gone(lease);
}

void nbd_export_leave(struct nbd_export *e)
{
        struct lease *l = (struct lease *)e;
        char lease[NBD_EXPORT_TEXT];
        bool gone = false;

        if (is_named(e))
                return;
        pthread_mutex_lock(&nbd_leases_lock);
        bool over = l->users == 1 && !members_awaits(&l->members);
        if (over)
                unlink_lease(l);        /* from here on it cannot be found */
        else
                gone = lose_user(l, lease);
        pthread_mutex_unlock(&nbd_leases_lock);
        if (gone)
                say_gone(lease);
        if (over) {
                say(notice_, "%s: over, as its client said goodbye", nbd_lease_text(l, lease));
                end(l);
        }
}

/* ---- The end of leases ---- */

/* The unused lease whose time comes first. */
static struct lease *next_due(void)
{
        struct lease *first = NULL;

        for (struct lease *l = nbd_leases; l; l = l->next)
                if (l->users == 0 && (!first || l->until < first->until))
                        first = l;
        return first;
}

/* Sleeps until a lease is due; wakes when one becomes unused.  Ends at nbd_exports_close(). */
static void *sweep(void *arg)
{
        char lease[NBD_EXPORT_TEXT];

        (void)arg;
        pthread_mutex_lock(&nbd_leases_lock);
        while (!closing) {
                struct lease *l = next_due();
                int64_t left = l ? l->until - now_ms() : 0;
                if (!l) {
                        pthread_cond_wait(&due, &nbd_leases_lock);
                } else if (left > 0) {
                        struct timespec until = deadline_in_ms((uint64_t)left);
                        pthread_cond_clockwait(&due, &nbd_leases_lock, CLOCK_MONOTONIC, &until);
                } else {
                        /* Out of the list it cannot be found, so it may be zeroed without the
                         * lock. */
                        unlink_lease(l);
                        abandoned++;
                        pthread_mutex_unlock(&nbd_leases_lock);
                        say(warnx_, "%s: over, as no client came back for the grace time",
                            nbd_lease_text(l, lease));
                        end(l);
                        pthread_mutex_lock(&nbd_leases_lock);
                }
        }
        pthread_mutex_unlock(&nbd_leases_lock);
        return NULL;
}

static int open_named(char *why, size_t n)
{
        for (unsigned i = 0; i < opt.nexports; i++) {
                char owner[128];
                const char *text;

                named[i].size = opt.export[i].size;
                snprintf(owner, sizeof(owner), "NBD export %s", opt.export[i].name);
                if (nbd_export_take(&named[i], owner, NULL, &text) != 0) {
                        snprintf(why, n, "no memory for the export %s of %llu bytes: %s",
                                 opt.export[i].name, (unsigned long long)named[i].size, text);
                        while (i-- > 0)
                                account_close(named[i].account);
                        return -ENOSPC;
                }
        }
        nnamed = opt.nexports;
        return 0;
}

int nbd_exports_open(char *why, size_t n)
{
        int err = 0;

        pthread_mutex_lock(&nbd_leases_lock);
        if (!opened) {
                closing = false;
                err = nbd_thread(&sweeper, sweep, NULL, false);
                if (err)
                        snprintf(why, n, "cannot make a thread: %s", strerror(-err));
                opened = !err;
        }
        if (!err && nnamed != opt.nexports)
                err = open_named(why, n);
        pthread_mutex_unlock(&nbd_leases_lock);
        return err;
}

void nbd_exports_lose(bool kept)
{
        char lease[NBD_EXPORT_TEXT];

        pthread_mutex_lock(&nbd_leases_lock);
        for (const struct lease *l = nbd_leases; l; l = l->next)
                if (!l->making && !(kept && l->incarnation) &&
                    atomic_load_explicit(&l->e.used, memory_order_relaxed))
                        warnx_("%s: lost, with all that was written there",
                               nbd_lease_text(l, lease));
        pthread_mutex_unlock(&nbd_leases_lock);
}

void nbd_exports_close(void)
{
        pthread_mutex_lock(&nbd_leases_lock);
        bool was_open = opened;
        closing = true;
        opened = false;
        if (was_open)
                pthread_cond_signal(&due);
        pthread_mutex_unlock(&nbd_leases_lock);
        if (was_open)
                pthread_join(sweeper, NULL);
}
