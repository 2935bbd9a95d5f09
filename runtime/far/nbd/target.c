/*
 * URLs of NBD exports, as libnbd writes them, and the addresses of their hosts.
 *
 *   nbd://HOST[:PORT][/EXPORT]         nbd+unix:///[EXPORT]?socket=PATH
 *
 * vmrun's own options in the query (size=, keys=, ...) have been removed before a URL arrives
 * here.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/lookup.h"
#include "far/nbd/target.h"

#define NBD_PORT 10809

static int hex_digit(char c)
{
        return isdigit((unsigned char)c)    ? c - '0'
               : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                            : -1;
}

/* %2F and the like, in place.  -EINVAL: not followed by two digits, or a NUL. */
static int decode(char *s)
{
        char *to = s;

        for (; *s; s++) {
                if (*s != '%') {
                        *to++ = *s;
                        continue;
                }
                int high = hex_digit(s[1]), low = high < 0 ? -1 : hex_digit(s[2]);
                if (low < 0 || high + low == 0)
                        return -EINVAL;
                *to++ = (char)(high << 4 | low);
                s += 2;
        }
        *to = '\0';
        return 0;
}

/* HOST, HOST:PORT, [ADDRESS], [ADDRESS]:PORT */
static int split_host(struct nbd_target *t, const char *s, char why[FAR_WHY])
{
        struct hostport *hp = &t->at;

        if (hostport_parse(s, hp) != HOSTPORT_OK) {
                snprintf(why, FAR_WHY,
                         "'%.64s' is no address: give [ADDRESS] or [ADDRESS]:PORT, as in "
                         "nbd://[fd00::1]:10809",
                         s);
                return -EINVAL;
        }
        if (!*hp->host) {
                snprintf(why, FAR_WHY, "no host is named: give nbd://HOST, or "
                         "nbd+unix:///?socket=PATH for a socket of this host");
                return -EINVAL;
        }
        if (hp->colon && !hp->port) {
                snprintf(
                        why, FAR_WHY,
                        "'%.32s' is no port: give a number from 1 to 65535, or leave it out for %u",
                        hp->service, NBD_PORT);
                return -EINVAL;
        }
        if (!hp->colon)
                hp->port = NBD_PORT;
        snprintf(t->name, sizeof(t->name), "%.96s port %u", hp->host, hp->port);
        return 0;
}

static int take_query(struct nbd_target *t, char *query, char why[FAR_WHY])
{
        for (char *next, *pair = query; pair; pair = next) {
                next = strchr(pair, '&');
                if (next)
                        *next++ = '\0';
                if (strncmp(pair, "socket=", 7) != 0 || decode(pair + 7) != 0) {
                        snprintf(why, FAR_WHY,
                                 "'%.64s' after the ? is not understood: give "
                                 "nbd+unix:///?socket=PATH or nbd://HOST/EXPORT",
                                 pair);
                        return -EINVAL;
                }
                t->socket = pair + 7;
        }
        return 0;
}

int nbd_target_parse(struct nbd_target *t, const char *rest, bool is_unix, char why[FAR_WHY])
{
        if (strncmp(rest, "//", 2) != 0) {
                snprintf(why, FAR_WHY, "two slashes are missing: give %s",
                         is_unix ? "nbd+unix:///?socket=PATH" : "nbd://HOST");
                return -EINVAL;
        }
        t->text = strdup(rest + 2);
        if (!t->text) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        char *query = strchr(t->text, '?');
        if (query)
                *query++ = '\0';
        char *path = strchr(t->text, '/');
        if (path)
                *path++ = '\0';
        if (decode(t->text) != 0 || (path && decode(path) != 0)) {
                snprintf(why, FAR_WHY,
                         "a %% in it must be followed by two hexadecimal digits: give %%25 for "
                         "itself");
                return -EINVAL;
        }
        t->export = path && *path ? path : NULL;
        int err = take_query(t, query, why);
        if (err)
                return err;
        if (!is_unix && t->socket) {
                snprintf(why, FAR_WHY,
                         "socket= belongs to nbd+unix: give nbd+unix:///?socket=PATH, or "
                         "nbd://HOST without it");
                return -EINVAL;
        }
        if (!is_unix)
                return split_host(t, t->text, why);
        if (*t->text || !t->socket || !*t->socket) {
                snprintf(why, FAR_WHY, "%s: give nbd+unix:///?socket=PATH (three slashes)",
                         *t->text ? "a socket has no host" : "no socket is named");
                return -EINVAL;
        }
        if (strlen(t->socket) >= sizeof(t->address[0].un.sun_path)) {
                snprintf(why, FAR_WHY,
                         "the socket's path is longer than the %zu bytes that Linux allows: use a "
                         "shorter one, or a symbolic link",
                         sizeof(t->address[0].un.sun_path) - 1);
                return -ENAMETOOLONG;
        }
        snprintf(t->name, sizeof(t->name), "socket %.110s", t->socket);
        return 0;
}

static int explain_lookup(const char *host, unsigned timeout_ms, int error, char why[FAR_WHY])
{
        int err;

        switch (error) {
        case EAI_NONAME:
        case EAI_NODATA:
        case EAI_ADDRFAMILY:
                snprintf(why, FAR_WHY,
                         "unknown host '%.64s': check its spelling, or give its address", host);
                return -ENOENT;
        case EAI_AGAIN:
                snprintf(why, FAR_WHY,
                         "the name server does not tell the address of '%.64s' now: check "
                         "/etc/resolv.conf, or give the address",
                         host);
                return -EAGAIN;
        case LOOKUP_LATE:
                snprintf(why, FAR_WHY,
                         "the name server does not tell the address of '%.64s' (%u s): check "
                         "/etc/resolv.conf, or give the address",
                         host, (timeout_ms + 999) / 1000);
                return -ETIMEDOUT;
        case LOOKUP_NO_THREAD:
                err = -errno;
                snprintf(why, FAR_WHY, "cannot start a thread that looks up '%.64s' (%s): raise "
                         "`ulimit -u`, or give the address", host, strerror(-err));
                return err;
        case EAI_MEMORY:
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        default:
                snprintf(why, FAR_WHY, "cannot find the address of '%.64s' (%s): give the address "
                         "itself", host, gai_strerror(error));
                return -EIO;
        }
}

int nbd_target_resolve(struct nbd_target *t, unsigned timeout_ms, char why[FAR_WHY])
{
        struct addrinfo *list = NULL;

        if (t->socket) {
                t->address[0].un.sun_family = AF_UNIX;
                strcpy(t->address[0].un.sun_path, t->socket);   /* its length was checked */
                t->length[0] = sizeof(struct sockaddr_un);
                t->addresses = 1;
                return 0;
        }
        int err = lookup(t->at.host, NULL, AI_ADDRCONFIG, timeout_ms, &list);
        if (err)
                return explain_lookup(t->at.host, timeout_ms, err, why);
        for (struct addrinfo *a = list; a && t->addresses < NBD_ADDRESSES; a = a->ai_next) {
                union nbd_address *to = &t->address[t->addresses];
                if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) ||
                    a->ai_addrlen > sizeof(*to))
                        continue;
                memcpy(to, a->ai_addr, a->ai_addrlen);
                /* sin_port and sin6_port have one offset */
                to->in.sin_port = htons(t->at.port);
                t->length[t->addresses++] = a->ai_addrlen;
        }
        freeaddrinfo(list);
        return t->addresses ? 0 : explain_lookup(t->at.host, 0, EAI_NONAME, why);
}

void nbd_target_free(struct nbd_target *t)
{
        free(t->text);
        t->text = NULL;
}
