/*
 * See nbd.h: URLs of NBD exports, as libnbd writes them, and leases of memnode.
 *
 *   nbd://HOST[:PORT][/EXPORT]         nbd+unix:///[EXPORT]?socket=PATH
 *
 * Options of vmrun's own in the query (size=, token-file=, ...) are gone when a URL arrives here.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "../vmrun.h"
#include "nbd.h"
#include "nodeproto.h"

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

/* getaddrinfo() may take minutes where the name server is silent, so it runs in a thread of the C library's, which gets none of the
 * program's signals.  If it is not through in time, what it writes to must stay: it is left behind. */
static int look_up(const struct nbd_target *t, unsigned timeout_ms, struct addrinfo **list, char why[FAR_WHY])
{
        struct job { struct gaicb cb; struct addrinfo hints; char host[256]; } *job = calloc(1, sizeof(*job));
        struct gaicb *jobs[1] = { &job->cb };
        struct timespec now, end, left;
        sigset_t all, old;

        if (!job) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        snprintf(job->host, sizeof(job->host), "%s", t->host);
        job->hints = (struct addrinfo){ .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
        job->cb = (struct gaicb){ .ar_name = job->host, .ar_request = &job->hints };
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int gai = getaddrinfo_a(GAI_NOWAIT, jobs, 1, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_sec += timeout_ms / 1000;
        end.tv_nsec += timeout_ms % 1000 * 1000000l;
        while (gai == 0 && (gai = gai_error(&job->cb)) == EAI_INPROGRESS) {
                clock_gettime(CLOCK_MONOTONIC, &now);
                int64_t ns = (end.tv_sec - now.tv_sec) * 1000000000ll + end.tv_nsec - now.tv_nsec;
                if (ns <= 0) {
                        bool ours = gai_cancel(&job->cb) == EAI_CANCELED;
                        if (ours)
                                free(job);
                        snprintf(why, FAR_WHY, "the name server does not tell the address of '%.64s' within %u s: check /etc/resolv.conf, or give the address",
                                 t->host, (timeout_ms + 999) / 1000);
                        return -ETIMEDOUT;
                }
                left = (struct timespec){ ns / 1000000000, ns % 1000000000 };
                gai_suspend((const struct gaicb *const *)jobs, 1, &left);
                gai = 0;
        }
        *list = job->cb.ar_result;
        free(job);
        return gai ? explain_gai(t, gai, why) : 0;
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

/* The token is the file's first line.  It goes into a name, so only what can be printed. */
static int read_token(const char *file, char token[NODE_TOKEN_MAX + 1], char why[FAR_WHY])
{
        char buf[NODE_TOKEN_MAX + 2];
        int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
        int err = n < 0 ? -errno : 0;

        if (fd >= 0)
                close(fd);
        if (err) {
                snprintf(why, FAR_WHY, "cannot read the token file %.100s: %s: make it readable, or name another by token-file=", file, strerror(-err));
                return err;
        }
        size_t len = 0;
        while (len < (size_t)n && isgraph((unsigned char)buf[len]))
                len++;
        if (len == 0 || len > NODE_TOKEN_MAX || (len < (size_t)n && buf[len] != '\n' && buf[len] != '\r')) {
                snprintf(why, FAR_WHY, "the token file %.100s must begin with a line of 1 to %d printable characters without spaces", file, NODE_TOKEN_MAX);
                return -EINVAL;
        }
        memcpy(token, buf, len);
        token[len] = '\0';
        return 0;
}

int nbd_lease_name(uint64_t bytes, const char *token_file, char **name, char why[FAR_WHY])
{
        unsigned char secret[16];
        char hex[33], token[NODE_TOKEN_MAX + 1] = "";
        int err = token_file ? read_token(token_file, token, why) : 0;

        if (err)
                return err;
        if (getrandom(secret, sizeof(secret), 0) != sizeof(secret)) {
                err = -errno;
                snprintf(why, FAR_WHY, "no random numbers for the name of a lease: %s", strerror(-err));
                return err;
        }
        for (size_t i = 0; i < sizeof(secret); i++)
                sprintf(hex + 2 * i, "%02x", secret[i]);
        if (asprintf(name, "lease-%s-%llu%s%s", hex, (unsigned long long)bytes, *token ? "-" : "", token) < 0) {
                *name = NULL;
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        return 0;
}

/* FNV-1a: the lock's name need only tell exports apart; two that collide cost a refusal that names the file. */
static uint64_t hash(uint64_t h, const void *data, size_t n)
{
        for (const unsigned char *p = data; n; n--)
                h = (h ^ *p++) * 0x100000001b3ull;
        return h;
}

/* In a folder where anyone may make files: what is there already may be another user's, and only O_CREAT is refused for those
 * (fs.protected_regular). */
static int open_lock(const char *path)
{
        const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        struct stat st;

        int fd = open(path, flags);
        if (fd < 0 && errno == ENOENT)
                fd = open(path, flags | O_CREAT | O_EXCL, 0644);
        if (fd < 0 && errno == EEXIST)          /* another made it in between */
                fd = open(path, flags);
        if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
                close(fd);
                errno = EINVAL;
                return -1;
        }
        return fd;
}

/*
 * Two vmruns on one export would destroy each other's pages.  The lock is one of this host: it sees neither other hosts nor other names of
 * the same server (another address, a symbolic link).  Its file stays: to remove it would race with the next who takes it.
 */
int nbd_claim(const struct nbd_target *t, unsigned i, int *fd, char why[FAR_WHY])
{
        const char *own = getenv("XDG_RUNTIME_DIR"), *folder = access("/run/lock", W_OK) == 0 ? "/run/lock" : own && *own ? own : "/tmp";
        char path[PATH_MAX], real[PATH_MAX];
        uint64_t h = 0xcbf29ce484222325ull;

        if (t->socket && realpath(t->socket, real))
                h = hash(h, real, strlen(real) + 1);
        else
                h = hash(h, &t->address[i], t->length[i]);
        h = hash(h, t->export, strlen(t->export));
        snprintf(path, sizeof(path), "%.4000s/vmrun-nbd-%016llx.lock", folder, (unsigned long long)h);

        int n = open_lock(path);
        if (n < 0) {
                int err = -errno;
                snprintf(why, FAR_WHY, "cannot open the lock file %.150s: %s: remove it, or make its folder writable", path, strerror(-err));
                return err;
        }
        if (flock(n, LOCK_EX | LOCK_NB) != 0) {
                int err = errno == EWOULDBLOCK ? -EBUSY : -errno;
                close(n);
                if (err == -EBUSY)
                        snprintf(why, FAR_WHY, "a vmrun on this host uses this export (lock file %.80s): give each an export of its own", path);
                else
                        snprintf(why, FAR_WHY, "cannot lock %.150s: %s", path, strerror(-err));
                return err;
        }
        *fd = privfd_move(n);
        if (*fd < 0)
                snprintf(why, FAR_WHY, "no file descriptor is left for it: raise `ulimit -n`");
        return *fd < 0 ? *fd : 0;
}
