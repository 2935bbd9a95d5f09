/*
 * The RDMA server: its addresses and its thread.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "check.h"
#include "common/clock.h"
#include "common/hostport.h"
#include "memnode.h"
#include "pool.h"
#include "pulse.h"
#include "rdma/client.h"
#include "rdma/connect.h"
#include "rdma/connection.h"
#include "rdma/control.h"
#include "rdma/device.h"
#include "rdma/kept.h"
#include "server.h"

#define LISTEN_MAX 16
#define BACKLOG    128
#define TICK_MS    250          /* how often the clock is read while a client is connected */

/* listen_at() makes these before the thread starts; from then on only the thread uses
 * them.  The main thread adds to listeners[] until memnode is announced, and the thread does not
 * read it before stop(). */
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listeners[LISTEN_MAX];
static unsigned nlisteners;
static int begin_fd = -1;               /* eventfd: clients are admitted from here on */
static int stop_fd = -1;                /* eventfd: the end; orders stop_ms before its read */
static int drain_fd = -1;               /* eventfd: draining begins */
/* The thread is to name the clients that it waits for.  Relaxed: it publishes nothing. */
static atomic_bool say_waits;
static unsigned stop_ms;
static pthread_t thread;

/* --- the thread --- */

static void cm_events(void)
{
        struct rdma_cm_event *e;

        for (unsigned i = 0; i < 64; i++) {     /* then others have their turn */
                char data[256];
                if (rdma_get_cm_event(channel, &e) != 0)
                        return;
                /* A copy: an id cannot be destroyed before its events are acknowledged, and the
                 * acknowledgement frees them. */
                struct rdma_cm_id *id = e->id;
                enum rdma_cm_event_type type = e->event;
                int status = e->status;
                struct rdma_conn_param param = e->param.conn;
                if (param.private_data)
                        memcpy(data, param.private_data, param.private_data_len);
                param.private_data = param.private_data ? data : NULL;
                rdma_ack_cm_event(e);
                connection_event(id, type, status, &param);
        }
}

/* Are all its processes here, and have said that their pages are elsewhere? */
static bool has_moved(const struct client *cl)
{
        for (const struct connection *c = connections; c; c = c->next)
                if (c->client == cl && c->kind == NODE_CONTROL && !c->ended && !c->moved)
                        return false;
        return cl->controls || (cl->answered && !members_awaits(&cl->members));
}

static void say_goodbye(void)
{
        rdma_ending = true;
        for (unsigned i = 0; i < nlisteners; i++)
                rdma_destroy_id(listeners[i]);
        nlisteners = 0;
        for (struct connection *c = connections; c; c = c->next)
                connection_drop_job(c); /* so that the end does not wait for it */
        if (opt.resume)
                clients_keep();
        for (const struct client *cl = clients; cl; cl = cl->next)
                if (cl->nleases && !has_moved(cl))
                        client_loses(cl);
        for (struct connection *c = connections; c; c = c->next)
                if (c->kind == NODE_CONTROL && !c->ended)
                        control_goodbye(c);
}

/* A client that just lost its last connection may come back. */
static bool just_gone(const struct client *cl, uint64_t now)
{
        return !cl->controls && cl->nleases && !cl->answered && now - cl->gone_at < DRAIN_GONE_MS;
}

static void count_waits(uint64_t now)
{
        bool say = atomic_exchange_explicit(&say_waits, false, memory_order_relaxed);
        unsigned n = 0;

        for (struct connection *c = connections; c; c = c->next) {
                if (!control_waits(c))
                        continue;
                n++;
                if (say)
                        warnx_("draining: %s at %s has not moved away yet", c->client->name,
                               c->peer);
        }
        for (struct client *cl = clients; cl; cl = cl->next)
                n += just_gone(cl, now);
        atomic_store_explicit(&rdma_counts.waits, n, memory_order_relaxed);
}

static bool talking(void)
{
        for (const struct connection *c = connections; c; c = c->next)
                if (c->kind == NODE_CONTROL)
                        return true;
        return false;
}

static void end_all(void)
{
        while (clients)
                client_end(clients);
        while (connections)
                connection_end(connections);
        connections_reap();
        worker_stop();
        device_close_all();
}

static void *rdma_thread(void *arg)
{
        uint64_t next_tick = 0, end = UINT64_MAX;
        bool begun = false;

        (void)arg;
        pthread_setname_np(pthread_self(), "memnode-rdma");
        for (;;) {
                struct pollfd fds[4 + DEVICES_MAX] = {
                        { .fd = rdma_ending ? -1 : stop_fd, .events = POLLIN },
                        { .fd = begun ? channel->fd : begin_fd, .events = POLLIN },
                        { .fd = rdma_draining ? -1 : drain_fd, .events = POLLIN },
                        { .fd = worker_fd(), .events = POLLIN },
                };
                nfds_t n = 4;
                for (struct device *d; (d = device_at((unsigned)n - 4)); n++)
                        fds[n] = (struct pollfd){ .fd = d->channel->fd, .events = POLLIN };

                uint64_t now = now_ms();
                if (begun && now >= next_tick) {
                        connections_tick(now);
                        client_tick(now);
                        if (rdma_draining)
                                count_waits(now);
                        next_tick = now_ms() + TICK_MS;
                }
                if (rdma_ending && (!talking() || now >= end))
                        break;
                /* Without clients there are no time limits; the next event comes through a
                 * descriptor. */
                int ms = connections || clients || rdma_ending ? TICK_MS : -1;
                if (poll(fds, n, pulse_beat(PULSE_RDMA, ms)) <= 0)
                        continue;
                if (fds[1].revents && begun)
                        cm_events();
                if (fds[1].revents && !begun) {
                        begun = true;
                        clients_begin_grace();
                }
                for (nfds_t i = 4; i < n; i++)
                        if (fds[i].revents)
                                control_completions(device_at((unsigned)i - 4));
                if (fds[3].revents)
                        worker_results();
                if (fds[2].revents) {
                        rdma_draining = true;
                        next_tick = 0;  /* which tells the clients */
                }
                if (fds[0].revents) {
                        end = now_ms() + stop_ms;
                        say_goodbye();
                }
                connections_reap();
        }
        end_all();
        return NULL;
}

static int start(char *why, size_t n)
{
        int err = check_memlock(pool_size(), why, n);

        if (err)
                return err;
        if (!connect_begin()) {
                snprintf(why, n, "no random numbers are left: see getrandom(2)");
                return -EIO;
        }
        channel = rdma_create_event_channel();
        if (!channel) {
                err = errno ? -errno : -ENODEV;
                snprintf(why, n,
                         "this host has no RDMA connection manager (/dev/infiniband/rdma_cm: %s): "
                         "`modprobe rdma_ucm`%s",
                         strerror(-err), err == -EACCES ? ", or give this user access to it" : "");
                return err;
        }
        begin_fd = eventfd(0, EFD_CLOEXEC);
        stop_fd = eventfd(0, EFD_CLOEXEC);
        drain_fd = eventfd(0, EFD_CLOEXEC);
        if (begin_fd < 0 || stop_fd < 0 || drain_fd < 0 ||
            fcntl(channel->fd, F_SETFL, O_NONBLOCK) != 0)
                err = -errno;
        else
                err = worker_start();
        if (!err) {
                err = -pthread_create(&thread, NULL, rdma_thread, NULL);
                if (err)
                        worker_stop();
        }
        if (!err)
                return 0;
        snprintf(why, n, "no thread can be started: %s", strerror(-err));
        if (begin_fd >= 0)
                close(begin_fd);
        if (stop_fd >= 0)
                close(stop_fd);
        if (drain_fd >= 0)
                close(drain_fd);
        begin_fd = stop_fd = drain_fd = -1;
        rdma_destroy_event_channel(channel);
        channel = NULL;
        return err;
}

/* --- addresses --- */

/* A host must be named; the port has a default. */
static int parse_address(const char *url, struct hostport *hp, char *why, size_t n)
{
        if (hostport_parse(url, hp) == HOSTPORT_OK && *hp->host && (!hp->colon || hp->port)) {
                snprintf(hp->service, sizeof(hp->service), "%u", hp->colon ? hp->port : NODE_PORT);
                return 0;
        }
        snprintf(why, n, "not HOST[:PORT], as in rdma://0.0.0.0:%d, with a port of 1 to 65535",
                 NODE_PORT);
        return -EINVAL;
}

/* Warns if no port of the device, or of any device, has a link.  That is not an error: the link may
 * come later. */
static void warn_link(const char *url, struct ibv_context *verbs)
{
        int count = 1;
        struct ibv_context **all = verbs ? NULL : rdma_get_devices(&count);
        bool up = false;

        for (int i = 0; i < count && (verbs || all); i++) {
                struct ibv_context *v = verbs ? verbs : all[i];
                struct ibv_device_attr d;
                struct ibv_port_attr p;
                if (ibv_query_device(v, &d) == 0)
                        for (unsigned port = 1; port <= d.phys_port_cnt; port++)
                                up |= ibv_query_port(v, (uint8_t)port, &p) == 0 &&
                                      p.state == IBV_PORT_ACTIVE;
        }
        if (!verbs && !count)
                warnx_("rdma://%s: this host has no RDMA device yet: load the network card's "
                       "driver, or make a soft-RoCE device with `rdma link add rxe0 type rxe "
                       "netdev IF`",
                       url);
        else if (!up)
                warnx_("rdma://%s: no port is active: look at the cable, and `ip link set IF up`",
                       url);
        if (all)
                rdma_free_devices(all);
}

static int bind_and_listen(struct rdma_cm_id *id, struct sockaddr *sa, char *why, size_t n)
{
        if (rdma_bind_addr(id, sa) == 0 && rdma_listen(id, BACKLOG) == 0)
                return 0;
        int err = -errno;
        switch (-err) {
        case EADDRINUSE:
                snprintf(why, n, "the port is in use: end the other memnode, or give another port");
                break;
        case EADDRNOTAVAIL:
        case ENODEV:
                snprintf(why, n,
                         "the address belongs to no RDMA device of this host (%s): see `rdma link` "
                         "and `ip address`, or give 0.0.0.0",
                         strerror(-err));
                break;
        case EACCES:
                snprintf(why, n, "this port needs root: give one above 1023");
                break;
        default:
                snprintf(why, n, "cannot listen: %s", strerror(-err));
        }
        return err;
}

static int listen_at(const char *url, char *why, size_t n)
{
        struct hostport hp;
        struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;

        url += strlen("rdma://");
        int err = parse_address(url, &hp, why, n);
        if (err)
                return err;
        if (nlisteners == LISTEN_MAX) {
                snprintf(why, n, "more than %d addresses: give fewer", LISTEN_MAX);
                return -E2BIG;
        }
        int gai = getaddrinfo(hp.host, hp.service, &hints, &found);
        if (gai) {
                snprintf(why, n, "%s cannot be resolved: %s", hp.host, gai_strerror(gai));
                return -EINVAL;
        }
        if (!channel)
                err = start(why, n);
        struct rdma_cm_id *id = NULL;
        if (!err && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) {
                err = -errno;
                snprintf(why, n, "no connection identifier can be had: %s", strerror(-err));
        }
        if (!err) {
                /* [::] is for IPv6 only, so that 0.0.0.0 may be given beside it. */
                int only = 1;
                rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only));
                err = bind_and_listen(id, found->ai_addr, why, n);
                if (err)
                        rdma_destroy_id(id);
        }
        freeaddrinfo(found);
        if (err)
                return err;
        warn_link(url, id->verbs);
        listeners[nlisteners++] = id;
        return 0;
}

static void begin(void)
{
        uint64_t one = 1;

        if (channel && write(begin_fd, &one, sizeof(one)) != sizeof(one))
                warnx_("RDMA: clients are not admitted: %s: restart memnode", strerror(errno));
}

static void drain(void)
{
        uint64_t one = 1;

        if (!channel)
                return;
        /* until the thread has counted */
        atomic_store_explicit(&rdma_counts.waits, 1, memory_order_relaxed);
        if (write(drain_fd, &one, sizeof(one)) != sizeof(one))
                atomic_store_explicit(&rdma_counts.waits, 0, memory_order_relaxed);
}

static unsigned waits(bool say)
{
        if (say)
                atomic_store_explicit(&say_waits, true, memory_order_relaxed);
        return atomic_load_explicit(&rdma_counts.waits, memory_order_relaxed);
}

static bool stop(unsigned timeout_ms)
{
        struct timespec until;
        uint64_t one = 1;

        if (!channel)
                return true;
        stop_ms = timeout_ms;
        if (write(stop_fd, &one, sizeof(one)) != sizeof(one))
                return false;
        /* The thread keeps the time limit; the addition is for the clean-up. */
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += timeout_ms / 1000 + 5;
        if (pthread_timedjoin_np(thread, NULL, &until) != 0) {
                warnx_("RDMA does not end in time: connections are cut");
                return false;
        }
        rdma_destroy_event_channel(channel);
        close(begin_fd);
        close(stop_fd);
        close(drain_fd);
        return true;
}

static void print(FILE *to)
{
        fprintf(to,
                "rdma clients %u, of them gone %u, leases %u, connections: control %u, data %u; "
                "refused %u\n",
                rdma_counts.clients, rdma_counts.gone, rdma_counts.leases, rdma_counts.control,
                rdma_counts.data, rdma_counts.refused);
}

static unsigned now(const atomic_uint *count)
{
        return atomic_load_explicit(count, memory_order_relaxed);
}

static void count(struct server_figures *f)
{
        f->connections = now(&rdma_counts.control) + now(&rdma_counts.data);
        f->leases = now(&rdma_counts.leases);
        f->abandoned = now(&rdma_counts.abandoned);
}

const struct server rdma_server = {
        .protocol = "rdma",
        .take_over = rdma_take_over,
        .listen = listen_at,
        .begin = begin,
        .drain = drain,
        .waits = waits,
        .stop = stop,
        .kept = rdma_kept,
        .print = print,
        .lose = rdma_lose,
        .count = count,
};
