#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "admission/origin.h"

static void of_ipv4(char text[ORIGIN_TEXT], const void *address)
{
        char host[INET_ADDRSTRLEN] = "?";

        inet_ntop(AF_INET, address, host, sizeof(host));
        snprintf(text, ORIGIN_TEXT, "%s", host);
}

static void of_ipv6(char text[ORIGIN_TEXT], struct in6_addr a)
{
        char host[INET6_ADDRSTRLEN] = "?";

        if (IN6_IS_ADDR_V4MAPPED(&a)) {
                of_ipv4(text, &a.s6_addr[12]);
                return;
        }
        bool local = IN6_IS_ADDR_LOOPBACK(&a);
        if (!local)
                memset(&a.s6_addr[8], 0, 8);
        inet_ntop(AF_INET6, &a, host, sizeof(host));
        snprintf(text, ORIGIN_TEXT, local ? "%s" : "%s/64", host);
}

void origin_text(char text[ORIGIN_TEXT], const struct sockaddr *a, int fd)
{
        struct ucred who;
        socklen_t n = sizeof(who);

        if (a->sa_family == AF_INET)
                of_ipv4(text, &((const struct sockaddr_in *)a)->sin_addr);
        else if (a->sa_family == AF_INET6)
                of_ipv6(text, ((const struct sockaddr_in6 *)a)->sin6_addr);
        else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0)
                snprintf(text, ORIGIN_TEXT, "user %u", who.uid);
        else
                snprintf(text, ORIGIN_TEXT, "(unknown)");
}
