/*
 * Makes relative paths in settings absolute before the program can change its directory: programs
 * that it executes later open their nodes again.  Names and origins stay as the user wrote them.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "settings/absolute.h"

/* The folder, or the working directory, with a slash behind it. */
static const char *directory(const char *given, char dir[PATH_MAX + 1])
{
        if (given)
                snprintf(dir, PATH_MAX, "%s", given);
        else if (!getcwd(dir, PATH_MAX) || *dir != '/')
                /* it is removed, or not accessible: paths relative to it cannot be found anyway */
                strcpy(dir, ".");
        if (dir[strlen(dir) - 1] != '/')
                strcat(dir, "/");
        return dir;
}

/* For the query of a URL. */
static void percent_encode(const char *path, char out[3 * PATH_MAX])
{
        static const char plain[] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";

        for (; *path; path++)
                if (strchr(plain, *path))
                        *out++ = *path;
                else
                        out += sprintf(out, "%%%02X", (unsigned char)*path);
        *out = '\0';
}

/* Puts `between` into *text at an offset.  The old text may also be the node's name, so it
 * stays. */
static void insert(const char **text, size_t at, const char *between)
{
        char *copy;

        if (asprintf(&copy, "%.*s%s%s", (int)at, *text, between, *text + at) < 0)
                die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
        *text = copy;
}

static bool is_relative(const char *path)
{
        return *path && *path != '/' && strncasecmp(path, "%2F", 3) != 0;
}

void options_make_absolute(struct options *o, const char *in)
{
        char dir[PATH_MAX + 1];
        static const char *const files[] = { "dax:", "file:" };
        static const char nbd[] = "nbd+unix:", key[] = "socket=";
        char encoded[3 * PATH_MAX];

        for (unsigned i = 0; i < o->nnodes; i++) {
                struct node_option *n = &o->nodes[i];
                if (n->keys && is_relative(n->keys))
                        insert(&n->keys, 0, directory(in, dir));
                for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++)
                        if (strncmp(n->url, files[k], strlen(files[k])) == 0 &&
                            is_relative(n->url + strlen(files[k])))
                                insert(&n->url, strlen(files[k]), directory(in, dir));
                const char *socket =
                        strncmp(n->url, nbd, strlen(nbd)) == 0 ? strstr(n->url, key) : NULL;
                if (socket && is_relative(socket + strlen(key))) {
                        percent_encode(directory(in, dir), encoded);
                        insert(&n->url, (size_t)(socket - n->url) + strlen(key), encoded);
                }
        }
}
