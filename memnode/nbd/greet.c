/*
 * The thread that accepts connections and listens to newcomers (docs/security.md).
 *
 * Whoever reaches the port may connect, and be silent, slow, or wrong.  So a newcomer has a fixed
 * place, of which there are NBD_NEWCOMERS, and a short time.  When the places are all taken, the
 * oldest of the origin with most newcomers goes.  So one that says what it wants at once comes in,
 * whoever comes with it.  What a newcomer may cause is bounded: answers of a few words, and the
 * arithmetic of one TLS handshake.  Threads and buffers are for those that nbd_serve() takes.
 *
 * [I] This thread waits for no client: it sends without waiting, and who does not read is closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "admission/keyring.h"
#include "admission/party.h"
#include "admission/refusals.h"
#include "common/clock.h"
#include "memnode.h"
#include "nbd/connection.h"
#include "nbd/greet.h"
#include "nbd/proto.h"
#include "nbd/serve.h"
#include "nbd/thread.h"
#include "nbd/tls.h"
#include "pulse.h"

#define PEER            "NBD client "   /* begins each peer's name */
#define ACCEPTS         16              /* in a row; then newcomers have their turn */
#define WRONG_KEY_MS    1000            /* how long a wrong key waits for its answer */
#define YOUNG_MS        200             /* a newcomer may take so long beside others of its host */
#define SCARCE_SAID_MS  60000           /* and before it is said again */
#define SCARCE_MS       200             /* without descriptors or memory: before the next accept */
/* wanted: the kernel gives what net.core.wmem_max allows */
#define UNIX_BUFFER     (4 << 20)

struct newcomer {
        struct nbd_connection *c;
        /* WRONG: its key was; it waits for its end. */
        enum { IN_WORDS, IN_TLS, WRONG } phase;
        short events;                   /* that it waits for */
        uint64_t number;                /* in the order of their coming */
};

/* Of the thread: */
static struct newcomer newcomers[NBD_NEWCOMERS];
static unsigned nnewcomers;
static uint64_t came;                   /* so far */
static int64_t scarce_until;            /* ms: nothing is accepted before */
/* Set before `begun`, and constant then: */
static int sockets[NBD_SOCKETS];
static unsigned nsockets;
static int end_fd = -1;                 /* eventfd: the thread is to end */
static pthread_t greeter;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool begun;                      /* guarded by lock */
static pthread_cond_t begins = PTHREAD_COND_INITIALIZER;

static void set(int fd, int level, int option, int value)
{
        setsockopt(fd, level, option, &value, sizeof(value));
}

/* Failures cost speed only. */
static void tune(int fd, int family)
{
        if (family == AF_UNIX) {
                set(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER);
                return;
        }
        /* TCP's buffers are left to the kernel: its own limit is larger than what it lets us
         * set. */
        set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        /* A peer that lost power is noticed within some 30 s, even if nothing is under way. */
        set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
        set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
        set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

/* The program of a process of this host; "?" where we may not see it, or it is gone. */
static void name_program(pid_t pid, char name[17])
{
        char path[32];

        strcpy(name, "?");
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, name, 16);
        if (fd >= 0)
                close(fd);
        if (n > 0)
                name[name[n - 1] == '\n' ? n - 1 : n] = 0;
        for (char *c = name; *c; c++)   /* it is the client's own text */
                if (strchr("() ", *c))
                        *c = '?';
}

static void name_peer(struct nbd_connection *c, const struct sockaddr *a, socklen_t len)
{
        char host[64], port[16], program[17];
        struct ucred who;
        socklen_t n = sizeof(who);

        if (c->local && getsockopt(c->at.fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0) {
                name_program(who.pid, program);
                snprintf(c->peer, sizeof(c->peer), PEER "process %d (%s) of user %u", who.pid,
                         program, who.uid);
        } else if (getnameinfo(a, len, host, sizeof(host), port, sizeof(port),
                             NI_NUMERICHOST | NI_NUMERICSERV) == 0)
                snprintf(c->peer, sizeof(c->peer),
                         a->sa_family == AF_INET6 ? PEER "[%s]:%s" : PEER "%s:%s", host, port);
        else
                snprintf(c->peer, sizeof(c->peer), PEER "(unknown)");
        origin_text(c->origin, a, c->at.fd);
}

/* It has proved itself with that key. */
static void name_key(struct nbd_connection *c, const char *key)
{
        char at[sizeof(c->peer)];

        snprintf(at, sizeof(at), "%s", c->peer + strlen(PEER));
        snprintf(c->peer, sizeof(c->peer), PEER "%.*s at %.*s", KEY_NAME_MAX, key, 80, at);
}

/* ---- Ends of newcomers ---- */

static void forget(struct newcomer *n) { *n = newcomers[--nnewcomers]; }

static void close_newcomer(struct newcomer *n)
{
        struct nbd_connection *c = n->c;

        nbd_tls_end(&c->wire);
        close(c->at.fd);
        free(c->h);
        free(c);
        forget(n);
}

static unsigned count_of(const char *origin)
{
        unsigned count = 0;

        for (unsigned i = 0; i < nnewcomers; i++)
                count += strcmp(newcomers[i].c->origin, origin) == 0;
        return count;
}

/* Of the origins that have `count` newcomers, the newcomer that goes first: one whose key was
 * wrong, else the oldest.  How far it has come does not count: a stranger says a few words, too. */
static struct newcomer *first_to_go(unsigned count)
{
        struct newcomer *found = NULL;

        for (unsigned i = 0; i < nnewcomers; i++) {
                struct newcomer *n = &newcomers[i];
                if (n->phase == WRONG)
                        return n;
                if (count_of(n->c->origin) == count && (!found || n->number < found->number))
                        found = n;
        }
        return found;
}

static unsigned most_of_an_origin(void)
{
        unsigned most = 0;

        for (unsigned i = 0; i < nnewcomers; i++) {
                unsigned count = count_of(newcomers[i].c->origin);
                most = count > most ? count : most;
        }
        return most;
}

/* Makes room for one more of that origin.  False: those of its own that came a moment ago are to
 * end first, as when many processes of a host start at once; it may come again. */
static bool make_room(const char *origin)
{
        unsigned most = most_of_an_origin();

        if (nnewcomers < NBD_NEWCOMERS)
                return true;
        struct newcomer *n = first_to_go(most);
        if (n->phase != WRONG && most > 1 && count_of(origin) == most &&
            strcmp(n->c->origin, origin) == 0 &&
            n->c->until - now_ms() > NBD_NEWCOMER_MS - YOUNG_MS)
                return false;
        if (n->phase != WRONG)          /* that was counted */
                nbd_refused(n->c, REFUSED_CROWD, "it came with too many others, and had not said "
                            "what it wants");
        close_newcomer(n);
        return true;
}

/* ---- Their handshakes ---- */

static int send_now(void *ctx, const void *data, size_t len)
{
        const struct nbd_connection *c = ctx;
        ssize_t n = send(c->at.fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EAGAIN;
}

/* Of a client that may come in, but for whom there is no room. */
static uint32_t no_room(void *ctx, const char *name, size_t len, uint64_t *size, const char **text)
{
        (void)ctx, (void)name, (void)len, (void)size;
        *text = "you have as many connections as you may have, or memnode has";
        return NBD_REP_ERR_POLICY;
}

static const char *nothing_listed(void *ctx, unsigned i)
{
        (void)ctx, (void)i;
        return NULL;
}

static const struct nbd_handshake_ops strangers_ops = { no_room, no_room, NULL, nothing_listed,
                                                        send_now };

/* The client may use exports: from here on it has a thread.  n is over. */
static void let_in(struct newcomer *n)
{
        struct nbd_connection *c = n->c;
        char name[KEY_NAME_MAX + 1];

        if (c->wire.tls) {
                nbd_tls_name(&c->wire, name);
                name_key(c, name);
        }
        c->party = c->wire.tls ? party_of_key(name) : party_of_origin(c->origin);
        forget(n);
        nbd_serve(c);
}

static void step_tls(struct newcomer *n)
{
        struct nbd_connection *c = n->c;
        const char *why;
        int err = nbd_tls_step(&c->wire, &n->events, &why);

        if (err == -EAGAIN)
                return;
        if (!err) {
                nbd_handshake_secured(c->h);
                let_in(n);
        } else if (err == -EACCES) {
                nbd_refused(c, REFUSED_KEY, "it has no valid key: give both sides the same line of "
                            "--keys (%s)", why);
                n->phase = WRONG;
                n->events = 0;
                c->until = now_ms() + WRONG_KEY_MS;
        } else {
                nbd_refused(c, REFUSED_PROTOCOL, "TLS with it fails: %s", why);
                close_newcomer(n);
        }
}

static void begin_tls(struct newcomer *n)
{
        if (nbd_tls_begin(&n->c->wire) != 0) {
                nbd_refused(n->c, REFUSED_LIMIT, "no memory is left for TLS");
                close_newcomer(n);
                return;
        }
        n->phase = IN_TLS;
        step_tls(n);
}

static void part(struct newcomer *n)
{
        struct nbd_connection *c = n->c;

        if (c->h->sent_away)
                nbd_refused(c, REFUSED_KEY, "it uses no TLS: give vmrun nbds:// and keys=FILE");
        else if (c->h->end == NBD_HS_BROKEN)
                nbd_refused(c, REFUSED_PROTOCOL, "%s", c->h->broken);
        else
                info_("%s: went before it asked for an export", c->peer);
        close_newcomer(n);
}

static void listen_to(struct newcomer *n)
{
        struct nbd_connection *c = n->c;
        ssize_t got = recv(c->at.fd, c->ahead, sizeof(c->ahead), MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (got <= 0) {
                part(n);
                return;
        }
        size_t taken = nbd_handshake_input(c->h, c->ahead, (size_t)got);
        switch (c->h->end) {
        case NBD_HS_GOING: return;
        case NBD_HS_TLS: begin_tls(n); return;
        case NBD_HS_OPTION:
                c->nahead = (size_t)got - taken;
                memmove(c->ahead, c->ahead + taken, c->nahead);
                let_in(n);
                return;
        default: part(n);
        }
}

static void out_of_time(struct newcomer *n)
{
        if (n->phase == WRONG)
                nbd_tls_refuse(&n->c->wire);
        else
                nbd_refused(n->c, REFUSED_SLOW, "it asked for no export within %d s",
                            NBD_NEWCOMER_MS / 1000);
        close_newcomer(n);
}

/* ---- Accepting ---- */

static void welcome(int fd, const struct sockaddr_storage *from, socklen_t len)
{
        struct nbd_connection *c = calloc(1, sizeof(*c));
        bool local = from->ss_family == AF_UNIX;

        if (c)
                c->h = malloc(sizeof(*c->h));
        if (!c || !c->h) {
                free(c);
                close(fd);
                return;
        }
        c->at.fd = c->wire.fd = fd;
        c->local = local;
        c->until = now_ms() + NBD_NEWCOMER_MS;
        name_peer(c, (const struct sockaddr *)from, len);
        tune(fd, from->ss_family);
        if (!make_room(c->origin)) {
                nbd_refused(c, REFUSED_CROWD, "too many of its host come at once");
                close(fd);
                free(c->h);
                free(c);
                return;
        }
        struct newcomer *n = &newcomers[nnewcomers++];
        *n = (struct newcomer){ .c = c, .events = POLLIN, .number = ++came };
        nbd_handshake_start(c->h, &strangers_ops, c,
                            keyring_is_used() && !local ? NBD_DOOR_TLS : NBD_DOOR_STOP,
                            keyring_is_used());
}

static void accept_from(int socket)
{
        static int64_t said;            /* there is one such thread; 0: never */

        for (unsigned i = 0; i < ACCEPTS; i++) {
                struct sockaddr_storage a = { .ss_family = AF_UNSPEC };
                socklen_t len = sizeof(a);
                int fd = accept4(socket, (struct sockaddr *)&a, &len, SOCK_CLOEXEC);
                if (fd >= 0) {
                        welcome(fd, &a, len);
                        continue;
                }
                if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                        if (!said || now_ms() - said > SCARCE_SAID_MS) {
                                warnx_("NBD clients must wait: %s%s", strerror(errno),
                                       errno == EMFILE ? ": raise `ulimit -n`" : "");
                                said = now_ms();
                        }
                        /* The client stays in the queue, so accept() would fail again at once. */
                        scarce_until = now_ms() + SCARCE_MS;
                }
                return;
        }
}

/* ---- The thread ---- */

static int time_left(void)
{
        int64_t now = now_ms(), first = INT64_MAX;

        for (unsigned i = 0; i < nnewcomers; i++)
                if (newcomers[i].c->until < first)
                        first = newcomers[i].c->until;
        if (scarce_until > now && scarce_until < first)
                first = scarce_until;
        return first == INT64_MAX ? -1 : first > now ? (int)(first - now) : 0;
}

/* The events of the sockets and newcomers, in this order, then of end_fd. */
static nfds_t gather(struct pollfd *fds)
{
        bool scarce = now_ms() < scarce_until;
        nfds_t k = 0;

        for (unsigned i = 0; i < nsockets; i++)
                fds[k++] = (struct pollfd){ scarce ? -1 : sockets[i], POLLIN, 0 };
        for (unsigned i = 0; i < nnewcomers; i++)
                fds[k++] = (struct pollfd){ newcomers[i].events ? newcomers[i].c->at.fd : -1,
                                            newcomers[i].events, 0 };
        fds[k++] = (struct pollfd){ end_fd, POLLIN, 0 };
        return k;
}

static void *greet_main(void *arg)
{
        struct pollfd fds[NBD_SOCKETS + NBD_NEWCOMERS + 1];

        pthread_setname_np(pthread_self(), "memnode-nbd");
        pthread_mutex_lock(&lock);
        while (!begun)
                pthread_cond_wait(&begins, &lock);
        pthread_mutex_unlock(&lock);
        for (;;) {
                nfds_t k = gather(fds);
                if (poll(fds, k, pulse_beat(PULSE_NBD, time_left())) < 0)
                        continue;
                if (fds[k - 1].revents)
                        break;
                int64_t now = now_ms();
                /* From the last one on: who leaves has the last one in its place. */
                for (unsigned i = nnewcomers; i-- > 0;) {
                        struct newcomer *n = &newcomers[i];
                        if (now >= n->c->until)
                                out_of_time(n);
                        else if (!fds[nsockets + i].revents)
                                continue;
                        else if (n->phase == IN_TLS)
                                step_tls(n);
                        else
                                listen_to(n);
                }
                for (unsigned i = 0; i < nsockets; i++)
                        if (fds[i].revents)
                                accept_from(sockets[i]);
        }
        while (nnewcomers)
                close_newcomer(&newcomers[0]);
        return arg;
}

int nbd_greet_open(void)
{
        if (end_fd >= 0)
                return 0;
        end_fd = eventfd(0, EFD_CLOEXEC);
        int err = end_fd < 0 ? -errno : nbd_thread(&greeter, greet_main, NULL, false);
        if (err && end_fd >= 0)
                close(end_fd);
        if (err)
                end_fd = -1;
        return err;
}

void nbd_greet_begin(const int *from, unsigned n)
{
        memcpy(sockets, from, n * sizeof(*from));
        nsockets = n;
        pthread_mutex_lock(&lock);
        begun = true;
        pthread_cond_signal(&begins);
        pthread_mutex_unlock(&lock);
}

void nbd_greet_end(void)
{
        const uint64_t one = 1;

        if (end_fd < 0)
                return;
        nbd_greet_begin(sockets, 0);    /* where it has not begun */
        while (write(end_fd, &one, sizeof(one)) < 0 && errno == EINTR)
                ;
        pthread_join(greeter, NULL);
        close(end_fd);
        end_fd = -1;
}
