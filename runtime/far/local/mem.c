/*
 * mem:SIZE: the embedded far tier, memory of this process outside the cache.
 *
 * One sparse memfd of the whole size (so it counts as RssShmem, and a page of it exists from its
 * first write-back on); slab after slab is mapped into FAR_WINDOW and given to the VM as a memory
 * slot when it is leased.  mem: without a size is as large as the memory that is available at
 * start.  A larger SIZE is allowed, but then the host may run out of memory: a page that cannot be
 * allocated is SIGBUS on the host side of the window, and vmrun ends by the kernel's OOM killer or
 * an error of KVM_RUN.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "base/host.h"
#include "base/message.h"
#include "base/privfd.h"
#include "common/size.h"
#include "far/memfd.h"
#include "far/window.h"

struct mem_node { int fd; };

static int mem_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        const uint64_t most = FAR_WINDOW_END - FAR_WINDOW;
        uint64_t bytes, available = host_memory_available();
        char a[32];

        if (n->inherited) {
                struct stat st;
                if (fstat(n->inherited->fd, &st) != 0 || st.st_size <= 0) {
                        snprintf(why, FAR_WHY,
                                 "descriptor %d is not its memory file: start the program anew",
                                 n->inherited->fd);
                        return -EINVAL;
                }
                bytes = (uint64_t)st.st_size;
        } else if (!*rest) {
                bytes = n->option->size ? n->option->size : available < most ? available : most;
        } else {
                int err = size_parse(rest, &bytes);
                if (err == -EINVAL) {
                        snprintf(why, FAR_WHY,
                                 "'%.64s' is no size: give a whole number with K, M, G or T, as in "
                                 "mem:8G",
                                 rest);
                        return err;
                }
                if (err)
                        bytes = UINT64_MAX;
        }
        if (bytes > most) {
                snprintf(why, FAR_WHY, "%.64s is too large: give at most 4T",
                         *rest ? rest : size_text(bytes, a));
                return -ERANGE;
        }
        n->pages = bytes / PAGE_SIZE;
        if (!n->pages) {
                snprintf(why, FAR_WHY, "%s is too small: give at least one page of 4K",
                         *rest ? rest : "the available memory");
                return -EINVAL;
        }

        struct mem_node *m = malloc(sizeof(*m));
        int fd = !m             ? -ENOMEM
                 : n->inherited ? n->inherited->fd
                                : memfd_make("vmrun-far", n->pages * PAGE_SIZE, why, FAR_WHY);
        if (fd < 0) {
                if (!m)
                        snprintf(why, FAR_WHY, "out of memory: free some on this host");
                free(m);
                return fd;
        }
        m->fd = fd;
        n->data = m;
        return 0;
}

static int mem_lease(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages,
                     struct slab *s, struct far_place *place)
{
        (void)place;
        struct mem_node *m = n->data;
        return window_map(vm, m->fd, first, pages, 0, s);
}

/* Slabs stay mapped: the VM's memory slots name them.  They end with the process. */
static void mem_close(struct far_node *n)
{
        struct mem_node *m = n->data;
        privfd_close(m->fd);
        free(m);
}

static bool mem_keep(const struct far_node *n, struct far_kept_node *k)
{
        k->fd = ((struct mem_node *)n->data)->fd;
        return true;
}

static void mem_describe(const struct far_node *n, char *text, size_t size)
{
        char a[32];
        snprintf(text, size, "%s: %s in memory of this host", n->url,
                 size_text(n->pages * PAGE_SIZE, a));
}

const struct far_driver far_mem = {
        .scheme = "mem",
        .kind = SLAB_MEMORY,
        .open = mem_open,
        .lease = mem_lease,
        .close = mem_close,
        .keep = mem_keep,
        .describe = mem_describe,
};
