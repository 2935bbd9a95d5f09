/*
 * Shared by the files that write the content of /proc/self (procfs.c, numbers.c).
 */
#ifndef VMRUN_TEXT_H
#define VMRUN_TEXT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "vm/thread.h"

struct image;

/* A text buffer; the caller frees p. The text is cut off where memory ran out. */
struct text { char *p; size_t n, room; };
void text_add(struct text *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The page of vsyscalls, which is no mapping, but the last line of maps. */
extern const struct map_entry procfs_vsyscall;
/* Appends the line of maps for one entry. */
void procfs_map_line(const struct map_entry *e, struct text *x);
/* smaps, or smaps_rollup. (smaps.c) */
void procfs_smaps(struct thread *t, bool rollup, struct text *x);
/* Those of numbers.c, by the host's file of that name, which is at path. */
bool procfs_is_numbers(const char *name);
void procfs_numbers(struct thread *t, const char *path, const char *name, struct text *x);
void procfs_numbers_set(const struct image *im);

#endif
