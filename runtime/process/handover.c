/*
 * See handover.h: the memory file, its descriptor numbers, and its content: struct handover, the
 * numbers of hidden strings, then the texts of the options in the order of each_text().
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "abi_image.h"
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "far/memfd.h"
#include "process/handover.h"

#define MAGIC 0x726576656e757276ull
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int self_fd = -1;                /* private */

void handover_init(int fd)
{
        self_fd = fd;
}

void handover_private_fds(const struct handover *h, void (*fn)(int fd))
{
        const int single[] = { h->kvm, h->message > STDERR_FILENO ? h->message : -1, h->far.proc,
                               h->far.tree, h->far.next.life, h->stats.file.dir_fd,
                               h->stats.direct_fd, h->profile.dir_fd, h->ctl.dir_fd,
                               h->ctl.listen_fd };

        for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
                if (single[i] >= 0)
                        fn(single[i]);
        for (unsigned i = 0; i < NODES_MAX; i++)
                if (h->far.node[i].fd >= 0)
                        fn(h->far.node[i].fd);
        for (unsigned i = 0; i < h->opt.nnodes; i++)
                if (h->opt.nodes[i].key_fd > 0)
                        fn(h->opt.nodes[i].key_fd);
}

/* ---- texts ---- */

/* One text after the other, each after a byte that says whether the text exists. */
struct cursor { char *at; size_t left; bool bad; };

static void each_text(struct options *o, void (*fn)(const char **text, struct cursor *c),
                      struct cursor *c)
{
        fn(&o->stats_file, c);
        fn(&o->profile, c);
        fn(&o->config, c);
        for (unsigned i = 0; i < o->nnodes; i++) {
                struct node_option *n = &o->nodes[i];
                fn(&n->url, c);
                fn(&n->name, c);
                fn(&n->origin, c);
                fn(&n->domain, c);
                fn(&n->keys, c);
                fn(&n->client, c);
                fn(&n->device, c);
        }
}

static void measure(const char **text, struct cursor *c)
{
        c->left += 1 + (*text ? strlen(*text) + 1 : 0);
}

static void store(const char **text, struct cursor *c)
{
        *c->at++ = *text != NULL;
        if (*text)
                c->at = stpcpy(c->at, *text) + 1;
}

static void load(const char **text, struct cursor *c)
{
        size_t n = 1;

        *text = NULL;
        if (!c->left)
                c->bad = true;
        else if (*c->at) {
                n += strnlen(c->at + 1, c->left - 1) + 1;
                if (n > c->left)
                        c->bad = true;
                else if (!(*text = strdup(c->at + 1)))
                        die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
        }
        if (!c->bad) {
                c->at += n;
                c->left -= n;
        }
}

/* ---- writing ---- */

static int write_file(struct handover *h, const uint32_t *hidden)
{
        struct cursor c = { .left = 0 };
        char why[256];

        each_text(&h->opt, measure, &c);
        h->magic = MAGIC;
        h->version = ABI_VERSION;
        h->size = sizeof(*h);
        h->bytes = sizeof(*h) + h->nhidden * sizeof(*hidden) + c.left;
        int fd = memfd_open("vmrun-exec", h->bytes, why, sizeof(why));
        if (fd < 0)
                return fd;
        char *p = mmap(NULL, h->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
                int err = -errno;
                close(fd);
                return err;
        }
        memcpy(p, h, sizeof(*h));
        memcpy(p + sizeof(*h), hidden, h->nhidden * sizeof(*hidden));
        c.at = p + sizeof(*h) + h->nhidden * sizeof(*hidden);
        each_text(&h->opt, store, &c);
        munmap(p, h->bytes);
        return fd;
}

/* Two neighbouring numbers, among the private ones: the second will stay private. */
static int take_numbers(int fd, struct handover_fds *fds)
{
        for (int at = privfd_base();; at = fds->vmrun + 1) {
                fds->settings = fcntl(fd, F_DUPFD, at);
                fds->vmrun = fds->settings < 0 ? -1 : fcntl(self_fd, F_DUPFD, fds->settings + 1);
                if (fds->vmrun < 0) {
                        int err = -errno;
                        if (fds->settings >= 0)
                                close(fds->settings);
                        return err;
                }
                if (fds->vmrun == fds->settings + 1)
                        return 0;
                handover_drop(fds);
        }
}

int handover_make(struct handover *h, const uint32_t *hidden, struct handover_fds *fds)
{
        if (self_fd < 0) {
                warnx_("no program can be executed: vmrun's own file was not found when it started "
                       "(is /proc mounted?)");
                return -ENOSYS;
        }
        int fd = write_file(h, hidden);
        if (fd < 0)
                return fd;
        int err = take_numbers(fd, fds);
        close(fd);
        return err;
}

void handover_drop(const struct handover_fds *fds)
{
        close(fds->settings);
        close(fds->vmrun);
}

/* ---- reading ---- */

/* N of "/dev/fd/N", or -1. */
static int executed_fd(void)
{
        static const char head[] = "/dev/fd/";
        const char *name = (const char *)getauxval(AT_EXECFN);
        char *end;

        if (!name || strncmp(name, head, strlen(head)) != 0 || name[strlen(head)] < '0' ||
            name[strlen(head)] > '9')
                return -1;
        long n = strtol(name + strlen(head), &end, 10);
        return *end || n < 1 || n > INT_MAX ? -1 : (int)n;
}

static struct handover *read_file(int fd)
{
        struct handover head, *h;
        struct stat st;

        if (fcntl(fd, F_GET_SEALS) != SEALS || fstat(fd, &st) != 0 ||
            pread(fd, &head, sizeof(head), 0) != sizeof(head) || head.magic != MAGIC)
                return NULL;
        if (head.version != ABI_VERSION || head.size != sizeof(head) ||
            head.bytes != (uint64_t)st.st_size || head.opt.nnodes > NODES_MAX ||
            head.nhidden > (head.bytes - sizeof(head)) / sizeof(uint32_t))
                die_(EXIT_VMRUN_FAILED,
                     "the program was executed by another version of vmrun: start it again");
        h = malloc(head.bytes);
        if (!h || pread(fd, h, head.bytes, 0) != (ssize_t)head.bytes)
                die_(EXIT_VMRUN_FAILED, "what the program before left cannot be read: %s",
                     h ? strerror(errno) : "out of memory");
        return h;
}

const struct handover *handover_find(const uint32_t **hidden, int *vmrun)
{
        int n = executed_fd();
        struct handover *h = n < 0 ? NULL : read_file(n - 1);

        if (!h)
                return NULL;
        *hidden = (const uint32_t *)(h + 1);
        *vmrun = n;
        size_t head = sizeof(*h) + h->nhidden * sizeof(**hidden);
        struct cursor c = { .at = (char *)h + head, .left = h->bytes - head };
        each_text(&h->opt, load, &c);
        if (c.bad)
                die_(EXIT_VMRUN_FAILED,
                     "what the program before left makes no sense: a bug in vmrun");
        close(n - 1);
        return h;
}
