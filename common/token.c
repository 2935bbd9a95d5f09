#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "common/token.h"

int token_read(const char *path, char token[NODE_TOKEN_MAX + 1], char *why, size_t size)
{
        char line[NODE_TOKEN_MAX + 1];
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line));
        int err = n < 0 ? -errno : 0;

        if (fd >= 0)
                close(fd);
        if (err) {
                snprintf(why, size, "it cannot be read: %s: correct its name or its mode",
                         strerror(-err));
                return err;
        }
        size_t len = 0;
        while (len < (size_t)n && isgraph((unsigned char)line[len]))
                len++;
        bool ends = len == (size_t)n || line[len] == '\n' || line[len] == '\r';
        memset(token, 0, NODE_TOKEN_MAX + 1);
        if (len > 0 && len <= NODE_TOKEN_MAX && ends)
                memcpy(token, line, len);
        else
                err = -EINVAL;
        explicit_bzero(line, sizeof(line));
        if (err)
                snprintf(why, size,
                         "its first line is the token and must have 1 to %d printable characters, "
                         "none of them a space",
                         NODE_TOKEN_MAX);
        return err;
}
