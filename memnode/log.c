/*
 * memnode's words: one message, one line, on standard error.
 */
#include <stdarg.h>
#include <unistd.h>
#include "../common/line.h"
#include "memnode.h"

static const char prefix[] = "memnode: ";
static int out = STDERR_FILENO;         /* constant once there are threads */

void log_open(void)
{
        int fd = line_open(STDERR_FILENO);

        if (fd >= 0)
                out = fd;
}

/* Clients choose their names, and a log is often read on a terminal: line_say() cleans what it
 * writes. SIGPIPE is ignored (main.c). */
static void say(const char *fmt, va_list ap) { line_say(out, prefix, fmt, ap); }
void log_close(void) { line_end(out, prefix); }

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
