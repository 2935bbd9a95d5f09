/*
 * map_files: for each mapping of a file, a link to the file, named by the addresses.
 *
 * The folder itself is the host's; its listing is made here, and the file position is the index in
 * the list.  An entry leads to the file's path, as in maps.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "marshal/proc_path.h"
#include "memory/files_read.h"
#include "procfs/maps.h"

struct listing {
        char *buf;
        size_t n, room;
        long from, at;                  /* entries listed before, and entries seen */
        bool full, is64;
};

static void add(struct listing *l, const char *name, unsigned char type)
{
        struct {
                uint64_t ino;
                int64_t next;
                uint16_t size;
        } head = { (uint64_t)l->at + 1, l->at + 1, 0 };
        const size_t name_at = 18 + l->is64;
        size_t size = (name_at + strlen(name) + 1 + !l->is64 + 7) & ~7ul;

        if (l->at < l->from || l->full || size > l->room - l->n) {
                l->full |= l->at >= l->from;
                l->at += !l->full;
                return;
        }
        char *e = l->buf + l->n;
        head.size = (uint16_t)size;
        memset(e, 0, size);
        memcpy(e, &head, 18);
        memcpy(e + name_at, name, strlen(name));
        e[l->is64 ? 18 : size - 1] = (char)type;
        l->n += size;
        l->at++;
}

static void add_map(const struct map_entry *e, void *arg)
{
        char name[40], path[PATH_MAX];
        dev_t dev;
        ino_t ino;

        if (e->file == FILE_NONE || file_describe(e->file, path, sizeof(path), &dev, &ino) != 0)
                return;
        snprintf(name, sizeof(name), "%llx-%llx", (unsigned long long)e->start,
                 (unsigned long long)e->end);
        add(arg, name, DT_LNK);
}

long procfs_list_maps(struct thread *t, int fd, bool is64, char *buf, size_t room)
{
        struct listing l = {
                .buf = buf, .room = room, .is64 = is64, .from = lseek(fd, 0, SEEK_CUR)
        };

        add(&l, ".", DT_DIR);
        add(&l, "..", DT_DIR);
        procfs_each_map(t, add_map, &l);
        if (!l.n && l.full)
                return -EINVAL;         /* no room for one entry */
        return lseek(fd, l.at, SEEK_SET) < 0 ? -errno : (long)l.n;
}
