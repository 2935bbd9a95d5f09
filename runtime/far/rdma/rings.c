#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/privfd.h"
#include "far/rdma/rings.h"
#include <rdma/rdma_user_rxe.h>         /* after the C library's headers */

static void add_line(struct rdma_maps *m, const char *line)
{
        unsigned long from, to;

        if (!strstr(line, "/dev/infiniband/uverbs") ||
            sscanf(line, "%lx-%lx", &from, &to) != 2)
                return;
        if (m->n == RINGS_MOST)
                m->known = false;
        else
                m->ring[m->n++] = (struct rdma_ring){ (void *)from, to - from };
}

/* Lines that are longer than the buffer are of files with long names. */
static void add_lines(struct rdma_maps *m, int fd)
{
        char text[8192];
        size_t kept = 0;
        ssize_t got;

        while ((got = read(fd, text + kept, sizeof(text) - 1 - kept)) > 0) {
                char *line = text, *end;
                text[kept + (size_t)got] = '\0';
                for (; (end = strchr(line, '\n')); line = end + 1) {
                        *end = '\0';
                        add_line(m, line);
                }
                kept = strlen(line);
                if (kept == sizeof(text) - 1)
                        kept = 0;
                memmove(text, line, kept);
        }
        m->known &= got == 0;
}

void rdma_maps(struct rdma_maps *m)
{
        /* A private descriptor: the program cannot close it, nor another thread of it. */
        int fd = PRIVFD_NEW(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));

        m->n = 0;
        m->known = fd >= 0;
        if (fd < 0)
                return;
        add_lines(m, fd);
        privfd_close(fd);
}

static bool is_among(const struct rdma_maps *m, const void *at)
{
        for (unsigned i = 0; i < m->n; i++)
                if (m->ring[i].at == at)
                        return true;
        return false;
}

/* A new ring is empty. */
static bool may_be(const struct rxe_queue_buf *q, size_t element)
{
        return q->log2_elem_size < 16 && 1u << q->log2_elem_size >= element &&
               q->producer_index == 0 && q->consumer_index == 0;
}

struct rdma_ring rdma_new_ring(const struct rdma_maps *before, size_t element)
{
        const struct rdma_ring none = { NULL, 0 };
        struct rdma_ring found = none;
        struct rdma_maps now;

        rdma_maps(&now);
        if (!before->known || !now.known)
                return none;
        for (unsigned i = 0; i < now.n; i++)
                if (!is_among(before, now.ring[i].at) && may_be(now.ring[i].at, element)) {
                        if (found.at)
                                return none;
                        found = now.ring[i];
                }
        return found;
}
