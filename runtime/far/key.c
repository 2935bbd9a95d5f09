#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/options.h"
#include "base/privfd.h"
#include "far/key.h"
#include "far/memfd.h"

/* NAME:HEX and a newline */
#define LINE (KEY_NAME_MAX + 1 + 2 * KEY_SECRET_MAX + 1)

static int write_line(int fd, const struct key *k)
{
        char line[LINE + 1];
        size_t n = (size_t)snprintf(line, sizeof(line), "%s:", k->name);

        for (unsigned i = 0; i < k->bytes; i++)
                n += (size_t)sprintf(line + n, "%02x", k->secret[i]);
        line[n++] = '\n';
        bool ok = write(fd, line, n) == (ssize_t)n &&
                  fcntl(fd, F_ADD_SEALS,
                        F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
        explicit_bzero(line, sizeof(line));
        return ok ? 0 : errno ? -errno : -EIO;
}

int key_read(struct node_option *o, char why[FAR_WHY])
{
        char text[FAR_WHY - 116];
        struct key k;

        if (!o->keys || o->key_fd > 0)
                return 0;
        int err = keys_pick(o->keys, o->client, &k, text, sizeof(text));
        if (err) {
                snprintf(why, FAR_WHY, "keys=%.100s: %s", o->keys, text);
                return err;
        }
        int fd = PRIVFD_NEW(memfd_create("vmrun-key", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        err = fd < 0 ? fd : write_line(fd, &k);
        explicit_bzero(&k, sizeof(k));
        if (!err) {
                o->key_fd = fd;
                return 0;
        }
        snprintf(why, FAR_WHY, "a memory file for the key cannot be made: %s: raise `ulimit -n`, "
                 "or free some memory", strerror(-err));
        if (fd >= 0)
                privfd_close(fd);
        return err;
}

int key_get(const struct node_option *o, struct key *k, char why[FAR_WHY])
{
        char line[LINE];
        ssize_t n = pread(o->key_fd, line, LINE, 0);
        bool ok = n > 1 && !keys_line(line, (size_t)n - 1, k);

        explicit_bzero(line, sizeof(line));
        if (!ok)
                snprintf(why, FAR_WHY, "its key cannot be read: a bug in vmrun");
        return ok ? 0 : -EIO;
}

/* See key_thread_apart(). */
static _Thread_local bool apart;

void key_thread_apart(void)
{
        apart = memfd_proc() >= 0 && unshare(CLONE_FS) == 0 && fchdir(memfd_proc()) == 0;
}

void key_path(const struct node_option *o, char path[KEY_PATH])
{
        /* Not "self": the first thread may have ended, and has no files then. */
        snprintf(path, KEY_PATH, "%sthread-self/fd/%d", apart ? "" : "/proc/", o->key_fd);
}
