#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include "inherited.h"

#define MOST 16                         /* as many as --listen may be given */

/* Main thread only. */
static struct { char url[160]; bool taken; } sockets[MOST];
static unsigned nsockets;

static int name(int fd, char *url, size_t n)
{
        union { struct sockaddr any; struct sockaddr_un un; struct sockaddr_storage room; } a;
        socklen_t len = sizeof(a);
        char host[64], port[16];

        memset(&a, 0, sizeof(a));
        if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0 || getsockname(fd, &a.any, &len) != 0)
                return -EINVAL;
        if (a.any.sa_family == AF_UNIX && a.un.sun_path[0] == '/')
                snprintf(url, n, "nbd+unix://%.*s", (int)sizeof(a.un.sun_path), a.un.sun_path);
        else if (a.any.sa_family != AF_UNIX &&
                 getnameinfo(&a.any, len, host, sizeof(host), port, sizeof(port),
                             NI_NUMERICHOST | NI_NUMERICSERV) == 0)
                snprintf(url, n, a.any.sa_family == AF_INET6 ? "nbd://[%s]:%s" : "nbd://%s:%s",
                         host, port);
        else
                return -EINVAL;
        return 0;
}

/* Their numbers begin with SD_LISTEN_FDS_START.  Once: the variables are not for --run's
 * command. */
static int find(char why[WHY_MAX])
{
        static bool found;
        int n = found ? 0 : sd_listen_fds(1);

        found = true;
        if (n > MOST) {
                snprintf(why, WHY_MAX, "LISTEN_FDS: more than %d sockets: give fewer", MOST);
                return -E2BIG;
        }
        for (int i = 0; i < n; i++, nsockets++)
                if (name(SD_LISTEN_FDS_START + i, sockets[i].url, sizeof(sockets[i].url)) != 0) {
                        snprintf(why, WHY_MAX,
                                 "LISTEN_FDS: descriptor %d is no socket that listens for streams "
                                 "at an address or path: see ListenStream= in systemd.socket(5)",
                                 SD_LISTEN_FDS_START + i);
                        return -EINVAL;
                }
        return 0;
}

/* The configuration may name the place of such a socket, too. */
static bool is_listed(const struct memnode_options *o, const char *url)
{
        for (unsigned i = 0; i < o->nlisten; i++)
                if (strcmp(o->listen[i], url) == 0)
                        return true;
        return false;
}

int inherited_add(struct memnode_options *o, char why[WHY_MAX])
{
        int err = find(why);

        for (unsigned i = 0; i < nsockets && !err; i++)
                if (!is_listed(o, sockets[i].url))
                        err = setting_find("listen")->set(o, sockets[i].url, why);
        return err;
}

int inherited_take(const char *url)
{
        for (unsigned i = 0; i < nsockets; i++)
                if (!sockets[i].taken && strcmp(sockets[i].url, url) == 0) {
                        sockets[i].taken = true;
                        return SD_LISTEN_FDS_START + (int)i;
                }
        return -1;
}
