/*
 * For LD_PRELOAD: the registration of memory that others may write takes SLOW_REG_MS, and zeroing
 * memory SLOW_ZERO_MS, if it is at least 1 MiB.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdlib.h>

#define LARGE (1u << 20)

static void wait_for(const char *name)
{
        const char *ms = getenv(name);

        if (ms)
                poll(NULL, 0, atoi(ms));
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
        int (*real)(int, int, off_t, off_t) = dlsym(RTLD_NEXT, "fallocate");

        if (mode & FALLOC_FL_PUNCH_HOLE && (size_t)len >= LARGE)
                wait_for("SLOW_ZERO_MS");
        return real(fd, mode, offset, len);
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
        struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, int) =
                dlsym(RTLD_NEXT, "ibv_reg_mr");

        if (length >= LARGE && access & IBV_ACCESS_REMOTE_WRITE)
                wait_for("SLOW_REG_MS");
        return real(pd, addr, length, access);
}
