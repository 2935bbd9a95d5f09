#include <errno.h>
#include <poll.h>
#include <unistd.h>
#include "put.h"

void put_all(int fd, const char *s, size_t n)
{
        while (n > 0) {
                ssize_t w = write(fd, s, n);
                if (w > 0) {
                        s += w;
                        n -= (size_t)w;
                } else if (w < 0 && errno == EAGAIN) {
                        struct pollfd p = { .fd = fd, .events = POLLOUT };
                        if (poll(&p, 1, 1000) <= 0)
                                return;
                } else if (w == 0 || errno != EINTR) {
                        return;
                }
        }
}
