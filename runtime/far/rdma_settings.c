/*
 * What vmrun's options say about an rdma:// node: the only place of the driver that knows them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "../vmrun.h"
#include "rdma.h"

/* The first line of the file, as memnode reads its own. */
static int read_token(const char *path, uint8_t token[NODE_TOKEN_MAX], char why[FAR_WHY])
{
        char line[NODE_TOKEN_MAX + 1];
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line));
        int err = n < 0 ? -errno : 0;

        if (fd >= 0)
                close(fd);
        if (err) {
                snprintf(why, FAR_WHY, "the token-file %.100s cannot be read: %s: correct its name or its mode", path, strerror(-err));
                return err;
        }
        const char *end = memchr(line, '\n', (size_t)n);
        size_t len = end ? (size_t)(end - line) : (size_t)n;
        if (!len || len > NODE_TOKEN_MAX || memchr(line, '\0', len)) {
                snprintf(why, FAR_WHY, "the first line of the token-file %.100s is the token and must have 1 to %d bytes, none of them zero", path,
                         NODE_TOKEN_MAX);
                return -EINVAL;
        }
        memcpy(token, line, len);
        return 0;
}

int rdma_settings(const struct far_node *n, struct rdma_settings *s, char why[FAR_WHY])
{
        const struct node_option *o = n->option;

        *s = (struct rdma_settings){
                .size = o->size,
                .timeout_ms = opt.timeout_ms,
                .connect_timeout_ms = opt.connect_timeout_ms,
                .device = o->device,
                .gid_index = o->gid_index,
                .program = opt.argv && opt.argv[0] ? opt.argv[0] : "vmrun",
        };
        return o->token_file ? read_token(o->token_file, s->token, why) : 0;
}
