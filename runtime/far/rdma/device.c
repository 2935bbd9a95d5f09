/*
 * The RDMA device of a node: protection domain, completion channels, registered memory, and
 * descriptors hidden from the program.
 *
 * No descriptor that stays open is visible.  Event and completion channels are moved by their
 * public `fd`, and so are the two descriptors of the device's context, which the libraries use only
 * through these fields.  The context itself belongs to librdmacm, which keeps it until the process
 * ends; two nodes on one device share it.  While a connection is made, the libraries open files
 * under low numbers for a moment (sysfs, netlink).  The program does not run yet then, or sees a
 * short gap in its numbers.
 *
 * No ibv_fork_init(): it marks registered memory MADV_DONTFORK, so that a copy-on-write fault of
 * the parent does not separate the device's page from the process's.  Linux since 5.12 copies
 * pinned pages at fork instead, and vmrun's frames are not inherited by copying anyway.  It would
 * cost a system call per registration, and a child would not have the frames.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/privfd.h"
#include "common/size.h"
#include "far/rdma/device.h"
#include "far/rdma/words.h"

/* Makes the descriptor in a public field private, and non-blocking. */
static int hide(int *fd)
{
        int moved = privfd_move(*fd);
        if (moved < 0)
                return moved;
        *fd = moved;
        int flags = fcntl(moved, F_GETFL);
        return flags >= 0 && fcntl(moved, F_SETFL, flags | O_NONBLOCK) == 0 ? 0 : -errno;
}

/* Back to a number that the library may close: the private mark must be cleared before the number
 * is free. */
static void unhide(int *fd)
{
        int low = fcntl(*fd, F_DUPFD_CLOEXEC, 0);
        privfd_close(*fd);
        *fd = low;
}

struct rdma_event_channel *rdma_channel_open(char why[FAR_WHY])
{
        bool held = privfd_making();
        struct rdma_event_channel *ch = rdma_create_event_channel();
        int err = ch ? hide(&ch->fd) : errno;
        privfd_made(held);
        if (!ch) {
                if (err == EACCES || err == EPERM)
                        snprintf(why, FAR_WHY,
                                 "no permission for /dev/infiniband/rdma_cm: it should have mode "
                                 "0666, as udev's rules set it");
                else if (err == ENOENT || err == ENODEV)
                        snprintf(why, FAR_WHY,
                                 "this host has no RDMA: `modprobe rdma_ucm` and the driver of a "
                                 "device; for soft-RoCE rdma_rxe and `rdma link add rxe0 type rxe "
                                 "netdev IF`");
                else
                        snprintf(why, FAR_WHY, "cannot open /dev/infiniband/rdma_cm: %s",
                                 strerror(err));
                errno = err;
                return NULL;
        }
        if (!err)
                return ch;
        snprintf(why, FAR_WHY, "no file descriptor is left: raise `ulimit -n`");
        if (err == -EMFILE)
                ch->fd = -1;            /* privfd_move has closed it */
        rdma_destroy_event_channel(ch);
        errno = -err;
        return NULL;
}

void rdma_channel_close(struct rdma_event_channel *ch)
{
        if (!ch)
                return;
        unhide(&ch->fd);
        rdma_destroy_event_channel(ch);
}

static struct ibv_comp_channel *comp_open(struct ibv_context *verbs)
{
        struct ibv_comp_channel *ch = ibv_create_comp_channel(verbs);
        if (ch && hide(&ch->fd) != 0) {
                ibv_destroy_comp_channel(ch);
                ch = NULL;
        }
        return ch;
}

static void comp_close(struct ibv_comp_channel *ch)
{
        if (!ch)
                return;
        unhide(&ch->fd);
        ibv_destroy_comp_channel(ch);
}

int rdma_device_open(struct rdma_device *d, struct rdma_cm_id *id, char why[FAR_WHY])
{
        struct ibv_context *verbs = id->verbs;
        char text[128];

        if (hide(&verbs->cmd_fd) != 0 || hide(&verbs->async_fd) != 0) {
                snprintf(why, FAR_WHY,
                         "no file descriptor is left for the RDMA device: raise `ulimit -n`");
                return -EMFILE;
        }
        d->verbs = verbs;
        if (ibv_query_device(verbs, &d->attr) != 0 || !(d->pd = ibv_alloc_pd(verbs)) ||
            !(d->control_comp = comp_open(verbs)) || !(d->data_comp = comp_open(verbs))) {
                snprintf(why, FAR_WHY, "RDMA device %.32s cannot be used: %s%s",
                         ibv_get_device_name(verbs->device), strerror(errno),
                         errno == ENOMEM ? rdma_words_memlock(text) : "");
                rdma_device_close(d);
                return -EIO;
        }
        return 0;
}

void rdma_device_close(struct rdma_device *d)
{
        comp_close(d->data_comp);
        comp_close(d->control_comp);
        if (d->pd)
                ibv_dealloc_pd(d->pd);
        memset(d, 0, sizeof(*d));
}

int rdma_memory_open(struct rdma_memory *m, struct rdma_device *d, char why[FAR_WHY])
{
        char a[32], text[128];

        m->mr = ibv_reg_mr(d->pd, m->base, m->len, IBV_ACCESS_LOCAL_WRITE);
        if (m->mr)
                return 0;
        int err = errno;
        if (err != ENOMEM && err != EAGAIN && err != EPERM) {
                snprintf(why, FAR_WHY, "RDMA device %.32s cannot register %s of memory: %s",
                         ibv_get_device_name(d->verbs->device), size_text(m->len, a),
                         strerror(err));
                return -err;
        }
        size_t pool = RDMA_POOL_PAGES * PAGE_SIZE;
        void *p = mmap(NULL, pool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) {
                madvise(p, pool, MADV_DONTFORK);
                m->mr = ibv_reg_mr(d->pd, p, pool, IBV_ACCESS_LOCAL_WRITE);
                if (m->mr) {
                        m->pool = p;
                        return 0;
                }
                err = errno;
                munmap(p, pool);
        }
        snprintf(why, FAR_WHY, "not even %s of memory can be registered for RDMA: %s%s",
                 size_text(pool, a), strerror(err), rdma_words_memlock(text));
        return -err;
}

void rdma_memory_close(struct rdma_memory *m)
{
        if (m->mr)
                ibv_dereg_mr(m->mr);
        if (m->pool)
                munmap(m->pool, RDMA_POOL_PAGES * PAGE_SIZE);
        memset(m, 0, sizeof(*m));
}
