#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/stale.h"

bool stale_socket_remove(const struct sockaddr_un *a)
{
        struct stat st;

        if (lstat(a->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
                return false;
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return false;
        bool refused = connect(fd, (const struct sockaddr *)a, sizeof(*a)) != 0 &&
                       errno == ECONNREFUSED;
        close(fd);
        return refused && unlink(a->sun_path) == 0;
}
