/*
 * For LD_PRELOAD: the registration of memory that others may write takes SLOW_REG_MS, if it is at
 * least 1 MiB.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdlib.h>

#define LARGE (1u << 20)

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
        struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, int) =
                dlsym(RTLD_NEXT, "ibv_reg_mr");
        const char *ms = getenv("SLOW_REG_MS");

        if (ms && length >= LARGE && access & IBV_ACCESS_REMOTE_WRITE)
                poll(NULL, 0, atoi(ms));
        return real(pd, addr, length, access);
}
