/*
 * Writing the file of resume.h.  The file has another name until all of it is on the disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "memnode/pool.h"
#include "memnode/resume.h"
#include "memnode/resume_write.h"

/* Looked at as one: it is written if any byte of it is none of zero. */
#define BLOCK (64u << 10)

struct words { char *at; size_t bytes, room; };

struct writing {
        int fd;
        uint64_t data;                          /* bytes written so far, the head's included */
        struct words words;                     /* all that is said of leases */
        struct words runs;                      /* of the lease under way */
        void (*alive)(void);
};

static int add(struct words *w, const void *from, size_t bytes)
{
        if (w->bytes + bytes > w->room) {
                size_t room = 2 * (w->bytes + bytes) + 4096;
                char *p = realloc(w->at, room);
                if (!p)
                        return -ENOMEM;
                w->at = p;
                w->room = room;
        }
        if (bytes)
                memcpy(w->at + w->bytes, from, bytes);
        w->bytes += bytes;
        return 0;
}

static int put(const struct writing *w, const void *from, size_t bytes, uint64_t at)
{
        while (bytes) {
                ssize_t n = pwrite(w->fd, from, bytes, (off_t)at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                from = (const char *)from + n;
                at += (uint64_t)n;
                bytes -= (size_t)n;
        }
        return 0;
}

static bool is_zero(const char *at, size_t bytes)
{
        return !*at && memcmp(at, at + 1, bytes - 1) == 0;
}

/* k: which piece of the lease. */
static int write_run(struct writing *w, const struct resume_lease *l, uint32_t k, const char *from,
                     const char *to)
{
        const size_t bytes = (size_t)(to - from);
        const struct resume_run run = { .first = (uint64_t)(from - l->piece[k].base),
                                        .bytes = bytes,
                                        .sum = resume_sum(0, from, bytes),
                                        .piece = k };
        int err = put(w, from, bytes, w->data);

        if (!err)
                err = add(&w->runs, &run, sizeof(run));
        /* Now and then, so that no one sync takes long without a sign of life. */
        if (!err && (w->data + bytes) / RESUME_RUN > w->data / RESUME_RUN &&
            fdatasync(w->fd) != 0)
                err = -errno;
        w->data += bytes;
        w->alive();
        return err;
}

/* The blocks of [at, end) that are not all zero. */
static int write_stretch(struct writing *w, const struct resume_lease *l, uint32_t k,
                         const char *at, const char *end)
{
        const char *run = NULL, *said = at;     /* where the one under way began */
        int err = 0;

        while (at < end && !err) {
                size_t bytes = end - at < BLOCK ? (size_t)(end - at) : BLOCK;
                bool zero = is_zero(at, bytes);

                if (!zero && !run)
                        run = at;
                const char *next = at + bytes, *stop = zero ? at : next;
                if (next - said >= (ptrdiff_t)RESUME_RUN) {     /* zeros take time, too */
                        said = next;
                        w->alive();
                }
                if (run && (zero || next == end || stop - run > (ptrdiff_t)(RESUME_RUN - BLOCK))) {
                        err = write_run(w, l, k, run, stop);
                        run = NULL;
                }
                at = next;
        }
        return err;
}

static int write_piece(struct writing *w, const struct resume_lease *l, uint32_t k)
{
        const char *at = l->piece[k].base, *end = at + l->piece[k].size, *stop;
        int err = 0;

        while (!err && at < end && (at = pool_data(at, end, &stop))) {
                err = write_stretch(w, l, k, at, stop);
                at = stop;
        }
        return err;
}

static int write_pieces(struct writing *w, const struct resume_lease *l)
{
        int err = l->npieces > RESUME_PIECES ? -E2BIG : 0;

        w->runs.bytes = 0;
        for (uint32_t k = 0; k < l->npieces && !err; k++)
                err = write_piece(w, l, k);
        return err;
}

static int add_parts(struct writing *w, const struct resume_lease *l)
{
        int err = 0;

        for (uint32_t k = 0; k < l->npieces && !err; k++) {
                const struct resume_part part = { l->piece[k].slab, l->piece[k].size };
                err = add(&w->words, &part, sizeof(part));
        }
        return err;
}

static int add_members(struct writing *w, const struct members *m)
{
        int err = 0;

        for (size_t i = 0; i < m->nknown && !err; i++) {
                struct resume_member one = { .number = m->known[i].number,
                                             .awaited = m->known[i].awaited };
                memcpy(one.generation, m->known[i].generation, sizeof(one.generation));
                err = add(&w->words, &one, sizeof(one));
        }
        return err ? err : add(&w->words, m->cut, m->ncut * sizeof(*m->cut));
}

static int write_lease(struct writing *w, const struct resume_lease *l)
{
        int err = write_pieces(w, l);
        struct resume_words words = { .incarnation = l->incarnation,
                                      .last_slab = l->last_slab,
                                      .runs = w->runs.bytes / sizeof(struct resume_run),
                                      .kind = l->kind,
                                      .restarts = l->restarts,
                                      .pieces = l->npieces,
                                      .members = (uint32_t)l->members.nknown,
                                      .cut = (uint32_t)l->members.ncut };

        memcpy(words.digits, l->digits, sizeof(words.digits));
        snprintf(words.name, sizeof(words.name), "%s", l->name);
        snprintf(words.party, sizeof(words.party), "%s", l->party);
        if (!err)
                err = add(&w->words, &words, sizeof(words));
        if (!err)
                err = add_parts(w, l);
        if (!err)
                err = add_members(w, &l->members);
        return err ? err : add(&w->words, w->runs.at, w->runs.bytes);
}

static int write_head(struct writing *w, unsigned leases)
{
        struct resume_head h = { .magic = RESUME_MAGIC,
                                 .version = RESUME_VERSION,
                                 .leases = leases,
                                 .words_at = w->data,
                                 .words_bytes = w->words.bytes,
                                 .words_sum = resume_sum(0, w->words.at, w->words.bytes) };

        h.sum = resume_sum(0, &h, offsetof(struct resume_head, sum));
        int err = put(w, w->words.at, w->words.bytes, w->data);
        return err ? err : put(w, &h, sizeof(h), 0);
}

static int write_all(struct writing *w, const struct resume_list *list)
{
        int err = list->count > RESUME_LEASES ? -E2BIG : 0;

        w->data = sizeof(struct resume_head);
        for (unsigned i = 0; i < list->count && !err; i++)
                err = write_lease(w, &list->lease[i]);
        if (!err)
                err = write_head(w, list->count);
        w->alive();
        return err ? err : fsync(w->fd) == 0 ? 0 : -errno;
}

int resume_write(const char *path, const struct resume_list *list, void (*alive)(void), char *why,
                 size_t n)
{
        struct writing w = { .fd = -1, .alive = alive };
        char *name = resume_beside(path, RESUME_NEW);
        int err;

        if (!name) {
                snprintf(why, n, "no memory is left");
                return -ENOMEM;
        }
        w.fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        err = w.fd < 0 ? -errno : write_all(&w, list);
        if (!err && rename(name, path) != 0)
                err = -errno;
        if (!err)
                /* if that fails, all is well unless this host loses power now */
                resume_sync_folder();
        if (err) {
                unlink(name);
                snprintf(why, n, "%.200s cannot be written: %s: free some room, or name a file "
                         "elsewhere", name, strerror(-err));
        }
        if (w.fd >= 0)
                close(w.fd);
        free(w.words.at);
        free(w.runs.at);
        free(name);
        return err;
}
