/*
 * The control socket: its clients, and those that wait for the end of draining.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "common/outfile.h"
#include "common/stale.h"
#include "control_socket.h"

int control_open(const char *path, char *why, size_t n)
{
        struct sockaddr_un sun = { .sun_family = AF_UNIX };

        if (strlen(path) >= sizeof(sun.sun_path)) {
                snprintf(why, n,
                         "longer than the path of a socket can be: give one of at most %zu bytes",
                         sizeof(sun.sun_path) - 1);
                return -ENAMETOOLONG;
        }
        strcpy(sun.sun_path, path);
        stale_socket_remove(&sun);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        mode_t mask = umask(0177);      /* no other thread makes files yet */
        if (fd < 0 || bind(fd, (struct sockaddr *)&sun, sizeof(sun)) != 0 || listen(fd, 8) != 0) {
                int err = -errno;
                snprintf(why, n, "cannot listen there: %s: %s", strerror(-err),
                         err == -EADDRINUSE ? "another memnode has it, or a file is in the way: "
                                              "give another path"
                                            : outfile_cure(err));
                umask(mask);
                if (fd >= 0)
                        close(fd);
                return err;
        }
        umask(mask);
        return fd;
}

/* A peer that sends nothing within WORD_MS gets the statistics; any other request must arrive
 * before that. */
#define WORD_MS  100
#define WAITERS  8

static int waiters[WAITERS];            /* connections until the end */
static unsigned nwaiters;

static bool asks_to_drain(int peer)
{
        struct pollfd p = { .fd = peer, .events = POLLIN };
        char word[sizeof(CONTROL_DRAIN)];

        return poll(&p, 1, WORD_MS) == 1 &&
               recv(peer, word, sizeof(word), MSG_DONTWAIT) == sizeof(CONTROL_DRAIN) - 1 &&
               memcmp(word, CONTROL_DRAIN, sizeof(CONTROL_DRAIN) - 1) == 0;
}

void control_tell(const char *line)
{
        for (unsigned i = 0; i < nwaiters; i++) {
                send(waiters[i], line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
                send(waiters[i], "\n", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
}

int control_answer(int fd, void (*print)(FILE *to), void (*drain)(void))
{
        const struct timeval second = { .tv_sec = 1 };
        char *text = NULL;
        size_t size = 0, at = 0;

        int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0)
                return -errno;
        if (asks_to_drain(peer)) {
                if (nwaiters < WAITERS)
                        waiters[nwaiters++] = peer;
                else
                        close(peer);
                drain();
                return 0;
        }
        setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second));
        FILE *f = open_memstream(&text, &size);
        if (f) {
                print(f);
                if (fclose(f) == 0) {
                        while (at < size) {
                                ssize_t w = send(peer, text + at, size - at, MSG_NOSIGNAL);
                                if (w <= 0)
                                        break;
                                at += (size_t)w;
                        }
                }
                free(text);
        }
        close(peer);
        return 0;
}
