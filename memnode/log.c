/*
 * memnode's words: one message, one line, one write, on standard error.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "memnode.h"

/* As far as it can be done: a reader of our words that is slow or gone must not stop the service.  (SIGPIPE is ignored, main.c.) */
static void put(const char *s, size_t n)
{
        while (n > 0) {
                ssize_t w = write(STDERR_FILENO, s, n);
                if (w > 0) {
                        s += w;
                        n -= (size_t)w;
                } else if (w < 0 && errno == EAGAIN) {
                        struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
                        if (poll(&p, 1, 1000) <= 0)
                                return;
                } else if (w == 0 || errno != EINTR) {
                        return;
                }
        }
}

static void say(const char *fmt, va_list ap)
{
        char line[1024] = "memnode: ";
        size_t head = strlen(line);
        int len = vsnprintf(line + head, sizeof(line) - head - 1, fmt, ap);

        if (len < 0)
                return;
        size_t n = head + (size_t)len;
        if (n > sizeof(line) - 2)
                n = sizeof(line) - 2;
        /* Clients choose their names, and a log is often read on a terminal. */
        for (char *c = line; c < line + n; c++)
                if ((unsigned char)*c < ' ' || *c == 0x7f)
                        *c = '?';
        line[n++] = '\n';
        put(line, n);
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

/* _exit: other threads may be running. */
void die_(int status, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        say(fmt, ap);
        va_end(ap);
        _exit(status);
}
