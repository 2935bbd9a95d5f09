/*
 * vmrun's own words.  They go to a private copy of stderr, so that a program that closes or redirects its fd 2 neither
 * loses nor swallows them.  One message, one line, one write.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../common/put.h"
#include "vmrun.h"

static int out_fd = STDERR_FILENO;      /* until message_init; -1: stderr was closed when vmrun started */

void message_init(void)
{
        out_fd = privfd_dup(STDERR_FILENO);
        if (out_fd == -EMFILE || out_fd == -EINVAL)
                out_fd = STDERR_FILENO; /* no room up there: better a shared stderr than silence */
        else if (out_fd < 0)
                out_fd = -1;
}

void message_adopt(int fd)
{
        out_fd = fd;
}

int message_fd(void)
{
        return out_fd;
}

static void say(const char *fmt, va_list ap)
{
        char line[2048] = "vmrun: ";
        size_t head = strlen(line);

        if (out_fd < 0)
                return;
        int len = vsnprintf(line + head, sizeof(line) - head - 1, fmt, ap);
        if (len < 0)
                return;
        size_t n = head + (size_t)len;
        if (n > sizeof(line) - 2)
                n = sizeof(line) - 2;
        line[n++] = '\n';

        /* A closed pipe would raise SIGPIPE in the program's name.  One that is pending already is the program's own. */
        sigset_t pipe_set, old, pending;
        sigemptyset(&pipe_set);
        sigaddset(&pipe_set, SIGPIPE);
        sigpending(&pending);
        pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
        put_all(out_fd, line, n);       /* a slow reader must not change the program's fate */
        if (!sigismember(&pending, SIGPIPE)) {
                const struct timespec now = { 0, 0 };
                while (sigtimedwait(&pipe_set, NULL, &now) < 0 && errno == EINTR)
                        ;
        }
        pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void warnx_(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
}

void info_(const char *fmt, ...)
{
        if (!opt.verbose)
                return;
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
}

/* _exit: other threads may be running, and nothing of vmrun's is worth flushing. */
void die_(int status, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
        _exit(status);
}
