/*
 * See disk.h: one io_uring for all transfers of a node.
 *
 * The frames are not registered (IORING_REGISTER_BUFFERS): that would make the whole cache resident
 * and locked at the first lease, and count it against RLIMIT_MEMLOCK, for 0.3 us of the 4 us that a
 * page costs the kernel.  Nor is the file: the ring would hold it, and so its lock, for a moment
 * beyond the end of the process.
 *
 * A completion interrupts the thread that submitted, also in a system call: therefore only the I/O
 * thread may submit (far_driver.own_thread).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/privfd.h"
#include "far/file/disk.h"

#define BATCH 64                        /* completions at a time */

static int why_no_ring(int err, char why[FAR_WHY])
{
        switch (err) {
        case -ENOSYS:
                snprintf(why, FAR_WHY, "this kernel has no io_uring, or a container's seccomp "
                         "profile hides it: use one that has (CONFIG_IO_URING, Linux 5.6), allow "
                         "io_uring_setup, _enter and _register there, or give dax:PATH");
                break;
        case -EPERM:
        case -EACCES:
                snprintf(why, FAR_WHY, "io_uring is forbidden here: allow it by sysctl "
                         "kernel.io_uring_disabled=0, or in the container's seccomp profile; or "
                         "give dax:PATH");
                break;
        case -ENOMEM:
                snprintf(why, FAR_WHY, "no memory for io_uring: raise `ulimit -l`, or free some on "
                         "this host");
                break;
        case -EMFILE:
        case -ENFILE:
                snprintf(why, FAR_WHY, "no file descriptor is left for io_uring: raise "
                         "`ulimit -n`");
                break;
        default:
                snprintf(why, FAR_WHY, "io_uring cannot be set up: %s: give dax:PATH",
                         strerror(-err));
        }
        return err;
}

/* COOP_TASKRUN (Linux 5.19): no interrupt for a completion while the I/O thread runs. */
static int make(struct io_uring *ring, unsigned entries)
{
        int err = io_uring_queue_init(entries, ring,
                                      IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);

        return err == -EINVAL ? io_uring_queue_init(entries, ring, 0) : err;
}

int disk_ring_try(char why[FAR_WHY])
{
        struct io_uring ring;
        bool held = privfd_making();
        int err = make(&ring, 1);

        if (!err)
                io_uring_queue_exit(&ring);
        privfd_made(held);
        return err ? why_no_ring(err, why) : 0;
}

int disk_ring_make(struct disk_node *d, char why[FAR_WHY])
{
        bool held = privfd_making();
        int err = make(&d->ring, DISK_DEPTH);

        if (!err) {
                int fd = privfd_move(d->ring.ring_fd);
                d->ring.ring_fd = d->ring.enter_ring_fd = fd;
                if (fd < 0) {
                        io_uring_queue_exit(&d->ring);  /* its close() fails, and no more */
                        err = fd;
                }
        }
        privfd_made(held);
        if (err)
                return why_no_ring(err, why);
        d->ring_made = true;
        return 0;
}

void disk_ring_drop(struct disk_node *d)
{
        if (!d->ring_made)
                return;
        d->ring_made = false;
        privfd_forget(d->ring.ring_fd);
        io_uring_queue_exit(&d->ring);
}

void disk_ring_queue(struct disk_node *d, struct disk_command *c)
{
        struct io_uring_sqe *s = io_uring_get_sqe(&d->ring);
        uint64_t at = (c->r->place->first + c->r->page + 1) * PAGE_SIZE + c->r->offset;
        bool write = c->op == FAR_WRITE;

        if (c->pages == 1 && write)
                io_uring_prep_write(s, d->fd, c->piece[0].iov_base,
                                    (unsigned)c->piece[0].iov_len, at);
        else if (c->pages == 1)
                io_uring_prep_read(s, d->fd, c->piece[0].iov_base, (unsigned)c->piece[0].iov_len,
                                   at);
        else if (write)
                io_uring_prep_writev(s, d->fd, c->piece, c->pages, at);
        else
                io_uring_prep_readv(s, d->fd, c->piece, c->pages, at);
        io_uring_sqe_set_data(s, c);
}

void disk_ring_submit(struct disk_node *d)
{
        /* EAGAIN, EBUSY, EINTR: poll() submits the rest. */
        if (disk_ring_pending(d))
                io_uring_submit(&d->ring);
}

bool disk_ring_pending(const struct disk_node *d) { return io_uring_sq_ready(&d->ring) > 0; }

unsigned disk_ring_reap(struct disk_node *d,
                        unsigned (*over)(struct disk_node *d, struct disk_command *c, int result))
{
        struct io_uring_cqe *done[BATCH];
        unsigned n, sum = 0;

        do {
                n = io_uring_peek_batch_cqe(&d->ring, done, BATCH);
                for (unsigned i = 0; i < n; i++)
                        sum += over(d, io_uring_cqe_get_data(done[i]), done[i]->res);
                io_uring_cq_advance(&d->ring, n);
        } while (n == BATCH);
        return sum;
}
