/*
 * Forks and reaps a child, and checks how it ended.
 */
#include <sys/wait.h>
#include "t_child.h"

void reap_as(const char *file, int line, pid_t pid, int expect)
{
        int status = -1;
        pid_t got;

        while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
                ;
        if (got == pid && status == expect)
                return;
        printf("FAILED %s:%d: waitpid(%s): status %#x, not %#x\n", file, line,
               got == pid ? "child" : strerrorname_np(errno), status, expect);
        fflush(stdout);
        exit(1);
}
