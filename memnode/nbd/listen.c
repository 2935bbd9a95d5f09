/*
 * The NBD server, from its listening sockets on: addresses and paths.  Its other parts:
 *
 *   greet.c      one thread that accepts connections, until a client may use an export
 *   serve.c      a thread for each connection from then on
 *   fence.c      the list of connections, and the end of those that others replace
 *   handshake.c  the protocol before the first command: a state machine on bytes, without sockets
 *   tls.c        keys, by TLS
 *   wire.c       the bytes of a connection, with TLS and without
 *   export.c     named exports and leases: which client uses which memory
 *   kept.c       leases that outlive memnode
 *   name.c       the names of leases
 *   transmit.c   the commands
 *   thread.c     how threads are made
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "admission/keyring.h"
#include "common/hostport.h"
#include "common/outfile.h"
#include "common/stale.h"
#include "inherited.h"
#include "memnode.h"
#include "nbd/export.h"
#include "nbd/fence.h"
#include "nbd/greet.h"
#include "nbd/kept.h"
#include "nbd/proto.h"
#include "nbd/serve.h"
#include "nbd/tls.h"
#include "server.h"

#define BACKLOG         128

struct listener {
        int fd;                                 /* does not block */
        struct sockaddr_un path;                /* sun_path is empty: not a unix socket */
        dev_t dev;                              /* the file that it made there */
        ino_t ino;
};

/* Only for the main thread. */
static struct listener listeners[NBD_SOCKETS];
static unsigned nlisteners;

static void set(int fd, int level, int option, int value)
{
        setsockopt(fd, level, option, &value, sizeof(value));
}

/* Only now are connections accepted; until then they wait in the sockets' queues. */
static void begin(void)
{
        int fds[NBD_SOCKETS];

        for (unsigned i = 0; i < nlisteners; i++)
                fds[i] = listeners[i].fd;
        nbd_begin_grace();
        if (nlisteners)
                nbd_greet_begin(fds, nlisteners);
}

/* ---- Listening ---- */

/* Takes over fd. */
static int add_listener(int fd, const struct sockaddr_un *path, char *why, size_t n)
{
        struct stat st;

        struct listener *l = &listeners[nlisteners];
        int err = nlisteners < NBD_SOCKETS ? 0 : -EUSERS;
        if (!err) {
                *l = (struct listener){ .fd = fd };
                if (path && stat(path->sun_path, &st) == 0) {
                        l->path = *path;
                        l->dev = st.st_dev;
                        l->ino = st.st_ino;
                }
                nlisteners++;
        } else {
                snprintf(why, n,
                         "there are %d listening sockets already: listen on fewer addresses",
                         NBD_SOCKETS);
                if (path)
                        unlink(path->sun_path);
                close(fd);
        }
        return err;
}

static const char *cure(int err)
{
        switch (err) {
        case EADDRINUSE: return ": another program listens there: end it, or choose another port";
        case EADDRNOTAVAIL:
                return ": this host has no such address: give one of its own, or 0.0.0.0 or [::] "
                       "for all";
        case EACCES: return ": ports below 1024 are for root: choose another port";
        default: return "";
        }
}

/* HOST:PORT, [HOST]:PORT, HOST, :PORT; a slash may follow. */
static int parse_address(const char *url, struct hostport *hp, char *why, size_t n)
{
        switch (hostport_parse(url, hp)) {
        case HOSTPORT_OK:
                if (!*hp->service)
                        strcpy(hp->service, NBD_PORT);
                return 0;
        case HOSTPORT_PATH:
                snprintf(why, n,
                         "'%s' is no place to listen: give HOST:PORT only, and exports with "
                         "--export",
                         url);
                break;
        case HOSTPORT_LONG:
                snprintf(why, n, "that address is too long");
                break;
        default:
                snprintf(why, n,
                         "'%s' is no address: give HOST:PORT, with an IPv6 address in brackets, as "
                         "in [::]:%s",
                         url, NBD_PORT);
        }
        return -EINVAL;
}

static int listen_one(const struct addrinfo *a, bool several, char *why, size_t n)
{
        char host[64] = "?", port[16] = "?";
        const int type = a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK;
        int fd = socket(a->ai_family, type, a->ai_protocol), err = 0;

        if (fd >= 0) {
                set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
                if (several && a->ai_family == AF_INET6)
                        set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);  /* IPv4 has a socket of its own */
        }
        if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
                err = -errno;
                getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), port, sizeof(port),
                            NI_NUMERICHOST | NI_NUMERICSERV);
                snprintf(why, n, "cannot listen on address %s, port %s: %s%s", host, port,
                         strerror(-err), cure(-err));
                if (fd >= 0)
                        close(fd);
                return err;
        }
        return add_listener(fd, NULL, why, n);
}

static int listen_tcp(const char *url, char *why, size_t n)
{
        struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *all;
        struct hostport hp;

        int err = parse_address(url, &hp, why, n);
        if (err)
                return err;
        int gai = getaddrinfo(*hp.host ? hp.host : NULL, hp.service, &hints, &all);
        if (gai == EAI_SERVICE) {
                snprintf(why, n, "the port '%s' is no number: give 1 to 65535", hp.service);
                return -EINVAL;
        }
        if (gai) {
                snprintf(why, n,
                         "cannot find the address '%s', port '%s': %s: check the name, or give a "
                         "number",
                         hp.host, hp.service, gai_strerror(gai));
                return -EINVAL;
        }
        int first = 0, got = 0;
        for (const struct addrinfo *a = all; a; a = a->ai_next) {
                err = listen_one(a, all->ai_next != NULL, why, n);
                if (!err)
                        got++;
                else if (err != -EAFNOSUPPORT && !first)
                        first = err;            /* a host without IPv6 is not an error */
        }
        freeaddrinfo(all);
        return first ? first : got ? 0 : err;
}

/* No other thread makes files meanwhile. */
static int bind_unix(int fd, const struct sockaddr_un *a)
{
        mode_t mask = opt.socket_mode < 0 ? 0 : umask(0777 & ~(mode_t)opt.socket_mode);
        int err = bind(fd, (const struct sockaddr *)a, sizeof(*a)) != 0 ? -errno : 0;

        if (opt.socket_mode >= 0)
                umask(mask);
        return err;
}

/* PATH, or as in NBD's URLs for clients: /?socket=PATH. */
static int listen_unix(const char *url, char *why, size_t n)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        const char *path = strncmp(url, "/?socket=", 9) == 0 ? url + 9 : url;

        if (*path != '/') {
                snprintf(
                        why, n,
                        "'%s' is no path: give an absolute one, as in nbd+unix:///run/memnode.sock",
                        path);
                return -EINVAL;
        }
        if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) >= sizeof(a.sun_path)) {
                snprintf(why, n, "the path is too long for a socket: %zu bytes are the limit",
                         sizeof(a.sun_path) - 1);
                return -ENAMETOOLONG;
        }
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int err = fd < 0 ? -errno : bind_unix(fd, &a);
        if (err == -EADDRINUSE && stale_socket_remove(&a))
                err = bind_unix(fd, &a);
        if (!err && listen(fd, BACKLOG) != 0) {
                err = -errno;
                unlink(a.sun_path);
        }
        if (err) {
                snprintf(why, n, "cannot listen on %s: %s: %s", a.sun_path, strerror(-err),
                         err == -EADDRINUSE ? "another program listens there, or it is no socket: "
                                              "choose another path, or remove it"
                                            : outfile_cure(err));
                if (fd >= 0)
                        close(fd);
                return err;
        }
        return add_listener(fd, &a, why, n);
}

static int listen_at(const char *url, char *why, size_t n)
{
        bool is_unix = strncmp(url, "nbd+unix:", 9) == 0;
        int err = nbd_exports_open(why, n);

        if (!err && keyring_is_used())
                err = nbd_tls_open(why, n);
        if (!err && (err = nbd_greet_open()) != 0)
                snprintf(why, n, "no thread can be made: %s: raise `ulimit -u`", strerror(-err));
        if (err)
                return err;
        int inherited = inherited_take(url);
        if (inherited >= 0) {
                fcntl(inherited, F_SETFL, fcntl(inherited, F_GETFL) | O_NONBLOCK);
                return add_listener(inherited, NULL, why, n);
        }
        url = strstr(url, "://") + 3;
        return is_unix ? listen_unix(url, why, n) : listen_tcp(url, why, n);
}

/* Returns when no connection is let in any more. */
static void stop_listening(void)
{
        nbd_greet_end();
        for (unsigned i = 0; i < nlisteners; i++) {
                struct listener *l = &listeners[i];
                struct stat st;

                close(l->fd);
                if (l->path.sun_path[0] && stat(l->path.sun_path, &st) == 0 &&
                    st.st_dev == l->dev && st.st_ino == l->ino)
                        unlink(l->path.sun_path);
        }
        nlisteners = 0;
}

static bool stop(unsigned timeout_ms)
{
        nbd_refuse();
        stop_listening();
        nbd_exports_close();            /* no lease ends any more for want of users */
        return nbd_end_connections(timeout_ms);
}

static void count(struct server_figures *f)
{
        f->connections = nbd_fence_count();
        f->leases = nbd_export_leases(&f->abandoned);
}

const struct server nbd_server = {
        .protocol = "nbd",
        .take_over = nbd_take_over,
        .listen = listen_at,
        .begin = begin,
        .drain = nbd_drain,
        .waits = nbd_waits,
        .stop = stop,
        .kept = nbd_kept,
        .lose = nbd_exports_lose,
        .count = count,
};
