#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>
#include "common/line.h"
#include "common/message.h"

#define HEAD_MAX 64                     /* bytes of the beginning of a line, with its NUL */

static int out = STDERR_FILENO;
static const char *prefix = "";
static void (*make_head)(enum message_level level, char *to, size_t n);
static _Atomic bool verbose;
static void (*at_end)(void);

void message_prefix(const char *text) { prefix = text; }
void message_head(void (*fn)(enum message_level, char *, size_t)) { make_head = fn; }
void message_to(int fd) { out = fd; }
int message_fd(void) { return out; }
void message_verbose(bool yes) { verbose = yes; }
void message_at_end(void (*fn)(void)) { at_end = fn; }

void end_(int status)
{
        if (at_end)
                at_end();
        _exit(status);
}

static const char *head_of(enum message_level level, char head[HEAD_MAX])
{
        if (!make_head)
                return prefix;
        make_head(level, head, HEAD_MAX);
        return head;
}

void message_end(void)
{
        char head[HEAD_MAX];

        if (out >= 0)
                line_end(out, head_of(MESSAGE_WARNING, head));
}

/* A closed pipe would raise SIGPIPE in the program's name.  A SIGPIPE that is already pending is
 * the program's own. */
static void say(enum message_level level, const char *fmt, va_list ap)
{
        const struct timespec now = { 0, 0 };
        char head[HEAD_MAX];
        sigset_t pipe_set, old, pending;

        if (out < 0)
                return;
        sigemptyset(&pipe_set);
        sigaddset(&pipe_set, SIGPIPE);
        sigpending(&pending);
        pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
        line_say(out, head_of(level, head), fmt, ap);
        if (!sigismember(&pending, SIGPIPE))
                while (sigtimedwait(&pipe_set, NULL, &now) < 0 && errno == EINTR)
                        ;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void warnx_(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        say(MESSAGE_WARNING, fmt, ap);
        va_end(ap);
}

void notice_(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        say(MESSAGE_NOTICE, fmt, ap);
        va_end(ap);
}

void info_(const char *fmt, ...)
{
        va_list ap;

        if (!verbose)
                return;
        va_start(ap, fmt);
        say(MESSAGE_INFO, fmt, ap);
        va_end(ap);
}

void die_(int status, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        say(MESSAGE_ERROR, fmt, ap);
        va_end(ap);
        end_(status);
}
