/*
 * The size of the pages of a mapping, from the file system or the dax device.
 */
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "base/host.h"
#include "base/map_unit.h"
#include "layout.h"

bool dax_device(dev_t device, uint64_t *bytes, uint64_t *align)
{
        char base[64], path[128], link[256];

        snprintf(base, sizeof(base), "/sys/dev/char/%u:%u", major(device), minor(device));
        snprintf(path, sizeof(path), "%s/subsystem", base);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        const char *name = strrchr(link, '/');
        snprintf(path, sizeof(path), "%s/size", base);
        if (!name || strcmp(name, "/dax") != 0 || !host_number(path, bytes))
                return false;
        snprintf(path, sizeof(path), "%s/align", base);
        if (host_number(path, align))
                return true;
        snprintf(path, sizeof(path), "%s/dax_region/align", base);      /* before Linux 5.10 */
        if (!host_number(path, align))
                *align = 2 << 20;
        return true;
}

uint64_t map_unit(const struct stat *st, const struct statfs *fs)
{
        uint64_t bytes, align;

        if (S_ISREG(st->st_mode) && fs->f_type == HUGETLBFS_MAGIC)
                return (uint64_t)fs->f_bsize;
        if (S_ISCHR(st->st_mode) && dax_device(st->st_rdev, &bytes, &align))
                return align;
        return PAGE_SIZE;
}
