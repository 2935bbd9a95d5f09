/*
 * mem:SIZE: the embedded far tier, memory of this process outside the cache.
 *
 * One sparse memfd of the whole size (so it counts as RssShmem, and a page of it exists from its first write-back on); slab after
 * slab is mapped into FAR_WINDOW and given to the VM as a memory slot when it is leased.  mem: without a size is as large as the memory
 * that is available at start.  A larger SIZE is allowed, but then the host may run out: a page that cannot be had is
 * SIGBUS on the host side of the window, and vmrun ends with the kernel's OOM killer or an error of KVM_RUN.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "../check.h"
#include "window.h"

struct mem_node { int fd; };

/* The limit of file sizes is for the program's files, not for memory. */
static int set_size(int fd, uint64_t bytes)
{
        struct rlimit old, most;
        if (getrlimit(RLIMIT_FSIZE, &old) != 0 || old.rlim_cur == RLIM_INFINITY || old.rlim_cur >= bytes)
                return ftruncate(fd, (off_t)bytes) == 0 ? 0 : -errno;
        if (old.rlim_max < bytes)
                return -EFBIG;          /* ftruncate would also raise SIGXFSZ */
        most = (struct rlimit){ old.rlim_max, old.rlim_max };
        setrlimit(RLIMIT_FSIZE, &most);
        int err = ftruncate(fd, (off_t)bytes) == 0 ? 0 : -errno;
        setrlimit(RLIMIT_FSIZE, &old);
        return err;
}

static int mem_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        const uint64_t most = FAR_WINDOW_END - FAR_WINDOW;
        uint64_t bytes, available = host_memory_available();
        char a[32], b[32];

        if (!*rest) {
                bytes = n->option->size ? n->option->size : available < most ? available : most;
        } else {
                int err = size_parse(rest, &bytes);
                if (err == -EINVAL) {
                        snprintf(why, FAR_WHY, "'%.64s' is no size: give a whole number with K, M, G or T, as in mem:8G", rest);
                        return err;
                }
                if (err)
                        bytes = UINT64_MAX;
        }
        if (bytes > most) {
                snprintf(why, FAR_WHY, "%.64s is too large: give at most 4T", *rest ? rest : size_text(bytes, a));
                return -ERANGE;
        }
        n->pages = bytes / PAGE_SIZE;
        if (!n->pages) {
                snprintf(why, FAR_WHY, "%s is too small: give at least one page of 4K", *rest ? rest : "the available memory");
                return -EINVAL;
        }
        if (bytes > available)
                info_("%s: only %s of %s is available now: this host may run out of memory", n->option->origin, size_text(available, a),
                      size_text(bytes, b));

        struct mem_node *m = malloc(sizeof(*m));
        int fd = m ? memfd_create("vmrun-far", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
        if (fd < 0) {
                int err = m ? -errno : -ENOMEM;
                snprintf(why, FAR_WHY, "cannot make a memory file: %s", strerror(-err));
                free(m);
                return err;
        }
        int err = set_size(fd, n->pages * PAGE_SIZE);
        if (err) {
                snprintf(why, FAR_WHY, "cannot make a memory file of %s: %s%s", size_text(bytes, a), strerror(-err),
                         err == -EFBIG ? ": raise `ulimit -f` or give a smaller size" : "");
                close(fd);
                free(m);
                return err;
        }
        /* Nothing in vmrun changes its size again; a page that vanished under the guest would be lost silently. */
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        fd = privfd_move(fd);
        if (fd < 0) {
                snprintf(why, FAR_WHY, "no file descriptor is left for it: raise `ulimit -n`");
                free(m);
                return fd;
        }
        m->fd = fd;
        n->data = m;
        return 0;
}

static int mem_lease(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages, struct slab *s, struct far_place *place)
{
        (void)place;
        struct mem_node *m = n->data;
        return window_map(vm, m->fd, first, pages, 0, s);
}

/* Mapped slabs stay: the VM's memory slots name them, and they go with the process. */
static void mem_close(struct far_node *n)
{
        struct mem_node *m = n->data;
        privfd_close(m->fd);
        free(m);
}

static void mem_describe(const struct far_node *n, char *text, size_t size)
{
        char a[32];
        snprintf(text, size, "%s: %s in memory of this host", n->url, size_text(n->pages * PAGE_SIZE, a));
}

const struct far_driver far_mem = {
        .scheme = "mem",
        .kind = SLAB_MEMORY,
        .open = mem_open,
        .lease = mem_lease,
        .close = mem_close,
        .describe = mem_describe,
};
