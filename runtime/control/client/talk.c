/*
 * Finding a vmrun, and asking it.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "common/clock.h"
#include "control/client/talk.h"
#include "control/place.h"
#include "control/protocol.h"

int talk_connect(const char *name, int limit_ms, pid_t *pid)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        const struct timeval limit = { .tv_sec = limit_ms / 1000,
                                       .tv_usec = limit_ms % 1000 * 1000 };
        struct ucred peer;
        socklen_t n = sizeof(peer);

        if (strlen(name) >= sizeof(a.sun_path))
                return -ENAMETOOLONG;
        strcpy(a.sun_path, name);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        /* For connect, too: the queue of a stopped process may be full. */
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0) {
                *pid = peer.pid;
                return fd;
        }
        int err = errno == EAGAIN ? -ETIMEDOUT : -errno;
        close(fd);
        return err;
}

/* In the working directory.  A process in another PID namespace has a socket by its number there;
 * the kernel says what its number is here. */
static int open_here(pid_t pid)
{
        char name[PLACE_NAME];
        pid_t peer;
        int fd = talk_connect(place_name(name, pid, 0), TALK_MS, &peer), found = -ESRCH;

        if (fd >= 0 && peer == pid)
                return fd;
        if (fd >= 0)
                close(fd);
        else if (fd == -EACCES || fd == -ETIMEDOUT)
                found = fd;
        DIR *d = opendir(".");
        for (struct dirent *e; d && found == -ESRCH && (e = readdir(d)); ) {
                fd = e->d_name[0] == '.' ? -1 : talk_connect(e->d_name, TALK_MS, &peer);
                if (fd >= 0 && peer == pid)
                        found = fd;
                else if (fd >= 0)
                        close(fd);
        }
        if (d)
                closedir(d);
        return found;
}

int talk_open(pid_t pid)
{
        char dir[PLACES + 2][PATH_MAX], proc[32];
        unsigned n = place_list(dir), own = n;
        struct stat st;
        int fd = -ESRCH;

        /* root finds the processes of others */
        snprintf(proc, sizeof(proc), "/proc/%d", pid);
        if (geteuid() == 0 && stat(proc, &st) == 0) {
                snprintf(dir[n++], PATH_MAX, "/run/user/%u/vmrun", st.st_uid);
                if (st.st_uid)          /* root's own processes are below /run */
                        place_in_tmp(dir[n++], st.st_uid);
        }
        for (unsigned i = 0; i < n && fd < 0; i++) {
                int err = place_enter(dir[i], i < own ? geteuid() : st.st_uid);
                err = err ? err : open_here(pid);
                if (err >= 0 || ((err == -EACCES || err == -ETIMEDOUT) && fd == -ESRCH))
                        fd = err;
        }
        /* Another user's, if there is such a process at all. */
        return fd == -EACCES && kill(pid, 0) != 0 && errno == ESRCH ? -ESRCH : fd;
}

/* ---- requests ---- */

static int send_line(int fd, const char *request)
{
        char line[REQUEST_MOST + 1];
        int n = snprintf(line, sizeof(line), "%s\n", request);

        if (n > REQUEST_MOST)
                return -EMSGSIZE;
        for (int at = 0; at < n; ) {
                ssize_t w = send(fd, line + at, (size_t)(n - at), MSG_NOSIGNAL);
                if (w < 0 && errno != EINTR)
                        return errno == EPIPE ? -ECONNRESET : -errno;
                at += w > 0 ? (int)w : 0;
        }
        return 0;
}

/* At least one byte and at most n; deadline -1: none. */
static ssize_t receive(int fd, char *to, size_t n, int64_t deadline)
{
        for (;;) {
                int64_t left = deadline < 0 ? -1 : deadline - now_ms();
                struct pollfd p = { .fd = fd, .events = POLLIN };
                if (deadline >= 0 && left <= 0)
                        return -ETIMEDOUT;
                int ready = poll(&p, 1, (int)left);
                if (ready < 0)          /* Ctrl-C */
                        return -errno;
                if (!ready)
                        continue;
                ssize_t got = recv(fd, to, n, 0);
                if (got >= 0)
                        return got ? got : -ECONNRESET;
                if (errno != EINTR)
                        return -errno;
        }
}

/* The first line, byte by byte: what follows is not ours to take yet. */
static int receive_head(int fd, bool *ok, size_t *size, int64_t deadline)
{
        char head[HEAD_MOST];

        for (size_t n = 0; n < sizeof(head); n++) {
                ssize_t got = receive(fd, head + n, 1, deadline);
                if (got < 0)
                        return (int)got;
                if (head[n] == '\n') {
                        head[n] = 0;
                        return head_parse(head, ok, size);
                }
        }
        return -EPROTO;
}

int talk(int fd, const char *request, int limit_ms, struct answer *a)
{
        int64_t deadline = limit_ms < 0 ? -1 : now_ms() + limit_ms;

        *a = (struct answer){ 0 };
        int err = send_line(fd, request);
        if (!err)
                err = receive_head(fd, &a->ok, &a->size, deadline);
        if (err)
                return err;
        a->text = malloc(a->size + 1);
        if (!a->text)
                return -ENOMEM;
        for (size_t at = 0; at < a->size && !err; ) {
                ssize_t got = receive(fd, a->text + at, a->size - at, deadline);
                err = got < 0 ? (int)got : 0;
                at += got > 0 ? (size_t)got : 0;
        }
        if (err) {
                free(a->text);
                a->text = NULL;
                return err;
        }
        a->text[a->size] = 0;
        return 0;
}
