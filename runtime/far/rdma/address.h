/*
 * The URL, name service, the source address of a chosen device.
 */
#ifndef VMRUN_RDMA_ADDRESS_H
#define VMRUN_RDMA_ADDRESS_H

#include "far/rdma/rdma.h"

/* "//HOST[:PORT][/]", HOST a name, an IPv4 address or an IPv6 address in brackets. */
int rdma_parse_url(const char *rest, char host[RDMA_HOST_MAX], uint16_t *port, char why[FAR_WHY]);
/* All addresses of the host, at most RDMA_ADDRESSES.  Returns how many, or -errno with why.  Waits
 * for name service, at most timeout_ms. */
int rdma_resolve(const char *host, uint16_t port, unsigned timeout_ms, union rdma_sockaddr *list,
                 char why[FAR_WHY]);
/* The address of a device by which rdma_cm can be made to use it; 0, or -errno with why.
 * from->sa.sa_family is AF_UNSPEC if such a device has no address (InfiniBand): then the route must
 * lead to it. */
int rdma_device_address(const struct rdma_settings *s, int family, union rdma_sockaddr *from,
                        char why[FAR_WHY]);

#endif
