/*
 * The thread has a table of descriptors of its own, and a working folder of its own, where the host
 * lets it: the file that libnbd opens then has no number that the program could see, take or close.
 * Its table has the socket, the key and nothing else, so that no file of the program's stays open.
 */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/own_thread.h"
#include "base/privfd.h"
#include "far/nbd/settings.h"
#include "far/nbd/tls.h"

/* Keeps two descriptors; b: -1, none. */
static bool files_apart(int a, int b)
{
        int low = a < b || b < 0 ? a : b, high = a < b ? b : a;

        if (unshare(CLONE_FILES) != 0)
                return false;
        if (low > 0)
                close_range(0, (unsigned)low - 1, 0);
        if (high > low + 1 && low >= 0)
                close_range((unsigned)low + 1, (unsigned)high - 1, 0);
        close_range((unsigned)high + 1, UINT_MAX, 0);
        return true;
}

/* By our key alone: a server without it is none of ours. */
static bool set(struct nbd_link *l, const struct nbd_key *k)
{
        return nbd_set_tls(l->h, LIBNBD_TLS_REQUIRE) == 0 &&
               nbd_set_tls_username(l->h, k->client) == 0 &&
               nbd_set_tls_psk_file(l->h, k->file) == 0;
}

/* The socket may wait here; libnbd would go round and round in gnutls_handshake(). */
static void wait_in(int fd, bool yes)
{
        int flags = fcntl(fd, F_GETFL);

        if (flags >= 0)
                fcntl(fd, F_SETFL, yes ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

static void *greet(void *arg)
{
        struct nbd_link *l = arg;
        struct nbd_key k;

        own_thread_begins("vmrun-tls");
        l->tls.err = nbd_settings_key(l->node->far, &k, l->why);
        l->tls.apart = !l->tls.err && files_apart(l->fd, k.fd);
        if (!l->tls.err && (!set(l, &k) || nbd_aio_connect_socket(l->h, l->fd) != 0))
                l->tls.err = -EPROTO;
        wait_in(l->fd, true);
        while (!l->tls.err && !nbd_aio_is_negotiating(l->h) && !nbd_aio_is_ready(l->h) &&
               !nbd_aio_is_dead(l->h) && !nbd_aio_is_closed(l->h))
                /* until the server speaks, or nbd_tls_stop() breaks the connection */
                nbd_poll(l->h, -1);
        /* Without a table of its own the number may be another's, if libnbd has closed it. */
        if (l->tls.apart || nbd_aio_get_fd(l->h) == l->fd)
                wait_in(l->fd, false);
        const char *says = nbd_get_error();
        snprintf(l->tls.says, sizeof(l->tls.says), "%s", says ? says : "");
        /* Release: what this thread wrote comes first. */
        atomic_store_explicit(&l->tls.over, true, memory_order_release);
        return NULL;
}

int nbd_tls_begin(struct nbd_link *l)
{
        l->tls = (struct nbd_tls){ .runs = true };
        *l->why = '\0';
        /* Once: the I/O thread has other nodes to serve, and tries again. */
        int err = own_thread_once(&l->tls.id, greet, l);
        l->tls.runs = !err;
        return -err;
}

static void join(struct nbd_link *l)
{
        pthread_join(l->tls.id, NULL);
        l->tls.runs = false;
        /* If libnbd has closed the socket, then in that thread's table. */
        if (l->tls.apart && nbd_aio_get_fd(l->h) != l->fd) {
                privfd_close(l->fd);
                l->fd = -1;
        }
}

bool nbd_tls_is_over(struct nbd_link *l)
{
        if (l->tls.runs && atomic_load_explicit(&l->tls.over, memory_order_acquire))
                join(l);
        return !l->tls.runs;
}

void nbd_tls_stop(struct nbd_link *l)
{
        if (!l->tls.runs)
                return;
        shutdown(l->fd, SHUT_RDWR);
        join(l);
}
