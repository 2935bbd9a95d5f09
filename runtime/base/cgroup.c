/*
 * The limits of memory of this process's control groups.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cgroup.h"

#define PATH_MOST 4096
/* Version 1 says the largest number of bytes, in whole pages, for none. */
#define NO_LIMIT (INT64_MAX >> 16 << 16)

static const struct version {
        const char *fs, *limit, *used, *stat, *droppable;
} versions[] = {
        { "cgroup2", "memory.max", "memory.current", "memory.stat", "inactive_file " },
        { "cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat",
          "total_inactive_file " },
};

/* Is `word` one of the list's words, with commas between them? */
static bool has_word(const char *list, const char *word)
{
        const size_t n = strlen(word);

        for (const char *at = list; at; at = strchr(at, ','), at += at != NULL)
                if (strncmp(at, word, n) == 0 && (at[n] == ',' || !at[n]))
                        return true;
        return false;
}

static FILE *open_file(const char *root, const char *path)
{
        char whole[PATH_MOST];

        snprintf(whole, sizeof(whole), "%s%s", root, path);
        return fopen(whole, "re");
}

/* The path of the group that counts this process's memory, of version 2 or of version 1's
 * controller; "": the root.  False: there is none. */
static bool find_group(const char *root, const struct version *v, char group[PATH_MOST])
{
        FILE *f = open_file(root, "/proc/self/cgroup");
        char line[PATH_MOST];
        bool found = false;

        while (f && !found && fgets(line, sizeof(line), f)) {   /* "4:memory:/a/b", "0::/a/b" */
                char *controllers = strchr(line, ':'), *path;
                path = controllers ? strchr(++controllers, ':') : NULL;
                if (!path)
                        continue;
                *path++ = 0;
                path[strcspn(path, "\n")] = 0;
                found = v == &versions[0] ? !*controllers : has_word(controllers, "memory");
                if (found)
                        snprintf(group, PATH_MOST, "%s", strcmp(path, "/") == 0 ? "" : path);
        }
        if (f)
                fclose(f);
        return found;
}

/* Where the groups are mounted, and which of them that folder is: "/", but in a container without
 * a namespace for control groups. */
static bool find_mount(const char *root, const struct version *v, char at[PATH_MOST],
                       char top[PATH_MOST])
{
        FILE *f = open_file(root, "/proc/self/mountinfo");
        char line[3 * PATH_MOST], fs[32], options[512];
        bool found = false;

        while (f && !found && fgets(line, sizeof(line), f)) {
                const char *rest = strstr(line, " - ");
                found = rest && sscanf(rest, " - %31s %*s %511s", fs, options) == 2 &&
                        strcmp(fs, v->fs) == 0 &&
                        (v == &versions[0] || has_word(options, "memory")) &&
                        sscanf(line, "%*s %*s %*s %4095s %4095s", top, at) == 2;
        }
        if (f)
                fclose(f);
        return found;
}

/* How much of what the group uses is files' pages that nobody has used lately. */
static uint64_t droppable(const char *folder, const struct version *v)
{
        char path[2 * PATH_MOST], line[256];
        unsigned long long n = 0;

        snprintf(path, sizeof(path), "%s/%s", folder, v->stat);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f))
                if (strncmp(line, v->droppable, strlen(v->droppable)) == 0 &&
                    sscanf(line + strlen(v->droppable), "%llu", &n) == 1)
                        break;
        if (f)
                fclose(f);
        return n;
}

static bool read_number(const char *folder, const char *file, uint64_t *v)
{
        char path[2 * PATH_MOST];
        unsigned long long n;

        snprintf(path, sizeof(path), "%s/%s", folder, file);
        FILE *f = fopen(path, "re");
        bool read = f && fscanf(f, "%llu", &n) == 1;    /* "max" is no number */
        if (f)
                fclose(f);
        *v = read ? n : 0;
        return read;
}

static void take_group(const char *folder, const struct version *v, struct cgroup_memory *m)
{
        uint64_t limit, used, free;

        if (!read_number(folder, v->used, &used) || !read_number(folder, v->limit, &limit) ||
            limit >= NO_LIMIT)
                return;
        free = droppable(folder, v);
        used = used > free ? used - free : 0;
        free = limit > used ? limit - used : 0;
        m->left = free < m->left ? free : m->left;
        if (limit < m->limit) {
                m->limit = limit;
                snprintf(m->file, sizeof(m->file), "%.200s/%s", folder, v->limit);
        }
}

/* The group and those above it, as far as they are to be seen. */
static void take_groups(const char *root, const struct version *v, struct cgroup_memory *m)
{
        char group[PATH_MOST], at[PATH_MOST], top[PATH_MOST], folder[2 * PATH_MOST];

        if (!find_group(root, v, group) || !find_mount(root, v, at, top))
                return;
        size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
        bool below = strncmp(group, top, n) == 0 && (group[n] == '/' || !group[n]);
        snprintf(folder, sizeof(folder), "%s%s%s", root, at, below ? group + n : "");

        const char *mounted = folder + strlen(root) + strlen(at);
        for (char *end = folder + strlen(folder); end; end = strrchr(mounted, '/')) {
                *end = 0;
                take_group(folder, v, m);
        }
}

void cgroup_memory(const char *root, struct cgroup_memory *m)
{
        *m = (struct cgroup_memory){ .limit = UINT64_MAX, .left = UINT64_MAX };
        for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
                take_groups(root, &versions[i], m);
}
