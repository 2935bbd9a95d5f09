/*
 * vmrun's own words.  They go to a private copy of stderr, so that a program that closes or
 * redirects its fd 2 neither loses nor swallows them.  One message, one line, one write; what
 * nobody reads is dropped and counted.
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
#include "base/message.h"
#include "common/line.h"

static int out_fd = STDERR_FILENO;      /* until message_use() */

bool message_verbose;

void message_use(int fd) { out_fd = fd; }

int message_fd(void)
{
        return out_fd;
}

static void say(const char *fmt, va_list ap)
{
        if (out_fd < 0)
                return;
        /* A closed pipe would raise SIGPIPE in the program's name.  One that is pending already is
         * the program's own. */
        sigset_t pipe_set, old, pending;
        sigemptyset(&pipe_set);
        sigaddset(&pipe_set, SIGPIPE);
        sigpending(&pending);
        pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
        line_say(out_fd, "vmrun: ", fmt, ap);
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
        if (!message_verbose)
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

void info_once(unsigned long key, const char *fmt, ...)
{
        static _Atomic unsigned long said[256];
        char text[200];
        va_list ap;

        for (unsigned i = 0; i < 256; i++) {
                unsigned long none = 0;
                if (said[i] == key + 1)
                        return;
                if (!said[i] &&
                    __atomic_compare_exchange_n((unsigned long *)&said[i], &none, key + 1, false,
                                                __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                        break;
                if (none == key + 1)
                        return;
                if (i == 255)
                        return;
        }
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        info_("%s", text);
}
