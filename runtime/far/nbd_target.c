/*
 * See nbd.h: URLs of NBD exports, as libnbd writes them, and the addresses of their hosts.
 *
 *   nbd://HOST[:PORT][/EXPORT]         nbd+unix:///[EXPORT]?socket=PATH
 *
 * Options of vmrun's own in the query (size=, token-file=, ...) are gone when a URL arrives here.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/deadline.h"
#include "nbd.h"

#define NBD_PORT "10809"

static int hex_digit(char c)
{
        return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
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
static int split_host(struct nbd_target *t, char *s, char why[FAR_WHY])
{
        char *colon, *end;

        t->host = s;
        if (*s == '[') {
                end = strchr(s, ']');
                if (!end || (end[1] && end[1] != ':')) {
                        snprintf(why, FAR_WHY, "'%.64s' is no address: give [ADDRESS] or [ADDRESS]:PORT, as in nbd://[fd00::1]:10809", s);
                        return -EINVAL;
                }
                *end = '\0';
                t->host = s + 1;
                colon = end[1] ? end + 1 : NULL;
        } else {
                colon = strchr(s, ':');
        }
        t->port = NBD_PORT;
        if (colon) {
                *colon = '\0';
                t->port = colon + 1;
        }
        if (!*t->host) {
                snprintf(why, FAR_WHY, "no host is named: give nbd://HOST, or nbd+unix:///?socket=PATH for a socket of this host");
                return -EINVAL;
        }
        unsigned long port = strtoul(t->port, &end, 10);
        if (!isdigit((unsigned char)*t->port) || *end || port == 0 || port > 65535) {
                snprintf(why, FAR_WHY, "'%.32s' is no port: give a number from 1 to 65535, or leave it out for " NBD_PORT, t->port);
                return -EINVAL;
        }
        snprintf(t->name, sizeof(t->name), "%.96s port %s", t->host, t->port);
        return 0;
}

static int take_query(struct nbd_target *t, char *query, char why[FAR_WHY])
{
        for (char *next, *pair = query; pair; pair = next) {
                next = strchr(pair, '&');
                if (next)
                        *next++ = '\0';
                if (strncmp(pair, "socket=", 7) != 0 || decode(pair + 7) != 0) {
                        snprintf(why, FAR_WHY, "'%.64s' after the ? is not understood: give nbd+unix:///?socket=PATH or nbd://HOST/EXPORT", pair);
                        return -EINVAL;
                }
                t->socket = pair + 7;
        }
        return 0;
}

int nbd_target_parse(struct nbd_target *t, const char *rest, bool is_unix, char why[FAR_WHY])
{
        if (strncmp(rest, "//", 2) != 0) {
                snprintf(why, FAR_WHY, "two slashes are missing: give %s", is_unix ? "nbd+unix:///?socket=PATH" : "nbd://HOST");
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
                snprintf(why, FAR_WHY, "a %% in it must be followed by two hexadecimal digits: give %%25 for itself");
                return -EINVAL;
        }
        t->export = path && *path ? path : NULL;
        int err = take_query(t, query, why);
        if (err)
                return err;
        if (!is_unix && t->socket) {
                snprintf(why, FAR_WHY, "socket= belongs to nbd+unix: give nbd+unix:///?socket=PATH, or nbd://HOST without it");
                return -EINVAL;
        }
        if (!is_unix)
                return split_host(t, t->text, why);
        if (*t->text || !t->socket || !*t->socket) {
                snprintf(why, FAR_WHY, "%s: give nbd+unix:///?socket=PATH (three slashes)", *t->text ? "a socket has no host" : "no socket is named");
                return -EINVAL;
        }
        if (strlen(t->socket) >= sizeof(t->address[0].un.sun_path)) {
                snprintf(why, FAR_WHY, "the socket's path is longer than the %zu bytes that Linux allows: use a shorter one, or a symbolic link",
                         sizeof(t->address[0].un.sun_path) - 1);
                return -ENAMETOOLONG;
        }
        snprintf(t->name, sizeof(t->name), "socket %.110s", t->socket);
        return 0;
}

static int explain_gai(const struct nbd_target *t, int gai, char why[FAR_WHY])
{
        switch (gai) {
        case EAI_NONAME:
        case EAI_NODATA:
        case EAI_ADDRFAMILY:
                snprintf(why, FAR_WHY, "unknown host '%.64s': check its spelling, or give its address", t->host);
                return -ENOENT;
        case EAI_AGAIN:
                snprintf(why, FAR_WHY, "the name server does not tell the address of '%.64s' now: check /etc/resolv.conf, or give the address", t->host);
                return -EAGAIN;
        default:
                snprintf(why, FAR_WHY, "cannot find the address of '%.64s' (%s): give the address itself", t->host, gai_strerror(gai));
                return -EIO;
        }
}

/* A look-up, of the thread that does it and of the one that waits; the last of them frees it. */
struct look_up {
        char host[256];
        pthread_mutex_t lock;           /* guards what follows */
        pthread_cond_t changed;
        bool done, abandoned;
        int gai;
        struct addrinfo *list;
};

static void free_look_up(struct look_up *j)
{
        pthread_cond_destroy(&j->changed);
        pthread_mutex_destroy(&j->lock);
        free(j);
}

static void *look_up_thread(void *job)
{
        const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
        struct look_up *j = job;
        struct addrinfo *list = NULL;
        int gai = getaddrinfo(j->host, NULL, &hints, &list);

        pthread_mutex_lock(&j->lock);
        j->gai = gai;
        j->list = list;
        j->done = true;
        bool abandoned = j->abandoned;
        pthread_cond_signal(&j->changed);
        pthread_mutex_unlock(&j->lock);
        if (abandoned) {
                if (gai == 0)
                        freeaddrinfo(list);
                free_look_up(j);
        }
        return NULL;
}

/* Signals are the program's: the new thread gets none of them. */
static int start_look_up(struct look_up *j, pthread_t *thread)
{
        sigset_t all, old;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int err = -pthread_create(thread, NULL, look_up_thread, j);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        return err;
}

/* getaddrinfo() may take minutes where the name server is silent, and cannot be stopped: so in a thread that may be left behind. */
static int look_up(const struct nbd_target *t, unsigned timeout_ms, struct addrinfo **list, char why[FAR_WHY])
{
        struct look_up *j = calloc(1, sizeof(*j));
        pthread_condattr_t monotonic;
        struct timespec end;
        pthread_t thread;

        if (!j) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        snprintf(j->host, sizeof(j->host), "%s", t->host);
        pthread_mutex_init(&j->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&j->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        end = deadline_in_ms(timeout_ms);

        int err = start_look_up(j, &thread);
        if (err) {
                snprintf(why, FAR_WHY, "cannot start a thread that looks up '%.64s' (%s): raise `ulimit -u`, or give the address", t->host, strerror(-err));
                free_look_up(j);
                return err;
        }
        pthread_mutex_lock(&j->lock);
        while (!j->done && err != ETIMEDOUT)
                err = pthread_cond_timedwait(&j->changed, &j->lock, &end);
        bool done = j->done;
        j->abandoned = !done;
        pthread_mutex_unlock(&j->lock);
        if (!done) {
                pthread_detach(thread);
                snprintf(why, FAR_WHY, "the name server does not tell the address of '%.64s' (%u s): check /etc/resolv.conf, or give the address",
                         t->host, (timeout_ms + 999) / 1000);
                return -ETIMEDOUT;
        }
        pthread_join(thread, NULL);
        err = j->gai ? explain_gai(t, j->gai, why) : 0;
        *list = j->list;
        free_look_up(j);
        return err;
}

int nbd_target_resolve(struct nbd_target *t, unsigned timeout_ms, char why[FAR_WHY])
{
        const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
        struct addrinfo *list = NULL;

        if (t->socket) {
                t->address[0].un.sun_family = AF_UNIX;
                strcpy(t->address[0].un.sun_path, t->socket);   /* its length was checked */
                t->length[0] = sizeof(struct sockaddr_un);
                t->addresses = 1;
                return 0;
        }
        int err = getaddrinfo(t->host, NULL, &hints, &list) == 0 ? 0 : look_up(t, timeout_ms, &list, why);
        if (err)
                return err;
        for (struct addrinfo *a = list; a && t->addresses < NBD_ADDRESSES; a = a->ai_next) {
                union nbd_address *to = &t->address[t->addresses];
                if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) || a->ai_addrlen > sizeof(*to))
                        continue;
                memcpy(to, a->ai_addr, a->ai_addrlen);
                /* sin_port and sin6_port are at the same place */
                to->in.sin_port = htons((uint16_t)atoi(t->port));
                t->length[t->addresses++] = a->ai_addrlen;
        }
        freeaddrinfo(list);
        return t->addresses ? 0 : explain_gai(t, EAI_NONAME, why);
}

void nbd_target_free(struct nbd_target *t)
{
        free(t->text);
        t->text = NULL;
}
