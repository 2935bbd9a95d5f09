/*
 * Keys that memnode and its clients share: a file of lines NAME:HEX, as psktool(1) of GnuTLS makes
 * them and NBD clients read them.
 *
 * A key's name says who the client is.  Its secret proves it, and is never sent.
 */
#ifndef COMMON_KEYS_H
#define COMMON_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_NAME_MAX    64              /* bytes */
#define KEY_SECRET_MIN  16
#define KEY_SECRET_MAX  64              /* what psktool makes at most */
#define KEYS_MAX        4096            /* of a file */

struct key {
        char name[KEY_NAME_MAX + 1];
        uint8_t secret[KEY_SECRET_MAX];
        unsigned bytes;                 /* of the secret */
};
struct keys { struct key *key; unsigned count; };       /* in the order of the file */

/* Reads a file.  0, or -errno with one sentence in why[size] that does not name the file; then
 * *k is empty.  others: if not NULL, whether other users may read the file. */
int keys_read(const char *path, struct keys *k, bool *others, char *why, size_t size);
/* Reads one line, without its end.  NULL, or what is wrong with it. */
const char *keys_line(const char *line, size_t len, struct key *k);
/* The key of that name, which need not end with a NUL; NULL: there is none. */
const struct key *keys_find(const struct keys *k, const char *name, size_t len);
/* Reads one key of a file: that of `name`; NULL: the only one there is.  0, or -errno with why. */
int keys_pick(const char *path, const char *name, struct key *one, char *why, size_t size);
/* Secrets are overwritten. */
void keys_free(struct keys *k);

#endif
