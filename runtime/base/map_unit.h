/*
 * The size of the pages in which Linux maps a file.
 */
#ifndef VMRUN_MAP_UNIT_H
#define VMRUN_MAP_UNIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* Does this character device belong to the dax subsystem?  Then its size, and the alignment that
 * its mappings must have. */
bool dax_device(dev_t device, uint64_t *bytes, uint64_t *align);

/* The size of the pages in which a file is mapped: offset, address and length of each of its
 * mappings are multiples.  fs: of a regular file, where it lies (a memfd of huge pages, too, lies
 * in hugetlbfs). */
uint64_t map_unit(const struct stat *st, const struct statfs *fs);

#endif
