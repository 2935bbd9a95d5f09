#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "common/keys.h"

/* of a line: a name, a colon, digits, "\r\n" and the NUL */
#define LINE (KEY_NAME_MAX + 1 + 2 * KEY_SECRET_MAX + 3)

static int digit(char c)
{
        return isdigit((unsigned char)c)    ? c - '0'
               : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                            : -1;
}

const char *keys_line(const char *line, size_t len, struct key *k)
{
        const char *colon = memchr(line, ':', len);
        size_t name = colon ? (size_t)(colon - line) : 0;

        if (!name)
                return "it is no NAME:HEX";
        if (name > KEY_NAME_MAX)
                return "the name is longer than 64 bytes";
        if (*line == '#')
                return "names that begin with # are not supported";
        for (size_t i = 0; i < name; i++)
                if (!isgraph((unsigned char)line[i]))
                        return "a name has printable characters without spaces only";
        const char *hex = colon + 1;
        size_t digits = len - name - 1;
        if (digits < 2 * KEY_SECRET_MIN || digits > 2 * KEY_SECRET_MAX || digits % 2)
                return "the key must have 32 to 128 hexadecimal digits, an even number";
        *k = (struct key){ .bytes = (unsigned)digits / 2 };
        memcpy(k->name, line, name);
        for (size_t i = 0; i < digits; i++) {
                int d = digit(hex[i]);
                if (d < 0)
                        return "the key has a character that is no hexadecimal digit";
                k->secret[i / 2] = (uint8_t)(k->secret[i / 2] << 4 | d);
        }
        return NULL;
}

/* Room for one more, and the secrets that were moved are overwritten. */
static int grow(struct keys *k, unsigned *room)
{
        if (k->count < *room)
                return 0;
        unsigned more = *room ? 2 * *room : 16;
        struct key *fresh = calloc(more, sizeof(*fresh));
        if (!fresh)
                return -ENOMEM;
        if (k->count) {
                memcpy(fresh, k->key, k->count * sizeof(*fresh));
                explicit_bzero(k->key, k->count * sizeof(*fresh));
        }
        free(k->key);
        k->key = fresh;
        *room = more;
        return 0;
}

static int add(struct keys *k, unsigned *room, const struct key *one, const char **wrong)
{
        if (keys_find(k, one->name, strlen(one->name)))
                *wrong = "that name was there before";
        else if (k->count == KEYS_MAX)
                *wrong = "there are more than 4096 keys";
        if (*wrong)
                return -EINVAL;
        if (grow(k, room) != 0)
                return -ENOMEM;
        k->key[k->count++] = *one;
        return 0;
}

static int read_lines(FILE *f, struct keys *k, char *why, size_t size)
{
        char line[LINE];
        unsigned number = 0, room = 0;
        int err = 0;

        while (!err && fgets(line, sizeof(line), f)) {
                struct key one = { .bytes = 0 };
                const char *wrong = NULL;
                size_t len = strlen(line);

                number++;
                if (len + 1 == sizeof(line) && line[len - 1] != '\n')
                        wrong = "it is too long";
                while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
                        len--;
                if (len && !wrong)
                        wrong = keys_line(line, len, &one);
                if (wrong)
                        err = -EINVAL;
                else if (len)
                        err = add(k, &room, &one, &wrong);
                if (wrong)
                        snprintf(why, size, "line %u: %s: make keys with `psktool -u NAME -p FILE`",
                                 number, wrong);
                explicit_bzero(&one, sizeof(one));
        }
        explicit_bzero(line, sizeof(line));
        if (err == -ENOMEM)
                snprintf(why, size, "no memory is left");
        return err;
}

int keys_read(const char *path, struct keys *k, bool *others, char *why, size_t size)
{
        char buffer[BUFSIZ];            /* overwritten below: the secrets pass through it */
        struct stat st;
        FILE *f = fopen(path, "re");
        int err = 0;

        *k = (struct keys){ NULL, 0 };
        if (!f || fstat(fileno(f), &st) != 0)
                err = -errno;
        if (f && !err) {
                setvbuf(f, buffer, _IOFBF, sizeof(buffer));
                if (others)
                        *others = st.st_mode & S_IROTH;
                err = read_lines(f, k, why, size);
                if (!err && ferror(f))
                        err = errno ? -errno : -EIO;
                else if (err)
                        goto out;
        }
        if (err)
                snprintf(why, size, "it cannot be read: %s: correct its name or its mode",
                         strerror(-err));
        else if (!k->count) {
                err = -EINVAL;
                snprintf(why, size,
                         "it has no key: make one with `psktool -u NAME -p FILE`, a line NAME:HEX");
        }
out:
        if (f)
                fclose(f);
        explicit_bzero(buffer, sizeof(buffer));
        if (err)
                keys_free(k);
        return err;
}

const struct key *keys_find(const struct keys *k, const char *name, size_t len)
{
        for (unsigned i = 0; i < k->count; i++)
                if (strlen(k->key[i].name) == len && memcmp(k->key[i].name, name, len) == 0)
                        return &k->key[i];
        return NULL;
}

int keys_pick(const char *path, const char *name, struct key *one, char *why, size_t size)
{
        struct keys k;
        int err = keys_read(path, &k, NULL, why, size);

        if (err)
                return err;
        const struct key *found = name ? keys_find(&k, name, strlen(name))
                                  : k.count == 1 ? &k.key[0]
                                                 : NULL;
        if (found) {
                *one = *found;
        } else {
                err = -ENOENT;
                if (name)
                        snprintf(why, size, "it has no key of the name '%.64s': correct client=, "
                                 "or add the key", name);
                else
                        snprintf(why, size, "it has %u keys: say which is yours with client=NAME",
                                 k.count);
        }
        keys_free(&k);
        return err;
}

void keys_free(struct keys *k)
{
        if (k->key)
                explicit_bzero(k->key, k->count * sizeof(*k->key));
        free(k->key);
        *k = (struct keys){ NULL, 0 };
}
