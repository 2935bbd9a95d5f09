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

#define MEM_MOST (FAR_WINDOW_END - FAR_WINDOW)

/* The size in `rest`; 0: none is given. */
static int size_of(const char *rest, uint64_t *bytes, char why[FAR_WHY])
{
        *bytes = 0;
        int err = *rest ? size_parse(rest, bytes) : 0;
        if (err == -EINVAL)
                snprintf(why, FAR_WHY,
                         "'%.64s' is no size: give a whole number with K, M, G or T, as in mem:8G",
                         rest);
        else if (err || *bytes > MEM_MOST)
                snprintf(why, FAR_WHY, "%.64s is too large: give at most 4T", rest);
        else if (*rest && *bytes < PAGE_SIZE)
                snprintf(why, FAR_WHY, "%.64s is too small: give at least one page of 4K", rest);
        else
                return 0;
        return err ? err : -ERANGE;
}

static int mem_check(const struct node_option *o, const char *rest, char why[FAR_WHY])
{
        uint64_t bytes;
        char a[32];

        if (!*rest && o->size > MEM_MOST) {
                snprintf(why, FAR_WHY, "size=%s is too large: give at most 4T",
                         size_text(o->size, a));
                return -ERANGE;
        }
        return size_of(rest, &bytes, why);
}

static int mem_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        uint64_t bytes, available = host_memory_available();

        if (n->inherited) {
                struct stat st;
                if (fstat(n->inherited->fd, &st) != 0 || st.st_size <= 0) {
                        snprintf(why, FAR_WHY,
                                 "descriptor %d is not its memory file: start the program anew",
                                 n->inherited->fd);
                        return -EINVAL;
                }
                bytes = (uint64_t)st.st_size;
        } else {
                int err = size_of(rest, &bytes, why);
                if (err)
                        return err;
                if (!bytes)
                        bytes = n->option->size ? n->option->size
                                                : available < MEM_MOST ? available : MEM_MOST;
        }
        n->pages = bytes / PAGE_SIZE;
        if (!n->pages) {
                snprintf(why, FAR_WHY, "the available memory is too small: free some on this host");
                return -ENOMEM;
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
        .check = mem_check,
        .open = mem_open,
        .lease = mem_lease,
        .close = mem_close,
        .keep = mem_keep,
        .describe = mem_describe,
};
