/*
 * map_files, as the program must see it.
 */
#ifndef VMRUN_PROCFS_MAPS_H
#define VMRUN_PROCFS_MAPS_H

#include <stdbool.h>
#include <stddef.h>

struct thread;

/* PROCFS_MAPS: the result of getdents (or getdents64) from fd's position on, or -errno. */
long procfs_list_maps(struct thread *t, int fd, bool is64, char *buf, size_t room);

#endif
