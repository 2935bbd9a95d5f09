/*
 * The control socket, and the thread that answers.
 *
 * The thread sleeps in poll(2).  It works under `lock`, which a fork holds meanwhile; `held` has it
 * leave the lock alone, so that a client that asks all the time cannot keep a fork waiting.
 *
 * Only this user and root can connect, so the server only guards against accidents: lines are
 * bounded, and a client that does not read its answer or does not end its line is dropped.  When
 * all places are taken, the client is dropped that was silent longest.
 *
 * The thread has a working directory of its own (CLONE_FS): the folder of sockets.  So the path
 * that it binds to is short, and does not depend on the program's directory or root.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "base/own_thread.h"
#include "base/privfd.h"
#include "base/word.h"
#include "common/clock.h"
#include "common/stale.h"
#include "control/control.h"
#include "control/session.h"

#define CLIENTS     16
#define PATIENCE_MS 5000                /* for the rest of a line, and for a client that reads */
#define END_MS      1000
#define TURNS       10                  /* of place_name() */

struct client {
        int fd;                         /* private; -1: none */
        int64_t moved;                  /* when it last sent or took something, ms */
        struct inbox in;
        char *out;                      /* malloc'ed; NULL: nothing is to be sent */
        size_t size, at;
        struct session session;
};

/* Guarded by lock, as are the clients. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t held;           /* futex: another thread has or wants the lock */
static bool to_end;

static struct vm *server_vm;
static int dir_fd = -1, listen_fd = -1, wake_fd = -1;   /* private */
static char name[PLACE_NAME];           /* of the socket; "": there is none */
static int name_pid;                    /* of the process that made it, in its own namespace */
static int64_t since;
static uid_t owner;

/* Of the threads that start and end it: one at a time. */
static pthread_t id;
static bool exists;

static struct client clients[CLIENTS] = { [0 ... CLIENTS - 1] = { .fd = -1 } };

/* ---- clients ---- */

static void drop(struct client *c)
{
        privfd_close(c->fd);
        free(c->out);
        session_end(&c->session);
        c->out = NULL;
        c->in.have = 0;
        c->fd = -1;
}

/* A place for a new client: an empty one, or that of the client that was silent longest. */
static struct client *place(void)
{
        struct client *best = &clients[0];

        for (unsigned i = 0; i < CLIENTS; i++) {
                if (clients[i].fd < 0)
                        return &clients[i];
                if (clients[i].moved < best->moved)
                        best = &clients[i];
        }
        drop(best);
        return best;
}

static bool may_ask(int fd)
{
        struct ucred peer;
        socklen_t n = sizeof(peer);

        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
               (peer.uid == 0 || peer.uid == owner);
}

static void take_client(void)
{
        int fd = PRIVFD_NEW(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

        if (fd < 0)
                return;
        if (!may_ask(fd)) {
                privfd_close(fd);
                return;
        }
        struct client *c = place();
        c->fd = fd;
        c->moved = now_ms();
        c->session = (struct session){ .vm = server_vm, .since = since };
}

/* The answer to a line.  False: there is no memory for it. */
static bool answer(struct client *c, char *line)
{
        struct request r;
        char why[CTL_WHY] = "", *text = NULL, head[HEAD_MOST];
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return false;
        int err = request_parse(line, &r, why);
        if (!err)
                err = request_serve(&c->session, &r, f, why);
        bool good = !ferror(f);
        good &= fclose(f) == 0;
        const char *body = err ? why : text;
        size = err ? strlen(why) : size;
        int n = snprintf(head, sizeof(head), "%s %zu\n", err ? "error" : "ok", size);
        c->out = good ? malloc((size_t)n + size) : NULL;
        if (c->out) {
                memcpy(c->out, head, (size_t)n);
                memcpy(c->out + n, body, size);
                c->size = (size_t)n + size;
                c->at = 0;
        }
        free(text);
        return c->out;
}

/* False: the client is to be dropped. */
static bool send_some(struct client *c)
{
        ssize_t n = send(c->fd, c->out + c->at, c->size - c->at, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        c->at += (size_t)n;
        c->moved = now_ms();
        if (c->at == c->size) {
                free(c->out);
                c->out = NULL;
        }
        return true;
}

static bool receive_some(struct client *c)
{
        ssize_t n = recv(c->fd, c->in.text + c->in.have, sizeof(c->in.text) - c->in.have,
                         MSG_DONTWAIT);

        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        c->in.have += (size_t)n;
        c->moved = now_ms();
        return n > 0;
}

/* One request at a time: the next one when the client has taken the answer. */
static bool serve(struct client *c, short events)
{
        int err;

        if (c->out)
                return send_some(c) && !(events & POLLERR);
        char *line = inbox_line(&c->in, &err);
        if (!line && !err && (events & (POLLIN | POLLHUP | POLLERR))) {
                if (!receive_some(c))
                        return false;
                line = inbox_line(&c->in, &err);
        }
        if (!line)
                return !err;
        size_t used = strlen(line) + 1;
        if (!answer(c, line))
                return false;
        inbox_next(&c->in, used);
        return send_some(c);
}

/* Has it kept this thread waiting for too long? */
static bool is_late(const struct client *c)
{
        return (c->out || c->in.have > 0) && now_ms() - c->moved > PATIENCE_MS;
}

static bool has_line(const struct client *c) { return memchr(c->in.text, '\n', c->in.have); }

/* ---- the thread ---- */

/* Takes the lock, unless another thread wants it. */
static void lock_politely(void)
{
        while (atomic_load(&held))
                word_sleep(&held, 1, NULL);
        pthread_mutex_lock(&lock);
}

/* fds: wake_fd, listen_fd, one for each client.  Returns the time limit. */
static int ask(struct pollfd fds[2 + CLIENTS])
{
        int limit = -1;

        fds[0] = (struct pollfd){ .fd = wake_fd, .events = POLLIN };
        fds[1] = (struct pollfd){ .fd = listen_fd, .events = POLLIN };
        for (unsigned i = 0; i < CLIENTS; i++) {
                const struct client *c = &clients[i];
                fds[2 + i] = (struct pollfd){ .fd = c->fd, .events = c->out ? POLLOUT : POLLIN };
                if (c->fd < 0)
                        continue;
                if (!c->out && has_line(c))
                        limit = 0;
                else if ((c->out || c->in.have > 0) && limit < 0)
                        limit = PATIENCE_MS / 5;
        }
        return limit;
}

static void look(const struct pollfd fds[2 + CLIENTS])
{
        for (unsigned i = 0; i < CLIENTS; i++) {
                struct client *c = &clients[i];
                short events = fds[2 + i].revents;
                if (c->fd < 0 || c->fd != fds[2 + i].fd)
                        continue;
                if (((events || has_line(c)) && !serve(c, events)) || is_late(c))
                        drop(c);
        }
        if (fds[1].revents & POLLIN)
                take_client();
}

/* Binds and listens in the folder, which is the working directory.  0 or -errno. */
static int bind_socket(void)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        int err = -EADDRINUSE;

        umask(0177);                    /* of this thread */
        for (unsigned turn = 0; turn < TURNS && err == -EADDRINUSE; turn++) {
                place_name(a.sun_path, getpid(), turn);
                stale_socket_remove(&a);
                err = bind(listen_fd, (struct sockaddr *)&a, sizeof(a)) == 0 ? 0 : -errno;
        }
        if (err)
                return err;
        strcpy(name, a.sun_path);
        name_pid = getpid();
        return listen(listen_fd, CLIENTS) == 0 ? 0 : -errno;
}

/* In the thread, under the lock. */
static bool set_up(void)
{
        int err = 0;

        owner = geteuid();
        if (unshare(CLONE_FS) != 0 || fchdir(dir_fd) != 0)
                err = -errno;
        if (!err && !*name)
                err = bind_socket();
        if (err)
                info_("no control socket for process %d, so vmctl cannot reach it: %s", getpid(),
                      strerror(-err));
        return !err;
}

static void *server_main(void *arg)
{
        struct pollfd fds[2 + CLIENTS];

        own_thread_begins("vmrun-control");
        lock_politely();
        bool go_on = set_up();
        pthread_mutex_unlock(&lock);
        while (go_on) {
                if (poll(fds, 2 + CLIENTS, ask(fds)) < 0)
                        continue;
                lock_politely();
                go_on = !to_end;
                if (go_on)
                        look(fds);
                pthread_mutex_unlock(&lock);
        }
        return arg;
}

/* ---- beginning and end ---- */

/* Of any thread, at any time: a process that made the socket takes it away. */
static void remove_socket(void)
{
        if (*name && dir_fd >= 0 && getpid() == name_pid)
                unlinkat(dir_fd, name, 0);
}

/* Removes what killed processes left: names of process ids that do not exist.  Others are asked
 * nothing. */
static void sweep(void)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

        for (struct dirent *e; d && (e = readdir(d)); ) {
                long pid = strtol(e->d_name, NULL, 10);
                if (pid <= 0 || pid > INT_MAX || strlen(e->d_name) >= PLACE_NAME ||
                    kill((pid_t)pid, 0) == 0 || errno != ESRCH)
                        continue;
                snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir_fd, e->d_name);
                stale_socket_remove(&a);        /* not if it lives in another PID namespace */
        }
        if (d)
                closedir(d);
        else if (fd >= 0)
                close(fd);
}

/* The folder is found once, before the program can change directory, root or user. */
static int open_place(char why[PLACE_WHY])
{
        if (dir_fd >= 0)
                return 0;
        dir_fd = PRIVFD_NEW(place_open(why));
        if (dir_fd >= 0)
                sweep();
        return dir_fd < 0 ? dir_fd : 0;
}

/* All descriptors but those of clients are made here, where the program does not run: it would see
 * them for a moment, as numbers that are taken. */
static int open_all(char why[PLACE_WHY])
{
        int err = open_place(why);

        if (err)
                return err;
        if (wake_fd < 0)
                wake_fd = PRIVFD_NEW(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (listen_fd < 0)
                listen_fd = PRIVFD_NEW(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                                              0));
        if (wake_fd < 0 || listen_fd < 0)
                snprintf(why, PLACE_WHY, "no descriptor is left");
        return wake_fd < 0 ? wake_fd : listen_fd < 0 ? listen_fd : 0;
}

void ctl_start(struct vm *vm)
{
        char why[PLACE_WHY] = "no descriptor is left";

        if (!opt.control || exists)
                return;
        server_vm = vm;
        if (!since)
                since = time(NULL);
        to_end = false;
        int err = open_all(why);
        if (!err) {
                message_at_end(remove_socket);
                err = -own_thread_once(&id, server_main, NULL);
                snprintf(why, sizeof(why), "%s", strerror(-err));
        }
        exists = err == 0;
        if (err)
                info_("no control socket for process %d, so vmctl cannot reach it: %s", getpid(),
                      why);
}

void ctl_rest(void)
{
        const uint64_t ring = 1;

        if (!exists)
                return;
        pthread_mutex_lock(&lock);
        to_end = true;
        pthread_mutex_unlock(&lock);
        if (write(wake_fd, &ring, sizeof(ring)) < 0)
                return;                 /* not reached: the counter is far from full */
        pthread_join(id, NULL);
        uint64_t rings;
        if (read(wake_fd, &rings, sizeof(rings)) < 0)
                return;                 /* nor this */
        exists = false;
}

void ctl_hold(void)
{
        atomic_store(&held, 1);
        pthread_mutex_lock(&lock);
}

void ctl_release(void)
{
        pthread_mutex_unlock(&lock);
        atomic_store(&held, 0);
        word_wake(&held, INT_MAX);
}

/* The descriptors are copies of the parent's, which keeps its own. */
void ctl_forked(struct vm *vm)
{
        for (unsigned i = 0; i < CLIENTS; i++)
                if (clients[i].fd >= 0)
                        drop(&clients[i]);
        sessions_forked();
        if (listen_fd >= 0)
                privfd_close(listen_fd);
        if (wake_fd >= 0)
                privfd_close(wake_fd);
        listen_fd = wake_fd = -1;
        *name = 0;
        since = 0;
        exists = false;
        pthread_mutex_init(&lock, NULL);
        atomic_store(&held, 0);
        ctl_start(vm);
}

void ctl_end(void)
{
        atomic_store(&held, 1);
        lock_within(&lock, END_MS);     /* for good */
        remove_socket();
}

/* ---- execve ---- */

void ctl_keep(struct ctl_kept *k, bool child)
{
        *k = (struct ctl_kept){ .dir_fd = dir_fd, .listen_fd = child ? -1 : listen_fd };
        if (!child) {
                k->since = since;
                strcpy(k->name, name);
        }
}

void ctl_adopt(const struct ctl_kept *k)
{
        dir_fd = k->dir_fd;
        listen_fd = k->listen_fd;
        since = k->since;
        strcpy(name, k->name);
        name_pid = getpid();
}
