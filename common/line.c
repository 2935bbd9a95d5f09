/*
 * A write that blocks would stop more than its message: memnode could not even be told to end, and
 * the program under vmrun would stand still.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/line.h"
#include "common/put.h"

/* Less than PIPE_BUF even with the count of dropped lines before it, so a pipe takes the line whole
 * or not at all. */
#define LINE_MAX_BYTES  2048
#define PATIENCE_MS     200             /* with a reader that has read all so far */

/* Lines dropped since a line was written last.  Relaxed: it publishes no other data. */
static atomic_uint dropped;

int line_open(int fd)
{
        char path[32];
        struct stat st;

        /* Not a file: the new description would write from its beginning.  Not a socket: it cannot
         * be opened. */
        if (fstat(fd, &st) != 0 || (!S_ISFIFO(st.st_mode) && !isatty(fd)))
                return -1;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

/* The length of the UTF-8 character at s, of at most n bytes; 0: none, or a control character. */
static size_t printable(const unsigned char *s, size_t n)
{
        /* The smallest character of each length: overlong forms are forbidden.  0x80 to 0x9f are
         * C1. */
        static const uint32_t least[] = { 0, 0, 0xa0, 0x800, 0x10000 };

        if (*s < 0x80)
                return *s >= ' ' && *s != 0x7f;
        size_t len = *s >= 0xf0 && *s < 0xf8 ? 4 : *s >= 0xe0 ? 3 : 2;
        if (*s < 0xc0 || *s >= 0xf8 || len > n)
                return 0;
        uint32_t c = *s & (0x7fu >> len);
        for (size_t i = 1; i < len; i++) {
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
                c = c << 6 | (s[i] & 0x3f);
        }
        return c >= least[len] && c < 0x110000 && (c < 0xd800 || c > 0xdfff) ? len : 0;
}

void line_clean(char *s, size_t n)
{
        for (size_t i = 0, len; i < n; i += len ? len : 1) {
                len = printable((const unsigned char *)s + i, n - i);
                if (!len)
                        s[i] = '?';
        }
}

static int count_line(char *at, size_t size, const char *prefix, unsigned lost)
{
        return snprintf(at, size, "%s%u line%s dropped before this one: the reader took none\n",
                        prefix, lost, lost == 1 ? " was" : "s were");
}

void line_say(int fd, const char *prefix, const char *fmt, va_list ap)
{
        char buf[128 + LINE_MAX_BYTES];
        unsigned lost = atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);
        size_t from = lost ? (size_t)count_line(buf, 128, prefix, lost) : 0;

        int head = snprintf(buf + from, LINE_MAX_BYTES, "%s", prefix);
        int len = vsnprintf(buf + from + head, LINE_MAX_BYTES - (size_t)head - 1, fmt, ap);
        size_t to = from + (size_t)head + (len < 0 ? 0 : (size_t)len);
        if (to > from + LINE_MAX_BYTES - 2)
                to = from + LINE_MAX_BYTES - 2;
        line_clean(buf + from, to - from);
        buf[to++] = '\n';
        if (!put_all(fd, buf, to, lost ? 0 : PATIENCE_MS))
                atomic_fetch_add_explicit(&dropped, lost + 1, memory_order_relaxed);
}

void line_end(int fd, const char *prefix)
{
        char buf[128];
        unsigned lost = atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);

        if (lost)
                put_all(fd, buf, (size_t)count_line(buf, sizeof(buf), prefix, lost), 0);
}
