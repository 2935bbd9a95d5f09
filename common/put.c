#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/clock.h"
#include "common/put.h"

bool put_all(int fd, const char *s, size_t n, int wait_ms)
{
        struct stat st;
        int64_t until = now_ms() + wait_ms;
        /* A file takes all of it in one write, so that no other writer's lines fall in between. */
        size_t most = n > PIPE_BUF && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? n : PIPE_BUF;

        while (n > 0) {
                struct pollfd p = { .fd = fd, .events = POLLOUT };
                int64_t left = until - now_ms();
                int ready = poll(&p, 1, left > 0 ? (int)left : 0);
                ssize_t w = ready > 0 ? write(fd, s, n < most ? n : most) : ready;
                if (w > 0) {
                        s += w;
                        n -= (size_t)w;
                        until = now_ms() + wait_ms;
                } else if (w < 0 && errno != EINTR && errno != EAGAIN) {
                        return false;
                } else if (left <= 0) {
                        errno = ETIMEDOUT;
                        return false;
                }
        }
        return true;
}
