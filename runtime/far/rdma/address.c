/*
 * The address of a node: its URL, name service, and the source address that makes rdma_cm use a
 * chosen device.
 *
 * rdma_cm finds the device by the routing table: the one behind the interface through which the
 * node's address is reached.  A device that the user names is selected by binding to an address
 * from its GID table; for RoCE these are the addresses of its interface.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hostport.h"
#include "common/lookup.h"
#include "far/rdma/address.h"
#include "far/rdma/settings.h"

#define GIVE "give rdma://HOST or rdma://HOST:PORT, an IPv6 address in brackets"

/* False: why says what is wrong with what follows "rdma:". */
static bool split(const char *rest, struct hostport *hp, char why[FAR_WHY])
{
        enum hostport_error err = HOSTPORT_OK;

        if (strncmp(rest, "//", 2) != 0)
                snprintf(why, FAR_WHY, "two slashes are missing: " GIVE);
        else if ((err = hostport_parse(rest + 2, hp)) == HOSTPORT_PATH)
                snprintf(why, FAR_WHY, "'%.64s': a path follows the address: leave it out: " GIVE,
                         rest + 2);
        else if (err || strchr(hp->host, '@'))
                snprintf(why, FAR_WHY, "'%.64s' is no address: " GIVE, rest + 2);
        else if (!*hp->host)
                snprintf(why, FAR_WHY, "no host is named: " GIVE);
        else if (hp->colon && !hp->port)
                snprintf(why, FAR_WHY, "'%.32s' is no port: give a number from 1 to 65535, or "
                         "rdma://HOST for %u", hp->service, NODE_PORT);
        else
                return true;
        return false;
}

int rdma_parse_url(const char *rest, char host[RDMA_HOST_MAX], uint16_t *port, char why[FAR_WHY])
{
        struct hostport hp;

        if (!split(rest, &hp, why))
                return -EINVAL;
        memcpy(host, hp.host, RDMA_HOST_MAX);
        *port = hp.colon ? hp.port : NODE_PORT;
        return 0;
}

static int keep_addresses(const struct addrinfo *list, union rdma_sockaddr *to)
{
        int n = 0;
        for (; list && n < RDMA_ADDRESSES; list = list->ai_next)
                if (list->ai_addrlen <= sizeof(*to))
                        memcpy(&to[n++], list->ai_addr, list->ai_addrlen);
        return n;
}

int rdma_resolve(const char *host, uint16_t port, unsigned timeout_ms, union rdma_sockaddr *to,
                 char why[FAR_WHY])
{
        struct addrinfo *list = NULL;
        char service[8];

        snprintf(service, sizeof(service), "%u", port);
        int err = lookup(host, service, 0, timeout_ms, &list);
        if (err == LOOKUP_LATE) {
                snprintf(why, FAR_WHY, "name service does not answer for host '%.64s': see "
                         "/etc/resolv.conf, or give an address", host);
                return -ETIMEDOUT;
        }
        if (err) {
                snprintf(why, FAR_WHY,
                         "host '%.64s' is not known (%.60s): correct the name, or give an address",
                         host, err == LOOKUP_NO_THREAD ? strerror(errno) : gai_strerror(err));
                return -EHOSTUNREACH;
        }
        int n = keep_addresses(list, to);
        freeaddrinfo(list);
        if (!n)
                snprintf(why, FAR_WHY, "host '%.64s' has no IP address: give one that it has",
                         host);
        return n ? n : -EHOSTUNREACH;
}

static bool gid_to_address(const struct ibv_gid_entry *e, int family, union rdma_sockaddr *a)
{
        static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
        bool v4 = memcmp(e->gid.raw, mapped, sizeof(mapped)) == 0;

        if (v4 != (family == AF_INET))
                return false;
        memset(a, 0, sizeof(*a));
        if (v4) {
                a->in.sin_family = AF_INET;
                memcpy(&a->in.sin_addr, e->gid.raw + 12, 4);
        } else {
                a->in6.sin6_family = AF_INET6;
                memcpy(&a->in6.sin6_addr, e->gid.raw, 16);
                if (IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr))
                        a->in6.sin6_scope_id = e->ndev_ifindex;
        }
        return true;
}

/* Looks through the GID tables of the ports. */
static int gid_address(struct ibv_context *ctx, const struct rdma_settings *s, int family,
                       union rdma_sockaddr *from, char why[FAR_WHY])
{
        struct ibv_device_attr attr;
        struct ibv_port_attr port;
        struct ibv_gid_entry e;
        bool found = false;

        if (ibv_query_device(ctx, &attr) != 0)
                attr.phys_port_cnt = 1;
        for (uint8_t p = 1; p <= attr.phys_port_cnt; p++) {
                if (ibv_query_port(ctx, p, &port) != 0)
                        continue;
                if (port.link_layer != IBV_LINK_LAYER_ETHERNET) {
                        from->sa.sa_family = AF_UNSPEC;
                        return 0;
                }
                for (int i = 0; i < port.gid_tbl_len; i++) {
                        if ((s->gid_index >= 0 && i != s->gid_index) ||
                            ibv_query_gid_ex(ctx, p, (uint32_t)i, &e, 0) != 0)
                                continue;
                        found = true;
                        if ((s->gid_index >= 0 || e.gid_type == IBV_GID_TYPE_ROCE_V2) &&
                            gid_to_address(&e, family, from))
                                return 0;
                }
        }
        const char *kind = family == AF_INET ? "IPv4" : "IPv6";
        if (s->gid_index >= 0 && !found)
                snprintf(why, FAR_WHY,
                         "RDMA device %.32s has no GID %d: `ibv_devinfo -v` lists them", s->device,
                         s->gid_index);
        else if (s->gid_index >= 0)
                snprintf(why, FAR_WHY,
                         "GID %d of RDMA device %.32s is no %s address as the node's: choose "
                         "another, `ibv_devinfo -v` lists them",
                         s->gid_index, s->device, kind);
        else
                snprintf(why, FAR_WHY,
                         "RDMA device %.32s has no %s address: give its network interface one",
                         s->device, kind);
        return -EADDRNOTAVAIL;
}

int rdma_device_address(const struct rdma_settings *s, int family, union rdma_sockaddr *from,
                        char why[FAR_WHY])
{
        memset(from, 0, sizeof(*from));
        if (!s->device) {
                if (s->gid_index < 0)
                        return 0;
                snprintf(why, FAR_WHY,
                         "a GID index counts in the table of one device: name the device, too");
                return -EINVAL;
        }
        int count, err = -ENODEV;
        struct ibv_device **list = ibv_get_device_list(&count);
        for (int i = 0; list && i < count; i++) {
                if (strcmp(ibv_get_device_name(list[i]), s->device) != 0)
                        continue;
                struct ibv_context *ctx = ibv_open_device(list[i]);
                err = ctx ? gid_address(ctx, s, family, from, why) : -errno;
                if (!ctx)
                        snprintf(why, FAR_WHY, "RDMA device %.32s cannot be opened: %s", s->device,
                                 strerror(-err));
                if (ctx)
                        ibv_close_device(ctx);
                break;
        }
        if (list)
                ibv_free_device_list(list);
        if (err == -ENODEV)
                snprintf(why, FAR_WHY,
                         "this host has no RDMA device %.32s: `rdma link` lists those it has",
                         s->device);
        return err;
}
