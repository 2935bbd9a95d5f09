/*
 * The file of leases as a whole, and the lock that makes it one memnode's alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "common/message.h"
#include "memnode/resume.h"

uint32_t resume_sum(uint32_t begun, const void *bytes, size_t n)
{
        const size_t most = 1u << 30;           /* ISA-L counts in int */

        for (const unsigned char *p = bytes; n; ) {
                size_t part = n < most ? n : most;
                begun = crc32_iscsi((unsigned char *)p, (int)part, begun);
                p += part;
                n -= part;
        }
        return begun;
}

/* Of the file, open from resume_lock() on, so that nothing can be in the way of a sync. */
static int folder = -1;

static int open_folder(const char *path)
{
        char *copy = strdup(path);

        folder = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        int err = folder < 0 ? -errno : 0;
        free(copy);
        return err;
}

char *resume_beside(const char *path, const char *suffix)
{
        char *name;

        return asprintf(&name, "%s%s", path, suffix) < 0 ? NULL : name;
}

/* Removes the file that a memnode left when it was killed while it wrote: it has pages and secrets
 * of programs. */
static int remove_new(const char *path)
{
        char *name = resume_beside(path, RESUME_NEW);
        int err = !name ? -ENOMEM : unlink(name) != 0 && errno != ENOENT ? -errno : 0;

        free(name);
        return err;
}

/* The lock has a file of its own, which stays: the file with the leases is removed, and another is
 * made at the next end. */
int resume_lock(const char *path, char *why, size_t n)
{
        char *name = resume_beside(path, ".lock");
        int err = 0;

        if (!name) {
                snprintf(why, n, "no memory is left");
                return -ENOMEM;
        }
        int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
                err = -errno;
        if (!err)
                err = open_folder(path);
        if (!err)
                err = remove_new(path);
        if (err == -EWOULDBLOCK)
                snprintf(why, n, "another memnode uses it: end that one, or give each its own");
        else if (err)
                snprintf(why, n,
                         "what stands beside it, as %.200s, cannot be used: %s: name a file in a "
                         "folder that this user may read and write",
                         name, strerror(-err));
        if (err && fd >= 0)
                close(fd);
        free(name);                             /* fd stays open, and with it the lock */
        return err;
}

int resume_add(struct resume_list *list, const struct resume_lease *l,
               const struct resume_piece *piece, uint32_t n)
{
        if (list->count == list->room) {
                unsigned room = 2 * list->room + 16;
                struct resume_lease *more = realloc(list->lease, room * sizeof(*more));
                if (!more)
                        return -ENOMEM;
                list->lease = more;
                list->room = room;
        }
        struct resume_lease *to = &list->lease[list->count];
        *to = *l;
        to->npieces = n;
        to->piece = calloc(n + 1, sizeof(*piece));
        if (!to->piece)
                return -ENOMEM;
        if (n)
                memcpy(to->piece, piece, n * sizeof(*piece));
        list->count++;
        return 0;
}

void resume_list_free(struct resume_list *list)
{
        while (list->count)
                free(list->lease[--list->count].piece);
        free(list->lease);
        *list = (struct resume_list){ .room = 0 };
}

int resume_sync_folder(void) { return fsync(folder) == 0 ? 0 : -errno; }

int resume_remove(const char *path, char *why, size_t n)
{
        int err = unlink(path) != 0 && errno != ENOENT ? -errno : 0;

        if (err) {
                snprintf(why, n,
                         "it cannot be removed (%s), and must not be served twice: see to the "
                         "rights of its folder",
                         strerror(-err));
                return err;
        }
        err = resume_sync_folder();
        if (err)                        /* it is removed, and what it held is here alone */
                warnx_("--resume %s: its folder cannot be synced (%s): if this host loses power "
                       "now, and the file is there again, remove it", path, strerror(-err));
        return 0;
}
