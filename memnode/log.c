/*
 * memnode's words: one message, one line, one write, on standard error.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "../common/put.h"
#include "memnode.h"

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
        put_all(STDERR_FILENO, line, n);        /* a slow reader must not stop the service; SIGPIPE is ignored (main.c) */
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
