/*
 * Where vmrun's messages go (common/message.h): a private copy of stderr, so that a program that
 * closes or redirects its fd 2 neither loses nor swallows them.
 */
#include <errno.h>
#include <unistd.h>
#include "common/line.h"
#include "vmrun.h"

void message_init(void)
{
        int fd = line_open(STDERR_FILENO);

        fd = fd < 0 ? privfd_dup(STDERR_FILENO) : privfd_move(fd);
        if (fd == -EMFILE || fd == -EINVAL)
                fd = STDERR_FILENO;     /* no room up there: better a shared stderr than silence */
        message_to(fd < 0 ? -1 : fd);   /* -1: stderr was closed when vmrun started */
}
