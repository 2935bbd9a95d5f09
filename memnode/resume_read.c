/*
 * Reading the file of resume.h.  Nothing in it is believed before its sum was found right, nor used
 * before it was found possible.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "memnode/resume.h"
#include "memnode/resume_read.h"

struct reading {
        int fd;
        uint64_t size;                          /* of the file */
        struct resume_head head;
        char *words;                            /* head.words_bytes */
        size_t at;                              /* of the next word in there */
        uint64_t data;                          /* of the next run in the file */
        void (*alive)(void);
        char *why;
        size_t n;
};

__attribute__((format(printf, 3, 4)))
static int say(const struct reading *r, int err, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(r->why, r->n, fmt, ap);
        va_end(ap);
        return err;
}

static int damaged(const struct reading *r, const char *what)
{
        return say(r, -EBADMSG,
                   "it is damaged (%s): programs whose pages are in it lose them; remove it to "
                   "start without",
                   what);
}

/* -ENOENT: there is none.  Without O_NONBLOCK a pipe would keep us waiting. */
static int open_file(struct reading *r, const char *path)
{
        struct stat st;

        r->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (r->fd < 0 && errno == ENOENT)
                return -ENOENT;
        if (r->fd < 0 && errno == ELOOP)
                return say(r, -ELOOP, "it is a symbolic link: name the file itself, or remove it");
        if (r->fd < 0 || fstat(r->fd, &st) != 0)
                return say(r, -errno, "it cannot be opened: %s: see to its rights, or remove it",
                           strerror(errno));
        if (!S_ISREG(st.st_mode))
                return say(r, -EINVAL, "it is no file: name another one, or remove it");
        if (st.st_uid != geteuid() || st.st_mode & 077)
                return say(r, -EACCES,
                           "it must belong to the user that memnode runs as, and be closed to "
                           "others, since it has the secrets of programs: chown and chmod 600 it, "
                           "if you know where it comes from, or remove it");
        r->size = (uint64_t)st.st_size;
        return 0;
}

static int get(const struct reading *r, void *to, size_t bytes, uint64_t at)
{
        while (bytes) {
                ssize_t n = pread(r->fd, to, bytes, (off_t)at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return say(r, -errno,
                                   "it cannot be read: %s: see to its disk, or remove it to start "
                                   "without what is there",
                                   strerror(errno));
                if (n == 0)
                        return damaged(r, "it is too short");
                to = (char *)to + n;
                at += (uint64_t)n;
                bytes -= (size_t)n;
        }
        return 0;
}

static int read_head(struct reading *r)
{
        struct resume_head *h = &r->head;
        int err = get(r, h, sizeof(*h), 0);

        if (err)
                return err;
        if (h->magic != RESUME_MAGIC)
                return say(r, -EINVAL, "memnode did not write it: name another file, or remove it");
        if (h->version != RESUME_VERSION)
                return say(r, -EPROTO,
                           "a memnode of another version wrote it: start that one, or remove the "
                           "file, and programs whose pages are in it lose them");
        if (h->sum != resume_sum(0, h, offsetof(struct resume_head, sum)))
                return damaged(r, "its head");
        if (h->words_at < sizeof(*h) || h->words_at > r->size ||
            h->words_bytes != r->size - h->words_at)
                return damaged(r, "its length");
        if (!h->leases || h->leases > RESUME_LEASES)
                return damaged(r, "how many leases it has");
        r->data = sizeof(*h);
        return 0;
}

static int read_words(struct reading *r)
{
        r->words = malloc(r->head.words_bytes + 1);     /* 0 bytes are no NULL */
        if (!r->words)
                return say(r, -ENOMEM, "no memory is left to read it: free some on this host");
        int err = get(r, r->words, r->head.words_bytes, r->head.words_at);
        if (!err && resume_sum(0, r->words, r->head.words_bytes) != r->head.words_sum)
                err = damaged(r, "what it says of leases");
        return err;
}

/* The next `count` entries of `size` bytes, aligned; NULL: fewer are left. */
static const void *next(struct reading *r, uint64_t count, size_t size)
{
        const void *p = r->words + r->at;

        if (count > (r->head.words_bytes - r->at) / size)
                return NULL;
        r->at += count * size;
        return p;
}

static bool is_secret(const char digits[RESUME_DIGITS])
{
        for (unsigned i = 0; i < RESUME_DIGITS; i++)
                if (!strchr("0123456789abcdef", digits[i]) || !digits[i])
                        return false;
        return true;
}

/* Reads one member.  0, or an error of members.h. */
static int read_member(struct members *to, const struct resume_member *m)
{
        bool any = false;
        int err = m->awaited > 1 || m->pad ? -EINVAL : 0;

        for (unsigned i = 0; i < MEMBER_LINKS && !err; i++)
                if (m->generation[i]) {
                        err = members_admit(to, m->number, i, m->generation[i]);
                        any = true;
                }
        if (!err && m->awaited)
                members_await(to, m->number);
        return err ? err : any ? 0 : -EINVAL;
}

static int read_members(struct reading *r, const struct resume_words *w, struct members *to)
{
        const struct resume_member *m = next(r, w->members, sizeof(*m));
        const struct members_range *cut = m ? next(r, w->cut, sizeof(*cut)) : NULL;
        int err = cut ? 0 : -EINVAL;

        for (uint32_t i = 0; i < w->cut && !err; i++)
                err = members_cut(to, cut[i].first, cut[i].last);
        for (uint32_t i = 0; i < w->members && !err; i++)
                err = read_member(to, &m[i]);
        if (err == -ENOMEM)
                return say(r, err, "no memory is left to read it: free some on this host");
        return err ? damaged(r, "the members of a lease") : 0;
}

/* The pages of one lease, into its memory: piece by piece, and upwards in each. */
static int read_runs(struct reading *r, const struct resume_run *run, uint64_t count,
                     const struct resume_lease *l)
{
        uint64_t end = 0;                       /* of the run before, in its piece */
        uint32_t k = 0;

        for (uint64_t i = 0; i < count; i++, run++) {
                end = run->piece == k ? end : 0;
                if (run->piece < k || run->piece >= l->npieces)
                        return damaged(r, "where its pages belong");
                k = run->piece;
                const struct resume_piece *p = &l->piece[k];
                if (run->first < end || run->first > p->size || run->bytes > p->size - run->first ||
                    !run->bytes || run->bytes > RESUME_RUN ||
                    (run->first | run->bytes) % RESUME_PAGE ||
                    run->bytes > r->head.words_at - r->data)
                        return damaged(r, "where its pages belong");
                int err = get(r, p->base + run->first, run->bytes, r->data);
                if (err)
                        return err;
                if (resume_sum(0, p->base + run->first, run->bytes) != run->sum)
                        return damaged(r, "its pages");
                r->data += run->bytes;
                end = run->first + run->bytes;
                r->alive();
        }
        return 0;
}

/* A name that ends, with zeros behind it. */
static bool is_name(const char *name, size_t size)
{
        size_t n = strnlen(name, size);

        for (size_t i = n; i < size; i++)
                if (name[i])
                        return false;
        return n < size;
}

static bool is_possible(const struct resume_words *w)
{
        return is_secret(w->digits) && is_name(w->name, sizeof(w->name)) &&
               is_name(w->party, sizeof(w->party)) && w->incarnation && !w->pad &&
               (w->kind == RESUME_NBD
                        ? w->pieces == 1 && !w->last_slab && !w->restarts && !w->name[0]
                        : w->kind == RESUME_RDMA) &&
               w->pieces > 0 && w->pieces <= RESUME_PIECES;
}

/* Slabs have numbers of their own. */
static bool are_slabs(const struct resume_lease *l)
{
        for (uint32_t k = 0; k < l->npieces; k++) {
                if (!l->piece[k].slab || l->piece[k].slab > l->last_slab)
                        return false;
                for (uint32_t i = 0; i < k; i++)
                        if (l->piece[i].slab == l->piece[k].slab)
                                return false;
        }
        return true;
}

/* l->piece: to be freed, also if it fails. */
static int read_pieces(struct reading *r, const struct resume_words *w, struct resume_lease *l)
{
        const struct resume_part *part = next(r, w->pieces, sizeof(*part));
        bool right = part != NULL;

        l->piece = part ? calloc(w->pieces, sizeof(*l->piece)) : NULL;
        if (part && !l->piece)
                return say(r, -ENOMEM, "no memory is left to read it: free some on this host");
        for (uint32_t k = 0; right && k < w->pieces; k++) {
                l->piece[k] = (struct resume_piece){ part[k].slab, part[k].size, NULL };
                right = part[k].size && part[k].size % RESUME_PAGE == 0;
                l->npieces++;
        }
        if (right)
                right = l->kind == RESUME_NBD ? !l->piece[0].slab : are_slabs(l);
        return right ? 0 : damaged(r, "the memory of a lease");
}

static int read_words_of(struct reading *r, const struct resume_words *w, struct resume_lease *l)
{
        if (!w || !is_possible(w))
                return damaged(r, "what it says of a lease");
        l->kind = (enum resume_kind)w->kind;
        memcpy(l->digits, w->digits, sizeof(l->digits));
        memcpy(l->name, w->name, sizeof(l->name));
        memcpy(l->party, w->party, sizeof(l->party));
        l->incarnation = w->incarnation;
        l->last_slab = w->last_slab;
        l->restarts = w->restarts;
        int err = read_pieces(r, w, l);
        return err ? err : read_members(r, w, &l->members);
}

static int read_lease(struct reading *r, resume_take *take)
{
        const struct resume_words *w = next(r, 1, sizeof(*w));
        struct resume_lease l = { .piece = NULL };

        int err = read_words_of(r, w, &l);
        const struct resume_run *run = err ? NULL : next(r, w->runs, sizeof(*run));
        if (!err && !run)
                err = damaged(r, "where its pages belong");
        if (!err)
                err = take(&l, r->why, r->n);
        if (err)
                members_free(&l.members);
        else
                err = read_runs(r, run, w->runs, &l);
        free(l.piece);
        return err;
}

int resume_read(const char *path, resume_take *take, void (*alive)(void), unsigned *count,
                char *why, size_t n)
{
        struct reading r = { .alive = alive, .why = why, .n = n };
        int err = open_file(&r, path);

        *count = 0;
        if (!err)
                err = read_head(&r);
        if (!err)
                err = read_words(&r);
        for (; !err && *count < r.head.leases; ++*count)
                err = read_lease(&r, take);
        if (!err && (r.at != r.head.words_bytes || r.data != r.head.words_at))
                err = damaged(&r, "its length");
        free(r.words);
        if (r.fd >= 0)
                close(r.fd);
        return err == -ENOENT && r.fd < 0 ? 0 : err;
}
